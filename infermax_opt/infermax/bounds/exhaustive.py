"""Checking a lower bound by enumerating every schedule of a tiny instance.

Dijkstra's algorithm over joint states, written from the problem statement alone: no estimates, no
pruning, nothing shared with the search engine.  A state is the multiset of (type, m, n) of the
unfinished requests; a batch costs its time multiplied by what the objective weighs a second in
that state.  Once the cheapest unexpanded state costs as much as the claimed bound, every schedule
does, as no batch costs less than nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fractions import Fraction

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.data.instance import Instance, Metric

__all__ = ["MAX_STEPS", "holds"]

#: Steps of the enumeration after which the check gives up; a second or two.
MAX_STEPS = 300_000
#: Requests and generated tokens beyond which it does not even start.
MAX_REQUESTS = 16
MAX_TOKENS = 200

_Node = tuple[int, int, int]
_State = tuple[_Node, ...]


class _GaveUp(Exception):
    """Too many steps."""


def holds(instance: Instance, bound: Fraction, steps: int = MAX_STEPS) -> bool | None:
    """Tell whether `bound` is a lower bound on the objective, in exact seconds.

    Returns
    -------
    bool or None
        None where the instance has arrivals or is too large to enumerate within `steps`.
    """
    if not instance.offline or len(instance.requests) > MAX_REQUESTS:
        return None
    if instance.output_tokens > MAX_TOKENS:
        return None
    try:
        return _Enumeration(instance, steps).least(bound) >= bound
    except _GaveUp:
        return None


class _Enumeration:
    def __init__(self, instance: Instance, steps: int):
        self.instance = instance
        self.steps = steps
        objective = instance.objective
        requests = instance.requests
        several = sum(1 for r in requests if r.output_tokens > 1)
        self.makespan = objective.weight(Metric.MAKESPAN)
        self.ttft = objective.weight(Metric.MEAN_TTFT) / len(requests)
        self.e2e = objective.weight(Metric.MEAN_E2E) / len(requests)
        self.tpot = objective.weight(Metric.MEAN_TPOT) / max(1, several)

    def least(self, enough: Fraction) -> Fraction:
        """Optimal objective, or anything from `enough` on that it is at least."""
        kinds = self.instance.types
        start = tuple((k, 0, 0) for k, kind in enumerate(kinds) for _ in kind.members)
        best: dict[_State, Fraction] = {start: Fraction(0)}
        queue: list[tuple[Fraction, _State]] = [(Fraction(0), start)]
        while True:
            cost, state = heapq.heappop(queue)
            if not state or cost >= enough:
                return cost
            if cost > best[state]:
                continue
            weight = self._weight(state) / self.instance.cost.ticks_per_second
            for after, ticks in self._batches(state):
                total = cost + ticks * weight
                if after not in best or total < best[after]:
                    best[after] = total
                    heapq.heappush(queue, (total, after))

    def _weight(self, state: _State) -> Fraction:
        """What the objective weighs a second spent in `state`."""
        total = self.makespan
        for kind, _, n in state:
            total += self.e2e
            if n == 0:
                total += self.ttft
            else:
                total += self.tpot / (self.instance.types[kind].output_tokens - 1)
        return total

    def _batches(self, state: _State) -> Iterator[tuple[_State, int]]:
        """Every batch in `state`: the state after it, and its time in ticks."""
        system, policy = self.instance.system, self.instance.policy
        running_limit = len(state) if system.max_running is None else system.max_running
        moves = [self._moves(node) for node in state]

        def choose(
            position: int, first: int, after: _State, held: int, running: int, load: tuple[int, ...]
        ) -> Iterator[tuple[_State, int]]:
            self.steps -= 1
            if self.steps < 0:
                raise _GaveUp
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
                    yield end, ticks
                return
            same = position + 1 < len(state) and state[position + 1] == state[position]
            for k in range(first, len(moves[position])):
                target, cached, more = moves[position][k]
                yield from choose(
                    position + 1,
                    # Requests in one state are alike: their moves are taken in order.
                    k if same else 0,
                    (*after, target) if target else after,
                    held + system.held(cached),
                    running + (cached > 0),
                    tuple(a + b for a, b in zip(load, more, strict=True)),
                )

        return choose(0, 0, (), 0, 0, (0,) * 6)

    def _moves(self, node: _Node) -> list[tuple[_Node | None, int, tuple[int, ...]]]:
        """Node after the move (None: finished), tokens cached in the batch, and the load added.

        The load is (tokens, decodes, cached tokens they read, prefills, their work, their tokens).
        """
        kind, m, n = node
        request = self.instance.types[kind]
        goal = request.input_tokens + n
        found: list[tuple[_Node | None, int, tuple[int, ...]]] = [(node, m, (0,) * 6)]
        if m and self.instance.policy.preemption:
            found.append(((kind, 0, n), 0, (0,) * 6))
        least = 1 if self.instance.policy.chunked_prefill else goal - m
        for c in range(least, goal - m + 1):
            target: _Node | None = (kind, m + c, n)
            if m + c == goal:
                target = None if n + 1 == request.output_tokens else (kind, goal, n + 1)
            if n and goal - m == 1:
                load = (c, 1, m, 0, 0, 0)
            else:
                load = (c, 0, 0, 1, prefill_work(self.instance.cost.exact_attention, c, m), c)
            found.append((target, m + c, load))
        return found
