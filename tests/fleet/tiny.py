"""Tiny fleets and their exhaustive optimum: every choice of who is good, every routing, every schedule."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import Latency
from tests.infermax.tiny import cost_model
from tests.infermax.vector_oracle import TooMany, vector_optimum

#: Points of a machine's schedules at most.
POINTS = 4_000


def tiny_fleet(seed: int) -> FleetQuestion:
    """Two to five requests with limits from just what they take alone to some times that."""
    rng = random.Random(seed)
    count = rng.choice([2, 3, 3, 4, 5])
    longest = 4 if count < 4 else 3
    groups: list[RequestGroup] = []
    for k in range(count):
        i, o = rng.randint(1, longest), rng.randint(1, 3 if count < 4 else 2)
        if groups and rng.random() < 0.5:
            i, o = groups[-1].input_tokens, groups[-1].output_tokens
        arrival = Fraction(rng.randint(0, 200), 100) if rng.random() < 0.5 else Fraction(0)
        groups.append(RequestGroup(f"q{k}", i, o, arrival))
    policy = Policy(rng.random() < 0.7, rng.random() < 0.6, rng.random() < 0.5)
    peak = max(group.input_tokens + group.output_tokens - 1 for group in groups)
    block = rng.choice([1, 1, 1, 2])
    prompt = 1 if policy.chunked_prefill else max(group.input_tokens for group in groups)
    roomy = rng.random() < 0.4
    system = System(
        kv_capacity=-(-peak // block) * block + rng.choice([0, 1, 2, peak, 3 * peak]),
        max_batch_tokens=50 if roomy else prompt + rng.randint(0, 3),
        max_prefill_tokens=50 if roomy else prompt + rng.randint(0, 3),
        max_running=rng.choice([None, None, 1, 2]),
        block_size=block,
    )
    missed = Objective.of("missed")
    base = Instance(f"fleet-{seed}", tuple(groups), system, cost_model(rng), policy, missed)
    lone, unit = LoneLatency(base), base.cost.ticks_per_second
    promised = []
    for group, request in zip(groups, base.requests, strict=True):
        slo = {}
        for name in rng.choice(
            ["ttft tpot", "ttft tpot", "ttft tpot", "ttft", "e2e", "ttft e2e", "tpot e2e"]
        ).split():
            alone = lone.of(request).ticks(Latency(name), max(2, request.output_tokens)) / unit
            factor = rng.choice([1, 1, 1, Fraction(6, 5), Fraction(3, 2), 2])
            slo[name] = Fraction(-(-alone * factor * 100 // 1), 100)
        promised.append(
            RequestGroup(group.id, group.input_tokens, group.output_tokens, group.arrival, slo=slo)
        )
    share = rng.choice([1, 1, 1, Fraction(3, 4), Fraction(1, 2)])
    return FleetQuestion(Instance(base.name, tuple(promised), system, base.cost, policy, missed), share)


def fewest(question: FleetQuestion) -> int | None:
    """Fewest machines; None if no number is enough.  `TooMany` where a machine has too many schedules."""
    requests = range(len(question.workload.requests))
    known: dict[tuple[int, ...], bool] = {(): True}

    def feasible(members: tuple[int, ...]) -> bool:
        """Whether one machine can keep the limits of all these, and serve nobody else."""
        if members not in known:
            smaller = itertools.combinations(members, len(members) - 1)
            known[members] = all(map(feasible, smaller)) and (
                vector_optimum(question.machine(members), POINTS) == 0
            )
        return known[members]

    for machines in range(1, len(requests) + 1):
        for good in itertools.combinations(requests, question.must):
            if _splits(good, machines, feasible):
                return machines
    return None


def decided(
    seeds: Iterable[int], made: Callable[[int], FleetQuestion] = tiny_fleet
) -> Iterator[tuple[int, FleetQuestion, int | None]]:
    """Seeds, their fleets, and the fewest machines of each; without those that have too many schedules."""
    for seed in seeds:
        question = made(seed)
        try:
            best = fewest(question)
        except TooMany:
            continue
        yield seed, question, best


def _splits(good: tuple[int, ...], machines: int, feasible: Callable[[tuple[int, ...]], bool]) -> bool:
    """Whether these can be dealt out to so many machines."""
    if not machines:
        return not good
    if not good:
        return True
    first, rest = good[0], good[1:]
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            left = tuple(i for i in rest if i not in others)
            if feasible((first, *others)) and _splits(left, machines - 1, feasible):
                return True
    return False


def cheapest_by_enumeration(questions: list[FleetQuestion], prices: list[Fraction]) -> Fraction | None:
    """The cheapest of all choices of who is good, and of all ways to deal them out to machines."""
    count = len(questions[0].workload.requests)
    serves: dict[tuple[int, ...], Fraction | None] = {}
    for size in range(1, count + 1):
        for members in itertools.combinations(range(count), size):
            known = [
                price
                for question, price in zip(questions, prices, strict=True)
                if vector_optimum(question.machine(members), POINTS) == 0
            ]
            serves[members] = min(known, default=None)
    best: dict[tuple[int, ...], Fraction | None] = {(): Fraction(0)}
    for size in range(1, count + 1):
        for members in itertools.combinations(range(count), size):
            found = []
            for more in range(size):
                for others in itertools.combinations(members[1:], more):
                    one = serves[(members[0], *others)]
                    rest = best[tuple(i for i in members[1:] if i not in others)]
                    if one is not None and rest is not None:
                        found.append(one + rest)
            best[members] = min(found, default=None)
    must = questions[0].must
    known = [best[some] for some in itertools.combinations(range(count), must)]
    return min((price for price in known if price is not None), default=None)
