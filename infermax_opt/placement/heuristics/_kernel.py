"""Fits one request after the other: on the most loaded worker that takes it, or on a new one.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.placement.replay._state import enter, peak

__all__ = ["HELPERS", "PARTS", "fit"]

#: Parts of a load: batch size, weighted context, prompts, KV.
PARTS = 4


def takes(workers: Any, requests: Any, k: Any, w: Any, most: Any, grows: Any) -> Any:
    """Whether a worker takes a request."""
    if workers.context[w] + requests.context[k] > most[0]:
        return False
    if workers.prompt[w] + requests.prompt[k] > workers.most_prompt[w]:
        return False
    # Often sums decide: KV is never below that of the start, nor above that of all last iterations.
    if workers.own[w] + requests.own[k] <= most[2]:
        return True
    if workers.start[w] + requests.held[k] > most[2]:
        return False
    return peak(workers, requests, grows, w, -1, k) <= most[2]


def add(share: Any, total: Any, weights: Any, load: Any, k: Any, w: Any) -> None:
    """Count a request into the load of a worker."""
    now = 0.0
    for p in range(PARTS):
        total[PARTS * w + p] += share[PARTS * k + p]
        now += weights[p] * total[PARTS * w + p] * total[PARTS * w + p]
    load[w] = now


def fit(
    requests: Any, workers: Any, order: Any, most: Any, grows: Any, share: Any, total: Any, weights: Any,
    load: Any, count: Any, limit: Any,
) -> Any:  # fmt: skip
    """Place requests in an order; number of workers in use, or -1 if `limit` would be exceeded.

    `most`: limits b, c, e.  `share`: `PARTS` numbers per request; `total`: their sums per worker, so far
    of none; `weights`: of their squares in the load, `load`.  `count`: workers in use so far.
    """
    for w in range(count):
        k = workers.head[w]
        while k >= 0:
            add(share, total, weights, load, k, w)
            k = workers.after[k]
    for k in order:
        best = -1
        for w in range(count):
            # Of equals, the first.
            if (best < 0 or load[w] > load[best]) and takes(workers, requests, k, w, most, grows):
                best = w
        if best < 0:
            # A request is known to fit on a worker by itself.
            best = count
            count += 1
            if count > limit:
                return -1
        enter(workers, requests, k, best)
        add(share, total, weights, load, k, best)
    return count


HELPERS = (enter, peak, takes, add)
"""What `fit` calls, callees first."""
