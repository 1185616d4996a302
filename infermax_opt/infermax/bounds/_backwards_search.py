"""Search for the prices of paths backwards; see `infermax_opt.infermax.bounds.backwards`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._backwards_states import Relaxation, relaxations
from infermax_opt.infermax.bounds._kernels_backwards import FAR, Kinds
from infermax_opt.infermax.data.instance import Instance

__all__ = ["BackwardPaths", "Timing", "chosen"]

Floats = npt.NDArray[np.float64]

#: Steps of a check: of the first relaxation, and of any.
FIRST_STEPS, MOST_STEPS = 6 * 10**6, 6 * 10**7
#: States times rounds at most, each of which takes twelve bytes.
MOST_CELLS = 4 * 10**7
#: Rounds of a schedule, as a multiple of those that it would take with a full memory; and at most.
USUAL, LONGEST = 1.5, 2.0
#: Most units of a round.
UNITS = 2**10
#: Evaluations of the prices of a relaxation.
EVALUATIONS = 400
#: By how much more than the best value prices aim for at last, as a share.
LEAST_AIM = 0.0002
#: Evaluations without a better value after which the aim is halved.
PATIENCE = 20
#: Share of the step before that the next one keeps.
MOMENTUM = 0.75


@dataclass(frozen=True)
class Timing:
    """What all relaxations have in common.

    Attributes
    ----------
    rounds : int
        The last round that is looked at.
    unit : int
        Units of a round.
    earliest : list of int
        First round in which each kind of request may end.
    prices : array of float
        To start from, in rounds: when each kind ends if the smallest go first.
    """

    rounds: int
    unit: int
    earliest: list[int]
    prices: Floats

    @classmethod
    def of(cls, instance: Instance) -> Timing:
        """Of an instance in rounds."""
        types, alpha = instance.types, instance.cost.seconds.alpha[0]
        earliest = [int(kind.arrival / alpha) + kind.output_tokens for kind in types]
        areas = [k.output_tokens * (2 * k.input_tokens + k.output_tokens - 1) / 2 for k in types]
        ends = np.zeros(len(types))
        clock = 0.0
        for k in sorted(range(len(types)), key=areas.__getitem__):
            kind, share = types[k], areas[k] / instance.system.kv_capacity
            clock = max(clock, float(kind.arrival / alpha)) + share * len(kind.members)
            ends[k] = max(clock, earliest[k])
        rounds = int(LONGEST * max(ends)) + 2
        unit = UNITS
        # A path may hold every request in every round, each at a gain of all rounds at most.
        while unit * rounds**2 * len(instance.requests) >= FAR:
            unit //= 2
        return cls(rounds, unit, earliest, USUAL * ends)


def chosen(instance: Instance, timing: Timing, states: int | None = None) -> Iterator[Relaxation]:
    """The finest relaxation that a moment is enough for, then the finest that can be checked.

    Parameters
    ----------
    instance : Instance
    timing : Timing
    states : int, optional
        Most states of either.
    """
    if instance.system.kv_capacity * timing.rounds > MOST_STEPS or timing.unit == 0:
        return
    rounds = int(USUAL / LONGEST * timing.rounds)
    appear = [max(0, rounds - first) // 2 for first in timing.earliest]
    steps = {
        some: some.steps(appear, rounds)
        for some in relaxations(instance)
        if some.totals[-1] * timing.rounds <= MOST_CELLS and some.totals[-1] <= (states or MOST_CELLS)
    }
    last = None
    for limit in (FIRST_STEPS, MOST_STEPS):
        able = [some for some, taken in steps.items() if taken <= limit]
        if able:
            finest = min(able, key=lambda some: (some.lost, some.leave))
            if finest != last:
                yield finest
            last = finest


class BackwardPaths:
    """The dynamic program of one relaxation.

    Parameters
    ----------
    relaxation : Relaxation
    timing : Timing
    """

    def __init__(self, relaxation: Relaxation, timing: Timing):
        self.relaxation, self.timing = relaxation, timing
        self._links = relaxation.links()
        types = relaxation.instance.types
        self._sort = np.array(relaxation.sort_numbers, np.int32)
        self._count = np.array([len(kind.members) for kind in types], np.int64)
        self._earliest = np.array(timing.earliest, np.int64)
        states = len(self._links.shrunk)
        self._before = np.empty((timing.rounds + 1, states), np.int64)
        self._source = np.empty((timing.rounds + 1, states), np.int32)

    def least(self, prices: list[int]) -> int:
        """Units that the bound says all latencies and arrivals add up to, at least."""
        return self._evaluate(np.array(prices, np.int64))[0]

    def _evaluate(self, prices: npt.NDArray[np.int64]) -> tuple[int, npt.NDArray[np.int64]]:
        """The bound in units, and how much more often than it should each kind appears."""
        cheapest, retrace = _kernels()
        order = np.lexsort((-prices, self._sort))
        kinds = Kinds(self._sort[order], self._count[order], self._earliest[order], prices[order])
        unit = self.timing.unit
        rounds = (int(prices.max()) - 1) // unit
        paths = self._links, kinds, rounds, unit, self._before, self._source
        values = cheapest(*paths)
        surplus = np.empty(len(order), np.int64)
        surplus[order] = retrace(*paths, values)
        return int(self._count @ prices) + int(values.min()), surplus - self._count

    def _steps(self, prices: npt.NDArray[np.int64]) -> int:
        """Steps of a check with these prices."""
        last = (prices - 1) // self.timing.unit
        appear = np.maximum(0, last - self._earliest + 1).tolist()
        return self.relaxation.steps(appear, int(last.max()))

    def search(
        self, prices: Floats, aim: float, stop: Callable[[], bool] | None
    ) -> tuple[int, list[int], Floats]:
        """What `least` says of the best prices found; these in units and in rounds.

        Parameters
        ----------
        prices : array of float
            To start from, in rounds.
        aim : float
            By how much more than the best value prices aim for at first, as a share.
        stop : callable, optional
            Asked after each evaluation whether to stop.
        """
        unit, low = self.timing.unit, self._earliest
        waited, course = 0, np.zeros(len(prices))
        # With these prices nobody gains by an appearance: every request ends as soon as it can.
        best = int(self._count @ low) * unit, low * unit
        for _ in range(EVALUATIONS):
            whole = np.rint(np.clip(prices, low, self.timing.rounds) * unit).astype(np.int64)
            value, surplus = self._evaluate(whole)
            prices, waited = whole / unit, waited + 1
            if value > best[0] and self._steps(whole) <= MOST_STEPS:
                best, waited = (value, whole), 0
            if waited >= PATIENCE:
                prices, aim, waited, course = best[1] / unit, aim / 2, 0, np.zeros(len(prices))
            course = surplus + MOMENTUM * course
            norm = float(course @ course)
            if norm == 0 or aim < LEAST_AIM or (stop is not None and stop()):
                break
            prices = prices - ((1 + aim) * best[0] - value) / unit / norm * course
        return best[0], best[1].tolist(), best[1] / unit


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from infermax_opt.infermax.bounds import _kernels_backwards as kernels

    helpers = (kernels.nth, kernels.without)
    return compiled(kernels.cheapest, ()), compiled(kernels.retrace, helpers)
