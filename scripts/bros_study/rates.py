"""Measure one instance: what schedulers reach, verified, and certified lines that no schedule is below."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from infermax_opt import verify
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.data.instance import Instance, Objective
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.classes import ClassFigures, class_figures
from infermax_opt.infermax.replay.sharing import shared_blocks

__all__ = ["COLUMNS", "SCHEDULERS", "WEIGHTS", "Line", "Row", "blocks", "least", "limits", "lines", "rows"]

SCHEDULERS = ("slack", "bros", "rr", "fcfs")
#: Batches from one look at the blocks to the next.
EVERY = 20
#: Weights of an unserved best-effort request, in missed real-time ones.
WEIGHTS = ("0.1", "0.3", "1", "3")
COLUMNS = (
    "rate", "scheduler", "attainment", "ttft", "tpot", "gaps", "be_per_s", "be_tokens_per_s",
    "rt_normalised_s", "queueing_share", "seconds",
    "bound_attainment", "bound_attainment_at_be", "bound_be_at_attainment",
)  # fmt: skip
Row = dict[str, str]
#: Weight of an unserved request, and what `missed` + that weight * `unserved` is at least.
Line = tuple[Fraction, Fraction]


def lines(instance: Instance, seconds: float) -> list[Line]:
    """The certified lines, each searched for about so long, and until there is one."""
    return [(Fraction(weight), least(instance, weight, seconds)) for weight in ("0", *WEIGHTS)]


def least(instance: Instance, weight: str, seconds: float) -> Fraction:
    """What `missed` + a weight * `unserved` is at least."""
    objective = Objective.of({"missed": 1, "unserved": weight} if Fraction(weight) else "missed")
    asked, until, best = replace(instance, objective=objective), time.monotonic() + seconds, [Fraction(0)]
    for bound in attainment_bounds(asked.relaxed, stop=lambda: best[-1] > 0 and time.monotonic() > until):
        best.append(bound.value)
    return best[-1]


def limits(found: Sequence[Line], missed: Fraction, unserved: Fraction) -> tuple[Fraction, ...]:
    """Least `missed`; the same with so much `unserved` at most; least `unserved` with so much `missed`."""
    alone = max(bound for weight, bound in found if not weight)
    beside = max(bound - weight * unserved for weight, bound in found)
    left = max((bound - missed) / weight for weight, bound in found if weight)
    return alone, max(Fraction(0), beside), max(Fraction(0), left)


def rows(instance: Instance, rate: str, schedulers: Sequence[str], found: Sequence[Line]) -> Iterator[Row]:
    """A row for each scheduler; one that makes no schedule of this instance has none."""
    horizon = Fraction(instance.horizon or 0)
    for name in schedulers:
        began = time.monotonic()
        try:
            schedule = run_scheduler(instance, name)
        except InputError as error:
            print(f"{rate} req/s: {name}: {error}", file=sys.stderr)
            continue
        seconds = time.monotonic() - began
        check = verify(instance, schedule)
        if not check.ok or check.metrics is None:
            raise SystemExit(f"{rate} req/s: {name}: the schedule is wrong: {check.violations[:1]}")
        by_name = {figures.name: figures for figures in class_figures(instance, schedule)}
        rt, be = by_name["rt"], by_name["be"]
        missed, unserved = check.metrics.missed or Fraction(0), check.metrics.unserved or Fraction(0)
        alone, beside, left = limits(found, missed, unserved)
        yield {
            "rate": rate,
            "scheduler": name,
            **_figures(rt, be),
            "seconds": f"{seconds:.1f}",
            "bound_attainment": _percent(1 - alone / rt.requests),
            "bound_attainment_at_be": _percent(1 - beside / rt.requests),
            "bound_be_at_attainment": f"{float((be.requests - left) / horizon):.2f}",
        }


def _figures(rt: ClassFigures, be: ClassFigures) -> Row:
    return {
        "attainment": _percent(rt.attainment),
        "ttft": _percent(rt.ttft_attainment),
        "tpot": _percent(rt.tpot_attainment),
        "gaps": _percent(rt.token_attainment),
        "be_per_s": f"{float(be.requests_per_second or 0):.2f}",
        "be_tokens_per_s": f"{float(be.tokens_per_second or 0):.1f}",
        "rt_normalised_s": f"{float(rt.mean_normalised_latency or 0):.3f}",
        "queueing_share": _percent(rt.queueing_share),
    }


def _percent(share: Fraction | None) -> str:
    return "-" if share is None else f"{100 * float(share):.1f}"


def blocks(instance: Instance, scheduler: str) -> str:
    """What sharing blocks would save of those held, by the rule of BROS and at most."""
    schedule = run_scheduler(instance, scheduler)
    looks = [look for look in shared_blocks(instance, schedule, EVERY) if look.blocks]
    held, rule, most = (sum(look[k] for look in looks) / max(1, len(looks)) for k in range(3))
    share = most / (held or 1)
    return f"of {held:.1f} blocks held, {rule:.1f} shared by the rule, {most:.1f} at most ({share:.2%})"
