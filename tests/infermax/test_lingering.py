"""The lingering bound: against optima of tiny instances at any prices and windows, and its certificate."""

from __future__ import annotations

import itertools
import json
import random
import time
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.deadline import Deadline
from infermax_opt.infermax.bounds import _lingering_search
from infermax_opt.infermax.bounds._lingering_windows import Window, present_in
from infermax_opt.infermax.bounds.interaction import InteractionProof, Kind, Prices, interaction_bound
from infermax_opt.infermax.bounds.lingering import LingeringProof, lingering_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import shown
from tests.infermax.test_pace import crowd, instance
from tests.support import certificate_to_json, check_evidence

ONE = 2**12
THETA = 2**10
#: Theta, cells of time, windows, shares.
Evidence = tuple[int, list[tuple[int, int]], list[int], list[int] | None]


def proof_of(of: Instance, rng: random.Random, piece: int = 0) -> LingeringProof | None:
    """For any unit and number of groups."""
    prices = Prices.of(of, piece)
    if prices is None:
        return None
    unit = int(rng.choice([0, 0.2, 0.7, 1, 3]) * rng.random() * prices.step**0.5 * ONE)
    return LingeringProof(of, prices, unit, rng.choice([1, 2, 8]))


def horizon(of: Instance, mean: Fraction) -> int:
    """Ticks after which a good schedule is over, and about as many more."""
    last = max(group.arrival for group in of.groups)
    return int((last + 2 * mean) * of.cost.ticks_per_second) + 8


def anything(proof: LingeringProof, span: int, rng: random.Random) -> Evidence:
    """Prices of time at random, on few cells or many; windows that are short, long, or just as expected."""
    few = sorted({rng.randint(1, span) for _ in range(rng.choice([1, 3, 8]))})
    ends = rng.choice([few, sorted({span * k // 80 + 1 for k in range(80)})])
    root = proof.prices.step**0.5 * ONE
    top, shape = rng.choice([0, 0.2, 0.5, 1, 2]) * rng.random() * root, rng.randint(0, 2)
    alone = [Window.of([0, *ends], kind, kind.lone, False) for kind in proof.kinds.values()]
    there = present_in(len(ends), [(1, window) for window in alone])
    roots = [int(top * (1, rng.random(), n)[shape]) for n in there[:-1]]
    far, way = rng.choice([0.3, 1, 4]), rng.randint(0, 3)
    stays = []
    for kind, rows in zip(proof.kinds.values(), proof.rows, strict=True):
        gains = 2 * int(top) * sum(row.gains for row in rows) // ONE**2
        expected = kind.lone - kind.later + sum(row.fixed for row in rows) + gains
        longer, until = kind.lone * (1 + far * rng.random()), span * rng.random()
        stays.append(int((expected, longer, until, rng.choice([expected, longer, until]))[way]))
    theta = rng.choice([THETA, 1000, 900, rng.randint(0, THETA)])
    cells = list(zip(ends, roots, strict=True))
    if not theta or rng.random() < 0.3:
        return theta, cells, stays, None
    least = rng.choice([theta, max(1, theta - 100), theta // 2 + 1, 1])
    return theta, cells, stays, [rng.choice([least, theta, rng.randint(least, theta)]) for _ in stays]


@in_blocks(campaign(36, 10_000), 60)
def test_nothing_proves_more_than_the_optimum(seeds: range) -> None:
    better = 0
    for seed in seeds:
        of, rng = instance(seed), random.Random(seed)
        if of.offline:
            continue
        found = staged_search(of)
        assert found.upper is not None
        for piece in range(len(of.cost.batch)):
            proof = proof_of(of, rng, piece)
            if proof is None:
                continue
            span = horizon(of, found.upper)
            alone = [kind.lone for kind in proof.kinds.values()]
            plain = proof.bound(THETA, [(span, 0)], alone)
            made = [proof.bound(*anything(proof, span, rng)) for _ in range(12)]
            for bound in [plain, *made]:
                assert bound.value <= found.upper, seed
                assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed
            better += max(bound.value for bound in made) > plain.value
    assert better > len(seeds) // 8


@in_blocks(campaign(14, 3_000), 12)
def test_the_best_prices_prove_no_more_than_the_optimum(seeds: range) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lingering_search, "CELLS", 40)
        patch.setattr(_lingering_search, "ROUNDS", 40)
        for seed in seeds:
            of = instance(seed)
            found = staged_search(of)
            assert found.upper is not None
            bound = lingering_bound(of)
            if bound is None:
                assert of.offline or not any(Prices.of(of, k) for k in range(len(of.cost.batch)))
                continue
            assert bound.value <= found.upper, seed
            assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed


@pytest.mark.parametrize("seed", range(8))
def test_with_the_least_windows_it_is_the_interaction_bound(seed: int) -> None:
    of, rng = instance(seed), random.Random(seed)
    prices = Prices.of(of, 0)
    if of.offline or prices is None:
        return
    proof = LingeringProof(of, prices, 0, 1)
    ends = sorted({rng.randint(1, 10**4) for _ in range(9)})
    cells = [(end, int(rng.random() * prices.step**0.5 * ONE)) for end in ends]
    kinds = [Kind.of(kind, of, prices) for kind in of.types]
    for theta in (0, 700, THETA):
        found = proof.bound(theta, cells, [kind.lone for kind in proof.kinds.values()])
        assert found.value == InteractionProof(of, prices, kinds, cells).bound(theta).value


def test_requests_that_decode_together_count_for_longer_than_alone() -> None:
    of = crowd()
    long = replace(of, groups=tuple(replace(group, input_tokens=10) for group in of.groups))
    plain, bound = interaction_bound(long), lingering_bound(long)
    assert plain is not None
    assert bound is not None
    assert bound.value > plain.value * Fraction(103, 100)
    assert check_evidence(long, bound) == bound.value
    evidence = bound.evidence or {}
    prices = Prices.of(long, 0)
    assert prices is not None
    proof = LingeringProof(long, prices, evidence["unit"], evidence["groups"])
    alone = [kind.lone for kind in proof.kinds.values()]
    assert all(stay > least for stay, least in zip(evidence["stays"][5:20], alone[5:20], strict=True))
    assert proof.bound(evidence["theta"], evidence["cells"], alone).value < bound.value


@pytest.mark.parametrize(("work", "later", "prompt"), [("0.1", 60, 9), ("0.3", 60, 9), ("0.1", 600, 102)])
def test_who_leaves_early_is_not_worth_more_than_it_was_there(work: str, later: int, prompt: int) -> None:
    """Two that do not meet: the optimum is what they take alone.  One counts beside the other's prompt."""
    tick = Fraction("0.00001")
    cost = CostModel([("0.10001", work)], ("0", "0"), ("0", "0"))
    gone = (Fraction("0.10001") + Fraction(work)) * (later + 1) + 2 * tick
    groups = RequestGroup("a", 1, later + 1), RequestGroup("b", prompt, 60, gone)
    of = Instance("early", groups, System(999, 999, 999), cost, Policy(), Objective.of("mean_e2e"))
    prices = Prices.of(of, 0)
    assert prices is not None
    early, late = (Kind.of(kind, of, prices) for kind in of.types)
    root, closest = prices.roots[2] - prices.roots[1], Fraction(0)
    lone = (early.lone + late.lone) * tick / 2
    # Its prompt, its later tokens; nobody; the prompt of the other, and its later tokens.
    ends = [early.lone - early.later, early.lone + 1]
    ends += [late.begin, late.begin + late.lone - late.later + 1, late.begin + late.lone + 1]
    for unit, share in itertools.product((0, root // 2, root, 2 * root), range(0, 61)):
        proof = LingeringProof(of, prices, unit, 64)
        cells = list(zip(ends, [0, root * share // 20, 0, 0, root], strict=True))
        for theta in (60, 300, 600, 900):
            bound = proof.bound(theta, cells, [ends[3], late.lone])
            assert bound.value <= lone
            closest = max(closest, bound.value / lone)
    assert closest > Fraction(98, 100)


def test_shares_of_its_own_for_each_request_prove_more_than_one_for_all() -> None:
    of = crowd()
    bound, prices = lingering_bound(of), Prices.of(of, 0)
    assert bound is not None
    assert prices is not None
    evidence = bound.evidence or {}
    proof = LingeringProof(of, prices, evidence["unit"], evidence["groups"])
    assert min(evidence["shares"]) < max(evidence["shares"]) == evidence["theta"]
    for share in range(1, evidence["theta"], 40):
        same = [share] * len(evidence["stays"])
        assert proof.bound(evidence["theta"], evidence["cells"], evidence["stays"], same).value < bound.value


def test_one_share_for_all_proves_as_much_said_or_not_where_windows_end_with_cells() -> None:
    of = crowd()
    prices = Prices.of(of, 0)
    assert prices is not None
    proof = LingeringProof(of, prices, 0, 4)
    kinds = list(proof.kinds.values())
    ends = sorted({kind.begin + 2 * kind.lone for kind in kinds})
    cells, stays = [(end, 1000 * k) for k, end in enumerate(ends)], [2 * kind.lone for kind in kinds]
    said = proof.bound(900, cells, stays, [900] * len(kinds))
    assert said.value == proof.bound(900, cells, stays).value
    assert check_evidence(of, said) == said.value


def test_the_search_ends_before_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lingering_bound(crowd(4))  # compiles
    monkeypatch.setattr(_lingering_search, "ROUNDS", 10**6)
    monkeypatch.setattr(_lingering_search, "PATIENCE", 10**6)
    begin = time.monotonic()
    bound = lingering_bound(crowd(), stop=Deadline(5))
    assert bound is not None
    assert time.monotonic() - begin < 5


def test_a_window_that_is_far_too_long_takes_back_what_it_gives() -> None:
    of = crowd()
    prices = Prices.of(of, 0)
    assert prices is not None
    proof = LingeringProof(of, prices, 0, 1)
    cells, alone = [(10**7, 0)], [kind.lone for kind in proof.kinds.values()]
    plain = proof.bound(THETA, cells, alone).value
    assert proof.bound(THETA, cells, [100 * one for one in alone]).value < plain


def test_checking_takes_so_many_steps_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lingering_search, "MAX_STEPS", 200)
    bound, of = lingering_bound(crowd()), crowd()
    assert bound is not None
    assert len({root for _, root in bound.evidence["cells"]}) <= 40  # type: ignore[index]
    assert check_evidence(of, bound) == bound.value


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("cells", [[5, 1], [5, 1]], "their ends do not rise"),
        ("cells", [[5, -1]], "a root is below 0"),
        ("cells", [[5]], "wrong length of a list"),
        ("stays", [0], "wrong length of a list"),
        ("stays", [-1] * 30, "one is below 0"),
        ("shares", [1], "wrong length of a list"),
        ("shares", [0] * 30, "one is not from 1 to theta"),
        ("shares", [THETA] * 30, "one is not from 1 to theta"),
        ("theta", THETA + 1, "theta"),
        ("unit", -1, "unit"),
        ("groups", 0, "groups"),
        ("groups", 10**6, "groups"),
    ],
)
def test_evidence_that_is_none(key: str, value: object, fault: str) -> None:
    of = crowd()
    bound = lingering_bound(of, stop=lambda: True)
    assert bound is not None
    evidence = {**(bound.evidence or {}), key: value}
    certificate = certificate_to_json(of, replace(bound, evidence=evidence))
    with pytest.raises(Rejected, match=fault):
        check(shown(of), json.loads(json.dumps(certificate)))


def test_chunks_may_be_free() -> None:
    """A piece without a fixed time, and none for prefill: prompts are split as often as one likes."""
    cost = CostModel([("0.01", "0"), ("0", "0.0001")], ("0.0003", "0.00000026"), ("0", "0.0000000015"))
    for of in (crowd(), crowd(2)):
        of = replace(of, cost=cost, groups=tuple(replace(g, input_tokens=100) for g in of.groups))
        bound = lingering_bound(of)
        assert bound is not None
        assert check_evidence(of, bound) == bound.value


def test_where_a_decode_takes_no_time_there_is_none() -> None:
    of = crowd()
    assert lingering_bound(replace(of, cost=CostModel([("0", "0.001")], ("0", "0"), ("0.5", "0")))) is None
    assert (
        lingering_bound(replace(of, groups=tuple(replace(g, arrival=Fraction(0)) for g in of.groups))) is None
    )
    assert lingering_bound(replace(of, policy=Policy(True, True, False))) is not None
