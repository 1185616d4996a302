"""Solves a makespan instance through a formulation: build, lower, run an engine, read back.

Formulations of this problem are found through the entry points of group ``infermax_opt.makespan_models``.

*Bins.*  A model holds the schedules with at most so many bins, and is larger with each.  A bin that prefills
nothing can be joined to the one before (`infermax_opt.makespan.data.schedule.merged`), so some optimal
schedule has no more bins than requests.  Let a schedule of T ticks be known.  One of K bins, all of which
prefill, takes at least K times the ticks of the cheapest level and the ticks of the rounds that every
schedule has.  If that is T or more, it is not better.  So a model with all smaller numbers of bins, and as
many as the known schedule has, holds an optimal schedule: its numbers are exact.

With fewer bins, where the model would be too large otherwise, its schedules are valid and its bound is not:
it is a restriction.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Scope
from infermax_opt.engines.formulations import BuiltModel, load_formulation, run_model
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome
from infermax_opt.makespan.bounds.closed_form import rounds_needed
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule, merged
from infermax_opt.makespan.replay.bins import replay_valid

if TYPE_CHECKING:
    from pyomo.core import ConcreteModel

    from infermax_opt.engines.process import Engine

__all__ = ["MakespanFormulation", "build_formulation", "get_makespan_formulation", "solve_formulation"]

GROUP = "infermax_opt.makespan_models"
#: Entries of the matrix beyond which a model is not built; one of so many takes about 12 s.
MOST_ENTRIES = 1_000_000
#: Parts of a tick in which the objective is stated; makespans are whole ticks.
PARTS = 1024


class MakespanFormulation(Protocol):
    """A mathematical model of the makespan problem, whose objective is the makespan in ticks.

    Every valid schedule with at most `bins` bins, all of which prefill, can be set into the model with
    `warm_start`; it then satisfies every constraint, and the objective equals its makespan.  `extract` gives
    a valid schedule that takes no longer than the objective says.
    """

    @property
    def name(self) -> str:
        """Name under which it is found."""
        ...

    def entries(self, instance: MakespanInstance, bins: int) -> int:
        """About how many entries the matrix of the model has."""
        ...

    def build(self, instance: MakespanInstance, bins: int) -> ConcreteModel:
        """Model of all schedules with at most so many bins."""
        ...

    def warm_start(self, m: ConcreteModel, schedule: MakespanSchedule) -> None:
        """Set every variable to what a schedule does."""
        ...

    def extract(self, m: ConcreteModel) -> MakespanSchedule:
        """Read the schedule from the variables."""
        ...


def get_makespan_formulation(name: str) -> MakespanFormulation:
    """Load a formulation by name.

    Raises
    ------
    InputError
        If no formulation of makespan instances has that name.
    """
    formulation: MakespanFormulation = load_formulation(name, GROUP)
    return formulation


def build_formulation(
    instance: MakespanInstance, name: str, *, warm: MakespanSchedule | None
) -> BuiltModel[MakespanSchedule]:
    """Build the model that `solve_formulation` hands to an engine.

    Parameters
    ----------
    instance : MakespanInstance
    name : str
        Of the formulation.
    warm : MakespanSchedule, optional
        As in `solve_formulation`.

    Raises
    ------
    InputError
        If there is no such formulation, or the model would be too large.
    ValueError
        If `warm` is not valid.
    """
    formulation = get_makespan_formulation(name)
    start = None if warm is None else MakespanSchedule(warm.instance, merged(warm.bins))
    enough = _enough_bins(instance, start)
    bins = _bins(formulation, instance, start, enough)
    scope = Scope.EXACT if bins == enough else Scope.RESTRICTION
    model = formulation.build(instance, bins)
    return BuiltModel(formulation, model, instance.ticks_per_second, scope, {"bins": bins}, start)


def solve_formulation(
    instance: MakespanInstance,
    name: str,
    engine: Engine,
    *,
    warm: MakespanSchedule | None,
    limits: EngineLimits,
) -> EngineOutcome[MakespanSchedule]:
    """Solve an instance with a formulation and an engine.

    Parameters
    ----------
    instance : MakespanInstance
    name : str
        Of the formulation.
    engine : {"highs", "cpsat"}
    warm : MakespanSchedule, optional
        A valid schedule to start from.  It limits the bins that the model needs.
    limits : EngineLimits
        Of the engine; building the model counts towards its time.

    Returns
    -------
    EngineOutcome
        Its details hold ``bins``, those of the model, and ``scope``.

    Raises
    ------
    InputError
        If there is no such formulation, or the model would be too large.
    ValueError
        If `warm` is not valid.
    """
    began = time.monotonic()
    built = build_formulation(instance, name, warm=warm)
    solved = run_model(built, engine, limits=limits, began=began, parts=PARTS)
    upper = None if solved.objective is None else solved.objective / instance.ticks_per_second
    found = None
    if solved.bound is not None and built.scope is Scope.EXACT:
        value = Fraction(solved.bound, instance.ticks_per_second)
        found = LowerBound(value, f"{engine}:{name}", Proof.SOLVER)
    details = {"scope": built.scope.value, **built.window, **solved.sizes, **solved.run.details}
    ended = solved.run.termination
    return EngineOutcome(solved.schedule(), found, ended, upper, solved.start_accepted, details)


def _enough_bins(instance: MakespanInstance, known: MakespanSchedule | None) -> int:
    """Bins of a model that holds an optimal schedule; see the head of the module."""
    most = len(instance.requests)
    if known is None:
        return most
    found = replay_valid(instance, known, most)
    ticks = sum(found.prefill_ticks) + sum(found.decode_ticks)
    cheapest = instance.level_ticks[0][1]
    if cheapest > 0:
        rounds = rounds_needed([r.output_tokens for r in instance.requests], instance.clients)
        most = min(most, max(0, ticks - 1 - instance.round_ticks * rounds) // cheapest)
    return max(most, len(known.bins))


def _bins(
    formulation: MakespanFormulation, instance: MakespanInstance, known: MakespanSchedule | None, enough: int
) -> int:
    """As many bins as are enough, or as a model may have; no fewer than those of the known schedule."""
    bins = enough
    least = enough if known is None else len(known.bins)
    while formulation.entries(instance, bins) > MOST_ENTRIES:
        if bins == least:
            entries = formulation.entries(instance, bins)
            problem = f"about {entries} entries for {bins} bins; the most is {MOST_ENTRIES}"
            raise InputError(problem, field="formulation")
        bins -= 1
    return bins
