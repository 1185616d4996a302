"""Tables of makespan instances."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Result, UpperBound
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.infermax.columns import ROW_KIND as INFERMAX
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.columns import ROW_KIND as MAKESPAN
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from infermax_opt.makespan.methods.by_name import METHODS
from infermax_opt.table.archive import Archive
from infermax_opt.table.compute import Job, compute_row
from infermax_opt.table.output import Table, csv_text, markdown_text, table_to_json
from infermax_opt.table.row import SHARED_FIELDS, Row, RowOptions, row_from_json
from infermax_opt.table.run import run_table
from infermax_opt.table.suites import Case, Suite, get_suite

NOISY = gsm8k_like(requests=30, clients=6, error=0.4)


def closed(name: str, requests: int) -> MakespanInstance:
    """Equal requests on as many clients: the bound meets every method, and no engine runs."""
    lengths, level = [(5, 3)] * requests, PrefillLevel(5 * requests, Fraction(1, 2))
    return MakespanInstance.of_requests(name, lengths, requests, [level], ("0.1", "0.01"))


CASES = tuple(Case(f"equal-{n}", lambda n=n: closed(f"equal-{n}", n)) for n in (3, 4, 5))  # type: ignore[misc]


@pytest.fixture
def methods_only(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """`solve` without engines: the bound and one method."""
    seen: list[Any] = []

    def solve(instance: MakespanInstance, *, warm_start: Any, **options: Any) -> Result:
        seen.append(warm_start)
        bound = closed_form_makespan_bounds(instance)[0]
        subject = warm_start if warm_start != "best" else api.schedule(instance, "hybrid")
        check = verify(instance, subject)
        assert check.objective is not None
        result = Result(instance.name, instance.sha256, "makespan", lower=bound, certified=bound)
        upper = UpperBound(check.objective, "method:hybrid")
        return replace(result, upper=upper, schedule=subject, metrics=check.metrics)

    monkeypatch.setattr(api, "solve", solve)
    return seen


def job(folder: Path, instance: MakespanInstance, archive: Path | None = None) -> Job:
    write_instance(instance, folder / f"{instance.name}.json")
    options = RowOptions(3.0, 0, archive is not None)
    return Job("mine", instance.name, str(folder), "1", options, 1, archive and str(archive))


def row_of(folder: Path, instance: MakespanInstance = NOISY, archive: Path | None = None) -> Row:
    row = compute_row(instance, job(folder, instance, archive))
    assert isinstance(row, Row)
    return row


def test_the_suite() -> None:
    cases = get_suite("makespan").cases
    names = [case.name for case in cases]
    assert names[0] == "gsm8k-normal-10x3-s0-e0.2"
    assert len(names) == 24
    sizes = set()
    for case in cases:
        instance = case.build()
        assert isinstance(instance, MakespanInstance)
        assert instance.name == case.name
        sizes.add((len(instance.requests), instance.clients))
    assert sizes == {(10, 3), (15, 4), (100, 20), (1319, 200)}


@pytest.mark.usefixtures("methods_only")
def test_a_row(tmp_path: Path) -> None:
    row = row_of(tmp_path)
    assert (row.requests, row.own["clients"]) == (30, 6)
    assert row.own["output_tokens"] == sum(r.output_tokens for r in NOISY.requests)
    assert list(row.schedulers) == list(METHODS)
    assert row.upper_bound == min(value for value in row.schedulers.values() if value is not None)
    assert row.lower_bound == row.own["closed_form"] == closed_form_makespan_bounds(NOISY)[0].value
    assert (row.bound, row.proof, row.bound_check) == ("arc lengths", "closed-form", "recomputed")
    assert (row.verified, row.certified) == (True, True)
    assert row_from_json(json.loads(json.dumps(row.to_json()))) == row
    claim = read_schedule_or_claim(tmp_path / row.result)
    check = verify(NOISY, claim)
    assert check.ok
    assert check.metrics is not None
    assert (check.metrics.bins, check.metrics.rounds) == (row.own["bins"], row.own["rounds"])
    assert abs(check.metrics.utilisation - (row.own["utilisation"] or 0)) < Fraction(1, 10**20)


@pytest.mark.usefixtures("methods_only")
def test_texts(tmp_path: Path) -> None:
    row = row_of(tmp_path)
    table = Table("makespan", RowOptions(), "0.1.0", (row,), 24)
    (cells,) = csv.DictReader(io.StringIO(csv_text(table)))
    assert (cells["requests"], cells["clients"], cells["proof"]) == ("30", "6", "closed-form")
    assert [name for name in cells if name.endswith("_gap_percent")] == [
        f"{name}_gap_percent" for name in METHODS
    ]
    assert float(cells["hybrid_gap_percent"]) >= float(cells["gap_percent"]) > 0
    assert 0 < float(cells["utilisation_percent"]) < 100
    assert not {"B", "M", "evictions"} & cells.keys()
    text = markdown_text(table)
    assert (
        "| instance | requests | clients | schedule, s | lower bound, s | gap, % | bound | proof "
        "| closed form, s | found by | bins | rounds | utilisation, % | time, s "
        "| fcfs, % | offline, % | online, % | hybrid, % |"
    ) in text
    assert "rows: 1 of 24" in text
    value = table_to_json(table)
    assert value["rows"][0]["schedulers"].keys() == set(METHODS)
    empty = replace(
        row, upper_bound=None, lower_bound=None, seconds=None, schedulers=dict.fromkeys(METHODS),
        own={**row.own, "closed_form": None, "bins": None, "utilisation": None},
    )  # fmt: skip
    text = markdown_text(Table("makespan", RowOptions(), "0.1.0", (empty,), 24))
    assert "| - | - | - | arc lengths | closed-form | - |" in text
    assert "| - | - | - | - |\n" in text
    assert row_from_json(json.loads(json.dumps(empty.to_json()))) == empty


def test_a_solvers_bound_stays_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else proves optima of makespan instances; the closed form stands beside it."""
    best = closed_form_makespan_bounds(NOISY)[0]
    word = LowerBound(best.value + Fraction(1, 10), "exact", Proof.SOLVER)

    def solve(instance: MakespanInstance, **options: Any) -> Result:
        return Result(instance.name, instance.sha256, "makespan", lower=word, certified=best)

    monkeypatch.setattr(api, "solve", solve)
    row = row_of(tmp_path)
    assert (row.lower_bound, row.own["closed_form"], row.proof) == (word.value, best.value, "solver")
    assert row.bound_check is not None
    assert row.bound_check.startswith("not checked: proved by a solver; ")
    assert not row.verified
    monkeypatch.setattr(
        api, "solve", lambda i, **o: replace(solve(i), lower=replace(word, value=Fraction(1000)))
    )
    with pytest.raises(ValueError, match="exceeds upper bound"):
        row_of(tmp_path)


def test_rows_start_from_the_archive(tmp_path: Path, methods_only: list[Any]) -> None:
    row = row_of(tmp_path)
    archive = Archive(tmp_path / "best", "mine")
    claim = read_schedule_or_claim(tmp_path / row.result)
    assert archive.improve(NOISY, claim, source="test", versions={}) == ("upper", "lower")  # type: ignore[arg-type]
    kept = archive.schedule(NOISY)
    assert kept is not None
    assert verify(NOISY, kept).objective == row.upper_bound
    # No better than a method: then that is where the row starts.
    assert row_of(tmp_path, archive=archive.directory).best_known
    assert methods_only == ["best", "best"]


def test_a_table_by_workers(tmp_path: Path) -> None:
    table = run_table(Suite("mine", CASES), tmp_path, time_limit=5, jobs=1, best_known=tmp_path / "best")
    assert table.failures == {}
    assert [row.instance for row in table.rows] == ["equal-3", "equal-4", "equal-5"]
    assert all(isinstance(row, Row) and row.gap == 0 and row.verified for row in table.rows)
    assert set(Archive(tmp_path / "best", "mine").entries()) == {"equal-3", "equal-4", "equal-5"}
    again = run_table(Suite("mine", CASES), tmp_path, time_limit=5, jobs=1, best_known=tmp_path / "best")
    assert (again.computed, again.rows) == (0, table.rows)
    row = table.rows[0]
    files = (tmp_path / "instances" / f"{row.instance}.json", tmp_path / row.result)
    done = CliRunner().invoke(cli, ["verify", *map(str, files)])
    assert done.exit_code == 0, done.output
    assert isinstance(read_instance(files[0]), MakespanInstance)


def test_rows_of_each_problem_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="schema"):
        Row.from_json(
            {"schema": MAKESPAN.schema, **dict.fromkeys([*SHARED_FIELDS, *INFERMAX.fields])}, INFERMAX
        )
    with pytest.raises(InputError, match="status: is missing"):
        row_from_json({"schema": MAKESPAN.schema, "suite": "x", "instance": "x", "requests": 1,
                       "instance_sha256": "x", "protocol": "x"})  # fmt: skip
