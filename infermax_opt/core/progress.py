"""How far a run is, as whoever watches it is told; and how it is asked to stop.

A callback is called in the process, and in the thread, in which the function runs that was given it: never
from a worker process.  It ends the run by returning True or by raising `StopIteration`: what is known by then
is the result, as after Ctrl-C.  Whatever else it raises goes to the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.interrupts import Stopped
from infermax_opt.core.shown import Shown

__all__ = ["Progress", "ProgressEvent", "Teller", "shown_gap"]


@dataclass(frozen=True)
class ProgressEvent(Shown):
    """News of a run.  Its text is what `--progress` prints.

    Attributes
    ----------
    text : str
        One line.
    seconds : float
        Since the run began.
    step : str
        ``bound`` or ``schedule`` where there is a better one; else ``search``, or what is run through:
        ``row`` of a table, ``metric``, ``direction`` of a front, ``heartbeat``, ``kernel`` that was compiled;
        ``untried`` where something was left out that would have helped.
    value, bound : float or None
        Objective of the best schedule, and best lower bound, in its unit; None where there is none yet.
    source : str or None
        What found the new schedule or bound.
    """

    text: str
    seconds: float
    step: str = "search"
    value: float | None = None
    bound: float | None = None
    source: str | None = None

    @property
    def gap(self) -> float | None:
        """(value - bound) / value; None where either is unknown."""
        return shown_gap(self.value, self.bound)

    def facts(self) -> Mapping[str, Any]:
        """All of it."""
        return {
            "seconds": self.seconds,
            "step": self.step,
            "value": self.value,
            "bound": self.bound,
            "gap": self.gap,
            "source": self.source,
            "text": self.text,
        }

    def __str__(self) -> str:
        return self.text


#: Receives every `ProgressEvent`; returns True to end the run.
Progress = Callable[[ProgressEvent], object]


class Teller:
    """Tells a callback, until it wants the run to end.

    Parameters
    ----------
    progress : callable or None
        None hears nothing.
    began : float, optional
        When the run began, by `time.monotonic`; default: now.

    Attributes
    ----------
    events : list of ProgressEvent
        Those of new schedules and bounds, also where nobody hears them.
    """

    def __init__(self, progress: Progress | None, began: float | None = None):
        self.progress = progress
        self.began = time.monotonic() if began is None else began
        self.events: list[ProgressEvent] = []
        self._stopped = False

    def __call__(
        self,
        text: str,
        step: str = "search",
        value: Fraction | float | None = None,
        bound: Fraction | float | None = None,
        source: str | None = None,
    ) -> None:
        """Tell some news.

        Parameters
        ----------
        text, step, value, bound, source
            As in `ProgressEvent`.

        Raises
        ------
        Stopped
            If the callback wants the run to end; once, for what follows must not be disturbed.
        """
        event = ProgressEvent(
            text,
            time.monotonic() - self.began,
            step,
            None if value is None else float(value),
            None if bound is None else float(bound),
            source,
        )
        if step in ("bound", "schedule"):
            self.events.append(event)
        if self.progress is None or self._stopped:
            return
        try:
            self._stopped = self.progress(event) is True
        except StopIteration:
            self._stopped = True
        if self._stopped:
            raise Stopped


def shown_gap(value: float | None, bound: float | None) -> float | None:
    """(value - bound) / value; None where either is unknown, or the value is 0 and the bound is not."""
    if value is None or bound is None:
        return None
    if value == bound:
        return 0.0
    return (value - bound) / value if value else None
