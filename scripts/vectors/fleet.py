"""Certificates of fleets, which hold their question: each kind of claim, accepted and rejected."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from infermax_opt.fleet.bounds.mix import mix_bound
from infermax_opt.fleet.bounds.pooled import ARGUMENTS, pooled_bound
from infermax_opt.fleet.checker.attainment import WHOLE
from infermax_opt.fleet.checker.certificate import machines_from
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.scaling import Scaling, least_time
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import (
    Instance,
    Objective,
    Policy,
    RequestGroup,
    ServiceLevel,
    System,
)
from scripts.vectors.faults import HAIR, changed, up

#: Seconds a token of the slower type and of the faster one.
SLOW, FAST = "0.001", "0.0005"


__all__ = ["NEVER", "FleetVector", "accepted", "rejected"]


class FleetVector(NamedTuple):
    """A certificate of a fleet; `claim` is the key of what it bounds, `asked` the question to be given."""

    name: str
    claim: str
    certificate: dict[str, Any]
    reason: str | None = None
    asked: str | None = None


def question(requests: int, ttft: Fraction = Fraction(1, 2), token: str = SLOW) -> FleetQuestion:
    """Requests that come together, each a tenth of a second of work on the slower type."""
    slo = ServiceLevel(ttft=ttft)
    groups = tuple(RequestGroup(f"r{k}", 100, 1, slo=slo) for k in range(requests))
    cost = CostModel([("0", token)], ("0", "0"), ("0", "0"))
    workload = Instance("fleet", groups, System(1000, 100, 100), cost, objective=Objective.of("missed"))
    return FleetQuestion(workload, Fraction(1))


def paced() -> FleetQuestion:
    """Requests that come together: batches of 0.1 s, and 0.02 s a request, have to be done each 0.2 s."""
    slo = ServiceLevel(ttft=Fraction(1, 10), tpot=Fraction(1, 5))
    groups = tuple(RequestGroup(f"r{k}", 20, 2, slo=slo) for k in range(12))
    cost = CostModel([("0.1", "0")], ("0", "0.001"), ("0", "0"))
    system, policy = System(1000, 1000, 1000), Policy(preemption=False)
    workload = Instance("fleet", groups, system, cost, policy, Objective.of("missed"))
    return FleetQuestion(workload, Fraction(1))


def in_bursts() -> FleetQuestion:
    """Three bursts of three requests: whole ones miss their limits, where parts of them would do."""
    slo = ServiceLevel(ttft=Fraction(1, 5))
    groups = tuple(RequestGroup(f"r{k}", 80, 1, k // 3, slo=slo) for k in range(9))
    cost = CostModel([("0", SLOW)], ("0", "0"), ("0", "0"))
    workload = Instance("bursts", groups, System(1000, 100, 100), cost, objective=Objective.of("missed"))
    return FleetQuestion(workload, Fraction(3, 4))


def beside() -> FleetQuestion:
    """Requests that come one by one: prompts of 0.1 s, and later tokens in batches that few of them share."""
    slo = ServiceLevel(ttft=Fraction(1), tpot=Fraction(3, 25))
    groups = tuple(RequestGroup(f"r{k}", 100, 9, Fraction(k, 10), slo=slo) for k in range(50))
    cost, policy = CostModel([("0.1", SLOW)], ("0", "0"), ("0", "0")), Policy(preemption=False)
    workload = Instance("beside", groups, System(10_000, 100, 100), cost, policy, Objective.of("missed"))
    return FleetQuestion(workload, Fraction(1))


def one_by_one() -> FleetQuestion:
    """Requests that come one by one: the batches of the first leave too little time for prompts of others."""
    slo = ServiceLevel(ttft=Fraction(1, 2), tpot=Fraction(3, 20))
    groups = tuple(RequestGroup(f"r{k}", 150, 8, Fraction(k, 5), slo=slo) for k in range(6))
    cost, policy = CostModel([("0.1", SLOW)], ("0", "0"), ("0", "0")), Policy(preemption=False)
    workload = Instance("steady", groups, System(10_000, 200, 200), cost, policy, Objective.of("missed"))
    return FleetQuestion(workload, Fraction(1))


def bare(question: FleetQuestion) -> dict[str, Any]:
    """A certificate that proves nothing."""
    certificate = pooled_bound(question).certificate
    return {key: value for key, value in certificate.items() if key not in ARGUMENTS} | {"windows": []}


def at_prices() -> dict[str, Any]:
    """From 0.2 to 1.6 s a price of 10, and all of each batch on the first request."""
    prices = {"piece": 0, "parts": 8, "cells": [[200, 1600, 10]], "shares": [10, 0, 0, 0, 0, 0]}
    return {**bare(one_by_one()), "prices": prices, "machines": 2}


def by_shares() -> dict[str, Any]:
    """The same price, and all of each batch in that time on the first request."""
    cells, shares = [[200, 0, 0, 0, 0], [1600, 10, 0, 0, 0]], [[1, WHOLE], [0], [0], [0], [0], [0]]
    attainment = {"piece": 0, "groups": 1, "cells": cells, "shares": shares}
    return {**bare(one_by_one()), "attainment": attainment, "machines": 2}


@cache
def accepted() -> tuple[FleetVector, ...]:
    """One of each claim, and one that nothing is enough."""
    found = pooled_bound(question(6))
    machines = found.certificate
    never = pooled_bound(question(3, Fraction(1, 20))).certificate
    types = [question(6), question(6, token=FAST)]
    return (
        FleetVector("machines", "machines", machines),
        FleetVector("machines-by-pace", "machines", pooled_bound(paced()).certificate),
        FleetVector("machines-in-turn", "machines", pooled_bound(in_bursts()).certificate),
        FleetVector("machines-by-a-horizon", "machines", pooled_bound(beside()).certificate),
        FleetVector("machines-at-prices", "machines", at_prices()),
        FleetVector("machines-by-shares", "machines", by_shares()),
        FleetVector("machines-of-the-question", "machines", machines, asked=machines["question"]),
        FleetVector("no-number-of-machines", "machines", never),
        FleetVector("machines-from", "machines_from", {**machines, "machines_from": machines_from(machines)}),
        FleetVector("price", "price", mix_bound(types, [Fraction(3), Fraction(5)]).certificate),
        FleetVector("seconds", "seconds", least_time([found], Scaling(Fraction(1)))[1]),
    )


#: Faults of each claim: name, reason, where, and what stands there instead.
FAULTS: dict[str, tuple[tuple[str, str, str, Any], ...]] = {
    "machines": (
        ("claims-one-more", "claim", "machines", up(1)),
        ("claims-nothing", "malformed", "machines", None),
        ("without-windows", "claim", "windows", []),
        ("window-ends-early", "claim", "windows.0.1", up(-300)),
        ("window-ends-before-it-begins", "malformed", "windows.0.0", up(600)),
        ("window-of-no-kind", "malformed", "windows.0.4", "magic"),
        ("groups-none", "malformed", "groups", 0),
        ("share-smaller", "question", "share", "1/2"),
        ("limit-smaller", "question", "levels.0.0", "1/3"),
        ("prompt-longer", "question", "requests.0.1", up(1)),
        ("machine-slower", "question", "machine.beta.0", up(1)),
        ("another-hash", "question", "question", "0" * 64),
    ),
    "machines_from": (
        ("claims-one-more", "claim", "machines_from", up(1)),
        ("claims-nothing", "malformed", "machines_from", None),
        ("machine-slower", "question", "machine.beta.0", up(1)),
    ),
    "price": (
        ("claims-a-hair-more", "claim", "price", lambda price: str(Fraction(price) + HAIR)),
        ("without-cuts", "claim", "cuts", []),
        ("cut-of-one-type", "evidence", "cuts", [[1]]),
        ("without-types", "evidence", "types", []),
        ("price-of-a-type-below-0", "malformed", "types.0.price", "-1"),
        ("price-of-a-type-raised", "question", "types.0.price", "1000"),
        ("another-hash", "question", "question", "0" * 64),
    ),
    "seconds": (
        ("claims-a-hair-more", "claim", "seconds", lambda seconds: str(Fraction(seconds) + HAIR)),
        ("without-parts", "evidence", "parts", []),
        ("start-up-below-0", "malformed", "start_up", "-1"),
        ("start-up-left-out", "question", "start_up", "0"),
        ("another-hash", "question", "question", "0" * 64),
    ),
}
#: Pieces of a machine that take too long.
MANY = 10**5


def rejected() -> Iterator[FleetVector]:
    """Certificates with one fault each."""
    for plan in accepted():
        faults = FAULTS[plan.claim] if plan.name == plan.claim.replace("_", "-") else ()
        for name, reason, path, new in faults:
            yield FleetVector(f"{plan.name}/{name}", plan.claim, changed(plan.certificate, path, new), reason)
    machines, pace, in_turn, horizon, prices, shares, _, never = accepted()[:8]
    for plan, name, reason, path, new in (
        (pace, "claims-one-more", "claim", "machines", up(1)),
        (pace, "without-it", "claim", "windows.0.4", "kv"),
        (horizon, "claims-one-more", "claim", "machines", up(1)),
        (horizon, "without-it", "claim", "windows.0.4", "pace"),
        (horizon, "by-a-shorter-one", "claim", "windows.0.4", up(-1)),
        (horizon, "by-none", "malformed", "windows.0.4", 0),
        (in_turn, "claims-one-more", "claim", "machines", up(1)),
        (in_turn, "one-fewer-is-too-few", "claim", "in_turn.too_few", up(-1)),
        (in_turn, "one-more-is-too-few", "evidence", "in_turn.too_few", up(1)),
        (in_turn, "of-no-piece", "malformed", "in_turn.piece", 1),
        (prices, "claims-one-more", "claim", "machines", up(1)),
        (prices, "of-no-piece", "malformed", "prices.piece", 1),
        (prices, "whole-batches-by-work", "malformed", "prices.parts", 1),
        (prices, "without-cells", "evidence", "prices.cells", []),
        (prices, "time-for-nothing", "malformed", "prices.cells.0.2", 0),
        (prices, "cells-over-each-other", "malformed", "prices.cells", [[200, 1500, 10], [1400, 1600, 10]]),
        (prices, "time-that-ends-early", "evidence", "prices.cells.0.1", up(-100)),
        (prices, "a-share-above-the-price", "evidence", "prices.shares.0", up(1)),
        (prices, "shares-above-the-price", "evidence", "prices.shares.1", up(1)),
        (prices, "a-share-too-few", "evidence", "prices.shares", [0]),
        (shares, "claims-one-more", "claim", "machines", up(1)),
        (shares, "of-no-piece", "malformed", "attainment.piece", 1),
        (shares, "in-no-group", "malformed", "attainment.groups", 0),
        (shares, "without-cells", "evidence", "attainment.cells", []),
        (shares, "cells-that-fall", "evidence", "attainment.cells.1.0", 100),
        (shares, "a-price-below-0", "evidence", "attainment.cells.0.1", -1),
        (shares, "requests-that-are-not-scarce", "evidence", "attainment.cells.0.4", 1),
        (shares, "time-that-ends-early", "claim", "attainment.cells.1.0", up(-101)),
        (shares, "time-for-nothing", "claim", "attainment.cells.1.1", 0),
        (shares, "a-share-below-0", "evidence", "attainment.shares.0.1", -1),
        (shares, "a-share-of-no-cell", "evidence", "attainment.shares.0.0", 2),
        (shares, "more-than-a-batch", "evidence", "attainment.shares.1", [1, 1]),
        (shares, "a-share-too-few", "malformed", "attainment.shares", [[0]]),
    ):
        yield FleetVector(f"{plan.name}/{name}", "machines", changed(plan.certificate, path, new), reason)
    asked = never.certificate["question"]
    yield FleetVector("machines/of-another-question", "machines", machines.certificate, "question", asked)
    pieces = [0] * MANY
    many = changed(pooled_bound(question(20)).certificate, "machine.alpha", pieces)
    many = changed(many, "machine.beta", pieces)
    yield FleetVector("machines/many-pieces", "machines", many, "work")
