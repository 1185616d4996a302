"""Solves an iteration instance through a formulation: build, lower, run HiGHS, read back.

Formulations of this problem are found through the entry points of group ``infermax_opt.iteration_models``.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Scope
from infermax_opt.engines.formulations import BuiltModel, load_formulation, run_model
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Termination
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.replay.check import check_selection

if TYPE_CHECKING:
    from pyomo.core import ConcreteModel

__all__ = [
    "GROUP", "IterationFormulation", "build_formulation", "get_iteration_formulation", "solve_formulation",
]  # fmt: skip

GROUP = "infermax_opt.iteration_models"
#: Requests, and pairs of prefills where attention is a product, beyond which a model is refused.
MOST_COLUMNS = 8_000
#: Parts of a unit of the objective, which is whole; HiGHS lowers its bounds by a small share.
PARTS = 1024
#: Most ratios of an iterated formulation; each is better than the last, and few are needed.
MOST_ROUNDS = 30


class IterationFormulation(Protocol):
    """A mathematical model of the iteration problem.

    Every valid selection of one request at least can be set into the model with `warm_start`; it then
    satisfies every constraint, and `extract` gives it back.  Where it `iterates`, its objective is the
    ratio's ticks and values, ``value * T - ticks * V``; else the negated rate V / T in units of ``1 /
    model.scale``.
    """

    @property
    def name(self) -> str:
        """Name under which it is found."""
        ...

    @property
    def iterates(self) -> bool:
        """Whether it is solved for one ratio after another."""
        ...

    def build(self, instance: IterationInstance, value: int, ticks: int) -> ConcreteModel:
        """Model of all batches, for a ratio.

        Parameters
        ----------
        instance : IterationInstance
        value, ticks : int
            So many units of value to so many ticks.
        """
        ...

    def warm_start(self, m: ConcreteModel, selection: Selection) -> None:
        """Set every variable to what a selection does."""
        ...

    def extract(self, m: ConcreteModel) -> Selection:
        """Read the selection from the variables."""
        ...


def get_iteration_formulation(name: str) -> IterationFormulation:
    """Load a formulation by name.

    Raises
    ------
    InputError
        If no formulation of iterations has that name.
    """
    formulation: IterationFormulation = load_formulation(name, GROUP)
    return formulation


def build_formulation(
    instance: IterationInstance, name: str, *, warm: Selection | None
) -> BuiltModel[Selection]:
    """Build the model that `solve_formulation` hands to HiGHS first.

    Parameters
    ----------
    instance : IterationInstance
    name : str
        Of the formulation.
    warm : Selection, optional
        Whose ratio it is for; without one, 0.

    Raises
    ------
    InputError
        If there is no such formulation, it does not cover the instance, or the model would be too large.
    """
    formulation = get_iteration_formulation(name)
    prefills = sum(r.prefills for r in instance.requests)
    columns = len(instance.requests) + (prefills**2 // 2 if instance.machine.product else 0)
    if columns > MOST_COLUMNS:
        raise InputError(f"{columns} columns or more; the most is {MOST_COLUMNS}", field="formulation")
    value, length = _ratio(instance, warm)
    try:
        model = formulation.build(instance, value, length)
    except ValueError as error:
        raise InputError(f"{name}: {error}", field="formulation") from None
    return BuiltModel(formulation, model, 1, Scope.EXACT, {"requests": len(instance.requests)}, warm)


def _ratio(instance: IterationInstance, selection: Selection | None) -> tuple[int, int]:
    """Units of value and ticks of a selection; of none, 0."""
    if selection is None:
        return 0, 1
    ticks, batch = Ticks.of(instance), check_selection(instance, selection).batch
    worth = ticks.worth(batch)
    return (worth, ticks.time(batch)) if worth else (0, 1)


def solve_formulation(
    instance: IterationInstance, name: str, *, warm: Selection | None, limits: EngineLimits
) -> EngineOutcome[Selection]:
    """Solve an instance with a formulation.

    An iterated one is solved for the ratio of the best selection, until none is better.

    Parameters
    ----------
    instance : IterationInstance
    name : str
        Of the formulation.
    warm : Selection, optional
        A valid selection to start from.
    limits : EngineLimits
        Of all solves together; building the models counts towards their time.

    Raises
    ------
    InputError
        If there is no such formulation, it does not cover the instance, or the model would be too large.
    """
    began, best, rounds = time.monotonic(), warm, 0
    bounds, accepted, ended = list[LowerBound](), None, Termination.TIME_LIMIT
    details: dict[str, Any] = {}
    for rounds in range(1, MOST_ROUNDS + 1):
        left = None if limits.seconds is None else limits.seconds - (time.monotonic() - began)
        if rounds > 1 and left is not None and left <= 0:
            break
        built = build_formulation(instance, name, warm=best)
        share = replace(limits, seconds=left)
        solved = run_model(built, "highs", limits=share, began=time.monotonic(), parts=PARTS)
        accepted = solved.start_accepted if rounds == 1 else accepted
        ended, details = solved.run.termination, {**solved.sizes, **solved.run.details}
        if solved.bound is not None:
            seconds = _bound(instance, built, solved.bound, _ratio(instance, best))
            text = f"HiGHS proved it on the formulation {name}"
            bounds.append(LowerBound(seconds, f"highs:{name}", Proof.SOLVER, reason=text))
        found = solved.schedule()
        if best is None and ended == Termination.INFEASIBLE:
            # Batches of the model hold a request; so only that of nobody keeps most of them.
            best = Selection(instance.name, ())
        if found is None or not _better(instance, found, best):
            break
        best = found
        if not get_iteration_formulation(name).iterates:
            break
    lower = max(bounds, key=lambda bound: bound.value, default=None)
    return EngineOutcome(best, lower, ended, None, accepted, {**details, "rounds": rounds})


def _better(instance: IterationInstance, found: Selection, best: Selection | None) -> bool:
    """Whether a selection is valid, and better than the best so far."""
    checked = check_selection(instance, found)
    if not checked.valid:
        return False
    if best is None:
        return True
    ticks = Ticks.of(instance)
    kept, before = (len(ticks.kept(check_selection(instance, some).batch)) for some in (found, best))
    value, length = _ratio(instance, found)
    known, time_of_it = _ratio(instance, best)
    return kept > before or (kept == before and value * time_of_it > known * length)


def _bound(
    instance: IterationInstance, built: BuiltModel[Selection], bound: int, ratio: tuple[int, int]
) -> Fraction:
    """Seconds per value at least, where the objective of the model is no less than `bound`.

    With F >= q V - p T for every batch, V / T <= p / q + F / (q T_min).  Of a model of rates, which rounds
    them to whole parts, one part is added.
    """
    ticks, (p, q) = Ticks.of(instance), ratio
    if built.formulation.iterates:  # type: ignore[attr-defined]
        best = Fraction(p, q) + Fraction(max(0, -bound), q * built.model.work.least_time)
    else:
        best = Fraction(1 - bound, built.model.scale)
    return ticks.worst if best <= 0 else min(ticks.worst, ticks.units / (best * ticks.scale))
