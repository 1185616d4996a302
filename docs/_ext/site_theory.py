"""The directive ``proofs``: what the modules of a folder prove, as their docstrings say it.

A module has a section where its docstring or that of one of its public functions and classes goes beyond its
first paragraph. A new file appears by itself.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.parsing import nested_parse_to_nodes


def longer(text: str | None) -> bool:
    """Whether a docstring says more than its first paragraph and its sections of parameters."""
    said = re.split(r"\n\s*(?:Parameters|Returns|Attributes|Raises|Yields)\n\s*---", text or "")[0]
    return "\n\n" in said.strip() or "Notes\n" in (text or "")


def public(module: ModuleType) -> list[tuple[str, Any]]:
    """Functions and classes of a module, those that it lists and defines itself."""
    members = [(name, getattr(module, name)) for name in getattr(module, "__all__", ())]
    return [
        (name, value)
        for name, value in members
        if (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module.__name__
    ]


def title(module: ModuleType) -> str:
    """First words of the docstring: up to its first colon or stop."""
    first = " ".join((module.__doc__ or module.__name__).split("\n\n")[0].split())
    return re.split(r"[:;.](?:\s|$)", first)[0].replace("*", r"\*")


class Proofs(SphinxDirective):
    """``.. proofs:: infermax_opt.infermax.bounds``."""

    required_arguments = 1
    option_spec = {"level": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Sections of all modules of the package."""
        package = import_module(self.arguments[0])
        lines: list[str] = []
        modules = []
        # What others import first, then their parts; kernels only compute.
        for file in sorted(
            Path(str(package.__file__)).parent.glob("*.py"), key=lambda f: (f.stem[0] == "_", f.stem)
        ):
            if file.stem.startswith(("_kernel", "__init__")) or file.stem.endswith("_kernel"):
                continue
            self.env.note_dependency(str(file))
            module = import_module(f"{package.__name__}.{file.stem}")
            members = [name for name, value in public(module) if longer(value.__doc__)]
            if longer(module.__doc__) or members:
                modules.append((title(module), module, members))
        for heading, module, members in modules:
            path = module.__name__.replace(".", "/") + ".py"
            lines += [heading, "-" * len(heading), "", f"``{path}``", ""]
            lines += [f".. automodule:: {module.__name__}", "   :no-index:", ""]
            for name in members:
                value = getattr(module, name)
                kind = "autoclass" if inspect.isclass(value) else "autofunction"
                lines += [f".. {kind}:: {module.__name__}.{name}", "   :no-index:", ""]
        content = StringList(lines, source=f"<proofs of {self.arguments[0]}>")
        return nested_parse_to_nodes(self.state, content, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("proofs", Proofs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
