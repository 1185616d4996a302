"""Solves an instance through a formulation: build, lower, run an engine, read back, replay."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Scope
from infermax_opt.engines.formulations import BuiltModel, ModelRun, formulation_names, run_model
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Progress, Termination
from infermax_opt.infermax.bounds.most_batches import proved_batches
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.formulation import (
    EXTRA,
    GROUP,
    Formulation,
    get_formulation,
    refusal,
    trajectory,
)
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.metrics import measure, objective_value
from infermax_opt.infermax.replay.waits import with_best_waits

if TYPE_CHECKING:
    from infermax_opt.engines.process import Engine, EngineRun

__all__ = ["MAX_COLUMNS", "build_formulation", "covering", "one_by_one", "solve_formulation"]

#: Columns beyond which a model is refused: building it would take longer than any solver's hope.
MAX_COLUMNS = 150_000


def one_by_one(instance: Instance) -> Schedule:
    """Serve the requests one after the other: poor, but valid for every instance."""
    batches: list[Batch] = []
    for request in sorted(instance.requests, key=lambda r: r.arrival):
        left = request.input_tokens
        while left:
            tokens = min(left, instance.system.prefill_budget)
            batches.append(Batch({request.id: tokens}, start=request.arrival or None))
            left -= tokens
        batches.extend(Batch({request.id: 1}) for _ in range(request.output_tokens - 1))
    return Schedule(instance.name, tuple(batches))


def without_lost_prefills(instance: Instance, schedule: Schedule) -> Schedule:
    """The same schedule less the prefills that were evicted before they led to a token.

    They serve nothing; but where tokens are free a model may hold some.  `schedule` names every
    batch on its own (`repeat` 1), as extracted ones do.
    """
    tokens = [dict(batch.tokens) for batch in schedule.batches]
    evict = [list(batch.evict) for batch in schedule.batches]
    pending: dict[int, list[int]] = {}  # request -> batches of its prefill under way
    for j, moves in enumerate(trajectory(instance, schedule)):
        for i, move in enumerate(moves):
            if move.evicted and pending.get(i):
                name = instance.requests[i].id
                evict[j].remove(name)
                for k in pending.pop(i):
                    del tokens[k][name]
            elif move.generates:
                pending.pop(i, None)
            elif move.tokens:
                pending.setdefault(i, []).append(j)
    batches = [
        replace(batch, tokens=chunks, evict=tuple(names))
        for batch, chunks, names in zip(schedule.batches, tokens, evict, strict=True)
        if chunks or names
    ]
    return replace(schedule, batches=tuple(batches))


def replayed_objective(instance: Instance, schedule: Schedule) -> Fraction | None:
    """Exact objective in its unit; None if the schedule breaks a rule."""
    replayed = replay(instance, schedule)
    if not replayed.valid:
        return None
    return objective_value(instance.objective, measure(instance, replayed))


def able_formulation(instance: Instance, name: str | None) -> str:
    """Name of a formulation that covers the instance: that one, or the best of those that do.

    Raises
    ------
    InputError
        If there is none.
    """
    if name is None and instance.pays_extra:
        raise InputError(f"no formulation takes this instance: {EXTRA}", field="solver")
    if name is None:
        why_not = {n: refusal(get_formulation(n), instance) for n in formulation_names(GROUP)}
        able = [n for n, why in why_not.items() if why is None]
        if not able:
            reasons = "; ".join(f"{n}: {why}" for n, why in why_not.items())
            raise InputError(f"no formulation takes this instance: {reasons}", field="solver")
        name = "flow" if "flow" in able else able[0]
    why = refusal(get_formulation(name), instance)
    if why is not None:
        raise InputError(f"{name!r} does not take this instance: {why}", field="formulation")
    return name


def covering(instance: Instance, name: str) -> Formulation:
    """The formulation of that name.

    Raises
    ------
    InputError
        If there is none, or it does not cover the instance.
    """
    formulation = get_formulation(name)
    reason = refusal(formulation, instance)
    if reason is not None:
        raise InputError(f"formulation {name!r} does not cover this instance: {reason}")
    return formulation


@dataclass(frozen=True)
class _Task:
    """What is to be solved: the start, its objective, the batches modelled and their scope."""

    incumbent: Schedule
    upper: Fraction
    batches: int
    scope: Scope

    @classmethod
    def of(
        cls, instance: Instance, formulation: Formulation, warm: Schedule | None, horizon: int | None
    ) -> _Task:
        incumbent = warm or one_by_one(instance)
        if replayed_objective(instance, incumbent) is None:
            raise InputError("the warm start is not a valid schedule", field="warm_start")
        incumbent = with_best_waits(instance, incumbent)
        upper = replayed_objective(instance, incumbent)
        if upper is None:
            raise RuntimeError("other waits broke a schedule")
        proved = proved_batches(instance, upper)
        batches = horizon if horizon is not None else proved
        columns = formulation.columns(instance, batches)
        if columns > MAX_COLUMNS:
            raise InputError(
                f"{columns} columns for {batches} batches; the most is {MAX_COLUMNS}", field="horizon"
            )
        return cls(incumbent, upper, batches, formulation.scope(instance, batches, proved))

    def build(
        self, instance: Instance, formulation: Formulation, warm: Schedule | None
    ) -> BuiltModel[Schedule]:
        """Its model, which starts from the incumbent if that was given."""
        model = formulation.build(instance, self.batches)
        window = {"batches": self.batches}
        # A start that is longer than the horizon, or off the chunk grid, is left out.
        start = None if warm is None else self.incumbent
        return BuiltModel(formulation, model, model.ticks_per_second, self.scope, window, start)


def build_formulation(
    instance: Instance, formulation_name: str, *, warm: Schedule | None = None
) -> BuiltModel[Schedule]:
    """Build the model that `solve_formulation` hands to an engine.

    Parameters
    ----------
    instance : Instance
    formulation_name : str
        See `infermax_opt.infermax.formulation.get_formulation`.
    warm : Schedule, optional
        As in `solve_formulation`.

    Raises
    ------
    InputError
        If the formulation does not cover the instance, or the model would be too large.
    """
    formulation = covering(instance, formulation_name)
    return _Task.of(instance, formulation, warm, None).build(instance, formulation, warm)


def solve_formulation(
    instance: Instance,
    formulation_name: str,
    engine: Engine,
    *,
    warm: Schedule | None = None,
    limits: EngineLimits | None = None,
    horizon: int | None = None,
    progress: Progress | None = None,
) -> EngineOutcome[Schedule]:
    """Solve `instance` with a formulation and an engine.

    Parameters
    ----------
    instance : Instance
    formulation_name : str
        See `infermax_opt.infermax.formulation.get_formulation`.
    engine : str
        One of `infermax_opt.engines.worker.ENGINES`.
    warm : Schedule, optional
        Valid schedule to start from; it also bounds the number of batches.  Without one the
        requests are served one by one for that purpose.
    limits : EngineLimits, optional
    horizon : int, optional
        Batches modelled; by default as many as an optimal schedule can have, which makes the
        bound hold for the instance.  With fewer there is no bound.
    progress : callable, optional
        Receives lines for people.

    Raises
    ------
    InputError
        If the formulation does not cover the instance, or the model would be too large.
    """
    limits = limits or EngineLimits()
    formulation = covering(instance, formulation_name)
    began = time.monotonic()
    task = _Task.of(instance, formulation, warm, horizon)
    built = task.build(instance, formulation, warm)
    unit, source = built.parts_per_unit, f"{engine}:{formulation_name}"

    def listen(kind: str, ticks: int) -> None:
        if progress is not None:
            progress(f"{source}: {kind} {ticks / unit:.6g} {instance.unit[1]}")

    solved = run_model(built, engine, limits=limits, began=began, listen=listen)
    run = solved.run
    schedule, best = _best_schedule(instance, task, solved, warm=warm is not None)
    lower_bound, termination, failure = _checked(run, _lower_bound(run, source, unit, task.scope), task)
    return EngineOutcome(
        schedule=schedule,
        lower=lower_bound,
        termination=termination,
        upper=best,
        warm_start_accepted=solved.start_accepted,
        details={
            **solved.sizes,
            "horizon": task.batches,
            "scope": task.scope.value,
            "bound_source": run.bound_source,
            **run.details,
            **failure,
        },
    )


def _best_schedule(
    instance: Instance, task: _Task, solved: ModelRun[Schedule], *, warm: bool
) -> tuple[Schedule | None, Fraction | None]:
    """The better of what the engine found and what it started from (if `warm`), and its value."""
    if task.scope is Scope.RELAXATION:
        return None, None
    schedule, best = (task.incumbent, task.upper) if warm else (None, None)
    read = solved.schedule()
    if read is not None:
        found = with_best_waits(instance, without_lost_prefills(instance, read))
        value = replayed_objective(instance, found)
        if value is not None and (best is None or value <= best):
            return found, value
    return schedule, best


def _checked(
    run: EngineRun, bound: LowerBound | None, task: _Task
) -> tuple[LowerBound | None, str, dict[str, str]]:
    """The bound, the termination, and why the engine is called crashed where it told an untruth."""
    if run.termination == Termination.INFEASIBLE and task.scope is Scope.EXACT:
        # Every instance has a schedule, and every optimal one fits the horizon.
        return None, Termination.CRASHED, {"failure": "the solver calls a feasible model infeasible"}
    if bound is not None and bound.value > task.upper:
        failure = f"the solver claims the bound {float(bound.value)!r}, which is wrong"
        return None, Termination.CRASHED, {"failure": failure}
    return bound, run.termination, {}


def _lower_bound(run: EngineRun, source: str, unit: int, scope: Scope) -> LowerBound | None:
    if run.bound is None or scope is Scope.RESTRICTION:
        return None
    value = max(Fraction(0), Fraction(run.bound, unit))
    return LowerBound(value, source, Proof.SOLVER)
