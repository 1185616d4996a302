"""Exact search for the requests that miss a service level, where it may help to wait.

A TPOT may be kept by making the first token later, so a batch may start later than it could.  Choose who is
*promised*: they keep all their limits, and nobody else has any.  The others are served after them, one by
one, or not at all if they are optional.  Only those promised matter: leave out everybody else of a schedule
that keeps the promises, and let the batches, which are no longer then, end when they did.  Sets are tried
from those on that cost least to miss.  The first one whose limits can be kept is an optimum; until one is
found, what misses at the next one is a lower bound.

*Times.*  A sequence of batches says which token is made at the end of which.  Times that keep all limits are
those of a system of differences: a batch ends no sooner than it takes after the one before, or after the last
of its members arrives; a first token comes no later than it must, and a last one no later after it than it
must.  All that a sequence so far says of what follows is the closed system for the time now and for the first
tokens of those that have one and are not finished.  Now may be any later: a schedule can wait.

*Dominance.*  A way to a state is dropped if a known way there allows all times that it allows: whatever
follows it can follow the other one at the same times.  The shortest batch to a state is enough, as it can
start later, and so end when a longer one does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from math import inf, lcm

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Termination
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.moves import Load, Node, State, load_time
from infermax_opt.infermax.exact.space import Space
from infermax_opt.infermax.exact.times import LABEL_BYTES

__all__ = ["promises_apply", "promises_search"]

#: Most requests: all sets of them may be tried.
MAX_PROMISED = 8

#: What the first index is at most above the second one, in ticks; 0 is the start, 1 is now, then requests.
Differences = dict[tuple[int, int], float]
START, NOW = -2, -1


def promises_apply(instance: Instance) -> bool:
    """Whether the objective is the weight of requests that miss a limit, and these are few."""
    return instance.objective.metrics == (Metric.MISSED,) and len(instance.requests) <= MAX_PROMISED


def promises_search(
    instance: Instance, *, upper: Fraction | None = None, limits: EngineLimits | None = None
) -> EngineOutcome[Schedule]:
    """Find a schedule that misses the least, or a bound within the limits.

    Parameters
    ----------
    instance : Instance
        One of those that `promises_apply` names.
    upper : Fraction, optional
        Objective of a known schedule: only better ones are looked for.
    limits : EngineLimits, optional
    """
    return _PromisesSearch(instance, upper, limits or EngineLimits()).run()


class _Stop(Exception):
    """A limit was reached."""

    def __init__(self, termination: str):
        super().__init__(termination)
        self.termination = termination


@dataclass(slots=True)
class _Way:
    """A way to reach a state, and the times that it allows."""

    state: State
    times: Differences
    parent: _Way | None = None
    load: Load | None = None
    took: int = 0


class _Promise:
    """Limits of a request in ticks: first and last token, and what is between them; infinite without one."""

    def __init__(self, instance: Instance, number: int, unit: int):
        request = instance.requests[number]
        slo, self.arrival = request.terms.slo, int(request.arrival * unit)
        self.tokens = request.output_tokens
        self.first = inf if slo.ttft is None else self.arrival + int(slo.ttft * unit)
        self.last = inf if slo.e2e is None else self.arrival + int(slo.e2e * unit)
        if instance.horizon is not None:
            self.last = min(self.last, int(Fraction(instance.horizon) * unit))
        spans = slo.tpot is not None and self.tokens > 1
        self.between = int(slo.tpot * (self.tokens - 1) * unit) if spans and slo.tpot is not None else inf


class _PromisesSearch:
    def __init__(self, instance: Instance, upper: Fraction | None, limits: EngineLimits):
        self.instance, self.upper, self.limits = instance, upper, limits
        self.started, self.made = time.monotonic(), 0
        self.space = Space(instance.told_apart(), watch=self._check)
        self.ticks = instance.cost.ticks
        self.extra = instance.cost.extra_ticks if instance.pays_extra else None
        numbers = [value for r in instance.requests for value in (r.arrival, *astuple(r.terms.slo))]
        whole = [Fraction(value).denominator for value in (*numbers, instance.horizon) if value is not None]
        self.unit = lcm(instance.cost.ticks_per_second, *whole)
        self.per_tick = self.unit // instance.cost.ticks_per_second
        self.promises = [_Promise(instance, k, self.unit) for k in range(len(instance.requests))]
        ticks = self.ticks
        fastest = max(a + b for a, b in zip(ticks.alpha, ticks.beta, strict=True)) + min(ticks.d0, ticks.p0)
        #: No token is made in less time than this after another one.
        self.step = fastest * self.per_tick
        self._children: dict[State, list[tuple[State, int, Load]]] = {}

    def run(self) -> EngineOutcome[Schedule]:
        """Try to promise sets, from those who cost least to miss."""
        floor, schedule, termination = Fraction(0), None, Termination.OPTIMAL
        try:
            for missed, promised in self._sets():
                floor = missed
                if self.upper is not None and missed >= self.upper:
                    floor = self.upper  # nothing is better than what is known
                    break
                goal = self._reach(promised)
                if goal is not None:
                    schedule = self._schedule(goal, promised)
                    break
        except _Stop as stop:
            termination = stop.termination
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
        return EngineOutcome(
            schedule=schedule,
            lower=LowerBound(floor, "search", Proof.SOLVER),
            termination=termination,
            upper=None if schedule is None else floor,
            details={"labels": self.made},
        )

    def _check(self, extra: int) -> None:
        limits = self.limits
        if limits.memory is not None and (self.made + extra) * LABEL_BYTES > limits.memory:
            raise _Stop(Termination.MEMORY_LIMIT)
        if limits.seconds is not None and time.monotonic() - self.started > limits.seconds:
            raise _Stop(Termination.TIME_LIMIT)

    def _sets(self) -> Iterator[tuple[Fraction, frozenset[int]]]:
        """Weights of those who miss, rising, and the others; those who promise nothing are in no set."""
        requests = self.instance.requests
        able = [k for k, request in enumerate(requests) if request.terms.slo]
        subsets = [some for size in range(len(able) + 1) for some in combinations(able, size)]
        weights = [sum((requests[k].terms.weight for k in some), Fraction(0)) for some in subsets]
        for missed, some in sorted(zip(weights, subsets, strict=True)):
            yield missed, frozenset(able) - set(some)

    def _reach(self, promised: frozenset[int], limited: bool = True) -> _Way | None:
        """A way in which these keep their limits, and nobody else is served; or in which they are served."""
        start = tuple(sorted(self.space.number(Node(k, 0, 0)) for k in promised))
        times: Differences = {(START, START): 0, (NOW, NOW): 0, (START, NOW): 0}
        waiting = [_Way(start, times)]
        known: dict[State, list[Differences]] = {}
        while waiting:
            way = waiting.pop()
            if not way.state:
                return way
            self._check(0)
            front = known.setdefault(way.state, [])
            if any(_allows(other, way.times) for other in front):
                continue
            front.append(way.times)
            for child, took, load in self._batches(way.state):
                after = self._after(way, child, took, limited)
                if after is not None:
                    self.made += 1
                    waiting.append(_Way(child, after, way, load, took))
        return None

    def _batches(self, state: State) -> list[tuple[State, int, Load]]:
        """The shortest batch to each state that one more leads to, with its ticks."""
        known = self._children.get(state)
        if known is None:
            best: dict[State, tuple[int, Load]] = {}
            for pattern in self.space.patterns(state):
                for _, targets, load in self.space.batches(pattern, len(state), None):
                    child = tuple(sorted(targets))
                    took = load_time(self.ticks, self.extra, load) * self.per_tick
                    if child != state and (child not in best or took < best[child][0]):
                        best[child] = took, load
            known = self._children[state] = [(child, took, load) for child, (took, load) in best.items()]
            known.sort(key=lambda some: -len(some[0]))  # taken from the end: who finishes goes first
        return known

    def _after(self, way: _Way, child: State, took: int, limited: bool) -> Differences | None:
        """The times after a batch; None if there are none."""
        nodes = self.space.nodes
        left = {nodes[i].kind: nodes[i].generated for i in child}
        moved = [nodes[i].kind for i in way.state if i not in child]
        times = dict(way.times)
        _limit(times, START, NOW, -max(self.promises[k].arrival for k in moved))
        for one, other in times:
            times[one, other] += took * ((one == NOW) - (other == NOW))  # now is as much later
        if limited:
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
        if limited:
            self._foresee(after, left)
        return after if _close(after) else None

    def _make(self, times: Differences, node: Node, left: Mapping[int, int]) -> None:
        """Limit now where a batch has made the first or the last token of a request; note the first one."""
        kind, promise = node.kind, self.promises[node.kind]
        if node.generated == 0 and left.get(kind, promise.tokens) > 0:
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
            rest = (promise.tokens - generated) * self.step
            _limit(times, NOW, START, promise.last - rest)
            if generated == 0:
                _limit(times, NOW, START, promise.first - self.step)
            elif (kind, kind) in times:
                _limit(times, NOW, kind, promise.between - rest)

    def _schedule(self, goal: _Way, promised: frozenset[int]) -> Schedule:
        """Batches at the first times that keep all limits; then the others one by one."""
        ways = _followed(goal)
        now, batches = 0, list[Batch]()
        for (before, way), end in zip(pairwise(ways), self._ends(ways), strict=True):
            batches.append(self._batch(before, way, end - way.took))
            now = end
        requests = self.instance.requests
        others = [k for k, r in enumerate(requests) if k not in promised and not r.terms.optional]
        for k in sorted(others, key=lambda k: self.promises[k].arrival):
            alone = self._reach(frozenset({k}), limited=False)
            assert alone is not None, "each request fits by itself"
            for before, way in pairwise(_followed(alone)):
                start = max(now, self.promises[k].arrival)
                batches.append(self._batch(before, way, start))
                now = start + way.took
        return Schedule(self.instance.name, tuple(batches))

    def _ends(self, ways: list[_Way]) -> list[int]:
        """The least ends of all batches, by longest paths."""
        nodes, count = self.space.nodes, len(ways) - 1
        first: dict[int, int] = {}
        edges: list[
            tuple[int, int, int]
        ] = []  # the end of the second is so much later than that of the first
        least = [0] * count
        for j in range(count):
            before, after = ways[j], ways[j + 1]
            left = {nodes[i].kind: nodes[i].generated for i in after.state}
            moved = [nodes[i].kind for i in before.state if i not in after.state]
            least[j] = max(self.promises[k].arrival for k in moved) + after.took
            if j > 0:
                edges.append((j - 1, j, after.took))
            for i in before.state:
                kind, generated, _ = nodes[i]
                if generated == 0 and left.get(kind, 1) > 0:
                    first[kind] = j
                if kind not in left and self.promises[kind].between < inf:
                    edges.append((j, first[kind], -int(self.promises[kind].between)))
        for _ in range(count + 1):
            for one, other, later in edges:
                least[other] = max(least[other], least[one] + later)
        return least

    def _batch(self, before: _Way, after: _Way, start: int) -> Batch:
        """A batch of the schedule."""
        assert after.load is not None, "a way that is no start has a batch"
        groups = self.space.groups(before.state)
        chosen = self.space.find_batch(before.state, after.state, after.load)
        tokens, evict = {}, []
        for (number, _), (move,) in zip(groups, chosen, strict=True):
            name = self.instance.requests[self.space.nodes[number].kind].id
            if move.tokens:
                tokens[name] = move.tokens
            if move.evicts:
                evict.append(name)
        return Batch(tokens, tuple(evict), Fraction(start, self.unit))


def _followed(way: _Way) -> list[_Way]:
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
