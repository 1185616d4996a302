"""`slack`, told all lengths: where there is no time for all, those with most work are late from the start.

In overload somebody misses.  As in the rule of Moore and Hodgson, those with most work should: requests that
must end by some time are taken in order of their work, as long as their works are at most a share of the
time that there is.  The others do not count as real-time.

The work of a request is what its tokens add to batches, and the fixed part of a batch in proportion to the
KV that it holds: the price of `priced work` when memory is what is short.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from infermax_opt.infermax.data.instance import Instance, Request
from infermax_opt.infermax.schedulers._class_loop import REAL_TIME
from infermax_opt.infermax.schedulers._draft import Draft
from infermax_opt.infermax.schedulers.slack import Slack

__all__ = ["SlackKnown"]

#: Work that is taken on, in the time that there is.
LOAD = 0.9


class SlackKnown(Slack):
    """The scheduler.

    Parameters
    ----------
    instance : Instance
    """

    def __init__(self, instance: Instance):
        super().__init__(instance)
        self._left_out = frozenset(_left_out(instance))

    def fill(self, draft: Draft, now: float) -> None:
        """Give up who is left out; then as `slack`."""
        for job in list(self.waiting[REAL_TIME]):
            if job.id in self._left_out:
                self.give_up(job)
        super().fill(draft, now)


def _left_out(instance: Instance) -> Iterable[str]:
    """Those whose work there is no time for, who weigh least for their work."""
    ends = {request.id: _end(request) for request in instance.requests}
    bound = [request for request in instance.requests if ends[request.id] < inf]
    if not bound:
        return
    horizon = inf if instance.horizon is None else float(instance.horizon)
    begin = min(float(request.arrival) for request in bound)
    last = max(ends[request.id] for request in bound)
    left = LOAD * (min(horizon, last) - begin)
    works = {request.id: _work(instance, request) for request in bound}
    weights = {request.id: max(float(request.terms.weight), 1e-9) for request in bound}
    for request in sorted(bound, key=lambda request: works[request.id] / weights[request.id]):
        left -= works[request.id]
        if left < 0:
            yield request.id


def _end(request: Request) -> float:
    """When a request has to have its last token, seconds."""
    slo, end = request.terms.slo, inf
    if slo.e2e is not None:
        end = float(slo.e2e)
    if slo.ttft is not None and slo.tpot is not None:
        end = min(end, float(slo.ttft + (request.output_tokens - 1) * slo.tpot))
    return float(request.arrival) + end


def _work(instance: Instance, request: Request) -> float:
    """Seconds of the machine that a request takes, by the cost piece that says most."""
    alpha, beta, d0, d1, _, p1 = instance.cost.floats
    prompt, later = request.input_tokens, request.output_tokens - 1
    read = later * prompt + later * (later - 1) / 2  # before each of its decodes
    held = (read + later + prompt) / instance.system.kv_capacity
    pairs = zip(alpha, beta, strict=True)
    plain = max(b * (prompt + later) + (a + d0) * held for a, b in pairs)
    return float(plain + d1 * read + p1 * prompt * prompt)
