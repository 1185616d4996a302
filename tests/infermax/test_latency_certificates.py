"""Certified bounds on the mean end-to-end latency against the optimum of tiny instances."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance
from tests.infermax.oracle import optimum
from tests.infermax.tiny import tiny
from tests.infermax.waiting import waiting
from tests.support import certificate_to_json, check_evidence, few

#: Instances of each block, half of them with arrivals.
EACH, BLOCKS = 30, 10


def instance(seed: int) -> Instance:
    made = waiting(seed) if seed % 2 else tiny(seed, arrivals=seed % 4 == 0)
    return replace(made, objective="mean_e2e")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_bound_exceeds_the_optimum(block: int) -> None:
    met = Counter[str]()
    for seed in range(EACH * block, EACH * block + EACH):
        of = instance(seed)
        best = optimum(of)
        for bound in searched_bounds(of, stop=few(60)):
            assert bound.value <= best, (seed, bound.source)
            assert check_evidence(of, bound) == bound.value, (seed, bound.source)
            more = certificate_to_json(of, replace(bound, value=bound.value + Fraction(1, 10**40)))
            with pytest.raises(Rejected, match="claims"):
                check(shown(of), json.loads(json.dumps(more)))
            met[bound.source] += bound.value == best
    assert met["progress"] + met["finishing order, state flow"] > 0


def shown(of: Instance) -> dict[str, object]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(of), "cost": cost_to_json(of.cost)}
    loaded: dict[str, object] = json.loads(json.dumps(value, default=lambda number: str(float(number))))
    return loaded
