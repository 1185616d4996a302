"""Free MPS."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from infermax_opt.foreign.export.model import Column, NamedModel, number

__all__ = ["mps_lines"]

#: Name of the objective row.
OBJECTIVE = "objective"
SENSES = {"<=": "L", ">=": "G", "=": "E"}


def mps_lines(model: NamedModel) -> Iterator[str]:
    """The lines of a free MPS file; a constant of the objective is minus its right-hand side."""
    yield f"NAME {model.title}"
    yield "ROWS"
    yield f" N {OBJECTIVE}"
    for row in model.rows:
        yield f" {SENSES[row.sense]} {row.name}"
    yield from _columns(model)
    yield "RHS"
    if model.offset:
        yield f" RHS {OBJECTIVE} {number(-model.offset)}"
    for row in model.rows:
        if row.right:
            yield f" RHS {row.name} {number(row.right)}"
    yield "BOUNDS"
    for column in model.columns:
        yield from _bounds(column)
    yield "ENDATA"


def _columns(model: NamedModel) -> Iterator[str]:
    entries: list[list[tuple[str, float]]] = [
        [(OBJECTIVE, column.cost)] if column.cost else [] for column in model.columns
    ]
    for row in model.rows:
        for k, value in row.entries:
            entries[k].append((row.name, value))
    yield "COLUMNS"
    numbered = enumerate(model.columns)
    for integral, some in groupby(numbered, key=lambda pair: pair[1].integral):
        if integral:
            yield " MARKER 'MARKER' 'INTORG'"
        for k, column in some:
            # One that is in no row would be unknown in BOUNDS.
            for name, value in entries[k] or [(OBJECTIVE, 0.0)]:
                yield f" {column.name} {name} {number(value)}"
        if integral:
            yield " MARKER 'MARKER' 'INTEND'"


def _bounds(column: Column) -> Iterator[str]:
    if column.lower == column.upper:
        yield f" FX BOUND {column.name} {number(column.lower)}"
        return
    if column.lower:
        yield f" LO BOUND {column.name} {number(column.lower)}"
    yield f" UP BOUND {column.name} {number(column.upper)}"
