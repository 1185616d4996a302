"""The question of a fleet: requests with service levels, a type of machine, the share that keeps them.

A request keeps its service level if its first token comes within the TTFT of its *arrival*, and its later
ones within the TPOT on average.  One that no machine serves misses it, and so does one that a machine can
never hold.  Machines share nothing: each runs requests of its own, as an InferMax instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from math import ceil
from typing import Any, NamedTuple

from infermax_opt.core.checks import checked_decimal
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number
from infermax_opt.fleet.checker.machine import later_ticks, prompt_ticks
from infermax_opt.fleet.checker.question import Asked, question_hash
from infermax_opt.fleet.machine import machine_of
from infermax_opt.infermax.data.instance import Instance, Request, RequestGroup, ServiceLevel
from infermax_opt.infermax.data.intervals import refuse_intervals
from infermax_opt.infermax.data.objective import Objective

__all__ = ["FleetQuestion", "Unfit"]


class Unfit(NamedTuple):
    """A request that the machine can never hold, its place among all, the line of its file, and why."""

    request: Request
    place: int
    line: str
    reason: str


@dataclass(frozen=True)
class FleetQuestion:
    """How many machines keep the service levels of a share of the requests is what it asks.

    Parameters
    ----------
    workload : Instance
        All requests that the machine can hold, with their service levels, and one machine of the type.
    share : Number
        Of all requests, that have to keep their service levels; above 0 and at most 1.
    unfit : tuple of Unfit
        Requests that the machine can never hold: they miss their service levels.

    Raises
    ------
    InputError
        If the share is out of range, requests depend on each other or are optional, or the machine is known
        within limits only.
    """

    workload: Instance
    share: Number = Fraction(99, 100)
    unfit: tuple[Unfit, ...] = ()

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
    def everyone(self) -> tuple[Request, ...]:
        """All requests, in the order of the trace."""
        found = list(self.workload.requests)
        for one in sorted(self.unfit, key=lambda one: one.place):
            found.insert(one.place, one.request)
        return tuple(found)

    @property
    def size(self) -> int:
        """Requests in all."""
        return len(self.workload.requests) + len(self.unfit)

    @cached_property
    def must(self) -> int:
        """Requests that have to keep their service levels, at least."""
        return ceil(Fraction(self.share) * self.size)

    @property
    def may_miss(self) -> int:
        """Requests that may miss them, at most."""
        return self.size - self.must

    @property
    def spare(self) -> int:
        """Of those that the machine can hold, requests that may miss them; below 0: too many are unfit."""
        return self.may_miss - len(self.unfit)

    def to_json(self) -> dict[str, Any]:
        """Share and requests as certificates hold them."""
        asked = self.asked
        levels = {limits: k for k, limits in enumerate(dict.fromkeys(limits for *_, limits in asked))}
        return {
            "share": str(self.share),
            "levels": [[None if x is None else str(x) for x in limits] for limits in levels],
            "requests": [
                [str(arrival), prompt, outputs, levels[limits]] for arrival, prompt, outputs, limits in asked
            ],
        }

    @cached_property
    def levels(self) -> tuple[ServiceLevel, ...]:
        """The service level of each request."""
        return tuple(request.terms.slo for request in self.workload.requests)

    @property
    def asked(self) -> list[Asked]:
        """The requests as a certificate speaks of them."""
        return [(r.arrival, r.input_tokens, r.output_tokens, r.terms.slo.limits) for r in self.everyone]

    @cached_property
    def least_ticks(self) -> list[tuple[int, int]]:
        """What each request takes at least, alone: for its first token, and for the later ones."""
        machine = machine_of(self.workload)
        first = cache(lambda prompt: prompt_ticks(machine, prompt))
        sizes = ((r.input_tokens, r.output_tokens) for r in self.workload.requests)
        return [(first(prompt), later_ticks(machine, prompt, 2, outputs)) for prompt, outputs in sizes]

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
