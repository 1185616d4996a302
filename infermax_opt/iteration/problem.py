"""The iteration problem as the rest of the house sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.readings import Quotient
from infermax_opt.core.result import Claim, LowerBound, Result
from infermax_opt.iteration.certificates import CERTIFICATION, IterationCertification
from infermax_opt.iteration.data.instance import BE_TOKENS, VALUES, IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.replay.metrics import IterationMetrics

if TYPE_CHECKING:
    from infermax_opt.core.columns import RowKind
    from infermax_opt.core.readings import Reading
    from infermax_opt.core.solve_options import SolveOptions
    from infermax_opt.core.suite import Case
    from infermax_opt.engines.formulations import BuiltModel
    from infermax_opt.iteration.verify import IterationVerification

__all__ = ["IterationProblem"]


class IterationProblem(Problem[IterationInstance, Selection, IterationMetrics]):
    """Real-time and best-effort requests for one batch; see `infermax_opt.core.problem.Problem`."""

    name = "iteration"
    about = "real-time and best-effort requests for one batch"
    instance = IterationInstance
    schedule = Selection
    metrics = IterationMetrics
    decisions = "select"
    engines = ("auto", "prefix", "branch", "highs")

    @property
    def certification(self) -> IterationCertification:
        """Of relaxations and of searches."""
        return CERTIFICATION

    def instance_from_json(self, value: object) -> IterationInstance:
        """Build an instance from parsed JSON."""
        from infermax_opt.iteration.data.formats import iteration_instance_from_json

        return iteration_instance_from_json(value)

    def instance_to_json(self, instance: IterationInstance) -> dict[str, Any]:
        """Return the JSON value of an instance."""
        from infermax_opt.iteration.data.formats import iteration_instance_to_json

        return iteration_instance_to_json(instance)

    def schedule_from_json(self, value: object, path: str) -> Selection:
        """Build a selection from parsed JSON."""
        from infermax_opt.iteration.data.formats import selection_from_json

        return selection_from_json(value, path)

    def schedule_to_json(self, schedule: Selection) -> dict[str, Any]:
        """Return the JSON value of a selection."""
        from infermax_opt.iteration.data.formats import selection_to_json

        return selection_to_json(schedule)

    def verify(
        self, instance: IterationInstance, schedule: Selection | None, subject: Selection | Claim
    ) -> IterationVerification:
        """Verify a selection, and what a claim says of it.

        Parameters
        ----------
        instance : IterationInstance
        schedule : Selection or None
            The one to check; None where a claim has none.
        subject : Selection or Claim
            What is to be vouched for: the selection itself, or a claim about it.
        """
        from infermax_opt.iteration.verify import verify_selection

        return verify_selection(instance, schedule, subject)

    def bounds(
        self, instance: IterationInstance, *, stop: Callable[[], bool] | None = None
    ) -> Iterator[LowerBound]:
        """Closed forms, then that of the linear relaxations."""
        from infermax_opt.iteration.bounds.closed_form import closed_form_bounds

        yield from closed_form_bounds(instance)
        if stop is None or not stop():
            from infermax_opt.iteration.bounds.relaxation import relaxation_bound

            found = relaxation_bound(instance, stop=stop)
            if found is not None:
                yield found

    def objective_meaning(self, instance: IterationInstance) -> str:
        """The objective in words; it is the reciprocal of a rate that is to be high."""
        name = instance.objective
        rate = "(1), best-effort tokens per second" if name == BE_TOKENS else "value per second"
        rest = "after keeping as many savable real-time requests as can be"
        return f"{name}: 1 / {rate}; minimised, {rest}"

    def remarks(self, instance: IterationInstance, metrics: IterationMetrics) -> tuple[str, ...]:
        """What became of real-time requests, and what a batch without value counts."""
        found = []
        if metrics.rt_late:
            text = "savable real-time requests cannot all be kept; this many are late"
            found.append(f"{text}: {metrics.rt_late} of {metrics.rt_savable}")
        beyond = sum(r.real_time for r in instance.requests) - metrics.rt_savable
        if beyond:
            found.append(f"real-time requests that no batch could keep, for which (6) does not ask: {beyond}")
        if getattr(metrics, instance.objective) is None:
            found.append("a batch without value counts as one of all requests with the least value")
        return tuple(found)

    def reading(self, instance: IterationInstance, metric: str) -> Reading | None:
        """Rates are the reciprocals of the objectives.

        Parameters
        ----------
        instance : instance
        metric : str
        """
        rates = {"be_tokens_per_second": BE_TOKENS, "value_per_second": VALUES}
        return Quotient(instance.objective, 1) if rates.get(metric) == instance.objective else None

    def heuristics(self) -> Sequence[str]:
        """A greedy rule, and the paper's in two readings."""
        from infermax_opt.iteration.heuristics.by_name import HEURISTICS

        return tuple(HEURISTICS)

    def heuristics_text(self) -> str:
        """One heuristic a line, with what it does."""
        from infermax_opt.files.text import aligned
        from infermax_opt.iteration.heuristics.by_name import HEURISTICS

        return "\n".join(aligned(HEURISTICS.items()))

    def run_heuristic(self, instance: IterationInstance, name: str) -> Heuristic[Selection]:
        """Run a heuristic; says how long it took."""
        from infermax_opt.iteration.heuristics.by_name import select

        began = time.perf_counter()
        made, remarks = select(instance, name)
        spent = (time.perf_counter() - began) * 1000
        return Heuristic(made, (f"selected in {spent:.3g} ms", *remarks))

    def formulations(self) -> Sequence[str]:
        """Names of the installed formulations."""
        from infermax_opt.engines.formulations import formulation_names
        from infermax_opt.iteration.exact.solve_formulation import GROUP

        return formulation_names(GROUP)

    def solve(
        self, instance: IterationInstance, options: SolveOptions
    ) -> Result[Selection, IterationMetrics]:
        """Closed forms, heuristics, then branching or a formulation."""
        from infermax_opt.iteration.solve import IterationRun, check_options

        check_options(options)
        run = IterationRun(self, instance, options)
        run.run()
        return run.result()

    def build_formulation(
        self, instance: IterationInstance, name: str, options: SolveOptions
    ) -> BuiltModel[Selection]:
        """The model for the ratio of the start.

        Parameters
        ----------
        instance : IterationInstance
        name : str
            Of the formulation.
        options : SolveOptions
            What to start from.
        """
        from infermax_opt.iteration.exact.solve_formulation import build_formulation
        from infermax_opt.iteration.solve import IterationRun

        start = IterationRun(self, instance, options).find_start()
        return build_formulation(instance, name, warm=start)

    def request_rows(self, instance: IterationInstance, schedule: Selection) -> list[dict[str, Any]]:
        """Whether the batch takes a request.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        taken = set(schedule.select)
        return [{"selected": request.id in taken} for request in instance.requests]

    def draw(self, instance: IterationInstance, subject: Selection | Claim, ax: Any | None = None) -> Any:
        """Draw slacks against the time of the batch, and what the batch uses.

        Parameters
        ----------
        instance : IterationInstance
        subject : Selection or Claim
            A valid selection, or a claim that holds one.
        path : path
            File to write; its ending says the format.
        """
        from infermax_opt.iteration.plot import plot_selection

        return plot_selection(instance, subject, ax)

    @property
    def row_kind(self) -> RowKind:
        """Rates of the best batch and of Algorithm 1, and who is served."""
        from infermax_opt.iteration.columns import ROW_KIND

        return ROW_KIND

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Snapshots with few and many real-time requests, with and without swap."""
        from infermax_opt.iteration.data.suites import SUITES

        return SUITES
