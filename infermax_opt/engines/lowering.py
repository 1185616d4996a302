"""From a Pyomo model to plain integer arrays, the one form that every engine solves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil, floor, lcm
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyomo.core import ConcreteModel

__all__ = ["LoweredModel", "assign", "lower"]


@dataclass(frozen=True)
class LoweredModel:
    """Minimise ``offset + cost @ x`` over rows and column bounds, all of it integers.

    Attributes
    ----------
    lb, ub : list of int
        Bounds of the columns.
    integral : list of bool
        Columns that have to be integral; the others are at some optimum (see `formulation`).
    cost, offset : list of int, int
    row_start : list of int
        Row r has the entries ``row_start[r]:row_start[r + 1]`` of `index` and `value`.
    index, value : list of int
        Column and coefficient of every entry.
    row_lb, row_ub : list of int or None
        Bounds of the rows; None is no bound.
    start : list of int or None
        Value of every column in the warm start.
    """

    lb: list[int]
    ub: list[int]
    integral: list[bool]
    cost: list[int]
    offset: int
    row_start: list[int]
    index: list[int]
    value: list[int]
    row_lb: list[int | None]
    row_ub: list[int | None]
    start: list[int] | None = None

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.lb)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.row_lb)

    def row(self, r: int) -> list[tuple[int, int]]:
        """Entries (column, coefficient) of row r."""
        span = range(self.row_start[r], self.row_start[r + 1])
        return [(self.index[k], self.value[k]) for k in span]

    def objective(self, values: list[int]) -> int:
        """Exact objective of `values`."""
        return self.offset + sum(c * x for c, x in zip(self.cost, values, strict=True) if c)

    def broken(self, values: list[int]) -> list[str]:
        """Every bound and row that `values` break, exactly; empty for a feasible point."""
        faults = []
        for k, (x, low, high) in enumerate(zip(values, self.lb, self.ub, strict=True)):
            if not low <= x <= high:
                faults.append(f"column {k} is {x}, not in [{low}, {high}]")
        for r, (lower_end, upper_end) in enumerate(zip(self.row_lb, self.row_ub, strict=True)):
            total = sum(a * values[k] for k, a in self.row(r))
            if (lower_end is not None and total < lower_end) or (upper_end is not None and total > upper_end):
                faults.append(f"row {r} is {total}, not in [{lower_end}, {upper_end}]")
        return faults

    def to_json(self) -> dict[str, Any]:
        """Return the fields, for the pipe to a worker."""
        return asdict(self)


def lower(model: ConcreteModel, *, warm: bool = False) -> tuple[LoweredModel, list[Any]]:
    """Flatten a linear Pyomo model.

    Parameters
    ----------
    model : ConcreteModel
        Fixed variables become constants.
    warm : bool
        Take the values of the variables as warm start.

    Returns
    -------
    LoweredModel, list of Var data
        The second names the Pyomo variable of every column, for `assign`.

    Raises
    ------
    ValueError
        If the model is not linear, a variable has no finite bounds, or the objective is not
        integral.  Rows are scaled to integers exactly.
    """
    from pyomo.core import Constraint, Objective, Var
    from pyomo.repn import generate_standard_repn

    variables = [v for v in model.component_data_objects(Var, active=True) if not v.fixed]
    column = {id(v): k for k, v in enumerate(variables)}
    _check_bounds(variables)
    objective = next(model.component_data_objects(Objective, active=True))
    repn = generate_standard_repn(objective.expr)
    cost = [0] * len(variables)
    for v, a in _linear(repn, "the objective"):
        cost[column[id(v)]] += _whole(a, "the objective")
    lowered = LoweredModel(
        lb=[ceil(v.lb) for v in variables],
        ub=[floor(v.ub) for v in variables],
        integral=[v.is_integer() or v.is_binary() for v in variables],
        cost=cost,
        offset=_whole(repn.constant, "the objective"),
        row_start=[0],
        index=[],
        value=[],
        row_lb=[],
        row_ub=[],
        start=[round(v.value) for v in variables] if warm else None,
    )
    for constraint in model.component_data_objects(Constraint, active=True):
        _add_row(lowered, constraint, column)
    return lowered, variables


def _check_bounds(variables: list[Any]) -> None:
    for v in variables:
        if v.lb is None or v.ub is None:
            raise ValueError(f"{v.name} has no finite bounds")


def _add_row(lowered: LoweredModel, constraint: Any, column: Mapping[int, int]) -> None:
    """Add a constraint, scaled to integers; `column` by the identity of a variable."""
    from pyomo.repn import generate_standard_repn

    body = generate_standard_repn(constraint.body)
    terms = _linear(body, constraint.name)
    low, high = (
        None if end is None else Fraction(end) - Fraction(body.constant)
        for end in (constraint.lb, constraint.ub)
    )
    numbers = [Fraction(a) for _, a in terms]
    scale = lcm(*(n.denominator for n in numbers))
    if not terms:
        # Everything fixed: an empty row that still has to hold.
        scale = lcm(*(end.denominator for end in (low, high) if end is not None))
    lowered.index.extend(column[id(v)] for v, _ in terms)
    lowered.value.extend(int(scale * n) for n in numbers)
    lowered.row_start.append(len(lowered.index))
    lowered.row_lb.append(None if low is None else ceil(scale * low))
    lowered.row_ub.append(None if high is None else floor(scale * high))


def assign(variables: list[Any], values: list[int]) -> None:
    """Set the Pyomo variables to the values of their columns."""
    for variable, value in zip(variables, values, strict=True):
        variable.set_value(value, skip_validation=True)


def _linear(repn: Any, name: str) -> list[tuple[Any, Any]]:
    if not repn.is_linear():
        raise ValueError(f"{name} is not linear")
    return [(v, a) for v, a in zip(repn.linear_vars, repn.linear_coefs, strict=True) if a]


def _whole(number: Any, name: str) -> int:
    value = Fraction(number)
    if value.denominator != 1:
        raise ValueError(f"{name} holds {float(value)!r}, which is not an integer")
    return int(value)
