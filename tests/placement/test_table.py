"""Tables of placement instances."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt.api import verify
from infermax_opt.cli.main import cli
from infermax_opt.core.result import Claim
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.placement.data.generate import generate
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.heuristics.place import HEURISTICS
from infermax_opt.table.archive import Archive
from infermax_opt.table.compute import Job, compute_row
from infermax_opt.table.output import Table, csv_text, markdown_text, table_to_json
from infermax_opt.table.row import Row, RowOptions, row_from_json
from infermax_opt.table.run import run_table
from infermax_opt.table.suites import Case, Suite, get_suite

USES = ("mean_iteration_use", "mean_prefill_use")
TOY = generate("long-prompts", requests=12, seed=0, ongoing=0.34)
OPEN = generate("long-prompts", requests=12, seed=1, ongoing=0.34)


def row_of(folder: Path, instance: PlacementInstance) -> Row:
    write_instance(instance, folder / f"{instance.name}.json")
    row = compute_row(instance, Job("mine", instance.name, str(folder), "1", RowOptions(9.0), 1))
    assert isinstance(row, Row)
    return row


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table")


@pytest.fixture(scope="module")
def row(folder: Path) -> Row:
    return row_of(folder, TOY)


def test_the_suite() -> None:
    cases = get_suite("placement").cases
    assert len(cases) == 60
    assert cases[0].name == "paper-50-s0"
    for case in cases:
        instance = case.build()
        assert isinstance(instance, PlacementInstance)
        assert instance.name == case.name
        assert not any(request.ongoing for request in instance.requests)


def test_a_row(row: Row, folder: Path) -> None:
    assert (row.requests, row.own["ongoing_requests"], row.own["gpus"]) == (12, 4, 6)
    assert (row.upper_bound, row.lower_bound, row.own["closed_form"], row.gap) == (3, 3, 3, 0)
    assert row.schedule_source == "heuristic:best-fit-size"
    assert (row.bound, row.proof, row.bound_check) == ("continuous", "closed-form", "recomputed")
    assert (row.verified, row.certified) == (True, False)
    assert list(row.schedulers) == list(HEURISTICS)
    assert row.schedulers["best-fit"] == 4
    assert row_from_json(json.loads(json.dumps(row.to_json()))) == row
    claim = read_schedule_or_claim(folder / row.result)
    assert isinstance(claim, Claim)
    check = verify(TOY, claim)
    assert check.ok
    assert check.metrics is not None
    assert abs(check.metrics.mean_kv_use - (row.own["mean_kv_use"] or 0)) < Fraction(1, 10**20)  # type: ignore[operator]
    archive = Archive(folder / "best", "mine")
    assert archive.improve(TOY, claim, source="test", versions={}) == ("upper", "lower")
    assert archive.schedule(TOY) == claim.schedule


def test_a_solvers_bound_is_confirmed_where_it_can_be(folder: Path) -> None:
    row = row_of(folder, OPEN)
    assert (row.upper_bound, row.lower_bound, row.own["closed_form"]) == (4, 4, 3)
    assert (row.proof, row.bound_check) == ("solver", "confirmed by enumerating every schedule")
    assert row.verified


def test_texts(row: Row) -> None:
    table = Table("placement", RowOptions(), "0.1.0", (row,), 60)
    (cells,) = csv.DictReader(io.StringIO(csv_text(table)))
    assert (cells["workers"], cells["lower_bound_workers"], cells["gpus"]) == ("3", "3", "6")
    assert float(cells["best-fit_gap_percent"]) == 25
    assert 0 < float(cells["prefill_use_percent"]) <= 100
    assert not {"upper_bound_s", "lower_bound_s", "M", "clients"} & cells.keys()
    text = markdown_text(table)
    assert (
        "| instance | requests | workers | lower bound | gap, % | bound | proof | closed form | found by "
        "| GPUs | iteration time, % | prefill, % | KV, % | time, s | best-fit, % |"
    ) in text
    assert "| long-prompts-12-s0-o0.34 | 12 | 3 | 3 | 0 | continuous | closed-form | 3 |" in text
    assert table_to_json(table)["rows"][0]["schedulers"].keys() == set(HEURISTICS)
    empty = replace(
        row, upper_bound=None, lower_bound=None, seconds=None, schedulers=dict.fromkeys(HEURISTICS),
        own={**row.own, **dict.fromkeys(["closed_form", "gpus", "mean_kv_use", *USES])},
    )  # fmt: skip
    assert row_from_json(json.loads(json.dumps(empty.to_json()))) == empty
    assert "| - | - | 0 | continuous |" in markdown_text(Table("t", RowOptions(), "1", (empty,), 1))


def test_a_table_by_workers(tmp_path: Path) -> None:
    cases = tuple(Case(some.name, lambda some=some: some) for some in (TOY, OPEN))  # type: ignore[misc]
    table = run_table(Suite("mine", cases), tmp_path, time_limit=20, jobs=1)
    assert table.failures == {}
    assert [row.gap for row in table.rows] == [0, 0]
    row = table.rows[0]
    files = (tmp_path / "instances" / f"{row.instance}.json", tmp_path / row.result)
    assert isinstance(read_instance(files[0]), PlacementInstance)
    assert CliRunner().invoke(cli, ["verify", *map(str, files)]).exit_code == 0
    again = run_table(Suite("mine", cases), tmp_path, time_limit=20, jobs=1)
    assert (again.computed, again.rows) == (0, table.rows)
