"""First batches of the occupancy bound between knots: against all states, and the optimum."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from infermax_opt.infermax.bounds import _kernels_occupancy_knots as plain
from infermax_opt.infermax.bounds import _occupancy_ends, _occupancy_knots
from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR
from infermax_opt.infermax.bounds._occupancy_ends import OccupancyEnds
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds._occupancy_knots import FirstKnots
from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.occupancy_adversary import signed, submitted
from tests.infermax.test_many_bounds import crowd
from tests.infermax.tiny import tiny
from tests.support import case, certificate_to_json, check_evidence, few


def knots_only(monkeypatch: pytest.MonkeyPatch, spacing: int) -> None:
    """Let all bounds follow their first batches at knots so far from each other."""
    monkeypatch.setattr(_occupancy_ends, "MAX_FIRST", 0)
    monkeypatch.setattr(
        _occupancy_ends, "FirstKnots", lambda *known: FirstKnots(*known[:2], max(spacing, known[2]))
    )


def drawn(seed: int) -> tuple[OccupancyGraph, Prices, int]:
    """A small graph, prices at which idling does not earn, and a number of first batches."""
    rng = random.Random(seed)
    several = range(rng.choice([1, 1, 2]))
    kinds = tuple((rng.randint(1, 3), rng.randint(2, 5), rng.randint(1, 2)) for _ in several)
    shortest = min(i for i, _, _ in kinds)
    capacity = max(max(i + o for i, o, _ in kinds), rng.randint(4, 11))
    most = min(sum(c for *_, c in kinds), capacity // shortest, rng.choice([2, 2, 2, 3]))
    plain_cost, p0 = rng.randint(5, 60), rng.randint(0, 20)
    pure = max(1, plain_cost + rng.randint(-5, 5))
    graph = OccupancyGraph(
        capacity, most, kinds, plain_cost, plain_cost + p0, pure, rng.randint(0, 6), rng.random() < 0.8,
        rng.random() < 0.5,
    )  # fmt: skip
    size = rng.randint(0, 6)
    token = rng.randint(-size * shortest, 9)
    first = tuple(rng.randint(-30, 30) for _ in graph.prompts)
    finish = tuple(rng.randint(-30, 30) for _ in graph.ends)
    prices = Prices(token, size, rng.randint(-20, 20), rng.randint(-4, 4), seed % 4, first, finish)
    return graph, prices, rng.randint(1, min(3, *(o for _, o, _ in kinds)))


def uncompiled(small: bool = False) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Instead of the compiled kernels."""
    return plain.pass_knots, plain.allowed


def nothing(*_: Any) -> int:
    """Instead of a kind of step."""
    return 0


#: Of active requests, ascending.
Sizes = tuple[int, ...]


def one_batch(graph: OccupancyGraph, prices: Prices, largest: int, sizes: Sizes) -> dict[Sizes, int]:
    """Least cost of a batch, by the sizes of active requests after it; who is there is told one by one."""
    token, size = prices.token, prices.size
    # Sizes after the batch, KV held in it, and whether somebody decodes and somebody comes.
    partial: dict[tuple[Sizes, int, bool, bool], int] = {((), 0, False, False): 0}

    def extend(ways: list[tuple[int | None, int, bool, bool, int]]) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for (after, held, decodes, comes), cost in partial.items():
            for new, more, decode, come, price in ways:
                key = (
                    after if new is None else tuple(sorted((*after, new))),
                    held + more, decodes or decode, comes or come,
                )  # fmt: skip
                if key[1] <= graph.capacity and len(key[0]) <= graph.most:
                    found[key] = min(found.get(key, FAR), cost + price)
        return found

    for s in sizes:
        ways = [(s + 1, s, True, False, -token - size * s), (s, s - 1, False, False, 0)]
        if graph.evictions:
            ways.append((None, 0, False, False, prices.out_fixed + prices.out_size * s))
        partial = extend(ways)
    ways = [
        (i + 1, i, False, True, -first - token - size * i)
        for i, first in zip(graph.prompts, prices.first, strict=True)
    ]
    for s in range(graph.prompts[0] + 1, largest + 1) if graph.evictions else ():
        back = graph.rho * (s - 1) - prices.out_fixed - prices.out_size * s
        ways.append((s + 1, s, False, True, back - token - size * s))
        if graph.chunked:
            ways.append((s, s - 1, False, True, back))
    for _ in range(graph.most):
        more = extend(ways)
        if all(more[key] >= partial.get(key, FAR) for key in more):
            break
        partial = {key: min(partial.get(key, FAR), more.get(key, FAR)) for key in partial | more}
    found: dict[Sizes, int] = {}
    for (after, _, decodes, comes), cost in partial.items():
        fixed = graph.pure if not decodes else graph.mixed if comes else graph.plain
        found[after] = min(found.get(after, FAR), cost + (fixed if after else min(graph.plain, graph.pure)))
    return found


def lines_above_costs(seed: int) -> tuple[int, int]:
    """How many states cost less than the lines say, and how many there are, after all first batches."""
    graph, prices, batches = drawn(seed)
    costs: dict[Sizes, int] = {(): 0}
    above = compared = 0
    for done in range(batches):
        after: dict[Sizes, int] = {}
        for sizes, before in costs.items():
            for other, cost in one_batch(graph, prices, graph.prompts[-1] + done, sizes).items():
                after[other] = min(after.get(other, FAR), before + cost)
        costs = after
        for spacing in (1, 2, 3, 5):
            lines = np.full(graph.shape[1:], FAR)
            knots = FirstKnots(graph, done + 1, spacing)
            knots.give(knots.run(0, prices)[0], prices, lines)
            above += sum(
                lines[len(sizes), sum(sizes)] > cost + prices.pairs * together(graph, sizes)
                for sizes, cost in costs.items()
            )
            compared += len(costs)
    return above, compared


def together(graph: OccupancyGraph, sizes: Sizes) -> int:
    """Tokens of the younger of two requests of these sizes at least, over all pairs."""
    made = sorted((max(1, size - graph.prompts[-1]) for size in sizes), reverse=True)
    return sum(older * tokens for older, tokens in enumerate(made))


@in_blocks(campaign(240, 5_000), 40)
def test_lines_are_below_the_costs_of_all_states(seeds: range) -> None:
    """States list the sizes of all requests here, and every batch knows what it processes."""
    found = [lines_above_costs(seed) for seed in seeds]
    assert [seed for seed, (above, _) in zip(seeds, found, strict=True) if above] == []
    assert sum(compared for _, compared in found) > 0


@pytest.mark.parametrize("kind", ["lift", "drop", "lag"])
def test_lines_without_a_kind_of_step_are_above_some_costs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind matters to the comparison."""
    monkeypatch.setattr(_occupancy_knots, "_kernels", uncompiled)
    monkeypatch.setattr(plain, kind, nothing)
    assert any(lines_above_costs(seed)[0] for seed in range(40))


@in_blocks(campaign(20, 3_000), 20)
def test_bounds_with_knots_do_not_exceed_the_optimum(seeds: range) -> None:
    """And the checker says the same of each."""
    accepted = 0
    for seed in seeds:
        instance = crowd(seed) if seed % 2 else tiny(seed)
        with pytest.MonkeyPatch.context() as patched:
            knots_only(patched, 1 + seed % 3)
            bound = occupancy_bound(instance, stop=few(60))
        if bound is None or bound.evidence is None or "knots" not in bound.evidence:
            continue
        best = staged_search(instance).upper
        assert best is not None
        assert check_evidence(instance, bound) == bound.value, seed
        assert bound.value <= best, seed
        accepted += 1
    assert accepted > 0


def with_knots(instance: Instance, spacing: int) -> dict[str, Any]:
    """A certificate of the bound with knots so far from each other."""
    with pytest.MonkeyPatch.context() as patched:
        knots_only(patched, spacing)
        bound = occupancy_bound(instance, stop=few(400))
    assert bound is not None
    assert bound.evidence is not None
    assert bound.evidence["knots"] == spacing
    return certificate_to_json(instance, bound)


@pytest.fixture(scope="module")
def honest() -> tuple[Instance, dict[str, Any]]:
    """Six requests of 3 + 5 tokens in a memory of 16, and a certificate with knots."""
    instance = case(6, 3, 5, 16)
    certificate = with_knots(instance, 2)
    assert submitted(instance, certificate) == Fraction(certificate["lower_bound"])
    return instance, certificate


def test_potentials_follow_from_the_knots(honest: tuple[Instance, dict[str, Any]]) -> None:
    instance, certificate = honest
    evidence = certificate["evidence"]
    higher = [[None if v is None else v + 2**30 for v in row] for row in evidence["potential"]]
    with pytest.raises(Rejected, match="the first batches cost less"):
        submitted(instance, signed({**certificate, "evidence": {**evidence, "potential": higher}}))


@pytest.mark.parametrize(
    ("spacing", "words"), [(0, "knots"), (2.5, "knots"), ("many", "knots"), (10**12, "takes more than")]
)
def test_wrong_spacings(honest: tuple[Instance, dict[str, Any]], spacing: Any, words: str) -> None:
    instance, certificate = honest
    evidence = {**certificate["evidence"], "knots": spacing}
    with pytest.raises(Rejected, match=words):
        submitted(instance, signed({**certificate, "evidence": evidence}))


#: What the walk at knots may leave out, and an instance on which it matters.
MATTERS = {
    "lift": case(3, 1, 5, 8),
    "drop": case(4, 1, 4, 6),
}


@pytest.mark.parametrize("kind", MATTERS)
def test_certificates_that_leave_out_steps(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one kind of step potentials would be too high: the checker knows every kind."""
    monkeypatch.setattr(_occupancy_knots, "_kernels", uncompiled)
    instance = MATTERS[kind]
    certificate = with_knots(instance, 1)
    assert submitted(instance, certificate) == Fraction(certificate["lower_bound"])
    monkeypatch.setattr(plain, kind, nothing)
    bold = with_knots(instance, 1)
    assert Fraction(bold["lower_bound"]) > Fraction(certificate["lower_bound"])
    with pytest.raises(Rejected, match="the first batches cost less"):
        submitted(instance, bold)


def test_wider_spacings_where_a_check_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the bound is lower for that, but no worse than without ends."""
    instance = case(6, 3, 5, 16)
    near = Fraction(with_knots(instance, 1)["lower_bound"])
    monkeypatch.setattr(_occupancy_ends, "MAX_STEPS", 3_000)
    knots_only(monkeypatch, 1)
    bound, without = (occupancy_bound(instance, stop=few(400), ends=ends) for ends in (True, False))
    assert bound is not None
    assert without is not None
    assert bound.evidence is not None
    assert bound.evidence["knots"] > 1
    assert check_evidence(instance, bound) == bound.value
    assert without.value < bound.value <= near


def test_young_tokens_are_left_out_first() -> None:
    """The first batches begin after them, and cost as little as any."""
    graph, prices = drawn(3)[0], Prices(0, 0, 0, 0, 0, (0,), (0,))
    graph = replace(graph, kinds=((2, 6, 3),), young=2, rho=0)
    ends = OccupancyEnds(graph, 8, 40)
    ends.first, ends.spacing = 4, 2
    table = np.full(graph.shape[1:], FAR)
    ends._start(prices, table)
    assert table[0, 0] == (2 + 4) * min(graph.plain, graph.pure)
