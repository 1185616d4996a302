"""Certified bounds on the mean end-to-end latency against the optimum of tiny instances."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.infermax.bounds import closed_form_bounds, interaction, overload, progress
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.checker.interaction import next_lower
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks, size
from tests.infermax.tiny import tiny
from tests.infermax.waiting import waiting
from tests.support import certificate_to_json, check_evidence


@pytest.fixture(autouse=True)
def fewer_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices on a few cells: what is tested is that they prove nothing false, not that they are good."""
    for module, name, value in (
        (interaction, "CELLS", (20, 20)),
        (interaction, "WIDTHS", (0.0, 0.2)),
        (interaction, "THETAS", (0.6, 0.9, 1.0)),
        (overload, "CELLS", 12),
        (overload, "LEVELS", 4),
        (overload, "GROUPS", 2),
        (progress, "ROUNDS", 1),
    ):
        monkeypatch.setattr(module, name, value)


def optimum(of: Instance) -> Fraction:
    """By the search, which other tests compare with an exhaustive oracle."""
    found = staged_search(of)
    assert found.upper is not None
    assert found.termination == "optimal"
    return found.upper


def instance(seed: int) -> Instance:
    made = waiting(seed) if seed % 2 else tiny(seed, arrivals=seed % 4 == 0)
    return replace(made, objective="mean_e2e")


def now_and_then(calls: int) -> Callable[[], bool]:
    """A search ends when it has asked so often, and the next one begins."""
    count = itertools.count(1)
    return lambda: next(count) % calls == 0


@in_blocks(campaign(12, 5_000), 12)
def test_no_bound_exceeds_the_optimum(seeds: range) -> None:
    closest, seen = Fraction(0), set[str]()
    for seed in seeds:
        of = instance(seed)
        best = optimum(of)
        for bound in searched_bounds(of, stop=now_and_then(60)):
            assert bound.value <= best, (seed, bound.source)
            assert check_evidence(of, bound) == bound.value, (seed, bound.source)
            more = certificate_to_json(of, replace(bound, value=bound.value + Fraction(1, 10**40)))
            with pytest.raises(Rejected, match="claims"):
                check(shown(of), json.loads(json.dumps(more)))
            closest = max(closest, bound.value / best if best else Fraction(0))
            seen.add(bound.source)
    assert closest > Fraction(9, 10)
    assert {"mutual delay", "progress", "interaction", "overload"} <= seen


def shown(of: Instance) -> dict[str, object]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(of), "cost": cost_to_json(of.cost)}
    loaded: dict[str, object] = json.loads(json.dumps(value, default=lambda number: str(float(number))))
    return loaded


def altered(evidence: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """The evidence with one number changed, doubled or dropped, or a list cut, swapped or grown."""
    for _ in range(size(24, 60)):
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
    for bound in searched_bounds(of, stop=now_and_then(60)):
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


@pytest.mark.parametrize("seed", campaign(12, 5_000))
def test_any_prices_of_time_prove_what_is_true(seed: int) -> None:
    """Random cells, thetas and levels: the proofs hold for all, and the checker agrees to the last digit."""
    rng = random.Random(seed)
    of = replace(waiting(seed), objective="mean_e2e")
    best = optimum(of)
    span = int(best * of.cost.ticks_per_second * 2) + 8
    for piece in range(len(of.cost.batch)):
        proofs = overload.OverloadProof(of, overload.TokenTables.of(of, piece))
        prices = interaction.Prices.of(of, piece)
        for _ in range(4):
            ends = sorted({rng.randint(1, span) for _ in range(rng.randint(1, 8))})
            top = rng.choice([0, 0.3, 1, 3])
            found = [proofs.bound(proofs.cells([(end, 4 * rng.random()) for end in ends], top))]
            if prices is not None:
                roots = [int(rng.random() * rng.choice([1, 3]) * prices.step**0.5 * 4096) for _ in ends]
                kinds = [interaction.Kind.of(kind, of, prices) for kind in of.types]
                made = interaction.InteractionProof(of, prices, kinds, list(zip(ends, roots, strict=True)))
                found.append(made.bound(rng.choice([0, 300, 900, 1024])))
            for bound in found:
                assert bound.value <= best, bound.source
                if bound.value > 0:
                    assert check_evidence(of, bound) == bound.value, bound.source


@pytest.mark.parametrize("seed", campaign(8, 500))
def test_the_next_lower_value_is_found(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.randint(0, 9) for _ in range(rng.randint(1, 30))]
    places = range(len(values))
    plain = [next((k for k in places[at:] if values[k] < values[at]), len(values)) for at in places]
    assert interaction.falls(values) == plain
    assert next_lower(values) == plain


def test_cells_are_fewer_where_checking_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    of = next(of for of in map(instance, range(1, 200, 2)) if len(of.types) > 3 and not of.offline)
    monkeypatch.setattr(interaction, "CELLS", (640, 640))
    whole = interaction.interaction_bound(of)
    monkeypatch.setattr(interaction, "MAX_STEPS", 3 * len(of.types))
    short = interaction.interaction_bound(of)
    assert whole is not None
    assert short is None or len(short.evidence["cells"]) <= len(whole.evidence["cells"])
    assert short is None or short.value <= optimum(of)


def test_the_interaction_bound_ends_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    of, asked = instance(1), list[None]()
    monkeypatch.setattr(interaction, "THETAS", (0.5, 0.6, 0.7))

    def stop() -> bool:
        asked.append(None)
        return True

    assert interaction.interaction_bound(of, stop=stop) is not None
    assert len(asked) <= 2 * len(of.cost.batch)


@pytest.mark.parametrize("tokens", [0, 10**6])
def test_the_progress_bound_ends_when_its_time_is_over(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tokens take no time worth mentioning, so that a bound is found even then; many do."""
    monkeypatch.setattr(progress, "FEW_TOKENS", tokens)
    monkeypatch.setattr(progress, "ROUNDS", 10**6)
    found = progress.progress_bound(instance(1), stop=lambda: True)
    assert (found is not None) == (tokens > 0)
