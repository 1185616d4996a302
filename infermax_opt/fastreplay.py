"""Compiled replay of valid schedules; see `infermax_opt.replay` for the plain path."""

from __future__ import annotations

from infermax_opt.instance import Instance
from infermax_opt.replay import Replay, replay_plain
from infermax_opt.schedules import Schedule

__all__ = ["replay"]


def replay(instance: Instance, schedule: Schedule) -> Replay:
    """Replay a schedule."""
    return replay_plain(instance, schedule)
