"""Metrics that are to be high: what they are, and what is asked with them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt import api
from infermax_opt.api.aims import asked
from infermax_opt.core.errors import InputError
from infermax_opt.core.readings import Quotient, Rest
from infermax_opt.core.result import Answer
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.readings import reading_of
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.metrics import RATES_LATER
from tests.gaps.fronts.test_fronts import slots

ORDER = ("b.1", "a.1", "b.2", "b.3", "a.2", "a.3", "a.4")


@pytest.fixture
def instance() -> Instance:
    """The closed loop, with best-effort requests of weight 3."""
    plain = slots()
    return replace(plain, groups=(plain.groups[0], replace(plain.groups[1], weight=3)))


@pytest.fixture
def schedule() -> Schedule:
    """Three best-effort requests by the horizon of four seconds, nobody else in time."""
    return Schedule("slots", tuple(Batch(tokens={name: 1}) for name in ORDER))


def test_rates_are_what_ends_by_the_horizon(instance: Instance, schedule: Schedule) -> None:
    metrics = api.verify(instance, schedule).metrics
    assert metrics.be_requests_per_second == Fraction(9, 4)
    assert metrics.be_tokens_per_second == Fraction(3, 4)
    for name in ("be_requests_per_second", "be_tokens_per_second", "attainment"):
        reading = reading_of(instance, name)
        assert isinstance(reading, Rest)
        low = getattr(metrics, reading.metric)
        assert reading.shown(low) == getattr(metrics, name)
        assert reading.limit(reading.shown(low), name) == low
    assert api.verify(replace(instance, horizon=None), schedule).metrics.be_tokens_per_second is None


def test_results_of_earlier_versions_lack_them(instance: Instance, schedule: Schedule) -> None:
    claim = api.solve(instance, time_limit=1, warm_start=schedule).claim()
    without = {name: value for name, value in claim.metrics.items() if name not in RATES_LATER}
    assert api.verify(instance, replace(claim, metrics=without)).ok
    without.pop("unserved")
    assert not api.verify(instance, replace(claim, metrics=without)).ok


def test_a_least_rate_is_asked(instance: Instance) -> None:
    of, target = asked(instance, at_least=["be_tokens_per_second=0.5", "attainment=0.25"])
    assert (of.objective.to_json(), target) == ({"at_most": {"missed": "3", "unserved_tokens": "2"}}, 1)
    assert asked(instance, at_least=["be_requests_per_second=1"])[1] == 8
    of, target = asked(instance, at_least=["attainment=0.5"])
    assert api.solve(of, time_limit=2, target=target).answer is Answer.NO
    with pytest.raises(InputError, match=r"at_least.be_requests_per_second: 3.5 is above 3"):
        asked(instance, at_least=["be_requests_per_second=3.5"])
    with pytest.raises(InputError, match=r"at_least.tokens_per_second: there are optional requests"):
        asked(instance, at_least=["tokens_per_second=1"])


def test_a_quotient_has_no_limit_at_0() -> None:
    assert Quotient("makespan", 6).limit(Fraction(3), "rate") == 2
    with pytest.raises(InputError, match="rate: 0 is not above 0"):
        Quotient("makespan", 6).limit(Fraction(0), "rate")
