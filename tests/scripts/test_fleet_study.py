"""The study of fleets: no number is below its bound, the page fits the table."""

from __future__ import annotations

from pathlib import Path

from scripts.aladdin_study.tables import Row, read_table
from scripts.fleet_study import __main__ as command
from scripts.fleet_study.measure import SHARE, Workload, question_of
from scripts.fleet_study.page import page
from tests.support import ROOT

HERE = ROOT / "instances" / "best-known" / "fleets"


def check(rows: list[Row]) -> None:
    """What must hold in every table."""
    for key in {(row["model"], row["rate"], row["seed"]) for row in rows}:
        some = {row["name"]: row for row in rows if (row["model"], row["rate"], row["seed"]) == key}
        proved = int(some["proved"]["machines"])
        placed = [name for name in some if name.endswith("placed")]
        assert len(placed) == 2
        for name in some.keys() - {"pools, proved", "pools, found", *placed}:
            assert not some[name]["machines"] or proved <= int(some[name]["machines"]), (key, name)
        pools = [some[name]["prefill + decode"].split(" + ") for name in ("pools, proved", "pools, found")]
        assert all(int(low) <= int(high) for low, high in zip(*pools, strict=True))
        for name in ("found", "pools, found"):
            assert float(some[name]["attainment_percent"]) >= 100 * SHARE


def test_a_quick_study_writes_table_and_page(tmp_path: Path) -> None:
    command.main(["--quick", "--out", str(tmp_path)])
    rows, (setting,) = read_table(tmp_path / command.TABLE), read_table(tmp_path / command.SETTING)
    check(rows)
    assert (tmp_path / "README.md").read_text() == page(rows, setting)


def test_the_committed_page_fits_its_table() -> None:
    rows, (setting,) = read_table(HERE / command.TABLE), read_table(HERE / command.SETTING)
    check(rows)
    assert len(rows) >= 8 * 12
    assert (HERE / "README.md").read_text() == page(rows, setting)


def test_a_wait_for_the_heartbeat_counts() -> None:
    workload = Workload("13b", 5, 0, 5)
    stream = workload.stream()
    arrived, beats = question_of(workload, stream), question_of(workload, stream, from_heartbeat=True)
    for before, after in zip(arrived.everyone, beats.everyone, strict=True):
        wait = after.arrival - before.arrival
        assert after.arrival % stream.heartbeat == 0
        assert 0 <= wait < stream.heartbeat
        assert before.terms.slo.ttft is not None
        assert after.terms.slo.ttft == max(0, before.terms.slo.ttft - wait)
