"""The conformance examples of the formats and the replay come out exactly."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.api import verify
from infermax_opt.infermax.data.formats import instance_from_json, schedule_from_json
from tests.support import shared_data

EXAMPLES = shared_data("examples/replay.json")


def cases() -> list[Any]:
    if EXAMPLES is None:
        return []
    return json.loads(EXAMPLES.read_text(), parse_float=Decimal)["examples"]


@pytest.mark.skipif(EXAMPLES is None, reason="the shared examples are not on this machine")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["instance"]["name"])
def test_shared_example(case: dict[str, Any]) -> None:
    instance = instance_from_json(case["instance"])
    check = verify(instance, schedule_from_json(case["schedule"]))
    if case["expected"] == "violations":
        assert check.violations
        return
    assert check.ok
    assert check.metrics is not None
    got = dict(check.metrics.items())
    for name, value in case["expected"].items():
        if name == "makespan_seconds":
            assert float(got["makespan"]) == float(value)  # type: ignore[arg-type]
        else:
            assert got[name] == Fraction(value), name


def test_numbers_may_be_decimal_texts() -> None:
    """Notation does not matter: the two instances mean the same and have one hash."""

    def value(number: Any) -> dict[str, Any]:
        return {
            "schema": "infermax-opt/instance/1", "problem": "infermax", "name": "texts",
            "requests": [
                {"id": "r", "input_tokens": number(4), "output_tokens": number(2), "count": number(3)}
            ],
            "system": {
                "kv_capacity": number(20), "max_batch_tokens": number(9), "max_prefill_tokens": number(9),
            },
            "policy": {"hybrid_batching": True, "chunked_prefill": True, "preemption": True},
            "cost": {
                "batch": [[number(1), number(2)]], "decode": [0, 0], "prefill": [0, 0],
                "attention": "exact",
            },
            "objective": "makespan",
        }  # fmt: skip

    plain, text = instance_from_json(value(int)), instance_from_json(value(lambda n: f"{n}.0"))
    assert plain == text
    assert plain.sha256 == text.sha256
