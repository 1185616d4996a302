"""Proof: potentials in the graph of occupancy are costs of its first batches, or lower ones.

Only states that cost less than their potentials are followed: whatever others lead to costs no less than the
potential there, as no step earns more than it costs.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.occupancy import Layers, Occupancy
from infermax_opt.infermax.checker.occupancy_pairs import leave
from infermax_opt.infermax.checker.pieces import FAR
from infermax_opt.infermax.checker.steps import Step, reach


class Cheap(NamedTuple):
    """Costs of states of some number of active requests, from `begin` tokens on, all others being FAR."""

    begin: int
    costs: list[Any]

    @property
    def end(self) -> int:
        """The last tokens."""
        return self.begin + len(self.costs) - 1


NOTHING = Cheap(0, [])


def merged(one: Cheap, other: Cheap) -> Cheap:
    """The lower costs of two."""
    if not one.costs or not other.costs:
        return one if one.costs else other
    begin, end = min(one.begin, other.begin), max(one.end, other.end)
    padded = [[FAR] * (some.begin - begin) + some.costs + [FAR] * (end - some.end) for some in (one, other)]
    return Cheap(begin, list(map(min, *padded)))


def trimmed(costs: Cheap, first: int, potentials: list[Any]) -> Cheap:
    """Without what is no less than the potentials, given from `first` on, at both ends.

    Parameters
    ----------
    costs : Cheap
    first : int
    potentials : list
    """
    known = potentials[costs.begin - first :]
    less = [cost < some for cost, some in zip(costs.costs, known, strict=False)]
    if True not in less:
        return NOTHING
    start, end = less.index(True), len(less) - less[::-1].index(True)
    return Cheap(costs.begin + start, costs.costs[start:end])


def led(costs: Cheap, span: tuple[int, int], step: Step, work: Work) -> Cheap:
    """Least costs of the states that a step leads to, within a span of tokens.

    Parameters
    ----------
    costs : Cheap
    span : (int, int)
    step : Step
    work : Work
        Counts the steps.
    """
    low, high, *_ = step
    first, last = max(span[0], costs.begin + low), min(span[1], costs.end + high)
    if not costs.costs or first > last:
        return NOTHING
    return Cheap(first, reach(costs.costs, (costs.begin, costs.end), (first, last), step, work))


class FirstBatches:
    """The first batches, followed one by one.

    Parameters
    ----------
    graph : Occupancy
    layers : list of Layers
        Potentials by active requests.
    work : Work
        Counts the steps.
    """

    def __init__(self, graph: Occupancy, layers: list[Layers], work: Work):
        self.graph, self.layers, self.work = graph, layers, work
        self.rows = [NOTHING] * (graph.top + 1)

    def follow(self, batches: int, before: int) -> None:
        """Require that no potential is above the costs of so many batches.

        Parameters
        ----------
        batches : int
        before : int
            What those before them cost.
        """
        graph = self.graph
        self.rows[0] = self._trimmed(0, Cheap(0, [before]), "between")
        largest = max(graph.starts)
        for done in range(batches):
            if any(row.costs for row in self.rows):
                self._pass(largest + done)
        require(not any(row.costs for row in self.rows), "potential: the first batches cost less")

    def _trimmed(self, k: int, costs: Cheap, layer: str) -> Cheap:
        self.work.spend(2 * len(costs.costs))
        return trimmed(costs, self.graph.ranges[k][0] if k else 0, getattr(self.layers[k], layer))

    def _span(self, k: int, largest: int, more: int = 0) -> tuple[int, int]:
        """Tokens of k requests none of which is larger than that, in a batch as much larger as said."""
        first, last = self.graph.ranges[k]
        return first, min(last, k * (largest + more))

    def _pass(self, largest: int) -> None:
        """Follow one batch, before which no active request is larger than that."""
        graph, rows = self.graph, self.rows
        evicted = (graph.shortest + 1, min(largest, graph.longest), *graph.out)
        returns = graph.evictions and evicted[0] <= evicted[1]
        for k in range(len(rows) - 1, 0, -1) if returns else ():
            self._evict(k, evicted, largest)
        for k in range(1, len(rows)):
            rows[k] = self._trimmed(k, self._idle(k, rows[k]), "between")
        mixed, pure = self._coming(evicted if returns else None)
        alone = self._join(rows, pure, largest, 1, "pure")
        alone = list(map(merged, rows, alone))
        ready = rows
        if graph.young:
            starts: list[Step] = [(i, i, -pay, 0) for i, pay in graph.starts.items()]
            ready = list(map(merged, rows, self._join(rows, starts, largest, 0, "ready")))
        decoding = self._join(ready, mixed, largest, 0, "mixed")
        self.rows = [
            self._after(k, (ready[k], graph.plain), (decoding[k], graph.mixed), alone[k], largest + 1)
            for k in range(len(rows))
        ]

    def _evict(self, k: int, step: Step, largest: int) -> None:
        row, span = self.rows[k], self._span(k - 1, largest)
        first, last = max(span[0], row.begin - step[1]), min(span[1], row.end - step[0])
        if row.costs and first <= last:
            others = self.graph.pairs.others(k - 1, k - 1, True)
            costs = leave(row.costs, (row.begin, row.end), (first, last), step, others, self.work)
            found = self._trimmed(k - 1, Cheap(first, costs), "between")
            self.rows[k - 1] = merged(self.rows[k - 1], found)

    def _idle(self, k: int, row: Cheap) -> Cheap:
        """Costs if some make no token in the next batch."""
        if not row.costs:
            return row
        first, each = self.graph.ranges[k][0], self.graph.waiting(k)
        self.work.spend(3 * (row.end - first))
        falling = row.costs[::-1] + [FAR] * (row.begin - first)
        least = accumulate([value - x * each for x, value in enumerate(falling)], min)
        return Cheap(first, [value + x * each for x, value in enumerate(least)][::-1])

    def _coming(self, evicted: Any) -> tuple[list[Step], list[Step]]:
        """Requests that come into a batch with decodes, and into one without."""
        graph = self.graph
        token, size, (fixed, slope) = graph.token, graph.size, graph.out
        back, each = -graph.rho - fixed, graph.rho - slope
        mixed: list[Step] = [] if graph.young else [(i, i, -pay, 0) for i, pay in graph.starts.items()]
        pure: list[Step] = [(i + 1, i + 1, -pay - token - size * i, 0) for i, pay in graph.starts.items()]
        if evicted is not None:
            low, high, *_ = evicted
            mixed.append((low, high, back, each))
            pure.append((low + 1, high + 1, back - each - token + size, each - size))
            if graph.late:
                mixed.append((low - 1, high - 1, back + each + token, each + size))
                pure.append((low, high, back, each))
        return mixed, pure

    def _join(self, rows: list[Cheap], steps: list[Step], largest: int, more: int, layer: str) -> list[Cheap]:
        """Costs in a batch into which some requests came by these steps.

        Parameters
        ----------
        rows : list of Cheap
            Those without any of them.
        steps : list of Step
        largest, more : int
            The largest size of a request before the batch, and by how much it may be more in it.
        layer : str
            Potentials there.
        """
        found = [NOTHING]
        for k in range(1, len(rows)):
            source, here = merged(rows[k - 1], found[k - 1]), NOTHING
            for step in steps if source.costs else ():
                here = merged(here, led(source, self._span(k, largest, more), step, self.work))
            found.append(self._trimmed(k, here, layer))
        return found

    def _after(
        self, k: int, plain: tuple[Cheap, int], mixed: tuple[Cheap, int], alone: Cheap, largest: int
    ) -> Cheap:
        """Costs after a batch, by its kind.

        Parameters
        ----------
        k : int
            Active requests.
        plain, mixed : (Cheap, int)
            Costs before it where somebody decodes, and what it costs.
        alone : Cheap
            Costs before it where nobody does.
        largest : int
            The largest size of an active request after it.
        """
        graph, (first, last) = self.graph, self._span(k, largest)
        found = led(alone, (first, last), (0, 0, graph.pure, 0), self.work)
        for costs, fixed in (plain, mixed):
            self.work.spend(3 * len(costs.costs))
            fitting = range(costs.begin, min(costs.end, graph.capacity, last - k) + 1)
            made = [
                value + fixed - graph.earned_by(k) - graph.size * u
                for u, value in zip(fitting, costs.costs, strict=False)
            ]
            found = merged(found, Cheap(costs.begin + k, made))
        return self._trimmed(k, found, "between")
