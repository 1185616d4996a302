"""The placement problem as the rest of the house sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.result import Claim, LowerBound, Result
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.metrics import PlacementMetrics

if TYPE_CHECKING:
    from infermax_opt.core.columns import RowKind
    from infermax_opt.core.solve_options import SolveOptions
    from infermax_opt.core.suite import Case
    from infermax_opt.engines.formulations import BuiltModel
    from infermax_opt.placement.verify import PlacementVerification

__all__ = ["PlacementProblem"]


class PlacementProblem(Problem[PlacementInstance, Placement, PlacementMetrics]):
    """Requests of one heartbeat on the fewest workers; see `infermax_opt.core.problem.Problem`."""

    name = "placement"
    about = "the requests of one heartbeat on the fewest workers"
    instance = PlacementInstance
    schedule = Placement
    metrics = PlacementMetrics
    decisions = "workers"
    heuristic = "heuristic"
    engines = ("auto", "pack", "cpsat", "highs")

    def instance_from_json(self, value: object) -> PlacementInstance:
        """Build an instance from parsed JSON."""
        from infermax_opt.placement.data.formats import placement_instance_from_json

        return placement_instance_from_json(value)

    def instance_to_json(self, instance: PlacementInstance) -> dict[str, Any]:
        """Return the JSON value of an instance."""
        from infermax_opt.placement.data.formats import placement_instance_to_json

        return placement_instance_to_json(instance)

    def schedule_from_json(self, value: object, path: str) -> Placement:
        """Build a placement from parsed JSON."""
        from infermax_opt.placement.data.formats import placement_from_json

        return placement_from_json(value, path)

    def schedule_to_json(self, schedule: Placement) -> dict[str, Any]:
        """Return the JSON value of a placement."""
        from infermax_opt.placement.data.formats import placement_to_json

        return placement_to_json(schedule)

    def verify(
        self, instance: PlacementInstance, schedule: Placement | None, subject: Placement | Claim
    ) -> PlacementVerification:
        """Verify a placement, and what a claim says of it.

        Parameters
        ----------
        instance : PlacementInstance
        schedule : Placement or None
            The one to check; None where a claim has none.
        subject : Placement or Claim
            What is to be vouched for: the placement itself, or a claim about it.
        """
        from infermax_opt.placement.verify import verify_placement

        return verify_placement(instance, schedule, subject)

    def bounds(
        self, instance: PlacementInstance, *, stop: Callable[[], bool] | None = None
    ) -> Iterator[LowerBound]:
        """Closed forms, each with its reason."""
        from infermax_opt.placement.solve import lower_bounds

        yield from lower_bounds(instance)

    def heuristics(self) -> Sequence[str]:
        """The paper's best-fit and what it is compared with."""
        from infermax_opt.placement.heuristics.place import HEURISTICS

        return tuple(HEURISTICS)

    def heuristics_text(self) -> str:
        """One heuristic a line, with what it does."""
        from infermax_opt.files.text import aligned
        from infermax_opt.placement.heuristics.place import HEURISTICS

        return "\n".join(aligned(HEURISTICS.items()))

    def run_heuristic(self, instance: PlacementInstance, name: str) -> Heuristic[Placement]:
        """Run a heuristic; says how long it took."""
        from infermax_opt.placement.heuristics.place import place

        began = time.perf_counter()
        placement = place(instance, name)
        spent = (time.perf_counter() - began) * 1000
        new = max(1, sum(not request.ongoing for request in instance.requests))
        return Heuristic(placement, (f"placed in {spent:.3g} ms, {spent / new:.2g} ms a new request",))

    def formulations(self) -> Sequence[str]:
        """Names of the installed formulations."""
        from infermax_opt.engines.formulations import formulation_names
        from infermax_opt.placement.exact.solve_formulation import GROUP

        return formulation_names(GROUP)

    def rehearsals(self) -> Iterable[Callable[[], object]]:
        """Small work for each kernel."""
        from infermax_opt.placement.rehearsal import rehearsals

        return rehearsals()

    def solve(
        self, instance: PlacementInstance, options: SolveOptions
    ) -> Result[Placement, PlacementMetrics]:
        """Heuristics, packing, then an engine that decides whether fewer workers are enough."""
        from infermax_opt.placement.solve import solve_placement

        return solve_placement(self, instance, options)

    def build_formulation(
        self, instance: PlacementInstance, name: str, options: SolveOptions
    ) -> BuiltModel[Placement]:
        """The model of no more workers than the start has.

        Parameters
        ----------
        instance : PlacementInstance
        name : str
            Of the formulation.
        options : SolveOptions
            What to start from, and how long to look for it.
        """
        from infermax_opt.placement.data.limits import check_placeable
        from infermax_opt.placement.exact.solve_formulation import build_formulation
        from infermax_opt.placement.solve import PlacementRun

        check_placeable(instance)
        start = PlacementRun(self, instance, options).find_start()
        return build_formulation(instance, name, warm=start)

    def request_rows(self, instance: PlacementInstance, schedule: Placement) -> list[dict[str, Any]]:
        """Worker of each request.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        return [
            {"worker": request.worker if request.ongoing else schedule.workers[request.id]}
            for request in instance.requests
        ]

    def draw(self, instance: PlacementInstance, subject: Placement | Claim, ax: Any | None = None) -> Any:
        """Draw what each worker uses of its limits.

        Parameters
        ----------
        instance : PlacementInstance
        subject : Placement or Claim
            A valid placement, or a claim that holds one.
        path : path
            File to write; its ending says the format.
        """
        from infermax_opt.placement.plot import plot_workers

        return plot_workers(instance, subject, ax)

    @property
    def row_kind(self) -> RowKind:
        """GPUs, and how much of the limits is used."""
        from infermax_opt.placement.columns import ROW_KIND

        return ROW_KIND

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Heartbeats of five families."""
        from infermax_opt.placement.data.suites import SUITES

        return SUITES
