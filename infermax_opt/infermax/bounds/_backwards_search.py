"""Search for the prices of paths backwards; see `infermax_opt.infermax.bounds.backwards`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._backwards_states import Relaxation, linked_relaxations, relaxations
from infermax_opt.infermax.bounds._kernels_backwards import FAR, Kinds
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["BackwardPaths", "Prices", "Start", "Timing", "Worth", "chosen", "ending_costs"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Steps of a check: of the first relaxation, and of any.
FIRST_STEPS, SOME_STEPS, MOST_STEPS = 6 * 10**6, 12 * 10**6, 6 * 10**7
#: States times rounds at most, each of which takes twelve bytes.
MOST_CELLS = 4 * 10**7
#: Nodes between which prices of leaving are straight lines, and how much closer they are near the start.
HATS, BENT = 120, 1.5
#: Rounds of a schedule, as a multiple of those that it would take with a full memory; and at most.
USUAL, LONGEST = 1.5, 2.0
#: Most units of a round.
UNITS = 2**10
#: Evaluations of the prices of a relaxation, and of one with prices of leaving.
EVALUATIONS, LINKED_EVALUATIONS = 400, 1500
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
        # A path may hold every request in every round, each at a gain of twice all rounds at most, and leave.
        while 4 * unit * rounds**2 * len(instance.requests) >= FAR:
            unit //= 2
        return cls(rounds, unit, earliest, USUAL * ends)


def chosen(
    instance: Instance, timing: Timing, states: int | None = None, *, linked: bool = True
) -> Iterator[Relaxation]:
    """The finest relaxation that a moment is enough for, then the finest that can be checked.

    Parameters
    ----------
    instance : Instance
    timing : Timing
    states : int, optional
        Most states of either.
    linked : bool
        Whether the second one may have prices of leaving.
    """
    if instance.system.kv_capacity * timing.rounds > MOST_STEPS or timing.unit == 0:
        return
    rounds = int(USUAL / LONGEST * timing.rounds)
    appear = [max(0, rounds - first) // 2 for first in timing.earliest]

    def able(some: Relaxation, limit: int) -> bool:
        few = some.totals[-1] * timing.rounds <= MOST_CELLS and some.totals[-1] <= (states or MOST_CELLS)
        return few and some.steps(appear, rounds) <= limit

    last = None
    for limit in (FIRST_STEPS, SOME_STEPS, MOST_STEPS) if linked else (FIRST_STEPS, MOST_STEPS):
        links = linked_relaxations(instance) if linked and limit > FIRST_STEPS else iter(())
        finest = next((some for some in links if able(some, limit)), None) or min(
            (some for some in relaxations(instance) if able(some, limit)),
            key=lambda some: (some.lost, some.leave),
            default=None,
        )
        if finest is not None and finest != last:
            yield finest
        last = finest


class Prices(NamedTuple):
    """Whole units: of each kind of request, and of leaving, a row for each class, a column for each round."""

    kinds: Ints
    exits: Ints


class Start(NamedTuple):
    """Prices to start from, in rounds: of each kind, and of leaving at some holds, by rounds from 0 on."""

    kinds: Floats
    exits: Mapping[int, Floats]


class Worth(NamedTuple):
    """Whether each kind gains by ending in each round, the last round in which one does; steps of a check."""

    gains: npt.NDArray[np.bool_]
    rounds: int
    steps: int


class BackwardPaths:
    """The dynamic program of one relaxation.

    Parameters
    ----------
    relaxation : Relaxation
    timing : Timing
    """

    def __init__(self, relaxation: Relaxation, timing: Timing):
        self.relaxation, self.timing = relaxation, timing
        self.links = relaxation.links()
        types = relaxation.instance.types
        self._sort = np.array(relaxation.sort_numbers, np.int32)
        self._order = np.argsort(self._sort, kind="stable")
        self.count = np.array([len(kind.members) for kind in types], np.int64)
        self._earliest = np.array(timing.earliest, np.int64)
        #: Whether each kind has a part.
        self.seen = np.array([relaxation.part(kind)[1] >= 0 for kind in types])
        states = len(self.links.shrunk)
        self._before = np.empty((timing.rounds + 1, states), np.int64)
        self._source = np.empty((timing.rounds + 1, states), np.int32)
        #: Which price of leaving each kind is paid back, -1 for none, and how long before its end.
        self._paid, self._lag = np.array([_paid_back(relaxation, kind) for kind in types], np.int64).T
        nodes = np.unique(np.rint(1 + (timing.rounds - 1) * np.linspace(0, 1, HATS) ** BENT))
        every = np.arange(timing.rounds + 1)
        self._nodes = nodes.astype(np.int64)
        self._hats = np.array([np.interp(every, nodes, row) for row in np.eye(len(nodes))])
        self._hats[:, 0] = 0

    def least(self, prices: list[int], exits: list[list[int]] | None = None) -> int:
        """Units that the bound says all latencies and arrivals add up to, at least.

        Parameters
        ----------
        prices : list of int
            Of the kinds of requests.
        exits : list of list of int, optional
            What leaving costs, for each class but the first by rounds from 0 on.
        """
        free = np.zeros((len(self.relaxation.exits), self.timing.rounds + 1), np.int64)
        some = free if exits is None else np.array(exits, np.int64).reshape(free.shape)
        return self._evaluate(self.within(np.array(prices, np.int64), some))[0]

    def within(self, kinds: Ints, exits: Ints) -> Prices:
        """Prices at which nobody gains by an end after the last round that is looked at."""
        room = self.timing.rounds * self.timing.unit - int(kinds.max())
        return Prices(kinds, np.minimum(exits, max(0, room)))

    def _costs(self, prices: Prices) -> Ints:
        """What it costs that each kind ends in a round, a row each; 0 where it cannot, or need not."""
        cost = ending_costs(self.relaxation, prices.kinds, prices.exits, self.timing.unit)
        rounds = np.arange(self.timing.rounds + 1)
        return np.where(rounds >= self._earliest[:, None], np.minimum(cost, 0), 0)

    def worth(self, prices: Prices) -> Worth:
        """Where ends gain with these prices."""
        return self._worth(self._costs(prices))

    def _worth(self, costs: Ints) -> Worth:
        gains = costs < 0
        rounds = int(np.nonzero(gains.any(axis=0))[0].max(initial=0))
        return Worth(gains, rounds, self.relaxation.steps(gains.sum(axis=1).tolist(), rounds))

    def _evaluate(self, prices: Prices) -> tuple[int, Ints, Floats, int]:
        """The bound in units, how much too often kinds appear, and parts leave at nodes; steps of a check."""
        cheapest, retrace = _kernels()
        order, costs = self._order, self._costs(prices)
        kinds = Kinds(self._sort[order], self.count[order], costs[order])
        _, rounds, steps = self._worth(costs)
        left = np.zeros_like(prices.exits)
        values = cheapest(self.links, kinds, prices.exits, rounds, self._before, self._source)
        seen = np.empty_like(costs)
        seen[order] = retrace(
            self.links, kinds, prices.exits, rounds, self._before, self._source, values, left
        )
        for k in np.nonzero(self._paid >= 0)[0]:
            ends = np.nonzero(seen[k])[0]
            left[self._paid[k], ends - self._lag[k]] -= seen[k, ends]
        value = int(self.count @ prices.kinds) + int(values.min())
        return value, seen.sum(axis=1) - self.count, left @ self._hats.T, steps

    def search(
        self, start: Start, aims: tuple[float, float], stop: Callable[[], bool] | None
    ) -> tuple[int, Prices]:
        """What `least` says of the best prices found, and these.

        Parameters
        ----------
        start : Start
        aims : tuple[float, float]
            By how much more than the best value prices aim for, as a share, at first and at last.
        stop : callable, optional
            Asked after each evaluation whether to stop.
        """
        low, kinds, classes = self._earliest, len(self._earliest), len(self.relaxation.exits)
        none, (aim, least_aim) = np.zeros(self.timing.rounds + 1), aims
        exits = [start.exits.get(d, none)[self._nodes] for d in self.relaxation.exits]
        point = np.concatenate([start.kinds, *exits])
        least = np.concatenate([low, np.zeros(len(point) - kinds)])
        waited, course, best = 0, np.zeros(len(point)), point
        # With these prices nobody gains by an appearance: every request ends as soon as it can.
        value, found = int(self.count @ low) * self.timing.unit, self._whole(least)
        for _ in range(LINKED_EVALUATIONS if classes else EVALUATIONS):
            point = np.clip(point, least, self.timing.rounds)
            whole = self._whole(point)
            now, surplus, left, steps = self._evaluate(whole)
            waited += 1
            if now > value and steps <= MOST_STEPS:
                value, found, best, waited = now, whole, point, 0
            if waited >= PATIENCE:
                point, aim, waited, course = best, aim / 2, 0, np.zeros(len(point))
            course = np.concatenate([surplus, -left.ravel()]) + MOMENTUM * course
            norm = float(course @ course)
            if norm == 0 or aim < least_aim or (stop is not None and stop()):
                break
            point = point - ((1 + aim) * value - now) / self.timing.unit / norm * course
        return value, found

    def started(self, prices: Prices) -> Start:
        """Where to start in a finer relaxation."""
        unit = self.timing.unit
        # What has no part here costs no memory, so its price says nothing of memory.
        kinds = np.where(self.seen, prices.kinds, 0) / unit
        return Start(kinds, dict(zip(self.relaxation.exits, prices.exits / unit, strict=True)))

    def _whole(self, point: Floats) -> Prices:
        """Prices in units."""
        kinds = len(self._earliest)
        exits = point[kinds:].reshape(len(self.relaxation.exits), len(self._hats)) @ self._hats
        unit = self.timing.unit
        return self.within(*(np.rint(some * unit).astype(np.int64) for some in (point[:kinds], exits)))


def ending_costs(relaxation: Relaxation, prices: Ints, exits: Ints, unit: int) -> Ints:
    """Units that it costs each kind to end in a round, a row each: how late it is, less what is paid back.

    Parameters
    ----------
    relaxation : Relaxation
    prices : array
        Of each kind.
    exits : array
        Of leaving: a row for each class but the first, a column for each round from 0 on.
    unit : int
        Units of a round.
    """
    rounds = np.arange(exits.shape[1])
    cost: Ints = rounds * unit - prices[:, None]
    for row, kind in zip(cost, relaxation.instance.types, strict=True):
        group, lag = _paid_back(relaxation, kind)
        if group >= 0:
            row -= exits[group, np.maximum(0, rounds - lag)]
    return cost


def _paid_back(relaxation: Relaxation, kind: RequestType) -> tuple[int, int]:
    """Row of the price of leaving that a request is paid back, or -1, and rounds from there to its end."""
    peak, part = relaxation.part(kind)
    group = relaxation.group(kind) if relaxation.linked and part >= 0 else 0
    return group - 1, peak - relaxation.leave[group] - 1


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from infermax_opt.infermax.bounds import _kernels_backwards as kernels

    helpers = (kernels.nth, kernels.without, kernels.following)
    return compiled(kernels.cheapest, ()), compiled(kernels.retrace, helpers)
