"""Start files: the values of a schedule, for a solver to begin with."""

from __future__ import annotations

from collections.abc import Iterator

from infermax_opt.foreign.export.model import NamedModel, number

__all__ = ["mst_lines", "sol_lines"]


def sol_lines(model: NamedModel) -> Iterator[str]:
    """The lines of a solution file as HiGHS writes it (``--read_solution_file``)."""
    values = [column.start or 0.0 for column in model.columns]
    objective = model.offset + sum(
        column.cost * value for column, value in zip(model.columns, values, strict=True)
    )
    yield from ("Model status", "Unknown", "", "# Primal solution values", "Feasible")
    yield f"Objective {number(objective)}"
    yield f"# Columns {len(values)}"
    yield from (f"{column.name} {number(x)}" for column, x in zip(model.columns, values, strict=True))
    yield f"# Rows {len(model.rows)}"
    for row in model.rows:
        yield f"{row.name} {number(sum((a * values[k] for k, a in row.entries), 0.0))}"
    yield from ("", "# Dual solution values", "None", "", "# Basis", "HiGHS_basis_file v2", "None")


def mst_lines(model: NamedModel) -> Iterator[str]:
    """The lines of a MIP start as Gurobi reads it: a column and its value each."""
    yield f"# MIP start of {model.title}"
    for column in model.columns:
        yield f"{column.name} {number(column.start or 0.0)}"
