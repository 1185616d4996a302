"""Certified bounds on the mean end-to-end latency against the optimum of tiny instances."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.exact.staged import staged_search
from tests.infermax.tiny import tiny
from tests.infermax.waiting import waiting
from tests.support import certificate_to_json, check_evidence, few

#: Instances of each block, half of them with arrivals.
EACH, BLOCKS = 12, 8


def optimum(of: Instance) -> Fraction:
    """By the search, which other tests compare with an exhaustive oracle."""
    found = staged_search(of)
    assert found.upper is not None
    assert found.termination == "optimal"
    return found.upper


def instance(seed: int) -> Instance:
    made = waiting(seed) if seed % 2 else tiny(seed, arrivals=seed % 4 == 0)
    return replace(made, objective="mean_e2e")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_bound_exceeds_the_optimum(block: int) -> None:
    closest = Fraction(0)
    for seed in range(EACH * block, EACH * block + EACH):
        of = instance(seed)
        best = optimum(of)
        for bound in searched_bounds(of, stop=few(60)):
            assert bound.value <= best, (seed, bound.source)
            assert check_evidence(of, bound) == bound.value, (seed, bound.source)
            more = certificate_to_json(of, replace(bound, value=bound.value + Fraction(1, 10**40)))
            with pytest.raises(Rejected, match="claims"):
                check(shown(of), json.loads(json.dumps(more)))
            closest = max(closest, bound.value / best if best else Fraction(0))
    assert closest > Fraction(9, 10)


def shown(of: Instance) -> dict[str, object]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(of), "cost": cost_to_json(of.cost)}
    loaded: dict[str, object] = json.loads(json.dumps(value, default=lambda number: str(float(number))))
    return loaded


def altered(evidence: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """The evidence with one number changed, doubled or dropped, or a list cut, swapped or grown."""
    for _ in range(60):
        changed = copy.deepcopy(evidence)
        spots = list(places(changed))
        holder, key = rng.choice(spots)
        value = holder[key]
        if isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, int):
            holder[key] = rng.choice([value + 1, value - 1, 2 * value, 0, -value, value + 10**6, 10**30])
        elif isinstance(value, list) and value:
            holder[key] = rng.choice([value[1:], value[:-1], value[::-1], value + value[-1:], []])
        yield changed


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything inside, as a holder and its key."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


@pytest.mark.parametrize("seed", range(6))
def test_altered_evidence_never_proves_what_is_false(seed: int) -> None:
    of, rng = instance(seed), random.Random(seed)
    false = optimum(of) * (1 + Fraction(1, 10**9)) + Fraction(1, 10**9)
    for bound in searched_bounds(of, stop=few(60)):
        for evidence in altered(dict(bound.evidence or {}), rng):
            certificate = certificate_to_json(of, replace(bound, value=false, evidence=evidence))
            with pytest.raises(Rejected):
                check(shown(of), json.loads(json.dumps(certificate)))


def test_evidence_of_the_makespan_proves_no_latency_and_the_reverse() -> None:
    of = replace(tiny(3), objective="makespan")
    late = replace(of, objective="mean_e2e")
    for bound in closed_form_bounds(of):
        with pytest.raises(Rejected, match="'closed-form' is none of occupancy, state-flow, "):
            check(shown(late), json.loads(json.dumps(certificate_to_json(late, bound))))
    (bound,) = [bound for bound in searched_bounds(late) if bound.source == "progress"]
    with pytest.raises(Rejected, match="'progress' is none of closed-form"):
        check(shown(of), json.loads(json.dumps(certificate_to_json(of, bound))))
    ttft = replace(of, objective="mean_ttft")
    with pytest.raises(Rejected, match="objective without certificates"):
        check(shown(ttft), json.loads(json.dumps(certificate_to_json(ttft, bound))))
