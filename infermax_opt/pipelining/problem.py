"""The pipelining problem as the rest of the house sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.readings import Quotient
from infermax_opt.core.result import Claim, LowerBound, Result
from infermax_opt.files.fields import INSTANCE_SCHEMA
from infermax_opt.pipelining.certificates import CERTIFICATION, PipeliningCertification
from infermax_opt.pipelining.data.instance import OBJECTIVES, PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining, pipelining_from_json, pipelining_to_json
from infermax_opt.pipelining.replay.metrics import PipeliningMetrics
from infermax_opt.simple.json import record_from_json, record_to_json

if TYPE_CHECKING:
    from infermax_opt.core.columns import RowKind
    from infermax_opt.core.importing import Importer
    from infermax_opt.core.readings import Reading
    from infermax_opt.core.solve_options import SolveOptions
    from infermax_opt.core.suite import Case
    from infermax_opt.engines.formulations import BuiltModel
    from infermax_opt.pipelining.verify import PipeliningVerification

__all__ = ["PipeliningProblem"]


class PipeliningProblem(Problem[PipeliningInstance, Pipelining, PipeliningMetrics]):
    """Requests that share one reservation; see `infermax_opt.core.problem.Problem`."""

    name = "pipelining"
    about = "requests that share one reservation of KV cache"
    instance = PipeliningInstance
    schedule = Pipelining
    metrics = PipeliningMetrics
    decisions = "offsets"
    heuristic = "heuristic"
    engines = ("auto", "anneal", "cpsat", "highs")

    @property
    def certification(self) -> PipeliningCertification:
        """Of hats and prices."""
        return CERTIFICATION

    def instance_from_json(self, value: object) -> PipeliningInstance:
        """Build an instance from parsed JSON."""
        head = {"schema": INSTANCE_SCHEMA, "problem": self.name}
        return record_from_json(PipeliningInstance, value, "", head)

    def instance_to_json(self, instance: PipeliningInstance) -> dict[str, Any]:
        """Return the JSON value of an instance."""
        return {"schema": INSTANCE_SCHEMA, "problem": self.name, **record_to_json(instance)}

    def schedule_from_json(self, value: object, path: str) -> Pipelining:
        """Build a schedule from parsed JSON."""
        return pipelining_from_json(value, path)

    def schedule_to_json(self, schedule: Pipelining) -> dict[str, Any]:
        """Return the JSON value of a schedule."""
        return pipelining_to_json(schedule)

    def verify(
        self, instance: PipeliningInstance, schedule: Pipelining | None, subject: Pipelining | Claim
    ) -> PipeliningVerification:
        """Verify a schedule, and what a claim says of it.

        Parameters
        ----------
        instance : PipeliningInstance
        schedule : Pipelining or None
            The one to check; None where a claim has none.
        subject : Pipelining or Claim
            What is to be vouched for: the schedule itself, or a claim about it.
        """
        from infermax_opt.pipelining.verify import verify_pipelining

        return verify_pipelining(instance, schedule, subject)

    def bounds(
        self, instance: PipeliningInstance, *, stop: Callable[[], bool] | None = None
    ) -> Iterator[LowerBound]:
        """Closed forms, then hats and prices with their certificates."""
        from infermax_opt.pipelining.bounds.searched import all_bounds

        yield from all_bounds(instance, stop)

    def objective_meaning(self, instance: PipeliningInstance) -> str:
        """What is maximised, and the reciprocal that is minimised for it."""
        definition = self.metrics.definitions[instance.objective]
        least = f"{instance.objective_name} (capacity / {instance.objective})"
        return f"{instance.objective}: {definition}; maximised: {least} is minimised"

    def aimed(
        self, instance: PipeliningInstance, objective: str | None, slos: Sequence[str]
    ) -> PipeliningInstance:
        """The instance with another objective; it has no service levels.

        Parameters
        ----------
        instance : PipeliningInstance
        objective : str, optional
            One of `OBJECTIVES`, or the metric that is minimised for it.
        slos : sequence of str
        """
        if slos:
            raise InputError(f"{self.name} instances have no service levels", field="slo")
        if objective is None:
            return instance
        names = {metric: name for name, metric in OBJECTIVES.items()}
        return replace(instance, objective=names.get(objective, objective))

    def reading(self, instance: PipeliningInstance, metric: str) -> Reading | None:
        """For what is maximised: the metric that is minimised for it, and the capacity.

        Parameters
        ----------
        instance : PipeliningInstance
        metric : str
        """
        return Quotient(OBJECTIVES[metric], instance.capacity) if metric in OBJECTIVES else None

    def question(
        self, instance: PipeliningInstance, at_most: Sequence[str], at_least: Sequence[str]
    ) -> tuple[PipeliningInstance, Fraction]:
        """A limit on what is maximised from below, or on its reciprocal from above.

        Parameters
        ----------
        instance : PipeliningInstance
        at_most, at_least : sequence of str
            See `infermax_opt.core.questions`.
        """
        from infermax_opt.core.questions import parsed_limits

        if not at_least:
            return super().question(instance, at_most, at_least)
        limits = parsed_limits(self, instance, at_least, "at_least")
        if at_most or list(limits) != [instance.objective]:
            raise InputError(
                f"this instance is asked for {instance.objective}=LIMIT",
                field="at_most" if at_most else "at_least",
            )
        limit = limits[instance.objective]
        if limit <= 0:
            raise InputError("0 is reached by selecting nothing", field="at_least")
        return instance, instance.capacity / limit

    def heuristics(self) -> Sequence[str]:
        """No pipelining, the paper's rule, and those that split intervals."""
        from infermax_opt.pipelining.heuristics.place import HEURISTICS

        return tuple(HEURISTICS)

    def heuristics_text(self) -> str:
        """One heuristic a line, with what it does."""
        from infermax_opt.files.text import aligned
        from infermax_opt.pipelining.heuristics.place import HEURISTICS

        return "\n".join(aligned(HEURISTICS.items()))

    def run_heuristic(self, instance: PipeliningInstance, name: str) -> Heuristic[Pipelining]:
        """Run a heuristic; says how long it took."""
        from infermax_opt.pipelining.heuristics.place import make_schedule

        began = time.perf_counter()
        schedule = make_schedule(instance, name)
        spent = (time.perf_counter() - began) * 1000
        chosen = f"{len(schedule.offsets)} of {len(instance.requests)} requests"
        return Heuristic(schedule, (f"selected {chosen} in {spent:.3g} ms",))

    def formulations(self) -> Sequence[str]:
        """Names of the installed formulations."""
        from infermax_opt.engines.formulations import formulation_names
        from infermax_opt.pipelining.exact.solve_formulation import GROUP

        return formulation_names(GROUP)

    def rehearsals(self) -> Iterable[Callable[[], object]]:
        """Small work for each kernel."""
        from infermax_opt.pipelining.rehearsal import rehearsals

        return rehearsals()

    def solve(
        self, instance: PipeliningInstance, options: SolveOptions
    ) -> Result[Pipelining, PipeliningMetrics]:
        """Bounds, splitting, annealing, then an engine where the instance is small; or a formulation."""
        from infermax_opt.pipelining.solve import solve_pipelining

        return solve_pipelining(self, instance, options)

    def build_formulation(
        self, instance: PipeliningInstance, name: str, options: SolveOptions
    ) -> BuiltModel[Pipelining]:
        """The model, with a heuristic's schedule to start from.

        Parameters
        ----------
        instance : PipeliningInstance
        name : str
            Of the formulation.
        options : SolveOptions
            What to start from, and how long to look for it.
        """
        from infermax_opt.pipelining.exact.solve_formulation import build_formulation
        from infermax_opt.pipelining.solve import PipeliningRun

        start = PipeliningRun(self, instance, options).find_start()
        return build_formulation(instance, name, warm=start)

    def request_rows(self, instance: PipeliningInstance, schedule: Pipelining) -> list[dict[str, Any]]:
        """Offset of each request in the reservation; None for those left out.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        return [{"offset": schedule.offsets.get(request.id)} for request in instance.requests]

    def draw(self, instance: PipeliningInstance, subject: Pipelining | Claim, ax: Any | None = None) -> Any:
        """Draw which request uses each cell of the reservation at each iteration.

        Parameters
        ----------
        instance : PipeliningInstance
        subject : Pipelining or Claim
            A valid schedule, or a claim that holds one.
        path : path
            File to write; its ending says the format.
        """
        from infermax_opt.pipelining.plot import plot_reservation

        return plot_reservation(instance, subject, ax)

    @property
    def row_kind(self) -> RowKind:
        """How often the reservation is sold, by the paper's rule, by splitting, by the best, and at most."""
        from infermax_opt.pipelining.columns import ROW_KIND

        return ROW_KIND

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Queues with the lengths of three traces."""
        from infermax_opt.pipelining.data.suites import SUITES

        return SUITES

    def importers(self) -> Mapping[str, Importer]:
        """The outputs of a trace as the lengths of a queue."""
        from infermax_opt.core.importing import Importer
        from infermax_opt.pipelining import importing

        return {self.name: Importer("a queue for one reservation", importing.options, importing.import_trace)}
