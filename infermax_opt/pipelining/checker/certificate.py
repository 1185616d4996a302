"""The certificate: which proof its evidence is, and whether that proves what is claimed."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from infermax_opt.checking.envelope import check_envelope, compare
from infermax_opt.checking.errors import Rejected, Unusable, require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.pipelining.checker.hats import hats
from infermax_opt.pipelining.checker.instance import OBJECTIVES, Instance, read_reservation
from infermax_opt.pipelining.checker.prices import prices


def check(instance_data: Any, certificate: Any) -> Fraction:
    """Return the bound on capacity / objective that the certificate proves, or raise Rejected."""
    try:
        instance = Instance(instance_data)
    except Rejected as problem:
        raise Unusable(str(problem)) from None
    given = Field(certificate, "certificate")
    try:
        aimed = {**instance_data, "objective": OBJECTIVES[instance.objective]}
        check_envelope(given, aimed, instance.sha256)
        require(read_reservation(given["cost"]) == instance.reservation, "is for another reservation")
        require(bool(instance.requests), "no request fits")
        most = prove(instance, Field(given["evidence"].value, "evidence"))
        # Values are multiples of a common part, so what is selected is, too.
        values = [value for _, value in instance.requests]
        part = Fraction(math.gcd(*(v.numerator for v in values)), math.lcm(*(v.denominator for v in values)))
        most = part * (most // part)
        require(most > 0, "proves nothing")
        return compare(given, instance.capacity / most)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """The most of the objective that can be selected, as the evidence proves."""
    proofs = {"hats": hats, "prices": prices}
    kind = evidence["kind"].text()
    if kind not in proofs:
        evidence["kind"].fail(f"{shown(kind)} is none of {', '.join(proofs)}")
    return proofs[kind](instance, evidence)
