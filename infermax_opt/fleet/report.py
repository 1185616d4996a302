"""A plan as JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.fleet.autoscaling import Autoscaled
from infermax_opt.fleet.figures import least, number
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.mix import Mix
from infermax_opt.fleet.plan_row import HOUR, PlanOptions, PlanRow, Split
from infermax_opt.fleet.split import SplitPlan
from infermax_opt.fleet.sustains import Sustained
from infermax_opt.fleet.sweep import Plan
from infermax_opt.infermax.schedulers.presets import preset

__all__ = ["Proofs", "known_ahead", "mix_to_json", "plan_csv", "plan_to_json"]

COLUMNS = (
    "machine", "rate", "cost_factor", "overhead", "predict_error", "requests", "left_out", "share",
    "may_miss", "lower", "upper", "online",
    "status", "gap", "relaxed", "policy", "scheduler", "missed", "refused", "unfit", "never_in_time",
    "price_per_hour", "cost_per_million_lower", "cost_per_million_upper", "machine_hours_lower",
    "machine_hours_upper", "peak_on", "hours_policy", "windows_lower", "windows_upper", "windows_hours_lower",
    "windows_hours_upper", "split_prefill_lower", "split_prefill_upper", "split_decode_lower",
    "split_decode_upper", "split_lower", "split_upper", "split_never", "split_ratio", "split_work_ratio",
    "split_cost_per_million_lower", "split_cost_per_million_upper", "split_left_out", "seconds",
    "certified", "certified_lower", "split_certified", "question_sha256", "split_question_sha256",
)  # fmt: skip

#: What routing policies know that nobody knows online.
KNOWN_AHEAD = {"least_work": "least_work knows outputs, or what is predicted of them"}


class Proofs(NamedTuple):
    """Files with the proofs of a row: of one pool, of machines that prefill, and of machines that decode."""

    certificate: str | None = None
    prefill_certificate: str | None = None
    decode_certificate: str | None = None


def _values(row: PlanRow) -> dict[str, Any]:
    """A row by column; None is unknown."""
    found, question, lower, upper, hours = row.found, row.question, row.lower, row.upper, row.scaled
    return {
        "machine": row.machine.name,
        "rate": number(row.rate),
        "cost_factor": number(row.machine.variant.factor),
        "overhead": number(row.machine.variant.overhead),
        "predict_error": number(row.error),
        "requests": question.size,
        "left_out": len(row.left_out),
        "share": float(question.share),
        "may_miss": question.may_miss,
        "lower": lower,
        "upper": upper,
        "online": row.online and row.online.machines,
        "status": row.status,
        "gap": None if lower is None or not upper else number(Fraction(upper - lower, upper), "ceiling"),
        "relaxed": number(row.bound.relaxed, "floor"),
        "policy": found and found.policy,
        "scheduler": found and found.scheduler,
        "missed": found and question.size - len(found.replay.good),
        "refused": found and found.refused,
        "unfit": len(question.unfit),
        "price_per_hour": number(row.machine.price),
        "cost_per_million_lower": least(row.cost_per_million(lower), row.cost_per_million(upper)),
        "cost_per_million_upper": number(row.cost_per_million(upper)),
        "never_in_time": len(row.bound.lost),
        "machine_hours_lower": hours and least(hours.lower / HOUR, hours.upper / HOUR),
        "machine_hours_upper": hours and number(hours.upper / HOUR),
        "peak_on": hours and hours.peak,
        "hours_policy": hours and hours.policy,
        **_window_values(row.windows),
        **_split_values(row),
        "seconds": round(row.seconds, 1),
        "certified": row.certified,
        "certified_lower": row.bound.machines if row.bound.certified else None,
        "question_sha256": question.sha256,
    }


def _window_values(found: Autoscaled | None) -> dict[str, Any]:
    """Machines in the mean of all windows, and machine-hours."""
    means: list[Fraction | None] = [None, None]
    if found is not None:
        for k, name in enumerate(("lower", "upper")):
            counts = [getattr(window, name) for window in found.windows]
            means[k] = None if None in counts else Fraction(sum(counts), len(counts))
    hours = (None, None) if found is None else (found.lower, found.upper)
    low, high = (None if time is None else time / HOUR for time in hours)
    return {
        "windows_lower": least(*means),
        "windows_upper": number(means[1]),
        "windows_hours_lower": least(low, high),
        "windows_hours_upper": number(high),
    }


def _split_values(row: PlanRow) -> dict[str, Any]:
    """Machines that prefill and that decode; the ratio is that of decode to prefill machines."""
    split = row.split
    if split is None:
        return dict.fromkeys(name for name in COLUMNS if name.startswith("split_"))
    found, prices = split.found, _split_prices(row, split)
    low, busy = (split.prefill.machines, split.decode.machines), (split.prefill.relaxed, split.decode.relaxed)
    return {
        "split_prefill_lower": low[0],
        "split_prefill_upper": found and found.prefill,
        "split_decode_lower": low[1],
        "split_decode_upper": found and found.decode,
        "split_lower": split.lower,
        "split_upper": split.upper,
        "split_never": split.lower is None,
        "split_left_out": split.left_out,
        "split_certified": split.certified,
        "split_question_sha256": split.prefill.certificate["question"],
        "split_ratio": found and number(Fraction(found.decode, found.prefill)),
        "split_work_ratio": number(busy[1] / busy[0]) if busy[0] else None,
        "split_cost_per_million_lower": prices["lower"],
        "split_cost_per_million_upper": prices["upper"],
    }


def _split_prices(row: PlanRow, split: SplitPlan) -> dict[str, Any]:
    """Of a million output tokens."""
    found = split.found
    low = row.per_million(split.price(split.prefill.machines, split.decode.machines))
    high = None if found is None else row.per_million(split.price(found.prefill, found.decode))
    return {"lower": least(low, high), "upper": number(high)}


def _tried_apart(split: SplitPlan | None) -> list[dict[str, Any]]:
    """Pools that reach the share, with how."""
    return [
        {
            "prefill": one.prefill,
            "decode": one.decode,
            "policy": one.policy,
            "scheduler": one.scheduler,
            "decode_waits": one.careful,
        }
        for one in (() if split is None else split.tried)
    ]


def _windows(found: Autoscaled | None) -> list[dict[str, Any]]:
    """Machines of each window."""
    return [
        {
            "begin": number(window.begin),
            "end": number(window.end),
            "requests": len(window.members) + window.unfit,
            "unfit": window.unfit,
            "lower": window.lower,
            "upper": window.upper,
        }
        for window in (() if found is None else found.windows)
    ]


def plan_to_json(
    plan: Plan,
    options: PlanOptions,
    trace: str = "",
    certificates: Mapping[int, Proofs] | None = None,
    dropped: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A plan as JSON.

    Parameters
    ----------
    plan : Plan
    options : PlanOptions
    trace : str
        Its name.
    certificates : mapping of int to Proofs, optional
        Files by the places of the rows whose proofs they are.
    dropped : mapping of str to int, optional
        Requests of the trace that are in no row, by reason.
    """
    certificates, rows = certificates or {}, plan.rows
    return {
        "schema": SCHEMAS["plan"],
        "trace": trace,
        "trace_left_out": dict(dropped or {}),
        "slo": {name: float(limit) for name, limit in options.slo.given().items()},
        "share": float(options.share),
        "ttft_from": "arrival",
        "predict_errors": [float(error) for error in options.errors],
        "seed": options.seed if options.errors else None,
        "variants": [
            {"cost_factor": number(one.factor), "overhead": number(one.overhead)} for one in options.variants
        ],
        "split": options.split and _asked_apart(options.split),
        "machines": [_machine(kind) for kind in _types(rows, options).values()],
        "rows": [_row(row, certificates.get(k, Proofs())) for k, row in enumerate(rows)],
        "mixes": [mix_to_json(rate, mix, rows) for rate, mix in plan.mixes],
        "sustained": [_sustained(name, one) for name, one in plan.sustained],
        "online_knows": known_ahead(plan),
        "stopped": plan.stopped,
    }


def _row(row: PlanRow, proofs: Proofs) -> dict[str, Any]:
    hours, windows = row.scaled, row.windows
    return {
        **_values(row),
        "output_tokens": row.output_tokens,
        **proofs._asdict(),
        "policies": dict(row.policies),
        "attained": _attained(row),
        "hours_question_sha256": _question(None if hours is None else hours.certificate),
        "windows": _windows(windows),
        "windows_question_sha256": _question(None if windows is None else windows.certificate),
        "split_tried": _tried_apart(row.split),
        "impossible": row.impossible,
    }


def _types(rows: Sequence[PlanRow], options: PlanOptions) -> dict[str, MachineType]:
    """The types of machines of all rows, those that decode last, by name."""
    found = {row.machine.name: row.machine for row in rows}
    decode = None if options.split is None else options.split.decode
    return found if decode is None else {**found, decode.name: found.get(decode.name, decode)}


def _asked_apart(split: Split) -> dict[str, Any]:
    """What pools are asked for."""
    return {
        "transfer_seconds_per_token": number(split.transfer),
        "decode_machine": None if split.decode is None else split.decode.name,
    }


def _sustained(name: str, one: Sustained) -> dict[str, Any]:
    """Rates that a number of machines sustains."""
    return {
        "machine": name,
        "machines": one.machines,
        "lower": number(one.lower),
        "upper": number(one.upper),
        "policy": one.found and one.found.policy,
        "scheduler": one.found and one.found.scheduler,
        "question_sha256": _question(one.certificate),
    }


def _question(certificate: Mapping[str, Any] | None) -> str | None:
    """The hash of what a certificate is about, if there is one."""
    return None if certificate is None else certificate["question"]


def mix_to_json(rate: Fraction, mix: Mix, rows: Sequence[PlanRow]) -> dict[str, Any]:
    """A mix, with prices of an hour.

    Parameters
    ----------
    rate : Fraction
    mix : Mix
    rows : sequence of PlanRow
        All of the plan, for the names of the types.
    """
    names = dict.fromkeys(row.machine.name for row in rows)
    lower, upper = mix.lower, mix.price
    return {
        "rate": number(rate),
        "price_per_hour_lower": least(lower, upper),
        "certified": mix.certified,
        "question_sha256": _question(mix.bound.certificate),
        "price_per_hour_upper": number(upper),
        "gap": None if lower is None or not upper else number((upper - lower) / upper, "ceiling"),
        "machines": {name: n for name, n in zip(names, mix.machines or (0,) * len(names), strict=True) if n},
    }


def _machine(kind: MachineType) -> dict[str, Any]:
    """A type of machine."""
    system = kind.system
    return {
        "machine": kind.name,
        "kv_capacity": system.kv_capacity,
        "max_batch_tokens": system.max_batch_tokens,
        "max_prefill_tokens": system.prefill_budget,
        "max_running": system.max_running,
        "price_per_hour": number(kind.price),
    }


def _attained(row: PlanRow) -> list[dict[str, Any]]:
    """Shares of the requests in time, by number of machines."""
    if row.found is None:
        return []
    total = row.question.size
    known = sorted(row.found.attained.items())
    return [{"machines": machines, "share": number(Fraction(good, total))} for machines, good in known]


def plan_csv(rows: Sequence[PlanRow]) -> str:
    """A plan as CSV, a line for each machine and rate."""
    return rows_text(COLUMNS, [[_values(row)[name] for name in COLUMNS] for row in rows])


def known_ahead(plan: Plan) -> list[str]:
    """What the numbers of online schedulers rest on that nobody knows online; nothing if on nothing."""
    found = [row.online for row in plan.rows if row.online is not None]
    said = {KNOWN_AHEAD[one.policy] for one in found if one.policy in KNOWN_AHEAD}
    said |= {f"{one.scheduler} knows outputs" for one in found if preset(one.scheduler).knows_outputs}
    if any(one.again for one in found):
        said.add("whom to refuse is known from a first run")
    return sorted(said)
