"""What happens without the packages that extras bring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import infermax_opt
from infermax_opt.cli.main import cli
from infermax_opt.core.compiled import compiled
from infermax_opt.core.extras import EXTRAS, absent, missing_extras, remedy
from infermax_opt.core.registry import problem_of
from infermax_opt.latency.batches.aiconfigurator import PREFIX
from tests.support import ROOT

INSTANCES = ROOT / "instances"
TOY = str(INSTANCES / "toy.json")
SMALL = ("toy", "iteration-toy", "pipelining-small", "placement-toy", "stream-poisson-8", "paper-csp/i64")
#: Names of packages other than those of their modules.
DISTRIBUTIONS = {"aiconfigurator_core": "aiconfigurator-core"}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Take packages away, as far as this process can tell."""

    def take(*packages: str) -> None:
        for name in packages:
            monkeypatch.setitem(sys.modules, name, None)

    return take


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, list(arguments), prog_name="infermax-opt")
    return done.exit_code, done.output


def test_the_extras_are_those_of_the_package() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        for package in packages:
            name = DISTRIBUTIONS.get(package, package)
            assert any(line.startswith(f"{name}>") for line in listed[extra]), (extra, package)


def test_absence(without: Any) -> None:
    assert not absent("numpy")
    assert absent("no_such_package_at_all")
    without("pyomo")
    assert absent("pyomo.environ")
    assert remedy("pyomo.core") == "pyomo is not installed; pip install 'infermax-opt[milp]'"
    assert missing_extras()["milp"] == ("pyomo",)


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("ortools", "milp", ["solve", TOY, "--solver", "cpsat"]),
        ("ortools", "milp", ["solve", TOY, "--formulation", "csp"]),
        ("pyomo", "milp", ["solve", TOY, "--solver", "highs"]),
        ("pyomo", "milp", ["solve", TOY, "--formulation", "flow"]),
        ("pyomo", "milp", ["export", TOY, "--formulation", "flow", "-o", "{out}.mps"]),
        ("matplotlib", "plot", ["plot", TOY, "{schedule}", "-o", "{out}.png"]),
        ("matplotlib", "plot", ["solve", TOY, "--plot", "{out}.png", "-o", "{out}.json"]),
        ("matplotlib", "plot", ["gap", TOY, "{schedule}", "--plot", "{out}.svg"]),
        ("matplotlib", "plot", ["front", TOY, "--x", "makespan", "--y", "mean_ttft", "--plot", "{out}.svg"]),
        ("distributed", "cluster", ["table", "paper-csp", "--on", "tcp://127.0.0.1:9", "-o", "{out}"]),
        ("aiconfigurator_core", "calibrate", ["calibrate", "--for", "batches", f"{PREFIX}M@S/B"]),
    ],
)
def test_one_line_says_what_to_install(
    without: Any, tmp_path: Path, package: str, extra: str, arguments: list[str]
) -> None:
    instance = infermax_opt.read_instance(TOY)
    schedule = tmp_path / "schedule.json"
    infermax_opt.write_schedule(infermax_opt.schedule(instance, "vllm"), schedule)
    without(package)
    places = {"schedule": schedule, "out": tmp_path / "out"}
    code, said = run(*(text.format(**places) for text in arguments))
    assert code == 2
    assert said.count("\n") == 1
    assert f"{package} is not installed; pip install 'infermax-opt[{extra}]'" in said
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.json"]


DRAWN = ("toy", "iteration-toy", "makespan-100x20", "pipelining-small", "placement-toy")


@pytest.mark.parametrize("name", DRAWN)
def test_functions_say_it_too(without: Any, name: str) -> None:
    instance = infermax_opt.load_instance(name)
    schedule = infermax_opt.schedule(instance, next(iter(problem_of(instance).heuristics_for(instance))))
    without("matplotlib", "pandas")
    with pytest.raises(
        infermax_opt.InputError, match="pictures cannot be had: matplotlib is not installed; pip"
    ):
        infermax_opt.plot_schedule(instance, schedule)
    with pytest.raises(infermax_opt.InputError, match="frames cannot be had: pandas is not installed; pip"):
        instance.requests_frame()


def test_versions_tell_what_is_missing(without: Any) -> None:
    without("numba", "matplotlib")
    code, said = run("versions")
    assert code == 0
    assert "fast (numba)" in said
    assert "plot (matplotlib)" in said


def test_what_was_not_tried_is_told(without: Any) -> None:
    instance = infermax_opt.read_instance(INSTANCES / "pipelining-small.json")
    without("ortools")
    result = infermax_opt.solve(instance, time_limit=1)
    assert result.solver is not None
    assert result.solver.engine == "anneal"
    told = {"order formulation": "ortools is not installed; pip install 'infermax-opt[milp]'"}
    assert result.solver.details["not tried"] == told
    assert result.upper is not None


# --- kernels as plain Python ----------------------------------------------------------------------

SCRIPT = """
import json, sys
import infermax_opt
from infermax_opt.core.registry import problem_of
found = {}
for path in sys.argv[2:]:
    instance = infermax_opt.read_instance(path)
    about = found[instance.name] = {}
    problem = problem_of(instance)
    for name in problem.heuristics_for(instance):
        try:
            made = infermax_opt.schedule(instance, name)
        except infermax_opt.InputError as error:
            about[name] = str(error)
            continue
        check = infermax_opt.verify(instance, made)
        assert check.ok, (path, name)
        about[name] = str(check.objective)
    about["bounds"] = sorted(f"{one.source}: {one.value}" for one in infermax_opt.bound(instance))
    result = infermax_opt.solve(instance, time_limit=0.4)
    assert infermax_opt.verify(instance, result).ok, path
    if result.gap == 0:
        about["optimum"] = str(result.upper.value)
found["numba"] = "numba" in sys.modules and sys.modules["numba"] is not None
with open(sys.argv[1], "w") as stream:
    json.dump(found, stream)
"""


def computed(folder: Path, blocked: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """What the script finds where some packages cannot be imported, by processes that it starts, too."""
    folder.mkdir()
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in blocked)]
    (folder / "sitecustomize.py").write_text("\n".join(lines) + "\n")
    paths = [str(INSTANCES / f"{name}.json") for name in SMALL]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "found.json"), *paths],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "found.json").read_text()), done.stderr


def test_plain_python_finds_the_same(tmp_path: Path) -> None:
    plain, said = computed(tmp_path / "plain", ("numba", "pyomo", "ortools", "matplotlib", "networkx"))
    usual, quiet = computed(tmp_path / "usual", ())
    assert not plain.pop("numba")
    usual.pop("numba")
    for name, found in usual.items():
        # What is proved within the time is proved of the same number.
        both = found.keys() & plain[name].keys()
        assert both >= found.keys() - {"optimum"}
        assert {key: found[key] for key in both} == {key: plain[name][key] for key in both}
    assert quiet == ""
    notice = "infermax-opt: numba is not installed: kernels run as plain Python, many times slower; "
    assert said == f"{notice}pip install 'infermax-opt[fast]'\n"


def test_a_table_in_plain_python(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numba'] = None\n")
    done = subprocess.run(
        [sys.executable, "-m", "infermax_opt", "table", "paper-csp", "--limit-rows", "2", "--time-limit", "1",
         "-o", str(tmp_path / "table")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("numba is not installed") == 1
    rows = (tmp_path / "table" / "rows.jsonl").read_text().splitlines()
    assert len(rows) == 2


def draw(seed: int) -> float:
    """Such as kernels are written."""
    np.random.seed(seed)  # noqa: NPY002
    return np.random.random()  # noqa: NPY002


def test_random_numbers_of_a_plain_kernel_are_its_own(without: Any) -> None:
    without("numba")
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    assert compiled(draw, ())(7) == np.random.RandomState(7).random()
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
