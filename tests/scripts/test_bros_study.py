"""The study of BROS: its measurements are verified, its figures and page are what the tables say."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest

from scripts.bros_study import __main__ as command
from scripts.bros_study import measure as measuring
from scripts.bros_study import paper
from scripts.bros_study.figures import FIGURES, draw_all, frontier_at
from scripts.bros_study.measure import MeasureError, measure, normalised_bound
from scripts.bros_study.page import page
from scripts.bros_study.rates import COLUMNS
from scripts.bros_study.settings import HYBRID, LARGER, OPT_30B, POLICIES, queue
from scripts.bros_study.tables import Tables, choose, one, read_tables
from scripts.findings.claim import StaleTextError
from tests.support import ROOT

HERE = ROOT / "scripts" / "bros_study"
VERSION = re.compile(rb"Matplotlib v[0-9.]+")


@pytest.fixture(scope="module")
def tables() -> Tables:
    return read_tables(HERE / "csv", measuring.STUDIES)


def test_the_page_is_what_the_tables_say(tables: Tables) -> None:
    assert (HERE / "README.md").read_text(encoding="utf-8") == page(tables)


def test_a_page_whose_words_no_longer_hold_is_refused(tables: Tables) -> None:
    worse = [dict(row, ttft="0.00") if row["policy"] == "bros" else row for row in tables["hybrid"]]
    with pytest.raises(StaleTextError, match="is not true of the tables"):
        page({**tables, "hybrid": worse})


def test_the_figures_are_what_the_tables_say(tables: Tables, tmp_path: Path) -> None:
    draw_all(tables, tmp_path)
    assert {path.stem for path in (HERE / "figures").iterdir()} == set(FIGURES)
    for name in FIGURES:
        drawn, committed = ((folder / f"{name}.svg").read_bytes() for folder in (tmp_path, HERE / "figures"))
        assert len(drawn) > 5000
        # Another version of Matplotlib draws the same otherwise.
        assert drawn == committed or VERSION.findall(drawn) != VERSION.findall(committed), name


def test_rows_are_complete_and_no_row_passes_its_bound(tables: Tables) -> None:
    for name, cases in (("hybrid", HYBRID), ("larger", LARGER)):
        keys = [(r["workload"], r["profile"], r["rate"], int(r["seed"]), r["policy"]) for r in tables[name]]
        assert keys == [(*case, policy) for case in cases for policy in POLICIES]
    for row in (*tables["hybrid"], *tables["larger"]):
        both, at_most = float(row["attainment"]), float(row["attainment_at_most"])
        assert both <= min(at_most, float(row["ttft"]), float(row["tpot"]))
        assert 0 < float(row["normalised_bound_s"]) <= float(row["normalised_s"])
    for name in ("queue", "real_time", "sharing"):
        assert all(float(row["normalised_bound_s"]) <= float(row["normalised_s"]) for row in tables[name])
    for row in tables["sharing"]:
        assert float(row["by_rule"]) <= float(row["most"]) <= float(row["held"])


def test_no_policy_is_above_the_frontier(tables: Tables) -> None:
    for row in choose(tables["hybrid"], workload="sharegpt", rate="10", seed="1", profile=OPT_30B):
        assert float(row["attainment"]) <= frontier_at(tables["frontier"], float(row["be_per_s"]))


def test_a_small_case_is_measured_and_waits_less_with_preemption() -> None:
    instance = queue("20", 40)
    found = measure(instance, "bros")
    rt = found.figures["rt"]
    assert (rt.requests, rt.done) == (40, 40)
    assert rt.mean_normalised_latency is not None
    assert 0 < normalised_bound(instance, 40) <= rt.mean_normalised_latency
    # The quickest ones alone have the smaller mean.
    assert normalised_bound(instance, 10) < normalised_bound(instance, 40)


def test_a_wrong_schedule_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = queue("20", 5)
    other = measure(queue("20", 4), "fcfs").schedule
    monkeypatch.setattr(measuring, "run_scheduler", lambda *_: other)
    with pytest.raises(MeasureError):
        measure(instance, "fcfs")


def test_committed_queueing_can_be_measured_again(tables: Tables) -> None:
    row = one(tables["queue"], rate="20", policy="fcfs")
    again = measure(queue("20"), "fcfs").figures["rt"]
    assert f"{float(again.mean_normalised_latency or 0):.4f}" == row["normalised_s"]


def test_the_command_writes_a_verified_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["--rates", "5", "--horizon", "2", "--seconds", "0.3", "--schedulers", "bros", "rr"]
    monkeypatch.setattr(sys, "argv", ["bros_study", *asked, "--out", str(tmp_path)])
    command.main()
    with (tmp_path / "sharegpt.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["scheduler"] for row in rows] == ["bros", "rr"]
    assert tuple(rows[0]) == COLUMNS
    assert all(float(row["attainment"]) <= float(row["bound_attainment"]) for row in rows)


def test_page_mode_measures_nothing(tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "csv").mkdir()
    for name in tables:
        (tmp_path / "csv" / f"{name}.csv").write_bytes((HERE / "csv" / f"{name}.csv").read_bytes())
    monkeypatch.setattr(paper, "run_study", lambda _: pytest.fail("measured"))
    paper.main(["--page", "--out", str(tmp_path)])
    assert (tmp_path / "README.md").read_bytes() == (HERE / "README.md").read_bytes()
