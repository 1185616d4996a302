"""Exported models, read back by HiGHS and SCIP: the same optimum, columns with a meaning, a valid start."""

from __future__ import annotations

import os
import random
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import highspy
import pytest
from infermax_opt.models.infermax_flow import StateFlow
from pyscipopt import Model

import infermax_opt
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Scope
from infermax_opt.engines import formulations
from infermax_opt.files.json import load_json
from infermax_opt.foreign.export.formulation import companions
from infermax_opt.foreign.export.names import safe_names
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from tests.infermax.tiny import tiny
from tests.makespan.oracle import tiny_makespan
from tests.placement.oracle import tiny_placement
from tests.support import PAPER, ROOT, case


def arriving(objective: str) -> Instance:
    groups = (RequestGroup("r", 3, 2), RequestGroup("late one", 2, 2, "0.01"))
    policy = Policy(chunked_prefill=False)
    return Instance("arrivals", groups, System(6, 8, 8), PAPER, policy, Objective.of(objective))


def placement() -> Any:
    rng = random.Random(4)
    while True:
        instance = tiny_placement(rng)
        if infermax_opt.solve(instance).upper is not None and any(r.ongoing for r in instance.requests):
            return instance


CASES = {
    "csp": lambda: case(2, 3, 2, 6),
    "csp, arrivals": lambda: arriving("makespan"),
    "csp, latencies": lambda: arriving("mean_ttft"),
    "flow": lambda: case(3, 2, 3, 6),
    "mip": lambda: tiny_makespan(random.Random(1)),
    "arcs": lambda: tiny_makespan(random.Random(5)),
    "aladdin": placement,
}


def read_by_highs(folder: Path, ending: str) -> tuple[highspy.Highs, list[str]]:
    """HiGHS with the model and its start, and what it says while it solves them."""
    solver, said = highspy.Highs(), []
    solver.setOptionValue("log_to_console", False)
    solver.setOptionValue("log_file", os.devnull)
    solver.setOptionValue("threads", 1)
    for tolerance in ("mip_rel_gap", "mip_abs_gap"):
        solver.setOptionValue(tolerance, 0.0)
    solver.setOptionValue("mip_feasibility_tolerance", 1e-9)
    assert solver.readModel(str(folder / f"model{ending}")) == highspy.HighsStatus.kOk
    assert solver.readSolution(str(folder / "model.sol"), 0) == highspy.HighsStatus.kOk
    assert broken(solver) == []
    solver.cbLogging += lambda event: said.append(event.message)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver, said


def broken(solver: highspy.Highs) -> list[str]:
    """Bounds and rows that the start breaks by more than rounding, in the order of the solver's own model."""
    model, values = solver.getLp(), solver.getSolution().col_value
    activity = [0.0] * model.num_row_
    matrix = model.a_matrix_
    assert matrix.format_ == highspy.MatrixFormat.kColwise
    for k, value in enumerate(values):
        for at in range(matrix.start_[k], matrix.start_[k + 1]):
            activity[matrix.index_[at]] += matrix.value_[at] * value
    ends = zip(
        [*values, *activity],
        [*model.col_lower_, *model.row_lower_],
        [*model.col_upper_, *model.row_upper_],
        strict=True,
    )
    return [f"{low} {value} {high}" for value, low, high in ends if not low - 1e-9 <= value <= high + 1e-9]


def in_unit(value: float, columns: Any) -> float:
    objective = columns["objective"]
    return value * int(objective["scale"]) / int(objective["parts_per_unit"])


@pytest.mark.parametrize("name", list(CASES))
def test_other_solvers_find_the_same_optimum(name: str, tmp_path: Path) -> None:
    instance, formulation = CASES[name](), name.split(",")[0]
    proved = infermax_opt.solve(instance)
    assert proved.gap == 0
    assert proved.upper is not None
    for ending in (".mps", ".lp", ".nl"):
        made = infermax_opt.export_formulation(instance, formulation, tmp_path / f"model{ending}")
        assert (made.scope, made.started) == (Scope.EXACT, True)
        columns = load_json(made.files["columns"])
        assert len(columns["columns"]) == made.columns
        assert len(columns["rows"]) == made.rows
        if ending == ".nl":
            solver = Model()
            solver.hideOutput()
            solver.readProblem(made.files["model"])
            solver.setParam("limits/gap", 0.0)
            solver.optimize()
            assert solver.getStatus() == "optimal"
            found = solver.getObjVal()
        else:
            highs, said = read_by_highs(tmp_path, ending)
            assert not [line for line in said if "start solution is infeasible" in line]
            assert (highs.getNumCol(), highs.getNumRow()) == (made.columns, made.rows)
            assert [highs.getColName(k)[1] for k in range(made.columns)] == [
                column["name"] for column in columns["columns"]
            ]
            found = highs.getInfo().objective_function_value
        assert in_unit(found, columns) == pytest.approx(float(proved.upper.value), rel=1e-9)


def test_highs_begins_with_the_start(tmp_path: Path) -> None:
    instance = infermax_opt.read_instance(ROOT / "instances" / "paper-csp" / "i16.json")
    infermax_opt.export_formulation(instance, "flow", tmp_path / "model.lp")
    said = "".join(read_by_highs(tmp_path, ".lp")[1])
    assert "MIP start solution is feasible" in said


def test_columns_say_what_they_are(tmp_path: Path) -> None:
    made = infermax_opt.export_formulation(arriving("mean_ttft"), "csp", tmp_path / "model.mps.gz")
    assert sorted(made.files) == ["columns", "model", "mst", "start"]
    columns = load_json(tmp_path / "model.columns.json.gz")
    assert columns["files"] == {"model": "model.mps.gz", "start": "model.sol", "mst": "model.mst"}
    assert columns["window"] == made.window
    found = {column["name"]: column for column in columns["columns"]}
    assert len(found) == made.columns
    assert found["c_1_2"] == {
        "name": "c_1_2", "variable": "c", "index": [1, 2], "lower": 0, "upper": 3, "integral": True,
        "meaning": "tokens of late one processed in batch 2", "scale": 1,
    }  # fmt: skip
    assert found["_end_1"]["meaning"] == "tick at which batch 1 ends"
    assert int(found["_end_1"]["scale"]) > 1
    assert all(column["meaning"] for column in columns["columns"])
    offset = columns["objective"]["constant"]
    assert float(offset) < 0  # latencies begin when requests arrive


@pytest.mark.parametrize("name", list(CASES))
def test_each_column_of_each_formulation_has_a_meaning(name: str, tmp_path: Path) -> None:
    made = infermax_opt.export_formulation(CASES[name](), name.split(",")[0], tmp_path / "model.lp")
    assert all(column["meaning"] for column in load_json(made.files["columns"])["columns"])


@pytest.mark.parametrize("seed", range(30))
def test_columns_of_all_kinds_of_instances_have_a_meaning(seed: int, tmp_path: Path) -> None:
    objective = random.Random(seed).choice(["makespan", "mean_e2e", "mean_tpot"])
    instance = tiny(seed, arrivals=seed % 2 == 0, objective=objective)
    made = infermax_opt.export_formulation(instance, "csp", tmp_path / "model.lp")
    assert all(column["meaning"] for column in load_json(made.files["columns"])["columns"])


def test_a_model_without_a_start_has_no_start_files(tmp_path: Path) -> None:
    made = infermax_opt.export_formulation(
        case(2, 3, 2, 6), "flow", tmp_path / "model.mps", warm_start="none"
    )
    assert not made.started
    assert sorted(os.listdir(tmp_path)) == ["model.columns.json", "model.mps"]


def test_a_restriction_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infermax_opt.models.infermax_flow.MAX_COLUMNS", 500)  # a coarse chunk grid
    made = infermax_opt.export_formulation(case(2, 9, 3, 30), "flow", tmp_path / "model.mps")
    assert made.scope is Scope.RESTRICTION
    assert load_json(made.files["columns"])["scope"] == "restriction"


def test_nothing_is_left_where_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "model.mst").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        infermax_opt.export_formulation(case(1, 2, 2, 4), "flow", tmp_path / "model.mps")
    assert os.listdir(tmp_path) == ["model.mst"]


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(model: object) -> Any:
        yield "half a file"
        raise KeyboardInterrupt

    monkeypatch.setattr("infermax_opt.foreign.export.formulation.mst_lines", interrupted)
    with pytest.raises(KeyboardInterrupt):
        infermax_opt.export_formulation(case(1, 2, 2, 4), "flow", tmp_path / "model.mps")
    assert os.listdir(tmp_path) == []


def test_a_model_that_is_too_large_is_refused(tmp_path: Path) -> None:
    instance = case(60, 16, 60, 160)
    with pytest.raises(InputError, match=r"columns for \d+ batches; the most is 150000"):
        infermax_opt.export_formulation(instance, "csp", tmp_path / "model.mps", time_limit=1)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["model.txt", "model", ".mps", "model.nl.gz", "-", "model.gz"])
def test_an_ending_that_says_no_format(name: str) -> None:
    with pytest.raises(InputError):
        companions(name)


class Mine(StateFlow):
    """A formulation of another package, which says nothing of its columns."""

    name = "mine"
    meaning = None


def test_a_formulation_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:Mine", "infermax_opt.models")
    monkeypatch.setattr(formulations, "named_points", lambda group: {"mine": point})
    made = infermax_opt.export_formulation(case(1, 2, 2, 4), "mine", tmp_path / "model.mps")
    columns = load_json(made.files["columns"])
    assert columns["formulation"] == "mine"
    assert {column["meaning"] for column in columns["columns"]} == {None}
    assert read_by_highs(tmp_path, ".mps")


def test_names_are_safe_and_differ() -> None:
    texts = ["x[3,r.1]", "x[3,r 1]", "end", "e[1,2]", "3x", "st", "ä", "", "c[-1]", "c[1]", "a" * 999]
    names = safe_names(texts)
    assert names[:6] == ["x_3_r_1", "x_3_r_1__2", "_end", "_e_1_2", "_3x", "_st"]
    assert len(set(names)) == len(texts)
    assert all(name.isascii() and len(name) < 255 for name in names)
    assert all(not name[0].isdigit() and name[0] not in "eE" for name in names)
