"""The bound on ranks of latencies by crowds: against every schedule, and its certificates."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from infermax_opt.checking import work
from infermax_opt.core.certification import CertificateRejected
from infermax_opt.infermax.bounds import crowds, ranks
from infermax_opt.infermax.bounds.crowds import CrowdSearch, crowds_bound
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.bounds.ranks import promising, rank_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Metric, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import QUANTILES, Latency
from tests.campaign import campaign, in_blocks, one_in
from tests.infermax.served import served
from tests.infermax.test_latency_certificates import shown
from tests.infermax.tiny import cost_model
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.support import certificate_to_json, check_evidence

#: Points of an instance at most.
POINTS = 400
TENTH = Fraction(1, 10)
METRICS = ("max_e2e", "max_e2e", "max_ttft")


def close(seed: int, metric: str) -> Instance:
    """Two to four requests that come close together, or in two crowds far from each other."""
    rng = random.Random(seed)
    count = rng.choice([2, 3, 3, 4])
    policy = Policy(rng.random() < 0.7, rng.random() < 0.6, rng.random() < 0.6)
    most, apart = {2: 4, 3: 3, 4: 2}[count], rng.choice([0, 0, 40])
    groups = tuple(
        RequestGroup(
            f"q{k}", rng.randint(1, most), rng.randint(1, 3), TENTH * (rng.randint(0, 9) + apart * (k % 2))
        )
        for k in range(count)
    )
    peak = sum(group.input_tokens + group.output_tokens for group in groups)
    longest = max(group.input_tokens + group.output_tokens - 1 for group in groups)
    prompt = max(group.input_tokens for group in groups)
    budget = rng.randint(1, most) if policy.chunked_prefill else prompt + rng.randint(0, 2)
    block = rng.choice([1, 1, 2])
    room = -(-rng.choice([longest, longest + 2, peak]) // block) * block
    return Instance(
        f"close-{seed}", groups, System(room, budget + rng.randint(0, 2), budget, block_size=block),
        cost_model(rng), policy, Objective.of(metric),
    )  # fmt: skip


def made(seed: int) -> Instance:
    """One of either kind of instances, mostly with arrivals."""
    metric = METRICS[seed % len(METRICS)]
    return close(seed, metric) if seed % 2 else served(seed, metric, arrivals=seed % 4 > 0)


def limits(of: Instance, rng: random.Random) -> list[Fraction]:
    """Limits near what requests take alone, one of them or all."""
    lone, unit, latency = LoneLatency(of), of.cost.ticks_per_second, QUANTILES[Metric(of.objective.name)][1]
    alone = [lone.of(kind).ticks(latency, kind.output_tokens) / unit for kind in of.types]
    found = [max(alone) * rng.randint(10, 14) * TENTH, sum(alone, Fraction(0)) * rng.randint(5, 10) * TENTH]
    return [Fraction(-(-limit * 1000 // 1), 1000) for limit in found]


@in_blocks(campaign(30, 6_000), 120)
def test_no_more_are_late_than_must_be(seeds: range) -> None:
    decided = said = met = 0
    for seed in seeds:
        of, rng = made(seed), random.Random(seed)
        for limit in limits(of, rng):
            promised = promising(of, Metric(of.objective.name), limit)
            try:
                least = vector_optimum(promised, POINTS)
            except TooMany:
                break
            decided += 1
            for piece in range(len(of.cost.batch)):
                proved = [CrowdSearch(piece).crowds(promised, most) for most in range(len(of.requests))]
                late = sum(crowds is not None for crowds in proved)
                said += late > 0
                met += late == least > 0
                assert all(crowds is not None for crowds in proved[:late])
                assert late <= least, (seed, piece, limit)
    assert decided > 0.7 * len(seeds)
    assert said > 0.2 * len(seeds)
    assert met > 0.1 * len(seeds)


@in_blocks(campaign(20, 5_000), 250)
def test_no_bound_is_above_the_optimum(seeds: range) -> None:
    found = 0
    for seed in seeds:
        of = made(seed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranks, "attainment_bounds", lambda *_, **__: iter(()))
            by_crowds = [bound for bound in rank_bounds(of) if bound.source == "crowds"]
        if not by_crowds:
            continue
        for bound in by_crowds:
            assert check_evidence(of, bound) == bound.value
        try:
            best = vector_optimum(of, POINTS)
        except TooMany:
            continue
        found += 1
        assert by_crowds[-1].value <= best, seed
    assert found > 0.05 * len(seeds)


def pairs(count: int, objective: str = "max_e2e") -> Instance:
    """Pairs of requests, 100 s between them; a batch takes 1 s and 0.2 s a token."""
    groups = tuple(
        RequestGroup(f"q{k}{name}", 2, outputs, 100 * k)
        for k in range(count)
        for name, outputs in (("a", 20), ("b", 16))
    )
    cost = CostModel([("1", "0.2")], ("0", "0"), ("0", "0"))
    return Instance("pairs", groups, System(500, 50, 50), cost, Policy(), Objective.of(objective))


def late(of: Instance, limit: str, most: int) -> int:
    """Requests that crowds show to be late, up to one more than `most`."""
    promised = promising(of, Metric(of.objective.name), Fraction(limit))
    search = CrowdSearch(0)
    return next((k for k in range(most + 1) if search.crowds(promised, k) is None), most + 1)


def test_each_pair_counts_one() -> None:
    """Alone the longer one takes 24.2 s, beside the other one, which works 3.4 s, 27.6 s."""
    of = pairs(3)
    for limit, missed in (("24.1", 3), ("24.3", 3), ("26", 3), ("27.7", 0)):
        assert late(of, limit, 5) == missed, limit
    together = replace(of, groups=tuple(replace(group, arrival=0) for group in of.groups))
    assert late(together, "26", 5) < 3, "one crowd is not three"


def test_who_is_late_alone_counts_besides() -> None:
    of = pairs(2)
    long = RequestGroup("long", 2, 80, 1000)
    assert late(replace(of, groups=(*of.groups, long)), "26", 5) == 3
    assert late(replace(of, groups=(replace(long, arrival=500), *of.groups)), "26", 5) == 3


def test_equal_requests_are_counted_one_by_one() -> None:
    of = pairs(1)
    groups = (RequestGroup("r", 2, 20, 0, count=2), RequestGroup("s", 2, 20, 200, count=2))
    assert late(replace(of, groups=groups), "26", 5) == 2


def test_a_search_goes_on_from_what_it_knows() -> None:
    """Limits in any order prove what they prove alone."""
    of = pairs(6)
    for order in one_in(5, itertools.permutations(["24.5", "25", "26", "27.7"])):
        search, low, high = CrowdSearch(0), Fraction(0), Fraction(1000)
        for limit in map(Fraction, order):
            if not low < limit < high:
                continue
            found = search.crowds(promising(of, Metric.MAX_E2E, limit), 5)
            assert (found is not None) == (limit < 27)
            low, high = (limit, high) if found is not None else (low, limit)


def test_only_where_few_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "attainment_bounds", lambda *_, **__: iter(()))
    assert [bound.source for bound in rank_bounds(pairs(3))]
    assert not list(rank_bounds(pairs(3, "p50_e2e")))
    monkeypatch.setattr(ranks, "MAX_KINDS", 5)
    assert not list(rank_bounds(pairs(3)))


def test_under_overload_attainment_comes_first() -> None:
    assert next(rank_bounds(pairs(3))).source == "crowds"
    many = replace(pairs(3), groups=(RequestGroup("r", 40, 40, count=30), RequestGroup("s", 4, 4, 1)))
    assert next(rank_bounds(many)).source == "attainment"


def test_long_stretches_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    of = pairs(30)
    alone = replace(of, groups=(*of.groups[:-2:2], *of.groups[-2:]))  # one pair at the end
    assert late(alone, "26", 1) == 1
    monkeypatch.setattr(crowds, "MOST", 4)
    assert late(alone, "26", 1) == 1


def test_among_many_requests_no_crowd_is_sought_where_none_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, found in ((4, True), (3, False)):
        monkeypatch.setattr(crowds, "MOST", most)
        search = CrowdSearch(0)
        assert search.crowds(promising(pairs(2), Metric.MAX_E2E, Fraction(28)), 0) is None
        below = search.crowds(promising(pairs(2), Metric.MAX_E2E, Fraction(26)), 0)
        assert (below is not None) == found


def test_a_certificate_that_would_take_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    of = pairs(2)
    promised = promising(of, Metric.MAX_E2E, Fraction("26"))
    bound = crowds_bound(CrowdSearch(0), promised, Fraction("26"), 1)
    assert bound is not None
    assert check_evidence(of, bound) == Fraction("26")
    monkeypatch.setattr(crowds, "MAX_STEPS", 4 * crowds.GUEST_STEPS - 1)
    assert crowds_bound(CrowdSearch(0), promised, Fraction("26"), 1) is None
    monkeypatch.setattr(work, "MAX_STEPS", 2_000)
    with pytest.raises(CertificateRejected, match="steps"):
        check_evidence(of, bound)


def test_a_stopped_search_says_what_it_has() -> None:
    assert not list(rank_bounds(pairs(3), stop=lambda: True))
    whole = [bound.value for bound in rank_bounds(pairs(6)) if bound.source == "crowds"]
    asked, some = itertools.count(), list[Fraction]()
    while len(some) < len(whole) - 1 and (tries := next(asked)) < 400:
        left = itertools.chain(itertools.repeat(False, tries), itertools.repeat(True))
        some = [bound.value for bound in rank_bounds(pairs(6), stop=partial(next, left))]
        assert some == whole[: len(some)]
    assert len(whole) > 1
    assert some


def test_altered_evidence_never_proves_what_is_false() -> None:
    of = replace(pairs(3, "p50_e2e"), objective=Objective.of("max_e2e"))
    promised = promising(of, Metric.MAX_E2E, Fraction("26"))
    bound = crowds_bound(CrowdSearch(0), promised, Fraction("26"), 2)
    assert bound is not None
    good: dict[str, Any] = json.loads(json.dumps(bound.evidence))
    parts = good["crowds"]
    assert len(parts) == 3
    free = [[end, 0, *rest] for end, _, *rest in parts[0]["cells"]]
    # One of them is enough for the maximum; of the median more than three have to be late.
    for objective, change, why in (
        ("max_e2e", {"limit": "27.7"}, "no more requests miss"),
        ("max_e2e", {"limit": "25.9"}, "claims"),
        ("max_e2e", {"piece": 1}, "is not a whole number"),
        ("max_e2e", {"crowds": []}, "no more requests miss"),
        ("max_e2e", {"crowds": [parts[0], parts[0]]}, "is not a whole number"),
        ("max_e2e", {"crowds": [{**parts[0], "first": 6}]}, "no request"),
        ("max_e2e", {"crowds": [{**parts[0], "first": 1}]}, "no more requests miss"),
        ("max_e2e", {"crowds": [{**parts[0], "first": -1}]}, "is not a whole number"),
        ("max_e2e", {"crowds": [{**parts[0], "exponent": -1}]}, "is not a whole number"),
        ("max_e2e", {"crowds": [{**parts[0], "cells": free}]}, "no more requests miss"),
        ("max_e2e", {"crowds": [{**parts[0], "shares": []}]}, "no request"),
        ("max_e2e", {"kind": "rank"}, "groups"),
        ("p50_e2e", {}, "no more requests miss"),
        ("mean_e2e", {}, "none of"),
    ):
        other = replace(of, objective=Objective.of(objective))
        claimed = replace(bound, evidence={**good, **change})
        certificate = json.loads(json.dumps(certificate_to_json(other, claimed)))
        with pytest.raises(Rejected, match=why):
            check(shown(other), certificate)


def test_first_tokens_have_crowds_too() -> None:
    of = replace(pairs(2, "max_ttft"), policy=Policy(chunked_prefill=False))
    assert QUANTILES[Metric.MAX_TTFT][1] is Latency.TTFT
    long = tuple(replace(group, input_tokens=20, output_tokens=1) for group in of.groups)
    # Both prompts in one batch take 9 s, of which 8 are their work.
    assert late(replace(of, groups=long), "7.5", 3) == 2
    assert late(replace(of, groups=long), "9.1", 3) == 0
