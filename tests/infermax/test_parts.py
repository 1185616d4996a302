"""Bounds on weighted sums: none above the optimum, and the checker proves the same."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from infermax_opt.core.certification import CertificateRejected
from infermax_opt.engines.outcome import EngineLimits, Termination
from infermax_opt.files.certificates import certificate_to_json, exact_text
from infermax_opt.infermax.bounds.closed_form import closed_form_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.bounds.trade_off import trade_off
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import ratio
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks, size
from tests.infermax.occupancy_adversary import signed
from tests.infermax.served import served
from tests.infermax.test_many_bounds import shown
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.infermax.waiting import waiting
from tests.support import few

METRICS = (
    "makespan", "mean_tpot", "mean_e2e", "mean_ttft", "mean_normalised_latency", "weighted_mean_e2e",
)  # fmt: skip


def weighed(seed: int) -> Instance:
    rng = random.Random(seed)
    base = tiny(seed) if seed % 2 else waiting(seed)
    weights = {name: rng.choice(["0.1", "1", "4"]) for name in rng.sample(METRICS, rng.choice([1, 2, 2, 3]))}
    return replace(base, objective=Objective.of(weights))


@in_blocks(campaign(20, 5_000), 20)
def test_no_bound_is_above_the_optimum(seeds: range) -> None:
    decided = better = 0
    for seed in seeds:
        instance = weighed(seed)
        outcome = staged_search(instance, limits=EngineLimits(seconds=20))
        if outcome.termination != Termination.OPTIMAL or outcome.upper is None:
            continue
        decided += 1
        assert trade_off(instance) <= outcome.upper, instance.name
        found = list(searched_bounds(instance, stop=few(size(60, 10**9))))
        for bound in found:
            assert bound.value <= outcome.upper, (instance.name, bound.source)
            certificate = certificate_to_json(instance, bound, CERTIFICATION)
            assert CERTIFICATION.check(instance, certificate) == bound.value
        closed = max(bound.value for bound in closed_form_bounds(instance))
        better += any(bound.value > closed for bound in found)
    assert decided >= 0.75 * len(seeds)
    assert better >= 1


@pytest.mark.parametrize("seed", campaign(12, 120))
def test_missed_levels_are_a_part(seed: int) -> None:
    instance = served(seed, {"missed": "1", "makespan": "0.1"}, arrivals=seed % 2 == 0)
    try:
        best = vector_optimum(instance, 1_500)
    except TooMany:
        return
    for bound in searched_bounds(instance):
        assert bound.value <= best, bound.source
        certificate = certificate_to_json(instance, bound, CERTIFICATION)
        assert CERTIFICATION.check(instance, certificate) == bound.value


@cache
def certified() -> tuple[Instance, dict[str, Any]]:
    instance = replace(tiny(5), objective=Objective.of({"makespan": "1", "mean_e2e": "2"}))
    bound = max(searched_bounds(instance), key=lambda some: some.value)
    return instance, dict(certificate_to_json(instance, bound, CERTIFICATION))


def test_tampered_parts_are_rejected() -> None:
    instance, certificate = certified()
    parts = certificate["evidence"]["parts"]
    assert len(parts) == 2
    one, other = parts
    claimed = certificate["lower_bound"]
    for wrong in (
        [one], [other], [one, one], [one, other, other], [],
        [{**one, "metric": other["metric"]}, other],
        [{**one, "metric": "mean_ttft"}, other],
        [{key: value for key, value in one.items() if key != "metric"}, other],
    ):  # fmt: skip
        forged = signed({**certificate, "evidence": {"kind": "parts", "parts": wrong}})
        with pytest.raises(CertificateRejected):
            CERTIFICATION.check(instance, forged)
    assert str(exact_text(CERTIFICATION.check(instance, certificate))) == claimed


@pytest.mark.parametrize(
    "weights", [{"makespan": "1", "mean_e2e": "1"}, {"makespan": "1"}, {"makespan": "1", "mean_e2e": "-2"}]
)
def test_other_weights_are_another_instance(weights: dict[str, str]) -> None:
    instance, certificate = certified()
    shown = {**instance_to_json(instance), "cost": cost_to_json(instance.cost)}
    with pytest.raises(Rejected):
        check(json.loads(json.dumps({**shown, "objective": weights}, default=str)), certificate)


def test_fractions_in_parts_are_written_exactly() -> None:
    """A part by KV beginning holds a fraction, which no certificate could be written with."""
    pieces = [("0.007", "0.000075")]
    cost = CostModel(pieces, ("0.0003", "0"), ("0.0003", "1.5e-9"), Attention.SQUARE)  # type: ignore[arg-type]
    policy = Policy(hybrid_batching=False, preemption=False)
    instance = Instance("parts", (RequestGroup("r", 2, 3, count=8),), System(4, 512, 512), cost, policy)
    instance = replace(instance, objective=Objective.of({"makespan": "1", "mean_ttft": "1"}))
    parts = [bound for bound in searched_bounds(instance, stop=few(3)) if "parts" in (bound.evidence or {})]
    told = [part for bound in parts for part in (bound.evidence or {})["parts"]]
    assert any(isinstance(value, Fraction) for part in told for value in part.values())
    for bound in parts:
        certificate = json.loads(json.dumps(certificate_to_json(instance, bound, CERTIFICATION)))
        assert check(shown(instance), certificate) == bound.value


def test_the_ratio_to_a_limit_of_0() -> None:
    """Bounds may be below 0, by rounding or as a search was stopped: they prove nothing of a limit of 0."""
    assert ratio(Fraction(-1, 3), Fraction(0)) == Fraction(-1, 3)
    assert ratio(Fraction(0), Fraction(0)) == 0
    assert ratio(Fraction(1, 3), Fraction(0)) == Fraction(4, 3)
    assert ratio(Fraction(-1, 3), Fraction(2)) == Fraction(-1, 6)
