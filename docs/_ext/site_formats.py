"""The directive ``formats``: the JSON Schema files of the package, each to read and to download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.parsing import nested_parse_to_nodes


class Formats(SphinxDirective):
    """``.. formats:: ../../infermax_opt/files/formats``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A section for each file, instances first, what they share last."""
        _, folder = self.env.relfn2path(self.arguments[0])

        def place(path: Path) -> tuple[bool, str]:
            return path.name.startswith(("common", "cost", "worker")), path.name

        lines: list[str] = []
        for path in sorted(Path(folder).glob("*.schema.json"), key=place):
            self.env.note_dependency(str(path))
            title = json.loads(path.read_text(encoding="utf-8"))["title"]
            file = f"{self.arguments[0]}/{path.name}"
            lines += [title, "-" * len(title), "", f":download:`{path.name} <{file}>`", ""]
            lines += [f".. literalinclude:: {file}", "   :language: json", ""]
        content = StringList(lines, source="<formats>")
        return nested_parse_to_nodes(self.state, content, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("formats", Formats)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
