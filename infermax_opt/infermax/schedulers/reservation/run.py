"""Running a scheduler that reserves KV, and what it reports.

Why it ends: a batch with decodes makes tokens, which are never lost.  One without brings a prompt nearer to a
token, and what undoes that is a decode by somebody else, or a request that comes before it for good.  Where
nobody can go on, one is made to and makes at least one token.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Schedule, TooManyBatches, run_length
from infermax_opt.infermax.schedulers.reservation.coupled import Coupled
from infermax_opt.infermax.schedulers.reservation.decoupled import Decoupled
from infermax_opt.infermax.schedulers.reservation.job import Job
from infermax_opt.infermax.schedulers.reservation.options import ReservationOptions
from infermax_opt.infermax.schedulers.reservation.policy import Counts, Policy

__all__ = ["ReservationRun", "reservation_run"]


@dataclass(frozen=True)
class ReservationRun:
    """A schedule, and what its scheduler did that the schedule does not say.

    Attributes
    ----------
    schedule : Schedule
        Valid for every instance.
    reserved_share : Fraction
        KV reserved by requests / kv_capacity, weighted by batch time.
    failed_share : Fraction
        Share of the requests that needed KV while they were executed and did not get it at least once.
    counts : Counts
    """

    schedule: Schedule
    reserved_share: Fraction
    failed_share: Fraction
    counts: Counts


def reservation_run(instance: Instance, options: ReservationOptions) -> ReservationRun:
    """Schedule an instance by a scheduler that reserves KV.

    Parameters
    ----------
    instance : Instance
    options : ReservationOptions

    Raises
    ------
    InputError
        If the schedule would have more than `MAX_BATCHES` batches.
    """
    policy: Policy = (Decoupled if options.decoupled else Coupled)(instance, options)
    machine = policy.machine
    failed = 0
    while policy.unfinished:
        policy.arrive()
        for job in _batch(policy):
            policy.leave(job)
            failed += job.failed
        if machine.length > MAX_BATCHES:
            raise TooManyBatches.than(MAX_BATCHES)
    area = machine.busy * instance.system.kv_capacity
    return ReservationRun(
        Schedule(instance.name, run_length(machine.batches)),
        Fraction(machine.area, area) if area else Fraction(0),
        Fraction(failed, len(instance.requests)),
        policy.counts,
    )


def _batch(policy: Policy) -> list[Job]:
    """Run the next batch, or wait for the next arrival; who has finished."""
    machine = policy.machine
    policy.prepare()
    parts, decodes = policy.compose()
    if not parts and not decodes:
        if not machine.holding and not len(policy.waiting) and not machine.evicted:
            assert policy.next_arrival is not None
            machine.now, machine.waited = policy.next_arrival, True
            return []
        policy.force()
        parts, decodes = policy.compose()
    lost = [*machine.evicted, *machine.dismissed]
    done = machine.run(parts, decodes, policy.next_arrival)
    for job in lost:
        policy.enqueue(job)
    for part in parts:
        if policy.generates(part.job):
            done.append(part.job)
    return done
