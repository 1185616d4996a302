"""Prompts and later tokens beside each other: no such window demands more than machines that do it have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.checking.fields import Field
from infermax_opt.fleet.bounds.beside import horizon_of
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.beside import reach
from infermax_opt.fleet.checker.certificate import least_machines
from infermax_opt.fleet.checker.machine import Machine, later_ticks, read_machine
from infermax_opt.fleet.checker.needs import KINDS, Need, cost_of, needs_of, unit_of
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.plain import replay_plain
from tests.campaign import campaign, in_blocks
from tests.fleet.test_planted import OUTPUTS, dearest, planted
from tests.fleet.tiny import decided, tiny_fleet


def machine_in(certificate: dict[str, Any]) -> Machine:
    return read_machine(Field(certificate["machine"], "machine"))


def needs_in(certificate: dict[str, Any], groups: int = 1) -> Iterator[tuple[int, list[Need]]]:
    """The prompt of each request that may be good, and what it needs."""
    machine = machine_in(certificate)
    levels = [[None if x is None else Fraction(x) for x in level] for level in certificate["levels"]]
    for arrival, prompt, outputs, level in certificate["requests"]:
        needs = needs_of(machine, Fraction(arrival), (prompt, outputs), levels[level], groups)
        if needs:
            yield prompt, needs


def horizons(certificate: dict[str, Any]) -> list[int]:
    """All that differ: by each there is a request more that pays for batches it shares."""
    machine, found = machine_in(certificate), {1}
    for prompt, needs in needs_in(certificate):
        last = needs[-1]
        if last.wait is not None:
            span = last.spare + later_ticks(machine, prompt, 2, last.outputs)
            for piece in range(len(machine.alpha)):
                least = reach(machine, (prompt, last.outputs), piece, (last.wait, span))
                found.add(max(1, least or 1))
    return sorted(found)


def batches_of(rng: random.Random, groups: list[RequestGroup], budget: int, policy: Policy) -> list[Batch]:
    """Batches of a busy machine: first tokens that wait for each other, then later ones beside prompts."""
    cached, made = dict.fromkeys((g.id for g in groups), 0), dict.fromkeys((g.id for g in groups), 0)
    of, found = {g.id: g for g in groups}, list[Batch]()
    together, riding = rng.random(), rng.choice([0.0, 0.3, 1.0])
    while any(made[name] < of[name].output_tokens for name in of):
        active = [name for name in of if made[name] < of[name].output_tokens]
        decoding = [
            name for name in active if made[name] and cached[name] == of[name].input_tokens + made[name] - 1
        ]
        rest = [name for name in active if name not in decoding]
        evicted = [name for name in decoding if policy.preemption and rng.random() < 0.02]
        tokens = {name: 1 for name in decoding if name not in evicted and rng.random() < 0.95}
        left = rng.choice([budget, budget // 3 or 1]) if not tokens or rng.random() < riding else 0
        for name in rng.sample(rest, len(rest)) if rng.random() < 0.3 else rest:
            missing = of[name].input_tokens + made[name] - cached[name]
            # All but the last token of a prompt, while others are not as far.
            waits = policy.chunked_prefill and missing > 1 and not made[name] and rng.random() < together
            chunk = min(left, missing - waits)
            if chunk > 0 and (policy.chunked_prefill or chunk == missing):
                tokens[name], left = chunk, left - chunk
        if not policy.hybrid_batching and len({name in decoding for name in tokens}) > 1:
            tokens = {name: count for name, count in tokens.items() if name in decoding}
        if not tokens:
            continue
        for name in evicted:
            cached[name] = 0
        for name, count in tokens.items():
            cached[name] += count
            made[name] += cached[name] == of[name].input_tokens + made[name]
        found.append(Batch(tokens, frozenset(evicted)))
    return found


def dense(seed: int) -> tuple[FleetQuestion, int]:
    """Requests with the very latencies of busy machines as limits, and how many run these."""
    rng = random.Random(seed)
    budget, machines = rng.randint(8, 40), rng.choice([1, 1, 2])
    policy = Policy(rng.random() < 0.9, rng.random() < 0.85, rng.random() < 0.6)
    pieces = [
        (rng.choice(["0.1", "0.5", "1"]), rng.choice(["0.02", "0.1", "0.5"]))
        for _ in range(rng.choice([1, 1, 2]))
    ]
    decode = rng.choice(["0", "0.1", "1"]), rng.choice(["0", "0.001", "0.02"])
    prefill = rng.choice(["0", "0.1", "1"]), rng.choice(["0", "0.0005", "0.01"])
    cost = CostModel(pieces, decode, prefill, rng.choice(["square", "exact"]))
    system, done = System(10_000, 10_000, budget), list[RequestGroup]()
    # Whole prompts fit a batch, also those that come again with what was made.
    longest = 3 * budget if policy.chunked_prefill else budget - max(OUTPUTS)
    for k in range(machines):
        groups = [
            RequestGroup(
                f"m{k}-{j}",
                rng.randint(1, longest),
                rng.choice(OUTPUTS),
            )
            for j in range(rng.randint(2, 9))
        ]
        schedule = Schedule("busy", tuple(batches_of(rng, groups, budget, policy)))
        done += timed(Instance("busy", tuple(groups), system, cost, policy), schedule)
    return FleetQuestion(Instance("busy", tuple(done), system, cost, policy, "missed"), Fraction(1)), machines


def timed(instance: Instance, schedule: Schedule) -> list[RequestGroup]:
    """The requests of a machine, which arrive when they are first taken up, with what they take as limits."""
    replayed, found = replay_plain(instance, schedule), list[RequestGroup]()
    assert replayed.valid, replayed.violations
    ends = [Fraction(0), *map(replayed.seconds, replayed.ends)]
    for group, i, j in zip(instance.groups, replayed.first_batch, replayed.last_batch, strict=True):
        begin = ends[next(k for k, batch in enumerate(schedule.batches) if group.id in batch.tokens)]
        slo = {"ttft": ends[i + 1] - begin}
        if group.output_tokens > 1:
            slo["tpot"] = (ends[j + 1] - ends[i + 1]) / (group.output_tokens - 1)
        found.append(replace(group, arrival=begin, slo=slo))
    return found


@pytest.mark.parametrize("made", [planted, dense])
@in_blocks(campaign(20, 8_000), 60)
def test_no_window_demands_more_than_the_machines_that_do_it(seeds: range, made: Any) -> None:
    more = nearly = 0
    for seed in seeds:
        question, machines = made(seed)
        certificate = pooled_bound(question).certificate
        most = dearest(certificate, horizons(certificate))
        assert most <= machines, seed
        more += most > dearest(certificate, KINDS)
        nearly += most > machines * Fraction(9, 10)
    assert made is planted or (more > len(seeds) / 8 and nearly)


def random_proofs(certificate: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Any windows of horizons, or of other kinds beside."""
    needs = [need for _, some in needs_in(certificate) for need in some]
    kinds = [*KINDS, *horizons(certificate) * 4]
    for _ in range(8 if needs else 0):
        windows = []
        for _ in range(rng.randint(1, 3)):
            begin, end = rng.choice(needs).begin, rng.choice(needs).end
            piece = rng.randrange(len(certificate["machine"]["alpha"]))
            if begin < end:
                windows.append([begin, end, rng.randint(1, 9), piece, rng.choice(kinds)])
        yield {**certificate, "windows": windows, "groups": rng.randint(1, 3)}


def close(seed: int) -> FleetQuestion:
    """A tiny fleet whose requests come together, with limits that leave time for others."""
    question, rng = tiny_fleet(seed), random.Random(seed)
    groups = []
    for group in question.workload.groups:
        limits = zip(("ttft", "tpot", "e2e"), group.slo.limits, strict=True)
        slo = {name: limit * rng.choice([1, 2, 3]) for name, limit in limits if limit is not None}
        groups.append(replace(group, arrival=group.arrival / 8, slo=slo))
    return replace(question, workload=replace(question.workload, groups=tuple(groups)))


@pytest.mark.parametrize("made", [tiny_fleet, close])
@in_blocks(campaign(24, 5_000), 40)
def test_no_bound_exceeds_the_optimum(seeds: range, made: Any) -> None:
    known = met = 0
    for seed, question, best in decided(seeds, made):
        found = pooled_bound(question)
        if best is None or found.machines is None:
            assert best is None or found.machines is not None, seed
            continue
        for proof in random_proofs(found.certificate, random.Random(seed)):
            proved = least_machines(proof)
            assert isinstance(proved, int), seed
            assert proved <= best, (seed, proved, best)
            met += proved == best > 1
        known += 1
    assert known > len(seeds) / 4
    assert met or 0 not in seeds


def shared(requests: int, outputs: int = 9, budget: int = 100) -> FleetQuestion:
    """Prompts that come together, each of a tenth of a second, with later tokens in batches of as much."""
    slo = {"ttft": "1", "tpot": "0.15"}
    groups = tuple(RequestGroup(f"r{k}", 100, outputs, slo=slo) for k in range(requests))
    cost = CostModel([("0.1", "0.001")], ("0", "0"), ("0", "0"))
    system = System(100_000, 1_000, budget)
    return FleetQuestion(Instance("shared", groups, system, cost, objective="missed"), Fraction(1))


def test_batches_that_few_can_share() -> None:
    # A prompt takes 0.2 s in a batch of its own: 5 in a second.  Of later tokens each takes 0.001 s and its
    # share of a batch of 0.1 s, and 8 of these leave 0.392 s for prompts: so 1.784 s are the horizon.
    question = shared(40)
    found = pooled_bound(question)
    machine = machine_in(found.certificate)
    needs = next(needs_in(found.certificate))[1]
    second = machine.ticks_per_second
    reached = reach(machine, (100, 9), 0, (second, second * 12 // 10))
    assert reached == second * 1784 // 1000
    assert horizons(found.certificate) == [1, reached]
    assert horizon_of(machine, [100], [needs], 0) == [reached]
    prompt, later = (Fraction(cost_of(machine, 100, need, 0, reached), unit_of(machine)) for need in needs)
    assert prompt == second * Fraction(1875, 10_000)
    # Of 8 batches, less what prompts of 0.392 s take of their 0.1 s, seven eighths.
    paid = Fraction(2, 10) / Fraction(1784, 1000) * Fraction(7, 8) / 10 * (8 - Fraction(392, 100))
    assert later == pytest.approx(float(second * (Fraction(8, 1000) + paid)), rel=1e-9)
    # By a shorter horizon nobody shares.
    assert cost_of(machine, 100, needs[1], 0, reached - 1) == second * 8 // 1000 * unit_of(machine)


def test_what_is_no_kind() -> None:
    certificate = pooled_bound(shared(40)).certificate
    (begin, end, weight, piece, _), *_ = certificate["windows"]
    for kind in (0, -1, 1.5, True, None, [], {}, "1", "beside", 2**256 + 1):
        wrong = {**certificate, "windows": [[begin, end, weight, piece, kind]]}
        with pytest.raises(Rejected, match="windows"):
            least_machines(wrong)
    right = {**certificate, "windows": [[begin, end, weight, piece, 10**15]]}
    assert isinstance(least_machines(right), int)
