"""Fewest prefill and decode machines, apart: from below proved, from above routed, scheduled and replayed.

Policies and online schedulers make the first tokens on so many prefill machines; who has one is handed over
to the decode pool (`infermax_opt.fleet.routing.decode`).  Both pools are replayed exactly, and a request is
good if it keeps all its limits over both.  More prefill machines give the decode pool more time where the
limit is end to end, so some more of them than the fewest are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from math import floor, lcm

from infermax_opt.fleet.apart import ApartQuestion
from infermax_opt.fleet.bounds.split import PoolBound, pool_bound
from infermax_opt.fleet.checker.split import ends_apart
from infermax_opt.fleet.decode import DecodeMachine, Job, replay_decode
from infermax_opt.fleet.fewest import fewer_each_time, fewest
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import replays
from infermax_opt.fleet.routing.decode import Handed, route_decode
from infermax_opt.fleet.routing.policies import Pilot, Router
from infermax_opt.infermax.data.instance import Instance, RequestGroup
from infermax_opt.infermax.data.objective import Objective
from infermax_opt.infermax.data.schedule import TooManyBatches
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset

__all__ = ["FoundApart", "SplitPlan", "split_plan"]

#: Policies of the prefill pool, in the order in which they are tried.
POLICIES = ("least_kv", "slo_aware", "jsq", "least_work")
#: Prefill machines beyond the fewest that are tried.
EXTRA = 2
#: Most machines of a pool that are tried: as a multiple of its lower bound, and beyond that.
FAR, MORE = 8, 8
#: Limit of a request that has to have no first token, s, and the step to which others are rounded down.
FOREVER, STEP = 10**7, 10**9

Tell = Callable[[str], None] | None


@dataclass(frozen=True)
class FoundApart:
    """Pools that are seen to reach the share.

    Attributes
    ----------
    prefill, decode : int
        Machines.
    policy, scheduler : str
        Of the prefill pool.
    careful : bool
        Whether requests wait before they join a decode machine that would become too slow.
    good : frozenset of int
        Places of the requests that keep their limits, from exact times, among all.
    """

    prefill: int
    decode: int
    policy: str
    scheduler: str
    careful: bool
    good: frozenset[int]

    @property
    def machines(self) -> int:
        """Of both pools."""
        return self.prefill + self.decode


@dataclass(frozen=True)
class SplitPlan:
    """What is known of both pools.

    Attributes
    ----------
    prefill, decode : PoolBound
    found : FoundApart or None
        The cheapest of `tried`; by number of machines without prices.
    tried : tuple of FoundApart
        By prefill machines: the fewest decode machines with them.
    prices : (Fraction, Fraction) or None
        Of an hour of a prefill and of a decode machine.
    left_out : int
        Requests that these pools can never hold, where these are not counted.
    """

    prefill: PoolBound
    decode: PoolBound
    found: FoundApart | None = None
    tried: tuple[FoundApart, ...] = ()
    prices: tuple[Fraction, Fraction] | None = None
    left_out: int = 0

    @property
    def lower(self) -> int | None:
        """Machines of both pools, proved; None if no number is enough."""
        if self.prefill.machines is None or self.decode.machines is None:
            return None
        return self.prefill.machines + self.decode.machines

    @property
    def upper(self) -> int | None:
        """Machines of both pools, replayed."""
        return None if self.found is None else self.found.machines

    @property
    def certified(self) -> bool:
        """Whether a checker has the time for the proofs of both pools."""
        return self.prefill.certified and self.decode.certified

    def price(self, prefill: int | None, decode: int | None) -> Fraction | None:
        """Of an hour of so many machines, if known."""
        if prefill is None or decode is None or self.prices is None:
            return None
        return self.prices[0] * prefill + self.prices[1] * decode


def split_plan(
    question: ApartQuestion,
    schedulers: Sequence[str],
    prices: tuple[Fraction, Fraction] | None = None,
    tell: Tell = None,
) -> Iterator[SplitPlan]:
    """Both pools from below and from above, over again with more of it each time: first the lower bounds.

    Parameters
    ----------
    question : ApartQuestion
    schedulers : sequence of str
        Tried on the prefill machines.
    prices : (Fraction, Fraction), optional
        Of an hour of a prefill and of a decode machine.
    tell : callable, optional
        Takes lines of progress.
    """
    prefill, decode = (pool_bound(question, side) for side in ("prefill", "decode"))
    yield SplitPlan(prefill, decode, prices=prices)
    if prefill.machines is None or decode.machines is None:
        return
    search = _Search(question, schedulers)
    each = prices or (Fraction(1), Fraction(1))

    def price(one: FoundApart) -> Fraction:
        return each[0] * one.prefill + each[1] * one.decode

    tried, most = list[FoundApart](), decode.machines * FAR + MORE
    first = search.fewest_prefill(prefill.machines, tell)
    for machines in range(first, first + EXTRA + 1) if first is not None else ():
        cheapest = min(map(price, tried), default=None)
        if cheapest is not None and each[0] * machines + each[1] * decode.machines >= cheapest:
            break
        known = tuple(tried)
        for found in search.fewest_decode(machines, decode.machines, most, tell):
            tried = [*known, found]
            yield SplitPlan(prefill, decode, min(tried, key=price), tuple(tried), prices)
        most = min([most, *(one.decode for one in tried)])


class _Search:
    """Routes and schedules of both pools, by number of machines."""

    def __init__(self, question: ApartQuestion, schedulers: Sequence[str]):
        self.question, whole = question, question.whole
        self.places = [k for k in range(whole.size) if k not in question.lost]
        self.spare = len(self.places) - whole.must
        groups, asked = [], whole.asked
        for k in self.places:
            r, until = whole.everyone[k], ends_apart(question.machines, asked[k])
            limit = FOREVER if until is None else Fraction(floor(until * STEP), STEP)
            groups.append(
                RequestGroup(
                    r.id, r.input_tokens, 1, r.arrival, slo={"ttft": limit},
                    predicted_output_tokens=r.predicted_output_tokens,
                )
            )  # fmt: skip
        base = whole.workload
        prompts = Instance(
            base.name, tuple(groups), base.system, base.cost, base.policy, Objective.of("missed")
        )
        self.prompts = FleetQuestion(prompts, 1)
        self.routers = {name: Router(self.prompts, preset(name)) for name in schedulers}

    def _pilots(self, machines: int) -> list[tuple[Pilot, str, str]]:
        """Routes of the prefill pool, those that miss least first, each with policy and scheduler."""
        found = [
            (router.route(machines, policy), policy, name)
            for name, router in self.routers.items()
            for policy in POLICIES
        ]
        return sorted(found, key=lambda some: len(some[0].missed))

    def fewest_prefill(self, least: int, tell: Tell) -> int | None:
        """Fewest prefill machines of which enough first tokens are in time by simulated clocks."""

        def reached(machines: int) -> bool:
            if tell is not None:
                tell(f"trying {machines} to prefill")
            return len(self._pilots(machines)[0][0].missed) <= self.spare

        return fewest(reached, max(1, least), least * FAR + MORE)

    def fewest_decode(self, prefill: int, least: int, most: int, tell: Tell) -> Iterator[FoundApart]:
        """Decode machines that are enough behind so many prefill machines, fewer each time; none beyond most.

        Parameters
        ----------
        prefill, least, most : int
        tell : callable, optional
        """
        pilot, policy, name = self._pilots(prefill)[0]
        handed = _Handed(self.question, self.places, self._firsts(pilot, name))
        if len(handed.done) >= self.question.whole.must:
            yield FoundApart(prefill, 0, policy, name, False, frozenset(handed.done))
            return
        seen = dict[int, FoundApart]()

        def reached(machines: int) -> bool:
            if tell is not None:
                tell(f"trying {prefill} to prefill, {machines} to decode")
            for careful in (True, False):
                good = handed.good(machines, careful)
                if len(good) >= self.question.whole.must:
                    seen[machines] = FoundApart(prefill, machines, policy, name, careful, good)
                    return True
            return False

        for machines in fewer_each_time(reached, max(1, least), most):
            yield seen[machines]

    def _firsts(self, pilot: Pilot, name: str) -> list[Fraction | None]:
        """When each has its first token, s, replayed; None for who is not served or too late.

        None for all where a machine would need more batches than a schedule may hold.
        """
        none: list[Fraction | None] = [None] * len(self.places)
        found, run = none.copy(), partial(schedule, options=preset(name))
        try:
            for members, _, replayed in replays(self.prompts, pilot.routes, run):
                for i, batch in zip(members, replayed.first_batch, strict=True):
                    first, level = replayed.seconds(replayed.ends[batch]), self.prompts.levels[i]
                    if first - self.prompts.workload.requests[i].arrival <= (level.ttft or 0):
                        found[i] = first
        except TooManyBatches:
            return none
        return found


class _Handed:
    """Who is handed over to the decode pool, and who is done before.

    Parameters
    ----------
    question : ApartQuestion
    places : sequence of int
        Of requests among all.
    firsts : sequence of Fraction or None
        When each of these has its first token, s.
    """

    def __init__(self, question: ApartQuestion, places: Sequence[int], firsts: Sequence[Fraction | None]):
        self.question, whole = question, question.whole
        served = [(k, first) for k, first in zip(places, firsts, strict=True) if first is not None]
        self.done = {k for k, _ in served if whole.everyone[k].output_tokens == 1}
        self.later = [(k, first) for k, first in served if k not in self.done]

    @cached_property
    def _handed(self) -> tuple[DecodeMachine, list[Handed]]:
        """The machine and the requests in ticks of one unit, in which all of their times are whole."""
        question, rows = (
            self.question,
            list[tuple[Fraction, Fraction, Fraction | None, Fraction | None, Job]](),
        )
        for k, first in self.later:
            r = question.whole.everyone[k]
            slo, steps = r.terms.slo, r.output_tokens - 1
            dates = [] if slo.e2e is None else [Fraction(r.arrival) + slo.e2e]
            dates += [] if slo.tpot is None else [first + slo.tpot * steps]
            ready = first + question.transfer * r.input_tokens
            rows.append((first, ready, min(dates, default=None), slo.tpot, Job(0, r.input_tokens, steps)))
        own = question.cost.ticks_per_second
        unit = lcm(own, *{x.denominator for *times, _ in rows for x in times if x is not None})

        def ticks(value: Fraction | None) -> int | None:
            return None if value is None else int(value * unit)

        handed = [
            Handed(int(first * unit), job._replace(ready=int(ready * unit)), ticks(due), ticks(pace))
            for first, ready, due, pace, job in rows
        ]
        return DecodeMachine(question.system, question.cost, unit // own), handed

    def good(self, machines: int, careful: bool) -> frozenset[int]:
        """Places of those who keep all limits with so many decode machines, replayed."""
        machine, handed = self._handed
        jobs, good = [one.job for one in handed], set(self.done)
        for decisions in route_decode(machine, handed, machines, careful=careful):
            for i, last in replay_decode(machine, jobs, decisions).items():
                due = handed[i].due
                if due is None or last <= due:
                    good.add(self.later[i][0])
        return frozenset(good)
