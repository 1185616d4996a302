"""What the verifier knows by itself, and what it can say of a claim.

What it finds out about an instance and a schedule is a `Truth`.  What it cannot check is named, with the
reason (`Unchecked`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from infermax_opt.core.result import Claim, LowerBound
from infermax_opt.core.values import AnyInstance, AnyMetrics, AnyViolation

__all__ = [
    "LOWER_BOUND",
    "ROUNDING",
    "Fault",
    "FaultKind",
    "Finding",
    "M",
    "Trust",
    "Truth",
    "Unchecked",
    "V",
    "best_of",
    "found_by_enumerating",
]

#: Relative rounding allowed in a claimed number: what a double can hold.
ROUNDING = Fraction(1, 10**12)
#: Name of the claim of a lower bound, as in a result file.
LOWER_BOUND = "lower_bound"
V = TypeVar("V", bound=AnyViolation)
M = TypeVar("M", bound=AnyMetrics)


class FaultKind(enum.Enum):
    """Which claim of a result is wrong."""

    INSTANCE = "instance"
    OBJECTIVE = "objective"
    STATUS = "status"
    UPPER_BOUND = "upper_bound"
    LOWER_BOUND = "lower_bound"
    GAP = "gap"
    ANSWER = "answer"
    METRICS = "metrics"
    DETAILS = "details"


@dataclass(frozen=True)
class Fault:
    """One wrong claim: what the result says and what is true."""

    kind: FaultKind
    message: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


class Trust(enum.Enum):
    """How far the verifier could check a claimed lower bound."""

    RECOMPUTED = "recomputed"
    ENUMERATED = "confirmed by enumerating every schedule"
    REFUTED = "refuted"
    CERTIFIED = "its certificate was checked"
    UNCHECKED = "not checked"

    @property
    def is_word(self) -> bool:
        """Whether nothing but a solver's word stands behind the bound."""
        return self is Trust.UNCHECKED


@dataclass(frozen=True)
class Finding:
    """How far a bound could be checked, and why no further."""

    trust: Trust
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.trust.value}: {self.reason}" if self.reason else self.trust.value


@dataclass(frozen=True)
class Unchecked:
    """A claim that could not be checked, and why."""

    claim: str
    reason: str

    def __str__(self) -> str:
        return f"{self.claim}: {self.reason}"


def found_by_enumerating(holds: bool | None, why_not: str) -> Finding:
    """What an enumeration found out about a bound.

    Parameters
    ----------
    holds : bool or None
        None if it was given up.
    why_not : str
        Why it was given up, if it was.
    """
    if holds is None:
        return Finding(Trust.UNCHECKED, why_not)
    return Finding(Trust.ENUMERATED if holds else Trust.REFUTED)


def best_of(bounds: Iterable[LowerBound], source: str | None) -> Fraction | None:
    """The best of the bounds of that source, of all without one; None if there is none."""
    return max((bound.value for bound in bounds if source in (None, bound.source)), default=None)


def _no_certificate(claim: Claim) -> Fraction | None:
    return None


@dataclass(frozen=True)
class Truth(Generic[V, M]):
    """What the verifier knows without any claim; `V` and `M` are the violations and metrics of the problem.

    Parameters
    ----------
    instance : AnyInstance
    violations : tuple
        Rules that the schedule breaks.
    metrics : metrics of the problem, or None
        Of the replayed schedule; None without a valid one.
    objective : Fraction or None
        Replayed objective, in its unit (seconds, or workers).
    closed_form : callable
        Gives the best closed-form lower bound of that source, in that unit; None if there is no such
        source.  Without a source: the best of those that are `proved_here`.
    confirm : callable
        Says how far it can check a solver's bound above all closed forms, given in that unit.
    trivial : callable
        Gives what a valid schedule made by a plain rule attains, or something above it, in that unit; None
        if that would take too long, or there is no schedule.
    infeasible : callable
        Whether there is no schedule.  An instance of a problem without it always has one.
    certified : callable
        Gives the bound that the certificate of a claim proves, None if the claim names none; raises
        `InputError` if it proves nothing.  For problems whose bounds are certified.
    details : callable
        Gives wrong and unchecked claims among the details of the solver; all other details are notes.
    unchecked : tuple of Unchecked
        What could not be checked of the schedule itself.
    proved_here : callable
        Whether the closed form of that source is one whose proof the verifier relies on.  Those of other
        packages are held against every schedule of a small instance, and against a plain one, as well.
    later : frozenset of str
        Metrics that results of earlier versions lack: a result may leave one out where it is undefined.
    later_together : tuple of frozenset of str
        Metrics that results of earlier versions lack, too: a result may leave out such a set as a whole.
    """

    instance: AnyInstance
    violations: tuple[V, ...]
    metrics: M | None
    objective: Fraction | None
    closed_form: Callable[[str | None], Fraction | None]
    confirm: Callable[[Fraction], Finding]
    trivial: Callable[[], Fraction | None]
    infeasible: Callable[[], bool] = lambda: False
    certified: Callable[[Claim], Fraction | None] = _no_certificate
    details: Callable[[Claim], tuple[list[Fault], list[Unchecked]]] = lambda _: ([], [])
    unchecked: tuple[Unchecked, ...] = ()
    proved_here: Callable[[str], bool] = lambda _: True
    later: frozenset[str] = frozenset()
    later_together: tuple[frozenset[str], ...] = ()
