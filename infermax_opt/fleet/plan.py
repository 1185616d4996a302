"""A sweep: how many machines of each type a trace needs at each rate, from below and from above."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import Shown
from infermax_opt.files.arrivals import compressed
from infermax_opt.files.traces import Trace
from infermax_opt.fleet.apart import ApartQuestion, check_pools, held_apart
from infermax_opt.fleet.autoscaling import Autoscaled, autoscalings, window_count
from infermax_opt.fleet.bounds.alone import reasons
from infermax_opt.fleet.bounds.pooled import MachineBound, pooled_bound
from infermax_opt.fleet.machine_types import AS_GIVEN, MachineType, Variant
from infermax_opt.fleet.planned import PLANNED, online_of, uppers
from infermax_opt.fleet.question import FleetQuestion, Unfit
from infermax_opt.fleet.scaling import Scaled, Scaling, scaled
from infermax_opt.fleet.split import SplitPlan, split_plan
from infermax_opt.fleet.upper import SCHEDULERS, Found, policy_machines
from infermax_opt.infermax.data.ecoserve import with_predictions
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, ServiceLevel
from infermax_opt.infermax.data.objective import Objective
from infermax_opt.infermax.data.traces import misfit

__all__ = [
    "HOUR",
    "MachineType",
    "PlanOptions",
    "PlanRow",
    "Split",
    "Variant",
    "check_asked",
    "plan",
    "predicted",
    "question_of",
    "rows_at",
]

Tell = Callable[[str], None] | None
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
    scaled: Scaled | None = None
    windows: Autoscaled | None = None
    split: SplitPlan | None = None
    error: Fraction | None = None
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


def question_of(
    trace: Trace, machine: MachineType, rate: Fraction, options: PlanOptions
) -> tuple[FleetQuestion, Sequence[Unfit]]:
    """The question of a row, and the requests that it leaves out; those that do not fit miss, else.

    Some request has to fit: see `check_asked`.

    Parameters
    ----------
    trace : Trace
    machine : MachineType
    rate : Fraction
    options : PlanOptions
    """
    faster = compressed(trace, rate)
    policy, groups, unfit = Policy(), list[RequestGroup](), list[Unfit]()
    for k, r in enumerate(faster.requests):
        group = RequestGroup(f"r{k + 1}", r.input_tokens, r.output_tokens, r.arrival, slo=options.slo)
        reason = misfit(r, machine.system, policy)
        if reason is None:
            groups.append(group)
        else:
            unfit.append(Unfit(group.expand()[0], k, f"line {r.line}", reason))
    workload = Instance(
        machine.name, tuple(groups), machine.system, machine.cost, policy, Objective.of("missed")
    )
    if options.skip_unfit:
        return FleetQuestion(workload, options.share), unfit
    return FleetQuestion(workload, options.share, tuple(unfit)), ()


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
        If no request fits a machine, or an option is unusable.
    """
    check_asked(trace, machines, rates, options)
    varied = [machine.varied(variant) for machine in machines for variant in options.variants]
    asked = [(machine, rate) for machine in varied for rate in sorted(rates)]
    return [row for one in asked for row in list(rows_at(trace, *one, options, tell))[-1]]


def check_asked(
    trace: Trace, machines: Sequence[MachineType], rates: Sequence[Fraction], options: PlanOptions
) -> None:
    """Check before the work what would end it later.

    Parameters
    ----------
    trace : Trace
    machines : sequence of MachineType
    rates : sequence of Fraction
    options : PlanOptions

    Raises
    ------
    InputError
        If there is no limit to keep, no request fits a machine, or there are too many windows.
    """
    if not options.slo:
        raise InputError("needs a limit of the TTFT, the TPOT or the end-to-end latency", field="slo")
    for machine in machines:
        reasons_of = (misfit(request, machine.system, Policy()) for request in trace.requests)
        if all(reason is not None for reason in reasons_of):
            first = trace.requests[0]
            reason = misfit(first, machine.system, Policy())
            problem = f"no request fits {machine.name}; the first: {reason}"
            raise InputError(problem, field=f"line {first.line}", source=trace.path)
        if options.split is not None and options.skip_unfit:
            check_pools(trace, machine, options.split.decode or machine)
    if options.window is not None:
        window_count(max(request.arrival for request in trace.requests) / min(rates), options.window)


def rows_at(
    trace: Trace, machine: MachineType, rate: Fraction, options: PlanOptions, tell: Tell = None
) -> Iterator[list[PlanRow]]:
    """The rows of a type at a rate, over again with more of them each time: first the lower bound.

    Parameters
    ----------
    trace : Trace
    machine : MachineType
    rate : Fraction
    options : PlanOptions
    tell : callable, optional
        Takes lines of progress.

    Raises
    ------
    InputError
        If no request fits the machine.
    """
    began = time.monotonic()
    if tell is not None:
        tell(f"{machine.name} {machine.variant.words}".strip() + f" at rate {float(rate):g}")
    question, left_out = question_of(trace, machine, rate, options)
    # It holds for schedulers that know all outputs, so for any prediction.
    bound, known = pooled_bound(question), list[PlanRow]()
    lines = {f"r{k + 1}": request.line for k, request in enumerate(trace.requests)}
    why = reasons(question, bound.lost, lines)
    row = PlanRow(machine, rate, question, bound, None, None, why, left_out=left_out)
    errors: Sequence[Fraction | None] = options.errors or (None,)
    for error in errors:
        at = question if error is None else predicted(question, error, options.seed)
        for more in _searched(replace(row, question=at, error=error), options, began, tell):
            yield [*known, more]
        known.append(more)
        row = replace(row, split=more.split)
        began = time.monotonic()


def _searched(row: PlanRow, options: PlanOptions, began: float, tell: Tell) -> Iterator[PlanRow]:
    """A row with its bound, over again with more of it each time."""

    def so_far(**known: Any) -> PlanRow:
        return replace(row, **known, seconds=time.monotonic() - began)

    yield so_far()
    question, bound = row.question, row.bound
    if bound.machines is not None:
        for found, online in uppers(question, bound, options.schedulers, tell):
            row = so_far(found=found, online=online)
            yield row
        if options.compare is not None:
            row = so_far(policies=policy_machines(question, bound.machines, options.compare))
            yield row
        if options.scaling is not None and row.found is not None:
            row = so_far(scaled=scaled(question, bound, row.found, row.online, options.scaling))
            yield row
        if options.window is not None:
            how = options.scaling or Scaling()
            for windows in autoscalings(question, options.window, how, options.schedulers, tell):
                row = so_far(windows=windows)
                yield row
    if options.split is not None and row.split is None:
        for more in _split(row, options, options.split, tell):
            yield so_far(split=more)


def _split(row: PlanRow, options: PlanOptions, split: Split, tell: Tell) -> Iterator[SplitPlan]:
    """Prefill machines of the type of a row, and decode machines; over again with more of it each time."""
    decode = row.decode_machine(split)
    question, left_out = row.question, 0
    if options.skip_unfit:
        question, left_out = held_apart(question, row.left_out, decode.system)
    asked = ApartQuestion(question, decode.system, decode.cost, split.transfer)
    prices = None
    if row.machine.price is not None and decode.price is not None:
        prices = row.machine.price, decode.price
    for known in split_plan(asked, online_of(options.schedulers) or SCHEDULERS, prices, tell):
        yield replace(known, left_out=left_out)


def predicted(question: FleetQuestion, error: Fraction, seed: int) -> FleetQuestion:
    """The question with predicted outputs, see `infermax_opt.infermax.data.ecoserve.with_predictions`.

    Parameters
    ----------
    question : FleetQuestion
    error : Fraction
        Spread of the relative error.
    seed : int
    """
    return replace(question, workload=with_predictions(question.workload, float(error), seed))
