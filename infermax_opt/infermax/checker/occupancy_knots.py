"""Proof: potentials in the graph of occupancy are costs of its first batches, or lower ones, between knots.

Costs are followed at some numbers of tokens only; lines between these are no higher than those of any state.
See `infermax_opt.infermax.bounds.occupancy`, *Knots*.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from operator import le
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.occupancy import Occupancy
from infermax_opt.infermax.checker.occupancy_start import NOTHING, Cheap, led, merged
from infermax_opt.infermax.checker.pieces import FAR
from infermax_opt.infermax.checker.steps import moved, reach

#: Most steps of following knots, which takes about ten seconds.
MOST_STEPS = 10**8


class KnotBatches:
    """The first batches, followed at knots.

    Parameters
    ----------
    graph : Occupancy
    spacing : int
        Tokens from knot to knot, by which active requests are behind the largest that there may be.
    """

    def __init__(self, graph: Occupancy, spacing: int):
        self.graph, self.spacing, self.work = graph, spacing, Work(MOST_STEPS)
        self.rows = [NOTHING] * (graph.top + 1)
        inside: list[list[Any]] = [[]]
        for k in range(graph.top, -1, -1):
            inside.append(self._allowed(k, inside[-1]))
        #: By active requests and tokens: the largest potential of so many tokens, and of up to a spacing
        #: fewer; and the same of what states in a batch may cost.
        self.limits = [self._largest(k, values) for k, values in enumerate(graph.potential)]
        self.inside = [self._largest(k, values) for k, values in enumerate(reversed(inside[1:]))]

    def _allowed(self, k: int, more: list[Any]) -> list[Any]:
        """The most that k requests in a batch may cost without leading to less than a potential after it.

        Parameters
        ----------
        k : int
            Active requests.
        more : list
            The same of one request more, by tokens; none for the largest number.
        """
        graph, (first, last), after = self.graph, self.graph.ranges[k], self.graph.potential[k][k:]
        fixed = min(graph.plain, graph.pure) - graph.token * k
        fitting = zip(range(first, min(graph.capacity, last - k) + 1), after, strict=False)
        least = [fixed - graph.size * u - potential for u, potential in fitting]
        least += [FAR] * (last - first + 1 - len(least))
        begin, end = graph.ranges[k + 1] if more else (0, 0)
        comes = [(-i, -i, -pay, 0) for i, pay in graph.starts.items()]
        if graph.evictions:
            back, each = -graph.rho - graph.out[0], graph.rho - graph.out[1]
            comes.append((-graph.longest, -graph.shortest - 1, back, -each))
        for step in comes if more else ():
            source = [-value for value in more]
            least = list(map(min, least, reach(source, (begin, end), (first, last), step, self.work)))
        self.work.spend(6 * len(least))
        least = list(accumulate([value - x * graph.idle for x, value in enumerate(least)], min))
        return [-value - x * graph.idle for x, value in enumerate(least)]

    def _largest(self, k: int, values: list[Any]) -> list[Any]:
        """The largest of some values, of so many tokens and of up to a spacing fewer."""
        (first, last), window = self.graph.ranges[k], (0, self.spacing, 0, 0)
        source = [-value for value in values]
        least = reach(source, (first, last), (first, last + self.spacing), window, self.work)
        return [-value for value in least]

    def follow(self, batches: int, before: int) -> None:
        """Require that no potential is above what so many batches cost.

        Parameters
        ----------
        batches : int
        before : int
            What those before them cost.
        """
        self.rows[0] = Cheap(0, [before])
        largest = max(self.graph.starts)
        for done in range(batches):
            self._pass(largest + done)
        for k, row in enumerate(self.rows):
            self._require_lower(k, row, largest, batches)

    def _pass(self, largest: int) -> None:
        """Follow one batch, before which no active request is larger than that."""
        graph, rows, spacing = self.graph, self.rows, self.spacing
        (fixed, slope), returns = graph.out, graph.evictions and largest > graph.shortest
        apart = 1 - (graph.shortest + 1 - largest) // spacing
        evicted = (-apart, 0, fixed + slope * largest, slope * spacing)
        back, each = -graph.rho - fixed, graph.rho - slope
        returned = (0, apart, back + each * largest, -each * spacing)
        lasts = [k * (largest - graph.shortest) // spacing + 1 if k else 0 for k in range(len(rows))]
        for k in range(len(rows) - 1, 0, -1) if returns else ():
            rows[k - 1] = merged(rows[k - 1], led(rows[k], (0, lasts[k - 1]), evicted, self.work))
        for k in range(1, len(rows)):
            rows[k] = self._trimmed(k, self._idle(rows[k], rows[k].end), largest, self.limits)
        for k in range(1, len(rows)):
            row, below = rows[k], rows[k - 1]
            if returns:
                row = merged(row, led(below, (0, lasts[k]), returned, self.work))
            for prompt, pay in graph.starts.items():
                row = merged(row, self._lagging(below, largest - prompt, pay, lasts[k]))
            row = self._idle(row, min(lasts[k], row.end - (-k // spacing)))
            rows[k] = self._trimmed(k, row, largest, self.inside)
        rows = [self._after(k, row, largest) for k, row in enumerate(rows)]
        self.rows = [self._trimmed(k, row, largest + 1, self.limits) for k, row in enumerate(rows)]

    def _idle(self, row: Cheap, last: int) -> Cheap:
        """Costs up to a last knot if some make no token, which leaves them behind by one more."""
        if not row.costs:
            return row
        each = self.graph.idle * self.spacing
        self.work.spend(3 * (last - row.begin + 1))
        costs = row.costs + [FAR] * (last + 1 - row.begin - len(row.costs))
        least = accumulate([cost - x * each for x, cost in enumerate(costs)], min)
        return Cheap(row.begin, [cost + x * each for x, cost in enumerate(least)])

    def _lagging(self, row: Cheap, by: int, pay: int, last: int) -> Cheap:
        """Costs with one more request, which is so many tokens behind and earns `pay`."""
        (whole, rest), spacing, costs = divmod(by, self.spacing), self.spacing, row.costs
        if not costs:
            return row
        self.work.spend((1 if rest == 0 else 8) * len(costs))
        lagging = [cost - pay for cost in moved(costs, rest, spacing)]
        begin = row.begin + whole
        return Cheap(begin, lagging[: max(0, last + 1 - begin)])

    def _after(self, k: int, row: Cheap, largest: int) -> Cheap:
        """Costs after a batch, of those whose tokens fit."""
        graph, least = self.graph, max(0, k * largest - self.graph.capacity) // self.spacing
        begin = max(row.begin, least)
        costs = row.costs[begin - row.begin :]
        self.work.spend(2 * len(costs))
        paid = min(graph.plain, graph.pure) - graph.token * k - graph.size * (k * largest)
        each = graph.size * self.spacing
        return Cheap(begin, [cost + paid + each * x for x, cost in enumerate(costs, begin)])

    def _trimmed(self, k: int, row: Cheap, largest: int, all_limits: list[list[Any]]) -> Cheap:
        """Without lines that are nowhere below the limits, at both ends."""
        costs, limits, first = row.costs, all_limits[k], self.graph.ranges[k][0]
        if len(costs) < 2:
            return row
        self.work.spend(3 * len(costs))
        tokens = k * largest - self.spacing * row.begin - first
        places = range(tokens, tokens - self.spacing * (len(costs) - 1), -self.spacing)
        known = [limits[place] if 0 <= place < len(limits) else -FAR for place in places]
        less = [min(some) < limit for *some, limit in zip(costs, costs[1:], known, strict=False)]
        if True not in less:
            return NOTHING
        start, stop = less.index(True), len(less) - less[::-1].index(True)
        return Cheap(row.begin + start, costs[start : stop + 1])

    def _require_lower(self, k: int, row: Cheap, prompt: int, batches: int) -> None:
        """Require that the potentials of k requests are not above the lines, and what pairs cost besides.

        Parameters
        ----------
        k : int
        row : Cheap
            Costs at knots after so many batches.
        prompt : int
            The largest.
        batches : int
        """
        graph, spacing, costs, largest = self.graph, self.spacing, row.costs, prompt + batches
        if not costs:
            return
        first, last = graph.ranges[k]
        self.work.spend(6 * spacing * len(costs))
        line = [
            (a * (spacing - rest) + b * rest) // spacing
            for a, b in pairwise(costs)
            for rest in range(spacing)
        ] + costs[-1:]
        # Tokens of these states, ever fewer.
        tokens = range(k * largest - spacing * row.begin, k * largest - spacing * row.end - 1, -1)
        start, stop = max(0, tokens[0] - last), min(len(line), tokens[0] - first + 1)
        known = graph.potential[k][tokens[start] - first :: -1] if start < stop else []
        pairs = (graph.pairs.least(k, u, batches, False) for u in tokens[start:stop])
        costs = [value + more for value, more in zip(line[start:stop], pairs, strict=True)]
        require(all(map(le, known, costs)), "potential: the first batches cost less")
