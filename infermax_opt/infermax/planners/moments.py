"""Shares of the time that is left."""

from __future__ import annotations

import time

__all__ = ["after_share"]


def after_share(share: float, deadline: float | None) -> float | None:
    """Moment of `time.monotonic` when so large a share of the time left has passed; None for no deadline."""
    now = time.monotonic()
    return None if deadline is None else now + share * (deadline - now)
