"""Missed service levels where it may help to wait: always the exhaustive optimum, and a schedule of it."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

import infermax_opt as imx
from infermax_opt.core.result import Status
from infermax_opt.engines.outcome import EngineLimits, Termination
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, System
from infermax_opt.infermax.data.latencies import gains_by_waiting
from infermax_opt.infermax.data.requests import ServiceLevel
from infermax_opt.infermax.exact import promises
from infermax_opt.infermax.exact.missed import missed_applies, missed_search
from infermax_opt.infermax.exact.solve_formulation import replayed_objective
from infermax_opt.infermax.exact.staged import staged_search, unsupported
from tests.campaign import campaign, in_blocks
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum

#: Points of the oracle.
POINTS = 20_000


def promising(seed: int) -> Instance:
    """A tiny instance with arrivals, limits of all kinds, optional requests, and at times a horizon."""
    rng = random.Random(seed)
    base = tiny(seed, arrivals=True)
    cost = CostModel(
        [(str(rng.randint(1, 3)), str(rng.randint(0, 1)))], ("0", "0"), (str(rng.randint(0, 1)), "0")
    )
    groups = []
    for group in base.groups:
        tokens = group.output_tokens
        limits = {
            "ttft": Fraction(rng.randint(2, 9)) if rng.random() < 0.4 else None,
            "tpot": Fraction(rng.randint(1, 5)) + Fraction(rng.randint(0, 1), 2)
            if rng.random() < 0.7
            else None,
            "e2e": Fraction(rng.randint(3, 6 + 3 * tokens)) if rng.random() < 0.4 else None,
        }
        arrival = Fraction(rng.randint(0, 5)) if rng.random() < 0.7 else Fraction(0)
        slo = ServiceLevel(**limits) if rng.random() < 0.9 else ServiceLevel()
        weight = rng.choice(["1", "1", "2", "0.5"])
        some = replace(group, arrival=arrival, slo=slo, weight=weight, optional=rng.random() < 0.2)
        groups.append(some)
    horizon = str(rng.randint(6, 20)) if rng.random() < 0.2 or any(g.optional for g in groups) else None
    return replace(base, groups=tuple(groups), cost=cost, objective=Objective.of("missed"), horizon=horizon)


def scaled(missed: Fraction) -> list[tuple[dict[str, object], Fraction]]:
    """Objectives that go by what is missed alone, and their values."""
    return [
        ({"missed": "0.3"}, missed * Fraction(3, 10)),
        ({"missed": 7}, 7 * missed),
        ({"at_most": {"missed": 2}}, missed / 2),
        ({"at_most": {"missed": 0}}, 1 + missed if missed else Fraction(0)),
    ]


@in_blocks(campaign(40, 3_000), 40)
def test_finds_the_optimum(seeds: range) -> None:
    waited = found = 0
    for seed in seeds:
        instance = promising(seed)
        try:
            best = vector_optimum(instance, POINTS)
        except TooMany:
            continue
        assert missed_applies(instance)
        outcome = missed_search(instance)
        assert outcome.termination == Termination.OPTIMAL, seed
        assert outcome.upper == outcome.lower.value == best, seed
        assert outcome.schedule is not None
        assert replayed_objective(instance, outcome.schedule) == best, seed
        for objective, value in scaled(best):
            outcome = missed_search(replace(instance, objective=Objective.of(objective)))
            assert outcome.upper == outcome.lower.value == value, (seed, objective)
        found += 1
        waited += gains_by_waiting(instance) is not None
        if best > 0:
            assert missed_search(instance, upper=best).schedule is None
    assert found > len(seeds) // 2
    assert waited > len(seeds) // 4


def test_what_is_known_is_in_the_unit_of_the_objective() -> None:
    """Two miss by a schedule at once, one at least; a tenth of each counts, or of a limit of ten."""
    cost = CostModel([("0.1", "0")], ("5", "0"), ("0", "0"))
    base = Instance.of_requests("m", [(1, 2), (1, 1)], System(4, 4, 4), cost, policy=Policy(preemption=False))
    first, second = base.groups
    groups = (replace(first, slo={"tpot": "1"}), replace(second, arrival="0.5", slo={"e2e": "4"}))
    for objective in ({"missed": "0.1"}, {"at_most": {"missed": 10}}):
        instance = replace(base, groups=groups, objective=Objective.of(objective))
        outcome = missed_search(instance, upper=Fraction(1, 5))
        assert outcome.upper == outcome.lower.value == Fraction(1, 10)
        result = imx.solve(instance, time_limit=20)
        assert (result.status, result.upper and result.upper.value) == (Status.OPTIMAL, Fraction(1, 10))


def waits() -> Instance:
    """The first request has to wait with its first token until the prompt of the second one is done."""
    cost = CostModel([("1", "0")], ("0", "0"), ("9", "0"))
    base = Instance.of_requests("waits", [(1, 2), (1, 1)], System(4, 4, 4), cost)
    first, second = base.groups
    groups = (
        replace(first, slo={"tpot": "1"}),
        replace(second, arrival="1", slo={"ttft": "10"}),
    )
    return replace(base, groups=groups, objective=Objective.of("missed"))


def test_waits_where_that_helps() -> None:
    instance = waits()
    assert unsupported(instance) is None
    result = imx.solve(instance, time_limit=20)
    assert result.status is Status.OPTIMAL
    assert result.upper is not None
    assert result.upper.value == 0


def test_limits_of_time_and_memory_give_what_is_known() -> None:
    instance = promising(1)
    for limits, why in (
        (EngineLimits(seconds=0.0), Termination.TIME_LIMIT),
        (EngineLimits(memory=1), Termination.MEMORY_LIMIT),
    ):
        outcome = staged_search(instance, limits=limits)
        if outcome.termination != Termination.OPTIMAL:
            assert outcome.termination == why
            assert outcome.schedule is None
            assert outcome.lower.value <= vector_optimum(instance)


def test_an_interrupt_gives_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(promises, "_close", interrupted)
    outcome = missed_search(waits())
    assert outcome.termination == Termination.INTERRUPTED
    assert outcome.lower is not None
    assert outcome.lower.value == 0


def test_other_objectives_and_many_requests_are_left_out() -> None:
    instance = waits()
    assert not missed_applies(replace(instance, objective=Objective.of({"missed": 1, "makespan": 1})))
    many = replace(
        instance, groups=tuple(replace(g, id=f"{g.id}-{k}") for k in range(5) for g in instance.groups)
    )
    assert not missed_applies(many)
