"""Levels on cases checked by hand, their limits, their search, and certificates that are changed."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import _levels_full, _levels_space, levels
from infermax_opt.infermax.bounds.levels import Ladder, levels_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.bounds.state_flow import state_flow_bound
from infermax_opt.infermax.checker.levels import MOST_MEMBERS
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import one_in, size
from tests.infermax.occupancy_adversary import signed
from tests.infermax.test_many_bounds import submit
from tests.support import FLAT, PAPER, case, certificate_to_json, check_evidence, few


def proved(instance: Instance, *widths: int) -> LowerBound:
    """The bound on levels of these widths, each from the one before, its certificate accepted."""
    ladder = Ladder(instance, 0, widths[-1])
    for width in widths:
        ladder.climb(width, few(1000))
    bound = ladder.bound()
    assert bound is not None
    assert bound.proof is Proof.CERTIFICATE
    assert check_evidence(instance, bound) == bound.value
    return bound


def test_one_slot_is_exact_but_for_the_ends() -> None:
    """Where only one request fits, each takes O batches: 5 requests of 4 tokens take 20 batches."""
    instance = case(5, 8, 4, 11, cost=FLAT, preemption=False)
    for width in (1, 2, 4):
        value = proved(instance, width).value
        assert Fraction("19.99") - (width - 1) < value <= 20 - (width - 1)


def test_the_last_level_counts_the_tokens_that_there_are() -> None:
    """5 tokens on levels of 2 or 3: the last one has one or two."""
    instance = case(7, 8, 5, 12, cost=FLAT, preemption=False)
    for width in (2, 3):
        value = proved(instance, width).value
        assert Fraction("34.98") - (width - 1) < value <= 35 - (width - 1)


def test_no_more_requests_than_there_are() -> None:
    """Memory for hundreds serves two requests no faster: 9 batches, as few as one request takes."""
    assert Fraction("8.99") < proved(case(2, 2, 9, 1000, cost=FLAT), 1).value <= 9


def test_a_limit_of_running_requests() -> None:
    """One at a time, whatever fits: 3 requests of 4 tokens take 12 batches."""
    instance = replace(case(3, 2, 4, 100, cost=FLAT), system=System(100, 50, 50, 1))
    assert Fraction("10.99") < proved(instance, 2).value <= 11


def apart(d0: str, p0: str) -> CostModel:
    """Batches of 1 s, and what the first decode and the first prefill cost beside it."""
    return CostModel([("1", "0")], (d0, "0"), (p0, "0"))


@pytest.mark.parametrize(("d0", "p0"), [("0", "3"), ("2", "0"), ("2", "5")])
def test_batches_are_charged_in_full_on_levels_of_one_token(d0: str, p0: str) -> None:
    """Alone in memory a request has one batch of prefill, and 3 of decodes or, where it is evicted, refills.

    One of one token has neither.
    """
    alone, decode, prefill = Fraction("0.9999"), 1 + int(d0), 1 + int(p0)
    for preemption in (False, True):
        best = 5 * (prefill + 3 * (min(decode, prefill) if preemption else decode))
        value = proved(case(5, 8, 4, 11, cost=apart(d0, p0), preemption=preemption), 1).value
        assert alone * best < value <= best
        best = 3 * prefill
        value = proved(case(6, 4, 1, 8, cost=apart(d0, p0), preemption=preemption), 1).value
        assert alone * best < value <= best


@pytest.mark.parametrize(("d0", "p0"), [("1000000000", "0"), ("0", "1000000000")])
def test_costs_of_all_magnitudes(d0: str, p0: str) -> None:
    """A batch of 1 ms, and a decode or a prefill of 30 years: what is rounded to units stays within int64."""
    cost = CostModel([("0.001", "0")], (d0, "0"), (p0, "0"))
    instance = case(5, 8, 4, 11, cost=cost, preemption=False)
    best = 5 * (cost.batch[0][0] * 4 + 3 * int(d0) + int(p0))
    assert Fraction("0.9999") * best < proved(instance, 1).value <= best
    ladder = Ladder(instance, 0, 1)
    ladder.climb(2, few(1000))  # its blocks cost less than a unit
    assert ladder.bound() is None


def test_batches_that_cost_only_their_decodes() -> None:
    """Two at once: 12 decodes of 4 requests take 6 batches, and prefills nothing."""
    free = CostModel([("0", "0")], ("1", "0"), ("0", "0"))
    for widths in ((1,), (2, 1)):
        assert Fraction("5.99") < proved(case(4, 8, 4, 22, cost=free, preemption=False), *widths).value <= 6


def test_levels_of_one_token_are_the_state_flow() -> None:
    """Prefills count beside decodes there, too, and out prices need not fall."""
    instance = case(1024, 32, 32, 100)
    flow = state_flow_bound(instance)
    assert flow is not None
    assert flow.value * Fraction("0.9997") < proved(instance, 4, 2, 1).value <= flow.value


def test_narrower_levels_prove_more() -> None:
    """A verified schedule takes 51.3272 s; the occupancy bound proves 48.9167 s."""
    instance = case(1024, 128, 32, 1000)
    values = [proved(instance, *widths).value for widths in ((8,), (8, 4))]
    assert Fraction("47.6") < values[0] < Fraction("49.2") < values[1] < Fraction("51.3272")


def test_near_the_optimum() -> None:
    instance = case(4, 8, 3, 25, preemption=False)
    best = staged_search(instance).upper
    assert best is not None
    assert best * Fraction("0.999") <= proved(instance, 1).value <= best


def test_every_piece_is_tried() -> None:
    """Of two pieces, one that never binds and one that always does, the second counts."""
    slow = CostModel([("0.0001", "0"), ("1", "0")], ("0", "0"), ("0", "0"))
    for o in (4, 8):  # on one width, and on several
        *_, bound = levels_bounds(case(5, 3, o, 2 + o, cost=slow, preemption=False))
        assert bound.evidence is not None
        assert bound.evidence["piece"] == 1
        assert bound.value > 4 * o
        assert check_evidence(case(5, 3, o, 2 + o, cost=slow, preemption=False), bound) == bound.value


def test_none_where_it_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = (RequestGroup("a", 3, 9, count=3), RequestGroup("b", 6, 9, count=2))
    assert not list(levels_bounds(Instance("two", groups, System(30, 50, 50), PAPER)))
    assert not list(levels_bounds(case(1000, 10, 10, 1_000_000)))  # requests at once
    assert not list(levels_bounds(case(9, 10, 3, 40), stop=few(0)))
    monkeypatch.setattr(levels, "MAX_TOKENS", 100)
    assert not list(levels_bounds(case(9, 10, 3, 80)))  # levels of several tokens
    free = CostModel([("0", "1")], ("0", "1"), ("0", "1"))
    assert not list(levels_bounds(case(3, 2, 8, 20, cost=free)))
    assert not list(levels_bounds(case(3, 2, 8, 20), stop=few(0)))
    monkeypatch.setattr(levels, "MAX_TOKENS", 10**7)
    (*_, last) = levels_bounds(case(1, 10, 900, 2000))
    assert last.evidence is not None
    assert len(last.evidence["prices"]["worth"]) <= 400
    monkeypatch.setattr(levels, "MAX_STATES", 100)
    (*_, last) = levels_bounds(case(9, 8, 32, 60))
    assert last.evidence is not None
    assert len(last.evidence["potential"]) <= 100


def test_no_long_search_where_it_promises_nothing() -> None:
    instance = case(1024, 128, 32, 1000)
    first, *rest = levels_bounds(instance, above=Fraction(60), stop=few(2000))
    assert rest == []
    assert first.evidence is not None
    assert first.evidence["width"] == 4  # half of that would be tried


def test_the_checker_takes_as_many_states_as_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The more requests there may be at once, the fewer states."""
    assert levels.MAX_MEMBERS <= levels.MAX_TOKENS <= MOST_MEMBERS
    monkeypatch.setattr(levels, "MAX_TOKENS", 1000)
    monkeypatch.setattr(levels, "MAX_MEMBERS", 1000)
    instance = case(9, 8, 32, 60)
    *_, last = levels_bounds(instance)
    assert last.evidence is not None
    assert 50 < len(last.evidence["potential"]) <= 1000 // 7
    assert check_evidence(instance, last) == last.value


def test_arrivals_do_not_make_kinds() -> None:
    grouped = case(6, 4, 8, 30)
    late = tuple(RequestGroup(f"s{k}", 4, 8, Fraction(k, 10)) for k in range(6))
    assert list(levels_bounds(grouped)) == list(levels_bounds(replace(grouped, groups=late)))


def test_a_deadline_leaves_a_proved_bound() -> None:
    instance = case(32, 8, 16, 60)
    full = [*levels_bounds(instance, stop=few(4000))][-1].value
    for calls in (1, 3, 10, 40):
        for bound in levels_bounds(instance, stop=few(calls)):
            assert 0 < bound.value <= full
            assert check_evidence(instance, bound) == bound.value


def test_deadline_by_the_clock() -> None:
    list(levels_bounds(case(9, 8, 16, 60), stop=few(3)))  # compiles
    begin = time.monotonic()
    list(levels_bounds(case(1024, 128, 32, 1000), stop=lambda: time.monotonic() > begin + 1))
    assert time.monotonic() - begin < 8


def test_comes_where_there_are_too_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "MAX_STATES", 6000)
    found = list(searched_bounds(case(1024, 128, 32, 1000)))
    values = {bound.source: bound.value for bound in found}
    assert "state flow" not in values
    assert values["levels"] > values["occupancy"] > values["Lagrangian"]
    found = list(searched_bounds(case(32, 32, 32, 100), stop=few(300)))
    assert "levels" not in {bound.source for bound in found}


def test_comes_where_many_fit_for_few_tokens_each() -> None:
    """50 of 5 tokens and 4 at once: on levels of one token it proves 1.7 % more than occupancy."""
    found = {bound.source: bound for bound in searched_bounds(case(1024, 5, 4, 250))}
    assert "state flow" not in found
    assert found["levels"].value > Fraction("1.015") * found["occupancy"].value
    assert check_evidence(case(1024, 5, 4, 250), found["levels"]) == found["levels"].value
    short = {bound.source for bound in searched_bounds(case(60, 5, 4, 250))}
    assert "levels" not in short


@pytest.mark.parametrize("preemption", [False, True])
def test_plain_python_and_compiled_kernels_agree(preemption: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from infermax_opt.infermax.bounds import _kernels_levels as plain
    from infermax_opt.infermax.bounds import _kernels_levels_full as full
    from infermax_opt.infermax.bounds import _kernels_state_flow as flow

    instance = case(4, 2, 6, 13, preemption=preemption)
    monkeypatch.setattr(_levels_space, "is_tiny", lambda kinds: False)
    compiled, again = proved(instance, 2, 1), proved(instance, 2, 1)
    functions = flow.listed, plain.link, plain.settle, plain.weigh, plain.rounded
    monkeypatch.setattr(_levels_space, "kernels", lambda small: functions)
    monkeypatch.setattr(_levels_full, "kernels", lambda small: (full.settle, full.weigh))
    interpreted = proved(instance, 2, 1)
    assert compiled == interpreted == again
    assert compiled.evidence == interpreted.evidence == again.evidence


# --- certificates that are changed --------------------------------------------------------------


CHANGED = {
    "wide": (case(5, 3, 6, 14), 2),
    "a last level of one token": (case(4, 2, 7, 15), 3),
    "narrow": (case(4, 2, 4, 9), 1),
    "kept": (case(4, 2, 6, 13, preemption=False), 2),
    "in full": (case(4, 2, 4, 9, cost=apart("0.25", "0.5")), 1),
    "of one token": (case(5, 2, 1, 5, cost=apart("0.5", "0.25")), 1),
}


@pytest.mark.parametrize("name", CHANGED)
def test_changed_prices_prove_nothing_false(name: str) -> None:
    instance, width = CHANGED[name]
    best = staged_search(instance).upper
    bound = proved(instance, width)
    assert best is not None
    assert bound.value <= best
    original = certificate_to_json(instance, bound)
    worth, refused = original["evidence"]["prices"]["worth"], 0
    for place in range(len(worth) + 1):
        for change in (sign * 10**power for power in one_in(2, range(10)) for sign in (1, -1)):
            mutant = copy.deepcopy(original)
            prices = mutant["evidence"]["prices"]
            prices.setdefault("idle", 0)  # where it is nothing, it stands for nothing
            if place < len(worth):
                prices["worth"][place] += change
            else:
                prices["idle"] += change
            for claim in (bound.value, bound.value + Fraction(1, 10**20), best + Fraction(1, 10**20)):
                mutant["lower_bound"] = f"{claim.numerator}/{claim.denominator}"
                refused += judged(instance, mutant, best)
    assert refused > size(30, 60)


def judged(instance: Instance, mutant: dict[str, Any], best: Fraction) -> bool:
    """Whether a changed certificate is refused; what is accepted must be true."""
    from infermax_opt.infermax.checker import Rejected

    try:
        assert submit(instance, signed(mutant)) <= best
    except Rejected:
        return True
    return False


@pytest.mark.parametrize("name", CHANGED)
def test_every_potential_matters(name: str) -> None:
    """Raised far, lowered far, or called unreached: some step breaks."""
    instance, width = CHANGED[name]
    original = {**certificate_to_json(instance, proved(instance, width)), "lower_bound": "0"}
    values = original["evidence"]["potential"]
    for index, value in enumerate(values):
        for new in (None, value + 10**15, value - 10**15) if value is not None else ():
            mutant = copy.deepcopy(original)
            mutant["evidence"]["potential"][index] = new
            assert judged(instance, mutant, Fraction(0)), (index, new)
    for wrong in ([], values[:-1], [*values, 0], values * 1000, None, 0, [None] * len(values)):
        assert judged(
            instance, {**original, "evidence": {**original["evidence"], "potential": wrong}}, Fraction(0)
        )


@pytest.mark.parametrize("name", CHANGED)
def test_a_certificate_of_another_width_or_instance(name: str) -> None:
    instance, width = CHANGED[name]
    original = {**certificate_to_json(instance, proved(instance, width)), "lower_bound": "0"}
    for wrong in (0, -1, width + 1, width + 2, 10**17, "2.5", None, True, [width]):
        assert judged(
            instance, {**original, "evidence": {**original["evidence"], "width": wrong}}, Fraction(0)
        )
    kinds = replace(instance, groups=(*instance.groups, RequestGroup("z", 1, 1)))
    other = {**certificate_to_json(kinds, proved(instance, width)), "lower_bound": "0"}
    assert judged(kinds, other, Fraction(0))


def test_what_is_said_of_charging_in_full() -> None:
    """Only levels of one token can be; without it prices of idling are needed, and more is demanded."""
    instance, width = CHANGED["wide"]
    wide = {**certificate_to_json(instance, proved(instance, width)), "lower_bound": "0"}
    alike = {**wide["evidence"], "full": False}
    assert not judged(instance, {**wide, "evidence": alike}, Fraction(0))
    assert judged(instance, {**wide, "evidence": {**alike, "full": True}}, Fraction(0))
    instance, width = CHANGED["in full"]
    full = {**certificate_to_json(instance, proved(instance, width)), "lower_bound": "0"}
    evidence = full["evidence"]
    assert evidence["full"] is True
    assert "idle" not in evidence["prices"]
    idle = {**evidence, "prices": {**evidence["prices"], "idle": 0}}
    assert not judged(instance, {**full, "evidence": idle}, Fraction(0))
    for wrong in (False, None, 1, "true", [True]):
        assert judged(instance, {**full, "evidence": {**idle, "full": wrong}}, Fraction(0))
    del idle["full"]
    assert judged(instance, {**full, "evidence": idle}, Fraction(0))


def test_what_dearer_batches_or_fewer_returns_prove() -> None:
    """Each sort of batch and of return is looked at: without it more would be proved, and is refused."""
    cost = CostModel([("1", "0.25")], ("0.5", "0.125"), ("0.25", "0"))
    instance = case(4, 2, 4, 9, cost=cost)
    best, policy = staged_search(instance).upper, instance.policy
    assert best is not None
    dearer = (
        replace(instance, cost=replace(cost, decode=(Fraction(3), Fraction(1, 8)))),
        replace(instance, cost=replace(cost, prefill=(Fraction(3), Fraction(0)))),
        replace(instance, policy=replace(policy, preemption=False)),
        replace(instance, policy=replace(policy, chunked_prefill=False)),
        replace(instance, system=replace(instance.system, kv_capacity=8)),
    )
    refused = 0
    for other in (instance, *dearer):
        bound = proved(other, 1)
        for claim in (Fraction(0), bound.value, best + Fraction(1, 10**20)):
            mine = replace(bound, value=claim)
            refused += judged(instance, certificate_to_json(instance, mine), best)
    assert refused >= 14
