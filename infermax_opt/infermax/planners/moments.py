"""Deadlines: whether one has passed, and shares of the time until then."""

from __future__ import annotations

import time

__all__ = ["after_share", "passed"]


def passed(deadline: float | None, ahead: float = 0.0) -> bool:
    """Whether a moment of `time.monotonic` has come, or comes in so many seconds; None never does."""
    return deadline is not None and time.monotonic() + ahead >= deadline


def after_share(share: float, deadline: float | None) -> float | None:
    """Moment of `time.monotonic` when so large a share of the time left has passed; None for no deadline."""
    now = time.monotonic()
    return None if deadline is None else now + share * (deadline - now)
