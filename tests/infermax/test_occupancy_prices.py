"""First batches of the occupancy bound at prices of memory: against all states, and the optimum."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from infermax_opt.infermax.bounds import _kernels_occupancy_priced as plain
from infermax_opt.infermax.bounds import _occupancy_priced, _occupancy_search
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds._occupancy_priced import CheapestLife, MemoryPrices, PricedBatches
from infermax_opt.infermax.bounds._occupancy_search import OccupancyPrices
from infermax_opt.infermax.bounds._occupancy_shares import dearer_evictions
from infermax_opt.infermax.bounds.occupancy import occupancy_bound, occupancy_graph
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.occupancy_adversary import signed, submitted
from tests.infermax.test_many_bounds import crowd
from tests.infermax.test_occupancy_knots import Sizes, drawn
from tests.infermax.tiny import tiny
from tests.support import case, certificate_to_json, check_evidence, few


def priced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all bounds follow their first batches at prices of memory."""
    monkeypatch.setattr(OccupancyPrices, "ends_matter", lambda *_: False)


def drawn_memory(seed: int, graph: OccupancyGraph, batches: int) -> MemoryPrices:
    """Prices of memory, often near those of tokens."""
    rng = random.Random(seed)
    kv = np.array([rng.choice([0, rng.randint(0, 12)]) for _ in range(batches)], np.int64)
    return MemoryPrices(kv, rng.randint(-30, 30), rng.randint(-8, 8))


#: Where a request is: not begun, away or active with its size, or done.
Place = tuple[str, int]
#: A move in a batch: the place after it, KV held in it, whether it decodes, whether it comes, and its cost.
Move = tuple[Place, int, bool, bool, int]


def moves(graph: OccupancyGraph, prices: Prices, kind: tuple[int, int, int], place: Place) -> list[Move]:
    """All that a request may do in a batch.

    Parameters
    ----------
    graph : OccupancyGraph
    prices : Prices
    kind : (int, int, int)
        Its prompt and outputs, and a number.
    place : (str, int)
    """
    prompt, outputs, _ = kind
    where, size = place
    finish = prices.finish[graph.ends.index(prompt + outputs)]

    def made(held: int, decodes: bool, cost: int) -> Move:
        done = held + 1 == prompt + outputs
        after = ("done", 0) if done else ("active", held + 1)
        pays = prices.token + prices.size * held + (finish if done else 0)
        return after, held, decodes, not decodes, cost - pays

    stay = (place, 0, False, False, 0)
    if where == "done":
        return [stay]
    if where == "new":
        return [stay, made(prompt, False, -prices.first[graph.prompts.index(prompt)])]
    out = prices.out_fixed + prices.out_size * size
    back = graph.rho * (size - 1) - out
    returns = [made(size, False, back)]
    if graph.chunked:
        returns.append((("active", size), size - 1, False, True, back))
    if where == "away":
        return [stay, *returns]
    found = [made(size, True, 0), (place, size - 1, False, False, 0)]
    if graph.evictions:
        found.append((("away", size), 0, False, False, out))
        found += [(after, held, decodes, comes, cost + out) for after, held, decodes, comes, cost in returns]
    return found


def reached(graph: OccupancyGraph, prices: Prices, batches: int) -> list[dict[Sizes, int]]:
    """Least costs after each of the first batches, by the sizes of active requests, told one by one."""
    kinds = [(i, o, 1) for i, o, count in graph.kinds for _ in range(count)]
    costs: dict[tuple[Place, ...], int] = {(("new", 0),) * len(kinds): 0}
    found = []
    for _ in range(batches):
        after: dict[tuple[Place, ...], int] = {}
        for places, before in costs.items():
            each = [moves(graph, prices, kind, place) for kind, place in zip(kinds, places, strict=True)]
            for chosen in itertools.product(*each):
                ends, held, decode, come, paid = zip(*chosen, strict=True)
                active = [size for where, size in ends if where == "active"]
                if sum(held) > graph.capacity or len(active) > graph.most:
                    continue
                fixed = graph.pure if not any(decode) else graph.mixed if any(come) else graph.plain
                if not any(held):
                    fixed = min(graph.plain, graph.pure)
                key = tuple(ends)
                after[key] = min(after.get(key, 2**60), before + fixed + sum(paid))
        costs = after
        by_sizes: dict[Sizes, int] = {}
        for places, cost in costs.items():
            sizes = tuple(sorted(size for where, size in places if where == "active"))
            by_sizes[sizes] = min(by_sizes.get(sizes, 2**60), cost)
        found.append(by_sizes)
    return found


def states_below(seed: int) -> tuple[int, int, int]:
    """After all first batches: how many states cost less than prices of memory say, how many there are, and
    how often one costs just that.
    """
    graph, prices, batches = drawn(seed)
    below = compared = exact = 0
    for done, costs in enumerate(reached(graph, prices, min(3, batches + 1))):
        first = PricedBatches(graph, done + 1)
        for turn in range(6):
            memory = drawn_memory(7 * seed + turn, graph, done + 1)
            fixed = first.fixed(memory, list(first.cheapest(prices, memory)))
            spare = [
                cost - fixed - memory.active * len(sizes) - memory.size * sum(sizes)
                for sizes, cost in costs.items()
            ]
            below += sum(left < 0 for left in spare)
            compared += len(spare)
            exact += min(spare) == 0
    return below, compared, exact


@in_blocks(campaign(240, 5_000), 40)
def test_no_state_costs_less_than_prices_of_memory_say(seeds: range) -> None:
    """States list the sizes of all requests here, and every batch knows what it processes."""
    found = [states_below(seed) for seed in seeds]
    assert [seed for seed, (below, *_) in zip(seeds, found, strict=True) if below] == []
    assert sum(exact for *_, exact in found) > 0


def kernel_with(**changes: Any) -> Callable[..., Any]:
    """Instead of the kernels: one for which something of each life is changed."""

    def cheapest_life(life: plain.Life, *rest: Any) -> tuple[int, int]:
        changed = {name: change(getattr(life, name)) for name, change in changes.items()}
        found: tuple[int, int] = plain.cheapest_life(life._replace(**changed), *rest)
        return found

    return lambda small=False: cheapest_life


#: What lives may leave out.  Late returns seem to matter nowhere: who begins later holds less.
CHANGES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "evictions": {"evictions": lambda _: False},
    "the first batch": {"young": lambda young: young + 1},
    "what a finish pays": {"finish": lambda finish: finish - 5},
    "what a return costs": {"in_fixed": lambda cost: cost + 5},
    "what an eviction costs": {"out_fixed": lambda cost: cost + 5},
    "what active requests count": {"active": lambda worth: worth - 5},
}


def listed(graph: OccupancyGraph, prices: Prices, memory: MemoryPrices, kind: tuple[int, int, int]) -> int:
    """The least cost of all lives of a request, listed move by move; 0 where none costs less."""
    costs: dict[Place, int] = {("new", 0): 0}
    for price in memory.kv:
        after: dict[Place, int] = {}
        for place, before in costs.items():
            for other, held, _, _, cost in moves(graph, prices, kind, place):
                after[other] = min(after.get(other, 2**60), before + cost + int(price) * held)
        costs = after
    worth = {place: memory.active + memory.size * place[1] for place in costs if place[0] == "active"}
    return min(0, *(cost - worth.get(place, 0) for place, cost in costs.items()))


def differing(seeds: range) -> list[int]:
    """Seeds of which some cheapest life costs other than the least of those listed."""
    found = []
    for seed in seeds:
        graph, prices, batches = drawn(seed)
        memory = drawn_memory(seed, graph, batches + 3)
        lives = PricedBatches(graph, batches + 3).cheapest(prices, memory)
        costs = [life.cost if life else 0 for life in lives]
        if costs != [listed(graph, prices, memory, kind) for kind in graph.kinds]:
            found.append(seed)
    return found


@in_blocks(campaign(300, 5_000), 100)
def test_cheapest_lives_are_those_of_a_listing(seeds: range) -> None:
    assert differing(seeds) == []


@pytest.mark.parametrize("left_out", CHANGES)
def test_lives_that_leave_something_out_cost_otherwise(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part matters to the comparison."""
    monkeypatch.setattr(_occupancy_priced, "_kernel", kernel_with(**CHANGES[left_out]))
    assert differing(range(300))


def costs_of(life: CheapestLife, prices: Prices, memory: MemoryPrices) -> int:
    """What a life costs by its weights."""
    after = memory.active + memory.size * life.after if life.after else 0
    return int(life.weights @ (1, *prices.all) + life.held @ memory.kv) - after


def test_weights_of_lives_give_their_costs() -> None:
    """The linear program sees lives by their weights alone."""
    kinds = set()
    for seed in range(300):
        graph, prices, batches = drawn(seed)
        if seed % 3 == 0:
            graph = replace(graph, young=1, kinds=tuple((i, o, c) for i, o, c in graph.kinds))
        first = PricedBatches(graph, batches + 2)
        memory = drawn_memory(seed, graph, batches + 2)
        for life in first.cheapest(prices, memory):
            if life is not None:
                assert life.cost == costs_of(life, prices, memory)
                kinds.add((bool(life.after), life.weights[3] != 0, bool((life.held == 0).any())))
    assert len(kinds) > 4


@in_blocks(campaign(60, 5_000), 20)
def test_bounds_at_prices_of_memory_do_not_exceed_the_optimum(seeds: range) -> None:
    """And the checker says the same of each."""
    accepted = 0
    for seed in seeds:
        instance = crowd(seed) if seed % 2 else tiny(seed)
        with pytest.MonkeyPatch.context() as patched:
            priced_only(patched)
            bound = occupancy_bound(instance, stop=few(60))
        if bound is None or bound.evidence is None or "memory" not in bound.evidence:
            continue
        best = staged_search(instance).upper
        assert best is not None
        assert check_evidence(instance, bound) == bound.value, seed
        assert bound.value <= best, seed
        accepted += 1
    assert accepted > 0


def with_prices(instance: Instance) -> dict[str, Any]:
    """A certificate of the bound at prices of memory."""
    with pytest.MonkeyPatch.context() as patched:
        priced_only(patched)
        bound = occupancy_bound(instance, stop=few(400))
    assert bound is not None
    assert bound.evidence is not None
    assert "memory" in bound.evidence
    return certificate_to_json(instance, bound)


#: Six requests of 3 + 5 tokens in a memory of 16.
HONEST = case(6, 3, 5, 16)


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    """A certificate of it."""
    certificate = with_prices(HONEST)
    assert submitted(HONEST, certificate) == Fraction(certificate["lower_bound"])
    return certificate


def changed(certificate: dict[str, Any], **evidence: Any) -> dict[str, Any]:
    """The certificate with other evidence, signed."""
    return signed({**certificate, "evidence": {**certificate["evidence"], **evidence}})


def test_they_gain_on_prices_of_the_graph_alone(honest: dict[str, Any]) -> None:
    alone = occupancy_bound(HONEST, stop=few(400), ends=False)
    assert alone is not None
    assert Fraction(honest["lower_bound"]) > alone.value


def test_potentials_follow_from_the_prices(honest: dict[str, Any]) -> None:
    rows = honest["evidence"]["potential"]
    higher = [[None if v is None else v + 1 for v in row] for row in rows]
    with pytest.raises(Rejected, match="the first batches cost less"):
        submitted(HONEST, changed(honest, potential=higher))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kv", [], "there may be fewer batches"),
        ("kv", [0] * 1000, "there may be fewer batches"),
        ("kv", [-1], "a price of KV is below 0"),
        ("kv", [0.5], "no whole number"),
        ("kv", 3, "is not a list"),
        ("active", None, "no whole number"),
        ("size", "1", "no whole number"),
    ],
)
def test_wrong_prices(honest: dict[str, Any], name: str, value: Any, words: str) -> None:
    memory = {**honest["evidence"]["memory"], name: value}
    with pytest.raises(Rejected, match=words):
        submitted(HONEST, changed(honest, memory=memory))


def test_missing_prices(honest: dict[str, Any]) -> None:
    memory = {"kv": [0], "active": 0}
    with pytest.raises(Rejected, match=r"memory\.size: is missing"):
        submitted(HONEST, changed(honest, memory=memory))


def test_the_first_batches_are_followed_once(honest: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="followed in two ways"):
        submitted(HONEST, changed(honest, ends=[0, 0]))


def test_many_active_requests_cost_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last list stands for several numbers of requests."""
    monkeypatch.setattr("infermax_opt.infermax.bounds._occupancy_graph.MAX_ACTIVE", 2)
    instance = case(6, 2, 9, 30)
    certificate = with_prices(instance)
    assert len(certificate["evidence"]["potential"]) == 3
    assert submitted(instance, certificate) == Fraction(certificate["lower_bound"])
    memory = {**certificate["evidence"]["memory"], "active": -1}
    with pytest.raises(Rejected, match="more active requests"):
        submitted(instance, changed(certificate, memory=memory))


#: Instances on which a part of lives matters.
MATTERS = {
    "evictions": case(4, 1, 4, 6),
    "the first batch": case(6, 3, 5, 16),
}


@pytest.mark.parametrize("left_out", MATTERS)
def test_certificates_that_leave_something_out(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a part potentials would be too high: the checker knows every part."""
    instance = MATTERS[left_out]
    certificate = with_prices(instance)
    assert submitted(instance, certificate) == Fraction(certificate["lower_bound"])
    monkeypatch.setattr(_occupancy_priced, "_kernel", kernel_with(**CHANGES[left_out]))
    bold = with_prices(instance)
    assert Fraction(bold["lower_bound"]) > Fraction(certificate["lower_bound"])
    with pytest.raises(Rejected, match="the first batches cost less"):
        submitted(instance, bold)


def test_prices_of_the_graph_are_found_with_those_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """They prove more than prices of memory beside those that are best without."""
    instance = case(6, 2, 9, 30)
    together = Fraction(with_prices(instance)["lower_bound"])
    monkeypatch.setattr(_occupancy_search, "MAX_JOINT", 0)
    assert Fraction(with_prices(instance)["lower_bound"]) < together


def test_batches_that_cost_nothing_but_for_prompts() -> None:
    """Prices are in shares of a batch, which may be nothing."""
    free = case(6, 3, 5, 16, cost=CostModel([("0", "0.01")], ("0", "0.001"), ("0.5", "0")))
    with pytest.MonkeyPatch.context() as patched:
        priced_only(patched)
        bound = occupancy_bound(free, stop=few(400))
    best = staged_search(free).upper
    assert best is not None
    assert bound is None or check_evidence(free, bound) == bound.value <= best
    graph, _ = occupancy_graph(free, 0)
    assert graph is not None
    assert graph.plain == 0
    tables, _ = graph.settle(Prices(0, 0, 0, 0, 0, (0,), (0,)), None)
    assert tables is not None
    found = dearer_evictions(graph, Prices(0, 0, 0, 0, 0, (0,), (0,)), tables)
    assert found is None or graph.settle(found[0], found[1])[0] is not None


def test_evictions_pay_more_at_potentials_that_hold() -> None:
    """And an eviction with its return costs the same."""
    graph, _ = occupancy_graph(HONEST, 0)
    assert graph is not None
    prices = Prices(0, 0, 0, 0, 0, (0,), (0,))
    tables, _ = graph.settle(prices, None)
    assert tables is not None
    found = dearer_evictions(graph, prices, tables)
    assert found is not None
    other, settled = found
    assert other.out_fixed + other.out_size * (graph.ends[-1] - 1) > 0
    assert (other.token, other.size, other.first, other.finish) == (0, 0, (0,), (0,))
    again, _ = graph.settle(other, settled)
    assert again is not None
    assert (again == settled).all()
