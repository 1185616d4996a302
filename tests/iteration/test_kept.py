"""How many savable requests can be kept: decided, or said not to be."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import infermax_opt as imx
from infermax_opt.cli.main import cli
from infermax_opt.iteration.bounds import kept as searched
from infermax_opt.iteration.data.formats import iteration_instance_from_json, iteration_instance_to_json
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Ticks


def crowded() -> IterationInstance:
    """Requests that are all urgent, with blocks for some of them."""
    rng = random.Random(4)
    requests = [
        {
            "id": f"r{k}", "class": "rt", "phase": "decode", "context": 10 * rng.randint(10, 90) + 1,
            "new_blocks": rng.randint(1, 80), "waited": "2",
        }
        for k in range(16)
    ]  # fmt: skip
    be = [{"id": f"b{k}", "class": "be", "phase": "decode", "context": 5 + k} for k in range(3)]
    cost = {
        "batch": [["1", "0"], ["0.5", "0"]], "decode": ["0", "0.001"], "prefill": ["0", "0"],
        "attention": "exact",
    }  # fmt: skip
    machine = {"batch": 12, "blocks": 150, "t_avg": "20", "ttft": "10", "tpot": "6", "cost": cost}
    return iteration_instance_from_json({
        "schema": "infermax-opt/instance/1", "problem": "iteration", "name": "crowded",
        "requests": [*requests, *be], "machine": machine, "objective": "seconds_per_be_token",
    })  # fmt: skip


def given_up(monkeypatch: pytest.MonkeyPatch) -> IterationInstance:
    """The instance, where the search gives up at once."""
    monkeypatch.setattr(searched, "MOST_LABELS", 0)
    instance = crowded()
    found = searched.most_kept(Ticks.of(instance))
    assert found.least < found.most
    return instance


def test_what_is_not_decided_is_not_called_optimal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    best = searched.most_kept(Ticks.of(crowded()))
    assert best.least == best.most
    instance = given_up(monkeypatch)
    assert searched.most_kept(Ticks.of(instance)).least < best.most
    found = imx.solve(instance)
    assert found.status.value == "feasible"
    assert "was not found out" in (found.undecided or "")
    imx.write_instance(instance, tmp_path / "i.json")
    out = tmp_path / "r.json"
    done = CliRunner().invoke(cli, ["solve", str(tmp_path / "i.json"), "-o", str(out)])
    assert "undecided" in done.stdout
    assert "\n  status       optimal" not in done.stdout
    asked = ["solve", str(tmp_path / "i.json"), "--at-most", "seconds_per_be_token=9"]
    assert "open:" in CliRunner().invoke(cli, asked).stdout
    for extra in ([], ["--strict"]):
        checked = CliRunner().invoke(cli, ["verify", str(tmp_path / "i.json"), str(out), *extra])
        assert checked.exit_code == len(extra), checked.output
        assert "not checked" in checked.output
    # Whoever strikes the word out is told, where the verifier decides it.
    monkeypatch.undo()
    value = json.loads(out.read_text())
    value.pop("undecided")
    out.write_text(json.dumps(value))
    assert CliRunner().invoke(cli, ["verify", str(tmp_path / "i.json"), str(out)]).exit_code == 1


@pytest.mark.parametrize("formulation", [None, "dinkelbach", "charnes-cooper"])
def test_a_batch_that_keeps_more_is_taken(formulation: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = crowded()
    best = searched.most_kept(Ticks.of(made))
    instance = given_up(monkeypatch)
    start = Selection("crowded", tuple(made.requests[k].id for k in best.batch))
    found = imx.solve(instance, warm_start=start, formulation=formulation)
    assert found.metrics is not None
    assert found.metrics.rt_kept == best.most
    assert found.undecided is None or found.status.value == "feasible"


def test_many_requests_that_cannot_all_be_kept_take_seconds() -> None:
    rng = random.Random(7)
    value = iteration_instance_to_json(crowded())
    value["requests"] = [
        {**value["requests"][k % 16], "id": f"q{k}", "waited": str(rng.randint(0, 4000) / 1000)}
        for k in range(900)
    ] + value["requests"][16:]
    began = time.monotonic()
    found = imx.solve(iteration_instance_from_json(value), time_limit=0.1)
    assert time.monotonic() - began < 10
    assert found.upper is not None
