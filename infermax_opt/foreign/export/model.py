"""A model ready to be written: columns and rows with names, in the numbers that solvers compute with.

It is the model that `solve` hands to HiGHS.  Times in ticks are 1e9 and more, far from the tolerances of
solvers, so columns of times, their rows and the objective are divided by powers of two
(`infermax_opt.engines.highs.Scaling`), which changes no digit of a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from infermax_opt.engines.formulations import AnyBuiltModel
from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.foreign.export.names import safe_names

__all__ = ["Column", "NamedModel", "Row", "named_model", "number"]


class Column(NamedTuple):
    """A column of a model.

    Attributes
    ----------
    name : str
    lower, upper : float
    integral : bool
    cost : float
    start : float or None
        Its value in the start.
    scale : int
        So many units of the formulation, such as ticks, are one of the column.
    source : Var data
        Of the Pyomo model.
    """

    name: str
    lower: float
    upper: float
    integral: bool
    cost: float
    start: float | None
    scale: int
    source: Any


class Row(NamedTuple):
    """A row of a model: the sum of coefficient times column (by number) against a right-hand side.

    Attributes
    ----------
    name : str
    sense : {"<=", ">=", "="}
    right : float
    entries : list of (int, float)
    source : str
        Name of the Pyomo constraint.
    """

    name: str
    sense: str
    right: float
    entries: list[tuple[int, float]]
    source: str


@dataclass(frozen=True)
class NamedModel:
    """Minimise ``offset`` and the cost of all columns over all rows; real columns are first, then whole ones.

    Attributes
    ----------
    title : str
    columns : list of Column
    rows : list of Row
    offset : float
    scale : int
        So many units of the formulation's objective, such as ticks, are one of this model's.
    """

    title: str
    columns: list[Column]
    rows: list[Row]
    offset: float
    scale: int

    @property
    def nonzeros(self) -> int:
        """Coefficients of the rows."""
        return sum(len(row.entries) for row in self.rows)

    @property
    def has_start(self) -> bool:
        """Whether each column has a value to start from."""
        return all(column.start is not None for column in self.columns)


def number(value: float) -> str:
    """The shortest decimal that reads back as the same double."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def named_model(built: AnyBuiltModel, title: str) -> NamedModel:
    """Lower a model that a formulation built, scale it and name its parts.

    Raises
    ------
    ValueError
        If it is not linear, or a variable has no finite bounds.
    """
    from pyomo.core import Constraint

    from infermax_opt.engines.highs import Scaling

    lowered, variables = built.lowered()
    scaling = Scaling(lowered)
    units = [int(unit) for unit in scaling.column]
    order = sorted(range(lowered.columns), key=lambda k: (_kind(lowered, k), k))
    place = {k: at for at, k in enumerate(order)}
    names = safe_names(variables[k].name for k in order)
    columns = [
        Column(
            name,
            lowered.lb[k] / units[k],
            lowered.ub[k] / units[k],
            lowered.integral[k],
            lowered.cost[k] * units[k] / scaling.cost,
            None if lowered.start is None else lowered.start[k] / units[k],
            units[k],
            variables[k],
        )
        for name, k in zip(names, order, strict=True)
    ]
    sources = [row.name for row in built.model.component_data_objects(Constraint, active=True)]
    rows = _rows(lowered, sources, units, [float(share) for share in scaling.row], place)
    return NamedModel(title, columns, rows, lowered.offset / scaling.cost, int(scaling.cost))


def _kind(model: LoweredModel, k: int) -> int:
    """Real, binary or whole: the order in which NL files want columns."""
    if not model.integral[k]:
        return 0
    return 1 if (model.lb[k], model.ub[k]) == (0, 1) else 2


def _rows(
    model: LoweredModel, sources: list[str], units: list[int], shares: list[float], place: dict[int, int]
) -> list[Row]:
    """The rows, one for each end of those that have two; those without any are left out."""
    found: list[tuple[str, str, float, list[tuple[int, float]]]] = []
    for r, source in enumerate(sources):
        low, high = model.row_lb[r], model.row_ub[r]
        entries = sorted((place[k], value * units[k] * shares[r]) for k, value in model.row(r))
        if low is not None and low == high:
            found.append((source, "=", low * shares[r], entries))
            continue
        if low is not None:
            found.append((source, ">=", low * shares[r], entries))
        if high is not None:
            found.append((source, "<=", high * shares[r], entries))
    names = safe_names(source for source, *_ in found)
    return [
        Row(name, sense, right, entries, source)
        for name, (source, sense, right, entries) in zip(names, found, strict=True)
    ]
