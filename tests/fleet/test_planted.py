"""Limits that a fleet just keeps: what random schedules of its machines do, so no proof may ask for more."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

from infermax_opt.checking.fields import Field
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.machine import read_machine
from infermax_opt.fleet.checker.needs import KINDS, SHARED, Kind, cost_of, needs_of, unit_of
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.upper import fewest_machines
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.plain import replay_plain
from tests.campaign import campaign, in_blocks
from tests.infermax.test_formulations import random_instance, random_schedule
from tests.infermax.tiny import cost_model

#: Output tokens of which a mean TPOT is a decimal: 1, 2, 4 or 5 later ones.
OUTPUTS = (1, 2, 3, 5, 6)


def planted(seed: int) -> tuple[FleetQuestion, int]:
    """Requests with the very latencies of some schedules as limits, and the machines that run these."""
    rng, machines = random.Random(seed), random.Random(seed).randint(1, 3)
    base = replace(random_instance(rng), cost=cost_model(rng))
    longest = 9 if base.policy.chunked_prefill else base.system.prefill_budget
    groups: list[RequestGroup] = []
    for _ in range(machines):
        some = []
        for _ in range(rng.randint(1, 4)):
            arrival = Fraction(rng.randint(0, 40), 10) if rng.random() < 0.4 else Fraction(0)
            size = rng.randint(1, longest)
            some.append(RequestGroup(f"q{len(groups) + len(some)}", size, rng.choice(OUTPUTS), arrival))
        peak = max(base.system.held(g.input_tokens + g.output_tokens - 1) for g in some)
        system = replace(base.system, kv_capacity=max(base.system.kv_capacity, peak))
        base = replace(base, system=system)
        groups += kept(replace(base, groups=tuple(some)), rng)
    workload = replace(base, groups=tuple(groups), objective=Objective.of("missed"))
    return FleetQuestion(workload, Fraction(1)), machines


def kept(instance: Instance, rng: random.Random) -> list[RequestGroup]:
    """The requests of a machine, with what a schedule of it takes for each as their limits."""
    replayed = replay_plain(instance, random_schedule(rng, instance))
    assert replayed.valid
    names = rng.choice([("ttft", "tpot", "e2e"), ("ttft", "tpot"), ("e2e",), ("ttft", "e2e")])
    found = []
    for group, i, j in zip(instance.groups, replayed.first_batch, replayed.last_batch, strict=True):
        first, last = replayed.seconds(replayed.ends[i]), replayed.seconds(replayed.ends[j])
        steps = max(1, group.output_tokens - 1)
        slo = {
            "ttft": first - group.arrival,  # type: ignore[operator]
            "tpot": (last - first) / steps,
            "e2e": last - group.arrival,  # type: ignore[operator]
        }
        found.append(replace(group, slo={name: slo[name] for name in names}))
    return found


def dearest(certificate: dict[str, Any], kinds: Sequence[Kind] = KINDS) -> Fraction:
    """What any window demands of machines at most, over all pieces and whatever shares alpha.

    Later tokens are taken one by one, and all of a request at once.
    """
    machine = read_machine(Field(certificate["machine"], "machine"))
    levels = [[None if x is None else Fraction(x) for x in level] for level in certificate["levels"]]
    most, unit = Fraction(0), unit_of(machine)
    for one in (True, False):
        needs = []
        for arrival, prompt, outputs, level in certificate["requests"]:
            groups = outputs if one else 1
            found = needs_of(machine, Fraction(arrival), (prompt, outputs), levels[level], groups)
            assert found is not None
            needs += [(prompt, need) for need in found]
        for piece, kind in product(range(len(machine.alpha)), kinds):
            costs = [(need, cost_of(machine, prompt, need, piece, kind)) for prompt, need in needs]
            for begin in {need.begin for need, _ in costs}:
                total = 0
                for need, cost in sorted(
                    (some for some in costs if some[0].begin >= begin), key=lambda x: x[0].end
                ):
                    total += cost
                    assert need.end > begin or not total
                    most = max(most, Fraction(total, unit * max(1, need.end - begin)))
    return most


@in_blocks(campaign(22, 5_000), 60)
def test_no_window_demands_more_than_the_machines_that_do_it(seeds: range) -> None:
    nearly = paced = 0
    for seed in seeds:
        question, machines = planted(seed)
        bound = pooled_bound(question)
        assert bound.machines is not None, seed
        assert bound.machines <= machines, seed
        most = dearest(bound.certificate)
        assert most <= machines, seed
        nearly += most > machines * Fraction(9, 10)
        paced += most > dearest(bound.certificate, SHARED)
    assert nearly
    assert paced > len(seeds) / 8


def test_refills_that_are_cheaper_than_decoding() -> None:
    """A batch that only refills has no share of what decoding takes beside all work."""
    groups = tuple(RequestGroup(name, 1, 2, slo={"ttft": "4", "tpot": "8"}) for name in "abc")
    cost = CostModel([("1", "1")], ("5", "0"), ("0", "0"))
    workload = Instance("refills", groups, System(9, 9, 9), cost, objective=Objective.of("missed"))
    evicting, refills = Batch({}, frozenset("abc")), Batch(dict.fromkeys("abc", 2))
    done = replay_plain(workload, Schedule("refills", (Batch(dict.fromkeys("abc", 1)), evicting, refills)))
    assert done.valid
    assert [done.seconds(end) for end in done.ends] == [4, 5, 12]
    found = pooled_bound(FleetQuestion(workload, Fraction(1)))
    assert found.machines == 1
    assert Fraction(1, 2) < dearest(found.certificate) <= 1


def test_the_pace_of_a_token_is_a_share_of_a_machine() -> None:
    """Batches of 0.1 s, 0.001 s a token read, a TPOT of 0.2 s: five read 20 tokens each, no five read 21."""
    cost = CostModel([("0.1", "0")], ("0", "0.001"), ("0", "0"))
    for outputs, machines in ((2, 4), (5, 5)):
        # With so short a limit, all first tokens come at once.
        slo = {"ttft": "0.1", "tpot": "0.2"}
        groups = tuple(RequestGroup(f"r{k}", 20, outputs, slo=slo) for k in range(20))
        workload = Instance("pace", groups, System(10_000, 1_000, 1_000), cost, objective="missed")
        question = FleetQuestion(replace(workload, policy=Policy(preemption=False)), Fraction(1))
        found = pooled_bound(question)
        assert found.machines == machines, outputs
        upper = fewest_machines(question, 1, schedulers=("sarathi", "vllm_v1"))
        assert upper is not None
        assert machines <= upper.machines <= machines + 1
        assert dearest(found.certificate, SHARED) < machines - 1
