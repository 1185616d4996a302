"""Bounds on percentiles and maxima by attainment: none above the optimum, and the checker proves the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.result import LowerBound
from infermax_opt.files.certificates import certificate_to_json
from infermax_opt.infermax.bounds.closed_form import closed_form_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup
from infermax_opt.infermax.data.objective import QUANTILES
from tests.campaign import campaign, in_blocks
from tests.infermax.occupancy_adversary import signed
from tests.infermax.served import droppable, served
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum

METRICS = [metric.value for metric in QUANTILES]


@in_blocks(campaign(12, 5_000), 20)
def test_no_bound_is_above_the_optimum(seeds: range) -> None:
    decided = found = 0
    for seed in seeds:
        make = droppable if seed % 5 == 0 else served
        instance = make(seed, METRICS[seed % len(METRICS)], arrivals=seed % 3 > 0)
        try:
            best = vector_optimum(instance, 1_000)
        except TooMany:
            continue
        decided += 1
        for bound in searched_bounds(instance):
            found += 1
            assert bound.value <= best, (instance.name, str(instance.objective))
            certificate = certificate_to_json(instance, bound, CERTIFICATION)
            assert CERTIFICATION.check(instance, certificate) == bound.value
    assert decided >= 0.4 * len(seeds)
    assert found >= 3


def crowded() -> Instance:
    """Twelve equal requests on a machine that holds three of them."""
    base = tiny(5)
    system = replace(base.system, kv_capacity=40, max_running=3)
    groups = (RequestGroup("r", 6, 6, count=12),)
    return replace(base, groups=groups, system=system, objective=Objective.of("p90_e2e"))


@cache
def bounds_of_crowded() -> list[LowerBound]:
    return list(searched_bounds(crowded()))


def test_a_crowd_waits_longer_than_anybody_alone() -> None:
    instance = crowded()
    bounds = bounds_of_crowded()
    alone = next(bound.value for bound in closed_form_bounds(instance) if bound.source == "alone")
    assert bounds[-1].value > 2 * alone


def test_a_higher_limit_is_rejected() -> None:
    instance = crowded()
    bound = bounds_of_crowded()[-1]
    certificate = dict(certificate_to_json(instance, bound, CERTIFICATION))
    assert CERTIFICATION.check(instance, certificate) == bound.value
    for limit in (bound.value * 2, Fraction(0)):
        evidence = {**certificate["evidence"], "limit": str(float(limit))}
        with pytest.raises(CertificateRejected):
            CERTIFICATION.check(instance, signed({**certificate, "evidence": evidence}))
