"""Placement heuristics: best-fit (Algorithm 1) and its kin, and the baselines that know of no limits.

Best-fit takes requests in the order of arrival, and gives each to the most loaded worker that takes it, or
to a new one.  The load of a worker is the paper's capacity_norm, the L2 norm of batch size and weighted
context length.  The paper does not say in which units; here both are in seconds of an iteration (eq 3), as
shares of what limit b allows: sqrt((c2 B)^2 + (k2 sum(l_in + gamma l_out))^2) / (T_dec - c3).  In plain
numbers of requests and of tokens, the batch size would not count at all.

``jsq`` and ``power-of-two`` spread requests over a given number of workers, and look at no limit.  The fewest
workers they need are searched for by doubling and halving.  More workers need not be better for them, so the
number found is one with which all limits hold and with one less of which they do not.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence

from infermax_opt.core.compiled import in_rehearsal
from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.instance import MAX_WORKERS, PlacementInstance
from infermax_opt.placement.data.limits import Limits, check_placeable
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics._columns import Columns
from infermax_opt.placement.heuristics._kernel import PARTS

__all__ = [
    "HEURISTICS",
    "place",
    "spread",
]

#: Requests times themselves from which compiled code pays.
MANY = 2_000
#: Weights of batch size, weighted context, prompts and KV in the load: capacity_norm, and none.
NORM, NOTHING = (1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)
#: Starts of multi-start best-fit if nobody says how many.
STARTS = 200
#: How far random starts stray from sorted requests: deviation of the logarithm of sizes; the last: at random.
NOISE = (0.05, 0.2, 0.6, 100.0)


def place(
    instance: PlacementInstance,
    name: str,
    *,
    seed: int = 0,
    starts: int = STARTS,
    target: int = 0,
    deadline: float | None = None,
    stop: Callable[[], bool] | None = None,
) -> Placement:
    """Place requests by a heuristic; the placement is valid.

    Parameters
    ----------
    instance : PlacementInstance
    name : str
        A name in `HEURISTICS`.
    seed : int
        Of those that draw numbers.
    starts, target, deadline, stop : int, int, float, callable
        When ``multi-start`` ends: after so many starts, with so few workers, at this moment of
        `time.monotonic`, or when `stop` says so.

    Raises
    ------
    InputError
        If there is no such heuristic, or a request fits on no worker.
    """
    if name not in HEURISTICS:
        raise InputError(f"{name!r} is none of {', '.join(HEURISTICS)}", field="heuristic")
    check_placeable(instance)
    if name in SPREADERS:
        return _fewest(instance, name, seed)
    if name == "multi-start":
        return _multi_start(instance, seed, starts, target, deadline, stop)
    order, weights = FITS[name]
    columns = Columns(instance, compiled=in_rehearsal() or len(instance.requests) > MANY)
    worker = columns.fit(ORDERS[order](columns), weights, MAX_WORKERS)
    if worker is None:
        raise InputError(f"more than {MAX_WORKERS} workers are needed", field="requests")
    return columns.placement(worker)


def _sorted(columns: Columns, size: Callable[[int], float]) -> list[int]:
    return sorted(columns.limits.new, key=lambda k: -size(k))


#: Orders of new requests: as they came, or the largest first by some measure.
ORDERS: dict[str, Callable[[Columns], Sequence[int]]] = {
    "arrival": lambda columns: columns.limits.new,
    "size": lambda columns: _sorted(columns, lambda k: max(columns.part(k))),
    "context": lambda columns: _sorted(columns, lambda k: columns.part(k)[0]),
    "prompt": lambda columns: _sorted(columns, lambda k: columns.part(k)[1]),
    "kv": lambda columns: _sorted(columns, lambda k: columns.part(k)[2]),
    "remaining": lambda columns: _sorted(columns, lambda k: columns.instance.requests[k].remaining_tokens),
}
#: Heuristics that fit requests one by one: order, and weights of the load.
FITS: dict[str, tuple[str, Sequence[float]]] = {
    "best-fit": ("arrival", NORM),
    "first-fit": ("arrival", NOTHING),
    **{f"best-fit-{order}": (order, NORM) for order in ORDERS if order != "arrival"},
    "first-fit-size": ("size", NOTHING),
}


def _multi_start(
    instance: PlacementInstance,
    seed: int,
    starts: int,
    target: int,
    deadline: float | None,
    stop: Callable[[], bool] | None,
) -> Placement:
    """Best-fit in the order of arrival, by size, and then in random orders with random loads."""
    columns = Columns(instance, compiled=True)
    rng = random.Random(seed)
    plans = itertools.chain(
        ((ORDERS[order](columns), weights) for order, weights in FITS.values()),
        (_random_plan(columns, rng) for _ in itertools.count()),
    )
    best, limit = None, MAX_WORKERS
    for order, weights in itertools.islice(plans, max(1, starts)):
        worker = columns.fit(order, weights, limit)
        if worker is not None:
            best = columns.placement(worker)
            limit = len(set(best.workers.values()) | columns.limits.ongoing.keys()) - 1
        if best is not None and (
            limit < target
            or (deadline is not None and time.monotonic() >= deadline)
            or (stop is not None and stop())
        ):
            break
    if best is None:
        raise InputError(f"more than {MAX_WORKERS} workers are needed", field="requests")
    return best


def _random_plan(columns: Columns, rng: random.Random) -> tuple[list[int], list[float]]:
    """An order and weights of the load."""
    mix, noise = [rng.random() ** 3 for _ in range(3)], rng.choice(NOISE)
    sizes = {}
    for k in columns.limits.new:
        size = sum(weight * part for weight, part in zip(mix, columns.part(k), strict=True))
        # Of the logarithm, which a size of 0 does not have.
        sizes[k] = math.log(size + 1e-9) + noise * rng.gauss(0, 1)
    return sorted(sizes, key=lambda k: -sizes[k]), [rng.random() ** 3 for _ in range(PARTS)]


def _shortest_queue(instance: PlacementInstance, slots: Sequence[int], seed: int) -> dict[int, int]:
    """Each request to the worker with the fewest requests; of equals, to the first."""
    queues = dict.fromkeys(slots, 0)
    for request in instance.requests:
        if request.worker is not None:
            queues[request.worker] += 1
    heap = [(length, worker) for worker, length in queues.items()]
    heapq.heapify(heap)
    found = {}
    for k, request in enumerate(instance.requests):
        if request.worker is None:
            length, worker = heap[0]
            heapq.heapreplace(heap, (length + 1, worker))
            found[k] = worker
    return found


def _power_of_two(instance: PlacementInstance, slots: Sequence[int], seed: int) -> dict[int, int]:
    """Each request to the one of two random workers with fewer predicted tokens to generate."""
    rng = random.Random(seed)
    tokens = dict.fromkeys(slots, 0)
    for request in instance.requests:
        if request.worker is not None:
            tokens[request.worker] += request.remaining_tokens
    found = {}
    for k, request in enumerate(instance.requests):
        if request.worker is None:
            chosen = rng.sample(slots, 2) if len(slots) > 1 else slots
            worker = min(chosen, key=lambda w: tokens[w])
            tokens[worker] += request.remaining_tokens
            found[k] = worker
    return found


#: Heuristics that spread requests over a given number of workers.
SPREADERS: dict[str, Callable[[PlacementInstance, Sequence[int], int], Mapping[int, int]]] = {
    "jsq": _shortest_queue,
    "power-of-two": _power_of_two,
}

#: All heuristics, and what they do.
HEURISTICS: dict[str, str] = {
    "best-fit": "Algorithm 1: the most loaded worker that takes it, in the order of arrival",
    "first-fit": "the first worker that takes it, in the order of arrival",
    "best-fit-size": "best-fit, the largest first: by the largest share of a limit",
    "best-fit-context": "best-fit, the largest first: by iteration time",
    "best-fit-prompt": "best-fit, the largest first: by prefill",
    "best-fit-kv": "best-fit, the largest first: by KV at the end",
    "best-fit-remaining": "best-fit, the largest first: by tokens to generate",
    "first-fit-size": "first-fit, the largest first: by the largest share of a limit",
    "multi-start": "best-fit in many orders and with many measures of load",
    "jsq": "join the shortest queue, whatever the limits, on the fewest workers found that suffice",
    "power-of-two": "the less loaded of two random workers, whatever the limits, on the fewest found",
}


def spread(instance: PlacementInstance, name: str, workers: int, *, seed: int = 0) -> Placement:
    """Spread requests over a given number of workers; the placement need not be valid.

    Parameters
    ----------
    instance : PlacementInstance
    name : {"jsq", "power-of-two"}
    workers : int
        Those with ongoing requests included.
    seed : int

    Raises
    ------
    InputError
        If there is no such heuristic, or there are fewer workers than have ongoing requests.
    """
    if name not in SPREADERS:
        raise InputError(f"{name!r} is none of {', '.join(SPREADERS)}", field="heuristic")
    used = instance.in_use
    if not max(1, len(used)) <= workers <= MAX_WORKERS:
        problem = f"{workers} is not between {max(1, len(used))} and {MAX_WORKERS}"
        raise InputError(problem, field="workers")
    fresh = itertools.islice((w for w in itertools.count(1) if w not in used), workers - len(used))
    found = SPREADERS[name](instance, sorted([*used, *fresh]), seed)
    return Placement(instance.name, {instance.requests[k].id: w for k, w in found.items()})


def _fewest(instance: PlacementInstance, name: str, seed: int) -> Placement:
    """The placement of a spreader on as few workers as doubling and halving find."""
    limits = Limits.of(instance)

    def attempt(workers: int) -> Placement | None:
        found = spread(instance, name, workers, seed=seed)
        members: dict[int, list[int]] = {}
        for request, worker in found.workers.items():
            members.setdefault(worker, []).append(instance.index[request])
        return None if any(limits.excesses(some, worker) for worker, some in members.items()) else found

    high = max(1, len(limits.ongoing))
    low, best = high - 1, attempt(high)
    while best is None:
        if high == MAX_WORKERS:
            raise InputError(f"{name} exceeds a limit even on {MAX_WORKERS} workers", field="heuristic")
        low, high = high, min(MAX_WORKERS, 2 * high)
        best = attempt(high)
    while high - low > 1:
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    return best
