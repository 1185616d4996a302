"""The packages under ``examples/``, installed as a stranger would and used through the commands alone."""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.api import verify
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import PackageError
from infermax_opt.core.plugins import blamed_steps
from infermax_opt.files.instances import write_instance
from tests.forked import forked
from tests.infermax.oracle import optimum
from tests.infermax.tiny import tiny
from tests.infermax.waiting import OBJECTIVES, waiting
from tests.support import ROOT

TOY = ROOT / "instances" / "toy.json"
SCHEDULE_BROKEN = ("schedule", TOY, "--scheduler", "broken")
STREAM = ROOT / "instances" / "stream-poisson-8.json"
SIMULATE = ("simulate", STREAM, "--policy", "broken")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the three packages and nothing else."""
    folder = tmp_path_factory.mktemp("examples")
    # From a copy, so that building leaves nothing in the checkout.
    sources = shutil.copytree(ROOT / "examples", folder / "sources")
    packages = [str(path.parent) for path in sorted(sources.glob("*/pyproject.toml"))]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [
            *pip,
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "--target",
            str(folder / "site"),
            *packages,
        ],
        check=True,
    )
    return folder / "site"


def commands(site: Path) -> Run:
    """Runs a command of the checkout beside the packages of a folder."""

    def command(*args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = forked(*args, path=site)
        assert done.returncode == code, (args, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        if code == 2:
            assert len(done.stderr.splitlines()) == 1, done.stderr
        return done

    return command


@pytest.fixture(scope="module")
def run(site: Path) -> Run:
    """Runs a command beside the three packages."""
    return commands(site)


@pytest.fixture(scope="module")
def tandem(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of the suite `tandem`, whose folder holds their instances and results."""
    folder = tmp_path_factory.mktemp("tandem")
    done = run("table", "tandem", "-o", folder, "--time-limit", 2)
    assert "verified (schedule replayed, bound re-checked): 4 of 4" in done.stdout
    return folder


def small(tandem: Path, seed: int = 0) -> Path:
    """An instance of which every order is enumerated."""
    return tandem / "instances" / f"tandem-5-s{seed}.json"


def large(tandem: Path) -> Path:
    """An instance of which that would take too long."""
    return tandem / "instances" / "tandem-50-s0.json"


def test_a_fork_says_what_a_process_says(site: Path) -> None:
    """What all other tests here rely on."""
    for args in (("problems", "--json"), ("schedule", TOY, "--scheduler", "wave"), ("versions",)):
        done = subprocess.run(
            [sys.executable, "-m", "infermax_opt", *map(str, args)],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(site)}, check=False,
        )  # fmt: skip
        again = forked(*args, path=site)
        assert (again.returncode, again.stdout, again.stderr) == (done.returncode, done.stdout, done.stderr)


# --- the scheduler ------------------------------------------------------------------------------


def test_scheduler_is_found_and_its_schedules_are_valid(run: Run, tmp_path: Path) -> None:
    assert "waves" in json.loads(run("schedulers", "--json").stdout)["schedulers"]
    schedule = tmp_path / "waves.json"
    run("schedule", TOY, "--scheduler", "waves", "-o", schedule)
    assert "verified: nothing is wrong" in run("verify", TOY, schedule, "--strict").stdout
    run("plot", TOY, schedule, "-o", tmp_path / "waves.png")
    result = json.loads(run("solve", TOY, "--warm-start", "waves", "--time-limit", 20, "--json").stdout)
    assert result["solver"]["warm_start"] == "scheduler:waves"
    assert "waves" in run("schedule", TOY, "--scheduler", "wave", code=2).stderr


def test_scheduler_keeps_every_limit(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    waves = importlib.import_module("waves").waves
    for seed in range(150):
        instance = tiny(seed, arrivals=seed % 2 == 0)
        assert verify(instance, waves(instance)).ok, instance


def test_a_scheduler_of_a_package_may_be_asked_before_each_batch(tmp_path: Path) -> None:
    asked = (
        "def broken(sim):\n first = (sim.running or sim.waiting)[0]\n return {first: first.prefill_left or 1}"
    )
    run = install(tmp_path, "schedulers", asked)
    assert "verified: nothing is wrong" in run(*SCHEDULE_BROKEN).stdout


# --- the bound ----------------------------------------------------------------------------------


def test_bound_is_found_recomputed_and_refuted(run: Run, tmp_path: Path) -> None:
    instance = tiny(0, objective="mean_e2e")
    path, result = tmp_path / "i.json", tmp_path / "r.json"
    write_instance(instance, path)
    found = json.loads(run("bound", path, "--time-limit", 1, "--json").stdout)["lower_bounds"]
    source = "one request of infermax-opt-example-bound"
    (own,) = [bound for bound in found if bound["source"] == source]
    assert own["proof"] == "closed-form"
    run("solve", path, "--time-limit", 10, "-o", result)
    claim = json.loads(result.read_text())
    claim["lower"] = {"source": source, "proof": "closed-form", "certificate": None}
    claim["lower_bound"] = own["value"]
    claim["gap"] = 1 - float(own["value"]) / float(claim["upper_bound"])
    claim["status"] = "feasible" if claim["gap"] else "optimal"
    result.write_text(json.dumps(claim))
    run("verify", path, result, "--strict")
    claim["lower_bound"] = float(own["value"]) * 1.001
    claim["gap"] = 1 - claim["lower_bound"] / float(claim["upper_bound"])
    result.write_text(json.dumps(claim))
    assert f"closed form '{source}' gives" in run("verify", path, result, code=1).stdout


@pytest.mark.parametrize(
    ("proof", "name", "source"),
    [
        ("closed-form", "mine", "mine of some-package"),
        ("solver", "mine", "a solver"),
        # The name of a bound of this package does not make it one.
        ("closed-form", "KV area", "KV area of some-package"),
    ],
)
def test_a_wrong_bound_of_a_package_vouches_for_nothing(
    proof: str, name: str, source: str, tmp_path: Path
) -> None:
    made = f"def broken(instance): yield LowerBound(Fraction(9), {name!r}, Proof.CLOSED_FORM)"
    run, false = install(tmp_path, "bounds", LOWER + made), tmp_path / "false.json"
    claim = json.loads(commands(tmp_path / "nothing")("solve", TOY, "--json").stdout)
    claim.update(schedule=None, upper=None, upper_bound=None, metrics=None, gap=None, status="bound-only")
    claim["lower_bound"], claim["lower"] = "8.5", {"source": source, "proof": proof, "certificate": None}
    false.write_text(json.dumps(claim))
    assert "exceeds the optimum" in run("verify", TOY, false, code=1).stdout


def test_bound_is_never_above_the_optimum(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    one_request = importlib.import_module("one_request").one_request
    offline = (tiny(seed, objective=OBJECTIVES[seed % len(OBJECTIVES)]) for seed in range(150))
    met = set()
    for instance in (*offline, *map(waiting, range(150))):
        best = optimum(instance)
        for bound in one_request(instance):
            assert 0 <= bound.value <= best, (instance, bound)
            if bound.value == best:
                met.add(instance.objective_name)
    assert len(met) > 5, "it hardly ever meets the optimum: something is left out"


# --- the problem --------------------------------------------------------------------------------


def test_problem_is_listed(run: Run) -> None:
    found = {some["name"]: some for some in json.loads(run("problems", "--json").stdout)["problems"]}
    assert found["tandem"]["engines"] == ["auto"]
    assert list(found)[-1] == "tandem", "those of other packages come last"
    assert json.loads(run("schedulers", "--json").stdout)["rules"] == ["as-given", "johnson"]


def test_problem_is_solved_bounded_verified_and_drawn(run: Run, tandem: Path, tmp_path: Path) -> None:
    instance, result, bound = small(tandem), tmp_path / "r.json.gz", tmp_path / "b.json"
    assert "found by rule:johnson" in run("solve", instance, "-o", result).stdout
    assert "no claims" in run("verify", instance, result, "--strict").stdout
    assert "decode machine" in run("bound", instance, "-o", bound).stdout
    run("verify", instance, bound, "--strict")
    schedule = tmp_path / "s.json"
    run("schedule", instance, "--scheduler", "as-given", "-o", schedule)
    run("verify", instance, schedule, "--strict")
    for name in ("a.png", "a.svg"):
        run("plot", instance, result, "-o", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    again = run("solve", instance, "--warm-start", schedule, "--json").stdout
    assert json.loads(again)["upper"] == {"source": "warm start"}


def test_problem_makes_a_table(run: Run, tandem: Path) -> None:
    rows = (tandem / "table.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in rows[1:]] == [
        "tandem-5-s0", "tandem-5-s1", "tandem-50-s0", "tandem-50-s1",
    ]  # fmt: skip
    header = rows[0].split(",")
    assert {"decode_use", "as-given_gap_percent", "johnson_gap_percent"} <= set(header)
    assert all(dict(zip(header, line.split(","), strict=True))["verified"] == "true" for line in rows[1:])
    assert "tandem-5-s0" in (tandem / "table.md").read_text()
    before = (tandem / "table.csv").read_bytes()
    run("table", "tandem", "-o", tandem, "--time-limit", 2)
    assert (tandem / "table.csv").read_bytes() == before, "rows are read back, not computed again"


def test_false_bounds_of_the_problem(run: Run, tandem: Path, tmp_path: Path) -> None:
    """What a solver claims is decided by enumeration where that is possible, and named where not."""

    def claimed(instance: Path, factor: Fraction, code: int, *flags: str) -> str:
        result = tmp_path / "claim.json"
        value = json.loads(run("solve", instance, "--json").stdout)
        lower = Fraction(str(value["upper_bound"])) * factor
        value.update(lower_bound=str(float(lower)), upper_bound=None, gap=None, status="bound-only")
        value.update(schedule=None, upper=None, metrics=None)
        value["lower"] = {"source": "a solver", "proof": "solver", "certificate": None}
        result.write_text(json.dumps(value))
        return run("verify", instance, result, *flags, code=code).stdout

    one, above = Fraction(1), Fraction(1001, 1000)
    for seed in (0, 1):
        claimed(small(tandem, seed), one, 0, "--strict")  # Johnson's rule is optimal
        assert "exceeds the optimum" in claimed(small(tandem, seed), above, 1)
    assert "up to 7 are enumerated" in claimed(large(tandem), above, 0)
    claimed(large(tandem), above, 1, "--strict")


def test_johnson_and_the_bounds_against_every_order(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    toy = importlib.import_module("tandem")
    for seed in range(40):
        instance = toy.generate(2 + seed % 5, seed)
        best = min(tandem_end(order) for order in itertools.permutations(instance.requests))
        problem = toy.TandemProblem()
        assert problem.measure(instance, toy.johnson(instance)).makespan == best
        assert all(bound.value <= best for bound in problem.closed_forms(instance))


def tandem_end(requests: tuple[Any, ...]) -> Fraction:
    """End of a flow shop on two machines: prefills up to the critical request, then decodes from it on."""
    return max(
        sum((some.prefill for some in requests[: k + 1]), Fraction(0))
        + sum((some.decode for some in requests[k:]), Fraction(0))
        for k in range(len(requests))
    )


def test_wrong_schedules_of_the_problem(run: Run, tandem: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "s.json"
    value = {"schema": "infermax-opt/schedule/1", "instance": "tandem-5-s0"}
    value["order"] = ["r1", "r1", "r2", "r3", "r4", "r9"]  # type: ignore[assignment]
    schedule.write_text(json.dumps(value))
    found = json.loads(run("verify", small(tandem), schedule, "--json", code=1).stdout)
    assert found["rules"] == {"once": 3}
    assert [some["where"] for some in found["violations"]] == [
        "request 'r1'", "request 'r5'", "request 'r9'",
    ]  # fmt: skip
    assert "not drawn" in run("plot", small(tandem), schedule, "-o", tmp_path / "x.png", code=1).stderr
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"problem": "tandme"}, "problem: 'tandme' is none of"),
        ({"machines": 2}, "machines: is not a known key"),
        ({"requests": []}, "requests: holds no request"),
        ({"requests": [{"id": "a", "prefill": -1, "decode": 1}]}, "requests[0].prefill: -1 is negative"),
        ({"requests": [{"id": "a", "prefill": 1}]}, "requests[0].decode: is missing"),
        ({"requests": [{"id": "a", "prefill": 1, "decode": "x"}]}, "requests[0].decode: 'x' is not a"),
        ({"requests": [{"id": "a", "prefill": 1, "decode": 1}] * 2}, "id 'a' is used twice"),
    ],
    ids=str,
)
def test_unusable_instances(
    change: dict[str, Any], words: str, run: Run, tandem: Path, tmp_path: Path
) -> None:
    path = tmp_path / "i.json"
    path.write_text(json.dumps({**json.loads(small(tandem).read_text()), **change}))
    for args in (("solve", path), ("bound", path), ("schedule", path, "--scheduler", "johnson")):
        done = run(*args, code=2)
        assert words in done.stderr
        assert str(path) in done.stderr


def test_warm_start_that_breaks_a_rule_names_its_file(run: Run, tandem: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "s.json"
    value = {"schema": "infermax-opt/schedule/1", "instance": "tandem-5-s0", "order": ["r1"]}
    words = {"tandem-5-s0": "request 'r2': once: is served 0 times", "other": "the schedule is for 'other'"}
    for name, told in words.items():
        schedule.write_text(json.dumps({**value, "instance": name}))
        said = run("solve", small(tandem), "--warm-start", schedule, code=2).stderr
        assert said.startswith(f"infermax-opt: {schedule}: warm_start: is not a valid schedule: ")
        assert told in said


def test_unusable_options(run: Run, tandem: Path, tmp_path: Path) -> None:
    instance, certificate = small(tandem), tmp_path / "c.json"
    for args, words in (
        (("schedule", instance, "--scheduler", "jonson"), "there are as-given, johnson"),
        (("solve", instance, "--warm-start", "jonson"), "there are as-given, johnson"),
        (("solve", instance, "--solver", "highs"), "'highs' is none of auto"),
        (("solve", instance, "--formulation", "flow"), "formulation"),
        (("solve", instance, "--memory-limit", 100), "memory_limit"),
        (("bound", instance, "--certificate", certificate), "certificate"),
        (("plot", instance, instance, "-o", tmp_path / "x.png"), "schema"),
        (("plot", instance, TOY, "-o", tmp_path / "x.pdf"), ".png or .svg"),
        (("table", "tandme", "-o", tmp_path / "t"), "tandem"),
        (("table", "tandem", "--only", "x*", "-o", tmp_path / "t"), "matches no row"),
    ):
        assert words in run(*args, code=2).stderr, args
    assert list(tmp_path.iterdir()) == []


def test_schedules_of_other_problems(run: Run, tandem: Path, tmp_path: Path) -> None:
    order, batches = tmp_path / "order.json", tmp_path / "batches.json"
    run("schedule", small(tandem), "--scheduler", "johnson", "-o", order)
    run("schedule", TOY, "--scheduler", "vllm", "-o", batches)
    assert "have batches" in run("verify", TOY, order, code=2).stderr
    assert "have order" in run("verify", small(tandem), batches, code=2).stderr


# --- what the house says of packages that are wrong -----------------------------------------------


@pytest.mark.parametrize(
    ("group", "module", "args"),
    [
        ("schedulers", "raise RuntimeError('no luck')", SCHEDULE_BROKEN),
        ("schedulers", "def broken(instance): raise RuntimeError('no luck')", SCHEDULE_BROKEN),
        ("bounds", "def broken(instance):\n raise RuntimeError('no luck')\n yield", ("bound", TOY)),
        (
            "policies",
            "def broken(): return decide\ndef decide(beat): raise RuntimeError('no luck')",
            SIMULATE,
        ),
    ],
)
def test_broken_packages_are_named(group: str, module: str, args: tuple[object, ...], tmp_path: Path) -> None:
    said = refused(tmp_path, group, module, *args)
    assert f"infermax_opt.{group}: broken: " in said
    assert "some-package" in said
    assert "RuntimeError: no luck" in said


#: Ways to fail that are not those of a common error.
ODD = [
    ("from infermax_opt import InputError\n", "raise InputError('no luck', field='here')", ": here: no luck"),
    ("class Odd(BaseException): pass\n", "raise Odd('no luck')", " failed: Odd: no luck"),
    ("", "raise SystemExit('no luck')", " failed: SystemExit: no luck"),
    ("", "raise GeneratorExit('no luck')", " failed: GeneratorExit: no luck"),
    ("", "raise BaseExceptionGroup('no luck', [SystemExit()])", " failed: BaseExceptionGroup: no luck (1"),
    (
        "class Odd(Exception):\n def __str__(self): raise RuntimeError('even this')\n",
        "raise Odd",
        " failed: Odd: (its text cannot be had: RuntimeError)",
    ),
    ("", "raise ValueError('no' * 9999)", f" failed: ValueError: {'no' * 500}...\n"),
]


def beginning(path: Path, folder: Path) -> Path:
    """The first requests of an instance, which are solved sooner than all of a stream."""
    value = json.loads(path.read_text())
    made = folder / "beginning.json"
    made.write_text(json.dumps({**value, "requests": value["requests"][:40]}))
    return made


@pytest.mark.parametrize(("before", "fails", "told"), ODD)
@pytest.mark.parametrize(
    ("group", "made", "instance", "kind"),
    [
        ("schedulers", "def broken(instance): ", TOY, "scheduler"),
        ("policies", "def broken(): return decide\ndef decide(beat): ", STREAM, "policy"),
        ("bounds", "def broken(instance): ", TOY, None),
    ],
)
def test_whatever_fails_within_solve_is_named(
    group: str,
    made: str,
    instance: Path,
    kind: str | None,
    before: str,
    fails: str,
    told: str,
    tmp_path: Path,
) -> None:
    run, instance = install(tmp_path, group, before + made + fails), beginning(instance, tmp_path)
    words = f"infermax_opt.{group}: broken: some_package:broken of some-package{told}"
    alone = () if kind is None else ("--warm-start", "broken")
    assert run("solve", instance, *alone, code=2).stderr.startswith(f"infermax-opt: {words}")
    if kind is not None:  # beside others that work
        found = json.loads(run("solve", instance, "--time-limit", 600, "--json").stdout)
        assert found["upper"] is not None
        assert f"{kind}:broken failed: {words.rstrip()}" in found["solver"]["details"]["rejected"]


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("raise SystemExit('no luck')", "SystemExit: no luck"),
        ("from infermax_opt import InputError\nraise InputError('no luck', field='here')", "here: no luck"),
        ("", "AttributeError: "),
    ],
)
def test_a_bound_that_cannot_be_loaded_is_left_out(module: str, told: str, tmp_path: Path) -> None:
    run = install(tmp_path, "bounds", module)
    result = tmp_path / "r.json"
    for args in (("bound", TOY), ("solve", TOY, "-o", result)):
        (warning,) = run(*args).stderr.splitlines()
        assert warning.startswith("infermax-opt: left out: infermax_opt.bounds: broken: ")
        assert told in warning
        assert "some-package" in warning
    run("verify", TOY, result)
    assert run("versions").stderr == "", "it asks for no bound"


DECIDE = "def broken(): return lambda beat: "
MADE = "from infermax_opt import Batch, Schedule\ndef broken(instance): return Schedule(instance.name, "
LOWER = "from fractions import Fraction\nfrom infermax_opt.core.result import LowerBound, Proof\n"


@pytest.mark.parametrize(
    ("group", "module", "args", "told"),
    [
        ("bounds", "def broken(instance): return [1]", ("bound", TOY), "1 is no LowerBound"),
        (
            "bounds",
            LOWER + "def broken(instance): yield LowerBound(0.5, 'mine', Proof.CLOSED_FORM)",
            ("bound", TOY),
            "the value of 'mine' is 0.5, not a Fraction of at least 0",
        ),
        (
            "bounds",
            LOWER + "def broken(instance): yield LowerBound(Fraction(0), 'mine', None)",
            ("bound", TOY),
            "does not say its source and proof",
        ),
        (
            "bounds",
            LOWER + "def broken(instance): yield LowerBound(Fraction(0), 'mine', Proof.CERTIFICATE)",
            ("bound", TOY),
            "'mine' claims a certificate, for which there is no checker",
        ),
        ("policies", "def broken(): return 1", SIMULATE, "1 is no function of a heartbeat"),
        ("policies", DECIDE + "1", SIMULATE, "1 is no mapping of request id to worker"),
        ("policies", DECIDE + "{}", SIMULATE, "'r1' has no worker"),
        (
            "policies",
            DECIDE + "dict.fromkeys(map('r{}'.format, range(99)), 0)",
            SIMULATE,
            "0, the worker of 'r1', is no whole number from 1",
        ),
        ("schedulers", "def broken(instance): return 1", SCHEDULE_BROKEN, "1 is no Schedule"),
        ("schedulers", MADE + "(1,))", SCHEDULE_BROKEN, "1 is no Batch"),
        ("schedulers", MADE + "[])", SCHEDULE_BROKEN, "its batches are a list, not a tuple"),
        ("schedulers", MADE + "(Batch({1: 1}),))", SCHEDULE_BROKEN, "1 is no id of a request"),
        (
            "bounds",
            LOWER + "def broken(instance): yield LowerBound(Fraction(9), 'mine', Proof.CLOSED_FORM)",
            ("solve", TOY),
            "bound: mine of some-package claims at least 9 s, which is wrong: a verified schedule needs ",
        ),
    ],
)
def test_wrong_packages_are_told(
    group: str, module: str, args: tuple[object, ...], told: str, tmp_path: Path
) -> None:
    assert told in refused(tmp_path, group, module, *args)


def refused(tmp_path: Path, group: str, module: str, *args: object) -> str:
    """What a command says with a package installed whose entry point `broken` is of that module."""
    return install(tmp_path, group, module)(*args, code=2).stderr


def install(
    folder: Path, group: str, module: str, package: str = "some-package", point: str = "broken"
) -> Run:
    """Runs a command beside a package whose entry point leads to `broken` in a module of this text."""
    name = package.replace("-", "_")
    (folder / f"{name}.py").write_text(module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[infermax_opt.{group}]\n{point} = {name}:broken\n")
    return commands(folder)


# --- problems that cannot be used ----------------------------------------------------------------

TWIN = "from infermax_opt.infermax.problem import InferMaxProblem\nclass broken(InferMaxProblem):\n"
NO_LUCK = "raise RuntimeError('no luck')"


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (NO_LUCK, "RuntimeError: no luck"),
        (f"def broken(): {NO_LUCK}", "RuntimeError: no luck"),
        ("raise SystemExit('no luck')", "SystemExit: no luck"),
        ("from infermax_opt import InputError\nraise InputError('no luck', field='here')", "here: no luck"),
        (TWIN + " pass", "its name is 'infermax'; the entry point"),
        (TWIN + " name = 'broken'\n schedule = int", "has schedules of the key 'batches', too"),
        ("class broken:\n name = 'broken'", "the class has no about, instance"),
    ],
)
def test_problem_that_cannot_be_used_is_left_out(module: str, told: str, tmp_path: Path) -> None:
    run = install(tmp_path, "problems", module)
    schedule, own = tmp_path / "s.json", tmp_path / "own.json"
    for args in (("schedule", TOY, "--scheduler", "vllm", "-o", schedule), ("verify", TOY, schedule)):
        (warning,) = run(*args).stderr.splitlines()
        assert warning.startswith("infermax-opt: left out: infermax_opt.problems: broken: ")
        assert told in warning
        assert "some-package" in warning
    found = json.loads(run("problems", "--json").stdout)
    names = [some["name"] for some in found["problems"]]
    assert names == ["infermax", "iteration", "makespan", "pipelining", "placement", "stream"]
    ((name, package, reason),) = [some.values() for some in found["not_usable"]]
    assert (name, package) == ("broken", "some-package")
    assert told in reason
    assert f"broken: not usable: {reason}" in run("problems").stdout
    own.write_text(json.dumps({**json.loads(TOY.read_text()), "problem": "broken"}))
    for args in (("solve", own), ("verify", own, schedule)):
        assert reason in run(*args, code=2).stderr
    assert reason in run("table", "broken", "-o", tmp_path / "t", code=2).stderr
    assert run("versions").stderr == "", "it asks for no problem"


def test_a_problem_with_a_name_of_the_house_is_left_out(tmp_path: Path) -> None:
    run = install(tmp_path, "problems", NO_LUCK, point="makespan")
    (some,) = json.loads(run("problems", "--json").stdout)["not_usable"]
    assert some["reason"] == (
        "some_package:broken of some-package and "
        "infermax_opt.makespan.problem:MakespanProblem of infermax-opt have one name"
    )
    (warning,) = run(
        "bound", ROOT / "instances" / "makespan-100x20.json", "--time-limit", 1
    ).stderr.splitlines()
    assert some["reason"] in warning


def test_problems_of_two_packages_that_clash_are_both_left_out(tmp_path: Path) -> None:
    install(tmp_path, "problems", NO_LUCK, package="one-package")
    run = install(tmp_path, "problems", NO_LUCK, package="two-package")
    found = json.loads(run("problems", "--json").stdout)["not_usable"]
    assert [some["package"] for some in found] == ["one-package", "two-package"]
    assert all("one_package:broken of one-package" in some["reason"] for some in found)
    (warning,) = run("bound", TOY, "--time-limit", 1).stderr.splitlines()
    assert "(and 1 more; see `infermax-opt problems`)" in warning
    own = tmp_path / "own.json"
    own.write_text(json.dumps({**json.loads(TOY.read_text()), "problem": "broken"}))
    assert "one-package and two_package:broken of two-package have one" in run("solve", own, code=2).stderr


def test_a_scheduler_with_a_name_of_the_house_is_left_out(tmp_path: Path) -> None:
    run = install(tmp_path, "schedulers", NO_LUCK, point="vllm")
    done = run("schedule", TOY, "--scheduler", "vllm")
    (warning,) = done.stderr.splitlines()
    assert warning == (
        "infermax-opt: left out: infermax_opt.schedulers: vllm: some_package:broken of some-package and "
        "one of this package have one name"
    )


@pytest.mark.parametrize(
    ("group", "args", "listed"),
    [
        ("schedulers", ("schedule", TOY, "--scheduler"), ("schedulers",)),
        ("policies", ("simulate", STREAM, "--policy"), ("simulate", "--list")),
        ("models", ("solve", TOY, "--formulation"), None),
    ],
)
def test_two_of_one_name_are_both_left_out(
    group: str, args: tuple[object, ...], listed: tuple[str, ...] | None, tmp_path: Path
) -> None:
    """Nobody could tell which of them ran."""
    install(tmp_path, group, NO_LUCK, package="one-package")
    run = install(tmp_path, group, NO_LUCK, package="two-package")
    reason = f"infermax_opt.{group}: broken: one_package:broken of one-package and two_package:broken"
    assert run(*args, "broken", code=2).stderr.startswith(f"infermax-opt: {reason}")
    if listed is None:
        return
    done = run(*listed)
    assert "broken" not in done.stdout
    first, second = done.stderr.splitlines()
    assert first.startswith(f"infermax-opt: left out: {reason}")
    assert "broken: two_package:broken of two-package and one_package:broken" in second


def test_problems_of_two_packages_with_one_key_are_both_left_out(tmp_path: Path) -> None:
    for name in ("alpha", "beta", "gamma"):
        own = f" name = '{name}'\n decisions = 'steps'\n schedule = type('S', (), {{}})"
        key = "batches" if name == "gamma" else "steps"
        module = TWIN + own.replace("steps", key)
        run = install(tmp_path, "problems", module, package=f"{name}-package", point=name)
    found = {
        some["name"]: some["reason"] for some in json.loads(run("problems", "--json").stdout)["not_usable"]
    }
    assert set(found) == {"alpha", "beta", "gamma"}
    assert "beta_package:broken of beta-package has schedules of the key 'steps', too" in found["alpha"]
    assert "alpha_package:broken of alpha-package has schedules of the key 'steps', too" in found["beta"]
    assert "InferMaxProblem of infermax-opt has schedules of the key 'batches', too" in found["gamma"]


def test_suites_and_importers_of_the_house_keep_their_names(tmp_path: Path) -> None:
    taken = "def suites(self): return {'makespan': cases}\n    def importers(self): return {'infermax': "
    module = f"{OWN}{taken}Importer('taken', list, dict)}}\nfrom infermax_opt.core.importing import Importer"
    run = install(tmp_path, "problems", module)
    run("table", "makespan", "--limit-rows", 1, "--time-limit", 0.3, "-o", tmp_path / "t")
    assert "gsm8k-" in (tmp_path / "t" / "table.csv").read_text().splitlines()[1]
    assert "taken" not in run("import", "--help").stdout


# --- schedules that break rules -------------------------------------------------------------------

EMPTY = "from infermax_opt import Schedule\ndef broken(instance): return Schedule(instance.name, ())"


@pytest.mark.parametrize(
    ("module", "told"),
    [(EMPTY, "scheduler:broken breaks the rule "), (NO_LUCK, "scheduler:broken failed: ")],
)
def test_scheduler_whose_schedule_does_not_count_is_named(module: str, told: str, tmp_path: Path) -> None:
    run = install(tmp_path, "schedulers", module)
    done = run("solve", TOY, "--time-limit", 5, "--json", "-o", tmp_path / "r.json")
    found = json.loads(done.stdout)
    assert found["upper"] is not None, "the others work"
    assert told in found["solver"]["details"]["rejected"]
    run("verify", TOY, tmp_path / "r.json")


def test_rule_of_a_problem_whose_schedule_does_not_count_is_named(tmp_path: Path) -> None:
    made = "return Heuristic(Order(instance.name, ('a', 'a')))"
    run = install(tmp_path, "problems", f"{OWN}def run_heuristic(self, instance, name): {made}")
    said = run("solve", own_files(tmp_path)[0]).stdout
    assert "bound-only" in said
    words = "breaks the rule once: request 'a': once: is served 2 times (and 1 more)"
    assert f"rule:as-given {words}; rule:johnson {words}" in said


# --- problems that fail ---------------------------------------------------------------------------

#: A problem that works, to which a test adds what fails.
OWN = (
    (ROOT / "examples" / "problem" / "tandem.py").read_text()
    + """
from infermax_opt.core.columns import Columns, own
from infermax_opt.core.problem import Heuristic

ROW_KIND = TandemProblem().row_kind


class broken(TandemProblem):
    name = 'broken'
    """
)
FAILS = "KeyError: 'no luck'"


def own_files(folder: Path) -> tuple[Path, Path]:
    """An instance of the problem `broken`, and a schedule of it."""
    instance, schedule = folder / "i.json", folder / "s.json"
    requests = [{"id": "a", "prefill": 1, "decode": 2}, {"id": "b", "prefill": 2, "decode": 1}]
    head = {"schema": "infermax-opt/instance/1", "problem": "broken", "name": "two"}
    instance.write_text(json.dumps({**head, "requests": requests}))
    order = {"schema": "infermax-opt/schedule/1", "instance": "two", "order": ["a", "b"]}
    schedule.write_text(json.dumps(order))
    return instance, schedule


@pytest.mark.parametrize(
    ("method", "gives", "command", "told"),
    [
        ("instance_from_json(self, value)", None, "solve", FAILS),
        ("instance_from_json(self, value)", "[]", "solve", "TypeError: [] is no Tandem"),
        ("bounds(self, instance, *, stop=None)", None, "bound", FAILS),
        ("bounds(self, instance, *, stop=None)", "[1]", "bound", "TypeError: 1 is no LowerBound"),
        ("solve(self, instance, options)", None, "solve", FAILS),
        ("solve(self, instance, options)", "{}", "solve", "TypeError: {} is no Result"),
        ("run_heuristic(self, instance, name)", None, "schedule", FAILS),
        ("run_heuristic(self, instance, name)", "name", "schedule", "TypeError: 'johnson' is no Heuristic"),
        ("schedule_from_json(self, value, path)", None, "verify", FAILS),
        ("verify(self, instance, schedule, subject)", None, "verify", FAILS),
        ("verify(self, instance, schedule, subject)", "True", "verify", "True is no BaseVerification"),
        ("objective_meaning(self, instance)", None, "solve", FAILS),
        ("remarks(self, instance, metrics)", None, "solve", FAILS),
        ("draw(self, instance, subject, ax=None)", None, "plot", FAILS),
    ],
)
def test_method_that_fails_is_named(
    method: str, gives: str | None, command: str, told: str, tmp_path: Path
) -> None:
    does = "raise KeyError('no luck')" if gives is None else f"return {gives}"
    run = install(tmp_path, "problems", f"{OWN}def {method}: {does}")
    instance, schedule = own_files(tmp_path)
    more: dict[str, tuple[object, ...]] = {
        "schedule": ("--scheduler", "johnson"),
        "verify": (schedule,),
        "plot": (schedule, "-o", tmp_path / "x.png"),
    }
    said = run(command, instance, *more.get(command, ()), code=2).stderr
    name = method.partition("(")[0]
    assert f"infermax_opt.problems: broken: some_package:broken.{name} of some-package failed: " in said
    assert told in said


@pytest.mark.parametrize(
    ("checker", "evidence", "told"),
    [
        ("None", "{}", "'mine' claims a certificate, for which there is no checker"),
        ("object()", "None", "'mine' claims a certificate, and has no evidence for one"),
    ],
)
@pytest.mark.parametrize("command", ["bound", "solve"])
def test_a_certificate_without_evidence_is_none(
    checker: str, evidence: str, told: str, command: str, tmp_path: Path
) -> None:
    bound = f"yield LowerBound(Fraction(1), 'mine', Proof.CERTIFICATE, evidence={evidence})"
    body = f"certification = {checker}\n    def bounds(self, instance, *, stop=None): {bound}"
    run = install(tmp_path, "problems", OWN + body)
    said = run(command, own_files(tmp_path)[0], code=2).stderr
    assert f"some_package:broken.{command.replace('bound', 'bounds')} of some-package failed: " in said
    assert told in said


#: A checker of a problem of its own: a certificate proves half of the number that is its evidence.
HALF = """
class Half:
    def cost(self, instance): return {}
    def sha256(self, instance): return instance.sha256
    def check(self, instance, certificate):
        from infermax_opt.core.certification import CertificateRejected
        if 'claim' not in certificate['evidence']: raise CertificateRejected('proves nothing')
        return Fraction(certificate['evidence']['claim']) / 2
"""


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        ("{'claim': 4}", None),
        ("{'claim': 3}", "'mine' claims 2, its certificate proves 1.5"),
        ("{'kind': 'junk'}", "proves nothing"),
        ("{'claim': 'x'}", "failed: ValueError: Invalid literal for Fraction: 'x'"),
    ],
)
@pytest.mark.parametrize("command", ["bound", "solve"])
def test_a_certificate_of_a_package_is_checked_before_it_is_called_one(
    evidence: str, told: str | None, command: str, tmp_path: Path
) -> None:
    bound = f"yield LowerBound(Fraction(2), 'mine', Proof.CERTIFICATE, evidence={evidence})"
    body = f"certification = Half()\n    def bounds(self, instance, *, stop=None): {bound}"
    run = install(tmp_path, "problems", OWN.replace("class broken", f"{HALF}\nclass broken") + body)
    done = run(command, own_files(tmp_path)[0], code=2 if told else 0)
    if told is None:
        assert "certificate: a file that anyone can check" in done.stdout
    else:
        assert (
            "infermax_opt.problems: broken: some_package:broken.certification of some-package" in done.stderr
        )
        assert told in done.stderr


def test_who_stops_listening_to_a_package_is_no_fault_of_it() -> None:
    (point,) = entry_points(group="infermax_opt.problems", name="infermax")
    steps = blamed_steps(iter([1, 2]), point)
    assert next(steps) == 1
    steps.close()  # type: ignore[attr-defined]

    def fails() -> Iterator[int]:
        yield 1
        raise GeneratorExit

    with pytest.raises(PackageError, match="InferMaxProblem of infermax-opt failed: GeneratorExit"):
        list(blamed_steps(fails(), point))


@pytest.mark.parametrize("name", ["bounds", "heuristics", "run_heuristic", "verify"])
def test_failure_within_solve_is_of_the_package(name: str, tmp_path: Path) -> None:
    run = install(tmp_path, "problems", f"{OWN}def {name}(self, *given, **more): return given[7]")
    said = run("solve", own_files(tmp_path)[0], code=2).stderr
    assert "of some-package failed: IndexError: tuple index out of range" in said


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "row_kind = property(lambda self: [][1])",
            "broken.row_kind of some-package failed: IndexError: list",
        ),
        ("def row_kind(self): return ROW_KIND", "is no RowKind"),
        ("def suites(self): return [][1]", "broken.suites of some-package failed: IndexError: list"),
        ("def importers(self): return [][1]", "broken.importers of some-package failed: IndexError: list"),
        ("def heuristics(self): return [1]", "TypeError: sequence item 0: expected str instance"),
        ("instance = type('Bare', (), {})", "Bare has no unit"),
        ("instance = 'Bare'", "'Bare' is no class"),
        ("metrics = type('Bare', (), {})", "Bare has no definitions, units, items"),
        ("metrics = type('Bare', (TandemMetrics,), {'definitions': {}})", "has no makespan, decode"),
    ],
)
def test_what_all_problems_are_asked_is_asked_first(body: str, told: str, tmp_path: Path) -> None:
    run = install(tmp_path, "problems", OWN + body)
    for args in (("solve", own_files(tmp_path)[0]), ("table", "broken", "-o", tmp_path / "t")):
        said = run(*args, code=2).stderr
        assert told in said
        assert "some-package" in said
    assert told in run("schedulers").stderr


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        ("def suites(self): return {'broken': lambda data: [][1]}", 2, "broken.suites of some-package"),
        (
            "def suites(self): return {'broken': lambda data: (1 / 0 for _ in '1')}",
            2,
            "broken.suites of some-package failed: ZeroDivisionError",
        ),
        ("row_kind = replace(ROW_KIND, cells=lambda *given: given[7])", 1, "broken.row_kind of some-package"),
        (
            "row_kind = replace(ROW_KIND, cells=lambda *given: {'decode_use': 1, 'odd': 1})",
            1,
            "broken.row_kind of some-package failed: ValueError: the cell 'odd' is none of its fields",
        ),
        (
            "row_kind = replace(ROW_KIND, cells=lambda *given: {})",
            1,
            "broken.row_kind of some-package failed: ValueError: the field 'decode_use' has no cell",
        ),
        (
            "row_kind = replace(ROW_KIND, columns=Columns({'odd': own('odd')}, {}))",
            2,
            "broken.row_kind of some-package failed: KeyError: 'odd'",
        ),
    ],
)
def test_table_names_the_problem_that_fails(body: str, code: int, told: str, tmp_path: Path) -> None:
    run = install(tmp_path, "problems", OWN + "from dataclasses import replace\n    " + body)
    done = run("table", "broken", "--limit-rows", 1, "-o", tmp_path / "t", code=code)
    assert "infermax_opt.problems: broken: some_package:" in done.stdout + done.stderr
    assert told in done.stdout + done.stderr


def test_no_bound_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("infermax_opt.api.bound", lambda instance, **options: ())
    for option in ("-o", "--certificate"):
        with pytest.raises(SystemExit) as stop:
            cli.main(["bound", str(TOY), option, str(tmp_path / "x.json")])
        assert stop.value.code == 2
        assert "no lower bound is known" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "most"), [("scheduler/waves.py", 20), ("bound/one_request.py", 40), ("problem/tandem.py", 150)]
)
def test_examples_are_short(file: str, most: int) -> None:
    """Lines of code, without imports, texts about them and what is empty."""
    text = (ROOT / "examples" / file).read_text()
    tree = ast.parse(text)
    told = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    left_out = {line for node in told for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    code = [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if number not in left_out and line.strip() and not line.lstrip().startswith("#")
    ]
    assert 10 < len(code) <= most
