"""Prompts of a crowd that share batches: the clock of the loop is right, and percentiles gain by it."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.api import verify
from infermax_opt.infermax.data.cost import Coefficients, CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, System
from infermax_opt.infermax.data.objective import rank
from infermax_opt.infermax.planners.first_tokens._crowd_kernel import in_time
from infermax_opt.infermax.planners.first_tokens.choices import FirstChoice
from infermax_opt.infermax.planners.first_tokens.crowds import Crowds
from infermax_opt.infermax.planners.first_tokens.planner import FirstTokensPlanner
from tests.campaign import campaign
from tests.infermax.test_admission import crowded

#: Llama-3.1-8B on one H100.
COST = CostModel(
    [("0.0056247", "0.000015054")],
    ("0.00053191", "0.000000039342"),
    ("0", "0.0000000018208"),
    attention="square",
)


def close_together(seed: int, objective: str = "p50_ttft") -> Instance:
    """Prompts of which several come while the first is processed, no two at once: so their order is one."""
    rng = random.Random(seed)
    at, groups = Fraction(0), []
    for k in range(rng.randint(2, 9)):
        groups.append(RequestGroup(f"q{k}", rng.choice([400, 1100, 2500, 4090]), rng.choice([1, 3]), at))
        at += Fraction(rng.choice([1, 20, 50, 90, 400]), 1000)
    return Instance(
        "close", tuple(groups), System(100_000, 4096, 4096), COST, objective=Objective.of(objective)
    )


def crowds_of(instance: Instance) -> Crowds:
    """Those of the planner of an instance."""
    found = FirstTokensPlanner(instance)._search._crowds
    assert found is not None
    return found


def test_the_clock_of_a_crowd_is_that_of_the_plan() -> None:
    """A limit is kept in the loop if and only if it is in the schedule that comes of these sizes."""
    kept = 0
    for seed in campaign(36, 3_000):
        rng, instance = random.Random(seed), close_together(seed)
        piece = rng.choice([300, 900, 1500, 4096])
        room = max(piece, rng.choice([1200, 2500, 4096]))
        count = len(instance.requests)
        planner = FirstTokensPlanner(instance)
        choice = FirstChoice(
            work=0.0, arrival=1.0, share=0.0, sizes=tuple((i, piece, room) for i in range(count))
        )
        check = verify(instance, planner.schedule(choice))
        assert check.ok, (seed, check.violations[:2])
        assert check.metrics is not None
        longest = float(check.metrics.max_ttft)
        crowds = crowds_of(instance)
        for part in (0.999999, 1.000001):
            told = in_time(
                crowds.arrival, crowds.inputs, np.zeros(count, np.bool_), part * longest, piece, room,
                crowds.cost, crowds.exact,
            )  # fmt: skip
            assert told == (part > 1), seed
            kept += told
    assert kept > 0


def test_a_prompt_is_cut_as_it_is_told() -> None:
    """Two prompts of ten tokens in parts of four at most, eight in a batch: thrice 4 and 4, 3 and 3."""
    cost = Coefficients(np.array([1.0]), np.array([1.0]), 0.0, 0.0, 0.0, 0.0)
    zeros, nobody = np.zeros(2), np.zeros(2, np.bool_)
    tokens = np.full(2, 10)
    for limit, kept in ((22.9, False), (23.1, True)):
        assert in_time(zeros, tokens, nobody, limit, 4, 8, cost, False) is kept
    assert in_time(zeros, tokens, np.array([False, True]), 13.1, 4, 8, cost, False), (
        "three parts of one alone"
    )
    assert not in_time(np.array([0.0, 50.0]), tokens, nobody, 12.9, 4, 8, cost, False)
    assert in_time(np.array([0.0, 50.0]), tokens, nobody, 13.1, 4, 8, cost, False)


def test_a_limit_that_is_found_is_kept_and_no_more_are_given_up_than_may_be() -> None:
    gained = 0
    for seed in campaign(36, 3_000):
        instance = close_together(seed)
        crowds, count = crowds_of(instance), len(instance.requests)
        found = crowds.least(np.arange(count), 50)
        if found is None:
            continue
        out, sizes = found
        gained += 1
        assert len(out) <= count - rank(50, count)
        assert [i for i, _, _ in sizes] == list(range(count))
        planner = FirstTokensPlanner(instance)
        choice = FirstChoice(work=0.0, arrival=1.0, share=0.0, hold=0.1, cut=0.0, out=out, sizes=sizes)
        assert verify(instance, planner.schedule(choice)).ok
    assert gained > 0


def two_long() -> Instance:
    """Two long prompts, of which the second comes while the first is processed."""
    return replace(
        close_together(0),
        groups=tuple(
            RequestGroup(f"q{k}", 4096, 2, Fraction(at, 1000)) for k, at in enumerate((0, 40, 10_000, 20_000))
        ),
    )


def test_two_long_prompts_beside_each_other_take_less() -> None:
    instance = replace(two_long(), objective=Objective.of("p90_ttft"))
    crowds = crowds_of(instance)
    found = crowds.least(np.arange(4), 75)
    assert found is None, "the second one is given up"
    whole = crowds.least(np.arange(4), 90)
    assert whole is not None
    out, sizes = whole
    assert not out
    planner = FirstTokensPlanner(instance)
    plain = FirstChoice(work=0.0, arrival=1.0, share=0.0)
    checks = [
        verify(instance, planner.schedule(choice)).metrics
        for choice in (replace(plain, budget=2048), replace(plain, sizes=sizes))
    ]
    one_by_one, beside = (check.max_ttft for check in checks if check is not None)
    assert beside < Fraction(97, 100) * one_by_one


@pytest.mark.parametrize("make", [crowded, close_together])
def test_sizes_make_valid_schedules_under_every_flag(make: object) -> None:
    for seed in campaign(24, 3_000):
        rng, instance = random.Random(seed), replace(make(seed), objective=Objective.of("p90_ttft"))  # type: ignore[operator]
        planner = FirstTokensPlanner(instance, seed=seed)
        sizes = []
        for i in range(len(instance.requests)):
            if rng.random() < 0.7:
                piece = rng.randint(1, 30)
                sizes.append((i, piece, piece + rng.randint(0, 30)))
        choice = FirstChoice(work=rng.random(), arrival=1.0, share=rng.random(), sizes=tuple(sizes))
        planner._try(choice)
        finished, first, last, _ = planner._run(choice, whole=True)
        assert finished
        check = verify(instance, planner.schedule(choice))
        assert check.ok, (seed, check.violations[:2])
        assert check.objective is not None
        assert planner._estimate.value(first, last) == pytest.approx(float(check.objective), rel=1e-6)
