"""The directive ``api``: every name of `infermax_opt.__all__`, functions or classes, by its room."""

from __future__ import annotations

import inspect
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.parsing import nested_parse_to_nodes

import infermax_opt

#: Rooms whose classes are of one kind of problem.
WINGS = {
    "infermax": "Requests on one machine",
    "makespan": "Requests on clients",
    "placement": "Requests on workers",
    "cluster": "Streams",
    "iteration": "One batch",
    "pipelining": "Shared reservations",
}


def room(value: Any) -> str:
    """What a class is about: its wing, or all problems."""
    parts = str(value.__module__).split(".")
    return WINGS.get(parts[1] if len(parts) > 1 else "", "All problems")


class Api(SphinxDirective):
    """``.. api:: functions`` or ``.. api:: classes``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Documentation of the names."""
        named = {name: getattr(infermax_opt, name) for name in infermax_opt.__all__}
        lines: list[str] = []
        if self.arguments[0] == "functions":
            for name, value in named.items():
                if inspect.isfunction(value):
                    lines += [f".. autofunction:: infermax_opt.{name}", ""]
        else:
            rooms: dict[str, list[str]] = {}
            for name, value in named.items():
                if not inspect.isfunction(value) and name != "__version__":
                    rooms.setdefault(room(value), []).append(name)
            for heading in ("All problems", *WINGS.values()):
                if heading in rooms:
                    lines += [heading, "-" * len(heading), ""]
                for name in rooms.get(heading, ()):
                    kind = "autoclass" if inspect.isclass(named[name]) else "autodata"
                    lines += [f".. {kind}:: infermax_opt.{name}", ""]
                    lines[-1:] = ["   :members:", ""] if kind == "autoclass" else [""]
        content = StringList(lines, source="<infermax_opt.__all__>")
        return nested_parse_to_nodes(self.state, content, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("api", Api)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
