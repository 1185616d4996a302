"""Results as text for people and as JSON values for machines.

An unknown number is a dash, never 0 and never infinite; every time says its unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from infermax_opt.exact import decimal_text
from infermax_opt.instance import Instance, Metric
from infermax_opt.makespan.metrics import MAKESPAN_DEFINITIONS, MakespanMetrics
from infermax_opt.makespan.replay import BinViolation
from infermax_opt.metrics import DEFINITIONS
from infermax_opt.problems import MAKESPAN, AnyInstance, AnyMetrics
from infermax_opt.profiles import Profile
from infermax_opt.replay import Violation
from infermax_opt.result import AnyResult, LowerBound, Proof, Scope, SolverReport, Status
from infermax_opt.verification import AnyVerification

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
SHARES = ("recompute_tax", "mean_kv_use", "utilisation")
UNITS = {"tokens_per_second": "tokens/s", "refill_tokens": "tokens", "peak_kv": "tokens"}


# --- single values ------------------------------------------------------------------------------


def printable(text: object) -> str:
    """`text` on one line: control characters and lone surrogates escaped."""
    return "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in str(text))


def seconds(value: Fraction | float | None) -> str:
    """A time with its unit."""
    return UNKNOWN if value is None else f"{float(value):.6g} s"


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
        return f"{MAKESPAN}: {MAKESPAN_DEFINITIONS[MAKESPAN]}; minimised"
    objective = instance.objective
    if objective.name == "throughput":
        return "throughput: generated tokens / makespan; stated as the makespan, s, which is minimised"
    if objective.name is not None:
        return f"{objective.name}: {DEFINITIONS[objective.name]}; minimised"
    return f"{objective}, s; minimised"


# --- text ---------------------------------------------------------------------------------------


def metrics_text(metrics: AnyMetrics) -> str:
    """All metrics with their definitions."""
    meaning = MAKESPAN_DEFINITIONS if isinstance(metrics, MakespanMetrics) else DEFINITIONS
    rows = [(name, _metric(name, value), meaning[name]) for name, value in metrics.items()]
    return "\n".join(["metrics of the replayed schedule", *aligned(rows)])


def result_text(instance: AnyInstance, result: AnyResult) -> str:
    """A result: both bounds, the gap, how each was obtained, the metrics."""
    upper, lower = result.upper, result.lower
    rows = [
        ("objective", _objective_meaning(instance)),
        ("status", STATUSES[result.status]),
        ("schedule", f"{seconds(upper.value)}  found by {upper.source}" if upper else UNKNOWN),
        ("lower bound", f"{seconds(lower.value)}  from {lower.source}" if lower else UNKNOWN),
        ("gap", f"{percent(result.gap)}  (schedule - lower bound) / schedule"),
    ]
    if lower:
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
        lines += ["", "how it was computed", *_solver_lines(result.solver)]
    return "\n".join(lines)


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
        *((name, _detail(value)) for name, value in report.details.items()),
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
    lines += aligned((seconds(b.value), b.source, b.proof.value) for b in bounds)
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
        ("replayed", seconds(check.objective)),
        ("lower bound", _trust(check)),
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
            lines += [f"  {printable(item)}" for item in found[:MOST_LINES]]
            if len(found) > MOST_LINES:
                lines.append(f"  ... and {len(found) - MOST_LINES} more")
    return lines


def _trust(check: AnyVerification) -> str:
    if check.lower_bound is None or check.bound is None:
        return f"{UNKNOWN}  (none claimed, or none that can be checked)"
    return f"{seconds(check.lower_bound)}  {check.bound.value}"


def profiles_text(profiles: Sequence[Profile]) -> str:
    """The shipped cost profiles."""
    rows = [("profile", "model", "device", "KV tokens", "mean fit error")]
    for p in profiles:
        error = percent(Fraction(p.fit_error["mean_rel"])) if p.fit_error else UNKNOWN
        rows.append((p.name, p.model, p.device, str(p.kv_capacity), error))
    return "\n".join(aligned(rows, indent=""))


# --- JSON values --------------------------------------------------------------------------------


def _objective_json(instance: AnyInstance) -> Any:
    return instance.objective.to_json() if isinstance(instance, Instance) else MAKESPAN


def _metrics_json(metrics: AnyMetrics | None) -> dict[str, Any] | None:
    return None if metrics is None else dict(metrics.items())


def _violation(violation: Violation | BinViolation) -> dict[str, Any]:
    if isinstance(violation, BinViolation):
        return {
            "rule": violation.rule.value,
            "bin": violation.bin,
            "request": violation.request,
            "message": violation.message,
        }
    return {
        "rule": violation.rule.value,
        "batch": violation.batch,
        "request": violation.request,
        "value": violation.value,
        "limit": violation.limit,
        "message": violation.message,
    }


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
    """All lower bounds, best first, in seconds, rounded down where a decimal does not end."""
    return {
        "instance": instance.name,
        "instance_sha256": instance.sha256,
        "objective": _objective_json(instance),
        "lower_bounds": bound_items(bounds),
    }


def bound_items(bounds: Sequence[LowerBound]) -> list[dict[str, Any]]:
    """Lower bounds as JSON values, in seconds, rounded down where a decimal does not end."""
    return [
        {
            "value": Fraction(decimal_text(b.value, rounding="floor")),
            "source": b.source,
            "proof": b.proof.value,
            "certificate": b.certificate,
        }
        for b in bounds
    ]
