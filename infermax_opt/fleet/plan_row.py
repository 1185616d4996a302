"""What is asked of a type of machine at a rate, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from infermax_opt.core.shown import Shown
from infermax_opt.fleet.autoscaling import Autoscaled
from infermax_opt.fleet.bounds.pooled import MachineBound
from infermax_opt.fleet.exact import Cheapest
from infermax_opt.fleet.machine_types import AS_GIVEN, MachineType, Variant
from infermax_opt.fleet.planned import PLANNED
from infermax_opt.fleet.question import FleetQuestion, Unfit
from infermax_opt.fleet.scaling import Scaled, Scaling
from infermax_opt.fleet.split import SplitPlan
from infermax_opt.fleet.upper import SCHEDULERS, Found
from infermax_opt.infermax.data.instance import ServiceLevel

__all__ = ["HOUR", "PlanOptions", "PlanRow", "Split"]

#: Seconds.
HOUR = 3600


@dataclass(frozen=True)
class Split:
    """Prefill and decode apart, see `infermax_opt.fleet.apart`.

    Attributes
    ----------
    transfer : Fraction
        Seconds for each token of KV from a prefill machine to a decode machine.
    decode : MachineType or None
        Of the machines that decode; None: the type of those that prefill.
    """

    transfer: Fraction
    decode: MachineType | None = None


@dataclass(frozen=True)
class PlanOptions:
    """What is asked of each row.

    Parameters
    ----------
    slo : ServiceLevel
        Of every request.
    share : Fraction
        Of the requests, that keep it: a finite decimal above 0 and at most 1.
    schedulers : sequence of str
        Tried on the machines for the upper bound.
    compare : str or None
        Scheduler with which each routing policy is tried by itself.
    skip_unfit : bool
        Leave out requests that a machine can never hold, rather than count them as missed.
    scaling : Scaling or None
        How machines are switched on and off; None: they are not.
    window : Fraction or None
        Seconds of windows, each of which keeps the share by itself with its own number; None: no windows.
    errors : sequence of Fraction
        Spreads of the relative error of predicted outputs, a row for each; none: nothing is predicted.
    seed : int
        Of the predictions.
    split : Split or None
        Also find machines that prefill and machines that decode; None: no.
    variants : sequence of Variant
        Of the machines, rows for each; mixes and highest rates go by the first.
    """

    slo: ServiceLevel
    share: Fraction = Fraction(99, 100)
    schedulers: Sequence[str] = (*SCHEDULERS, PLANNED)
    compare: str | None = None
    skip_unfit: bool = False
    scaling: Scaling | None = None
    window: Fraction | None = None
    errors: Sequence[Fraction] = ()
    seed: int = 0
    split: Split | None = None
    variants: Sequence[Variant] = (AS_GIVEN,)


@dataclass(frozen=True)
class PlanRow(Shown):
    """What a type of machine needs at a rate.

    Attributes
    ----------
    machine : MachineType
    rate : Fraction
        Arrivals are so many times as fast as in the trace.
    question : FleetQuestion
    bound : MachineBound
    found, online : Found or None
        Of all, and of online schedulers alone; None where no number was found to reach the share.
    impossible : list of str
        Why requests never keep their limits, of the first ones of those that do not.
    policies : mapping of str to int or None
        Fewest machines found by each policy alone.
    left_out : sequence of Unfit
        Requests that no machine of this type can hold, where these are not counted.
    decided : Cheapest or None
        The fewest machines, where all routings and schedules of few requests were searched.
    scaled : Scaled or None
        Machine time where machines are switched on and off.
    windows : Autoscaled or None
        Machines by window.
    split : SplitPlan or None
        Machines that prefill and machines that decode; the same for every prediction.
    error : Fraction or None
        Spread of the relative error of predicted outputs; None: nothing is predicted.
    seconds : float
        That it took to compute.
    """

    machine: MachineType
    rate: Fraction
    question: FleetQuestion
    bound: MachineBound
    found: Found | None
    online: Found | None = None
    impossible: list[str] = field(default_factory=list)
    policies: Mapping[str, int | None] = field(default_factory=dict)
    left_out: Sequence[Unfit] = ()
    decided: Cheapest | None = None
    scaled: Scaled | None = None
    windows: Autoscaled | None = None
    split: SplitPlan | None = None
    error: Fraction | None = None
    seconds: float = 0.0

    @property
    def lower(self) -> int | None:
        """Fewest machines, proved by the certificate of the bound, or by search."""
        return self.bound.machines if self.decided is None else self.decided.machines

    @property
    def certified(self) -> bool:
        """Whether a checker has the time for a certificate of the lower bound."""
        return self.bound.certified and self.lower == self.bound.machines

    @property
    def upper(self) -> int | None:
        """Fewest machines found, replayed."""
        return None if self.found is None else self.found.machines

    @property
    def status(self) -> str:
        """``optimal``, ``feasible``, ``bound-only`` or ``infeasible``."""
        if self.lower is None:
            return "infeasible"
        if self.upper is None:
            return "bound-only"
        return "optimal" if self.lower == self.upper else "feasible"

    @property
    def never(self) -> bool:
        """Whether no number of machines is enough, in one pool or, where asked for, in two."""
        return self.lower is None and (self.split is None or self.split.lower is None)

    @property
    def found_by(self) -> str | None:
        """Policy and scheduler of the fewest machines found."""
        return None if self.found is None else f"{self.found.policy} with {self.found.scheduler}"

    def facts(self) -> Mapping[str, Any]:
        """What is asked, the machines needed and found, and who found them."""
        names = ("rate", "lower", "upper", "status", "found_by", "seconds")
        return {"machine": self.machine.name, **{name: getattr(self, name) for name in names}}

    @property
    def span(self) -> Fraction:
        """Seconds until the last arrival."""
        return max(request.arrival for request in self.question.everyone)

    def cost_per_million(self, machines: int | None) -> Fraction | None:
        """Price of a million output tokens with so many machines until the last arrival; None if unknown."""
        if machines is None or self.machine.price is None:
            return None
        return self.per_million(self.machine.price * machines)

    def per_million(self, price: Fraction | None) -> Fraction | None:
        """The same of machines that cost so much an hour together."""
        if price is None or not self.span:
            return None
        return price * self.span / HOUR * 10**6 / self.output_tokens

    def decode_machine(self, split: Split) -> MachineType:
        """The type of the machines that decode, where pools are apart."""
        return self.machine if split.decode is None else split.decode.varied(self.machine.variant)

    @property
    def output_tokens(self) -> int:
        """Of all requests."""
        return sum(request.output_tokens for request in self.question.everyone)
