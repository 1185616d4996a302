"""Forecasts of workers, groups of schedulers, and prefill workers."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.cluster.forecast import fit_forecast, least_rate
from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.policies.grouped import Grouped, extra_workers, plan_groups, rate_within
from infermax_opt.cluster.prefill import prefill_series, prefill_stream
from infermax_opt.cluster.replay.check import check_stream
from infermax_opt.cluster.replay.replay import replay_stream
from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.instance import Slo, Worker
from infermax_opt.placement.data.schedule import Placement
from tests.campaign import campaign
from tests.cluster.oracle import tight_stream


def pairs(*values: tuple[object, object]) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(str(rate)), Fraction(str(workers))) for rate, workers in values]


def test_an_exact_line_is_found() -> None:
    found = fit_forecast(pairs((10, 6), (20, 11), ("35", "18.5")))
    assert (found.slope, found.intercept, found.r_squared) == (Fraction(1, 2), 1, 1)
    assert found.workers(Fraction(20)) == 11
    assert found.workers(Fraction("20.1")) == 12
    # 18.5 is rounded up.
    assert (found.max_error, found.mean_error, found.short) == (Fraction(1, 2), Fraction(1, 6), 0)


def test_least_squares_are_those_of_numpy() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        given = pairs(*((r, r // 3 + rng.randint(1, 5)) for r in rng.sample(range(1, 100), 8)))
        found = fit_forecast(given)
        rates, workers = (np.array([float(pair[k]) for pair in given]) for k in (0, 1))
        slope, intercept = np.polyfit(rates, workers, 1)
        assert float(found.slope) == pytest.approx(slope)
        assert float(found.intercept) == pytest.approx(intercept)
        assert found.r_squared is not None
        assert float(found.r_squared) == pytest.approx(np.corrcoef(rates, workers)[0, 1] ** 2)
        misses = [math.ceil(found.slope * r + found.intercept) - w for r, w in given]
        assert found.short == sum(miss < 0 for miss in misses)
        assert found.max_error == max(map(abs, misses))


def test_rates_for_which_eq_7_does_not_speak() -> None:
    found = fit_forecast(pairs((1, 9), (5, 9), (10, 6), (20, 11)), least_rate=Fraction(5))
    assert (found.points, found.left_out, found.slope) == (2, 2, Fraction(1, 2))
    with pytest.raises(InputError, match="rate: 5 requests/s is not above 5, the R of eq 7"):
        found.workers(Fraction(5))
    with pytest.raises(InputError, match="1 of 2 pairs have a rate above R = 5"):
        fit_forecast(pairs((1, 9), (10, 6)), least_rate=Fraction(5))
    with pytest.raises(InputError, match=r"pairs\[1\].workers: 0 is not above 0"):
        fit_forecast(pairs((1, 9), (10, 0)))
    assert fit_forecast(pairs((1, 9), (10, 9))).r_squared is None


def test_least_rate_is_where_the_standard_error_is_as_tolerated() -> None:
    inputs, outputs = [100, 300, 20, 900], [50, 60, 70]
    rate = least_rate([inputs, outputs], Fraction("0.5"), Fraction("0.1"))
    requests = float(rate) * 0.5
    sem = np.std(inputs) / math.sqrt(requests)
    assert sem == pytest.approx(0.1 * np.mean(inputs))
    assert least_rate([outputs], Fraction("0.5"), Fraction("0.1")) < rate
    assert least_rate([[5, 5]], Fraction(1), Fraction("0.1")) == 0
    with pytest.raises(InputError, match="error: 0 is not above 0"):
        least_rate([inputs], Fraction(1), Fraction(0))
    with pytest.raises(InputError, match="holds no request"):
        least_rate([inputs, []], Fraction(1), Fraction(1))


def test_plans_of_groups() -> None:
    tenth = Fraction("0.1")
    # The paper's example: five workers a group for 10 %.
    plan = plan_groups(Fraction(100), 20, error=tenth, rate_limit=Fraction(25))
    assert (plan.groups, plan.rate, plan.workers, plan.extra) == (4, 25, 5, tenth)
    alone = plan_groups(Fraction(100), 2, error=tenth, rate_limit=Fraction(100))
    assert (alone.groups, alone.extra) == (1, 0)
    with pytest.raises(InputError) as caught:
        plan_groups(Fraction(100), 19, error=tenth, rate_limit=Fraction(25))
    assert str(caught.value) == (
        "groups: 100 requests/s need 4 groups, as one scheduler places 25 requests/s in time; but 19 workers "
        "make 3 at most, as with 0.1 extra workers each must have 5"
    )
    with pytest.raises(InputError, match="rate_limit: 0 is not above 0"):
        plan_groups(Fraction(100), 19, error=tenth, rate_limit=Fraction(0))


def test_plans_are_the_fewest_groups_that_keep_both_limits() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        rate, workers = Fraction(rng.randint(1, 200)), rng.randint(1, 60)
        error, most = Fraction(rng.randint(1, 40), 100), Fraction(rng.randint(1, 100))
        right = [
            groups for groups in range(1, 201)
            if rate / groups <= most and (groups == 1 or workers // groups >= 1 / (2 * error))
        ]  # fmt: skip
        try:
            plan = plan_groups(rate, workers, error=error, rate_limit=most)
        except InputError:
            assert not right
        else:
            assert plan.groups == right[0]
            assert plan.extra <= error


def test_rate_within_a_latency_limit() -> None:
    measured = pairs((30, "0.06"), (10, "0.01"), (20, "0.05"), (40, "0.04"))
    assert rate_within(measured, Fraction("0.05")) == 20
    with pytest.raises(InputError, match=r"latency: no measured rate was placed within 0.005 s"):
        rate_within(measured, Fraction("0.005"))


def test_groups_place_within_the_limits_on_their_own_workers() -> None:
    fewer, more, seeds = 0, 0, campaign(44, 150)
    for seed in seeds:
        stream = tight_stream(random.Random(seed), requests=10)
        try:
            one = replay_stream(stream, make_policy("grouped", groups=1))
        except InputError:
            continue
        assert one.worker == replay_stream(stream, make_policy("aladdin")).worker
        for groups in (2, 3):
            replay = replay_stream(stream, Grouped(groups))
            assert all((k - (worker - 1)) % groups == 0 for k, worker in enumerate(replay.worker))
            workers = {r.id: w for r, w in zip(stream.requests, replay.worker, strict=True)}
            assert check_stream(stream, Placement(stream.name, workers)).ok
            extra = extra_workers(stream, groups)
            assert extra.mean * len(replay.beats) == sum(beat.workers for beat in replay.beats)
            more += extra.share > 0
            fewer += extra.share < 0
    assert more > len(seeds) / 3 > fewer
    with pytest.raises(InputError, match="groups: 0 is not between 1"):
        Grouped(0)
    with pytest.raises(InputError, match="groups: grouped needs a number of groups"):
        make_policy("grouped")


def prompts(*requests: tuple[str, int]) -> Stream:
    """Prefill of 0.01 s a token and 0.1 s, within 1 s: 90 tokens; KV, decoding and theta would never do."""
    return Stream(
        "prompts",
        tuple(StreamRequest(f"r{k}", Fraction(a), tokens, 9, 9) for k, (a, tokens) in enumerate(requests)),
        Worker(*map(Fraction, (100, 1, 0, "0.01", "0.1", 1, 1, 1))),
        Slo(Fraction(1), Fraction(1)),
        theta=Fraction(1, 10),
        heartbeat=Fraction("0.5"),
        split_phase=True,
    )


def test_prompts_are_packed() -> None:
    # Best-fit would put 40 and 30 together, and 50 and 60 apart from them and each other.
    series = prefill_series(prompts(("0", 40), ("0", 30), ("0", 50), ("0", 60)))
    assert [(beat.lower, beat.upper) for beat in series.beats] == [(2, 2)]
    assert series.metrics.late_ttft == 0
    assert series.metrics.p99_ttft == 1
    # At 0.5 s, the first has 0.5 s to go and so room for 40 tokens; at 1 s, all are free again.
    series = prefill_series(prompts(("0", 90), ("0.5", 40), ("0.5", 41), ("1.5", 5)))
    assert [(beat.lower, beat.upper) for beat in series.beats] == [(1, 1), (2, 2), (2, 2), (1, 1)]
    with pytest.raises(InputError, match=r"'r0' fits on no worker: limit c, prefill"):
        prefill_series(prompts(("0", 91)))


def test_prefill_workers_keep_ttft() -> None:
    for seed in range(100):
        stream = replace(tight_stream(random.Random(seed), requests=9), split_phase=True)
        try:
            series = prefill_series(stream)
        except InputError:
            continue
        assert check_stream(prefill_stream(stream), series.placement).ok
        assert series.metrics.late_ttft == 0
        assert all(beat.any_policy <= beat.lower <= beat.upper for beat in series.beats)
