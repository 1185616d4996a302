"""The certificate: which proof its evidence is, and whether that proves what is claimed."""

from __future__ import annotations

from collections.abc import Container
from fractions import Fraction
from pathlib import Path
from typing import Any

from infermax_opt.checking.envelope import check_envelope, compare
from infermax_opt.checking.errors import Rejected, Unusable, require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.apart import batches_apart
from infermax_opt.infermax.checker.attainment import attainment, counted, ranked
from infermax_opt.infermax.checker.backwards import backwards
from infermax_opt.infermax.checker.branching import branching
from infermax_opt.infermax.checker.closed_form import closed_form
from infermax_opt.infermax.checker.crowds import crowds
from infermax_opt.infermax.checker.deferral import deferral
from infermax_opt.infermax.checker.filling import filling
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.interaction import interaction
from infermax_opt.infermax.checker.knee import knee
from infermax_opt.infermax.checker.lagrangian import lagrangian
from infermax_opt.infermax.checker.levels import levels
from infermax_opt.infermax.checker.lingering import lingering
from infermax_opt.infermax.checker.mutual import mutual
from infermax_opt.infermax.checker.occupancy import occupancy
from infermax_opt.infermax.checker.occupancy_ends import occupancy_makespan
from infermax_opt.infermax.checker.on_time import on_time
from infermax_opt.infermax.checker.overload import overload
from infermax_opt.infermax.checker.pace import pace
from infermax_opt.infermax.checker.payments import Proof, in_order, of_all
from infermax_opt.infermax.checker.pieces import Piece, read_cost
from infermax_opt.infermax.checker.progress import progress
from infermax_opt.infermax.checker.ramp import ramp
from infermax_opt.infermax.checker.running import running
from infermax_opt.infermax.checker.state_flow import state_flow
from infermax_opt.infermax.checker.waves import waves

#: What is counted of all requests; all other metrics are about those alone that must be served.
COUNTS = ("a sum of counts", "missed", "unserved", "unserved_tokens")
#: Metrics whose bounds count in that of a weighted sum.
PARTS = ("makespan", "missed", "mean_e2e")


def check(instance_data: Any, certificate: Any, profiles: Path | None = None) -> Fraction:
    """Return the bound that the certificate proves for the instance, in its unit, or raise Rejected.

    Parameters
    ----------
    instance_data : Any
        The instance, as parsed.
    certificate : Any
        As parsed.
    profiles : Path | None
        Folder of the cost profiles.
    """
    try:
        instance = Instance(instance_data, profiles)
    except Rejected as problem:
        raise Unusable(str(problem)) from None
    given = Field(certificate, "certificate")
    try:
        named = instance.objective in PROOFS or instance.limits or instance.weights
        require(bool(named), f"is for an objective without certificates; they are of {', '.join(PROOFS)}")
        check_envelope(given, instance_data, instance.sha256)
        require(read_cost(given["cost"]) == instance.cost, "is for another cost model")
        return compare(given, prove(instance, Field(given["evidence"].value, "evidence")))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """What the evidence proves, in the unit of the objective.

    Of limits, the ratio of one metric to its own; of a weighted sum, what its parts are worth together.
    """
    if instance.limits:
        metric = part_of(evidence, instance.limits)
        proved, limit = prove_metric(instance, metric, evidence), instance.limits[metric]
        # Of a limit of 0, nothing is within it, and anything is 1 beyond it and more.
        return proved / limit if limit else proved + (proved > 0)
    if not instance.weights:
        return prove_metric(instance, instance.objective, evidence)
    if "parts" not in evidence:  # of what counts, other metrics are not below 0
        return prove_metric(instance.promising(instance.weights), COUNTS[0], evidence)
    parts = {part_of(part, PARTS): part for part in evidence["parts"].items()}
    require(len(parts) == len(evidence["parts"].value), "parts: a metric is there twice")
    proved = Fraction(0)
    for metric, part in parts.items():
        instance.work = Work()  # there are few parts, and each may be as long to check as a bound of its own
        each = prove_metric(instance, metric, part)
        proved += instance.worth(metric) * each
    return proved


def part_of(evidence: Field, metrics: Container[str]) -> str:
    """The metric that evidence is about: one of these."""
    metric = evidence["metric"].text()
    if metric not in metrics or metric not in PROOFS:
        evidence["metric"].fail(f"{shown(metric)} does not count, or has no certificates")
    return metric


def prove_metric(instance: Instance, metric: str, evidence: Field) -> Fraction:
    """What the evidence proves of one metric, in its unit.

    Parameters
    ----------
    instance : Instance
    metric : str
    evidence : Field
    """
    require(metric in COUNTS or bool(instance.kinds), "is for requests that must be served; there are none")
    proofs = PROOFS[metric]
    kind = evidence["kind"].text()
    if kind not in proofs:
        evidence["kind"].fail(f"{shown(kind)} is none of {', '.join(proofs)}")
    alpha, beta = instance.pieces[evidence["piece"].whole(0, len(instance.pieces) - 1)]
    exponent = evidence["exponent"].whole(-512, 512) if "exponent" in evidence else 0
    return proofs[kind](instance, evidence, Piece(alpha, beta, Fraction(2) ** exponent))


#: Kinds of evidence of each objective.
PROOFS: dict[str, dict[str, Proof]] = {
    "makespan": {
        "closed-form": closed_form,
        "occupancy": occupancy_makespan,
        "state-flow": of_all(state_flow),
        "levels": levels,
        "count-branching": branching,
        "lagrangian": lagrangian,
        "filling": filling,
        "ramp": ramp,
        "running": running,
        "knee": knee,
        "apart": batches_apart,
    },
    "mean_e2e": {
        "occupancy": in_order(occupancy),
        "state-flow": in_order(state_flow),
        "progress": progress,
        "waves": waves,
        "interaction": interaction,
        "lingering": lingering,
        "deferral": deferral,
        "mutual": mutual,
        "pace": pace,
        "overload": overload,
        "backwards": backwards,
    },
    COUNTS[0]: {"attainment": attainment},
    **{name: {"attainment": counted(name)} for name in COUNTS[1:]},
    **{
        f"{name}_{latency}": {
            "rank": ranked(percent, place),
            "crowds": crowds(percent, place),
            **({"on-time": on_time(percent)} if latency == "ttft" else {}),
        }
        for name, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100))
        for latency, place in (("ttft", 0), ("e2e", 2))
    },
}
