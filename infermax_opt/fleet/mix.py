"""Mixes of machine types: the cheapest that is found and replayed, beside what every mix costs at least.

Requests are dealt out to types, then routed among the machines of their type.  Mixes that the bound allows
are tried from the cheapest on, so what is found first is the cheapest that these policies reach.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any

from infermax_opt.fleet.bounds.mix import MixBound, mix_bound
from infermax_opt.fleet.exact import SEARCH, Cheapest, cheapest, few, replayed
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import replay_fleet
from infermax_opt.fleet.routing.policies import Router
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset

__all__ = ["Mix", "mixes"]

#: Mixes that are tried, besides those of one type.
TRIED = 40
#: Mixes that are looked at in all: where prices are far apart there is no end of those that are too small.
SEEN = 50_000
#: Of the work that balances two types, what the first of them gets.
SLACKS = (1.0, 0.9, 1.1)
TINY = 1e-12
#: On all machines of a mix.
ONLINE = "sarathi"
POLICIES = ("least_kv", "slo_aware")


@dataclass(frozen=True)
class Mix:
    """Prices of an hour of a fleet of several types.

    Attributes
    ----------
    bound : MixBound
    price : Fraction or None
        Of the mix that was found.
    machines : tuple of int
        Of each type, in that mix.
    scheduler : str or None
        None where the mix is of one type, and was found as such.
    routes : list of (int, int)
        Type and machine of each request, in the order of the first question's `everyone`; -1 and -1 for none;
        empty for a mix of one type.
    decided : Cheapest or None
        The cheapest mix, where all routings and schedules of few requests were searched.
    """

    bound: MixBound
    price: Fraction | None
    machines: tuple[int, ...] = ()
    scheduler: str | None = None
    routes: list[tuple[int, int]] = field(default_factory=list)
    decided: Cheapest | None = None

    @property
    def lower(self) -> Fraction | None:
        """Least price, proved by the certificate of the bound, or by search; None if no mix is enough."""
        return self.bound.price if self.decided is None else self.decided.price

    @property
    def certified(self) -> bool:
        """Whether the certificate of the bound proves the least price."""
        return self.lower == self.bound.price


def mixes(
    questions: Sequence[FleetQuestion],
    prices: Sequence[Fraction],
    singles: Sequence[int | None],
    knows: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Mix]:
    """The cheapest fleet of one type that is known, with the bound; then ever cheaper mixes that are found.

    Parameters
    ----------
    questions : sequence of FleetQuestion
        The same requests on each type, whichever of them fit there.
    prices : sequence of Fraction
        Of an hour of each type.
    singles : sequence of int or None
        Machines of each type that are enough by themselves, if known.
    knows : bool
        Whether mixes of machines that know all outputs count, too.
    tell : callable, optional
        Takes lines of progress; may raise, to stop.
    """
    bound = mix_bound(questions, prices)
    best = Mix(bound, None)
    if bound.price is None:
        yield best
        return
    for k, (price, count) in enumerate(zip(prices, singles, strict=True)):
        if count is not None and (best.price is None or price * count < best.price):
            best = Mix(bound, price * count, tuple(count if t == k else 0 for t in range(len(prices))))
    yield best
    found = _online(questions, bound, best.price, tell)
    if found is not None:
        best = found
        yield best
    if best.price != best.lower and few(questions):
        decided = cheapest(questions, prices, tell)
        if decided is not None:
            yield _decided(questions, best, decided, knows)


def _online(
    questions: Sequence[FleetQuestion],
    bound: MixBound,
    most: Fraction | None,
    tell: Callable[[str], None],
) -> Mix | None:
    """The cheapest mix that an online scheduler is seen to need, below what is known."""
    for price, mix in _in_order(bound, most):
        tell(f"mix at {float(price):g}")
        for dealt in _deals(bound, mix):
            routes = _reached(questions, mix, dealt, ONLINE)
            if routes is not None:
                return Mix(bound, price, mix, ONLINE, routes)
    return None


def _decided(questions: Sequence[FleetQuestion], best: Mix, decided: Cheapest, knows: bool) -> Mix:
    """The best mix so far and what a search of all says, whose mix is replayed if it counts."""
    if not knows or decided.fleet is None or decided.price == best.price:
        return replace(best, decided=decided)
    routes, machines, good = [(-1, -1)] * questions[0].size, list[int](), 0
    for kind, question in enumerate(questions):
        mine = [members for of, members in decided.fleet if of == kind]
        machines.append(len(mine))
        if mine:
            good += len(replayed(question, mine)[1].good)
        for machine, members in enumerate(mine):
            for place in members:
                routes[place] = kind, machine
    if good < questions[0].must:
        raise AssertionError("machines that keep the limits of all their requests keep the share")
    return Mix(best.bound, decided.price, tuple(machines), SEARCH, routes, decided)


def _in_order(bound: MixBound, most: Fraction | None) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    """Mixes of several types that keep all cuts, from the cheapest on, below what is known."""
    tried = 0
    for price, mix in _cheapest_first(bound):
        if tried == TRIED or (most is not None and price >= most):
            return
        if most is None or sum(n > 0 for n in mix) > 1:
            tried += 1
            yield price, mix


def _cheapest_first(bound: MixBound) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    """Mixes that keep all cuts, from the cheapest on.

    Best first: what a mix costs, and what it needs at least to keep each cut by itself, in parts of machines
    of the types that may still be added.  Types that serve nobody in time are in none.
    """
    prices = bound.cuts.prices
    used = [t for t, shares in enumerate(bound.shares) if any(share is not None for share in shares)]
    none = (0,) * len(prices)
    waiting = [(_needed(bound, none, used) or Fraction(0), Fraction(0), 0, none)]
    for _ in range(SEEN):
        if not waiting:
            return
        least, price, last, mix = heapq.heappop(waiting)
        if least == price and _needed(bound, mix, used) == 0:
            yield price, mix
        for k in range(last, len(used)):
            more = tuple(n + (t == used[k]) for t, n in enumerate(mix))
            rest = _needed(bound, more, used[k:])
            if rest is not None:
                now = price + prices[used[k]]
                heapq.heappush(waiting, (now + rest, now, k, more))


def _needed(bound: MixBound, mix: tuple[int, ...], kinds: Sequence[int]) -> Fraction | None:
    """Price of what a mix lacks to keep all cuts, at least, in these types; None if they never make it."""
    price, (prices, cuts) = Fraction(0), bound.cuts
    for some, least in cuts:
        missing = least - sum(w * n for w, n in zip(some, mix, strict=True))
        if missing > 0:
            each = [prices[t] / some[t] for t in kinds if some[t] > 0]
            if not each:
                return None
            price = max(price, missing * min(each))
    return price


def _deals(bound: MixBound, mix: tuple[int, ...]) -> Iterator[list[int]]:
    """Types of all requests: balanced as they come; of two types also by what each is relatively good at."""
    shares, used = bound.shares, [t for t, count in enumerate(mix) if count]
    requests = range(len(shares[0]))
    yield _balanced(shares, mix, list(requests))
    if len(used) != 2:
        return
    first, last = used

    def ratio(i: int) -> float:
        low, high = shares[first][i], shares[last][i]
        return inf if low is None else 0.0 if high is None else low / max(high, TINY)

    total = {t: max(TINY, sum(share or 0.0 for share in shares[t])) for t in used}
    could = {t: mix[t] / total[t] for t in used}
    for slack in SLACKS:
        until = slack * total[first] * could[first] / (could[first] + could[last])
        gone, dealt = 0.0, [last] * len(requests)
        for i in sorted(requests, key=ratio):
            gone += shares[first][i] or 0.0
            if gone > until:
                break
            dealt[i] = first
        yield [_able(shares, i, kind, used) for i, kind in enumerate(dealt)]


def _able(shares: Sequence[Sequence[float | None]], i: int, kind: int, used: Sequence[int]) -> int:
    """The type itself where it serves the request in time, else another one that does, or -1."""
    return next((t for t in (kind, *used) if shares[t][i] is not None), -1)


def _balanced(
    shares: Sequence[Sequence[float | None]], mix: tuple[int, ...], order: Sequence[int]
) -> list[int]:
    """Each request to the type that has the least work for each machine with it."""
    work, dealt = [0.0] * len(mix), [-1] * len(order)
    for i in order:
        choices = [
            ((work[t] + (shares[t][i] or 0.0)) / mix[t], t)
            for t in range(len(mix))
            if mix[t] and shares[t][i] is not None
        ]
        if choices:
            dealt[i] = min(choices)[1]
            work[dealt[i]] += shares[dealt[i]][i] or 0.0
    return dealt


def _reached(
    questions: Sequence[FleetQuestion], mix: tuple[int, ...], dealt: Sequence[int], scheduler: str
) -> list[tuple[int, int]] | None:
    """Routes that reach the share by exact replay, with the best policy of each type; None if none do."""
    may_miss, found, parts = questions[0].may_miss, [(-1, -1)] * len(dealt), list[Any]()
    names = [request.id for request in questions[0].everyone]
    missed = dealt.count(-1)
    for kind, machines in enumerate(mix):
        members = [i for i, t in enumerate(dealt) if t == kind]
        if not members:
            continue
        if not machines:
            missed += len(members)
            continue
        places = {request.id: k for k, request in enumerate(questions[kind].workload.requests)}
        held = [places[names[i]] for i in members]
        part = FleetQuestion(questions[kind].machine(held), questions[kind].share)
        router = Router(part, preset(scheduler))
        pilot = min(
            (router.route(machines, policy) for policy in POLICIES), key=lambda some: len(some.missed)
        )
        missed += len(pilot.missed)
        parts.append((part, pilot.routes))
        for i, machine in zip(members, pilot.routes, strict=True):
            found[i] = kind, machine
        if missed > may_miss:
            return None
    run = partial(schedule, options=preset(scheduler))
    good = sum(len(replay_fleet(part, routes, run).good) for part, routes in parts)
    return found if good >= questions[0].must else None
