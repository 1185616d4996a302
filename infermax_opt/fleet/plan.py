"""A sweep: how many machines of each type a trace needs at each rate, from below and from above."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.arrivals import compressed
from infermax_opt.files.traces import Trace
from infermax_opt.fleet.apart import ApartQuestion, check_pools, held_apart
from infermax_opt.fleet.autoscaling import autoscalings, window_count
from infermax_opt.fleet.bounds.alone import reasons
from infermax_opt.fleet.bounds.pooled import pooled_bounds
from infermax_opt.fleet.exact import cheapest, few, found_of
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.plan_row import PlanOptions, PlanRow, Split
from infermax_opt.fleet.planned import check_schedulers, knows_outputs, online_of, uppers
from infermax_opt.fleet.question import FleetQuestion, Unfit
from infermax_opt.fleet.scaling import Scaling, scaled
from infermax_opt.fleet.split import SplitPlan, split_plan
from infermax_opt.fleet.upper import SCHEDULERS, policy_machines
from infermax_opt.infermax.data.ecoserve import with_predictions
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup
from infermax_opt.infermax.data.objective import Objective
from infermax_opt.infermax.data.traces import misfit

__all__ = ["check_asked", "plan", "predicted", "question_of", "rows_at"]

Tell = Callable[[str], None] | None


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
        If there is no limit to keep, no rate or no request that fits a machine, if there are no windows of
        that length or too many, or no scheduler is fit for predictions.
    """
    _check_options(rates, options)
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


def _check_options(rates: Sequence[Fraction], options: PlanOptions) -> None:
    """Check what the trace and the machines do not matter for."""
    if not options.slo:
        raise InputError("needs a limit of the TTFT, the TPOT or the end-to-end latency", field="slo")
    if not rates:
        raise InputError("needs a rate", field="rates")
    if options.window is not None and options.window <= 0:
        length = f"{float(options.window):g} s"
        raise InputError(f"{length} is no length of windows; it has to be above 0", field="windows")
    check_schedulers(options.schedulers, options.compare, options.errors)


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
    lines = {f"r{k + 1}": request.line for k, request in enumerate(trace.requests)}
    errors: Sequence[Fraction | None] = options.errors or (None,)
    asked = [question if error is None else predicted(question, error, options.seed) for error in errors]
    # Bounds hold for schedulers that know all outputs, so for any prediction.
    for bound in pooled_bounds(question, tell):
        why = reasons(question, bound.lost, lines)
        row = PlanRow(machine, rate, asked[0], bound, None, None, why, left_out=left_out, error=errors[0])
        yield [replace(row, seconds=time.monotonic() - began)]
    known = list[PlanRow]()
    for at, error in zip(asked, errors, strict=True):
        for more in _searched(replace(row, question=at, error=error), options, began, tell):
            yield [*known, more]
        known.append(more)
        row = replace(row, split=more.split, decided=more.decided)
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
        row = so_far(**_decided(row, options, tell))
        yield row
    if row.lower is not None:
        if options.compare is not None:
            row = so_far(policies=policy_machines(question, row.lower, options.compare))
            yield row
        if options.scaling is not None and row.found is not None:
            row = so_far(scaled=scaled(question, bound, row.found, row.online, options.scaling))
            yield row
        if options.window is not None:
            how = options.scaling or Scaling()
            for windows in autoscalings(question, options.window, how, options.schedulers, tell, row.found):
                row = so_far(windows=windows)
                yield row
    if options.split is not None and row.split is None:
        for more in _split(row, options, options.split, tell):
            yield so_far(split=more)


def _decided(row: PlanRow, options: PlanOptions, tell: Tell) -> dict[str, Any]:
    """What a search of all routings and schedules adds to a row of few requests whose bounds are apart."""
    question, upper = row.question, row.upper
    if row.lower == upper or not few([question]):
        return {}
    decided = row.decided or cheapest([question], [Fraction(1)], tell)
    if decided is None:
        return {}
    if decided.machines in (None, upper) or not knows_outputs(question, options.schedulers):
        return {"decided": decided}
    return {"decided": decided, "found": found_of(question, decided, row.found)}


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
