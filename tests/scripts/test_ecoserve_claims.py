"""The study of EcoServe's claims: page and figures are what the tables say, and a tiny case is measured."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

import infermax_opt as imx
from infermax_opt.infermax.data.ecoserve import TRACES
from infermax_opt.infermax.replay.fast import replay
from scripts.ecoserve_study import __main__ as command
from scripts.ecoserve_study import models, sharing, studies
from scripts.ecoserve_study.command import present, table_text
from scripts.ecoserve_study.figures import CAPTIONS, DRAWN
from scripts.ecoserve_study.page import page
from scripts.ecoserve_study.waiting import held_kv
from scripts.findings.claim import StaleTextError
from scripts.findings.tables import Tables, read_tables
from tests.support import ROOT

HERE = ROOT / "scripts" / "ecoserve_study"


@pytest.fixture(scope="module")
def tables() -> Tables:
    return read_tables(HERE / "csv", studies.STUDIES)


def test_page_and_figures_are_what_the_tables_say(tables: Tables, tmp_path: Path) -> None:
    assert (HERE / "README.md").read_text(encoding="utf-8") == page(tables)
    (tmp_path / "csv").symlink_to(HERE / "csv")
    present(tmp_path)
    assert set(DRAWN) == set(CAPTIONS) == {path.stem for path in (HERE / "figures").iterdir()}
    for name in DRAWN:
        drawn = (tmp_path / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn.startswith("<?xml")


def test_words_that_no_longer_hold_are_refused(tables: Tables) -> None:
    rows = [{**row, "preempted": row["mean_jct"]} for row in tables.studies["sweeps"]]
    with pytest.raises(StaleTextError, match="reserve"):
        page(Tables({**tables.studies, "sweeps": rows}))


def test_committed_rows_are_sound(tables: Tables) -> None:
    for study in ("rates", "sweeps"):
        for row in tables.studies[study]:
            jct, bound = float(row["mean_jct"]), float(row["jct_bound"])
            assert 0 < bound <= jct * 1.001
            states = sum(float(row[s]) for s in ("waiting", "prefill", "queued", "preempted", "execution"))
            assert states == pytest.approx(jct, rel=2e-3)
            assert 0 <= float(row["kv_used"]) <= float(row["kv_reserved"]) * 1.001
            if row["ssr_bound"]:
                assert float(row["ssr"]) <= float(row["ssr_bound"]) + 1e-3
    for row in tables.studies["sharing"]:
        assert 0 < float(row["use"]) <= float(row["bound"]) * 1.001
        if row["objective"] == "area":
            assert float(row["bound"]) <= 0.76


def test_tables_hold_every_case(tables: Tables) -> None:
    found = {(row["trace"], row["load"], row["scheduler"]) for row in tables.studies["rates"]}
    names = {row["scheduler"] for row in tables.rows("rates", trace="sharegpt", load="1")}
    assert len(names) == 19
    wanted = {
        (trace, load, name)
        for trace in TRACES
        for load in studies.LOADS
        for name in (names if trace == "sharegpt" else studies.FEW)
    }
    assert found == wanted
    assert len(tables.studies["rates"]) == len(wanted)
    for setting, (values, schedulers) in studies.SWEEPS.items():
        for trace in TRACES:
            rows = tables.rows("sweeps", trace=trace, setting=setting)
            assert [(row["value"], row["scheduler"]) for row in rows] == [
                (value, name) for value in values for name in schedulers
            ]


def test_a_committed_row_can_be_measured_again(tables: Tables) -> None:
    of = studies.window("bookcorpus", "0.5")
    ((_, name),) = command.swept(["ecoserve"], [], TRACES["bookcorpus"].settings)
    (row,) = command.runs(of, [("ecoserve", name)])
    (committed,) = tables.rows("rates", trace="bookcorpus", load="0.5", scheduler="ecoserve")
    for column in ("mean_jct", "ssr", "kv_used", "kv_reserved", "forward_size", "barren", "queued"):
        assert command.text(row[column]) == committed[column]


def test_a_tiny_study_is_measured_verified_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studies, "WINDOW", dict.fromkeys(TRACES, 12))
    studies._most.cache_clear()
    wanted = ["claims", "--only", "predictions", "groups", "held", "--out", str(tmp_path)]
    try:
        assert command.main(wanted) == 0
    finally:
        studies._most.cache_clear()
    assert "no page" in capsys.readouterr().err
    small = read_tables(tmp_path / "csv", ("predictions", "groups", "held"))
    for trace in TRACES:
        for load in ("1", "published"):
            rows = small.rows("groups", trace=trace, load=load, scheduler="sync-coupled")
            assert sum(int(row["size"]) * int(row["groups"]) for row in rows) == 12
        shorts = [float(row["short_share"]) for row in small.rows("predictions", trace=trace)]
        assert shorts == sorted(shorts, reverse=True)


def test_kv_of_those_that_wait_by_hand() -> None:
    instance = imx.Instance(
        "wait",
        (imx.RequestGroup("a", 4, 3), imx.RequestGroup("b", 2, 2)),
        imx.System(10, 4, 4),
        imx.CostModel([("1", "0")], (0, 0), (0, 0)),
    )
    batches = (
        imx.Batch({"a": 3}), imx.Batch({"b": 2}), imx.Batch({"a": 1}), imx.Batch({"a": 1}),
        imx.Batch({"b": 1}), imx.Batch({"a": 1}),
    )  # fmt: skip
    schedule = imx.Schedule("wait", batches)
    held = held_kv(instance, schedule, replay(instance, schedule))
    # a waits with 3 tokens of its prompt, b for two batches with 2 after its first token, a for one with 5.
    assert {kind: some.tokens for kind, some in held.items()} == {"prompt": 3, "new": 2, "preempted": 5}
    assert held["new"].share == Fraction(4, 6 * 10)


def test_halving_tends_to_the_three_quarters_law() -> None:
    of = sharing.halving()
    assert sum(of.sizes) == 1024 * 6
    assert float(Fraction(sum(of.values), 1024**2)) == pytest.approx(0.75, abs=0.01)


def test_a_schedule_of_a_queue_that_breaks_a_rule_is_refused() -> None:
    of = replace(sharing.halving(), name="wrong")
    with pytest.raises(imx.InputError):
        sharing._value(of, sharing.Pipelining("wrong", {"r1": 0, "r2": 1}))


def test_cells_are_short_and_unknown_ones_empty() -> None:
    assert table_text([{"a": None, "b": 0.123456, "c": 7}]) == "a,b,c\n,0.1235,7\n"


def test_larger_models_hold_every_case(tables: Tables) -> None:
    keys = [(row["model"], row["trace"], row["load"], row["scheduler"]) for row in tables.studies["models"]]
    assert keys == list(product(models.MODELS, TRACES, models.LOADS, models.COMPARED))
    for row in tables.studies["models"]:
        assert 0 < float(row["jct_bound"]) <= float(row["mean_jct"])
        assert float(row["completed"]) <= 1.001 * float(row["rate_bound"])
