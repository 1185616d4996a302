"""The attainment bound on missed service levels against every schedule of tiny instances, and its certificates."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds import attainment
from infermax_opt.infermax.bounds.attainment import SHARE_BITS, AttainmentProof, Prices, attainment_bounds
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup
from infermax_opt.infermax.data.objective import Latency
from tests.infermax.served import served
from tests.infermax.vector_oracle import TooMany, vector_optimum

#: Instances of each block, and points of one at most.
EACH, BLOCKS, POINTS = 60, 8, 1_500


def tight(seed: int) -> Instance:
    """Limits from just what a request takes alone to some times that, of every kind and combination."""
    rng = random.Random(seed)
    base = served(seed, "missed", arrivals=seed % 3 > 0)
    if rng.random() < 0.25:
        return base
    lone, unit = LoneLatency(base), base.cost.ticks_per_second
    groups: list[RequestGroup] = []
    for group, request in zip(base.groups, base.requests, strict=True):
        kinds = rng.choice(["ttft", "tpot", "e2e", "ttft tpot", "ttft tpot", "ttft e2e", "tpot e2e", "ttft tpot e2e", ""])
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
        scale = ((1 << SHARE_BITS) - 8) / max(1e-9, sum(n * part for n, part in zip(counts, parts, strict=True)))
        whole = [int(part * scale) for part in parts]
        scarce.append((whole[0], whole[1], whole[2]))
        for row, part in zip(shares, whole[3:], strict=True):
            row[k] = part
    return Prices(exponent, ends, prices, scarce, [(0, row) for row in shares])


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


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_bound_exceeds_the_optimum(block: int) -> None:
    found = [met(seed) for seed in range(EACH * block, EACH * block + EACH)]
    assert sum(share is not None for share in found) > EACH / 3
