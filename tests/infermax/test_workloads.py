"""Workloads of real-time beside best-effort requests."""

from __future__ import annotations

from statistics import mean, pstdev

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.classes import LONGEST, MOMENTS, SET, bros_instance


@pytest.mark.parametrize("workload", sorted(MOMENTS))
def test_moments(workload: str) -> None:
    found = bros_instance(workload, 10, 600, seed=3)
    real_time = [r for r in found.requests if r.terms.class_name == "rt"]
    best_effort = [r for r in found.requests if r.terms.class_name == "be"]
    assert len(real_time) == pytest.approx(6000, rel=0.05)
    moments = MOMENTS[workload]
    for tokens, (average, deviation) in (
        ([r.input_tokens for r in real_time], moments.prompt),
        ([r.output_tokens for r in real_time], moments.output),
    ):
        assert mean(tokens) == pytest.approx(average, rel=0.08)
        assert 0.6 * deviation < pstdev(tokens) < 1.2 * deviation  # no tail beyond the limit
        assert 1 <= min(tokens) <= max(tokens) <= LONGEST
    assert len(best_effort) % SET == 0
    assert mean(r.input_tokens for r in best_effort) == pytest.approx(768, rel=0.02)
    assert mean(r.output_tokens for r in best_effort) == pytest.approx(80, rel=0.03)
    assert all(r.terms.optional == (r.terms.class_name == "be") for r in found.requests)


def test_a_seed_says_all() -> None:
    one, same, other = (bros_instance("lmsys", 5, 20, seed) for seed in (4, 4, 5))
    assert one.sha256 == same.sha256 != other.sha256


def test_a_shipped_profile() -> None:
    assert bros_instance("lmsys", 5, 20, profile="llama-3.1-8b_h100").cost.profile == "llama-3.1-8b_h100"


@pytest.mark.parametrize(("workload", "horizon", "why"), [("none", 5, "is none of"), ("lmsys", 0, "nobody")])
def test_what_there_is_not(workload: str, horizon: int, why: str) -> None:
    with pytest.raises(InputError, match=why):
        bros_instance(workload, 5, horizon)
