"""Checking a lower bound by enumerating every schedule of a tiny instance.

Dijkstra's algorithm over joint states, written from the problem statement alone: no estimates, nothing
shared with the search engine.  A state is the multiset of (type, m, n) of the unfinished requests; a
batch costs its time multiplied by what the objective weighs a second in that state.  Batches that only
evict are batches like others; one that leaves the state as it is does no more than a wait.  Once the
cheapest unexpanded point costs as much as the claimed bound, every schedule does, as neither a batch nor
a wait costs less than nothing.

*Arrivals.*  A point is a state with the time at which it is reached and the least weight of a second so
far, that of the state included.  A batch may not start before its members arrive.  What is missing is
waited for, at the least weight so far: no batch is harmed if the wait comes earlier, so the wait lies
where that weight applied.  No schedule with the same batches costs less: the seconds of waiting that a
batch demands, beyond what the ones before it demanded, lie somewhere before it, at no less.

*Points left out.*  Where all requests of a state have arrived, neither time nor least weight matter any
more.  Of two points of one state, B is left out for A, if A's least weight is no higher than B's, and A
costs no more than B even after waiting, at its least weight, until it is as late as B.  Then A is no
earlier than B, and whatever batches follow B can follow A: by induction, A needs to wait no more for each
than B, and pays no more for it, as the states are the same from here on.

*Limit.*  The work is counted in steps: a move listed or considered for a request, a batch considered
again at another time, a comparison of two points.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from operator import add

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.objective import Latency

__all__ = ["MAX_STEPS", "holds", "why_not"]

#: Steps of the enumeration after which the check gives up; a second or two.
MAX_STEPS = 300_000
#: Requests beyond which it does not even start.
MAX_REQUESTS = 16
#: Generated tokens beyond which it does not even start.
MAX_TOKENS = 200

_Node = tuple[int, int, int]
_State = tuple[_Node, ...]
#: A state, the time at which it is reached, and the least weight of a second so far.
_Point = tuple[_State, int, int]
#: Node after a request's move (None: finished), tokens cached in the batch, the load added.
_Move = tuple[_Node | None, int, tuple[int, ...]]


class _TooManySteps(Exception):
    """Too many steps."""


def holds(instance: Instance, bound: Fraction, steps: int = MAX_STEPS) -> bool | None:
    """Tell whether `bound` is a lower bound on the objective.

    Parameters
    ----------
    instance : Instance
    bound : Fraction
        Exact seconds.
    steps : int
        Most steps of the enumeration.

    Returns
    -------
    bool or None
        None where the instance is too large to enumerate within `steps`.
    """
    if why_not(instance) is not None:
        return None
    try:
        return _ScheduleEnumeration(instance, steps).least(bound) >= bound
    except _TooManySteps:
        return None


def why_not(instance: Instance) -> str | None:
    """Why `instance` is not even enumerated, or None."""
    requests, tokens = len(instance.requests), instance.output_tokens
    if requests > MAX_REQUESTS:
        return f"{requests} requests; up to {MAX_REQUESTS} are enumerated"
    if tokens > MAX_TOKENS:
        return f"{tokens} output tokens; up to {MAX_TOKENS} are enumerated"
    beyond = instance.objective.beyond_sums
    if beyond:
        return f"{beyond[0].value} is no sum over time; only these are enumerated"
    return None


class _ScheduleEnumeration:
    """All schedules of an instance, in whole units of time and of the objective's weights."""

    def __init__(self, instance: Instance, steps: int):
        self.instance = instance
        self.steps = steps
        objective, kinds = instance.objective, instance.types
        weights = objective.latency_weights(kinds)
        makespan = objective.weight(Metric.MAKESPAN)
        young, old = [], []  # what a second weighs before the first token, and after it
        for k, kind in enumerate(kinds):
            e2e = weights[Latency.E2E][k]
            young.append(weights[Latency.TTFT][k] + e2e)
            old.append(e2e + weights[Latency.TPOT][k] / max(1, kind.output_tokens - 1))
        self.scale = lcm(*(weight.denominator for weight in (makespan, *young, *old)))
        self.makespan = int(makespan * self.scale)
        self.young = [int(weight * self.scale) for weight in young]
        self.old = [int(weight * self.scale) for weight in old]
        self.unit = lcm(instance.cost.ticks_per_second, *(kind.arrival.denominator for kind in kinds))
        self.arrivals = [int(kind.arrival * self.unit) for kind in kinds]
        # What accrues before a request arrives does not belong to its latency.
        self.early = sum(
            (w * len(kind.members) * kind.arrival for w, kind in zip(young, kinds, strict=True)), Fraction(0)
        )
        self.moves: dict[_Node, list[_Move]] = {}
        self.known: dict[_State, dict[tuple[_State, int], int]] = {}

    def least(self, enough: Fraction) -> Fraction:
        """Optimal objective, or anything from `enough` on that it is at least."""
        goal = (enough + self.early) * self.unit * self.scale
        start = tuple((k, 0, 0) for k, kind in enumerate(self.instance.types) for _ in kind.members)
        first = self._point(start, 0, self._weight(start))
        best: dict[_Point, int] = {first: 0}
        queue: list[tuple[int, _Point]] = [(0, first)]
        expanded: dict[_State, list[tuple[int, int, int]]] = {}
        while True:
            cost, (state, now, least) = heapq.heappop(queue)
            if not state or cost >= goal:
                return Fraction(cost, self.unit * self.scale) - self.early
            others = expanded.setdefault(state, [])
            self._spend(len(others))
            if any(w <= least and c + w * max(0, now - t) <= cost for c, t, w in others):
                continue
            others.append((cost, now, least))
            weight = self._weight(state)
            for (after, ready), time in self._batches(state).items():
                wait = max(0, ready - now)
                total = cost + wait * least + time * weight
                point = self._point(after, now + wait + time, least)
                if point not in best or total < best[point]:
                    best[point] = total
                    heapq.heappush(queue, (total, point))

    def _spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise _TooManySteps

    def _point(self, state: _State, now: int, least: int) -> _Point:
        """The point of a state reached now, if `least` is the least weight before it."""
        latest = max((self.arrivals[kind] for kind, _, _ in state), default=0)
        if now >= latest:
            return state, latest, 0
        return state, now, min(least, self._weight(state))

    def _weight(self, state: _State) -> int:
        """What the objective weighs a unit of time spent in `state`."""
        return self.makespan + sum(self.old[kind] if n else self.young[kind] for kind, _, n in state)

    def _batches(self, state: _State) -> dict[tuple[_State, int], int]:
        """The shortest batch in `state` by the state after it and its members' latest arrival."""
        known = self.known.get(state)
        if known is not None:
            self._spend(len(known))
            return known
        scale = self.unit // self.instance.cost.ticks_per_second
        known = self.known[state] = {}
        for after, ready, ticks in self._enumerate(state):
            key = after, ready
            known[key] = min(ticks * scale, known.get(key, ticks * scale))
        return known

    def _enumerate(self, state: _State) -> Iterator[tuple[_State, int, int]]:
        """Every batch in `state`: the state after it, its members' latest arrival, its time in ticks."""
        system, policy = self.instance.system, self.instance.policy
        running_limit = len(state) if system.max_running is None else system.max_running
        moves = [self._moves(node) for node in state]

        def choose(
            position: int,
            first: int,
            after: _State,
            ready: int,
            held: int,
            running: int,
            load: tuple[int, ...],
        ) -> Iterator[tuple[_State, int, int]]:
            self._spend(1)
            tokens, decodes, kv, prefills, work, prefilled = load
            if (
                held > system.kv_capacity or running > running_limit
                or tokens > system.max_batch_tokens or prefilled > system.max_prefill_tokens
                or (decodes and prefills and not policy.hybrid_batching)
            ):  # fmt: skip
                return
            if position == len(state):
                end = tuple(sorted(after))
                if end != state:
                    ticks = batch_time(*self.instance.cost.ticks, tokens, decodes, kv, prefills, work)
                    yield end, ready, ticks
                return
            same = position + 1 < len(state) and state[position + 1] == state[position]
            arrival = self.arrivals[state[position][0]]
            for k in range(first, len(moves[position])):
                target, cached, more = moves[position][k]
                yield from choose(
                    position + 1,
                    # Requests in one state are alike: their moves are taken in order.
                    k if same else 0,
                    (*after, target) if target else after,
                    max(ready, arrival) if more[0] else ready,
                    held + system.held(cached),
                    running + (cached > 0),
                    tuple(map(add, load, more)),
                )

        return choose(0, 0, (), 0, 0, 0, (0,) * 6)

    def _moves(self, node: _Node) -> list[_Move]:
        """All moves of a node, listed once."""
        known = self.moves.get(node)
        if known is None:
            known = self.moves[node] = list(self._find_moves(node))
        return known

    def _find_moves(self, node: _Node) -> Iterator[_Move]:
        """Node after the move (None: finished), tokens cached in the batch, and the load added.

        The load is (tokens, decodes, cached tokens they read, prefills, their work, their tokens).
        """
        kind, m, n = node
        request = self.instance.types[kind]
        goal = request.input_tokens + n
        yield node, m, (0,) * 6
        if m and self.instance.policy.preemption:
            yield (kind, 0, n), 0, (0,) * 6
        least = 1 if self.instance.policy.chunked_prefill else goal - m
        for c in range(least, goal - m + 1):
            self._spend(1)
            target: _Node | None = (kind, m + c, n)
            if m + c == goal:
                target = None if n + 1 == request.output_tokens else (kind, goal, n + 1)
            if n and goal - m == 1:
                load = (c, 1, m, 0, 0, 0)
            else:
                load = (c, 0, 0, 1, prefill_work(self.instance.cost.exact_attention, c, m), c)
            yield target, m + c, load
