"""Machines that take requests from one queue, each when it has room, to be compiled.

The machine whose clock is first goes next.  In every batch all of its requests that decode do so; it takes as
long as the limits of these leave to each token still to come, and what is left of that is filled with
prompts, those first that it took first.  It takes requests by arrival, each only if its first token should
be in time there, and if batches that only decode keep the pace of all.

KV is reserved for all tokens to come, so nothing is ever evicted.  Outputs are known: this is no online
scheduler.  What counts is the replay of the batches that it notes.
"""

from __future__ import annotations

from math import inf
from typing import Any

from infermax_opt.fleet.dispatch._state import (
    ARRIVED,
    BATCHES,
    BEGUN,
    DECODES,
    ENTRIES,
    PROMPTS,
    READ,
    TO_COME,
    USED,
    WAITING,
)  # fmt: skip
from infermax_opt.infermax.data.cost import batch_time, prefill_work

__all__ = ["HELPERS", "queue_loop"]

#: Requests in the queue that a machine looks at when it has room.
LOOK = 24
#: Share that a batch may take of the time that limits leave to it.
CAREFUL = 0.999
#: The same beyond which first tokens that were held back wait no longer, in batches that make them.
BATCHES_LEFT = 2.0
#: Relative error granted to the clock; what arrived within it gets an explicit start.
CLOCK_MARGIN = 1e-7


def time_of(cost: Any, tokens: Any, decodes: Any, read: Any, parts: Any, work: Any) -> Any:
    """Seconds of a batch."""
    return batch_time(
        cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1, tokens, decodes, read, parts, work
    )


def reserved(limits: Any, jobs: Any, i: Any) -> Any:
    """KV of all tokens of a request, in whole blocks."""
    peak = jobs.inputs[i] + jobs.outputs[i] - 1
    return -(-peak // limits.block) * limits.block


def allowance(jobs: Any, fleet: Any, cost: Any, k: Any, now: Any) -> Any:
    """Seconds that the next batch of a machine may take; who is too late in any case has no say."""
    count = fleet.count[k]
    lean = time_of(cost, count[DECODES], count[DECODES], count[READ], 0, 0)
    least = inf
    for j in range(count[DECODES]):
        i = fleet.decoding[k, j]
        each = (jobs.last_due[i] - now) / (jobs.outputs[i] - jobs.made[i])
        if each >= lean:
            least = min(least, each)
    return least * CAREFUL


def slack(jobs: Any, fleet: Any, cost: Any, k: Any, now: Any) -> Any:
    """Seconds that the next batch of a machine may take, if those after it only decode."""
    count, least = fleet.count[k], inf
    decodes = count[DECODES]
    lean = time_of(cost, decodes + count[PROMPTS], decodes, count[READ] + count[BEGUN], 0, 0)
    for j in range(decodes):
        i = fleet.decoding[k, j]
        left = jobs.outputs[i] - jobs.made[i] - 1
        # Each batch reads a token more of everybody.
        least = min(least, jobs.last_due[i] - now - left * (lean + cost.d1 * decodes * left / 2))
    return least * CAREFUL


def until_due(due: Any, now: Any) -> Any:
    """Seconds up to a date, but for what the clock may be wrong by."""
    return (due - now) * (1 - CLOCK_MARGIN)


def most_chunk(limits: Any, cost: Any, batch: Any, most: Any, cached: Any, until: Any) -> Any:
    """Most tokens of a prompt with which a batch takes no longer than `until`."""
    tokens, decodes, read, parts, work = batch
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        more = work + prefill_work(limits.exact, middle, cached)
        if time_of(cost, tokens + middle, decodes, read, parts + 1, more) <= until:
            low = middle
        else:
            high = middle - 1
    return low


def pace_of(limits: Any, fleet: Any, cost: Any, k: Any, until: Any) -> Any:
    """Seconds that a machine takes about for a prompt token, in batches that take no longer."""
    most = min(limits.chunk, limits.prefill, limits.tokens)
    decodes, read = fleet.count[k, DECODES], fleet.count[k, READ]
    some = most_chunk(limits, cost, (decodes, decodes, read, 0, 0), most, 0, until)
    if some == 0:
        return inf
    work = prefill_work(limits.exact, some, 0)
    return time_of(cost, decodes + some, decodes, read, 1, work) / some


def fits(limits: Any, jobs: Any, fleet: Any, cost: Any, k: Any, i: Any, until: Any) -> Any:
    """Whether a machine has room for a request, beside whom batches that only decode keep the pace."""
    count = fleet.count[k]
    decodes = count[DECODES] + count[PROMPTS] + 1
    if k >= jobs.among[i] or decodes > limits.running:
        return False
    if count[USED] + reserved(limits, jobs, i) > limits.capacity:
        return False
    if jobs.outputs[i] == 1:
        return True
    read = count[READ] + count[BEGUN] + jobs.inputs[i]
    return time_of(cost, decodes, decodes, read, 0, 0) <= min(until, jobs.tpot[i])


def pull(limits: Any, jobs: Any, fleet: Any, cost: Any, log: Any, k: Any, now: Any, until: Any) -> Any:
    """Take the first request of the queue that the machine should serve in time; -1: none.

    Those whom no machine can serve in time any more leave the queue, too.
    """
    count, notes = fleet.count[k], log.count
    most = min(limits.prefill, limits.tokens)
    fastest = time_of(cost, most, 0, 0, 1, 0) / most
    pace = pace_of(limits, fleet, cost, k, until)
    kept, found = 0, -1
    for place in range(notes[WAITING]):
        i = fleet.waiting[place]
        if found < 0 and place < LOOK:
            if now + fastest * jobs.inputs[i] > jobs.first_due[i]:
                continue
            in_time = now + pace * (count[TO_COME] + jobs.inputs[i]) <= jobs.first_due[i]
            if in_time and fits(limits, jobs, fleet, cost, k, i, until):
                found = i
                continue
        fleet.waiting[kept] = i
        kept += 1
    notes[WAITING] = kept
    if found >= 0:
        fleet.prompts[k, count[PROMPTS]] = found
        count[PROMPTS] += 1
        count[USED] += reserved(limits, jobs, found)
        count[TO_COME] += jobs.inputs[found]
        count[BEGUN] += jobs.inputs[found]
        jobs.route[found] = k
    return found


def shed(limits: Any, jobs: Any, fleet: Any, cost: Any, log: Any, now: Any) -> None:
    """Refuse the longest of those in the queue as long as the fleet should not be in time for all."""
    notes = log.count
    most = min(limits.prefill, limits.tokens)
    each = time_of(cost, most, 0, 0, 1, 0) / most / limits.shed
    ahead = 0
    for k in range(len(fleet.clock)):
        ahead += fleet.count[k, TO_COME]
    place = longest = 0
    while place < notes[WAITING]:
        i = fleet.waiting[place]
        if jobs.inputs[i] > jobs.inputs[fleet.waiting[longest]]:
            longest = place
        ahead += jobs.inputs[i]
        place += 1
        if now + each * ahead / jobs.among[i] <= jobs.first_due[i]:
            continue
        ahead -= jobs.inputs[fleet.waiting[longest]]
        for other in range(longest + 1, notes[WAITING]):
            fleet.waiting[other - 1] = fleet.waiting[other]
        notes[WAITING] -= 1
        place -= 1
        longest = 0
        for other in range(1, place):
            if jobs.inputs[fleet.waiting[other]] > jobs.inputs[fleet.waiting[longest]]:
                longest = other


def arrive(limits: Any, jobs: Any, fleet: Any, cost: Any, log: Any, now: Any) -> None:
    """Put those into the queue who have arrived."""
    notes, n = log.count, len(jobs.order)
    while notes[ARRIVED] < n and jobs.arrival[jobs.order[notes[ARRIVED]]] <= now:
        i = jobs.order[notes[ARRIVED]]
        notes[ARRIVED] += 1
        if jobs.among[i] > 0:
            fleet.waiting[notes[WAITING]] = i
            notes[WAITING] += 1
            if limits.shed > 0:
                shed(limits, jobs, fleet, cost, log, now)


def held_back(jobs: Any, i: Any, longest: Any) -> Any:
    """Whether the first token of a request waits: its later ones need batches that nobody else does."""
    return jobs.inputs[i] > 1 and jobs.outputs[i] - 1 > longest


def released(jobs: Any, fleet: Any, cost: Any, k: Any, now: Any, longest: Any, until: Any) -> Any:
    """Whether first tokens that wait are made in the next batch, and how long it may take."""
    count = fleet.count[k]
    waiting, others, soonest = 0, 0, inf
    for j in range(count[PROMPTS]):
        i = fleet.prompts[k, j]
        if jobs.inputs[i] - jobs.done[i] > 1:
            others += 1
            continue
        waiting += 1
        soonest = min(soonest, jobs.first_due[i])
        if not held_back(jobs, i, longest):
            return True, until
    if waiting == 0:
        return False, until
    close = time_of(cost, count[DECODES] + waiting, count[DECODES], count[READ], waiting, waiting)
    left = soonest - now - close
    if others == 0 or left < BATCHES_LEFT * close:
        return True, min(until, max(until_due(soonest, now), close / CAREFUL))
    return False, min(until, left)


def wanted(limits: Any, jobs: Any, i: Any, longest: Any, release: Any) -> Any:
    """Tokens of a prompt that the next batch may hold; 0: its first token waits."""
    left = jobs.inputs[i] - jobs.done[i]
    if limits.hold and held_back(jobs, i, longest) and (left > 1 or not release):
        left -= 1
    return left


def forced(limits: Any, jobs: Any, fleet: Any, k: Any) -> Any:
    """Put the first prompt into the batch, whatever it takes; its tokens."""
    i = fleet.prompts[k, 0]
    some = min(limits.prefill, limits.tokens, jobs.inputs[i] - jobs.done[i])
    fleet.part[0], fleet.chunk[0] = i, some
    return some


def most_remaining(jobs: Any, fleet: Any, k: Any) -> Any:
    """Tokens that the longest of those who decode still makes."""
    longest = 0
    for j in range(fleet.count[k, DECODES]):
        i = fleet.decoding[k, j]
        longest = max(longest, jobs.outputs[i] - jobs.made[i])
    return longest


def later_of(jobs: Any, one: Any, other: Any) -> Any:
    """Who arrived later; the first may be -1, for nobody."""
    return other if one < 0 or jobs.arrival[other] > jobs.arrival[one] else one


def form(limits: Any, jobs: Any, fleet: Any, cost: Any, log: Any, k: Any, now: Any) -> Any:
    """Form the next batch: its prompts, its seconds, and who of them arrived last, or -1."""
    count = fleet.count[k]
    decodes, read = count[DECODES], count[READ]
    until = slack(jobs, fleet, cost, k, now) if limits.promise else allowance(jobs, fleet, cost, k, now)
    limit, release, longest = until, True, 0
    if limits.hold:
        longest = most_remaining(jobs, fleet, k)
        release, limit = released(jobs, fleet, cost, k, now, longest, until)
    tokens, parts, work = decodes, 0, 0
    room, place, new = min(limits.prefill, limits.tokens - tokens), 0, -1
    while room > 0:
        if place == count[PROMPTS]:
            if limits.promise:
                break
            i = pull(limits, jobs, fleet, cost, log, k, now, until)
            if i < 0:
                break
            new = later_of(jobs, new, i)
        i = fleet.prompts[k, place]
        place += 1
        left = wanted(limits, jobs, i, longest, release)
        if left == 0:
            continue
        ends = jobs.done[i] + left == jobs.inputs[i]
        most, batch = min(room, left, limits.chunk), (tokens, decodes, read, parts, work)
        some = most_chunk(limits, cost, batch, most, jobs.done[i], limit)
        if some == 0:
            break
        late = now + time_of(cost, tokens + left, decodes, read, parts + 1, work) > jobs.first_due[i]
        fleet.part[parts], fleet.chunk[parts] = i, some
        parts += 1
        work += prefill_work(limits.exact, some, jobs.done[i])
        tokens += some
        room -= some
        if some == left and ends and not late:
            limit = min(limit, until_due(jobs.first_due[i], now))
    if parts == 0 and decodes == 0 and count[PROMPTS] > 0:
        tokens, parts = forced(limits, jobs, fleet, k), 1
        work = prefill_work(limits.exact, tokens, jobs.done[fleet.part[0]])
    return parts, time_of(cost, tokens, decodes, read, parts, work), new


def decode(limits: Any, jobs: Any, fleet: Any, k: Any, now: Any) -> None:
    """Everybody who decodes has made a token by now."""
    count, kept = fleet.count[k], 0
    count[READ] += count[DECODES]
    for j in range(count[DECODES]):
        i = fleet.decoding[k, j]
        jobs.made[i] += 1
        if jobs.made[i] == jobs.outputs[i]:
            jobs.last[i] = now
            count[READ] -= jobs.inputs[i] + jobs.made[i] - 1
            count[USED] -= reserved(limits, jobs, i)
        else:
            fleet.decoding[k, kept] = i
            kept += 1
    count[DECODES] = kept


def prefill(limits: Any, jobs: Any, fleet: Any, k: Any, parts: Any, now: Any) -> None:
    """The prompts of a batch have been processed by now."""
    count, kept = fleet.count[k], 0
    for j in range(parts):
        jobs.done[fleet.part[j]] += fleet.chunk[j]
        count[TO_COME] -= fleet.chunk[j]
    for j in range(count[PROMPTS]):
        i = fleet.prompts[k, j]
        if jobs.done[i] < jobs.inputs[i]:
            fleet.prompts[k, kept] = i
            kept += 1
            continue
        count[BEGUN] -= jobs.inputs[i]
        jobs.first[i], jobs.made[i] = now, 1
        if jobs.outputs[i] == 1:
            jobs.last[i] = now
            count[USED] -= reserved(limits, jobs, i)
        else:
            fleet.decoding[k, count[DECODES]] = i
            count[DECODES] += 1
            count[READ] += jobs.inputs[i]
            jobs.last_due[i] = min(jobs.last_due[i], now + jobs.tpot[i] * (jobs.outputs[i] - 1))
    count[PROMPTS] = kept


def note(jobs: Any, fleet: Any, log: Any, k: Any, parts: Any, new: Any, now: Any) -> None:
    """Note a batch that begins now."""
    batch, entry = log.count[BATCHES], log.count[ENTRIES]
    if len(log.machine) > 0:
        just = new >= 0 and jobs.arrival[new] > max(0.0, now - CLOCK_MARGIN * (1.0 + now))
        log.machine[batch] = k
        log.start[batch] = new if just else -1
        log.end[batch] = entry + parts
        for j in range(parts):
            log.named[entry + j] = fleet.part[j]
            log.tokens[entry + j] = fleet.chunk[j]
    log.count[BATCHES] = batch + 1
    log.count[ENTRIES] = entry + parts


def queue_loop(limits: Any, jobs: Any, fleet: Any, cost: Any, log: Any) -> None:
    """Serve all requests, or refuse them.

    Parameters
    ----------
    limits : Limits
    jobs : Jobs
        The last columns are filled.
    fleet : Fleet
        Empty machines.
    cost : Coefficients
        Seconds, float.
    log : Log
    """
    machines, n = len(fleet.clock), len(jobs.order)
    while True:
        k = 0
        for other in range(1, machines):
            if fleet.clock[other] < fleet.clock[k]:
                k = other
        now = fleet.clock[k]
        if now == inf:
            break
        arrive(limits, jobs, fleet, cost, log, now)
        parts, span, new = form(limits, jobs, fleet, cost, log, k, now)
        if parts == 0 and fleet.count[k, DECODES] == 0:
            upcoming = log.count[ARRIVED]
            fleet.clock[k] = jobs.arrival[jobs.order[upcoming]] if upcoming < n else inf
            continue
        note(jobs, fleet, log, k, parts, new, now)
        fleet.clock[k] = now + span
        decode(limits, jobs, fleet, k, now + span)
        prefill(limits, jobs, fleet, k, parts, now + span)


HELPERS = (
    batch_time, prefill_work, time_of, reserved, allowance, slack, until_due, most_chunk, pace_of, fits,
    pull, shed, arrive, held_back, released, wanted, forced, most_remaining, later_of, form, decode, prefill,
    note,
)  # fmt: skip
"""What `queue_loop` calls, callees first."""
