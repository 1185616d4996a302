"""Prices of time for `pace`: the bound is concave in them, and its slope is followed, in floats.

It begins with the prices of a fluid in which all requests decode together.  A step goes as far as the bound
would be better by some aim, which becomes less where none is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._fluid import fluid_roots
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Setting", "good_prices"]

#: Cells of time before the last arrival: at most, and for each request.
CELLS, CELLS_EACH = 400, 16
#: Shares of the prices of the fluid that are tried first.
SHARES = (0.0, 0.3, 0.5, 0.7, 0.9)
#: Steps at most, steps without much gain before the aim is less, and by which factor.
ROUNDS, PATIENCE, LESS = 500, 7, 0.65
#: First aim as a share of the bound, the least one, and the part of each step that is taken.
AIM, LEAST_AIM, PART = 0.05, 1e-4, 0.25
#: Cells over which slopes are spread, as a share of all.
SPREAD = 0.004
#: Multiples of its q that are tried for each request.
OWN = (0.8, 0.9, 1.0, 1.1, 1.25)


class Setting(NamedTuple):
    """Kinds of requests: begin, number, stages (sums and x in 2**-12); and members (k, multiple of q)."""

    begin: Sequence[int]
    numbers: Sequence[int]
    stages: Sequence[Sequence[tuple[int, ...]]]
    scales: Sequence[tuple[float, float]]


def good_prices(
    instance: Instance, piece: int, setting: Setting, stop: Callable[[], bool]
) -> tuple[list[int], list[float], list[float]]:
    """Ends of cells in ticks, r in each, and q of each kind of requests.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    setting : Setting
    stop : callable
        Asked whether to end soon.
    """
    import numpy as np

    ends, roots = fluid_roots(instance, piece, min(CELLS, CELLS_EACH * len(instance.requests)))
    ticks = instance.cost.ticks
    step = float(ticks.alpha[piece] + ticks.d0)
    search = _Search(ends, setting)
    fluid = np.array(roots) / step**0.5
    search.begin_at(max((share * fluid for share in SHARES), key=lambda r: search.value(r, search.mean(r))))
    search.climb(stop)
    return ends, search.roots.tolist(), search.own.tolist()


class _Search:
    """The climb.

    Parameters
    ----------
    ends : sequence of int
        Of the cells, in ticks.
    setting : Setting
    """

    def __init__(self, ends: Sequence[int], setting: Setting):
        import numpy as np

        depth = max(len(some) for some in setting.stages)
        self.best = 0.0
        self.ends = np.array(ends, dtype=np.float64)
        self.spans = np.diff(self.ends, prepend=0.0)
        self.begin = np.array(setting.begin, dtype=np.float64)
        self.count = np.array(setting.numbers, dtype=np.float64)
        self.scales = np.array(setting.scales)
        self.stages = np.zeros((len(self.begin), depth, 5))
        for row, some in zip(self.stages, setting.stages, strict=True):
            for s in range(depth):  # those that have fewer stay in their last one, which then holds nothing
                row[s] = some[s] if s < len(some) else (0, 0, 0, *some[-1][3:])
        self.stages[:, :, 3:] /= 1 << 12
        alone = self.stages[:, :, 0].sum(axis=1)
        #: Cells in which a request is, about.
        self.first = np.minimum(np.searchsorted(self.ends, self.begin, side="right"), len(ends) - 1)
        self.last = np.clip(
            np.searchsorted(self.ends, self.begin + 2 * alone), self.first + 1, max(1, len(ends))
        )
        self.where = np.zeros(len(self.begin), np.int64)
        self.member = np.zeros((len(self.begin), 2), np.int64)
        width = max(1, round(len(ends) * SPREAD))
        self.spread = np.ones(2 * width + 1) / (2 * width + 1)

    def mean(self, roots: Floats) -> Floats:
        """Mean r in the time of each request."""
        import numpy as np

        sums = np.concatenate(([0.0], np.cumsum(roots)))
        means: Floats = (sums[self.last] - sums[self.first]) / (self.last - self.first)
        return means

    def values(self, roots: Floats, own: Floats) -> Floats:
        """Least latency and pay of each request."""
        import numpy as np

        value = np.zeros(len(self.begin))
        _kernels()[0](
            self.ends, roots, self.begin, self.stages, own, self.scales, value, self.where, self.member
        )
        return value

    def value(self, roots: Floats, own: Floats) -> float:
        """The bound, in ticks of all requests."""
        return float(self.count @ self.values(roots, own) - self.spans @ roots**2)

    def slope(self, roots: Floats, own: Floats) -> Floats:
        """By how much the bound rises with r in each cell, after `value`."""
        import numpy as np

        slope = np.zeros(len(roots))
        _kernels()[1](
            self.ends, roots, self.begin, self.stages, own, self.scales, self.count, self.where,
            self.member, slope,
        )  # fmt: skip
        found: Floats = slope - 2 * self.spans * roots
        return found

    def begin_at(self, roots: Floats) -> None:
        """Go on from these prices."""
        self.roots, self.own = roots, self.mean(roots)

    def climb(self, stop: Callable[[], bool]) -> None:
        """Look for better prices: first each q moves with the mean price, then it is the best for itself."""
        import numpy as np

        for moving in (True, False):
            own = self.mean(self.roots) if moving else self.best_own(self.mean(self.roots))
            roots, value = self.roots, self.value(self.roots, own)
            self.best, self.own, aim, waited = value, own, AIM * abs(value), 0
            for _ in range(ROUNDS):
                if stop() or aim <= LEAST_AIM * abs(self.best):
                    break
                way, gain = self.uphill(roots, own)
                if gain <= 0:
                    break
                roots = np.maximum(0.0, roots + PART * (self.best + aim - value) / gain * way)
                own = self.mean(roots) if moving else own
                value = self.value(roots, own)
                waited = 0 if value > self.best + 0.05 * aim else waited + 1
                if value > self.best:
                    self.roots, self.own, self.best = roots, own, value
                if waited >= PATIENCE:
                    aim, waited, roots = LESS * aim, 0, self.roots
                    own = self.own if moving else self.best_own(self.own)
                    value = self.value(roots, own)
                    if value > self.best:
                        self.own, self.best = own, value

    def uphill(self, roots: Floats, own: Floats) -> tuple[Floats, float]:
        """Where to go after `value`, and how the bound rises on the way."""
        import numpy as np

        slope = self.slope(roots, own)
        way = slope
        if len(slope) > len(self.spread):
            for _ in range(2):
                way = np.convolve(way, self.spread, "same")
        way = way / self.spans
        if way @ slope <= 0:
            way = slope / self.spans
        return way, float(way @ slope)

    def best_own(self, own: Floats) -> Floats:
        """Q of each request: the multiple of another one by which it pays most."""
        import numpy as np

        tried = np.array([share * own for share in OWN])
        values = np.array([self.values(self.roots, some) for some in tried])
        best: Floats = tried[np.argmax(values, axis=0), np.arange(len(own))]
        return best


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from infermax_opt.infermax.bounds import _kernels_pace as kernels

    return compiled(kernels.travelled, (kernels.drift,)), compiled(
        kernels.slopes, (kernels.drift, kernels.retraced)
    )
