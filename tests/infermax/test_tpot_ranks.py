"""Ranks of the TPOT: the closed form of one alone is nearly always its optimum; sums are searched, too."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.cli.main import cli
from infermax_opt.core.result import Claim, Proof, Status
from infermax_opt.core.truth import FaultKind, Trust
from infermax_opt.files.instances import read_instance
from infermax_opt.infermax.bounds import exhaustive
from infermax_opt.infermax.bounds.closed_form import closed_form_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.latencies import Latencies
from infermax_opt.infermax.data.objective import QUANTILES, Latency, Metric
from infermax_opt.infermax.exact.staged import staged_search, unsupported
from infermax_opt.infermax.exact.times import times_search
from infermax_opt.infermax.replay.metrics import LATER_TOGETHER
from infermax_opt.infermax.verify import one_after_another
from tests.campaign import campaign, in_blocks
from tests.infermax.served import droppable, served
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum

TOY = "instances/toy.json"
HAIR = Fraction(1, 10**9)
METRICS = [metric.value for metric in QUANTILES if metric.latency is Latency.TPOT]
#: With what is a sum over time, and with what is not.
COMBINED: tuple[object, ...] = (
    {"p50_tpot": "2", "makespan": "0.3"},
    {"p99_tpot": "1", "max_ttft": "0.25", "mean_e2e": "0.1"},
    {"max_tpot": "1", "missed": "2", "mean_tpot": "0.5"},
    {"at_most": {"max_tpot": "0.8", "makespan": "6"}},
    {"at_most": {"p90_tpot": "0.5", "p50_tpot": "0", "max_e2e": "4"}},
)


def refills_are_slower(instance: Instance) -> bool:
    """Whether no later token can come sooner by a refill than by a decode step, from the batch times."""
    if not instance.policy.preemption:
        return True
    exact = instance.cost.exact_attention
    pieces = [(Fraction(a), Fraction(b)) for a, b in instance.cost.batch]
    (d0, d1), (p0, p1) = (
        tuple(map(Fraction, pair)) for pair in (instance.cost.decode, instance.cost.prefill)
    )
    for request in instance.requests:
        for size in range(request.input_tokens + 1, request.input_tokens + request.output_tokens):
            decode = max(a + b for a, b in pieces) + d0 + d1 * (size - 1)
            work = size if instance.policy.chunked_prefill and not exact else size * size
            refill = max(a + b * size for a, b in pieces) + p0 + p1 * work
            if refill < decode:
                return False
    return True


@in_blocks(campaign(120, 5_000), 100)
def test_the_closed_form_is_what_service_one_after_another_attains(seeds: range) -> None:
    decided = met = 0
    for seed in seeds:
        make = droppable if seed % 5 == 0 else served
        instance = make(seed, METRICS[seed % len(METRICS)], arrivals=seed % 2 == 0)
        try:
            best = vector_optimum(instance, 1_500)
        except TooMany:
            continue
        decided += 1
        bound = max(found.value for found in closed_form_bounds(instance))
        assert bound <= best, instance.name
        if refills_are_slower(instance):
            met += 1
            serial = verify(instance, one_after_another(instance))
            assert bound == best == serial.objective, instance.name
            assert api.solve(instance).status is Status.OPTIMAL
    assert decided > len(seeds) / 2
    assert met > len(seeds) / 3


#: What may have a TPOT beside what is no sum over time.
SEARCHED = (*COMBINED, "missed", {"missed": "1", "mean_tpot": "0.3", "makespan": "0.01"}, *METRICS)


@in_blocks(campaign(90, 3_000), 50)
def test_searches_find_the_optimum_where_nobody_arrives(seeds: range) -> None:
    decided = enumerated = 0
    for seed in seeds:
        make = droppable if seed % 5 == 0 else served
        instance = make(seed, SEARCHED[seed % len(SEARCHED)], arrivals=False)
        assert unsupported(instance) is exhaustive.why_not(instance) is None
        try:
            best = vector_optimum(instance, 400)
        except TooMany:
            continue
        decided += 1
        found = staged_search(instance)
        assert found.lower is not None
        assert found.schedule is not None
        assert found.upper == found.lower.value == best, instance.name
        assert verify(instance, found.schedule).objective == best
        for value, true in ((best, True), (best + HAIR, False)):
            held = exhaustive.holds(instance, value)
            assert held in (true, None), instance.name
            enumerated += held is true
    assert decided > len(seeds) / 3
    assert enumerated > 1.9 * decided


@pytest.mark.parametrize(
    ("objective", "best"),
    [
        ({"at_most": {"makespan": "15", "max_tpot": "8", "mean_ttft": "5.6"}}, Fraction(22, 15)),
        ({"missed": "1", "makespan": "0.1", "mean_ttft": "0.01"}, Fraction(57, 25)),
    ],
    ids=["limits", "missed"],
)
def test_a_later_first_token_may_be_worth_more(objective: object, best: Fraction) -> None:
    """With r first beside s nothing comes later; but then r waits for q between its tokens."""
    slo = {"tpot": "12"}
    case = Instance(
        "late first token",
        (RequestGroup("q", 8, 2, slo=slo), RequestGroup("r", 1, 2, slo=slo), RequestGroup("s", 1, 1)),
        System(40, 9, 9),
        CostModel([("2", "0"), ("0", "1")], ("0", "1"), ("0", "0")),
        Policy(hybrid_batching=False, chunked_prefill=False, preemption=False),
        Objective.of(objective),  # type: ignore[arg-type]
    )
    assert vector_optimum(case) == staged_search(case).upper == best
    assert exhaustive.holds(case, best) is True
    assert exhaustive.holds(case, best + HAIR) is False
    result = api.solve(case)
    assert result.status is Status.OPTIMAL
    assert verify(case, result).bound is Trust.ENUMERATED


def test_with_arrivals_it_is_worth_waiting_so_no_search_takes_that() -> None:
    """The first token of r had better come half a second late: its second one comes with the prompt of s."""
    case = Instance(
        "late start",
        (RequestGroup("r", 1, 2), RequestGroup("s", 1, 1, "1.5")),
        System(9, 9, 9),
        CostModel([("1", "0")], ("0", "0"), ("0", "0")),
        Policy(chunked_prefill=False),
        Objective.of({"max_tpot": "1", "makespan": "1"}),
    )
    best = vector_optimum(case)
    assert best < (times_search(case).upper or 0)
    for reason in (unsupported(case), exhaustive.why_not(case)):
        assert str(reason).startswith("max_tpot may gain by waiting")
    result = api.solve(case, time_limit=1)
    assert result.lower is not None
    assert result.lower.value <= best
    assert "max_tpot may gain by waiting" in str(result.solver.reason)
    assert verify(case, result).ok


@in_blocks(campaign(36, 2_500), 60)
def test_no_bound_on_what_they_are_combined_with_is_above_the_optimum(seeds: range) -> None:
    decided = searched = 0
    for seed in seeds:
        make = droppable if seed % 5 == 0 else served
        instance = make(seed, COMBINED[seed % len(COMBINED)], arrivals=seed % 3 > 0)
        try:
            best = vector_optimum(instance, 600)
        except TooMany:
            continue
        decided += 1
        for bound in closed_form_bounds(instance):
            assert bound.value <= best, (instance.name, bound.source)
        for bound in searched_bounds(instance) if seed % 12 == 0 else ():
            searched += 1
            assert bound.value <= best, (instance.name, bound.source)
    assert decided > len(seeds) / 3
    assert searched > 0


def test_a_rank_is_exact_where_floats_are_equal() -> None:
    """Of TPOTs that differ by less than a float tells, too."""
    rng = random.Random(4)
    for _ in range(100):
        outputs = [rng.choice([1, 2, 3, 4, 8]) for _ in range(rng.randint(1, 40))]
        groups = tuple(RequestGroup(f"q{k}", 1, o) for k, o in enumerate(outputs))
        case = Instance("near", groups, System(99, 99, 99), tiny(1).cost)
        base = rng.choice([0, 7, 2**58 // 21 * 21])
        firsts = [rng.randint(0, 3) for _ in outputs]
        lasts = [a + base * (o - 1) + rng.randint(0, 5) for a, o in zip(firsts, outputs, strict=True)]
        found = Latencies(case, 10, firsts, lasts)
        rows = zip(firsts, lasts, outputs, strict=True)
        exact = sorted(Fraction(b - a, 10 * (o - 1)) for a, b, o in rows if o > 1)
        for name, percent in zip(METRICS, (50, 90, 99, 100), strict=True):
            expected = exact[-(-percent * len(exact) // 100) - 1] if exact else None
            assert found.metric(Metric(name)) == expected


def test_single_tokens_have_none() -> None:
    groups = (RequestGroup("a", 3, 1, count=2),)
    case = Instance("single", groups, System(9, 9, 9), tiny(1).cost, objective=Objective.of("p99_tpot"))
    result = api.solve(case)
    assert result.metrics is not None
    assert [getattr(result.metrics, name) for name in METRICS] == [None] * 4
    assert result.lower is not None
    assert (result.status, result.lower.value) == (Status.OPTIMAL, 0)
    assert verify(case, result).ok
    # Those beside it do not count as requests with a TPOT.
    more = replace(case, groups=(*groups, RequestGroup("b", 3, 3)), objective=Objective.of("p50_tpot"))
    more = replace(more, cost=read_instance(TOY).cost)
    assert max(bound.value for bound in closed_form_bounds(more)) > 0
    assert verify(more, api.solve(more)).ok


def without(claim: Claim, names: frozenset[str]) -> Claim:
    return replace(claim, metrics={k: v for k, v in claim.metrics.items() if k not in names})


def test_results_from_before_these_metrics_hold_as_they_did() -> None:
    instance = read_instance(TOY)
    claim = api.solve(instance).claim()
    assert verify(instance, without(claim, LATER_TOGETHER)).ok
    assert frozenset(METRICS) == LATER_TOGETHER
    # No version wrote some of them, or these and fewer others.
    for names in (*(frozenset({name}) for name in METRICS), LATER_TOGETHER | {"mean_tpot"}):
        (fault,) = verify(instance, without(claim, names)).faults
        assert fault.kind is FaultKind.METRICS
    # Nor does an objective of today come from a version of then.
    aimed = replace(instance, objective=Objective.of("p90_tpot"))
    claim = api.solve(aimed).claim()
    assert verify(aimed, claim).ok
    assert [f.kind for f in verify(aimed, without(claim, LATER_TOGETHER)).faults] == [FaultKind.METRICS]


def run(*words: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(cli, list(words))
    return outcome.exit_code, outcome.output


def test_the_commands_take_them(tmp_path: Path) -> None:
    result = str(tmp_path / "r.json")
    code, text = run("solve", TOY, "--objective", "p99_tpot", "-o", result)
    assert code == 0
    assert "optimal: the schedule meets the lower bound" in text
    code, text = run("verify", TOY, result, "--objective", "p99_tpot", "--strict")
    assert code == 0
    assert "recomputed" in text
    code, text = run("bound", TOY, "--objective", "p99_tpot", "--json")
    assert code == 0
    assert [bound["source"] for bound in json.loads(text)["lower_bounds"]] == ["alone"]
    assert run("solve", TOY, "--at-most", "p99_tpot=0.05")[0] == 0
    assert run("solve", TOY, "--at-most", "p99_tpot=0.007")[0] == 1
    code, text = run("front", TOY, "--x", "p99_tpot", "--y", "makespan", "--time-limit", "1")
    assert code == 0
    assert "schedules that no known one beats in both" in text


def test_many_requests_are_proved_at_once() -> None:
    """One at a time, for nothing else counts."""
    groups = tuple(RequestGroup(f"q{k}", 10 + k, 1 + k % 40, Fraction(k, 10)) for k in range(300))
    for objective in ("p90_tpot", {"mean_tpot": "1", "max_tpot": "2"}):
        case = Instance("many", groups, System(4000, 512, 512), read_instance(TOY).cost)
        case = replace(case, objective=Objective.of(objective))  # type: ignore[arg-type]
        result = api.solve(case, time_limit=20)
        assert result.status is Status.OPTIMAL
        assert result.lower is not None
        assert result.lower.proof is Proof.CLOSED_FORM
        assert verify(case, result).bound is Trust.RECOMPUTED
