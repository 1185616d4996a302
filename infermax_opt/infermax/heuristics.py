"""Schedulers and planners by name: each turns an instance into a valid schedule.

A scheduler of another package is found through the group of entry points ``infermax_opt.schedulers``, whose
values are functions that take an instance and return its schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points

from infermax_opt.core.errors import InputError
from infermax_opt.core.plugins import blaming
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.foresight import FORESIGHT, foresight_schedule
from infermax_opt.infermax.schedulers.presets import ABOUT, AIMED, PRESETS, preset

__all__ = [
    "GROUP", "INFORMED", "PLANNERS", "Scheduler", "aimed_names", "get_scheduler", "run_scheduler",
    "scheduler_lines", "scheduler_names",
]  # fmt: skip

Scheduler = Callable[[Instance], Schedule]

#: Entry points of schedulers.
GROUP = "infermax_opt.schedulers"


def _planner(instance: Instance) -> Schedule:
    from infermax_opt.infermax.planners.plan.planner import plan

    return plan(instance)


def _beam(instance: Instance) -> Schedule:
    from infermax_opt.infermax.planners.beam.beam import beam_search

    found = beam_search(instance)
    if found is None:
        raise InputError("the beam search takes requests of one kind that are all there from the start")
    return found


INFORMED: dict[str, Scheduler] = {
    name: partial(foresight_schedule, order=order) for name, order in FORESIGHT.items()
}
"""Schedulers by name that know the output lengths of what has arrived, which those of Table 1 do not."""

PLANNERS: dict[str, Scheduler] = {"planner": _planner, "beam": _beam}
"""Planners by name: they know all requests, and their output lengths, from the start."""


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def scheduler_names() -> tuple[str, ...]:
    """Names of the schedulers that take every instance, those of other packages last; presets also with
    ``@rN``.
    """
    return (*PRESETS, *sorted(_installed()))


def aimed_names() -> tuple[str, ...]:
    """Names of those that refuse an instance without predictions or service levels; also with ``@rN``."""
    return tuple(AIMED)


def scheduler_lines() -> list[str]:
    """A line for each of all these, with what the names of some do not say."""
    names = (*scheduler_names(), *aimed_names())
    return [f"{name}: {ABOUT[name]}" if name in ABOUT else name for name in names]


def get_scheduler(name: str) -> Scheduler:
    """Return the scheduler or planner called `name`.

    Raises
    ------
    InputError
        If there is none; the message names the choices.
    """
    for table in (INFORMED, PLANNERS):
        if name in table:
            return table[name]
    if name in _installed():
        return partial(_run_installed, _installed()[name])
    return partial(schedule, options=preset(name, [*sorted(_installed()), *INFORMED, *PLANNERS]))


def _run_installed(point: EntryPoint, instance: Instance) -> Schedule:
    with blaming(point, refusals=True):
        return _checked(point.load()(instance))


def _checked(made: object) -> Schedule:
    """What another package gives, if it is a schedule whose batches can be read."""
    if not isinstance(made, Schedule):
        raise TypeError(f"{made!r} is no Schedule")
    if not isinstance(made.batches, tuple):
        raise TypeError(f"its batches are a {type(made.batches).__name__}, not a tuple")
    for batch in made.batches:
        if not isinstance(batch, Batch):
            raise TypeError(f"{batch!r} is no Batch")
        for name in (*batch.tokens, *batch.evict):
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is no id of a request")
    return made


def run_scheduler(instance: Instance, name: str) -> Schedule:
    """Schedule `instance` by the scheduler or planner called `name`."""
    return get_scheduler(name)(instance)
