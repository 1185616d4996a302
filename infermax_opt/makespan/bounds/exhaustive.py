r"""Checking a lower bound by enumerating every schedule of a small makespan instance.

Dijkstra's algorithm with an estimate, written from the rules of `infermax_opt.makespan.replay.bins` alone: it
shares nothing with the exact engine.  A state is what there is before a prefill stage: how many requests of
each kind wait, and the tokens that each request under way has left.  Clients are alike, so which of them is
free does not matter.

*What is enumerated.*  Every set of waiting requests that free clients and a level can take, and after it
every decode stage of these lengths: no round; until some request under way ends; where none waits, until
all have ended.  Every other schedule has one of these that takes no longer, by four changes that break no
rule and lengthen nothing:

1. A request under way generates a token in every round until it has all.  It ends no later, and its client
   may stay idle after that.
2. A bin without a prefill hands its rounds to the bin before it, and saves the time of its level.  The first
   bin loses them: nothing is under way.
3. Let a stage of r rounds be followed by a prefill, and let r' be the last of 0 and the rounds, up to r, at
   which a request ends.  The clients that are free after r rounds are free after r'.  So the prefill is
   done after r' rounds, and the other r - r' follow it: the requests before it decode as they did, those of
   the prefill have r - r' rounds more until the next one.  From the first bin on, one after the other.
4. The last stage ends with its last request.

*The estimate* of what a state still takes: a round for every token of the longest request, and for every
J tokens of all (J clients), whichever is more; and the cheapest level for every N input tokens that wait (N:
of the largest level).  Stages of R rounds lessen the first by R rounds at most, a prefill the second by one
level at most: the estimate never falls by more than a step costs, so states are met at their least cost.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from infermax_opt.makespan.data.instance import MakespanInstance

__all__ = ["MAX_REQUESTS", "MAX_STEPS", "holds", "least_makespan"]

#: Steps of the enumeration after which it gives up; about five seconds: up to nine requests of all lengths.
MAX_STEPS = 1_000_000
#: Requests beyond which it does not even start.
MAX_REQUESTS = 16

#: Waiting requests of each kind, and the tokens left of those under way, sorted.
_State = tuple[tuple[int, ...], tuple[int, ...]]


class _GaveUp(Exception):
    """Too many steps."""


def holds(instance: MakespanInstance, bound: Fraction, steps: int = MAX_STEPS) -> bool | None:
    """Tell whether `bound` is a lower bound on the makespan.

    Parameters
    ----------
    instance : MakespanInstance
    bound : Fraction
        Seconds.
    steps : int
        Most decode stages and sets of requests to look at.

    Returns
    -------
    bool or None
        None where the instance is too large.
    """
    least = least_makespan(instance, enough=bound, steps=steps)
    return None if least is None else least >= bound


def least_makespan(
    instance: MakespanInstance, *, enough: Fraction | None = None, steps: int = MAX_STEPS
) -> Fraction | None:
    """Least makespan in seconds; None where the instance is too large.

    Parameters
    ----------
    instance : MakespanInstance
    enough : Fraction, optional
        Seconds.  Once it is known that no schedule takes less, something from there on is returned.
    steps : int
        Most decode stages and sets of requests to look at.
    """
    if len(instance.requests) > MAX_REQUESTS:
        return None
    most = None if enough is None else math.ceil(enough * instance.ticks_per_second)
    try:
        ticks = _Enumeration(instance, steps).least(most)
    except _GaveUp:
        return None
    return Fraction(ticks, instance.ticks_per_second)


class _Enumeration:
    """The states of an instance, and the steps from one to the next."""

    def __init__(self, instance: MakespanInstance, steps: int):
        self.instance = instance
        self.steps = steps
        alike = Counter((r.input_tokens, r.output_tokens) for r in instance.requests)
        #: Input and output tokens of each kind, and its requests.
        self.kinds = sorted(alike)
        self.counts = tuple(alike[kind] for kind in self.kinds)
        self.most_tokens, _ = instance.level_ticks[-1]
        _, self.cheapest = instance.level_ticks[0]

    def least(self, enough: int | None) -> int:
        """Ticks of the best schedule, or any number from `enough` on that it takes at least."""
        start: _State = (self.counts, ())
        cost = {start: 0}
        queue = [(self.estimate(start), start)]
        while True:
            total, state = heapq.heappop(queue)
            if enough is not None and total >= enough:
                return total
            if not any(state[0]):
                return total
            here = cost[state]
            if total > here + self.estimate(state):
                continue
            for after, ticks in self.follow(state):
                there = here + ticks
                if after not in cost or there < cost[after]:
                    cost[after] = there
                    heapq.heappush(queue, (there + self.estimate(after), after))

    def estimate(self, state: _State) -> int:
        """Ticks that a state takes at least; exactly so many where none waits."""
        waiting, left = state
        longest, tokens, prompts = max(left, default=0), sum(left), 0
        for count, (given, made) in zip(waiting, self.kinds, strict=True):
            if count:
                longest = max(longest, made)
                tokens += count * made
                prompts += count * given
        rounds = longest if not prompts else max(longest, -(-tokens // self.instance.clients))
        return rounds * self.instance.round_ticks - (-prompts // self.most_tokens) * self.cheapest

    def follow(self, state: _State) -> Iterator[tuple[_State, int]]:
        """Every prefill and decode stage from a state: what there is then, and the ticks taken."""
        waiting, left = state
        for taken, tokens in self.sets(waiting, self.instance.clients - len(left)):
            prefill = self.instance.prefill_ticks(tokens)
            if prefill is None:
                continue
            rest = tuple(count - some for count, some in zip(waiting, taken, strict=True))
            started = [made for (_, made), some in zip(self.kinds, taken, strict=True) for _ in range(some)]
            under_way = sorted([*left, *started])
            if not any(rest):
                yield (rest, tuple(under_way)), prefill
                continue
            for rounds in {0, *under_way}:
                self.step()
                now = tuple(some - rounds for some in under_way if some > rounds)
                if len(now) < self.instance.clients:
                    yield (rest, now), prefill + rounds * self.instance.round_ticks

    def sets(self, waiting: tuple[int, ...], free: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Numbers of each kind to prefill, one or more in all, that fit the largest level; their tokens."""

        def choose(
            kind: int, taken: tuple[int, ...], number: int, tokens: int
        ) -> Iterator[tuple[tuple[int, ...], int]]:
            self.step()
            if kind == len(waiting):
                if number:
                    yield taken, tokens
                return
            for some in range(min(waiting[kind], free - number) + 1):
                total = tokens + some * self.kinds[kind][0]
                if total > self.most_tokens:
                    break
                yield from choose(kind + 1, (*taken, some), number + some, total)

        return choose(0, (), 0, 0)

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise _GaveUp
