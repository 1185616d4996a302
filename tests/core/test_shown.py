"""Values show themselves, of every problem alike: a short line, plain values, frames."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

import infermax_opt
from infermax_opt.core.progress import ProgressEvent
from infermax_opt.core.registry import problem_of
from infermax_opt.core.shown import ShownInstance, ShownMetrics, ShownSchedule
from tests.support import ROOT

#: A small instance of every problem of the house, and a heuristic for it.
EXAMPLES = {
    "toy": "vllm",
    "iteration-toy": None,
    "makespan-100x20": None,
    "pipelining-small": None,
    "placement-toy": "best-fit",
    "stream-poisson-8": "look-ahead",
}
#: Most characters of a line.
LONGEST = 400


def made(name: str) -> tuple[Any, Any]:
    """An instance, and a schedule of it."""
    instance = infermax_opt.read_instance(ROOT / "instances" / f"{name}.json")
    heuristic = EXAMPLES[name] or problem_of(instance).heuristics()[0]
    return instance, infermax_opt.schedule(instance, heuristic)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_problem_shows_its_values(name: str) -> None:
    instance, schedule = made(name)
    check = infermax_opt.verify(instance, schedule)
    assert isinstance(instance, ShownInstance)
    assert isinstance(schedule, ShownSchedule)
    assert isinstance(check.metrics, ShownMetrics)
    for value in (instance, schedule, check, check.metrics):
        line = repr(value)
        assert len(line) < LONGEST, line
        assert "\n" not in line
        assert line.startswith(f"<{type(value).__name__}: ")
        assert type(value).__name__ in value._repr_html_()
        json.dumps(value.to_dict())
        assert len(value.to_frame()) == 1
    assert problem_of(instance).instance_from_json(instance.to_dict()) == instance
    assert problem_of(instance).schedule_from_json(schedule.to_dict(), "") == schedule
    rows = check.requests_frame()
    assert list(rows["id"]) == [request.id for request in instance.requests]
    own = set(rows) - set(instance.requests_frame())
    assert own or list(rows["worker"]) != list(instance.requests_frame()["worker"])


def test_metrics_are_exact_and_floats_stand_beside_them() -> None:
    instance, schedule = made("toy")
    metrics = infermax_opt.verify(instance, schedule).metrics
    assert metrics is not None
    assert isinstance(metrics.makespan, Fraction)
    floats = metrics.floats()
    assert floats["makespan"] == float(metrics.makespan)
    assert type(floats["makespan"]) is float
    assert floats["batches"] == metrics.batches
    assert type(floats["batches"]) is int
    assert list(floats) == [name for name, _ in metrics.items()]
    assert "more>" in repr(metrics)


def column(frame: Any, name: str) -> Sequence[Any]:
    values: Sequence[Any] = frame[name].tolist()
    return values


def test_rows_of_requests_and_batches_agree_with_the_metrics() -> None:
    instance, schedule = made("toy")
    check = infermax_opt.verify(instance, schedule)
    rows, batches = check.requests_frame(), check.batches_frame()
    floats = check.metrics.floats()
    for metric in ("ttft", "tpot", "e2e"):
        assert sum(column(rows, metric)) / len(rows) == pytest.approx(floats[f"mean_{metric}"])
    assert sum(column(rows, "evictions")) == floats["evictions"] > 0
    assert max(column(rows, "finish")) == pytest.approx(floats["makespan"])
    assert column(batches, "end")[-1] == pytest.approx(floats["makespan"])
    assert len(batches) == floats["batches"]
    assert max(column(batches, "kv_tokens")) == floats["peak_kv"]


def test_bins_and_requests_of_a_makespan_schedule_agree_with_its_metrics() -> None:
    instance, schedule = made("makespan-100x20")
    check = infermax_opt.verify(instance, schedule)
    makespan = pytest.approx(check.metrics.floats()["makespan"])
    assert max(column(check.requests_frame(), "finish")) == makespan
    bins = check.batches_frame()
    last = bins.iloc[-1]
    assert last["start"] + last["prefill_seconds"] + last["decode_seconds"] == makespan


def test_a_result_says_all_in_one_row_and_as_its_file_does() -> None:
    from infermax_opt.files.json import to_json_text
    from infermax_opt.files.results import result_to_json

    instance, _ = made("toy")
    result = infermax_opt.solve(instance, time_limit=5)
    assert result.to_dict() == {
        key: value
        for key, value in json.loads(to_json_text(result_to_json(result))).items()
        if key != "schema"
    }
    (row,) = result.to_frame().to_dict("records")
    assert row["status"] == "optimal"
    assert row["gap"] == 0
    assert row["makespan"] == float(result.metrics.makespan)
    assert len(repr(result)) < LONGEST
    assert len(result.requests_frame()) == 2
    assert len(repr(result.lower)) < LONGEST


def test_rows_need_a_schedule_and_its_instance() -> None:
    instance, schedule = made("toy")
    bound = infermax_opt.verify(instance, schedule)
    without = type(bound)((), (), None, None, None, None)
    with pytest.raises(infermax_opt.InputError, match="instance: is not known"):
        without.requests_frame()
    with pytest.raises(infermax_opt.InputError, match="schedule: there is none"):
        without.requests_frame(instance)


def test_a_line_of_a_million_requests_is_short_and_quick() -> None:
    instance, _ = made("toy")
    from dataclasses import replace

    group = infermax_opt.RequestGroup("r", 4, 4, count=1_000_000)
    large = replace(instance, name="large", groups=(group,))
    assert "requests 1000000" in repr(large)
    assert "requests" not in large.__dict__, "groups were expanded"


def test_without_pandas_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import infermax_opt\n"
        f"instance = infermax_opt.read_instance({str(ROOT / 'instances' / 'toy.json')!r})\n"
        "try: instance.to_frame()\n"
        "except infermax_opt.InputError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "data frames cannot be had: pandas is not installed; pip install 'infermax-opt[frames]'\n"
    )


def test_a_line_shows_no_bound_above_and_no_gap_below_what_it_is() -> None:
    third = Fraction(2, 3)
    bound = infermax_opt.LowerBound(third, "own", infermax_opt.Proof.CLOSED_FORM)
    assert "value 0.666666," in repr(bound)
    assert "<td style='text-align:left'>0.666666</td>" in bound._repr_html_()
    event = ProgressEvent("", 0.0, value=1.0, bound=2 / 3)
    assert "bound 0.666666, gap 0.333334," in repr(event)
    met = ProgressEvent("", 0.0, value=2 / 3, bound=2 / 3)
    assert "value 0.666667, bound 0.666667, gap 0," in repr(met)
