"""Pages of results, scores and tables: the numbers of their files, rules of accessibility, wrong files."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infermax_opt.cli.main import cli
from infermax_opt.files.page import CSS, cell, figure, page, section, table
from tests.accessible import ON, check_page, contrast, palettes


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(cli, arguments)
    assert "Traceback" not in done.output
    return done


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result with a certificate, a bound, scores of two runs, and a table."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as there:
        there.chdir(folder)
        for line in (
            "instance toy -o toy.json",
            "solve toy.json --time-limit 2 -o result.json",
            "bound toy.json --time-limit 1 -o bound.json",
            "schedule toy.json --scheduler sarathi -o sarathi.json",
            "gap toy.json sarathi.json result.json --metric makespan --metric mean_e2e --time-limit 1 "
            "--explain -o gap.json",
            "table paper-csp --only *-i64-* --time-limit 0.5 --jobs 1 -o table",
        ):
            done = run(*line.split())
            assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def reported(source: str) -> str:
    done = run("report", source, "-o", "page.html")
    assert (done.exit_code, done.output) == (0, "wrote page.html\n")
    text = Path("page.html").read_text()
    assert check_page(text) == []
    assert len(text) < 5_000_000
    # Nothing is loaded.
    assert not re.findall(r"https?:|<script|<img|<link|@import|url\(", text)
    # Behind each chart stands its table.
    assert text.count("<figure>") == text.count("<svg") == text.count("<summary>Table:")
    return text


def test_page_of_a_result(here: Path) -> None:
    text, claim = reported("result.json"), json.loads(Path("result.json").read_text())
    assert "A schedule of toy reaches 0.0524568 s of makespan, and none does better." in text
    assert claim["instance_sha256"] in text
    for name, value in claim["metrics"].items():
        assert (f">{name}<" in text) == (value is not None), name
    assert "No schedule of toy has less than" in reported("bound.json")


def test_page_of_scores(here: Path) -> None:
    text, value = reported("gap.json"), json.loads(Path("gap.json").read_text())
    (group,) = value["instances"]
    assert group["units"]["makespan"] == "s"
    for run_ in group["runs"]:
        assert f"{run_['file']}, on toy, is at most so far from optimal:" in text
        for metric in group["lower_bounds"]:
            assert f"toy: {metric}" in text
            assert f">{cell(float(run_['metrics'][metric]['value']))}<" in text
    assert "mean_e2e, s" in text


def test_page_of_a_table(here: Path) -> None:
    text, value = reported("table"), json.loads(Path("table/table.json").read_text())
    assert f"Of {len(value['rows'])} rows of paper-csp" in text
    for row in value["rows"]:
        assert f">{row['instance']}<" in text
        for name, reached in row["schedulers"].items():
            assert reached["gap"] is None or f">{name}<" in text
    many = {**value, "rows": [{**value["rows"][0], "instance": f"row{k}"} for k in range(40)]}
    Path("many.json").write_text(json.dumps(many))
    assert "Gap of rows, the smallest first" in reported("many.json")
    assert reported("table/table.json") == reported("table")


def test_what_a_file_says_is_text(here: Path) -> None:
    value = json.loads(Path("gap.json").read_text())
    value["instances"][0]["instance"] = "<script>alert(1)</script>"
    value["instances"][0]["runs"][0]["remarks"] = ["</p><b>"]
    value["instances"][0]["runs"][1]["faster_than_bound"] = ["makespan"]
    Path("odd.json").write_text(json.dumps(value))
    text = reported("odd.json")
    assert "&lt;script&gt;" in text
    assert "the cost model must be wrong" in text


WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    ("gap.json", lambda v: v.update(instances=[]), "instances"),
    ("gap.json", lambda v: v.update(schema="x"), "schema"),
    ("gap.json", lambda v: v.update(schema="infermax-opt/plan/1"), "plan"),
    ("gap.json", lambda v: v["instances"][0].pop("runs"), "instances[0].runs"),
    ("gap.json", lambda v: v["instances"][0].update(runs=[1]), "instances[0].runs[0]"),
    ("gap.json", lambda v: v["instances"][0]["lower_bounds"]["makespan"].update(proof="faith"), "proof"),
    ("gap.json", lambda v: v["instances"][0]["lower_bounds"]["makespan"].update(value="x"), "value"),
    ("gap.json", lambda v: v["instances"][0]["runs"][0]["metrics"]["makespan"].update(gap=[]), "gap"),
    ("table/table.json", lambda v: v.update(rows=[]), "rows"),
    ("table/table.json", lambda v: v["rows"][0].pop("gap"), "rows[0].gap"),
    ("table/table.json", lambda v: v["rows"][0].update(schedulers=3), "rows[0].schedulers"),
    ("table/table.json", lambda v: v.update(options=3), "options"),
    ("result.json", lambda v: v.update(status="fine"), "status"),
    ("result.json", lambda v: v.update(upper_bound="x"), "upper_bound"),
]


@pytest.mark.parametrize(("source", "change", "said"), WRONG)
def test_wrong_files(here: Path, source: str, change: Callable[[Any], Any], said: str) -> None:
    value = copy.deepcopy(json.loads(Path(source).read_text()))
    change(value)
    Path("wrong.json").write_text(json.dumps(value))
    done = run("report", "wrong.json", "-o", "no.html")
    assert done.exit_code == 2
    assert done.stderr.startswith("infermax-opt: wrong.json: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("no.html").exists()


def test_what_is_no_file(here: Path) -> None:
    for name in ("nothing.json", "."):
        done = run("report", name, "-o", "no.html")
        assert done.exit_code == 2
        assert "is no file" in done.stderr
    before = Path("gap.json").read_text()
    assert run("report", "gap.json", "-o", "gap.json").exit_code == 2
    assert Path("gap.json").read_text() == before


def test_the_rules_of_accessibility_see_what_is_wrong() -> None:
    good = page("A title", section("One", figure("f", '<svg role="img" aria-label="x"><title>x</title></svg>',
                table("t", ("a", "b"), [[1, 2]]))))  # fmt: skip
    assert check_page(good) == []
    for old, new in (
        (' lang="en"', ""),
        ("<title>A title</title>", "<title></title>"),
        ("<h1>A title</h1>", ""),
        ("<h2>One</h2>", "<h3>One</h3>"),
        ("<h2>One</h2>", "<h1>One</h1>"),
        ("<caption>t</caption>", ""),
        (' scope="col"', ""),
        (' role="img"', ""),
        ("<title>x</title></svg>", "</svg>"),
        ('tabindex="0"', 'tabindex="1"'),
        (' aria-label="t"', ""),
        ("<h2>One", '<input id="q"><h2>One'),
        ("<h2>One", '<img src="x"><h2>One'),
        ("<h2>One", '<a href="x"></a><h2>One'),
        ("<h2>One", '<b id="q"></b><b id="q"></b><h2>One'),
        ("<h2>One", "<b><h2>One"),
        ("<main>", "<div>"),
        ("--soft: #555", "--soft: #999"),
        ("--text: #ececec", "--text: #555"),
    ):
        assert old in good
        assert check_page(good.replace(old, new, 1)), (old, new)


def test_contrast_of_the_palette() -> None:
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)
    light, dark, printed = palettes(CSS)
    for mode in (light, dark, printed):
        assert all(contrast(mode[front], mode[ground]) >= least for front, ground, least in ON)
