"""A problem of its own: every request is prefilled on one machine, then decoded on another.

Each machine serves one request at a time, both in the same order, which is what a schedule decides.
The last decode shall end as early as possible: a flow shop with two machines, for which Johnson's rule
(1954) is optimal.
"""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import permutations
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.core.suite import Case
from infermax_opt.core.values import SHARE
from infermax_opt.simple import (
    Bar,
    BrokenRule,
    InstanceRecord,
    MetricsRecord,
    Phase,
    Record,
    ScheduleRecord,
    SimpleProblem,
)  # fmt: skip

__all__ = ["Order", "Tandem", "TandemMetrics", "TandemProblem", "TandemRequest"]


@dataclass(frozen=True)
class TandemRequest(Record):
    """A request, with its times on the two machines in seconds."""

    id: str
    prefill: Fraction
    decode: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.decode:
            raise InputError("0 is no time; it must be more", field="decode")


@dataclass(frozen=True)
class Tandem(InstanceRecord):
    """An instance."""

    problem = "tandem"
    objective_name = "makespan"
    requests: tuple[TandemRequest, ...]


@dataclass(frozen=True)
class Order(ScheduleRecord):
    """A schedule: ids in the order in which both machines serve them."""

    order: tuple[str, ...]


@dataclass(frozen=True)
class TandemMetrics(MetricsRecord):
    """Metrics of a valid schedule."""

    definitions = {  # noqa: RUF012
        "makespan": "end of the last decode, s",
        "decode_use": "share of that time in which the decode machine works",
    }
    units = {"makespan": "s", "decode_use": SHARE}  # noqa: RUF012
    makespan: Fraction
    decode_use: Fraction


class Rule(enum.Enum):
    """The rule that a schedule can break."""

    ONCE = "once"


def decode_starts(requests: Sequence[TandemRequest]) -> list[Fraction]:
    """When the decode of each request starts if they are served in this order."""
    prefilled = decoded = Fraction(0)
    starts = []
    for request in requests:
        prefilled += request.prefill
        starts.append(max(prefilled, decoded))
        decoded = starts[-1] + request.decode
    return starts


def johnson(instance: Tandem) -> Order:
    """Those that prefill faster than they decode, by rising prefill; then the others, by falling decode."""
    early = [some for some in instance.requests if some.prefill <= some.decode]
    late = [some for some in instance.requests if some.prefill > some.decode]
    early.sort(key=lambda some: some.prefill)
    late.sort(key=lambda some: -some.decode)
    return Order(instance.name, tuple(some.id for some in early + late))


def as_given(instance: Tandem) -> Order:
    """The order of the file."""
    return Order(instance.name, tuple(some.id for some in instance.requests))


def generate(requests: int, seed: int) -> Tandem:
    """A random instance: tenths of a second to two seconds on each machine."""
    draw = random.Random(seed)
    times = [[Fraction(draw.randint(1, 20), 10) for _ in range(2)] for _ in range(requests)]
    made = [TandemRequest(f"r{k}", prefill, decode) for k, (prefill, decode) in enumerate(times, 1)]
    return Tandem(f"tandem-{requests}-s{seed}", tuple(made))


class TandemProblem(SimpleProblem[Tandem, Order, TandemMetrics]):
    """What the entry point names: all that the rest of the house sees."""

    name = "tandem"
    about = "requests through a prefill machine and then a decode machine"
    instance = Tandem
    schedule = Order
    metrics = TandemMetrics
    decisions = "order"
    heuristic = "rule"
    heuristics_title = "rules"
    rules: Mapping[str, Callable[[Tandem], Order]] = {"as-given": as_given, "johnson": johnson}  # type: ignore[misc]
    most_enumerated = 7

    def broken(self, instance: Tandem, schedule: Order) -> Iterator[BrokenRule]:
        """Requests of the instance that are not served once, and others that are served."""
        served, wanted = Counter(schedule.order), {some.id for some in instance.requests}
        for name in sorted(wanted | served.keys()):
            if served[name] != (name in wanted):
                yield BrokenRule(Rule.ONCE, f"request {name!r}", f"is served {served[name]} times")

    def in_order(self, instance: Tandem, schedule: Order) -> list[TandemRequest]:
        """The requests as a valid schedule serves them."""
        by_id = {request.id: request for request in instance.requests}
        return [by_id[name] for name in schedule.order]

    def measure(self, instance: Tandem, schedule: Order) -> TandemMetrics:
        """Replay a valid schedule."""
        requests = self.in_order(instance, schedule)
        end = decode_starts(requests)[-1] + requests[-1].decode
        return TandemMetrics(end, sum((some.decode for some in requests), Fraction(0)) / end)

    def closed_forms(self, instance: Tandem) -> Iterator[LowerBound]:
        """Three arguments; the proof of each is its `reason`."""
        first = [request.prefill for request in instance.requests]
        last = [request.decode for request in instance.requests]
        found = {
            "prefill machine": (sum(first) + min(last), "after the last prefill comes at least one decode"),
            "decode machine": (min(first) + sum(last), "before the first decode comes at least one prefill"),
            "one request": (max(map(sum, zip(first, last, strict=True))), "no decode before its prefill"),
        }
        for source, (value, reason) in found.items():
            yield LowerBound(Fraction(value), source, Proof.CLOSED_FORM, reason=reason)

    def plain(self, instance: Tandem) -> Order:
        """The order of the file."""
        return as_given(instance)

    def every_schedule(self, instance: Tandem) -> Iterator[Order]:
        """All orders."""
        ids = [request.id for request in instance.requests]
        return (Order(instance.name, order) for order in permutations(ids))

    def bars(self, instance: Tandem, schedule: Order) -> Iterator[Bar]:
        """What the two machines do over time."""
        requests, now = self.in_order(instance, schedule), Fraction(0)
        for some, start in zip(requests, decode_starts(requests), strict=True):
            yield Bar("prefill", now, some.prefill, Phase.PREFILL)
            yield Bar("decode", start, some.decode, Phase.DECODE)
            now += some.prefill

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Random instances, two that are enumerated and two larger ones."""
        sizes = [(requests, seed) for requests in (5, 50) for seed in (0, 1)]
        cases = [Case(f"tandem-{size}-s{seed}", partial(generate, size, seed)) for size, seed in sizes]
        return {self.name: lambda data: cases}
