"""Measure the studies of the paper's figures.  Each schedule is replayed and verified."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from infermax_opt import solve, verify
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.classes import ClassFigures, class_figures
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.sharing import shared_blocks
from infermax_opt.iteration.data.generate import generate_snapshot
from scripts.bros_study.rates import EVERY, WEIGHTS, Row, least
from scripts.bros_study.settings import (
    FRONTIER,
    HYBRID,
    LARGER,
    OPT_13B,
    OPT_30B,
    POLICIES,
    QUEUE_RATES,
    RATES,
    Case,
    hybrid,
    queue,
    real_time,
)

__all__ = ["STUDIES", "MeasureError", "measure", "normalised_bound"]

#: Seconds for each line.
SECONDS = 3
#: Real-time and best-effort requests of snapshots, and how many of each.
SNAPSHOTS, SEEDS = ((20, 128), (60, 128), (120, 128)), 3


class MeasureError(RuntimeError):
    """A schedule or a bound is wrong."""


@dataclass(frozen=True)
class Measured:
    """A verified schedule, its figures by class, and processor seconds of making it."""

    schedule: Schedule
    figures: dict[str | None, ClassFigures]
    seconds: float


def measure(instance: Instance, scheduler: str) -> Measured:
    """Run a scheduler and verify what it makes.

    Raises
    ------
    MeasureError
        If the schedule breaks a rule.
    """
    began = time.process_time()
    schedule = run_scheduler(instance, scheduler)
    seconds = time.process_time() - began
    check = verify(instance, schedule)
    if not check.ok:
        raise MeasureError(f"{instance.name}: {scheduler}: {check.violations[:1]}")
    return Measured(schedule, {found.name: found for found in class_figures(instance, schedule)}, seconds)


def normalised_bound(instance: Instance, done: int) -> float:
    """Least mean normalised latency, seconds a token, of real-time requests where so many are done.

    Each takes at least its time alone on the machine, so the mean is at least that of the smallest such.
    """
    lone = LoneLatency(instance)
    unit = instance.cost.ticks_per_second
    each = sorted(
        lone.of(request).total / request.output_tokens / unit
        for request in instance.requests
        if request.terms.class_name == "rt"
    )
    return float(sum(each[:done], Fraction(0)) / done) if done else 0.0


def _figures(instance: Instance, found: Measured) -> Row:
    """Columns that all studies of schedules share."""
    rt, be = found.figures["rt"], found.figures.get("be")
    latency = float(rt.mean_normalised_latency or 0)
    bound = normalised_bound(instance, rt.done)
    if bound > latency * (1 + 1e-9):
        raise MeasureError(f"{instance.name}: a normalised latency of {latency} is below its bound {bound}")
    return {
        "requests": str(rt.requests),
        "done": str(rt.done),
        "attainment": _percent(rt.attainment),
        "ttft": _percent(rt.ttft_attainment),
        "tpot": _percent(rt.tpot_attainment),
        "normalised_s": f"{latency:.4f}",
        "normalised_bound_s": f"{bound:.4f}",
        "queueing": _percent(rt.queueing_share),
        "rt_per_s": f"{float(rt.requests_per_second or 0):.3f}",
        "be_per_s": f"{float(be.requests_per_second or 0):.3f}" if be else "",
    }


def _percent(share: Fraction | None) -> str:
    return "" if share is None else f"{100 * float(share):.2f}"


def hybrid_rows() -> Iterator[Row]:
    """Figures 10, 11 and 14: rates and policies, with the certified least number of missed requests."""
    yield from _cases(HYBRID)


def larger_rows() -> Iterator[Row]:
    """The same of the paper's largest model."""
    yield from _cases(LARGER)


def _cases(cases: Sequence[Case]) -> Iterator[Row]:
    for workload, profile, rate, seed in cases:
        instance = hybrid(workload, profile, rate, seed)
        least_missed = least(instance, "0", SECONDS)
        for policy in POLICIES:
            found = measure(instance, policy)
            rt = found.figures["rt"]
            at_most = 1 - least_missed / rt.requests
            if (rt.attainment or 0) > at_most:
                raise MeasureError(f"{instance.name}: {policy} attains more than its bound")
            yield {
                "workload": workload, "profile": profile, "rate": rate, "seed": str(seed), "policy": policy,
                **_figures(instance, found),
                "attainment_at_most": _percent(at_most),
                **_iteration(instance, found),
            }  # fmt: skip


def _iteration(instance: Instance, found: Measured) -> Row:
    """Batches, their mean time, and processor time of choosing each."""
    replayed = replay(instance, found.schedule)
    ticks = sum(end - start for start, end in zip(replayed.starts, replayed.ends, strict=True))
    batches = len(replayed.ends)
    return {
        "batches": str(batches),
        "batch_ms": f"{1000 * ticks / replayed.ticks_per_second / batches:.2f}",
        "choosing_ms": f"{1000 * found.seconds / batches:.2f}",
    }


def frontier_rows() -> Iterator[Row]:
    """The certified lines `missed` + weight * `unserved` >= bound."""
    instance = hybrid(*FRONTIER)
    classes = [request.terms.class_name for request in instance.requests]
    for weight in ("0", *WEIGHTS):
        yield {
            "weight": weight,
            "bound": f"{float(least(instance, weight, SECONDS)):.4f}",
            "rt_requests": str(classes.count("rt")),
            "be_requests": str(classes.count("be")),
        }


def queue_rows() -> Iterator[Row]:
    """Figure 3: first come first served against longest wait first."""
    for rate in QUEUE_RATES:
        instance = queue(rate)
        for policy, name in (("fcfs", "fcfs"), ("longest-wait", "bros")):
            yield {"rate": rate, "policy": policy, **_figures(instance, measure(instance, name))}


def real_time_rows() -> Iterator[Row]:
    """Figure 12: real-time requests alone."""
    for profile in (OPT_13B, OPT_30B):
        for rate in RATES[1:]:
            instance = real_time(profile, rate)
            for policy in ("fcfs", "bros", "slack"):
                found = measure(instance, policy)
                yield {"profile": profile, "rate": rate, "policy": policy, **_figures(instance, found)}


def sharing_rows() -> Iterator[Row]:
    """Figure 13: blocks that sharing saves, by the paper's rule and at most, and what more blocks do.

    `kv` is the KV capacity over that of the machine: as it is, larger by the largest share that sharing can
    save on average in the first schedule, and ten times as large.
    """
    for profile, rate in ((OPT_30B, "10"), (OPT_30B, "15")):
        plain, share = hybrid("sharegpt", profile, rate, 1), Fraction(0)
        for label in ("1", "shared", "10"):
            factor = 1 + share if label == "shared" else Fraction(label)
            size = plain.system.block_size
            capacity = int(plain.system.kv_capacity * factor) // size * size
            instance = replace(plain, system=replace(plain.system, kv_capacity=capacity))
            found = measure(instance, "bros")
            looks = [look for look in shared_blocks(instance, found.schedule, EVERY) if look.blocks]
            held, rule, most = (Fraction(sum(look[k] for look in looks), len(looks)) for k in range(3))
            share = most / held if label == "1" else share
            yield {
                "profile": profile, "rate": rate, "kv": label, "factor": f"{float(factor):.4f}",
                "evictions": str(replay(instance, found.schedule).evictions),
                **_figures(instance, found),
                "held": f"{float(held):.1f}", "by_rule": f"{float(rule):.2f}", "most": f"{float(most):.2f}",
            }  # fmt: skip


def snapshot_rows() -> Iterator[Row]:
    """Kind `iteration`: time of solving one snapshot exactly, and of the rule of the paper."""
    for rt, be in SNAPSHOTS:
        for seed in range(SEEDS):
            snapshot = generate_snapshot(rt, be, seed=seed)
            began = time.process_time()
            result = solve(snapshot, time_limit=30)
            seconds = time.process_time() - began
            if result.schedule is None or not verify(snapshot, result.schedule).ok:
                raise MeasureError(f"{snapshot.name}: no valid selection")
            yield {
                "rt": str(rt), "be": str(be), "seed": str(seed),
                "seconds": f"{seconds:.3f}",
                "gap_percent": f"{100 * float(result.gap or 0):.4f}",
            }  # fmt: skip


STUDIES: dict[str, Callable[[], Iterator[Row]]] = {
    "hybrid": hybrid_rows,
    "larger": larger_rows,
    "queue": queue_rows,
    "real_time": real_time_rows,
    "sharing": sharing_rows,
    "snapshots": snapshot_rows,
    "frontier": frontier_rows,
}
"""Rows of each study."""
