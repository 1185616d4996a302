"""The study of the Aladdin paper's simulations: its numbers are verified, its page fits its tables."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from infermax_opt.cluster.replay.metrics import measure_stream
from scripts.aladdin_study import __main__ as command
from scripts.aladdin_study.fleets import TARGETS, fleet_rows, lower_ttft
from scripts.aladdin_study.page import page
from scripts.aladdin_study.readings import Saving, select
from scripts.aladdin_study.runs import Fleets, StudyError, replay, run, verified
from scripts.aladdin_study.tables import Row, read_table
from scripts.aladdin_study.workload import Workload
from tests.support import ROOT

HERE = ROOT / "instances" / "best-known" / "aladdin"
SMALL = Workload("mixed", "13b", 12, 0, 8)


def read(folder: Path) -> tuple[dict[str, list[Row]], list[Row]]:
    """Tables and settings of a folder."""
    tables = {name: read_table(folder / f"{name}.csv") for name in command.STUDIES}
    return tables, [read_table(folder / f"{name}-setting.csv")[0] for name in command.STUDIES]


def check_fleets(rows: list[Row]) -> None:
    """What must hold in every table of fleets."""
    keys = ("mode", "model", "rate", "seed", "heartbeat_s")
    for same in {tuple(row[key] for key in keys) for row in rows}:
        some = select(rows, **dict(zip(keys, same, strict=True)))
        workers = {(row["policy"], row["target"]): int(row["workers"]) for row in some if row["workers"]}
        assert workers["lower, limits", ""] <= workers["lower, this run", ""] <= workers["fewest", ""]
        assert workers["lower, limits", ""] <= workers["aladdin", ""]
        if same[0] == "mixed":
            assert workers["lower, TTFT", ""] <= min(workers["look-ahead", ""], workers["jsq", "P100"])
        (ahead,) = select(some, policy="look-ahead")
        assert (ahead["attainment_percent"], ahead["preemptions"]) == ("100.000", "0")
    for row in rows:
        if row["policy"].startswith("lower"):
            continue
        assert row["verified"] == "true"
        if row["policy"] in ("aladdin", "fewest"):
            assert row["limits_broken"] == "0"
        if row["target"]:
            assert float(row["attainment_percent"]) >= 100 * TARGETS[row["target"]]


def test_a_quick_study_is_verified_and_writes_everything(tmp_path: Path) -> None:
    command.main(["--quick", "--out", str(tmp_path)])
    tables, settings = read(tmp_path)
    check_fleets(tables["fleets"])
    assert all(row["verified"] == "true" for row in tables["effects"])
    assert all(float(row["place_median_ms"]) > 0 for row in tables["scheduling"])
    written = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert written == page(tables, settings)
    for figure in ("fig11", "fig12", "fig13", "effects"):
        assert f"({figure}.svg)" in written
        assert (tmp_path / f"{figure}.svg").stat().st_size > 5000


def test_the_committed_page_fits_its_tables() -> None:
    tables, settings = read(HERE)
    check_fleets(tables["fleets"])
    assert all(row["verified"] == "true" for row in tables["effects"])
    assert (HERE / "README.md").read_text(encoding="utf-8") == page(tables, settings)


def test_a_committed_workload_is_measured_alike_again() -> None:
    tables, _ = read(HERE)
    for mode in ("mixed", "split"):
        workload = Workload(mode, "13b", 2, 1, command.FULL.seconds)
        expected = select(tables["fleets"], mode=mode, model="13b", rate="2", seed="1", heartbeat_s="1")
        for row in fleet_rows(workload):
            (same,) = select(expected, policy=row["policy"], target=row["target"])
            if row["policy"].startswith("lower"):
                # Bounds may have become better since.
                assert int(row["workers"]) >= int(same["workers"])
            elif row["policy"] != "fewest":
                assert row == same


@pytest.mark.parametrize("start", [1, 4, 30])
def test_a_least_fleet_meets_its_share_and_one_less_does_not(start: int) -> None:
    stream = SMALL.stream()
    for share in TARGETS.values():
        found = Fleets(stream, "jsq", start).least(share)
        assert found is not None
        workers, measured = found
        assert workers > 1
        assert measured.metrics.attainment >= share
        assert run(stream, "jsq", workers).metrics == measured.metrics
        assert run(stream, "jsq", workers - 1).metrics.attainment < share


def test_what_the_verifier_does_not_see_is_no_result() -> None:
    stream = SMALL.stream()
    found = replay(stream, "aladdin")
    metrics = measure_stream(found)
    assert verified(stream, "aladdin", found.worker, metrics).broken == 0
    together = [1] * len(stream.requests)
    with pytest.raises(StudyError, match="something else"):
        verified(stream, "aladdin", together, metrics)
    crowded = measure_stream(replay(stream, "jsq", 1))
    assert verified(stream, "jsq", together, crowded).broken > 0
    with pytest.raises(StudyError, match="heartbeat"):
        verified(stream, "aladdin", together, crowded)


def test_prompts_of_a_heartbeat_need_workers() -> None:
    stream = SMALL.stream()
    bound = lower_ttft(stream)
    worker, most = stream.worker, Fraction(0)
    for members in stream.beats.values():
        most = max(most, sum(worker.prefill_token * stream.requests[k].input_tokens for k in members))
    room = stream.slo.ttft - worker.prefill_overhead
    assert (bound - 1) * room < most <= bound * room


def test_a_saving_leaves_out_where_there_is_no_number() -> None:
    def row(policy: str, seed: int, gpus: str) -> Row:
        keys = {"mode": "mixed", "model": "13b", "rate": "2", "heartbeat_s": "1", "target": ""}
        return keys | {"policy": policy, "seed": str(seed), "gpus": gpus}

    rows = [row("a", 0, "3"), row("b", 0, "4"), row("b", 1, "4"), row("a", 2, "2"), row("b", 2, "")]
    assert Saving(rows, ("a", ""), ("b", "")).cells() == ["25 %", "25 %", "25 %", "1 of 3"]
