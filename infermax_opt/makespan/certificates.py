"""Certificates of makespan bounds, and how they are checked.

``cost`` holds the ``prefill`` (``levels``) and ``decode`` of the instance file, and the evidence names the
``argument``: see `infermax_opt.makespan.bounds.closed_form`.  `infermax_opt.makespan.checker` checks them and
trusts nothing else.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.core.certification import CertificateRejected, Certification
from infermax_opt.makespan.data.formats import makespan_instance_to_json
from infermax_opt.makespan.data.instance import MakespanInstance

__all__ = ["CERTIFICATION", "MakespanCertification"]


class MakespanCertification(Certification[MakespanInstance]):
    """How bounds of makespan instances are certified; see `infermax_opt.core.certification.Certification`."""

    def cost(self, instance: MakespanInstance) -> dict[str, Any]:
        """Times of the stages."""
        value = makespan_instance_to_json(instance)
        return {"prefill": value["prefill"], "decode": value["decode"]}

    def check(self, instance: MakespanInstance, certificate: object) -> Fraction:
        """Bound that a certificate proves, in seconds; raises `CertificateRejected`."""
        from infermax_opt.makespan import checker

        try:
            return checker.check(makespan_instance_to_json(instance), certificate)
        except checker.Rejected as problem:
            raise CertificateRejected(f"certificate rejected: {problem}") from None


CERTIFICATION = MakespanCertification()
