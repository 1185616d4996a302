"""A beam search over the order in which requests start, where the KV is what is scarce.

Time runs backwards, as in `infermax_opt.infermax.planners.plan.planner`: a request that starts in batch t
holds I+O-1 tokens there, one less in every batch after it, I in batch t+O-1 and nothing from t+O on.  Each
starts as soon as it fits, and never before the one ahead of it in the order.  KV that is free while the next
one waits is lost; a state of the search is judged by what it lost, less the prices of the requests placed:
what each is expected to lose.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["HELPERS", "Queues", "sequence_loop"]

#: States of equal worth with which a new one is compared.
LOOK_BACK = 8


class Queues(NamedTuple):
    """Requests in classes, those of a class in a fixed order.

    `inputs`, `outputs`, `price`: columns per request, class by class.  `first`, `count`: per class.
    """

    inputs: Any
    outputs: Any
    price: Any
    first: Any
    count: Any


class Beam(NamedTuple):
    """States, a row each.

    `now`: batch.  `held`: KV.  `active`: requests, of which `ends` (soonest first) and `prompts` tell more.
    `used`: requests started, per class.  `lost`: free KV lost.  `price`: of the requests started.
    `entry`: in the history.
    """

    now: Any
    held: Any
    active: Any
    ends: Any
    prompts: Any
    used: Any
    lost: Any
    price: Any
    entry: Any


def new_beam(width: Any, seats: Any, classes: Any) -> Any:
    """Room for so many states of so many active requests."""
    return Beam(
        np.zeros(width, np.int64), np.zeros(width, np.int64), np.zeros(width, np.int64),
        np.zeros((width, seats), np.int64), np.zeros((width, seats), np.int64),
        np.zeros((width, classes), np.int64), np.zeros(width), np.zeros(width),
        np.full(width, -1, np.int64),
    )  # fmt: skip


def wait(beam: Any, s: Any, capacity: Any, seats: Any, peak: Any) -> Any:
    """First batch in which `peak` tokens fit into state s, KV held there, and free KV lost before."""
    t, held, active = beam.now[s], beam.held[s], beam.active[s]
    began, gone, lost = t, 0, 0
    while held + peak > capacity or active - gone >= seats:
        left = active - gone
        batches = beam.ends[s, gone] - t
        missing = held + peak - capacity
        soon = batches if missing <= 0 else (missing + left - 1) // left
        ending = soon >= batches
        if not ending:
            batches = soon
        lost += batches * (capacity - held) + left * (batches * (batches - 1) // 2)
        t += batches
        held -= batches * left
        if ending:
            # It held its prompt in the batch before.
            held -= beam.prompts[s, gone] - 1
            gone += 1
    while gone < active and beam.ends[s, gone] == t > began:
        held -= beam.prompts[s, gone] - 1
        gone += 1
    return t, held, lost


def place(old: Any, s: Any, new: Any, q: Any, end: Any, prompt: Any) -> None:
    """Copy what is active in state s and goes on in batch `new.now[q]`; add a request."""
    now, k, added = new.now[q], 0, False
    for e in range(old.active[s] + 1):
        here = e < old.active[s]
        if not added and (not here or end <= old.ends[s, e]):
            new.ends[q, k], new.prompts[q, k] = end, prompt
            k += 1
            added = True
        if here and old.ends[s, e] > now:
            new.ends[q, k], new.prompts[q, k] = old.ends[s, e], old.prompts[s, e]
            k += 1
    new.active[q] = k


def known(old: Any, s: Any, j: Any, new: Any, kept: Any, now: Any, lost: Any) -> Any:
    """Whether one of the latest states has used the same requests, until the same batch, at the same loss."""
    for q in range(max(0, kept - LOOK_BACK), kept):
        if new.now[q] == now and new.lost[q] == lost:
            same = True
            for c in range(len(old.used[s])):
                if new.used[q, c] != old.used[s, c] + (1 if c == j else 0):
                    same = False
            if same:
                return True
    return False


def sequence_loop(capacity: Any, seats: Any, queues: Any, width: Any) -> Any:
    """Order of the requests that ends soonest, among those that the beam reaches.

    Parameters
    ----------
    capacity, seats : int
        KV tokens, and most requests at once.  Each request fits alone.
    queues : Queues
    width : int
        States kept after each request.

    Returns
    -------
    batches : int
    order : array of int
        Rows of the queues' columns.
    """
    classes, total = len(queues.first), len(queues.inputs)
    old, new = new_beam(width, seats, classes), new_beam(width, seats, classes)
    came = np.full(total * width, -1, np.int64)
    item = np.full(total * width, -1, np.int64)
    states = 1
    for step in range(total):
        state = np.zeros(states * classes, np.int64)
        klass = np.zeros(states * classes, np.int64)
        now = np.zeros(states * classes, np.int64)
        held = np.zeros(states * classes, np.int64)
        lost = np.zeros(states * classes)
        score = np.zeros(states * classes)
        children = 0
        for s in range(states):
            for j in range(classes):
                if old.used[s, j] == queues.count[j]:
                    continue
                i = queues.first[j] + old.used[s, j]
                peak = queues.inputs[i] + queues.outputs[i] - 1
                t, holding, more = wait(old, s, capacity, seats, peak)
                state[children], klass[children] = s, j
                now[children], held[children] = t, holding + peak
                lost[children] = old.lost[s] + more
                score[children] = lost[children] - old.price[s] - queues.price[i]
                children += 1
        kept = 0
        for c in np.argsort(score[:children], kind="mergesort"):
            s, j = state[c], klass[c]
            if known(old, s, j, new, kept, now[c], lost[c]):
                continue
            i = queues.first[j] + old.used[s, j]
            new.now[kept], new.held[kept], new.lost[kept] = now[c], held[c], lost[c]
            new.price[kept] = old.price[s] + queues.price[i]
            new.used[kept] = old.used[s]
            new.used[kept, j] += 1
            place(old, s, new, kept, now[c] + queues.outputs[i], queues.inputs[i])
            entry = step * width + kept
            came[entry], item[entry], new.entry[kept] = old.entry[s], i, entry
            kept += 1
            if kept == width:
                break
        old, new, states = new, old, kept
    best = 0
    for s in range(states):
        if old.ends[s, old.active[s] - 1] < old.ends[best, old.active[best] - 1]:
            best = s
    order = np.zeros(total, np.int64)
    entry = old.entry[best]
    for step in range(total - 1, -1, -1):
        order[step] = item[entry]
        entry = came[entry]
    return old.ends[best, old.active[best] - 1], order


HELPERS = (new_beam, wait, place, known)
"""What `sequence_loop` calls, callees first."""
