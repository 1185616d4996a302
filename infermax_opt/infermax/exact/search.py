"""Exact search: A* over multisets of request nodes.

Offline, the cost of a batch is its time multiplied by the rate of the state it starts from (see
`rates.Rates`), so a schedule is a path and its cost a sum of edge lengths.  With arrivals a
label also carries its time; batches start as soon as they can or at an arrival, which loses
nothing for objectives that never gain from delay (all but TPOT).

A label is dropped when another one of the same state is no later and no dearer.  The least
estimate in the queue is a lower bound at any moment, whatever stops the search.  All arithmetic
is in integers (ticks times rate), so neither the optimum nor the bound is rounded.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import lcm

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.outcome import EngineOutcome, Limits, Progress, Termination
from infermax_opt.infermax.data.cost import batch_time
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.estimates import Heuristic
from infermax_opt.infermax.exact.objective_rates import Rates
from infermax_opt.infermax.exact.space import DONE, Chunks, Load, Move, Space, State

__all__ = ["may_relax", "search", "unsupported"]

#: Rough memory of one label with its state, bytes (measured for states of 4 to 16 requests).
LABEL_BYTES = 700
#: Most requests of an instance.
MAX_REQUESTS = 256
#: Labels between two looks at the clock.
CHECK_EVERY = 64
#: Steps that the relaxed problem of the estimate may take, in all and per second of the limit.
RELAXED_BATCHES = 20_000_000
RELAXED_PER_SECOND = 200_000


def unsupported(instance: Instance) -> str | None:
    """Return why the search cannot solve `instance`, or None."""
    requests = len(instance.requests)
    if requests > MAX_REQUESTS:
        return f"{requests} requests have too many joint states; the search takes {MAX_REQUESTS}"
    if not instance.offline and instance.objective.weight(Metric.MEAN_TPOT):
        return "with arrivals, waiting can lower the TPOT, which the search does not explore"
    return None


def may_relax(instance: Instance) -> bool:
    """Whether the relaxed space of `instance` bounds its optimum (see `space`)."""
    return instance.offline and not instance.objective.weight(Metric.MEAN_TPOT)


@dataclass(slots=True)
class _Label:
    """A way to reach a state: scaled cost, end of its last batch in ticks, and its origin."""

    state: State
    cost: int
    time: int
    parent: _Label | None
    start: int
    load: Load | None
    dead: bool = False


def search(
    instance: Instance,
    *,
    upper: Fraction | None = None,
    limits: Limits | None = None,
    chunks: Chunks = Chunks.EXACT,
    levels: int = 1,
    counting: bool = False,
    progress: Progress | None = None,
) -> EngineOutcome[Schedule]:
    """Find an optimal schedule, or the best one and bound within the limits.

    Parameters
    ----------
    instance : Instance
    upper : Fraction, optional
        Objective of a known schedule, in seconds: only better ones are looked for.
    limits : Limits, optional
    chunks : Chunks
        Space to search (see `space`): a restricted one yields no bound, a relaxed one no schedule.
    levels : int
        Cells per prompt in a restricted or relaxed space.
    counting : bool
        Estimate overheads by counting from the start, which saves set-up where states are many.
    progress : callable, optional

    Returns
    -------
    EngineOutcome
        `schedule` is None where none better than `upper` was found.

    Raises
    ------
    ValueError
        For a relaxed space that would not bound the optimum (`may_relax`).
    """
    if chunks is Chunks.RELAXED and not may_relax(instance):
        raise ValueError("a relaxed space bounds nothing with arrivals or TPOT")
    return _Search(instance, upper, limits or Limits(), chunks, levels, counting, progress).run()


class _Stop(Exception):
    """A limit was reached."""

    def __init__(self, termination: str):
        super().__init__(termination)
        self.termination = termination


class _Search:
    def __init__(
        self,
        instance: Instance,
        upper: Fraction | None,
        limits: Limits,
        chunks: Chunks,
        levels: int,
        counting: bool,
        progress: Progress | None,
    ):
        self.instance = instance
        self.limits = limits
        self.progress = progress
        self.began = self.told = time.monotonic()
        self.chunks = chunks if instance.policy.chunked_prefill else Chunks.EXACT
        self.space = Space(instance, self.chunks, levels, watch=self._check)
        self.rates = Rates(instance)
        self.ticks = instance.cost.ticks
        self.unit = lcm(
            instance.cost.ticks_per_second, *(kind.arrival.denominator for kind in instance.types)
        )
        self.per_tick = self.unit // instance.cost.ticks_per_second
        self.arrivals = sorted({int(kind.arrival * self.unit) for kind in instance.types})
        self.upper = None if upper is None else self._scaled(upper)
        self.labels: dict[State, list[_Label]] = {}
        self.queue: list[tuple[int, int, int, _Label]] = []
        self.made = self.expanded = 0
        self.goal: _Label | None = None
        self.floor = 0
        self._estimate_from(0 if counting else RELAXED_BATCHES)

    def _estimate_from(self, relaxed_batches: int) -> None:
        """Set up the estimate, and prices for the piece that estimates most at the start."""
        if self.limits.seconds is not None:
            relaxed_batches = min(relaxed_batches, int(self.limits.seconds * RELAXED_PER_SECOND))
        pieces = list(range(len(self.ticks.alpha)))
        start = self.space.start()
        heuristic = Heuristic(self.space, self.rates, pieces, relaxed_batches)
        self.main = max(pieces, key=lambda k: heuristic.piece(k, start))
        if self.space.relaxed and len(pieces) > 1:
            # Tokens are charged right in sum only, which one affine piece bears (see `space`).
            k = self.main
            alpha, beta = self.ticks.alpha[k], self.ticks.beta[k]
            self.ticks = self.ticks._replace(alpha=(alpha,), beta=(beta,))
            heuristic = Heuristic(self.space, self.rates, [k], relaxed_batches)
            self.main = 0
        self.heuristic = heuristic
        self.priced = bool(self.rates.makespan) and not self.rates.per_request
        if self.priced:
            self.space.price = partial(heuristic.price, self.main)
            if self.upper is not None:
                # A whole schedule costs the least work at the start, the prices of all its moves
                # and its overhead; so no single price can exceed what the known objective leaves.
                estimate = heuristic.piece(self.main, start) // self.rates.makespan
                self.space.budget = self._left(0) - estimate

    def _left(self, cost: int) -> int:
        """Ticks of machine time that a label of `cost` may still take to beat the known objective."""
        assert self.upper is not None
        return (self.upper - 1 - cost) // (self.rates.makespan * self.per_tick)

    def _scaled(self, value: Fraction) -> int:
        """Objective in seconds to scaled cost (rounded up: an upper limit stays one)."""
        scaled = (value + self.rates.shift) * self.unit * self.rates.scale
        return -(-scaled.numerator // scaled.denominator)

    def _objective(self, cost: int) -> Fraction:
        """Scaled cost to objective in seconds."""
        return Fraction(cost, self.unit * self.rates.scale) - self.rates.shift

    def run(self) -> EngineOutcome[Schedule]:
        termination = Termination.OPTIMAL
        try:
            self._push(_Label(self.space.start(), 0, 0, None, 0, None))
            while self.queue:
                estimate, _, _, label = self.queue[0]
                self.floor = max(self.floor, estimate)
                if self.upper is not None and self.floor >= self.upper:
                    self.floor = self.upper
                    break
                if not label.state:
                    self.goal, self.upper = label, label.cost
                    self.floor = label.cost
                    break
                heapq.heappop(self.queue)
                if label.dead:
                    continue
                self.expanded += 1
                if self.expanded % CHECK_EVERY == 0:
                    self._check(0)
                self._expand(label)
            else:
                # Nothing left below the known objective: it is optimal.
                if self.upper is not None:
                    self.floor = self.upper
        except _Stop as stop:
            # What was popped is lost, but `floor` still counts it.
            termination = stop.termination
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
        except MemoryError:
            self.queue.clear()
            self.labels.clear()
            termination = Termination.MEMORY_LIMIT
        return self._outcome(termination)

    def _check(self, extra: int) -> None:
        """Stop at a limit; `extra` partial batches are in memory besides the labels."""
        limits = self.limits
        if limits.memory is not None and (self.made + extra) * LABEL_BYTES > limits.memory:
            raise _Stop(Termination.MEMORY_LIMIT)
        now = time.monotonic()
        if limits.seconds is not None and now - self.began > limits.seconds:
            raise _Stop(Termination.TIME_LIMIT)
        if self.progress is not None and now - self.told > 1:
            self.told = now
            bound = float(self._objective(self.floor))
            self.progress(
                f"search ({self.chunks.value}): bound {bound:.6g} s, {self.expanded} states expanded, "
                f"{len(self.queue)} open"
            )

    def _estimate(self, label: _Label) -> int:
        rest = self.heuristic(label.state) * self.per_tick
        return label.cost + rest

    def _push(self, label: _Label) -> None:
        estimate = self._estimate(label)
        if self.upper is not None and estimate >= self.upper:
            return
        rivals = self.labels.get(label.state)
        if rivals is None:
            self.labels[label.state] = [label]
        else:
            for rival in rivals:
                if rival.cost <= label.cost and rival.time <= label.time:
                    return
            kept = []
            for rival in rivals:
                if label.cost <= rival.cost and label.time <= rival.time:
                    rival.dead = True
                else:
                    kept.append(rival)
            kept.append(label)
            self.labels[label.state] = kept
        self.made += 1
        heapq.heappush(self.queue, (estimate, -label.cost, self.made, label))

    def _expand(self, label: _Label) -> None:
        if self.instance.offline:
            self._batches(label, label.time, None)
            return
        self._batches(label, label.time, Fraction(label.time, self.unit))
        for arrival in self.arrivals:
            if arrival > label.time:
                self._batches(label, arrival, Fraction(arrival, self.unit))

    def _batches(self, label: _Label, start: int, now: Fraction | None) -> None:
        """Push the labels of every batch that starts at `start`."""
        state = label.state
        nodes, rates, ticks, heuristic = self.space.nodes, self.rates, self.ticks, self.heuristic
        offline = self.instance.offline
        begun = 0 if offline else label.time
        rate = rates.makespan
        if rates.per_request:
            rate += sum(rates.of(nodes[i]) for i in state)
        best: dict[State, tuple[int, Load]] = {}
        slack = rest = None
        if self.priced and self.upper is not None:
            slack = self._left(label.cost + (start - begun) * rate) - heuristic.work(self.main, state)
        for pattern in self.space.patterns(state, now):
            if slack is not None:
                rest = slack - heuristic.through(self.main, state, pattern)
                if rest < 0:
                    continue
            for _, targets, load in self.space.batches(pattern, len(state), rest):
                child = tuple(sorted(targets))
                if child == state:
                    continue
                duration = batch_time(*ticks, *load[3:])
                known = best.get(child)
                if known is None or duration < known[0]:
                    best[child] = (duration, load)
        for child, (duration, load) in best.items():
            end = start + duration * self.per_tick
            cost = label.cost + (end - begun) * rate
            # Offline the time decides nothing: it must not keep a dearer label alive.
            self._push(_Label(child, cost, 0 if offline else end, label, start, load))

    def _outcome(self, termination: str) -> EngineOutcome[Schedule]:
        schedule = upper = None
        if self.goal is not None and not self.space.relaxed:
            schedule, upper = self._schedule(self.goal), self._objective(self.goal.cost)
        lower = None
        floor = self.floor
        if self.upper is not None:
            floor = min(floor, self.upper)
        if self.chunks is not Chunks.RESTRICTED:
            source = "search:relaxed" if self.space.relaxed else "search"
            lower = LowerBound(max(Fraction(0), self._objective(floor)), source, Proof.SOLVER)
        return EngineOutcome(
            schedule=schedule,
            lower=lower,
            termination=termination,
            upper=upper,
            details={"expanded": self.expanded, "labels": self.made, "chunks": self.chunks.value},
        )

    def _schedule(self, goal: _Label) -> Schedule:
        """Follow the labels back and give every move to a request."""
        path: list[_Label] = []
        label: _Label | None = goal
        while label is not None and label.parent is not None:
            path.append(label)
            label = label.parent
        path.reverse()
        names = [request.id for request in self.instance.requests]
        # Requests by node; all start at their type's first node.
        where: dict[int, list[int]] = {}
        for kind, requests in enumerate(self.space.kinds):
            first = next(i for i in self.space.start() if self.space.nodes[i].kind == kind)
            where.setdefault(first, []).extend(requests.members)
        batches = []
        for label in path:
            assert label.parent is not None
            assert label.load is not None
            now = None if self.instance.offline else Fraction(label.start, self.unit)
            chosen = self.space.find_batch(label.parent.state, label.state, now, label.load)
            moves = self._assign(self.space.groups(label.parent.state), chosen, where)
            tokens = {names[i]: move.tokens for i, move in moves if move.tokens}
            evict = tuple(names[i] for i, move in moves if move.evicts)
            wait = label.start > label.parent.time and not self.instance.offline
            batches.append(Batch(tokens, evict, Fraction(label.start, self.unit) if wait else None))
        return Schedule(self.instance.name, tuple(batches))

    @staticmethod
    def _assign(
        groups: Sequence[tuple[int, int]],
        chosen: Sequence[tuple[Move, ...]],
        where: dict[int, list[int]],
    ) -> list[tuple[int, Move]]:
        """Pair the moves of every group with requests, and move those on."""
        moves: list[tuple[int, Move]] = []
        for (number, _), group in zip(groups, chosen, strict=True):
            members = where.pop(number)
            moves += zip(members, group, strict=True)
        for i, move in moves:
            if move.target != DONE:
                where.setdefault(move.target, []).append(i)
        for members in where.values():
            members.sort()
        return sorted(moves, key=lambda pair: pair[0])
