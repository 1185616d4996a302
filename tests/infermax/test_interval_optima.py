"""Machines between limits, every objective: no optimum below a bound, no schedule beyond its worst case."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.band import worst_case
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.data.instance import Instance, Objective
from infermax_opt.infermax.data.intervals import fastest, slowest
from infermax_opt.infermax.data.latencies import NEVER, Latencies
from infermax_opt.infermax.data.objective import Latency, Metric
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.replay.waits import after_arrivals
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.served import droppable, served
from tests.infermax.test_formulations import random_schedule
from tests.infermax.test_intervals import UNIT, batch_ticks, between, rebuilt
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.infermax.waiting import TICK, waiting

#: Objectives that are no sums of latencies, or weighted ones.
OTHERS = (
    "missed", "p50_ttft", "p99_e2e", "max_tpot", "p90_tpot", "max_e2e", "max_ttft", "weighted_mean_e2e",
    "weighted_mean_tpot", "mean_normalised_latency", "max_normalised_latency", "class_spread", "unserved",
    "unserved_tokens", {"missed": 1, "makespan": "0.1"}, {"at_most": {"makespan": "4", "mean_e2e": "3"}},
)  # fmt: skip
#: Points of the oracle of these, at most.
POINTS = 6_000
#: Of which the worst case is that of some machine.
EXACT = [metric for metric in Metric if metric.latency in (Latency.TTFT, Latency.E2E)] + [Metric.MAX_TPOT]


def in_ticks(seed: int, other: bool) -> Instance:
    """An instance whose coefficients have intervals of whole ticks, as the oracles wait at each."""
    rng = random.Random(f"intervals {seed}")
    instance = rng.choice([served, droppable])(seed, rng.choice(OTHERS)) if other else waiting(seed)
    if rng.random() < 0.25:
        dear = replace(instance.cost, mixed=("0.1", "0"), prefix=rng.choice(["0", "0.1"]))
        instance = replace(instance, cost=dear)
    return replace(
        instance, slowest=rebuilt(instance.cost, lambda low: low + TICK * rng.choice([0, 0, 1, 2, 5, 20]))
    )


@in_blocks(campaign(36, 6_000), 30)
def test_no_machine_has_an_optimum_below_a_bound(seeds: range) -> None:
    decided = 0
    for seed in seeds:
        rng = random.Random(f"machine {seed}")
        instance = in_ticks(seed, other=seed % 3 == 0)
        machine = rng.choice([fastest(instance), slowest(instance), between(instance, rng)])
        ticks = machine.cost.ticks_per_second * TICK
        try:
            if seed % 3 == 0:
                least = vector_optimum(machine, POINTS)
            elif ticks <= 1:
                least = optimum(machine)
            else:
                continue  # between ticks: too many times for the oracle
        except TooMany:
            continue
        decided += 1
        bounds = [lower.value for lower in closed_form_bounds(instance)]
        assert max(bounds, default=Fraction(0)) <= least, seed
    assert decided > len(seeds) / 3


def left_unfinished(instance: Instance, schedule: Schedule, rng: random.Random) -> Schedule:
    """The schedule without some optional requests, from some batch on."""
    gone = {r.id: rng.randrange(9) for r in instance.requests if r.terms.optional and rng.random() < 0.5}
    batches = []
    for k, batch in enumerate(schedule.batches):
        tokens = {name: c for name, c in batch.tokens.items() if k < gone.get(name, k + 1)}
        evict = tuple(name for name in batch.evict if k < gone.get(name, k + 1))
        if tokens or evict:
            batches.append(replace(batch, tokens=tokens, evict=evict))
    return replace(schedule, batches=tuple(batches))


def machines(low: list[int], high: list[int], rng: random.Random) -> list[list[int]]:
    """Times of all batches at the ends of the band: all, or of many batches each turn from fast to slow."""
    if len(low) <= 7:
        return [list(took) for took in itertools.product(*map(set, zip(low, high, strict=True)))]
    drawn = [[rng.choice(pair) for pair in zip(low, high, strict=True)] for _ in range(8)]
    return drawn + [low[:k] + high[k:] for k in range(len(low) + 1)]


@in_blocks(campaign(36, 6_000), 60)
def test_worst_cases_of_any_schedule(seeds: range) -> None:
    tried = 0
    for seed in seeds:
        rng = random.Random(f"worst {seed}")
        instance = replace(in_ticks(seed, other=True), objective=Objective.of("makespan"))
        schedule = left_unfinished(instance, random_schedule(rng, instance), rng)
        if not schedule.batches or not replay_plain(fastest(instance), schedule).valid:
            continue
        tried += 1
        waits = after_arrivals(instance, schedule)
        worst = worst_case(instance, schedule)
        low, high = (batch_ticks(corner(instance), waits) for corner in (fastest, slowest))
        found = [ran(instance, waits, took) for took in machines(low, high, rng)]
        for metric in Metric:
            values = [value for value in (one.metric(metric) for one in found) if value is not None]
            limit = worst.metrics[metric.value]
            assert (limit is None) == (not values), (seed, metric)
            assert limit is None or max(values) <= limit, (seed, metric)
            assert limit is None or metric not in EXACT or max(values) == limit, (seed, metric)
        kept = [[not gone for gone in one.broken] for one in found if one.broken is not None]
        slos = [(r.terms.weight, bool(r.terms.slo)) for r in instance.requests]
        total = sum(weight for weight, promised in slos if promised)
        for keeps in kept:
            good = sum(w for (w, promised), keep in zip(slos, keeps, strict=True) if promised and keep)
            attainment = worst.metrics["attainment"]
            assert attainment is not None
            assert attainment <= good / total, seed
    assert tried > len(seeds) / 2


def ran(instance: Instance, waits: Schedule, took: list[int]) -> Latencies:
    """Latencies where each batch takes so many ticks and starts when the schedule says, or later."""
    replayed = replay_plain(fastest(instance), waits)
    starts = [batch.start if k == 0 else None for batch in waits.batches for k in range(batch.repeat)]
    ends, now = [], 0
    for start, ticks in zip(starts, took, strict=True):
        now = max(now, int((start or 0) * UNIT)) + ticks
        ends.append(now)
    firsts, lasts = (
        [ends[j] if j >= 0 else NEVER for j in of] for of in (replayed.first_batch, replayed.last_batch)
    )
    return Latencies(instance, UNIT, firsts, lasts)
