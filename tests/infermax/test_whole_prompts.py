"""Paths backwards with whole prompts against every choice of start rounds, and their certificates."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds import _backwards_prompts
from infermax_opt.infermax.bounds._backwards_prompts import PromptPaths
from infermax_opt.infermax.bounds._backwards_search import BackwardPaths, Prices, Start, Timing
from infermax_opt.infermax.bounds._backwards_states import Relaxation, linked_relaxations, relaxations
from infermax_opt.infermax.bounds.backwards import _bound, backwards_bounds
from infermax_opt.infermax.checker import Rejected, check, relaxed_paths, whole_prompts
from infermax_opt.infermax.data.instance import Instance
from tests.campaign import campaign, in_blocks
from tests.infermax.test_backwards import AIMS, CASE, in_rounds, least_latency
from tests.infermax.test_latency_certificates import altered, shown
from tests.support import certificate_to_json, check_evidence, few


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for few nodes, which takes less time to clear."""
    monkeypatch.setattr(_backwards_prompts, "LAYER", 400)


def ends_of(of: Instance, best: Fraction) -> Fraction:
    """Rounds of all latencies and arrivals of a schedule."""
    return (best * len(of.requests) + sum(r.arrival for r in of.requests)) / of.cost.seconds.alpha[0]


def accepted(of: Instance, bound: LowerBound) -> bool:
    """Whether the checker accepts a bound."""
    try:
        return check_evidence(of, bound) == bound.value
    except CertificateRejected as error:
        if "limit: a path costs less" in str(error):
            return False
        raise


def some_prices(paths: BackwardPaths, rng: random.Random) -> Prices:
    """Prices about when requests end, and of leaving."""
    timing, classes = paths.timing, len(paths.relaxation.exits)
    most = rng.choice([timing.unit, 6 * timing.unit])
    around = np.rint(rng.choice([0.5, 0.7, 1]) * timing.prices * timing.unit).astype(np.int64)
    kinds = np.maximum(0, around + np.array([rng.randint(-most, most) for _ in around]))
    exits = [[rng.randint(0, most) for _ in range(timing.rounds + 1)] for _ in range(classes)]
    return paths.within(kinds, np.array(exits, np.int64).reshape(classes, timing.rounds + 1))


@in_blocks(campaign(18, 2_000, first=7000), 30)
def test_no_prices_and_no_limit_say_too_much(seeds: range) -> None:
    """What the search says is what the checker says, to a unit."""
    ended = held = 0
    for seed in seeds:
        of, rng = in_rounds(seed), random.Random(seed)
        timing, total = Timing.of(of), ends_of(of, least_latency(of))
        every: list[Relaxation] = [*linked_relaxations(of), *relaxations(of)]
        for relaxation in rng.sample(every, min(2, len(every))):
            paths = BackwardPaths(relaxation, timing)
            prompts, near = PromptPaths(paths), rng.randint(0, 3)
            prices = some_prices(paths, rng)
            base = paths.least(prices.kinds.tolist(), prices.exits.tolist())
            limit = base + rng.choice([0, 1, timing.unit, int(total) * timing.unit])
            found, seen = prompts.below(prices, limit, near)
            assert found is not None
            assert base <= found <= limit, seed
            assert found <= total * timing.unit, seed
            bound = _bound(of, paths, found, prices, near=near)
            if bound.value < 0:  # far too high prices
                continue
            assert accepted(of, bound), seed
            more = _bound(of, paths, found + 1, prices, near=near)
            if seen is not None:
                assert not accepted(of, more), seed
            ended, held = ended + (seen is not None), held + (seen is None)
    assert ended > len(seeds) / 4
    assert held > len(seeds) / 4


@in_blocks(campaign(9, 1_000, first=9000), 30)
def test_whole_prompts_are_worth_more_than_their_relaxation(seeds: range) -> None:
    """They are certified, never too much, and often all that there is."""
    better = tight = 0
    for seed in seeds:
        of = in_rounds(seed)
        best, last = least_latency(of), None
        *_, coarse = backwards_bounds(of, whole=False)
        for last in backwards_bounds(of):
            assert last.value <= best, seed
        assert last is not None
        assert check_evidence(of, last) == last.value >= coarse.value, seed
        better, tight = better + (last.value > coarse.value), tight + (last.value > best * Fraction(99, 100))
    assert better > len(seeds) / 15, better
    assert tight > len(seeds) / 3, tight


def whole_bounds(of: Instance) -> list[LowerBound]:
    """One with whole prompts, of each relaxation with prices of leaving."""
    timing, bounds = Timing.of(of), []
    for relaxation in linked_relaxations(of):
        paths = BackwardPaths(relaxation, timing)
        least, prices = paths.search(Start(timing.prices, {}), AIMS, few(60))
        *_, (value, found, near) = [(least, prices, 1), *PromptPaths(paths).search(least, prices, few(20))]
        bounds.append(_bound(of, paths, value, found, near=near))
    return bounds


@pytest.mark.parametrize("seed", campaign(5, 100, first=11000))
def test_altered_evidence_never_proves_what_is_false(seed: int) -> None:
    of, rng = in_rounds(seed), random.Random(seed)
    best = least_latency(of)
    false = int(ends_of(of, best) * Timing.of(of).unit) + 1
    for bound in whole_bounds(of):
        evidence = dict(bound.evidence or {})
        for other in [*altered(evidence, rng), *altered({**evidence, "limit": false}, rng)]:
            claim = replace(bound, value=best * (1 + Fraction(1, 10**9)), evidence=other)
            with pytest.raises(Rejected):
                check(shown(of), json.loads(json.dumps(certificate_to_json(of, claim))))


def test_limits_that_are_none_are_refused() -> None:
    bounds = whole_bounds(CASE)
    assert bounds
    for bound in bounds:
        evidence = dict(bound.evidence or {})
        for key, value in (("limit", -1), ("limit", 1.5), ("near", -1), ("near", None), ("unit", 2**11)):
            claim = replace(bound, value=Fraction(0), evidence={**evidence, key: value})
            with pytest.raises(Rejected, match=key):
                check(shown(CASE), json.loads(json.dumps(certificate_to_json(CASE, claim))))
        del evidence["near"]
        claim = replace(bound, value=Fraction(0), evidence=evidence)
        with pytest.raises(Rejected, match="near"):
            check(shown(CASE), json.loads(json.dumps(certificate_to_json(CASE, claim))))


def test_checking_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs to go that are too many are refused before the first; paths are counted one by one."""
    of = in_rounds(11005)
    *_, bound = whole_bounds(of)
    monkeypatch.setattr(relaxed_paths, "MAX_CELLS", 10)
    with pytest.raises(CertificateRejected, match="too many states and rounds"):
        check_evidence(of, bound)
    monkeypatch.undo()
    monkeypatch.setattr(whole_prompts, "WAY_STEPS", 10**9)
    with pytest.raises(CertificateRejected, match="takes more than 70000000 steps to check, the limit"):
        check_evidence(of, bound)
