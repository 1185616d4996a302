"""The attainment bound against every schedule of tiny instances, and its certificates."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.api import schedule, solve, verify
from infermax_opt.files.certificates import exact_text
from infermax_opt.infermax.bounds import attainment
from infermax_opt.infermax.bounds._attainment_program import AttainmentProgram
from infermax_opt.infermax.bounds._attainment_proof import SHARE_BITS, AttainmentProof, Prices, least_sum
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.checker import Rejected, check, keepers
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import Latency
from infermax_opt.infermax.planners.admission.levels import LevelsPlanner
from tests.campaign import campaign, in_blocks
from tests.infermax.served import served
from tests.infermax.test_latency_certificates import altered
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.support import PAPER, certificate_to_json, check_evidence

#: Points of an instance at most.
POINTS = 1_000
#: Limits that a request may have together.
LIMITS = ("ttft", "tpot", "e2e", "ttft tpot", "ttft tpot", "ttft e2e", "tpot e2e", "ttft tpot e2e", "")


def tight(seed: int) -> Instance:
    """Limits from just what a request takes alone to some times that, of every kind and combination."""
    rng = random.Random(seed)
    base = served(seed, "missed", arrivals=seed % 3 > 0)
    if rng.random() < 0.25:
        return base
    lone, unit = LoneLatency(base), base.cost.ticks_per_second
    groups: list[RequestGroup] = []
    for group, request in zip(base.groups, base.requests, strict=True):
        kinds = rng.choice(
            ["ttft", "tpot", "e2e", "ttft tpot", "ttft tpot", "ttft e2e", "tpot e2e", "ttft tpot e2e", ""]
        )
        slo = {}
        for name in kinds.split():
            outputs = max(2, request.output_tokens)
            alone = lone.of(request).ticks(Latency(name), outputs) / unit
            factor = rng.choice([1, 1, Fraction(6, 5), Fraction(3, 2), 2, 3])
            slo[name] = Fraction(-(-alone * factor * 100 // 1), 100)
        groups.append(replace(group, slo=slo, class_name=None))
    return replace(base, groups=tuple(groups), classes=())


def random_prices(proof: AttainmentProof, rng: random.Random, span: int) -> Prices:
    """Any cells, prices and shares that the checker allows."""
    ends = sorted({rng.randint(1, max(1, span)) for _ in range(rng.randint(1, 6))})
    exponent = rng.choice([20, 40])
    top = float(max(guest.weight for guest in proof.guests)) * 2.0**exponent / max(1, span)
    prices = [int(rng.random() * rng.choice([0, 1, 3, 10]) * top) for _ in ends]
    scarce, shares = list[tuple[int, int, int]](), [[0] * len(ends) for _ in proof.guests]
    for k in range(len(ends)):
        parts = [rng.random() * rng.choice([0, 0, 1, 4]) for _ in range(3 + len(proof.guests))]
        if not proof.instance.system.max_running:
            parts[2] = 0.0
        counts = [1, 1, 1, *(guest.count for guest in proof.guests)]
        scale = ((1 << SHARE_BITS) - 8) / max(
            1e-9, sum(n * part for n, part in zip(counts, parts, strict=True))
        )
        whole = [int(part * scale) for part in parts]
        scarce.append((whole[0], whole[1], whole[2]))
        for row, part in zip(shares, whole[3:], strict=True):
            row[k] = part
    return Prices(exponent, ends, prices, scarce, [(0, row) for row in shares])


@pytest.fixture(autouse=True)
def one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny instances have the same cells at all levels, or nearly."""
    monkeypatch.setattr(attainment, "PAIRS", (300,))


def bounds(of: Instance, seed: int) -> Iterator[tuple[str, Fraction]]:
    """Those that the program finds, and those of random prices."""
    for bound in attainment_bounds(of):
        yield "found", bound.value
    rng = random.Random(seed)
    for piece in range(len(of.cost.batch)):
        proof = AttainmentProof(of, piece)
        if proof.guests:
            span = max([max(g.until or 0, g.due or 0) for g in proof.guests] + [1])
            for _ in range(6):
                yield "any", proof.bound(random_prices(proof, rng, span)).value


def met(seed: int) -> Fraction | None:
    """The best bound as a share of the optimum, which none exceeds; None where the instance is too large."""
    of = tight(seed)
    try:
        best = vector_optimum(of, POINTS)
    except TooMany:
        return None
    found = list(bounds(of, seed))
    for kind, value in found:
        assert value <= best, (seed, kind, value, best)
    return max([value for _, value in found], default=Fraction(0)) / best if best else Fraction(1)


@in_blocks(campaign(48, 5_000), 80)
def test_no_bound_exceeds_the_optimum(seeds: range) -> None:
    found = [met(seed) for seed in seeds]
    assert sum(share is not None for share in found) > len(seeds) / 3


#: Seeds of instances that are small, and whose bound says something.
SOME = (23, 62, 87, 101, 130, 132)


def shown(of: Instance) -> dict[str, object]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(of), "cost": cost_to_json(of.cost)}
    loaded: dict[str, object] = json.loads(json.dumps(value, default=exact_text))
    return loaded


@in_blocks(campaign(18, 2_500), 30)
def test_the_checker_agrees_to_the_last_unit(seeds: range) -> None:
    """With the prices of the program, and with random ones; and it proves no more than it says."""
    agreed = 0
    for seed in seeds:
        of, rng = tight(seed), random.Random(seed)
        proofs = [AttainmentProof(of, piece) for piece in range(len(of.cost.batch))]
        if not proofs[0].guests:
            continue
        span = max([max(g.until or 0, g.due or 0) for g in proofs[0].guests] + [1])
        found = [
            *(proof.bound(AttainmentProgram(proof, 300).prices()) for proof in proofs),
            *(proof.bound(random_prices(proof, rng, span)) for proof in proofs),
        ]
        for bound in found:
            assert check_evidence(of, bound) == bound.value, seed
            more = certificate_to_json(of, replace(bound, value=bound.value + Fraction(1, 10**40)))
            with pytest.raises(Rejected, match="claims"):
                check(shown(of), json.loads(json.dumps(more)))
            agreed += 1
    assert agreed > len(seeds) / 2


@pytest.mark.parametrize("seed", range(6))
def test_altered_evidence_never_proves_what_is_false(seed: int) -> None:
    of, rng = tight(SOME[seed]), random.Random(seed)
    false = vector_optimum(of, POINTS) + Fraction(1, 10**9)
    (bound,) = attainment_bounds(of)
    assert bound.value > 0
    for evidence in altered(dict(bound.evidence or {}), rng):
        certificate = certificate_to_json(of, replace(bound, value=false, evidence=evidence))
        with pytest.raises(Rejected):
            check(shown(of), json.loads(json.dumps(certificate)))


def test_a_stopped_program_still_proves_something_true() -> None:
    of = overloaded(1)
    proof = AttainmentProof(of, 0)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 4

    cut = proof.bound(AttainmentProgram(proof, 3_000).prices(stop))
    assert len(asked) > 4, "the solver does not ask"
    whole = proof.bound(AttainmentProgram(proof, 3_000).prices())
    assert check_evidence(of, cut) == cut.value <= whole.value


def test_what_prices_may_not_do() -> None:
    of = tight(SOME[0])
    (bound,) = attainment_bounds(of)
    good: dict[str, Any] = json.loads(json.dumps(bound.evidence))
    many = [[0, *([1 << SHARE_BITS] * len(good["cells"]))] for _ in good["shares"]]
    late = [[len(good["cells"]), 1], *good["shares"][1:]]
    for change, why in (
        ({"shares": many}, "more than 1 in a cell"),
        ({"shares": late}, "shares: of no cell"),
        ({"shares": good["shares"][1:]}, "wrong length"),
        ({"shares": [[0, -1], *good["shares"][1:]]}, "one is below 0"),
        ({"cells": [[1, -1, 0, 0, 0], *good["cells"][1:]]}, "below 0"),
        ({"cells": good["cells"][::-1] + good["cells"]}, "do not rise"),
        ({"groups": 0}, "from 1 to 64"),
        ({"exponent": -100}, "exponent: is below 0"),
        ({"piece": 9}, "is not a whole number"),
    ):
        certificate = certificate_to_json(of, replace(bound, evidence={**good, **change}))
        with pytest.raises(Rejected, match=why):
            check(shown(of), json.loads(json.dumps(certificate)))
    free = replace(of, groups=tuple(replace(g, slo=None) for g in of.groups), classes=())
    assert not list(attainment_bounds(free))
    with pytest.raises(Rejected, match="no request has a limit that counts"):
        check(shown(free), json.loads(json.dumps(certificate_to_json(free, bound))))


def test_the_smaller_of_two_lines_is_added_up() -> None:
    rng = random.Random(1)
    for _ in range(500):
        one, other = ((rng.randint(-9, 9), rng.randint(-3, 3)) for _ in range(2))
        low = rng.randint(0, 5)
        high = low + rng.randint(-1, 9)
        told = sum(min(a + b * s for a, b in (one, other)) for s in range(low, high + 1))
        assert least_sum(one, other, low, high) == told
        assert keepers.least_sum((one, other), low, high) == told


#: Limits of the requests of a machine that has too many.
PROMISES = ({"ttft": "0.05", "tpot": "0.012"}, {"e2e": "0.7"}, None)


def overloaded(seed: int, *, policy: Policy | None = None) -> Instance:
    """Thirty requests, of which not all can keep their limits."""
    rng = random.Random(seed)
    groups = [
        RequestGroup(
            f"q{k}", rng.randint(20, 400), rng.randint(1, 60), Fraction(rng.randint(0, 60), 100),
            weight=rng.choice([1, 1, 2]), slo=rng.choice(PROMISES),
        )
        for k in range(30)
    ]  # fmt: skip
    system = System(rng.choice([500, 4000]), 4096, 512 if policy is None else 4096, rng.choice([None, 8]))
    return Instance(f"late-{seed}", tuple(groups), system, PAPER, policy or Policy(), Objective.of("missed"))


def test_the_planner_for_levels_makes_valid_schedules_and_knows_their_value() -> None:
    for seed in campaign(3, 12):
        rng = random.Random(seed)
        policy = Policy(rng.random() < 0.6, rng.random() < 0.6, rng.random() < 0.5)
        for of in (overloaded(seed, policy=policy), tight(seed)):
            planner = LevelsPlanner(of, seed=seed)
            plans = list(planner.plans())
            if not plans:
                continue
            done = verify(of, plans[-1][1])
            assert done.ok, (of.name, done.violations[:2])
            # Who is served at the end may still keep a limit of the TPOT.
            assert done.objective is not None
            assert done.objective <= Fraction(planner.value).limit_denominator(1000), of.name


def test_solve_certifies_what_is_missed() -> None:
    of = overloaded(3)
    result = solve(of, time_limit=2)
    assert result.upper is not None
    assert result.lower is not None
    deadline = verify(of, schedule(of, "deadline")).objective
    assert deadline is not None
    assert result.upper.value < deadline
    assert result.lower.source == "attainment"
    assert 0 < result.lower.value <= result.upper.value
    check = verify(of, result)
    assert check.ok
    assert not check.unchecked


def test_many_with_much_time_are_grouped_by_the_cells_that_they_have() -> None:
    """Deadlines of their ends alone, in overload that lasts: one price for all time is no better."""
    rng = random.Random(5)
    groups = tuple(
        RequestGroup(
            f"r{k}",
            rng.randint(20, 400),
            rng.randint(5, 200),
            Fraction(k // 10, 20),
            slo={"e2e": rng.randint(1, 4)},
        )
        for k in range(400)
    )
    of = Instance("e2e", groups, System(6_000, 300, 300), PAPER, objective=Objective.of("missed"))
    proof = AttainmentProof(of, 0)
    assert all(guest.patient for guest in proof.guests)
    found = next(attainment_bounds(of))
    one, end = 1 << SHARE_BITS, max(guest.due or 0 for guest in proof.guests)
    flat = [
        proof.bound(Prices(40, [end], [2**40 * 400 // (end * share)], [(one, 0, 0)], [(0, ())] * 400)).value
        for share in (50, 100, 200, 400)
    ]
    assert found.value > 3 * max(flat) > 0
