"""Certificates of iteration bounds: what is changed in one is noticed, or proves no more than is true."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import infermax_opt as imx
from infermax_opt.core.certification import CertificateRejected
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.iteration.bounds.closed_form import closed_form_bounds
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.bounds.nodes import SUMS
from infermax_opt.iteration.certificates import CERTIFICATION
from infermax_opt.iteration.checker import instance as checker_instance
from infermax_opt.iteration.data.formats import iteration_instance_from_json, iteration_instance_to_json
from infermax_opt.iteration.data.generate import generate_snapshot
from infermax_opt.iteration.data.instance import BE_TOKENS, VALUES, IterationGroup, IterationInstance, Machine
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.exact.branch import branch
from tests.campaign import campaign, one_in
from tests.iteration.oracle import best_batch, tiny
from tests.support import ROOT, certificate_to_json, stand_alone

TOY = ROOT / "instances/iteration-toy.json"


def signed(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate with its hash, as whoever tampers would write it."""
    body = {key: value for key, value in certificate.items() if key != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return {**body, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def certified(instance: IterationInstance) -> dict[str, Any]:
    ticks = Ticks.of(instance)
    lower = branch(ticks, most_kept(ticks).batch, lambda: False).lower
    assert lower is not None
    return json.loads(json.dumps(certificate_to_json(instance, lower)))  # type: ignore[no-any-return]


def numbers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all numbers in it."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in numbers(item, (*path, key))]
    if isinstance(value, list):
        return [found for key, item in enumerate(value) for found in numbers(item, (*path, key))]
    return [path] if isinstance(value, int) else []


def altered(
    certificate: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any], Any]
) -> dict[str, Any]:
    other = copy.deepcopy(certificate)
    place = other["evidence"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change(place[path[-1]])
    return other


@pytest.mark.parametrize("seed", campaign(4, 60))
def test_no_change_of_the_evidence_proves_too_much(seed: int) -> None:
    instance = tiny(seed)
    certificate, found = certified(instance), best_batch(instance)
    best = 1 / found.rate if found.rate else Ticks.of(instance).worst
    assert CERTIFICATION.check(instance, certificate) == best
    # A claim above the optimum, with each number of the evidence changed: never accepted.
    above = {**certificate, "lower_bound": str(best * (1 + Fraction(1, 10**9)))}
    with pytest.raises(CertificateRejected):
        CERTIFICATION.check(instance, signed(above))
    changes: list[Callable[[int], int]] = [
        lambda n: n + 1,
        lambda n: n - 1,
        lambda n: 2 * n,
        lambda n: 0,
        lambda n: -n,
    ]
    paths = list(one_in(7, numbers(certificate["evidence"])))
    for change in changes:
        for path in paths:
            for claim in (above, certificate):
                other = signed(altered(claim, path, change))
                try:
                    proved = CERTIFICATION.check(instance, other)
                except CertificateRejected:
                    continue
                assert proved <= best


def test_no_change_of_cuts_of_sums_proves_too_much() -> None:
    # Weights of 1 to 7 and swap: nodes are cut by requests, by value, and by blocks from the host.
    made = generate_snapshot(8, 24, seed=1, swap=0.4)
    groups = tuple(
        replace(group, value=Fraction(1 + k % 7 if group.kind == "be" else k % 3))
        for k, group in enumerate(made.groups)
    )
    instance = replace(made, groups=groups, objective=VALUES)
    certificate = certified(instance)
    best = CERTIFICATION.check(instance, certificate)
    above = {**certificate, "lower_bound": str(best * (1 + Fraction(1, 10**9)))}
    trees = certificate["evidence"]["trees"]
    cuts = [(k, at) for k, tree in enumerate(trees) for at, entry in enumerate(tree) if entry[0] in SUMS]
    assert {trees[k][at][0] for k, at in cuts} == set(SUMS)
    for k, at in one_in(3, cuts):
        entry = trees[k][at]
        other_kinds = [((0,), kind) for kind in (*SUMS, -2) if kind != entry[0]]
        ends = [((1,), entry[1] + step) for step in (-1, 1, -entry[1])]
        prices = [((len(entry) - back,), entry[-back] + step) for back in range(1, 9) for step in (-1, 2**70)]
        for (place,), value in (*other_kinds, *ends, *prices):
            for claim in (above, certificate):
                other = signed(altered(claim, ("trees", k, at, place), lambda _, value=value: value))
                try:
                    proved = CERTIFICATION.check(instance, other)
                except CertificateRejected:
                    continue
                assert proved <= best


def test_what_earlier_versions_did_not_write_may_be_missing() -> None:
    # Every request has a value, so nobody stays out of a root.
    made = tiny(5)
    groups = tuple(replace(group, value=Fraction(1)) for group in made.groups)
    instance = replace(made, groups=groups, objective=VALUES)
    certificate = certified(instance)
    del certificate["evidence"]["idle_out"]
    for tree in certificate["evidence"]["trees"]:
        for entry in tree:
            if len(entry) > 2 and not any(entry[-4:]):
                del entry[-4:]
    assert CERTIFICATION.check(instance, signed(certificate)) == Fraction(certificate["lower_bound"])


def test_larger_ratios_prove_less_and_smaller_ones_nothing() -> None:
    instance = tiny(3)
    certificate = certified(instance)
    more = altered(certificate, ("ticks",), lambda n: 2 * n)
    more["lower_bound"] = str(2 * Fraction(certificate["lower_bound"]))
    with pytest.raises(CertificateRejected):
        CERTIFICATION.check(instance, signed(more))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e["trees"].pop(), "trees"),
        (lambda e: e["trees"].append([[-2, 0]]), "trees for"),
        (lambda e: e["trees"].__setitem__(slice(None), [[] for _ in e["trees"]]), "ends too early"),
        (lambda e: e["kept"].append("nobody"), "is not in the instance"),
        (lambda e: e.update(kind="closed-form"), "is not 'branching'"),
        (lambda e: e.pop("exponent"), "exponent: is missing"),
        (lambda e: e.update(trees=7), "is not a list"),
        (lambda e: e.update(ticks=0), "not a whole number from 1"),
    ],
)
def test_what_is_missing_or_too_much_is_rejected(change: Callable[[Any], Any], says: str) -> None:
    instance = tiny(5)
    certificate = certified(instance)
    change(certificate["evidence"])
    with pytest.raises(CertificateRejected, match=says):
        CERTIFICATION.check(instance, signed(certificate))


def test_one_for_another_instance_is_rejected() -> None:
    with pytest.raises(CertificateRejected):
        CERTIFICATION.check(tiny(6), certified(tiny(5)))


def test_the_checker_stands_alone(tmp_path: Path) -> None:
    instance = imx.read_instance(TOY)
    bound = imx.bound(instance)[0]
    imx.write_certificate(instance, bound, tmp_path / "c.json")
    copied = shutil.copy(stand_alone("iteration"), tmp_path / "checker.py")
    for program in (copied, ROOT / "scripts/check_certificate.py"):
        done = subprocess.run(
            [sys.executable, "-I", str(program), str(TOY), str(tmp_path / "c.json")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"certified: {instance.name}: seconds_per_be_token >= ")
    # The hash of every field of an instance is the package's.
    for seed in range(60):
        other = tiny(seed)
        assert checker_instance.Instance(iteration_instance_to_json(other)).sha256 == other.sha256


def test_a_limit_of_a_group_has_no_part_in_the_length_of_a_tick() -> None:
    # tpot alone needs quarters of the tick that twice tpot needs.
    made = tiny(5)
    machine = replace(made.machine, tpot=Fraction(20001, 500), group=2)
    instance = IterationInstance("group", made.groups, machine, made.objective)
    certificate = certified(instance)
    assert Fraction(certificate["lower_bound"]) == CERTIFICATION.check(instance, certificate)


def test_a_first_line_of_nothing_says_nothing() -> None:
    cost = CostModel([(0, 0), (1, 1)], (0, 0), (0, 0), "exact")  # type: ignore[arg-type]
    machine = Machine(2, 5, Fraction(1), Fraction(5), Fraction(5), cost)
    instance = IterationInstance("zero", (IterationGroup("b", "be", "decode", 3),), machine, BE_TOKENS)
    assert next(iter(closed_form_bounds(instance))).value == 0
    found = imx.solve(instance)
    assert found.upper is not None
    assert found.upper.value == 2
    assert found.status.value == "optimal"


def test_the_checker_takes_what_the_package_takes(tmp_path: Path) -> None:
    value = json.loads(TOY.read_text())
    cost = value["machine"].pop("cost")
    value["machine"].update(cost={"profile": "mine"}, group=None, swap=None)
    (tmp_path / "mine.json").write_text(json.dumps({"cost": cost}))
    (tmp_path / "i.json").write_text(json.dumps(value))
    value["machine"]["cost"] = cost
    instance = iteration_instance_from_json(value)
    bound = next(some for some in imx.bound(instance) if some.evidence)
    imx.write_certificate(instance, bound, tmp_path / "c.json")
    program = ROOT / "scripts/check_certificate.py"
    files = [str(tmp_path / "i.json"), str(tmp_path / "c.json"), "--profiles", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-I", str(program), *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
