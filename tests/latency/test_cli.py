"""The commands `calibrate` and `configure`: what they print, and one line for whatever is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infermax_opt.cli.console import Program
from infermax_opt.cli.latency import calibrate, configure
from infermax_opt.files.json import load_json
from infermax_opt.latency.profiles import worker_of_profile
from infermax_opt.placement.data.formats import worker_from_json
from infermax_opt.placement.data.instance import PlacementInstance, Slo
from tests.latency.test_configuration import SAMPLES

CLI = Program("infermax-opt", commands={"calibrate": calibrate, "configure": configure})
REQUESTS = ["--input-tokens", "1024", "--output-tokens", "256"]


def run(*args: object) -> Result:
    return CliRunner().invoke(CLI, [str(arg) for arg in args])


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples.csv"
    path.write_text(SAMPLES)
    return path


def test_calibrate_prints_fits_and_writes_a_worker(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "worker.json"
    done = run("calibrate", samples, "--kv-capacity", "60", "-o", out)
    assert done.exit_code == 0, done.output
    for text in (
        "decode (eq 3)",
        "k2 0.000001, c2 0.001, c3 0.02",
        "k4 0.04, c4 0.001",
        "relative: residuals",
    ):
        assert text in done.output
    assert done.output.endswith(f"wrote {out}\n")
    worker = worker_from_json(load_json(out))
    assert (worker.kv_capacity, worker.gpus) == (60, 2)
    made = PlacementInstance.of_requests("t", [(20, 5)], worker, Slo(worker.kv_capacity, worker.kv_capacity))
    assert made.worker is worker
    value = json.loads(run("calibrate", samples, "--kv-capacity", "60", "--json").output)
    assert worker_from_json(value["worker"]) == worker
    assert [fit["kind"] for fit in value["fits"]] == ["kv", "prefill", "decode", "compute", "comm"]


def test_calibrate_a_profile(tmp_path: Path) -> None:
    out = tmp_path / "worker.json"
    done = run("calibrate", "--profile", "llama-3.1-8b_h100_hinge", "--cover", "above", "-o", out)
    assert done.exit_code == 0, done.output
    assert "above: the least model that is at least every sample" in done.output
    assert worker_from_json(load_json(out)) == worker_of_profile("llama-3.1-8b_h100_hinge", cover="above")
    assert "exact: eq 3" in run("calibrate", "--profile", "paper-example").output
    value = json.loads(run("calibrate", "--profile", "paper-example", "--json").output)
    assert value["decode_exact"] is True
    assert worker_from_json(value["worker"]) == worker_of_profile("paper-example")


def test_configure_profiles() -> None:
    done = run("configure", "--profile", "llama-3.1-70b_h100", "--atgt", "0.05", *REQUESTS)
    assert done.exit_code == 0, done.output
    assert "best: 4 GPUs (llama-3.1-70b_h100_tp4), 2430.5 tokens/s/GPU; the KV cache is full" in done.output
    value = json.loads(
        run("configure", "--profile", "llama-3.1-70b_h100", "--atgt", "0.05", *REQUESTS, "--json").output
    )
    assert [option["gpus"] for option in value["options"]] == [4, 8]
    assert value["best"] == value["options"][0]
    none = run("configure", "--profile", "llama-3.1-70b_h100", "--atgt", "0.001", *REQUESTS)
    assert none.exit_code == 1
    assert "excluded: c3 of 0.0145973 s is not below the ATGT limit of 0.001 s" in none.output
    assert "no option can serve this workload" in none.output


def test_configure_samples_for_a_trace(samples: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,200,100\n1,100,50\n")
    memory = ["--gpu-memory", "10", "--model-memory", "12"]
    shared = ["configure", "--samples", samples, *memory, "--atgt", "0.03", "--trace", trace]
    done = run(*shared, "--format", "vidur", "--ttft", "0.05")
    assert done.exit_code == 0, done.output
    assert "2 requests, means of 150 input and 75 output tokens" in done.output
    assert "excluded: the model leaves -2 of the GPUs' memory for KV" in done.output
    assert "compute (eq 5)" in done.output
    only = run(*shared, "--format", "vidur", "--gpus", "8", "--json")
    assert [option["gpus"] for option in json.loads(only.output)["options"]] == [8]


def wrong(*args: object) -> str:
    done = run(*args)
    assert done.exit_code == 2, done.output
    assert done.output.startswith("infermax-opt: ")
    assert done.output.count("\n") == 1
    assert "internal error" not in done.output
    return done.output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_size", "batch", "line 1, column 'batch_size': is missing; row 6 of kind 'decode' needs it"),
        ("0.0226", "fast", "line 7, column 'seconds': 'fast' is not a decimal number"),
        ("600,2,2", "600,0,2", "line 7, column 'batch_size': '0' is not a whole number from 1 to 1000000000"),
        ("300,,,2", "100,,,2", "column 'input_tokens': is 100 in all 2 rows of kind 'prefill'"),
        ("300,,,2", "300,,,4", "gpus: prefill and decode rows are of 2, 4 GPUs; say which"),
    ],
)
def test_wrong_samples(samples: Path, old: str, new: str, message: str) -> None:
    samples.write_text(SAMPLES.replace(old, new))
    assert message in wrong("calibrate", samples)


def test_wrong_arguments(samples: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone.csv"
    memory = ["--gpu-memory", "10", "--model-memory", "12"]
    chosen = ["configure", "--profile", "llama-3.1-70b_h100"]
    for arguments, message in (
        (["calibrate", gone], "gone.csv: cannot be read: No such file or directory"),
        (["calibrate"], "give a file of samples, or --profile"),
        (["calibrate", samples, "--profile", "paper-example"], "give a file of samples, or --profile"),
        (["calibrate", samples, "-o", tmp_path / "w.json"], "-o needs --kv-capacity"),
        (["calibrate", samples, "--max-batch", "9"], "--max-batch goes with --profile only"),
        (["calibrate", samples, "--kv-capacity", "-1"], "-1 is not above 0"),
        (["calibrate", samples, "-o", samples, "--kv-capacity", "1"], "is an input of this command"),
        (["calibrate", "--profile", "paper-example", "--gpus", "2"], "--gpus goes with a file of samples"),
        (["calibrate", "--profile", "abacus"], "'abacus' is no profile; there are"),
        ([*chosen, *REQUESTS], "Missing option '--atgt'"),
        ([*chosen, "--atgt", "1"], "give --input-tokens and --output-tokens, or --trace"),
        ([*chosen, "--atgt", "1", *REQUESTS, "--gpus", "2"], "--gpus goes with --samples only"),
        ([*chosen, "--atgt", "1", *REQUESTS, "--samples", samples], "give --profile, or --samples"),
        ([*chosen, "--atgt", "x", *REQUESTS], "'x' is not a decimal number"),
        ([*chosen, "--atgt", "1", "--trace", samples], "--trace needs --format"),
        ([*chosen, "--atgt", "1", "--trace", gone, "--format", "vidur"], "gone.csv: cannot be read"),
        (["configure", "--profile", "abacus", "--atgt", "1", *REQUESTS], "'abacus' is no profile"),
        (["configure", "--samples", samples, "--atgt", "1", *REQUESTS], "needs --gpu-memory and"),
        (["configure", "--samples", gone, *memory, "--atgt", "1", *REQUESTS], "gone.csv: cannot be read"),
    ):  # fmt: skip
        assert message in wrong(*arguments)
    assert not (tmp_path / "w.json").exists()
    assert samples.read_text() == SAMPLES


def test_the_module_of_the_commands_is_light() -> None:
    code = (
        "import sys, infermax_opt.cli.latency, infermax_opt.latency.configuration\n"
        "import infermax_opt.latency.fit, infermax_opt.latency.profiles, infermax_opt.latency.report\n"
        "assert not {'numpy', 'numba', 'pyomo', 'highspy', 'ortools', 'matplotlib'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
