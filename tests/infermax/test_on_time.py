"""The bound on ranks of the TTFT by who is on time: against every schedule, and its certificates."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.checking import work
from infermax_opt.checking.in_turn import least_paid_in_turn
from infermax_opt.core.certification import CertificateRejected
from infermax_opt.files.certificates import exact_text
from infermax_opt.infermax.bounds import on_time
from infermax_opt.infermax.bounds.closed_form import closed_form_bounds
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.bounds.on_time import (
    KIND_STEPS,
    NOT_DECIDED,
    PROMPT_STEPS,
    REQUEST_STEPS,
    _fewest_late,
    most_late,
    on_time_bound,
    payment,
)
from infermax_opt.infermax.bounds.ranks import promising
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.checker import instance as checked
from infermax_opt.infermax.checker.on_time import late_ones, prompt_costs
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, Metric, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import QUANTILES, rank
from tests.campaign import campaign, in_blocks
from tests.infermax.served import served
from tests.infermax.tiny import cost_model
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.support import certificate_to_json, check_evidence

#: Points of an instance at most.
POINTS = 400
TENTH = Fraction(1, 10)
RANKS = ("p50_ttft", "p90_ttft", "max_ttft")


def shown(of: Instance) -> dict[str, object]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(of), "cost": cost_to_json(of.cost)}
    loaded: dict[str, object] = json.loads(json.dumps(value, default=exact_text))
    return loaded


def prompts(seed: int) -> Instance:
    """Two to four requests of few outputs with longer prompts, which come close together."""
    rng = random.Random(seed)
    count = rng.choice([2, 3, 3, 4])
    policy = Policy(rng.random() < 0.7, rng.random() < 0.7, rng.random() < 0.7)
    most = {2: 6, 3: 4, 4: 3}[count]
    groups = tuple(
        RequestGroup(f"q{k}", rng.randint(1, most), rng.choice([1, 1, 1, 2]), TENTH * rng.randint(0, 30))
        for k in range(count)
    )
    peak = sum(group.input_tokens + group.output_tokens for group in groups)
    longest = max(group.input_tokens for group in groups)
    budget = rng.randint(1, most) if policy.chunked_prefill else longest + rng.randint(0, 2)
    block = rng.choice([1, 1, 2])
    room = -(-rng.choice([longest + 2, peak]) // block) * block
    return Instance(
        f"prompts-{seed}", groups, System(room, budget + rng.randint(0, 2), budget, block_size=block),
        cost_model(rng), policy, Objective.of(RANKS[seed % 3]),
    )  # fmt: skip


def made(seed: int) -> Instance:
    """One of either kind of instances, mostly with arrivals."""
    return prompts(seed) if seed % 2 else served(seed, RANKS[seed % 3], arrivals=seed % 4 > 0)


def limits(of: Instance, rng: random.Random) -> list[Fraction]:
    """Limits near what prompts take alone, one or two of them."""
    lone, unit = LoneLatency(of), of.cost.ticks_per_second
    alone = [lone.of(kind).first / unit for kind in of.types]
    found = [rng.choice(alone), sum(rng.choices(alone, k=2), Fraction(0)) * rng.randint(5, 10) * TENTH]
    return [Fraction(-(-limit * 1000 // 1), 1000) for limit in found]


@in_blocks(campaign(72, 6_000), 120)
def test_no_more_are_late_than_must_be(seeds: range) -> None:
    decided = said = 0
    for seed in seeds:
        of, rng = made(seed), random.Random(seed)
        for limit in limits(of, rng):
            try:
                least = vector_optimum(promising(of, Metric.MAX_TTFT, limit), POINTS)
            except TooMany:
                break
            decided += 1
            for piece in range(len(of.cost.batch)):
                late = most_late(of, piece, limit, len(of.requests))
                said += late > 0
                assert late <= least, (seed, piece, limit)
    assert decided > 0.7 * len(seeds)
    assert said > 0.2 * len(seeds)


@in_blocks(campaign(48, 5_000), 250)
def test_no_bound_is_above_the_optimum(seeds: range) -> None:
    found = met = 0
    for seed in seeds:
        of = made(seed)
        known = max(bound.value for bound in closed_form_bounds(of))
        bound = on_time_bound(of, late_of(of), known)
        if bound is None:
            continue
        assert bound.value > known
        assert check_evidence(of, bound) == bound.value
        with contextlib.suppress(TooMany):
            best = vector_optimum(of, POINTS)
            found += 1
            met += bound.value > best * Fraction(9, 10)
            assert bound.value <= best, seed
    assert found > 0.03 * len(seeds)
    assert met > 0


def late_of(of: Instance) -> int:
    """Requests that may be above the rank that is the objective."""
    percent = QUANTILES[Metric(of.objective.name)][0]
    return len(of.requests) - rank(percent, len(of.requests))


@in_blocks(campaign(36, 3_000), 60)
def test_the_checker_counts_the_same(seeds: range) -> None:
    agreed = 0
    for seed in seeds:
        of, rng = made(seed), random.Random(seed)
        read = checked.Instance(shown(of), None)
        for limit, (k, (alpha, beta)) in itertools.product(limits(of, rng), enumerate(read.pieces)):
            piece = Piece(alpha, beta, Fraction(1))
            window = -(-limit * read.scale // 1)
            for prompt in {*(request.input_tokens for request in of.requests), 7, 40}:
                costs = prompt_costs(read, piece)
                assert least_paid_in_turn(costs, prompt, window) == payment(of, k, prompt, window)
            for most in range(len(of.requests)):
                assert late_ones(read, limit, most, piece) == most_late(of, k, limit, most)
                agreed += 1
    assert agreed > 2 * len(seeds)


def least_late(jobs: list[tuple[int, int]], window: int) -> int:
    """Of all sets of jobs that end in time one after the other, what the largest one leaves out."""
    for late in range(len(jobs)):
        for chosen in itertools.combinations(jobs, len(jobs) - late):
            end, fine = 0, True
            for arrival, length in chosen:
                end = max(end, arrival) + length
                fine = fine and end <= arrival + window
            if fine:
                return late
    return len(jobs)


def test_the_table_is_that_of_all_sets_of_jobs() -> None:
    for seed in campaign(180, 5_000):
        rng = random.Random(seed)
        last, longest, window = rng.choice([5, 30]), rng.choice([4, 12, 20]), rng.randint(1, 30)
        jobs = sorted((rng.randint(0, last), rng.randint(0, longest)) for _ in range(rng.randint(1, 8)))
        least = least_late(jobs, window)
        for most in range(len(jobs) + 1):
            assert _fewest_late(jobs, window, most) == min(least, most + 1), seed


def two(apart: str, objective: str = "max_ttft", **flags: bool) -> Instance:
    """Two prompts of four tokens so many seconds apart; a batch takes 1 s and 1 s a token."""
    groups = tuple(RequestGroup(f"q{k}", 4, 2, k * Fraction(apart)) for k in range(2))
    cost = CostModel([("1", "1")], ("0", "0.0001"), ("0", "0"))  # ticks of 0.1 ms
    aim = Objective.of(objective)
    return Instance("two", groups, System(50, 5, 5), cost, Policy(**flags), objective=aim)


def test_two_prompts_collide() -> None:
    """Each takes 5 s alone; one second apart, the second one has to wait for four."""
    of = two("1", chunked_prefill=False)
    # Both on time within L: each pays 4 L / (L - 1), and from the first arrival on there are L + 1.
    for limit, late in (("5", 1), ("8.1", 1), ("8.2", 0)):
        assert most_late(of, 0, Fraction(limit), 2) == late
    bound = on_time_bound(of, 0, Fraction(5))
    assert bound is not None
    assert Fraction("8.1") < bound.value < Fraction("8.2")
    assert vector_optimum(of) == 9
    assert on_time_bound(of, 1, Fraction(5)) is None, "one of them may be late"
    assert on_time_bound(two("4.5", chunked_prefill=False), 0, Fraction(6)) is None


def test_a_prompt_without_work_and_a_limit_of_nothing() -> None:
    free = replace(two("1"), cost=CostModel([("1", "0")], ("0", "0"), ("0", "0")))
    assert payment(free, 0, 4, 1) == 0
    assert payment(two("1"), 0, 4, 0) is None
    assert most_late(free, 0, Fraction(0), 2) == 0


def test_where_the_table_would_be_large_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    of = two("1")
    monkeypatch.setattr(on_time, "MAX_ENTRIES", 1)
    assert most_late(of, 0, Fraction(5), 2) == NOT_DECIDED
    assert on_time_bound(of, 0, Fraction(5)) is None


def test_a_stopped_search_says_what_it_has() -> None:
    asked = itertools.count()
    assert on_time_bound(two("1"), 0, Fraction(5), stop=lambda: True) is None
    some = on_time_bound(two("1"), 0, Fraction(1), stop=lambda: next(asked) > 2)
    whole = on_time_bound(two("1"), 0, Fraction(1))
    assert some is not None
    assert whole is not None
    assert some.value < whole.value


def test_altered_evidence_never_proves_what_is_false() -> None:
    of = two("1", chunked_prefill=False)
    bound = on_time_bound(of, 0, Fraction(5))
    assert bound is not None
    good: dict[str, Any] = dict(bound.evidence or {})
    for change, why in (
        ({"limit": "8.2"}, "no more requests are late"),
        ({"limit": "-1"}, "below 0"),
        ({"piece": 1}, "is not a whole number"),
        ({"limit": "5"}, "claims"),
        ({"kind": "rank"}, "groups"),
    ):
        certificate = certificate_to_json(of, replace(bound, evidence={**good, **change}))
        with pytest.raises(Rejected, match=why):
            check(shown(of), json.loads(json.dumps(certificate)))
    for objective in ("max_e2e", "mean_ttft", "max_tpot"):
        other = replace(of, objective=Objective.of(objective))
        with pytest.raises(Rejected):
            check(shown(other), json.loads(json.dumps(certificate_to_json(other, bound))))


def test_a_certificate_that_takes_long_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    of = replace(two("1", "p50_ttft"), groups=(RequestGroup("r", 4, 1, count=200),))
    bound = on_time_bound(of, 100, Fraction(5))
    assert bound is not None
    assert check_evidence(of, bound) == bound.value
    monkeypatch.setattr(work, "MAX_STEPS", 10_000)
    with pytest.raises(CertificateRejected, match="steps"):
        check_evidence(of, bound)


def test_kinds_and_prompts_are_paid_for_before_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests far apart have tables of one entry, yet each takes its time."""
    groups = tuple(RequestGroup(f"r{k}", 4 + k, 1, arrival=100 * k) for k in range(20))
    of = replace(two("1"), groups=groups)
    steps = 20 * (KIND_STEPS + PROMPT_STEPS + REQUEST_STEPS)
    monkeypatch.setattr(work, "MAX_STEPS", steps)
    bound = on_time_bound(of, 0, Fraction(5))
    assert bound is not None
    assert check_evidence(of, bound) == bound.value
    monkeypatch.setattr(work, "MAX_STEPS", 20 * (KIND_STEPS + PROMPT_STEPS))
    with pytest.raises(CertificateRejected, match="steps"):
        check_evidence(of, bound)
    monkeypatch.setattr(on_time, "MAX_STEPS", steps - 1)
    assert on_time_bound(of, 0, Fraction(5)) is None
