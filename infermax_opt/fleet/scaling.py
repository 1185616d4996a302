"""Machines that are switched on and off: machine-hours from below and from above.

*Lower bound.*  A machine is on at least while it runs a batch.  In each window of time the needs of good
requests that lie within it cost at most what machines are busy in it (`infermax_opt.fleet.bounds.pooled`,
whose argument for one machine holds with its busy time in the place of the length).  One window holds all
needs; so machines are busy for at least the sum of the ceil(q n) smallest costs, with the best piece and the
best thing to share alpha by.  Where parts of the requests keep the share each by itself, the sums of all
parts add up, with the same piece and thing.  A machine that ever serves was switched on once: it is on for a
start-up besides what it is busy for, and for a start-up and the minimum stay at least.  There are as many as
the pooled bound says.

*Upper bound.*  Routes are replayed exactly.  A machine is on from a start-up time before its first batch;
it stays on over a pause that is no longer than a start-up, and serves for the minimum stay from when it was
switched on.  This is planned with what is to come in mind, as the bound is.  Where that takes longer than to
leave all machines on, they are left on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from infermax_opt.fleet.bounds.pooled import ANY_STEPS, ARGUMENTS, MachineBound
from infermax_opt.fleet.checker.certificate import machine_seconds
from infermax_opt.fleet.checker.hours import HOURS_SCHEMA
from infermax_opt.fleet.checker.needs import KINDS
from infermax_opt.fleet.checker.question import joint_hash
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import FleetReplay, replay_fleet
from infermax_opt.fleet.routing.policies import Router
from infermax_opt.fleet.upper import Found
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset

__all__ = ["Scaled", "Scaling", "least_time", "machine_time", "on_times", "scaled"]

#: Machines that first fit may use, as a multiple of those that are needed at once.
MORE = 2


@dataclass(frozen=True)
class Scaling:
    """How machines are switched on and off.

    Attributes
    ----------
    start_up, min_stay : Fraction
        Seconds that a machine is paid before it serves, and for which it serves at least.
    """

    start_up: Fraction = Fraction(0)
    min_stay: Fraction = Fraction(0)


@dataclass(frozen=True)
class Scaled:
    """Machine time over a trace, s.

    Attributes
    ----------
    lower, upper : Fraction
    policy : str
        Of the upper one.
    certificate : dict
        Of the lower one, for `infermax_opt.fleet.checker.hours`.
    peak : int
        Most machines that are on at once.
    always : Fraction
        The same as `upper` with the fewest machines, all on from a start-up before 0 to the last batch, and
        for the minimum stay.
    """

    lower: Fraction
    upper: Fraction
    policy: str
    certificate: dict[str, Any]
    peak: int
    always: Fraction


def least_time(bounds: Sequence[MachineBound], scaling: Scaling) -> tuple[Fraction, dict[str, Any]]:
    """Least time for which machines are on together, s, and its certificate.

    Parameters
    ----------
    bounds : sequence of MachineBound
        Of requests that keep the share by themselves, apart from each other.
    scaling : Scaling

    Raises
    ------
    ValueError
        If no number of machines is enough.
    """
    most = max(bounds, key=lambda bound: bound.machines or 0)
    best: tuple[Fraction, dict[str, Any]] | None = None
    end, how = max(map(_last_tick, bounds)), (scaling.start_up, scaling.min_stay)
    asked = [bound.certificate["question"] for bound in bounds]
    # What requests need together in a window is all that counts of a part.
    parts = [
        {key: value for key, value in bound.certificate.items() if key not in ARGUMENTS} for bound in bounds
    ]
    for piece in range(len(most.certificate["machine"]["alpha"])):
        for kind in KINDS:
            window = [0, end, 1, piece, kind]
            certificate = {
                "schema": HOURS_SCHEMA,
                "question": joint_hash([*asked, most.certificate["question"], *map(str, how)]),
                "start_up": str(scaling.start_up),
                "min_stay": str(scaling.min_stay),
                "parts": [{**part, "groups": 1, "windows": [window]} for part in parts],
                "machines": most.certificate,
            }
            found = machine_seconds(certificate, ANY_STEPS)
            if isinstance(found, Fraction) and (best is None or found > best[0]):
                best = found, {**certificate, "seconds": str(found)}
    if best is None:
        raise ValueError("no number of machines is enough")
    return best


def _last_tick(bound: MachineBound) -> int:
    """A tick after all needs."""
    known = bound.certificate
    limits = [Fraction(limit) for level in known["levels"] for limit in level if limit is not None]
    longest = max(outputs for _, _, outputs, _ in known["requests"])
    last = max(Fraction(arrival) for arrival, *_ in known["requests"])
    return int((last + (longest + 1) * max(limits)) * known["machine"]["ticks_per_second"]) + 2


def on_times(
    stretches: Sequence[tuple[Fraction, Fraction]], scaling: Scaling
) -> list[tuple[Fraction, Fraction]]:
    """From when until when a machine is on, start-ups included.

    Parameters
    ----------
    stretches : sequence of (Fraction, Fraction)
        When it runs batches, s, in order.
    scaling : Scaling
    """
    found: list[tuple[Fraction, Fraction]] = []
    for start, end in stretches:
        begin = start - scaling.start_up
        if found and begin <= found[-1][1]:  # it is on already: the minimum stay has begun before
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, max(end, start + scaling.min_stay)))
    return found


def scaled(
    question: FleetQuestion, bound: MachineBound, found: Found, online: Found | None, scaling: Scaling
) -> Scaled:
    """Machine time from below and from above.

    Parameters
    ----------
    question : FleetQuestion
    bound : MachineBound
        Of the question.
    found, online : Found
        Routes that reach the share, of all and of online schedulers; first fit is tried beside the latter.
    scaling : Scaling
    """
    lower, certificate = least_time([bound], scaling)
    tried = [(*machine_time(one.replay, scaling), one.policy) for one in (found, online) if one is not None]
    if online is not None:
        router, run = (
            Router(question, preset(online.scheduler)),
            partial(schedule, options=preset(online.scheduler)),
        )
        for machines in (online.machines, MORE * online.machines):
            pilot = router.route(machines, "first_fit")
            if len(pilot.missed) <= question.spare:
                replay = replay_fleet(question, pilot.routes, run)
                if replay.keeps(question):
                    tried.append((*machine_time(replay, scaling), "first_fit"))
    end = max(stretches[-1][1] for stretches in found.replay.busy)
    always = found.machines * (max(end, scaling.min_stay) + scaling.start_up)
    upper, peak, policy = min([*tried, (always, found.machines, found.policy)])
    return Scaled(lower, upper, policy, certificate, peak, always)


def machine_time(replay: FleetReplay, scaling: Scaling) -> tuple[Fraction, int]:
    """Seconds for which machines are on, and how many at once at most.

    Parameters
    ----------
    replay : FleetReplay
    scaling : Scaling
    """
    stays = [stay for stretches in replay.busy for stay in on_times(stretches, scaling)]
    events = sorted([(begin, 1) for begin, _ in stays] + [(end, -1) for _, end in stays])
    now = peak = 0
    for _, step in events:
        now += step
        peak = max(peak, now)
    return sum((end - begin for begin, end in stays), Fraction(0)), peak
