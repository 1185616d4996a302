"""Algorithm 1 of the paper (section 4.2): real-time requests by slack, then best-effort ones, with
replacement.

`literal` is what is printed, with T_res the least slack.  A late request makes it negative, so that nothing
is taken, and a real-time request that is thrown out, or never came in, is not looked at again.

`guarded` mends both: only savable requests count for T_res, others come last; and who is not in the batch
has to wait for it, so its slack - T_avg is a part of T_res.

Best-effort requests are taken by their blocks on the host; of equal ones those in decode first, then in the
order of the file, which is that of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["BASE_BATCH", "MOST_BATCH", "Packed", "adapted_batch", "algorithm1"]

#: B_base, and the largest batch size, for which the paper has no limit.
BASE_BATCH, MOST_BATCH = 128, 1024


@dataclass(frozen=True)
class Packed:
    """The batch (positions), and whether the time test stopped step (ii)."""

    batch: tuple[int, ...]
    time_failed: bool


def adapted_batch(size: int, time_failed: bool) -> int:
    """Batch size of the next iteration: doubled unless the time test stopped step (ii), then the base."""
    return BASE_BATCH if time_failed else min(MOST_BATCH, 2 * size)


def algorithm1(instance: IterationInstance, *, guarded: bool) -> Packed:
    """Run it; the limits of blocks hold as in (8), for a snapshot has nothing to preempt."""
    return _Packing(Ticks.of(instance), guarded).run()


class _Packing:
    """One run."""

    def __init__(self, ticks: Ticks, guarded: bool):
        self.ticks, self.guarded = ticks, guarded
        requests = ticks.instance.requests
        # Those that count for T_res: by the letter, everybody.
        real_time = [k for k, r in enumerate(requests) if r.real_time]
        self.counting = set(ticks.savable) if guarded else set(real_time)
        self.queue = sorted(real_time, key=lambda k: (k not in self.counting, ticks.slack[k], k))
        best_effort = [k for k, r in enumerate(requests) if not r.real_time]
        self.best_effort = sorted(
            best_effort, key=lambda k: (requests[k].host_blocks, requests[k].prefills, k)
        )

    def run(self) -> Packed:
        """Steps (i) to (iii)."""
        limit = self.limit(self.queue, [])
        taken, failed = list[int](), False
        for k in self.queue:
            if not self.ticks.fits([*taken, k]):
                break
            if not self.within([*taken, k], limit):
                failed = True
                break
            taken.append(k)
        added = self.fill(taken)
        return Packed((*taken, *added), failed)

    def fill(self, taken: list[int]) -> list[int]:
        """Step (iii): best-effort requests; takes from the end of `taken` those that are replaced."""
        out = self.queue[len(taken) :] if self.guarded else []
        limit, blocks = self.limit(self.queue, out), self.ticks.machine.blocks
        added: list[int] = []
        requests = self.ticks.instance.requests
        for k in self.best_effort:
            if sum(requests[j].new_blocks for j in (*taken, *added, k)) > blocks:
                break
            if self.ticks.fits([*taken, *added, k]) and self.within([*taken, *added, k], limit):
                added.append(k)
                continue
            if not taken:
                break
            last = taken.pop()
            then = self.limit(self.queue, [*out, last]) if self.guarded else limit
            if not (self.ticks.fits([*taken, *added, k]) and self.within([*taken, *added, k], then)):
                taken.append(last)
                break
            out, limit = [*out, last], then
            added.append(k)
        return added

    def limit(self, queue: Sequence[int], out: Sequence[int]) -> int | None:
        """T_res, with these not in the batch; None is no limit."""
        left = set(out)
        return min((self.ticks.limit(k, k not in left) for k in queue if k in self.counting), default=None)

    def within(self, batch: Sequence[int], limit: int | None) -> bool:
        """The time test."""
        return limit is None or self.ticks.time(batch) <= limit
