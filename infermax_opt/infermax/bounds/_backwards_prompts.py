"""Search for prices of paths backwards whose requests leave at their own holds; see `backwards`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds import _kernels_rounds as kernel
from infermax_opt.infermax.bounds._backwards_guide import Guide
from infermax_opt.infermax.bounds._backwards_search import BackwardPaths, Prices

__all__ = ["PromptPaths", "Reached"]

Ints = npt.NDArray[np.int64]

#: Kinds of requests below and above one, by their prices, that are remembered when it ends, at most.
NEAR = 2
#: Nodes of a layer, and as a multiple of these of all before equal ones are dropped.
LAYER, POOL = 20_000, 5
#: Steps of a check at most, and those that the checker counts for a node, and for each kind that it tries.
MOST_STEPS, NODE_STEPS, TRIED_STEPS = 6 * 10**7, 25, 1
#: Costs to go that the checker keeps at most.
CELLS = 2 * 10**7
#: By how much more than the best value the limit is, as a share: at first, at most, at least; how it changes.
AIM, MOST_AIM, LEAST_AIM, RAISED, LOWERED = 0.002, 0.004, 0.00005, 1.5, 0.5
#: Evaluations without a better value after which the aim is less, and share of the step before that is kept.
PATIENCE, MOMENTUM = 8, 0.5
#: Evaluations at most: the last ones may gain a unit each.
EVALUATIONS = 200


class Reached(NamedTuple):
    """What paths with some prices cost at least, and how often each kind appears in one; None if none did.

    `least` is the limit where all paths cost that much, and None where there are too many to know.
    """

    least: int | None
    seen: Ints | None


@dataclass(frozen=True)
class PromptPaths:
    """Paths below a limit, by a relaxation that tells how much of a path is still to come.

    Attributes
    ----------
    paths : BackwardPaths
        With the relaxation.
    """

    paths: BackwardPaths

    @property
    def able(self) -> bool:
        """Whether parts are small numbers."""
        relaxation = self.paths.relaxation
        longest = max(kind.input_tokens for kind in relaxation.instance.types)
        return (relaxation.capacity + 1) * longest < kernel.PARTS_BELOW

    @functools.cached_property
    def _requests(self) -> tuple[Ints, Ints]:
        """The kind of each request, and the equal one before it, or -1."""
        types = self.paths.relaxation.instance.types
        kinds = np.repeat(np.arange(len(types)), [len(kind.members) for kind in types])
        before = np.arange(len(kinds)) - 1
        return kinds, np.where(np.diff(kinds, prepend=-1) == 0, before, -1)

    @functools.cached_property
    def _room(self) -> tuple[Any, ...]:
        """Layer, pool, requests to go on from, and hash table, with one bit more than there are requests."""
        most, requests = POOL * LAYER, len(self._requests[0]) + 1
        table = np.empty(1 << (2 * most - 1).bit_length(), np.int64)
        return kernel.room(LAYER, requests), kernel.room(most, requests), np.empty(most, np.int64), table

    def _tasks(self, prices: Ints, cost: Ints, near: int) -> kernel.Tasks:
        """The requests, in the order of their kinds.

        Parameters
        ----------
        prices : array
            Of the kinds.
        cost : array
            Of ending, a row for each kind.
        near : int
            As in `below`.
        """
        relaxation, (kinds, twin) = self.paths.relaxation, self._requests
        types = relaxation.instance.types
        inputs = np.array([kind.input_tokens for kind in types])
        outputs = np.array([kind.output_tokens for kind in types])
        place = np.empty(len(types), np.int64)
        place[np.argsort(prices, kind="stable")] = np.arange(len(types))
        places = place[kinds]
        bits = kernel.bits_of(np.abs(places[:, None] - places) <= near)
        sort = np.array(relaxation.sort_numbers)
        return kernel.Tasks(
            (inputs + outputs - 1)[kinds], (inputs - 1)[kinds], cost[kinds], sort[kinds], twin, bits
        )

    def below(self, prices: Prices, limit: int, near: int) -> Reached:
        """The cheapest path below a limit.

        Parameters
        ----------
        prices : Prices
        limit : int
            Units of all latencies and arrivals.
        near : int
            Kinds below and above one, by their prices, that are remembered when it ends.
        """
        paths = self.paths
        worth, top, steps = paths.worth(prices)
        if (top + 1) * paths.relaxation.totals[-1] > CELLS:
            return Reached(None, None)
        guide = Guide.of(
            paths.relaxation, prices.kinds, paths.timing.unit, top, prices.exits[:, 1:], paths.links
        )
        paid = int(paths.count @ prices.kinds)
        spare = limit - paid
        soon = worth[:, : top + 1] & (guide.least_with + guide.cost < spare)
        kinds, _ = self._requests
        layer, pool, following, table = self._room
        tasks, costs = self._tasks(prices.kinds, guide.cost, near), guide.costs
        counts = np.array([1, 0, spare, -1, 0, 0], np.int64)
        for column in layer:
            column[0] = 0
        words = layer.ended.shape[1]
        every, none = np.full(words, np.iinfo(np.uint64).max), np.zeros(words, np.uint64)
        log: list[tuple[Any, Any]] = []
        size = 1
        base = max(kind.input_tokens for kind in paths.relaxation.instance.types)
        for r in range(top, 0, -1):
            _advance()(
                r, base, paths.relaxation.capacity, tasks, costs, soon[kinds, r], none, every, layer,
                counts[kernel.KEPT], pool, following, table, counts, none.copy(),
            )  # fmt: skip
            steps += TRIED_STEPS * (paths.relaxation.capacity + 1) * int(worth[:, r].sum())
            spent = steps + NODE_STEPS * int(counts[kernel.MADE]) + TRIED_STEPS * int(counts[kernel.TRIED])
            size = int(counts[kernel.KEPT])
            log.append((layer.fresh[:size].copy(), layer.parent[:size].astype(np.int32)))
            if counts[kernel.CUT] or spent > MOST_STEPS:
                return Reached(None, None)
            if size == 0:
                return Reached(limit, None)
        best = int(np.argmin(layer.cost[:size]))
        return Reached(paid + int(layer.cost[best]), self._seen(log, best))

    def _seen(self, log: list[tuple[Any, Any]], node: int) -> Ints:
        """How often each kind appears on the path to a node.

        Parameters
        ----------
        log : list
            Of each round, from the last one on, who ends in it in each node, and the node before.
        node : int
            Of the first round.
        """
        kinds, _ = self._requests
        seen = np.zeros(len(self.paths.count), np.int64)
        for fresh, parent in reversed(log):
            bits = np.unpackbits(fresh[node].view(np.uint8), bitorder="little")[: len(kinds)]
            np.add.at(seen, kinds[bits > 0], 1)
            node = parent[node]
        return seen

    def search(
        self, least: int, prices: Prices, stop: Callable[[], bool] | None
    ) -> Iterator[tuple[int, Prices, int]]:
        """Ever better values, each with its prices and how many near kinds are remembered, by subgradients.

        A limit that is only just above the best value is soon seen to hold or not.  The more is remembered,
        the more nodes there are, so that nothing is until a path below a limit shows that it would help.

        Parameters
        ----------
        least : int
            What is known.
        prices : Prices
            To start from.
        stop : callable, optional
            Asked after each evaluation whether to stop.
        """
        unit, low, waited = self.paths.timing.unit, np.array(self.paths.timing.earliest), 0
        best = point = prices.kinds / unit
        course, aim, near = np.zeros(len(point)), AIM, 0
        for _ in range(EVALUATIONS):
            if aim < LEAST_AIM or (stop is not None and stop()):
                return
            kinds = np.rint(np.clip(point, low, self.paths.timing.rounds) * unit)
            now = self.paths.within(kinds.astype(np.int64), prices.exits)
            limit = int((1 + aim) * least)
            found, seen = self.below(now, limit, near)
            waited += 1
            if found is not None and found > least:
                least, best, waited = found, point, 0
                yield least, now, near
            if seen is not None and near < NEAR and (near == 0 or waited >= PATIENCE):
                near, point, waited, course = near + 1, best, 0, np.zeros(len(point))
            elif found is None or waited >= PATIENCE:
                point, aim, waited, course = best, LOWERED * aim, 0, np.zeros(len(point))
            elif seen is None:
                aim = min(MOST_AIM, RAISED * aim)
            else:
                course = seen - self.paths.count + MOMENTUM * course
                point = point - (limit - found) / unit / max(1.0, float(course @ course)) * course


@functools.cache
def _advance() -> Callable[..., Any]:
    return compiled(kernel.advance, kernel.HELPERS)
