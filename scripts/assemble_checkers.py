"""Assemble the stand-alone checkers: one file of each, from its parts, for the standard library alone.

    python scripts/assemble_checkers.py [--check] [FOLDER]

writes ``check_PROBLEM.py`` for each room `infermax_opt/PROBLEM/checker`, into `scripts/checkers` unless told
otherwise; with ``--check`` it writes nothing and ends with exit code 1 where a file is not current.  The text
of the parts is kept as it is.  Their imports of each other go; those of the standard library are merged.
What would mean something else in one file is refused: a name that two parts give, one that hides an import or
a builtin, an import under another name or inside a function, and any import from elsewhere.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(__file__).resolve().parent / "checkers"
#: What all checkers share.
SHARED = "infermax_opt.checking"
#: Longest line, and what the header of a section is filled up to.
WIDTH = 110
RULER = 100


class Refused(Exception):
    """Parts that cannot be one file; the text says which and why."""


@dataclass(frozen=True)
class Part:
    """A module of a checker.

    Attributes
    ----------
    name : str
        Dotted.
    doc : str
        Its docstring.
    parts : tuple of (str, tuple of str)
        Modules of the checker that it imports, and which names of each.
    standard : tuple of (str, str)
        Modules of the standard library and the names imported from them; no name is the module itself.
    body : str
        Its text without docstring and imports.
    given : tuple of str
        Names that it gives to something.
    """

    name: str
    doc: str
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    standard: tuple[tuple[str, str], ...]
    body: str
    given: tuple[str, ...]


# --- reading the parts ----------------------------------------------------------------------------


def read_part(name: str, root: Path, rooms: tuple[str, ...]) -> Part:
    """Read a module.

    Parameters
    ----------
    name : str
        Dotted.
    root : Path
        Folder of the package.
    rooms : tuple of str
        Packages that it may import from, besides the standard library.
    """
    text = Path(root, *name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    doc = ast.get_docstring(tree)
    if doc is None:
        raise Refused(f"{name}: has no docstring")
    head = [node for node in tree.body[1:] if isinstance(node, ast.Import | ast.ImportFrom)]
    if tree.body[1 : len(head) + 1] != head:
        raise Refused(f"{name}: an import stands below other code")
    everywhere = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    if len(everywhere) > len(head):
        raise Refused(f"{name}: an import stands inside other code")
    last = head[-1].end_lineno if head else tree.body[0].end_lineno
    body = "\n".join(text.splitlines()[last or 0 :]).strip("\n")
    parts, standard = _imports(name, head, rooms)
    given = tuple(given for node in tree.body for given in _given(node))
    return Part(name, doc, tuple(parts), tuple(standard), body, given)


def _imports(
    name: str, head: list[ast.Import | ast.ImportFrom], rooms: tuple[str, ...]
) -> tuple[list[tuple[str, tuple[str, ...]]], list[tuple[str, str]]]:
    """What a module imports of its checker, and of the standard library."""
    parts, standard = [], []
    for node in head:
        aliases = [alias.name for alias in node.names]
        if any(alias.asname for alias in node.names) or "*" in aliases:
            raise Refused(f"{name}:{node.lineno}: imports under another name")
        for module in [node.module or ""] if isinstance(node, ast.ImportFrom) else aliases:
            own = any(module.startswith(f"{room}.") for room in rooms)
            if own and isinstance(node, ast.ImportFrom):
                parts.append((module, tuple(aliases)))
            elif own or module.partition(".")[0] not in sys.stdlib_module_names:
                raise Refused(f"{name}:{node.lineno}: imports {module}")
            elif isinstance(node, ast.Import):
                standard.append((module, ""))
            else:
                standard += [(module, alias) for alias in aliases]
    return parts, standard


def _given(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module gives to something."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif not isinstance(node, ast.Import | ast.ImportFrom):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id


def collect(first: str, root: Path, rooms: tuple[str, ...]) -> list[Part]:
    """A module and all parts that it needs, each after those that it imports.

    Parameters
    ----------
    first : str
        Dotted name of the module.
    root : Path
        Folder of the package.
    rooms : tuple of str
        Packages that parts are in.
    """
    found: dict[str, Part] = {}
    begun: set[str] = set()

    def visit(name: str) -> None:
        """Add a part behind those that it needs."""
        if name in found:
            return
        if name in begun:
            raise Refused(f"{name}: imports itself around a corner")
        begun.add(name)
        part = read_part(name, root, rooms)
        for other, _ in part.parts:
            visit(other)
        found[name] = part

    visit(first)
    return list(found.values())


def require_one_meaning(parts: list[Part]) -> None:
    """Refuse parts of which a name would mean something else in one file."""
    origin: dict[str, str] = {}
    for part in parts:
        for module, alias in part.standard:
            bound = alias or module.partition(".")[0]
            source = f"{module}.{alias}" if alias else bound
            if origin.setdefault(bound, source) != source:
                raise Refused(f"{part.name}: {bound} is {source}, and {origin[bound]} elsewhere")
    for part in parts:
        for given in sorted(set(part.given)):
            if hasattr(builtins, given):
                raise Refused(f"{part.name}: {given} hides a builtin")
            if origin.setdefault(given, part.name) != part.name:
                raise Refused(f"{part.name}: {given} is of {origin[given]}, too")
    for part in parts:
        for module, names in part.parts:
            for name in names:
                if origin.get(name) != module:
                    raise Refused(f"{part.name}: {name} is not of {module}")


# --- writing one file -----------------------------------------------------------------------------


def merged_imports(parts: list[Part]) -> str:
    """Imports of the standard library that any of the parts needs, in the order of the house."""
    modules = {module for part in parts for module, alias in part.standard if not alias}
    names: dict[str, set[str]] = {}
    for part in parts:
        for module, alias in part.standard:
            if alias and module != "__future__":
                names.setdefault(module, set()).add(alias)
    lines = [f"import {module}" for module in sorted(modules)]
    for module, some in sorted(names.items()):
        # Constants, then classes, then functions.
        ordered = sorted(some, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
        line = f"from {module} import {', '.join(ordered)}"
        if len(line) > WIDTH:
            raise Refused(f"the imports from {module} need more than a line")
        lines.append(line)
    return "\n".join(lines)


def section(part: Part) -> str:
    """A part with its path and its docstring above it, as comments."""
    path = f"# --- {part.name.replace('.', '/')}.py "
    doc = [f"# {line}".rstrip() for line in part.doc.splitlines()]
    lines_above = ["", ""] if part.body.startswith(("class ", "def ")) else [""]
    return "\n".join([path.ljust(RULER, "-"), *doc, *lines_above, part.body])


def assemble(problem: str, root: Path = ROOT) -> str:
    """The stand-alone checker of a problem.

    Parameters
    ----------
    problem : str
        Name of its folder in the package.
    root : Path
        Folder of the package.
    """
    room = f"infermax_opt.{problem}.checker"
    parts = collect(f"{room}.command", root, (SHARED, room))
    require_one_meaning(parts)
    *others, command = parts
    if any("__main__" in part.body for part in others):
        raise Refused(f"{room}: more than one part runs as a program")
    note = (
        f"Assembled from the parts in `infermax_opt/checking` and `infermax_opt/{problem}/checker`:\n"
        "change these, then run `make checkers`."
    )
    command = Part(command.name, "The command line.", (), (), command.body, ())
    texts = [section(part) for part in (*others, command)]
    head = f'"""{parts[-1].doc}\n\n{note}\n"""\n\nfrom __future__ import annotations\n'
    return "\n".join([head, merged_imports(parts), "", "\n\n\n".join(texts), ""])


def problems(root: Path = ROOT) -> list[str]:
    """Names of the problems that have a checker."""
    return sorted(path.parent.parent.name for path in root.glob("infermax_opt/*/checker/command.py"))


def main(arguments: list[str]) -> int:
    """Write all checkers, or see that they are current; return the exit code."""
    parser = argparse.ArgumentParser(description="assemble the stand-alone checkers")
    parser.add_argument("folder", type=Path, nargs="?", default=TARGET, help="where they go")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if not current")
    options = parser.parse_args(arguments)
    try:
        texts = {options.folder / f"check_{name}.py": assemble(name) for name in problems()}
    except Refused as problem:
        sys.stderr.write(f"refused: {problem}\n")
        return 2
    stale = [
        path for path, text in texts.items()
        if not path.is_file() or path.read_bytes() != text.encode()
    ]  # fmt: skip
    for path in stale:
        if options.check:
            sys.stderr.write(f"{path.name}: is not current; run `make checkers`\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], encoding="utf-8", newline="\n")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
