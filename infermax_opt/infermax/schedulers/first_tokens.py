"""First tokens before all else: the shortest prompt first, and whoever has its token makes room for others.

Prompts come by the tokens that they lack.  One joins others in a batch if what these wait for it is no more
than what a batch of its own would cost those that stay behind.  Nobody decodes while a prompt can be served.
Evicted requests come back one by one, as somebody may arrive meanwhile.
It knows no output lengths; a request that may not be evicted reserves its peak, as with all schedulers here.
"""

from __future__ import annotations

from itertools import chain
from math import inf

from infermax_opt.infermax.schedulers._class_loop import ClassScheduler, by_place
from infermax_opt.infermax.schedulers._draft import Draft, Job, alone

__all__ = ["FirstTokens"]


def _left(job: Job) -> tuple[int, int]:
    """Sort key: what a prompt lacks, then the order of arrival."""
    return job.missing, job.place


class FirstTokens(ClassScheduler):
    """The scheduler; it does not look at service levels or classes.

    Parameters
    ----------
    instance : Instance
    """

    def fill(self, draft: Draft, now: float) -> None:
        """Prompts by what they lack; where none can be served, all tokens that fit."""
        # Who need not be served any more is evicted before.
        running = sorted((job for job in chain(*self.running) if job not in draft.evicted), key=by_place)
        waiting = sorted(chain(*self.waiting), key=by_place)
        prompts = sorted((job for job in chain(running, waiting) if not job.generated), key=_left)
        later = [job for job in reversed(running) if job.generated]
        for job in prompts:
            tokens = draft.chunk(job)
            if tokens and not self._worth(draft, job, tokens, len(prompts)):
                break
            if tokens and self.make_room(draft, job, later):
                draft.add(job, tokens)
        if not draft.jobs:
            self._go_on(draft, running, waiting)

    def _worth(self, draft: Draft, job: Job, tokens: int, prompts: int) -> bool:
        """Whether a prompt delays those in the batch by no more than it spares the others."""
        delay = draft.seconds_with(job, tokens) - draft.seconds
        spared = alone(self.rules, job) - delay
        return delay * len(draft.jobs) <= spared * (prompts - len(draft.jobs))

    def _go_on(self, draft: Draft, running: list[Job], waiting: list[Job]) -> None:
        """Who runs goes on, by arrival, and the last comers make room; one evicted request comes back."""
        for k, job in enumerate(running):
            tokens = 0 if job in draft.evicted else draft.chunk(job)
            if tokens and self.make_room(draft, job, reversed(running[k + 1 :])):
                draft.add(job, tokens)
        evicted = [job for job in waiting if job.generated]
        if evicted and not draft.evicted:
            self.take(draft, min(evicted, key=_left), inf)
