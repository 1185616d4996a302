"""An exhaustive optimum of any objective, over the times of all first and last tokens.

Built on the moves and batches of `oracle`.  A point is a state with the times of the first and last tokens
made so far; all that can be reached are enumerated in order of time, and the objective is spelled out again
for each vector of times.  Of one point at two times the later one is left out: from the earlier one it can
be waited until then.  Only good for tiny instances.

A batch starts at any tick until the last arrival, or as soon as its members are there where no objective
gains by a later first token.  From the last arrival on nothing waits: all latencies, and all times between
two tokens, would only grow.  That a spread of classes may shrink by that is left out: with it the result is
what some schedule attains, but perhaps not the optimum.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from fractions import Fraction
from math import lcm
from operator import add, mul

from infermax_opt.infermax.data.instance import Instance, Objective
from tests.infermax.oracle import State, _Oracle

__all__ = ["TooMany", "vector_optimum"]

#: Points after which an instance is too large.
MOST = 60_000
#: Time of a first and of a last token; None if it is not made yet.
Times = tuple[tuple[int | None, int | None], ...]
#: Requests whose first, and whose last token a batch makes.
Made = tuple[tuple[int, ...], tuple[int, ...]]


class TooMany(Exception):
    """The instance has too many points."""


def vector_optimum(instance: Instance, most: int = MOST) -> Fraction:
    """Optimal objective in its unit; `TooMany` where that takes more than so many points."""
    return _VectorOracle(instance, most).best()


class _Timeless(_Oracle):
    """The moves and batches alone: the weights of an objective are none of its business."""

    def __init__(self, instance: Instance):
        super().__init__(replace(instance, objective=Objective.of("makespan")))


class _VectorOracle:
    def __init__(self, instance: Instance, most: int):
        self.instance, self.most = instance, most
        self.moves = _Timeless(instance)
        self.unit = self.moves.unit
        self.known: dict[State, list[tuple[State, int, int, Made]]] = {}
        self.outputs = [request.output_tokens for request in instance.requests]
        self.arrivals = [self.moves.ticks(request.arrival) for request in instance.requests]
        self.weights = {metric.value: weight for metric, weight in instance.objective.weights}
        slos = [request.terms.slo.given() for request in instance.requests]
        tpot = any("tpot" in name for name in self.weights)
        promised = "missed" in self.weights and any("tpot" in slo for slo in slos)
        self.every_tick = tpot or promised or "class_spread" in self.weights
        # Nothing but a spread can become less than with all that is missing made at once.
        self.pruned = "class_spread" not in self.weights
        #: Most ticks from arrival to first token, from it to the last one, and from arrival to that one.
        self.limits = [
            [
                None if name not in slo or not times else math.floor(slo[name] * times * self.unit)
                for name, times in (("ttft", 1), ("tpot", o - 1), ("e2e", 1))
            ]
            for slo, o in zip(slos, self.outputs, strict=True)
        ]
        parts = [(name, [weight * x for x in self.parts(name)]) for name, weight in self.weights.items()]
        #: Parts of the objective, and what a tick of each request counts in them, in whole units.
        self.scale = lcm(*(x.denominator for _, factors in parts for x in factors))
        self.summands = [(name, [int(x * self.scale) for x in factors]) for name, factors in parts]

    def parts(self, name: str) -> list[Fraction]:
        """What a tick (of `missed`: a miss) of each request counts in a metric; of a rank, of any request."""
        requests = self.instance.requests
        tick = Fraction(1, self.unit)
        kind, _, latency = name.rpartition("_")
        if name == "missed":
            return [request.terms.weight for request in requests]
        if name == "mean_normalised_latency":
            return [tick / o / len(requests) for o in self.outputs]
        if name == "max_normalised_latency":
            return [tick / o for o in self.outputs]
        if name == "class_spread":
            classes = [request.terms.class_name for request in requests]
            return [tick / o / classes.count(c) for o, c in zip(self.outputs, classes, strict=True)]
        if kind in ("mean", "weighted_mean"):
            each = [request.terms.weight if kind == "weighted_mean" else Fraction(1) for request in requests]
            if latency == "tpot":
                each = [w if o > 1 else Fraction(0) for w, o in zip(each, self.outputs, strict=True)]
            steps = [o - 1 if latency == "tpot" else 1 for o in self.outputs]
            return [w * tick / (sum(each) or 1) / max(1, n) for w, n in zip(each, steps, strict=True)]
        return [tick] * len(requests)

    def best(self) -> Fraction:
        start: State = tuple((0, 0) for _ in self.outputs)
        none: Times = tuple((None, None) for _ in self.outputs)
        # The time, a number that tells entries apart, the point, and where it is the end of a batch that
        # could also start later: the last such end, and what it makes.
        queue: list[tuple[int, int, State, Times, int, Made]] = [(0, 0, start, none, 0, ((), ()))]
        seen: set[tuple[State, Times]] = set()
        best: int | None = None
        made = 0
        while queue:
            now, _, state, times, latest, makes = heapq.heappop(queue)
            if now < latest:
                made += 1
                later = marked(times, makes, now + 1)
                heapq.heappush(queue, (now + 1, made, state, later, latest, makes))
            if (state, times) in seen:
                continue
            seen.add((state, times))
            if len(seen) > self.most:
                raise TooMany
            if best is not None and self.pruned and self.value(times, now) >= best:
                continue
            if all(last is not None for _, last in times):
                value = self.value(times, now)
                best = value if best is None else min(best, value)
                continue
            for after, ticks, arrival, makes in self.steps(state):
                first = max(now, arrival)
                # Where it makes nothing that is recorded, nobody can tell it from the earliest one.
                waits = self.every_tick and makes != ((), ())
                end = first + ticks
                point = after, marked(times, makes, end)
                made += 1
                heapq.heappush(
                    queue, (end, made, *point, max(end, self.moves.last + ticks) if waits else end, makes)
                )
        assert best is not None
        return Fraction(best, self.scale)

    def steps(self, state: State) -> list[tuple[State, int, int, Made]]:
        """Every batch that changes a state, and what it makes."""
        if state not in self.known:
            self.known[state] = [
                (*step, self.made(state, step[0])) for step in self.moves.steps(state) if step[0] != state
            ]
        return self.known[state]

    def made(self, before: State, after: State) -> Made:
        """The requests whose first token, and whose last one, a batch makes."""
        steps = list(enumerate(zip(before, after, self.outputs, strict=True)))
        return (
            tuple(i for i, ((_, n), (_, m), _) in steps if n == 0 and m > 0),
            tuple(i for i, ((_, n), (_, m), o) in steps if n < o and m == o),
        )

    def value(self, times: Times, now: int) -> int:
        """The objective, spelled out, in units of its scale; what is not made yet is made now."""
        ttft = [(now if a is None else a) - at for (a, _), at in zip(times, self.arrivals, strict=True)]
        e2e = [(now if b is None else b) - at for (_, b), at in zip(times, self.arrivals, strict=True)]
        return sum(self.metric(name, factors, ttft, e2e) for name, factors in self.summands)

    def metric(self, name: str, factors: list[int], ttft: list[int], e2e: list[int]) -> int:
        """One metric with its weight."""
        span = [b - a for a, b in zip(ttft, e2e, strict=True)]
        kind, _, latency = name.rpartition("_")
        if name == "makespan":
            return factors[0] * max(map(add, e2e, self.arrivals))
        if name == "missed":
            return sum(
                factor
                for factor, limits, *found in zip(factors, self.limits, ttft, span, e2e, strict=True)
                if any(most is not None and x > most for x, most in zip(found, limits, strict=True))
            )
        if name == "class_spread":
            means: dict[str | None, int] = {}
            for request, factor, x in zip(self.instance.requests, factors, e2e, strict=True):
                of = request.terms.class_name
                means[of] = means.get(of, 0) + factor * x
            return max(means.values()) - min(means.values())
        if name == "max_normalised_latency":
            return max(map(mul, factors, e2e))
        plain = {"ttft": ttft, "e2e": e2e, "tpot": span, "latency": e2e}[latency]
        if kind in ("p50", "p90", "p99", "max"):
            share = Fraction(100 if kind == "max" else int(kind[1:]), 100)
            return factors[0] * sorted(plain)[math.ceil(share * len(plain)) - 1]
        return sum(map(mul, factors, plain))


def marked(times: Times, makes: Made, end: int) -> Times:
    """The times with those of the tokens that a batch makes."""
    if makes == ((), ()):
        return times
    found = list(times)
    firsts, lasts = makes
    for i in firsts:
        found[i] = end, found[i][1]
    for i in lasts:
        found[i] = found[i][0], end
    return tuple(found)
