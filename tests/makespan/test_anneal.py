"""Annealed makespan schedules: valid, no better than optimal, the same for a seed; the state stays whole."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import networkx
import numpy as np
import pytest

from infermax_opt.makespan.anneal import _packing as packing
from infermax_opt.makespan.anneal import _paths as paths
from infermax_opt.makespan.anneal import plans as anneal
from infermax_opt.makespan.anneal._state import arcs_of, earliest, first_paths, follow_paths
from infermax_opt.makespan.anneal.plans import anneal_plans
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from infermax_opt.makespan.replay.bins import replay_bins
from tests.makespan.oracle import optimum, tiny_makespan


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of few steps."""
    monkeypatch.setattr(anneal, "FIRST", 20_000)


def missing(arcs: paths.Arcs) -> int:
    return -int(arcs.spare[arcs.spare < 0].sum())


def whole(arcs: paths.Arcs, output: np.ndarray, clients: int) -> None:
    """The lists of arcs agree with their nodes, paths are paths, and what is spare is what it is."""
    fresh = arcs_of(arcs.time, arcs.source, arcs.target, output, clients)
    assert (fresh.spare == arcs.spare).all()
    for lists, count, nodes in (
        (arcs.into, arcs.entering, arcs.target),
        (arcs.out_of, arcs.leaving, arcs.source),
    ):
        for node in range(len(arcs.time)):
            assert sorted(lists[node, : count[node]]) == list(np.flatnonzero(nodes == node))
    inner = slice(1, -1)
    assert (arcs.entering[inner] == arcs.leaving[inner]).all()
    assert arcs.leaving[0] == arcs.entering[-1] == clients
    assert (arcs.source < arcs.target).all()
    assert (np.diff(arcs.time) >= 0).all()
    assert arcs.time[0] == 0


@pytest.mark.parametrize("hot", [1e-6, 1.0, 50.0])
def test_the_state_stays_whole(hot: float) -> None:
    rng = random.Random(1)
    output = np.array(sorted((rng.randint(1, 60) for _ in range(17)), reverse=True), np.int64)
    random_numbers = np.random.default_rng(2)
    arcs = arcs_of(*first_paths(output, 4, 9, random_numbers), output, 4)
    whole(arcs, output, 4)
    cost = np.array([0.0, 1.0, 1.5, 2.0, 2.5])
    for _ in range(5):
        paths.anneal(arcs, cost, 2.0, 400, 0, 400, hot, hot, random_numbers)
        whole(arcs, output, 4)


def test_compiled_and_plain_agree() -> None:
    output = np.array(sorted([37, 5, 21, 40, 33, 8, 16, 25, 29, 12, 3, 40], reverse=True), np.int64)
    cost = np.array([0.0, 1.0, 1.5, 2.0])
    found = []
    for function in (paths.anneal, anneal._kernels()[0]):
        random_numbers = np.random.default_rng(3)
        arcs = arcs_of(*first_paths(output, 3, 6, random_numbers), output, 3)
        function(arcs, cost, 1.5, 3000, 0, 3000, 5.0, 0.1, random_numbers)
        found.append(arcs)
    for plain, fast in zip(*found, strict=True):
        assert (plain == fast).all()


def test_nothing_misses_where_time_is_ample() -> None:
    output = np.array([9, 8, 7, 6, 5, 4], np.int64)
    random_numbers = np.random.default_rng(0)
    arcs = arcs_of(*first_paths(output, 2, 5, random_numbers), output, 2)
    paths.anneal(arcs, np.zeros(3), 0.1, 20_000, 0, 20_000, 2.0, 0.01, random_numbers)
    assert missing(arcs) == 0
    # The longest request on the longest arc, and so on: then every arc is long enough, and stays so.
    length = arcs.time[arcs.target] - arcs.time[arcs.source]
    taken = np.argsort(-length, kind="stable")
    needed = np.zeros(len(arcs.source), np.int64)
    needed[taken] = output
    assert (needed <= length).all()
    time = earliest(arcs.source, arcs.target, needed, len(arcs.time))
    assert (time <= arcs.time).all()
    assert (needed <= time[arcs.target] - time[arcs.source]).all()


def test_clients_follow_their_paths() -> None:
    source, target = np.array([2, 0, 1, 0]), np.array([3, 2, 3, 1])
    client = follow_paths(source, target, 2, 4)
    assert sorted([client[1], client[3]]) == [1, 2]
    assert (client[0], client[2]) == (client[1], client[3])


def test_exchanges_keep_to_the_arcs_and_save_levels() -> None:
    rng = np.random.default_rng(5)
    n, nodes = 60, 8
    output = np.sort(rng.integers(1, 50, n))[::-1].copy()
    prompt = rng.integers(1, 100, n)
    node = rng.integers(0, nodes, n)
    length = output + rng.integers(0, 10, n)
    taken = np.arange(n)
    capacity, ticks = np.arange(1, 80) * 64, np.arange(1, 80) * 10.0

    def cost(load: np.ndarray) -> float:
        return sum(packing.stage(some, capacity, ticks, 0.0) for some in load)

    load = np.bincount(node, prompt, nodes).astype(np.int64)
    before = cost(load)
    packing.pack(
        taken, length, node, output, prompt, load, capacity, ticks, 0.5, 20_000, 2.0, 0.1, rng
    )  # fmt: skip
    assert sorted(taken) == list(range(n))
    assert (output <= length[taken]).all()
    assert (load == np.bincount(node[taken], prompt, nodes)).all()
    assert cost(load) < before


def test_stage() -> None:
    capacity, ticks = np.array([10, 20, 50]), np.array([3.0, 5.0, 9.0])
    values = [packing.stage(tokens, capacity, ticks, 0.0) for tokens in (0, 1, 10, 11, 50, 52, 100)]
    assert values == [0.0, 3.0, 3.0, 5.0, 9.0, 12.0, 18.0]
    # Half of the second level is free: a quarter of the step, times the share.
    assert packing.stage(15, capacity, ticks, 0.5) == 5.0 - 0.5 * 2.0 * 0.25


def test_tiny_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anneal, "MOST_STEPS", 2_000)
    rng = random.Random(7)
    met = 0
    for _ in range(60):
        instance = tiny_makespan(rng)
        best = optimum(instance)
        values = []
        for _name, schedule in anneal_plans(instance, seed=1):
            found = replay_bins(instance, schedule)
            assert found.valid, found.violations
            assert found.makespan >= best
            values.append(found.makespan)
        assert values == sorted(values, reverse=True)
        assert len(set(values)) == len(values)
        met += values[-1] == best
    assert met >= 45


@pytest.mark.usefixtures("short")
def test_levels_that_hold_few_requests() -> None:
    requests = [(40 + k % 7, 20 + k % 30) for k in range(60)]
    levels = [PrefillLevel(64, Fraction(1, 10)), PrefillLevel(160, Fraction(2, 10))]
    instance = MakespanInstance.of_requests("tight", requests, 12, levels, ("0.02", "0.001"))
    plans = list(anneal_plans(instance, seed=0))
    assert plans
    found = replay_bins(instance, plans[-1][1])
    assert found.valid, found.violations
    assert max(len(some.prefill) for some in plans[-1][1].bins) <= 3


@pytest.mark.usefixtures("short")
def test_seeds_and_limits() -> None:
    instance = gsm8k_like(seed=3, requests=24, clients=6)
    bound = closed_form_makespan_bounds(instance)[0].value
    first, again = ([*anneal_plans(instance, seed=5, threads=2)] for _ in range(2))
    assert first == again
    value = replay_bins(instance, first[-1][1]).makespan
    assert bound <= value <= bound * Fraction(104, 100)
    assert [*anneal_plans(instance, seed=5, upper=bound)] == []
    began = time.monotonic()
    plans = [*anneal_plans(instance, deadline=began + 0.5)]
    assert plans
    assert time.monotonic() - began < 3
    assert [*anneal_plans(instance, deadline=began)] == []
    assert [*anneal_plans(instance, stop=lambda: True)] == []


@pytest.mark.usefixtures("short")
def test_long_outputs_are_measured_in_units() -> None:
    requests = [(10, 1_000_000 * (k + 1)) for k in range(9)]
    instance = MakespanInstance.of_requests("long", requests, 3, [PrefillLevel(100, Fraction(1))], (1, 0))
    plans = [*anneal_plans(instance, seed=0)]
    found = replay_bins(instance, plans[-1][1])
    assert found.valid
    # 15 million rounds for each client, and three prefill stages or more.
    assert 15_000_003 <= found.makespan <= 15_100_000


@pytest.mark.parametrize("seed", range(20))
def test_hall_and_longest_paths_against_networkx(seed: int) -> None:
    """Tokens miss if and only if no matching gives each request an arc; moments are longest paths."""
    rng = random.Random(seed)
    clients, n = rng.randint(1, 4), rng.randint(4, 20)
    output = np.array(sorted((rng.randint(1, 30) for _ in range(n)), reverse=True), np.int64)
    bins = rng.randint(-(-n // clients), n)
    time_, source, target = first_paths(output, clients, bins, np.random.default_rng(seed))
    arcs = arcs_of(time_, source, target, output, clients)
    length = time_[target] - time_[source]
    graph = networkx.Graph()
    graph.add_nodes_from(range(2 * n))
    graph.add_edges_from((i, n + k) for i in range(n) for k in range(n) if output[i] <= length[k])
    matching = networkx.bipartite.hopcroft_karp_matching(graph, range(n))
    assert (missing(arcs) == 0) == (len(matching) == 2 * n)
    paths_ = networkx.DiGraph()
    paths_.add_weighted_edges_from((node, node + 1, 0) for node in range(bins))
    for i, j, rounds in zip(source.tolist(), target.tolist(), output.tolist(), strict=True):
        known = paths_.get_edge_data(i, j, {"weight": -1})["weight"]
        paths_.add_edge(i, j, weight=max(known, rounds))
    assert earliest(source, target, output, bins + 1)[-1] == networkx.dag_longest_path_length(paths_)
