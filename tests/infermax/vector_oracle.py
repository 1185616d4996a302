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
from operator import mul

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
        objective = instance.objective
        self.optional = [request.terms.optional for request in instance.requests]
        self.required = [k for k, may in enumerate(self.optional) if not may]
        horizon = instance.horizon
        self.horizon = math.inf if horizon is None else math.floor(Fraction(horizon) * self.unit)
        #: Of limits, the ratio to each counts; to one of 0 it is 1 and the value.
        self.weights = {metric.value: weight for metric, weight in objective.weights}
        self.weights |= {metric.value: 1 / (limit or Fraction(1)) for metric, limit in objective.limits}
        self.zero = {metric.value for metric, limit in objective.limits if not limit}
        self.together = max if objective.limits else sum
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
        self.scale = lcm(1, *(x.denominator for _, factors in parts for x in factors))
        self.summands = [(name, [int(x * self.scale) for x in factors]) for name, factors in parts]

    def parts(self, name: str) -> list[Fraction]:
        """What a tick (of `missed`: a miss) of each request counts in a metric; of a rank, of any request."""
        requests = self.instance.requests
        if name in ("missed", "unserved"):
            return [request.terms.weight for request in requests]
        if name == "unserved_tokens":
            return [Fraction(tokens) for tokens in self.outputs]
        requests = [requests[k] for k in self.required]
        outputs = [self.outputs[k] for k in self.required]
        tick = Fraction(1, self.unit)
        kind, _, latency = name.rpartition("_")
        if name == "makespan":
            return [tick]
        if name == "mean_normalised_latency":
            return [tick / o / len(requests) for o in outputs]
        if name == "max_normalised_latency":
            return [tick / o for o in outputs]
        if name == "class_spread":
            classes = [request.terms.class_name for request in requests]
            return [tick / o / classes.count(c) for o, c in zip(outputs, classes, strict=True)]
        if kind in ("mean", "weighted_mean"):
            each = [request.terms.weight if kind == "weighted_mean" else Fraction(1) for request in requests]
            if latency == "tpot":
                each = [w if o > 1 else Fraction(0) for w, o in zip(each, outputs, strict=True)]
            steps = [o - 1 if latency == "tpot" else 1 for o in outputs]
            return [w * tick / (sum(each) or 1) / max(1, n) for w, n in zip(each, steps, strict=True)]
        return [tick / max(1, o - 1) if latency == "tpot" else tick for o in outputs]

    def best(self) -> Fraction:
        start: State = tuple((0, 0) for _ in self.outputs)
        none: Times = tuple((None, None) for _ in self.outputs)
        # The time, a number that tells entries apart, the point, and where it is the end of a batch that
        # could also start later: the last such end, and what it makes.
        queue: list[tuple[int, int, State, Times, int, Made]] = [(0, 0, start, none, 0, ((), ()))]
        seen: set[tuple[State, Times]] = set()
        # Whatever is queued is taken at last: too many there are soon too many to go on.
        reached = {(start, none)}
        best: int | None = None
        made = 0
        while queue:
            now, _, state, times, latest, makes = heapq.heappop(queue)
            if now < latest:
                made += 1
                later = marked(times, makes, now + 1)
                reached.add((state, later))
                heapq.heappush(queue, (now + 1, made, state, later, latest, makes))
            if (state, times) in seen:
                continue
            seen.add((state, times))
            if best is not None and self.pruned and self.value(times, now) >= best:
                continue
            if all(last is not None for _, last in times):
                value = self.value(times, now)
                best = value if best is None else min(best, value)
                continue
            if all(last is not None or may for (_, last), may in zip(times, self.optional, strict=True)):
                value = self.value(times, now, end=True)
                best = value if best is None else min(best, value)
            for after, ticks, arrival, makes in self.steps(state):
                first = max(now, arrival)
                # Where it makes nothing that is recorded, nobody can tell it from the earliest one.
                waits = self.every_tick and makes != ((), ())
                end = first + ticks
                point = after, marked(times, makes, end)
                reached.add(point)
                made += 1
                heapq.heappush(
                    queue, (end, made, *point, max(end, self.moves.last + ticks) if waits else end, makes)
                )
            if len(reached) > self.most:
                raise TooMany
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

    def value(self, times: Times, now: int, end: bool = False) -> int:
        """The objective, spelled out, in units of its scale; what is not made yet is made now, or never."""
        ttft = [(now if a is None else a) - at for (a, _), at in zip(times, self.arrivals, strict=True)]
        e2e = [(now if b is None else b) - at for (_, b), at in zip(times, self.arrivals, strict=True)]
        never = [end and b is None for _, b in times]
        return self.together(self.counted(name, factors, ttft, e2e, never) for name, factors in self.summands)

    def counted(
        self, name: str, factors: list[int], ttft: list[int], e2e: list[int], never: list[bool]
    ) -> int:
        """One metric with its weight, or its ratio to a limit."""
        ends = [math.inf if gone else x + at for x, at, gone in zip(e2e, self.arrivals, never, strict=True)]
        late = [at > self.horizon or gone for at, gone in zip(ends, never, strict=True)]
        if name == "makespan":
            found = factors[0] * int(max((at for at in ends if at < math.inf), default=0))
        elif name in ("unserved", "unserved_tokens"):
            each = zip(factors, late, self.optional, strict=True)
            found = sum(factor for factor, gone, may in each if gone and may)
        elif name == "missed":
            found = self.missed(factors, ttft, e2e, late)
        elif not self.required:
            found = 0
        else:
            found = self.metric(name, factors, *([x[k] for k in self.required] for x in (ttft, e2e)))
        return self.scale + found if found and name in self.zero else found

    def missed(self, factors: list[int], ttft: list[int], e2e: list[int], late: list[bool]) -> int:
        """Weight of those that break a limit, or do not end in time, of those with a limit."""
        span = [b - a for a, b in zip(ttft, e2e, strict=True)]
        slos = [request.terms.slo for request in self.instance.requests]
        return sum(
            factor
            for factor, slo, gone, limits, *found in zip(
                factors, slos, late, self.limits, ttft, span, e2e, strict=True
            )
            if slo
            and (gone or any(most is not None and x > most for x, most in zip(found, limits, strict=True)))
        )

    def metric(self, name: str, factors: list[int], ttft: list[int], e2e: list[int]) -> int:
        """One metric of the requests that must be finished, with its weight."""
        span = [b - a for a, b in zip(ttft, e2e, strict=True)]
        kind, _, latency = name.rpartition("_")
        if name == "class_spread":
            means: dict[str | None, int] = {}
            for k, factor, x in zip(self.required, factors, e2e, strict=True):
                of = self.instance.requests[k].terms.class_name
                means[of] = means.get(of, 0) + factor * x
            return max(means.values()) - min(means.values())
        if name == "max_normalised_latency":
            return max(map(mul, factors, e2e))
        plain = {"ttft": ttft, "e2e": e2e, "tpot": span, "latency": e2e}[latency]
        if kind in ("p50", "p90", "p99", "max"):
            share = Fraction(100 if kind == "max" else int(kind[1:]), 100)
            having = [k for k, i in enumerate(self.required) if latency != "tpot" or self.outputs[i] > 1]
            values = sorted(factors[k] * plain[k] for k in having)
            return values[math.ceil(share * len(values)) - 1] if values else 0
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
