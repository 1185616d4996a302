"""Prices of time, windows and shares for `lingering`: the slope of the bound is followed, in floats.

It begins with the best of some parts of the prices of a fluid in which all requests decode together, the same
share for all, and windows about as long as requests stay at the prices in their time.  Then all move at once:
each number goes as far as its mean slope is clear against the mean square (Adam, Kingma and Ba 2015).
"""

from __future__ import annotations

import functools
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import product
from math import exp
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.core.compiled import compiled
from infermax_opt.core.deadline import time_left
from infermax_opt.infermax.bounds._fluid import fluid_of
from infermax_opt.infermax.bounds._steps import Steps
from infermax_opt.infermax.bounds.interaction import ROOT_BITS, THETA_BITS, Kind
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from infermax_opt.infermax.bounds.lingering import Row

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

__all__ = ["Prices", "Setting", "good_prices"]

#: Cells of time before the last arrival: at most, and for each request.
CELLS, CELLS_EACH = 4_000, 8
#: First: parts of the prices of the fluid, and shares.
PARTS, SHARES = (0.5, 0.6, 0.75, 0.9), (0.8, 0.9, 0.95)
#: Parts of the cells over which these prices are means, to each side.
WIDTH = 0.04
#: Times alone in which the mean of r says how long a request stays; first: parts of what it stays beyond one.
STAYING, LONGER = 1.5, (0.5, 0.92)
#: Then: first aim as a share of the bound, the least one, the part of each step that is taken, steps without
#: much gain before the aim is less, by which factor, and steps at most.
AIM, LEAST_AIM, STEP, WAITING, LESS, FIRST_ROUNDS = 0.03, 3e-4, 0.3, 8, 0.6, 150
#: Steps at most; how far the first and the last go, for r, windows in means of times alone, and shares.
ROUNDS, LENGTHS = 450, ((0.1, 0.01), (0.025, 0.0025), (0.01, 0.001))
#: Steps after which they are less by a factor of e; and those after which it ends if they gain too little.
FADING, PATIENCE, LEAST_GAIN = 100, 50, 1e-5
#: Least and greatest share.
LIMITS = 0.1, 0.99
#: Levels of r at first, at most and at least: each cell of a window that is the cheapest so far takes time.
FIRST_LEVELS, LEVELS, FEW_LEVELS = 80, 400, 8
#: Delays of all requests together that are looked at, at most.
MAX_STEPS = 1_400_000
#: Part of these below which there may be more levels.
ROOMY = 0.7
#: Seconds of processor time for each of them, and besides, in which the bound is made exact at last.
STEP_SECONDS, LAST_SECONDS = 4e-6, 0.3
#: Part of the mean time alone over which slopes are spread, to each side: at first, and at last.
SPREAD = 1.6, 0.3


class Setting(NamedTuple):
    """Ticks of a' and of a chunk; kinds of requests and groups of their later tokens, so many at most."""

    step: int
    chunk: int
    kinds: Sequence[Kind]
    rows: Sequence[Sequence[Row]]
    groups: int


class Prices(NamedTuple):
    """Theta in 2**-10; end in ticks and r in 2**-12 of each cell; windows in ticks, and shares."""

    theta: int
    cells: list[tuple[int, int]]
    stays: list[int]
    shares: list[int]


class Point(NamedTuple):
    """The root of h in each cell; the window and the share of each kind of requests."""

    roots: Floats
    windows: Floats
    shares: Floats


def good_prices(instance: Instance, piece: int, setting: Setting, stop: Callable[[], bool]) -> Prices:
    """Prices that prove much.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    setting : Setting
    stop : callable
        Asked whether to end soon.
    """
    ends, roots, _ = fluid_of(instance, piece, min(CELLS, CELLS_EACH * len(instance.requests)))
    cells = _with_arrivals(ends, sorted({kind.until for kind in setting.kinds if kind.until > 0}))
    search = _Search(cells, setting)
    search.begin_at([roots[min(bisect_left(ends, end), len(roots) - 1)] for end in cells], stop)
    search.climb(stop)
    return search.found()


def _with_arrivals(ends: Sequence[int], arrivals: Sequence[int]) -> list[int]:
    """Ends of cells, of which some are arrivals: all if there are not too many, and all others then, too.

    Parameters
    ----------
    ends, arrivals : sequence of int
        In ticks, rising.
    """
    if not arrivals:
        return list(ends)
    later = ends[bisect_right(ends, arrivals[-1]) :]
    every = -(-len(arrivals) // CELLS)
    kept = ends if len(arrivals) + len(ends) - len(later) <= CELLS else later
    return sorted({*kept, *arrivals[every - 1 :: every], arrivals[-1]})


class _Search:
    """The climb; times are in units of a'.

    Parameters
    ----------
    ends : sequence of int
        Of the cells, in ticks.
    setting : Setting
    """

    def __init__(self, ends: Sequence[int], setting: Setting):
        import numpy as np

        self.setting, self.whole_ends = setting, ends
        step = float(setting.step)
        self.ends = np.array(ends, dtype=np.float64) / step
        self.starts = np.append(0.0, self.ends)
        self.spans = np.diff(self.starts)
        self.kinds = np.array(
            [
                (
                    some.count, some.begin / step, (some.lone - some.later) / step, some.later / step,
                    some.chunks, some.linear / step, some.square / step, 0.0, 0.0, 0.0, 0.0,
                )
                for some in setting.kinds
            ]
        )  # fmt: skip
        self.number = np.array([len(rows) for rows in setting.rows], np.int64)
        self.rows = np.zeros((len(self.kinds), max(1, setting.groups), 6))
        root = step**0.5 * (1 << ROOT_BITS)
        for all_of_one, rows in zip(self.rows, setting.rows, strict=True):
            for one, row in zip(all_of_one, rows, strict=False):
                one[:] = np.array(row) / (step, step, step, root, root, step)
        self.count, self.begin, self.first, self.later = self.kinds.T[:4]
        self.lone = self.first + self.later
        self.begun = np.searchsorted(self.starts, np.array([some.until / step for some in setting.kinds]))
        self.fixed, self.gains = self.rows[:, :, 2].sum(axis=1), self.rows[:, :, 4].sum(axis=1)
        self.best, self.levels, self.steps = -np.inf, FIRST_LEVELS, 0
        self.since = time.monotonic(), time.process_time()
        zeros = np.zeros(len(self.kinds))
        self.point = Point(np.zeros(len(ends)), self.lone, zeros + SHARES[0])
        #: Cells in the mean time alone.
        self.wide = float(self.lone.mean() / self.spans.mean())

    def is_over(self, stop: Callable[[], bool]) -> bool:
        """Whether to end, so that there is time to make the bound exact."""
        passed, worked = time.monotonic() - self.since[0], time.process_time() - self.since[1]
        last = LAST_SECONDS + STEP_SECONDS * min(self.steps, MAX_STEPS)
        # Where other work has the processor, all takes longer.
        return stop() or time_left(stop) < last * max(1.0, (passed + 0.1) / (worked + 0.1))

    def stays(self, roots: Floats, longer: float) -> Floats:
        """Windows: about as long as requests stay."""
        import numpy as np

        sums = np.append(0.0, np.cumsum(roots * self.spans))
        last = self.begin + STAYING * self.lone
        rise = np.interp(last, self.starts, sums) - np.interp(self.begin, self.starts, sums)
        mean = rise / np.maximum(1e-9, last - self.begin)
        beyond = self.first + self.fixed + 2 * mean * self.gains - self.lone
        found: Floats = self.lone + longer * np.maximum(0.0, beyond)
        return found

    def value(self, point: Point) -> tuple[float, Point]:
        """The bound for all requests, and how it rises with each number."""
        import numpy as np

        cells, shares, last = len(self.ends), point.shares, self._last(point.windows)
        whole, until = self.starts[last] - self.begin, self.ends[last] - self.begin
        weight = np.clip((point.windows - whole) / (until - whole), 0.0, 1.0)
        gone = self.begun >= cells
        whole[gone] = until[gone] = weight[gone] = 0.0
        self.kinds[:, 7:] = np.array((shares, whole, until, weight)).T
        counts = np.where(gone, 0.0, self.count * shares)
        present = np.bincount(np.minimum(self.begun, cells), counts, cells + 1)
        present = np.cumsum(present - np.bincount(last, counts, cells + 1))
        present += np.bincount(last, counts * weight, cells + 1)
        present[cells] = 0.0
        full, slopes, own = (
            np.append(self.levelled(point.roots), 0.0),
            np.zeros((2, cells + 1)),
            np.zeros((len(shares), 2)),
        )
        chunk = max(1, self.setting.chunk)  # free ones, as many as one likes: what prompts pay rises at once
        total, self.steps = _kernel()(
            self.ends, full, np.maximum(shares.min(), present) + full**2, self.kinds, self.rows, self.number,
            chunk / self.setting.step, slopes, own,
        )  # fmt: skip
        roots, sums = full[:-1], np.append(0.0, np.cumsum(slopes[1]))
        paid = np.where(gone, 0.0, sums[last] - sums[self.begun] + weight * slopes[1][last])
        slope = Point(
            slopes[0][:-1] - 2 * self.spans * roots,
            np.where(gone, 0.0, shares * slopes[1][last] / self.spans[last]) + own[:, 0],
            paid + own[:, 1],
        )
        return total - float(self.spans @ roots**2), slope

    def _last(self, windows: Floats) -> Integers:
        """The cell in which each window ends."""
        import numpy as np

        cells = len(self.ends)
        last = np.searchsorted(self.ends, self.begin + windows, side="right")
        found: Integers = np.minimum(np.maximum(last, self.begun), cells - 1)
        return found

    def levelled(self, roots: Floats) -> Floats:
        """The nearest of few levels."""
        import numpy as np

        unit = max(1e-12, float(roots.max(initial=0.0))) / self.levels
        found: Floats = np.round(roots / unit) * unit
        return found

    def keep(self, point: Point) -> bool:
        """Remember the point if it is the best so far, and say so."""
        value, _ = self.value(point)
        if value <= self.best:
            return False
        self.best, self.point = value, point
        return True

    def at(self, roots: Floats, share: float, longer: float) -> Point:
        """The point with these prices, the same share for all, and windows as long as requests stay.

        Parameters
        ----------
        roots : array
            Of h.
        share, longer : float
        """
        import numpy as np

        windows = self.stays(roots / share**0.5, longer)
        return Point(roots, windows, np.full(len(self.kinds), share))

    def begin_at(self, roots: Sequence[float], stop: Callable[[], bool]) -> None:
        """Begin with the best of some prices, and with what is better near them."""
        import numpy as np

        fluid = np.array(roots) / self.setting.step**0.5
        each = int(WIDTH * len(fluid))
        kernel = np.ones(2 * each + 1) / (2 * each + 1)
        smooth = np.convolve(np.pad(fluid, each, mode="edge"), kernel, "valid")
        tried = [
            (part * share**0.5 * smooth, share, longer)
            for part, share, longer in product(PARTS, SHARES, LONGER)
        ]
        best = tried[0]
        for one in tried:
            if self.keep(self.at(*one)):
                best = one
            if self.is_over(stop):
                return
        self._approach(*best, stop)

    def _approach(self, roots: Floats, share: float, longer: float, stop: Callable[[], bool]) -> None:
        """Steps as far as the bound would be better by some aim, which becomes less where none is."""
        import numpy as np

        aim, waited, best = AIM * abs(self.best), 0, roots
        for _ in range(FIRST_ROUNDS):
            if self.is_over(stop) or aim <= LEAST_AIM * abs(self.best):
                return
            point, before = self.at(roots, share, longer), self.best
            value, slope = self.value(point)
            if value > before:
                self.best, self.point, best = value, point, roots
            waited = 0 if value > before + 0.02 * aim else waited + 1
            if waited >= WAITING:
                aim, waited, roots = LESS * aim, 0, best
                for some, length in (
                    (share + 0.02, longer),
                    (share - 0.03, longer),
                    (share, longer + 0.06),
                    (share, longer - 0.06),
                ):
                    if self.keep(self.at(roots, min(some, LIMITS[1]), length)):
                        share, longer = min(some, LIMITS[1]), length
                continue
            way = self.spreaded(slope.roots, SPREAD[0])
            gain = float(way @ slope.roots)
            if gain <= 0:
                way = slope.roots / self.spans
                gain = float(way @ slope.roots)
            if gain <= 0:
                return
            roots = np.maximum(0.0, roots + STEP * (self.best + aim - value) / gain * way)

    def climb(self, stop: Callable[[], bool]) -> None:
        """Look for better prices, windows and shares."""
        import numpy as np

        point, units = self.point, (1.0, float(np.mean(self.lone)), 1.0)
        steps, before = Steps(point), self.best
        for step in range(1, ROUNDS + 1):
            if self.is_over(stop):
                break
            value, slope = self.value(point)
            if self._change_levels(step):
                before = -np.inf
                value, slope = self.value(point)
            if value > self.best:
                self.best, self.point = value, point
            if step % PATIENCE == 0:
                if self.best - before <= LEAST_GAIN * abs(self.best):
                    break
                before = self.best
            faded = exp(-step / FADING)
            spread = max(SPREAD[1], SPREAD[0] * faded)
            ways = steps.ways(slope._replace(roots=self.spreaded(slope.roots, spread)))
            lengths = (
                unit * max(last, first * faded) for unit, (first, last) in zip(units, LENGTHS, strict=True)
            )
            moved = [some + length * way for some, length, way in zip(point, lengths, ways, strict=True)]
            point = Point(
                np.maximum(0.0, moved[0]), np.maximum(self.lone, moved[1]), np.clip(moved[2], *LIMITS)
            )

    def _change_levels(self, step: int) -> bool:
        """Take more levels from this step on, or fewer, as it took too many steps; say whether."""
        levels = self.levels
        if self.steps > MAX_STEPS:
            levels = max(FEW_LEVELS, levels * 4 // 5)
        elif step >= FADING and step % 10 == 0 and self.steps < ROOMY * MAX_STEPS:
            levels = min(LEVELS, levels * 5 // 4)
        if levels == self.levels:
            return False
        self.levels = levels
        self.best, _ = self.value(self.point)
        return True

    def spreaded(self, slope: Floats, part: float) -> Floats:
        """Slopes of a time in each cell, as means over so much of a mean time alone to each side."""
        import numpy as np

        spans, width = self.spans, 2 * max(1, round(part * self.wide)) + 1
        if len(slope) > width:
            kernel = np.full(width, 1 / width)
            for _ in range(2):
                slope, spans = (np.convolve(some, kernel, "same") for some in (slope, spans))
        return slope / spans

    def found(self) -> Prices:
        """The best prices, in whole numbers."""
        import numpy as np

        self.value(self.point)
        while self.steps > MAX_STEPS and self.levels > FEW_LEVELS:
            self.levels = self.levels * 4 // 5
            self.value(self.point)
        roots, windows, shares = self.point
        own = np.maximum(1, np.floor(shares * 2**THETA_BITS)).astype(np.int64)
        theta = int(own.max())
        unit = (self.setting.step * 2**THETA_BITS / theta) ** 0.5 * (1 << ROOT_BITS)
        levels = np.floor(self.levelled(roots) * unit).astype(np.int64).tolist()
        stays = np.floor(windows * self.setting.step).astype(np.int64).tolist()
        return Prices(theta, list(zip(self.whole_ends, levels, strict=True)), stays, own.tolist())


@functools.cache
def _kernel() -> Callable[..., Any]:
    from infermax_opt.infermax.bounds import _kernels_lingering as kernels

    return compiled(kernels.chosen, (kernels.prompt_price, kernels.falls))
