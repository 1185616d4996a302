"""The search engine: A* in one space after the other, from coarse to exact.

Without chunked prefill the exact space is small and comes at once.  With it, whole prompts first
(a restriction) give a schedule; then the exact space if chunks are few, else a restricted and a
relaxed space on ever finer grids close in on the optimum from both sides.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from math import comb
from typing import Any

from infermax_opt.core.result import LowerBound
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Progress, Termination
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import beyond_states, gains_by_waiting
from infermax_opt.infermax.data.objective import Latency
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.exact.missed import missed_applies, missed_search
from infermax_opt.infermax.exact.moves import Chunks
from infermax_opt.infermax.exact.search import MAX_REQUESTS, may_relax, search
from infermax_opt.infermax.exact.times import times_search

__all__ = ["staged_search", "unsupported"]

#: Longest refill (tokens) for which every chunk is tried at once.
FEW_CHUNKS = 20
#: States from which on the estimate by counting is tried first.
MANY_STATES = 100_000
#: Cells per prompt of the successive grids.
LEVELS = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)


#: Most requests where they are told apart.
MAX_TOLD_APART = 12


def unsupported(instance: Instance) -> str | None:
    """Return why the search cannot solve `instance`, or None."""
    requests = len(instance.requests)
    apart = beyond_states(instance)
    most = MAX_TOLD_APART if apart else MAX_REQUESTS
    if requests > most:
        return f"{requests} requests have too many joint states; the search takes {most}"
    if not apart:
        return None
    gains = gains_by_waiting(instance)
    at_once = None if gains is None else _at_once(instance)
    if at_once is not None:
        return unsupported(at_once)
    if gains is not None and not missed_applies(instance):
        why = "beside what is no sum over time" if gains is not apart[0] else "and is no sum over time"
        return f"{gains.value} may gain by waiting, {why}"
    if instance.policy.chunked_prefill and _longest_refill(instance) > FEW_CHUNKS:
        return f"{apart[0].value} is no sum over time, and prompts have too many chunks to try all of them"
    return None


def _longest_refill(instance: Instance) -> int:
    """Most tokens that a request prefills at once."""
    return max(kind.input_tokens + kind.output_tokens for kind in instance.types) - 1


def staged_search(
    instance: Instance,
    *,
    upper: Fraction | None = None,
    limits: EngineLimits | None = None,
    progress: Progress | None = None,
) -> EngineOutcome[Schedule]:
    """Find an optimal schedule, or the best one and bound within the limits.

    Parameters
    ----------
    instance : Instance
    upper : Fraction, optional
        Objective of a known schedule, in seconds: only better ones are looked for.
    limits : EngineLimits, optional
    progress : callable, optional

    Returns
    -------
    EngineOutcome
        Its ``details["stages"]`` tell what each space contributed.
    """
    if beyond_states(instance):
        if gains_by_waiting(instance) is not None:
            at_once = _at_once(instance)
            if at_once is None:
                return missed_search(instance, upper=upper, limits=limits)
            last = max(request.arrival for request in instance.requests)
            return _delayed(times_search(at_once, upper=upper, limits=limits), last)
        return times_search(instance, upper=upper, limits=limits)
    return _Stages(instance, upper, limits or EngineLimits(), progress).run()


def _at_once(instance: Instance) -> Instance | None:
    """The same requests, all there from the start, where only times between tokens count; else None.

    Then a schedule may as well wait for the last arrival.
    """
    if instance.required is not instance or instance.release is not None:
        return None
    if any(metric.latency is not Latency.TPOT for metric in instance.objective.metrics):
        return None
    groups = tuple(replace(group, arrival=Fraction(0)) for group in instance.groups)
    return replace(instance, groups=groups)


def _delayed(outcome: EngineOutcome[Schedule], start: Fraction) -> EngineOutcome[Schedule]:
    """The outcome with a schedule that begins then."""
    if outcome.schedule is None:
        return outcome
    first, *others = outcome.schedule.batches
    batches = (replace(first, start=start), *others)
    return replace(outcome, schedule=replace(outcome.schedule, batches=batches))


class _Stages:
    def __init__(
        self, instance: Instance, upper: Fraction | None, limits: EngineLimits, progress: Progress | None
    ):
        self.instance = instance
        self.upper = upper
        self.limits = limits
        self.progress = progress
        self.began = time.monotonic()
        self.schedule: Schedule | None = None
        self.found: Fraction | None = None
        self.lower: LowerBound | None = None
        self.stages: list[dict[str, Any]] = []
        self.stop: str | None = None

    def run(self) -> EngineOutcome[Schedule]:
        try:
            self._run()
        except KeyboardInterrupt:
            self.stop = Termination.INTERRUPTED
        termination = Termination.OPTIMAL if self._proved() else self.stop or Termination.TIME_LIMIT
        return EngineOutcome(
            schedule=self.schedule,
            lower=self.lower,
            termination=termination,
            upper=self.found,
            details={"stages": self.stages},
        )

    def _run(self) -> None:
        if not self.instance.policy.chunked_prefill:
            if self._progress_states() > MANY_STATES:
                self._stage(Chunks.EXACT, 1, 0.5, counting=True)
            if self._open():
                self._stage(Chunks.EXACT, 1, 1.0)
            return
        longest = _longest_refill(self.instance)
        few = longest <= FEW_CHUNKS
        self._stage(Chunks.RESTRICTED, 1, 0.2)
        if few and self._open():
            self._stage(Chunks.EXACT, 1, 0.7)
        for levels in LEVELS:
            if not self._open():
                return
            if levels >= longest:
                if not few:
                    self._stage(Chunks.EXACT, 1, 1.0)
                return
            self._stage(Chunks.RESTRICTED, levels, 0.4)
            if self._open() and may_relax(self.instance):
                self._stage(Chunks.RELAXED, levels, 1.0)

    def _progress_states(self) -> int:
        """States when only the generated tokens are told apart."""
        product = 1
        for kind in self.instance.types:
            product *= comb(len(kind.members) + kind.output_tokens, kind.output_tokens)
        return product

    def _open(self) -> bool:
        """Whether there is something left to prove, and time for it."""
        left = self._left()
        in_time = left is None or left > 0.01
        return not self._proved() and in_time and self.stop != Termination.INTERRUPTED

    def _proved(self) -> bool:
        return self.lower is not None and self.upper is not None and self.lower.value >= self.upper

    def _left(self) -> float | None:
        if self.limits.seconds is None:
            return None
        return self.limits.seconds - (time.monotonic() - self.began)

    def _stage(self, chunks: Chunks, levels: int, share: float, counting: bool = False) -> None:
        """Search one space for at most `share` of the time left."""
        left = self._left()
        began = time.monotonic()
        outcome = search(
            self.instance,
            upper=self.upper,
            limits=replace(self.limits, seconds=None if left is None else max(0.01, left * share)),
            chunks=chunks,
            levels=levels,
            counting=counting,
            progress=self.progress,
        )
        if outcome.upper is not None and (self.upper is None or outcome.upper < self.upper):
            self.schedule, self.upper, self.found = outcome.schedule, outcome.upper, outcome.upper
        lower = outcome.lower
        if lower is not None and (self.lower is None or lower.value > self.lower.value):
            self.lower = lower
        if outcome.termination != Termination.OPTIMAL:
            self.stop = outcome.termination
        seconds = round(time.monotonic() - began, 3)
        self.stages.append(
            {
                **outcome.details,
                "levels": levels,
                "counting": counting,
                "termination": outcome.termination,
                "upper": outcome.upper,
                "lower": None if lower is None else lower.value,
                "seconds": seconds,
            }
        )
