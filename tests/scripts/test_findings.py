"""The study of the paper's findings: its measurements are verified, its page fits its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import infermax_opt as imx
from scripts.findings import __main__ as command
from scripts.findings import measure as measuring
from scripts.findings.cases import COSTS, PAIRS, Case, constrained, equal, mixed
from scripts.findings.claim import Claim, StaleTextError
from scripts.findings.figures import DRAWN, draw
from scripts.findings.measure import CHECKS, Limits, Row, measure
from scripts.findings.page import page
from scripts.findings.studies import STUDIES
from scripts.findings.tables import KEYS, Tables, read_tables
from tests.support import ROOT

HERE = ROOT / "scripts" / "findings"
#: Studies whose cases are small enough to measure again, with the rows that take no search.
SAMPLE = {"fig10": 3, "fig12": 2, "fig15": 2}


@pytest.fixture(scope="module")
def tables() -> Tables:
    return read_tables(HERE / "csv", STUDIES)


def small(cost: str, **rest: object) -> Case:
    names = ("vllm", "sarathi", "sarathi_pc_ef")
    return Case({"cost": cost, "I": "6"}, equal(cost, 5, 6, 7, 40), names, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", sorted(COSTS))
def test_every_row_is_verified_and_its_gap_a_share(cost: str) -> None:
    rows = measure(small(cost, search=False), Limits())
    assert [row["scheduler"] for row in rows] == ["vllm", "sarathi", "sarathi_pc_ef"]
    assert rows == measure(small(cost, search=False), Limits())
    better = measure(small(cost), Limits(0.5, 0.5))
    for row, other in zip(rows, better, strict=True):
        check_row(row)
        check_row(other)
        assert float(other["gap_percent"]) <= float(row["gap_percent"])


def test_solved_rows_are_no_worse_and_variants_have_their_own_bound() -> None:
    keep = {"solve_keep": imx.Policy(chunked_prefill=False, preemption=False)}
    case = Case({"I": "8"}, constrained("paper", 8), ("vllm", "vllm_ef"), solve=True, variants=keep)
    rows = measure(case, Limits(1.0, 1.0))
    by_name = {row["scheduler"]: row for row in rows}
    assert [row["gap_percent"] for row in rows if row["scheduler"].startswith("solve")] == ["0.000"] * 2
    assert float(by_name["solve"]["makespan_s"]) < float(by_name["solve_keep"]["makespan_s"])
    assert int(by_name["solve"]["evictions"]) > int(by_name["solve_keep"]["evictions"]) == 0
    for row in rows:
        check_row(row)


def test_mixes_hold_half_of_each_group_and_are_drawn_alike_every_time() -> None:
    assert len(set(PAIRS)) == 6
    instance = mixed("paper", "SISO+LILO", 64, 10_000, seed=1)
    assert sum(r.input_tokens >= 512 for r in instance.requests) == 32
    assert instance.sha256 == mixed("paper", "SISO+LILO", 64, 10_000, seed=1).sha256
    assert instance.sha256 != mixed("paper", "SISO+LILO", 64, 10_000, seed=2).sha256


def test_a_bound_that_is_too_high_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    true = imx.bound

    def wrong(instance: imx.Instance, **options: object) -> tuple[imx.LowerBound, ...]:
        best = next(
            bound for bound in true(instance, time_limit=0.01) if bound.proof is imx.Proof.CLOSED_FORM
        )
        return (replace(best, value=best.value * 1001 / 1000),)

    monkeypatch.setattr(measuring.imx, "bound", wrong)
    with pytest.raises((measuring.MeasureError, ValueError), match=r"exceeds|the closed form '.*' gives"):
        measure(small("paper"), Limits(1.0, 1.0))


def check_row(row: Row) -> None:
    makespan, lower, gap = (float(row[name]) for name in ("makespan_s", "lower_bound_s", "gap_percent"))
    assert 0 <= gap < 100
    assert gap == pytest.approx(100 * (makespan - lower) / makespan, abs=2e-3)
    assert row["bound_check"] in set(CHECKS.values())
    for name in ("ttft", "tpot"):
        if row[f"{name}_s"]:
            assert float(row[f"{name}_bound_s"]) <= float(row[f"{name}_s"]) * (1 + 1e-5)
        else:
            assert row[f"{name}_bound_s"] == row[f"{name}_gap_percent"] == ""
    if row["scheduler"].endswith("_ef"):
        assert row["evictions"] == "0"
    assert 0 <= float(row["kv_kept_percent"]) <= 100


def test_committed_rows_are_sound(tables: Tables) -> None:
    for rows in tables.studies.values():
        bounds: dict[tuple[str, ...], set[str]] = {}
        for row in rows:
            check_row(row)
            if not row["scheduler"].startswith("solve_"):
                case = tuple(row.get(name, "") for name in KEYS)
                bounds.setdefault(case, set()).add(row["lower_bound_s"])
        assert all(len(values) == 1 for values in bounds.values())


@pytest.mark.parametrize("study", sorted(SAMPLE))
def test_committed_rows_can_be_measured_again(study: str, tables: Tables) -> None:
    plain = ("makespan_s", "tps", "ttft_s", "tpot_s", "evictions", "batch_size", "running", "kv_kept_percent")
    cases = list(STUDIES[study]())[: SAMPLE[study]]
    for case in cases:
        again = measure(Case(case.keys, case.instance, case.schedulers, search=False), Limits())
        for row in again:
            (committed,) = tables.rows(study, **case.keys, scheduler=row["scheduler"])
            assert {name: row[name] for name in plain} == {name: committed[name] for name in plain}


def test_tables_hold_every_case_of_every_study(tables: Tables) -> None:
    for name, study in STUDIES.items():
        cases = list(study())
        expected = {(*case.keys.values(), scheduler) for case in cases for scheduler in case.schedulers}
        solved = {(*case.keys.values(), "solve") for case in cases if case.solve}
        solved |= {(*case.keys.values(), variant) for case in cases for variant in case.variants}
        keys = list(cases[0].keys)
        found = [(*(row[key] for key in keys), row["scheduler"]) for row in tables.studies[name]]
        assert len(found) == len(set(found))
        assert set(found) == expected | solved


def test_the_page_is_what_the_tables_say(tables: Tables) -> None:
    assert (HERE / "README.md").read_text(encoding="utf-8") == page(tables)


def test_words_that_no_longer_hold_are_refused() -> None:
    with pytest.raises(StaleTextError, match="fact 2"):
        Claim("t", "s", "p", [], "agree", "", [True, False])


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command.write(tmp_path / "a" / "table.csv", b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        command.write(tmp_path / "a" / "table.csv", b"new")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["table.csv"]
    assert (tmp_path / "a" / "table.csv").read_bytes() == b"old"


def test_a_picture_is_drawn(tables: Tables) -> None:
    study, picture = DRAWN["fig10"]
    assert draw(picture, tables.studies[study]).startswith(b"\x89PNG")
