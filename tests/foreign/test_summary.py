"""Summaries of serving benchmarks: what they say of a run, and what they do not."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.foreign.reading import read_run
from infermax_opt.foreign.run import Summary
from infermax_opt.foreign.traces import read_trace
from tests.foreign import samples

DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
SUMS = {"duration": 0.5, "completed": 3, "mean_ttft_ms": 133.5, "median_tpot_ms": 30.0}


def vllm(**more: Any) -> dict[str, Any]:
    """What vLLM writes without ``--save-detailed``."""
    whole = samples.vllm(**SUMS, failed=0, total_input_tokens=2860, total_output_tokens=12, p99_ttft_ms=199.2)
    return {key: value for key, value in (whole | more).items() if key not in DETAILS and value is not ...}


def read(folder: Path, value: dict[str, Any]) -> tuple[Summary, tuple[str, ...]]:
    (folder / "run.json").write_text(json.dumps(value))
    run = read_run(folder / "run.json")
    assert run.requests == ()
    assert run.summary is not None
    return run.summary, run.remarks


def test_a_summary_of_vllm(tmp_path: Path) -> None:
    found, remarks = read(tmp_path, vllm())
    assert (found.requests, found.input_tokens, found.output_tokens) == (3, 2860, 12)
    assert found.metrics == {
        "makespan": Fraction(1, 2),
        "mean_ttft": Fraction("0.1335"),
        "p50_tpot": Fraction("0.03"),
        "p99_ttft": Fraction("0.1992"),
    }
    assert found.e2e == (Fraction("0.1"), Fraction("0.22"), Fraction("0.32"))
    assert found.at_once
    assert any("single requests" in remark for remark in remarks)


def test_a_summary_of_sglang(tmp_path: Path) -> None:
    whole = samples.sglang(**SUMS, total_input=2860, total_output=12, mean_e2e_latency_ms=213.0)
    value = {key: some for key, some in whole.items() if key not in DETAILS} | {"request_rate": 8.0}
    found, _ = read(tmp_path, value)
    assert (found.requests, found.input_tokens, found.output_tokens) == (3, 2860, 12)
    assert found.metrics["mean_e2e"] == Fraction("0.213")
    assert (found.e2e, found.at_once) == ((), False)


def test_what_waited_in_the_client_has_no_latency_of_its_sending(tmp_path: Path) -> None:
    """Queue times by request count; where there are none, only what begins with the first token is known."""
    found, _ = read(tmp_path, vllm(max_concurrency=2, queue_times=[0.0, 0.0, 0.1]))
    assert found.e2e[2] == Fraction("0.42")
    assert set(found.metrics) == {"makespan", "p50_tpot"}
    found, remarks = read(tmp_path, vllm(max_concurrency=2, queue_times=...))
    assert found.e2e == ()
    assert any("At most 2 requests" in remark for remark in remarks)


def test_which_requests_failed_is_not_known(tmp_path: Path) -> None:
    found, _ = read(tmp_path, vllm(completed=2, failed=1))
    assert (found.requests, found.e2e) == (2, ())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"completed": ...}, "run the benchmark with --save-detailed"),
        ({"total_output_tokens": ...}, "run the benchmark with --save-detailed"),
        ({"duration": ...}, "run.duration: is missing"),
        ({"duration": -1}, "run.duration: -1 is negative"),
        ({"duration": 0.001}, "run.mean_ttft_ms: is 0.1335 s; all of the run took 0.001 s"),
        ({"completed": 2.5}, "run.completed: 2.5 is not a whole number"),
        ({"mean_ttft_ms": float("nan")}, "run.mean_ttft_ms"),
        ({"latencies": [0.1, "x", 0.3]}, "request 2.latencies"),
    ],
)
def test_hostile_summaries(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, vllm(**more))
    assert words in str(error.value)


def test_a_summary_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(vllm()))
    with pytest.raises(InputError, match="is a summary without the lengths"):
        read_trace(tmp_path / "run.json", "vllm")
