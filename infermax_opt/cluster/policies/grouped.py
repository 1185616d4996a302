"""Groups of schedulers: appendix A and eq 8.

One scheduler for all requests may be too slow.  With groups, arriving requests go to one group after the
other, round robin, and each group places its own on its own workers with Algorithm 1.

*How many.*  A scheduler can place requests of a rate r(T_s) at most within the latency limit T_s, so there
must be r_a / r(T_s) groups or more.  Against one scheduler, half of the groups are thought to need one worker
more; so that this is a share e of all workers at most, a group must have 1 / (2 e) workers or more.  Eq 8
sets that number beside the rate r_i of a group; what is meant are its N_i = N_w r_i / r_a workers, as the
text says.  The fewest groups that are enough need the fewest workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.replay import Beat, StreamReplay, replay_stream
from infermax_opt.core.checks import checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.instance import MAX_WORKERS, PlacementGroup
from infermax_opt.placement.heuristics.place import place

__all__ = ["ExtraWorkers", "GroupPlan", "Grouped", "extra_workers", "plan_groups", "rate_within"]


@dataclass(frozen=True)
class GroupPlan:
    """Groups of schedulers.

    Attributes
    ----------
    groups : int
    rate : Fraction
        r_i: requests a second of each group.
    workers : int
        Least whole number of workers of a group.
    extra : Fraction
        Expected share of workers above those of one scheduler; 0 if there is one group.
    """

    groups: int
    rate: Fraction
    workers: int
    extra: Fraction


def rate_within(measured: Sequence[tuple[Fraction, Fraction]], limit: Fraction) -> Fraction:
    """r(T_s): arrival rate up to which a scheduler was measured to keep the latency limit.

    Parameters
    ----------
    measured : sequence of (Fraction, Fraction)
        Arrival rate in requests a second, and seconds that placing took, at most.
    limit : Fraction
        T_s in seconds.

    Returns
    -------
    Fraction
        The largest measured rate such that neither it nor a lower one took longer.

    Raises
    ------
    InputError
        If the lowest rate took longer.
    """
    best: Fraction | None = None
    for rate, seconds in sorted(measured):
        if seconds > limit:
            break
        best = rate
    if best is None:
        problem = f"no measured rate was placed within {float(limit):.6g} s"
        raise InputError(problem, field="latency")
    return best


def plan_groups(rate: Fraction, workers: int, *, error: Fraction, rate_limit: Fraction) -> GroupPlan:
    """Choose the number of groups by eq 8.

    Parameters
    ----------
    rate : Fraction
        r_a: requests a second.
    workers : int
        N_w: workers that one scheduler needs for them (eq 7).
    error : Fraction
        e: tolerated share of extra workers, above 0.
    rate_limit : Fraction
        r(T_s): requests a second that one scheduler places in time, above 0.

    Raises
    ------
    InputError
        If no number of groups is right; the line says why.
    """
    for name, value in (("rate", rate), ("workers", workers), ("error", error), ("rate_limit", rate_limit)):
        if value <= 0:
            raise InputError(f"{value} is not above 0", field=name)
    least = math.ceil(1 / (2 * error))
    needed, most = math.ceil(rate / rate_limit), max(1, workers // least)
    if needed > most:
        problem = (
            f"{float(rate):.6g} requests/s need {needed} groups, as one scheduler places "
            f"{float(rate_limit):.6g} requests/s in time; but {workers} workers make {most} at most, as with "
            f"{float(error):.4g} extra workers each must have {least}"
        )
        raise InputError(problem, field="groups")
    extra = Fraction(needed, 2 * workers) if needed > 1 else Fraction(0)
    return GroupPlan(needed, rate / needed, workers // needed, extra)


class Grouped:
    """The policy ``grouped``: request k of the stream belongs to group 1 + k mod `groups`.

    The workers of group i have the numbers i, i + groups, i + 2 groups, and so on.

    Raises
    ------
    InputError
        If there is no group, or more groups than there are numbers of workers.
    """

    def __init__(self, groups: int):
        self.groups = checked_whole(groups, "groups", 1, MAX_WORKERS)

    def __call__(self, beat: Beat) -> Mapping[str, int]:
        """Choose the worker of each new request.

        Raises
        ------
        InputError
            If a request fits on no worker.
        """
        members: dict[int, list[PlacementGroup]] = {}
        placing = set[int]()
        for some in beat.instance.groups:
            if some.worker is None:
                number = 1 + beat.stream.index[some.id] % self.groups
                placing.add(number)
            else:
                number = self._group(some.worker)
                some = replace(some, worker=self._own(some.worker))
            members.setdefault(number, []).append(some)
        chosen = {}
        for number in sorted(placing):
            busy = {self._own(w): s for w, s in beat.instance.busy.items() if self._group(w) == number}
            part = replace(beat.instance, groups=tuple(members[number]), busy=busy)
            for name, own in place(part, "best-fit").workers.items():
                chosen[name] = (own - 1) * self.groups + number
        return chosen

    def _group(self, worker: int) -> int:
        return 1 + (worker - 1) % self.groups

    def _own(self, worker: int) -> int:
        """Number of a worker within its group, from 1."""
        return 1 + (worker - 1) // self.groups


@dataclass(frozen=True)
class ExtraWorkers:
    """Workers in use with groups, and with one scheduler.

    Attributes
    ----------
    groups : int
    peak, mean : int, Fraction
        Over the heartbeats.
    central_peak, central_mean : int, Fraction
        The same with one scheduler.
    """

    groups: int
    peak: int
    mean: Fraction
    central_peak: int
    central_mean: Fraction

    @property
    def share(self) -> Fraction:
        """Extra workers, in the mean, as a share of those of one scheduler."""
        return self.mean / self.central_mean - 1


def extra_workers(stream: Stream, groups: int) -> ExtraWorkers:
    """Replay a stream with groups and with one scheduler, both with Algorithm 1.

    Raises
    ------
    InputError
        If a request fits on no worker.
    """

    def used(replay: StreamReplay) -> tuple[int, Fraction]:
        numbers = [beat.workers for beat in replay.beats]
        return max(numbers), Fraction(sum(numbers), len(numbers))

    peak, mean = used(replay_stream(stream, Grouped(groups)))
    return ExtraWorkers(groups, peak, mean, *used(replay_stream(stream, Grouped(1))))
