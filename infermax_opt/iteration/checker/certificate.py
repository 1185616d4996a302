"""The certificate: whether its trees prove what is claimed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from infermax_opt.checking.envelope import check_envelope, compare
from infermax_opt.checking.errors import Rejected, Unusable, require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_INTEGER
from infermax_opt.iteration.checker.cases import Kinds, all_cases
from infermax_opt.iteration.checker.instance import Instance
from infermax_opt.iteration.checker.requests import Cost
from infermax_opt.iteration.checker.trees import Tree


def check(instance_data: Any, certificate: Any, profiles: Path | None = None) -> Fraction:
    """Return the bound that the certificate proves for the instance, or raise Rejected.

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
    claim = Field(certificate, "certificate")
    try:
        check_envelope(claim, instance_data, instance.sha256)
        require(Cost(claim["cost"]).parts() == instance.cost.parts(), "is for another cost model")
        return compare(claim, prove(instance, Field(claim["evidence"].value, "evidence")))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """Seconds per value that the evidence proves."""
    if evidence["kind"].text() != "branching":
        evidence["kind"].fail(f"{shown(evidence['kind'].value)} is not 'branching'")
    value, ticks = evidence["value"].whole(0, MAX_INTEGER), evidence["ticks"].whole(1, MAX_INTEGER)
    exponent = evidence["exponent"].whole(0, 1000)
    batch = []
    for name in evidence["kept"].items():
        if name.text() not in instance.names:
            name.fail("is not in the instance")
        batch.append(instance.names[name.text()])
    require(len(set(batch)) == len(batch) <= instance.batch, "kept: is no batch of the instance")
    require(sum(instance.requests[k].blocks for k in batch) <= instance.blocks, "kept: takes too many blocks")
    kinds, trees = Kinds(instance), evidence["trees"].items()
    kept, at = instance.kept(batch), 0
    # Certificates of earlier versions do not say it: their trees hold requests without a value, too.
    out = "idle_out" in evidence and evidence["idle_out"].flag()
    for case in all_cases(kinds, kept):
        require(at < len(trees), f"there are {len(trees)} trees, fewer than cases")
        Tree(case, value, ticks, 1 << exponent, trees[at]).check(out)
        at += 1
    require(at == len(trees), f"there are {len(trees)} trees for {at} cases")
    bound = Fraction(ticks * instance.units, value * instance.scale) if value else instance.worst
    return min(bound, instance.worst)
