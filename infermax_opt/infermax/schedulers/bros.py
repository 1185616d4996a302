"""BROS: batches of real-time requests by slack, filled with best-effort ones.

Algorithm 1 of BROS, with recompute for what it offloads.  The slack of a request is its limit (of the TTFT
before the first token, of the TPOT afterwards), less the time since its last token or arrival.  (i) Real-time
requests are sorted by slack; the smallest one is the time that the batch may take.  (ii) They are taken in
that order until the batch is full, it would take too long, or no KV can be found, also by evicting
best-effort requests, then real-time ones of more slack.  (iii) Best-effort requests follow, pending before
waiting, then by arrival.  For one that does not fit, the last real-time request is taken out once.

Where the paper leaves things open, or fails (`guarded`, the default):

* A real-time request is *savable* if a batch of it alone ends within its slack.  Only these limit the time of
  a batch.  The others come after them, so that a late one freezes nobody.
* A savable request that was taken out, or never got in, has to wait for one batch more: the time of the batch
  is then at most its slack - the average batch time.

`literal` does neither: the smallest slack of all limits the time, and who is taken out is forgotten.  Once a
request is late, nobody fits; then the first request that can go on does so alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from math import inf
from typing import NamedTuple

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.schedulers._class_loop import (
    BEST_EFFORT,
    LATE,
    REAL_TIME,
    ClassScheduler,
    by_place,
)
from infermax_opt.infermax.schedulers._draft import Draft, Job, alone

__all__ = ["Bros"]


class _Entry(NamedTuple):
    """A real-time job, its slack, and whether it can be kept."""

    slack: float
    place: int
    job: Job
    savable: bool


class Bros(ClassScheduler):
    """The scheduler.

    Parameters
    ----------
    instance : Instance
    guarded : bool
        See the module; else literal.
    group : int
        Tokens of a group, which is due as many TPOT limits after the group before it.
    least, most : int
        Requests in a batch: the limit doubles up to `most` while time does not end step (ii), else it is
        back at `least`.
    """

    def __init__(
        self, instance: Instance, *, guarded: bool = True, group: int = 1, least: int = 128, most: int = 1024
    ):
        super().__init__(instance)
        self._guarded = guarded
        self._group = group
        self._least = least
        self._most = most
        #: Requests in a batch, at most.
        self.size = least

    def slack(self, job: Job, now: float) -> float:
        """Seconds until a job has to have its next token, later ones of its group taking average batches."""
        last = inf if job.e2e_due == inf else job.e2e_due - job.to_come * self.average
        if not job.generated:
            return min(job.ttft_due, last) - now
        group = self._group
        left = group - (job.generated - 1) % group
        if left == group:
            job.mark = job.last
        due = job.mark + group * job.tpot - (left - 1) * self.average
        return (due if due < last else last) - now

    def fill(self, draft: Draft, now: float) -> None:
        """Steps (i) to (iii)."""
        entries = self._entries(now)
        limit = min((entry.slack for entry in entries if entry.savable), default=inf)
        out = self._add_real_time(draft, entries, limit)
        if self._guarded:
            limit = min([limit, *(entry.slack - self.average for entry in out if entry.savable)])
        self._add_best_effort(draft, [entry for entry in entries if entry.job in draft.jobs], limit)

    def _entries(self, now: float) -> list[_Entry]:
        """Step (i): those that limit the time by slack, then the others by arrival, but those that wait."""
        for job in [job for job in self.running[LATE] if job.generated]:
            self.take_back(job)
        entries, late = list[_Entry](), list[Job]()
        for job in [*self.running[REAL_TIME], *self.waiting[REAL_TIME]]:
            slack = self.slack(job, now)
            if not self._guarded or alone(self.rules, job) <= slack:
                entries.append(_Entry(slack, job.place, job, True))
            elif job.generated:
                late.append(job)
            else:
                self.give_up(job)
        entries.sort()
        late = sorted((*late, *self.running[LATE]), key=by_place)
        return [*entries, *(_Entry(inf, job.place, job, False) for job in late)]

    def _and_late(self, entries: list[_Entry]) -> Iterator[_Entry]:
        """All entries, then those of late requests that wait, which are added to the list as they come.

        There may be thousands of them, and few are looked at.
        """
        yield from tuple(entries)
        for job in tuple(self.waiting[LATE]):
            entries.append(_Entry(inf, job.place, job, False))
            yield entries[-1]

    def _but_decodes(self, draft: Draft, entries: list[_Entry], limit: float) -> Iterator[tuple[int, _Entry]]:
        """Put in decodes, as long as they fit; the others, and where they stand."""
        past = 0
        for k, entry in enumerate(self._and_late(entries)):
            if k >= past:
                jobs = (entry.job for entry in islice(entries, k, None))
                past = k + draft.add_decodes(jobs, limit, self.size)
            if k >= past:
                yield k, entry

    def _add_real_time(self, draft: Draft, entries: list[_Entry], limit: float) -> list[_Entry]:
        """Step (ii), and the size of the next batch; those that stay out."""
        self._fixed: set[Job] = set()
        timed = False
        for k, entry in self._but_decodes(draft, entries, limit):
            job = entry.job
            if len(draft.jobs) >= self.size:
                break
            tokens = 0 if job in draft.evicted else draft.chunk(job)
            if not tokens:
                continue
            if draft.seconds_with(job, tokens) > limit:
                timed = True
                break
            if draft.need(job) > draft.free:
                if not self.make_room(draft, job, self._victims(entries, k)):
                    break
                self._fixed.add(job)
            draft.add(job, tokens)
        most = self._least if timed else min(2 * self.size, self._most)
        self.size = max(self._least, most)
        return [entry for entry in entries if entry.savable and entry.job not in draft.jobs]

    def _victims(self, entries: Sequence[_Entry], k: int) -> Iterator[Job]:
        """Who makes room: best-effort requests, the last to arrive first, then those of more slack."""
        yield from sorted(self.running[BEST_EFFORT], key=by_place, reverse=True)
        yield from (entry.job for entry in reversed(entries[k + 1 :]))

    def _add_best_effort(self, draft: Draft, inside: list[_Entry], limit: float) -> None:
        """Step (iii)."""
        jobs = sorted((job for job in self.running[BEST_EFFORT] if job.cached), key=by_place)
        jobs = jobs[draft.add_decodes(jobs, limit, self.size) :]
        for job in chain(jobs, [j for j in self.waiting[BEST_EFFORT] if j not in draft.evicted]):
            tokens = draft.chunk(job)
            if not tokens:
                continue
            if draft.need(job) > draft.free:
                return
            if len(draft.jobs) < self.size and draft.seconds_with(job, tokens) <= limit:
                draft.add(job, tokens)
                continue
            replaced = self._replace(draft, inside, job, limit)
            if replaced is None:
                return
            limit = replaced

    def _replace(self, draft: Draft, inside: list[_Entry], job: Job, limit: float) -> float | None:
        """Take the last real-time job out for a best-effort one; the limit from now on, None if it failed."""
        if not inside or inside[-1].job in self._fixed:
            return None
        entry = inside[-1]
        before = draft.jobs[entry.job]
        draft.remove(entry.job)
        tokens = draft.chunk(job)
        if self._guarded and entry.savable:
            limit = min(limit, entry.slack - self.average)
        fits = tokens and draft.need(job) <= draft.free and len(draft.jobs) < self.size
        if not fits or draft.seconds_with(job, tokens) > limit:
            draft.add(entry.job, before)
            return None
        draft.add(job, tokens)
        inside.pop()
        return limit
