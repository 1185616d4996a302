"""What a decode machine does: requests join with their KV, each batch makes a token of every one, exactly.

A schedule holds decisions only: who joins before which batch, and how many batches follow in that company.
Whoever joined stays until its last token.  Times come from the replay, batch by batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from infermax_opt.infermax.data.cost import BatchFeatures, CostModel
from infermax_opt.infermax.data.instance import System

__all__ = ["DecodeMachine", "Job", "Stretch", "replay_decode"]


class Job(NamedTuple):
    """A request after its first token: when its KV is there, ticks; prompt tokens; tokens to come."""

    ready: int
    prompt: int
    steps: int

    @property
    def peak(self) -> int:
        """Tokens cached after its last batch."""
        return self.prompt + self.steps


class Stretch(NamedTuple):
    """Batches of the same requests: the first begins at `start` ticks at the soonest, when `joins` join."""

    start: int
    joins: tuple[int, ...]
    repeat: int


@dataclass(frozen=True)
class DecodeMachine:
    """A machine that decodes.

    Attributes
    ----------
    system : System
    cost : CostModel
    scale : int
        Ticks of these times in one of the cost model's.
    """

    system: System
    cost: CostModel
    scale: int

    @property
    def most(self) -> int:
        """Requests of a batch, at most."""
        limits = (self.system.max_batch_tokens, self.system.max_running)
        return min(limit for limit in limits if limit is not None)

    def batch(self, running: int, cached: int) -> int:
        """Ticks of a batch that decodes so many requests, which have so many tokens cached before it."""
        return self.cost.batch_ticks(BatchFeatures(running, running, cached, 0, 0)) * self.scale

    def batches(self, running: int, cached: int, count: int) -> int:
        """Ticks of so many batches in a row: each has `running` tokens more cached than the one before.

        Parameters
        ----------
        running, cached : int
            Of the first of them.
        count : int
        """
        if not count:
            return 0
        # The time of a batch is affine in what is cached, so these are an arithmetic series.
        ends = self.batch(running, cached), self.batch(running, cached + (count - 1) * running)
        return count * sum(ends) // 2


def replay_decode(machine: DecodeMachine, jobs: Sequence[Job], schedule: Sequence[Stretch]) -> dict[int, int]:
    """When the last token of each request is made, ticks; of those that join.

    Parameters
    ----------
    machine : DecodeMachine
    jobs : sequence of Job
        By the numbers that the schedule has for them.
    schedule : sequence of Stretch

    Raises
    ------
    ValueError
        If somebody joins twice or before its KV is there, more run or hold KV than may, or one does not end.
    """
    left, found, now = dict[int, int](), dict[int, int](), 0
    for number, stretch in enumerate(schedule):
        now = max(now, stretch.start)
        for i in stretch.joins:
            if i in left or i in found or jobs[i].ready > now:
                raise ValueError(f"stretch {number}: request {i} joins twice, or before its KV is there")
            left[i] = jobs[i].steps
        _check_batches(machine, [jobs[i] for i in left], stretch.repeat, f"stretch {number}")
        cached = sum(jobs[i].peak - rest for i, rest in left.items())
        for _ in range(stretch.repeat):
            now += machine.batch(len(left), cached)
            cached += len(left)
        left = {i: rest - stretch.repeat for i, rest in left.items()}
        if min(left.values()) < 0:
            raise ValueError(f"stretch {number}: goes beyond a last token")
        found |= {i: now for i, rest in left.items() if not rest}
        left = {i: rest for i, rest in left.items() if rest}
    if left:
        raise ValueError(f"requests {sorted(left)} do not end")
    return found


def _check_batches(machine: DecodeMachine, running: Sequence[Job], repeat: int, where: str) -> None:
    """Raise `ValueError` if there are no batches, or more requests or KV in them than may be."""
    held = sum(machine.system.held(job.peak) for job in running)
    allowed = 0 < len(running) <= machine.most and held <= machine.system.kv_capacity
    if not allowed or repeat < 1:
        raise ValueError(f"{where}: {len(running)} requests of {held} tokens for {repeat}")
