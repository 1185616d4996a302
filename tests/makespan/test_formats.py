"""Files of the makespan problem, and instances like the paper's."""

from __future__ import annotations

import json
import statistics
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.instances import read_instance
from infermax_opt.infermax.data import formats
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.makespan.data.formats import (
    bins_from_json,
    bins_to_json,
    makespan_instance_from_json,
    makespan_instance_to_json,
    read_bins,
    write_bins,
    write_makespan_instance,
)
from infermax_opt.makespan.data.generate import DISTRIBUTIONS, gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.methods.online import OnlineOptions, run_online
from tests.support import ROOT

INSTANCE: dict[str, Any] = {
    "schema": "infermax-opt/instance/1",
    "problem": "makespan",
    "name": "two",
    "requests": [
        {"id": "a", "input_tokens": 5, "output_tokens": 3, "count": 2},
        {"id": "b", "input_tokens": 6, "output_tokens": "4", "estimated_output_tokens": 9},
    ],
    "clients": 2,
    "prefill": {"levels": [[10, "2.5"], [20, 3]]},
    "decode": {"overhead": "0.029", "token": 0},
}


def test_an_instance_is_read_and_written(tmp_path: Path) -> None:
    instance = makespan_instance_from_json(INSTANCE)
    assert [(r.id, r.output_tokens, r.estimated_output_tokens) for r in instance.requests] == [
        ("a.1", 3, 3), ("a.2", 3, 3), ("b", 4, 9),
    ]  # fmt: skip
    assert instance.level_ticks == ((10, 2500), (20, 3000))
    write_makespan_instance(instance, tmp_path / "i.json.gz")
    again = read_instance(tmp_path / "i.json.gz")
    assert isinstance(again, MakespanInstance)
    assert again == instance
    assert again.sha256 == instance.sha256
    with pytest.raises(InputError, match="'makespan' is not 'infermax'"):
        formats.read_instance(tmp_path / "i.json.gz")
    assert isinstance(read_instance(ROOT / "instances/toy.json"), Instance)


def test_levels_may_be_linear() -> None:
    linear = {**INSTANCE, "prefill": {"overhead": "0.025", "token": "0.00013", "levels": [100, 5000]}}
    levels = makespan_instance_from_json(linear).levels
    assert [(level.tokens, level.seconds) for level in levels] == [
        (100, Fraction("0.038")), (5000, Fraction("0.675")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"clients": 0}, "clients"),
        ({"clients": True}, "clients"),
        ({"problem": "infermax"}, "problem"),
        ({"schema": "x"}, "schema"),
        ({"name": ""}, "name"),
        ({"speed": 1}, "speed"),
        ({"requests": {}}, "requests"),
        ({"requests": []}, "requests"),
        ({"requests": [{"id": "a", "input_tokens": 5}]}, "requests[0].output_tokens"),
        ({"requests": [{**INSTANCE["requests"][0], "count": None}]}, "requests[0].count"),
        ({"requests": [{**INSTANCE["requests"][0], "input_tokens": 21}]}, "requests[0].input_tokens"),
        ({"requests": [{**INSTANCE["requests"][0], "output_tokens": 1.5}]}, "requests[0].output_tokens"),
        ({"requests": [{**INSTANCE["requests"][0], "id": 7}]}, "requests[0].id"),
        ({"prefill": [[10, 1]]}, "prefill"),
        ({"prefill": {"levels": [[10]]}}, "prefill.levels[0]"),
        ({"prefill": {"levels": [[10, "x"]]}}, "prefill.levels[0].seconds"),
        ({"prefill": {"levels": [[0, 1]]}}, "prefill.levels[0]"),
        ({"prefill": {"levels": []}}, "prefill.levels"),
        ({"prefill": {"levels": [[10, 1]], "token": 1}}, "prefill.overhead"),
        ({"prefill": {"levels": ["x"], "token": 1, "overhead": 1}}, "prefill.levels[0]"),
        ({"prefill": {"levels": [10], "token": -1, "overhead": 1}}, "prefill.token"),
        ({"decode": {"overhead": 1}}, "decode.token"),
        ({"decode": {"overhead": "-1", "token": 2}}, "decode.overhead"),
        ({"decode": {"overhead": 0, "token": 0}}, "decode"),
    ],
)
def test_a_bad_instance_is_one_line_with_the_field(
    change: dict[str, Any], field: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        makespan_instance_from_json({**INSTANCE, **change})
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**INSTANCE, "clients": "many"}))
    with pytest.raises(InputError, match=r"bad\.json: clients: "):
        read_instance(path)


def test_a_schedule_is_read_and_written(tmp_path: Path) -> None:
    schedule = MakespanSchedule("two", [Bin({"a.1": 1, "b": 2}, 3, {"a.1": 2}), Bin({}, 1)])
    write_bins(schedule, tmp_path / "s.json")
    assert read_bins(tmp_path / "s.json") == schedule
    assert bins_to_json(schedule)["bins"][1] == {"prefill": {}, "rounds": 1}


@pytest.mark.parametrize(
    ("bins", "field"),
    [
        ("x", "bins"),
        ([{"prefill": {"a": 1}}], "bins[0].rounds"),
        ([{"rounds": 1.0}], "bins[0].rounds"),
        ([{"rounds": -1}], "bins[0].rounds"),
        ([{"rounds": 1, "prefill": {"a": "1"}}], "bins[0].prefill.a"),
        ([{"rounds": 1, "prefill": ["a"]}], "bins[0].prefill"),
        ([{"rounds": 1}, {"rounds": 1, "decode": {"a": -2}}], "bins[1].decode.a"),
        ([{"rounds": 1, "evict": []}], "bins[0].evict"),
    ],
)
def test_a_bad_schedule_is_one_line_with_the_field(bins: object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        bins_from_json({"schema": "infermax-opt/schedule/1", "instance": "two", "bins": bins})
    assert caught.value.field == field


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_lengths_have_the_moments_of_the_paper(distribution: str) -> None:
    instance = gsm8k_like(distribution=distribution, requests=20_000, clients=200)
    for name, mean, deviation, most in (
        ("input_tokens", 68.43, 25.04, 512), ("output_tokens", 344.83, 187.99, 512),
    ):  # fmt: skip
        lengths = [getattr(request, name) for request in instance.requests]
        assert min(lengths) >= 1
        assert max(lengths) <= most
        assert abs(statistics.fmean(lengths) - mean) < 0.02 * mean
        assert abs(statistics.pstdev(lengths) - deviation) < 0.03 * deviation


def test_seeds_and_errors_of_estimates() -> None:
    one, same, other = gsm8k_like(seed=1), gsm8k_like(seed=1), gsm8k_like(seed=2)
    assert one == same
    assert one.requests != other.requests
    assert all(r.estimated_output_tokens == r.output_tokens for r in one.requests)
    noisy = gsm8k_like(seed=1, error=0.5)
    off = [abs(r.estimated_output_tokens / r.output_tokens - 1) for r in noisy.requests]
    assert 0.2 < statistics.median(off) < 0.5
    assert makespan_instance_from_json(makespan_instance_to_json(noisy)).sha256 == noisy.sha256


@pytest.mark.parametrize(
    ("options", "field"), [({"distribution": "x"}, "distribution"), ({"error": -1}, "error")]
)
def test_a_bad_option_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        gsm8k_like(**options)
    assert caught.value.field == field


def test_small_cases_can_be_served() -> None:
    instance = gsm8k_like(requests=7, clients=2)
    assert len(run_online(instance, OnlineOptions()).schedule.bins) >= 4
