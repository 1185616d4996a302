"""Files that are read thousands of rows at a time: as row by row, in what is read and in what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files import rows
from infermax_opt.foreign import aisimulate, llmservingsim, requests, vidur
from infermax_opt.foreign.reading import read_run
from tests.campaign import campaign

#: Rows of a block here.
FEW = 3
#: Seeds, of which each is a file of every format.
SEEDS = campaign(150, 3_000)
#: What may stand where a number is expected.
ODD = (
    None,
    "",
    0,
    "0",
    True,
    -1,
    "1e-3",
    " 1",
    "x",
    [1],
    1.5,
    10**10,
    "9" * 41,
    float("nan"),
    "1.",
    "\u0661",
)


def _spoilt(draw: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    """The row, now and then with another value, or without one."""
    if draw.random() < 0.06:
        key = draw.choice([*row])
        if draw.random() < 0.2:
            del row[key]
        else:
            row[key] = draw.choice(ODD)
    return row


def _times(draw: random.Random) -> tuple[float, float, float]:
    """Arrival, first and last token; these two may be the same, or a rounding the wrong way round."""
    at = round(draw.uniform(1, 9), draw.choice([0, 3, 15]))
    first = round(at + draw.choice([0, 0.25, 1e-7, draw.random()]), 9)
    return at, first, first + draw.choice([0, 2, 3, 4, draw.random(), draw.choice([0, -1e-7, -1e-3])])


def _llmservingsim(draw: random.Random, path: Path) -> None:
    with path.open("w") as file:
        for k in range(draw.randint(1, 10)):
            at, first, last = _times(draw)
            name = draw.choice([k, f"r{k}", "", "7"])
            row = {"request_id": name, "input_toks": draw.randint(0, 9) or 1, "output_toks": 2}
            row |= {"queued_ts": at, "first_token_ts": first, "last_token_ts": last}
            file.write(json.dumps(_spoilt(draw, row)) + "\n")


def _aisimulate(draw: random.Random, path: Path) -> None:
    with path.open("w") as file:
        for k in range(draw.randint(1, 10)):
            at, first, last = _times(draw)
            row = {"session_id": f"s{k}", "input_length": draw.randint(1, 9), "output_length": 2}
            row |= {
                "requested_output_length": draw.choice([2, 3]),
                "reused_input_tokens": draw.choice([0, 1]),
            }
            row |= {"arrival_time_ms": at, "first_token_ms": first, "last_token_ms": last}
            row |= {
                "readmission_count": 0,
                "e2e_latency_ms": last - at + draw.choice([0] * 9 + [1e-3, 0.002]),
            }
            file.write(json.dumps(_spoilt(draw, row)) + "\n")


def _vidur(draw: random.Random, path: Path) -> None:
    with path.open("w") as file:
        file.write(",".join(vidur.COLUMNS) + "\n")
        for k in range(draw.randint(1, 10)):
            at, first, last = _times(draw)
            values = (k, last, first, at if k else "", draw.randint(1, 9), 2, draw.choice([0, 1]))
            row = _spoilt(draw, dict(zip(vidur.COLUMNS, values, strict=True)))
            cells = [str(row.get(name, "")).replace(",", ";") for name in vidur.COLUMNS]
            file.write(",".join(cells + ["more"] * (draw.random() < 0.01)) + "\n")


def _said(path: Path, form: str) -> object:
    """All that is read of a file, or why nothing is."""
    try:
        run = read_run(path, form)
    except InputError as error:
        return str(error)
    return tuple(run.requests), dict(run.left_out), run.remarks


@pytest.mark.parametrize(
    ("form", "write", "owner", "name"),
    [
        ("llmservingsim", _llmservingsim, llmservingsim, "_plain"),
        ("aisimulate", _aisimulate, aisimulate._Reader, "plain"),
        ("vidur", _vidur, vidur._Reader, "plain"),
    ],
    ids=["llmservingsim", "aisimulate", "vidur"],
)
def test_blocks_and_rows_are_read_alike(
    form: str,
    write: Callable[[random.Random, Path], None],
    owner: Any,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether rows are plain, left out or wrong."""
    monkeypatch.setattr(rows, "BLOCK", FEW)
    monkeypatch.setattr(requests, "BLOCK", FEW)
    plain, used, path = getattr(owner, name), 0, tmp_path / "run"
    for seed in SEEDS:
        write(random.Random(seed), path)
        found = _said(path, form)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *rows: None)
            assert _said(path, form) == found, f"seed {seed}"
        with monkeypatch.context() as patch:
            made: list[bool] = []
            patch.setattr(owner, name, lambda *rows, made=made: _noted(made, plain(*rows)))
            _said(path, form)
        used += any(made)
    assert used > len(SEEDS) // 20


def _noted(made: list[bool], found: Any) -> Any:
    """What was found, after it was noted whether there is something."""
    made.append(found is not None)
    return found
