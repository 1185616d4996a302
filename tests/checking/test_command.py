"""The command that finds the checker of an instance: what it says, what it loads, how soon."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from infermax_opt.checking import main as command
from infermax_opt.checking.errors import Unusable
from infermax_opt.core.registry import problems
from infermax_opt.files.format_schemas import json_schema
from infermax_opt.files.instances import instance_from_json
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.iteration.data.instance import OBJECTIVES as ITERATION_OBJECTIVES
from infermax_opt.pipelining.data.instance import OBJECTIVES as PIPELINING_OBJECTIVES
from tests.judged import judged_here
from tests.support import ROOT, stand_alone

VECTORS = ROOT / "instances" / "vectors"


def pairs() -> dict[str, tuple[Path, Path]]:
    """An instance of each problem that has certificates, and one of these."""
    found: dict[str, tuple[Path, Path]] = {}
    for vector in json.loads((VECTORS / "index.json").read_text())["vectors"]:
        # Others hold their question.
        if vector["outcome"] == "accepted" and "instance" in vector:
            files = VECTORS / vector["instance"], VECTORS / vector["certificate"]
            found.setdefault(vector["problem"], files)
    return found


PAIRS = pairs()
MODULE = ("-m", "infermax_opt.checking")
SCHEMA = jsonschema.Draft202012Validator(json_schema("checked"))


def run(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def changed(path: Path, **fields: object) -> str:
    """The text of a certificate with other fields."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.dumps({**json.loads(data), **fields})


@pytest.mark.parametrize("problem", PAIRS)
def test_it_says_what_the_one_file_says(problem: str, tmp_path: Path) -> None:
    instance, certificate = PAIRS[problem]
    (tmp_path / "more.json").write_text(changed(certificate, lower_bound="1e9"))
    (tmp_path / "half.json").write_text(changed(certificate)[:-9])
    codes = []
    for path in (certificate, *tmp_path.glob("*.json")):
        if path == certificate:
            ours = run(*MODULE, instance, path)
            alone = run("-I", "-S", stand_alone(problem), instance, path)
        else:
            ours, alone = (judged_here(some, instance, path) for some in (None, problem))
        assert (ours.returncode, ours.stdout, ours.stderr) == (alone.returncode, alone.stdout, alone.stderr)
        assert (ours.stdout + ours.stderr).count("\n") == 1
        codes.append(ours.returncode)
    assert sorted(codes) == [0, 1, 2]
    assert judged_here(None, certificate, instance).returncode == 2


OBJECTIVES = {
    "infermax": [
        *(metric.value for metric in Metric),
        "throughput",
        {"makespan": "0.1", "mean_e2e": "0.5"},
        {"makespan": "0.1", "missed": "1"},
        {"makespan": "0.0", "missed": "1"},
        {"unserved_tokens": 2},
        {"at_most": {"missed": 1}},
    ],
    "iteration": [*ITERATION_OBJECTIVES],
    "makespan": [None],
    "pipelining": [*PIPELINING_OBJECTIVES],
}


@pytest.mark.parametrize("problem", OBJECTIVES)
def test_a_bound_has_the_unit_of_the_objective(problem: str) -> None:
    value = json.loads(PAIRS[problem][0].read_text())
    if problem == "pipelining":
        value["requests"] = [{**request, "value": 1} for request in value["requests"]]
    for objective in OBJECTIVES[problem]:
        if objective is not None:
            value["objective"] = objective
        checker = command.checker_of(value)
        assert checker.bounded(value)[1] == instance_from_json(value).unit[1], objective


def test_counts_are_no_seconds(tmp_path: Path) -> None:
    units = {"missed": "weight", "unserved": "weight", "unserved_tokens": "tokens", "mean_e2e": "s"}
    for vector in json.loads((VECTORS / "index.json").read_text())["vectors"]:
        if vector["outcome"] == "accepted" and vector["problem"] == "infermax":
            files = VECTORS / vector["instance"], VECTORS / vector["certificate"]
            objective = json.loads(files[0].read_text("utf-8-sig")).get("objective")
            if isinstance(objective, str) and objective in units:
                assert f": {objective} >= " in (line := judged_here(None, *files).stdout)
                assert line.endswith(f" {units.pop(objective)}\n")
    assert units == {}


def test_json_says_the_same() -> None:
    instance, good = PAIRS["infermax"]
    for problem in (None, "infermax"):
        outcomes = (good, 0, "certified"), (instance, 1, "rejected"), ("no.json", 2, "unreadable")
        for path, code, outcome in outcomes:
            plain, done = (judged_here(problem, instance, path, *more) for more in ([], ["--json"]))
            assert (done.returncode, done.stderr) == (code, "")
            said = json.loads(done.stdout)
            SCHEMA.validate(said)
            for key in said:
                assert not SCHEMA.is_valid({other: said[other] for other in said if other != key}), key
            assert (said["schema"], said["outcome"]) == (SCHEMAS["infermax-opt-check"], outcome)
            assert said["message"] + "\n" == plain.stdout + plain.stderr
            if code == 0:
                given = json.loads(good.read_text())
                assert (said["instance"], said["bounded"]) == (given["instance"], "makespan")
                assert said["unit"] == "s"
                assert Fraction(said["lower_bound"]) == Fraction(given["lower_bound"])
    placement = judged_here(None, ROOT / "instances" / "placement-toy.json", good, "--json")
    assert (placement.returncode, json.loads(placement.stdout)["outcome"]) == (2, "unusable")


def test_a_problem_has_a_checker_if_it_has_certificates() -> None:
    points = {point.name for point in command.entry_points(group=command.GROUP)}
    certified = {problem.name for problem in problems() if problem.certification is not None}
    assert points == certified == set(PAIRS)


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


@pytest.mark.parametrize("problem", PAIRS)
def test_it_loads_the_standard_library_and_its_parts_alone(problem: str) -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from infermax_opt.checking.main import main\n"
        f"sys.argv[1:] = {list(map(str, PAIRS[problem]))!r}\n"
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


def test_it_is_done_soon() -> None:
    """Of processor time, as other processes may keep this one waiting."""

    def seconds() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        before = spent.ru_utime + spent.ru_stime
        assert run(*MODULE, *PAIRS["infermax"]).returncode == 0
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime - before

    assert min(seconds() for _ in range(5)) < 0.3


@pytest.mark.parametrize("form", ["package", "one file"])
def test_what_it_cannot_say_is_no_outcome(form: str) -> None:
    """Exit code 1 would be a rejection."""
    checker = MODULE if form == "package" else ("-I", "-S", stand_alone("infermax"))
    for more in ([], ["--json"]):
        command = [sys.executable, *map(str, [*checker, *PAIRS["infermax"]]), *more]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr == "cannot be written: No space left on device\n"


@pytest.mark.parametrize("form", ["package", "one file"])
def test_closed_streams_are_no_traceback(form: str) -> None:
    checker = " ".join(MODULE) if form == "package" else f"-I -S {stand_alone('infermax')}"
    for closed, told in ((">&-", "cannot be written: it is closed\n"), (">&- 2>&-", "")):
        command = f"{sys.executable} {checker} {' '.join(map(str, PAIRS['infermax']))} {closed}"
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b", "c"], ["a", "b", "--question", "c"], ["a", "b", "--max-size", "x"]]
)
def test_a_wrong_use_is_one_line(arguments: list[str]) -> None:
    done = judged_here(None, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--help tells more" in done.stderr


def test_one_file_is_a_certificate_that_holds_its_question() -> None:
    """Another one is told that it has no checker; nothing waits for a second file."""
    for path, why in ((PAIRS["infermax"][0], "has no checker; there are"), ("no.json", "No such file")):
        done = judged_here(None, path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert why in done.stderr
