"""Ways in which requests keep promises: of their first and last tokens, and of the time between the two.

*Times.*  A sequence of batches says which token is made at the end of which.  Times that keep all promises
are those of a system of differences: a batch ends no sooner than it takes after the one before, or after the
last of its members arrives; a first token comes no later than it must, and a last one no later after it than
it must.  All that a sequence so far says of what follows is the closed system for the time now and for the
first tokens of those that have one and are not finished.  Now may be any later: a schedule can wait.

*Dominance.*  A way to a state is dropped if a known way there allows all times that it allows: whatever
follows it can follow the other one at the same times.  The shortest batch to a state is enough, as it can
start later, and so end when a longer one does.

*Others.*  Who promises nothing is left out: the batches without it, which are no longer, can end when they
did.  It is served after all others, by itself, or not at all if it is optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from fractions import Fraction
from itertools import pairwise
from math import inf, lcm

from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.moves import Load, Node, State
from infermax_opt.infermax.exact.told_apart import ToldApart

__all__ = ["MAX_PROMISED", "Promise", "Way", "Ways", "promises_of"]

#: Most requests: all sets of them may be tried.
MAX_PROMISED = 8

#: What the first index is at most above the second one, in ticks: requests, the start, and now.
Differences = dict[tuple[int, int], float]
START, NOW = -2, -1


@dataclass(frozen=True)
class Promise:
    """Latest ticks of the first and of the last token of a request, and most ticks between them.

    Infinite where nothing is promised.
    """

    first: float = inf
    last: float = inf
    between: float = inf


def promises_of(instance: Instance) -> tuple[int, list[Promise]]:
    """Ticks in a second, in which all limits are whole, and what each request promises."""
    numbers = [value for r in instance.requests for value in (r.arrival, *astuple(r.terms.slo))]
    whole = [Fraction(value).denominator for value in (*numbers, instance.horizon) if value is not None]
    unit = lcm(instance.cost.ticks_per_second, *whole)
    horizon = inf if instance.horizon is None else int(Fraction(instance.horizon) * unit)
    found = []
    for request in instance.requests:
        slo, arrival = request.terms.slo, int(request.arrival * unit)
        spans = request.output_tokens - 1
        found.append(
            Promise(
                inf if slo.ttft is None else arrival + int(slo.ttft * unit),
                min(horizon, inf if slo.e2e is None else arrival + int(slo.e2e * unit)),
                inf if slo.tpot is None or not spans else int(slo.tpot * spans * unit),
            )
        )
    return unit, found


@dataclass(slots=True)
class Way:
    """A way to reach a state, and the times that it allows."""

    state: State
    times: Differences
    parent: Way | None = None
    load: Load | None = None
    took: int = 0


class Ways(ToldApart):
    """Searches for ways in the states of an instance; parameters as there."""

    def __init__(self, instance: Instance, unit: int, limits: EngineLimits):
        super().__init__(instance, unit, limits)
        self.promises: Mapping[int, Promise] = {}
        self._children: dict[State, list[tuple[State, int, Load]]] = {}

    def reach(self, promises: Mapping[int, Promise]) -> Way | None:
        """A way in which these requests keep their promises and nobody else is served, if there is one.

        Parameters
        ----------
        promises : mapping of int to Promise
        """
        self.promises = promises
        start = tuple(sorted(self.space.number(Node(k, 0, 0)) for k in promises))
        times: Differences = {(START, START): 0, (NOW, NOW): 0, (START, NOW): 0}
        waiting = [Way(start, times)]
        known: dict[State, list[Differences]] = {}
        while waiting:
            way = waiting.pop()
            if not way.state:
                return way
            self.check(0)
            front = known.setdefault(way.state, [])
            if any(_allows(other, way.times) for other in front):
                continue
            front.append(way.times)
            for child, took, load in self._batches(way.state):
                after = self._after(way, child, took)
                if after is not None:
                    self.made += 1
                    waiting.append(Way(child, after, way, load, took))
        return None

    def _batches(self, state: State) -> list[tuple[State, int, Load]]:
        """The shortest batch to each state that one more leads to, with its ticks."""
        known = self._children.get(state)
        if known is None:
            shortest = self.shortest(state).items()
            known = self._children[state] = [(child, took, load) for child, (took, load) in shortest]
            known.sort(key=lambda some: -len(some[0]))  # taken from the end: who finishes goes first
        return known

    def _after(self, way: Way, child: State, took: int) -> Differences | None:
        """The times after a batch; None if there are none."""
        nodes = self.space.nodes
        left = {nodes[i].kind: nodes[i].generated for i in child}
        moved = [nodes[i].kind for i in way.state if i not in child]
        times = dict(way.times)
        _limit(times, START, NOW, -max(self.arrivals[k] for k in moved))
        for one, other in times:
            times[one, other] += took * ((one == NOW) - (other == NOW))  # now is as much later
        for i in way.state:
            self._make(times, nodes[i], left)
        if not _close(times):
            return None
        gone = set(moved) - set(left)
        after = {
            pair: most
            for pair, most in times.items()
            if gone.isdisjoint(pair) and (pair[0] != NOW or pair[1] == NOW)  # a schedule can wait
        }
        self._foresee(after, left)
        return after if _close(after) else None

    def _make(self, times: Differences, node: Node, left: Mapping[int, int]) -> None:
        """Limit now where a batch has made the first or the last token of a request; note the first one."""
        kind, promise = node.kind, self.promises[node.kind]
        tokens = self.instance.requests[kind].output_tokens
        if node.generated == 0 and left.get(kind, tokens) > 0:
            _limit(times, NOW, START, promise.first)
            if promise.between < inf and kind in left:
                for one, other in [*times]:
                    if other == NOW:
                        times[one, kind] = times[one, NOW]
                    if one == NOW:
                        times[kind, other] = times[NOW, other]
                times[NOW, kind] = times[kind, NOW] = times[kind, kind] = 0
        if kind not in left:
            _limit(times, NOW, START, promise.last)
            if (NOW, kind) in times:
                _limit(times, NOW, kind, promise.between)

    def _foresee(self, times: Differences, left: Mapping[int, int]) -> None:
        """Limit now by what the tokens to come take at least."""
        for kind, generated in left.items():
            promise = self.promises[kind]
            rest = (self.instance.requests[kind].output_tokens - generated) * self.step
            _limit(times, NOW, START, promise.last - rest)
            if generated == 0:
                _limit(times, NOW, START, promise.first - self.step)
            elif (kind, kind) in times:
                _limit(times, NOW, kind, promise.between - rest)

    def schedule(self, goal: Way, promises: Mapping[int, Promise]) -> Schedule:
        """Batches at the first times that keep all promises; then the others one by one.

        Parameters
        ----------
        goal : Way
            From `reach`.
        promises : mapping of int to Promise
            Those that it keeps.
        """
        now, batches = 0, list[Batch]()
        self.promises, ways = promises, _followed(goal)
        for (before, way), end in zip(pairwise(ways), self._ends(ways), strict=True):
            batches.append(self._between(before, way, end - way.took))
            now = end
        requests = self.instance.requests
        others = [k for k, r in enumerate(requests) if k not in promises and not r.terms.optional]
        for k in sorted(others, key=lambda k: self.arrivals[k]):
            alone = self.reach({k: Promise()})
            assert alone is not None, "each request fits by itself"
            for before, way in pairwise(_followed(alone)):
                start = max(now, self.arrivals[k])
                batches.append(self._between(before, way, start))
                now = start + way.took
        return Schedule(self.instance.name, tuple(batches))

    def _ends(self, ways: list[Way]) -> list[int]:
        """The least ends of all batches, by longest paths."""
        least, edges = self._system(ways)
        for _ in least:
            for one, other, later in edges:
                least[other] = max(least[other], least[one] + later)
        return least

    def _system(self, ways: list[Way]) -> tuple[list[int], list[tuple[int, int, int]]]:
        """The least ends by themselves; and of pairs of batches by how much the second one ends later."""
        nodes, first = self.space.nodes, dict[int, int]()
        least, edges = list[int](), list[tuple[int, int, int]]()
        for j, (start, after) in enumerate(pairwise(ways)):
            left = {nodes[i].kind: nodes[i].generated for i in after.state}
            moved = [nodes[i].kind for i in start.state if i not in after.state]
            least.append(max(self.arrivals[k] for k in moved) + after.took)
            if j > 0:
                edges.append((j - 1, j, after.took))
            for i in start.state:
                kind, generated, _ = nodes[i]
                if generated == 0 and left.get(kind, 1) > 0:
                    first[kind] = j
                if kind not in left and self.promises[kind].between < inf:
                    edges.append((j, first[kind], -int(self.promises[kind].between)))
        return least, edges

    def _between(self, before: Way, after: Way, start: int) -> Batch:
        """The batch of the second way."""
        assert after.load is not None, "a way that is no start has a batch"
        return self.batch(before.state, after.state, after.load, start)


def _followed(way: Way) -> list[Way]:
    """All ways to this one, the first one first."""
    found = [way]
    while found[-1].parent is not None:
        found.append(found[-1].parent)
    return found[::-1]


def _limit(times: Differences, one: int, other: int, most: float) -> None:
    """Let a difference be so much at most."""
    if most < times.get((one, other), inf):
        times[one, other] = most


def _close(times: Differences) -> bool:
    """Make each difference as small as the others say; whether there are such times."""
    names = {one for one, _ in times}
    for middle in names:
        for one in names:
            a = times.get((one, middle), inf)
            if a == inf:
                continue
            for other in names:
                b = times.get((middle, other), inf)
                if a + b < times.get((one, other), inf):
                    times[one, other] = a + b
    return all(times[name, name] >= 0 for name in names)


def _allows(times: Differences, others: Differences) -> bool:
    """Whether all others are among the times."""
    return all(others.get(pair, inf) <= most for pair, most in times.items())
