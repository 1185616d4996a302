"""States of all requests of an instance together, and every batch that leads from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import Instance

__all__ = ["Batches", "State", "TooManySteps"]

_Node = tuple[int, int, int]
#: Type, cached and generated tokens of each unfinished request, sorted.
State = tuple[_Node, ...]
#: A batch, or what one request adds to it: the nodes after it (of a request that is finished, none), its
#: latest arrival, KV tokens and requests held, and its load: tokens, decodes, cached tokens they read,
#: prefills, their work, the cached tokens that they come behind, their tokens.
_Batch = tuple[State, int, int, int, int, int, int, int, int, int, int]


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
        self.moves: dict[_Node, list[_Batch]] = {}
        self.known: dict[State, dict[tuple[State, int], int]] = {}
        #: Ticks of a batch by its load, which many batches of many states share.
        self.ticks: dict[tuple[int, ...], int] = {}

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
        known = {}
        for after, ready, _, _, *features, _ in self._combined(state):
            end = tuple(sorted(after))
            if end != state:
                time, key = self._time(tuple(features)), (end, ready)
                if key not in known or time < known[key]:
                    known[key] = time
        self.known[state] = known
        return known

    def _time(self, features: tuple[int, ...]) -> int:
        """Ticks of a batch with these `BatchFeatures`."""
        time = self.ticks.get(features)
        if time is None:
            cost = self.instance.cost
            scale = self.unit // cost.ticks_per_second
            time = self.ticks[features] = scale * cost.batch_ticks(BatchFeatures(*features))
        return time

    def _combined(self, state: State) -> list[_Batch]:
        """Every batch in `state`: moves are added request by request, and what breaks a limit is dropped."""
        system, hybrid = self.instance.system, self.instance.policy.hybrid_batching
        capacity, most = system.kv_capacity, system.max_batch_tokens
        most_running = len(state) if system.max_running is None else system.max_running
        found: list[_Batch] = [((), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
        taken = [0]  # the move that each of them took last
        self.spend(1)
        for position, node in enumerate(state):
            # Requests in one state are alike: their moves are taken in order.
            same = position > 0 and state[position - 1] == node
            moves = list(enumerate(self._moves(node)))
            wider: list[_Batch] = []
            chosen: list[int] = []
            for batch, first in zip(found, taken, strict=True):
                after, ready, held, running, tokens, decodes, kv, prefills, work, behind, prefilled = batch
                rest = moves[first:] if same else moves
                self.spend(len(rest))
                for k, (target, arrival, h, r, t, d, c, p, w, b, f) in rest:
                    if (
                        held + h > capacity or running + r > most_running
                        or tokens + t > most or prefilled + f > system.max_prefill_tokens
                        or (not hybrid and (decodes or d) and (prefills or p))
                    ):  # fmt: skip
                        continue
                    wider.append((
                        after + target, arrival if arrival > ready else ready, held + h, running + r,
                        tokens + t, decodes + d, kv + c, prefills + p, work + w, behind + b, prefilled + f,
                    ))  # fmt: skip
                    chosen.append(k)
            found, taken = wider, chosen
        return found

    def _moves(self, node: _Node) -> list[_Batch]:
        """All moves of a node, listed once."""
        known = self.moves.get(node)
        if known is None:
            known = self.moves[node] = list(self._find_moves(node))
        return known

    def _find_moves(self, node: _Node) -> Iterator[_Batch]:
        kind, m, n = node
        request, system = self.instance.types[kind], self.instance.system
        goal, arrival = request.input_tokens + n, self.arrivals[kind]
        yield (node,), 0, system.held(m), int(m > 0), 0, 0, 0, 0, 0, 0, 0
        if m and self.instance.policy.preemption:
            yield ((kind, 0, n),), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        least = 1 if self.instance.policy.chunked_prefill else goal - m
        for c in range(least, goal - m + 1):
            self.spend(1)
            target: State = ((kind, m + c, n),)
            if m + c == goal:
                target = () if n + 1 == request.output_tokens else ((kind, goal, n + 1),)
            held = system.held(m + c)
            if n and goal - m == 1:
                yield target, arrival, held, 1, c, 1, m, 0, 0, 0, 0
            else:
                work = prefill_work(self.instance.cost.exact_attention, c, m)
                yield target, arrival, held, 1, c, 0, 0, 1, work, m, c
