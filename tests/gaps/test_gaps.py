"""Scores: numbers of runs are those of replay, bounds hold, and what is faster than a bound comes first."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings

from infermax_opt import api
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound
from infermax_opt.files.csv_rows import read_rows
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.files.results import write_result, write_with_certificate
from infermax_opt.foreign.reading import RUN_FORMATS
from infermax_opt.foreign.run import ForeignRequest, Run
from infermax_opt.gaps.bounds import best_bounds
from infermax_opt.gaps.collect import gap, score
from infermax_opt.gaps.report import gaps_text
from infermax_opt.gaps.subjects import of_run
from infermax_opt.infermax.data.instance import Instance, Metric, RequestGroup, System
from infermax_opt.infermax.problem import InferMaxProblem
from infermax_opt.infermax.replay.metrics import Metrics
from tests.foreign import samples
from tests.foreign.chrome import chrome_trace
from tests.infermax.oracle import optimum
from tests.infermax.strategies import instances
from tests.infermax.tiny import tiny
from tests.support import ROOT

TOY = str(ROOT / "instances" / "toy.json")


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["gap", *map(str, words), "--time-limit", "2"])


def replayed(instance: Instance) -> Metrics:
    """Metrics of a schedule that every instance has."""
    check = api.verify(instance, api.schedule(instance, "vllm"))
    assert check.ok
    found: Metrics = check.metrics
    return found


def run_of(metrics: Metrics, *, named: bool = False, later: Fraction = Fraction(0)) -> Run:
    """The run that measures what was replayed, started later than the instance, last requests first."""
    made = metrics.latencies
    first = min(request.arrival for request in made.instance.requests)
    requests = [
        ForeignRequest(
            request.id if named else f"bench-{k}", k + 1, request.arrival - first + later,
            request.input_tokens, request.output_tokens,
            Fraction(made.ttft[k], made.unit), Fraction(made.e2e[k], made.unit), evictions=0,
        )
        for k, request in enumerate(made.instance.requests)
    ]  # fmt: skip
    return Run("run.json", "test", tuple(sorted(requests, key=lambda came: came.arrival)))


@given(instances())
@settings(max_examples=60, deadline=None)
def test_numbers_of_a_run_are_those_of_replay(instance: Instance) -> None:
    try:
        metrics = replayed(instance)
    except InputError:  # no schedule of this instance
        return
    for named in (True, False):
        found = problem_of(instance).scoring.measured(instance, run_of(metrics, named=named)).metrics
        for metric in Metric:
            exact, close = getattr(metrics, metric.value), found[metric.value]
            same_terms = named or len({request.terms for request in instance.requests}) == 1
            if exact is None:
                assert close is None
            elif same_terms and metric is not Metric.CLASS_SPREAD:
                assert close is not None
                assert abs(close - exact) < Fraction(1, 10**8), metric


def test_what_comes_later_than_in_the_instance_waits() -> None:
    instance = tiny(3, arrivals=True)
    run = run_of(replayed(instance), named=True)
    last = run.requests[-1]
    moved = replace(run, requests=(*run.requests[:-1], replace(last, arrival=last.arrival + 2)))
    before = problem_of(instance).scoring.measured(instance, run)
    after = problem_of(instance).scoring.measured(instance, moved)
    assert after.metrics["max_e2e"] >= 2
    mean = Fraction(2, len(run.requests))
    assert abs(after.metrics["mean_e2e"] - before.metrics["mean_e2e"] - mean) < Fraction(1, 10**8)
    assert any("2 s later" in remark for remark in after.remarks)


def test_what_a_file_does_not_say_is_not_guessed() -> None:
    instance = tiny(3, arrivals=True)
    run = run_of(replayed(instance))
    blind = replace(run, requests=tuple(replace(came, ttft=None, evictions=None) for came in run.requests))
    found = problem_of(instance).scoring.measured(instance, blind)
    assert found.metrics["mean_ttft"] is None
    assert found.metrics["mean_tpot"] is None
    assert found.metrics["evictions"] is None
    assert found.metrics["mean_e2e"] is not None
    assert list(found.latencies) == ["e2e"]


def test_other_requests_are_refused() -> None:
    instance = tiny(3, arrivals=True)
    run = run_of(replayed(instance))
    longer = replace(run.requests[0], output_tokens=run.requests[0].output_tokens + 100)
    with pytest.raises(InputError, match="not the same workload"):
        problem_of(instance).scoring.measured(instance, replace(run, requests=(longer, *run.requests[1:])))
    with pytest.raises(InputError, match="not the same workload"):
        problem_of(instance).scoring.measured(instance, replace(run, requests=run.requests[1:]))


def test_requests_named_alike_with_other_tokens_are_refused() -> None:
    instance = tiny(3, arrivals=True)
    run = run_of(replayed(instance), named=True)
    longer = replace(run.requests[1], output_tokens=run.requests[1].output_tokens + 1)
    wrong = replace(run, requests=(run.requests[0], longer, *run.requests[2:]))
    with pytest.raises(InputError, match=rf"request '{longer.name}': has .* tokens; in the instance"):
        problem_of(instance).scoring.measured(instance, wrong)


@pytest.mark.parametrize("seed", range(20))
def test_requests_are_matched_by_lengths_and_order_of_arrival(seed: int) -> None:
    """As an oracle of a few lines does it, also where times are no finite decimals."""
    draw = random.Random(seed)
    toy = read_instance(TOY)
    lengths = [(draw.randint(1, 2), draw.randint(1, 2)) for _ in range(6)]
    groups = [RequestGroup(f"r{k}", *both, draw.randint(0, 3)) for k, both in enumerate(lengths)]
    instance = replace(toy, groups=tuple(groups))
    came = [
        ForeignRequest(
            f"c{k}", k + 1, Fraction(draw.randint(0, 9), 7), *both, Fraction(1, 3), Fraction(k + 7, 3)
        )
        for k, both in enumerate(draw.sample(lengths, 6))
    ]
    run = Run("run.json", "test", tuple(sorted(came, key=lambda one: one.arrival)))
    pairs, left = [], list(run.requests)
    for k in sorted(range(6), key=lambda k: groups[k].arrival):
        mine = next(one for one in left if (one.input_tokens, one.output_tokens) == lengths[k])
        left.remove(mine)
        pairs.append((Fraction(groups[k].arrival), mine))
    shift = max(arrival - one.arrival for arrival, one in pairs)
    found = problem_of(instance).scoring.measured(instance, run)
    waits = [one.arrival + shift - arrival for arrival, one in pairs]
    ends = [wait + one.e2e for wait, (_, one) in zip(waits, pairs, strict=True) if one.e2e is not None]
    assert abs(found.metrics["mean_e2e"] - sum(ends, Fraction(0)) / 6) < Fraction(1, 10**8)
    assert abs(found.metrics["max_e2e"] - max(ends)) < Fraction(1, 10**8)
    assert abs(found.metrics["mean_ttft"] - sum(waits, Fraction(2)) / 6) < Fraction(1, 10**8)


def test_a_run_on_a_machine_has_its_own_requests(tmp_path: Path) -> None:
    toy = read_instance(TOY)
    scoring = problem_of(toy).scoring
    run = run_of(replayed(tiny(3, arrivals=True)))
    made = scoring.run_instance(scoring.machine(TOY, {"kv_capacity": "500"}), run, "mine")
    assert [r.arrival for r in made.requests] == [came.arrival for came in run.requests]
    assert made.system == replace(toy.system, kv_capacity=500)
    assert of_run(made, run).measured.metrics["makespan"] is not None
    with pytest.raises(InputError, match="'gpus' is none of kv_capacity"):
        scoring.machine(TOY, {"gpus": "1"})
    with pytest.raises(InputError, match="limit kv_capacity: '5k' is not a whole number"):
        scoring.machine(TOY, {"kv_capacity": "5k"})


def test_a_profile_is_a_machine_with_limits(tmp_path: Path) -> None:
    profile = tmp_path / "cost.json"
    cost = {"batch": [["0.01", "0.0001"]], "decode": ["0", "0"], "prefill": ["0", "0"], "attention": "exact"}
    profile.write_text(json.dumps({"kv_capacity": 700, "cost": cost}))
    scoring = problem_of(read_instance(TOY)).scoring
    with pytest.raises(InputError, match="max_batch_tokens: a cost profile has none; say --limit"):
        scoring.machine(str(profile), {})
    machine = scoring.machine(str(profile), {"max_batch_tokens": "2048", "block_size": "16"})
    assert (machine.system.kv_capacity, machine.system.max_prefill_tokens) == (700, 2048)


@pytest.mark.parametrize("seed", range(4))
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    instance = tiny(seed, arrivals=seed % 2 == 0)
    for bound in best_bounds(instance, ("makespan", "mean_e2e", "mean_ttft"), time_limit=3):
        assert bound.lower is not None
        assert bound.lower.value <= optimum(bound.instance)


def test_a_run_that_is_too_fast_comes_first() -> None:
    instance = tiny(3, arrivals=True)
    honest = run_of(replayed(instance))
    short = [replace(c, ttft=c.ttft / 50, e2e=c.e2e / 50) for c in honest.requests if c.ttft and c.e2e]
    fast = replace(honest, path="fast.json", requests=tuple(short))
    groups = score([of_run(instance, honest), of_run(instance, fast)], time_limit=2)
    assert [run.subject.label for run in groups[0].runs] == ["fast.json", "run.json"]
    assert gaps_text(groups).startswith("FASTER THAN ANY SCHEDULE")
    assert not any(row.faster for row in groups[0].runs[1].rows)
    assert all(row.gap is None for row in groups[0].runs[0].rows if row.faster)
    assert "below the bound" in gaps_text(groups)


def test_a_metric_that_cannot_be_minimised_is_refused() -> None:
    instance = tiny(3, arrivals=True)
    run = of_run(instance, run_of(replayed(instance)))
    for metric in ("throughput", "tokens_per_second", "speed"):
        with pytest.raises(InputError, match=metric):
            score([run], metrics=(metric,), time_limit=1)


def test_a_stopped_search_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = tiny(3, arrivals=True)
    bounds = InferMaxProblem.bounds

    def interrupted(self: InferMaxProblem, of: Instance, *, stop: Any = None) -> Iterator[LowerBound]:
        yield from bounds(self, of, stop=lambda: True)
        if not stop():
            raise KeyboardInterrupt

    monkeypatch.setattr(InferMaxProblem, "bounds", interrupted)
    (group,) = score([of_run(instance, run_of(replayed(instance)))], metrics=("makespan",), time_limit=5)
    assert group.bounds[0].stopped
    assert group.bounds[0].lower is not None
    assert "the search was stopped" in gaps_text([group])


def test_a_proved_result_leaves_nothing_to_gain(tmp_path: Path) -> None:
    instance, path = read_instance(TOY), tmp_path / "best.json"
    write_result(write_with_certificate(instance, api.solve(instance, time_limit=20), path), path)
    done = invoke(TOY, path, "--metric", "makespan", "--json")
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)["instances"][0]["runs"][0]["metrics"]["makespan"]
    assert float(row["gap"]) < 0.05


def test_files_of_a_score(tmp_path: Path) -> None:
    for name in ("vllm", "sarathi"):
        made = CliRunner().invoke(cli, ["schedule", TOY, "--scheduler", name, "-o", str(tmp_path / name)])
        assert made.exit_code == 0
    done = invoke(
        TOY, tmp_path / "vllm", tmp_path / "sarathi", "--metric", "makespan", "--metric", "mean_e2e",
        "--csv", tmp_path / "gap.csv", "--plot", tmp_path / "gap.png", "-o", tmp_path / "gap.json",
        "--certificate", tmp_path / "proofs",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "gaps side by side" in done.output
    rows = read_rows((tmp_path / "gap.csv").read_text())
    assert [Path(row["file"]).name for row in rows] == ["vllm", "sarathi"]
    for row in rows:
        value, bound, gain = (float(row[f"makespan{end}"]) for end in ("", "_bound", "_gain"))
        assert value - bound == pytest.approx(gain)
        assert float(row["makespan_gap"]) == pytest.approx(gain / value)
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "gap.json").read_text())
    assert set(saved["instances"][0]["lower_bounds"]) == {"makespan", "mean_e2e"}
    for proof in (tmp_path / "proofs").glob("*.certificate.json.gz"):
        instance = str(proof).replace("certificate", "instance")
        assert CliRunner().invoke(cli, ["check", instance, str(proof)]).exit_code == 0


def test_a_wrong_schedule_is_not_scored(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    write_instance(replace(read_instance(TOY), name="other"), other)
    CliRunner().invoke(cli, ["schedule", TOY, "--scheduler", "vllm", "-o", str(tmp_path / "vllm.json")])
    done = invoke(other, tmp_path / "vllm.json")
    assert done.exit_code == 1
    assert "not scored, it is wrong" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((TOY,), "give INSTANCE and what is to be scored"),
        ((TOY, TOY), "is neither"),
        ((TOY, "missing.json"), "No such file"),
        ((TOY, TOY, "--limit", "kv_capacity=3"), "goes with --machine only"),
        ((TOY, "--machine", TOY, "--format", "schedule"), "a schedule has no requests"),
        ((TOY, "x.json", "--plot", "x.pdf"), "ends in .png or .svg"),
        ((TOY, "x.json", "--csv", "x.csv", "-o", "x.csv"), "x.csv: is to be written twice"),
    ],
)
def test_what_cannot_be_scored_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = invoke(*words)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("words", [("bad.json",), (TOY, "--plot", "x.pdf"), (TOY, "--metric", "speed")])
def test_a_failure_leaves_no_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = invoke(TOY, *words, "--certificate", tmp_path / "some" / "proofs")
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_bounds_without_certificates_make_no_folder(tmp_path: Path) -> None:
    run = samples.put(tmp_path, json.dumps(samples.vllm()), "run.json")
    words = (run, "--machine", TOY, "--limit", "kv_capacity=9999", "--limit", "max_batch_tokens=4096")
    done = invoke(*words, "--metric", "makespan", "--time-limit", "1", "--certificate", tmp_path / "proofs")
    assert done.exit_code == 0, done.output
    assert "no bound has a certificate" in done.output
    assert not (tmp_path / "proofs").exists()


def test_a_metric_named_twice_is_one(tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    assert CliRunner().invoke(cli, ["schedule", TOY, "--scheduler", "vllm", "-o", plan]).exit_code == 0
    done = invoke(TOY, plan, *(["--metric", "makespan"] * 2), "--time-limit", "1")
    assert done.output.count("  makespan  ") == 2  # its bound, and its value


def test_schedules_need_their_instance(tmp_path: Path) -> None:
    for command, words in (("schedule", ("--scheduler", "vllm")), ("solve", ("--time-limit", "1"))):
        done = CliRunner().invoke(cli, [command, TOY, *words, "-o", str(tmp_path / command)])
        assert done.exit_code == 0
        done = invoke(tmp_path / command, "--machine", TOY)
        assert done.exit_code == 2
        assert "give its instance before it" in done.output


def test_a_folder_that_takes_no_files_is_known_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = invoke(TOY, "bad.json", "--certificate", tmp_path / "file" / "proofs")
    assert (done.exit_code, "file/proofs: cannot be made" in done.output) == (2, True)
    if Path("/proc/self").is_dir():
        done = invoke(TOY, "bad.json", "--certificate", "/proc/self")
        assert (done.exit_code, "/proc/self: cannot be written into" in done.output) == (2, True)


def test_where_the_time_above_the_bound_goes(tmp_path: Path) -> None:
    for name in ("vllm", "sarathi"):
        CliRunner().invoke(cli, ["schedule", TOY, "--scheduler", name, "-o", str(tmp_path / name)])
    done = invoke(
        TOY, tmp_path / "vllm", tmp_path / "sarathi", "--metric", "makespan", "--explain", "--json",
        "--plot", tmp_path / "gap.svg",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    group = json.loads(done.stdout, parse_float=Fraction)["instances"][0]
    bound = Fraction(group["lower_bounds"]["makespan"]["value"])
    for some in group["explained"]:
        parts = some["parts"]
        assert sum(Fraction(part["value"]) for part in parts) == Fraction(some["value"])
        if some["metric"] == "makespan":
            needed = sum(Fraction(part["needed"]) for part in parts)
            assert needed + Fraction(some["bound_besides_needed"]) == bound
    text = invoke(TOY, tmp_path / "vllm", tmp_path / "sarathi", "--metric", "makespan", "--explain").output
    assert "s above the lower bound" in text
    assert "s more" in text


def test_a_file_of_batches_is_replayed_too(tmp_path: Path) -> None:
    instance = read_instance(TOY)
    schedule = api.schedule(instance, "vllm")
    trace = tmp_path / "chrome_trace.json"
    trace.write_text(json.dumps(chrome_trace(instance, schedule)))
    done = invoke(TOY, trace, "--metric", "makespan", "--explain", "--json")
    assert done.exit_code == 0, done.output
    group = json.loads(done.stdout)["instances"][0]
    (found,) = group["runs"]
    makespan = float(api.verify(instance, schedule).metrics.makespan)
    assert float(found["metrics"]["makespan"]["value"]) == pytest.approx(makespan)
    assert found["format"].endswith("its batches replayed")
    assert "the system itself took" in found["remarks"][0]
    assert {some["metric"] for some in group["explained"]} == {"makespan", "mean_e2e"}


def test_batches_are_replayed_though_prompts_look_longer_than_they_are(tmp_path: Path) -> None:
    toy = read_instance(TOY)
    requests = (RequestGroup("q", 5, 60, Fraction(0), 24),)
    instance = replace(toy, name="drops", groups=requests, system=System(150, 8, 8))
    write_instance(instance, tmp_path / "drops.json")
    trace = tmp_path / "chrome_trace.json"
    trace.write_text(json.dumps(chrome_trace(instance, api.schedule(instance, "sarathi"))))
    done = invoke(tmp_path / "drops.json", trace, "--metric", "makespan", "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["instances"][0]["runs"]
    assert found["format"].endswith("its batches replayed")
    makespan = float(api.verify(instance, api.schedule(instance, "sarathi")).metrics.makespan)
    assert float(found["metrics"]["makespan"]["value"]) == pytest.approx(makespan)
    other = replace(instance, groups=(RequestGroup("q", 5, 61, Fraction(0), 24),))
    write_instance(other, tmp_path / "other.json")
    done = invoke(tmp_path / "other.json", trace, "--metric", "makespan")
    assert done.exit_code == 2
    assert "its batches cannot be replayed: " in done.output
    assert "read without the instance it has " in done.output


def test_help_names_all_formats() -> None:
    text = CliRunner().invoke(cli, ["gap", "--help"]).output
    for name in ("schedule", *RUN_FORMATS):
        assert f"  {name} " in text


@pytest.mark.parametrize(
    ("band", "low"), [("0.9:1.2", "0.9"), ("llama-3.1-8b_h100", None), ("0.9", None), ("1.2:0.9", None)]
)
def test_bounds_of_a_band_are_those_of_the_fastest_machine(
    tmp_path: Path, band: str, low: str | None
) -> None:
    CliRunner().invoke(cli, ["schedule", TOY, "--scheduler", "vllm", "-o", str(tmp_path / "vllm.json")])
    done = invoke(TOY, tmp_path / "vllm.json", "--metric", "makespan", "--band", band, "--json")
    assert done.exit_code == (0 if low else 2), done.output
    if low is not None:
        group = json.loads(done.stdout)["instances"][0]
        scoring = problem_of(read_instance(TOY)).scoring
        fast = api.bound(scoring.scaled(read_instance(TOY), Fraction(low)), time_limit=2)
        assert float(group["lower_bounds"]["makespan"]["value"]) == pytest.approx(float(fast[0].value))


def test_from_python() -> None:
    instance = read_instance(TOY)
    best = api.solve(instance, time_limit=10)
    run = run_of(replayed(instance))
    found = gap(instance, best, api.schedule(instance, "vllm"), run, metrics=("makespan",), time_limit=1)
    assert [one.subject.label for one in found.runs] == ["1", "2", "run.json"]
    assert found.runs[0].rows[0].gap == 0
    exact, measured = (float(one.rows[0].value or 0) for one in found.runs[1:])
    assert measured == pytest.approx(exact, abs=1e-8)
    for wrong in ((), ("vllm",), (instance,)):
        with pytest.raises(InputError):
            gap(instance, *wrong)


def test_a_certificate_of_a_band(tmp_path: Path) -> None:
    proof, runner = str(tmp_path / "proof.json"), CliRunner()
    words = [TOY, "--band", "0.9:1.1"]
    done = runner.invoke(cli, ["bound", *words, "--time-limit", "3", "--certificate", proof, "--json"])
    assert done.exit_code == 0, done.output
    nominal = api.bound(read_instance(TOY), time_limit=3)[0].value
    value = Fraction(json.loads(done.stdout, parse_float=str)["lower_bounds"][0]["value"])
    assert float(value) == pytest.approx(float(nominal) * 0.9, rel=1e-3)
    assert runner.invoke(cli, ["check", *words, proof]).exit_code == 0
    assert runner.invoke(cli, ["check", TOY, proof]).exit_code == 1


def test_a_bound_that_is_not_proved_is_refused(tmp_path: Path) -> None:
    plan, path = tmp_path / "plan.json", tmp_path / "best.json"
    assert CliRunner().invoke(cli, ["schedule", TOY, "--scheduler", "vllm", "-o", str(plan)]).exit_code == 0
    solved = CliRunner().invoke(cli, ["solve", TOY, "--time-limit", "20", "-o", str(path)])
    assert solved.exit_code == 0
    words = (TOY, plan, "--bound", path, "--time-limit", "1", "--metric")
    assert invoke(*words, "makespan").exit_code == 0
    claim = json.loads(path.read_text())
    claim["lower_bound"] = "0.08"
    path.write_text(json.dumps(claim))
    done = invoke(*words, "makespan")
    assert done.exit_code == 2
    assert f"{path}: bounds[0]: the bound 0.08 is not proved: " in done.output
