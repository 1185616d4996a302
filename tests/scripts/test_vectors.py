"""The script of the test vectors: its faults are those of the files, and it leaves other folders alone."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scripts.vectors import fleet
from scripts.vectors.__main__ import main, signed
from scripts.vectors.accepted import UNSERVED, optional, proved, written
from scripts.vectors.faults import OF_ENVELOPE, changed, of_claim
from tests.support import ROOT

FOLDER = ROOT / "instances" / "vectors"


def read(path: Path) -> Any:
    packed = path.with_name(f"{path.name}.gz")
    return json.loads(gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_text())


def test_faults_are_those_of_the_files() -> None:
    folders = [path for path in (FOLDER / "rejected").iterdir() if path.is_dir()]
    folders = [path for path in folders if not path.name.startswith("fleet-")]
    assert len(folders) >= 30
    for folder in folders:
        accepted = read(FOLDER / "accepted" / f"{folder.name}.json")
        assert signed(accepted) == accepted
        more = of_claim(accepted).certificate
        assert read(folder / "claim-raised-by-a-hair.json") == signed(more)
        for name, _, path, new in OF_ENVELOPE:
            if (folder / f"{name}.json").exists():
                assert read(folder / f"{name}.json") == signed(changed(accepted, path, new))


@pytest.mark.parametrize("outcome", ["accepted", "rejected"])
def test_files_of_fleets_are_those_that_the_script_makes(outcome: str) -> None:
    made = {vector.name: vector.certificate for vector in getattr(fleet, outcome)()}
    folder = FOLDER / outcome
    paths = [path for path in folder.rglob("*.json.gz") if "fleet-" in str(path.relative_to(folder))]
    names = [str(path.relative_to(folder)).removeprefix("fleet-").removesuffix(".json.gz") for path in paths]
    assert set(names) == set(made)
    for name, certificate in made.items():
        assert read(folder / f"fleet-{name}.json") == certificate, name


def test_evidence_that_is_at_hand_is_the_one_of_the_file() -> None:
    of = optional("unserved")
    assert proved(of, UNSERVED) == 1
    made = written(of, "unserved", UNSERVED).certificate
    assert json.loads(json.dumps(made)) == read(
        FOLDER / "accepted" / "infermax-optional-unserved-unserved.json"
    )


def test_it_removes_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.setattr("sys.argv", ["vectors", "--into", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "holds other files" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "mine"
