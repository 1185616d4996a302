"""The makespan problem as the rest of the house sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.result import Claim, LowerBound, Result
from infermax_opt.makespan.certificates import CERTIFICATION, MakespanCertification
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.replay.metrics import MakespanMetrics

if TYPE_CHECKING:
    from infermax_opt.core.admissions import Admission
    from infermax_opt.core.columns import RowKind
    from infermax_opt.core.importing import Importer
    from infermax_opt.core.solve_options import SolveOptions
    from infermax_opt.core.suite import Case
    from infermax_opt.engines.formulations import BuiltModel
    from infermax_opt.makespan.verify import MakespanVerification

__all__ = ["MakespanProblem"]


class MakespanProblem(Problem[MakespanInstance, MakespanSchedule, MakespanMetrics]):
    """Requests on clients of one machine; see `infermax_opt.core.problem.Problem`."""

    name = "makespan"
    about = "requests on clients, prefill and decode stages in turn"
    instance = MakespanInstance
    schedule = MakespanSchedule
    metrics = MakespanMetrics
    decisions = "bins"
    heuristic = "method"
    heuristics_title = "methods"
    engines = ("auto", "exact", "anneal", "highs", "cpsat")

    @property
    def certification(self) -> MakespanCertification:
        """Of the closed forms."""
        return CERTIFICATION

    def instance_from_json(self, value: object) -> MakespanInstance:
        """Build an instance from parsed JSON."""
        from infermax_opt.makespan.data.formats import makespan_instance_from_json

        return makespan_instance_from_json(value)

    def instance_to_json(self, instance: MakespanInstance) -> dict[str, Any]:
        """Return the JSON value of an instance."""
        from infermax_opt.makespan.data.formats import makespan_instance_to_json

        return makespan_instance_to_json(instance)

    def schedule_from_json(self, value: object, path: str) -> MakespanSchedule:
        """Build a schedule from parsed JSON."""
        from infermax_opt.makespan.data.formats import bins_from_json

        return bins_from_json(value, path)

    def schedule_to_json(self, schedule: MakespanSchedule) -> dict[str, Any]:
        """Return the JSON value of a schedule."""
        from infermax_opt.makespan.data.formats import bins_to_json

        return bins_to_json(schedule)

    def verify(
        self,
        instance: MakespanInstance,
        schedule: MakespanSchedule | None,
        subject: MakespanSchedule | Claim,
    ) -> MakespanVerification:
        """Verify a schedule, and what a claim says of it.

        Parameters
        ----------
        instance : MakespanInstance
        schedule : MakespanSchedule or None
            The one to replay; None where a claim has none.
        subject : MakespanSchedule or Claim
            What is to be vouched for: the schedule itself, or a claim about it.
        """
        from infermax_opt.makespan.verify import verify_bins

        return verify_bins(instance, schedule, subject)

    def bounds(
        self, instance: MakespanInstance, *, stop: Callable[[], bool] | None = None
    ) -> Iterator[LowerBound]:
        """Closed forms."""
        from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds

        yield from closed_form_makespan_bounds(instance)

    def heuristics(self) -> Sequence[str]:
        """The paper's four methods."""
        from infermax_opt.makespan.methods.by_name import METHODS

        return tuple(METHODS)

    def run_heuristic(self, instance: MakespanInstance, name: str) -> Heuristic[MakespanSchedule]:
        """Run a method; says how long its decisions took."""
        from infermax_opt.makespan.methods.by_name import run_method

        run = run_method(instance, name)
        slowest = max(run.decision_seconds) * 1000
        remark = f"{len(run.decision_seconds)} decisions, the slowest took {slowest:.2g} ms"
        return Heuristic(run.schedule, (remark,))

    def formulations(self) -> Sequence[str]:
        """Names of the installed formulations."""
        from infermax_opt.engines.formulations import formulation_names
        from infermax_opt.makespan.exact.solve_formulation import GROUP

        return formulation_names(GROUP)

    def rehearsals(self) -> Iterable[Callable[[], object]]:
        """Small work for each kernel."""
        from infermax_opt.makespan.rehearsal import rehearsals

        return rehearsals()

    def solve(
        self, instance: MakespanInstance, options: SolveOptions
    ) -> Result[MakespanSchedule, MakespanMetrics]:
        """The methods, then the exact engine where that is possible, then annealing; or a formulation."""
        from infermax_opt.makespan.solve import MakespanRun, check_options

        check_options(instance, options)
        run = MakespanRun(self, instance, options)
        run.run()
        return run.result()

    def build_formulation(
        self, instance: MakespanInstance, name: str, options: SolveOptions
    ) -> BuiltModel[MakespanSchedule]:
        """The model of as many bins as an optimal schedule can need, given the start.

        Parameters
        ----------
        instance : MakespanInstance
        name : str
            Of the formulation.
        options : SolveOptions
            What to start from, and how long to look for it.
        """
        from infermax_opt.makespan.exact.solve_formulation import build_formulation
        from infermax_opt.makespan.solve import MakespanRun

        start = MakespanRun(self, instance, options).find_start()
        return build_formulation(instance, name, warm=start)

    def admissions(self, instance: MakespanInstance, schedule: MakespanSchedule) -> Sequence[Admission]:
        """Requests by the bin that prefills them; within it in the order of its entry."""
        from infermax_opt.makespan.replay.admissions import admissions

        return admissions(instance, schedule)

    def request_rows(self, instance: MakespanInstance, schedule: MakespanSchedule) -> list[dict[str, Any]]:
        """Client, start and finish of each request.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        from infermax_opt.makespan.replay.rows import request_rows

        return request_rows(instance, schedule)

    def step_rows(self, instance: MakespanInstance, schedule: MakespanSchedule) -> list[dict[str, Any]]:
        """Times and requests of each bin.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        from infermax_opt.makespan.replay.rows import bin_rows

        return bin_rows(instance, schedule)

    def draw(
        self, instance: MakespanInstance, subject: MakespanSchedule | Claim, ax: Any | None = None
    ) -> Any:
        """Draw a Gantt chart of the clients.

        Parameters
        ----------
        instance : MakespanInstance
        subject : MakespanSchedule or Claim
            A valid schedule, or a claim that holds one.
        path : path
            File to write; its ending says the format.
        """
        from infermax_opt.makespan.plot import plot_bins

        return plot_bins(instance, subject, ax)

    @property
    def row_kind(self) -> RowKind:
        """Clients, bins, rounds, utilisation."""
        from infermax_opt.makespan.columns import ROW_KIND

        return ROW_KIND

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Requests like GSM8K's."""
        from infermax_opt.makespan.data.suites import SUITES

        return SUITES

    def importers(self) -> Mapping[str, Importer]:
        """Traces as requests that are all there from the start."""
        from infermax_opt.core.importing import Importer
        from infermax_opt.makespan.importing import import_trace, options

        return {self.name: Importer("requests on clients (always offline)", options, import_trace)}
