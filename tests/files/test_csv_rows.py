"""CSV of this package does nothing in a spreadsheet, and reads back as it was."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.cli.main import cli
from infermax_opt.files.csv_rows import read_rows, rows_text
from tests.support import ROOT

IDS = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "ok;=2", "'=3", "ok"]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1,B1)", "'@SUM(A1,B1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        (" =1", "' =1"),
        ("＝1", "'＝1"),
        ("'=1", "''=1"),
        ("'tis", "'tis"),
        ("-1.5", "-1.5"),
        (-1.5, "-1.5"),
        ("+1e-3", "+1e-3"),
        ("-", "-"),
        ("a=b", "a=b"),
        (None, ""),
        (7, "7"),
    ],
)
def test_cells_are_not_run_and_read_back(value: object, cell: str) -> None:
    text = rows_text(["x", "y"], [[value, 1]])
    _, (written, _) = csv.reader(io.StringIO(text, newline=""))
    assert written == cell
    assert read_rows(text) == [{"x": "" if value is None else str(value), "y": "1"}]


@given(st.lists(st.lists(st.text(alphabet="'=+-@a1,;\"\t\r\n ", max_size=6), min_size=2, max_size=2)))
def test_every_table_reads_back(rows: list[list[str]]) -> None:
    text = rows_text(["=name", "value"], rows)
    assert read_rows(text) == [{"=name": first, "value": second} for first, second in rows]


def test_simulate_writes_harmless_cells(tmp_path: Path) -> None:
    value = json.loads((ROOT / "instances" / "stream-poisson-8.json").read_text())
    value["requests"] = value["requests"][: len(IDS)]
    for request, name in zip(value["requests"], IDS, strict=True):
        request["id"] = name
    stream, table = tmp_path / "stream.json", tmp_path / "x.csv"
    stream.write_text(json.dumps(value))
    done = CliRunner().invoke(cli, ["simulate", str(stream), "-o", str(table)])
    assert done.exit_code == 0, done.output
    text = table.read_text()
    for row in csv.DictReader(io.StringIO(text, newline="")):
        assert row["id"][0] in "'o"
    assert sorted(row["id"] for row in read_rows(text)) == sorted(IDS)
