"""Prefill and decode apart: bounds against what random pools do, replays, certificates."""

from __future__ import annotations

import copy
import itertools
import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.fleet import split
from infermax_opt.fleet.apart import ApartQuestion
from infermax_opt.fleet.bounds.split import PoolBound, pool_bound
from infermax_opt.fleet.checker.certificate import least_apart
from infermax_opt.fleet.checker.command import main
from infermax_opt.fleet.checker.needs import KINDS, cost_of, unit_of
from infermax_opt.fleet.checker.split import SIDES, split_needs
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.decode import DecodeMachine, Job, Stretch, replay_decode
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.routing.decode import Handed, route_decode
from infermax_opt.fleet.split import SplitPlan, split_plan
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, System
from infermax_opt.infermax.replay.plain import replay_plain
from tests.campaign import campaign, in_blocks
from tests.infermax.test_formulations import random_instance, random_schedule
from tests.infermax.tiny import cost_model


def planned(question: ApartQuestion, schedulers: tuple[str, ...]) -> SplitPlan:
    """All that is found of both pools."""
    return list(split_plan(question, schedulers))[-1]


def planted(seed: int) -> tuple[ApartQuestion, tuple[int, int]]:
    """Requests with the very latencies of schedules of both pools as limits, and the sizes of the pools."""
    rng = random.Random(seed)
    base = replace(random_instance(rng), cost=cost_model(rng))
    longest = 9 if base.policy.chunked_prefill else base.system.prefill_budget
    firsts: list[tuple[RequestGroup, Fraction]] = []
    sizes = rng.randint(1, 3), rng.randint(1, 3)
    for _ in range(sizes[0]):
        some = []
        for _ in range(rng.randint(1, 4)):
            arrival = Fraction(rng.randint(0, 40), 10) if rng.random() < 0.4 else Fraction(0)
            some.append(RequestGroup(f"q{len(firsts) + len(some)}", rng.randint(1, longest), 1, arrival))
        peak = max(base.system.held(group.input_tokens) for group in some)
        base = replace(
            base,
            system=replace(base.system, kv_capacity=max(base.system.kv_capacity, peak)),
            groups=tuple(some),
        )
        done = replay_plain(base, random_schedule(rng, base))
        assert done.valid
        firsts += [(g, done.seconds(done.ends[j])) for g, j in zip(some, done.first_batch, strict=True)]
    transfer, cost = Fraction(rng.choice([0, 0, 1, 5]), 100), cost_model(rng)
    outputs = [rng.choice([1, 2, 3, 5, 6]) for _ in firsts]
    lasts, system = random_decoding(rng, firsts, outputs, transfer, cost, sizes[1])
    groups = []
    for (group, first), last, steps in zip(firsts, lasts, outputs, strict=True):
        names = rng.choice([("ttft", "tpot", "e2e"), ("ttft", "tpot"), ("e2e",), ("ttft", "e2e")])
        arrival = Fraction(group.arrival)
        slo = {
            "ttft": first - arrival, "tpot": (last - first) / max(1, steps - 1), "e2e": last - arrival,
        }  # fmt: skip
        groups.append(replace(group, output_tokens=steps, slo={name: slo[name] for name in names}))
    peak = max(base.system.held(g.input_tokens + g.output_tokens - 1) for g in groups)
    wide = replace(base.system, kv_capacity=max(base.system.kv_capacity, peak))
    workload = replace(base, groups=tuple(groups), system=wide, objective=Objective.of("missed"))
    return ApartQuestion(FleetQuestion(workload, Fraction(1)), system, cost, transfer), sizes


def random_decoding(
    rng: random.Random,
    firsts: list[tuple[RequestGroup, Fraction]],
    outputs: list[int],
    transfer: Fraction,
    cost: CostModel,
    machines: int,
) -> tuple[list[Fraction], System]:
    """Last tokens of requests that are dealt out to machines and take turns there, and a machine that may."""
    most, kv, lasts = rng.randint(1, 4), 1, [first for _, first in firsts]
    pools: list[list[int]] = [[] for _ in range(machines)]
    for i, steps in enumerate(outputs):
        if steps > 1:
            rng.choice(pools).append(i)
    for pool in pools:
        now, left = Fraction(0), {i: outputs[i] - 1 for i in pool}
        while left:
            ready = {i: firsts[i][1] + transfer * firsts[i][0].input_tokens for i in left}
            now = max(now, min(ready.values()))
            there = [i for i in left if ready[i] <= now]
            batch = rng.sample(there, rng.randint(1, min(most, len(there))))
            read = {i: firsts[i][0].input_tokens + outputs[i] - 1 - left[i] for i in batch}
            # Nothing but those of the batch needs to be held: the others come again, in no time.
            kv = max(kv, sum(read.values()) + len(batch))
            features = BatchFeatures(len(batch), len(batch), sum(read.values()), 0, 0)
            now += cost.to_seconds(cost.batch_ticks(features))
            for i in batch:
                left[i] -= 1
                lasts[i] = now
            left = {i: rest for i, rest in left.items() if rest}
    peak = max((firsts[i][0].input_tokens + steps - 1 for i, steps in enumerate(outputs)), default=1)
    return lasts, System(max(kv, peak), most, most, most)


def dearest(question: ApartQuestion, side: str) -> Fraction:
    """What any window demands of the machines of a side at most, by any piece, whatever shares alpha.

    Later tokens are taken one by one, and all of a request at once.
    """
    machine, most = getattr(question.machines, side), Fraction(0)
    for one in (True, False):
        needs = []
        for asked in question.whole.asked:
            found = split_needs(question.machines, side, asked, asked[2] if one else 1)
            assert found is not None
            needs += [(asked[1], need) for need in found]
        for piece, kind in product(range(len(machine.alpha)), (*KINDS, 10**15)):
            costs = [(need, cost_of(machine, prompt, need, piece, kind)) for prompt, need in needs]
            for begin in {need.begin for need, _ in costs}:
                total = 0
                later = (some for some in costs if some[0].begin >= begin)
                for need, cost in sorted(later, key=lambda x: x[0].end):
                    total += cost
                    most = max(most, Fraction(total, unit_of(machine) * max(1, need.end - begin)))
    return most


@in_blocks(campaign(48, 5_000), 40)
def test_no_pool_needs_more_than_the_machines_that_did_it(seeds: range) -> None:
    nearly = dict.fromkeys(SIDES, 0)
    for seed in seeds:
        question, sizes = planted(seed)
        for side, size in zip(SIDES, sizes, strict=True):
            bound = pool_bound(question, side)
            assert bound.machines is not None, seed
            assert bound.machines <= size, (seed, side)
            assert least_apart(bound.certificate) == bound.machines
            most = dearest(question, side)
            assert most <= size, (seed, side)
            nearly[side] += most > size * Fraction(9, 10)
    assert all(nearly.values())


@in_blocks(campaign(24, 2_000), 40)
def test_what_is_found_is_never_below_what_is_proved(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search begins with one machine, not with the bound as elsewhere."""
    proved: dict[str, int | None] = {}

    def one_machine(question: ApartQuestion, side: str) -> PoolBound:
        bound = pool_bound(question, side)
        proved[side] = bound.machines
        return replace(bound, machines=min(1, bound.machines or 0))

    monkeypatch.setattr(split, "pool_bound", one_machine)
    met = 0
    for seed in seeds:
        question, _ = planted(seed)
        whole = replace(question.whole, share=random.Random(seed).choice([1, Fraction(3, 4), Fraction(1, 2)]))
        plan = planned(replace(question, whole=whole), ("sarathi", "deadline"))
        prefill, decode = (proved[side] for side in SIDES)
        assert prefill is not None, seed
        assert decode is not None, seed
        for found in plan.tried:
            assert found.prefill >= prefill, seed
            assert found.decode >= decode, seed
            assert len(found.good) >= whole.must
            assert plan.found is not None
            assert plan.found.machines <= found.machines
        met += plan.found is not None and plan.found.machines == prefill + decode
    assert met


def steady(count: int, outputs: int = 2, tpot: str = "0.3", transfer: str = "0.001") -> ApartQuestion:
    """Equal requests that come together: a prompt, its transfer, a batch of one token take 0.1 s each.

    A decode machine runs two at a time.
    """
    prompts = CostModel([("0", "0.001")], ("0", "0"), ("0", "0"))
    groups = tuple(
        RequestGroup(f"r{k}", 100, outputs, slo={"ttft": "0.5", "tpot": tpot}) for k in range(count)
    )
    workload = Instance("steady", groups, System(1_000, 100, 100), prompts, objective="missed")
    tokens = CostModel([("0.1", "0")], ("0", "0"), ("0", "0"))
    return ApartQuestion(
        FleetQuestion(workload, Fraction(1)), System(10_000, 100, 100, 2), tokens, Fraction(transfer)
    )


def test_pools_of_equal_requests() -> None:
    plan = planned(steady(20), ("sarathi",))
    # First tokens within 0.5 s: five to a machine.  Second ones between 0.2 and 0.8 s, two to a batch.
    assert (plan.prefill.machines, plan.decode.machines) == (4, 2)
    assert plan.found is not None
    assert (plan.found.prefill, plan.found.decode) == (4, 2)
    assert plan.lower == plan.found.machines == 6


def test_pools_are_told_as_soon_as_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(split_plan(steady(60), ("sarathi",)))
    monkeypatch.setattr(split, "pool_bound", lambda *asked: replace(pool_bound(*asked), machines=1))
    known = list(split_plan(steady(60), ("sarathi",)))
    assert known[0].found is None
    assert known[-1].found == whole[-1].found
    of_first = [plan.tried[0] for plan in known[1:]]
    assert all(len(plan.tried) <= len(later.tried) for plan, later in itertools.pairwise(known))
    decode = list(dict.fromkeys(one.decode for one in of_first))
    assert decode == sorted(decode, reverse=True)
    assert len(decode) > 1


def test_who_has_one_token_needs_no_decode_machine() -> None:
    plan = planned(steady(5, outputs=1), ("sarathi",))
    assert (plan.prefill.machines, plan.decode.machines) == (1, 0)
    assert plan.found is not None
    assert (plan.found.prefill, plan.found.decode) == (1, 0)


def test_a_transfer_counts_within_the_time_of_a_token() -> None:
    # Transfer and batch take 0.2 s from the first token on.
    assert planned(steady(2, tpot="0.2"), ("sarathi",)).lower == 2
    plan = planned(steady(2, tpot="0.1999"), ("sarathi",))
    assert plan.lower is plan.found is None
    assert least_apart(plan.decode.certificate) == least_apart(plan.prefill.certificate) == NEVER
    assert planned(steady(2, tpot="0.1", transfer="0"), ("sarathi",)).lower == 2


MACHINE = DecodeMachine(System(30, 4, 4, 2), CostModel([("1", "1")], ("0", "0.5"), ("9", "9")), 2)


def test_a_decode_machine_batch_by_batch() -> None:
    jobs = [Job(0, 4, 3), Job(2, 6, 1), Job(50, 1, 1)]
    done = replay_decode(
        MACHINE, jobs, [Stretch(0, (0,), 1), Stretch(2, (1,), 1), Stretch(0, (), 1), Stretch(50, (2,), 1)]
    )
    # Ticks of half a second, twice each: 1 + 1 + 4 / 2 = 4 s, then 1 + 2 + (5 + 6) / 2 = 8.5 s, then 5 s.
    scale = MACHINE.cost.ticks_per_second * MACHINE.scale
    ends = [4 * scale, 25 * scale // 2, 35 * scale // 2]
    assert done == {1: ends[1], 0: ends[2], 2: max(50, ends[2]) + 5 * scale // 2}
    assert MACHINE.batches(2, 11, 3) == sum(MACHINE.batch(2, 11 + 2 * k) for k in range(3))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ([Stretch(0, (0,), 1), Stretch(0, (0,), 3)], "joins twice"),
        ([Stretch(0, (1,), 1)], "before its KV"),
        ([Stretch(9, (0, 1, 2), 1)], "3 requests"),
        ([Stretch(9, (0, 3), 1)], "2 requests"),
        ([Stretch(0, (), 1)], "0 requests"),
        ([Stretch(0, (0,), 0)], "0$"),
        ([Stretch(0, (0,), 4)], "beyond"),
        ([Stretch(0, (0,), 2)], "do not end"),
    ],
)
def test_what_no_decode_machine_does(schedule: list[Stretch], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replay_decode(MACHINE, [Job(0, 4, 3), Job(5, 6, 1), Job(9, 1, 1), Job(0, 28, 2)], schedule)


def test_routed_pools_do_what_their_clocks_say() -> None:
    served = 0
    for seed in range(60):
        rng = random.Random(seed)
        machine = DecodeMachine(System(30, 4, 4, rng.randint(1, 4)), cost_model(rng), 1)
        unit, handed = machine.cost.ticks_per_second, []
        for _ in range(rng.randint(1, 9)):
            first = rng.randint(0, 9 * unit)
            job = Job(first + rng.randint(0, unit), rng.randint(1, 9), rng.randint(1, 5))
            due = rng.choice([None, job.ready + rng.randint(0, 20 * unit)])
            handed.append(Handed(first, job, due, rng.choice([None, 2 * unit])))
        for careful in (False, True):
            pools = route_decode(machine, handed, rng.randint(1, 3), careful=careful)
            ended = [i for pool in pools for i in replay_decode(machine, [one.job for one in handed], pool)]
            assert len(set(ended)) == len(ended)
            assert careful or len(ended) == len(handed)
            served += len(ended)
    assert served


def test_certificates_of_pools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question, path = steady(20), tmp_path / "proof.json"
    for side, count in zip(SIDES, (4, 2), strict=True):
        certificate = pool_bound(question, side).certificate
        path.write_text(json.dumps(certificate))
        assert main([str(path), "--question", question.sha256]) == 0
        assert f"{side} pool >= {count} machines" in capsys.readouterr().out
        for other in forged(certificate):
            path.write_text(json.dumps(other))
            assert main([str(path)]) == 1, other


def forged(certificate: dict[str, Any]) -> list[dict[str, Any]]:
    """Certificates that claim more, are malformed, or of another question."""
    found = []
    for path, value in (
        (("machines",), certificate["machines"] + 1),
        (("side",), "both"),
        (("side",), None),
        (("transfer",), "0.0011"),
        (("transfer",), "-1"),
        (("decode", "preemption"), True),
        (("decode", "alpha"), [10**9]),
        (("prefill", "beta"), [10**9]),
        (("requests", 0, 1), 99),
        (("share",), "0.5"),
        (("question",), "0" * 64),
        (("windows", 0, 1), certificate["windows"][0][0]),
        (("schema",), "infermax-opt/fleet-bound/1"),
    ):
        other = copy.deepcopy(certificate)
        place: Any = other
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        found.append(other)
    return found
