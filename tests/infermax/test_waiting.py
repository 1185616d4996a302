"""Arrivals, waits and evictions in idle time: search, verifier and bounds against every schedule."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.core.result import LowerBound, Proof, Result, Status
from infermax_opt.core.truth import FaultKind, Trust
from infermax_opt.engines.outcome import Termination
from infermax_opt.infermax.bounds import closed_form_bounds, exhaustive
from infermax_opt.infermax.bounds.exhaustive import holds
from infermax_opt.infermax.bounds.lagrangian import lagrangian_bound
from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.bounds.state_flow import state_flow_bound
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact import staged
from infermax_opt.infermax.exact.labels import Label, dominates
from infermax_opt.infermax.exact.search import search
from infermax_opt.infermax.exact.staged import staged_search
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.plain import replay_plain
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.waiting import waiting
from tests.support import few

HAIR = Fraction(1, 10**9)
#: Every schedule of these instances is tried wherever the tests run: as many as stated, never fewer.
EVERYWHERE = 3_000
#: Those among them whose bounds are searched, too, where the objective has any.
BOUNDED = campaign(600, EVERYWHERE)
#: Those that are solved as a user would, from the first bound to the answer.
SOLVED = campaign(1_000, EVERYWHERE)

#: Instances on which a label that came early was once preferred to a later one that had done more for
#: the objective, and their optimum in seconds.
EARLY_LABELS = [
    (
        Instance(
            "first tokens first",
            (RequestGroup("a", 1, 2), RequestGroup("b", 1, 1, "0.004"), RequestGroup("c", 2, 3, "0.02")),
            System(5, 4096, 5, 2),
            CostModel([("0.002", "0"), ("0.002", "0.001")], ("0", "0"), ("0", "0"), "exact"),
            Policy(chunked_prefill=False),
            Objective.of({"makespan": "0.5", "mean_ttft": "2"}),
        ),
        Fraction(13, 600),
    ),
    (
        Instance(
            "last one very late",
            (
                RequestGroup("a", 2, 4, "0.01"),
                RequestGroup("b", 2, 1, "0.5"),
                RequestGroup("c", 2, 2, "0.004"),
            ),
            System(5, 1, 2, 2),
            CostModel([("0.001", "0.0003"), ("0.0005", "0.001")], ("0.0002", "0.001"), ("0.0001", "0")),
            Policy(preemption=False),
            Objective.of("mean_ttft"),
        ),
        Fraction(2, 625),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("instance", "best"), EARLY_LABELS, ids=lambda value: getattr(value, "name", ""))
def test_an_early_label_pays_for_the_wait_ahead_of_it(instance: Instance, best: Fraction) -> None:
    assert optimum(instance) == best
    result = api.solve(instance)
    assert result.status is Status.OPTIMAL
    assert result.upper is not None
    assert result.upper.value == best
    assert verify(instance, result).ok
    assert refuted(instance, result, best + HAIR)


def refuted(instance: Instance, honest: Result, bound: Fraction) -> bool:
    """Whether the verifier refutes that bound of a solver, no schedule being there to contradict it."""
    lie = replace(
        honest, upper=None, schedule=None, metrics=None, lower=LowerBound(bound, "search", Proof.SOLVER)
    )
    check = verify(instance, lie)
    return check.bound is Trust.REFUTED and [f.kind for f in check.faults] == [FaultKind.LOWER_BOUND]


@in_blocks(campaign(EVERYWHERE, 5_000), 50)
def test_everything_against_every_schedule(seeds: range) -> None:
    for seed in seeds:
        instance = waiting(seed)
        best = optimum(instance)
        check_search(instance, best)
        # So the optimum is held for a bound, and a hair more is not.
        assert exhaustive.least(instance, best + HAIR) == best, seed
        bounds = closed_form_bounds(instance)
        if instance.objective.is_makespan and seed % 3 == 0 and seed in BOUNDED:
            found = (f(instance, stop=few(10)) for f in (occupancy_bound, lagrangian_bound, state_flow_bound))
            bounds += [bound for bound in found if bound is not None]
        for bound in bounds:
            assert bound.value <= best, (seed, bound.source)
        if seed % 15 == 0 and seed in SOLVED:
            check_solve(instance, best)


def check_search(instance: Instance, best: Fraction) -> None:
    """The search finds the optimum, and a schedule that has it."""
    outcome = staged_search(instance)
    assert outcome.termination == Termination.OPTIMAL, instance.name
    assert outcome.lower is not None
    assert (outcome.upper, outcome.lower.value) == (best, best), instance.name
    assert outcome.schedule is not None
    check = verify(instance, outcome.schedule)
    assert check.ok, (instance.name, check.violations)
    assert check.objective == best, instance.name


def check_solve(instance: Instance, best: Fraction) -> None:
    """What `solve` says passes, and what is slightly more does not."""
    result = api.solve(instance)
    assert result.status is Status.OPTIMAL
    assert result.upper is not None
    assert result.upper.value == best
    assert verify(instance, result).ok, instance.name
    assert refuted(instance, result, best + HAIR), instance.name


@in_blocks(campaign(100, 400), 100)
def test_grids_with_arrivals(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every chunk counting as many, tiny instances take the way of long prompts."""
    monkeypatch.setattr(staged, "FEW_CHUNKS", 0)
    for seed in seeds:
        instance = waiting(seed)
        if instance.policy.chunked_prefill:
            check_search(instance, optimum(instance))


@in_blocks(campaign(100, 400), 100)
def test_known_objectives_cut_nothing_that_is_better(seeds: range) -> None:
    """With the optimum known nothing better is found; with a little more than it, the optimum is."""
    for seed in seeds:
        instance = waiting(seed)
        best = optimum(instance)
        known = search(instance, upper=best)
        assert known.schedule is None
        assert known.lower is not None
        assert known.lower.value == best, seed
        assert search(instance, upper=best + HAIR).upper == best, seed


def test_waiting_at_the_start_costs_no_tpot() -> None:
    """Whatever the arrivals, the TPOT alone has the optimum of an instance without."""
    for seed in range(3, 300, 10):
        instance = waiting(seed)
        assert instance.objective.name == "mean_tpot"
        groups = tuple(replace(group, arrival=0) for group in instance.groups)
        offline = search(replace(instance, groups=groups))
        assert search(instance).upper == offline.upper, seed


def test_the_instances_call_for_idle_evictions_and_early_waits() -> None:
    """What the oracle is there for does occur: batches that only evict, waits at no arrival."""
    idle = [search(waiting(seed)).schedule for seed in (50, 64, 96, 138)]
    assert any(not batch.tokens for schedule in idle if schedule for batch in schedule.batches)
    early = 0
    for seed in (249, 439, 618):
        instance = waiting(seed)
        schedule = search(instance).schedule
        assert schedule is not None
        arrivals = {request.arrival for request in instance.requests}
        early += any(b.start is not None and b.start not in arrivals for b in schedule.batches)
    assert early > 0


def test_a_batch_without_tokens_takes_the_fixed_time() -> None:
    """It is legal, and costs what the largest piece costs without tokens, whether it evicts or not."""
    cost = CostModel([("0.25", "1"), ("0.5", "0")], ("8", "0"), ("2", "0"))
    case = Instance("idle", (RequestGroup("r", 2, 2),), System(4, 4, 4), cost)
    batches = (Batch({"r": 1}), Batch({}, ("r",)), Batch(), Batch({"r": 2}), Batch({"r": 1}))
    for run in (replay, replay_plain):
        replayed = run(case, Schedule("idle", batches))
        assert replayed.valid
        ends = [replayed.seconds(end) for end in replayed.ends]
        assert [b - a for a, b in itertools.pairwise(ends)][:2] == [Fraction(1, 2)] * 2


def test_a_label_with_a_higher_least_rate_has_to_reach_the_last_arrival() -> None:
    """Of two labels at one time the cheaper one may not win if it pays more for the wait ahead."""
    dear, cheap = Label((0,), 0, 4, 5), Label((0,), 9, 4, 1)
    assert dominates(dear, cheap, 5)
    assert not dominates(dear, cheap, 6)
    assert not dominates(cheap, dear, 6)
    assert dominates(dear, replace(cheap, least=5), 6)


def test_the_verifier_gives_up_within_its_limit() -> None:
    """Beyond the stated number of steps the bound is a solver's word."""
    instance = waiting(21)
    best = optimum(instance)
    assert holds(instance, best, steps=100) is None
    assert holds(instance, best, steps=exhaustive.MAX_STEPS // 10) is True
