"""A sweep: how many machines of each type a trace needs at each rate, from below and from above."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.arrivals import compressed
from infermax_opt.files.traces import Trace
from infermax_opt.fleet.bounds.alone import reasons
from infermax_opt.fleet.bounds.pooled import MachineBound, pooled_bound
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.scaling import Scaled, Scaling, scaled
from infermax_opt.fleet.upper import SCHEDULERS, Found, fewest_machines, policy_machines
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Policy, RequestGroup, ServiceLevel, System
from infermax_opt.infermax.data.objective import Objective
from infermax_opt.infermax.data.traces import trace_instance, without_unfit

__all__ = ["HOUR", "MachineType", "PlanOptions", "PlanRow", "Sustained", "plan", "question_of", "sustained"]

Tell = Callable[[str], None] | None
#: Seconds.
HOUR = 3600


@dataclass(frozen=True)
class MachineType:
    """A type of machine.

    Attributes
    ----------
    name : str
    system : System
    cost : CostModel
    price : Fraction or None
        Of an hour, in the user's currency.
    """

    name: str
    system: System
    cost: CostModel
    price: Fraction | None = None


@dataclass(frozen=True)
class PlanOptions:
    """What is asked of each row.

    Parameters
    ----------
    slo : ServiceLevel
        Of every request.
    share : Fraction
    schedulers : sequence of str
        Tried on the machines for the upper bound.
    compare : str or None
        Scheduler with which each routing policy is tried by itself.
    skip_unfit : bool
        Leave out requests that a machine can never hold.
    scaling : Scaling or None
        How machines are switched on and off; None: they are not.
    """

    slo: ServiceLevel
    share: Fraction = Fraction(99, 100)
    schedulers: Sequence[str] = SCHEDULERS
    compare: str | None = None
    skip_unfit: bool = False
    scaling: Scaling | None = None


@dataclass(frozen=True)
class PlanRow:
    """What a type of machine needs at a rate.

    Attributes
    ----------
    machine : MachineType
    rate : Fraction
        Arrivals are so many times as fast as in the trace.
    question : FleetQuestion
    bound : MachineBound
    found : Found or None
        None where no number of machines was found to reach the share.
    impossible : list of str
        Requests that never keep their limits, where there are more than may miss them.
    policies : mapping of str to int or None
        Fewest machines found by each policy alone.
    left_out : int
        Requests that no machine of this type can hold.
    scaled : Scaled or None
        Machine time where machines are switched on and off.
    seconds : float
        That it took to compute.
    """

    machine: MachineType
    rate: Fraction
    question: FleetQuestion
    bound: MachineBound
    found: Found | None
    impossible: list[str] = field(default_factory=list)
    policies: Mapping[str, int | None] = field(default_factory=dict)
    left_out: int = 0
    scaled: Scaled | None = None
    seconds: float = 0.0

    @property
    def lower(self) -> int | None:
        """Fewest machines, proved."""
        return self.bound.machines

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
    def span(self) -> Fraction:
        """Seconds until the last arrival."""
        return max(request.arrival for request in self.question.workload.requests)

    def cost_per_million(self, machines: int | None) -> Fraction | None:
        """Price of a million output tokens with so many machines until the last arrival; None if unknown."""
        if machines is None or self.machine.price is None or not self.span:
            return None
        hours = machines * self.span / HOUR
        return self.machine.price * hours * 10**6 / self.question.workload.output_tokens


@dataclass(frozen=True)
class Sustained:
    """The highest rate of a sweep that so many machines of a type sustain.

    Attributes
    ----------
    machine : str
    machines : int
    lower : Fraction or None
        Highest rate at which they are seen to reach the share; None for none of the sweep.
    upper : Fraction or None
        Highest rate at which it is not refuted; None where all are.
    """

    machine: str
    machines: int
    lower: Fraction | None
    upper: Fraction | None


def question_of(
    trace: Trace, machine: MachineType, rate: Fraction, options: PlanOptions
) -> tuple[FleetQuestion, int]:
    """The question of a row, and how many requests it leaves out.

    Parameters
    ----------
    trace : Trace
    machine : MachineType
    rate : Fraction
    options : PlanOptions

    Raises
    ------
    InputError
        If a request does not fit the machine, naming its line.
    """
    faster = compressed(trace, rate)
    kept = without_unfit(faster, machine.system, Policy()) if options.skip_unfit else faster
    plain = trace_instance(kept, machine.name, machine.system, machine.cost)
    groups = tuple(
        RequestGroup(r.id, r.input_tokens, r.output_tokens, r.arrival, slo=options.slo)
        for r in plain.requests
    )
    workload = replace(plain, groups=groups, objective=Objective.of("missed"))
    return FleetQuestion(workload, options.share), len(faster.requests) - len(kept.requests)


def plan(
    trace: Trace,
    machines: Sequence[MachineType],
    rates: Sequence[Fraction],
    options: PlanOptions,
    tell: Tell = None,
) -> list[PlanRow]:
    """Rows of all machines at all rates.

    Parameters
    ----------
    trace : Trace
    machines : sequence of MachineType
    rates : sequence of Fraction
    options : PlanOptions
    tell : callable, optional
        Takes lines of progress.

    Raises
    ------
    InputError
        If a request does not fit a machine, or an option is unusable.
    """
    if not options.slo:
        raise InputError("needs a limit of the TTFT, the TPOT or the end-to-end latency", field="slo")
    rows = []
    for machine in machines:
        for rate in sorted(rates):
            say: Tell = None
            if tell is not None:
                tell(f"{machine.name} at rate {float(rate):g}")
                say = tell
            rows.append(_row(trace, machine, rate, options, say))
    return rows


def _row(trace: Trace, machine: MachineType, rate: Fraction, options: PlanOptions, tell: Tell) -> PlanRow:
    began = time.monotonic()
    question, left_out = question_of(trace, machine, rate, options)
    bound = pooled_bound(question)
    found, impossible, policies, by_hours = None, list[str](), dict[str, int | None](), None
    if bound.machines is None:
        impossible = reasons(question, bound.lost)
    else:
        found = fewest_machines(question, bound.machines, schedulers=options.schedulers, tell=tell)
        if options.compare is not None:
            policies = policy_machines(question, bound.machines, options.compare)
        if options.scaling is not None and found is not None:
            by_hours = scaled(question, bound, found, options.scaling)
    seconds = time.monotonic() - began
    return PlanRow(machine, rate, question, bound, found, impossible, policies, left_out, by_hours, seconds)


def sustained(rows: Sequence[PlanRow], machines: int) -> list[Sustained]:
    """Highest rates of a sweep that so many machines sustain, for each type."""
    kinds: dict[str, list[PlanRow]] = {}
    for row in rows:
        kinds.setdefault(row.machine.name, []).append(row)
    found = []
    for name, some in kinds.items():
        reached: Any = [row.rate for row in some if row.upper is not None and row.upper <= machines]
        possible: Any = [row.rate for row in some if row.lower is not None and row.lower <= machines]
        found.append(Sustained(name, machines, max(reached, default=None), max(possible, default=None)))
    return found
