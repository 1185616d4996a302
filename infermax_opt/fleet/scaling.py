"""Machines that are switched on and off: machine-hours from below and from above.

*Lower bound.*  A machine is on at least while it runs a batch.  In each window the needs of good requests
that lie within it cost at most what machines are busy in it (`infermax_opt.fleet.bounds.pooled`, whose
argument for one machine holds with its busy time in the place of the length).  One window holds all needs;
so machines are busy, and on, for at least the sum of the ceil(q n) smallest costs, with the best piece and
the best thing to share alpha by.

*Upper bound.*  Routes are replayed exactly.  A machine is on from a start-up time before its first batch;
it stays on over a pause that is no longer than a start-up, and for the minimum stay.  This is planned with
what is to come in mind, as the bound is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from infermax_opt.fleet.bounds.pooled import MachineBound
from infermax_opt.fleet.checker import KINDS, machine_seconds
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import FleetReplay, replay_fleet
from infermax_opt.fleet.routing.policies import Router
from infermax_opt.fleet.upper import Found
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset

__all__ = ["Scaled", "Scaling", "busy_bound", "on_times", "scaled"]

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
        Of the lower one, for `infermax_opt.fleet.checker.machine_seconds`.
    peak : int
        Most machines that are on at once.
    always : Fraction
        The same as `upper` with the fewest machines, all on from a start-up before 0 to the last batch.
    """

    lower: Fraction
    upper: Fraction
    policy: str
    certificate: dict[str, Any]
    peak: int
    always: Fraction


def busy_bound(bound: MachineBound) -> tuple[Fraction, dict[str, Any]]:
    """Least time for which machines are busy together, s, and its certificate.

    Raises
    ------
    ValueError
        If no number of machines is enough.
    """
    best: tuple[Fraction, dict[str, Any]] | None = None
    end = _last_tick(bound)
    for piece in range(len(bound.certificate["machine"]["alpha"])):
        for kind in KINDS:
            certificate = {**bound.certificate, "groups": 1, "windows": [[0, end, 1, piece, kind]]}
            certificate["machines"] = None
            found = machine_seconds(certificate)
            if found is not None and (best is None or found > best[0]):
                best = found, certificate
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
        begin, until = start - scaling.start_up, max(end, start + scaling.min_stay)
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(until, found[-1][1])
        else:
            found.append((begin, until))
    return found


def scaled(question: FleetQuestion, bound: MachineBound, found: Found, scaling: Scaling) -> Scaled:
    """Machine time from below and from above.

    Parameters
    ----------
    question : FleetQuestion
    bound : MachineBound
        Of the question.
    found : Found
        Routes that reach the share; first fit is tried beside them.
    scaling : Scaling
    """
    lower, certificate = busy_bound(bound)
    tried = [(*_machine_time(found.replay, scaling), found.policy)]
    router = Router(question, preset(found.scheduler))
    for machines in (found.machines, MORE * found.machines):
        pilot = router.route(machines, "first_fit")
        if len(pilot.missed) <= question.may_miss:
            replay = replay_fleet(question, pilot.routes, partial(schedule, options=preset(found.scheduler)))
            if replay.keeps(question):
                tried.append((*_machine_time(replay, scaling), "first_fit"))
    upper, peak, policy = min(tried)
    end = max(stretches[-1][1] for stretches in found.replay.busy)
    return Scaled(lower, upper, policy, certificate, peak, found.machines * (end + scaling.start_up))


def _machine_time(replay: FleetReplay, scaling: Scaling) -> tuple[Fraction, int]:
    """Seconds for which machines are on, and how many at once at most."""
    stays = [stay for stretches in replay.busy for stay in on_times(stretches, scaling)]
    events = sorted([(begin, 1) for begin, _ in stays] + [(end, -1) for _, end in stays])
    now = peak = 0
    for _, step in events:
        now += step
        peak = max(peak, now)
    return sum((end - begin for begin, end in stays), Fraction(0)), peak
