"""Options for the objective and service levels: what they change, and what `verify` needs to know of them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.infermax.data.aims import with_slos
from infermax_opt.infermax.data.instance import Instance, RequestClass, RequestGroup, ServiceLevel, System
from tests.infermax.tiny import tiny

GROUPS = (
    RequestGroup("a", 4, 3, class_name="rt", slo={"e2e": 5}),
    RequestGroup("b", 4, 3, class_name="be"),
    RequestGroup("c", 4, 3),
)
CASE = Instance(
    "aims", GROUPS, System(24, 16, 16), tiny(1).cost, classes=(RequestClass("rt", 2, {"ttft": 1, "tpot": 1}),)
)
WEIGHTS = '{"mean_e2e": 1, "p99_ttft": "0.5"}'


@pytest.fixture
def file(tmp_path: Path) -> str:
    write_instance(CASE, tmp_path / "case.json")
    return str(tmp_path / "case.json")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def levels(instance: Instance) -> list[dict[str, Fraction]]:
    return [request.terms.slo.given() for request in instance.requests]


def test_a_limit_counts_where_a_request_has_none_itself() -> None:
    changed = with_slos(CASE, ["ttft=0.5,e2e=9", "rt:tpot=0.25", "be:e2e=7"])
    assert levels(changed) == [
        {"ttft": 1, "tpot": Fraction(1, 4), "e2e": 5},
        {"ttft": Fraction(1, 2), "e2e": 7},
        {"ttft": Fraction(1, 2), "e2e": 9},
    ]
    assert levels(with_slos(CASE, ["ttft=3", "ttft=0.5"]))[2] == {"ttft": Fraction(1, 2)}
    assert with_slos(CASE, []) == CASE
    assert [request.terms.weight for request in changed.requests] == [2, 1, 1]
    assert changed.groups[0].slo == ServiceLevel(Fraction(1), Fraction(1, 4), Fraction(5))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x:ttft=1", "no request is of the class 'x'"),
        ("ttft", "'ttft' is not NAME=SECONDS"),
        ("", "'' is not NAME=SECONDS"),
        ("ttft=1,ttft=2", "'ttft=2' is there twice"),
        ("ttft=-1", "slo.ttft: -1 is negative; the least is 0"),
        ("rt:tpot=x", "slo.tpot: 'x' is not a decimal number"),
        ("atgt=1", "slo.atgt: is not a known key"),
    ],
)
def test_wrong_levels_say_what_is_wrong(file: str, text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        with_slos(CASE, [text])
    assert problem in str(caught.value)
    done = run("bound", file, "--slo", text)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert problem in done.stderr


@pytest.mark.parametrize("objective", ["fun", '{"fun": 1}', '{"missed":', "{}", '{"missed": -1}', "[1]", ""])
def test_wrong_objectives_are_one_line(file: str, objective: str) -> None:
    for command in (["solve"], ["bound"], ["schedule", "--scheduler", "vllm"]):
        done = run(*command, file, "--objective", objective)
        assert done.exit_code == 2
        assert done.stderr.startswith("infermax-opt: objective")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("aim", [["--objective", "missed", "--slo", "ttft=0.5"], ["--objective", WEIGHTS]])
def test_what_was_found_is_verified_with_the_same_options(file: str, aim: list[str], tmp_path: Path) -> None:
    for command in ("solve", "bound"):
        output = str(tmp_path / f"{command}.json")
        assert run(command, file, *aim, "-o", output, "--time-limit", "0.5").exit_code == 0
        done = run("verify", file, output, *aim)
        assert done.exit_code == 0, done.output
        assert "nothing is wrong" in done.stdout
        other = run("verify", file, output)
        assert other.exit_code == 1
        assert "instance_sha256 differs from the instance's" in other.stdout
        assert "wrong claims: 2" in other.stdout
        assert "`verify` takes the --objective of `solve`" in other.stdout


def test_certificates_are_checked_with_the_same_options(tmp_path: Path, file: str) -> None:
    certificate = str(tmp_path / "certificate.json")
    assert (
        run("bound", file, "--slo", "ttft=3", "--time-limit", "1", "--certificate", certificate).exit_code
        == 0
    )
    assert run("check", file, certificate, "--slo", "ttft=3").exit_code == 0
    assert run("check", file, certificate).exit_code == 1


def test_reports_name_the_objective_and_its_unit(file: str) -> None:
    text = run("bound", file, "--objective", "missed").stdout
    assert "missed: weight of the requests that break an SLO" in text
    assert " weight " in text
    text = run("schedule", file, "--scheduler", "vllm", "--objective", "mean_normalised_latency").stdout
    assert "s/token" in text
    mixed = run("bound", file, "--objective", '{"missed": 1, "makespan": 1}').stdout
    assert "1 makespan + 1 missed" in mixed


def test_problems_without_a_choice_say_so() -> None:
    for option, words in (
        (["--objective", "makespan"], "objective: placement instances are solved for workers alone\n"),
        (["--slo", "ttft=1"], "slo: placement instances are solved without this option\n"),
    ):
        done = run("bound", "instances/placement-toy.json", *option)
        assert done.exit_code == 2
        assert done.stderr.endswith(words)


def test_imported_requests_have_the_levels(tmp_path: Path) -> None:
    trace, output = tmp_path / "trace.csv", tmp_path / "made.json"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100,7\n0.1,20,1\n")
    words = ["import", str(trace), "--format", "vidur", "-o", str(output)]
    done = run(*words, "--objective", '{"missed": 2, "p99_e2e": 1}', "--slo", "ttft=0.5,tpot=0.05")
    assert done.exit_code == 0, done.output
    made: Any = read_instance(output)
    assert levels(made) == [{"ttft": Fraction(1, 2), "tpot": Fraction(1, 20)}] * 2
    assert str(made.objective) == "1 p99_e2e + 2 missed"
    assert json.loads(output.read_text())["requests"][0]["slo"] == {"ttft": 0.5, "tpot": 0.05}
    assert run(*words, "--slo", "rt:ttft=1").exit_code == 2
    assert run(*words, "--objective", "fun").exit_code == 2
