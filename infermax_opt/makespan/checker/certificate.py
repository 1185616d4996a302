"""The certificate: which argument its evidence names, and whether that proves what is claimed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.checking.envelope import check_envelope, compare
from infermax_opt.checking.errors import Rejected, Unusable, require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.makespan.checker.arc_lengths import arc_lengths
from infermax_opt.makespan.checker.instance import Instance, read_decode, read_levels
from infermax_opt.makespan.checker.stages import paper, stages


def check(instance_data: Any, certificate: Any) -> Fraction:
    """Return the bound in seconds that the certificate proves for the instance, or raise Rejected."""
    try:
        instance = Instance(instance_data)
    except Rejected as problem:
        raise Unusable(str(problem)) from None
    given = Field(certificate, "certificate")
    try:
        check_envelope(given, instance_data, instance.sha256)
        cost = given["cost"]
        same = read_levels(cost["prefill"]), read_decode(cost["decode"])
        require(same == instance.cost, "is for another cost model")
        return compare(given, prove(instance, Field(given["evidence"].value, "evidence")))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """Seconds that the evidence proves."""
    if evidence["kind"].text() != "closed-form":
        evidence["kind"].fail(f"{shown(evidence['kind'].value)} is not 'closed-form'")
    proofs = {"arc lengths": arc_lengths, "stages": stages, "paper eq 32": paper}
    argument = evidence["argument"].text()
    if argument not in proofs:
        evidence["argument"].fail(f"{shown(argument)} is none of {', '.join(proofs)}")
    return Fraction(proofs[argument](instance), instance.scale)
