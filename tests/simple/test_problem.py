"""A small problem: what its verifier makes of the schedules that the problem lists."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import pytest

from infermax_opt.core.result import AnyResult, LowerBound, Proof
from infermax_opt.core.truth import Trust
from infermax_opt.simple import (
    BrokenRule,
    InstanceRecord,
    MetricsRecord,
    Record,
    ScheduleRecord,
    SimpleProblem,
)


@dataclass(frozen=True)
class Prefix(Record):
    id: str
    tokens: int
    seconds: Fraction


@dataclass(frozen=True)
class Pinning(InstanceRecord):
    """Prefixes, of which those that are pinned cost nothing, and tokens that can be pinned."""

    problem = "pinning"
    objective_name = "recompute"
    requests: tuple[Prefix, ...]
    capacity: int


@dataclass(frozen=True)
class Pins(ScheduleRecord):
    pinned: tuple[str, ...]


@dataclass(frozen=True)
class PinMetrics(MetricsRecord):
    definitions = {"recompute": "prefill time of what is not pinned, s"}  # noqa: RUF012
    recompute: Fraction


class Rule(enum.Enum):
    CAPACITY = "capacity"


class PinningProblem(SimpleProblem[Pinning, Pins, PinMetrics]):
    """Lists every set of prefixes, those too large included."""

    name, about, decisions, most_enumerated = "pinning", "what is pinned", "pinned", 3
    instance, schedule, metrics = Pinning, Pins, PinMetrics
    at_once: tuple[str, ...] | None = None

    def broken(self, instance: Pinning, schedule: Pins) -> Iterator[BrokenRule]:
        held = sum(some.tokens for some in instance.requests if some.id in schedule.pinned)
        if held > instance.capacity:
            yield BrokenRule(Rule.CAPACITY, "the cache", f"holds {held}")

    def measure(self, instance: Pinning, schedule: Pins) -> PinMetrics:
        left = (some.seconds for some in instance.requests if some.id not in schedule.pinned)
        return PinMetrics(sum(left, Fraction(0)))

    def closed_forms(self, instance: Pinning) -> Iterator[LowerBound]:
        yield LowerBound(Fraction(3), "right", Proof.CLOSED_FORM)

    def plain(self, instance: Pinning) -> Pins | None:
        return None if self.at_once is None else Pins(instance.name, self.at_once)

    def every_schedule(self, instance: Pinning) -> Iterator[Pins]:
        ids = [some.id for some in instance.requests]
        for k in range(len(ids), -1, -1):
            yield from (Pins(instance.name, pins) for pins in itertools.combinations(ids, k))


def given(requests: int = 3, capacity: int = 5) -> Pinning:
    """Best with the two last ones pinned: 3 s."""
    prefixes = (Prefix("a", 4, Fraction(3)), Prefix("b", 2, Fraction(2)), Prefix("c", 3, Fraction(2)))
    more = tuple(Prefix(f"d{k}", 9, Fraction(0)) for k in range(requests - 3))
    return Pinning("p", (*prefixes, *more), capacity)


def trust(problem: PinningProblem, instance: Pinning, value: int, proof: Proof) -> tuple[bool, Trust | None]:
    lower = LowerBound(Fraction(value), "right" if proof is Proof.CLOSED_FORM else "a solver", proof)
    result = AnyResult(instance.name, instance.sha256, "recompute", lower=lower)
    check = problem.verify(instance, None, result.claim())
    return check.ok, check.bound


@pytest.mark.parametrize("proof", [Proof.CLOSED_FORM, Proof.SOLVER])
def test_schedules_that_break_rules_refute_no_bound(proof: Proof) -> None:
    assert trust(PinningProblem(), given(), 3, proof)[0]
    ok, found = trust(PinningProblem(), given(), 4, Proof.SOLVER)
    assert (ok, found) == (False, Trust.REFUTED)


def test_a_plain_schedule_that_breaks_rules_refutes_no_bound() -> None:
    problem = PinningProblem()
    problem.at_once = ("a", "b", "c")
    assert trust(problem, given(4), 3, Proof.CLOSED_FORM)[0]
    problem.at_once = ("a",)
    assert not trust(problem, given(4), 5, Proof.SOLVER)[0]


def test_rules_that_no_listed_schedule_keeps_decide_nothing() -> None:
    class Never(PinningProblem):
        def every_schedule(self, instance: Pinning) -> Iterator[Pins]:
            yield Pins(instance.name, ("a", "b", "c"))

    instance = given()
    lower = LowerBound(Fraction(3), "a solver", Proof.SOLVER)
    claim = AnyResult(instance.name, instance.sha256, "recompute", lower=lower).claim()
    check = Never().verify(instance, None, claim)
    assert check.ok
    assert [str(some) for some in check.unchecked] == [
        "lower_bound: proved by a solver; no schedule that keeps the rules is listed"
    ]
