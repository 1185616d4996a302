"""What every engine takes and gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

from infermax_opt.core.result import LowerBound
from infermax_opt.core.values import AnySchedule

__all__ = ["EngineLimits", "EngineOutcome", "LimitReached", "Progress", "Termination"]

S = TypeVar("S", bound=AnySchedule)


class Termination:
    """Why an engine stopped."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"


Progress = Callable[[str], None]
"""Receives one short line whenever there is news; called from the solving thread."""


class LimitReached(Exception):
    """A limit of a run was reached; `termination` says which one."""

    def __init__(self, termination: str):
        super().__init__(termination)
        self.termination = termination


@dataclass(frozen=True)
class EngineLimits:
    """Limits of one engine run.

    Attributes
    ----------
    seconds : float or None
        Wall-clock time.
    threads : int
    seed : int
    memory : int or None
        Bytes.
    """

    seconds: float | None = 60.0
    threads: int = 1
    seed: int = 0
    memory: int | None = None

    def check(self, began: float, memory: int) -> None:
        """Raise `LimitReached` where a run that began then, and takes so many bytes, is at a limit.

        Parameters
        ----------
        began : float
            Moment of `time.monotonic`.
        memory : int
        """
        if self.memory is not None and memory > self.memory:
            raise LimitReached(Termination.MEMORY_LIMIT)
        if self.seconds is not None and time.monotonic() - began > self.seconds:
            raise LimitReached(Termination.TIME_LIMIT)


@dataclass(frozen=True)
class EngineOutcome(Generic[S]):
    """What an engine found, whatever made it stop.

    Attributes
    ----------
    schedule : schedule or None
        Best schedule found, unverified.
    lower : LowerBound or None
        Best proved bound, exact, in the unit of the objective.
    termination : str
        One of `Termination`.
    upper : Fraction or None
        Objective of `schedule` as the engine sees it, exact.
    warm_start_accepted : bool or None
        Whether the engine confirmed the warm start as feasible; None where there was none or the
        engine does not say.
    details : mapping
        Counts such as nodes, columns and rows.
    """

    schedule: S | None
    lower: LowerBound | None
    termination: str
    upper: Fraction | None = None
    warm_start_accepted: bool | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
