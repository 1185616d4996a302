"""The two tools that check the documentation find what is wrong."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

SCRIPTS = ROOT / "scripts"


def run_blocks(page: Path) -> subprocess.CompletedProcess[str]:
    """Run the blocks of a page in its own folder."""
    command = [sys.executable, str(SCRIPTS / "run_blocks.py"), "--here", str(page)]
    return subprocess.run(command, cwd=page.parent, capture_output=True, text=True, check=False)


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text.replace("'''", "```"), encoding="utf-8")
    return path


def test_blocks_run_in_order_and_share_a_folder(tmp_path: Path) -> None:
    done = run_blocks(
        page(
            tmp_path,
            "# Title\n\n'''python\n# mine.py\nx = 3\n'''\n\n'''sh\necho 4 > four\ntest -e mine.py\n'''\n\n"
            "'''python\nassert x + int(open('four').read()) == 7\n'''\n\n'''console\nfalse\n'''\n",
        )
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\n\n'''sh\ntrue\nfalse\n'''\n", 5),
        ("'''sh\nfalse\n'''\n", 2),
        ("one\n'''python\nx = 1\n\nassert x == 2\n'''\n", 5),
        ("'''python\nprint(\n'''\n", 2),
        ("'''sh\ntrue\n'''\n\n'''sh\necho $missing_name\n'''\n", 6),
    ],
)
def test_a_failure_names_its_line(tmp_path: Path, text: str, line: int) -> None:
    path = page(tmp_path, text)
    done = run_blocks(path)
    assert done.returncode == 1
    assert f"{path}:{line}:" in done.stdout or f"line {line}" in done.stdout + done.stderr


def test_all_pages_with_code_are_run() -> None:
    names = runpy.run_path(str(SCRIPTS / "run_blocks.py"))
    found = {str(path.relative_to(ROOT)) for path in names["pages"]()}
    assert {"README.md", "docs/start.md", "docs/schedulers.md", "docs/tutorials/planner.md"} <= found


FUNCTION = (
    '<dl class="py function"><dt>f(<em class="sig-param"><i>k</i>TYPE</em>, '
    '<em class="sig-param">*</em>)</dt></dl>'
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="b.html#here">b</a><a href="https://elsewhere.org/">x</a>', ""),
        ('<a href="c.html">c</a>', "c.html does not exist"),
        ('<a href="b.html#there">b</a>', "b.html#there has no such place"),
        ('<a href="#there">b</a>', "#there has no such place"),
        ('<script src="https://cdn.org/x.js"></script>', "loads https://cdn.org/x.js"),
        ('<link rel="stylesheet" href="//fonts.org/x.css">', "loads //fonts.org/x.css"),
        ('<img src="b.html" alt="Gaps by rate">', ""),
        ('<img src="b.html" alt="effects">', "the picture b.html does not say what it shows"),
        ('<img src="b.html">', "the picture b.html does not say what it shows"),
        (FUNCTION.replace("TYPE", ": <a>int</a>"), ""),
        (FUNCTION.replace("TYPE", ""), "the parameter k has no type"),
        (FUNCTION.replace("TYPE", "").replace("function", "class"), ""),
    ],
)
def test_the_site_check_finds(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="here">b</p>', encoding="utf-8")
    (tmp_path / "x.css").write_text("body { color: red }", encoding="utf-8")
    found = runpy.run_path(str(SCRIPTS / "check_site.py"))["faults"](tmp_path)
    assert found == ([f"index.html: {said}"] if said else [])


def test_the_site_check_reads_styles(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("", encoding="utf-8")
    (tmp_path / "x.css").write_text("@import url('https://fonts.org/x.css');", encoding="utf-8")
    assert runpy.run_path(str(SCRIPTS / "check_site.py"))["faults"](tmp_path) == [
        "x.css: loads from elsewhere"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<img src="../_images/1.png" alt="Gaps by rate"><table></table>', []),
        ('<img src="../_static/logo.png" alt="Gaps by rate"><table></table>', ["draws 1, shows 0 pictures"]),
        ('<img src="../_images/1.png" alt="Gaps by rate">', ["no table shows itself"]),
    ],
)
def test_the_site_check_sees_what_notebooks_show(tmp_path: Path, text: str, said: list[str]) -> None:
    folders = notebooks, site = tmp_path / "notebooks", tmp_path / "site" / "notebooks"
    for folder in folders:
        folder.mkdir(parents=True)
    source = notebooks / "planner.md"
    source.write_text("```{code-cell}\nresult.plot_workers()\n```\n", encoding="utf-8")
    (site / "planner.html").write_text(text, encoding="utf-8")
    silent = runpy.run_path(str(SCRIPTS / "check_site.py"))["silent"]
    assert silent(site.parent, notebooks) == [f"{source}: {line}" for line in said]
    (notebooks / "left.csv").touch()
    assert f"{notebooks / 'left.csv'}: left behind by a notebook" in silent(site.parent, notebooks)


def test_cells_of_the_archive_show_no_bound_above_what_it_is() -> None:
    pytest.importorskip("sphinx")
    short = runpy.run_path(str(ROOT / "docs" / "_ext" / "site_tables.py"))["short"]
    row = {"lower_bound_s": "0.66666666", "upper_bound_s": "0.88888888", "gap_percent": "25.0000011"}
    assert [short(row, name) for name in row] == ["0.666666", "0.888889", "25.0001"]
    met = {"lower_bound_s": "0.66666666", "upper_bound_s": "0.66666666", "gap_percent": "0"}
    assert [short(met, name) for name in met] == ["0.666667", "0.666667", "0"]
    assert short({"bound": "state flow", "lower_bound_s": ""}, "lower_bound_s") == ""
