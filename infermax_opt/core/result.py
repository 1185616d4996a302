"""Results: a schedule, a lower bound and the gap, with how each was obtained."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from infermax_opt.core.frames import frame, plain
from infermax_opt.core.progress import ProgressEvent
from infermax_opt.core.result_items import result_items
from infermax_opt.core.shown import Shown, Solved, written_schedule
from infermax_opt.core.values import AnyInstance, AnyMetrics, AnySchedule

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Answer",
    "AnyResult",
    "Claim",
    "LowerBound",
    "Proof",
    "Result",
    "Scope",
    "SolverReport",
    "Status",
    "UpperBound",
    "gap_of",
]

S = TypeVar("S", bound=AnySchedule)
M = TypeVar("M", bound=AnyMetrics)


class Status(enum.Enum):
    """What a result establishes."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    BOUND_ONLY = "bound-only"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Proof(enum.Enum):
    """How a lower bound was proved.

    ``closed-form``: a formula that the verifier recomputes.  ``certificate``: a file that the
    stand-alone checker checks.  ``solver``: trust the solver named in the result.
    """

    CLOSED_FORM = "closed-form"
    CERTIFICATE = "certificate"
    SOLVER = "solver"


class Answer(enum.Enum):
    """Whether a schedule reaches the value that was asked about."""

    YES = "yes"
    NO = "no"
    OPEN = "open"

    @classmethod
    def of(cls, target: Fraction | None, upper: Fraction | None, lower: Fraction | None) -> Answer | None:
        """What the bounds say; None if nothing was asked.

        Parameters
        ----------
        target, upper, lower : Fraction or None
        """
        if target is None:
            return None
        if upper is not None and upper <= target:
            return cls.YES
        return cls.NO if lower is not None and lower > target else cls.OPEN


class Scope(enum.Enum):
    """What a formulation's numbers are good for.

    ``exact``: both; ``relaxation``: only the bound; ``restriction``: only the schedule.
    """

    EXACT = "exact"
    RELAXATION = "relaxation"
    RESTRICTION = "restriction"


@dataclass(frozen=True)
class LowerBound(Shown):
    """A proved lower bound on the objective, exact: in seconds, or workers of a placement.

    `certificate` names the file of its certificate, once written; `evidence` is what goes into it
    (see `infermax_opt.files.certificates`), None where there is no certificate for such a bound.
    `reason` says in a sentence why it holds, where the bound is of a kind that has such a sentence.
    `made_for` holds the hashes of instances that the files name which it was read from.
    """

    value: Fraction
    source: str
    proof: Proof
    certificate: str | None = None
    evidence: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    reason: str | None = field(default=None, compare=False)
    made_for: tuple[str, ...] = field(default=(), compare=False, repr=False)

    lower_facts = frozenset({"value"})

    def facts(self) -> Mapping[str, Any]:
        """Value, what found it, how it is proved."""
        return {"value": self.value, "source": self.source, "proof": self.proof, "reason": self.reason}


@dataclass(frozen=True)
class UpperBound:
    """The objective of a verified schedule, exact: in seconds, or workers of a placement."""

    value: Fraction
    source: str


@dataclass(frozen=True)
class SolverReport:
    """How a result was computed.

    Attributes
    ----------
    engine, formulation : str or None
        Engine that ran last, and the formulation it solved (None for the search).
    reason : str or None
        Why this engine was chosen.
    scope : Scope or None
        What the formulation's numbers are good for.
    termination : str or None
        ``optimal``, ``time_limit``, ``memory_limit``, ``interrupted``, ``crashed``, ...
    versions : mapping of package to version
    threads, seed : int or None
    time_limit, seconds : float or None
        Wall-clock seconds.
    memory_limit : int or None
        Bytes that an engine may use.
    warm_start : str or None
        Source of the schedule handed to the engine.
    warm_start_accepted : bool or None
        Whether the engine confirmed it as feasible; None where it does not say.
    details : mapping
        Counts such as nodes, columns and rows.
    """

    engine: str | None = None
    formulation: str | None = None
    reason: str | None = None
    scope: Scope | None = None
    termination: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    seed: int | None = None
    time_limit: float | None = None
    memory_limit: int | None = None
    seconds: float | None = None
    warm_start: str | None = None
    warm_start_accepted: bool | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result(Solved, Generic[S, M]):
    """Answer for one instance; `S` and `M` are the schedules and metrics of its problem.

    Raises
    ------
    ValueError
        If the lower bound exceeds the upper bound: one of the two is wrong, and neither may be
        published.
    """

    instance: str
    instance_sha256: str
    objective: str
    upper: UpperBound | None = None
    lower: LowerBound | None = None
    schedule: S | None = None
    metrics: M | None = None
    solver: SolverReport | None = None
    infeasible: bool = False
    #: Value of the objective that was asked about.
    target: Fraction | None = None
    #: Why it is not known whether the schedule is as it must be; then nothing follows from its value.
    undecided: str | None = None
    #: Band of machines that both bounds hold for, ``LO:HI``; None for those of the instance as it is.
    band: str | None = None
    #: The best bound that anyone can check, where `lower` is a solver's word.
    certified: LowerBound | None = field(default=None, compare=False, repr=False)
    #: The instance itself; None for a result that was put together without it.
    given: AnyInstance | None = field(default=None, compare=False, repr=False)
    #: When each better schedule and bound came; files do not hold it.
    events: tuple[ProgressEvent, ...] = field(default=(), compare=False, repr=False)

    def convergence_frame(self) -> pandas.DataFrame:
        """A row for each better schedule or bound, as it came; raises `InputError` without pandas."""
        return frame(event.facts() for event in self.events)

    def facts(self) -> Mapping[str, Any]:
        """What is established, by what, and in which time."""
        return {
            "instance": self.instance,
            "objective": self.objective,
            "status": self.status,
            "schedule": self.upper.value if self.upper else None,
            "lower_bound": self.lower.value if self.lower else None,
            "gap": self.gap,
            "found_by": self.upper.source if self.upper else None,
            "bound_by": self.lower.source if self.lower else None,
            "proof": self.lower.proof if self.lower else None,
            "answer": self.answer,
            "seconds": self.solver.seconds if self.solver else None,
        }

    def to_dict(self) -> dict[str, Any]:
        """What the file of the result holds; its decimals become the nearest float."""
        found: dict[str, Any] = plain(result_items(self, written_schedule(self.schedule)))
        return found

    def __post_init__(self) -> None:
        if self.upper and self.lower and self.lower.value > self.upper.value:
            raise ValueError(
                f"lower bound {float(self.lower.value)!r} ({self.lower.source}) exceeds upper bound "
                f"{float(self.upper.value)!r} ({self.upper.source})"
            )

    @property
    def status(self) -> Status:
        """What the two bounds establish together."""
        if self.infeasible:
            return Status.INFEASIBLE
        if self.upper is None:
            return Status.UNKNOWN if self.lower is None else Status.BOUND_ONLY
        met = self.lower is not None and self.lower.value == self.upper.value
        if met and self.undecided is None:
            return Status.OPTIMAL
        return Status.FEASIBLE

    @property
    def answer(self) -> Answer | None:
        """Whether a schedule reaches the value that was asked about; None if none was."""
        upper = self.upper.value if self.upper and self.undecided is None else None
        return Answer.of(self.target, upper, self.lower.value if self.lower else None)

    @property
    def gap(self) -> Fraction | None:
        """(UB - LB) / UB; None where either is unknown."""
        return gap_of(self.upper.value if self.upper else None, self.lower.value if self.lower else None)

    def claim(self) -> Claim:
        """What the result claims, for the verifier to check."""
        return Claim(
            instance=self.instance,
            instance_sha256=self.instance_sha256,
            objective=self.objective,
            status=self.status,
            upper_bound=self.upper.value if self.upper else None,
            lower_bound=self.lower.value if self.lower else None,
            gap=self.gap,
            upper_source=self.upper.source if self.upper else None,
            lower_source=self.lower.source if self.lower else None,
            proof=self.lower.proof if self.lower else None,
            certificate=self.lower.certificate if self.lower else None,
            evidence=self.lower if self.lower and self.lower.evidence else None,
            schedule=self.schedule,
            metrics=dict(self.metrics.items()) if self.metrics else {},
            has_solver=self.solver is not None,
            details=self.solver.details if self.solver else {},
            target=self.target,
            answer=self.answer,
            undecided=self.undecided,
            band=self.band,
        )


AnyResult = Result[Any, Any]


def gap_of(upper: Fraction | None, lower: Fraction | None) -> Fraction | None:
    """(UB - LB) / UB of two bounds, 0 where they meet or UB is 0; None where either is unknown."""
    if upper is None or lower is None:
        return None
    return (upper - lower) / upper if upper else Fraction(0)


@dataclass(frozen=True)
class Claim:
    """What a result file says, before anybody checked it.  Fields as in `Result`.

    `certificate` is the path of a file that can be read from here; `evidence` the lower bound
    itself where it never was in a file.  `has_solver` says whether there is a report of the solver, and
    `details` are what it holds of these.
    """

    instance: str
    instance_sha256: str
    objective: str
    status: Status
    upper_bound: Fraction | None
    lower_bound: Fraction | None
    gap: Fraction | None
    lower_source: str | None
    proof: Proof | None
    certificate: str | None
    schedule: AnySchedule | None
    metrics: Mapping[str, Fraction | int | None]
    evidence: LowerBound | None = None
    upper_source: str | None = None
    has_solver: bool = False
    target: Fraction | None = None
    answer: Answer | None = None
    undecided: str | None = None
    band: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
