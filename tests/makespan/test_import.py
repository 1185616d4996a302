"""Traces as makespan instances."""

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
from infermax_opt.makespan.data.generate import DECODE, PREFILL, gsm8k_like
from infermax_opt.makespan.data.traces import client_instance, default_levels
from tests.support import shared_data

TEXT = "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,10,2\n1.75,9000,2\n2.5,0,3\n3.5,7,1\n"


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "my.trace.csv").write_text(TEXT)
    return tmp_path / "my.trace.csv"


def read(path: Path) -> imx.MakespanInstance:
    instance = imx.read_instance(path)
    assert isinstance(instance, imx.MakespanInstance)
    return instance


def test_import(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.json.gz"
    done = run("import", trace, "--format", "vidur", "--problem", "makespan", "--clients", "3", "-o", path)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "my.trace: 3 requests, 9017 input tokens, 5 output tokens, 3 clients, 71 prefill levels up to 9088 "
        "tokens",
        "arrivals are dropped: in this problem all requests are there from the start",
        f"wrote {path}",
    ]
    assert done.stderr == f"infermax-opt: {trace}: left out 1 request: no input tokens\n"
    instance = read(path)
    assert (instance.name, instance.clients) == ("my.trace", 3)
    lengths = [(r.input_tokens, r.output_tokens, r.estimated_output_tokens) for r in instance.requests]
    assert lengths == [(10, 2, 2), (9000, 2, 2), (7, 1, 1)]
    assert [r.id for r in instance.requests] == ["r1", "r2", "r3"]
    assert instance.levels[0] == imx.PrefillLevel(128, Fraction("0.025") + 128 * Fraction("0.00013"))
    assert instance.round_seconds == Fraction("0.029") + 3 * Fraction("0.00021")
    assert run("bound", path).exit_code == 0


def test_options(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    done = run(
        "import", trace, "--format", "vidur", "--problem", "makespan", "--clients", "2", "-o", path,
        "--prefill-levels", "50,100", "--prefill-overhead", "1", "--prefill-token", "0.5",
        "--decode-overhead", "2", "--decode-token", "0.25", "--skip-unfit", "--offline", "--name", "n",
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "schema": "infermax-opt/import/1",
        "instance": "n", "requests": 2, "left_out": {"no input tokens": 1, "can never fit": 1},
        "input_tokens": 17, "output_tokens": 3, "clients": 2, "prefill_levels": 2, "largest_level": 100,
        "arrivals": "dropped",
    }  # fmt: skip
    instance = read(path)
    assert [(level.tokens, level.seconds) for level in instance.levels] == [(50, 26), (100, 51)]
    assert instance.round_seconds == Fraction("2.5")


def test_estimates_are_off(tmp_path: Path) -> None:
    requests = tuple(TraceRequest(k, Fraction(0), 5, 1000) for k in range(400))
    made = [
        client_instance(Trace("t", requests), "t", 4, [128], PREFILL, DECODE, error=0.3, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert made[0] == made[1] != made[2]
    logs = [math.log(r.estimated_output_tokens / 1000) for r in made[0].requests]
    assert abs(statistics.pstdev(logs) - 0.3) < 0.03
    assert {r.output_tokens for r in made[0].requests} == {1000}


def test_default_levels_are_those_of_the_study() -> None:
    trace = Trace("t", (TraceRequest(1, Fraction(0), 500, 1),))
    for clients in (1, 4, 20):
        study = [level.tokens for level in gsm8k_like(requests=3, clients=clients).levels]
        assert list(default_levels(trace, clients)) == study
    with pytest.raises(InputError, match="t: prefill levels: 200000 levels of 128 tokens would be needed"):
        default_levels(trace, 200_000)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--problem", "makespan"], "--problem makespan needs --clients."),
        (["--problem", "makespan", "--clients", "0"], "'--clients'"),
        (["--clients", "2"], "--clients goes with --problem makespan only, not infermax."),
        (
            ["--predict-error", "0"],
            "--predict-error goes with --problem placement or stream only, not infermax.",
        ),
        (
            ["--problem", "makespan", "--clients", "2", "--no-preemption"],
            "--preemption goes with --problem infermax only, not makespan.",
        ),
        (
            ["--problem", "makespan", "--clients", "2", "--kv-capacity", "9"],
            "--kv-capacity goes with --problem infermax only",
        ),
        (
            ["--problem", "makespan", "--clients", "2", "--prefill-levels", "100"],
            "my.trace.csv: line 3: the request can never fit: its 9000 input tokens exceed the largest "
            "prefill level of 100",
        ),
        (["--problem", "makespan", "--clients", "2", "--prefill-levels", "9,x"], "'9,x' is not a list"),
        (["--problem", "makespan", "--clients", "2", "--prefill-levels", "0"], "'0' is not a list"),
        (
            ["--problem", "makespan", "--clients", "2", "--prefill-token", "x"],
            "'--prefill-token': 'x' is not",
        ),
        (["--problem", "makespan", "--clients", "2", "--decode-overhead", "-1"], "-1 is negative; the least"),
        (
            ["--problem", "makespan", "--clients", "2", "--estimate-error", "nan"],
            "nan is not between 0 and 10",
        ),
        (["--problem", "makespan", "--clients", "2", "--estimate-error", "-1"], "'--estimate-error'"),
        (
            ["--problem", "makespan", "--clients", "2", "--prefill-levels", "1", "--skip-unfit"],
            "holds no request that fits",
        ),
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
    data = shared_data("data/AzureLLMInferenceTrace_code.csv")
    if data is None:
        pytest.skip("the Azure traces are not here: see INFERMAX_OPT_DATA")
    path = tmp_path / "azure.json"
    done = run(
        "import", data, "--format", "azure", "--first", "300", "--problem", "makespan", "--clients", "32",
        "--estimate-error", "0.2", "-o", path,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    instance, requests = read(path), read_trace(data, "azure", first=300).requests
    assert [(r.input_tokens, r.output_tokens) for r in instance.requests] == [
        (r.input_tokens, r.output_tokens) for r in requests
    ]
    assert run("schedule", path, "--scheduler", "hybrid").exit_code == 0
