"""Exact search: A* over multisets of request nodes.

The cost of a batch is its time multiplied by the rate of the state it starts from (see
`rates.Rates`), so a schedule is a path and its cost a sum of edge lengths.  With arrivals a batch
may have to wait, which is charged as `labels` tells; there is also the proof of which labels may
be dropped.  The estimates leave waits out, which cost no less than nothing.

A batch waits for the latest arrival among its members.  That depends on the child state alone: of a
type that has not arrived yet no request is under way, so a member is missing from the child's
requests of that type with nothing done.  Hence the shortest batch to each child is enough.

The least estimate in the queue is a lower bound at any moment, whatever stops the search.  All
arithmetic is in integers (ticks times rate), so neither the optimum nor the bound is rounded.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from math import lcm

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, LimitReached, Progress, Termination
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import Latency
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.estimates import Estimate
from infermax_opt.infermax.exact.labels import Cheapest, Front, Label, Labels
from infermax_opt.infermax.exact.moves import DONE, Chunks, Load, NodeMove, State, load_time
from infermax_opt.infermax.exact.objective_rates import Rates
from infermax_opt.infermax.exact.space import Space

__all__ = ["MAX_REQUESTS", "may_relax", "search"]

#: Rough memory of one label with its state, bytes (measured for states of 4 to 16 requests).
LABEL_BYTES = 700
#: Most requests of an instance.
MAX_REQUESTS = 256
#: Labels between two looks at the clock.
CHECK_EVERY = 64
#: Steps that the relaxed problem of the estimate may take, in all and per second of the limit.
RELAXED_BATCHES = 20_000_000
RELAXED_PER_SECOND = 200_000


def may_relax(instance: Instance) -> bool:
    """Whether the relaxed space of `instance` bounds its optimum (see `space`)."""
    metrics = instance.objective.metrics
    return instance.offline and all(metric.latency is not Latency.TPOT for metric in metrics)


def search(
    instance: Instance,
    *,
    upper: Fraction | None = None,
    limits: EngineLimits | None = None,
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
    limits : EngineLimits, optional
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
    return _LabelSearch(instance, upper, limits or EngineLimits(), chunks, levels, counting, progress).run()


class _LabelSearch:
    def __init__(
        self,
        instance: Instance,
        upper: Fraction | None,
        limits: EngineLimits,
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
        self.extra = instance.cost.extra_ticks if instance.pays_extra and not self.space.relaxed else None
        self.unit = lcm(
            instance.cost.ticks_per_second, *(kind.arrival.denominator for kind in instance.types)
        )
        self.per_tick = self.unit // instance.cost.ticks_per_second
        self.arrivals = [int(kind.arrival * self.unit) for kind in instance.types]
        self.upper = None if upper is None else self._scaled(upper)
        self.labels: Labels = Cheapest() if instance.offline else Front(self._latest)
        self.queue: list[tuple[int, int, int, Label]] = []
        self.made = self.expanded = 0
        self.goal: Label | None = None
        self.floor = 0
        self._estimate_from(0 if counting else RELAXED_BATCHES)

    def _estimate_from(self, relaxed_batches: int) -> None:
        """Set up the estimate, and prices for the piece that estimates most at the start."""
        if self.limits.seconds is not None:
            relaxed_batches = min(relaxed_batches, int(self.limits.seconds * RELAXED_PER_SECOND))
        pieces = list(range(len(self.ticks.alpha)))
        start = self.space.start()
        heuristic = Estimate(self.space, self.rates, pieces, relaxed_batches)
        self.main = max(pieces, key=lambda k: heuristic.piece(k, start))
        if self.space.relaxed and len(pieces) > 1:
            # Tokens are charged right in sum only, which one affine piece bears (see `space`).
            k = self.main
            alpha, beta = self.ticks.alpha[k], self.ticks.beta[k]
            self.ticks = self.ticks._replace(alpha=(alpha,), beta=(beta,))
            heuristic = Estimate(self.space, self.rates, [k], relaxed_batches)
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
            start = self.space.start()
            self._push(Label(start, 0, 0, 0 if self.instance.offline else self._rate(start)))
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
        except LimitReached as stop:
            # What was popped is lost, but `floor` still counts it.
            termination = stop.termination
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
        except MemoryError:
            self.queue.clear()
            self.labels = Cheapest()
            termination = Termination.MEMORY_LIMIT
        return self._outcome(termination)

    def _check(self, extra: int) -> None:
        """Stop at a limit; `extra` partial batches are in memory besides the labels."""
        self.limits.check(self.began, (self.made + extra) * LABEL_BYTES)
        now = time.monotonic()
        if self.progress is not None and now - self.told > 1:
            self.told = now
            bound = float(self._objective(self.floor))
            self.progress(
                f"search ({self.chunks.value}): bound {bound:.6g} s, {self.expanded} states expanded, "
                f"{len(self.queue)} open"
            )

    def _rate(self, state: State) -> int:
        """Cost per second spent in a state."""
        rates, nodes = self.rates, self.space.nodes
        rate = rates.makespan if state else 0
        if rates.per_request:
            rate += sum([rates.of(nodes[i]) for i in state])
        return rate

    def _latest(self, state: State) -> int:
        """Latest arrival among the requests of a state."""
        return max((self.arrivals[self.space.nodes[i].kind] for i in state), default=0)

    def _push(self, label: Label) -> None:
        estimate = label.cost + self.heuristic(label.state) * self.per_tick
        if self.upper is not None and estimate >= self.upper:
            return
        if not self.labels.admit(label):
            return
        self.made += 1
        heapq.heappush(self.queue, (estimate, -label.cost, self.made, label))

    def _expand(self, label: Label) -> None:
        """Push the labels that one more batch leads to."""
        rate = self._rate(label.state)
        awaited = self._awaited(label)
        for child, (duration, load) in self._batches(label).items():
            took = duration * self.per_tick
            wait = least = 0
            if awaited:
                ready = [at for number, count, at in awaited if child.count(number) < count]
                wait = max(ready, default=label.time) - label.time
                least = min(label.least, self._rate(child))
            cost = label.cost + wait * label.least + took * rate
            self._push(Label(child, cost, label.time + wait + took, least, label, wait, load))

    def _awaited(self, label: Label) -> list[tuple[int, int, int]]:
        """Of each type still to arrive: the node of its requests, their number, their arrival."""
        if self.instance.offline:
            return []
        nodes = self.space.nodes
        # None of them is under way, so all are in one node.
        kinds = ((number, count, nodes[number].kind) for number, count in self.space.groups(label.state))
        return [(number, count, at) for number, count, k in kinds if (at := self.arrivals[k]) > label.time]

    def _batches(self, label: Label) -> dict[State, tuple[int, Load]]:
        """The shortest batch to every child: its ticks and its load."""
        state = label.state
        ticks, extra, heuristic = self.ticks, self.extra, self.heuristic
        best: dict[State, tuple[int, Load]] = {}
        slack = rest = None
        if self.priced and self.upper is not None:
            slack = self._left(label.cost) - heuristic.work(self.main, state)
        for pattern in self.space.patterns(state):
            if slack is not None:
                rest = slack - heuristic.through(self.main, state, pattern)
                if rest < 0:
                    continue
            for _, targets, load in self.space.batches(pattern, len(state), rest):
                child = tuple(sorted(targets))
                if child == state:
                    continue
                duration = load_time(ticks, extra, load)
                known = best.get(child)
                if known is None or duration < known[0]:
                    best[child] = (duration, load)
        return best

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

    def _schedule(self, goal: Label) -> Schedule:
        """Follow the labels back, give every move to a request and every wait its place."""
        path: list[Label] = []
        label = goal
        while label.parent is not None:
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
        for label, start in zip(path, self._starts(path), strict=True):
            assert label.parent is not None
            assert label.load is not None
            chosen = self.space.find_batch(label.parent.state, label.state, label.load)
            moves = self._assign(self.space.groups(label.parent.state), chosen, where)
            tokens = {names[i]: move.tokens for i, move in moves if move.tokens}
            evict = tuple(names[i] for i, move in moves if move.evicts)
            batches.append(Batch(tokens, evict, start))
        return Schedule(self.instance.name, tuple(batches))

    def _starts(self, path: Sequence[Label]) -> list[Fraction | None]:
        """Start of every batch on a path; None where it starts as soon as the one before ends.

        A wait goes before the latest batch up to the one that demands it whose state has the rate at
        which it was charged: the least so far.
        """
        waits = [0] * len(path)
        lowest = place = 0
        for k, label in enumerate(path):
            assert label.parent is not None
            rate = self._rate(label.parent.state)
            if k == 0 or rate <= lowest:
                lowest, place = rate, k
            waits[place] += label.wait
        starts: list[Fraction | None] = []
        now = 0
        for label, wait in zip(path, waits, strict=True):
            assert label.parent is not None
            starts.append(Fraction(now + wait, self.unit) if wait else None)
            now += wait + label.time - label.parent.time - label.wait
        return starts

    @staticmethod
    def _assign(
        groups: Sequence[tuple[int, int]],
        chosen: Sequence[tuple[NodeMove, ...]],
        where: dict[int, list[int]],
    ) -> list[tuple[int, NodeMove]]:
        """Pair the moves of every group with requests, and move those on."""
        moves: list[tuple[int, NodeMove]] = []
        for (number, _), group in zip(groups, chosen, strict=True):
            members = where.pop(number)
            moves += zip(members, group, strict=True)
        for i, move in moves:
            if move.target != DONE:
                where.setdefault(move.target, []).append(i)
        for members in where.values():
            members.sort()
        return sorted(moves, key=lambda pair: pair[0])
