"""The graph behind the state-flow model, for pictures and tests.

A node is (batch, type, m, n): requests of that type with m tokens cached and n generated after that
batch; batch 0 is the start.  An edge is an arc in a batch.  Each edge goes on by one batch, so the
graph is layered and has no cycles.  A flow of the model enters at the start, is conserved in every
other node, and leaves where all tokens of a type are generated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infermax_opt.models.infermax_flow import StateFlow, arcs_of, columns_of

from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import networkx
    from pyomo.core import ConcreteModel

__all__ = ["flow_graph", "with_flow"]

Node = tuple[int, int, int, int]


def flow_graph(
    instance: Instance, horizon: int, formulation: StateFlow | None = None
) -> networkx.DiGraph[Node]:
    """Draw the state-flow model of an instance as a graph.

    Parameters
    ----------
    instance : Instance
    horizon : int
        Number of batches.
    formulation : StateFlow, optional
        For its chunk grid.

    Returns
    -------
    networkx.DiGraph
        Nodes carry their `layer` (batch) and `supply` (requests that start there); edges their
        `column` (the index of the model's variable ``x``), `capacity` (requests of the type) and
        `arc`.
    """
    import networkx

    grid = (formulation or StateFlow()).grid(instance, horizon)
    arcs = list(arcs_of(instance, grid))
    graph = networkx.DiGraph(horizon=horizon)
    for t, kind in enumerate(instance.types):
        graph.add_node((0, t, 0, 0), layer=0, supply=len(kind.members))
    for a, j in columns_of(instance, arcs, horizon):
        arc = arcs[a]
        source, target = (j - 1, arc.kind, arc.m, arc.n), (j, arc.kind, arc.m2, arc.n2)
        for node in (source, target):
            if node not in graph:
                graph.add_node(node, layer=node[0], supply=0)
        members = len(instance.types[arc.kind].members)
        graph.add_edge(source, target, column=(a, j), capacity=members, arc=arc)
    return graph


def with_flow(graph: networkx.DiGraph[Node], model: ConcreteModel) -> networkx.DiGraph[Node]:
    """The edges that carry requests by the values of a model, with their number as `flow`."""
    carried = []
    for source, target, column in graph.edges(data="column"):
        value = model.x[column].value
        if value:
            graph.edges[source, target]["flow"] = round(value)
            carried.append((source, target))
    return graph.edge_subgraph(carried)
