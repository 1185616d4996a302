"""Round robin: classes alternate from batch to batch, first come first served inside."""

from __future__ import annotations

from itertools import chain

from infermax_opt.infermax.data.instance import Instance, Request
from infermax_opt.infermax.schedulers._class_loop import ClassScheduler, by_place
from infermax_opt.infermax.schedulers._draft import Draft, Job

__all__ = ["RoundRobin"]


class RoundRobin(ClassScheduler):
    """The baseline RR of BROS.

    A batch holds requests of one class, in the order in which they arrived: who runs goes on, who waits joins
    while there is room.  A request that runs and finds no KV makes room by evicting who came after it, in its
    own class first.  Classes are those of the instance; requests without one are a class, too.

    Parameters
    ----------
    instance : Instance
    alternate : bool
        Else all requests are of one class: first come first served.
    """

    def __init__(self, instance: Instance, *, alternate: bool = True):
        super().__init__(instance)
        self._alternate = alternate
        self._turn: list[str | None] = list(dict.fromkeys(map(self._class, instance.requests)))

    def _class(self, request: Request) -> str | None:
        return request.terms.class_name if self._alternate else None

    def _told(self, job: Job) -> str | None:
        return job.class_name if self._alternate else None

    def fill(self, draft: Draft, now: float) -> None:
        """A batch of the class whose turn it is, among those that have requests."""
        running = sorted(chain(*self.running), key=by_place)
        waiting = sorted(chain(*self.waiting), key=by_place)
        there = {self._told(job) for job in chain(running, waiting)}
        turn = next((name for name in self._turn if name in there), None)
        if turn in self._turn:
            self._turn.remove(turn)
            self._turn.append(turn)
        others = [job for job in reversed(running) if self._told(job) != turn]
        running = [job for job in running if self._told(job) == turn and job not in draft.evicted]
        for k, job in enumerate(running):
            self._go_on(draft, job, [*reversed(running[k + 1 :]), *others])
        for job in waiting:
            if self._told(job) == turn and not self._join(draft, job):
                break

    def _go_on(self, draft: Draft, job: Job, others: list[Job]) -> None:
        if job not in draft.evicted:
            tokens = draft.chunk(job)
            if tokens and (draft.need(job) <= draft.free or self.make_room(draft, job, others)):
                draft.add(job, tokens)

    def _join(self, draft: Draft, job: Job) -> bool:
        tokens = draft.chunk(job)
        if not tokens or draft.need(job) > draft.free:
            return False
        draft.add(job, tokens)
        return True
