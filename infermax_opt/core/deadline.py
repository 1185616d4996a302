"""A moment by which a search has to end: it asks whether that is past, or how long it is until then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["Deadline", "time_left"]


class Deadline:
    """A moment from now, which says when called whether it is past.

    Parameters
    ----------
    seconds : float, optional
        None for a moment that never comes.
    """

    def __init__(self, seconds: float | None):
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def __call__(self) -> bool:
        """Whether it is past."""
        return self.left() < 0

    def left(self) -> float:
        """Seconds until then; less than 0 if it is past."""
        return self._end - time.monotonic()


def time_left(stop: Callable[[], bool]) -> float:
    """Seconds until a search is asked to stop, as far as that is known: infinite if it is not.

    Parameters
    ----------
    stop : callable
        Asked whether to stop; a `Deadline` or anything else.
    """
    return stop.left() if isinstance(stop, Deadline) else math.inf
