"""Every --json output names its schema, as the one list of them says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.files.schemas import SCHEMAS
from tests.support import ROOT

TOY = str(ROOT / "instances" / "toy.json")
STREAM = str(ROOT / "instances" / "stream-poisson-8.json")
CALLS = [
    ("solve", TOY),
    ("solve", str(ROOT / "instances" / "placement-toy.json")),
    ("bound", TOY),
    ("schedule", TOY, "--scheduler", "vllm"),
    ("front", TOY, "--x", "makespan", "--y", "mean_e2e", "--directions", "2", "--time-limit", "5"),
    ("gap", TOY, "schedule.json", "--metric", "makespan", "--time-limit", "2"),
    ("export", TOY, "--formulation", "flow", "-o", "model.mps"),
    ("verify", TOY, "schedule.json"),
    ("verify", STREAM, "placement.json"),
    ("import", "trace.csv", "--format", "vidur", "-o", "instance.json"),
    ("workers", STREAM),
    ("simulate", STREAM),
    ("plan", "trace.csv", "--format", "vidur", "--machines", "llama-3.1-8b_h100", "--ttft", "1"),
    ("table", "paper-csp", "--only", "csp-i1-o4-b4", "--time-limit", "5", "-o", "table"),
    ("calibrate", "--profile", "llama-3.1-8b_h100"),
    ("calibrate", "samples.csv"),
    (
        "configure", "--profile", "llama-3.1-70b_h100", "--atgt", "0.05", "--input-tokens", "1024",
        "--output-tokens", "256",
    ),
    ("instance",),
    ("schedulers",),
    ("problems",),
    ("profiles",),
    ("versions",),
]  # fmt: skip


@pytest.fixture(autouse=True)
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,512,64\n")
    rows = [f"prefill,{n},,,{0.02 + n / 10_000}" for n in (64, 128, 256)]
    rows += [f"decode,,{512 * b},{b},{0.02 + b / 1000}" for b in (1, 2, 4, 8)]
    rows += [f"decode,,{1024 * b},{b},{0.021 + b / 1000}" for b in (2, 4, 8)]
    header = "kind,input_tokens,context_tokens,batch_size,seconds\n"
    Path("samples.csv").write_text(header + "\n".join(rows) + "\n")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: "-".join(call[:2])[:30].replace("/", "."))
def test_json_names_its_schema(call: tuple[str, ...]) -> None:
    runner = CliRunner()
    if "schedule.json" in call:
        runner.invoke(cli, ["schedule", TOY, "--scheduler", "vllm", "-o", "schedule.json"])
    if "placement.json" in call:
        runner.invoke(cli, ["simulate", STREAM, "--placement", "placement.json"])
    done = runner.invoke(cli, [*call, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["schema"] == SCHEMAS[call[0]]


def test_the_list_has_every_command_that_prints_json() -> None:
    able = {
        name
        for name, command in cli.commands.items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    # The other program is tested in tests/checking.
    assert able | {"infermax-opt-check"} == SCHEMAS.keys()
    assert able == {call[0] for call in CALLS}
    assert len(set(SCHEMAS.values())) == len(SCHEMAS)
