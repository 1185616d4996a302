"""Requests and workers as columns, for heuristics that place requests one by one or move them.

The requests of a worker are a linked list from the one that ends last to the one that ends first, so that
the peak of their KV takes one pass; only moments at which one ends matter.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Requests", "Workers", "enter", "leave", "peak"]


class Requests(NamedTuple):
    """Columns indexed by request.

    `context`, `prompt`: needs of limit b, and of c and d.  `held`: KV at iteration 0.  `last`: last
    iteration.  `own`: KV in that iteration.  `new`: whether it may be placed.
    """

    context: Any
    prompt: Any
    held: Any
    last: Any
    own: Any
    new: Any


class Workers(NamedTuple):
    """Columns indexed by worker; `worker` and `after` by request.

    `context`, `prompt`, `start`, `own`: sums over requests, of KV at iteration 0 and in their last ones.
    `peak`: most KV, or something above it that is within limit e.  `most_prompt`: limits c and d.
    `head`: the request that ends last, or -1.  `after`: the one that ends next after a request, or -1.
    `worker`: of each request, or -1.
    """

    context: Any
    prompt: Any
    start: Any
    own: Any
    peak: Any
    most_prompt: Any
    head: Any
    worker: Any
    after: Any


def enter(workers: Any, requests: Any, k: Any, w: Any) -> None:
    """Put a request on a worker; `peak` stays as it is."""
    last = requests.last[k]
    before, here = -1, workers.head[w]
    while here >= 0 and requests.last[here] > last:
        before, here = here, workers.after[here]
    workers.after[k] = here
    if before < 0:
        workers.head[w] = k
    else:
        workers.after[before] = k
    workers.worker[k] = w
    workers.context[w] += requests.context[k]
    workers.prompt[w] += requests.prompt[k]
    workers.start[w] += requests.held[k]
    workers.own[w] += requests.own[k]


def leave(workers: Any, requests: Any, k: Any) -> None:
    """Take a request from its worker; `peak` stays as it is."""
    w = workers.worker[k]
    before, here = -1, workers.head[w]
    while here != k:
        before, here = here, workers.after[here]
    if before < 0:
        workers.head[w] = workers.after[k]
    else:
        workers.after[before] = workers.after[k]
    workers.worker[k] = -1
    workers.context[w] -= requests.context[k]
    workers.prompt[w] -= requests.prompt[k]
    workers.start[w] -= requests.held[k]
    workers.own[w] -= requests.own[k]


def peak(workers: Any, requests: Any, grows: Any, w: Any, without: Any, more: Any) -> Any:
    """Most KV of a worker without one of its requests and with another; -1: none."""
    held = most = count = 0
    here = workers.head[w]
    while here >= 0 or more >= 0:
        if more >= 0 and (here < 0 or requests.last[here] <= requests.last[more]):
            k = more
            more = -1
        else:
            k = here
            here = workers.after[here]
            if k == without:
                continue
        held += requests.held[k]
        count += 1
        most = max(most, held + count * grows * requests.last[k])
    return most
