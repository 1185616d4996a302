"""The attainment bound with a horizon and optional requests, against every schedule, and its certificates."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.api import verify
from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import attainment
from infermax_opt.infermax.bounds._attainment_program import AttainmentProgram
from infermax_opt.infermax.bounds._attainment_proof import AttainmentProof
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.classes import bros_instance
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.schedulers.classed import classed_schedule
from tests.campaign import campaign, in_blocks
from tests.infermax.served import droppable
from tests.infermax.test_attainment import POINTS, bounds, shown
from tests.infermax.test_latency_certificates import altered
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.support import certificate_to_json, check_evidence

OBJECTIVES: tuple[object, ...] = (
    "missed",
    "unserved",
    "unserved_tokens",
    {"missed": "1", "unserved": "0.5"},
    {"missed": "2", "unserved_tokens": "0.3", "mean_e2e": "0.1"},
)


@pytest.fixture(autouse=True)
def one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny instances have the same cells at all levels, or nearly."""
    monkeypatch.setattr(attainment, "PAIRS", (300,))


def due(seed: int) -> Instance:
    """An instance with a horizon within which not everything may be possible."""
    of = droppable(seed, OBJECTIVES[seed % len(OBJECTIVES)], arrivals=seed % 3 > 0)
    rng = random.Random(seed)
    return replace(of, horizon=of.horizon if rng.random() < 0.2 else Fraction(rng.randint(1, 60), 10))


@in_blocks(campaign(48, 5_000), 80)
def test_no_bound_exceeds_the_optimum(seeds: range) -> None:
    positive = tried = 0
    for seed in seeds:
        of = due(seed)
        try:
            best = vector_optimum(of, POINTS)
        except TooMany:
            continue
        tried += 1
        for kind, value in bounds(of, seed):
            assert value <= best, (seed, kind, value, best)
            positive += value > 0
    assert tried > len(seeds) / 3
    assert positive > len(seeds) / 5


@in_blocks(campaign(18, 2_500), 30)
def test_the_checker_agrees_to_the_last_unit(seeds: range) -> None:
    agreed = 0
    for seed in seeds:
        of = due(seed)
        for piece in range(len(of.cost.batch)):
            proof = AttainmentProof(of, piece)
            if not proof.guests:
                continue
            bound = proof.bound(AttainmentProgram(proof, 300).prices())
            assert check_evidence(of, bound) == bound.value, seed
            more = certificate_to_json(of, replace(bound, value=bound.value + Fraction(1, 10**40)))
            with pytest.raises(Rejected, match="claims"):
                check(shown(of), json.loads(json.dumps(more)))
            agreed += 1
    assert agreed > len(seeds) / 3


@pytest.mark.parametrize("seed", range(5))
def test_altered_evidence_never_proves_what_is_false(seed: int) -> None:
    found = 0
    for number in range(seed, 200, 5):
        of = due(number)
        bound = next(attainment_bounds(of), None)
        if bound is None:
            continue
        try:
            false = vector_optimum(of, POINTS) + Fraction(1, 10**9)
        except TooMany:
            continue
        for evidence in altered(dict(bound.evidence or {}), random.Random(seed)):
            certificate = certificate_to_json(of, replace(bound, value=false, evidence=evidence))
            with pytest.raises(Rejected):
                check(shown(of), json.loads(json.dumps(certificate)))
        found += 1
        if found == 2:
            return
    assert found


def test_best_effort_work_costs_service_levels() -> None:
    of = bros_instance("sharegpt", 12, 40)
    both = replace(of, objective=Objective.of({"missed": 1, "unserved": "0.3"}))
    made = verify(both, classed_schedule(both, "slack"))
    assert made.ok
    together = [bound for bound in searched_bounds(both) if "parts" not in (bound.evidence or {})][-1]
    alone = [
        max(
            (bound.value for bound in searched_bounds(replace(of, objective=Objective.of(name)))),
            default=Fraction(0),
        )
        for name in ("missed", "unserved")
    ]
    assert alone[0] + Fraction(3, 10) * alone[1] < together.value <= (made.objective or 0)
    assert check_evidence(both, together) == together.value


# --- what a stranger found ------------------------------------------------------------------------

COST = CostModel([("0.01", "0.01")], ("0", "0"), ("0", "0"))
ROOMY = System(1000, 1000, 1000)


def test_a_limit_of_0_is_no_proof_by_itself() -> None:
    """Nothing proved is nothing beyond the limit."""
    group = RequestGroup("r", 5, 3, slo={"ttft": 5})
    of = Instance("zero", (group,), ROOMY, COST, objective=Objective.of({"at_most": {"missed": "0"}}))
    evidence = {
        "kind": "attainment", "piece": 0, "exponent": 0, "groups": 8, "cells": [], "shares": [[0]],
        "metric": "missed",
    }  # fmt: skip
    claimed = LowerBound(Fraction(1), "attainment", Proof.CERTIFICATE, evidence=evidence)
    with pytest.raises(CertificateRejected, match=r"claims 1\.0, only 0\.0 is proved"):
        check_evidence(of, claimed)


def test_batches_that_make_tokens_may_be_all_batches() -> None:
    """Where nothing is scarce they are one column, which no row of the program holds twice."""
    groups = (
        RequestGroup("q0", 2, 2, weight="0.5", optional=True),
        RequestGroup("q1", 3, 1, weight="2", optional=True),
        RequestGroup("q2", 1, 1),
    )
    cost = CostModel([("0.7", "0.3"), ("0.1", "0"), ("0", "0")], ("1.3", "0"), ("0.1", "0.5"))
    policy = Policy(True, False, True)
    of = Instance(
        "crash", groups, System(3, 50, 6), cost, policy, Objective.of("unserved"), horizon=Fraction("5.4")
    )
    assert max(bound.value for bound in searched_bounds(of)) == Fraction("2.5")


@pytest.mark.parametrize(
    "objective", [{"missed": "1", "mean_e2e": "0.001"}, {"at_most": {"missed": "1", "mean_e2e": "0.001"}}]
)
def test_sums_and_limits_count_levels_of_optional_requests(objective: object) -> None:
    groups = (
        RequestGroup("r", 50, 3, count=20, slo={"ttft": 5}),
        RequestGroup("b", 5, 3, slo={"ttft": 50}, optional=True),
    )
    of = Instance("parts", groups, ROOMY, COST, objective=Objective.of(objective))
    found = [bound for bound in searched_bounds(of) if bound.evidence is not None]
    assert any("missed" in bound.source for bound in found)
    for bound in found:
        assert check_evidence(of, bound) == bound.value
