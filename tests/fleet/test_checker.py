"""The checker of fleets as a program: all four kinds, its limits, and files that would harm it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from infermax_opt.checking import work
from infermax_opt.checking.errors import Rejected
from infermax_opt.checking.fields import Field
from infermax_opt.checking.main import GROUP_ALONE, entry_points
from infermax_opt.checking.work import Exhausted
from infermax_opt.files.format_schemas import json_schema
from infermax_opt.fleet.bounds import pooled
from infermax_opt.fleet.bounds.mix import mix_bound
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.certificate import least_machines, least_price, machines_from
from infermax_opt.fleet.checker.hours import HOURS_SCHEMA
from infermax_opt.fleet.checker.machine import read_machine
from infermax_opt.fleet.checker.mix import MIX_SCHEMA
from infermax_opt.fleet.checker.needs import KINDS, SHARED, cost_of, needs_of, whole_of
from infermax_opt.fleet.checker.pooled import POOLED_SCHEMA
from infermax_opt.fleet.checker.question import question_hash
from infermax_opt.fleet.checker.split import SPLIT_SCHEMA
from infermax_opt.fleet.scaling import Scaling, least_time
from tests.campaign import size
from tests.fleet.test_mix import two_types
from tests.fleet.test_pooled import steady
from tests.judged import judged_here
from tests.support import ROOT, one_file, stand_alone

ALONE = ("-I", "-S", stand_alone("fleet"))
MODULE = ("-m", "infermax_opt.checking")
#: Tenths of a checker's work, and of certificates that take long.
TENTHS = size(1, 10)
COPIED = ("-I", "-S", ROOT / "scripts" / "check_certificate.py")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert (done.stdout + done.stderr).count("\n") == 1
    return done


@cache
def certificates() -> dict[str, dict[str, Any]]:
    """One of each kind, by the key of its claim."""
    machines = pooled_bound(steady(20)).certificate
    return {
        "machines": machines,
        "machines_from": {**machines, "machines_from": machines_from(machines)},
        "price": mix_bound(two_types(20), [Fraction(1), Fraction(1)]).certificate,
        "seconds": least_time([pooled_bound(steady(20))], Scaling(Fraction(1)))[1],
    }


TOLD = {
    "machines": "fleet >= 4 machines",
    "machines_from": "fleet at this and every higher rate >= 4 machines",
    "price": "price of a mix >= 1",
    "seconds": "machine time >= 6 s",
}


@pytest.mark.parametrize("claim", TOLD)
def test_each_kind_is_judged_alike_by_all(claim: str, tmp_path: Path) -> None:
    certificate, path = certificates()[claim], tmp_path / "proof.json"
    path.write_text(json.dumps(certificate))
    for program in (ALONE, MODULE, COPIED):
        done = run(*program, path, "--question", certificate["question"])
        start = f"certified: question {certificate['question']}: {TOLD[claim]}"
        assert (done.returncode, done.stdout[: len(start)]) == (0, start)
    for problem in ("fleet", None):
        assert judged_here(problem, path, "--question", "0" * 64).returncode == 1
    assert run(*COPIED, path, "--question", "0" * 64).returncode == 1
    for value in (str(Fraction(certificate[claim]) + Fraction(1, 10**40)), "no number of machines", -1, None):
        path.write_text(json.dumps({**certificate, claim: value}))
        done = judged_here("fleet", path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), value


def test_json_says_the_same(tmp_path: Path) -> None:
    never, path = pooled_bound(steady(3, ttft="0.05")).certificate, tmp_path / "proof.json.gz"
    for certificate, bound in ((certificates()["machines"], "4"), (never, None)):
        path.write_bytes(gzip.compress(json.dumps(certificate).encode()))
        plain, told = run(*MODULE, path).stdout, run_json(path)
        assert plain == told["message"] + "\n"
        assert told["lower_bound"] == bound
        assert told["question"] == certificate["question"]
        assert ("nothing is enough" in plain) == (bound is None)


def run_json(path: Path) -> dict[str, Any]:
    command = [sys.executable, *map(str, ALONE), str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json_schema("checked")).validate(told)
    return told


def test_every_schema_has_its_checker() -> None:
    names = {point.name for point in entry_points(group=GROUP_ALONE)}
    assert names == {POOLED_SCHEMA, MIX_SCHEMA, HOURS_SCHEMA, SPLIT_SCHEMA}


def long_one(requests: int, windows: int, pieces: int = 1, limit: str = "9") -> dict[str, Any]:
    """A well-formed certificate of so much."""
    machine = {
        "ticks_per_second": 1000, "alpha": [1] * pieces, "beta": [0] * pieces, "d0": 0, "d1": 0,
        "p0": 0, "p1": 0, "kv": 10**6, "tokens": 100, "prefill": 100, "running": 0,
        "spreads": True, "preemption": False,
    }  # fmt: skip
    asked = [(Fraction(0), 10, 9, (Fraction(limit), None, None))] * requests
    return {
        "schema": POOLED_SCHEMA, "machines": 1, "share": "1", "groups": 4, "levels": [[limit, None, None]],
        "machine": machine, "requests": [["0", 10, 9, 0]] * requests,
        "windows": [[k % 7, 9 + k % 7, 1, 0, "kv"] for k in range(windows)],
        "question": question_hash(read_machine(Field(machine, "machine")), Fraction(1), asked),
    }  # fmt: skip


def pieces_and_windows(kind: Callable[[int], object]) -> dict[str, Any]:
    """One of many pieces, each of which has windows of such a kind."""
    return {
        **long_one(5, 0, TENTHS * 10_000),
        "windows": [[0, 10**6, 1, k, kind(k)] for k in range(9_000)],
    }


@pytest.mark.parametrize(
    "made",
    [
        lambda: long_one(TENTHS * 30_000, 60),
        lambda: long_one(300, 0, pieces=TENTHS * 10_000),
        lambda: long_one(10, TENTHS * 100_000),
        lambda: pieces_and_windows(lambda k: "pace"),
        lambda: pieces_and_windows(lambda k: 1 + k),
        lambda: {
            **long_one(TENTHS * 300, 0),
            "windows": [[0, 10**6, 1, 0, 10**6 + k] for k in range(900)],
        },
        lambda: long_one(TENTHS * 6_000, 0, limit=f"{10**599 + 7}/{3 * 10**598}"),
        lambda: {**certificates()["price"], "cuts": [[1, 1]] * (TENTHS * 50_000)},
        lambda: {**certificates()["seconds"], "parts": certificates()["seconds"]["parts"] * (TENTHS * 2_000)},
    ],
    ids=["requests", "pieces", "windows", "pace", "pieces-by-horizon", "horizons", "digits", "cuts", "parts"],
)
def test_what_takes_long_is_rejected_soon(
    made: Callable[[], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tenth of the work allowed in a fifth of the time, as reading is no work; or with all in all."""
    path, checker = tmp_path / "long.json", one_file("fleet")
    path.write_text(json.dumps(made()))
    monkeypatch.setattr(checker, "MAX_STEPS", checker.MAX_STEPS * TENTHS // 10)
    began = time.monotonic()
    done = judged_here("fleet", path)
    assert time.monotonic() - began < size(8, 20)  # a part of that on a machine of its own
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


class Unread(list[object]):
    """A list that is too long, and fails the test where it is gone through."""

    def __len__(self) -> int:
        return 10**9

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("is read before it is counted")


def test_lists_are_counted_before_they_are_read() -> None:
    for key in ("windows", "requests", "levels"):
        with pytest.raises(Exhausted):
            least_machines({**long_one(5, 5), key: Unread()})
    with pytest.raises(Exhausted):
        least_machines(
            {**long_one(5, 5), "prices": {"piece": 0, "parts": 2, "cells": Unread(), "shares": []}}
        )
    with pytest.raises(Rejected, match=r"shares: not one for each"):
        least_machines(
            {**long_one(5, 5), "prices": {"piece": 0, "parts": 2, "cells": [], "shares": Unread()}}
        )
    with pytest.raises(Exhausted):
        least_price({**certificates()["price"], "cuts": Unread()})


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("share", "1e999999999", "certificate.share: '1e999999999' is no number"),
        ("share", "9" * 601 + "/1", "too many digits"),
        ("share", "-1", "certificate.share: is below 0"),
        ("groups", 65, "from 1 to 64"),
        ("requests", [[0, 1, 1]], r"certificate.requests\[0\]: wrong length"),
        ("requests", {"a": 1}, "certificate.requests: an object is not a list"),
        ("windows", [[0, 1, 1, 0, [1]]], "a list is none of kv, tokens, running, pace"),
        ("machine", None, "certificate.machine: null is not an object"),
        ("levels", [], "is not a whole number from 0 to -1"),
    ],
)
def test_a_field_that_is_wrong_is_named(field: str, value: Any, why: str) -> None:
    with pytest.raises(Rejected, match=why):
        least_machines({**certificates()["machines"], field: value})


def test_files_that_are_none(tmp_path: Path) -> None:
    path, good = tmp_path / "proof.json", json.dumps(certificates()["machines"])
    twice = good.replace('"machines": 4', '"machines": 5, "machines": 4')
    for text, why in (
        ("[" * 200_000, "nested too deeply"),
        (twice, "key 'machines' is given twice"),
        (good.replace('"groups": 4', '"groups": Infinity'), "is not a finite number"),
        (good[:-5], "is not JSON"),
    ):
        path.write_text(text)
        done = run(*ALONE, path)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    path.write_text(good + " " * 2**20)
    done = run(*ALONE, path, "--max-size", 1)
    assert (done.returncode, "--max-size allows more" in done.stderr) == (2, True)


def test_stretches_cost_what_their_parts_do() -> None:
    """So a checker may take all later tokens at once where a window holds them."""
    certificate = long_one(1, 0)
    for spreads, preemption, d1, p1 in ((True, True, 3, 2), (False, False, 2, 1), (False, True, 1, 0)):
        more = {"d0": 5, "d1": d1, "p0": 2, "p1": p1, "running": 7, "beta": [2], "kv": 1000}
        switches = {"spreads": spreads, "preemption": preemption}
        machine = read_machine(Field({**certificate["machine"], **more, **switches}, "machine"))
        for outputs in (2, 5, 23):
            limits = (Fraction(9), Fraction(9), None)
            later = [
                need
                for need in needs_of(machine, Fraction(0), (7, outputs), limits, 4) or []
                if need.first > 1
            ]
            whole = whole_of(later)
            assert (whole.first, whole.last) == (2, outputs)
            for kind in KINDS:
                parts = sum(cost_of(machine, 7, need, 0, kind) for need in later)
                cost = cost_of(machine, 7, whole, 0, kind)
                assert cost == parts if kind in SHARED else cost >= parts


def test_plans_leave_windows_out_for_checkers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long trace has a certificate of fewer windows; one too long for any keeps all, and says the same."""
    found = pooled_bound(steady(20))
    spent = []
    spend = work.Work.spend

    def counted(self: work.Work, steps: int) -> None:
        spend(self, steps)
        spent.append(self.spent)

    monkeypatch.setattr(work.Work, "spend", counted)
    many = {**found.certificate, "windows": found.certificate["windows"] * 1024}
    assert least_machines({**many, "windows": many["windows"][:1]}) == 4
    monkeypatch.setattr(work, "MAX_STEPS", spent[-1] * 3 // 2)
    assert list(pooled.settled(many, least_machines, {})) == [(4, True)]
    assert 0 < len(many["windows"]) < 1024
    # Later tokens as one stretch take less time.
    monkeypatch.setattr(work, "MAX_STEPS", 10**9)
    with pytest.raises(Rejected, match="are of"):
        least_machines({**found.certificate, "groups": 64, "question": ""})
    monkeypatch.setattr(work, "MAX_STEPS", spent[-1] - 1)
    many = {**found.certificate, "groups": 64}
    assert list(pooled.settled(many, least_machines, {})) == [(4, True)]
    assert many["groups"] == 1
    monkeypatch.setattr(work, "MAX_STEPS", 10)
    many = {**found.certificate}
    assert list(pooled.settled(many, least_machines, {})) == [(4, False)]
    assert many == found.certificate
