"""Large-neighbourhood search: one window of batches after another is solved anew, the rest stays.

A formulation whose columns belong to batches (`infermax_opt.infermax.formulation`) is small once all columns
outside a few consecutive batches are fixed to a known solution: what enters and what leaves the window
is then given, and a batch less inside it is a batch less in all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from infermax_opt.engines.highs import Scaling, load
from infermax_opt.engines.lowering import LoweredModel

__all__ = ["improve_windows"]

#: Batches of the first windows.
WIDTH = 12
#: How many times wider they get after a sweep without success.
WIDER = 1.5
#: Columns of the first windows, at most.
COLUMNS = 3000
#: Seconds for one window, at most.
SECONDS = 4.0


def improve_windows(
    model: LoweredModel, batches: Sequence[int], *, deadline: float, seed: int = 0
) -> Iterator[list[int]]:
    """Ever better solutions, each by one window.

    Parameters
    ----------
    model : LoweredModel
        With a start, from which the search sets out.
    batches : sequence of int
        Batch of each column.
    deadline : float
        Moment of `time.monotonic` at which to stop.
    seed : int

    Yields
    ------
    list of int
        Values of all columns.

    Raises
    ------
    ValueError
        If the model has no start.
    """
    if model.start is None:
        raise ValueError("windows need a solution to start from")
    rng = random.Random(seed)
    scaled = Scaling(model)
    values = list(model.start)
    level = _cost(model, values)
    count = 1 + max(batches, default=-1)
    each = max(1, len(batches) // max(1, count))
    width = max(2, min(WIDTH, COLUMNS // each))
    while True:
        better = False
        first = rng.randrange(max(1, width // 2))
        for begin in range(first - width // 2, count, max(1, width // 2)):
            if time.monotonic() >= deadline:
                return
            window = _window(model, values, [begin <= j < begin + width for j in batches])
            seconds = min(SECONDS, max(0.05, deadline - time.monotonic()))
            found = _solve(window, scaled, seconds, seed)
            cost = level if found is None else _cost(model, found)
            if found is not None and cost < level:
                values, level, better = found, cost, True
                yield values
        if not better:
            if width >= count:
                return
            width = int(width * WIDER) + 1


def _window(model: LoweredModel, values: list[int], inside: Sequence[bool]) -> LoweredModel:
    """The model with all columns fixed to `values` that are not `inside`."""
    return replace(
        model,
        lb=[low if free else x for low, x, free in zip(model.lb, values, inside, strict=True)],
        ub=[high if free else x for high, x, free in zip(model.ub, values, inside, strict=True)],
        start=values,
    )


def _cost(model: LoweredModel, values: Sequence[int]) -> int:
    return sum(c * x for c, x in zip(model.cost, values, strict=True))


def _solve(model: LoweredModel, scaled: Scaling, seconds: float, seed: int) -> list[int] | None:
    """Best solution that HiGHS finds from the start in so many seconds."""
    import highspy

    # One thread, like the bounds' linear programs beside it: all models of a process share HiGHS's threads.
    solver = load(model, scaled, seconds, 1, seed, integral=True)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return scaled.values(solver.getSolution().col_value)
