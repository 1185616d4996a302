"""The planner's loop: batch by batch, start the requests that come first in order and fit.

Why it ends: where no batch from t on is in use, every request fits, as `Instance` checks that
each can be served alone; and a batch in use is followed by the next.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.plan import _profile as _planner_profile
from infermax_opt.infermax.planners.plan._profile import CHUNKS, END, FIRST, SHORT, best_parts, commit, fit

__all__ = ["HELPERS", "Jobs", "plan_loop"]


class Jobs(NamedTuple):
    """Columns per request, and the queue.

    `inputs`, `outputs`: tokens to prefill and to generate.  `width`: most tokens of a chunk.  `kind`:
    number of its (I, O) type.  `after`: the queue; its last entry is the head.  `retry`: per type, the
    batch before which no attempt can succeed.  `start`: batch in which the request was placed.
    """

    inputs: Any
    outputs: Any
    width: Any
    kind: Any
    after: Any
    retry: Any
    start: Any


def area(inputs: Any, outputs: Any) -> Any:
    """KV held, summed over the batches that generate `outputs` tokens."""
    return outputs * inputs + outputs * (outputs - 1) // 2


def choose(rules: Any, jobs: Any, profiles: Any, trial: Any, t: Any) -> Any:
    """Request to start in batch t, of those compared that of the largest KV; the one ahead of it; or -1."""
    n = len(jobs.inputs)
    failed = walked = compared = 0
    best, best_ahead, most = -1, n, 0
    ahead = n
    while failed < rules.window and walked < rules.walk and compared < rules.choice:
        i = jobs.after[ahead]
        if i == n:
            break
        walked += 1
        kind = jobs.kind[i]
        if jobs.retry[kind] <= t:
            inputs, outputs = jobs.inputs[i], jobs.outputs[i]
            if fit(rules, profiles, trial, t, inputs, outputs, jobs.width[i]):
                compared += 1
                if inputs + outputs > most:
                    best, best_ahead, most = i, ahead, inputs + outputs
            else:
                failed += 1
                # Starting later it holds one token less per batch where it did not fit.
                wait = min(trial.count[SHORT], trial.count[END] - trial.count[FIRST])
                jobs.retry[kind] = t + max(1, wait)
        ahead = i
    return best, best_ahead


def plan_loop(rules: Any, jobs: Any, profiles: Any, trial: Any, cost: Any, least: Any) -> Any:
    """Place every request.

    Long on purpose: it grows lists, to which numba counts references wherever they are passed.

    Parameters
    ----------
    rules, jobs, profiles, trial : Rules, Jobs, Profiles, Trial
        All columns are used up.
    cost : Coefficients
        Floats, for the estimate.
    least : int
        Batches that are in use anyway.

    Returns
    -------
    batches : int
        Batches in use; -1 if the profiles might be too short.
    seconds : float
        Estimate of the makespan (without hybrid batching as if prompts were packed perfectly).
    time, request, chunk : list of int
        Prefill chunks.
    """
    time = [0 for _ in range(0)]
    request = [0 for _ in range(0)]
    chunk = [0 for _ in range(0)]
    n = len(jobs.inputs)
    left = n
    started = work = reads = 0.0
    t, reach = 0, least
    longest = 0
    for i in range(n):
        longest = max(longest, jobs.inputs[i] + jobs.outputs[i] + rules.group)
    while left > 0:
        room = rules.gather <= 0 or rules.capacity - profiles.kv[t] >= rules.gather
        while reach <= t or (t % rules.every == 0 and room and started <= rules.capacity * (t + rules.slack)):
            # No request reaches farther than this, even if it waits for room between its chunks.
            if max(reach, t) + longest >= len(profiles.kv):
                return -1, 0.0, time, request, chunk
            if rules.hybrid and profiles.tokens[t] >= rules.tokens:
                break
            i, ahead = choose(rules, jobs, profiles, trial, t)
            if i < 0:
                break
            inputs, outputs = jobs.inputs[i], jobs.outputs[i]
            fit(rules, profiles, trial, t, inputs, outputs, jobs.width[i])
            commit(rules, profiles, trial, t, inputs, outputs)
            jobs.start[i] = t
            cached = 0
            for k in range(trial.count[CHUNKS]):
                time.append(trial.time[k])
                request.append(i)
                chunk.append(trial.chunk[k])
                if not rules.exact:
                    work += prefill_work(0, trial.chunk[k], cached)
            if rules.exact:
                work += prefill_work(1, inputs, 0)
            reads += area(inputs, outputs - 1)
            started += area(inputs, outputs)
            reach = max(reach, trial.count[END])
            jobs.after[ahead] = jobs.after[i]
            left -= 1
        t += 1
    if not rules.hybrid and rules.chunked and not rules.exact:
        # Prompts between two decode batches are spread over all the batches that they take.
        work = 0.0
        budget = min(rules.prefill, rules.tokens)
        for k in range(len(time)):
            parts = best_parts(rules, chunk[k], -(-profiles.prefill[time[k]] // budget))
            work += chunk[k] * (chunk[k] / parts + rules.prefix * (parts - 1) / 2)
    seconds = estimate(rules, profiles, cost, reach, reads, work)
    return reach, seconds, time, request, chunk


def estimate(rules: Any, profiles: Any, cost: Any, batches: Any, reads: Any, work: Any) -> Any:
    """Makespan in seconds: each batch without its attention, and the attention of all together."""
    alpha, beta = cost.alpha, cost.beta
    seconds = 0.0
    budget = min(rules.prefill, rules.tokens)
    for u in range(batches):
        tokens, prefill = profiles.tokens[u], profiles.prefill[u]
        if rules.hybrid:
            if tokens == 0:
                # All requests idle: no batch at all.
                continue
            seconds += batch_time(
                alpha, beta, cost.d0, 0.0, cost.p0, 0.0, tokens, tokens - prefill, 0.0, prefill, 0.0
            )
            continue
        if tokens > 0:
            seconds += batch_time(alpha, beta, cost.d0, 0.0, cost.p0, 0.0, tokens, tokens, 0.0, 0, 0.0)
        while prefill > 0:
            some = min(prefill, budget)
            seconds += batch_time(alpha, beta, cost.d0, 0.0, cost.p0, 0.0, some, 0, 0.0, some, 0.0)
            prefill -= some
    nothing = batch_time(alpha, beta, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0, 0.0)
    attention = batch_time(alpha, beta, 0.0, cost.d1, 0.0, cost.p1, 0, 1, reads, 1, work)
    return seconds + (attention - nothing)


HELPERS = (
    batch_time, prefill_work, *_planner_profile.HELPERS,
    area, choose, estimate,
)  # fmt: skip
"""What `plan_loop` calls, callees first."""
