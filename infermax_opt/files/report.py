"""Results as text for people and as JSON values for machines.

An unknown number is a dash, never 0 and never infinite; every time and number of workers says its unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from fractions import Fraction
from typing import Any

from infermax_opt.core.exact import decimal_text
from infermax_opt.core.problem import AnyInstance, AnyMetrics, amount, objective_name, problem_of
from infermax_opt.core.result import AnyResult, LowerBound, Proof, Scope, SolverReport, Status
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.profiles import Profile
from infermax_opt.infermax.replay.metrics import DEFINITIONS
from infermax_opt.infermax.verify import AnyVerification

__all__ = [
    "aligned",
    "bound_items",
    "bounds_text",
    "bounds_to_json",
    "metrics_text",
    "percent",
    "printable",
    "profiles_text",
    "result_text",
    "seconds",
    "value_text",
    "verification_text",
    "verification_to_json",
    "wrong_lines",
]

#: The plain hyphen prints in every encoding.
UNKNOWN = "-"
#: Violations and faults printed before the rest is only counted.
MOST_LINES = 20

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
#: Metrics that are times, and those that are shares.
TIMES = ("makespan", "mean_ttft", "mean_tpot", "mean_e2e", "mean_idle", "most_idle")
SHARES = (
    "recompute_tax", "mean_kv_use", "utilisation", "mean_iteration_use", "most_iteration_use",
    "mean_prefill_use", "most_prefill_use", "most_kv_use",
)  # fmt: skip
UNITS = {"tokens_per_second": "tokens/s", "refill_tokens": "tokens", "peak_kv": "tokens"}
#: Details of a solve that are sections of their own, with their titles.
SECTIONS = {"excluded": "why fewer are not enough", "unplaceable": "why there is none"}
#: Those that are not repeated below "how it was computed"; the reason of the bound stands beside it.
ELSEWHERE = frozenset({"binding", *SECTIONS})


# --- single values ------------------------------------------------------------------------------


def printable(text: object) -> str:
    """`text` on one line: control characters and lone surrogates escaped."""
    return "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in str(text))


def seconds(value: Fraction | float | None) -> str:
    """A time with its unit."""
    return UNKNOWN if value is None else f"{float(value):.6g} s"


def value_text(instance: AnyInstance, value: Fraction | None) -> str:
    """A value of the objective with its unit."""
    return UNKNOWN if value is None else amount(instance, value)


def percent(value: Fraction | None) -> str:
    """A share in percent."""
    return UNKNOWN if value is None else f"{float(value * 100):.3g} %"


def _metric(name: str, value: Fraction | int | None) -> str:
    if value is None:
        return UNKNOWN
    if name in TIMES:
        return seconds(Fraction(value))
    if name in SHARES:
        return percent(Fraction(value))
    number = str(value) if isinstance(value, int) else f"{float(value):.6g}"
    return f"{number} {UNITS[name]}" if name in UNITS else number


def aligned(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows of cells as lines, columns aligned; the last column runs free."""
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    return [
        (indent + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]


def _objective_meaning(instance: AnyInstance) -> str:
    if not isinstance(instance, Instance):
        name = objective_name(instance)
        return f"{name}: {problem_of(instance).definitions[name]}; minimised"
    objective = instance.objective
    if objective.name == "throughput":
        return "throughput: generated tokens / makespan; stated as the makespan, s, which is minimised"
    if objective.name is not None:
        return f"{objective.name}: {DEFINITIONS[objective.name]}; minimised"
    return f"{objective}, s; minimised"


# --- text ---------------------------------------------------------------------------------------


def metrics_text(metrics: AnyMetrics) -> str:
    """All metrics with their definitions."""
    meaning = problem_of(metrics).definitions
    rows = [(name, _metric(name, value), meaning[name]) for name, value in metrics.items()]
    return "\n".join(["metrics of the replayed schedule", *aligned(rows)])


def result_text(instance: AnyInstance, result: AnyResult) -> str:
    """A result: both bounds, the gap, how each was obtained, the metrics."""
    upper, lower = result.upper, result.lower
    rows = [
        ("objective", _objective_meaning(instance)),
        ("status", STATUSES[result.status]),
        ("schedule", f"{amount(instance, upper.value)}  found by {upper.source}" if upper else UNKNOWN),
        ("lower bound", f"{amount(instance, lower.value)}  from {lower.source}" if lower else UNKNOWN),
        ("gap", f"{percent(result.gap)}  (schedule - lower bound) / schedule"),
    ]
    if lower:
        if lower.reason:
            rows.append(("because", lower.reason))
        rows.append(("proved by", PROOFS[lower.proof]))
        if lower.certificate:
            rows.append(("certificate", lower.certificate))
    lines = [printable(result.instance), *aligned(rows)]
    if result.metrics:
        if isinstance(instance, Instance):
            rest = [metric for metric, _ in instance.objective.weights if metric is not Metric.MAKESPAN]
            if any(getattr(result.metrics, metric.value) is None for metric in rest):
                lines.append("  an undefined metric counts as 0 in the objective")
        lines += ["", metrics_text(result.metrics)]
    if result.solver:
        for name, title in SECTIONS.items():
            if name in result.solver.details:
                lines += ["", title, *_section(result.solver.details[name])]
        lines += ["", "how it was computed", *_solver_lines(result.solver)]
    return "\n".join(lines)


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
        ("ended by", report.termination),
        ("time", None if report.seconds is None else seconds(report.seconds)),
        ("time limit", None if report.time_limit is None else seconds(report.time_limit)),
        ("warm start", warm),
        ("threads", report.threads),
        ("seed", report.seed),
        ("versions", versions or None),
        *((name, _detail(value)) for name, value in report.details.items() if name not in ELSEWHERE),
    ]
    return aligned((name, str(value)) for name, value in rows if value is not None)


def _detail(value: Any) -> str:
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
    lines = [printable(instance.name), *aligned([("objective", _objective_meaning(instance))])]
    lines += ["lower bounds, best first: no schedule does better"]
    if not bounds:
        return "\n".join([*lines, f"  {UNKNOWN}"])
    lines += aligned((amount(instance, b.value), b.source, b.proof.value, b.reason or "") for b in bounds)
    lines += ["how they were proved"]
    lines += [f"  {PROOFS[proof]}" for proof in Proof if any(b.proof is proof for b in bounds)]
    return "\n".join(lines)


def verification_text(instance: AnyInstance, check: AnyVerification) -> str:
    """What the verifier found."""
    verdict = "verified: nothing is wrong" if check.ok else "NOT verified"
    lines = [f"{printable(instance.name)}: {verdict}"]
    lines += wrong_lines(check.violations, check.faults)
    rows = [
        ("objective", _objective_meaning(instance)),
        ("replayed", value_text(instance, check.objective)),
        ("lower bound", _trust(instance, check)),
    ]
    lines += aligned(rows)
    if check.metrics:
        lines += ["", metrics_text(check.metrics)]
    return "\n".join(lines)


def wrong_lines(violations: Sequence[object], faults: Sequence[object]) -> list[str]:
    """Rules that a schedule breaks and claims that are wrong, the first of each."""
    lines = []
    for title, found in (("rules broken", violations), ("wrong claims", faults)):
        if found:
            lines.append(f"{title}: {len(found)}")
            lines += [f"  {printable(item)}" for item in _first(found)]
    return lines


def _trust(instance: AnyInstance, check: AnyVerification) -> str:
    if check.lower_bound is None or check.bound is None:
        return f"{UNKNOWN}  (none claimed, or none that can be checked)"
    return f"{amount(instance, check.lower_bound)}  {check.bound.value}"


def profiles_text(profiles: Sequence[Profile]) -> str:
    """The shipped cost profiles."""
    rows = [("profile", "model", "device", "KV tokens", "mean fit error")]
    for p in profiles:
        error = percent(Fraction(p.fit_error["mean_rel"])) if p.fit_error else UNKNOWN
        rows.append((p.name, p.model, p.device, str(p.kv_capacity), error))
    return "\n".join(aligned(rows, indent=""))


# --- JSON values --------------------------------------------------------------------------------


def _objective_json(instance: AnyInstance) -> Any:
    return instance.objective.to_json() if isinstance(instance, Instance) else objective_name(instance)


def _metrics_json(metrics: AnyMetrics | None) -> dict[str, Any] | None:
    return None if metrics is None else dict(metrics.items())


def _violation(violation: Any) -> dict[str, Any]:
    """The fields of a violation of any problem."""
    found = {field.name: getattr(violation, field.name) for field in fields(violation)}
    return {name: value.value if isinstance(value, Enum) else value for name, value in found.items()}


def verification_to_json(instance: AnyInstance, check: AnyVerification) -> dict[str, Any]:
    """The verifier's findings."""
    return {
        "instance": instance.name,
        "ok": check.ok,
        "violations": [_violation(v) for v in check.violations],
        "faults": [{"kind": f.kind.value, "message": f.message} for f in check.faults],
        "objective": _objective_json(instance),
        "objective_value": check.objective,
        "lower_bound": check.lower_bound,
        "bound": check.bound.value if check.bound else None,
        "metrics": _metrics_json(check.metrics),
    }


def bounds_to_json(instance: AnyInstance, bounds: Sequence[LowerBound]) -> Mapping[str, Any]:
    """All lower bounds, best first, rounded down where a decimal does not end."""
    return {
        "instance": instance.name,
        "instance_sha256": instance.sha256,
        "objective": _objective_json(instance),
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
