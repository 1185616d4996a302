"""The highest rate that machines sustain: proofs that hold from a rate on, against exhaustive optima."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.files.arrivals import COMPRESSED_UNIT
from infermax_opt.fleet.bounds.pooled import pooled_bound, pooled_bounds
from infermax_opt.fleet.checker.certificate import least_machines, machines_from
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.sustains import CLOSE, sustained
from tests.campaign import campaign, in_blocks
from tests.fleet.test_pooled import random_proofs, steady
from tests.fleet.test_upper import stream
from tests.fleet.tiny import fewest, tiny_fleet
from tests.infermax.vector_oracle import TooMany


def faster(question: FleetQuestion, rate: Fraction) -> FleetQuestion:
    """The same with all arrivals divided by a rate, rounded as those of a trace are."""
    groups = tuple(
        replace(g, arrival=round(g.arrival / rate / COMPRESSED_UNIT) * COMPRESSED_UNIT)
        for g in question.workload.groups
    )
    return FleetQuestion(replace(question.workload, groups=groups), question.share)


@in_blocks(campaign(24, 2_000), 40)
def test_a_proof_holds_at_every_higher_rate(seeds: range) -> None:
    above = weaker = 0
    for seed in seeds:
        question, rng = tiny_fleet(seed), Random(seed)
        certificate = pooled_bound(question).certificate
        rates = [Fraction(1), Fraction(rng.randint(11, 30), 10), Fraction(1000)]
        try:
            best = [fewest(faster(question, rate)) for rate in rates]
        except TooMany:
            continue
        for proof in (certificate, *random_proofs(certificate, rng)):
            proved = machines_from(json.loads(json.dumps(proof)))
            now = least_machines(proof)
            assert (proved == NEVER) == (now == NEVER)
            if isinstance(proved, int) and isinstance(now, int):
                assert proved <= now
                assert all(some is None or proved <= some for some in best), (seed, proved, best)
                above += proved > 1
                weaker += proved < now
            else:
                assert best == [None] * len(rates), seed
    # Some hold only while arrivals keep needs apart.
    assert above or 0 not in seeds
    assert weaker or 0 not in seeds


def test_who_arrives_together_does_so_at_every_rate() -> None:
    certificate = pooled_bound(steady(20)).certificate
    assert machines_from(certificate) == 4
    with pytest.raises(Rejected, match="schema"):
        machines_from({**certificate, "schema": "x"})
    with pytest.raises(Rejected, match="malformed"):
        machines_from({**certificate, "requests": [7]})


def test_both_rates_of_a_stream() -> None:
    question = stream(3, 60)
    found = sustained(lambda rate: faster(question, rate), 2, Fraction(1), ("sarathi",))
    assert found.lower is not None
    assert found.upper is not None
    assert found.found is not None
    assert found.found.machines == 2
    assert found.found.replay.keeps(faster(question, found.lower))
    assert found.lower < found.upper
    assert machines_from(found.certificate) > 2  # type: ignore[operator]
    # No longer proved a little below.
    below = next(pooled_bounds(faster(question, found.upper / CLOSE**2))).certificate
    assert machines_from(below) <= 2  # type: ignore[operator]


def test_what_every_rate_allows() -> None:
    question = steady(4)
    found = sustained(lambda rate: faster(question, rate), 1, Fraction(1), ("sarathi",))
    assert found.lower is not None
    assert found.lower > 1000
    assert found.upper is None
    # More machines than requests are no better, and take no longer.
    many = sustained(lambda rate: faster(question, rate), 10**9, Fraction(1), ("sarathi",))
    assert (many.machines, many.upper) == (10**9, None)
    assert many.lower is not None
    assert many.lower >= found.lower
    assert many.found is not None
    assert many.found.machines <= 4
    never = sustained(lambda rate: faster(steady(3, ttft="0.05"), rate), 1, Fraction(1), ("sarathi",))
    assert never.lower is None
    assert never.upper is not None
    assert never.upper < Fraction(1, 1000)
