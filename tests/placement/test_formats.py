"""Placement files: read back what was written; one clear line for what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.formats import (
    placement_from_json,
    placement_instance_from_json,
    read_placement,
    read_placement_instance,
    write_placement,
    write_placement_instance,
)
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement


def example() -> dict[str, Any]:
    return {
        "schema": "infermax-opt/instance/1",
        "problem": "placement",
        "name": "example",
        "requests": [
            {"id": "a", "input_tokens": 30, "predicted_output_tokens": 9, "count": 2},
            {"id": "b", "input_tokens": 5, "predicted_output_tokens": 7, "output_tokens": 12},
            {
                "id": "c", "input_tokens": 8, "predicted_output_tokens": 9,
                "worker": 3, "generated_tokens": 2, "decode_seconds": "0.04",
            },
        ],
        "worker": {
            "kv_capacity": 200, "kv": [1, 0.5], "prefill": ["0.001", "0.02"],
            "decode": ["1e-5", "0.0005", "0.01"],
        },
        "slo": {"ttft": 0.6, "atgt": "0.03"},
        "theta": 0.9,
    }  # fmt: skip


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    """The example with one value replaced, or left out (`...`)."""
    found = example()
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return found


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(example()))
    instance = read_placement_instance(path)
    assert [r.id for r in instance.requests] == ["a.1", "a.2", "b", "c"]
    assert [r.output_tokens for r in instance.requests] == [9, 9, 12, 9]
    assert [r.ongoing for r in instance.requests] == [False, False, False, True]
    write_placement_instance(instance, tmp_path / "again.json.gz")
    again = read_placement_instance(tmp_path / "again.json.gz")
    assert again == instance
    assert again.sha256 == instance.sha256
    placement = Placement("example", {"a.1": 3, "a.2": 1, "b": 1})
    write_placement(placement, tmp_path / "placement.json")
    assert read_placement(tmp_path / "placement.json") == placement


def test_the_hash_is_of_the_meaning() -> None:
    def hashed(value: object) -> str:
        return placement_instance_from_json(value).sha256

    same = changed(["slo", "atgt"], 0.030)
    assert hashed(same) == hashed(example())
    for path, value in (
        (["theta"], 0.8), (["gamma"], 1), (["horizon"], 5), (["name"], "other"), (["worker", "gpus"], 2),
        (["requests", 2, "generated_tokens"], 3), (["requests", 1, "output_tokens"], 13),
    ):  # fmt: skip
        assert hashed(changed(path, value)) != hashed(example()), path


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (["problem"], "makespan", "problem"),
        (["name"], "", "name"),
        (["requests"], [], "requests"),
        (["requests", 0, "id"], 7, "requests[0].id"),
        (["requests", 1, "id"], "a.2", "requests[1].id"),
        (["requests", 0, "count"], None, "requests[0].count"),
        (["requests", 0, "input_tokens"], 0, "requests[0].input_tokens"),
        (["requests", 1, "predicted_output_tokens"], "x", "requests[1].predicted_output_tokens"),
        (["requests", 1, "predicted_output_tokens"], ..., "requests[1].predicted_output_tokens"),
        (["requests", 2, "worker"], ..., "requests[2].worker"),
        (["requests", 2, "worker"], 0, "requests[2].worker"),
        (["requests", 2, "decode_seconds"], -1, "requests[2].decode_seconds"),
        (["requests", 2, "kv"], 1, "requests[2].kv"),
        (["worker", "kv"], [1], "worker.kv"),
        (["worker", "kv"], [1, "x"], "worker.kv[1]"),
        (["worker", "kv_capacity"], 0, "worker.kv_capacity"),
        (["worker", "gpus"], 0, "worker.gpus"),
        (["worker", "decode"], [1, -2, 3], "worker.decode_request"),
        (["slo", "ttft"], 0, "slo.ttft"),
        (["slo"], ..., "slo"),
        (["theta"], 0, "theta"),
        (["theta"], 1.5, "theta"),
        (["gamma"], -0.5, "gamma"),
        (["horizon"], 0, "horizon"),
    ],
)
def test_bad_instances(path: list[Any], value: Any, field: str) -> None:
    with pytest.raises(InputError) as error:
        placement_instance_from_json(changed(path, value))
    assert error.value.field == field
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"schema": "infermax-opt/schedule/1", "instance": "x"}, "workers"),
        ({"schema": "infermax-opt/schedule/1", "instance": "x", "workers": [1]}, "workers"),
        ({"schema": "infermax-opt/schedule/1", "instance": "x", "workers": {"a": 1.5}}, "workers.a"),
        ({"schema": "infermax-opt/schedule/1", "instance": "x", "workers": {"a": 0}}, "workers.a"),
        ({"schema": "nothing", "instance": "x", "workers": {}}, "schema"),
    ],
)
def test_bad_placements(value: dict[str, Any], field: str) -> None:
    for path in ("", "schedule"):
        with pytest.raises(InputError) as error:
            placement_from_json(value, path)
        assert error.value.field == (f"{path}.{field}" if path else field)


def test_numbers_of_python() -> None:
    instance = placement_instance_from_json(example())
    built = PlacementInstance.of_requests("two", [(30, 9)], instance.worker, instance.slo, "0.9", 0.5)
    assert built.requests[0].predicted_output_tokens == built.requests[0].output_tokens == 9
    with pytest.raises(InputError, match="gamma"):
        PlacementInstance.of_requests("two", [(30, 9)], instance.worker, instance.slo, "0.9", 2)
