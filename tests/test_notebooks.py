"""The notebooks run from top to bottom, each in a kernel of its own."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbclient
import pytest

from tests.support import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.md"))
#: Most seconds of one cell.
LIMIT = 120


def test_there_is_one_for_each_user() -> None:
    users = {"first-five-minutes", "or-researcher", "planner", "scheduler-researcher"}
    assert {path.stem for path in NOTEBOOKS} == users


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = jupytext.read(path, fmt="md:myst")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) >= 5
    client = nbclient.NotebookClient(
        notebook, timeout=LIMIT, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [data for cell in cells for out in cell.outputs for data in out.get("data", {})]
    pictures = [cell for cell in cells if ".plot_" in cell.source]
    assert shown.count("image/png") == len(pictures) > 0, "a picture does not show itself"
    assert "text/html" in shown, "no table shows itself"
    assert not [out for cell in cells for out in cell.outputs if out.get("name") == "stderr"]
    assert list(tmp_path.iterdir()) == [], "a notebook leaves files behind"
