"""Beam search, batch by batch, over how many requests in memory have made how many tokens.

For offline workloads of many requests of one kind with few tokens, of which a dozen or more fit into the KV:
what counts there is how ages mix, and what is evicted costs little to refill.  A node is how many active
requests have made how many tokens, how many evicted ones have, and how many are left to start.  In each
batch up to two kinds of requests are evicted, up to two kinds return, any number starts, and all that are
active make a token.

Nodes are compared after the same number of batches, by what they cost beyond the potentials of the occupancy
bound (`infermax_opt.infermax.bounds.occupancy`).  Each step costs at least what the potential grows by, and
over a whole schedule that surplus is the distance of its makespan from the bound: it only grows, and says how
much was lost so far, however much was done.  Of nodes that hold alike numbers, the best is kept alone, as
nodes would otherwise differ in who was evicted, and agree in how ages mix.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph
from infermax_opt.infermax.bounds._occupancy_guide import OccupancyGuide, occupancy_guide
from infermax_opt.infermax.bounds.occupancy import occupancy_graph
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, run_length
from infermax_opt.infermax.planners.children import distinct, find_children, no_children, path
from infermax_opt.infermax.planners.counts import _kernel
from infermax_opt.infermax.planners.moments import passed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["CountOptions", "count_plans", "count_search", "counts_help"]

#: Tokens of the longest output, states of the graph, and batches that the KV area takes, at most.
MAX_OUTPUT, MAX_STATES, MAX_EXPECTED = 32, 200_000, 20_000
#: Fewest and most requests of mean size that fill the KV.
FEW, MANY = 8.0, 48.0
#: Largest share of a batch that the refill of a mean request takes.
DEAR = 0.25
#: Most evicted requests that return in a batch: with more of them the nodes kept become alike.
RETURNS = 8
#: Room for children, and how many of them are kept at least, in widths.
ROOM, KEPT = 16, 3
#: How far above the best node children are looked for, in batches: at first, at least, and at most; by what
#: that grows if they are too few, and what it is of the spread seen last.
WINDOW, NARROWEST, WIDEST, WIDER, SPREAD = 0.7, 0.01, 8.0, 1.6, 1.1
#: Batches after which decisions that no node descends from are dropped.
PRUNED = 256
#: So many times what the KV area takes, and a few more, are the batches after which a search is given up.
LONG = 4
#: Widths at first and at most, and by what they grow from round to round.
WIDTH, MAX_WIDTH, GROWTH = 200, 50_000, 4
#: Rounds of `count_plans` without a deadline.
ROUNDS = 2


@dataclass(frozen=True)
class CountOptions:
    """What distinguishes one search from another.

    Parameters
    ----------
    width : int
        Most nodes kept after a batch.
    coarse : int
        Nodes are alike if the numbers of their active requests are equal, for each number of tokens made,
        in steps of so many.
    pool : int
        With so many evicted requests no fresh one starts.
    """

    width: int = WIDTH
    coarse: int = 1
    pool: int = 60


#: What `count_plans` tries first.
OPENING = (
    CountOptions(coarse=2, pool=60), CountOptions(coarse=1, pool=60), CountOptions(coarse=2, pool=1000),
    CountOptions(coarse=1, pool=15),
)  # fmt: skip


def counts_help(instance: Instance) -> bool:
    """Whether the search applies, and is likely to find good schedules."""
    kinds = {(kind.input_tokens, kind.output_tokens) for kind in instance.types}
    system, policy, cost = instance.system, instance.policy, instance.cost
    if (
        not instance.offline or len(kinds) > 1 or len(cost.batch) > 1 or system.block_size > 1
        or not policy.preemption or not policy.hybrid_batching
    ):  # fmt: skip
        return False
    inputs, outputs = kinds.pop()
    if not 2 < outputs <= MAX_OUTPUT or inputs + outputs > min(system.prefill_budget, system.kv_capacity):
        return False
    graph, _ = occupancy_graph(instance, 0)
    return (
        graph is not None
        and graph.plain > 0
        and graph.wide == 0
        and graph.states <= MAX_STATES
        and FEW <= graph.slots <= MANY
        and graph.area <= MAX_EXPECTED * graph.capacity
        and graph.rho * (inputs + outputs / 2) <= DEAR * graph.plain
    )


def count_plans(
    instance: Instance, *, upper: float | None = None, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Ever better schedules by ever wider beams; none where the search does not help.

    Parameters
    ----------
    instance : Instance
    upper : float, optional
        Makespan in seconds to beat.
    seed : int
        Shifts the steps in which numbers are alike.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without one it ends after `ROUNDS` rounds.

    Yields
    ------
    name : str
        ``counts:`` and the number of the search.
    schedule : Schedule
    """
    if not counts_help(instance):
        return
    work = _Work.of(instance, deadline)
    settings, number, rounds = list(OPENING), 0, 0
    while work is not None and settings and (deadline is not None or rounds < ROUNDS):
        ranking: list[tuple[float, int, CountOptions]] = []
        for options in settings:
            number += 1
            seconds, schedule = work.search(options, upper, seed)
            if work.late:
                return
            if schedule is not None:
                upper = seconds
                yield f"counts:{number}", schedule
            ranking.append((seconds, number, options))
        best = [options for _, _, options in sorted(ranking, key=lambda entry: entry[:2])][:2]
        settings = [replace(o, width=o.width * GROWTH) for o in best if o.width * GROWTH <= MAX_WIDTH]
        rounds += 1


def count_search(instance: Instance, options: CountOptions, *, seed: int = 0) -> Schedule | None:
    """Search once for a schedule of small makespan.

    Parameters
    ----------
    instance : Instance
    options : CountOptions
    seed : int
        Shifts the steps in which numbers are alike.

    Returns
    -------
    Schedule or None
        None where the search does not help or finds none.
    """
    work = _Work.of(instance, None) if counts_help(instance) else None
    return None if work is None else work.search(options, None, seed)[1]


@functools.cache
def _compiled() -> Callable[..., Any]:
    return compiled(_kernel.expand, _kernel.HELPERS, allocates=False)


class _Work:
    """An instance with its guide, on which searches run one after the other."""

    def __init__(
        self, instance: Instance, graph: OccupancyGraph, guide: OccupancyGuide, unit: float, base: float,
        deadline: float | None,
    ):  # fmt: skip
        self.instance, self.guide, self.deadline = instance, guide, deadline
        #: Seconds of a batch of decodes, and of a schedule that loses nothing against the guide.
        self.unit, self.base = unit, base
        kind = instance.types[0]
        self.inputs, self.outputs = kind.input_tokens, kind.output_tokens
        #: Batches that the KV area of all requests takes.
        self.expected = -(-graph.area // graph.capacity)

    @classmethod
    def of(cls, instance: Instance, deadline: float | None) -> _Work | None:
        """The guide of an instance; None where nothing settles until the deadline."""
        from infermax_opt.infermax.bounds.least_work import least_work

        graph, exponent = occupancy_graph(instance, 0)
        assert graph is not None
        guide = occupancy_guide(graph, functools.partial(passed, deadline))
        if guide is None:
            return None
        second = instance.cost.ticks_per_second
        unit = graph.plain / 2.0**exponent / second
        least = float(least_work(instance, instance.types, 0)) / second
        return cls(instance, graph, guide, unit, least + guide.earned * unit, deadline)

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return passed(self.deadline)

    def steps(self, options: CountOptions) -> _kernel.Steps:
        """What the kernel works on."""
        system, guide = self.instance.system, self.guide
        return _kernel.Steps(
            self.inputs, self.outputs, system.kv_capacity, system.max_batch_tokens, system.prefill_budget,
            options.pool, RETURNS, guide.between, guide.admitted, guide.mixed, guide.token, guide.size,
            *guide.out, *guide.back, guide.first, guide.finish,
        )  # fmt: skip

    def search(self, options: CountOptions, upper: float | None, seed: int) -> tuple[float, Schedule | None]:
        """Makespan of the best schedule found, as far as the guide says, and that schedule.

        Infinite and None where nothing better than `upper` was found.
        """
        limit = math.inf if upper is None else (upper - self.base) / self.unit
        beam = _Beam(self, options, seed)
        best, moves = beam.run(limit)
        if moves is None:
            return math.inf, None
        schedule = self.write(moves)
        return self.base + best * self.unit, schedule if schedule.length <= MAX_BATCHES else None

    def write(self, moves: list[list[int]]) -> Schedule:
        """The schedule of named requests that makes these moves."""
        names = [request.id for request in reversed(self.instance.requests)]
        held: dict[int, list[str]] = {}
        evicted: dict[int, list[str]] = {}
        batches = []
        for move in moves:
            out: list[tuple[int, str]] = []
            for made, times in (move[0:2], move[2:4]):
                out += [(made, held[made].pop()) for _ in range(times)]
            coming = [(0, names.pop()) for _ in range(move[8])]
            for made, times in (move[4:6], move[6:8]):
                coming += [(made, evicted[made].pop()) for _ in range(times)]
            for made, name in out:
                evicted.setdefault(made, []).append(name)
            tokens = {name: self.inputs + made for made, name in coming}
            batches.append(Batch(tokens, tuple(name for _, name in out), None, any(held.values())))
            for made, name in coming:
                held.setdefault(made, []).append(name)
            held = {made + 1: some for made, some in held.items() if made + 1 < self.outputs}
        return Schedule(self.instance.name, run_length(batches))


class _Beam:
    """One search: the nodes after each batch, and the moves that led to them."""

    def __init__(self, work: _Work, options: CountOptions, seed: int):
        import numpy as np

        self.work, self.options = work, options
        room, columns = options.width * ROOM, work.outputs
        self.steps = work.steps(options)
        self.move = np.zeros(_kernel.MOVE, np.int64)
        self.children = no_children(room, _kernel.MOVE)
        self.nodes = _kernel.Nodes(
            np.zeros((1, columns), np.int64), np.zeros((1, columns), np.int64),
            np.array([len(work.instance.requests)]), np.zeros(1),
        )  # fmt: skip
        self.salt = np.random.default_rng(seed).integers(1, 2**62, columns)
        self.seed, self.window, self.most = seed, WINDOW, LONG * (work.expected + columns)
        #: For each batch the parents of its nodes and the moves that lead to them.
        self.log: list[tuple[Integers, Integers]] = []

    def run(self, limit: float) -> tuple[float, list[list[int]] | None]:
        """The least value of a whole schedule that is below the limit, and its moves."""
        moves = None
        while len(self.nodes.value) and len(self.log) < self.most and not self.work.late:
            if not self.grow(limit):
                break
            nodes = self.nodes
            idle = (nodes.held.sum(axis=1) + nodes.evicted.sum(axis=1) + nodes.fresh) == 0
            # One at most, as all of these are alike.
            for node in idle.nonzero()[0]:
                limit, moves = float(nodes.value[node]), path(self.log, int(node))
                self.keep((nodes.value < limit).nonzero()[0])
            if len(self.log) % PRUNED == 0:
                self.prune()
        return limit, moves

    def grow(self, limit: float) -> bool:
        """Replace the nodes by the best of their children; return whether there are any."""
        import numpy as np

        children, nodes, width = self.children, self.nodes, self.options.width
        enough = min(KEPT * width, 20 * len(nodes.value))
        while True:
            cut = min(limit, nodes.value[0] + self.window)
            find_children(_compiled(), self.steps, nodes, children, self.move, cut=cut, most=KEPT * width)
            if children.found[0] >= enough or children.cut[0] >= limit or self.window > WIDEST:
                break
            self.window *= WIDER
        found = int(children.found[0])
        if not found:
            return False
        order = np.argsort(children.value[:found], kind="stable")
        spread = float(children.value[order[min(found - 1, KEPT * width)]] - nodes.value[0])
        self.window = max(NARROWEST, min(self.window, SPREAD * spread))
        parent, moves = children.parent[order], children.move[order]
        held, evicted, fresh = self.moved(parent, moves)
        offset = (len(self.log) + self.seed) % self.options.coarse
        alike = (held + offset) // self.options.coarse @ self.salt
        kept = distinct(alike, width)
        self.nodes = _kernel.Nodes(held[kept], evicted[kept], fresh[kept], children.value[order[kept]])
        self.log.append((parent[kept], moves[kept]))
        return True

    def moved(self, parent: Integers, moves: Integers) -> tuple[Integers, Integers, Integers]:
        """Columns of the nodes that moves lead to."""
        import numpy as np

        rows = np.arange(len(parent))
        held, evicted = self.nodes.held[parent], self.nodes.evicted[parent]
        for column, sign in ((0, -1), (2, -1), (4, 1), (6, 1)):
            made, times = moves[:, column], sign * moves[:, column + 1]
            held[rows, made] += times
            evicted[rows, made] -= times
        held[:, 0] = moves[:, 8]
        return np.pad(held[:, :-1], ((0, 0), (1, 0))), evicted, self.nodes.fresh[parent] - moves[:, 8]

    def keep(self, kept: Integers) -> None:
        """Drop all other nodes."""
        self.nodes = _kernel.Nodes(*(column[kept] for column in self.nodes))
        parent, moves = self.log[-1]
        self.log[-1] = parent[kept], moves[kept]

    def prune(self) -> None:
        """Drop the moves from which no node descends."""
        import numpy as np

        for number in range(len(self.log) - 1, 0, -1):
            parent, moves = self.log[number]
            used, place = np.unique(parent, return_inverse=True)
            before = self.log[number - 1]
            if len(used) == len(before[0]):
                break
            self.log[number] = place, moves
            self.log[number - 1] = before[0][used], before[1][used]
