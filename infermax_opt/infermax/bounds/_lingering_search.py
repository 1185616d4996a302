"""Prices of time for `lingering`: the slope of the bound is followed, in floats.

It begins with the best of some shares of the prices of a fluid in which all requests decode together.
Windows are as long as requests stay at the prices in their time, so that nothing is missing.  A step goes as
far as the bound would be better by some aim, which becomes less where none is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._fluid import fluid_roots
from infermax_opt.infermax.bounds.interaction import ROOT_BITS, THETA_BITS, Kind
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from infermax_opt.infermax.bounds.lingering import Row

    Floats = npt.NDArray[np.float64]

__all__ = ["Prices", "Setting", "good_prices"]

#: Cells of time before the last arrival: at most, and for each request.
CELLS, CELLS_EACH = 4_000, 8
#: First: shares of the prices of the fluid, theta, and parts of a window beyond the least time alone.
SHARES, THETAS, PARTS = (0.5, 0.6, 0.75, 0.9), (0.8, 0.9), (0.5, 1.0)
#: Parts of the cells over which these prices are means, to each side.
WIDTHS = (0.04,)
#: Later: changes of theta and of the part.
CHANGES = ((0.01, 0.0), (-0.01, 0.0), (0.02, 0.0), (-0.03, 0.0), (0.0, -0.05), (0.0, 0.05))
#: Steps at most, steps without much gain before the aim is less, and by which factor.
ROUNDS, PATIENCE, LESS = 250, 8, 0.6
#: First aim as a share of the bound, the least one, and the part of each step that is taken.
AIM, LEAST_AIM, STEP = 0.03, 1e-4, 0.3
#: Levels of r, at most and at least: a check looks at each cell of a window that is cheaper than all before.
LEVELS, FEW_LEVELS = 150, 8
#: Delays of all requests together that are looked at, at most.
MAX_STEPS = 1_200_000
#: Cells over which slopes are spread, as a share of all.
SPREAD = 0.003
#: Times alone, in which the mean of r says how long a request stays.
STAYING = 1.5


class Setting(NamedTuple):
    """Ticks of a' and of a chunk; kinds of requests and groups of their later tokens, so many at most."""

    step: int
    chunk: int
    kinds: Sequence[Kind]
    rows: Sequence[Sequence[Row]]
    groups: int


class Prices(NamedTuple):
    """Theta in 2**-10; end in ticks and r in 2**-12 of each cell; windows of all kinds in ticks."""

    theta: int
    cells: list[tuple[int, int]]
    stays: list[int]


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
    ends, roots = fluid_roots(instance, piece, min(CELLS, CELLS_EACH * len(instance.requests)))
    search = _Search(ends, setting)
    search.begin_at(roots, stop)
    search.climb(stop)
    return search.found()


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
        self.spans = np.diff(self.ends, prepend=0.0)
        self.kinds = np.array(
            [
                (
                    some.count, some.begin / step, (some.lone - some.later) / step, some.later / step,
                    some.chunks, some.linear / step, some.square / step, 0.0,
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
        self.fixed, self.gains = self.rows[:, :, 2].sum(axis=1), self.rows[:, :, 4].sum(axis=1)
        self.best, self.levels, self.steps = -np.inf, LEVELS, 0
        self.roots = np.zeros(len(ends))
        self.theta, self.part = THETAS[0], PARTS[0]
        width = max(1, round(len(ends) * SPREAD))
        self.spread = np.ones(2 * width + 1) / (2 * width + 1)

    def stays(self, roots: Floats, part: float) -> Floats:
        """Windows: so much of the time beyond that alone."""
        import numpy as np

        times, sums = np.append(0.0, self.ends), np.append(0.0, np.cumsum(roots * self.spans))
        lone = self.first + self.later
        last = self.begin + STAYING * lone
        mean = (np.interp(last, times, sums) - np.interp(self.begin, times, sums)) / np.maximum(
            1e-9, last - self.begin
        )
        found: Floats = np.maximum(lone, self.first + self.fixed + part * 2 * mean * self.gains)
        return found

    def value(self, roots: Floats, theta: float, part: float) -> tuple[float, Floats]:
        """The bound for all requests, and how it rises with r in each cell."""
        import numpy as np

        cells = len(self.ends)
        self.kinds[:, 7] = self.stays(roots, part)
        first = np.searchsorted(np.append(0.0, self.ends), self.begin)
        last = np.searchsorted(self.ends, self.begin + self.kinds[:, 7], side="right")
        there = first < last
        present = np.bincount(first[there], self.count[there], cells + 1)[: cells + 1]
        present = np.cumsum(present - np.bincount(last[there], self.count[there], cells + 1)[: cells + 1])
        present[cells] = 0.0
        full, slope = np.append(self.levelled(roots), 0.0), np.zeros(cells)
        works = np.maximum(1.0, present) + full**2
        total, self.steps = _kernel()(
            self.ends, full, works, self.kinds, self.rows, self.number,
            self.setting.chunk / self.setting.step, theta, slope,
        )  # fmt: skip
        roots = full[:-1]
        return total - theta * float(self.spans @ roots**2), slope - 2 * theta * self.spans * roots

    def levelled(self, roots: Floats) -> Floats:
        """The nearest of few levels."""
        import numpy as np

        unit = max(1e-12, float(roots.max(initial=0.0))) / self.levels
        found: Floats = np.round(roots / unit) * unit
        return found

    def tried(self, roots: Floats, theta: float, part: float) -> None:
        """Keep these if they are better."""
        value, _ = self.value(roots, theta, part)
        if value > self.best:
            self.best, self.roots, self.theta, self.part = value, roots, theta, part

    def begin_at(self, roots: Sequence[float], stop: Callable[[], bool]) -> None:
        """Begin with the best of some prices."""
        import numpy as np

        fluid = np.array(roots) / self.setting.step**0.5
        for width, share in product(WIDTHS, SHARES):
            each = int(width * len(fluid))
            kernel = np.ones(2 * each + 1) / (2 * each + 1)
            smooth = np.convolve(np.pad(fluid, each, mode="edge"), kernel, "valid")
            for theta, part in product(THETAS, PARTS):
                self.tried(share * smooth, theta, part)
                if stop():
                    return

    def climb(self, stop: Callable[[], bool]) -> None:
        """Look for better prices."""
        import numpy as np

        aim, waited, roots = AIM * abs(self.best), 0, self.roots
        for _ in range(ROUNDS):
            if stop() or aim <= LEAST_AIM * abs(self.best):
                break
            value, slope = self.value(roots, self.theta, self.part)
            waited = 0 if value > self.best + 0.02 * aim else waited + 1
            if value > self.best:
                self.roots, self.best = roots, value
            if waited >= PATIENCE:
                aim, waited = LESS * aim, 0
                for more, longer in CHANGES:
                    self.tried(
                        self.roots, min(0.999, max(0.0, self.theta + more)), max(0.0, self.part + longer)
                    )
                roots = self.roots
                continue
            way = self.uphill(slope)
            gain = float(way @ slope)
            if gain <= 0:
                break
            roots = np.maximum(0.0, roots + STEP * (self.best + aim - value) / gain * way)

    def uphill(self, slope: Floats) -> Floats:
        """Where to go."""
        import numpy as np

        way = slope
        if len(slope) > len(self.spread):
            for _ in range(2):
                way = np.convolve(way, self.spread, "same")
        return way / self.spans if way @ (slope / self.spans) > 0 else slope / self.spans

    def found(self) -> Prices:
        """The best prices, in whole numbers."""
        import numpy as np

        unit = self.setting.step**0.5 * (1 << ROOT_BITS)
        self.value(self.roots, self.theta, self.part)
        while self.steps > MAX_STEPS and self.levels > FEW_LEVELS:
            self.levels //= 2
            self.value(self.roots, self.theta, self.part)
        levels = np.floor(self.levelled(self.roots) * unit).astype(np.int64).tolist()
        stays = np.floor(self.stays(self.roots, self.part) * self.setting.step).astype(np.int64).tolist()
        cells = list(zip(self.whole_ends, levels, strict=True))
        return Prices(round(self.theta * 2**THETA_BITS), cells, stays)


@functools.cache
def _kernel() -> Callable[..., Any]:
    from infermax_opt.infermax.bounds import _kernels_lingering as kernels

    return compiled(kernels.chosen, (kernels.prompt_price, kernels.falls))
