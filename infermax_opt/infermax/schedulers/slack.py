"""Savable real-time requests first, best-effort ones in the time and KV that these leave.

What it does otherwise than BROS, and why:

* The TPOT is a mean, so its slack adds up: token n + 1 is due n limits of the TPOT after the first token.
* Who has lost a service level is *late*, and comes after best-effort requests: its work no longer counts.
  So has who waits for a token that is overdue, where no batch is as short as its limit of the TPOT.
* A batch takes no longer than a share of the least limit of the TTFT that a prompt can keep: whoever arrives
  meanwhile waits for it.
* Nobody new is admitted into the last KV tokens, and best-effort requests leave some more: an eviction of a
  request in decode costs the time of a refill, an admission that came too early.

Where a best-effort backlog never ends, late requests wait until the horizon.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from math import inf

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.schedulers._class_loop import (
    BEST_EFFORT,
    LATE,
    REAL_TIME,
    ClassScheduler,
    by_place,
)
from infermax_opt.infermax.schedulers._draft import Draft, Job, alone
from infermax_opt.infermax.schedulers._knowledge import lone_prefill

__all__ = ["Slack"]

#: Time of a batch in the least limit of the TTFT, where it holds best-effort requests.
PACE = 0.4
#: The same in batches of one decode, at least: a pace that no batch keeps lets one request go on at a time.
LEAST_PACE = 2
#: Share of the KV cache that no request enters.
SPARE = 1 / 64
#: Share of the KV cache that no best-effort request enters.
SPARE_BEST_EFFORT = 0.11
#: Prefill tokens of a best-effort request in a batch, at most; where they do not fit, half, and so on.
CHUNK = 512
#: Time that a batch may take where a token of a running request is overdue, in its limit of the TPOT.
OVERDUE = 0.25


class Slack(ClassScheduler):
    """The scheduler.

    Parameters
    ----------
    instance : Instance
    """

    def __init__(self, instance: Instance):
        super().__init__(instance)
        limits = {
            (r.input_tokens, r.terms.slo.ttft) for r in instance.requests if r.terms.slo.ttft is not None
        }
        least = min((float(limit) for prompt, limit in limits if self._can(prompt, limit)), default=inf)
        self._pace = max(PACE * least, LEAST_PACE * self.rules.decode_alone)
        self._spare = int(SPARE * self.rules.capacity)
        self._spare_best_effort = int(SPARE_BEST_EFFORT * self.rules.capacity)

    def _can(self, prompt: int, limit: Fraction) -> bool:
        """Whether a prompt alone can keep a limit of the TTFT."""
        rules = self.rules
        return lone_prefill(rules.cost, rules.exact, min(rules.budget, prompt), prompt) <= limit

    def due(self, job: Job) -> float:
        """When a job has to have its next token, seconds."""
        if not job.generated:
            return min(job.ttft_due, job.e2e_due)
        return min(job.first + job.tpot * job.generated, job.e2e_due - job.to_come * self.average)

    def fill(self, draft: Draft, now: float) -> None:
        """Real-time requests that run, those that wait, best-effort ones, late ones."""
        self._give_up_lost(now)
        running = sorted(self.running[REAL_TIME], key=self.due)
        best_effort = sorted(self.running[BEST_EFFORT], key=by_place)
        late = sorted(self.running[LATE], key=by_place)
        limit = inf
        for k, job in enumerate(running):
            victims = chain(reversed(late), reversed(best_effort), reversed(running[k + 1 :]))
            tokens = 0 if job in draft.evicted else draft.chunk(job)
            if tokens and self.make_room(draft, job, victims):
                draft.add(job, tokens)
                limit = min(limit, max(self.due(job) - now, OVERDUE * job.tpot))
        limit = self._admit(draft, [*reversed(late), *reversed(best_effort)], now, limit)
        limit = min(limit, max(self._pace, draft.seconds))
        for job in best_effort:
            if job.cached:
                self._take_part(draft, job, limit)
        self._add_best_effort(draft, limit)
        if not self.waiting[BEST_EFFORT]:
            self._add_late(draft, late, limit)

    def _give_up_lost(self, now: float) -> None:
        """Find those that cannot keep what they were promised."""
        for job in list(self.running[REAL_TIME]):
            begun = job.first if job.generated else inf
            if now > job.e2e_due or now > begun > job.ttft_due or self._too_slow(job, now):
                self.give_up(job)
        for job in list(self.waiting[REAL_TIME]):
            if now + alone(self.rules, job) > self.due(job):
                self.give_up(job)

    def _too_slow(self, job: Job, now: float) -> bool:
        """Whether its next token is late for the TPOT, and each later one even with batches of its own."""
        step = alone(self.rules, job) if job.decoding else 0.0
        return step >= job.tpot and now + step > job.first + job.tpot * job.generated

    def _admit(self, draft: Draft, victims: list[Job], now: float, limit: float) -> float:
        """Let real-time requests in that wait, by what is due first; the limit of the batch from then on."""
        for job in sorted(self.waiting[REAL_TIME], key=self.due):
            tokens = 0 if job in draft.evicted else draft.chunk(job)
            within = min(limit, self.due(job) - now)
            if not tokens or draft.seconds_with(job, tokens) > within:
                continue
            others = any(victim.cached for victim in victims)
            crowded = draft.need(job) + self._spare > draft.free and draft.holders > 0
            if (others or not crowded) and self.make_room(draft, job, victims):
                draft.add(job, tokens)
                limit = within
        return limit

    def _add_best_effort(self, draft: Draft, limit: float) -> None:
        """Let best-effort requests in that wait, in chunks where these fit."""
        for job in self.waiting[BEST_EFFORT]:
            if job in draft.evicted:
                continue
            if draft.need(job) + self._spare_best_effort > draft.free and draft.holders:
                return
            if not self._take_part(draft, job, limit):
                return

    def _take_part(self, draft: Draft, job: Job, limit: float) -> bool:
        return any(
            self.take(draft, job, limit, most) for most in (CHUNK >> k for k in range(CHUNK.bit_length()))
        )

    def _add_late(self, draft: Draft, late: list[Job], limit: float) -> None:
        for job in chain(late, self.waiting[LATE]):
            new = not job.cached
            if job in draft.evicted or (new and draft.need(job) + self._spare > draft.free and draft.holders):
                continue
            if not self.take(draft, job, limit) and new:
                return
