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
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.moments import after_share, passed
from infermax_opt.infermax.planners.plan._options import expected_batches, filled_batches, typical_slots
from infermax_opt.infermax.planners.plan.planner import Planner

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["sequence_plans", "sequences_help"]

#: Most requests that fill the KV at their mean size.
MAX_TYPICAL = 64
#: Most requests that hold KV at once in a beam search.
SEATS = 256
#: Most requests: a search takes time and memory in proportion.
MAX_REQUESTS = 20_000
#: Classes of requests, where there are more types.
CLASSES = 24
#: States kept by the first beam searches.
NARROW = 32
#: States kept by the later ones.
WIDE = 128
#: Share of the time for the first ones.
NARROW_SHARE = 0.6
#: Share of the searches that begin anew.
RESTARTS = 0.1
#: Share of the factors that any other search changes.
CHANGED = 0.3
#: Standard deviation of the logarithm by which a factor changes.
STEP = 0.3
#: Searches without a deadline.
ROUNDS = 40
#: Seconds between two orders that become schedules.
PAUSE = 0.5
#: Share of the time for orders; the rest is for early starts.
ORDER_SHARE = 0.7


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
    until = after_share(ORDER_SHARE, deadline)
    options = planner.chosen.in_order()
    number = 0
    order: list[int] = []
    for number, order in _orders(instance, seed, until):
        schedule = planner.follow(order, options, deadline)
        if schedule is not None:
            yield f"sequence:{number}", schedule
    for way in planner.early_ways if order else ():
        if passed(deadline):
            return
        schedule = planner.follow(order, options.with_early(way), deadline)
        if schedule is not None:
            yield f"sequence:{number}", schedule


def _orders(instance: Instance, seed: int, deadline: float | None) -> Iterator[tuple[int, list[int]]]:
    """Ever better orders, at most one every so often, and the number of searches made."""
    told, narrow_until = time.monotonic(), after_share(NARROW_SHARE, deadline)
    search = _OrderSearch(instance, seed)
    pending = False
    number = 0
    while number < ROUNDS if deadline is None else time.monotonic() < deadline:
        number += 1
        narrow = narrow_until is None or time.monotonic() < narrow_until
        pending = search.step(NARROW if narrow else WIDE) or pending
        if pending and (deadline is None or time.monotonic() - told >= PAUSE):
            yield number, search.order()
            told, pending = time.monotonic(), False
    if pending:
        yield number, search.order()


class _OrderSearch:
    """A random search for what each class of requests is expected to lose; each try is a beam search."""

    def __init__(self, instance: Instance, seed: int):
        import numpy as np

        self.rng = np.random.default_rng(seed)
        members = _classes(instance, self.rng)
        self.rows = [i for part in members for i in part]
        requests = [instance.requests[i] for i in self.rows]
        self.inputs = np.array([r.input_tokens for r in requests], np.int64)
        self.outputs = np.array([r.output_tokens for r in requests], np.int64)
        self.count = np.array([len(part) for part in members], np.int64)
        self.klass = np.repeat(np.arange(len(members)), self.count)
        active = max(1.0, self.outputs.sum() / filled_batches(instance))
        self.loss = (self.outputs - 1.0) ** 2 / (2 * active)
        area = self.outputs * (self.inputs + self.outputs / 2)
        #: KV area of a class relative to what its requests may lose.
        self.mean = np.bincount(self.klass, area) / np.maximum(1.0, np.bincount(self.klass, self.loss))
        system = instance.system
        self.capacity = system.kv_capacity
        self.seats = min(len(self.rows), SEATS, system.max_running or SEATS, system.max_batch_tokens)
        #: Best order so far, the factors that it came of, and its batches.
        self.best: npt.NDArray[np.int64] | None = None
        self.factors = np.ones(len(members))
        self.batches = 0

    def step(self, width: int) -> bool:
        """Try factors near the best ones, or new ones, with a beam so wide; whether they are better."""
        import numpy as np

        from infermax_opt.infermax.planners._sequence_kernel import Queues

        rng = self.rng
        if self.best is None or rng.random() < RESTARTS:
            factors = rng.uniform(0.5, 6.0) + rng.uniform(-0.1, 0.1) * self.mean
        else:
            size = len(self.factors)
            change = rng.normal(0.0, STEP, size) * (rng.random(size) < CHANGED)
            factors = self.factors * np.exp(change + rng.choice([0.0, 0.0, -STEP, STEP]))
        price = factors[self.klass] * self.loss
        queues = Queues(self.inputs, self.outputs, price, np.cumsum(self.count) - self.count, self.count)
        batches, order = _search()(self.capacity, self.seats, queues, width)
        if self.best is not None and batches >= self.batches:
            return False
        self.best, self.factors, self.batches = order, factors, batches
        return True

    def order(self) -> list[int]:
        """The best order of the requests."""
        return [] if self.best is None else [self.rows[i] for i in self.best]


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
