"""Schedulers that tell real-time from best-effort requests, and others of the same loop, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.schedulers._class_loop import ClassScheduler
from infermax_opt.infermax.schedulers.bros import Bros, BrosOptions
from infermax_opt.infermax.schedulers.first_tokens import FirstTokens
from infermax_opt.infermax.schedulers.round_robin import RoundRobin
from infermax_opt.infermax.schedulers.slack import Slack
from infermax_opt.infermax.schedulers.slack_known import SlackKnown
from infermax_opt.infermax.simulator import simulate

__all__ = ["CLASSED", "FOR_FIRST_TOKENS", "TRIED", "classed_schedule"]

CLASSED: dict[str, Callable[[Instance], ClassScheduler]] = {
    "slack": Slack,
    "slack-known": SlackKnown,
    "bros": Bros,
    "rr": RoundRobin,
    "fcfs": partial(RoundRobin, alternate=False),
    "first-tokens": FirstTokens,
    "bros-literal": partial(Bros, options=BrosOptions(guarded=False)),
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
