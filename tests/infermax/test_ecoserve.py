"""EcoServe's workloads: moments, predictions, deadlines and the size of batches."""

from __future__ import annotations

import statistics
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.bounds.priced_work import sustainable_rate
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.ecoserve import (
    OPT_13B_PROFILE,
    SUSTAINED,
    TRACES,
    deadlines,
    ecoserve_case,
    ecoserve_instance,
    target_forward_size,
    with_deadlines,
    with_predictions,
)
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.data.suites import SUITES
from infermax_opt.infermax.schedulers.reservation.job import padded

OPT_13B = load_profile(OPT_13B_PROFILE).cost


@pytest.mark.parametrize("trace", TRACES)
def test_lengths_and_predictions_are_those_of_the_paper(trace: str) -> None:
    model = TRACES[trace]
    of = ecoserve_instance(trace, OPT_13B, requests=2_500)
    prompts, outputs = ([r.input_tokens for r in of.requests], [r.output_tokens for r in of.requests])
    for lengths, drawn in ((model.inputs, prompts), (model.outputs, outputs)):
        assert min(drawn) >= lengths.least
        assert max(drawn) <= (lengths.cut or lengths.most)
        if not lengths.cut:
            assert statistics.mean(drawn) == pytest.approx(lengths.mean, rel=0.05)
    enough = [padded(r.predicted_output_tokens or 0, model.padding) >= r.output_tokens for r in of.requests]
    # Padded predictions are rounded up, which helps those of few tokens.
    assert statistics.mean(enough) == pytest.approx(float(model.accuracy), abs=0.06)
    rate = len(of.requests) / of.requests[-1].arrival
    assert float(rate) == pytest.approx(float(model.rate), rel=0.08)
    assert of.sha256 == ecoserve_instance(trace, OPT_13B, requests=2_500).sha256


def test_faster_arrivals_are_the_same_ones() -> None:
    slow, fast = (ecoserve_instance("alpaca", OPT_13B, requests=50, rate=Fraction(r)) for r in (1, 10))
    for a, b in zip(slow.requests, fast.requests, strict=True):
        assert (a.input_tokens, a.output_tokens) == (b.input_tokens, b.output_tokens)
        assert float(a.arrival) == pytest.approx(10 * float(b.arrival), abs=1e-3)


def test_a_deadline_is_a_scale_of_prompt_and_tokens() -> None:
    of = ecoserve_instance("sharegpt", OPT_13B, requests=20)
    prompt, token = deadlines(of)
    for scale in (Fraction(1, 2), Fraction(2)):
        for request in with_deadlines(of, scale).requests:
            limit = request.terms.slo.e2e
            assert limit is not None
            assert abs(limit - scale * (prompt + token * request.output_tokens)) <= Fraction(1, 1000)


def test_predictions_without_error_are_the_outputs() -> None:
    of = with_predictions(ecoserve_instance("alpaca", OPT_13B, requests=20), 0, 1)
    assert all(r.predicted_output_tokens == r.output_tokens for r in of.requests)


def test_the_target_is_where_batches_are_full() -> None:
    knee = CostModel([("0.01", "0"), ("0", "0.0001")], (0, 0), (0, 0))
    assert target_forward_size(knee) == 95  # 100 tokens take as long as one, and 95 run at 95 %
    line = CostModel([("0.01", "0.0001")], (0, 0), (0, 0))
    speed = Fraction(1, 10**4)
    size = target_forward_size(line)
    best = Fraction(1 << 14, 1) / (Fraction(1, 100) + speed * (1 << 14))
    for tokens, enough in ((size, True), (size - 1, False)):
        assert (tokens / (Fraction(1, 100) + speed * tokens) >= Fraction(95, 100) * best) is enough


@pytest.mark.parametrize("trace", TRACES)
def test_the_suite_knows_what_can_be_sustained(trace: str) -> None:
    most = sustainable_rate(ecoserve_instance(trace, OPT_13B, requests=2_500))
    assert float(most) == pytest.approx(float(SUSTAINED[trace]), rel=0.05)
    names = [case.name for case in SUITES["ecoserve"](None)]
    assert len(names) == 12
    assert f"ecoserve-{trace}-x0.8" in names
    assert ecoserve_case(trace, Fraction(4, 5)).name == f"ecoserve-{trace}-x0.8"


@pytest.mark.parametrize(
    "wrong",
    [{"trace": "other"}, {"rate": Fraction(0)}, {"slo_scale": Fraction(0)}, {"error": -1.0}],
    ids=["trace", "rate", "scale", "error"],
)
def test_wrong_numbers_are_named(wrong: dict[str, object]) -> None:
    options: dict[str, object] = {"trace": "alpaca", "cost": OPT_13B, "requests": 3, **wrong}
    with pytest.raises(InputError):
        ecoserve_instance(**options)  # type: ignore[arg-type]
