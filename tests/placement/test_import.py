"""Heartbeats of traces as placement instances."""

from __future__ import annotations

import json
import math
import statistics
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

import infermax_opt as imx
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import Trace, TraceRequest, read_trace
from infermax_opt.placement.data.generate import MODELS
from infermax_opt.placement.data.traces import (
    busiest_heartbeat,
    heartbeat_instance,
    heartbeat_of,
    without_unplaceable,
)
from tests.support import shared_data

#: Arrivals 0, 0.5, 1, 1.5, 2, 6 s after the first request.
TEXT = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
    f"{at},{inputs},{outputs}\n"
    for at, inputs, outputs in (
        (2, 10, 5),
        (2.5, 900, 7),
        (3, 600, 9),
        (3.5, 1200, 4),
        (4, 400, 3),
        (8, 90, 1),
    )
)
MODEL = MODELS["13b"]


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "my.trace.csv").write_text(TEXT)
    return tmp_path / "my.trace.csv"


def made(trace: Path, *args: str | Path) -> imx.PlacementInstance:
    path = trace.with_name("p.json")
    done = run("import", trace, "--format", "vidur", "--problem", "placement", "-o", path, *args)
    assert done.exit_code == 0, done.output
    instance = imx.read_instance(path)
    assert isinstance(instance, imx.PlacementInstance)
    return instance


def lengths(instance: imx.PlacementInstance) -> list[tuple[int, int]]:
    return [(r.input_tokens, r.output_tokens) for r in instance.requests]


def test_import(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.json.gz"
    done = run("import", trace, "--format", "vidur", "--problem", "placement", "-o", path)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "my.trace: 2 requests, 1600 input tokens, 7 output tokens, arrived in the 1 s before 2 s, to be "
        "placed on workers of 13b within 0.6 s TTFT and 0.03 s ATGT",
        f"wrote {path}",
    ]
    instance = imx.read_instance(path)
    assert isinstance(instance, imx.PlacementInstance)
    assert (instance.name, instance.worker, instance.slo) == ("my.trace", MODEL.worker, MODEL.slo)
    assert [r.id for r in instance.requests] == ["r1", "r2"]
    assert lengths(instance) == [(1200, 4), (400, 3)]
    assert not any(r.ongoing for r in instance.requests)
    assert run("solve", path, "--time-limit", "5").exit_code == 0


def test_options(trace: Path) -> None:
    instance = made(
        trace, "--heartbeat", "1.5", "--at", "1.5", "--worker", "70b", "--ttft", "2", "--atgt", "0.08",
        "--theta", "0.9", "--gamma", "1", "--name", "n",
    )  # fmt: skip
    assert lengths(instance) == [(900, 7), (600, 9), (1200, 4)]
    assert (instance.name, instance.worker) == ("n", MODELS["70b"].worker)
    assert (instance.slo.ttft, instance.slo.atgt) == (2, Fraction("0.08"))
    assert (instance.theta, instance.gamma) == (Fraction("0.9"), 1)
    assert lengths(made(trace, "--at", "0")) == [(10, 5)]
    assert len(made(trace, "--offline").requests) == 6
    done = run(
        "import", trace, "--format", "vidur", "--problem", "placement", "--worker", "70b", "--json",
        "-o", trace.with_name("q.json"),
    )  # fmt: skip
    assert json.loads(done.stdout) == {
        "schema": "infermax-opt/import/1",
        "instance": "my.trace", "requests": 2, "left_out": {}, "input_tokens": 1600, "output_tokens": 7,
        "at": 2, "heartbeat": 1, "worker": "70b", "ttft": 1.6, "atgt": 0.075,
        "ongoing": 0,
    }  # fmt: skip


def test_requests_under_way(tmp_path: Path) -> None:
    trace = tmp_path / "long.csv"
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens", "0,100,5", "0.5,300,200", "1.5,50,40"]
    trace.write_text("\n".join([*rows, "1.8,700,90"]))
    instance = made(trace, "--ongoing", "--at", "2")
    assert [(r.id, r.worker) for r in instance.requests] == [("r2", 1), ("r3", None), ("r4", None)]
    under_way = instance.requests[0]
    # Prefill from 1 s on takes 0.0623 s; the 41st iteration, of about 23.2 ms, is the first to end after 2 s.
    assert under_way.generated_tokens == 1 + 41
    assert under_way.decode_seconds == instance.busy[1] + 2 - 1 - Fraction("0.0623")
    path = tmp_path / "q.json"
    args = ("import", trace, "--format", "vidur", "--problem", "placement", "--ongoing", "-o", path)
    done = run(*args, "--at", "1.7")
    assert done.exit_code == 2
    assert "at: 1.7 s is no multiple of the heartbeat of 1 s" in done.stderr
    assert "1 under way; the others arrived in" in run(*args, "--at", "2").stdout


def test_requests_that_fit_nowhere(trace: Path) -> None:
    path = trace.with_name("p.json")
    args = ("import", trace, "--format", "vidur", "--problem", "placement", "--ttft", "0.15", "-o", path)
    done = run(*args)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "my.trace.csv: line 5: the request can never fit: limit c, prefill: 0.1692 s where" in done.stderr
    assert not path.exists()
    done = run(*args, "--skip-unfit")
    assert done.exit_code == 0, done.output
    assert "left out 1 request: can never fit" in done.stderr
    instance = imx.read_instance(path)
    assert [r.input_tokens for r in instance.requests] == [400]


def test_the_busiest_heartbeat_is_the_first_of_equals() -> None:
    arrivals = (0, 1, 2, Fraction(5, 2), 3)
    requests = tuple(TraceRequest(k, Fraction(at), 5, 5) for k, at in enumerate(arrivals))
    assert busiest_heartbeat(Trace("t", requests)) == 3
    assert busiest_heartbeat(Trace("t", requests), 2) == 2
    assert [r.line for r in heartbeat_of(Trace("t", requests), None, 2).requests] == [1, 2]
    assert busiest_heartbeat(Trace("t", requests[:3])) == 0
    with pytest.raises(InputError, match="heartbeat: 0 is not above 0"):
        busiest_heartbeat(Trace("t", requests), 0)


def test_predictions_are_off_and_each_by_itself() -> None:
    requests = tuple(TraceRequest(k, Fraction(0), 5, 1000) for k in range(400))
    trace = Trace("t", requests)
    options = {"worker": MODEL.worker, "slo": MODEL.slo, "error": 0.3}
    one, same, other = (heartbeat_instance(trace, "t", seed=seed, **options) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert one == same != other
    logs = [math.log(r.predicted_output_tokens / 1000) for r in one.requests]
    assert abs(statistics.pstdev(logs) - 0.3) < 0.04
    assert {r.output_tokens for r in one.requests} == {1000}
    half = heartbeat_instance(Trace("t", requests[200:]), "t", seed=1, **options)  # type: ignore[arg-type]
    assert [r.predicted_output_tokens for r in half.requests] == [
        r.predicted_output_tokens for r in one.requests[200:]
    ]
    assert without_unplaceable(trace, seed=1, **options) == trace  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--worker", "70b"], "--worker goes with --problem placement or stream only, not infermax."),
        (["--problem", "makespan", "--clients", "2", "--at", "1"], "--at goes with --problem placement only"),
        (["--problem", "placement", "--clients", "2"], "--clients goes with --problem makespan only"),
        (["--problem", "placement", "--profile", "x"], "--profile goes with --problem infermax only"),
        (["--problem", "placement", "--worker", "7b"], "'7b' is none of 13b"),
        (["--problem", "placement", "--at", "x"], "'--at': 'x' is not a decimal number"),
        (
            ["--problem", "placement", "--at", "5"],
            "my.trace.csv: at: no request arrives after 4 s and up to 5 s",
        ),
        (["--problem", "placement", "--heartbeat", "0"], "heartbeat: 0 is not above 0"),
        (["--problem", "placement", "--heartbeat", "-1"], "-1 is negative; the least"),
        (["--problem", "placement", "--theta", "2"], "theta: 2 is not above 0 and up to 1"),
        (["--problem", "placement", "--ttft", "0"], "slo.ttft: 0 is not above 0"),
        (["--problem", "placement", "--predict-error", "-1"], "'--predict-error'"),
        (["--problem", "placement", "--predict-error", "nan"], "nan is not between 0 and 10"),
        (["--problem", "placement", "--ttft", "0.021", "--skip-unfit"], "holds no request that fits"),
    ],
)
def test_what_does_not_make_sense_is_one_line(
    args: list[str], message: str, trace: Path, tmp_path: Path
) -> None:
    done = run("import", trace, "--format", "vidur", "-o", tmp_path / "m.json", *args)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "m.json").exists()


def test_azure(tmp_path: Path) -> None:
    data = shared_data("data/AzureLLMInferenceTrace_conv.csv")
    if data is None:
        pytest.skip("the Azure traces are not here: see INFERMAX_OPT_DATA")
    path = tmp_path / "azure.json"
    done = run(
        "import", data, "--format", "azure", "--problem", "placement", "--worker", "70b", "--heartbeat", "10",
        "--at", "100", "--skip-unfit", "-o", path,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    instance = imx.read_instance(path)
    assert isinstance(instance, imx.PlacementInstance)
    requests = [r for r in read_trace(data, "azure").requests if 90 < r.arrival <= 100]
    assert len(requests) == 39
    assert set(lengths(instance)) <= {(r.input_tokens, r.output_tokens) for r in requests}
    assert run("schedule", path, "--scheduler", "best-fit").exit_code == 0
