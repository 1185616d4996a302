"""The study of EcoServe: a table of verified schedules with bounds."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest

from infermax_opt.infermax.data.ecoserve import OPT_13B_PROFILE, ecoserve_instance
from infermax_opt.infermax.data.profiles import load_profile
from scripts.ecoserve_study import __main__ as ecoserve_study
from scripts.ecoserve_study import measure as measuring


def test_a_row_for_each_scheduler_and_setting(tmp_path: Path) -> None:
    wanted = ["--trace", "alpaca", "--requests", "8", "--load", "0.8", "--schedulers", "sarathi", "ecoserve"]
    sweep = ["--sweep", "padding=0,0.2", "--bound-seconds", "0", "-o", str(tmp_path)]
    assert ecoserve_study.main([*wanted, *sweep]) == 0
    with (tmp_path / "alpaca.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["scheduler"] for row in rows] == ["sarathi", "ecoserve@padding=0", "ecoserve@padding=0.2"]
    assert rows[2]["settings"] == "padding=0.2,reserve=0.012,buffer=0.15"
    for row in rows:
        assert float(row["mean_jct"]) >= float(row["jct_bound"]) > 0
        assert 0 <= float(row["ssr"]) <= 1
        assert row["ssr_bound"] == "-"
        assert float(row["kv_used"]) <= float(row["kv_reserved"])
    page = (tmp_path / "alpaca.md").read_text()
    assert page.count("| ecoserve@") == 2
    assert "mean JCT at least" in page


def test_what_has_to_be_missed_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = load_profile(OPT_13B_PROFILE).cost
    of = ecoserve_instance("alpaca", cost, requests=5, slo_scale=Fraction(1, 100))
    monkeypatch.setattr(measuring, "TOGETHER", 2)
    assert measuring.missed_bound(of, 1) == 5
    kept = ecoserve_instance("alpaca", cost, requests=5, slo_scale=Fraction(100))
    assert measuring.missed_bound(kept, 1) == 0


def test_a_wrong_name_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [
        "--requests",
        "2",
        "--bound-seconds",
        "0",
        "--schedulers",
        "ecoserve@speed=1",
        "-o",
        str(tmp_path),
    ]
    assert ecoserve_study.main(wanted) == 2
    assert "is no setting" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
