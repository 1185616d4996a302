"""The branching bound on cases checked by hand, against every optimum, and certificates that are changed."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import _branching_search
from infermax_opt.infermax.bounds.branching import branching_bound
from infermax_opt.infermax.bounds.lagrangian import lagrangian_bound
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.suites import paper_cost
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks, size
from tests.infermax.occupancy_adversary import signed
from tests.infermax.oracle import optimum
from tests.infermax.test_many_bounds import submit
from tests.infermax.tiny import cost_model
from tests.support import FLAT, case, certificate_to_json, check_evidence, few


def proved(instance: Instance, calls: int = 30_000) -> LowerBound:
    """The bound, its certificate accepted."""
    bound = branching_bound(instance, stop=few(calls))
    assert bound is not None
    assert bound.proof is Proof.CERTIFICATE
    assert check_evidence(instance, bound) == bound.value
    return bound


def equal(seed: int) -> Instance:
    """A random instance of two to four equal requests, with evictions that pay in some."""
    rng = random.Random(seed)
    count = rng.choice([2, 2, 3, 3, 4])
    i, o = rng.randint(1, 3 if count < 4 else 2), rng.randint(2, 5 - count // 2)
    block = rng.choice([1, 1, 2])
    peak = -(-(i + o - 1) // block) * block
    policy = Policy(rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.75)
    prompt = 1 if policy.chunked_prefill else i
    roomy = rng.random() < 0.6
    system = System(
        kv_capacity=peak + rng.randint(0, (count - 1) * peak),
        max_batch_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_prefill_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_running=rng.choice([None, None, None, 2]),
        block_size=block,
    )
    return Instance(f"equal-{seed}", (RequestGroup("q", i, o, count=count),), system, cost(rng), policy)


def cost(rng: random.Random) -> CostModel:
    """One in three has tokens so cheap, or prefills so dear, that evictions and presence matter."""
    if rng.random() < 2 / 3:
        return cost_model(rng)
    batch = [("1", rng.choice(["0", "0.01", "0.1"]))]
    decode = rng.choice(["0", "0.3", "2"]), rng.choice(["0", "0.01"])
    return CostModel(batch, decode, (rng.choice(["0", "0.3", "5"]), "0"), rng.choice(["square", "exact"]))


@in_blocks(campaign(18, 6_000), 60)
def test_no_bound_exceeds_the_optimum(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    tight = 0
    for seed in seeds:
        monkeypatch.setattr(_branching_search, "FURTHER", (16, 1)[seed % 2])  # one tree for many batches
        instance, best = equal(seed), optimum(equal(seed))
        above = best * Fraction(seed % 5, 3)  # beyond the optimum, too: trees of many batches only
        bound = branching_bound(instance, above=above, stop=few((10, 60, 3000)[seed % 3]))
        if bound is None:
            continue
        assert bound.value <= best, seed
        assert check_evidence(instance, bound) == bound.value, seed
        claim = replace(bound, value=bound.value + Fraction(1, 10**40))
        with pytest.raises(Rejected, match="claims"):
            submit(instance, certificate_to_json(instance, claim))
        tight += bound.value > best * Fraction("0.9999")
    assert tight > 0


def test_one_slot_is_exact() -> None:
    """Where only one request fits, each takes O batches: 5 requests of 4 tokens take 20 batches."""
    instance = case(5, 3, 4, 6, cost=FLAT, preemption=False)
    assert Fraction("19.999") < proved(instance).value <= 20


def test_whole_requests_only() -> None:
    """In fractions, requests share the memory better: by prices of KV alone 10 batches are enough, not 12."""
    instance = case(5, 6, 5, 24, cost=FLAT, preemption=False)
    lagrangian = lagrangian_bound(instance)
    assert lagrangian is not None
    assert staged_search(instance).upper == 12
    assert lagrangian.value < Fraction("10.01")
    assert Fraction("11.999") < proved(instance).value <= 12


@pytest.mark.parametrize(
    ("count", "i", "o", "m", "share"),
    [(4, 8, 3, 25, "0.9999"), (6, 8, 3, 25, "0.99"), (4, 16, 4, 50, "0.999"), (5, 3, 4, 9, "0.97")],
)
def test_near_the_optimum_with_evictions(count: int, i: int, o: int, m: int, share: str) -> None:
    instance = case(count, i, o, m)
    best = staged_search(instance).upper
    assert best is not None
    assert best * Fraction(share) <= proved(instance).value <= best


def test_prompts_limit_how_soon_requests_begin() -> None:
    """Two prompts of 6 tokens and 3 tokens a batch: four batches that prefill, and one more token."""
    system = System(100, 50, 3)
    instance = Instance("slow", (RequestGroup("r", 6, 2, count=2),), system, FLAT)
    assert Fraction("4.999") < proved(instance).value <= 5


def test_cells_of_32_requests_that_are_closed() -> None:
    """Verified schedules take 0.321826768 s and 1.413176512 s; the other bounds prove 0.3145 and 1.4050."""
    cost = paper_cost(Attention.EXACT)
    assert proved(case(32, 1, 32, 1000, cost=cost)).value > Fraction("0.32182")
    assert proved(case(32, 512, 8, 10000, cost=cost)).value > Fraction("1.4125")


def test_every_piece_is_tried() -> None:
    slow = CostModel([("0.0001", "0"), ("1", "0")], ("0", "0"), ("0", "0"))
    bound = proved(case(5, 3, 4, 6, cost=slow, preemption=False))
    assert bound.evidence is not None
    assert bound.evidence["piece"] == 1
    assert bound.value > 19


def test_none_where_it_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = (RequestGroup("a", 3, 9, count=3), RequestGroup("b", 6, 9, count=2))
    assert branching_bound(Instance("two", groups, System(30, 50, 50), FLAT)) is None
    free = CostModel([("0", "1")], ("0", "1"), ("0", "1"))
    assert branching_bound(case(3, 2, 8, 20, cost=free)) is None
    assert branching_bound(case(3, 2, 8, 20), stop=few(0)) is None
    assert branching_bound(case(3, 2, 3000, 9000)) is None
    monkeypatch.setattr(_branching_search, "MAX_CELLS", 30)
    assert branching_bound(case(3, 2, 8, 20)) is None


def test_none_where_batches_are_next_to_free() -> None:
    cost = CostModel([("0.007", "0.000075")], ("0", "0"), ("1e9", "0"))
    instance = Instance(
        "dear", (RequestGroup("r", 4, 3, count=2),), System(8, 8, 8), cost, Policy(), "makespan"
    )
    assert branching_bound(instance) is None
    assert all(bound.value > 0 for bound in searched_bounds(instance))


def test_arrivals_and_groups_do_not_make_kinds() -> None:
    grouped = case(4, 4, 4, 14)
    late = tuple(RequestGroup(f"s{k}", 4, 4, Fraction(k, 10)) for k in range(4))
    assert branching_bound(grouped) == branching_bound(replace(grouped, groups=late))


def test_a_deadline_leaves_a_proved_bound() -> None:
    instance = case(6, 8, 6, 40)
    full = proved(instance).value
    for calls in (2, 5, 20, 80):
        bound = branching_bound(instance, stop=few(calls))
        if bound is not None:
            assert 0 < bound.value <= full
            assert check_evidence(instance, bound) == bound.value


def test_the_checker_takes_as_many_steps_as_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_branching_search, "MAX_STEPS", 20_000)
    bound = proved(case(6, 8, 6, 40))
    assert bound.evidence is not None
    assert 1 < sum(len(tree["nodes"]) for tree in bound.evidence["trees"]) < 100


def test_comes_after_the_others() -> None:
    found = list(searched_bounds(case(32, 1, 32, 1000)))
    values = {bound.source: bound.value for bound in found}
    assert values["count branching"] > values["Lagrangian"]


# --- certificates that are changed --------------------------------------------------------------


CHANGED = {
    "evictions": case(4, 2, 4, 9),
    "kept": case(4, 6, 4, 24, preemption=False),
    "presence": case(3, 3, 3, 9, cost=CostModel([("1", "0.1")], ("0.5", "0.01"), ("2", "0.1"))),
}


@pytest.mark.parametrize("name", CHANGED)
def test_changed_certificates_prove_nothing_false(name: str) -> None:
    instance = CHANGED[name]
    best, bound = staged_search(instance).upper, proved(instance)
    assert best is not None
    assert bound.value <= best
    original, refused, tried = certificate_to_json(instance, bound), 0, 0
    for mutant in mutants(original, random.Random(7)):
        for claim in (bound.value, bound.value + Fraction(1, 10**20), best + Fraction(1, 10**20)):
            mutant["lower_bound"] = f"{claim.numerator}/{claim.denominator}"
            refused += judged(instance, mutant, best)
            tried += 1
    assert refused > tried // 2


def mutants(original: dict[str, Any], rng: random.Random) -> Any:
    """Certificates with one change each: of prices, boxes, limits, numbers of batches, nodes and trees."""
    for _ in range(size(20, 250)):
        mutant = copy.deepcopy(original)
        trees = mutant["evidence"]["trees"]
        tree = rng.choice(trees)
        place = rng.randrange(len(tree["nodes"]))
        node = tree["nodes"][place]
        what = rng.randrange(8)
        if what == 0:
            tree["batches"] += rng.choice([-1, 1, 2])
        elif what == 1:
            del tree["nodes"][place]
        elif what == 2:
            tree["nodes"].insert(place, copy.deepcopy(rng.choice(tree["nodes"])))
        elif what == 3 and len(trees) > 1:
            del trees[rng.randrange(len(trees))]
        elif isinstance(node, list):
            node[rng.randrange(6)] += rng.choice([-2, -1, 1, 2])
        else:
            row = rng.choice([*node["held"], *(node[name] for name in node if name != "held" and node[name])])
            row[rng.randrange(len(row))] += rng.choice([-1, 1]) * 10 ** rng.randint(0, 12)
        yield mutant


def judged(instance: Instance, mutant: dict[str, Any], best: Fraction) -> bool:
    """Whether a changed certificate is refused; what is accepted must be true."""
    try:
        assert submit(instance, signed(mutant)) <= best
    except Rejected:
        return True
    return False
