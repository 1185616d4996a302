"""Every bound against the optimum of thousands of tiny instances; every certificate checked."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.infermax.bounds import _occupancy_graph, _occupancy_search, closed_form_bounds
from infermax_opt.infermax.bounds.lagrangian import lagrangian_bound
from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.bounds.state_flow import state_flow_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks, one_in, size
from tests.infermax import state_flow_adversary as states
from tests.infermax.occupancy_adversary import (
    BESIDES,
    EXPONENT,
    KINDS,
    LATE,
    PAIRS,
    WIDE_KINDS,
    Graph,
    certified,
    edges,
    signed,
    strongest,
)
from tests.infermax.oracle import optimum
from tests.infermax.tiny import cost_model, tiny
from tests.support import case, certificate_to_json, check_evidence, few


def slight(seed: int) -> Instance:
    """A random instance that enumerates in milliseconds: every flag, limit and cost shape."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.7)
    requests = rng.choice([1, 2, 2, 2, 3])
    longest = 6 - requests - policy.chunked_prefill
    groups: list[RequestGroup] = []
    while len(groups) < requests:
        i, o = rng.randint(1, min(longest, 4)), rng.randint(1, min(longest, 3))
        if groups and rng.random() < 0.5:
            i, o = groups[-1].input_tokens, groups[-1].output_tokens
        late = seed % 5 == 4 and rng.random() < 0.7
        groups.append(
            RequestGroup(f"q{len(groups)}", i, o, Fraction(rng.randint(0, 300), 100) if late else 0)
        )
    block = rng.choice([1, 1, 1, 2, 3])
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    prompt = 1 if policy.chunked_prefill else max(g.input_tokens for g in groups)
    roomy = rng.random() < 0.5
    system = System(
        kv_capacity=peak + rng.choice([0, 1, 2, peak // 2, peak, 3 * peak]),
        max_batch_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_prefill_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_running=rng.choice([None, None, None, 1, 2]),
        block_size=block,
    )
    return Instance(f"slight-{seed}", tuple(groups), system, cost_model(rng), policy)


def crowd(seed: int) -> Instance:
    """Up to seven short requests, so that many are active at once."""
    rng = random.Random(seed)
    count = rng.randint(3, 5)
    groups = [RequestGroup("a", rng.randint(1, 2), rng.randint(1, 3), count=count)]
    if rng.random() < 0.3:
        groups.append(RequestGroup("b", rng.randint(1, 3), rng.randint(1, 3), count=rng.randint(1, 2)))
    peak = max(g.input_tokens + g.output_tokens - 1 for g in groups)
    system = System(
        peak + rng.randint(0, 3 * peak),
        rng.choice([50, 50, rng.randint(3, 6)]),
        rng.choice([50, 50, rng.randint(3, 6)]),
        rng.choice([None, None, None, 3]),
    )
    policy = Policy(rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.6)
    return Instance(f"crowd-{seed}", tuple(groups), system, cost_model(rng), policy)


@in_blocks(campaign(15, 5_000), 60)
def test_no_bound_exceeds_the_optimum(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0
    for seed in seeds:
        # Few rows, so that the last one stands for several numbers of requests.
        monkeypatch.setattr(_occupancy_graph, "MAX_ACTIVE", (128, 1, 2)[seed % 3])
        monkeypatch.setattr(_occupancy_search, "ROWS", (32, 1)[seed % 2])
        monkeypatch.setattr(_occupancy_search, "YOUNG", ((0, 64), (64,), (0, 43, 86))[seed % 3])
        instance = slight(seed)
        best = optimum(instance)
        bounds, given = closed_form_bounds(instance), shown(instance)
        for search in (occupancy_bound, lagrangian_bound, state_flow_bound):
            found = search(instance, stop=few(40))
            if found is None:
                continue
            searched += 1
            bounds.append(found)
            with pytest.raises(Rejected, match="claims"):
                submitted(given, instance, replace(found, value=found.value + Fraction(1, 10**40)))
        for bound in bounds:
            assert bound.value <= best, (seed, bound.source)
            assert check_evidence(instance, bound) == bound.value, (seed, bound.source)
    assert searched >= len(seeds)


def test_a_closed_form_certificate_proves_no_more_than_its_bound() -> None:
    for seed in campaign(60, 200):
        instance = slight(seed)
        given = shown(instance)
        for bound in closed_form_bounds(instance):
            with pytest.raises(Rejected, match="claims"):
                submitted(given, instance, replace(bound, value=bound.value + Fraction(1, 10**40)))


def submit(instance: Instance, what: object) -> Fraction:
    """What the checker says of a bound, or of a certificate as JSON, as if both came from files."""
    return submitted(shown(instance), instance, what)


def shown(instance: Instance) -> dict[str, Any]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(instance), "cost": cost_to_json(instance.cost)}
    read: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return read


def submitted(given: dict[str, Any], instance: Instance, what: object) -> Fraction:
    """As `submit`, for an instance that was read before."""
    value = what if isinstance(what, dict) else certificate_to_json(instance, what)  # type: ignore[arg-type]
    return check(given, json.loads(json.dumps(value)))


@in_blocks(campaign(18, 300, first=30), 30)
def test_the_strongest_prices_do_not_exceed_the_optimum(seeds: range) -> None:
    """The best certificate of each graph, by linear programming on an independent list of edges."""
    accepted = 0
    for seed in seeds:
        instance = crowd(seed) if seed % 2 else tiny(seed)
        if instance.system.kv_capacity > 16:
            continue
        best = staged_search(instance).upper
        assert best is not None
        pieces = range(len(instance.cost.batch))
        for piece, top, young in itertools.product(pieces, (1, 2, 99), (0, 1 + seed % 3)):
            certificate = strongest(instance, edges(instance, piece, top, young))
            if certificate is None:
                continue
            claimed = submit(instance, certificate)
            assert claimed == Fraction(certificate["lower_bound"])
            assert claimed <= best, (seed, piece, top, young)
            accepted += 1
    assert accepted > 20


@functools.cache
def listed(make: Callable[[int], Instance], seed: int, top: int) -> tuple[Graph, dict[str, Any] | None]:
    """The graph of an instance, and its strongest certificate."""
    instance = make(seed)
    graph = edges(instance, 0, top)
    return graph, strongest(instance, graph)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "growth" and kind not in LATE])
def test_certificates_that_leave_out_steps(kind: str) -> None:
    """Without one kind of step the potentials prove too much: the checker must know every kind."""
    refused = 0
    seeds = [(crowd, seed) for seed in (1, 2, 22, 59, 61, 107, 318, 379, *one_in(5, range(400, 425)))]
    seeds += [(tiny, seed) for seed in (6, 11, 16, 20, 125, 1330, *one_in(5, range(400, 425)))]
    for make, seed in seeds:
        instance = make(seed)
        if instance.system.kv_capacity > 14:
            continue
        graph, honest = listed(make, seed, 1 if kind in WIDE_KINDS or seed % 2 else 99)
        if not any(kind in edge.kinds for edge in graph.edges):
            continue
        bold = strongest(instance, graph, without=kind)
        if bold is None or honest is None:
            continue
        most = Fraction(honest["lower_bound"]) * Fraction("1.002")
        if Fraction(bold["lower_bound"]) > most:
            with pytest.raises(Rejected):
                submit(instance, bold)
            refused += 1
    assert refused > 0, "no instance where this kind matters"


@pytest.mark.parametrize("kind", ["admit", "pure admit", "finish", "again"])
def test_certificates_whose_steps_do_not_pay(kind: str) -> None:
    """Where one kind of step does not pay what all requests earn besides, too much would be proved."""
    refused = 0
    for make, seed in itertools.product((crowd, tiny), campaign(18, 60)):
        instance = make(seed)
        if instance.system.kv_capacity > 14:
            continue
        graph, honest = listed(make, seed, 1 if kind == "again" or seed % 2 else 99)
        unpaid = [
            replace(edge, prices=edge.prices[:BESIDES] + (0,) * (graph.columns - BESIDES))
            if kind in edge.kinds
            else edge
            for edge in graph.edges
        ]
        bold = strongest(instance, replace(graph, edges=unpaid))
        if bold is None or honest is None:
            continue
        if Fraction(bold["lower_bound"]) > Fraction(honest["lower_bound"]) * Fraction("1.002"):
            with pytest.raises(Rejected):
                submit(instance, bold)
            refused += 1
    assert refused > 0, "no instance where this payment matters"


@pytest.mark.parametrize("kind", ["idle", "finish", "evict"])
def test_certificates_whose_steps_do_not_pay_pairs_back(kind: str) -> None:
    """Where one kind of step does not pay back what pairs cost, too much would be proved."""
    refused, price = 0, (0.1, 0.1)
    for make, seed in itertools.product((crowd, tiny), campaign(40, 200)):
        instance = make(seed)
        if instance.system.kv_capacity > 14:
            continue
        graph = edges(instance, 0, 1 if seed % 2 else 99)
        unpaid = [
            replace(edge, prices=(*edge.prices[:PAIRS], 0, *edge.prices[PAIRS + 1 :]))
            if kind in edge.kinds
            else edge
            for edge in graph.edges
        ]
        bold = strongest(instance, replace(graph, edges=unpaid), pairs=price)
        honest = strongest(instance, graph, pairs=price)
        if bold is None or honest is None:
            continue
        if Fraction(bold["lower_bound"]) > Fraction(honest["lower_bound"]) * Fraction("1.002"):
            with pytest.raises(Rejected):
                submit(instance, bold)
            refused += 1
    assert refused > 0, "no instance where this payment matters"


def test_steps_beyond_the_capacity_from_the_last_list() -> None:
    """A full batch of more requests than the last list's number ends above M plus that number."""
    instance = tiny(1330)
    graph = edges(instance, 0, 1)
    certificate = strongest(instance, graph, without="beyond")
    assert certificate is not None
    assert Fraction(certificate["lower_bound"]) > optimum(instance)
    with pytest.raises(Rejected):
        submit(instance, certificate)
    certificate = strongest(instance, graph)
    assert certificate is not None
    assert submit(instance, certificate) <= optimum(instance)


@in_blocks(campaign(12, 80, first=40), 20)
def test_the_strongest_prices_of_states_do_not_exceed_the_optimum(seeds: range) -> None:
    """The best state-flow certificate, by linear programming on an independent list of steps."""
    accepted = 0
    for seed in seeds:
        instance = crowd(seed) if seed % 2 else tiny(seed)
        if instance.system.kv_capacity > 16:
            continue
        best = staged_search(instance).upper
        assert best is not None
        for piece in range(len(instance.cost.batch)):
            certificate = states.strongest(instance, states.graph(instance, piece))
            if certificate is None:
                continue
            claimed = submit(instance, certificate)
            assert claimed == Fraction(certificate["lower_bound"])
            assert claimed <= best, (seed, piece)
            accepted += 1
            if len(instance.cost.batch) == 1:
                found = state_flow_bound(instance, stop=few(400))
                assert found is not None
                assert found.value >= claimed * Fraction("0.9999")
    assert accepted > 15


def mixing(seed: int) -> Instance:
    """A crowd whose batches may have prompts and decodes."""
    instance = crowd(seed)
    return replace(instance, policy=replace(instance.policy, hybrid_batching=True))


@functools.cache
def listed_states(seed: int) -> tuple[states.Graph, dict[str, Any] | None]:
    """The graph of states of a crowd, and its strongest certificate."""
    instance = mixing(seed)
    graph = states.graph(instance, 0)
    return graph, states.strongest(instance, graph)


@pytest.mark.parametrize("kind", [kind for kind in states.KINDS if kind not in LATE])
def test_state_certificates_that_leave_out_steps(kind: str) -> None:
    """Without one kind of step the potentials prove too much: the checker must know every kind."""
    refused = 0
    for seed in (3, 5, 6, 7, 9, 15, 19, 24, 26, 34):
        instance = mixing(seed)
        if instance.system.kv_capacity > 16:
            continue
        graph, honest = listed_states(seed)
        bold = states.strongest(instance, states.lacking(graph, kind))
        if bold is None or honest is None:
            continue
        if Fraction(bold["lower_bound"]) > Fraction(honest["lower_bound"]) * Fraction("1.002"):
            with pytest.raises(Rejected):
                submit(instance, bold)
            refused += 1
            if refused == size(2, 10):
                break
    assert refused > 0, "no instance where this kind matters"


#: Late returns only matter where memory is short of one token and prices of evictions rise with the tokens.
TIGHT = case(3, 1, 4, 5, cost=CostModel([("1", "0")], ("0", "0"), ("1", "0")))
RISE = TIGHT.cost.ticks_per_second << (EXPONENT - 2)


@pytest.mark.parametrize("kind", LATE)
def test_certificates_that_leave_out_late_returns(kind: str) -> None:
    """Potentials are least costs from some state on, so that all steps from there matter."""
    graph = edges(TIGHT, 0, 99)
    prices, refused = [0, 0, 0, RISE, 0, 0, 0, 0], 0
    for start in sorted({edge.source for edge in graph.edges if edge.source[2] == "P"}):
        bold = certified(TIGHT, graph, prices, without=kind, start=start)
        refused += refuses(TIGHT, bold, certified(TIGHT, graph, prices, start=start))
    assert refused > 0, "no state where this kind matters"


@pytest.mark.parametrize("kind", LATE)
def test_state_certificates_that_leave_out_late_returns(kind: str) -> None:
    graph = states.graph(TIGHT, 0)
    lacking, prices, refused = states.lacking(graph, kind), {(0, n): 2 * n * RISE for n in range(4)}, 0
    for state in graph.states:
        bold = states.certified(TIGHT, lacking, prices, ("P", state))
        refused += refuses(TIGHT, bold, states.certified(TIGHT, graph, prices, ("P", state)))
    assert refused > 0, "no state where this kind matters"


def test_certificates_that_leave_out_who_turns_up() -> None:
    """Where first tokens are left out, requests come between batches, and pay for it."""
    refused = 0
    for seed in campaign(8, 60):
        instance = crowd(seed)
        if instance.system.kv_capacity > 14:
            continue
        graph = edges(instance, 0, 1 if seed % 2 else 99, young=1)
        bold, honest = strongest(instance, graph, without="admit"), strongest(instance, graph)
        if bold is None or honest is None:
            continue
        if Fraction(bold["lower_bound"]) > Fraction(honest["lower_bound"]) * Fraction("1.002"):
            with pytest.raises(Rejected):
                submit(instance, bold)
            refused += 1
    assert refused > 0, "no instance where it matters"


def refuses(instance: Instance, bold: dict[str, Any] | None, honest: dict[str, Any] | None) -> bool:
    """Submit potentials; whether the greatest ones at these prices are lower, so that they are refused."""
    assert bold is not None
    if honest is not None and honest["evidence"] == bold["evidence"]:
        submit(instance, bold)
        return False
    with pytest.raises(Rejected):
        submit(instance, bold)
    return True


def test_numbers_too_large_for_the_checker_prove_nothing() -> None:
    """Whatever the scale, unreached states must not hide steps."""
    instance = Instance(
        "scaled",
        (RequestGroup("r", 2, 3, count=2),),
        System(8, 50, 50),
        cost_model(random.Random(3)),
        Policy(preemption=False),
    )
    best = optimum(instance)
    base = certificate_to_json(instance, closed_form_bounds(instance)[0])
    lists = [[0] * (min(5 * k, 8 + k) - 2 * k + 1) for k in range(3)]
    for exponent, digits, level in itertools.product(
        (0, 20, 150, 198, 200, 260, 1000, 4000), (0, 9, 60, 90), (0, 1 << 60, (1 << 199) - 1, (1 << 200) - 1)
    ):
        prices: dict[str, object] = {"token": f"-18e{digits}", "size": f"9e{digits}"}
        prices |= {"out_fixed": 0, "out_size": 0, "first": [0], "finish": [0]}
        for top in (1, 2):
            potential = [[value + level for value in values] for values in lists[: top + 1]]
            if top == 1:
                potential[1] = [level] * (8 + 2 - 2 + 1)
            evidence = {"kind": "occupancy", "piece": 0, "exponent": exponent, "young": 0}
            evidence |= {"prices": prices, "potential": potential}
            for claim in (best + 1, best * 1000):
                text = f"{claim.numerator}/{claim.denominator}"
                certificate = signed({**base, "evidence": evidence, "lower_bound": text})
                with pytest.raises(Rejected):
                    submit(instance, certificate)


def test_certified_is_what_the_checker_says() -> None:
    """The adversary's own arithmetic agrees with the checker's."""
    instance = tiny(7)
    graph = edges(instance, 0, 99)
    free = certified(instance, graph, [0] * graph.columns)
    assert free is not None
    assert submit(instance, free) == Fraction(free["lower_bound"])
