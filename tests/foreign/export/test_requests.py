"""Exported requests: the order of the plan, in what other systems read."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import infermax_opt
from infermax_opt import Batch, InputError, Instance, RequestGroup, Schedule, System
from infermax_opt.core.registry import problem_of
from infermax_opt.files.traces import read_trace
from tests.support import PAPER, ROOT

#: `early` comes first and is taken up last.
INSTANCE = Instance(
    "order",
    (
        RequestGroup("early", 600, 2),
        RequestGroup("b", 3, 2, "0.0000000015"),
        RequestGroup("a", 3, 1, "0.005"),
    ),
    System(2000, 2000, 2000),
    PAPER,
)
PLAN = Schedule(
    "order",
    (
        Batch({"a": 3, "b": 3}, start=Fraction("0.005")),
        Batch({"early": 600}, decode_all=True),
        Batch({}, decode_all=True),
    ),
)


def written(path: Path, format: str, subject: Any = PLAN) -> list[dict[str, Any]]:
    infermax_opt.export_requests(INSTANCE, subject, path, format)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_vllm_has_arrivals_and_priorities(tmp_path: Path) -> None:
    lines = written(tmp_path / "r.jsonl", "vllm-requests")
    assert [tuple(line.values()) for line in lines] == [
        (0, 600, 2, [0, 1], {"priority": 2}),
        (0.0000015, 3, 2, [2], {"priority": 1}),
        (5, 3, 1, [3], {"priority": 0}),
    ]
    assert list(lines[0]) == ["timestamp", "input_length", "output_length", "hash_ids", "extra"]


def test_llmservingsim_has_the_order_of_the_plan(tmp_path: Path) -> None:
    assert written(tmp_path / "r.jsonl", "llmservingsim") == [
        {"input_toks": 3, "output_toks": 1, "arrival_time_ns": 5_000_000},
        {"input_toks": 3, "output_toks": 2, "arrival_time_ns": 5_000_000},
        {"input_toks": 600, "output_toks": 2, "arrival_time_ns": 5_000_000},
    ]
    made = infermax_opt.export_requests(INSTANCE, PLAN, tmp_path / "r.jsonl", "llmservingsim")
    assert (made.requests, made.delayed, made.left_out) == (3, 2, 0)


def test_arrivals_round_up_to_nanoseconds(tmp_path: Path) -> None:
    waits = infermax_opt.schedule(INSTANCE, "vllm")
    times = [line["arrival_time_ns"] for line in written(tmp_path / "r.jsonl", "llmservingsim", waits)]
    assert times == [0, 2, 5_000_000]


def test_import_reads_what_was_written(tmp_path: Path) -> None:
    written(tmp_path / "r.jsonl", "vllm-requests")
    trace = read_trace(tmp_path / "r.jsonl", "mooncake", time_unit="ms")
    assert [(r.arrival, r.input_tokens, r.output_tokens) for r in trace.requests] == [
        (r.arrival, r.input_tokens, r.output_tokens) for r in INSTANCE.requests
    ]


def test_requests_that_are_not_served_are_left_out(tmp_path: Path) -> None:
    groups = (RequestGroup("a", 3, 1), RequestGroup("b", 3, 1, optional=True, slo={"e2e": "0.000001"}))
    instance = Instance("some", groups, System(9, 9, 9), PAPER)
    plan = Schedule("some", (Batch({"a": 3}),))
    made = infermax_opt.export_requests(instance, plan, tmp_path / "r.jsonl", "llmservingsim")
    assert (made.requests, made.left_out) == (1, 1)


def test_bins_have_an_order(tmp_path: Path) -> None:
    instance = infermax_opt.read_instance(ROOT / "instances" / "makespan-100x20.json")
    plan = infermax_opt.schedule(instance, "online")
    infermax_opt.export_requests(instance, plan, tmp_path / "r.jsonl", "llmservingsim")
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 100
    found = problem_of(instance).admissions(instance, plan)
    assert [some.id for some in found] == [name for some in plan.bins for name in some.prefill]


def test_what_has_no_order_is_refused(tmp_path: Path) -> None:
    instance = infermax_opt.read_instance(ROOT / "instances" / "placement-toy.json")
    plan = infermax_opt.schedule(instance, "best-fit")
    with pytest.raises(InputError, match="placement instances have no order of requests"):
        infermax_opt.export_requests(instance, plan, tmp_path / "r.jsonl", "llmservingsim")


@pytest.mark.parametrize(
    ("plan", "format", "text"),
    [
        (Schedule("order", PLAN.batches[:1]), "llmservingsim", "is not exported, it is wrong"),
        (PLAN, "sglang", "'sglang' is none of vllm-requests, llmservingsim"),
    ],
)
def test_wrong_ones_are_refused(plan: Schedule, format: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=text):
        infermax_opt.export_requests(INSTANCE, plan, tmp_path / "r.jsonl", format)
    assert list(tmp_path.iterdir()) == []
