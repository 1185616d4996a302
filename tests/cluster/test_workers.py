"""Series of workers over time, the verifier of streams, their files and the command."""

from __future__ import annotations

import csv
import json
import random
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from infermax_opt.cli.main import cli
from infermax_opt.cluster.data.formats import stream_from_json, stream_of_trace, stream_to_json, write_stream
from infermax_opt.cluster.data.generate import poisson_stream
from infermax_opt.cluster.data.stream import Stream, StreamRequest, stream_unplaceable
from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.replay.check import check_stream
from infermax_opt.cluster.replay.metrics import measure_stream
from infermax_opt.cluster.replay.replay import replay_stream
from infermax_opt.cluster.report import series_text, series_to_json
from infermax_opt.cluster.series import worker_series
from infermax_opt.core.errors import InputError
from infermax_opt.files.json import to_json_text
from infermax_opt.files.report import metrics_text
from infermax_opt.files.traces import read_trace
from infermax_opt.placement.data.generate import SLO_13B, WORKER_13B, paper_like
from infermax_opt.placement.data.instance import Slo
from infermax_opt.placement.data.schedule import Placement
from tests.campaign import campaign
from tests.placement.oracle import fewest_workers
from tests.support import ROOT


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def stream(seed: int, requests: int = 60, seconds: int = 6, *, split_phase: bool = False) -> Stream:
    """Lengths like ShareGPT's, arrivals spread evenly at random."""
    rng = random.Random(seed)
    lengths = paper_like(seed, requests).requests
    return Stream(
        f"s{seed}",
        tuple(
            StreamRequest(
                r.id, Fraction(rng.randrange(1000 * seconds), 1000), r.input_tokens,
                r.predicted_output_tokens, r.output_tokens,
            )
            for r in lengths
        ),
        WORKER_13B,
        SLO_13B,
        split_phase=split_phase,
    )  # fmt: skip


@pytest.mark.parametrize("split_phase", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_series_is_verified_and_ordered(seed: int, split_phase: bool) -> None:
    given = stream(seed, split_phase=split_phase)
    series = worker_series(given)
    check = check_stream(given, series.placement)
    assert check.ok
    assert series.verified
    assert [beat.workers for beat in check.beats] == [beat.upper for beat in series.beats]
    assert check.metrics == series.metrics
    assert all(beat.any_policy <= beat.lower <= beat.upper for beat in series.beats)
    assert series.metrics.late_ttft == 0
    assert sum(beat.new for beat in series.beats) == len(given.requests)


@pytest.mark.parametrize("seed", campaign(3, 4))
def test_bounds_given_the_past_are_exact_optima(seed: int) -> None:
    given = stream(seed, requests=14, seconds=5)
    series = worker_series(given)
    optima = {}

    def decide(beat):  # type: ignore[no-untyped-def]
        optima[beat.number] = fewest_workers(beat.instance)
        return {given.requests[k].id: series.placement.workers[given.requests[k].id] for k in beat.new}

    replay_stream(given, decide)
    found = {beat.beat: beat for beat in series.beats if beat.new}
    assert found.keys() == optima.keys()
    for number, optimum in optima.items():
        assert found[number].lower <= optimum <= found[number].upper
        assert found[number].lower == found[number].upper


def test_no_peak_is_below_the_mean_beside_it() -> None:
    series = worker_series(stream(0))
    peak, lower = series.peak("any_policy"), series.peak("lower")
    for name in ("any_policy", "lower", "upper"):
        assert series.peak(name) == max(getattr(beat, name) for beat in series.beats)
    high = replace(series, work=replace(series.work, workers=Fraction(3 * peak + 1, 3)))
    assert high.mean("any_policy") == Fraction(3 * peak + 1, 3)
    assert (high.peak("any_policy"), high.peak("lower")) == (peak + 1, lower)
    assert series_to_json(high)["peak"]["any_policy"] == peak + 1


def test_time_limit_falls_back_to_best_fit() -> None:
    given = stream(0)
    series = worker_series(given, time_limit=1e-9)
    assert series.cut_short == series.beats[0].beat
    assert check_stream(given, series.placement).ok
    assert series.peak("lower") <= worker_series(given).peak("upper")


def test_verifier_finds_what_is_wrong() -> None:
    given = stream(1)
    one = Placement(given.name, {r.id: 1 for r in given.requests})
    check = check_stream(given, one)
    assert not check.ok
    assert check.rules.keys() & {"saved_time", "iteration_time"}
    assert check.metrics is not None
    assert check.metrics.attainment < 1
    missing = Placement(given.name, {"r1": 1, "x": 2})
    check = check_stream(given, missing)
    assert check.metrics is None
    assert check.rules == {"unknown_request": 1, "not_placed": len(given.requests) - 1}


def test_format_round_trip_and_errors(tmp_path: Path) -> None:
    given = replace(stream(2), theta=Fraction("0.9"), heartbeat=Fraction("0.25"), split_phase=True)
    value = json.loads(to_json_text(stream_to_json(given)))
    assert stream_from_json(value) == given
    assert stream_from_json(value).sha256 == given.sha256
    for change, field in (
        ({"theta": 0}, "theta"),
        ({"heartbeat": -1}, "heartbeat"),
        ({"split_phase": 1}, "split_phase"),
        ({"requests": []}, "requests"),
        ({"extra": 1}, "extra"),
        ({"problem": "placement"}, "problem"),
        ({"problem": "infermax"}, "problem"),
    ):
        with pytest.raises(InputError) as caught:
            stream_from_json({**value, **change})
        assert caught.value.field == field
    value["requests"][3]["arrival"] = "soon"
    with pytest.raises(InputError) as caught:
        stream_from_json(value)
    assert caught.value.field == "requests[3].arrival"


TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:46.9951690,396,109
2023-11-16 18:15:47.2951690,4090,20
2023-11-16 18:15:48.9951690,879,55
2023-11-16 18:15:49.4951690,91,16
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "azure.csv"
    path.write_text(TRACE)
    return str(path)


def test_streams_of_traces(trace: str) -> None:
    left, made = stream_of_trace(read_trace(trace, "azure"), "a", WORKER_13B, SLO_13B)
    assert len(left.requests) == len(made.requests) == 5
    assert [made.beat(r) for r in made.requests] == [0, 1, 1, 3, 3]
    tight = replace(SLO_13B, ttft=Fraction("0.3"))
    with pytest.raises(InputError) as caught:
        stream_of_trace(read_trace(trace, "azure"), "a", WORKER_13B, tight)
    assert caught.value.field == "line 4"
    left, made = stream_of_trace(read_trace(trace, "azure"), "a", WORKER_13B, tight, skip_unfit=True)
    assert len(made.requests) == 4
    assert left.dropped == {"can never fit": 1}
    small = replace(WORKER_13B, kv_capacity=Fraction(1000))
    left, made = stream_of_trace(read_trace(trace, "azure"), "a", small, SLO_13B, skip_unfit=True)
    assert len(made.requests) == 4


def test_predictions_fit_where_the_truth_does(trace: str) -> None:
    small = replace(WORKER_13B, kv_capacity=Fraction(4200))
    for seed in range(5):
        _, made = stream_of_trace(read_trace(trace, "azure"), "a", small, SLO_13B, error=3.0, seed=seed)
        assert not stream_unplaceable(made)


def test_command(trace: str, tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("s.csv", "s.png", "p.json", "stream.json")}
    done = run(
        "workers", trace, "--format", "azure", "-o", files["s.csv"], "--plot", files["s.png"],
        "--placement", files["p.json"], "--stream", files["stream.json"],
    )  # fmt: skip
    assert done.exit_code == 0
    assert done.stderr == ""
    assert "lower bound, any policy" in done.stdout
    rows = list(csv.DictReader(Path(files["s.csv"]).read_text().splitlines()))
    assert [row["seconds"] for row in rows] == ["0", "1", "2", "3"]
    assert all(int(row["any_policy"]) <= int(row["lower"]) <= int(row["upper"]) for row in rows)
    again = run("workers", files["stream.json"], "--json")
    value = json.loads(again.stdout)
    assert again.exit_code == 0
    assert value["peak"]["upper"] == max(int(row["upper"]) for row in rows)
    checked = run("verify", files["stream.json"], files["p.json"])
    assert checked.exit_code == 0
    assert "verified: nothing is wrong" in checked.stdout
    moved = json.loads(Path(files["p.json"]).read_text())
    moved["workers"] = dict.fromkeys(moved["workers"], 1)
    Path(files["p.json"]).write_text(json.dumps(moved))
    checked = run("verify", files["stream.json"], files["p.json"])
    assert checked.exit_code == 1
    assert "heartbeat" in checked.stdout
    drawn = run("plot", files["stream.json"], files["p.json"], "-o", files["s.png"])
    assert drawn.exit_code == 1
    assert drawn.stderr.count("\n") == 1


def test_results_are_read_back(trace: str, tmp_path: Path) -> None:
    """Placements have the same class of schedules, and other metrics."""
    files = {name: tmp_path / name for name in ("stream.json", "r.json", "page.html")}
    run("workers", trace, "--format", "azure", "--stream", files["stream.json"])
    assert run("solve", files["stream.json"], "-o", files["r.json"]).exit_code == 0
    checked = run("verify", files["stream.json"], files["r.json"], "--strict")
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert run("report", files["r.json"], "-o", files["page.html"]).exit_code == 0
    assert "share of the requests with TTFT and ATGT within their limits" in files["page.html"].read_text()
    claim = json.loads(files["r.json"].read_text())
    claim["metrics"]["wokers"] = 1
    files["r.json"].write_text(json.dumps(claim))
    for read in (("verify", files["stream.json"]), ("report",)):
        done = run(*read, files["r.json"], *(("-o", files["page.html"]) if read == ("report",) else ()))
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "metrics.wokers: is not a known key" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--ttft", "0.3"), 2, "line 4: the request can never fit: limit c"),
        (("--ttft", "0.001", "--skip-unfit"), 2, "holds no request that fits"),
        (("--worker", "nope", "--ttft", "1", "--atgt", "1"), 2, "'nope' is none of 13b, 70b, a profile"),
        (("--worker", "llama-3.1-8b_h100"), 2, "--ttft, --atgt: both are needed with this worker"),
        (("--worker", "missing.json", "--ttft", "1", "--atgt", "1"), 2, "missing.json"),
        (("--theta", "2"), 2, "theta"),
        (("--heartbeat", "0"), 2, "heartbeat"),
        (("--plot", "x.pdf"), 2, ".png or .svg"),
        (("--plot", "x.png", "-o", "x.png"), 2, "written twice"),
    ],
)
def test_wrong_use(trace: str, options: tuple[str, ...], code: int, text: str) -> None:
    done = run("workers", trace, "--format", "azure", *options)
    assert done.exit_code == code
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_impossible_stream_is_explained(trace: str, tmp_path: Path) -> None:
    _, made = stream_of_trace(read_trace(trace, "azure"), "a", WORKER_13B, SLO_13B)
    path = tmp_path / "stream.json"
    write_stream(replace(made, slo=Slo(Fraction(1), Fraction("0.02"))), path)
    done = run("workers", str(path))
    assert done.exit_code == 1
    assert "request 'r1' fits on no worker: limit b, iteration time" in done.stderr
    assert run("workers", str(path), "--ttft", "1").exit_code == 2


def test_simulate(trace: str, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("r.csv", "r.json", "p.json", "stream.json")}
    run("workers", trace, "--format", "azure", "--stream", files["stream.json"])
    for policy, more in (
        ("aladdin", ()), ("look-ahead", ()), ("jsq", ("--workers", "3")), ("grouped", ("--groups", "2")),
    ):  # fmt: skip
        done = run("simulate", files["stream.json"], "--policy", policy, *more, "-o", files["r.csv"])
        assert done.exit_code == 0, done.output
        assert f"policy {policy}" in done.stdout
        assert f"wrote {files['r.csv']}" in done.stdout
        rows = list(csv.DictReader(files["r.csv"].read_text().splitlines()))
        assert [row["id"] for row in rows] == ["r1", "r2", "r3", "r4", "r5"]
        assert all(row["met"] == "true" for row in rows if policy == "look-ahead")
    done = run("simulate", trace, "--format", "azure", "-o", files["r.json"], "--placement", files["p.json"])
    assert done.exit_code == 0
    value = json.loads(files["r.json"].read_text())
    assert len(value["requests"]) == 5
    assert value["limits_exceeded"] == {}
    assert [beat["new"] for beat in value["heartbeats"]] == [1, 2, 0, 2]
    assert run("verify", files["stream.json"], files["p.json"]).exit_code == 0
    assert "look-ahead" in run("simulate", "--list").stdout


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--policy", "nope"), "'nope' is none of aladdin"),
        (("--policy", "jsq"), "jsq needs a number of workers"),
        (("--policy", "grouped"), "grouped needs a number of groups"),
        (("--placement", "x", "-o", "x"), "written twice"),
        (("-o", "/"), "is a directory"),
    ],
)
def test_wrong_use_of_simulate(trace: str, options: tuple[str, ...], text: str) -> None:
    done = run("simulate", trace, "--format", "azure", *options)
    assert done.exit_code == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_fleet_too_small_is_no_reason_to_fail(trace: str) -> None:
    done = run("simulate", trace, "--format", "azure", "--policy", "jsq", "--workers", "1", "--json")
    value = json.loads(done.stdout)
    assert done.exit_code == 0
    assert value["limits_exceeded"]
    assert value["metrics"]["peak_workers"] == 1


def test_split_phase_has_two_sides_and_a_forecast(tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    write_stream(poisson_stream(2, 250, seed=3, split_phase=True), path)
    done = run("workers", path, "--json")
    value = json.loads(done.stdout)
    assert done.exit_code == 0
    assert value["prefill"]["instance"].endswith("(prefill)")
    assert value["verified"]
    assert value["prefill"]["verified"]
    assert value["forecast"]["points"] == 4
    assert "ceil(" in run("workers", path).stdout


def test_the_bounds_name_their_class_and_stand_beside_values_of_it_only() -> None:
    """Look-ahead need not keep limits a to e: here it uses fewer workers than a lower bound says."""
    path = ROOT / "instances" / "stream-poisson-8.json"
    text = run("workers", path).stdout
    block = text.split("fewest workers at a heartbeat, for policies that keep limits a to e\n")[1]
    bounds, other = block.split("workers of a policy of another class\n")
    assert "look-ahead" not in bounds
    assert re.search(r"lower bound, any policy within limits a to e +3 +2\.3 ", bounds)
    assert re.search(
        r"lower bound, limits a to e, ongoing requests where this run put them +5 +4\.05 ", bounds
    )
    assert re.search(r"look-ahead: 100 % of the requests within TTFT and ATGT +5 +3\.983\n", other)
    assert (
        "no bound above holds for it\n  so both are true: look-ahead uses fewer workers than 'lower" in other
    )
    value = json.loads(run("workers", path, "--json").stdout)
    assert value["classes"]["any_policy"] == "lower bound, any policy within limits a to e"
    assert value["classes"].keys() == {"any_policy", "lower", "upper", "look_ahead"}


def test_an_attainment_is_never_shown_as_more_than_it_is() -> None:
    replay = replay_stream(stream(0), make_policy("look-ahead"))
    metrics = replace(measure_stream(replay), attainment=Fraction(9996, 10_000))
    assert "attainment               99.9 %" in metrics_text(metrics)
    series = worker_series(stream(0))
    assert series.look_ahead is not None
    short = replace(series, look_ahead=replace(series.look_ahead, attainment=Fraction(99_999, 100_000)))
    assert "look-ahead: 99.9 % of the requests" in series_text(short)
