"""The pace bound: against optima of tiny instances at any prices of time, and its certificate."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import _pace_search, _pace_spot
from infermax_opt.infermax.bounds._pace_search import Prices, first_prices, good_prices
from infermax_opt.infermax.bounds._pace_spot import spot_prices
from infermax_opt.infermax.bounds.pace import ONE, PaceProof, pace_bound
from infermax_opt.infermax.bounds.pieces import best_piece, better_pieces
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.requests import ServiceLevel
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import shown
from tests.infermax.test_mutual import TICK, company
from tests.infermax.waiting import waiting
from tests.support import certificate_to_json, check_evidence


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short searches."""
    for key, value in (("CELLS_OF_ALL", 0), ("CELLS", 100), ("ROUNDS", 40), ("MOST_STEPS", 200)):
        monkeypatch.setattr(_pace_search, key, value)
    monkeypatch.setattr(_pace_spot, "STEPS", 60)


def tight(seed: int) -> Instance:
    """Requests that come together on a memory for the largest and little more; batches cost most."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.8, rng.random() < 0.5, rng.random() < 0.5)
    # Where refills cost much, KV has a price although requests may be evicted.
    inputs, most = (1, (2, 2, 1, 2, 30)) if policy.preemption else (3, (2, 2, 1, 2, 1))
    beta, d0, d1, p0, p1 = (str(float(TICK * rng.randint(0, some))) for some in most)
    pieces = [(str(float(TICK * rng.randint(2, 9))), beta)]
    cost = CostModel(pieces, (d0, d1), (p0, p1), rng.choice(["square", "exact"]))
    block, span = rng.choice([1, 1, 2, 3]), rng.choice([3, 15])
    groups = tuple(
        RequestGroup(
            f"q{k}", rng.randint(1, inputs), rng.randint(2, 5), TICK * rng.randint(0, span) * (k > 0)
        )
        for k in range(rng.choice([2, 3, 3]))
    )
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    system = System(peak + rng.choice([0, 0, 1, block]), 50, rng.choice([50, 4]), None, block)
    return Instance(f"tight-{seed}", groups, system, cost, policy, Objective.of("mean_e2e"))


def instance(seed: int) -> Instance:
    """One where it may be worth waiting, or one where requests delay each other; arrivals in both."""
    if seed % 3 == 0:
        return replace(waiting(seed), objective=Objective.of("mean_e2e"))
    return company(seed) if seed % 6 == 1 else tight(seed)


def dear(seed: int) -> Instance:
    """One in which whatever prefills, or decodes, may take long; some come between two ticks."""
    of, rng = instance(seed), random.Random(seed)
    (d0, d1), (p0, p1) = of.cost.decode, of.cost.prefill
    d0, p0 = (TICK * rng.choice([0, 5, 40]) + own for own in (d0, p0))
    cost = replace(of.cost, decode=(d0, d1), prefill=(p0, p1))
    late = [TICK * Fraction(rng.choice([0, 1, 37, 99]), 100) for _ in of.groups]
    groups = (replace(g, arrival=Fraction(g.arrival) + some) for g, some in zip(of.groups, late, strict=True))
    return replace(of, cost=cost, groups=tuple(groups))


def burst(seed: int) -> Instance:
    """Short requests that come nearly at once, more work than time: the price of a moment counts most."""
    rng = random.Random(seed)
    few = rng.choice([3, 4, 5, 6])
    groups = tuple(
        RequestGroup(f"q{k}", rng.choice([1, 1, 2]), 1 if few > 4 else rng.choice([1, 1, 2, 3]), late)
        for k, late in enumerate(sorted(TICK * rng.choice([0, 0, 1, 3, 20]) for _ in range(few)))
    )
    alpha, beta, d0, d1, p0, p1 = (TICK * rng.randint(0, some) for some in (1, 20, 3, 3, 2, 3))
    cost = CostModel([(alpha + TICK, beta + TICK)], (d0, d1), (p0, p1), rng.choice(["square", "exact"]))
    policy = Policy(rng.random() < 0.8, rng.random() < 0.3, rng.random() < 0.3)
    system = System(rng.choice([5, 8, 30]), rng.choice([2, 4, 50]), 50, None, 1)
    return Instance(f"burst-{seed}", groups, system, cost, policy, Objective.of("mean_e2e"))


def any_prices(proof: PaceProof, span: int, rng: random.Random) -> Prices:
    """Prices at random: of any size, on few cells, rising, falling, or all the same."""
    ends = sorted({rng.randint(1, span) for _ in range(rng.randint(1, 8))})
    top, rent = rng.choice([0, 0.2, 0.5, 1, 2]), rng.choice([0, 0.3, 1, 5, 30])
    same = rng.random()

    def share() -> float:
        return same if rng.random() < 0.5 else rng.random()

    roots = [int(ONE * top * share()) for _ in ends]
    rents = [int(ONE * ONE * rent * share()) for _ in ends]
    own = [int(ONE * top * rng.choice([same, rng.random(), 2])) for _ in proof.counts]
    high = rng.choice([0.5, 1, 1, 2, 4])
    bases = [[int(ONE * high * rng.choice([1, share()])) for _ in some.stages] for some in proof.travellers]
    members = [
        (
            int(ONE * rng.choice([0, 0.5, 0.9, 1, 1.1, 2 * rng.random()])),
            int(ONE * rng.choice([0, 0.7, 1, 1.5])),
        )
        for _ in range(rng.randint(1, 5))
    ]
    most = len(ends) + 2
    followed = [
        [(rng.randrange(len(members)), rng.randint(0, most)) for _ in range(rng.randint(0, 4))] for _ in own
    ]
    prices = Prices(list(zip(ends, roots, rents, strict=True)), own, bases, members)
    return prices._replace(followed=followed) if rng.random() < 0.3 else prices


def near(proof: PaceProof, rng: random.Random) -> Prices:
    """Prices near good ones, each a little above or below."""
    far = rng.choice([0, 0.02, 0.2])
    if proof.spot:
        found = spot_prices(proof.setting(), lambda: False)
    else:
        first = first_prices(proof.instance, proof.piece, proof.setting(), lambda: False)
        found = good_prices(first, proof.setting(), lambda: False)

    def moved(value: int) -> int:
        return round(value * (1 + far * rng.uniform(-1, 1)))

    return Prices(
        [(end, moved(r), moved(v)) for end, r, v in found.cells],
        [moved(q) for q in found.own],
        [[moved(k) for k in row] for row in found.bases],
        found.members,
        found.followed,
    )


def plain(proof: PaceProof) -> LowerBound:
    """The bound without prices."""
    bases = [[ONE] * len(some.stages) for some in proof.travellers]
    return proof.bound(Prices([], [0] * len(proof.counts), bases, [(ONE, 0)]))


@in_blocks(campaign(24, 6_000), 60)
def test_no_prices_prove_more_than_the_optimum(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pace_search, "CELLS", 20)
    better = rented = 0
    for seed in seeds:
        of, rng = instance(seed), random.Random(seed)
        if of.offline:
            continue
        found = staged_search(of)
        assert found.upper is not None
        for piece in range(len(of.cost.batch)):
            proof = PaceProof.of(of, piece, rng.choice([1, 2, 5]))
            if proof is None:
                continue
            span = int(found.upper * of.cost.ticks_per_second * 2) + 8
            least = plain(proof)
            prices = [near(proof, rng), *(any_prices(proof, span, rng) for _ in range(6))]
            made = [proof.bound(some) for some in prices]
            for bound in [least, *made]:
                assert bound.value <= found.upper, seed
                assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed
            free = prices[0]._replace(cells=[(end, r, 0) for end, r, _ in prices[0].cells])
            better += made[0].value > least.value
            rented += made[0].value > proof.bound(free).value
    assert better > len(seeds) // 4
    assert rented


@in_blocks(campaign(16, 6_000), 40)
def test_prompts_pay_no_more_than_the_price_of_their_moment(seeds: range) -> None:
    best = 0
    for seed in seeds:
        of, rng = (burst, dear)[seed % 2](seed), random.Random(seed)
        if of.offline:
            continue
        found = staged_search(of)
        assert found.upper is not None
        for piece in range(len(of.cost.batch)):
            proof = PaceProof.of(of, piece, rng.choice([1, 2, 5]), spot=True)
            if proof is None:
                continue
            span = int(found.upper * of.cost.ticks_per_second * 2) + 8
            made = [
                proof.bound(near(proof, rng)),
                *(proof.bound(any_prices(proof, span, rng)) for _ in "12345"),
            ]
            for bound in made:
                assert bound.value <= found.upper, seed
                assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed
            rewarded = PaceProof(of, piece, 1)
            best += made[0].value > rewarded.bound(near(rewarded, rng)).value
    assert best


@in_blocks(campaign(14, 3_000), 12)
def test_the_best_prices_prove_no_more_than_the_optimum(seeds: range) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pace_search, "CELLS", 30)
        for seed in seeds:
            of = instance(seed)
            found = staged_search(of)
            assert found.upper is not None
            bound = pace_bound(of)
            if bound is None:
                assert of.offline or not any(PaceProof.of(of, k) for k in range(len(of.cost.batch)))
                continue
            assert bound.value <= found.upper, seed
            assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed


def crowd(count: int = 30, apart: str = "0.02") -> Instance:
    """Equal requests that come at equal intervals: fifteen together, each of 20 tokens."""
    groups = tuple(RequestGroup(f"r{k}", 1, 20, k * Fraction(apart)) for k in range(count))
    cost = CostModel([("0.01", "0.0005")], ("0", "0"), ("0", "0"))
    system = System(1000, 100, 100, None, 1)
    return Instance("crowd", groups, system, cost, Policy(), Objective.of("mean_e2e"))


def test_batches_that_are_shared_are_seen() -> None:
    of = crowd()
    bound = pace_bound(of)
    assert bound is not None
    # Alone a request takes 20 batches of 0.0105; at this rate the batches of a fluid take 0.01 / (1 - 0.5).
    assert 20 * Fraction("0.0105") * Fraction(6, 5) < bound.value < 20 * Fraction("0.02")
    assert check_evidence(of, bound) == bound.value


def test_prompts_pay_for_their_work() -> None:
    # If a request could stay in its prompt for nothing and wait there for cheap moments: 0.315.
    of = crowd()
    long = replace(of, groups=tuple(replace(group, input_tokens=10) for group in of.groups))
    bound = pace_bound(long)
    assert bound is not None
    assert bound.value > Fraction("0.335")
    assert check_evidence(long, bound) == bound.value


def prompts(beta: str = "0.1", count: int = 40) -> Instance:
    """Equal prompts that come nearly at once; each takes a batch, as none is cut and two are too many."""
    groups = tuple(RequestGroup(f"r{k}", 5, 1, k * Fraction("0.0001")) for k in range(count))
    cost = CostModel([("0.001", beta)], ("0", "0"), ("0", "0"))
    system = System(1000, 5, 5, None, 1)
    return Instance("prompts", groups, system, cost, Policy(True, False, False), Objective.of("mean_e2e"))


@cache
def found_for(of: Instance) -> LowerBound | None:
    """The bound of an instance whose evidence many tests change."""
    return pace_bound(of)


def refused(of: Instance, fault: str, less: str = "", **changes: object) -> None:
    """The certificate of the bound is not accepted with other evidence, or without a part of it."""
    bound = found_for(of)
    assert bound is not None
    evidence = {key: value for key, value in (bound.evidence or {}).items() if key != less}
    certificate = certificate_to_json(of, replace(bound, evidence={**evidence, **changes}))
    with pytest.raises(Rejected, match=fault):
        check(shown(of), json.loads(json.dumps(certificate)))


def test_prompts_that_wait_for_each_other_are_nearly_one_after_the_other() -> None:
    of, wait = prompts(), Fraction("0.0001") * 39 / 2
    optimum = Fraction("0.501") * Fraction(41, 2) - wait
    bound = pace_bound(of)
    assert bound is not None
    assert bound.evidence is not None
    assert bound.evidence["spot"]
    assert bound.evidence["followed"]
    assert Fraction(95, 100) * optimum < bound.value <= optimum
    assert check_evidence(of, bound) == bound.value
    # Work that is only a little more would be too much.
    more = pace_bound(prompts("0.107"))
    assert more is not None
    assert more.value > optimum


def test_prompts_pay_for_the_fixed_part_of_the_longest_batch() -> None:
    of, wait = prompts(), Fraction("0.0001") * 39 / 2
    # Batches of five tokens, half of whose time is fixed; prompts may be cut, but that is of no use.
    cost = CostModel([("0.1", "0.02")], ("0", "0"), ("0", "0.000001"))
    of = replace(of, cost=cost, policy=Policy(True, True, False))
    optimum = Fraction("0.200025") * Fraction(41, 2) - wait
    bound = pace_bound(of)
    assert bound is not None
    assert Fraction(93, 100) * optimum < bound.value <= optimum
    assert check_evidence(of, bound) == bound.value
    # Where a batch may hold more, less of it is fixed.
    more = pace_bound(replace(of, system=System(1000, 10, 10, None, 1)))
    assert more is not None
    assert Fraction(70, 100) * optimum < more.value < Fraction(3, 4) * optimum


def test_what_is_not_followed_proves_nothing() -> None:
    of = prompts(count=20)
    of = replace(of, groups=tuple(replace(group, output_tokens=9) for group in of.groups))
    proof = PaceProof(of, 0, 2, spot=True)
    found = spot_prices(proof.setting(), lambda: False)
    best = proof.bound(found)
    assert found.followed is not None
    for followed, less in (
        ([[(j, 3 * until) for j, until in own] for own in found.followed], False),
        ([[(j, len(found.cells) + 1) for j in range(len(found.members))]] * 20, False),
        ([own[:1] for own in found.followed], True),
        ([[(j, until // 2) for j, until in own] for own in found.followed], True),
        ([[]] * 20, True),
    ):
        bound = proof.bound(found._replace(followed=followed))
        assert bound.value < best.value if less else bound.value >= best.value
        assert bound.value <= 0 or check_evidence(of, bound) == bound.value


def test_alone_it_is_the_fixed_part_of_all_batches() -> None:
    of = crowd(2, "10")
    proof = PaceProof.of(of, 0)
    assert proof is not None
    assert plain(proof).value == 20 * Fraction("0.01")


def test_requests_that_differ_in_their_terms_alone_are_one_kind() -> None:
    of = crowd(6)
    level = ServiceLevel(ttft=Fraction(1))
    twice = replace(of, groups=(*of.groups, *(replace(g, id=f"{g.id}b", slo=level) for g in of.groups)))
    bound = pace_bound(twice)
    assert bound is not None
    assert len(bound.evidence["own"]) == 6  # type: ignore[index]
    assert check_evidence(twice, bound) == bound.value


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("spot", 1, "1 is neither true nor false"),
        ("spot", None, "null is neither true nor false"),
        ("followed", [[]], "wrong length of a list"),
        ("followed", [[[0]]] * 40, "wrong length of a list"),
        ("followed", [[0]] * 40, "wrong length of a list|is not a list"),
        ("followed", [[[-1, 5]]] * 40, "there is no such member"),
        ("followed", [[[19, 5]]] * 40, "there is no such member"),
        ("followed", [[[0, 0.5]]] * 40, "is no whole number"),
    ],
)
def test_evidence_of_moments_that_is_none(key: str, value: object, fault: str) -> None:
    refused(prompts(), fault, **{key: value})


def test_whoever_does_not_say_spot_has_rewards_for_prompts() -> None:
    refused(prompts(), "is proved", less="spot")


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("cells", [[5, 1, 0], [5, 1, 0]], "their ends do not rise"),
        ("cells", [[0, 1, 0]], "their ends do not rise"),
        ("cells", [[5, -1, 0]], "a root is below 0"),
        ("cells", [[5, 1, -1]], "a price of KV is below 0"),
        ("cells", [[5]], "wrong length of a list"),
        ("members", [[ONE, -1]], "a number is below 0"),
        ("members", [[-ONE, 1]], "a number is below 0"),
        ("members", [[ONE, 1, 1]], "wrong length of a list"),
        ("own", [0], "wrong length of a list"),
        ("own", [-1] * 30, "a number is below 0"),
        ("parts", 0, "from 1 to 1000"),
        ("parts", 1001, "from 1 to 1000"),
        ("parts", 2, "wrong length of a list"),
        ("bases", [[ONE, ONE]], "wrong length of a list"),
        ("bases", [[ONE]] * 30, "wrong length of a list"),
        ("bases", [[ONE, *[-1] * 8]] * 30, "a number is below 0"),
    ],
)
def test_evidence_that_is_none(key: str, value: object, fault: str) -> None:
    refused(crowd(), fault, **{key: value})


def test_where_a_batch_takes_no_time_there_is_none() -> None:
    of = crowd()
    assert pace_bound(replace(of, cost=CostModel([("0", "0.001")], ("0", "0"), ("0.5", "0")))) is None
    assert pace_bound(replace(of, groups=tuple(replace(g, arrival=Fraction(0)) for g in of.groups))) is None


def test_the_search_ends_when_it_is_told_to() -> None:
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return True

    assert pace_bound(crowd(), stop=stop) is not None
    assert len(asked) <= 4


def test_prompts_may_pay_the_price_of_their_moment_where_most_of_the_time_is_work() -> None:
    """Ten prompts of 30 ms, one every 35 or 50 ms."""
    cost = CostModel([("0.001", "0.001")], ("0.001", "0"), ("0", "0"))
    for apart, crowded in (("0.035", True), ("0.05", False)):
        groups = tuple(RequestGroup(f"r{k}", 30, 1, k * Fraction(apart)) for k in range(10))
        of = Instance("work", groups, System(500, 50, 50), cost, Policy(), Objective.of("mean_e2e"))
        proof = PaceProof.of(of, 0)
        assert proof is not None
        assert proof.is_crowded() == crowded


def test_bounds_of_pieces_come_one_by_one_and_end_in_time() -> None:
    """A piece that is done is known at once, and no other begins when time is up."""
    batch = [("0.003", "0.00001"), ("0.002", "0.00003"), ("0.001", "0.00004")]
    cost = CostModel(batch, ("0.001", "0"), ("0", "0"))
    of = Instance("pieces", (RequestGroup("a", 4, 4),), System(50, 50, 50), cost)
    tried = list[int]()

    def search(instance: Instance, piece: int, stop: object) -> LowerBound:
        tried.append(piece)
        return LowerBound(Fraction((5, 4, 7)[piece]), "some", Proof.CERTIFICATE)

    coming = better_pieces(of, search, None)
    assert (next(coming).value, tried) == (5, [0])
    assert ([bound.value for bound in coming], tried) == ([7], [0, 1, 2])
    assert best_piece(of, search, lambda: False) == LowerBound(Fraction(7), "some", Proof.CERTIFICATE)
    tried.clear()
    assert best_piece(of, search, lambda: True) == LowerBound(Fraction(5), "some", Proof.CERTIFICATE)
    assert tried == [0]
    tried.clear()
    assert best_piece(of, search, None, [1, 0]) == LowerBound(Fraction(5), "some", Proof.CERTIFICATE)
    assert tried == [1, 0]
