"""Beam search for offline workloads of few request types, where few requests fit into the KV.

A node is a multiset of held requests (type, tokens made), all of which decode in every batch, a
pool of evicted ones and the numbers of fresh ones.  At certain batches (one request has finished,
the KV would overflow, or `BeamOptions.pace` has passed while requests wait) the search decides
which request to evict and which to bring in, fresh or evicted ones, as the KV allows.

Nodes are compared at equal progress.  In a steady state the value of a held request is, nearly
enough, the KV area it has used so far: a request that has made n tokens has earned
``work + a * sum(I + m for m < n)``, where a is what a token of KV costs per batch.  A node's value
is its seconds minus all pay, plus a debt for each evicted request: the price of its refill beyond
the decode step which that replaces.  Nodes lie in buckets by pay; a bucket keeps its `width` best,
one per class of alike nodes, as its nodes would otherwise all differ in details only and agree
in how the ages of their requests are spread, which decides what comes later.

What it leaves to other planners, by giving no schedule at all: arrivals, hybrid batching off,
more than `MAX_TYPES` types, `MAX_KEYS` tokens in all types together, or more than `MAX_TYPICAL`
requests typically held at once.  A prompt that exceeds what a batch has left is prefilled over
several batches, one such prompt at a time, and not at all
where chunked prefill is off; nothing is evicted there if its refill might outgrow a batch.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Schedule
from infermax_opt.infermax.planners.beam import _kernel as _beam_kernel
from infermax_opt.infermax.planners.beam._build import BeamColumns, build, columns, write
from infermax_opt.infermax.planners.beam._state import BeamRules
from infermax_opt.infermax.planners.moments import passed

__all__ = ["BeamOptions", "beam_plans", "beam_search"]

#: Most request types.
MAX_TYPES = 32
#: Most output tokens of all types together.
MAX_KEYS = 200_000
#: Most requests that fill the KV at their mean size.
MAX_TYPICAL = 64
#: Buckets in the ring: a child that would fall further ahead goes to the last one.
RING = 64
#: Seconds that a call of the kernel should take, so that it can be interrupted in between.
SLICE = 0.2
#: A search is given up half-way if it points at a makespan so much above the one to beat.
HOPELESS = 1.01
#: A makespan to beat, times this, is what all requests together pay.
PAID = 0.985
#: Schedules up to so much worse than the one to beat are searched for, to compare settings.
REPORTED = 1.02
#: Rounds of `beam_plans` without a deadline.
ROUNDS = 3
#: Most batches between two decisions: more than any schedule has, and a number that fits the kernel.
MAX_PACE = 2**40
#: Most nodes per bucket that `beam_plans` goes to.
MAX_WIDTH = 1600


@dataclass(frozen=True)
class BeamOptions:
    """What distinguishes one search from another.

    Parameters
    ----------
    width : int
        Nodes kept per bucket.
    fineness : float
        Buckets per request: a bucket is as wide as the pay of a mean request over this.
    ages, pool_ages : float
        Nodes are alike if they hold (have in the pool) as many requests in each of so many classes
        of tokens made, per type; 0 ignores the pool.
    credit : float
        Share of the price of a refill that is not charged before the refill.
    pool : int
        With so many evicted requests no fresh one starts.
    pace : float
        Most buckets that a full KV advances between two decisions while requests wait.
    pairs : int
        Two are evicted at once where at most so many are held.
    price : float
        Pay for KV area relative to what the makespan to beat suggests.
    evict : bool
        Whether to evict at all; otherwise a request starts only where it can run to its end.
    """

    width: int = 100
    fineness: float = 3.0
    ages: float = 8.0
    pool_ages: float = 2.0
    credit: float = 0.15
    pool: int = 12
    pace: float = 8.0
    pairs: int = 4
    price: float = 1.0
    evict: bool = True


#: What `beam_plans` tries first.
OPENING = (
    BeamOptions(width=12, fineness=12.0, ages=16.0, credit=0.3, pairs=6),
    BeamOptions(width=50, fineness=12.0, ages=16.0, credit=0.3, pairs=6),
    BeamOptions(width=50, fineness=12.0, ages=32.0, credit=0.2, pairs=8),
    BeamOptions(),
    BeamOptions(width=200, pool_ages=0.0, credit=0.3, pool=24, pace=4.0),
    BeamOptions(width=50, fineness=12.0, ages=4.0, credit=0.0, pool=6),
    BeamOptions(width=50, fineness=12.0, ages=32.0, pool_ages=8.0, credit=0.0, pool=4),
)

#: What it tries before where no request makes more than `SHORT` tokens: decisions in every bucket.
SHORT_OPENING = (
    BeamOptions(width=50, fineness=12.0, ages=64.0, pool_ages=8.0, credit=0.3, pool=24, pace=1.0),
)
SHORT = 32


def beam_search(
    instance: Instance,
    *,
    options: BeamOptions | None = None,
    upper: float | None = None,
    deadline: float | None = None,
    seed: int = 0,
) -> Schedule | None:
    """Search once for a schedule of small makespan.

    Parameters
    ----------
    instance : Instance
    options : BeamOptions, optional
    upper : float, optional
        Makespan in seconds of a known schedule: only a better one is returned.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop with what has been completed.  The first call
        in a process may overstep it by the time that loading or compiling the kernel takes.
    seed : int
        Shifts the classes of alike nodes.

    Returns
    -------
    Schedule or None
        None if none better was found, or where the beam does not apply.
    """
    slots = _slots(instance)
    if slots is None:
        return None
    return _search(instance, slots, options or BeamOptions(), upper, deadline, seed)[1]


def beam_plans(
    instance: Instance, *, upper: float | None = None, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Ever better schedules by ever wider beams; none where the beam does not apply.

    Parameters
    ----------
    instance : Instance
    upper : float, optional
        Makespan in seconds to beat.
    seed : int
        The same seed gives the same schedules, as far as time allows.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without one it ends after `ROUNDS` rounds.

    Yields
    ------
    name : str
        ``beam:`` and the number of the search.
    schedule : Schedule
    """
    slots = _slots(instance)
    if slots is None:
        return
    rng = random.Random(seed)
    settings = _opening(instance)
    number = rounds = 0
    while settings and (deadline is not None or rounds < ROUNDS):
        ranking: list[tuple[float, int, BeamOptions]] = []
        for options in settings:
            if passed(deadline):
                return
            number += 1
            seconds, schedule = _search(instance, slots, options, upper, deadline, seed + number - 1)
            if schedule is not None:
                upper = seconds
                yield f"beam:{number}", schedule
            if math.isfinite(seconds):
                ranking.append((seconds, number, options))
        settings = _wider([options for _, _, options in sorted(ranking, key=lambda entry: entry[:2])], rng)
        rounds += 1


def _opening(instance: Instance) -> list[BeamOptions]:
    """Settings of the first round."""
    if not instance.policy.preemption:
        return [BeamOptions(evict=False)]
    short = max(kind.output_tokens for kind in instance.types) <= SHORT
    return [*SHORT_OPENING, *OPENING] if short else list(OPENING)


def _wider(ranked: Sequence[BeamOptions], rng: random.Random) -> list[BeamOptions]:
    """Settings of the next round: the two best ones with wider beams, and a neighbour of each."""
    wider = [replace(options, width=min(MAX_WIDTH, 2 * options.width)) for options in ranked[:2]]
    return [*wider, *(_neighbour(options, rng) for options in wider)]


def _neighbour(options: BeamOptions, rng: random.Random) -> BeamOptions:
    """Change one or two settings at random."""
    values: dict[str, float] = {
        "fineness": rng.choice([2.0, 3.0, 6.0, 12.0]),
        "ages": rng.choice([4.0, 8.0, 16.0, 32.0]),
        "pool_ages": rng.choice([0.0, 2.0, 4.0, 8.0]),
        "credit": options.credit + rng.gauss(0, 0.1),
        "pool": rng.choice([4, 6, 8, 12, 24]),
        "pace": rng.choice([4.0, 8.0, 16.0]),
        "price": options.price + rng.gauss(0, 0.02),
    }
    for name in rng.sample(sorted(values), rng.choice([1, 2])):
        options = replace(options, **{name: values[name]})  # type: ignore[arg-type]
    return options


def _slots(instance: Instance) -> int | None:
    """Most requests to hold at a time; None where the beam does not apply."""
    system, types = instance.system, instance.types
    keys = sum(kind.output_tokens for kind in types)
    if (
        not instance.offline
        or not instance.policy.hybrid_batching
        or len(types) > MAX_TYPES
        or keys > MAX_KEYS
    ):
        return None
    typical = system.kv_capacity * instance.output_tokens / _kv_area(instance)
    if typical > MAX_TYPICAL:
        return None
    count = used = 0
    for kind in sorted(types, key=lambda kind: kind.input_tokens):
        size = system.held(kind.input_tokens)
        fit = min(len(kind.members), (system.kv_capacity - used) // size)
        count += fit
        used += fit * size
    limits = [count, int(2 * typical) + 24, system.max_batch_tokens]
    return min([*limits, system.max_running] if system.max_running is not None else limits)


def _kv_area(instance: Instance) -> int:
    """KV tokens times batches that all requests need."""
    return sum(
        len(kind.members) * kind.output_tokens * (2 * kind.input_tokens + kind.output_tokens - 1) // 2
        for kind in instance.types
    )


@functools.cache
def _compiled() -> Callable[..., Any]:
    return compiled(_beam_kernel.search, _beam_kernel.HELPERS, allocates=False)


def _search(
    instance: Instance,
    slots: int,
    options: BeamOptions,
    upper: float | None,
    deadline: float | None,
    seed: int,
) -> tuple[float, Schedule | None]:
    """Makespan of what was found, better or not (infinite if unknown), and the schedule if better."""
    import numpy as np

    work = _prepare(instance, slots, options, upper, seed)
    search, log = _compiled(), work.log
    middle = int(work.total / work.rules.step / 2)
    buckets, done = 1, False
    while not done:
        before = int(log.state[2])
        # Stop at the middle whatever the clock says, so that the clock decides nothing.
        count = min(buckets, middle - before) if before < middle else buckets
        began = time.monotonic()
        with np.errstate(over="ignore"):  # sums of salts wrap around; plain Python would warn of it
            done = search(work.problem, work.rules, work.nodes, log, work.move, work.scratch, count)
        now = time.monotonic()
        if deadline is not None and now >= deadline and not done:
            return math.inf, None
        if now - began < SLICE / 2:
            buckets *= 2
        elif now - began > SLICE:
            buckets = max(1, buckets // 2)
        if (
            upper is not None
            and not done
            and log.state[2] == middle
            and _pointing_at(work) > HOPELESS * upper
        ):
            return math.inf, None
    seconds = float(log.best[0])
    if log.state[1] < 0:
        return math.inf, None
    if upper is not None and seconds >= upper * (1 - 1e-12):
        return seconds, None
    schedule = write(instance, log)
    return (seconds, schedule) if schedule.length <= MAX_BATCHES else (math.inf, None)


def _prepare(
    instance: Instance, slots: int, options: BeamOptions, upper: float | None, seed: int
) -> BeamColumns:
    system, cost = instance.system, instance.cost.floats
    area = _kv_area(instance)
    # A batch takes this long whatever it does; what more a token of KV costs is a full KV's waste.
    empty = max(cost.alpha) + cost.d0
    batches = 1.05 * max(area / system.kv_capacity, instance.output_tokens / slots)
    price = 1.1 * empty / system.kv_capacity
    # Without chunks, what could outgrow a batch could not come back.
    peak = max(kind.input_tokens + kind.output_tokens - 1 for kind in instance.types)
    returns = instance.policy.chunked_prefill or peak <= system.prefill_budget
    if upper is not None:
        total = build(instance, slots, batches, options.credit, price)[1]
        price = max(empty / system.kv_capacity, price + (PAID * upper - total) / area)
    price *= options.price
    problem, total = build(instance, slots, batches, options.credit, price)
    step = max(total / len(instance.requests) / options.fineness, 1e-12)
    full = price * system.kv_capacity
    pace = max(1, round(min(options.pace * step / full, MAX_PACE))) if full > 0 else 1
    rules = BeamRules(
        width=options.width,
        step=step,
        ring=RING,
        pool=options.pool,
        pace=pace,
        pairs=options.pairs,
        free=int(not (options.evict and instance.policy.preemption and returns)),
        reach=min(RING - 1, int(pace * full / step) + 2),
        gain=pace * max(0.0, full - empty),
    )
    wanted = math.inf if upper is None else upper * REPORTED
    return columns(instance, problem, rules, total, wanted, options.ages, options.pool_ages, seed)


def _pointing_at(work: BeamColumns) -> float:
    """Makespan at which a search in its middle points: its best node's excess, twice."""
    nodes, rules = work.nodes, work.rules
    rows = [
        row
        for ring in range(rules.ring)
        for row in range(ring * rules.width, ring * rules.width + int(nodes.filled[ring]))
    ]
    best = min(float(nodes.value[row]) for row in rows)
    return float(work.total + 2 * best)
