"""Results as text for people and as JSON values for machines.

An unknown number is a dash, never 0 and never infinite; every time and number of workers says its unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.band import Band
from infermax_opt.core.exact import Rounding, decimal_text, lower_rounding
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import Answer, AnyResult, LowerBound, Proof, Scope, SolverReport, Status
from infermax_opt.core.result_items import verification_items
from infermax_opt.core.values import (
    SHARE,
    SHARE_REACHED,
    AnyInstance,
    AnyMetrics,
    MetricRow,
    amount,
    one_each,
)
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import UNKNOWN, aligned, counted, percent, printable, seconds

if TYPE_CHECKING:
    from infermax_opt.core.truth import Unchecked
    from infermax_opt.core.verification import AnyVerification

__all__ = [
    "bound_items",
    "bounds_text",
    "bounds_to_json",
    "metric_text",
    "metrics_text",
    "result_text",
    "unchecked_lines",
    "value_text",
    "verification_text",
    "verification_to_json",
    "wrong_lines",
]

#: Violations and faults printed before the rest is only counted.
MOST_LINES = 20

#: Engines of a report that a memory limit is not for.
NOT_LIMITED = (None, "planner", "anneal")

PROOFS = {
    Proof.CLOSED_FORM: "closed-form: a formula, recomputed by `infermax-opt verify`",
    Proof.CERTIFICATE: "certificate: a file that anyone can check",
    Proof.SOLVER: "solver: as good as the solver's own word",
}
SCOPES = {
    Scope.EXACT: "exact: schedule and bound both count",
    Scope.RELAXATION: "relaxation: only its bound counts",
    Scope.RESTRICTION: "restriction: only its schedule counts",
}
STATUSES = {
    Status.OPTIMAL: "optimal: the schedule meets the lower bound",
    Status.FEASIBLE: "feasible: a schedule, not proved optimal",
    Status.BOUND_ONLY: "bound-only: a lower bound, no schedule",
    Status.INFEASIBLE: "infeasible: proved that there is no schedule",
    Status.UNKNOWN: "unknown: neither a schedule nor a bound",
}
ANSWERS = {
    Answer.YES: "yes: the schedule shows it",
    Answer.NO: "no: the lower bound is above it",
    Answer.OPEN: "open: the value lies between lower bound and schedule",
}
#: Details of a solve that are sections of their own, with their titles.
SECTIONS = {"excluded": "why fewer are not enough", "unplaceable": "why there is none"}
#: Those that are not repeated below "how it was computed"; the reason of the bound stands beside it.
ELSEWHERE = frozenset({"binding", *SECTIONS})


# --- single values ------------------------------------------------------------------------------


def value_text(instance: AnyInstance, value: Fraction | None, rounding: Rounding = "nearest") -> str:
    """A value of the objective with its unit, or a dash.

    Parameters
    ----------
    instance, value, rounding
        As of `amount`.
    """
    return UNKNOWN if value is None else amount(instance, value, rounding)


def metric_text(value: Fraction | int | None, unit: str | None, rounding: Rounding = "nearest") -> str:
    """A metric with its unit, if it has one; a dash where it is not known.

    Parameters
    ----------
    value : Fraction or int, optional
    unit : str, optional
    rounding : {"nearest", "floor", "ceiling"}
        Of a lower bound as `lower_rounding` says.
    """
    if value is None:
        return UNKNOWN
    if unit == "s":
        return seconds(Fraction(value), rounding)
    if unit in (SHARE, SHARE_REACHED):
        least: Rounding = "floor" if unit == SHARE_REACHED and rounding == "nearest" else rounding
        return percent(Fraction(value), least)
    return counted(value, unit, rounding)


# --- text ---------------------------------------------------------------------------------------


def metrics_text(
    metrics: AnyMetrics,
    rows: Sequence[MetricRow] | None = None,
    title: str = "metrics of the replayed schedule",
) -> str:
    """Metrics with their definitions, row by row; those of several values stand below, for they are wide.

    Parameters
    ----------
    metrics : metrics of any problem
    rows : sequence of MetricRow, optional
        None for one row each.
    title : str
    """
    values, units = dict(metrics.items()), metrics.units
    rows = one_each(metrics) if rows is None else rows

    def lines(some: Sequence[MetricRow]) -> list[str]:
        shown = (" / ".join(metric_text(values[name], units.get(name)) for name in row.names) for row in some)
        return aligned((row.title, text, row.meaning) for row, text in zip(some, shown, strict=True))

    single = [row for row in rows if len(row.names) == 1]
    several = [row for row in rows if len(row.names) > 1]
    return "\n".join([title, *lines(single), *lines(several)])


def _replayed_text(instance: AnyInstance, metrics: AnyMetrics) -> str:
    """Metrics of a schedule; of several machines those of the slowest."""
    rows = problem_of(instance).metric_rows(metrics)
    if problem_of(instance).scoring.machines(instance) is None:
        return metrics_text(metrics, rows)
    return metrics_text(metrics, rows, "metrics of the schedule, replayed on the slowest machine")


def result_text(instance: AnyInstance, result: AnyResult) -> str:
    """A result: both bounds, the gap, how each was obtained, the metrics."""
    upper, lower = result.upper, result.lower
    machines = _machines(instance, result)
    made = "worst case" if machines else "schedule"
    rows = [
        ("objective", problem_of(instance).objective_meaning(instance)),
        *([("machines", machines)] if machines else []),
        *_status_rows(result),
        (made, f"{amount(instance, upper.value)}  found by {upper.source}" if upper else UNKNOWN),
        ("lower bound", _lower_text(instance, result)),
        ("gap", f"{percent(result.gap, 'ceiling')}  ({made} - lower bound) / {made}"),
    ]
    if lower:
        said = [("because", lower.reason), ("proved by", PROOFS[lower.proof])]
        rows += [(name, text) for name, text in (*said, ("certificate", lower.certificate)) if text]
    if result.target is not None and result.answer is not None:
        # Rounded as the bound is that refutes it, which stands below.
        rounding = lower_rounding() if result.answer is Answer.NO else "nearest"
        asked = amount(instance, result.target, rounding)
        rows.insert(1, ("question", f"is there a schedule with at most {asked}?"))
        answer = ANSWERS[result.answer]
        if lower and result.answer is Answer.NO and asked == amount(instance, lower.value, rounding):
            answer = f"{answer}, by {float(lower.value - result.target):.2g}"
        rows.insert(2, ("answer", answer))
    return "\n".join([printable(result.instance), *aligned(rows), *_found_lines(instance, result)])


def _lower_text(instance: AnyInstance, result: AnyResult) -> str:
    """The lower bound, and what found it."""
    lower = result.lower
    if lower is None:
        return UNKNOWN
    return f"{amount(instance, lower.value, lower_rounding(result.gap))}  from {lower.source}"


def _found_lines(instance: AnyInstance, result: AnyResult) -> list[str]:
    """Metrics of the schedule, and how it was computed."""
    lines: list[str] = []
    if result.metrics:
        remarks = problem_of(instance).remarks(instance, result.metrics)
        lines += [f"  {remark}" for remark in remarks]
        lines += ["", _replayed_text(instance, result.metrics)]
    if result.solver:
        for name, title in SECTIONS.items():
            if name in result.solver.details:
                lines += ["", title, *_section(result.solver.details[name])]
        lines += ["", "how it was computed", *_solver_lines(result.solver)]
    return lines


def _machines(instance: AnyInstance, result: AnyResult) -> str | None:
    """The machines that a result holds for, in words; None for one."""
    known = problem_of(instance).scoring.machines(instance)
    return known if known is None or result.band is None else Band.parsed(result.band).words


def _status_rows(result: AnyResult) -> list[tuple[str, str]]:
    """What is established, and what is left open."""
    left = [] if result.undecided is None else [("undecided", result.undecided)]
    return [("status", STATUSES[result.status]), *left]


def _section(found: Mapping[str, str] | Sequence[str]) -> list[str]:
    """Texts by name, or texts, of which only the first are shown."""
    if isinstance(found, Mapping):
        return aligned(found.items())
    return [f"  {printable(text)}" for text in _first(found)]


def _first(found: Sequence[object]) -> list[object]:
    """The first of many, and how many more there are."""
    more = [f"... and {len(found) - MOST_LINES} more"] if len(found) > MOST_LINES else []
    return [*found[:MOST_LINES], *more]


def _solver_lines(report: SolverReport) -> list[str]:
    accepted = {True: ", accepted", False: ", NOT accepted", None: ""}[report.warm_start_accepted]
    warm = f"{report.warm_start}{accepted}" if report.warm_start else None
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    rows = [
        ("engine", report.engine),
        ("why this one", report.reason),
        ("formulation", report.formulation),
        ("scope", SCOPES[report.scope] if report.scope else None),
        ("ended by", _ended(report)),
        ("time", None if report.seconds is None else seconds(report.seconds)),
        ("time limit", None if report.time_limit is None else seconds(report.time_limit)),
        ("memory limit", _memory(report)),
        ("warm start", warm),
        ("threads", report.threads),
        ("seed", report.seed),
        ("versions", versions or None),
        *((name, _detail(value)) for name, value in report.details.items() if name not in ELSEWHERE),
    ]
    return aligned((name, str(value)) for name, value in rows if value is not None)


def _ended(report: SolverReport) -> str | None:
    """Why the engine stopped; of the memory limit in words, as nothing else of the report tells."""
    if report.termination != "memory_limit":
        return report.termination
    limit = report.memory_limit
    reason = "there was no more memory" if limit is None else f"the limit of {_mebibytes(limit)} stopped it"
    return f"memory_limit: {reason}"


def _memory(report: SolverReport) -> str | None:
    """The memory limit, and what it is not for where no exact engine ran."""
    if report.memory_limit is None:
        return None
    beside = report.engine in NOT_LIMITED
    return _mebibytes(report.memory_limit) + (
        ", of exact engines alone: planners and bounds have none" if beside else ""
    )


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.6g} MiB"


def _detail(value: object) -> str:
    """A count, or a nest of them, in words."""
    if value is None:
        return UNKNOWN
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_detail(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(map(_detail, value)) or UNKNOWN
    return f"{float(value):.6g}" if isinstance(value, float | Fraction) else str(value)


def bounds_text(instance: AnyInstance, bounds: Sequence[LowerBound]) -> str:
    """All lower bounds, best first."""
    meaning = problem_of(instance).objective_meaning(instance)
    lines = [printable(instance.name), *aligned([("objective", meaning)])]
    machines = problem_of(instance).scoring.machines(instance)
    lines += [f"lower bounds, best first: no schedule does better{f' on {machines}' if machines else ''}"]
    if not bounds:
        return "\n".join([*lines, "  none is known for this objective with these requests and limits"])
    lines += aligned(
        (amount(instance, b.value, lower_rounding()), b.source, b.proof.value, b.reason or "") for b in bounds
    )
    lines += ["how they were proved"]
    lines += [f"  {PROOFS[proof]}" for proof in Proof if any(b.proof is proof for b in bounds)]
    return "\n".join(lines)


def verification_text(instance: AnyInstance, check: AnyVerification) -> str:
    """What the verifier found."""
    verdict = "verified: nothing is wrong" if check.ok else "NOT verified"
    if check.ok and check.unchecked:
        verdict = "nothing is wrong in what could be checked"
    lines = [f"{printable(instance.name)}: {verdict}"]
    lines += wrong_lines(check.violations, check.faults)
    lines += unchecked_lines(check.unchecked)
    machines = problem_of(instance).scoring.machines(instance)
    rows = [
        ("objective", problem_of(instance).objective_meaning(instance)),
        *([("machines", machines)] if machines else []),
        ("worst case" if machines else "replayed", value_text(instance, check.objective)),
        ("lower bound", _trust(instance, check)),
    ]
    if check.notes:
        rows.append(("notes", f"{', '.join(check.notes)}: how it was found; no claims, and not checked"))
    lines += aligned(rows)
    if check.metrics:
        lines += ["", _replayed_text(instance, check.metrics)]
    return "\n".join(lines)


def wrong_lines(violations: Sequence[object], faults: Sequence[object]) -> list[str]:
    """Rules that a schedule breaks and claims that are wrong, the first of each."""
    lines = []
    for title, found in (("rules broken", violations), ("wrong claims", faults)):
        if found:
            lines.append(f"{title}: {len(found)}")
            lines += [f"  {printable(item)}" for item in _first(found)]
    return lines


def unchecked_lines(found: Sequence[Unchecked]) -> list[str]:
    """Claims that could not be checked, one a line."""
    return [f"not checked: {len(found)}", *(f"  {printable(some)}" for some in found)] if found else []


def _trust(instance: AnyInstance, check: AnyVerification) -> str:
    if check.lower_bound is None:
        return f"{UNKNOWN}  (none claimed)"
    words = check.bound_words or "it does not say what proves it"
    rounding = lower_rounding(None if check.objective is None else check.objective - check.lower_bound)
    return f"{amount(instance, check.lower_bound, rounding)}  {words}"


# --- JSON values --------------------------------------------------------------------------------


def verification_to_json(instance: AnyInstance, check: AnyVerification) -> dict[str, Any]:
    """The verifier's findings."""
    return {
        "schema": SCHEMAS["verify"],
        "instance": instance.name,
        "objective": problem_of(instance).objective_to_json(instance),
        **verification_items(check),
    }


def bounds_to_json(instance: AnyInstance, bounds: Sequence[LowerBound]) -> Mapping[str, Any]:
    """All lower bounds, best first, rounded down where a decimal does not end."""
    return {
        "schema": SCHEMAS["bound"],
        "instance": instance.name,
        "instance_sha256": instance.sha256,
        "objective": problem_of(instance).objective_to_json(instance),
        "lower_bounds": bound_items(bounds),
    }


def bound_items(bounds: Sequence[LowerBound]) -> list[dict[str, Any]]:
    """Lower bounds as JSON values, rounded down where a decimal does not end."""
    return [
        {
            "value": Fraction(decimal_text(b.value, rounding="floor")),
            "source": b.source,
            "proof": b.proof.value,
            "certificate": b.certificate,
            **({} if b.reason is None else {"reason": b.reason}),
        }
        for b in bounds
    ]
