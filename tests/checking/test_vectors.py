"""The test vectors: package, one file each and index agree on all of them."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest

from infermax_opt.checking import command, main
from infermax_opt.checking.limits import MAX_BYTES
from infermax_opt.infermax.checker.certificate import PROOFS
from infermax_opt.infermax.checker.instance import METRICS
from tests.support import ROOT, one_file

FOLDER = ROOT / "instances" / "vectors"
INDEX: dict[str, Any] = json.loads((FOLDER / "index.json").read_text())
VECTORS: list[dict[str, Any]] = INDEX["vectors"]
#: Seconds of processor time that any of them may take.
SOON = 10.0
#: What the message of each class of reason says.
MESSAGES = {
    "claim": r"rejected: claims .*, only .* is proved|rejected: proves nothing",
    "evidence": r"rejected: (?!claims|takes|is for)",
    "malformed": r"rejected: is malformed: ",
    "kind": r"rejected: is malformed: evidence\.kind: 'magic' is ",
    "digest": r"rejected: is malformed: certificate\.sha256: ",
    "instance": r"rejected: is malformed: certificate\.instance(_sha256)?: ",
    "objective": r"rejected: is for the objective 'max_tpot'",
    "cost": r"rejected: is for another (cost model|reservation)",
    "question": r"rejected: (is malformed: certificate\.)?question: |rejected: is for another question, ",
    "work": r"rejected: takes more than 70000000 steps to check, the limit",
    "unusable": r"cannot be (used|read): .*(instance|profile)",
    "json": r"cannot be read: .*: (is not JSON|is not UTF-8|.* is not an object|.* is not a finite number)",
    "duplicate-key": r"cannot be read: .*: key '.*' is given twice",
    "depth": r"cannot be read: .*: is nested too deeply",
    "gzip": r"cannot be read: .*: is not a complete gzip file",
    "size": r"cannot be read: .*: (is larger than \d+ bytes|holds more than \d+ values)",
}


def judged(vector: dict[str, Any], tools: ModuleType | Any, checker_of: Any, capsys: Any) -> dict[str, Any]:
    """What a checker says of a vector, as JSON, with its exit code."""
    options = argparse.Namespace(
        instance=FOLDER / vector["instance"] if "instance" in vector else None,
        certificate=FOLDER / vector["certificate"],
        question=vector.get("question"),
        max_size=vector.get("max_size", MAX_BYTES // 2**20),
        json=True,
        profiles=FOLDER,
    )
    code = tools.report(options, checker_of)
    output = capsys.readouterr()
    assert output.err == ""
    return {**json.loads(output.out), "exit_code": code}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["certificate"])
def test_each_is_judged_as_the_index_says(
    vector: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in ("sys.stdout", "sys.stderr"):
        monkeypatch.setattr(f"{stream}.reconfigure", lambda **_: None, raising=False)
    alone = one_file(vector["problem"])
    began = time.process_time()
    checker_of = main.checker_of if "instance" in vector else main.alone_checker_of
    said = judged(vector, command, checker_of, capsys)
    assert time.process_time() - began < SOON
    assert said == judged(vector, alone, lambda _: alone.CHECKER, capsys)
    assert said["exit_code"] == vector["exit_code"], said
    assert said["outcome"] == vector["outcome"].replace("accepted", "certified"), said
    if vector["outcome"] == "accepted":
        proved = (said["lower_bound"], vector["lower_bound"])
        assert proved == (None, None) or Fraction(proved[0]) == Fraction(proved[1])
        assert "reason" not in vector
    else:
        assert re.match(MESSAGES[vector["reason"]], said["message"]), said


@pytest.mark.parametrize("key", ["max_size", "question"])
def test_what_the_index_names_beside_the_files_is_an_option_of_one_file(key: str) -> None:
    """A checker that is told of it judges as the index says; one that is not accepts what is rejected."""
    told = [vector for vector in VECTORS if key in vector]
    assert told
    for vector in told:
        command = [sys.executable, "-I", str(ROOT / "scripts" / "checkers" / f"check_{vector['problem']}.py")]
        command += [vector[part] for part in ("instance", "certificate") if part in vector]
        option = [f"--{key.replace('_', '-')}", str(vector[key])]
        codes = [
            subprocess.run(c, cwd=FOLDER, capture_output=True).returncode for c in (command, command + option)
        ]
        assert codes == [0, vector["exit_code"]]
    assert any(vector["exit_code"] for vector in told)


def test_all_kinds_of_proofs_have_both() -> None:
    """At least one certificate that is accepted, and several that are not."""
    kinds = {kind for proofs in PROOFS.values() for kind in proofs} | {"parts", "branching", "hats", "prices"}
    kinds |= {"machines", "machines_from", "price", "seconds"}  # of fleets
    found = Counter((vector["kind"], vector["outcome"]) for vector in VECTORS if "kind" in vector)
    assert {kind for kind, _ in found} == kinds
    for kind in kinds:
        assert found[kind, "accepted"] >= 1, kind
        assert found[kind, "rejected"] >= 3, kind
    assert set(PROOFS) - {"a sum of counts"} <= set(METRICS)


def test_all_reasons_have_some() -> None:
    assert {vector.get("reason") for vector in VECTORS} - {None} == set(INDEX["reasons"]) == set(MESSAGES)
    problems = {vector["problem"] for vector in VECTORS}
    assert problems == {"infermax", "iteration", "makespan", "pipelining", "fleet"}
    fleets = {vector.get("reason") for vector in VECTORS if vector["problem"] == "fleet"}
    assert fleets == {None, "claim", "evidence", "malformed", "question", "work"}
    for problem in problems - {"fleet"}:
        reasons = {vector.get("reason") for vector in VECTORS if vector["problem"] == problem}
        wanted = {"claim", "evidence", "malformed", "kind", "digest", "instance", "objective", "cost"}
        assert wanted - reasons <= ({"evidence"} if problem == "makespan" else set()), problem


def test_the_index_names_every_file_and_all_are_small() -> None:
    named = {vector[key] for vector in VECTORS for key in ("instance", "certificate") if key in vector}
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert files == named | {"index.json"}
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 470 * 1024
    options = ("instance", "question", "max_size")
    pairs = [((FOLDER / v["certificate"]).read_bytes(), *map(v.get, options)) for v in VECTORS]
    assert len(set(pairs)) == len(pairs)
