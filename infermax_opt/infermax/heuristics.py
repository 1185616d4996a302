"""Schedulers and planners by name: each turns an instance into a valid schedule.

A scheduler of another package is found through the group of entry points ``infermax_opt.schedulers``; that of
a Python file is called ``FILE.py:NAME``.  Both take an instance and return its schedule, or are asked before
each batch: see `infermax_opt.infermax.simulator.asked_for_batches`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.plugins import blaming, named_points, refuse_left_out
from infermax_opt.core.problem import Heuristic
from infermax_opt.core.script import file_and_name, from_file
from infermax_opt.infermax.data.first_tokens import counts_first_tokens
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.release import refuse_release
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.schedulers.algorithm1 import Options, schedule
from infermax_opt.infermax.schedulers.classed import CLASSED, FOR_FIRST_TOKENS, TRIED, classed_schedule
from infermax_opt.infermax.schedulers.closed_loop import in_closed_loop
from infermax_opt.infermax.schedulers.foresight import FORESIGHT, foresight_schedule
from infermax_opt.infermax.schedulers.presets import ABOUT, AIMED, PRESETS, preset
from infermax_opt.infermax.schedulers.reservation.options import ReservationOptions
from infermax_opt.infermax.schedulers.reservation.presets import (
    ABOUT_RESERVATION,
    RESERVATION,
    is_reservation,
    reservation_options,
)
from infermax_opt.infermax.simulator import asked_for_batches, is_clairvoyant, simulate

__all__ = [
    "GROUP", "INFORMED", "PLANNERS", "Scheduler", "aimed_names", "get_scheduler", "is_added", "names_for",
    "reservation_lines", "run_added", "run_scheduler", "scheduler_lines", "scheduler_names",
]  # fmt: skip

Scheduler = Callable[[Instance], Schedule]

#: Output tokens up to which those of `CLASSED`, which are slow, are tried unasked.
MOST_TOLD = 60_000
#: Entry points of schedulers.
GROUP = "infermax_opt.schedulers"
#: What the source of a schedule says of a scheduler that was shown output lengths, and that in words.
CLAIRVOYANT = "clairvoyant"
REMARK = f"{CLAIRVOYANT}: the scheduler was shown the output lengths of requests that had arrived"


def _planner(instance: Instance) -> Schedule:
    from infermax_opt.infermax.planners.plan.planner import plan

    return plan(instance)


def _beam(instance: Instance) -> Schedule:
    from infermax_opt.infermax.planners.beam.beam import beam_search

    found = beam_search(instance)
    if found is None:
        raise InputError("the beam search takes requests of one kind that are all there from the start")
    return found


def _reserving(instance: Instance, options: ReservationOptions) -> Schedule:
    from infermax_opt.infermax.schedulers.reservation.run import reservation_run

    return reservation_run(instance, options).schedule


INFORMED: dict[str, Scheduler] = {
    name: partial(foresight_schedule, order=order) for name, order in FORESIGHT.items()
}
"""Schedulers by name that know the output lengths of what has arrived, which those of Table 1 do not."""

PLANNERS: dict[str, Scheduler] = {"planner": _planner, "beam": _beam}
"""Planners by name: they know all requests, and their output lengths, from the start."""


def _installed() -> dict[str, EntryPoint]:
    return named_points(GROUP, (*PRESETS, *AIMED, *CLASSED, *INFORMED, *PLANNERS, *RESERVATION))


def scheduler_names() -> tuple[str, ...]:
    """Names of the schedulers that take every instance, those of other packages last; presets also with
    ``@rN``.
    """
    return (*PRESETS, *sorted(_installed()))


def aimed_names() -> tuple[str, ...]:
    """Names of those that refuse an instance without predictions or service levels; also with ``@rN``."""
    return tuple(AIMED)


def names_for(instance: Instance) -> tuple[str, ...]:
    """Names of all these that are worth a trial on an instance.

    Those that tell classes apart come last, as they are slow: where there is something to tell, and not so
    many tokens that one of them takes more than a few seconds; so does the one for first tokens, where these
    count.  In a closed loop presets are left out, as they run once for each set.
    """
    others = (*scheduler_names(), *aimed_names())
    first = FOR_FIRST_TOKENS if counts_first_tokens(instance) else ()
    if instance.release is not None:
        return (*TRIED, *first, *sorted(_installed()))
    told = any(group.slo or group.class_name is not None for group in instance.groups)
    slow = (*(TRIED if told else ()), *first)
    return (*others, *(slow if instance.output_tokens <= MOST_TOLD else ()))


def scheduler_lines() -> list[str]:
    """A line for each of all these, with what the names of some do not say."""
    names = (*scheduler_names(), *aimed_names(), *CLASSED)
    return [f"{name}: {ABOUT[name]}" if name in ABOUT else name for name in names]


def reservation_lines() -> list[str]:
    """A line for each scheduler that reserves KV."""
    return [f"{name}: {ABOUT_RESERVATION[name]}" for name in RESERVATION]


def get_scheduler(name: str) -> Scheduler:
    """Return the scheduler or planner called `name`.

    Raises
    ------
    InputError
        If there is none; the message names the choices.
    """
    if name in PLANNERS:
        return partial(_open_loop, name=name, scheduler=PLANNERS[name])
    if name in INFORMED:
        return partial(in_closed_loop, name=name, scheduler=INFORMED[name])
    if name in CLASSED:
        return partial(classed_schedule, name=name)
    if is_added(name):
        return lambda instance: run_added(instance, name).schedule
    if is_reservation(name):
        reserving = partial(_reserving, options=reservation_options(name))
        return partial(in_closed_loop, name=name, scheduler=reserving)
    others = [*CLASSED, *sorted(_installed()), *RESERVATION, *INFORMED, *PLANNERS, "FILE.py:NAME"]
    if name not in PRESETS and name not in AIMED:
        refuse_left_out(GROUP, name)
    return partial(_by_preset, name=name, options=preset(name, others))


def _by_preset(instance: Instance, name: str, options: Options) -> Schedule:
    """What a preset makes of an instance, which may have a closed loop."""
    return in_closed_loop(instance, name, partial(schedule, options=options, whole=instance))


def _open_loop(instance: Instance, name: str, scheduler: Scheduler) -> Schedule:
    """What a planner makes of an instance that has no closed loop."""
    refuse_release(instance, name)
    return scheduler(instance)


def is_added(name: str) -> bool:
    """Whether a name is that of a scheduler of another package, or of one in a Python file."""
    return name in _installed() or file_and_name(name) is not None


def run_added(instance: Instance, name: str) -> Heuristic[Schedule]:
    """Schedule `instance` by a scheduler of another package or in a Python file.

    Raises
    ------
    PackageError
        If it fails; the line names it.
    """
    point, file = _installed().get(name), file_and_name(name)
    if point is not None:
        with blaming(point, refusals=True):
            return _made(point.load(), instance, in_file=False)
    assert file is not None
    with from_file(*file) as scheduler:
        return _made(scheduler, instance, in_file=True)


def _made(scheduler: Any, instance: Instance, in_file: bool) -> Heuristic[Schedule]:
    """What a scheduler makes of an instance; in a file, one that does not say how is asked for batches."""
    if not asked_for_batches(scheduler, otherwise=in_file):
        return Heuristic(_checked(scheduler(instance)))
    made = simulate(instance, scheduler)
    return Heuristic(made, (REMARK,), CLAIRVOYANT) if is_clairvoyant(scheduler) else Heuristic(made)


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
