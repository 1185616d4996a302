"""Instances that come with the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import infermax_opt
from infermax_opt.cli.main import cli
from infermax_opt.table.suites import suite_names
from tests.support import ROOT

FILES = sorted((ROOT / "instances").glob("*.json"))


def run(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, [str(some) for some in arguments], prog_name="infermax-opt")
    return done.exit_code, done.stdout, done.stderr


def test_files_are_those_of_the_repository_and_small() -> None:
    assert list(infermax_opt.shipped_names()) == [path.stem for path in FILES]
    assert sum(path.stat().st_size for path in FILES) <= 200 * 1024


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_instance_is_that_of_its_file(path: Path, tmp_path: Path) -> None:
    assert infermax_opt.load_instance(path.stem) == infermax_opt.read_instance(path)
    code, said, _ = run("instance", path.stem, "-o", tmp_path / "made.json")
    assert code == 0
    made = infermax_opt.read_instance(tmp_path / "made.json")
    told = f"{made.name}: {len(made.requests)} requests"  # type: ignore[attr-defined]
    assert said.splitlines() == [told, f"wrote {tmp_path / 'made.json'}"]
    assert made.sha256 == infermax_opt.read_instance(path).sha256


def test_a_row_of_a_suite_goes_to_standard_output() -> None:
    code, said, wrong = run("instance", "paper-csp/csp-i64-o4-b4")
    assert (code, wrong) == (0, "")
    known = json.loads((ROOT / "instances" / "paper-csp" / "i64.json").read_text())
    assert json.loads(said)["requests"] == known["requests"]
    assert run("instance", "paper-csp/csp-i64-o4-b4", "-o", "-")[1] == said


def test_lists() -> None:
    code, said, _ = run("instance")
    assert code == 0
    assert {"toy", "placement-toy"} <= set(said.splitlines())
    assert all(f"\n{suite} " in said for suite in suite_names())
    code, said, _ = run("instance", "paper-csp")
    assert len(said.splitlines()) == 22
    assert said.splitlines()[0].startswith("paper-csp/csp-i1-")
    listed = json.loads(run("instance", "--json")[1])
    assert len(listed["suites"]["paper-b32"]) == 210
    assert "toy" in listed["instances"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("toys", "'toys' is no instance and no suite"),
        ("paper-csp/x", "no case 'x' in 'paper-csp'; cases are named like 'csp-i1-o4-b4'"),
        ("no-suite/x", "no suite 'no-suite'"),
        ("../toy", "no suite '..'"),
    ],
)
def test_an_unknown_name_is_one_line(name: str, words: str, tmp_path: Path) -> None:
    code, said, wrong = run("instance", name, "-o", tmp_path / "made.json")
    assert (code, said) == (2, "")
    assert words in wrong
    assert wrong.count("\n") == 1
    assert not list(tmp_path.iterdir())
    with pytest.raises(infermax_opt.InputError, match="is none of"):
        infermax_opt.load_instance("toys")


def test_rows_of_data_that_is_not_here_come_as_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance of a tutorial is there without the runs that it was made of."""
    monkeypatch.delenv("INFERMAX_OPT_DATA", raising=False)
    names = sorted(path.stem for path in (ROOT / "instances" / "vllm-runs").glob("*.json"))
    assert len(names) == 3
    for name in names:
        assert infermax_opt.load_instance(f"vllm-runs/{name}").name == name
        assert name in [case.name for case in infermax_opt.get_suite("vllm-runs")]
    with pytest.raises(infermax_opt.InputError, match="not shipped"):
        infermax_opt.load_instance("vllm-runs/e2e-vllm-rtx4090-llama-3.1-8b")
