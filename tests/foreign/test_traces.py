"""Runs of other systems are imported as traces are."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.cli.options import TRACE_FORMATS
from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import FORMATS
from infermax_opt.foreign.reading import RUN_FORMATS
from infermax_opt.foreign.traces import read_trace
from tests.foreign import samples

TEXTS = samples.texts()


def test_the_command_knows_all_formats() -> None:
    assert list(TRACE_FORMATS) == sorted({*FORMATS, *RUN_FORMATS})


@pytest.mark.parametrize("form", TEXTS)
def test_every_run_is_a_trace(tmp_path: Path, form: str) -> None:
    trace = read_trace(samples.put(tmp_path, TEXTS[form]), form)
    found = [(float(r.arrival), r.input_tokens, r.output_tokens) for r in trace.requests]
    arrivals = [0, 0, 0] if form == "sglang" else [0, 0.1, 0.15]
    assert [row[1:] for row in found] == [(512, 4), (2048, 3), (300, 5)]
    assert [row[0] for row in found] == pytest.approx(arrivals)


def test_vidur_is_told_apart_by_its_header(tmp_path: Path) -> None:
    assert len(read_trace(samples.put(tmp_path, TEXTS["vidur"]), "vidur").requests) == 3
    path = samples.put(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n3,5,6\n")
    assert [r.output_tokens for r in read_trace(path, "vidur").requests] == [6]
    path = samples.put(tmp_path, "a,b\n1,2\n")
    with pytest.raises(InputError, match="column 'arrived_at': is missing"):
        read_trace(path, "vidur")


def test_windows_and_choices(tmp_path: Path) -> None:
    path = samples.put(tmp_path, json.dumps(samples.guidellm(2)))
    window = (Fraction("0.05"), Fraction("0.12"))
    trace = read_trace(path, "guidellm", benchmark=2, window=window)
    assert [(float(r.arrival), r.line) for r in trace.requests] == [(pytest.approx(0.05), 2)]
    with pytest.raises(InputError, match="benchmark: azure traces take none"):
        read_trace(path, "azure", benchmark=1)
    with pytest.raises(InputError, match="is none of aiperf, aisimulate, azure"):
        read_trace(path, "excel")


def test_the_command_imports_a_run(tmp_path: Path) -> None:
    rows = samples.aiperf()
    rows[0]["metadata"]["was_cancelled"] = True
    path, out = samples.put(tmp_path, samples.lines(rows)), tmp_path / "i.json"
    done = CliRunner().invoke(cli, ["import", str(path), "--format", "aiperf", "-o", str(out)])
    assert done.exit_code == 0
    assert "left out 1 request: cancelled" in done.stderr
    vidur = samples.put(tmp_path, samples.vidur())
    done = CliRunner().invoke(cli, ["import", str(vidur), "--format", "vidur", "-o", str(out)])
    assert "Arrivals are the sums of the delays between them." in done.stderr
    path = samples.put(tmp_path, samples.lines(rows))
    CliRunner().invoke(cli, ["import", str(path), "--format", "aiperf", "-o", str(out)])
    assert [r["input_tokens"] for r in json.loads(out.read_text())["requests"]] == [2048, 300]
    several = samples.put(tmp_path, json.dumps(samples.guidellm(2)))
    refused = CliRunner().invoke(cli, ["import", str(several), "--format", "guidellm", "-o", str(out)])
    assert refused.exit_code == 2
    done = CliRunner().invoke(
        cli, ["import", str(several), "--format", "guidellm", "--benchmark", "2", "-o", str(out)]
    )
    assert done.exit_code == 0
