"""Runs whose batches are replayed, by their own clocks."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given

from infermax_opt import api
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.files.csv_rows import read_rows
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.foreign.run import ForeignBatch, ForeignRequest, Run
from infermax_opt.gaps.bounds import best_bounds
from infermax_opt.gaps.subjects import of_run
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from tests.campaign import examples
from tests.foreign.chrome import chrome_trace, processed
from tests.infermax.strategies import instances
from tests.support import ROOT

TOY = str(ROOT / "instances" / "toy.json")


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["gap", *map(str, words), "--time-limit", "2"])


def traced(tmp_path: Path, instance: Instance, factor: float, name: str, scheduler: str = "vllm") -> Path:
    """The chrome trace of a schedule whose clock runs slower or faster."""
    events = chrome_trace(instance, api.schedule(instance, scheduler))["traceEvents"]
    scaled = [{**event, "ts": event["ts"] * factor, "dur": event["dur"] * factor} for event in events]
    path = tmp_path / name
    path.write_text(json.dumps({"traceEvents": scaled}))
    return path


def test_a_trace_that_is_too_fast_by_its_own_clock_comes_first(tmp_path: Path) -> None:
    honest = traced(tmp_path, read_instance(TOY), 1, "honest.json")
    fast = traced(tmp_path, read_instance(TOY), 0.5, "fast.json")
    table = tmp_path / "gap.csv"
    words = (TOY, honest, fast, "--metric", "makespan", "--metric", "mean_e2e")
    text = invoke(*words).output
    assert text.startswith("FASTER THAN ANY SCHEDULE of this machine: ")
    assert text.splitlines()[3] == ""  # they are two metrics of one run
    for line, metric in zip(text.splitlines()[1:3], ("makespan", "mean_e2e"), strict=True):
        assert line.split()[:4] == [str(fast), metric, "(own", "clock)"]
    done = invoke(*words, "--json", "--csv", table)
    runs = json.loads(done.output, parse_float=Fraction)["instances"][0]["runs"]
    assert [run["file"] for run in runs] == [str(fast), str(honest)]
    assert [run["faster_than_bound"] for run in runs] == [["makespan", "mean_e2e"], []]
    assert runs[0]["own_clock"]["makespan"]["gap"] is None
    # Replayed, both are the same schedule.
    assert runs[0]["metrics"] == runs[1]["metrics"]
    values = [float(run["own_clock"]["makespan"]["value"]) for run in runs]
    assert values == pytest.approx([values[1] / 2, float(runs[1]["metrics"]["makespan"]["value"])])
    assert [row["faster_than_bound"] for row in read_rows(table.read_text())] == ["makespan mean_e2e", ""]


def clocked(instance: Instance, schedule: Schedule) -> Run:
    """The run of a machine that is just the model: requests numbered as they arrive, moments from replay."""
    done = replay(instance, schedule)
    requests, unit = instance.requests, done.ticks_per_second
    order = sorted(range(len(requests)), key=lambda i: requests[i].arrival)
    names = {i: str(rank) for rank, i in enumerate(order)}
    batches = [
        ForeignBatch(
            Fraction(done.starts[j], unit),
            Fraction(done.ends[j], unit),
            {names[i]: count for i, count in tokens.items()},
        )
        for j, tokens in enumerate(processed(instance, schedule)) if tokens
    ]  # fmt: skip
    origin = batches[0].start
    moved = [replace(one, start=one.start - origin, end=one.end - origin) for one in batches]
    return Run("trace.json", "test", (), batches=tuple(moved))


@given(instances())
@examples(12, 300)
def test_the_own_clock_of_the_model_itself_is_never_too_fast(instance: Instance) -> None:
    try:
        schedule = api.schedule(instance, "vllm")
    except InputError:  # no schedule of this instance
        return
    own = problem_of(instance).scoring.own_times(instance, clocked(instance, schedule))
    found = dict(api.verify(instance, schedule).metrics.items())
    for bound in best_bounds(instance, ("makespan", "mean_e2e"), time_limit=0.05):
        assert own[bound.metric] <= found[bound.metric]
        assert bound.lower is not None
        assert bound.lower.value <= own[bound.metric]


def test_an_unfinished_run_has_no_times_of_its_own() -> None:
    toy = read_instance(TOY)
    run = clocked(toy, api.schedule(toy, "vllm"))
    own = problem_of(toy).scoring.own_times
    assert set(own(toy, run)) == {"makespan", "mean_e2e"}
    assert run.batches is not None
    assert own(toy, replace(run, batches=run.batches[:-1])) == {}


def test_batches_that_cannot_be_replayed_have_their_own_clock(tmp_path: Path) -> None:
    toy = read_instance(TOY)
    wide, small = (replace(toy, name=f"of-{m}", system=replace(toy.system, kv_capacity=m)) for m in (14, 7))
    fast = traced(tmp_path, wide, 0.5, "fast.json")
    write_instance(small, tmp_path / "small.json")
    text = invoke(tmp_path / "small.json", fast, "--metric", "makespan").output
    assert text.startswith("FASTER THAN ANY SCHEDULE")
    assert "its batches cannot be replayed" in text


def test_refused_batches_say_how_many_requests_have_several_readings() -> None:
    toy, other = read_instance(TOY), {"1": 1}
    groups = (RequestGroup("q0", 8, 2, Fraction(0)), RequestGroup("q1", 1, 9, Fraction(0)))
    made = Instance("made", groups, System(9, 32, 32), toy.cost)
    rows = [{"0": 4, "1": 1}, other, {"0": 4}, other, {"0": 5}, {"0": 3}, {"0": 1}, *[other] * 6]
    batches = tuple(ForeignBatch(Fraction(k), Fraction(k + 1), row) for k, row in enumerate(rows))
    requests = tuple(
        ForeignRequest(str(k), k + 1, Fraction(0), *size) for k, size in enumerate([(8, 2), (1, 9)])
    )
    found = of_run(made, Run("trace.json", "test", requests, batches=batches))
    *_, refused, several = found.measured.remarks
    assert refused.startswith("its batches cannot be replayed: ")
    assert "kv_capacity" in refused
    assert several.startswith("the batches of 1 of 2 requests can be read in")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"traceEvents": []}', "is a chrome trace that begins without batches"),
        ('[{"ph": "M", "ts": 0}]', "is a chrome trace that begins without batches"),
        ("[[1, 2], [3, 4]]", "a list is not an object"),
    ],
)
def test_what_is_no_trace_of_batches_is_said_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    for words in ((TOY, path), ("--machine", TOY, path)):
        done = invoke(*words)
        assert done.exit_code == 2
        (line,) = done.output.splitlines()
        known = said if said.startswith("is") or words[0] == TOY else "its contents do not show its format"
        assert line.startswith(f"infermax-opt: {path}: {known}")


def test_a_bare_list_of_events_is_the_same_trace(tmp_path: Path) -> None:
    honest = traced(tmp_path, read_instance(TOY), 1, "honest.json")
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(json.loads(honest.read_text())["traceEvents"]))
    done = invoke(TOY, honest, bare, "--metric", "makespan", "--json")
    whole, listed = json.loads(done.output)["instances"][0]["runs"]
    assert {**listed, "file": str(honest)} == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5", "is neither an object with the list 'traceEvents' nor a list of events"),
        ("[[1, 2], [3, 4]]", "[0]: a list is not an object"),
        ("[5]", "[0]: 5 is not an object"),
    ],
)
def test_what_is_no_list_of_events_is_said_where_the_format_is_named(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    done = invoke(TOY, path, "--format", "vidur-chrome-trace")
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1)
    assert said in done.output
