"""What files and plain values hold of a result and of a verification: names and values, in their order."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.exact import Rounding, decimal_text

if TYPE_CHECKING:
    from infermax_opt.core.result import AnyResult, SolverReport
    from infermax_opt.core.verification import AnyVerification

__all__ = ["result_items", "verification_items"]


def result_items(result: AnyResult, schedule: dict[str, Any] | None) -> dict[str, Any]:
    """Return the items of a result.

    Bounds are exact decimals where they end; else a lower bound is rounded down and an upper
    bound up, in the 30th digit.

    Parameters
    ----------
    result : Result
    schedule : dict, optional
        Its schedule, as a file holds it.
    """
    upper, lower = result.upper, result.lower
    return {
        "instance": result.instance,
        "instance_sha256": result.instance_sha256,
        "objective": result.objective,
        "status": result.status.value,
        "upper_bound": _rounded(upper.value if upper else None, "ceiling"),
        "lower_bound": _rounded(lower.value if lower else None, "floor"),
        "gap": result.gap,
        **({} if result.answer is None else {"target": result.target, "answer": result.answer.value}),
        **({} if result.undecided is None else {"undecided": result.undecided}),
        **({} if result.band is None else {"band": result.band}),
        "upper": {"source": upper.source} if upper else None,
        "lower": {
            "source": lower.source,
            "proof": lower.proof.value,
            "certificate": lower.certificate,
        }
        if lower
        else None,
        "metrics": dict(result.metrics.items()) if result.metrics else None,
        "solver": _solver(result.solver) if result.solver else None,
        "schedule": schedule,
    }


def verification_items(check: AnyVerification) -> dict[str, Any]:
    """Return the verifier's findings, but for the instance that they are about."""
    return {
        "ok": check.ok,
        "rules": dict(Counter(v.rule.value for v in check.violations)),
        "violations": [_violation(v) for v in check.violations],
        "faults": [{"kind": f.kind.value, "message": f.message} for f in check.faults],
        "objective_value": check.objective,
        "lower_bound": check.lower_bound,
        "bound": check.bound_words,
        "unchecked": [{"claim": some.claim, "reason": some.reason} for some in check.unchecked],
        "notes": list(check.notes),
        "metrics": dict(check.metrics.items()) if check.metrics else None,
    }


def _violation(violation: Any) -> dict[str, Any]:
    """The fields of a violation of any problem."""
    found = {field.name: getattr(violation, field.name) for field in fields(violation)}
    return {name: value.value if isinstance(value, Enum) else value for name, value in found.items()}


def _rounded(value: Fraction | None, rounding: Rounding) -> Fraction | None:
    return None if value is None else Fraction(decimal_text(value, rounding=rounding))


def _solver(report: SolverReport) -> dict[str, Any]:
    def plain(value: object) -> object:
        if isinstance(value, Enum):
            return value.value
        return round(value, 6) if isinstance(value, float) else value

    return {field.name: plain(getattr(report, field.name)) for field in fields(report)}
