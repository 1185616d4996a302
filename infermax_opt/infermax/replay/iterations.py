"""What batches and requests do in a schedule: sizes, gaps between tokens, and where latencies go.

These are the metrics by which EcoServe compares schedulers (section 2.2, Figure 1), of any valid schedule.

States of a request that has arrived and is not done; they part its end-to-end latency:

==========  ======================================================================================
waiting     until the batch that first processes it begins
prefill     from then until its first token, batches without it included
queued      from its first token until the batch that makes its second one begins, and without an eviction
preempted   later: evicted and refilling, or held and not processed, until it makes a token again
execution   batches that make its second and later tokens
==========  ======================================================================================

An eviction before the first token changes nothing: that time is prefill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import rank
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.plain import Replay
from infermax_opt.infermax.replay.timeline import Walk, each_batch

__all__ = ["STATES", "Iterations", "iterations"]

STATES = ("waiting", "prefill", "queued", "preempted", "execution")
#: Percentiles of gaps between tokens.
PERCENTS = (5, 50, 95, 99)


@dataclass(frozen=True)
class Iterations:
    """Metrics of batches, tokens and states; `definitions` says what each one means."""

    definitions: ClassVar[Mapping[str, str]] = {
        "forward_size": "mean tokens processed per batch",
        "forward_share": "forward_size / max_batch_tokens, the target forward size",
        "mean_completions": "mean requests finished per batch",
        "barren_share": "share of the batches that finish nobody",
        "mean_tbt": "mean time between two tokens of a request, s",
        "tbt": "percentiles of the time between two tokens of a request, s",
        "states": "mean time of a request in each state, s; they sum to the mean end-to-end latency",
    }

    forward_size: Fraction
    forward_share: Fraction
    mean_completions: Fraction
    barren_share: Fraction
    mean_tbt: Fraction | None
    tbt: Mapping[int, Fraction]
    states: Mapping[str, Fraction]


class _Gaps:
    """Times between tokens, ticks, and how many there are of each."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def quantile(self, percent: int) -> int:
        """The gap of that rank."""
        left = rank(percent, self.counts.total())
        for gap in sorted(self.counts):
            left -= self.counts[gap]
            if left <= 0:
                return gap
        raise AssertionError("a rank is at most the number of gaps")


class _Splitter:
    """Walks through a schedule and parts the time of each request.

    Attributes
    ----------
    spent : dict of str to int
        Ticks of all requests in each state.
    gaps : _Gaps
    made : list of int
        Tokens of each request so far.
    """

    def __init__(self, instance: Instance, unit: int):
        count = len(instance.requests)
        self.spent = dict.fromkeys(STATES, 0)
        self.gaps = _Gaps()
        #: Tick until which the time of a request is parted: its arrival at first.
        self._until = [int(request.arrival * unit) for request in instance.requests]
        self._begun = [False] * count
        self.made = [0] * count
        self._lost = [False] * count  # evicted since its last token

    def evicted(self, i: int) -> None:
        """Note an eviction."""
        self._lost[i] = True

    def processed(self, i: int, makes: bool, start: int, end: int) -> None:
        """Take in that a batch processes a request.

        Parameters
        ----------
        i : int
            The request.
        makes : bool
            Whether the batch makes a token of it.
        start, end : int
            Ticks of the batch.
        """
        spent, until = self.spent, self._until
        if not self._begun[i]:
            self._begun[i] = True
            spent["waiting"] += start - until[i]
            until[i] = start
        if not makes:
            return
        if self.made[i] == 0:
            spent["prefill"] += end - until[i]
        else:
            self.gaps.counts[end - until[i]] += 1
            if start > until[i]:
                fresh = self.made[i] == 1 and not self._lost[i]
                spent["queued" if fresh else "preempted"] += start - until[i]
            spent["execution"] += end - start
        self.made[i] += 1
        self._lost[i] = False
        until[i] = end


def iterations(instance: Instance, schedule: Schedule, replayed: Replay) -> Iterations:
    """Metrics of the batches, the tokens and the states of a valid schedule.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
    replayed : Replay
        Of it.

    Raises
    ------
    ValueError
        If the replay has violations.
    """
    if not replayed.valid:
        raise ValueError("metrics of batches need a valid schedule")
    unit = replayed.ticks_per_second
    splitter, walk = _Splitter(instance, unit), Walk(instance)
    generated = walk.state.generated
    times = zip(replayed.starts, replayed.ends, strict=True)
    for (batch, evict), (start, end) in zip(each_batch(instance, schedule.batches), times, strict=True):
        for i in evict:
            splitter.evicted(i)
        for i in walk.step(batch, evict):
            splitter.processed(i, generated[i] > splitter.made[i], start, end)
        walk.settle()
    return _formed(instance, replayed, splitter)


def _formed(instance: Instance, replayed: Replay, splitter: _Splitter) -> Iterations:
    unit, count = replayed.ticks_per_second, len(instance.requests)
    batches = max(1, len(replayed.ends))
    size = Fraction(sum(f.tokens for f in replayed.features), batches)
    done = Counter(batch for batch in replayed.last_batch if batch >= 0)
    gaps = splitter.gaps.counts
    total = gaps.total()
    mean = Fraction(sum(gap * number for gap, number in gaps.items()), total * unit) if total else None
    return Iterations(
        forward_size=size,
        forward_share=size / instance.system.max_batch_tokens,
        mean_completions=Fraction(done.total(), batches),
        barren_share=1 - Fraction(len(done), batches),
        mean_tbt=mean,
        tbt={p: Fraction(splitter.gaps.quantile(p), unit) for p in PERCENTS} if total else {},
        states={state: Fraction(ticks, unit * count) for state, ticks in splitter.spent.items()},
    )
