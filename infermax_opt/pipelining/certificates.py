"""Certificates of bounds on what a reservation holds, and how they are checked.

``cost`` holds ``capacity``, ``block_size`` and ``buffer`` of the instance file; the evidence is of the kind
``hats`` or ``prices``: see `infermax_opt.pipelining.bounds.hats` and `infermax_opt.pipelining.bounds.prices`.
`infermax_opt.pipelining.checker` checks them and trusts nothing else.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.core.certification import CertificateRejected, Certification
from infermax_opt.core.exact import decimal_text
from infermax_opt.files.fields import INSTANCE_SCHEMA
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.simple.json import record_to_json

__all__ = ["CERTIFICATION", "PipeliningCertification"]


class PipeliningCertification(Certification[PipeliningInstance]):
    """How bounds are certified; see `infermax_opt.core.certification.Certification`."""

    def cost(self, instance: PipeliningInstance) -> dict[str, Any]:
        """The reservation."""
        return {
            "capacity": instance.capacity,
            "block_size": instance.block_size,
            "buffer": decimal_text(instance.buffer),
        }

    def check(self, instance: PipeliningInstance, certificate: object) -> Fraction:
        """Bound that a certificate proves; raises `CertificateRejected`."""
        from infermax_opt.pipelining import checker

        head = {"schema": INSTANCE_SCHEMA, "problem": instance.problem}
        try:
            return checker.check({**head, **record_to_json(instance)}, certificate)
        except checker.Rejected as problem:
            raise CertificateRejected(f"certificate rejected: {problem}") from None


CERTIFICATION = PipeliningCertification()
