"""Schedulers: each turns an instance into a valid schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.anytime import anytime_plans
from infermax_opt.infermax.schedulers.algorithm1 import Options, Order, schedule
from infermax_opt.infermax.schedulers.presets import PRESETS, preset

__all__ = [
    "Options",
    "Order",
    "Scheduler",
    "anytime_plans",
    "get_scheduler",
    "run_scheduler",
    "schedule",
    "scheduler_names",
]

Scheduler = Callable[[Instance], Schedule]


def scheduler_names() -> tuple[str, ...]:
    """Names that `get_scheduler` takes; each also with ``@rN`` for at most N running requests."""
    return tuple(PRESETS)


def get_scheduler(name: str) -> Scheduler:
    """Return the scheduler called `name`.

    Raises
    ------
    InputError
        If there is none; the message names the choices.
    """
    return partial(schedule, options=preset(name))


def run_scheduler(instance: Instance, name: str) -> Schedule:
    """Schedule `instance` by the scheduler called `name`."""
    return get_scheduler(name)(instance)
