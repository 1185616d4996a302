"""Docstrings and help texts are for reading as they are: signs that markup would take are escaped."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

#: An absolute value or a size, |S|; an unpacked argument, *prices.
SIZE = re.compile(r"(?<![\\|`])\|(?=[^|\n]*\|)([^|\n`]*)\|")
UNPACKED = re.compile(r"(?<=[\s(])\*(?=\w+[,)])(?!\w+[,)]\*)")


def docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape bars and stars that stand for themselves."""
    lines[:] = [UNPACKED.sub(r"\\*", SIZE.sub(r"\\|\1\\|", line)) for line in lines]


def help_text(app: Sphinx, context: Any, lines: list[str]) -> None:
    """Escape the stars of patterns."""
    lines[:] = [re.sub(r"(?<!\\)\*", r"\\*", line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both; before numpydoc, which numbers what it finds."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx_click")
    app.connect("autodoc-process-docstring", docstring, priority=400)
    app.connect("sphinx-click-process-description", help_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
