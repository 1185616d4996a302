"""All that a plan asks for, one thing after the other, until it is done or was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

from infermax_opt.core.errors import InputError
from infermax_opt.core.interrupts import Stopped
from infermax_opt.files.traces import Trace
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.mix import Mix, mixes
from infermax_opt.fleet.plan import check_asked, predicted, question_of, rows_at
from infermax_opt.fleet.plan_row import PlanOptions, PlanRow
from infermax_opt.fleet.planned import knows_outputs
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.sustains import Sustained, sustained

__all__ = ["Plan", "Sweep", "sweep"]

Tell = Callable[[str], None] | None


@dataclass(frozen=True)
class Sweep:
    """What is asked of all machines together.

    Parameters
    ----------
    machines : sequence of MachineType
    rates : sequence of Fraction
    options : PlanOptions
        Of each row.
    fleets : sequence of int
        Numbers of machines of which the highest rate is searched for.
    mix : bool
        Whether the cheapest mix of the types is searched for at each rate.  It and the highest rates go by
        the first of the errors of predictions, and the first variant of the machines.
    time_limit : float or None
        Seconds.
    """

    machines: Sequence[MachineType]
    rates: Sequence[Fraction]
    options: PlanOptions
    fleets: Sequence[int] = ()
    mix: bool = False
    time_limit: float | None = None


@dataclass
class Plan:
    """What is known of a sweep.

    Attributes
    ----------
    rows : list of PlanRow
    mixes : list of (Fraction, Mix)
        By rate.
    sustained : list of (str, Sustained)
        By type of machine.
    stopped : str or None
        Why it ended before it was done, and what it was at.
    """

    rows: list[PlanRow] = field(default_factory=list)
    mixes: list[tuple[Fraction, Mix]] = field(default_factory=list)
    sustained: list[tuple[str, Sustained]] = field(default_factory=list)
    stopped: str | None = None


class _Watch:
    """Passes progress on, and stops the plan at its time limit, but not before a first bound is known."""

    def __init__(self, tell: Tell, known: Plan, time_limit: float | None):
        self.tell, self.known, self.last = tell, known, ""
        self.until = None if time_limit is None else time.monotonic() + time_limit

    def __call__(self, text: str) -> None:
        again, self.last = text == self.last, text
        if self.known.rows and self.until is not None and time.monotonic() > self.until:
            raise Stopped
        if self.tell is not None and not again:
            self.tell(text)


def sweep(trace: Trace, asked: Sweep, tell: Tell = None) -> Plan:
    """The plan; what is known of it where Ctrl-C or the time limit stops it.

    Parameters
    ----------
    trace : Trace
    asked : Sweep
    tell : callable, optional
        Takes lines of progress.

    Raises
    ------
    InputError
        If no request fits a machine, or an option is unusable.
    KeyboardInterrupt
        If it was stopped before anything was known.
    """
    check_asked(trace, asked.machines, asked.rates, asked.options)
    if asked.mix and any(machine.price is None for machine in asked.machines):
        raise InputError("mixes need a price of each type", field="prices")
    if asked.mix and asked.options.skip_unfit:
        raise InputError(
            "goes without --skip-unfit: what fits no machine of a type may fit another", field="mix"
        )
    known = Plan()
    watch = _Watch(tell, known, asked.time_limit)
    try:
        for _ in _steps(trace, asked, known, watch):
            pass
    except KeyboardInterrupt as stop:
        if not known.rows:
            raise
        why = f"the time limit of {asked.time_limit:g} s" if isinstance(stop, Stopped) else "an interrupt"
        known.stopped = f"{why}, at: {watch.last}"
    return known


def _steps(trace: Trace, asked: Sweep, known: Plan, watch: _Watch) -> Iterator[None]:
    """Fill the plan, a step at a time."""
    variants = asked.options.variants
    for machine, variant in product(asked.machines, variants):
        for rate in sorted(asked.rates):
            place = len(known.rows)
            for rows in rows_at(trace, machine.varied(variant), rate, asked.options, watch):
                known.rows[place:] = rows
                yield
    if asked.mix:
        for rate in sorted(asked.rates):
            watch(f"mixes at rate {float(rate):g}")
            error = next(iter(asked.options.errors), None)
            wanted = rate, error, variants[0]
            rows = [row for row in known.rows if (row.rate, row.error, row.machine.variant) == wanted]
            place = len(known.mixes)
            for mix in _mixes(rows, asked.options, watch):
                known.mixes[place:] = [(rate, mix)]
            yield
    for machine in asked.machines:
        for count in asked.fleets:
            first = machine.varied(variants[0])
            known.sustained.append((machine.name, _sustained(trace, first, count, asked, watch)))
            yield


def _mixes(rows: Sequence[PlanRow], options: PlanOptions, watch: _Watch) -> Iterator[Mix]:
    """Ever cheaper mixes of the types of these rows, all at one rate."""
    prices = [row.machine.price for row in rows if row.machine.price is not None]
    questions, singles = [row.question for row in rows], [row.upper for row in rows]
    yield from mixes(questions, prices, singles, knows_outputs(questions[0], options.schedulers), watch)


def _sustained(trace: Trace, machine: MachineType, count: int, asked: Sweep, watch: _Watch) -> Sustained:
    def at(rate: Fraction) -> FleetQuestion:
        question, _ = question_of(trace, machine, rate, asked.options)
        error = next(iter(asked.options.errors), None)
        return question if error is None else predicted(question, error, asked.options.seed)

    def told(text: str) -> None:
        watch(f"{machine.name}, {text}")

    return sustained(at, count, max(asked.rates), asked.options.schedulers, told)
