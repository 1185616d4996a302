"""There is a notebook for each user; `make docs` runs them, and its check sees what they show."""

from __future__ import annotations

import jupytext

from tests.support import ROOT


def test_there_is_one_for_each_user() -> None:
    paths = (ROOT / "docs" / "notebooks").glob("*.md")
    notebooks = {path.stem: jupytext.read(path, fmt="md:myst") for path in paths}
    assert notebooks.keys() == {"first-five-minutes", "or-researcher", "planner", "scheduler-researcher"}
    for notebook in notebooks.values():
        assert sum(cell.cell_type == "code" for cell in notebook.cells) >= 5
