"""Orders for requests of several lengths on a scarce KV, and the plans that follow them.

A request with O output tokens grows by O-1 tokens and is freed at once, so some KV is free on average
while it waits for the next one that fits; which requests follow each other decides how much.  A beam
search (`infermax_opt.infermax.planners._sequence_kernel`) finds an order of little loss for given prices:
what each request is expected to lose.  Prices that are too low put off whatever is hard to place.  With k
requests at a time, a KV that fills up by O-1 tokens between two that end loses about (O-1)**2 / (2 k) a
request; that, times a factor per class of requests, is where a random search for prices begins.

Orders are made for whole lives, one token a batch; the planner
(`infermax_opt.infermax.planners.plan.planner`) makes schedules of them, under all limits.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.plan._options import expected_batches, filled_batches
from infermax_opt.infermax.planners.plan.planner import Planner, typical_slots

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["sequence_plans", "sequences_help"]

#: Most requests that fill the KV at their mean size, and most at once that are told apart.
MAX_TYPICAL, SEATS = 64, 256
#: Most requests: a search takes time and memory in proportion.
MAX_REQUESTS = 20_000
#: Classes of requests, where there are more types.
CLASSES = 24
#: States kept, at first and later; share of the time for the first.
NARROW, WIDE, NARROW_SHARE = 32, 128, 0.6
#: Share of the searches that begin anew, of the prices changed in the others, and by how much (log).
RESTARTS, CHANGED, STEP = 0.1, 0.3, 0.3
#: Searches without a deadline.
ROUNDS = 40
#: Seconds between two orders that become schedules.
PAUSE = 0.5
#: Share of the time for orders; the rest is for early starts.
ORDER_SHARE = 0.7
#: Batches, relative to the longest output, by which the requests placed may run ahead: any number.
AHEAD = 1e9


def sequences_help(instance: Instance) -> bool:
    """Whether there is something to order, and the KV is what is scarce."""
    if not instance.offline or not instance.objective.is_makespan or len(instance.types) < 2:
        return False
    if len(instance.requests) > MAX_REQUESTS or typical_slots(instance) > MAX_TYPICAL:
        return False
    return expected_batches(instance, instance.system.max_batch_tokens) == filled_batches(instance)


def sequence_plans(
    instance: Instance, planner: Planner, *, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Plans along good orders, each better than all that the planner had before.

    Parameters
    ----------
    instance : Instance
        One of those that `sequences_help` names.
    planner : Planner
        Its settings are those of the plans.
    seed : int
        The same seed gives the same orders, as many as there is time for.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.

    Yields
    ------
    name : str
        ``sequence:`` and the number of orders tried.
    schedule : Schedule
    """
    began = time.monotonic()
    until = None if deadline is None else began + ORDER_SHARE * (deadline - began)
    strict = replace(planner.chosen, window=1, walk=1, choice=1, slack=AHEAD, backwards=True)
    options = replace(strict, early=0.0, evict=0.0, pilot=0.0)
    number = 0
    order: list[int] = []
    for number, order in _orders(instance, seed, until):
        schedule = planner.follow(order, options, deadline)
        if schedule is not None:
            yield f"sequence:{number}", schedule
    for early in planner.early_shares if order else ():
        if deadline is not None and time.monotonic() >= deadline:
            return
        schedule = planner.follow(order, replace(options, early=early, group=1, spare=0.0), deadline)
        if schedule is not None:
            yield f"sequence:{number}", schedule


def _orders(instance: Instance, seed: int, deadline: float | None) -> Iterator[tuple[int, list[int]]]:
    """Ever better orders, at most one every so often, and the number of searches made."""
    import numpy as np

    from infermax_opt.infermax.planners._sequence_kernel import Queues

    began = time.monotonic()
    rng = np.random.default_rng(seed)
    members = _classes(instance, rng)
    rows = [i for part in members for i in part]
    inputs, outputs = (
        np.array([getattr(instance.requests[i], name) for i in rows], np.int64)
        for name in ("input_tokens", "output_tokens")
    )
    count = np.array([len(part) for part in members], np.int64)
    klass = np.repeat(np.arange(len(members)), count)
    active = max(1.0, outputs.sum() / filled_batches(instance))
    loss = (outputs - 1.0) ** 2 / (2 * active)
    area = outputs * (inputs + outputs / 2)
    mean = np.bincount(klass, area) / np.maximum(1.0, np.bincount(klass, loss))
    system = instance.system
    seats = min(len(rows), SEATS, system.max_running or SEATS, system.max_batch_tokens)
    best, chosen, least = None, np.ones(len(members)), 0
    told, pending, number = began, False, 0
    while number < ROUNDS if deadline is None else time.monotonic() < deadline:
        number += 1
        now = time.monotonic()
        narrow = deadline is None or now < began + NARROW_SHARE * (deadline - began)
        if best is None or rng.random() < RESTARTS:
            factor = rng.uniform(0.5, 6.0) + rng.uniform(-0.1, 0.1) * mean
        else:
            change = rng.normal(0.0, STEP, len(chosen)) * (rng.random(len(chosen)) < CHANGED)
            factor = chosen * np.exp(change + rng.choice([0.0, 0.0, -STEP, STEP]))
        queues = Queues(inputs, outputs, factor[klass] * loss, np.cumsum(count) - count, count)
        batches, order = _search()(system.kv_capacity, seats, queues, NARROW if narrow else WIDE)
        if best is None or batches < least:
            best, chosen, least, pending = order, factor, batches, True
        if pending and (deadline is None or time.monotonic() - told >= PAUSE):
            yield number, [rows[i] for i in best]
            told, pending = time.monotonic(), False
    if pending and best is not None:
        yield number, [rows[i] for i in best]


def _classes(instance: Instance, rng: np.random.Generator) -> list[list[int]]:
    """Requests of one type, or of similar lengths where types are many, in random order."""
    if len(instance.types) <= CLASSES:
        return [list(kind.members) for kind in instance.types]
    requests = instance.requests
    columns = round(CLASSES**0.5)
    by_output = sorted(range(len(requests)), key=lambda i: requests[i].output_tokens)
    members = []
    for part in _parts(by_output, columns):
        by_input = sorted(part, key=lambda i: requests[i].input_tokens)
        members += [[int(i) for i in rng.permutation(cell)] for cell in _parts(by_input, CLASSES // columns)]
    return members


def _parts(some: list[int], number: int) -> list[list[int]]:
    """Cut a list into so many parts of nearly equal length, none of them empty."""
    cuts = [len(some) * k // number for k in range(number + 1)]
    return [some[a:b] for a, b in itertools.pairwise(cuts) if a < b]


@functools.cache
def _search() -> Callable[..., tuple[int, npt.NDArray[np.int64]]]:
    from infermax_opt.infermax.planners import _sequence_kernel as plain

    found: Callable[..., Any] = compiled(plain.sequence_loop, plain.HELPERS)
    return found
