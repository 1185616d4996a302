"""A plan in words, for a terminal."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.exact import decimal_text
from infermax_opt.files.text import UNKNOWN, aligned, counted
from infermax_opt.fleet.autoscaling import Autoscaled
from infermax_opt.fleet.figures import bounds, cell, share, short
from infermax_opt.fleet.machine_types import AS_GIVEN
from infermax_opt.fleet.mix import Mix
from infermax_opt.fleet.plan_row import HOUR, PlanOptions, PlanRow
from infermax_opt.fleet.report import known_ahead, mix_to_json
from infermax_opt.fleet.split import SplitPlan
from infermax_opt.fleet.sustains import Sustained
from infermax_opt.fleet.sweep import Plan

__all__ = ["plan_text"]

#: What is said of a proof that no checker would read to its end.
NOT_CERTIFIED = "its certificate takes longer than a checker works: not certified"
#: The same of one that was proved by searching all routings and schedules.
BY_SEARCH = "lower by a search of all routings and schedules"


def plan_text(plan: Plan, options: PlanOptions) -> str:
    """A plan in words."""
    limits = ", ".join(f"{name} {decimal_text(limit)} s" for name, limit in options.slo.given().items())
    lines = [
        f"fewest machines so that {share(options.share)} of the requests keep {limits}; TTFT from arrival"
    ]
    lines += aligned(_table(plan))
    for row in plan.rows:
        lines += _remarks(row)
    for name, one in plan.sustained:
        lines.append(f"{one.machines} x {name}: {_rates(one)}")
    lines += [_cheapest(rate, mix, plan) for rate, mix in plan.mixes]
    if plan.stopped is not None:
        lines.append(f"stopped by {plan.stopped}; what is above is what was known")
    lines.append("; ".join(_meanings(plan)))
    return "\n".join(lines)


def _meanings(plan: Plan) -> list[str]:
    """What the numbers mean."""
    windows = [window for row in plan.rows if row.windows is not None for window in row.windows.windows]
    never = None in [*(row.lower for row in plan.rows), *(window.lower for window in windows)]
    none = f" ({UNKNOWN}: no number is enough)" if never else ""
    certified = all(row.certified or not row.bound.certified for row in plan.rows)
    proved = "proved by a certificate" if certified else "proved by a certificate or, as said, by search"
    return [
        f"lower: every routing and schedule needs that many{none}, {proved}",
        "upper: replayed",
        "online: of these without the plan that knows the future",
        *known_ahead(plan),
    ]


def _cheapest(rate: Fraction, mix: Mix, plan: Plan) -> str:
    """The cheapest mix at a rate, in words."""
    told = mix_to_json(rate, mix, plan.rows)
    parts = " + ".join(f"{n} x {name}" for name, n in told["machines"].items()) or UNKNOWN
    text = f"cheapest mix at rate {float(rate):g}: {parts}; {bounds(mix.lower, mix.price)} an hour"
    return text if mix.certified else f"{text}; {BY_SEARCH}, its certificate proves {short(mix.bound.price)}"


def _table(plan: Plan) -> list[tuple[str, ...]]:
    """The bounds of each row, below their names."""
    errors = any(row.error is not None for row in plan.rows)
    varied = any(row.machine.variant != AS_GIVEN for row in plan.rows)
    more = [*(["batches"] if varied else []), *(["error"] if errors else [])]
    head = ("machine", "rate", *more, "lower", "upper", "online", "status", "found by")
    table: list[tuple[str, ...]] = [head]
    for row in plan.rows:
        by = row.found_by or UNKNOWN
        given = [row.machine.variant.words or "as given"] if varied else []
        given += [] if row.error is None else [f"{float(row.error):g}"]
        online = None if row.online is None else row.online.machines
        counts = cell(row.lower), cell(row.upper), cell(online)
        table.append((row.machine.name, f"{float(row.rate):g}", *given, *counts, row.status, by))
    return table


def _left_out(name: str, count: int) -> list[str]:
    """What a row is not about."""
    if not count:
        return []
    they = "it does" if count == 1 else "they do"
    return [f"{name}: without {counted(count, 'requests')} of the trace, as {they} not fit"]


def _remarks(row: PlanRow) -> list[str]:
    """What else is known of a row."""
    kind = f"{row.machine.name} {row.machine.variant.words}".strip()
    lines, name = list[str](), f"{kind} at rate {float(row.rate):g}"
    if row.error is not None:
        name += f", error {float(row.error):g}"
    if row.policies:
        each = ", ".join(f"{policy} {cell(count)}" for policy, count in row.policies.items())
        lines.append(f"{name}, each policy alone: {each}; bound {cell(row.lower)}")
    if row.impossible:
        unfit, never, may = len(row.question.unfit), len(row.bound.lost), row.question.may_miss
        said = (
            f"{name}, requests that count as missed: {unfit} too large, {never} never in time; {may} may miss"
        )
        lines.append(said)
        lines += [f"  {reason}" for reason in row.impossible]
    lines += _left_out(name, len(row.left_out))
    if not row.bound.certified:
        lines.append(f"{name}: {NOT_CERTIFIED}")
    elif not row.certified:
        lines.append(f"{name}: {BY_SEARCH}, its certificate proves {cell(row.bound.machines)}")
    if row.scaled is not None:
        hours = row.scaled
        how = f"by {hours.policy}, {hours.peak} at once; {short(hours.always / HOUR)} if always on"
        on = bounds(hours.lower, hours.upper, HOUR)
        lines.append(f"{name}, switched on and off: {on} machine-hours ({how})")
    if row.windows is not None:
        lines += _by_window(name, row.windows)
    if row.split is not None:
        lines.append(f"{name}, prefill and decode apart: {_apart(row.split)}")
    if row.machine.price is not None:
        costs = row.cost_per_million(row.lower), row.cost_per_million(row.upper)
        if costs != (None, None):  # as where all arrive at once
            lines.append(f"{name}: {bounds(*costs)} for a million output tokens")
    return lines


def _by_window(name: str, found: Autoscaled) -> list[str]:
    """Machines by window, in words."""
    counts = " ".join(f"{cell(w.lower)}/{cell(w.upper)}" for w in found.windows)
    length = float(found.windows[0].end)
    by = "" if found.policy is None else f", found by {found.policy} with {found.scheduler}"
    hours = f"{bounds(found.lower, found.upper, HOUR)} machine-hours{by}"
    if found.lower is None:
        hours = "in some no number of machines does"
    elif found.upper is None:
        hours += "; nothing was found that keeps it in all of them"
    return [
        f"{name}, windows of {length:g} s, each keeps the share: {hours}",
        f"  machines by window, lower/upper: {counts}",
    ]


def _apart(split: SplitPlan) -> str:
    """Machines of both pools, in words."""
    if split.lower is None:
        return "no number of machines is enough"
    proved = f"at least {split.prefill.machines} + {split.decode.machines}"
    if not split.certified:
        proved = f"{proved} ({NOT_CERTIFIED})"
    if split.found is None:
        return f"{proved}; how many are enough was not found"
    return f"{split.found.prefill} + {split.found.decode} are enough, {proved}"


def _rates(one: Sustained) -> str:
    """Rates that a number of machines sustains, in words."""
    if one.upper == 0:
        return "the share is reached at no rate: more requests than may miss never keep their limits"
    reached = "no rate was found at which the share is reached"
    if one.lower is not None:
        reached = f"the share is reached at rate {float(one.lower):g}"
    if one.upper is None:
        return f"{reached}; no rate is refuted"
    return f"{reached}, and it never is from rate {float(one.upper):g} on"
