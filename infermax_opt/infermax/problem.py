"""The InferMax problem as the rest of the house sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.result import Claim, LowerBound, Result
from infermax_opt.core.values import MetricRow
from infermax_opt.infermax.certificates import CERTIFICATION, InferMaxCertification
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.intervals import refuse_intervals, slowest
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.metrics import DEFINITIONS, Metrics

if TYPE_CHECKING:
    from infermax_opt.core.admissions import Admission
    from infermax_opt.core.columns import RowKind
    from infermax_opt.core.importing import Importer
    from infermax_opt.core.readings import Reading
    from infermax_opt.core.solve_options import SolveOptions
    from infermax_opt.core.suite import Case
    from infermax_opt.engines.formulations import BuiltModel
    from infermax_opt.infermax.scoring import InferMaxScoring
    from infermax_opt.infermax.verify import Verification

__all__ = ["InferMaxProblem"]


class InferMaxProblem(Problem[Instance, Schedule, Metrics]):
    """Batches of requests on one machine; see `infermax_opt.core.problem.Problem`."""

    name = "infermax"
    about = "batches of requests on one machine with a KV cache"
    instance = Instance
    schedule = Schedule
    metrics = Metrics
    decisions = "batches"
    heuristic = "scheduler"
    heuristics_title = "schedulers"
    engines = ("auto", "search", "highs", "cpsat")

    @property
    def certification(self) -> InferMaxCertification:
        """Of the makespan bounds."""
        return CERTIFICATION

    def instance_from_json(self, value: object) -> Instance:
        """Build an instance from parsed JSON."""
        from infermax_opt.infermax.data.formats import instance_from_json

        return instance_from_json(value)

    def instance_to_json(self, instance: Instance) -> dict[str, Any]:
        """Return the JSON value of an instance."""
        from infermax_opt.infermax.data.formats import instance_to_json

        return instance_to_json(instance)

    def schedule_from_json(self, value: object, path: str) -> Schedule:
        """Build a schedule from parsed JSON."""
        from infermax_opt.infermax.data.formats import schedule_from_json

        return schedule_from_json(value, path)

    def schedule_to_json(self, schedule: Schedule) -> dict[str, Any]:
        """Return the JSON value of a schedule."""
        from infermax_opt.infermax.data.formats import schedule_to_json

        return schedule_to_json(schedule)

    def verify(
        self, instance: Instance, schedule: Schedule | None, subject: Schedule | Claim
    ) -> Verification:
        """Verify a schedule, and what a claim says of it.

        Parameters
        ----------
        instance : instance
        schedule : schedule, optional
            Of the subject; None where that is a bound alone.
        subject : schedule or Claim
            The schedule itself, or all that is claimed with it.
        """
        from infermax_opt.infermax.verify import verify_schedule

        return verify_schedule(instance, schedule, subject)

    def bounds(self, instance: Instance, *, stop: Callable[[], bool] | None = None) -> Iterator[LowerBound]:
        """Closed forms, then what searches for multipliers and potentials find."""
        from infermax_opt.infermax.bounds import closed_form_bounds

        yield from closed_form_bounds(instance)
        if instance.objective.is_searched and not (stop is not None and stop()):
            from infermax_opt.infermax.bounds.searched import searched_bounds

            yield from searched_bounds(instance, stop=stop)

    def objective_meaning(self, instance: Instance) -> str:
        """The objective in words; a weighted sum names its parts."""
        objective = instance.objective
        if objective.name == "throughput":
            return "throughput: generated tokens / makespan; stated as the makespan, s, which is minimised"
        if objective.name is not None:
            return f"{objective.name}: {DEFINITIONS[objective.name]}; minimised"
        if objective.limits:
            return f"{objective}: the largest ratio to a limit; minimised, all are kept if it is at most 1"
        return f"{objective}, {objective.unit[0]}; minimised"

    def objective_to_json(self, instance: Instance) -> Any:
        """A name, or weights by metric."""
        return instance.objective.to_json()

    def remarks(self, instance: Instance, metrics: Metrics) -> tuple[str, ...]:
        """What an undefined metric counts in the objective."""
        rest = [metric for metric in instance.objective.metrics if metric is not Metric.MAKESPAN]
        if any(getattr(metrics, metric.value) is None for metric in rest):
            return ("an undefined metric counts as 0 in the objective",)
        return ()

    def aimed(self, instance: Instance, objective: str | None, slos: Sequence[str]) -> Instance:
        """The instance with another objective and other service levels.

        Parameters
        ----------
        instance : instance
        objective : str, optional
            Name of a metric, or a JSON object of weights; None keeps its own.
        slos : sequence of str
            ``[CLASS:]ttft=S,tpot=S,e2e=S``, each limit as wanted.
        """
        from infermax_opt.infermax.data.aims import parsed_objective, with_slos

        if objective is not None:
            instance = replace(instance, objective=parsed_objective(objective))
        return with_slos(instance, slos)

    def priced(self, instance: Instance, path: str) -> tuple[Instance, str]:
        """The instance with the cost model of a profile file, and what was replaced.

        Parameters
        ----------
        instance : instance
        path : str
            Cost profile, as `calibrate --for batches` writes it.
        """
        from infermax_opt.infermax.data.profiles import profile_of, read_profile

        found, old = read_profile(path), profile_of(instance.cost)
        own = f"the profile {old} that" if old else "the coefficients that"
        only = " (kernel time only)" if found.kernel_time_only else ""
        made = replace(instance, cost=found.cost, slowest=None)
        return made, f"{found.name}{only}, instead of {own} the instance has"

    def reading(self, instance: Instance, metric: str) -> Reading | None:
        """Tokens per second, attainment and best-effort rates.

        Parameters
        ----------
        instance : instance
        metric : str
        """
        from infermax_opt.infermax.data.readings import reading_of

        return reading_of(instance, metric)

    def question(
        self, instance: Instance, at_most: Sequence[str], at_least: Sequence[str]
    ) -> tuple[Instance, Fraction]:
        """What is asked with limits of metrics, which several may have, and with least rates and shares.

        Parameters
        ----------
        instance : instance
        at_most : sequence of str
            ``METRIC=LIMIT``, of what can be minimised.
        at_least : sequence of str
            The same, of `infermax_opt.infermax.data.readings.READINGS`.
        """
        from infermax_opt.core.questions import parsed_limits
        from infermax_opt.infermax.data.aims import keeping
        from infermax_opt.infermax.data.readings import READINGS, check_asked

        limits = parsed_limits(self, instance, at_most, names=[metric.value for metric in Metric])
        for name in limits:
            check_asked(instance, name)
        least = parsed_limits(self, instance, at_least, "at_least", names=READINGS)
        objective, target = keeping(instance, limits, least)
        return replace(instance, objective=objective), target

    def metric_rows(self, metrics: Metrics) -> Sequence[MetricRow]:
        """Percentiles together, and what is about classes and service levels where there are any."""
        return metrics.rows()

    @property
    def scoring(self) -> InferMaxScoring:
        """Of schedules and of runs on other systems."""
        from infermax_opt.infermax.scoring import InferMaxScoring

        return InferMaxScoring(self.name)

    def heuristics(self) -> Sequence[str]:
        """The schedulers of Table 1 and others, and those that other packages add."""
        from infermax_opt.infermax.heuristics import aimed_names, scheduler_names

        return (*scheduler_names(), *aimed_names())

    def heuristics_for(self, instance: Instance) -> Sequence[str]:
        """Beside these, those that tell classes and service levels apart, where there are any."""
        from infermax_opt.infermax.heuristics import names_for

        return names_for(instance)

    def heuristics_text(self) -> str:
        """One scheduler a line, and the planners."""
        from infermax_opt.infermax.heuristics import (
            INFORMED,
            PLANNERS,
            reservation_lines,
            scheduler_lines,
        )

        return "\n".join(
            [
                *scheduler_lines(),
                "each of the presets also with @rN for at most N running requests: sarathi@r64",
                "schedulers that reserve KV, with settings: ecoserve@padding=0.15,reserve=0.03,buffer=0.1:",
                *(f"  {line}" for line in reservation_lines()),
                f"schedulers that know the output lengths of what has arrived: {', '.join(INFORMED)}",
                f"planners, which know all requests from the start: {', '.join(PLANNERS)}",
                "one of your own: FILE.py:NAME, which is asked before each batch; see docs/schedulers.md",
            ]
        )

    def run_heuristic(self, instance: Instance, name: str) -> Heuristic[Schedule]:
        """Run a scheduler or planner; one in a Python file is called ``FILE.py:NAME``.

        Of machines between two limits it runs on the slowest one, and its batches wait for those they name.
        """
        from infermax_opt.infermax.heuristics import is_added, run_added, run_scheduler

        if instance.slowest is not None:
            from infermax_opt.infermax.replay.waits import after_arrivals

            made = self.run_heuristic(slowest(instance), name)
            return replace(made, schedule=after_arrivals(instance, made.schedule))
        if is_added(name):
            return run_added(instance, name)
        return Heuristic(run_scheduler(instance, name))

    def formulations(self) -> Sequence[str]:
        """Names of the installed formulations."""
        from infermax_opt.engines.formulations import formulation_names
        from infermax_opt.infermax.formulation import GROUP

        return formulation_names(GROUP)

    def rehearsals(self) -> Iterable[Callable[[], object]]:
        """Small work for each kernel."""
        from infermax_opt.infermax.rehearsal import rehearsals

        return rehearsals()

    def solve(self, instance: Instance, options: SolveOptions) -> Result[Schedule, Metrics]:
        """Schedulers, then an exact engine, or planners beside a search for bounds.

        Where the machine is known within limits only, this is done for the fastest and for the slowest one.
        """
        from infermax_opt.infermax.solve import InferMaxRun, check_options

        check_options(options)
        if instance.slowest is not None:
            from infermax_opt.infermax.solve_band import solve_band

            return solve_band(self, instance, options)
        run = InferMaxRun(self, instance, options)
        run.run()
        return run.result()

    def build_formulation(self, instance: Instance, name: str, options: SolveOptions) -> BuiltModel[Schedule]:
        """The model of as many batches as an optimal schedule can have, given the start.

        Parameters
        ----------
        instance : Instance
        name : str
            Of the formulation.
        options : SolveOptions
            What to start from, and how long to look for it.
        """
        from infermax_opt.infermax.exact.solve_formulation import build_formulation, covering
        from infermax_opt.infermax.solve import InferMaxRun

        refuse_intervals(instance, "a formulation")
        covering(instance, name)  # before the schedulers run
        start = InferMaxRun(self, instance, options).find_start()
        return build_formulation(instance, name, warm=start)

    def request_rows(self, instance: Instance, schedule: Schedule) -> list[dict[str, Any]]:
        """First token, finish, latencies and evictions of each request.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        from infermax_opt.infermax.replay.rows import request_rows

        return request_rows(instance, schedule)

    def step_rows(self, instance: Instance, schedule: Schedule) -> list[dict[str, Any]]:
        """Times, tokens and requests of each batch.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        from infermax_opt.infermax.replay.rows import batch_rows

        return batch_rows(instance, schedule)

    def admissions(self, instance: Instance, schedule: Schedule) -> Sequence[Admission]:
        """Requests by the batch that first processes them; within it in the order of its entry."""
        from infermax_opt.infermax.replay.admissions import admissions

        return admissions(instance, schedule)

    def draw(self, instance: Instance, subject: Schedule | Claim, ax: Any | None = None) -> Any:
        """Draw what each request does over time, and the KV cache it takes.

        Parameters
        ----------
        instance : instance
        subject : schedule or Claim
        ax : matplotlib.axes.Axes, optional
        """
        from infermax_opt.infermax.plot import plot_schedule

        return plot_schedule(slowest(instance), subject, ax)

    @property
    def row_kind(self) -> RowKind:
        """Lengths, limits, batches and evictions."""
        from infermax_opt.infermax.columns import ROW_KIND

        return ROW_KIND

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Cases, grids and mixes of the paper; Azure's traces."""
        from infermax_opt.infermax.data.suites import SUITES

        return SUITES

    def importers(self) -> Mapping[str, Importer]:
        """Traces as requests of one machine."""
        from infermax_opt.core.importing import Importer
        from infermax_opt.files.arrivals import instance_name
        from infermax_opt.infermax.importing import import_trace, options

        return {self.name: Importer("batches on a KV cache", options, import_trace, instance_name)}
