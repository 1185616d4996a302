"""The graph of the state-flow model: layers, no cycles, and flows that are conserved."""

from __future__ import annotations

import random

import networkx
import pytest
from infermax_opt.models.infermax_flow import StateFlow
from infermax_opt.models.infermax_flow_graph import flow_graph, with_flow

from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.exact.solve_formulation import one_by_one
from infermax_opt.infermax.planners.plan.planner import PlannerOptions, plan
from tests.support import PAPER


def instance(seed: int) -> Instance:
    rng = random.Random(seed)
    groups = tuple(
        RequestGroup(f"r{k}", rng.randint(1, 4), rng.randint(1, 4), count=rng.randint(1, 3)) for k in range(2)
    )
    policy = Policy(hybrid_batching=True, chunked_prefill=rng.random() < 0.5, preemption=rng.random() < 0.5)
    return Instance("graph", groups, System(9, 8, 8), PAPER, policy)


def schedules(of: Instance) -> list[Schedule]:
    return [one_by_one(of), plan(of), plan(of, PlannerOptions(backwards=False))]


@pytest.mark.parametrize("seed", range(12))
def test_layers(seed: int) -> None:
    of = instance(seed)
    graph = flow_graph(of, 8)
    assert networkx.is_directed_acyclic_graph(graph)
    layer = graph.nodes(data="layer")
    assert all(layer[b] == layer[a] + 1 for a, b in graph.edges)
    assert {b[0] for b in graph} <= set(range(9))
    assert sum(supply for _, supply in graph.nodes(data="supply")) == len(of.requests)
    # Every column of the model is one edge.
    columns = [column for *_, column in graph.edges(data="column")]
    assert sorted(columns) == sorted(StateFlow().build(of, 8).x)


@pytest.mark.parametrize("seed", range(12))
def test_a_warm_start_is_a_flow(seed: int) -> None:
    of = instance(seed)
    for schedule in schedules(of):
        formulation = StateFlow(chunk_grid=1)
        horizon = schedule.length + 1
        model = formulation.build(of, horizon)
        formulation.warm_start(model, schedule)
        flow = with_flow(flow_graph(of, horizon, formulation), model)
        done = 0
        for node, supply in flow.nodes(data="supply"):
            _, kind, _, generated = node
            arrived = supply + flow.in_degree(node, weight="flow")
            left = flow.out_degree(node, weight="flow")
            if generated == of.types[kind].output_tokens:
                assert left == 0
                done += arrived
            else:
                assert arrived == left, node
        assert done == len(of.requests)
        # Each component begins at the start, and holds one type.
        for part in networkx.weakly_connected_components(flow):
            assert min(node[0] for node in part) == 0
            assert len({node[1] for node in part}) == 1


def test_pictures_by_layers() -> None:
    graph = flow_graph(instance(1), 5)
    places = networkx.multipartite_layout(graph, subset_key="layer")
    columns = {round(float(places[node][0]), 6) for node in graph}
    assert len(columns) == len({node[0] for node in graph})
