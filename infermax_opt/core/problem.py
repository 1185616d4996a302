"""A problem as the rest of the house sees it; `infermax_opt.core.registry` holds those that are installed.

Commands, tables and the Python API ask it for all that differs from problem to problem, so that a new one
needs one folder of its own, in this package or another, and one line in its ``pyproject.toml``.

Methods import what they call when they are called: a command that draws a picture loads no solver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim, LowerBound, Result
from infermax_opt.core.values import AnyInstance, AnyMetrics, AnySchedule, MetricRow, one_each

if TYPE_CHECKING:
    from infermax_opt.core.admissions import Admission
    from infermax_opt.core.certification import Certification
    from infermax_opt.core.columns import RowKind
    from infermax_opt.core.importing import Importer
    from infermax_opt.core.readings import Reading
    from infermax_opt.core.scoring import Scoring
    from infermax_opt.core.solve_options import SolveOptions
    from infermax_opt.core.suite import Case
    from infermax_opt.core.verification import BaseVerification
    from infermax_opt.engines.formulations import BuiltModel

__all__ = ["AnyProblem", "Heuristic", "Problem"]

I = TypeVar("I", bound=AnyInstance)  # noqa: E741
S = TypeVar("S", bound=AnySchedule)
M = TypeVar("M", bound=AnyMetrics)


@dataclass(frozen=True)
class Heuristic(Generic[S]):
    """A schedule that some heuristic made.

    Attributes
    ----------
    schedule : schedule
    remarks : tuple of str
        On how it was made, such as how long decisions took.
    knows : str, optional
        What it is to be called beside its name, as it knew more than others may.
    """

    schedule: S
    remarks: tuple[str, ...] = ()
    knows: str | None = None


class Problem(ABC, Generic[I, S, M]):
    """One problem: instances `I`, schedules `S`, metrics `M`.

    Attributes
    ----------
    name : str
        As instance files name it.
    about : str
        In a few words, for help texts.
    instance, schedule, metrics : type
        Of its values.
    decisions : str
        Key of the decisions in a schedule file.  Problems have one key only if they have one class of
        schedules, so it tells how a schedule is read.
    heuristic, heuristics_title : str
        What a heuristic of it is called, and several.
    engines : sequence of str
        Names that ``solve --solver`` takes, ``auto`` first.
    certification : Certification or None
        None where its bounds have no certificates.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    instance: ClassVar[type[Any]]
    schedule: ClassVar[type[Any]]
    metrics: ClassVar[type[Any]]
    decisions: ClassVar[str]
    heuristic: ClassVar[str] = "heuristic"
    heuristics_title: ClassVar[str] = "heuristics"
    engines: ClassVar[tuple[str, ...]] = ("auto",)

    @property
    def certification(self) -> Certification[I] | None:
        """How its bounds are certified; None where they are not."""
        return None

    def require_certification(self) -> Certification[I]:
        """How its bounds are certified.

        Raises
        ------
        InputError
            If they are not.
        """
        if self.certification is None:
            text = f"closed-form bounds of {self.name} instances have no certificate file"
            raise InputError(f"{text}; `verify` recomputes them", field="certificate")
        return self.certification

    @property
    def scoring(self) -> Scoring[I, S, M]:
        """How runs of its instances are set against bounds."""
        from infermax_opt.core.scoring import Scoring

        return Scoring(self.name)

    # --- files ----------------------------------------------------------------------------------

    @abstractmethod
    def instance_from_json(self, value: object) -> I:
        """Build an instance from parsed JSON; raises `InputError` naming the field."""

    @abstractmethod
    def instance_to_json(self, instance: I) -> dict[str, Any]:
        """Return the JSON value that `instance_from_json` reads."""

    @abstractmethod
    def schedule_from_json(self, value: object, path: str) -> S:
        """Build a schedule from parsed JSON; raises `InputError` naming the field below `path`."""

    @abstractmethod
    def schedule_to_json(self, schedule: S) -> dict[str, Any]:
        """Return the JSON value that `schedule_from_json` reads."""

    # --- truth ----------------------------------------------------------------------------------

    @abstractmethod
    def verify(self, instance: I, schedule: S | None, subject: S | Claim) -> BaseVerification[Any, M]:
        """Verify a schedule, and what a claim says of it; nothing is raised for a wrong one.

        Parameters
        ----------
        instance : instance
        schedule : schedule, optional
            Of the subject; None where that is a bound alone.
        subject : schedule or Claim
            The schedule itself, or all that is claimed with it.
        """

    @abstractmethod
    def bounds(self, instance: I, *, stop: Callable[[], bool] | None = None) -> Iterable[LowerBound]:
        """Lower bounds on the objective, each as soon as it is known, closed forms first.

        Parameters
        ----------
        instance : instance
        stop : callable, optional
            Asked often whether to search no longer.
        """

    def objective_meaning(self, instance: I) -> str:
        """The objective in words, with its unit and sense."""
        name = instance.objective_name
        return f"{name}: {self.metrics.definitions[name]}; minimised"

    def objective_to_json(self, instance: I) -> Any:
        """The objective as reports write it."""
        return instance.objective_name

    def remarks(self, instance: I, metrics: M) -> tuple[str, ...]:
        """What must be said beside a result with these metrics."""
        return ()

    def aimed(self, instance: I, objective: str | None, slos: Sequence[str]) -> I:
        """The instance with another objective and other service levels, as command-line options name them.

        Parameters
        ----------
        instance : instance
        objective : str, optional
            None keeps its own.
        slos : sequence of str
            None of them keeps its own.

        Raises
        ------
        InputError
            If one cannot be read, or there is no choice.
        """
        if objective is not None:
            text = f"{self.name} instances are solved for {instance.objective_name} alone"
            raise InputError(text, field="objective")
        raise InputError(f"{self.name} instances are solved without this option", field="slo")

    def priced(self, instance: I, path: str) -> tuple[I, str]:
        """The instance with the costs of a file, as a command-line option names it, and what was replaced.

        Parameters
        ----------
        instance : instance
        path : str
            Cost profile.

        Raises
        ------
        InputError
            If it cannot be read, or there is no choice.
        """
        raise InputError(f"{self.name} instances are solved without this option", field="cost")

    def reading(self, instance: I, metric: str) -> Reading | None:
        """How a metric that is to be high follows from one that can be minimised; None where it does not.

        Parameters
        ----------
        instance : instance
        metric : str
        """
        return None

    def question(self, instance: I, at_most: Sequence[str], at_least: Sequence[str]) -> tuple[I, Fraction]:
        """What is asked with these limits: the instance to solve, and the value that its objective may have.

        Unless overridden, the one limit there may be is that of the objective, or of the metric whose
        `reading` it is.

        Parameters
        ----------
        instance : instance
        at_most : sequence of str
            See `infermax_opt.core.questions`.
        at_least : sequence of str
            The same, of metrics that are to be high.

        Raises
        ------
        InputError
            If one cannot be read, or is of something that cannot be asked.
        """
        from infermax_opt.core.questions import parsed_limits

        own = instance.objective_name
        limits = parsed_limits(self, instance, at_most)
        least = parsed_limits(self, instance, at_least, field="at_least")
        for metric, limit in least.items():
            known = self.reading(instance, metric)
            if known is not None and known.metric == own and not limits and len(least) == 1:
                return instance, known.limit(limit, f"at_least.{metric}")
        if least or list(limits) != [own]:
            text = f"{self.name} instances are asked for {own}=LIMIT"
            raise InputError(text, field="at_least" if least else "at_most")
        return instance, limits[own]

    def metric_rows(self, metrics: M) -> Sequence[MetricRow]:
        """What a text shows of these metrics: each in a row of its own, unless overridden."""
        return one_each(metrics)

    # --- schedules ------------------------------------------------------------------------------

    def heuristics(self) -> Sequence[str]:
        """Names of its heuristics, those that a table compares first."""
        return ()

    def heuristics_for(self, instance: I) -> Sequence[str]:
        """Names of the heuristics that are tried where none is named, those of most promise first."""
        return self.heuristics()

    def heuristics_text(self) -> str:
        """The heuristics as ``schedulers`` lists them."""
        return ", ".join(self.heuristics())

    def run_heuristic(self, instance: I, name: str) -> Heuristic[S]:
        """Run a heuristic.

        Raises
        ------
        InputError
            If there is none of that name, or it makes no schedule of this instance.
        """
        known = ", ".join(self.heuristics()) or "none"
        raise InputError(f"{name!r} is no {self.heuristic} of {self.name}; there are {known}")

    def formulations(self) -> Sequence[str]:
        """Names that ``solve --formulation`` takes."""
        return ()

    def rehearsals(self) -> Iterable[Callable[[], object]]:
        """Functions that run the compiled kernels of this problem for a moment each; `warm` calls them."""
        return ()

    def solve(self, instance: I, options: SolveOptions) -> Result[S, M]:
        """Schedule and bound within the limits; of the heuristics and bounds alone, unless overridden."""
        from infermax_opt.core.run import SolveRun

        options.refuse(f"{self.name} instances", "formulation", "memory_limit")
        run = SolveRun(self, instance, options)
        run.run()
        return run.result()

    # --- for other programs, pictures, tables, imports ------------------------------------------

    def build_formulation(self, instance: I, name: str, options: SolveOptions) -> BuiltModel[S]:
        """The model that `solve` hands to an engine with this formulation.

        Parameters
        ----------
        instance : instance
        name : str
            Of the formulation.
        options : SolveOptions
            What to start from, and how long to look for it.

        Raises
        ------
        InputError
            If there is no such formulation, it does not cover the instance, or its model would be too large.
        """
        known = ", ".join(self.formulations()) or "none"
        text = f"{name!r} is no formulation of {self.name} that can be exported; there is {known}"
        raise InputError(text, field="formulation")

    def request_rows(self, instance: I, schedule: S) -> Sequence[Mapping[str, Any]]:
        """What a valid schedule does to each request, in their order, as columns.

        Parameters
        ----------
        instance : instance
        schedule : schedule

        Raises
        ------
        InputError
            If the schedule breaks a rule.
        """
        return [{} for _ in instance.requests]

    def step_rows(self, instance: I, schedule: S) -> Sequence[Mapping[str, Any]]:
        """The steps of a valid schedule, such as batches, in their order: columns of a frame.

        Parameters
        ----------
        instance : instance
        schedule : schedule

        Raises
        ------
        InputError
            If the schedule breaks a rule, or schedules of this problem have no steps.
        """
        raise InputError(f"schedules of {self.name} instances have no batches", field="problem")

    def admissions(self, instance: I, schedule: S) -> Sequence[Admission]:
        """The requests that a valid schedule serves, in the order in which it first serves them.

        Raises
        ------
        InputError
            If schedules of this problem have no such order.
        """
        raise InputError(f"schedules of {self.name} instances have no order of requests", field="problem")

    def draw(self, instance: I, subject: S | Claim, ax: Any | None = None) -> Any:
        """Draw a valid schedule, or the schedule of a result with its bound and gap.

        Parameters
        ----------
        instance : instance
        subject : schedule or Claim
        ax : matplotlib.axes.Axes, optional
            What to draw into; default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The given ones, or the first of the new figure; `infermax_opt.files.figure` makes both.

        Raises
        ------
        InputError
            If there is no picture of it.
        """
        raise InputError(f"schedules of {self.name} instances have no picture", field="problem")

    @property
    def row_kind(self) -> RowKind:
        """The rows of its tables; the columns that all problems have, unless overridden."""
        from infermax_opt.core.columns import RowKind

        return RowKind(schema=f"infermax-opt/{self.name}-row/1")

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Named suites; each is given the folder of the traces, if the user named one."""
        return {}

    def importers(self) -> Mapping[str, Importer]:
        """What ``import --problem NAME`` makes of a trace, by that name."""
        return {}


AnyProblem = Problem[Any, Any, Any]
