"""Exact start rounds for batches of one length (`in_rounds`), backwards in time.

The rounds are gone through from the last to the first, as in `infermax_opt.infermax.bounds.backwards`, but a
node knows who has ended and what each holds: it is the set of requests that end in a later round, and the
multiset of the others' holds with the hold at which each leaves, I - 1.  A round lets some requests end, each
with its peak, as long as all fits; memory is at most M in all rounds if it is when somebody ends, as it
only falls backwards until then.  Nodes alike in both have the same continuations, so the cheapest is enough.

*Prices.*  A request that ends in round C costs C less its price, so what a schedule costs is its sum of ends
less all prices.  Who is still to end costs at least what the relaxation of the bound says, from the state
that a node is in there: its rest is a path of it, less appearances that do not help.  A node is
dropped if cost and this estimate are not below the limit, which is the best known schedule.

A node follows the relaxation with prices of leaving, if it is one: what a part costs when it
leaves, it has been paid back at its end.  When all have ended, what is still to be paid is known.

*Windows.*  A path in which a request ends in round C costs at least: the least before round C, that end, and
the least from there on, whoever else ends in it.  Without other ends that do not help it stays one.
Where this is not below the limit, the request does not end in C.

*Horizon.*  After the last arrival some best schedule has no round without requests before its end, for it
could be left out.  So nobody ends after it by more rounds than there are output tokens.  And nobody can end
in round C below the limit if the bound, plus C less the highest price, is not below it: without that end,
what is left is a path.

*Twins.*  Equal requests can change places: they end in the order of their numbers, the first one last.

If no node had to be dropped for lack of room, what was found is optimal; if nothing was found, nothing is
below the limit.  Otherwise only the nodes of least estimate are kept, and it is a beam search.  `merged` is
one in which each request may end near where it does in one of several known schedules.

Source: this project.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds import _kernels_rounds as kernel
from infermax_opt.infermax.bounds._backwards_guide import Guide, earliest_ends, last_end
from infermax_opt.infermax.bounds._backwards_states import Relaxation
from infermax_opt.infermax.bounds.backwards import backwards_bounds
from infermax_opt.infermax.data.instance import Instance

__all__ = ["Found", "Proved", "RoundsSearch", "guided", "proved", "takes"]

Ints = npt.NDArray[np.int64]

#: Requests at most: two words of bits.
MOST_REQUESTS = 2 * kernel.WORD
#: Nodes of a layer: where schedules are combined, in a first proof, in a second; and as a multiple of these
#: of all before equal ones are dropped.
FEW, SOME, MANY, POOL = 2_000, 20_000, 400_000, 5
#: Share of the time after which prices are good enough, and limits as shares of the gap.
PRICING, LIMITS = 0.3, (0.3, 0.5, 0.65, 0.75, 0.85, 0.93, 1)
#: Nodes of all layers at most, each of which takes 20 bytes.
LOGGED = 2 * 10**7
#: States of the relaxation whose prices guide a proof, and cells of the costs to go, at most.
STATES = 50_000
CELLS = 4 * 10**7


@dataclass(frozen=True)
class Found:
    """What a search ends with.

    Attributes
    ----------
    ends : array or None
        Round in which each request ends, in the order of the instance; None if nothing is below the limit.
    complete : bool
        Whether nothing was left out.
    """

    ends: Ints | None
    complete: bool


def takes(instance: Instance) -> bool:
    """Whether an instance in rounds is small enough."""
    base = max(kind.input_tokens for kind in instance.types)
    return (
        len(instance.requests) <= MOST_REQUESTS
        and (instance.system.kv_capacity + 1) * base < kernel.PARTS_BELOW
        and instance.output_tokens <= 10**5
    )


class RoundsSearch:
    """Searches one instance with one relaxation and its prices.

    Parameters
    ----------
    instance : Instance
        In rounds.
    leave : sequence of int
        Of the relaxation.
    prices : sequence of int
        Of each kind of request, in units of a round.
    unit : int
        Units of a round.
    most : int
        Nodes of a layer, at most.
    exits : sequence of sequences of int, optional
        What leaving costs in round 1, 2, ..., for each class but the first.
    horizon : int, optional
        Last round to look at; no path may gain by an end after it.
    """

    def __init__(
        self,
        instance: Instance,
        leave: Sequence[int],
        prices: Sequence[int],
        unit: int,
        most: int,
        exits: Sequence[Sequence[int]] | None = None,
        horizon: int | None = None,
    ):
        relaxation, types = Relaxation(instance, tuple(leave), exits is not None), instance.types
        price, first = np.array(prices, np.int64), np.array(earliest_ends(instance), np.int64)
        self._unit, self._capacity, self._latest = unit, instance.system.kv_capacity, last_end(instance)
        self.horizon = self._latest if horizon is None else horizon
        self._guide = Guide.of(relaxation, price, unit, self.horizon, exits or ())
        self._costs, self._cost = self._guide.costs, self._guide.cost
        self._dearest = int(price.max()) + int(self._costs.exits.max(initial=0))
        self._paid = int(sum(len(kind.members) * int(u) for kind, u in zip(types, price, strict=True)))
        # The dearest first: they end last.
        dearest = np.argsort(-price, kind="stable").tolist()
        kinds = [k for k in dearest for _ in types[k].members]
        self._kinds = np.array(kinds)
        self._members = np.array([member for k in dearest for member in types[k].members])
        self._outputs = np.array([types[k].output_tokens for k in kinds])
        self._first = first[kinds]
        inputs = np.array([types[k].input_tokens for k in kinds])
        twins = [j - 1 if j > 0 and kinds[j - 1] == k else -1 for j, k in enumerate(kinds)]
        self._tasks = kernel.Tasks(
            inputs + self._outputs - 1,
            inputs - 1,
            self._cost[kinds],
            np.array(relaxation.sort_numbers)[kinds],
            np.array(twins),
            np.full((len(kinds), -(-len(kinds) // kernel.WORD)), np.iinfo(np.uint64).max),
        )
        self.make_room(most)

    def make_room(self, most: int) -> None:
        """Take so many nodes of a layer, at most."""
        requests = len(self._members)
        self._layer, self._pool = kernel.room(most, requests), kernel.room(POOL * most, requests)
        self._following = np.empty(POOL * most, np.int64)
        self._table = np.empty(1 << (2 * POOL * most - 1).bit_length(), np.int64)

    @property
    def low(self) -> Fraction:
        """Rounds that all ends add up to, at least."""
        return Fraction(self._paid + int(self._costs.ahead[-1, 0]), self._unit)

    def search(self, limit: int, stop: Callable[[], bool] | None = None, *, whole: bool = True) -> Found:
        """Look for ends in any rounds.

        Parameters
        ----------
        limit : int
            Sum of ends that is too much.
        stop : callable, optional
            Asked after each round.
        whole : bool
            Whether to go on as a beam search where there are too many nodes.
        """
        spare = limit * self._unit - self._paid - int(self._costs.ahead[-1, 0])
        last = min(self._latest, max(0, (spare + self._dearest - 1) // self._unit))
        within, last = last <= self.horizon, min(last, self.horizon)
        soon = self._guide.least_with + self._cost < limit * self._unit - self._paid
        may = (np.arange(last + 1)[:, None] >= self._first) & soon[self._kinds, : last + 1].T
        if not may.any(axis=0).all():
            return Found(None, within)
        found = self._search(may, limit, stop, whole)
        return Found(found.ends, found.complete and within)

    def merged(
        self, known: Sequence[Ints], near: Ints, limit: int, stop: Callable[[], bool] | None = None
    ) -> Found:
        """Look for ends near those of known schedules.

        Parameters
        ----------
        known : sequence of array
            Ends of all requests, in the order of the instance.
        near : array
            Rounds by which the end of each may differ from that in one of them.
        limit : int
            Sum of ends that is too much.
        stop : callable, optional
            Asked after each round.
        """
        last = min(self.horizon, max(int((ends + near).max()) for ends in known))
        rounds = np.arange(last + 1)[:, None]
        may = np.zeros((last + 1, len(self._first)), np.bool_)
        for ends in known:
            mine = ends[self._members]
            for j in range(1, len(mine)):  # twins in their order
                i = j
                while self._tasks.twin[i] >= 0 and mine[i - 1] < mine[i]:
                    mine[i - 1], mine[i] = mine[i], mine[i - 1]
                    i -= 1
            may |= np.abs(rounds - mine) <= near[self._members]
        return self._search(may & (rounds >= self._first), limit, stop, True)

    def _search(
        self, may: npt.NDArray[np.bool_], limit: int, stop: Callable[[], bool] | None, whole: bool
    ) -> Found:
        """Look for ends in the rounds in which each request may end, a column each.

        Parameters
        ----------
        may : array
            A row for each round from 0 on.
        limit, stop, whole
            As in `search`.
        """
        layer, top = self._layer, len(may) - 1
        lowest = may.argmax(axis=0)
        every = kernel.bits_of(np.ones((1, len(lowest)), np.bool_))[0]
        must = kernel.bits_of(lowest >= np.arange(top + 1)[:, None])
        base = int(self._tasks.leave.max()) + 1
        counts = np.array([1, 0, limit * self._unit - self._paid, -1, 0, 0], np.int64)
        for column in layer:
            column[0] = 0
        last, best = np.zeros_like(every), None
        log: dict[int, tuple[Any, Any]] = {}
        logged = 0
        for r in range(top, 0, -1):
            _advance()(
                r, base, self._capacity, self._tasks, self._costs, may[r], must[r], every, layer,
                counts[kernel.KEPT], self._pool, self._following,
                self._table, counts, last,
            )  # fmt: skip
            if counts[kernel.DONE] >= 0:
                best = r, int(counts[kernel.DONE]), last.copy()
                counts[kernel.DONE] = -1
            size = int(counts[kernel.KEPT])
            log[r] = layer.fresh[:size].copy(), layer.parent[:size].astype(np.int32)
            logged += size
            if size == 0:
                break
            if not whole and counts[kernel.CUT]:
                break
            if logged > LOGGED or (stop is not None and stop()):
                counts[kernel.CUT] += 1
                break
        ends = None if best is None else self._traced(log, top, *best)
        return Found(ends, int(counts[kernel.CUT]) == 0)

    def _traced(self, log: dict[int, tuple[Any, Any]], top: int, r: int, node: int, fresh: Any) -> Ints:
        """Ends of all requests, in the order of the instance.

        Parameters
        ----------
        log : dict
            Of each round, who ends in it in each node, and the node of the round above.
        top : int
            The last round.
        r, node, fresh : int, int, array
            The round in which the first one ends, the node of the round above, and who ends in it.
        """
        ends = np.zeros(len(self._members), np.int64)
        while True:
            for j in range(len(ends)):
                if fresh[j // kernel.WORD] >> np.uint64(j % kernel.WORD) & np.uint64(1):
                    ends[self._members[j]] = r
            r += 1
            if r > top:
                return ends
            ended, parents = log[r]
            fresh, node = ended[node], int(parents[node])


@dataclass(frozen=True)
class Proved:
    """What is known of the sum of all ends, in rounds.

    Attributes
    ----------
    low : int
        The least that it can be.
    ends : array or None
        Better ones than were known.
    """

    low: int
    ends: Ints | None


def guided(instance: Instance, evidence: Mapping[str, Any] | None, most: int = FEW) -> RoundsSearch | None:
    """A search with the prices of a certified bound; None where these are of no use, or take too much memory.

    Parameters
    ----------
    instance : Instance
        In rounds.
    evidence : mapping or None
        Of the bound.
    most : int
        Nodes of a layer, at most.
    """
    if evidence is None or evidence["kind"] != "backwards":
        return None
    exits = evidence.get("exits")
    relaxation = Relaxation(instance, tuple(evidence["leave"]), exits is not None)
    prices, unit = evidence["prices"], evidence["unit"]
    gains = (max(prices) + max([price for row in exits or () for price in row], default=0)) // unit + 1
    horizon = min(last_end(instance), CELLS // relaxation.totals[-1] - 1)
    if horizon < min(last_end(instance), gains):
        return None
    return RoundsSearch(instance, evidence["leave"], prices, unit, most, exits, horizon)


def proved(instance: Instance, upper: int, left: Callable[[], float]) -> Proved:
    """Search for ends with a sum below `upper`, or the proof that there are none.

    Limits rise towards `upper`, as a node more or less is a matter of how far above the optimum the limit is.

    Parameters
    ----------
    instance : Instance
        In rounds.
    upper : int
        Sum of ends of a known schedule.
    left : callable
        Share of the time that is left.
    """
    search, low, best = None, 0, None
    for bound in backwards_bounds(instance, stop=lambda: left() < 1 - PRICING, states=STATES, whole=False):
        # Most small instances need no better prices, and then few nodes.
        search = guided(instance, bound.evidence, SOME) or search
        if search is not None and low < upper:
            found = _rising(search, upper, left, whole=False)
            low, best, upper = max(low, found.low), *_better(found, best, upper)
    if search is not None and low < upper and left() > 0:
        search.make_room(MANY)
        found = _rising(search, upper, left, whole=True)
        low, best, upper = max(low, found.low), *_better(found, best, upper)
    return Proved(low, best)


def _better(found: Proved, best: Ints | None, upper: int) -> tuple[Ints | None, int]:
    """The better ends and their sum."""
    return (best, upper) if found.ends is None else (found.ends, int(found.ends.sum()))


def _rising(search: RoundsSearch, upper: int, left: Callable[[], float], *, whole: bool) -> Proved:
    """Search with limits that rise towards `upper`, the last one as a beam search where `whole` says so."""
    low, best, complete = math.ceil(search.low), None, True
    for share in LIMITS:
        limit = low + math.ceil(share * (upper - low))
        beam = whole and share == 1
        if low >= upper or left() <= 0 or not (complete or beam):
            continue
        found = search.search(limit, lambda: left() <= 0, whole=beam)
        complete = found.complete
        best, upper = _better(Proved(low, found.ends), best, upper)
        if complete:
            low = limit if found.ends is None else upper
    return Proved(low, best)


@functools.cache
def _advance() -> Callable[..., Any]:
    return compiled(kernel.advance, kernel.HELPERS)
