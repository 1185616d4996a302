"""Prices of time and of KV for `pace`, in floats, where prompts pay the price of their moment.

They begin with the prices of a fluid that serves the shortest first, and a q of each request that is the
largest r yet to come.  Many members are tried for each request, as most ends are out of the question for
most of them; of these only some are followed, each as far as it is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._fluid import busy_prices
from infermax_opt.infermax.bounds._pace_search import Point, Prices, Search, Setting
from infermax_opt.infermax.bounds._pace_stages import ROOT_BITS

__all__ = ["spot_prices"]

#: Cells of time: at most for each request, and in all; fewer where so many cells times requests are passed.
CELLS_EACH, CELLS, ALL_CELLS = 4, 400, 1_250_000
#: Work of prompts and of later tokens in a fluid, as multiples of their own: memory and attention count.
FLUIDS = (1.0, 1.0), (1.2, 1.15)
#: Shares of its prices that are tried first.
SHARES = (0.5, 0.7, 0.8, 0.9, 1.0)
#: Steps in which all prices move, and lengths of the first and the last, for r.
STEPS = 120
LENGTHS = 0.3, 0.015
#: Members: multiples of k and of q.
MEMBERS = (
    *((1.0, q) for q in (1.3, 1.15, 1.05, 1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35, 0.0)),
    *((k, q) for k in (0.8, 0.6, 0.3) for q in (1.0, 0.7)),
    (1.2, 0.5),
)


def spot_prices(setting: Setting, stop: Callable[[], bool]) -> Prices:
    """Prices of time and of KV, with k and q, and the members that are followed.

    Parameters
    ----------
    setting : Setting
    stop : callable
        Asked whether to end soon.
    """
    search = max((_begun(setting, *fluid) for fluid in FLUIDS), key=lambda some: some.best)
    search.move_all(MEMBERS, STEPS, LENGTHS, stop)
    return _followed(search)


def _begun(setting: Setting, prompts: float, later: float) -> Search:
    """The search with the best share of the prices of a fluid.

    Parameters
    ----------
    setting : Setting
    prompts, later : float
        Work in the fluid, as multiples of that of a prompt and of later tokens.
    """
    import numpy as np

    works = [
        (float(begin), prompts * prompt + later * sum(stage.works for stage in stages), count)
        for begin, prompt, stages, count in zip(
            setting.begin, setting.prompts, setting.stages, setting.numbers, strict=True
        )
    ]
    count = max(8, min(CELLS_EACH * len(works), CELLS, ALL_CELLS // len(works)))
    works = [work for work in works if work[1] > 0]
    cells = busy_prices(works, count) if works else [(1, 0.0)]
    search = Search([end for end, _ in cells], setting)
    search.scales = np.array(MEMBERS)
    prices = np.array([price for _, price in cells])
    search.begin_at(max((_at(search, (share * prices) ** 0.5) for share in SHARES), key=search.value))
    return search


def _at(search: Search, roots: Any) -> Point:
    """The point with these r, in which KV costs nothing, and each q is the largest r yet to come."""
    import numpy as np

    point = search.at(roots)
    for row, stages in zip(point.bases, search.setting.stages, strict=True):
        row[0] = row[len(stages) :] = 0.0
    return point._replace(own=np.maximum.accumulate(roots[::-1])[::-1][search.first])


def _followed(search: Search) -> Prices:
    """The prices found, rounded, with those members of each request that are needed."""
    import numpy as np

    found, one = search.prices(), float(1 << ROOT_BITS)
    cells = np.array(found.cells, dtype=np.float64)
    bases = np.zeros(search.found[0].bases.shape)
    for row, own in zip(bases, found.bases, strict=True):
        row[: len(own)] = own
    point = Point(
        np.ascontiguousarray(cells[:, 1]) / one,
        np.ascontiguousarray(cells[:, 2]) / one**2,
        np.array(found.own, dtype=np.float64) / one,
        bases / one,
    )
    search.scales = np.array(found.members, dtype=np.float64) / one
    until = np.zeros((len(bases), len(found.members)), np.int64)
    _kernel()(
        search.ends, point.roots, point.rents, search.begin, search.prompts, search.stages, point.own,
        point.bases, search.scales, search.values(point), until,
    )  # fmt: skip
    followed = [[(j, int(row[j])) for j in np.flatnonzero(row)] for row in until]
    return found._replace(followed=[[(int(j), cells) for j, cells in row] for row in followed])


@functools.cache
def _kernel() -> Callable[..., Any]:
    from infermax_opt.infermax.bounds import _kernels_pace as some

    helpers = (some.drift, some.is_refilled, some.enough, some.course, some.covering)
    return compiled(some.followed, helpers)
