"""What shells offer while a command line is typed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.core.registry import problem_named
from tests.forked import forked
from tests.support import ROOT


def offered(line: str, shell: str = "bash") -> list[tuple[str, ...]]:
    """What the program answers to the script of a shell; the last word is being typed."""
    words = line.split(" ")
    position = words[-1] if shell == "fish" else str(len(words) - 1)
    asked = {
        "_INFERMAX_OPT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line if shell != "fish" else " ".join(words),
        "COMP_CWORD": position,
    }
    done = forked(path=ROOT, **asked)
    assert (done.returncode, done.stderr) == (0, "")
    if shell == "zsh":
        lines = done.stdout.splitlines()
        return list(zip(lines[::3], lines[1::3], strict=True))
    return [tuple(text.partition("\t")[0].split(",", 1)) for text in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("infermax-opt so", ("plain", "solve")),
        ("infermax-opt solve --time-l", ("plain", "--time-limit")),
        ("infermax-opt solve i.json --solver cp", ("plain", "cpsat")),
        ("infermax-opt schedule i.json --scheduler sara", ("plain", "sarathi")),
        ("infermax-opt solve i.json --warm-start be", ("plain", "best")),
        ("infermax-opt solve i.json --warm-start ./r", ("file", "./r")),
        ("infermax-opt solve inst", ("file", "inst")),
        ("infermax-opt verify i.json res", ("file", "res")),
        ("infermax-opt solve i.json -o out/", ("file", "out/")),
        ("infermax-opt simulate s.json --policy look", ("plain", "look-ahead")),
        ("infermax-opt table paper-c", ("plain", "paper-csp")),
        ("infermax-opt table paper-csp --data tr", ("dir", "tr")),
        ("infermax-opt workers t.csv --worker 70", ("plain", "70b")),
        ("infermax-opt workers t.csv --worker w", ("file", "w")),
        ("infermax-opt solve i.json --formulation al", ("plain", "aladdin")),
        ("infermax-opt completion z", ("plain", "zsh")),
    ],
)
def test_the_program_answers_the_shell(shell: str, line: str, some: tuple[str, str]) -> None:
    assert some in offered(line, shell)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"_INFERMAX_OPT_COMPLETE={shell}_complete" in done.stdout
    assert "infermax-opt" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)
    assert CliRunner().invoke(cli, ["completion", "tcsh"]).exit_code == 2


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    """The script of `completion bash`, sourced by a real bash, completes a scheduler's name."""
    program = tmp_path / "infermax-opt"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m infermax_opt "$@"\n')
    program.chmod(0o755)
    script = (
        f'PATH="{tmp_path}:$PATH"\nsource <(infermax-opt completion bash)\n'
        "COMP_WORDS=(infermax-opt schedule i.json --scheduler vllm_h)\nCOMP_CWORD=4\n"
        "$(complete -p infermax-opt | sed 's/.*-F \\([^ ]*\\) .*/\\1/') infermax-opt\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "--norc"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["vllm_hy", "vllm_hy_ef"]


@pytest.mark.parametrize("problem", ["infermax", "makespan", "pipelining", "placement", "stream"])
def test_the_engines_of_each_problem_are_listed(problem: str) -> None:
    assert "infermax-opt problems" in " ".join(CliRunner().invoke(cli, ["solve", "--help"]).stdout.split())
    (line,) = [
        some
        for some in CliRunner().invoke(cli, ["problems"]).stdout.splitlines()
        if some.split()[0] == problem
    ]
    assert line.endswith(f"--solver {'|'.join(problem_named(problem).engines)}")


@pytest.mark.parametrize(
    ("name", "problem"),
    [("toy.json", "infermax"), ("makespan-100x20.json", "makespan"), ("placement-toy.json", "placement")],
)
def test_engines_are_those_of_the_instance(name: str, problem: str) -> None:
    path = ROOT / "instances" / name
    assert [value for _, value in offered(f"infermax-opt solve {path} --solver ")] == [
        *problem_named(problem).engines
    ]
    wrong = {"infermax": "anneal", "makespan": "search", "placement": "exact"}[problem]
    done = CliRunner().invoke(cli, ["solve", str(path), "--solver", wrong])
    assert done.exit_code == 2
    assert (
        f"{path}: solver: '{wrong}' is none of {', '.join(problem_named(problem).engines)}, which"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1
