"""Machines that take requests as they arrive, each if a rehearsal says that all it took will be in time.

A rehearsal runs a copy of a machine with all that it took until their prompts have ended and decoding alone
keeps every pace.  A batch may take as long as those who decode can make up for by decoding alone afterwards,
so prompts come first, and later tokens use what time is left.

Who arrives is asked of all machines, those first on which it adds the fewest batches and waits the least.  If
all refuse, it takes the place of another request whose prompt has not begun and that some other machine
takes; else that of the longest such request that is longer than itself, which is refused then; else it is
refused.  For equal limits on one machine and prompts alone this is the rule of Moore and Hodgson.

Compiled with what it calls of `_kernel`; the queue of that module is the other way to serve requests.
"""

from __future__ import annotations

from math import inf
from typing import Any

from infermax_opt.fleet.dispatch._kernel import (
    CLOCK_MARGIN,
    decode,
    fits,
    form,
    later_of,
    most_remaining,
    note,
    prefill,
    queue_loop,
    reserved,
    time_of,
)
from infermax_opt.fleet.dispatch._kernel import HELPERS as QUEUE
from infermax_opt.fleet.dispatch._state import (
    BEGUN,
    COUNTERS,
    DECODES,
    PASSED,
    PROMPTS,
    READ,
    TO_COME,
    USED,
)

__all__ = ["HELPERS", "dispatch_loop"]

#: Places of others that are tried for all requests together, as a multiple of their number: where many come
#: at once, and most are refused, there would be as many for each.
PLACES = 4


def take(limits: Any, jobs: Any, fleet: Any, k: Any, i: Any) -> None:
    """Put a request among the prompts of a machine, in the order of their dates."""
    count = fleet.count[k]
    place = count[PROMPTS]
    while place > 0 and jobs.first_due[fleet.prompts[k, place - 1]] > jobs.first_due[i]:
        fleet.prompts[k, place] = fleet.prompts[k, place - 1]
        place -= 1
    fleet.prompts[k, place] = i
    count[PROMPTS] += 1
    count[USED] += reserved(limits, jobs, i)
    count[TO_COME] += jobs.inputs[i]
    count[BEGUN] += jobs.inputs[i]


def drop(limits: Any, jobs: Any, fleet: Any, k: Any, i: Any) -> None:
    """Take a request whose prompt has not begun from a machine."""
    count, kept = fleet.count[k], 0
    for j in range(count[PROMPTS]):
        other = fleet.prompts[k, j]
        if other != i:
            fleet.prompts[k, kept] = other
            kept += 1
    count[PROMPTS] = kept
    count[USED] -= reserved(limits, jobs, i)
    count[TO_COME] -= jobs.inputs[i]
    count[BEGUN] -= jobs.inputs[i]


def note_state(jobs: Any, trial: Any, i: Any) -> None:
    """Copy how far a request is."""
    trial.done[i] = jobs.done[i]
    trial.made[i] = jobs.made[i]
    trial.last_due[i] = jobs.last_due[i]


def mirrored(jobs: Any, trial: Any, fleet: Any, k: Any) -> Any:
    """Copy a machine to the row behind all machines; that row."""
    row = len(fleet.clock)
    for j in range(COUNTERS):
        fleet.count[row, j] = fleet.count[k, j]
    for j in range(fleet.count[k, DECODES]):
        fleet.decoding[row, j] = fleet.decoding[k, j]
        note_state(jobs, trial, fleet.decoding[k, j])
    for j in range(fleet.count[k, PROMPTS]):
        fleet.prompts[row, j] = fleet.prompts[k, j]
        note_state(jobs, trial, fleet.prompts[k, j])
    return row


def keeps_pace(jobs: Any, fleet: Any, cost: Any, k: Any, now: Any) -> Any:
    """Whether all who decode on a machine are in time by decoding alone."""
    count = fleet.count[k]
    decodes = count[DECODES]
    lean = time_of(cost, decodes, decodes, count[READ], 0, 0)
    for j in range(decodes):
        i = fleet.decoding[k, j]
        left = jobs.outputs[i] - jobs.made[i]
        if now + left * (lean + cost.d1 * decodes * left / 2) > jobs.last_due[i]:
            return False
    return True


def late(jobs: Any, fleet: Any, k: Any, now: Any) -> Any:
    """Whether a request of a machine is too late at the end of a batch."""
    due = inf
    for j in range(fleet.count[k, DECODES]):
        due = min(due, jobs.last_due[fleet.decoding[k, j]])
    for j in range(fleet.count[k, PROMPTS]):
        due = min(due, jobs.first_due[fleet.prompts[k, j]])
    return now > due


def hopeless(limits: Any, jobs: Any, fleet: Any, cost: Any, k: Any, now: Any) -> Any:
    """Whether a prompt of a machine is late even if batches hold nothing but prompts, as many as fit."""
    most, ahead = min(limits.prefill, limits.tokens), 0
    fastest = time_of(cost, most, 0, 0, 1, 0) / most * (1 - CLOCK_MARGIN)
    for j in range(fleet.count[k, PROMPTS]):
        i = fleet.prompts[k, j]
        ahead += jobs.inputs[i] - jobs.done[i]
        if now + fastest * ahead > jobs.first_due[i]:
            return True
    return False


def rehearsed(limits: Any, jobs: Any, trial: Any, fleet: Any, cost: Any, log: Any, k: Any, now: Any) -> Any:
    """Whether all requests of a machine are in time if it takes no more."""
    row = mirrored(jobs, trial, fleet, k)
    count, now = fleet.count[row], max(now, fleet.clock[k])
    while count[PROMPTS] > 0 or not keeps_pace(trial, fleet, cost, row, now):
        if hopeless(limits, trial, fleet, cost, row, now):
            return False
        parts, span, _ = form(limits, trial, fleet, cost, log, row, now)
        now += span
        if late(trial, fleet, row, now):
            return False
        decode(limits, trial, fleet, row, now)
        prefill(limits, trial, fleet, row, parts, now)
    return True


def promised(
    limits: Any, jobs: Any, trial: Any, fleet: Any, cost: Any, log: Any, k: Any, i: Any, now: Any
) -> Any:
    """Whether a machine takes a request at a moment; if so, it has."""
    if not fits(limits, jobs, fleet, cost, k, i, inf):
        return False
    take(limits, jobs, fleet, k, i)
    if rehearsed(limits, jobs, trial, fleet, cost, log, k, now):
        fleet.clock[k] = max(fleet.clock[k], now)
        jobs.route[i] = k
        return True
    drop(limits, jobs, fleet, k, i)
    return False


def advance(limits: Any, jobs: Any, fleet: Any, cost: Any, log: Any, k: Any, until: Any) -> None:
    """Run the batches of a machine that begin before a moment."""
    count = fleet.count[k]
    while fleet.clock[k] < until and count[DECODES] + count[PROMPTS] > 0:
        now = fleet.clock[k]
        parts, span, new = form(limits, jobs, fleet, cost, log, k, now)
        for j in range(parts):
            new = later_of(jobs, new, fleet.part[j])
        note(jobs, fleet, log, k, parts, new, now)
        fleet.clock[k] = now + span
        decode(limits, jobs, fleet, k, now + span)
        prefill(limits, jobs, fleet, k, parts, now + span)


def more_batches(jobs: Any, fleet: Any, k: Any, i: Any) -> Any:
    """Batches that a request's later tokens need beyond those of a machine's other requests."""
    longest = most_remaining(jobs, fleet, k)
    for j in range(fleet.count[k, PROMPTS]):
        longest = max(longest, jobs.outputs[fleet.prompts[k, j]] - 1)
    return max(0, jobs.outputs[i] - 1 - longest)


def preferred(limits: Any, jobs: Any, fleet: Any, cost: Any, i: Any, now: Any) -> Any:
    """The machine that is asked next for a request; -1: all were."""
    best, least = -1, inf
    for k in range(jobs.among[i]):
        count = fleet.count[k]
        if count[PASSED] == 0:
            wait = max(0.0, fleet.clock[k] - now) + cost.beta[0] * count[TO_COME]
            price = wait + limits.joined * cost.alpha[0] * more_batches(jobs, fleet, k, i)
            if price < least:
                best, least = k, price
    return best


def ask_all(fleet: Any, but: Any) -> None:
    """No machine was asked yet, but for one that will not be; -1: for none."""
    for k in range(len(fleet.clock)):
        fleet.count[k, PASSED] = 1 if k == but else 0


def placed(
    limits: Any, jobs: Any, trial: Any, fleet: Any, cost: Any, log: Any, i: Any, but: Any, now: Any
) -> Any:
    """Whether a machine, but for one, takes a request at a moment; if so, it has."""
    ask_all(fleet, but)
    while True:
        k = preferred(limits, jobs, fleet, cost, i, now)
        if k < 0:
            return False
        fleet.count[k, PASSED] = 1
        if promised(limits, jobs, trial, fleet, cost, log, k, i, now):
            return True


def alike(jobs: Any, i: Any, other: Any) -> Any:
    """Whether a request asks for no less than another one, for which all machines refuse it, too."""
    sizes = jobs.inputs[i] == jobs.inputs[other] and jobs.outputs[i] == jobs.outputs[other]
    dues = jobs.first_due[i] == jobs.first_due[other] and jobs.last_due[i] == jobs.last_due[other]
    return sizes and dues and jobs.among[other] <= jobs.among[i]


def moved(
    limits: Any, jobs: Any, trial: Any, fleet: Any, cost: Any, log: Any, i: Any, now: Any, most: Any
) -> Any:
    """Whether a request takes the place of another one, which another machine takes; how many were tried."""
    tried = 0
    for k in range(jobs.among[i]):
        # The latest first: they have most of their time left.
        for j in range(fleet.count[k, PROMPTS] - 1, -1, -1):
            other = fleet.prompts[k, j]
            if jobs.done[other] > 0 or alike(jobs, i, other):
                continue
            if tried == most:
                return False, tried
            tried += 1
            drop(limits, jobs, fleet, k, other)
            # Nobody can go elsewhere where there is one machine.
            if len(fleet.clock) > 1 and promised(limits, jobs, trial, fleet, cost, log, k, i, now):
                if placed(limits, jobs, trial, fleet, cost, log, other, k, now):
                    return True, tried
                jobs.route[i] = -1
                drop(limits, jobs, fleet, k, i)
            take(limits, jobs, fleet, k, other)
    return False, tried


def longest_of(jobs: Any, fleet: Any, k: Any, i: Any) -> Any:
    """The longest prompt of a machine that has not begun and is longer than that of a request; -1: none."""
    found, most = -1, jobs.inputs[i]
    for j in range(fleet.count[k, PROMPTS]):
        other = fleet.prompts[k, j]
        if jobs.done[other] == 0 and jobs.inputs[other] > most:
            found, most = other, jobs.inputs[other]
    return found


def replaced(limits: Any, jobs: Any, trial: Any, fleet: Any, cost: Any, log: Any, i: Any, now: Any) -> Any:
    """Whether a request takes the place of a longer one, the longest first, which is refused."""
    ask_all(fleet, -1)
    while True:
        k, longest = -1, -1
        for other in range(jobs.among[i]):
            some = longest_of(jobs, fleet, other, i) if fleet.count[other, PASSED] == 0 else -1
            if some >= 0 and (longest < 0 or jobs.inputs[some] > jobs.inputs[longest]):
                k, longest = other, some
        if k < 0:
            return False
        fleet.count[k, PASSED] = 1
        drop(limits, jobs, fleet, k, longest)
        if promised(limits, jobs, trial, fleet, cost, log, k, i, now):
            jobs.route[longest] = -1
            return True
        take(limits, jobs, fleet, k, longest)


def promise_loop(limits: Any, jobs: Any, trial: Any, fleet: Any, cost: Any, log: Any) -> None:
    """Serve all requests as they arrive, or refuse them."""
    left = PLACES * len(jobs.order)
    for place in range(len(jobs.order)):
        i = jobs.order[place]
        now = jobs.arrival[i]
        if jobs.among[i] > 0:
            for k in range(len(fleet.clock)):
                advance(limits, jobs, fleet, cost, log, k, now)
            if placed(limits, jobs, trial, fleet, cost, log, i, -1, now):
                continue
            done, tried = moved(limits, jobs, trial, fleet, cost, log, i, now, left)
            left -= tried
            if not done:
                replaced(limits, jobs, trial, fleet, cost, log, i, now)
    for k in range(len(fleet.clock)):
        advance(limits, jobs, fleet, cost, log, k, limits.until)


def dispatch_loop(limits: Any, jobs: Any, trial: Any, fleet: Any, cost: Any, log: Any) -> None:
    """Serve all requests, or refuse them.

    Parameters
    ----------
    limits : Limits
    jobs : Jobs
        The last columns are filled.
    trial : Jobs
        The same with columns of its own for what changes, for rehearsals.
    fleet : Fleet
        Empty machines.
    cost : Coefficients
        Seconds, float.
    log : Log
    """
    if limits.promise:
        promise_loop(limits, jobs, trial, fleet, cost, log)
    else:
        queue_loop(limits, jobs, fleet, cost, log)


HELPERS = (
    *QUEUE, queue_loop, take, drop, note_state, mirrored, keeps_pace, late, hopeless, rehearsed, promised,
    advance, more_batches, preferred, ask_all, placed, alike, moved, longest_of, replaced, promise_loop,
)  # fmt: skip
"""What `dispatch_loop` calls, callees first."""
