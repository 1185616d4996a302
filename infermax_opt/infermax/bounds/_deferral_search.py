"""Prices of time, windows and shares for `deferral`: the slope of the bound is followed, in floats.

It begins with the best of some parts of the prices of a fluid in which all requests decode together, with
windows as long as requests stay in it.  Then all move at once: each number goes as far as its mean slope is
clear against the mean square (Adam, Kingma and Ba 2015).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled
from infermax_opt.core.deadline import time_left
from infermax_opt.infermax.bounds._fluid import Fluid, fluid_of
from infermax_opt.infermax.bounds._kernels_deferral import PARTS, STAY_PARTS, WIDEST
from infermax_opt.infermax.bounds._steps import Steps
from infermax_opt.infermax.bounds.interaction import ROOT_BITS
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    from infermax_opt.infermax.bounds._deferral_lives import Member

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

__all__ = ["LEVEL_BITS", "PARTS", "SHARE_BITS", "STAY_PARTS", "WIDEST", "Choices", "good_choices"]

#: Bits after the point of shares, weights and roots of levels.
SHARE_BITS, WEIGHT_BITS, LEVEL_BITS = 10, 8, 4
#: Roots of g / (1 - share) that are tried.
LEVELS = (16, 17, 18, 19, 20, 21, 22, 24, 26, 29, 33)
#: How many of them to each side of the last are tried, in one of so many passes; in the others the last only.
REACH, EVERY = 1, 3
#: Cells in the mean time alone: at first, and at most; most before the last arrival, and fewest.
CELLS_ALONE, CELLS, FEW_CELLS = (2, 24), 8_000, 40
#: First: parts of the prices of the fluid; part of the cells over which these are means, to each side; the
#: share of the own wait.
PRICES, WIDTH, OWN = (0.4, 0.55, 0.7, 0.85), 0.2, 0.25
#: The stay in parts of that in the fluid: the first with which the first cells take so much of the steps.
STAYS, FIRST_STEPS = (0.7, 0.5, 0.35, 0.25, 0.18), 0.6
#: Ages, in the mean time alone, from which on waits for a first token are shared by other weights.
AGES = (0.2, 0.5, 1.0)
#: Logarithm of the first weight of parts after the stay.
LATE = -3.0
#: Steps at most; how far they go at first, for r, logarithms of weights, and shares.
ROUNDS, LENGTHS = 400, (0.3, 0.6, 0.05)
#: Steps without much gain after which they are shorter, by which factor, and how short at last.
PATIENCE, LEAST_GAIN, LESS, LEAST_LENGTH = 8, 1e-4, 0.6, 0.02
#: Least and greatest share, and logarithm of a weight.
LIMITS, WEIGHTS = (0.02, 0.95), (-5.0, 5.0)
#: Steps of a checker, at most, about: it takes up to a third more, and may take 70 million; the part of them
#: that the cells are made for at first, as they become a little fewer later; steps of each request.
MAX_STEPS, AIM, REQUEST_STEPS = 53_000_000, 1.05, 600
#: Seconds in which a bound is made exact: for each of these steps, for each request, and besides.
STEP_SECONDS, REQUEST_SECONDS, LAST_SECONDS = 2e-8, 9e-4, 0.3
#: Seconds in which, on the same machine, a pass at the levels of before is made: for each step, and at least.
PASS_SECONDS, SMALLEST = 2.2e-9, 5e-3
#: Largest table of what waits are worth.
MAX_TABLE = 8_000_000
#: Knots of r are so many mean times alone apart.
APART = 4.0


class Choices(NamedTuple):
    """What a certificate holds.

    Ends in ticks and r in 2**-12 of each cell; ages in ticks from which on other weights count; of each
    member: its stay in ticks, its share of its own wait, its weights, `PARTS` for each age and before it, and
    roots of levels with the number of cells of each.
    """

    cells: list[tuple[int, int]]
    ages: list[int]
    stays: list[int]
    shares: list[int]
    weights: list[list[int]]
    levels: list[list[tuple[int, int]]]


class Point(NamedTuple):
    """The root of h at each knot; logarithms of weights, and shares of the own wait, of each member."""

    roots: Floats
    weights: Floats
    shares: Floats


def good_choices(
    instance: Instance, piece: int, step: int, members: Sequence[Member], stop: Callable[[], bool]
) -> Choices | None:
    """Choices that prove much; None where there is no time, or a checker has none even with few cells.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    step : int
        a' in ticks.
    members : sequence of Member
    stop : callable
        Asked whether to end soon.
    """
    if time_left(stop) < LAST_SECONDS + REQUEST_SECONDS * len(members):
        return None
    number = sum(some.times for some in members)
    alone = max(1, sum(some.times * (some.first + some.later) for some in members) // number)
    last = max(some.until for some in members)
    coarse, fine = (min(CELLS, max(FEW_CELLS, some * last // alone)) for some in CELLS_ALONE)
    fluid = fluid_of(instance, piece, coarse)
    search, stay = _first_search(fluid, step, members, stop)
    if not search.steps:
        return None
    more = min(AIM * MAX_STEPS / search.steps, MAX_TABLE / search.table.size, fine / coarse)
    if more > 1 and not stop():
        finer = _Search(fluid_of(instance, piece, int(coarse * more)), step, members, stay)
        finer.begin(stop, PRICES)
        search = finer if finer.is_found() else search
    if not search.is_found():
        return None
    search.climb(stop)
    return search.found()


def _first_search(
    fluid: Fluid, step: int, members: Sequence[Member], stop: Callable[[], bool]
) -> tuple[_Search, float]:
    """The longest stay for which a checker has time for much finer cells, too, or the shortest.

    Parameters
    ----------
    fluid : Fluid
    step : int
        a' in ticks.
    members : sequence of Member
    stop : callable
        Asked whether to end soon.

    Returns
    -------
    search : _Search
        It has begun, unless its table is too large.
    stay : float
    """
    for stay in STAYS:
        search = _Search(fluid, step, members, stay)
        if search.table.size <= MAX_TABLE:
            search.begin(stop, PRICES[:1])
            if search.steps <= FIRST_STEPS * MAX_STEPS or stop():
                break
    return search, stay


class _Search:
    """The climb; times are in units of a'.

    Parameters
    ----------
    fluid : Fluid
    step : int
        a' in ticks.
    members : sequence of Member
    stay : float
        How long members stay, in parts of that in the fluid.
    """

    def __init__(self, fluid: Fluid, step: int, members: Sequence[Member], stay: float):
        self.step, self.whole_ends = step, fluid.ends
        self.starts = np.append(0.0, np.array(fluid.ends, dtype=np.float64) / step)
        self.spans, self.middles = np.diff(self.starts), (self.starts[:-1] + self.starts[1:]) / 2
        self.fluid = np.array(fluid.roots) / step**0.5
        self.order = sorted(range(len(members)), key=lambda i: members[i].begin)
        self.members = [members[i] for i in self.order]
        columns = [
            (some.times, some.begin, some.until, some.first, some.later, some.prompt, some.fixed, 0, 0)
            for some in self.members
        ]
        self.kinds = np.array(columns, dtype=np.float64)
        self.kinds[:, 1:] /= step
        root = step**0.5 * (1 << ROOT_BITS)
        self.rows = np.zeros((len(members), max(len(some.rows) for some in members), 4))
        for mine, some in zip(self.rows, self.members, strict=True):
            mine[: len(some.rows)] = np.array(some.rows) / (step, step, root, step)
        self.stays: Integers = np.maximum(1, np.floor(self._stays(fluid, stay) * step)).astype(np.int64)
        self.kinds[:, 8] = self.stays / step
        self.ready = np.argsort(self.kinds[:, 1] + self.kinds[:, 3], kind="stable")
        self.first = np.searchsorted(self.starts, self.kinds[:, 2] + self.kinds[:, 3], side="right") - 1
        self.levels = np.array(LEVELS) / (1 << LEVEL_BITS)
        self.picked = np.zeros((len(members), len(self.spans)), np.int8)
        widest = int(self.kinds[:, 8].max() * PARTS / STAY_PARTS / self.spans.mean()) + 2
        self.table = np.zeros((len(members), min(widest, len(self.spans))))
        cells = np.minimum(self.first[:, None] + np.arange(self.table.shape[1]), len(self.spans))
        waited = self.starts[cells] - self.kinds[:, 2:3]
        alone = max(1 / step, float((self.kinds[:, 3] + self.kinds[:, 4]).mean()))
        self.ages = sorted({max(1, int(age * alone * step)) for age in AGES})
        #: How many ages each has reached in the cells of the table.
        self.aged = np.searchsorted(np.array(self.ages) / step, waited, side="right").astype(np.int8)
        #: Knots of r, and of each cell the one before it and how far it is on the way to the next.
        number = min(len(self.spans), int(self.starts[-1] / (APART * alone))) + 2
        self.knots = np.linspace(0.0, self.starts[-1], number)
        at = self.middles / self.knots[1]
        self.before: Integers = at.astype(np.int64)
        self.way = at - self.before
        #: How much longer all takes here, and now.
        self.best, self.steps, self.slowness = -np.inf, 0, 1.0
        self.point = self.at(0.0)

    def _stays(self, fluid: Fluid, stay: float) -> Floats:
        """How long each stays: part of that in the fluid, or of that alone if it is longer."""
        made = np.append(0.0, np.cumsum(fluid.batches))
        at = np.interp(self.kinds[:, 1], self.starts, made)
        ends = np.interp(at + np.array([some.outputs for some in self.members]), made, self.starts)
        found: Floats = stay * np.maximum(ends - self.kinds[:, 1], self.kinds[:, 3] + self.kinds[:, 4])
        return found

    def at(self, part: float) -> Point:
        """The point with this part of the prices of the fluid."""
        each = int(WIDTH * len(self.fluid))
        kernel = np.ones(2 * each + 1) / (2 * each + 1)
        smooth = np.convolve(np.pad(self.fluid, each, mode="edge"), kernel, "valid")
        weights = np.zeros((len(self.members), PARTS))
        weights[:, STAY_PARTS:] = LATE
        weights = np.tile(weights, len(self.ages) + 1)
        roots = part * np.interp(self.knots, self.middles, smooth)
        return Point(roots, weights, np.full(len(self.members), OWN))

    def roots(self, point: Point) -> Floats:
        """The root of h in each cell."""
        found: Floats = (1 - self.way) * point.roots[self.before] + self.way * point.roots[self.before + 1]
        return found

    def at_knots(self, slopes: Floats) -> Floats:
        """Slopes with r at the knots, from those with r in cells."""
        number = len(self.knots)
        found: Floats = np.zeros(number)
        found += np.bincount(self.before, (1 - self.way) * slopes, number)
        found += np.bincount(self.before + 1, self.way * slopes, number)
        return found

    def is_over(self, stop: Callable[[], bool]) -> bool:
        """Whether to end, so that there is time to make the bound exact."""
        last = LAST_SECONDS + REQUEST_SECONDS * len(self.members) + STEP_SECONDS * self.steps
        return stop() or time_left(stop) < last * self.slowness

    def value(self, point: Point, reach: int = REACH) -> tuple[float, Point]:
        """The bound for all requests, and how it rises with each number.

        Parameters
        ----------
        point : Point
        reach : int
            How many levels to each side of those that were best before are tried.
        """
        weights, roots = np.exp(point.weights), self.roots(point)
        self.kinds[:, 7] = point.shares
        slopes, rises, owns = np.zeros(len(roots) + 1), np.zeros_like(weights), np.zeros(len(self.members))
        used, kernels = np.zeros_like(self.table), _kernels()
        shared = self.aged, weights, self.first, self.table
        kernels.share_table(self.starts, self.kinds, self.ready, *shared)
        total, steps = kernels.chosen(
            self.starts, np.append(roots, 0.0), self.kinds, self.rows, *shared, self.levels, reach,
            slopes, rises, owns, used, self.picked,
        )  # fmt: skip
        kernels.spread_losses(self.starts, self.kinds, self.ready, *shared, used, rises, owns)
        self.steps = steps + REQUEST_STEPS * len(self.members)
        of_roots = self.at_knots(slopes[:-1] - 2 * self.spans * roots)
        return float(total - self.spans @ roots**2), Point(of_roots, rises * weights, owns)

    def begin(self, stop: Callable[[], bool], parts: Sequence[float]) -> None:
        """Begin with the best of some parts of the prices of the fluid."""
        reach = len(LEVELS)
        for part in parts:
            point = self.at(part)
            self.keep(point, self.value(point, reach)[0])
            if self.is_over(stop):
                return
            reach = REACH

    def is_found(self) -> bool:
        """Whether there is any point that does not take too long to check."""
        return self.best > float("-inf")

    def keep(self, point: Point, value: float) -> None:
        """Remember the last point if it is the best, and does not take too long to check."""
        if value > self.best and self.steps <= MAX_STEPS:
            self.best, self.point = value, point

    def climb(self, stop: Callable[[], bool]) -> None:
        """Look for better prices, weights and shares."""
        point, steps, length, waited = self.point, Steps(self.point), 1.0, 0
        for n in range(ROUNDS):
            if self.is_over(stop) or length < LEAST_LENGTH:
                return
            begin, is_short = time.monotonic(), n % EVERY > 0
            value, slope = self.value(point, 0 if is_short else REACH)
            if is_short:
                self.slowness = max(1.0, (time.monotonic() - begin) / (PASS_SECONDS * self.steps + SMALLEST))
            before = self.best
            self.keep(point, value)
            waited = 0 if self.best > before + LEAST_GAIN * abs(before) else waited + 1
            if waited > PATIENCE:
                point, steps, length, waited = self.point, Steps(self.point), LESS * length, 0
                continue
            ways = steps.ways(slope)
            roots, weights, shares = (
                some + length * far * way for some, far, way in zip(point, LENGTHS, ways, strict=True)
            )
            point = Point(np.maximum(0.0, roots), np.clip(weights, *WEIGHTS), np.clip(shares, *LIMITS))

    def found(self) -> Choices:
        """The best choices, in whole numbers, for all members as they were given."""
        self.value(self.point, len(LEVELS))
        unit = self.step**0.5 * (1 << ROOT_BITS)
        roots = np.floor(self.roots(self.point) * unit).astype(np.int64).tolist()
        shares = np.ceil(self.point.shares * 2**SHARE_BITS).astype(np.int64).tolist()
        weights = np.round(np.exp(self.point.weights) * 2**WEIGHT_BITS).astype(np.int64).tolist()
        since = (np.searchsorted(self.starts, self.kinds[:, 1], side="right") - 1).tolist()
        runs = [_runs(row[first:].tolist()) for row, first in zip(self.picked, since, strict=True)]
        stays, places = self.stays.tolist(), sorted(range(len(self.order)), key=self.order.__getitem__)
        return Choices(
            list(zip(self.whole_ends, roots, strict=True)),
            self.ages,
            [stays[i] for i in places],
            [shares[i] for i in places],
            [weights[i] for i in places],
            [runs[i] for i in places],
        )


def _runs(picked: Sequence[int]) -> list[tuple[int, int]]:
    """Roots of levels, each with the number of cells in a row; one at least."""
    return [(LEVELS[grade], len(list(cells))) for grade, cells in groupby(picked)] or [(LEVELS[-1], 1)]


class _Kernels(NamedTuple):
    share_table: Callable[..., Any]
    chosen: Callable[..., Any]
    spread_losses: Callable[..., Any]


@functools.cache
def _kernels() -> _Kernels:
    from infermax_opt.infermax.bounds import _kernels_deferral as kernels

    return _Kernels(
        compiled(kernels.share_table, (kernels.weight_of,)),
        compiled(
            kernels.chosen, (kernels.weight_of, kernels.least_losses, kernels.learn, kernels.share_until)
        ),
        compiled(kernels.spread_losses, (kernels.weight_of,)),
    )
