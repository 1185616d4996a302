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
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance, Objective
from tests.infermax.oracle import State, _Oracle

__all__ = ["TooMany", "vector_optimum"]

#: Points after which an instance is too large.
MOST = 60_000
#: Time of a first and of a last token; None if it is not made yet.
Times = tuple[tuple[int | None, int | None], ...]


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
        self.rows = [
            (
                r.output_tokens,
                self.moves.ticks(r.arrival),
                r.terms.class_name,
                r.terms.weight,
                r.terms.slo.given(),
            )
            for r in instance.requests
        ]
        self.optional = [r.terms.optional for r in instance.requests]
        self.horizon = None if instance.horizon is None else Fraction(instance.horizon)
        objective = instance.objective
        self.weights = {metric.value: weight for metric, weight in objective.weights or objective.limits}
        self.limited = bool(objective.limits)
        tpot = any("tpot" in name for name in self.weights)
        promised = "missed" in self.weights and any("tpot" in slo for *_, slo in self.rows)
        self.every_tick = tpot or promised or "class_spread" in self.weights
        # Nothing but a spread can become less than with all that is missing made at once.
        self.pruned = "class_spread" not in self.weights

    def best(self) -> Fraction:
        start: State = tuple((0, 0) for _ in self.rows)
        none: Times = tuple((None, None) for _ in self.rows)
        queue: list[tuple[int, int, State, Times]] = [(0, 0, start, none)]
        seen: set[tuple[State, Times]] = set()
        best: Fraction | None = None
        made = 0
        while queue:
            now, _, state, times = heapq.heappop(queue)
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
            if all(last is not None or may for (_, last), may in zip(times, self.optional, strict=True)):
                value = self.value(times, now, end=True)
                best = value if best is None else min(best, value)
            for after, ticks, arrival in self.moves.steps(state):
                if after == state:
                    continue
                first = max(now, arrival)
                last = max(first, self.moves.last) if self.every_tick else first
                for begin in range(first, last + 1):
                    made += 1
                    end = begin + ticks
                    point = after, self.marked(state, after, times, end)
                    if point not in seen:
                        heapq.heappush(queue, (end, made, *point))
        assert best is not None
        return best

    def marked(self, before: State, after: State, times: Times, end: int) -> Times:
        """The times with those of the tokens that a batch makes."""
        found = []
        for (_, n), (_, m), (first, last), (o, *_) in zip(before, after, times, self.rows, strict=True):
            found.append((end if n == 0 and m > 0 else first, end if n < o and m == o else last))
        return tuple(found)

    def value(self, times: Times, now: int, end: bool = False) -> Fraction:
        """The objective, spelled out; what is not made yet is made now, or never at the end."""
        done = [(now if a is None else a, now if b is None else b) for a, b in times]
        self.never = [end and b is None for _, b in times]
        rows = [
            (*row, Fraction(a, self.unit), Fraction(b, self.unit))
            for row, (a, b) in zip(self.rows, done, strict=True)
        ]
        values = [(self.metric(name, rows, done), number) for name, number in self.weights.items()]
        if self.limited:
            return max(x / most if most else (1 + x if x else Fraction(0)) for x, most in values)
        return sum((x * weight for x, weight in values), Fraction(0))

    def metric(self, name: str, rows: Sequence[tuple], done: Sequence[tuple[int, int]]) -> Fraction:  # type: ignore[type-arg]
        """One metric of complete times; 0 where it is undefined."""
        never, horizon = self.never, self.horizon
        ends = [None if gone else row[6] for row, gone in zip(rows, never, strict=True)]
        late = [end is None or (horizon is not None and end > horizon) for end in ends]
        if name == "unserved":
            each = zip(rows, late, self.optional, strict=True)
            return sum((row[3] for row, gone, may in each if gone and may), Fraction(0))
        if name == "missed":
            return self.missed(rows, late)
        if name == "makespan":
            return max((end for end in ends if end is not None), default=Fraction(0))
        kept = [k for k, may in enumerate(self.optional) if not may]
        if not kept:
            return Fraction(0)
        rows, done = [rows[k] for k in kept], [done[k] for k in kept]
        arrivals = [Fraction(row[1], self.unit) for row in rows]
        ttft = [row[5] - a for row, a in zip(rows, arrivals, strict=True)]
        e2e = [row[6] - a for row, a in zip(rows, arrivals, strict=True)]
        tpot = [(row[6] - row[5]) / (row[0] - 1) if row[0] > 1 else None for row in rows]
        plain = {"ttft": ttft, "e2e": e2e, "tpot": tpot}
        normal = [x / row[0] for x, row in zip(e2e, rows, strict=True)]
        kind, _, latency = name.rpartition("_")
        if kind in ("mean", "weighted_mean") and latency != "latency":
            pairs = [
                (row[3] if kind == "weighted_mean" else Fraction(1), x)
                for row, x in zip(rows, plain[latency], strict=True)
                if x is not None
            ]
            return sum((w * x for w, x in pairs), Fraction(0)) / (sum(w for w, _ in pairs) or 1)
        if kind in ("p50", "p90", "p99", "max") and latency in plain:
            share = Fraction(100 if kind == "max" else int(kind[1:]), 100)
            return sorted(plain[latency])[math.ceil(share * len(rows)) - 1]
        if name == "class_spread":
            means = []
            for which in {row[2] for row in rows}:
                own = [x for x, row in zip(normal, rows, strict=True) if row[2] == which]
                means.append(sum(own) / len(own))
            return max(means) - min(means)
        return {"mean_normalised_latency": sum(normal) / len(normal), "max_normalised_latency": max(normal)}[
            name
        ]

    def missed(self, rows: Sequence[tuple], late: Sequence[bool]) -> Fraction:  # type: ignore[type-arg]
        """Weight of those that break a limit, or do not end in time, of those with a limit."""
        total = Fraction(0)
        for (o, arrival, _, weight, slo, first, last), gone in zip(rows, late, strict=True):
            since = Fraction(arrival, self.unit)
            found = [first - since, (last - first) / (o - 1) if o > 1 else None, last - since]
            if slo and (gone or breaks(slo, found)):
                total += weight
        return total


def breaks(slo: dict[str, Fraction], found: list[Fraction | None]) -> bool:
    """Whether TTFT, TPOT or end-to-end latency break a limit."""
    names = ("ttft", "tpot", "e2e")
    return any(name in slo and x is not None and x > slo[name] for name, x in zip(names, found, strict=True))
