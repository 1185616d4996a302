"""The filling bound against the optimum of tiny instances with arrivals."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds.filling import LEVEL_BITS, FillingProof, _raised, filling_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import read_instance
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_latency_certificates import altered, shown
from tests.infermax.tiny import tiny
from tests.infermax.waiting import waiting
from tests.support import ROOT, certificate_to_json, check_evidence


def instance(seed: int) -> Instance:
    return replace(waiting(seed) if seed % 2 else tiny(seed, arrivals=True), objective="makespan")  # type: ignore[arg-type]


def proves_no_more(of: Instance, bound: LowerBound) -> None:
    """The checker agrees to the last digit."""
    more = certificate_to_json(of, replace(bound, value=bound.value + Fraction(1, 10**40)))
    with pytest.raises(Rejected, match="claims"):
        check(shown(of), json.loads(json.dumps(more)))


def proofs(of: Instance) -> Iterator[FillingProof]:
    """All pieces, by KV and, where there is a limit, by slots."""
    for piece in range(len(of.cost.batch)):
        yield FillingProof(of, piece, False)
        if of.system.max_running is not None:
            yield FillingProof(of, piece, True)


@in_blocks(campaign(60, 5_000), 25)
def test_no_bound_exceeds_the_optimum(seeds: range) -> None:
    closest, helped = Fraction(0), 0
    for seed in seeds:
        of = instance(seed)
        if of.offline:
            assert filling_bound(of) is None
            continue
        best = optimum(of)
        for proof in proofs(of):
            plain, bound = proof.bound([]), _raised(proof, lambda: False)
            assert bound.value <= best, seed
            assert check_evidence(of, bound) == bound.value, seed
            assert check_evidence(of, plain) == plain.value <= best, seed
            proves_no_more(of, bound)
            helped += bound.value > plain.value
            closest = max(closest, bound.value / best if best else Fraction(0))
    assert helped > 5
    assert closest > Fraction(2, 3)


@pytest.mark.parametrize("seed", campaign(18, 5_000))
def test_any_falling_levels_prove_what_is_true(seed: int) -> None:
    """Fewer and other steps than the search takes: what the checker accepts is true."""
    rng = random.Random(seed)
    of = instance(2 * seed + 1)
    if of.offline:
        return
    best = optimum(of)
    for proof in proofs(of):
        end = rng.randint(0, int(best * of.cost.ticks_per_second) + 1)
        full = proof.cells(end)
        kept = sorted(rng.sample(range(len(full)), rng.randint(0, len(full))))
        cells, above = [], 1 << LEVEL_BITS
        for k in kept:
            above = min(above, rng.randint(0, full[k][1]))
            cells.append((full[k][0], above))
        bound = proof.bound(cells)
        if cells and cells[-1][0] >= bound.value * of.cost.ticks_per_second:
            with pytest.raises(CertificateRejected, match="may end before"):
                check_evidence(of, bound)
        else:
            assert bound.value <= best
            assert check_evidence(of, bound) == bound.value


@pytest.mark.parametrize("seed", campaign(9, 300))
def test_altered_evidence_never_proves_what_is_false(seed: int) -> None:
    of, rng = instance(seed), random.Random(seed)
    bound = filling_bound(of)
    if bound is None:
        return
    false = optimum(of) * (1 + Fraction(1, 10**9)) + Fraction(1, 10**9)
    for evidence in altered(dict(bound.evidence or {}), rng):
        certificate = certificate_to_json(of, replace(bound, value=false, evidence=evidence))
        with pytest.raises(Rejected):
            check(shown(of), json.loads(json.dumps(certificate)))


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([[10, 1], [10, 0]], "ends do not rise"),
        ([[10, 1], [20, 2]], "levels do not fall"),
        ([[10, 2 << LEVEL_BITS]], "levels do not fall"),
        ([[5000, 1 << LEVEL_BITS - 2]], "may end before"),
        ([[500, 1 << LEVEL_BITS]], "fill more than is left"),
    ],
)
def test_what_the_checker_rejects(cells: list[list[int]], why: str) -> None:
    of = by_hand()
    bound = FillingProof(of, 0, False).bound([])
    evidence = {**(bound.evidence or {}), "cells": cells}
    certificate = certificate_to_json(of, replace(bound, evidence=evidence))
    with pytest.raises(Rejected, match=why):
        check(shown(of), json.loads(json.dumps(certificate)))


def test_decodes_pay_their_presence_only_where_refills_do() -> None:
    # (beta - d1) M = 0.5 s: refills pay 2 d0 up to 0.25 s; a later token works 0.1 + 0.05 a token read.
    values = {}
    for d0 in ("0.25", "0.26"):
        cost = CostModel([("1", "0.1")], (d0, "0.05"), ("0", "0"))
        groups = (RequestGroup("a", 2, 3), RequestGroup("b", 2, 1, arrival=5))
        of = Instance("refills", groups, System(10, 10, 10), cost)
        bound = FillingProof(of, 0, False).bound([])
        assert check_evidence(of, bound) == bound.value
        proves_no_more(of, bound)
        values[d0] = bound.value
    # KV 2 + 3 + 4 + 2 of 10; prompts of 2 + 2; two decodes that read 2 and 3 and hold 3 and 4.
    plain = Fraction("1.1") + Fraction("0.4") + Fraction("0.2") + Fraction("0.25")
    assert values == {"0.25": plain + Fraction("0.25") * 7 / 10, "0.26": plain}


def test_slots_need_a_limit() -> None:
    of = by_hand()
    bound = FillingProof(of, 0, False).bound([])
    evidence = {**(bound.evidence or {}), "by_slots": True}
    with pytest.raises(Rejected, match="any number of requests may run"):
        check(shown(of), json.loads(json.dumps(certificate_to_json(of, replace(bound, evidence=evidence)))))


def by_hand() -> Instance:
    """Batches of 1 s, ten tokens of room; one request at once and nine after ten seconds."""
    cost = CostModel([("1", "0")], ("0", "0.001"), ("0", "0"))
    groups = (RequestGroup("a", 1, 1), RequestGroup("b", 1, 1, arrival=10, count=9))
    return Instance("hand", groups, System(10, 10, 10), cost)


def test_by_hand() -> None:
    # All tokens fill one batch, 1 s.  Nine tenths of the memory are empty for the first 10 s: T - 0.9 T >= 1.
    bound = filling_bound(by_hand())
    assert bound is not None
    assert 9 < bound.value < 10
    assert optimum(by_hand()) == 11


def test_it_is_what_the_run_of_vllm_needs() -> None:
    of = read_instance(ROOT / "instances" / "vllm-runs" / "vllm-rtx4090-llama-3.1-8b.json")
    bound = filling_bound(of)
    assert bound is not None
    assert check_evidence(of, bound) == bound.value
    assert bound.value > Fraction("149.4")
