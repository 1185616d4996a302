"""The instance: times in whole ticks, values in whole units, and its hash."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_REQUESTS
from infermax_opt.checking.meaning import Meaning
from infermax_opt.checking.profiles import spelled_out
from infermax_opt.checking.work import Work
from infermax_opt.iteration.checker.requests import MAX_TOKENS, Cost, Request, choose, read_pair, read_request

#: Objectives, and whether requests count by what they are worth.
OBJECTIVES = {"seconds_per_be_token": False, "seconds_per_value": True}
#: What a batch adds up to: tokens, decodes, what these read, prefills, their work, their contexts, host
#: blocks.
Load = tuple[int, int, int, int, int, int, int]


def given(fields: Field, key: str) -> bool:
    """Whether a key is there with a value; null is none."""
    return key in fields and fields[key].value is not None


class Instance:
    """What the bound needs of an instance file; times in whole ticks, values in whole units.

    Raises `Rejected` where the file is no instance.
    """

    def __init__(self, data: Any, profiles: Path | None = None):
        top, self.work = Field(data, "instance"), Work()
        for key, value in (("schema", "infermax-opt/instance/1"), ("problem", "iteration")):
            if top[key].value != value:
                top[key].fail(f"{shown(top[key].value)} is not {value!r}")
        machine = top["machine"]
        self.cost = Cost(spelled_out(machine["cost"], profiles))
        self.product = self.cost.attention == "product"
        self.batch = machine["batch"].whole(1, MAX_REQUESTS)
        self.blocks = machine["blocks"].whole(0, MAX_TOKENS)
        average, ttft, tpot = (machine[key].decimal() for key in ("t_avg", "ttft", "tpot"))
        group = machine["group"].whole(1, MAX_TOKENS) if given(machine, "group") else None
        swap = read_pair(machine["swap"]) if given(machine, "swap") else None
        self.by_worth = choose(top["objective"], OBJECTIVES)
        self.names: dict[str, int] = {}
        self.requests: list[Request] = []
        for entry in top["requests"].items():
            self._read_request(entry, group)
        if not self.requests:
            top["requests"].fail("holds no request")
        self._hash(top, (average, ttft, tpot), group, swap)
        self._scale(average, ttft, tpot, swap)
        self._save(ttft, tpot * (group or 1))

    def _read_request(self, entry: Field, most: int | None) -> None:
        """Add the requests of an entry."""
        made = read_request(entry, most)
        name, times = entry["id"].text(), 1
        if "count" in entry:
            times = entry["count"].whole(1, MAX_REQUESTS)
        if len(self.requests) + times > MAX_REQUESTS:
            entry.fail(f"more than {MAX_REQUESTS} requests in all")
        self.work.spend(20 * times)
        for one in [f"{name}.{k}" for k in range(1, times + 1)] if "count" in entry else [name]:
            if one in self.names:
                entry["id"].fail(f"{shown(one)} is used twice")
            self.names[one] = len(self.requests)
            self.requests.append(made)

    def _hash(self, top: Field, limits: Any, group: int | None, swap: Any) -> None:
        """The hash of what the instance means."""
        meaning, cost = Meaning(), self.cost
        name, objective = top["name"].text(), top["objective"].text()
        meaning.feed("infermax-opt/instance/1", "iteration", name, objective, self.batch, self.blocks)
        meaning.feed(*limits, group or 0, int(self.product))
        meaning.feed(*(value for pair in cost.batch for value in pair))
        attention = "exact" if self.product else cost.attention
        meaning.feed(*cost.decode, *cost.prefill, *cost.mixed, attention)
        meaning.feed("none" if swap is None else "swap", *(swap or ()))
        for one, r in zip(self.names, self.requests, strict=True):
            flags = int(r.real_time), int(r.prefills)
            meaning.feed(one, *flags, r.tokens, r.context, r.waited, r.blocks, r.host, r.worth, r.group)
        self.sha256 = meaning.hexdigest()

    def _scale(self, average: Fraction, first: Fraction, later: Fraction, swap: Any) -> None:
        """Whole numbers: ticks, and units of value."""
        cost = self.cost
        pairs = [*cost.batch, cost.decode, cost.prefill, cost.mixed, *([swap] if swap else [])]
        times = [value for pair in pairs for value in pair]
        times += [average, first, later, *{r.waited for r in self.requests}]
        self.scale = math.lcm(*(value.denominator for value in times))
        ticks = [[int(value * self.scale) for value in pair] for pair in pairs]
        pieces = len(cost.batch)
        self.pieces, (self.decode, self.prefill, self.mixed) = ticks[:pieces], ticks[pieces : pieces + 3]
        self.swap = ticks[-1] if swap else None
        self.average = int(average * self.scale)
        self._weigh()

    def _weigh(self) -> None:
        """What requests are worth, in whole units."""
        self.units, worths = 1, [Fraction(int(not r.real_time)) for r in self.requests]
        if self.by_worth:
            worths = [r.worth for r in self.requests]
            self.units = math.lcm(*(worth.denominator for worth in worths))
        self.values = [int(worth * self.units) for worth in worths]

    def _save(self, first: Fraction, later: Fraction) -> None:
        """Slacks of the requests that can be saved, and what the worst batch takes."""
        limits = [first if r.prefills else later for r in self.requests]
        self.slack: list[int | None] = []
        for k, (r, limit) in enumerate(zip(self.requests, limits, strict=True)):
            slack = int((limit - r.waited) * self.scale) - (r.group - 1) * self.average
            self.slack.append(slack if r.real_time and self.time([k]) <= slack else None)
        self.all_time = self.time(range(len(self.requests)))
        least = min((value for value in self.values if value), default=self.units)
        #: Seconds per value of a batch that has none; no other batch has more.
        self.worst = Fraction(self.all_time * self.units, least * self.scale)

    def load(self, k: int) -> Load:
        """What a request adds to a batch."""
        r = self.requests[k]
        if not r.prefills:
            return r.tokens, 1, r.context if self.product else r.context - r.tokens, 0, 0, 0, r.host
        work = r.tokens**2
        if self.product:
            work = r.tokens
        elif self.cost.attention == "exact":
            work = r.tokens * (2 * r.context - r.tokens)
        return r.tokens, 0, 0, 1, work, r.context, r.host

    def time(self, batch: Iterable[int]) -> int:
        """Ticks of a batch."""
        loads = [self.load(k) for k in batch]
        if not loads:
            return 0
        tokens, decodes, read, prefills, work, contexts, host = map(sum, zip(*loads, strict=True))
        if self.product:
            read, work = decodes * read, work * contexts
        time = max(alpha + beta * tokens for alpha, beta in self.pieces)
        both = decodes and prefills
        parts = (decodes, self.decode, read), (prefills, self.prefill, work), (both, self.mixed, read)
        for some, pair, amount in parts:
            time += pair[0] + pair[1] * amount if some else 0
        return max(time, self.swap[0] + self.swap[1] * host) if self.swap else time

    def kept(self, batch: list[int]) -> int:
        """Savable requests for which (6) holds."""
        time, chosen = self.time(batch), set(batch)
        limits = [s - (0 if k in chosen else self.average) for k, s in enumerate(self.slack) if s is not None]
        return sum(time <= limit for limit in limits)
