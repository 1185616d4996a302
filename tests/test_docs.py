"""What the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infermax_opt.core.problem import Problem
from tests.support import ROOT

DOCUMENTS = (
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/checkers.md",
    "docs/ecoserve.md",
    "docs/export.md",
    "docs/files.md",
    "docs/gap.md",
    "docs/iteration.md",
    "docs/mcsf.md",
    "docs/pipelining.md",
    "docs/planner.md",
    "docs/schedulers.md",
    "docs/theory/proofs.md",
    "docs/workers.md",
    "examples/README.md",
)
#: Pages of the site that are written there.
PAGES = tuple(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))
#: What stands in backticks and looks like a path of the checkout.
PATH = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]*)+|[A-Za-z0-9_-]+\.(?:py|toml|md|txt|json)")
#: Files that a reader makes, and files named in the row of their folder.
ELSEWHERE = {
    "certificate.py",
    "command.py",
    "instance.json",
    "result.json",
    "v1.json",
    "chrome_trace.json",
    "per_request_lifecycle_metrics.json",
    "benchmarks.json",
    "closed_form.py",
    "by_name.py",
    "build/docs",
    "my.py",
    "out/tandem",
    ".venv/.installed-dev",
}


def quoted(document: str) -> list[str]:
    """Texts in backticks, blocks of code left out."""
    text = re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    paths = [word for words in quoted(document) for word in words.split() if PATH.fullmatch(word)]
    assert paths or document.startswith("examples")
    assert [path for path in paths if path not in ELSEWHERE and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", sorted({*DOCUMENTS, *PAGES, "CHANGELOG.md", "README.md"}))
def test_links_lead_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / document).read_text())
    base = (ROOT / document).parent
    assert [link for link in links if "://" not in link and not (base / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_readme_names_every_command() -> None:
    from infermax_opt.cli.main import cli

    for document in ("README.md", "docs/reference/commands.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        table = " ".join(line for line in text.splitlines() if line.startswith("|"))
        assert [name for name in cli.commands if not re.search(rf"`{name}\b", table)] == [], document


def test_the_protocol_is_described_whole() -> None:
    """Every public part of the protocol stands in the table of the architecture, and nothing else."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## The protocol")[1].split("What its instances")[0]
    named = {
        word for line in section.splitlines() if line.startswith("|") for word in re.findall(r"`(\w+)`", line)
    }
    parts = {name for name in (*vars(Problem), *Problem.__annotations__) if not name.startswith("_")}
    assert named == parts - {"require_certification"}


def test_commands_of_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for document in DOCUMENTS:
        for words in quoted(document):
            if words.startswith("make ") and not words.startswith("make .venv"):
                assert words.split()[1] in targets, words


def test_quick_files_are_there_once_and_in_order() -> None:
    names = (ROOT / "tests" / "quick.txt").read_text().split()
    assert names == sorted(set(names))
    assert [name for name in names if not Path(ROOT, "tests", name).is_file()] == []


def test_files_that_take_long_are_there_once_and_not_quick() -> None:
    names, quick = ((ROOT / "tests" / f"{some}.txt").read_text().split() for some in ("longest", "quick"))
    assert len(set(names)) == len(names)
    assert [name for name in names if name in quick or not Path(ROOT, "tests", name).is_file()] == []
