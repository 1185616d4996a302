"""Fewest machines that some routing and an online scheduler are seen to need: the upper bound.

Simulated clocks choose (`infermax_opt.fleet.routing`); what counts is the exact replay of each machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from infermax_opt.fleet.fewest import fewest_verified
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import FleetReplay, replay_fleet
from infermax_opt.fleet.routing.policies import POLICIES, Pilot, Router
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset

__all__ = [
    "MOST", "SCHEDULERS", "Found", "enough", "fewest_machines", "longest_missed", "policy_machines",
]  # fmt: skip

#: Schedulers that are tried unless the user names some.
SCHEDULERS = ("sarathi", "deadline", "vllm_v1")
#: Policies in the order in which they are tried: those that are mostly best come first.
TRIED = ("least_kv", "slo_aware", "jsq", "least_work")
#: What is tried where a schedule is too long: the others leave all to one machine while it is idle.
EVENLY = ("round_robin",)
#: Times the requests that may miss, up to which refusing some of those that do is tried.
WORTHWHILE = 8
#: Most machines that are tried: in all, as a multiple of the lower bound, and beyond that.
MOST = 4096
FAR = 16
MORE = 16

Tell = Callable[[str], None] | None


@dataclass(frozen=True)
class Found:
    """Routes that reach the share, replayed.

    Attributes
    ----------
    machines : int
    policy, scheduler : str
    refused : int
        Requests that no machine serves.
    routes : list of int
    replay : FleetReplay
    attained : mapping of int to int
        Requests in time by simulated clocks at each number of machines that was tried, at least.
    again : bool
        Who is refused was seen in a first run: the longest of those who missed.
    """

    machines: int
    policy: str
    scheduler: str
    refused: int
    routes: list[int]
    replay: FleetReplay
    attained: Mapping[int, int] = field(default_factory=dict)
    again: bool = False

    def with_attained(self, others: Mapping[int, int]) -> Found:
        """The same, with what others attained, where that is more."""
        numbers = {*self.attained, *others}
        most = {m: max(self.attained.get(m, 0), others.get(m, 0)) for m in numbers}
        return replace(self, attained=most)


class _Search:
    """Candidates of a question, by number of machines."""

    def __init__(
        self,
        question: FleetQuestion,
        schedulers: Sequence[str],
        policies: Sequence[str],
        tell: Tell = None,
    ):
        self.tell = tell
        self.question, self.policies = question, tuple(policies)
        self.routers = {name: Router(question, preset(name)) for name in schedulers}
        self.attained: dict[int, int] = {}

    def _route(self, machines: int, policy: str, name: str, refused: Sequence[int] = ()) -> Pilot:
        """Routes by simulated clocks; what they attain is kept."""
        pilot = self.routers[name].route(machines, policy, refused)
        good = len(self.question.workload.requests) - len(pilot.missed)
        self.attained[machines] = max(good, self.attained.get(machines, 0))
        return pilot

    def candidates(self, machines: int) -> Iterator[tuple[Pilot, str, str, bool]]:
        """Routes that reach the share by simulated clocks, with policy, scheduler, and if in a second run."""
        spare = self.question.spare
        near: list[tuple[int, Pilot, str, str]] = []
        for policy in self.policies:
            for name in self.routers:
                pilot = self._route(machines, policy, name)
                if len(pilot.missed) <= spare:
                    yield pilot, policy, name, False
                near.append((len(pilot.missed), pilot, policy, name))
        near.sort(key=lambda some: some[0])
        for count, pilot, policy, name in near[:2]:
            if spare < count <= WORTHWHILE * spare:
                again = self._route(machines, policy, name, longest_missed(self.question, pilot))
                if len(again.missed) <= spare:
                    yield again, policy, name, True

    def reached(self, machines: int) -> bool:
        """Whether some routes reach the share by simulated clocks."""
        if self.tell is not None:
            self.tell(f"trying {machines} machine{'s' * (machines > 1)}")
        return next(self.candidates(machines), None) is not None

    def verified(self, machines: int) -> Found | None:
        """Routes that reach the share by exact replay."""
        for pilot, policy, name, again in self.candidates(machines):
            replay = replay_fleet(self.question, pilot.routes, partial(schedule, options=preset(name)))
            if replay.too_long and self.policies != EVENLY:
                self.policies = EVENLY
                return self.verified(machines)
            if replay.keeps(self.question):
                refused = sum(route < 0 for route in pilot.routes)
                seen = dict(self.attained)
                return Found(machines, policy, name, refused, pilot.routes, replay, seen, again)
        return None


def longest_missed(question: FleetQuestion, pilot: Pilot) -> list[int]:
    """Of the requests that miss, those to refuse: the longest, as many as may miss."""
    requests = question.workload.requests
    by_length = sorted(pilot.missed, key=lambda i: -requests[i].input_tokens - requests[i].output_tokens)
    return by_length[: question.spare]


def fewest_machines(
    question: FleetQuestion,
    least: int,
    *,
    schedulers: Sequence[str] = SCHEDULERS,
    policies: Sequence[str] = TRIED,
    tell: Tell = None,
) -> Found | None:
    """Fewest machines found with which the share is reached; None if too many would be.

    Parameters
    ----------
    question : FleetQuestion
    least : int
        A lower bound, from which the search starts.
    schedulers, policies : sequence of str
        What is tried.
    tell : callable, optional
        Takes a line on what is being tried.
    """  # fmt: skip
    least = max(1, least)
    most = max(least, min(MOST, FAR * least + MORE, len(question.workload.requests)))
    return fewest_verified(_Search(question, schedulers, policies, tell), least, most)


def enough(question: FleetQuestion, machines: int, *, schedulers: Sequence[str] = SCHEDULERS) -> Found | None:
    """Routes with which so many machines reach the share, replayed; None if none are found.

    Parameters
    ----------
    question : FleetQuestion
    machines : int
    schedulers : sequence of str
        What is tried, with all policies that are tried for the fewest.
    """
    return _Search(question, schedulers, TRIED).verified(machines)


def policy_machines(
    question: FleetQuestion, least: int, scheduler: str, policies: Sequence[str] = POLICIES
) -> dict[str, int | None]:
    """Fewest machines of each policy by itself, with one scheduler, replayed.

    Parameters
    ----------
    question : FleetQuestion
    least : int
        A lower bound.
    scheduler : str
    policies : sequence of str
    """
    found: dict[str, int | None] = {}
    for policy in policies:
        some = fewest_machines(question, least, schedulers=(scheduler,), policies=(policy,))
        found[policy] = None if some is None else some.machines
    return found
