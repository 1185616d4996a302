"""The question of a fleet: requests with service levels, a type of machine, the share that keeps them.

A request keeps its service level if its first token comes within the TTFT of its *arrival*, and its later
ones within the TPOT on average.  One that no machine serves misses it.  Machines share nothing: each runs
requests of its own, as an InferMax instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil

from infermax_opt.core.checks import checked_decimal
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number
from infermax_opt.fleet.checker import Asked, question_hash
from infermax_opt.fleet.machine import machine_of
from infermax_opt.infermax.data.instance import Instance, RequestGroup, ServiceLevel
from infermax_opt.infermax.data.intervals import refuse_intervals
from infermax_opt.infermax.data.objective import Objective

__all__ = ["FleetQuestion"]


@dataclass(frozen=True)
class FleetQuestion:
    """How many machines keep the service levels of a share of the requests is what it asks.

    Parameters
    ----------
    workload : Instance
        All requests, with their service levels, and one machine of the type.
    share : Number
        Of the requests, that have to keep their service levels; above 0 and at most 1.

    Raises
    ------
    InputError
        If the share is out of range, requests depend on each other or are optional, or the machine is known
        within limits only.
    """

    workload: Instance
    share: Number = Fraction(99, 100)

    def __post_init__(self) -> None:
        share = checked_decimal(self.share, "share")
        if not 0 < share <= 1:
            raise InputError(f"{float(share):g} is not above 0 and at most 1", field="share")
        object.__setattr__(self, "share", share)
        if self.workload.release is not None or self.workload.horizon is not None:
            raise InputError(
                "a fleet takes no horizon, and no sets that wait for each other", field="workload"
            )
        if any(kind.terms.optional for kind in self.workload.types):
            raise InputError(
                "a fleet takes no optional requests; its share says who may miss", field="workload"
            )
        refuse_intervals(self.workload, "a fleet")

    @cached_property
    def must(self) -> int:
        """Requests that have to keep their service levels, at least."""
        return ceil(Fraction(self.share) * len(self.workload.requests))

    @property
    def may_miss(self) -> int:
        """Requests that may miss them, at most."""
        return len(self.workload.requests) - self.must

    @cached_property
    def levels(self) -> tuple[ServiceLevel, ...]:
        """The service level of each request."""
        return tuple(request.terms.slo for request in self.workload.requests)

    @property
    def asked(self) -> list[Asked]:
        """The requests as a certificate speaks of them."""
        return [
            (r.arrival, r.input_tokens, r.output_tokens, (slo.ttft, slo.tpot, slo.e2e))
            for r, slo in zip(self.workload.requests, self.levels, strict=True)
        ]

    @cached_property
    def sha256(self) -> str:
        """Hash of machine, share and requests, which a certificate of the question has, too."""
        return question_hash(machine_of(self.workload), Fraction(self.share), self.asked)

    def machine(self, members: Sequence[int]) -> Instance:
        """The instance of a machine that serves these requests, given by their places.

        Raises
        ------
        ValueError
            If there are none.
        """
        requests = self.workload.requests
        groups = tuple(
            RequestGroup(
                r.id, r.input_tokens, r.output_tokens, r.arrival, slo=r.terms.slo,
                predicted_output_tokens=r.predicted_output_tokens,
            )
            for r in (requests[i] for i in members)
        )  # fmt: skip
        return replace(self.workload, groups=groups, classes=(), objective=Objective.of("missed"))
