"""A plan as text, JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import UNKNOWN, aligned, percent
from infermax_opt.fleet.plan import HOUR, PlanOptions, PlanRow, Sustained

__all__ = ["plan_csv", "plan_text", "plan_to_json"]

COLUMNS = (
    "machine", "rate", "requests", "left_out", "share", "may_miss", "lower", "upper", "status", "gap",
    "relaxed", "policy", "scheduler", "missed", "refused", "price_per_hour", "cost_per_million_lower",
    "cost_per_million_upper", "never_in_time", "machine_hours_lower",
    "machine_hours_upper", "peak_on", "hours_policy", "seconds", "question_sha256",
)  # fmt: skip
#: Impossible requests that a text names.
NAMED = 3


def _number(value: Fraction | float | None) -> float | None:
    return None if value is None else float(f"{float(value):.6g}")


def _values(row: PlanRow) -> dict[str, Any]:
    """A row by column; None is unknown."""
    found, question, lower, upper, hours = row.found, row.question, row.lower, row.upper, row.scaled
    return {
        "machine": row.machine.name,
        "rate": _number(row.rate),
        "requests": len(question.workload.requests),
        "left_out": row.left_out,
        "share": _number(Fraction(question.share)),
        "may_miss": question.may_miss,
        "lower": lower,
        "upper": upper,
        "status": row.status,
        "gap": None if lower is None or not upper else _number(Fraction(upper - lower, upper)),
        "relaxed": _number(row.bound.relaxed),
        "policy": found and found.policy,
        "scheduler": found and found.scheduler,
        "missed": found and len(question.workload.requests) - len(found.replay.good),
        "refused": found and found.refused,
        "price_per_hour": _number(row.machine.price),
        "cost_per_million_lower": _number(row.cost_per_million(lower)),
        "cost_per_million_upper": _number(row.cost_per_million(upper)),
        "never_in_time": len(row.bound.lost),
        "machine_hours_lower": hours and _number(hours.lower / HOUR),
        "machine_hours_upper": hours and _number(hours.upper / HOUR),
        "peak_on": hours and hours.peak,
        "hours_policy": hours and hours.policy,
        "seconds": round(row.seconds, 1),
        "question_sha256": question.sha256,
    }


def plan_to_json(
    rows: Sequence[PlanRow], options: PlanOptions, fleets: Sequence[Sustained]
) -> dict[str, Any]:
    """A plan as JSON.

    Parameters
    ----------
    rows : sequence of PlanRow
    options : PlanOptions
    fleets : sequence of Sustained
    """
    return {
        "schema": SCHEMAS["plan"],
        "slo": {name: float(limit) for name, limit in options.slo.given().items()},
        "share": float(options.share),
        "ttft_from": "arrival",
        "rows": [
            {**_values(row), "policies": dict(row.policies), "impossible": row.impossible[:NAMED]}
            for row in rows
        ],
        "sustained": [
            {
                "machine": one.machine,
                "machines": one.machines,
                "lower": _number(one.lower),
                "upper": _number(one.upper),
            }
            for one in fleets
        ],
    }


def plan_csv(rows: Sequence[PlanRow]) -> str:
    """A plan as CSV, a line for each machine and rate."""
    return rows_text(COLUMNS, [[_values(row)[name] for name in COLUMNS] for row in rows])


def plan_text(rows: Sequence[PlanRow], options: PlanOptions, fleets: Sequence[Sustained]) -> str:
    """A plan in words.

    Parameters
    ----------
    rows : sequence of PlanRow
    options : PlanOptions
    fleets : sequence of Sustained
    """
    limits = ", ".join(f"{name} {float(limit):g} s" for name, limit in options.slo.given().items())
    lines = [
        f"fewest machines so that {percent(options.share)} of the requests keep {limits}; TTFT from arrival"
    ]
    head = ("machine", "rate", "lower", "upper", "status", "found by")
    table = [head]
    for row in rows:
        by = UNKNOWN if row.found is None else f"{row.found.policy} with {row.found.scheduler}"
        table.append(
            (row.machine.name, f"{float(row.rate):g}", _cell(row.lower), _cell(row.upper), row.status, by)
        )
    lines += aligned(table)
    for row in rows:
        lines += _remarks(row)
    for one in fleets:
        reached = f"sustains rate {_rate(one.lower)} of those tried"
        lines.append(f"{one.machines} x {one.machine}: {reached}; no more than {_rate(one.upper)}")
    lines.append(
        "lower: every routing and schedule needs that many, proved by a certificate; upper: replayed"
    )
    return "\n".join(lines)


def _remarks(row: PlanRow) -> list[str]:
    """What else is known of a row."""
    lines, name = list[str](), f"{row.machine.name} at rate {float(row.rate):g}"
    if row.policies:
        each = ", ".join(f"{policy} {_cell(count)}" for policy, count in row.policies.items())
        lines.append(f"{name}, each policy alone: {each}; bound {_cell(row.lower)}")
    if row.impossible:
        count, may = len(row.impossible), row.question.may_miss
        lines.append(f"{name}: {count} requests are never in time, {may} may miss")
        lines += [f"  {reason}" for reason in row.impossible[:NAMED]]
    if row.scaled is not None:
        hours = row.scaled
        least, most, static = (
            f"{float(some / HOUR):.4g}" for some in (hours.lower, hours.upper, hours.always)
        )
        how = f"by {hours.policy}, {hours.peak} at once; {static} if always on"
        lines.append(f"{name}, switched on and off: {least} to {most} machine-hours ({how})")
    if row.machine.price is not None:
        least, most = (_money(row.cost_per_million(count)) for count in (row.lower, row.upper))
        lines.append(f"{name}: {least} to {most} for a million output tokens")
    return lines


def _cell(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _money(value: Fraction | None) -> str:
    return UNKNOWN if value is None else f"{float(value):.4g}"


def _rate(value: Fraction | None) -> str:
    return UNKNOWN if value is None else f"{float(value):g}"
