"""The instance: limits, cost model and requests, by kinds, and its hash."""

from __future__ import annotations

import math
from collections import Counter
from copy import copy
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from infermax_opt.checking.errors import Rejected
from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_REQUESTS
from infermax_opt.checking.meaning import Meaning
from infermax_opt.checking.profiles import spelled_out
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.pieces import Piece, read_cost
from infermax_opt.infermax.checker.terms import PLAIN, Promise, read_plain, read_release, read_terms

#: All metrics, in the order in which the hash of an instance has their weights.
METRICS = (
    "makespan", "mean_ttft", "mean_tpot", "mean_e2e",
    "weighted_mean_ttft", "weighted_mean_tpot", "weighted_mean_e2e",
    "mean_normalised_latency", "max_normalised_latency",
    "p50_ttft", "p90_ttft", "p99_ttft", "max_ttft",
    "p50_tpot", "p90_tpot", "p99_tpot", "max_tpot", "p50_e2e", "p90_e2e", "p99_e2e", "max_e2e",
    "class_spread", "missed", "unserved", "unserved_tokens",
)  # fmt: skip
#: Steps of checking a number of tokens cached.
SIZE_STEPS = 40
#: Steps of checking a request.
REQUEST_STEPS = 200
#: Input tokens, output tokens and number of requests.
Kinds = list[tuple[int, int, int]]


class Instance:
    """What the bounds need of an instance file.

    Raises `Rejected` where the file is no instance, and `Unreadable` where its profile cannot be read.
    """

    def __init__(self, data: Any, profiles: Path | None):
        top, self.work = Field(data, "instance"), Work()
        if top["schema"].value != "infermax-opt/instance/1":
            top["schema"].fail(f"{shown(top['schema'].value)} is not 'infermax-opt/instance/1'")
        system, policy = top["system"], top["policy"]
        limits = ("kv_capacity", "max_batch_tokens", "max_prefill_tokens")
        self.capacity, self.batch_tokens, self.prefill_tokens = (system[key].whole(1) for key in limits)
        limited = "max_running" in system and system["max_running"].value is not None
        self.running = system["max_running"].whole(1) if limited else None
        self.block = system["block_size"].whole(1, self.capacity) if "block_size" in system else 1
        flags = ("hybrid_batching", "chunked_prefill", "preemption")
        self.hybrid, self.chunked, self.preemption = (policy[flag].flag() for flag in flags)
        self.budget = min(self.batch_tokens, self.prefill_tokens)
        self._read_rates(spelled_out(top["cost"], profiles))
        self._read_requests(top)

    def _read_rates(self, cost: Field) -> None:
        """Coefficients as they are written and, all as whole numbers, in ticks."""
        self.cost = pieces, decode, prefill, attention, extra = read_cost(cost)
        self.spread = self.chunked and attention != "exact"  # chunks save attention work
        self.scale = math.lcm(*(v.denominator for pair in [*pieces, decode, prefill, extra] for v in pair))
        self.pieces = [(int(a * self.scale), int(b * self.scale)) for a, b in pieces]
        self.d0, self.d1, self.p0, self.p1 = (int(v * self.scale) for v in [*decode, *prefill])
        self.e0, self.e1, self.p2 = (int(v * self.scale) for v in extra)

    def _machine(self, top: Field) -> Meaning:
        """What is hashed before the requests."""
        meaning, (pieces, decode, prefill, attention, extra) = Meaning(), self.cost
        meaning.feed("infermax-opt/instance/1", top["problem"].text(), top["name"].text())
        meaning.feed(self.capacity, self.batch_tokens, self.prefill_tokens)
        meaning.feed(self.running, self.block)
        meaning.feed(self.hybrid, self.chunked, self.preemption)
        meaning.feed(attention, *(v for pair in pieces for v in pair))
        meaning.feed(*decode, *prefill)
        if any(extra[:2]):
            meaning.feed("mixed", *extra[:2])
        if extra[2]:
            meaning.feed("prefix", extra[2])
        meaning.feed(*self._read_objective(top["objective"]))
        self.horizon = top["horizon"].number() if "horizon" in top else None
        if self.horizon is not None:
            meaning.feed("horizon", self.horizon)
        self.released = read_release(top["release"], meaning) if "release" in top else None
        return meaning

    def _read_requests(self, top: Field) -> None:
        """Requests by kind, and the hash of the instance."""
        meaning = self._machine(top)
        #: Those that must be served; there may be none.
        self.kinds: dict[tuple[int, int, Fraction], int] = {}
        #: Of requests of which more is said: input and output tokens, arrival, weight and limits, whether
        #: they are optional, and how many.
        self.entries: list[tuple[int, int, Fraction, Promise, bool, int]] = []
        #: Requests that count, by what they do if they keep their limits.
        self.promised: dict[tuple[int, int, Fraction, Promise], int] = {}
        classes, total = top["classes"] if "classes" in top else Field({}, "instance.classes"), 0
        for k, value in enumerate(top["requests"].values()):
            plain = read_plain(value)
            if plain is None:
                entry = Field(value, f"{top['requests'].path}[{k}]")
                total += self._read_entry(entry, classes, meaning)
            else:
                meaning.feed(*plain)
                self._count(*plain[1:], 1)
                total += 1
            if total > MAX_REQUESTS:
                top["requests"].fail(f"more than {MAX_REQUESTS} requests in all")
        if not total:
            top["requests"].fail("holds no request")
        self.sha256 = meaning.hexdigest()

    def _read_entry(self, entry: Field, classes: Field, meaning: Meaning) -> int:
        """How many requests an entry stands for, which are noted and hashed."""
        i, o = entry["input_tokens"].whole(1), entry["output_tokens"].whole(1)
        arrival = entry["arrival"].number() if "arrival" in entry else Fraction(0)
        if arrival < 0:
            entry["arrival"].fail(f"{shown(entry['arrival'].value)} is below 0")
        terms, promise = read_terms(entry, classes)
        times = meaning.feed_requests(entry, i, o, arrival, *terms)
        optional = "optional" in terms[1:]
        if not optional:  # these may be left out, so the bounds are about the others
            self._count(i, o, arrival, times)
        if optional or promise != PLAIN:
            self.entries.append((i, o, arrival, promise, optional, times))
        if self.released and "class" in entry and entry["class"].text() == self.released:
            self._check_release(promise, optional)
        return int(times)

    def _count(self, i: int, o: int, arrival: Fraction, times: int) -> None:
        """Count requests that must be served."""
        known, key = len(self.kinds), (i, o, arrival)
        before = self.kinds.setdefault(key, times)
        if len(self.kinds) == known:  # to hash a fraction takes long, and most are there once
            self.kinds[key] = before + times

    def _check_release(self, promise: Promise, optional: bool) -> None:
        """Bounds are those without a closed loop, so no latency of a released request may count."""
        counted = {self.objective, *self.limits, *self.weights} - {"weighted sum", "at_most"}
        late = "missed" in counted and promise[1:] != (None, None, None)
        if late or not (optional or counted <= {"makespan", "missed", "unserved", "unserved_tokens"}):
            raise Rejected("is for latencies of released requests, which have no certificates")

    def _read_objective(self, given: Field) -> list[object]:
        """The one metric, or the limits of several; what the hash holds of it."""
        self.limits: dict[str, Fraction] = {}
        self.weights: dict[str, Fraction] = {}
        if isinstance(given.value, dict) and "at_most" in given.value:
            self.objective = "at_most"
            self.limits = {name: given["at_most"][name].number() for name in given["at_most"].value}
            return ["at_most", *(part for pair in sorted(self.limits.items()) for part in pair)]
        if isinstance(given.value, dict):
            self.objective = "weighted sum"
            self.weights = {name: given[name].number() for name in METRICS if name in given.value}
            if min(self.weights.values(), default=Fraction(0)) < 0:
                given.fail("holds a negative weight")
            return [None, *(part for pair in self.weights.items() if pair[1] for part in pair)]
        self.objective = "makespan" if given.text() == "throughput" else given.text()
        return [given.text(), self.objective, 1]

    def promising(self, worth: dict[str, Fraction]) -> Instance:
        """The same, with those that count where metrics weigh this: by a broken limit, or unserved."""
        found = copy(self)
        found.promised = {}
        for i, o, arrival, (weight, *limits), optional, times in self.entries:
            missed = worth.get("missed", Fraction(0)) * weight * any(limit is not None for limit in limits)
            left = worth.get("unserved", Fraction(0)) * weight + worth.get("unserved_tokens", Fraction(0)) * o
            left *= optional and self.horizon is not None
            if missed or left:
                ttft, tpot, e2e = limits if missed >= left else [None] * 3
                if self.horizon is not None:
                    e2e = self.horizon - arrival if e2e is None else min(e2e, self.horizon - arrival)
                key = (i, o, arrival, (max(missed, left), ttft, tpot, e2e))
                found.promised[key] = found.promised.get(key, 0) + times
        return found

    def above(self, percent: int) -> int:
        """Requests that may be above a rank of a latency, at most: those behind it."""
        count = sum(self.kinds.values())
        return count - -(-percent * count // 100)

    def worth(self, metric: str) -> Fraction:
        """What a unit of a metric that has certificates is worth in a weighted sum, at least."""
        if metric != "mean_e2e":
            return self.weights.get(metric, Fraction(0))
        ttft, tpot, e2e, normalised = (
            self.weights.get(name, Fraction(0))
            for name in ("mean_ttft", "mean_tpot", "mean_e2e", "mean_normalised_latency")
        )
        outputs = Counter[int]()
        for (_, o, _), count in self.kinds.items():
            outputs[o] += count
        several = sum(count for o, count in outputs.items() if o > 1)
        young = [ttft + e2e + normalised / o for o in outputs]  # times the number of requests
        share = Fraction(sum(outputs.values()), several or 1)
        old = [e2e + normalised / o + tpot * share / (o - 1) for o in outputs if o > 1]
        return min([*young, *old])

    def since(self, time: Fraction = Fraction(0)) -> Kinds:
        """Kinds of the requests that arrive at `time` or later."""
        if time <= 0:
            return self._whole
        return [(i, o, count) for (i, o, arrival), count in self.kinds.items() if arrival >= time]

    @cached_property
    def _whole(self) -> Kinds:
        """All kinds, which no proof changes."""
        return [(i, o, count) for (i, o, _), count in self.kinds.items()]

    @cached_property
    def prompts(self) -> list[tuple[int, int]]:
        """Input tokens, rising, and how many requests have so many."""
        found = Counter[int]()
        for i, _, count in self.since():
            found[i] += count
        return sorted(found.items())

    def token_work(self, kinds: Kinds, beta: int) -> int:
        """Least work but for the attention of the prompts, in ticks."""
        d1 = min(self.d1, beta) if self.preemption else self.d1
        return sum(c * (beta * (i + o - 1) + d1 * (o - 1) * (2 * i + o - 2) // 2) for i, o, c in kinds)

    def mean_latency(self, finished: Fraction) -> Fraction:
        """Mean end-to-end latency, given the sum of all finishing times in seconds."""
        arrived = sum((arrival * count for (*_, arrival), count in self.kinds.items()), Fraction(0))
        return (finished - arrived) / sum(self.kinds.values())

    def squares(self, kinds: Kinds, limit: int = 10**18) -> int:
        """Least attention work of the prompts in so many batches at most, in ticks."""
        return self.p1 * sum(c * max(i, i * i // (limit - o + 1 if self.spread else 1)) for i, o, c in kinds)

    def presence(self, piece: Piece) -> list[int]:
        """Units of a batch of decodes, with prefills besides, and of prefills alone; rho.

        Without hybrid batching no batch has both: the second one is what two batches cost.
        """
        both = self.d0 + self.p0 + (0 if self.hybrid else piece.alpha)
        costs = [piece.alpha + c for c in (self.d0, both, self.p0)]
        return [piece.units(v) for v in [*costs, max(0, piece.beta - self.d1)]]


def blocks_up_to(last: int, size: int) -> int:
    """Blocks of one token each of the KV sizes 1, 2, ..., last."""
    full = last // size
    return (full + 1) * (2 * last - full * size) // 2
