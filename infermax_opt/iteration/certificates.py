"""Certificates of bounds on one batch, and how they are checked.

``cost`` holds the cost of the instance, coefficients spelled out.  Evidence is of the kind ``branching``:

- ``value`` and ``ticks``: no batch has more units of value for a tick than their quotient.  A tick is the
  largest time of which all times of the instance are whole multiples, a unit likewise;
- ``kept``: ids of a batch that keeps as many savable requests as the bound takes for granted;
- ``exponent``: prices are in units of 2**-exponent;
- ``trees``: one for each case, in their order (`infermax_opt.iteration.bounds.cases`), a list of entries
  [cut, at, prices ...].  ``cut`` is -2 for a leaf; else the entry is cut into the parts with at least ``at``
  copies of the type ``cut`` (of all requests together, if that is -1), which comes next with all that
  belongs to it, and with fewer.  The prices are those of the lines, of most and least requests, of blocks
  and of calls; a node that limits leave empty has none (`infermax_opt.iteration.bounds.nodes`).

A bound without branching is the same with leaves only.  `infermax_opt.iteration.checker` checks them and
trusts nothing else.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.core.certification import CertificateRejected, Certification
from infermax_opt.iteration.data.formats import iteration_instance_to_json, machine_cost_to_json
from infermax_opt.iteration.data.instance import IterationInstance

__all__ = ["CERTIFICATION", "IterationCertification"]


class IterationCertification(Certification[IterationInstance]):
    """How bounds of iteration instances are certified; see
    `infermax_opt.core.certification.Certification`.
    """

    def cost(self, instance: IterationInstance) -> dict[str, Any]:
        """The cost of the machine."""
        return machine_cost_to_json(instance.machine)

    def check(self, instance: IterationInstance, certificate: object) -> Fraction:
        """Bound that a certificate proves, in seconds per value; raises `CertificateRejected`."""
        from infermax_opt.iteration import checker

        try:
            return checker.check(iteration_instance_to_json(instance), certificate)
        except checker.Rejected as problem:
            raise CertificateRejected(f"certificate rejected: {problem}") from None


CERTIFICATION = IterationCertification()
