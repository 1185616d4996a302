"""Machines that run Algorithm 1 side by side, and a router that sees them, to be compiled.

What the router decides is all that comes out: times come from the replay of each machine's schedule.  The
clock is that of `infermax_opt.infermax.schedulers._algorithm1_loop`, so a machine does what its scheduler
does when it is given the requests routed to it.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from infermax_opt.infermax.schedulers._algorithm1_batch import next_batch, process
from infermax_opt.infermax.schedulers._algorithm1_loop import HELPERS as LOOP_HELPERS
from infermax_opt.infermax.schedulers._algorithm1_loop import step_time
from infermax_opt.infermax.schedulers._keys import dated_key, note_first_tokens, rekey
from infermax_opt.infermax.schedulers._state import (
    IN_DECODE,
    PARTS,
    RUNNING,
    STEPS,
    USED,
    QueueState,
    enqueue,
)

__all__ = [
    "FIRST_FIT", "HELPERS", "LEAST_KV", "LEAST_WORK", "POWER_OF_TWO", "REFUSED", "ROUND_ROBIN", "SHORTEST",
    "SLO", "Fleet", "route_loop",
]  # fmt: skip

#: Policies.
ROUND_ROBIN, SHORTEST, POWER_OF_TWO, LEAST_KV, SLO, LEAST_WORK, FIRST_FIT = range(7)
#: Share of the limits of a request within which a machine is taken to have room for it.
FIT = 0.5
#: Machine of a request that none serves.
REFUSED = -1
# Columns of `Fleet.load`: unfinished requests, prompt tokens to come, output tokens to come.
JOBS, PROMPTS, OUTPUTS = 0, 1, 2
#: Added to the wait on a machine whose batches take longer than the TPOT, s.
SLOW = 1e6
#: A linear congruential generator: multiplier, increment and modulus.
MULTIPLIER, INCREMENT, MODULUS = 1103515245, 12345, 2**31


class Fleet(NamedTuple):
    """Columns of all machines.

    One row for each machine: `decoding`, `prefilling`, `after`, `before`, `count` as in `QueueState`;
    `load`, and the `clock` in float seconds.  One entry for each request: `route`, which is its machine or
    `REFUSED`; `given`, 0 where it is refused from the start; `first` and `last` token in float seconds;
    `ttft` and `tpot`, its limits.
    """

    decoding: Any
    prefilling: Any
    after: Any
    before: Any
    count: Any
    load: Any
    clock: Any
    route: Any
    given: Any
    first: Any
    last: Any
    ttft: Any
    tpot: Any


def queue_of(fleet: Any, shared: Any, k: Any) -> Any:
    """State of machine `k`; columns by request are those of all machines."""
    return QueueState(
        shared.cached, shared.generated, shared.reserved, shared.phase, shared.key, shared.seen,
        fleet.decoding[k], fleet.prefilling[k], fleet.after[k], fleet.before[k],
        shared.first, shared.heads, fleet.count[k],
    )  # fmt: skip


def note(requests: Any, fleet: Any, state: Any, plan: Any, k: Any, now: Any) -> None:
    """Note what the batch that ends now makes, before it is processed."""
    load = fleet.load[k]
    for j in range(plan.count[STEPS]):
        i = plan.steps[j]
        load[OUTPUTS] -= 1
        if state.generated[i] + 1 == requests.outputs[i]:
            fleet.last[i] = now
    for j in range(plan.count[PARTS]):
        i = plan.parts[j]
        made = state.generated[i]
        if made == 0:
            load[PROMPTS] -= plan.chunks[j]
        if state.cached[i] + plan.chunks[j] == requests.inputs[i] + made:
            load[OUTPUTS] -= 1
            if made == 0:
                fleet.first[i] = now
            if made + 1 == requests.outputs[i]:
                fleet.last[i] = now


def run(
    limits: Any, groups: Any, requests: Any, shared: Any, plan: Any, cost: Any, fleet: Any, k: Any, until: Any
) -> None:
    """Let machine `k` run the batches that begin before `until`."""
    state = queue_of(fleet, shared, k)
    n = len(requests.inputs)
    now = fleet.clock[k]
    while now < until and (state.count[RUNNING] > 0 or state.after[n] != n):
        if limits.dated:
            rekey(requests, state, now)
        next_batch(limits, groups, requests, state, plan)
        now += step_time(plan, cost, 0)
        note(requests, fleet, state, plan, k, now)
        fleet.load[k, JOBS] -= process(limits, requests, state, plan)
        if limits.dated:
            note_first_tokens(state, plan, now)
    fleet.clock[k] = now


def score(requests: Any, cost: Any, fleet: Any, i: Any, k: Any, now: Any, policy: Any) -> Any:
    """What a policy puts a request on the machine with the least of."""
    load, used, steps = fleet.load[k], fleet.count[k, USED], fleet.count[k, IN_DECODE]
    if policy == LEAST_KV:
        return 1.0 * (used + load[PROMPTS])
    if policy == LEAST_WORK:
        step = cost.beta[0] + cost.d1 * requests.inputs[i]
        return max(0.0, fleet.clock[k] - now) + cost.beta[0] * load[PROMPTS] + step * load[OUTPUTS]
    if policy != SLO and policy != FIRST_FIT:
        return 1.0 * load[JOBS]
    # When its first token comes, about: behind the prompts that wait, in batches that decode beside them.
    tokens = load[PROMPTS] + requests.inputs[i]
    step = cost.alpha[0] + cost.d0 + cost.beta[0] * steps + cost.d1 * used
    batches = tokens // 1024 + 1
    wait = max(0.0, fleet.clock[k] - now) + cost.beta[0] * tokens + step * batches
    most = fleet.tpot[i] * (FIT if policy == FIRST_FIT else 1.0)
    return wait if step <= most else wait + SLOW


def roomy(requests: Any, limits: Any, fleet: Any, i: Any, k: Any, wait: Any) -> Any:
    """Whether a machine has room for a request by far: first token in time, KV to spare."""
    held = fleet.count[k, USED] + fleet.load[k, PROMPTS] + requests.inputs[i]
    return wait <= FIT * fleet.ttft[i] and held <= (1.0 - FIT / 2) * limits.capacity


def choose(
    limits: Any, requests: Any, cost: Any, fleet: Any, i: Any, now: Any, policy: Any, drawn: Any
) -> Any:
    """Machine for a request, or `REFUSED`."""
    machines = len(fleet.clock)
    if policy == ROUND_ROBIN:
        return drawn % machines
    if policy == POWER_OF_TWO:
        one = (drawn >> 8) % machines
        other = (one + 1 + (drawn >> 16) % max(1, machines - 1)) % machines
        return one if fleet.load[one, JOBS] <= fleet.load[other, JOBS] else other
    best, least = 0, inf
    for k in range(machines):
        value = score(requests, cost, fleet, i, k, now, policy)
        if value < least:
            best, least = k, value
        if policy == FIRST_FIT and roomy(requests, limits, fleet, i, k, value):
            return k
    if policy == SLO and least % SLOW > fleet.ttft[i]:
        return REFUSED
    return best


def route_loop(
    limits: Any, groups: Any, requests: Any, shared: Any, plan: Any, cost: Any, fleet: Any, policy: Any
) -> None:
    """Route every request, by arrival, and let the machines run to the end.

    Parameters
    ----------
    limits, groups, requests, shared, plan, cost
        As `infermax_opt.infermax.schedulers.algorithm1` makes them for one machine with all requests.
    fleet : Fleet
        Its columns are filled.
    policy : int
        `ROUND_ROBIN` to `FIRST_FIT`.
    """
    machines, drawn = len(fleet.clock), -1
    for place in range(len(requests.order)):
        i = requests.order[place]
        now = requests.arrival[i]
        if fleet.given[i] == 0:
            fleet.route[i] = REFUSED
            continue
        for k in range(machines):
            run(limits, groups, requests, shared, plan, cost, fleet, k, now)
        drawn = drawn + 1 if policy == ROUND_ROBIN else (MULTIPLIER * max(0, drawn) + INCREMENT) % MODULUS
        k = choose(limits, requests, cost, fleet, i, now, policy, drawn)
        fleet.route[i] = k
        if k == REFUSED:
            continue
        state = queue_of(fleet, shared, k)
        fleet.clock[k] = max(fleet.clock[k], now)
        if limits.dated:
            state.key[i] = dated_key(requests, state, i, now)
        enqueue(state, i, limits.ranked)
        fleet.load[k, JOBS] += 1
        fleet.load[k, PROMPTS] += requests.inputs[i]
        fleet.load[k, OUTPUTS] += requests.outputs[i]
    for k in range(machines):
        run(limits, groups, requests, shared, plan, cost, fleet, k, inf)


HELPERS = (*LOOP_HELPERS, queue_of, note, run, score, roomy, choose)
"""What `route_loop` calls, callees first."""
