"""A formulation as files: the model, what its columns mean, and a start."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Scope
from infermax_opt.core.shown import Shown
from infermax_opt.core.values import AnyInstance
from infermax_opt.engines.formulations import AnyBuiltModel
from infermax_opt.files.json import to_json_text
from infermax_opt.files.writing import replacing
from infermax_opt.foreign.export.lp import lp_lines
from infermax_opt.foreign.export.model import Column, NamedModel, named_model
from infermax_opt.foreign.export.mps import mps_lines
from infermax_opt.foreign.export.names import safe_names
from infermax_opt.foreign.export.nl import nl_lines
from infermax_opt.foreign.export.start import mst_lines, sol_lines

__all__ = ["COLUMNS_SCHEMA", "FORMATS", "ExportedFormulation", "companions", "write_formulation"]

#: Schema of the file that says what columns mean.
COLUMNS_SCHEMA = "infermax-opt/model-columns/1"
#: Formats of models, by the ending of their files.
FORMATS: Mapping[str, Callable[[NamedModel], Iterator[str]]] = {
    ".mps": mps_lines,
    ".lp": lp_lines,
    ".nl": nl_lines,
}


@dataclass(frozen=True)
class ExportedFormulation(Shown):
    """What was written.

    Attributes
    ----------
    instance, formulation : str
        Their names.
    scope : Scope
        What the numbers of the model are good for.
    window : mapping of name to int
        How much the model holds, such as ``{"batches": 14}``.
    columns, rows, nonzeros : int
    started : bool
        Whether there are start files.
    files : mapping of role to str
        What was written: ``model``, ``columns``, ``start`` and ``mst``; for NL ``names`` and ``row_names``.
    """

    instance: str
    formulation: str
    scope: Scope
    window: Mapping[str, int]
    columns: int
    rows: int
    nonzeros: int
    started: bool
    files: Mapping[str, str]

    def facts(self) -> Mapping[str, Any]:
        """All of it; the window and the files by their names."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**own, "scope": self.scope.value, "window": dict(self.window), "files": dict(self.files)}


def companions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Files that belong to a model of that name, itself included, by their roles.

    Raises
    ------
    InputError
        If the ending says no format.
    """
    name = os.fspath(path)
    packed = name.endswith(".gz")
    stem, ending = os.path.splitext(name.removesuffix(".gz"))
    if ending not in FORMATS or not os.path.basename(stem):
        able = ", ".join(FORMATS)
        raise InputError(f"has no name that ends in {able} (or these with .gz)", source=name, field="output")
    if packed and ending == ".nl":
        raise InputError("solvers read NL files as they are; leave out .gz", source=name, field="output")
    found = {"model": name, "columns": f"{stem}.columns.json{'.gz' if packed else ''}"}
    if ending == ".nl":
        # AMPL's names for them; the start stands in the model.
        return {**found, "names": f"{stem}.col", "row_names": f"{stem}.row"}
    return {**found, "start": f"{stem}.sol", "mst": f"{stem}.mst"}


def write_formulation(
    built: AnyBuiltModel, instance: AnyInstance, path: str | os.PathLike[str]
) -> ExportedFormulation:
    """Write a model and what belongs to it, all of the files or none.

    Parameters
    ----------
    built : BuiltModel
    instance : instance
        That it is of.
    path : path
        Of the model; its ending says the format: ``.mps``, ``.lp`` or ``.nl``, the first two also ``.gz``.

    Raises
    ------
    InputError
        If a file cannot be written, or the ending says no format.
    """
    files = companions(path)
    title = safe_names([f"{built.formulation.name}_{instance.name}"])[0]
    try:
        model = named_model(built, title)
    except ValueError as error:
        raise InputError(f"{built.formulation.name!r}: {error}", field="formulation") from None
    if not model.has_start:
        files = {role: name for role, name in files.items() if role not in ("start", "mst")}
    ending = os.path.splitext(files["model"].removesuffix(".gz"))[1]
    texts: dict[str, Callable[[], Iterable[str]]] = {
        "model": lambda: FORMATS[ending](model),
        "columns": lambda: to_json_text(_columns_to_json(built, instance, model, files)).splitlines(),
        "start": lambda: sol_lines(model),
        "mst": lambda: mst_lines(model),
        "names": lambda: (column.name for column in model.columns),
        "row_names": lambda: (*(row.name for row in model.rows), "objective"),
    }
    with ExitStack() as stack:
        # Each gets its name when all are written.
        for role, name in files.items():
            _write(stack.enter_context(replacing(name)), texts[role]())
    for role, name in companions(path).items():
        if role not in files:  # the start of a model that had this name before
            Path(name).unlink(missing_ok=True)
    return ExportedFormulation(
        instance.name,
        built.formulation.name,
        built.scope,
        dict(built.window),
        len(model.columns),
        len(model.rows),
        model.nonzeros,
        model.has_start,
        files,
    )


def _write(path: str, lines: Iterable[str]) -> None:
    """Write lines to a file, compressed if its name says so."""
    with open(path, "wb") as handle, ExitStack() as stack:
        target: Any = handle
        if path.endswith(".gz"):
            # No name and no time in the header: equal content gives equal files.
            target = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=handle, mtime=0))
        text = stack.enter_context(io.TextIOWrapper(target, encoding="utf-8", newline="\n"))
        text.writelines(f"{line}\n" for line in lines)


def _columns_to_json(
    built: AnyBuiltModel, instance: AnyInstance, model: NamedModel, files: Mapping[str, str]
) -> dict[str, Any]:
    """What the columns, rows and the objective of a model are."""
    meaning = getattr(built.formulation, "meaning", None)

    def column(some: Column) -> dict[str, Any]:
        variable, index = some.source.parent_component().local_name, some.source.index()
        where = () if index is None else index if isinstance(index, tuple) else (index,)
        return {
            "name": some.name,
            "variable": variable,
            "index": [part if isinstance(part, int | str) else str(part) for part in where],
            "meaning": None if meaning is None else meaning(built.model, variable, where),
            "lower": some.lower,
            "upper": some.upper,
            "integral": some.integral,
            "scale": some.scale,
        }

    names = {role: Path(name).name for role, name in files.items() if role != "columns"}
    return {
        "schema": COLUMNS_SCHEMA,
        "instance": instance.name,
        "instance_sha256": instance.sha256,
        "formulation": built.formulation.name,
        "scope": built.scope.value,
        "window": dict(built.window),
        "files": names,
        "objective": {
            "name": instance.objective_name,
            "sense": "min",
            "constant": model.offset,
            "scale": model.scale,
            "parts_per_unit": built.parts_per_unit,
            "unit": instance.unit[1],
        },
        "columns": [column(some) for some in model.columns],
        "rows": [{"name": row.name, "constraint": row.source} for row in model.rows],
    }
