"""Bounds against every selection, the laws of the house: none below the optimum, certificates that hold."""

from __future__ import annotations

import copy
import random
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Proof
from infermax_opt.files.certificates import _digest, certificate_to_json
from infermax_opt.pipelining.bounds import prices
from infermax_opt.pipelining.bounds.closed_form import token_law
from infermax_opt.pipelining.bounds.exhaustive import most_selected
from infermax_opt.pipelining.bounds.hats import Hats, hat
from infermax_opt.pipelining.bounds.kinds import Kinds
from infermax_opt.pipelining.bounds.searched import all_bounds
from infermax_opt.pipelining.certificates import CERTIFICATION
from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest
from infermax_opt.pipelining.data.queues import queue
from infermax_opt.pipelining.heuristics.annealing import Annealing, packed
from infermax_opt.pipelining.heuristics.place import HEURISTICS, make_schedule
from infermax_opt.pipelining.replay.check import broken_rules
from infermax_opt.pipelining.verify import verify_pipelining
from tests.campaign import campaign, in_blocks
from tests.pipelining.oracle import AIMS, best_value, collide, offsets, tiny


@pytest.mark.parametrize("aim", AIMS)
@in_blocks(campaign(120, 3_000), 1_000)
def test_no_bound_and_no_schedule_passes_the_optimum(seeds: range, aim: str) -> None:
    """Enumerated; the search of the verifier finds the same, and every certificate is accepted."""
    for seed in seeds:
        instance = tiny(seed, aim)
        best = best_value(instance)
        assert most_selected(instance) == best, seed
        found = list(all_bounds(instance))
        assert bool(found) == (best > 0)
        for bound in found:
            assert bound.value * best <= instance.capacity, (seed, bound.source)
            if bound.proof is Proof.CERTIFICATE:
                certificate = certificate_to_json(instance, bound, CERTIFICATION)
                assert CERTIFICATION.check(instance, certificate) == bound.value
        made = {name: make_schedule(instance, name) for name in HEURISTICS if name != "annealing"}
        if instance.useful:
            made["annealing"] = Annealing(instance).run(None, 500, seed)
        for name, schedule in made.items():
            assert not collide(offsets(instance, schedule.offsets), instance.capacity), (seed, name)
            assert not broken_rules(instance, schedule)
            assert packed(instance, schedule) <= best, (seed, name)


def test_bounds_are_close() -> None:
    """On average over tiny instances the prices are within 1 %, the hats within 3 %."""
    ratios: dict[str, list[Fraction]] = {"hats": [], "prices": []}
    for seed in range(120):
        instance = tiny(seed, "tokens")
        for bound in all_bounds(instance):
            if bound.source in ratios:
                ratios[bound.source].append(instance.capacity / bound.value / best_value(instance))
    means = {name: float(sum(some) / len(some)) for name, some in ratios.items()}
    assert means["prices"] <= means["hats"] <= 1.03
    assert means["prices"] <= 1.01


@pytest.mark.parametrize("unit", [2, 3, 5])
def test_coarse_cells_relax(unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths and capacity rounded down to cells still bound the optimum, and the checker agrees."""
    monkeypatch.setattr(prices, "coarse_unit", lambda instance, cells: unit)
    for seed in range(60):
        instance = tiny(seed, AIMS[seed % 4])
        if instance.useful:
            hats = Hats(instance)
            bound = prices.price_bound(instance, hats, hats.duals())
            if bound is not None:
                assert bound.value * best_value(instance) <= instance.capacity, seed
                assert CERTIFICATION.check(instance, certificate_to_json(instance, bound, CERTIFICATION))


def test_rounding_up_gives_valid_schedules() -> None:
    """Offsets of lengths in whole cells are valid in tokens."""
    instance = tiny(5, "tokens")
    up, down = Kinds.of(instance, 3, up=True), Kinds.of(instance, 3, up=False)
    assert all(g >= 1 for g in up.sizes)
    assert up.cells == down.cells == instance.capacity // 3


def test_hats_and_the_token_law() -> None:
    assert [hat(6, g) for g in range(1, 8)] == [0, 0, 0, 2, 4, 6, 6]
    # Perfect halving: hosts of 16 fill 64 cells, and have guests of 8, 4, 2 and 1.
    halves = [16] * 4 + [8] * 4 + [4] * 8 + [2] * 16 + [1] * 32
    instance = PipeliningInstance("h", tuple(PipeliningRequest(f"r{k}", g) for k, g in enumerate(halves)), 64)
    assert token_law(instance) == 64 * 3
    schedule = make_schedule(instance, "dyadic")
    assert packed(instance, schedule) == 64 * 3  # the law is attained
    assert not broken_rules(instance, schedule)
    assert verify_pipelining(instance, schedule, schedule).objective == Fraction(1, 3)


def small() -> PipeliningInstance:
    requests = tuple(
        PipeliningRequest(f"r{k}", g, Fraction(g, 4)) for k, g in enumerate((9, 7, 5, 5, 4, 3, 2, 1, 1))
    )
    return PipeliningInstance("small", requests, 20, "value")


def numbers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all numbers of evidence, those in text included."""
    if isinstance(value, dict):
        return [p for key, some in value.items() for p in numbers(some, (*path, key))]
    if isinstance(value, list):
        return [p for key, some in enumerate(value) for p in numbers(some, (*path, key))]
    return [path] if path[-1] != "kind" else []


def altered(evidence: Any, path: tuple[Any, ...], change: int) -> Any:
    """The evidence with one number changed."""
    found = copy.deepcopy(evidence)
    at = found
    for key in path[:-1]:
        at = at[key]
    old = at[path[-1]]
    new = Fraction(old) + (
        change if isinstance(old, int) else change * max(Fraction(1, 8), abs(Fraction(old)) / 3)
    )
    at[path[-1]] = int(new) if isinstance(old, int) else f"{new.numerator}/{new.denominator}"
    return found


def signed(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate with the hash that it should have."""
    body = {key: value for key, value in certificate.items() if key != "sha256"}
    return {**body, "sha256": _digest(body)}


@pytest.mark.parametrize("source", ["hats", "prices"])
def test_altered_evidence_never_proves_what_is_false(source: str) -> None:
    """Whatever is changed in the evidence, what the checker accepts is no more than the optimum."""
    instance = small()
    best = best_value(instance)
    (bound,) = [b for b in all_bounds(instance) if b.source == source]
    certificate = certificate_to_json(instance, bound, CERTIFICATION)
    rejected = 0
    for path in numbers(certificate["evidence"]):
        for change in (-100, -2, -1, 1, 2, 100):
            evidence = altered(certificate["evidence"], path, change)
            for claim in (bound.value, instance.capacity / best + Fraction(1, 10**9)):
                text = f"{claim.numerator}/{claim.denominator}"
                other = signed({**certificate, "evidence": evidence, "lower_bound": text})
                try:
                    assert CERTIFICATION.check(instance, other) * best <= instance.capacity
                except CertificateRejected:
                    rejected += 1
    assert rejected > 0


def test_certificates_are_for_one_instance_objective_and_reservation() -> None:
    instance = small()
    bound = list(all_bounds(instance))[-1]
    good = certificate_to_json(instance, bound, CERTIFICATION)
    assert CERTIFICATION.check(instance, good) == bound.value
    changes: list[tuple[dict[str, Any], str]] = [
        ({"lower_bound": "1000"}, "is proved"),
        ({"objective": "capacity_per_token"}, "objective"),
        ({"instance_sha256": "0" * 64}, "instance_sha256"),
        ({"cost": {**good["cost"], "capacity": 19}}, "another reservation"),
        ({"cost": {**good["cost"], "buffer": "0.1"}}, "another reservation"),
        ({"evidence": {**good["evidence"], "kind": "word"}}, "kind"),
        ({"evidence": {"kind": "hats", "hats": [[0, "1"]], "counts": []}}, "whole number"),
        ({"evidence": {"kind": "hats", "hats": [[1, "-1"]], "counts": []}}, "below 0|no number"),
        (
            {"evidence": {"kind": "prices", "unit": 1, "scale": "1", "sizes": [2, 1], "prices": [1, 1]}},
            "order",
        ),
        ({"evidence": {"kind": "prices", "unit": 1, "scale": "1", "sizes": [1], "prices": [-1]}}, "below 0"),
        ({"evidence": {"kind": "prices", "unit": 1, "scale": "0", "sizes": [1], "prices": [1]}}, "above 0"),
        ({"evidence": None}, "malformed"),
    ]
    for change, words in changes:
        with pytest.raises(CertificateRejected, match=words):
            CERTIFICATION.check(instance, signed({**good, **change}))
    with pytest.raises(CertificateRejected, match="sha256"):
        CERTIFICATION.check(instance, {**good, "source": "other"})


def test_the_checker_limits_its_work() -> None:
    requests = tuple(PipeliningRequest(f"r{k}", k + 1) for k in range(2_000))
    instance = PipeliningInstance("wide", requests, 10**8)
    (bound,) = [b for b in all_bounds(small()) if b.source == "prices"]
    evidence = {"kind": "prices", "unit": 1, "scale": "1", "sizes": [1, 2], "prices": [1, 2]}
    certificate = certificate_to_json(instance, bound, CERTIFICATION)
    with pytest.raises(InputError, match="steps to check"):
        CERTIFICATION.check(instance, signed({**certificate, "evidence": evidence}))


def test_a_queue_of_the_paper_is_bounded_within_a_few_percent() -> None:
    instance = queue("bookcorpus", 100, 0)
    bounds = {b.source: b.value for b in all_bounds(instance)}
    assert bounds["prices"] >= bounds["hats"] > bounds["counts"] > bounds["token law"] > bounds["all"]
    found = packed(instance, make_schedule(instance, "annealing"))
    assert found / instance.capacity > Fraction(97, 100) / bounds["prices"]


def test_many_requests_are_bounded_quickly() -> None:
    rng = random.Random(0)
    requests = tuple(PipeliningRequest(f"r{k}", rng.randint(1, 10**6)) for k in range(20_000))
    instance = PipeliningInstance("many", requests, 10**9)
    assert {b.source for b in all_bounds(instance)} >= {"all", "counts", "token law"}
