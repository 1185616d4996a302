"""The directive ``api``: every name of `infermax_opt.__all__`, functions or classes, by its room."""

from __future__ import annotations

import inspect
from typing import Any, get_origin

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
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


def is_function(value: Any) -> bool:
    """Whether a name is one of a function, which may be cached."""
    return callable(value) and not inspect.isclass(value) and get_origin(value) is None


class Api(SphinxDirective):
    """``.. api:: functions`` or ``.. api:: classes``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Documentation of the names."""
        named = {name: getattr(infermax_opt, name) for name in infermax_opt.__all__}
        lines: list[str] = []
        if self.arguments[0] == "functions":
            for name, value in named.items():
                if is_function(value):
                    lines += [f".. autofunction:: infermax_opt.{name}", ""]
        else:
            rooms: dict[str, list[str]] = {}
            for name, value in named.items():
                if not is_function(value) and name != "__version__":
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


def link_type(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement) -> Any:
    """Link a type of a signature to its documentation; one that has none here stays as it is written.

    Parameters
    ----------
    app : Sphinx
    env : BuildEnvironment
    node : pending_xref
        The reference, which names the module that defines the type.
    shown : TextElement
        What stands for it.
    """
    # A reference in a text says whether it has a title; what it does not find stays an error.
    if node.get("refdomain") != "py" or "refexplicit" in node:
        return None
    name = node["reftarget"].rpartition(".")[2]
    if name not in infermax_opt.__all__:
        return shown
    domain, place = env.get_domain("py"), f"infermax_opt.{name}"
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", place, node, shown) or shown


def plain_defaults(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write a default that a factory makes as dots; Sphinx shows no types in what it cannot parse.

    Parameters
    ----------
    app : Sphinx
    what, name : str
    obj, options : object
        As Sphinx hands them over.
    signature, returns : str, optional
        The text, and that of the value that is returned.
    """
    return signature and signature.replace("<factory>", "..."), returns


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("api", Api)
    app.connect("autodoc-process-signature", plain_defaults)
    app.connect("missing-reference", link_type)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
