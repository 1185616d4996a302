"""Whether jobs fit on machines of a given load: arcs in a graph of loads, solved by HiGHS.

A machine is a path from load 0 up to the load it ends with, an arc per job (Valério de Carvalho 1999),
jobs in the order of their lengths.  All machines together may leave no more than their capacity less the
sum of the jobs unused, so none ends further below the capacity than that.  Arcs on no such path are left
out: an arc of a length starts where longer jobs and others of this length can lead, and ends where
the rest can go on to an end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["MOST_ARCS", "decide"]

#: Most arcs that HiGHS is asked about.
MOST_ARCS = 25_000
#: The largest capacity for which arcs are counted.
MOST_LOAD = 200_000
#: Most nodes of its tree.
NODES = 20_000
#: Least proved number of jobs left out that counts as "one or more".  HiGHS's tolerances are 1e-8 and less
#: here; a bound is not trusted with an integrality margin under 1e-6, and this one is far above.
MARGIN = 0.5


def tails(sizes: Sequence[int], copies: Sequence[int], machines: int, capacity: int) -> list[int] | None:
    """Per kind of job, the loads at which its arcs start, as bits; None if the jobs are too long."""
    unused = machines * capacity - sum(s * c for s, c in zip(sizes, copies, strict=True))
    if unused < 0:
        return None
    everything = (1 << (capacity + 1)) - 1
    ends = everything >> max(0, capacity - unused) << max(0, capacity - unused)
    before = []
    reached = 1
    for size, number in zip(sizes, copies, strict=True):
        for _ in range(number - 1):
            reached |= reached << size & everything
        before.append(reached)
        reached |= reached << size & everything
    after = []
    good = ends
    for size, number in zip(reversed(sizes), reversed(copies), strict=True):
        for _ in range(number - 1):
            good |= good >> size
        after.append(good)
        good |= good >> size
    return [b & (a >> s) for b, a, s in zip(before, reversed(after), sizes, strict=True)]


def decide(
    sizes: Sequence[int],
    copies: Sequence[int],
    machines: int,
    capacity: int,
    *,
    seed: int,
    deadline: float | None,
) -> tuple[bool | None, list[list[int]]]:
    """Whether all jobs fit on the machines.

    The model leaves as few jobs out as possible.  It always has a solution, so a wrong claim
    of infeasibility is nothing that tolerances could cause.

    Parameters
    ----------
    sizes : sequence of int
        Different lengths, longest first.
    copies : sequence of int
        Jobs per length.
    machines, capacity : int
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.

    Returns
    -------
    fits : bool or None
        None where HiGHS came to no conclusion or was not asked.  False is a claim of HiGHS, with a bound
        more than `MARGIN` above 0, where 1 is the next value that is possible.
    parts : list of list of int
        Lengths per machine if they fit, in whole numbers and checked.
    """
    import highspy
    import numpy as np

    if capacity > MOST_LOAD:
        return None, []
    starts = tails(sizes, copies, machines, capacity)
    if starts is None:
        return False, []
    if sum(bits.bit_count() for bits in starts) > MOST_ARCS:
        return None, []
    graph = _Graph.of(sizes, copies, machines, capacity, starts)
    solver = highspy.Highs()
    options: dict[str, Any] = {"output_flag": False, "threads": 1, "random_seed": seed}
    options |= {"mip_max_nodes": NODES}
    options |= {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
    options |= {"mip_feasibility_tolerance": 1e-8, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}
    if deadline is not None:
        options["time_limit"] = max(0.01, deadline - time.monotonic())
    for name, setting in options.items():
        solver.setOptionValue(name, setting)
    if solver.passModel(_program(graph, copies, machines)) == highspy.HighsStatus.kError:
        return None, []
    solver.run()
    info = solver.getInfo()
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        flow = np.round(np.array(solver.getSolution().col_value)).astype(np.int64)
        arcs = len(graph.tail)
        if not flow[arcs + len(graph.ends) :].any():
            parts = _paths(flow[:arcs], graph.tail, graph.kind, list(sizes), list(copies), machines)
            if parts is not None:
                return True, parts
    done = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return (False if done and info.mip_dual_bound > MARGIN else None), []


class _Graph(NamedTuple):
    """Arcs between loads.

    Attributes
    ----------
    kind, tail, head : array of int, one per arc
        Kind of job, and the loads at both ends.
    nodes : array of int
        All loads, ascending.
    ends : array of int
        Those at which a machine may end.
    """

    kind: Any
    tail: Any
    head: Any
    nodes: Any
    ends: Any

    @classmethod
    def of(
        cls, sizes: Sequence[int], copies: Sequence[int], machines: int, capacity: int, starts: Sequence[int]
    ) -> _Graph:
        """The graph with arcs that start at these loads, per kind of job, as bits."""
        import numpy as np

        unused = machines * capacity - sum(s * c for s, c in zip(sizes, copies, strict=True))
        first: list[Any] = [_positions(bits, capacity) for bits in starts]
        kind = np.repeat(np.arange(len(sizes)), [len(part) for part in first])
        tail = np.concatenate(first)
        head = tail + np.array(sizes)[kind]
        nodes = np.unique(np.concatenate([tail, head, [0]]))
        return cls(kind, tail, head, nodes, nodes[nodes >= capacity - unused])


def _program(graph: _Graph, copies: Sequence[int], machines: int) -> Any:
    """The program of HiGHS: flow on arcs, machines that end at each load, jobs of each kind left out.

    Rows are the nodes (in less out is 0; at 0 out is at most the number of machines), then the kinds.
    """
    import highspy
    import numpy as np

    a, e, k, v = len(graph.tail), len(graph.ends), len(copies), len(graph.nodes)
    columns = np.arange(a)
    tails_at, heads_at = np.searchsorted(graph.nodes, graph.tail), np.searchsorted(graph.nodes, graph.head)
    entries = [
        (tails_at, columns, -np.ones(a)), (heads_at, columns, np.ones(a)),
        (v + graph.kind, columns, np.ones(a)),
        (np.searchsorted(graph.nodes, graph.ends), a + np.arange(e), -np.ones(e)),
        (v + np.arange(k), a + e + np.arange(k), np.ones(k)),
    ]  # fmt: skip
    row, column, value = (np.concatenate([entry[i] for entry in entries]) for i in range(3))
    order = np.lexsort((row, column))
    total = a + e + k
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = total, v + k
    lp.col_cost_ = np.concatenate([np.zeros(a + e), np.ones(k)])
    lp.col_lower_ = np.zeros(total)
    most = np.array(copies, float)
    arcs, ends = np.minimum(most[graph.kind], machines), np.full(e, float(machines))
    lp.col_upper_ = np.concatenate([arcs, ends, most])
    lower, upper = np.concatenate([np.zeros(v), most]), np.concatenate([np.zeros(v), most])
    lower[0] = -machines
    lp.row_lower_, lp.row_upper_ = lower, upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(column[order], np.arange(total + 1)).astype(np.int32)
    lp.a_matrix_.index_ = row[order].astype(np.int32)
    lp.a_matrix_.value_ = value[order]
    lp.integrality_ = [highspy.HighsVarType.kInteger] * total
    return lp


def _positions(bits: int, capacity: int) -> Any:
    """Positions of the bits that are set."""
    import numpy as np

    raw = np.frombuffer(bits.to_bytes(capacity // 8 + 1, "little"), np.uint8)
    return np.nonzero(np.unpackbits(raw, bitorder="little"))[0]


def _paths(
    flow: Any, tail: Any, kind: Any, sizes: list[int], copies: list[int], machines: int
) -> list[list[int]] | None:
    """Follow the flow from load 0, machine by machine; None unless that takes every job exactly once."""
    out: dict[int, list[list[int]]] = {}
    for start, k, amount in zip(tail.tolist(), kind.tolist(), flow.tolist(), strict=True):
        if amount > 0:
            out.setdefault(start, []).append([k, amount])
    left = list(copies)
    parts = []
    for _ in range(machines):
        load, part = 0, []
        while out.get(load):
            arc = out[load][-1]
            arc[1] -= 1
            if not arc[1]:
                out[load].pop()
            left[arc[0]] -= 1
            part.append(sizes[arc[0]])
            load += sizes[arc[0]]
        parts.append(part)
    return None if any(left) else parts
