"""The LP format of CPLEX, which most solvers read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infermax_opt.foreign.export.model import NamedModel, number

__all__ = ["lp_lines"]

#: Terms on a line, so that none is too long.
TERMS = 6


def lp_lines(model: NamedModel) -> Iterator[str]:
    """The lines of an LP file."""
    names = [column.name for column in model.columns]
    yield f"\\ {model.title}"
    yield "min"
    # All columns, so that readers number them in this order; a start file may go by it.
    costs = ((k, column.cost) for k, column in enumerate(model.columns))
    constant = [f"{'-' if model.offset < 0 else '+'} {number(abs(model.offset))}"] if model.offset else []
    yield from _sum(" objective:", [*_terms(names, costs), *constant])
    yield "st"
    for row in model.rows:
        terms = list(_terms(names, row.entries))
        yield from _sum(f" {row.name}:", [*terms, f"{row.sense} {number(row.right)}"], names[0])
    yield "bounds"
    for column in model.columns:
        yield f" {number(column.lower)} <= {column.name} <= {number(column.upper)}"
    whole = [column.name for column in model.columns if column.integral]
    if whole:
        yield "general"
        yield from (f" {name}" for name in whole)
    yield "end"


def _terms(names: list[str], entries: Iterable[tuple[int, float]]) -> Iterator[str]:
    for k, value in entries:
        yield f"{'-' if value < 0 else '+'} {number(abs(value))} {names[k]}"


def _sum(head: str, terms: list[str], zero: str | None = None) -> Iterator[str]:
    """A sum over several lines; where a row has no terms, nothing times the column `zero`."""
    if zero is not None and len(terms) == 1:
        terms = [f"0 {zero}", *terms]
    yield head
    for k in range(0, len(terms), TERMS):
        yield "  " + " ".join(terms[k : k + TERMS])
