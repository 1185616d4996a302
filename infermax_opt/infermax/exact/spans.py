"""Exact search for ranks of the TPOT with arrivals, where it may help to wait.

The k-th smallest TPOT is at most x if k requests promise each a last token no later than x (O - 1) after its
first (`infermax_opt.infermax.exact.promises`).  From a way in which they keep that, the least x that it
allows is found; then one is looked for that is better.  It is that of a cycle of the differences, a number of
ticks by a sum of some O - 1.  So with Q the sum of all of these it is a fraction of Q or less.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import ceil, inf, lcm

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Termination
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import QUANTILES, Latency, rank
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.exact.promises import MAX_PROMISED, LimitReached, Promise, Way, Ways

__all__ = ["spans_apply", "spans_search"]


def spans_apply(instance: Instance) -> bool:
    """Whether the objective is a rank of the TPOT of few requests."""
    metrics = instance.objective.metrics
    ranked = len(metrics) == 1 and metrics[0] in QUANTILES and metrics[0].latency is Latency.TPOT
    limits, weights = instance.objective.limits, instance.objective.weights
    plain = not limits and all(weight == 1 for _, weight in weights)
    return ranked and plain and len(instance.requests) <= MAX_PROMISED and instance.required is instance


def spans_search(
    instance: Instance, *, upper: Fraction | None = None, limits: EngineLimits | None = None
) -> EngineOutcome[Schedule]:
    """Find a schedule with the least rank of the TPOT; within the limits there may be none that is proved.

    Parameters
    ----------
    instance : Instance
        One of those that `spans_apply` names.
    upper : Fraction, optional
        Objective of a known schedule in seconds: only better ones are looked for.
    limits : EngineLimits, optional
    """
    return _SpansSearch(instance, upper, limits or EngineLimits()).run()


class _SpansSearch:
    def __init__(self, instance: Instance, upper: Fraction | None, limits: EngineLimits):
        unit = lcm(instance.cost.ticks_per_second, *(r.arrival.denominator for r in instance.requests))
        self.ways, self.unit = Ways(instance, unit, limits), unit
        spans = enumerate(request.output_tokens - 1 for request in instance.requests)
        self.spans = {k: tokens for k, tokens in spans if tokens > 0}
        self.total = sum(self.spans.values())
        percent, _ = QUANTILES[instance.objective.metrics[0]]
        self.count = rank(percent, len(self.spans))
        #: What is known, in ticks.
        self.best = None if upper is None else upper * unit
        self.schedule: Schedule | None = None

    def run(self) -> EngineOutcome[Schedule]:
        """Improve on what is known until no set of requests can."""
        termination, floor = Termination.OPTIMAL, Fraction(0)
        try:
            for kept in combinations(self.spans, self.count):
                self._improve(kept)
            floor = self.best if self.best is not None else floor
        except LimitReached as stop:
            termination = stop.termination
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
        found = None if self.schedule is None or self.best is None else self.best / self.unit
        lower = LowerBound(floor / self.unit, "search", Proof.SOLVER)
        return EngineOutcome(self.schedule, lower, termination, found, details={"labels": self.ways.made})

    def _improve(self, kept: tuple[int, ...]) -> None:
        """Look for better schedules as long as these requests allow."""
        while True:
            better = None if self.best is None else _below(self.best, self.total)
            if better is not None and better < 0:
                return
            goal = self.ways.reach(self._promises(kept, better))
            if goal is None:
                return
            self.best = self._least(goal, kept, better)
            self.schedule = self.ways.schedule(goal, self._promises(kept, self.best))

    def _promises(self, kept: tuple[int, ...], most: Fraction | None) -> dict[int, Promise]:
        """So much a token at most."""
        return {k: Promise(between=inf if most is None else most * self.spans[k]) for k in kept}

    def _least(self, goal: Way, kept: tuple[int, ...], most: Fraction | None) -> Fraction:
        """The least TPOT that a way allows: by halves, until a single fraction is left."""
        low, high = Fraction(-1), most
        while high is None:
            step = max(Fraction(1), 2 * low)
            low, high = (low, step) if self.ways.keeps(goal, self._promises(kept, step)) else (step, None)
        while high - low > Fraction(1, 2 * self.total**2):
            middle = (low + high) / 2
            if self.ways.keeps(goal, self._promises(kept, middle)):
                high = middle
            else:
                low = middle
        return high.limit_denominator(self.total)


def _below(value: Fraction, most: int) -> Fraction:
    """The largest fraction of so much at most that is less."""
    return max(Fraction(ceil(value * q) - 1, q) for q in range(1, most + 1))
