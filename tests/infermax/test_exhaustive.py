"""The verifier's own enumeration refutes bounds that are wrong by a hair."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.core.result import LowerBound, Proof, UpperBound
from infermax_opt.core.truth import FaultKind, Trust
from infermax_opt.infermax.bounds.exhaustive import MAX_REQUESTS, holds
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from tests.campaign import campaign
from tests.infermax.oracle import optimum
from tests.infermax.test_optimum import OBJECTIVES
from tests.infermax.tiny import tiny

HAIR = Fraction(1, 10**9)


@pytest.mark.parametrize("objective", ["makespan", *OBJECTIVES], ids=str)
def test_bound_holds_up_to_the_optimum(objective: object) -> None:
    for seed in campaign(9, 30, first=30_000):
        instance = tiny(seed, objective=objective)
        best = optimum(instance)
        assert holds(instance, best) is True
        assert holds(instance, best + HAIR) is False


def test_gives_up_where_there_is_too_much() -> None:
    instance = tiny(1)
    assert holds(instance, optimum(instance), steps=2) is None
    crowd = replace(instance, groups=(RequestGroup("crowd", 1, 1, count=MAX_REQUESTS + 1),))
    assert holds(crowd, Fraction(0)) is None
    groups, system = (RequestGroup("long", 10**9, 1),), System(10**9, 10**9, 10**9)
    long = replace(instance, groups=groups, system=system, policy=Policy(chunked_prefill=True))
    assert holds(long, Fraction(1)) is None


def test_a_poor_schedule_cannot_pass_for_an_optimum() -> None:
    """Schedule, metrics, gap and status agree with each other; only the bound is a lie."""
    cost = tiny(1).cost
    instance = Instance("claim", (RequestGroup("r", 4, 4, count=3),), System(9, 20, 20), cost)
    honest = api.solve(instance)
    assert verify(instance, honest).bound is Trust.ENUMERATED
    assert verify(instance, honest).ok
    poor = api.schedule(instance, "sarathi_ef@r1")
    check = verify(instance, poor)
    assert check.ok
    assert check.objective is not None
    assert honest.upper is not None
    assert check.objective > honest.upper.value
    lie = replace(
        honest,
        schedule=poor,
        metrics=check.metrics,
        upper=UpperBound(check.objective, "search"),
        lower=LowerBound(check.objective, "search", Proof.SOLVER),
    )
    found = verify(instance, lie)
    assert [fault.kind for fault in found.faults] == [FaultKind.LOWER_BOUND]
