"""States of all requests of an instance together, and every batch that leads from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from operator import add

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.data.instance import Instance

__all__ = ["Batches", "State", "TooManySteps"]

_Node = tuple[int, int, int]
#: Type, cached and generated tokens of each unfinished request, sorted.
State = tuple[_Node, ...]
#: Node after a request's move (None: finished), tokens cached in the batch, the load added.
_Move = tuple[_Node | None, int, tuple[int, ...]]


class TooManySteps(Exception):
    """Too many steps."""


class Batches:
    """The batches of an instance, in every state, within so many steps.

    Parameters
    ----------
    instance : Instance
    steps : int
        `TooManySteps` is raised beyond them.

    Attributes
    ----------
    unit : int
        Ticks per second: batch times and arrivals are whole ticks.
    """

    def __init__(self, instance: Instance, steps: int):
        self.instance = instance
        self.steps = steps
        kinds = instance.types
        self.unit = lcm(instance.cost.ticks_per_second, *(kind.arrival.denominator for kind in kinds))
        self.arrivals = [int(kind.arrival * self.unit) for kind in kinds]
        self.moves: dict[_Node, list[_Move]] = {}
        self.known: dict[State, dict[tuple[State, int], int]] = {}

    def spend(self, steps: int) -> None:
        """Count steps that come next."""
        self.steps -= steps
        if self.steps < 0:
            raise TooManySteps

    def of(self, state: State) -> dict[tuple[State, int], int]:
        """The shortest batch in `state` by the state after it and its members' latest arrival."""
        known = self.known.get(state)
        if known is not None:
            self.spend(len(known))
            return known
        scale = self.unit // self.instance.cost.ticks_per_second
        known = self.known[state] = {}
        for after, ready, ticks in self._enumerate(state):
            key = after, ready
            known[key] = min(ticks * scale, known.get(key, ticks * scale))
        return known

    def _enumerate(self, state: State) -> Iterator[tuple[State, int, int]]:
        """Every batch in `state`: the state after it, its members' latest arrival, its time in ticks."""
        system, policy = self.instance.system, self.instance.policy
        running_limit = len(state) if system.max_running is None else system.max_running
        moves = [self._moves(node) for node in state]

        def choose(
            position: int,
            first: int,
            after: State,
            ready: int,
            held: int,
            running: int,
            load: tuple[int, ...],
        ) -> Iterator[tuple[State, int, int]]:
            self.spend(1)
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
            self.spend(1)
            target: _Node | None = (kind, m + c, n)
            if m + c == goal:
                target = None if n + 1 == request.output_tokens else (kind, goal, n + 1)
            if n and goal - m == 1:
                load = (c, 1, m, 0, 0, 0)
            else:
                load = (c, 0, 0, 1, prefill_work(self.instance.cost.exact_attention, c, m), c)
            yield target, m + c, load
