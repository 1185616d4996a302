"""The lock that keeps runs apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.lock import locked

COUNT = """
import sys
from pathlib import Path
from infermax_opt.files.lock import locked
folder = Path(sys.argv[1])
for _ in range(20):
    with locked(folder / ".lock", wait=True):
        number = int((folder / "number").read_text())
        (folder / "number").write_text("")
        (folder / "number").write_text(str(number + 1))
"""


def test_nobody_else_holds_a_lock_that_comes_and_goes(tmp_path: Path) -> None:
    """A holder removes the file that others wait for, and a new one takes its name."""
    (tmp_path / "number").write_text("0")
    runs = [subprocess.Popen([sys.executable, "-c", COUNT, tmp_path]) for _ in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "60"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


@pytest.mark.parametrize("wait", [False, True])
def test_a_lock_that_cannot_be_written(tmp_path: Path, wait: bool) -> None:
    for path in (tmp_path, tmp_path / "file" / ".lock"):
        (tmp_path / "file").touch()
        with pytest.raises(InputError, match="cannot be written: ") as caught, locked(path, wait=wait):
            pass
        assert str(caught.value).startswith(f"{path}: ")
        assert len(str(caught.value).splitlines()) == 1


def test_a_file_left_behind_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text("not a number")
    with locked(path, wait=False):
        path.write_text("not a number")
        with pytest.raises(InputError, match=r"is in use by another run$"), locked(path, wait=False):
            pass
    assert not path.exists()
