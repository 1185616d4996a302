"""Potentials of the occupancy graph as a guide for planners: `infermax_opt.infermax.bounds.occupancy`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph
from infermax_opt.infermax.bounds._occupancy_search import (
    DRAFT_TOLERANCE,
    ROWS,
    TOLERANCE,
    OccupancyPrices,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["OccupancyGuide", "occupancy_guide"]


@dataclass(frozen=True)
class OccupancyGuide:
    """Potentials and costs of steps, in units of a batch of decodes.

    Attributes
    ----------
    between, admitted : float tables by active requests and their KV after their next token
        Potentials between batches, and while first tokens and returns are put into one; infinite where no
        walk leads.
    mixed : float
        A batch that prefills as well.
    token, size : float
        What a generated token earns, and per token of KV after it.
    out, back : tuples of two floats
        Cost of an eviction and of a return: fixed, and per token of KV after the next token.
    first, finish : float
        What a first token and the last one earn besides.
    earned : float
        What all tokens of all requests earn.
    """

    between: Floats
    admitted: Floats
    mixed: float
    token: float
    size: float
    out: tuple[float, float]
    back: tuple[float, float]
    first: float
    finish: float
    earned: float


def occupancy_guide(graph: OccupancyGraph, stop: Callable[[], bool]) -> OccupancyGuide | None:
    """The best potentials found that look at all tokens of requests of one kind.

    Parameters
    ----------
    graph : OccupancyGraph
        With one size of prompts and one of finished requests; a batch costs something.
    stop : callable
        Asked often whether to search no longer.

    Returns
    -------
    OccupancyGuide or None
        None where nothing settled.
    """
    import numpy as np

    from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

    graph = replace(graph, paired=False)
    search = OccupancyPrices(graph, stop, False)
    draft = search.improve(replace(graph, limit=ROWS), DRAFT_TOLERANCE, False)
    search.improve(graph, TOLERANCE, True, draft)
    if search.prices is None:
        return None
    tables, _ = graph.settle(search.prices, None)
    assert tables is not None
    costs, unit = graph.costs(search.prices), float(graph.plain)
    between, admitted, _ = np.where(tables < FAR, tables / unit, np.inf)
    return OccupancyGuide(
        between,
        admitted,
        costs.mixed / unit,
        costs.token / unit,
        costs.size / unit,
        (costs.out_fixed / unit, costs.out_size / unit),
        (costs.in_fixed / unit, costs.in_size / unit),
        float(costs.first[0]) / unit,
        float(costs.finish[0]) / unit,
        graph.earned(search.prices) / unit,
    )
