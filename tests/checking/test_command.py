"""The command that finds the checker of an instance: what it says, what it loads, how soon."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import infermax_opt as imx
from infermax_opt.checking import main as command
from infermax_opt.checking.errors import Unusable
from infermax_opt.core.registry import problems
from tests.support import ROOT, stand_alone

INSTANCES = ROOT / "instances"
#: An instance of each problem that has certificates.
SMALL = {
    "infermax": "toy.json",
    "iteration": "iteration-toy.json",
    "makespan": "makespan-100x20.json",
    "pipelining": "pipelining-small.json",
}
MODULE = ("-m", "infermax_opt.checking")


def run(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A certificate of each of them."""
    made = {}
    for problem, name in SMALL.items():
        instance = imx.read_instance(INSTANCES / name)
        bound = next(some for some in imx.bound(instance, time_limit=5) if some.evidence)
        made[problem] = tmp_path_factory.mktemp(problem) / "certificate.json"
        imx.write_certificate(instance, bound, made[problem])
    return made


@pytest.mark.parametrize("problem", SMALL)
def test_it_says_what_the_one_file_says(problem: str, certificates: dict[str, Path], tmp_path: Path) -> None:
    value = json.loads(certificates[problem].read_text())
    (tmp_path / "more.json").write_text(json.dumps({**value, "lower_bound": "1e9"}))
    (tmp_path / "half.json").write_text(certificates[problem].read_text()[:-9])
    pairs = [(INSTANCES / SMALL[problem], path) for path in (certificates[problem], *tmp_path.glob("*.json"))]
    pairs.append((certificates[problem], INSTANCES / SMALL[problem]))
    codes = []
    for pair in pairs[:-1]:
        ours, alone = run(*MODULE, *pair), run("-I", "-S", stand_alone(problem), *pair)
        assert (ours.returncode, ours.stdout, ours.stderr) == (alone.returncode, alone.stdout, alone.stderr)
        assert (ours.stdout + ours.stderr).count("\n") == 1
        codes.append(ours.returncode)
    assert sorted(codes) == [0, 1, 2]
    assert run(*MODULE, *pairs[-1]).returncode == 2


def test_json_says_the_same(certificates: dict[str, Path], tmp_path: Path) -> None:
    toy, good = INSTANCES / "toy.json", certificates["infermax"]
    value = json.loads(good.read_text())
    for program in (MODULE, ("-I", "-S", stand_alone("infermax"))):
        for path, code, outcome in (
            (good, 0, "certified"),
            (toy, 1, "rejected"),
            ("no.json", 2, "unreadable"),
        ):
            plain, done = run(*program, toy, path), run(*program, toy, path, "--json")
            assert (done.returncode, done.stderr) == (code, "")
            said = json.loads(done.stdout)
            assert (said["schema"], said["outcome"]) == ("infermax-opt/checked/1", outcome)
            assert said["message"] + "\n" == plain.stdout + plain.stderr
            if code == 0:
                assert (said["instance"], said["bounded"]) == ("toy", "makespan")
                assert Fraction(said["lower_bound"]) == Fraction(value["lower_bound"])
    placement = run(*MODULE, INSTANCES / "placement-toy.json", good, "--json")
    assert (placement.returncode, json.loads(placement.stdout)["outcome"]) == (2, "unusable")


def test_a_problem_has_a_checker_if_it_has_certificates() -> None:
    points = {point.name for point in command.entry_points(group=command.GROUP)}
    certified = {problem.name for problem in problems() if problem.certification is not None}
    assert points == certified == set(SMALL)


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        ("placement", "'placement' has no checker; there are infermax, iteration, makespan, pipelining"),
        (None, "null has no checker"),
        ([1], "a list has no checker"),
        ("x\n" * 99, "has no checker"),
    ],
)
def test_without_a_checker_it_says_which_there_are(problem: Any, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        command.checker_of({"problem": problem})


def test_no_other_package_replaces_a_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    own = command.entry_points(group=command.GROUP)
    foreign = [
        EntryPoint("infermax", "foreign:CHECKER", command.GROUP),
        EntryPoint("twice", "foreign:CHECKER", command.GROUP),
        EntryPoint("twice", "strange:CHECKER", command.GROUP),
        EntryPoint("broken", "foreign:CHECKER", command.GROUP),
        EntryPoint("wrong", "json:dumps", command.GROUP),
    ]
    monkeypatch.setattr(command, "entry_points", lambda group: [*foreign, *own])
    from infermax_opt.infermax.checker.command import CHECKER

    assert command.checker_of({"problem": "infermax"}) is CHECKER
    for problem, why in (
        ("twice", "several packages"),
        ("broken", "foreign:CHECKER: cannot be loaded: ModuleNotFoundError"),
        ("wrong", "json:dumps: is no Checker"),
    ):
        with pytest.raises(Unusable, match=why):
            command.checker_of({"problem": problem})


@pytest.mark.parametrize("problem", SMALL)
def test_it_loads_the_standard_library_and_its_parts_alone(
    problem: str, certificates: dict[str, Path]
) -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from infermax_opt.checking.main import main\n"
        f"sys.argv[1:] = [{str(INSTANCES / SMALL[problem])!r}, {str(certificates[problem])!r}]\n"
        "assert main() == 0\n"
        "print(' '.join(sorted(set(sys.modules) - before)))\n"
    )
    loaded = run("-c", code).stdout.splitlines()[-1].split()
    own = [name for name in loaded if name.startswith("infermax_opt.")]
    allowed = ("infermax_opt.checking", f"infermax_opt.{problem}")
    assert [name for name in own if not name.startswith(allowed)] == []
    assert [name for name in own if name.startswith(f"infermax_opt.{problem}.")] == [
        name for name in own if name.startswith(f"infermax_opt.{problem}.checker")
    ]
    roots = {name.partition(".")[0] for name in loaded} - {"infermax_opt"}
    assert roots - sys.stdlib_module_names == set()


def test_it_is_done_soon(certificates: dict[str, Path]) -> None:
    """Of processor time, as other processes may keep this one waiting."""

    def seconds() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        before = spent.ru_utime + spent.ru_stime
        assert run(*MODULE, INSTANCES / "toy.json", certificates["infermax"]).returncode == 0
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime - before

    assert min(seconds() for _ in range(5)) < 0.3
