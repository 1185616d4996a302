"""Figures by class, against counts by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.classes import CLASS_DEFINITIONS, class_figures

#: One second a batch.
COST = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
GROUPS = (
    RequestGroup("a", 2, 3, class_name="rt", slo={"ttft": "1", "tpot": "1.5", "e2e": "4"}),
    RequestGroup("b", 2, 3, class_name="rt", slo={"ttft": "1", "tpot": "1.5"}),
    RequestGroup("c", 2, 2, 1, class_name="be", optional=True),
)
INSTANCE = Instance("three", GROUPS, System(99, 99, 99), COST)
#: Tokens: a at 1, 3 and 4 s; b at 2, 3 and 4 s; c at 3 and 5 s.
SCHEDULE = Schedule(
    "three",
    (
        Batch({"a": 2}),
        Batch({"b": 2}),
        Batch({"a": 1, "b": 1, "c": 2}),
        Batch({"a": 1, "b": 1}),
        Batch({"c": 1}),
    ),
)


def test_figures() -> None:
    real_time, best_effort = class_figures(INSTANCE, SCHEDULE)
    assert dict(real_time.items()) == {
        "name": "rt",
        "requests": 2,
        "done": 2,
        "attainment": Fraction(1, 2),
        "ttft_attainment": Fraction(1, 2),
        "tpot_attainment": 1,
        "e2e_attainment": 1,
        "token_attainment": Fraction(3, 4),  # a waits 2 s for its second token
        "mean_normalised_latency": Fraction(4, 3),
        "queueing_share": Fraction(1, 4),
        "tokens_per_second": Fraction(6, 5),
        "requests_per_second": Fraction(2, 5),
    }
    assert (best_effort.attainment, best_effort.token_attainment) == (None, None)
    assert best_effort.queueing_share == Fraction(1, 2)
    assert [name for name, _ in best_effort.items()] == list(CLASS_DEFINITIONS)


@pytest.mark.parametrize(
    ("horizon", "done", "attained", "tokens"), [(5, 2, 0.5, 8), (4, 2, 0.5, 7), (3, 0, 0, 5), (0, 0, 0, 0)]
)
def test_only_what_ends_by_the_horizon_counts(horizon: int, done: int, attained: float, tokens: int) -> None:
    found = class_figures(replace(INSTANCE, horizon=horizon), SCHEDULE)
    assert (found[0].done, found[0].attainment) == (done, attained)
    made = [figures.tokens_per_second for figures in found]
    assert made == [None, None] if horizon == 0 else sum(made) == Fraction(tokens, horizon)


def test_a_wrong_schedule_has_none() -> None:
    with pytest.raises(ValueError, match="breaks a rule"):
        class_figures(INSTANCE, Schedule("three", ()))
