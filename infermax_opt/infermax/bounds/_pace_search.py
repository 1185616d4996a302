"""Prices of time and of KV for `pace`, in floats: their slope is followed.

The bound is concave in the prices, and in k and q of each request.  It begins with the prices of a fluid in
which all requests decode together.  First r moves alone, and a step goes as far as the bound would be better
by some aim, which becomes less where none is.  Then all move at once, by steps that become shorter.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.core.compiled import compiled
from infermax_opt.core.deadline import time_left
from infermax_opt.infermax.bounds._fluid import fluid_of
from infermax_opt.infermax.bounds._pace_stages import ROOT_BITS, Stage
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["FewPrices", "Point", "Prices", "Search", "Setting", "first_prices", "good_prices"]

#: Cells of time before the last arrival: at most for each request, and in all; more where there are so few
#: requests that cells times requests are this.
CELLS_EACH, CELLS, CELLS_OF_ALL = 16, 400, 80_000
#: Members while r alone is searched, and while all are: multiples of k and of q.
FIRST = (*((k, 1.0) for k in (1.3, 1.15, 1.05, 1.0, 0.95, 0.9, 0.8, 0.7, 0.55, 0.4, 0.2)), (1.0, 0.0))
SECOND = tuple((z, z) for z in (1.15, 1.0, 0.85, 0.6, 0.3))
#: Shares of the prices of the fluid that are tried first.
SHARES = (0.0, 0.3, 0.5, 0.7, 0.9)
#: Steps at most, steps without much gain before the aim is less, and by which factor.
ROUNDS, PATIENCE, LESS = 500, 7, 0.65
#: First aim as a share of the bound, the least one, and the part of each step that is taken.
AIM, LEAST_AIM, PART = 0.05, 1e-4, 0.25
#: Multiples of its q that are tried for each request.
OWNS = (0.8, 0.9, 1.0, 1.1, 1.25)
#: Cells over which slopes are spread, as a share of all.
SPREAD = 0.004
#: Steps in which all move, at least and at most; how often a member passes a cell in a stage in all, about.
STEPS, MOST_STEPS, PASSES = 200, 2_000, 1e9
#: So many steps, about, take as long as making the bound exact; or so many seconds for each pass, if more.
LAST_STEPS, LAST_PASS = 80, 2e-6
#: Length of the first of them and of the last, for r; how much longer those for v are, and those for k and q.
LONG, SHORT, RENTS, OWN = 0.05, 0.0005, 4.0, 0.5
#: How much of the mean slope, and of the mean square, is kept from step to step.
KEEP, KEEP_SQUARE = 0.9, 0.99


class Setting(NamedTuple):
    """Kinds of requests: begin, number, work that pays the price of its moment, stages; KV of the machine."""

    begin: Sequence[int]
    numbers: Sequence[int]
    prompts: Sequence[int]
    stages: Sequence[Sequence[Stage]]
    room: int


class Prices(NamedTuple):
    """Cells (end in ticks, r, v); q of each kind of requests, k of each of its stages; and members.

    Members are pairs of multiples of k and of q, which are tried for each request: all of them at every end,
    or some, each at the ends in its first so many cells.  V is in units of 2**-(2 ROOT_BITS), all but the
    ends in units of 2**-ROOT_BITS.
    """

    cells: Sequence[tuple[int, int, int]]
    own: Sequence[int]
    bases: Sequence[Sequence[int]]
    members: Sequence[tuple[int, int]]
    followed: Sequence[Sequence[tuple[int, int]]] | None = None


class FewPrices(NamedTuple):
    """Ends of cells in ticks, r in each; q of each request; and how many cells they pass in all, about."""

    ends: Sequence[int]
    roots: Floats
    own: Floats
    passed: int


def first_prices(instance: Instance, piece: int, setting: Setting, stop: Callable[[], bool]) -> FewPrices:
    """Prices of time alone.

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

    count = len(instance.requests)
    cells = min(CELLS_EACH * count, max(CELLS, CELLS_OF_ALL // count))
    ends, roots, _ = fluid_of(instance, piece, cells)
    ticks = instance.cost.ticks
    step = float(ticks.alpha[piece] + ticks.d0)
    search = Search(ends, setting)
    fluid = np.array(roots) / step**0.5
    search.begin_at(max((search.at(share * fluid) for share in SHARES), key=search.value))
    search.climb(stop)
    point = search.found[0]
    last = np.searchsorted(search.ends, search.begin + search.values(point))
    return FewPrices(ends, point.roots, point.own, int((last - search.first + 1).sum()))


def good_prices(first: FewPrices, setting: Setting, stop: Callable[[], bool]) -> Prices:
    """Prices of time and of KV, with k and q.

    Parameters
    ----------
    first : FewPrices
        With which to begin.
    setting : Setting
    stop : callable
        Asked whether to end soon.
    """
    search = Search(first.ends, setting)
    search.begin_at(search.at(first.roots)._replace(own=first.own))
    passes = float((search.last - search.first).sum()) * search.stages.shape[1] * len(SECOND)
    search.move_all(SECOND, min(MOST_STEPS, max(STEPS, int(PASSES / passes))), (LONG, SHORT), stop, passes)
    return search.prices()


class Point(NamedTuple):
    """R and v of cells, q of requests, and k of their stages."""

    roots: Floats
    rents: Floats
    own: Floats
    bases: Floats


class Search:
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
        self.setting = setting
        self.best = 0.0
        self.found: tuple[Point, Floats]
        self.ends = np.array(ends, dtype=np.float64)
        self.spans = np.diff(self.ends, prepend=0.0)
        self.begin = np.array(setting.begin, dtype=np.float64)
        self.count = np.array(setting.numbers, dtype=np.float64)
        self.prompts = np.array(setting.prompts, dtype=np.float64)
        self.scales = np.array(FIRST)
        self.stages = np.zeros((len(self.begin), depth, 7))
        for row, some in zip(self.stages, setting.stages, strict=True):
            for s in range(depth):  # those that have fewer stay in their last one, which then holds nothing
                own = some[min(s, len(some) - 1)]
                row[s] = *(own[:3] if s < len(some) else (0, 0, 0)), own.low, own.high, own.held, own.again
                row[s, 6] /= own.each
        self.stages[:, :, 3:5] /= 1 << ROOT_BITS
        self.stages[:, :, 5] /= setting.room
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

    def at(self, roots: Floats) -> Point:
        """The point with these r, in which KV costs nothing, each q is the mean r, and each k is 1."""
        import numpy as np

        return Point(roots, np.zeros(len(roots)), self.mean(roots), np.ones(self.stages.shape[:2]))

    def values(self, point: Point) -> Floats:
        """Least latency and pay of each request."""
        import numpy as np

        value = np.zeros(len(self.begin))
        _kernels()[0](
            self.ends, point.roots, point.rents, self.begin, self.prompts, self.stages, point.own,
            point.bases, self.scales, value, self.where, self.member,
        )  # fmt: skip
        return value

    def value(self, point: Point) -> float:
        """The bound, in ticks of all requests."""
        return float(self.count @ self.values(point) - self.spans @ (point.roots**2 + point.rents))

    def slope(self, point: Point) -> Point:
        """By how much the bound rises with each number of a point, after `value`."""
        import numpy as np

        by_cell, by_base = (
            np.zeros((len(self.ends), 2)),
            np.zeros((len(self.begin), self.stages.shape[1] + 1)),
        )
        _kernels()[1](
            self.ends, point.roots, point.rents, self.begin, self.prompts, self.stages, point.own,
            point.bases, self.scales, self.count, self.where, self.member, by_cell, by_base,
        )  # fmt: skip
        return Point(
            by_cell[:, 0] - 2 * self.spans * point.roots,
            by_cell[:, 1] - self.spans,
            by_base[:, -1],
            by_base[:, :-1],
        )

    def begin_at(self, point: Point) -> None:
        """Go on from a point."""
        self.best = 0.0
        self.keep(point, self.value(point))

    def climb(self, stop: Callable[[], bool]) -> None:
        """Look for better r: first each q moves with their mean, then it is the best for itself."""
        import numpy as np

        for moving in (True, False):
            point = self.found[0] if moving else self.best_own(self.found[0])
            value, waited = self.value(point), 0
            self.keep(point, value)
            aim = AIM * abs(self.best)
            for _ in range(ROUNDS):
                if stop() or aim <= LEAST_AIM * abs(self.best):
                    break
                way, gain = self.uphill(point)
                if gain <= 0:
                    break
                step = PART * (self.best + aim - value) / gain
                roots = np.maximum(0.0, point.roots + step * way)
                point = self.at(roots) if moving else point._replace(roots=roots)
                value = self.value(point)
                waited = 0 if value > self.best + 0.05 * aim else waited + 1
                self.keep(point, value)
                if waited >= PATIENCE:
                    aim, waited = LESS * aim, 0
                    point = self.found[0] if moving else self.best_own(self.found[0])
                    value = self.value(point)
                    self.keep(point, value)

    def best_own(self, point: Point) -> Point:
        """The same with another q of each request: the multiple of its own by which it pays most."""
        import numpy as np

        tried = np.array([share * point.own for share in OWNS])
        values = np.array([self.values(point._replace(own=some)) for some in tried])
        return point._replace(own=tried[np.argmax(values, axis=0), np.arange(len(point.own))])

    def keep(self, point: Point, value: float) -> None:
        """Remember the best point."""
        if value > self.best or self.best == 0:
            self.best, self.found = value, (point, self.scales)

    def uphill(self, point: Point) -> tuple[Floats, float]:
        """Where to go after `value`, and how the bound rises on the way."""
        import numpy as np

        slope = self.slope(point).roots
        way = slope
        if len(slope) > len(self.spread):
            for _ in range(2):
                way = np.convolve(way, self.spread, "same")
        way = way / self.spans
        if way @ slope <= 0:
            way = slope / self.spans
        return way, float(way @ slope)

    def move_all(
        self,
        members: Sequence[tuple[float, float]],
        steps: int,
        lengths: tuple[float, float],
        stop: Callable[[], bool],
        passes: float = 0.0,
    ) -> None:
        """Look for better prices, k and q at once, by steps like those of Adam (Kingma and Ba 2015).

        Each number goes as far as its mean slope is clear against the mean square.

        Parameters
        ----------
        members : sequence of (float, float)
            Multiples of k and of q.
        steps : int
        lengths : (float, float)
            Of the first step and of the last, for r.
        stop : callable
            Asked whether to end soon.
        passes : float
            How often a member passes a cell in a stage where the bound is made exact, if that is known.
        """
        import numpy as np

        more, units = (1.0, RENTS, OWN, OWN), (self.spans, self.spans, self.count, self.count[:, None])
        self.scales, point = np.array(members), self.found[0]
        means, squares = ([np.zeros_like(some) for some in point] for _ in range(2))
        begin = math.inf
        for step in range(1, steps + 1):
            gone = _part_gone(step, steps, begin, stop, LAST_PASS * passes)
            if gone > 1:
                break
            self.keep(point, self.value(point))
            length = lengths[0] * (lengths[1] / lengths[0]) ** gone
            moved = []
            for z, (some, slope) in enumerate(zip(point, self.slope(point), strict=True)):
                slope = slope / units[z]
                means[z] = KEEP * means[z] + (1 - KEEP) * slope
                squares[z] = KEEP_SQUARE * squares[z] + (1 - KEEP_SQUARE) * slope**2
                mean, square = means[z] / (1 - KEEP**step), squares[z] / (1 - KEEP_SQUARE**step)
                moved.append(np.maximum(0.0, some + length * more[z] * mean / (square**0.5 + 1e-9)))
            point = Point(*moved)
            begin = min(begin, time.monotonic())  # all is compiled by now
        self.keep(point, self.value(point))

    def prices(self) -> Prices:
        """The best ones, rounded."""
        (r, v, q, k), scales = self.found
        one, stages = 1 << ROOT_BITS, self.setting.stages
        ends = (int(end) for end in self.ends)
        return Prices(
            [(end, round(a * one), int(b * one * one)) for end, a, b in zip(ends, r, v, strict=True)],
            [round(some * one) for some in q],
            [[round(some * one) for some in row[: len(own)]] for row, own in zip(k, stages, strict=True)],
            [(round(a * one), round(b * one)) for a, b in scales],
        )


def _part_gone(step: int, steps: int, begin: float, stop: Callable[[], bool], last: float) -> float:
    """How much of the way is gone, by steps or by time, whichever is more; above 1 where it is over.

    Parameters
    ----------
    step, steps : int
    begin : float
        When the second step began.
    stop : callable
        Asked whether to end soon.
    last : float
        Seconds at least for making the bound exact.
    """
    if step <= 2 or stop():
        return 2.0 if stop() else step / steps
    passed = time.monotonic() - begin
    left = time_left(stop) - max(last, LAST_STEPS * passed / (step - 2))
    return 2.0 if left <= 0 else max(step / steps, passed / (passed + left))


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from infermax_opt.infermax.bounds import _kernels_pace as some

    helpers = (some.drift, some.is_refilled, some.enough)
    return compiled(some.travelled, helpers), compiled(some.slopes, (*helpers, some.retraced))
