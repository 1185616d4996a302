"""Limits that a fleet just keeps: what random schedules of its machines do, so no proof may ask for more."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

from infermax_opt.checking.fields import Field
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.machine import read_machine
from infermax_opt.fleet.checker.needs import KINDS, cost_of, needs_of, unit_of
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup
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


def dearest(certificate: dict[str, Any]) -> Fraction:
    """What any window demands of machines at most, over all pieces and whatever shares alpha."""
    machine = read_machine(Field(certificate["machine"], "machine"))
    levels = [[None if x is None else Fraction(x) for x in level] for level in certificate["levels"]]
    most, unit = Fraction(0), unit_of(machine)
    needs = []
    for arrival, prompt, outputs, level in certificate["requests"]:
        found = needs_of(machine, Fraction(arrival), (prompt, outputs), levels[level], outputs)
        assert found is not None
        needs += [(prompt, need) for need in found]
    for piece in range(len(machine.alpha)):
        for kind in KINDS:
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


@in_blocks(campaign(120, 5_000), 60)
def test_no_window_demands_more_than_the_machines_that_do_it(seeds: range) -> None:
    nearly = 0
    for seed in seeds:
        question, machines = planted(seed)
        bound = pooled_bound(question)
        assert bound.machines is not None, seed
        assert bound.machines <= machines, seed
        most = dearest(bound.certificate)
        assert most <= machines, seed
        nearly += most > machines * Fraction(9, 10)
    assert nearly
