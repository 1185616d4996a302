"""The stand-alone checker of makespan bounds: agrees with the bounds, and rejects what was altered."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.api import write_certificate
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.data.formats import makespan_instance_to_json, write_makespan_instance
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from tests.campaign import one_in, size
from tests.infermax.test_certificates import judged, mutants
from tests.makespan.oracle import optimum, tiny_makespan
from tests.support import ROOT, certificate_to_json, one_file, stand_alone

makespan_checker = one_file("makespan")


def checked(instance: MakespanInstance, certificate: Any) -> Fraction:
    return makespan_checker.check(makespan_instance_to_json(instance), certificate)


def redone(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate with the hash of what it says now."""
    from infermax_opt.files.certificates import _digest

    body = {key: value for key, value in certificate.items() if key != "sha256"}
    return {**body, "sha256": _digest(body)}


def instances() -> list[MakespanInstance]:
    rng = random.Random(3)
    found = [tiny_makespan(rng) for _ in range(60)]
    found += [
        gsm8k_like(seed=s, requests=n, clients=c) for s, n, c in ((0, 30, 4), (1, 100, 20), (2, 90, 90))
    ]
    levels = [PrefillLevel(100, Fraction(3)), PrefillLevel(250, Fraction(4)), PrefillLevel(400, Fraction(9))]
    pairs = [(rng.randint(1, 90), rng.randint(1, 40)) for _ in range(80)]
    found.append(MakespanInstance.of_requests("bent", pairs, 7, levels, (0, "0.01")))
    return found


@pytest.mark.parametrize("instance", instances(), ids=lambda some: some.name)
def test_it_proves_every_closed_form_and_no_more(instance: MakespanInstance) -> None:
    for bound in closed_form_makespan_bounds(instance):
        certificate = certificate_to_json(instance, bound)
        assert checked(instance, json.loads(json.dumps(certificate))) == bound.value
        more = {**certificate, "lower_bound": str(bound.value + Fraction(1, instance.ticks_per_second))}
        with pytest.raises(makespan_checker.Rejected, match="is proved"):
            checked(instance, redone(more))


def test_alterations_are_rejected() -> None:
    instance = gsm8k_like(seed=0, requests=12, clients=3)
    certificate = certificate_to_json(instance, closed_form_makespan_bounds(instance)[0])
    rng = random.Random(0)

    def altered(value: Any) -> Any:
        """The value with one leaf changed."""
        if isinstance(value, dict):
            key = rng.choice(list(value))
            return {**value, key: altered(value[key])}
        if isinstance(value, list):
            k = rng.randrange(len(value))
            return [*value[:k], altered(value[k]), *value[k + 1 :]]
        return value + 1 if isinstance(value, int) else f"{value}1"

    for _ in range(200):
        wrong = altered(copy.deepcopy(certificate))
        with pytest.raises(makespan_checker.Rejected):
            checked(instance, wrong)
    # Of the instance, nothing that means the same may be all that differs.
    data = makespan_instance_to_json(instance)
    for _ in range(200):
        wrong = altered(copy.deepcopy(data))
        with pytest.raises(makespan_checker.Rejected):
            makespan_checker.check(wrong, certificate)
    for hurt in (None, [], 7, {}, {**certificate, "evidence": None}, {**certificate, "cost": {"prefill": 3}}):
        with pytest.raises(makespan_checker.Rejected):
            checked(instance, redone(hurt) if isinstance(hurt, dict) else hurt)


@pytest.mark.parametrize("seed", range(4))
def test_signed_alterations_prove_no_more_than_is_true(seed: int) -> None:
    """Whoever alters a certificate or makes one out for another instance can compute its hash, too."""
    instance = tiny_makespan(random.Random(seed))
    best, data = optimum(instance), json.loads(json.dumps(makespan_instance_to_json(instance)))
    accepted = rejected = 0
    for bound in closed_form_makespan_bounds(instance):
        original = json.loads(json.dumps(certificate_to_json(instance, bound)))
        for mutant in one_in(2, mutants(original)):
            for claim in (mutant.get("lower_bound"), str(best + Fraction(1, 10**9))):
                proved = judged(data, redone({**mutant, "lower_bound": claim}), makespan_checker)
                rejected, accepted = rejected + (proved is None), accepted + (proved is not None)
                assert proved is None or proved <= best
        for wrong in one_in(2, mutants(data)):
            try:
                meant = makespan_checker.Instance(wrong).sha256
            except makespan_checker.Rejected:
                continue
            cost = {"prefill": wrong["prefill"], "decode": wrong["decode"]}
            forged = {**original, "instance": wrong["name"], "instance_sha256": meant, "cost": cost}
            assert judged(wrong, redone({**forged, "lower_bound": "0"}), makespan_checker) in (None, 0)
    assert rejected > size(100, 200)
    assert accepted > 0


def test_as_a_program(tmp_path: Path) -> None:
    instance = gsm8k_like(seed=0, requests=12, clients=3)
    bound = closed_form_makespan_bounds(instance)[0]
    write_makespan_instance(instance, tmp_path / "instance.json.gz")
    write_certificate(instance, bound, tmp_path / "certificate.json")
    for program in (ROOT / "scripts/check_certificate.py", stand_alone("makespan")):
        command = [sys.executable, "-I", str(program), "instance.json.gz"]
        done = subprocess.run([*command, "certificate.json"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"makespan >= {float(bound.value)!r} s" in done.stdout
        value = json.loads((tmp_path / "certificate.json").read_text())
        (tmp_path / "wrong.json").write_text(json.dumps({**value, "lower_bound": "99999"}))
        done = subprocess.run([*command, "wrong.json"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr[:9]) == (1, "rejected:")
        done = subprocess.run([*command, "none.json"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
