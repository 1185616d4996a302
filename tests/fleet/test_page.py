"""The page of a plan: the answer, the numbers of the JSON, nothing from the network."""

from __future__ import annotations

import json
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.files.page import cell
from infermax_opt.fleet.checker.certificate import least_apart, least_price, machine_seconds
from infermax_opt.fleet.figures import bounds, least, share
from infermax_opt.fleet.page import plan_page
from infermax_opt.fleet.page_words import answer, at_reference, enough_apart, price
from tests.accessible import check_page

PROFILE = "llama-3.1-8b_h100"
#: Elements that have no end.
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Tables by caption, addresses, headings; raises where elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.seen: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.seen.append(tag)
        self.addresses += [str(known[name]) for name in ("src", "href") if name in known]
        if tag == "svg":
            self.pictures.append(known)
        if tag == "caption":
            self.rows: list[list[str]] = []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "caption" in self.open and "table" in self.open:
            self.tables[data] = self.rows
        elif self.open and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a plan of two types at two rates, with all that may be asked for."""
    made = tmp_path_factory.mktemp("plan")
    with pytest.MonkeyPatch.context() as there:
        there.chdir(made)
        write_plan()
    return made


@pytest.fixture
def plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The plan, in its folder."""
    monkeypatch.chdir(folder)
    return dict(json.loads(Path("report.json").read_text()))


def write_plan() -> None:
    rows = [f"{k / 10},{4000 + 13 * k % 900},{5 + k % 7}" for k in range(60)]
    Path("a&b.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")
    Path("prices.csv").write_text(f"machine,price_per_hour\n{PROFILE},4\nllama-2-7b_a100,1\n")
    asked = (
        f"plan a&b.csv --format vidur --machines {PROFILE},llama-2-7b_a100 --rates 1,4 --ttft 0.6 --tpot 0.1 "
        "--prices prices.csv --fleet 2 --mix --start-up 1 --windows 3 --schedulers sarathi "
        "--split 1e5/1e10 --decode-machine llama-2-7b_a100 "
        "--certificates proofs -o report.html"
    )
    done = CliRunner().invoke(cli, asked.split())
    assert done.exit_code == 0, done.output
    assert "wrote report.html\nwrote report.json\nwrote report.csv" in done.output


def test_page_of_a_plan(plan: dict[str, Any]) -> None:
    text = Path("report.html").read_text()
    assert len(text) < 5_000_000
    found = Reader(text)
    assert check_page(text) == []
    assert "http:" not in text
    assert "https:" not in text
    assert "a&amp;b.csv" in text
    assert {"script", "img", "link", "iframe"}.isdisjoint(found.seen)
    assert found.seen.count("h1") == 1
    assert 'lang="en"' in text
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in found.pictures)
    assert found.seen.count("figure") == len(found.pictures) == found.seen.count("figcaption")
    for address in found.addresses:
        assert Path(address).exists()
    # A row has a proof, and one of each pool.
    assert len(found.addresses) == 2 + 3 * len(plan["rows"])
    assert [kind["machine"] for kind in plan["machines"]] == [PROFILE, "llama-2-7b_a100"]
    # Tables hold the numbers of the JSON.
    head, *lines = found.tables["All rows"]
    for row, line in zip(plan["rows"], lines, strict=True):
        assert line == [cell(row[name]) for name in head]
    for name in (PROFILE, "llama-2-7b_a100"):
        some = [row for row in plan["rows"] if row["machine"] == name]
        assert found.tables[f"{name}: machines over the rate"][1:] == [
            [cell(row[key]) for key in ("rate", "lower", "upper")] for row in some
        ]
    costs = found.tables["Price of a million output tokens, by type and rate"][1:]
    assert [line[2] for line in costs] == [cell(row["cost_per_million_upper"]) for row in plan["rows"]]
    for mix, line in zip(
        plan["mixes"], found.tables["Price of an hour of the cheapest mix"][1:], strict=True
    ):
        low, high = mix["price_per_hour_lower"], mix["price_per_hour_upper"]
        assert line[:3] == [cell(mix["rate"]), cell(low), cell(high)]
        assert (
            0
            < low
            <= high
            == sum(
                count * {PROFILE: 4, "llama-2-7b_a100": 1}[name] for name, count in mix["machines"].items()
            )
        )
        proof = json.loads(Path("proofs", f"mix-rate{mix['rate']:g}.json").read_text())
        assert least_price(proof) == low
    check_pools(plan, found)
    assert "Machine-hours, by type and rate" in found.tables
    for row in plan["rows"]:
        lines = found.tables[f"{row['machine']} at rate {row['rate']:g}: machines by window"][1:]
        assert [line[4:] for line in lines] == [[cell(w["lower"]), cell(w["upper"])] for w in row["windows"]]
        assert 0 < row["windows_hours_lower"] <= row["windows_hours_upper"]
        proof = json.loads(Path("proofs", f"{row['machine']}-rate{row['rate']:g}-hours.json").read_text())
        assert float(machine_seconds(proof)) / 3600 == pytest.approx(row["windows_hours_lower"], rel=1e-5)


def check_pools(plan: dict[str, Any], found: Reader) -> None:
    """Prefill and decode apart, on the page and in their proofs."""
    assert plan["split"] == {"transfer_seconds_per_token": 1e-5, "decode_machine": "llama-2-7b_a100"}
    for row in plan["rows"]:
        name = f"{row['machine']} to prefill, llama-2-7b_a100 to decode, at rate {row['rate']:g}"
        lines = found.tables[name][1:]
        keys = ("split_prefill", "split_decode", "split")
        for line, key in zip(lines, keys, strict=False):
            low, high = row[f"{key}_lower"], row[f"{key}_upper"]
            assert line[1:] == [cell(low), cell(high)]
            assert 0 < low <= high
        for side in ("prefill", "decode"):
            proof = json.loads(
                Path("proofs", f"{row['machine']}-rate{row['rate']:g}-{side}.json").read_text()
            )
            assert least_apart(proof) == row[f"split_{side}_lower"]
            assert proof["question"] == row["split_question_sha256"]
            assert not row["split_never"]
            assert (
                row[f"split_{side}_upper"]
                == min(
                    row["split_tried"],
                    key=lambda one: one["prefill"] * row["price_per_hour"] + one["decode"],
                )[side]
            )
        assert row["split_cost_per_million_lower"] <= row["split_cost_per_million_upper"]


def test_answer_in_a_sentence(plan: dict[str, Any]) -> None:
    first = min(
        (row for row in plan["rows"] if row["rate"] == 1), key=lambda row: row["cost_per_million_upper"]
    )
    said = answer(plan)
    assert said.startswith("To keep TTFT 0.6 s and TPOT 0.1 s for 99 % of the 60 requests at rate 1, ")
    assert f"{first['upper']} x {first['machine']}" in said
    for row in plan["rows"]:
        row.update(lower=None, upper=None, status="infeasible", cost_per_million_upper=None)
        row.update(cost_per_million_lower=None, policy=None, attained=[], impossible=["request '<b>' never"])
    assert "; pools apart may." in answer(plan)
    for row in plan["rows"]:
        row.update(split_lower=None, split_upper=None, split_never=True)
    assert answer(plan).startswith("No number of machines keeps TTFT")
    bare = plan_page(plan)
    Reader(bare)
    assert "&lt;b&gt;" in bare
    for row in plan["rows"]:
        row.update(lower=2, status="bound-only", certificate=None)
    assert "takes at least 2 x" in answer(plan)
    Reader(plan_page(plan))


def test_the_cheapest_comes_first_even_if_all_arrive_at_once() -> None:
    rows = [
        {
            "machine": name, "rate": 1.0, "requests": 1, "lower": lower, "upper": upper,
            "price_per_hour": each, "cost_per_million_lower": None, "cost_per_million_upper": None,
            "predict_error": None,
            "cost_factor": 1.0, "overhead": 0.0, "left_out": 0,
        }
        for name, lower, upper, each in (
            ("none", None, None, 1), ("open", 2, None, 1), ("many", 3, 3, 2), ("dear", 1, 1, 5)
        )
    ]  # fmt: skip
    assert [row["machine"] for row in at_reference(rows)] == ["dear", "many", "open", "none"]
    told = answer({"rows": rows, "slo": {"ttft": 1}, "share": 1})
    assert told == "To keep TTFT 1 s for 100 % of the request at rate 1, 1 x dear is enough."
    for row in rows:
        row["price_per_hour"] = None
    assert [row["machine"] for row in at_reference(rows)] == ["dear", "many", "open", "none"]


def test_files_beside_a_page_are_no_inputs(plan: dict[str, Any]) -> None:
    Path("trace.csv").write_text(Path("a&b.csv").read_text())
    asked = f"plan trace.csv --format vidur --machines {PROFILE} --ttft 1 -o trace.html"
    done = CliRunner().invoke(cli, asked.split())
    assert done.exit_code == 2
    assert "trace.csv: is an input of this command" in done.stderr


def test_who_holds_less_of_the_trace_comes_last_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head = "arrived_at,num_prefill_tokens,num_decode_tokens"
    Path("t.csv").write_text("\n".join([head, "0,9,2", "1,90,2", "2,9,0", "3,9,3", ""]))
    for name, capacity in (("small", 50), ("large", 500)):
        cost = {"batch": [["0.01", "0"]], "decode": ["0", "0"], "prefill": ["0", "0"], "attention": "square"}
        Path(f"{name}.json").write_text(json.dumps({"name": name, "kv_capacity": capacity, "cost": cost}))
    asked = "plan t.csv --format vidur --machines small.json,large.json --ttft 1 --skip-unfit -o u.html"
    done = CliRunner().invoke(cli, asked.split())
    assert done.exit_code == 0, done.output
    assert "t.csv: left out 1 request: no output tokens" in done.stderr
    assert "small at rate 1: without 1 request of the trace, as it does not fit" in done.output
    page, value = Path("u.html").read_text(), json.loads(Path("u.json").read_text())
    assert value["trace_left_out"] == {"no output tokens": 1}
    assert "99 % of the 3 requests at rate 1, 1 x large is enough" in page
    assert "1 x small is enough without 1 request of the trace, which it cannot hold" in page
    assert "3 requests of t.csv" in page


def test_answers_where_one_pool_is_not_enough() -> None:
    row: dict[str, Any] = {
        "machine": "slow", "type": "slow", "rate": 1.0, "requests": 30, "lower": None, "upper": None,
        "price_per_hour": None, "split_lower": None, "split_never": True, "predict_error": None,
        "cost_factor": 1.0, "overhead": 0.0, "left_out": 0,
    }  # fmt: skip
    plan: dict[str, Any] = {"rows": [row], "slo": {"ttft": 1}, "share": 1}
    assert answer(plan).startswith("No number of machines keeps")
    assert enough_apart(row) == "slow, prefill and decode apart: no number of machines is enough."
    row["split_lower"] = 2
    assert answer(plan).endswith("pools apart may.")
    other = {**row, "machine": "fast", "lower": 1, "split_lower": None}
    plan["rows"] = [{**row, "split_lower": None}, other]
    assert answer(plan).endswith("takes at least 1 x fast.")


def test_bounds_that_meet_are_one_number_and_others_are_rounded_down() -> None:
    assert bounds(Fraction("1.13576"), Fraction("1.13576")) == "1.136"
    assert bounds(0.212955, 0.319433) == "0.2129 to 0.3194"
    assert bounds(Fraction(3600), None, 3600) == "1 to -"
    assert least(Fraction(2, 3), Fraction(2, 3)) == 0.666667
    assert least(Fraction(2, 3), Fraction(1)) == 0.666666
    assert [share(Fraction(99, 100)), share(0.999999), share(1)] == ["99 %", "99.9999 %", "100 %"]
    row = {"cost_per_million_lower": 0.212955, "cost_per_million_upper": 0.319433}
    assert price(row) == ", at 0.2129 to 0.3194 for a million output tokens"
