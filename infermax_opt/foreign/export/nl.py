"""The text form of NL files, which AMPL solvers read (Gay, Writing .nl files, 2005), for linear models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from infermax_opt.foreign.export.model import NamedModel, Row, number

__all__ = ["nl_lines"]


def nl_lines(model: NamedModel) -> Iterator[str]:
    """The lines of an NL file; the start, where there is one, is the initial guess."""
    yield from _header(model)
    for r in range(len(model.rows)):
        # The nonlinear part of each row is 0.
        yield f"C{r}"
        yield "n0"
    yield "O0 0"
    yield f"n{number(model.offset)}"
    if model.has_start:
        yield f"x{len(model.columns)}"
        yield from (f"{k} {number(column.start or 0.0)}" for k, column in enumerate(model.columns))
    yield "r"
    yield from map(_range, model.rows)
    yield "b"
    for column in model.columns:
        if column.lower == column.upper:
            yield f"4 {number(column.lower)}"
        else:
            yield f"0 {number(column.lower)} {number(column.upper)}"
    yield from _jacobian(model)


def _header(model: NamedModel) -> Iterator[str]:
    """The ten lines of counts."""
    rows, columns = len(model.rows), len(model.columns)
    equations = sum(row.sense == "=" for row in model.rows)
    integral = [column for column in model.columns if column.integral]
    binary = sum((column.lower, column.upper) == (0, 1) for column in integral)
    costs = sum(1 for column in model.columns if column.cost)
    longest = [max((len(some.name) for some in part), default=0) for part in (model.rows, model.columns)]
    yield f"g3 1 1 0\t# problem {model.title}"
    yield f" {columns} {rows} 1 0 {equations}\t# vars, constraints, objectives, ranges, eqns"
    yield " 0 0\t# nonlinear constraints, objectives"
    yield " 0 0\t# network constraints: nonlinear, linear"
    yield " 0 0 0\t# nonlinear vars in constraints, objectives, both"
    yield " 0 0 0 1\t# linear network variables; functions; arith, flags"
    whole = len(integral) - binary
    yield f" {binary} {whole} 0 0 0\t# discrete variables: binary, integer, nonlinear (b,c,o)"
    yield f" {model.nonzeros} {costs}\t# nonzeros in Jacobian, gradients"
    yield f" {longest[0]} {longest[1]}\t# max name lengths: constraints, variables"
    yield " 0 0 0 0 0\t# common exprs: b,c,o,c1,o1"


def _range(row: Row) -> str:
    kind = {"<=": 1, ">=": 2, "=": 4}[row.sense]
    return f"{kind} {number(row.right)}"


def _jacobian(model: NamedModel) -> Iterator[str]:
    """Cumulative counts of the columns, then the coefficients of each row and of the objective."""
    counts = [0] * len(model.columns)
    for row in model.rows:
        for k, _ in row.entries:
            counts[k] += 1
    yield f"k{max(0, len(counts) - 1)}"
    yield from map(str, accumulate(counts[:-1]))
    for r, row in enumerate(model.rows):
        if row.entries:
            yield f"J{r} {len(row.entries)}"
            yield from (f"{k} {number(value)}" for k, value in row.entries)
    costs = [(k, column.cost) for k, column in enumerate(model.columns) if column.cost]
    if costs:
        yield f"G0 {len(costs)}"
        yield from (f"{k} {number(value)}" for k, value in costs)
