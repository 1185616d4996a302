"""What `sweep` and `write_plan` make from Python is what the command `plan` does."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

import infermax_opt
from infermax_opt.cli.main import cli
from infermax_opt.files.traces import Trace

LINES = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,512,64\n0.1,2048,32\n0.2,300,80\n"
PROFILE = "llama-3.1-8b_h100"
Planned = tuple[infermax_opt.Plan, infermax_opt.PlanOptions, Trace]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(LINES)
    trace, load = infermax_opt.read_trace("t.csv", "vidur"), infermax_opt.load_profile(PROFILE)
    kind = infermax_opt.MachineType(PROFILE, infermax_opt.System(load.capacity, 4096, 4096), load.cost)
    options = infermax_opt.PlanOptions(infermax_opt.ServiceLevel(Fraction(1)), Fraction(1))
    asked = infermax_opt.Sweep([kind], [Fraction(1)], options, fleets=[1], time_limit=600.0)
    return infermax_opt.sweep(trace, asked), options, trace


def test_the_same_as_the_command(planned: Planned) -> None:
    infermax_opt.write_plan(*planned, "mine.html")
    asked = f"plan t.csv --format vidur --machines {PROFILE} --ttft 1 --share 1 --fleet 1 -o theirs.html"
    assert CliRunner().invoke(cli, asked.split()).exit_code == 0
    mine, theirs = (json.loads(Path(f"{name}.json").read_text()) for name in ("mine", "theirs"))
    for value in (mine, theirs):
        value["rows"][0].pop("seconds")
    assert mine == theirs
    page = Path("mine.html").read_text()
    assert "mine.json" in page
    assert "mine.csv" in page
    infermax_opt.write_plan(*planned, "alone.csv")
    infermax_opt.write_plan(*planned, Path("alone.json"))
    assert Path("alone.csv").read_text() == Path("mine.csv").read_text()
    assert Path("alone.json").read_text() == Path("mine.json").read_text()


@pytest.mark.parametrize("name", ["t.csv", "t.html"])
def test_the_trace_is_not_overwritten(planned: Planned, name: str) -> None:
    with pytest.raises(infermax_opt.InputError, match=r"t\.csv: is the trace of the plan"):
        infermax_opt.write_plan(*planned, name)
    assert Path("t.csv").read_text() == LINES
    assert not Path("t.html").exists()
