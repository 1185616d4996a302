"""What a fleet does: each machine's schedule replayed exactly, batch by batch, apart from all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule, TooManyBatches
from infermax_opt.infermax.replay.fast import valid_replay
from infermax_opt.infermax.replay.plain import Replay

__all__ = ["FleetReplay", "members_of", "replay_fleet", "replays"]


@dataclass(frozen=True)
class FleetReplay:
    """The outcome of routes with schedules.

    Attributes
    ----------
    good : frozenset of int
        Places of the requests that keep their service level, from exact times.
    busy : tuple of tuple of (Fraction, Fraction)
        Seconds from which until when each machine runs batches, one after the other.
    too_long : bool
        Whether a machine would need more batches than a schedule may hold; then nothing else is known.
    """

    good: frozenset[int]
    busy: tuple[tuple[tuple[Fraction, Fraction], ...], ...]
    too_long: bool = False

    def keeps(self, question: FleetQuestion) -> bool:
        """Whether the share of the question is reached."""
        return len(self.good) >= question.must


def members_of(routes: Sequence[int]) -> dict[int, list[int]]:
    """Places of the requests of each machine that has any."""
    found: dict[int, list[int]] = {}
    for i, machine in enumerate(routes):
        if machine >= 0:
            found.setdefault(machine, []).append(i)
    return found


Schedules = Callable[[Instance], Schedule] | Mapping[int, Schedule]


def replays(
    question: FleetQuestion, routes: Sequence[int], schedule: Schedules
) -> Iterator[tuple[list[int], Instance, Replay]]:
    """Each machine that serves anybody: places of its requests, its instance, and what its schedule does.

    Parameters
    ----------
    question, routes, schedule
        As for `replay_fleet`.

    Raises
    ------
    TooManyBatches
        If a machine needs more batches than a schedule may hold.
    ValueError
        If a schedule breaks a rule.
    """
    for machine, members in sorted(members_of(routes).items()):
        instance = question.machine(members)
        chosen = schedule[machine] if isinstance(schedule, Mapping) else schedule(instance)
        yield members, instance, valid_replay(instance, chosen)


def replay_fleet(question: FleetQuestion, routes: Sequence[int], schedule: Schedules) -> FleetReplay:
    """Replay routes, and find who keeps their service level.

    Nobody does where a machine would need more batches than a schedule may hold.

    Parameters
    ----------
    question : FleetQuestion
    routes : sequence of int
        Machine of each request, -1 for none.
    schedule : callable or mapping
        The schedule of a machine's instance, or that of each machine by number.

    Raises
    ------
    ValueError
        If a schedule breaks a rule.
    """
    good, busy = set[int](), list[tuple[tuple[Fraction, Fraction], ...]]()
    try:
        for members, instance, replayed in replays(question, routes, schedule):
            busy.append(_stretches(replayed))
            broken = replayed.latencies(instance).broken or [False] * len(members)
            good.update(i for i, missed in zip(members, broken, strict=True) if not missed)
    except TooManyBatches:
        return FleetReplay(frozenset(), (), too_long=True)
    return FleetReplay(frozenset(good), tuple(busy))


def _stretches(replayed: Replay) -> tuple[tuple[Fraction, Fraction], ...]:
    """Seconds of batches that follow each other without a pause."""
    found: list[list[int]] = []
    for start, end in zip(replayed.starts, replayed.ends, strict=True):
        if found and found[-1][1] == start:
            found[-1][1] = end
        else:
            found.append([start, end])
    unit = replayed.ticks_per_second
    return tuple((Fraction(start, unit), Fraction(end, unit)) for start, end in found)
