"""Schedulers that tell real-time from best-effort requests, and others of the same loop, by name."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.simulator import simulate

if TYPE_CHECKING:
    from infermax_opt.infermax.schedulers._class_loop import ClassScheduler

__all__ = ["CLASSED", "FOR_FIRST_TOKENS", "TRIED", "classed_schedule"]


def _by(named: str, **settings: Any) -> Callable[[Instance], ClassScheduler]:
    """What makes a scheduler by ``module:class``; the module is loaded by the first that is made."""

    def make(instance: Instance) -> ClassScheduler:
        made: ClassScheduler = resolve_name(f"infermax_opt.infermax.schedulers.{named}")(instance, **settings)
        return made

    return make


CLASSED: dict[str, Callable[[Instance], ClassScheduler]] = {
    "slack": _by("slack:Slack"),
    "slack-known": _by("slack_known:SlackKnown"),
    "bros": _by("bros:Bros"),
    "rr": _by("round_robin:RoundRobin"),
    "fcfs": _by("round_robin:RoundRobin", alternate=False),
    "first-tokens": _by("first_tokens:FirstTokens"),
    "bros-literal": _by("bros:Bros", guarded=False),
}
"""What makes the scheduler of each name for an instance."""

FOR_FIRST_TOKENS = ("first-tokens",)
"""Names of those that are tried where first tokens count."""

TRIED = ("slack", "slack-known", "bros", "rr", "fcfs")
"""Names of those that are tried where requests differ: the literal one takes long once a request is late."""


def classed_schedule(instance: Instance, name: str) -> Schedule:
    """Schedule an instance by a scheduler of `CLASSED`; valid for every instance.

    Parameters
    ----------
    instance : Instance
    name : str
    """
    return simulate(instance, CLASSED[name](instance))
