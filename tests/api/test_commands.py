"""Every command has its functions, and these do what it does."""

from __future__ import annotations

import ast
import inspect
import json
from fractions import Fraction
from pathlib import Path
from typing import Any, get_origin

import pytest

import infermax_opt
from infermax_opt.cli.main import cli
from tests.foreign.samples import REQUESTS, put, texts
from tests.latency.batch_files import whole_batches
from tests.support import ROOT

#: Functions that do what a command does; what is left to it are files, texts and exit codes.
FUNCTIONS = {
    "bound": ("bound", "write_certificate", "with_aim", "with_band", "with_cost"),
    "calibrate": (
        "read_samples", "calibrate", "fit_profile", "write_worker", "read_batches", "fit_batches",
        "write_profile",
    ),
    "check": ("check_certificate", "with_band"),
    "configure": ("configure_worker", "demand_of", "read_samples"),
    "export": ("export_formulation", "export_requests"),
    "formats": ("json_schema", "json_schema_names"),
    "front": ("trace_front", "with_aim", "plot_front"),
    "gap": ("gap", "gaps_on_machine", "compare_schedulers", "explained", "read_run", "plot_gap"),
    "import": ("import_trace", "write_instance"),
    "instance": ("load_instance", "shipped_names", "write_instance"),
    "plan": ("plan", "sweep", "Sweep", "read_trace", "MachineType", "PlanOptions", "write_plan"),
    "plot": ("plot_schedule", "save_plot"),
    "problems": ("problems",),
    "profiles": ("profile_names", "load_profile"),
    "report": ("write_page",),
    "schedule": ("schedule", "write_schedule"),
    "schedulers": ("schedulers",),
    "simulate": ("simulate_stream", "policies", "import_trace"),
    "solve": ("solve", "start_solve", "asked", "with_aim", "with_cost", "write_result", "plot_convergence"),
    "table": ("run_table", "get_suite", "suite_names", "Archive"),
    "verify": ("verify", "read_schedule_or_claim"),
    "versions": ("versions",),
    "warm": ("warm", "warm_parts"),
    "workers": ("worker_series", "prefill_stream", "import_trace", "plot_workers"),
}  # fmt: skip
#: Commands for the shell alone.
SHELL_ONLY = {"completion"}
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,512,64\n0.1,2048,32\n0.15,300,80\n"


def test_every_command_has_its_functions() -> None:
    assert set(cli.commands) == set(FUNCTIONS) | SHELL_ONLY
    for command, names in FUNCTIONS.items():
        missing = set(names) - set(infermax_opt.__all__)
        assert not missing, f"{command}: {missing}"


def shows_itself(value: Any) -> bool:
    """Whether a value has a short line, a table of its facts, and its rows as plain values and as a frame."""
    line, rows = repr(value), value.to_dict()["rows"]
    json.dumps(value.to_dict())
    assert line.startswith(f"<{type(value).__name__}: ")
    assert len(line) < 400, line
    assert "\n" not in line
    assert f"<caption>{type(value).__name__}</caption>" in value._repr_html_()
    return len(rows) == len(value.to_frame()) > 0


def shows_its_facts(value: Any) -> bool:
    """The same of a value without rows: a frame of one row."""
    json.dumps(value.to_dict())
    named = repr(value).startswith(f"<{type(value).__name__}: ") and "\n" not in repr(value)
    return (
        named
        and f"<caption>{type(value).__name__}</caption>" in value._repr_html_()
        and len(value.to_frame()) == 1
    )


def public_functions() -> list[str]:
    """Those that are cached, too, which are no functions for `inspect`."""
    named = {name: getattr(infermax_opt, name) for name in infermax_opt.__all__}
    calls = [name for name, value in named.items() if callable(value) and get_origin(value) is None]
    return [name for name in calls if not inspect.isclass(named[name])]


@pytest.mark.parametrize("name", public_functions())
def test_public_functions_are_typed_and_told(name: str) -> None:
    function = getattr(infermax_opt, name)
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        assert parameter.annotation is not parameter.empty, parameter
    assert signature.return_annotation is not signature.empty
    told = inspect.getdoc(function) or ""
    if len(signature.parameters) > 2:
        _, _, rest = told.partition("Parameters\n")
        for parameter in signature.parameters:
            assert parameter in rest, f"{parameter} is not in its docstring"


def test_every_public_name_has_a_docstring() -> None:
    for name in infermax_opt.__all__:
        if inspect.isclass(getattr(infermax_opt, name)):
            assert inspect.getdoc(getattr(infermax_opt, name)), name


def test_no_command_computes_by_itself() -> None:
    """Commands call the functions of the house: their own ones only read options and print."""
    banned = {"timeline", "replay_bins", "to_fraction", "batch_time", "Fraction"}
    allowed = {"batches", "latency", "plan"}  # whose option types are decimals
    for path in sorted((ROOT / "infermax_opt" / "cli").glob("*.py")):
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert path.stem in allowed or not calls & banned, path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_listings_say_what_the_commands_print() -> None:
    found = {some.name: some for some in infermax_opt.problems()}
    assert {"infermax", "makespan", "placement", "pipelining", "iteration", "stream"} <= set(found)
    assert "highs" in found["infermax"].engines
    assert "flow" in found["infermax"].formulations
    assert "paper-csp" in found["infermax"].suites
    assert infermax_opt.schedulers() == found["infermax"].schedulers
    assert infermax_opt.schedulers("placement") == found["placement"].schedulers
    assert "vllm" in infermax_opt.schedulers()
    assert infermax_opt.versions()["infermax-opt"] == infermax_opt.__version__
    assert {"azure", "vllm", "vidur"} <= set(infermax_opt.formats()["traces"])
    assert "aladdin" in infermax_opt.policies()
    assert "makespan" in repr(found["makespan"])
    with pytest.raises(infermax_opt.InputError, match="problem: 'abacus' is none of infermax"):
        infermax_opt.schedulers("abacus")


def test_formats_are_those_of_the_command_line() -> None:
    from infermax_opt.cli.options import TRACE_FORMATS

    assert infermax_opt.formats()["traces"] == tuple(sorted(TRACE_FORMATS))


def test_a_trace_becomes_the_instance_that_the_command_writes(trace: Path, tmp_path: Path) -> None:
    made = infermax_opt.import_trace(trace, "vidur", profile="llama-3.1-8b_h100", first=2, rate=2)
    written = tmp_path / "i.json"
    options = ["--format=vidur", "--profile=llama-3.1-8b_h100", "--first=2", "--rate=2"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["import", str(trace), *options, "-o", str(written)])
    assert stop.value.code == 0
    assert made.instance == infermax_opt.read_instance(written)
    assert made.instance.requests[1].arrival == Fraction(1, 20)


def test_options_of_an_import_are_checked_as_the_command_checks_them(trace: Path) -> None:
    for options, words in (
        ({"rate": "fast"}, "rate: "),
        ({"rate": -1}, "rate: "),
        ({"wheels": 4}, "wheels: is no option of infermax; there are"),
        ({"problem": "abacus"}, "problem: 'abacus' is none of"),
        ({"window": ("a", 1)}, "window: "),
    ):
        with pytest.raises(infermax_opt.InputError, match=words):
            infermax_opt.import_trace(trace, "vidur", profile="llama-3.1-8b_h100", **options)  # type: ignore[arg-type]


def test_a_stream_is_simulated_and_its_workers_are_bounded(trace: Path) -> None:
    stream: Any = infermax_opt.import_trace(trace, "vidur", problem="stream", worker="13b").instance
    found = infermax_opt.simulate_stream(stream, "jsq", workers=2)
    rows = found.to_frame()
    assert len(rows) == 3
    assert set(rows["worker"]) <= {1, 2}
    assert found.facts()["policy"] == "jsq"
    assert len(found.workers_frame()) == len(found.replay.beats)
    series = infermax_opt.worker_series(stream, time_limit=5)
    assert len(series.to_frame()) == len(series.beats)
    assert (series.to_frame()["lower"] <= series.to_frame()["upper"]).all()
    json.dumps([found.to_dict(), series.to_dict()])


def test_schedulers_are_compared_under_their_names() -> None:
    instance = infermax_opt.read_instance(ROOT / "instances" / "toy.json")
    group = infermax_opt.compare_schedulers(instance, ["vllm", "sarathi"], metrics=["makespan"], time_limit=5)
    rows = group.to_frame()
    assert sorted(rows["run"]) == ["sarathi", "vllm"]
    assert (rows["lower_bound"] <= rows["value"]).all()
    assert group.to_dict()["rows"][0]["metric"] == "makespan"
    with pytest.raises(infermax_opt.InputError, match="labels: 2 for 1 runs"):
        infermax_opt.gap(instance, infermax_opt.schedule(instance, "vllm"), labels=["a", "b"])


def test_aims_change_the_instance_as_options_do() -> None:
    instance: Any = infermax_opt.read_instance(ROOT / "instances" / "toy.json")
    aimed = infermax_opt.with_aim(instance, {"mean_e2e": 1, "p99_ttft": 2})
    assert aimed == infermax_opt.with_aim(instance, '{"mean_e2e": 1, "p99_ttft": 2}')
    assert infermax_opt.with_aim(instance) is instance
    wanted, target = infermax_opt.asked(instance, at_most=["makespan=0.01"])
    assert infermax_opt.solve(wanted, target=target, time_limit=5).answer.value == "no"  # type: ignore[union-attr]
    slow = infermax_opt.bound(infermax_opt.with_band(instance, "0.5:2"), time_limit=5)[0].value
    assert slow < infermax_opt.bound(instance, time_limit=5)[0].value


def test_suites_and_the_archive_are_objects(tmp_path: Path) -> None:
    suite = infermax_opt.get_suite("paper-csp")
    assert "paper-csp" in infermax_opt.suite_names()
    assert len(suite) == len(list(suite)) == 22
    case = next(iter(suite))
    assert case.instance == suite[case.name].instance
    with pytest.raises(infermax_opt.InputError, match="no case 'x'"):
        suite["x"]
    assert repr(suite) == f"<Suite: suite paper-csp, cases 22, first {case.name}>"
    archive = infermax_opt.Archive(tmp_path / "best", "paper-csp")
    assert archive.best(case.instance).status is infermax_opt.Status.UNKNOWN
    result = infermax_opt.solve(case.instance, time_limit=5)
    archive.improve(case.instance, result, source="test", versions={})
    best = archive.best(case.instance)
    assert best.upper is not None
    assert float(best.upper.value) == float(result.upper.value)  # type: ignore[union-attr]
    assert best.schedule == result.schedule
    assert len(best.requests_frame()) == len(case.instance.requests)
    (row,) = archive.to_frame().to_dict("records")
    assert (row["instance"], row["gap"]) == (case.name, 0)
    assert row["upper"] == row["lower"] == float(best.upper.value)
    assert repr(archive).endswith("suite paper-csp, schedules 1, bounds 1, optimal 1>")
    assert shows_itself(archive)
    archive.path.write_text("{}")
    assert "problem" in repr(archive)
    with pytest.raises(infermax_opt.InputError):
        archive.to_frame()


def test_a_table_is_an_object(tmp_path: Path) -> None:
    table = infermax_opt.run_table("paper-csp", tmp_path, time_limit=5, limit_rows=2, jobs=2)
    rows = table.to_frame()
    assert len(rows) == 2
    assert rows["gap_percent"].max() == 0
    assert "vllm_gap_percent" in rows
    assert len(repr(table)) < 200
    json.dumps(table.to_dict())


def test_a_worker_is_configured_from_profiles() -> None:
    demand = infermax_opt.demand_of([(1024, 256)])
    chosen, fits = infermax_opt.configure_worker(demand, atgt="0.05", profiles=["llama-3.1-70b_h100"])
    assert chosen.best is not None
    assert f"binds {chosen.best.binds}" in repr(chosen.best)
    assert chosen.best.facts()["gpus"] == chosen.best.option.gpus
    assert fits == ()
    assert shows_itself(chosen)
    assert chosen.facts()["tokens_per_second_and_gpu"] == chosen.best.rate
    frame = chosen.to_frame()
    assert len(frame) == len(chosen.choices)
    (best,) = frame[frame["best"]].to_dict("records")
    assert best["gpus"] == chosen.best.option.gpus
    none, _ = infermax_opt.configure_worker(demand, atgt="0.000001", profiles=["llama-3.1-70b_h100"])
    assert none.best is None
    assert shows_itself(none)
    assert not none.to_frame()["best"].any()
    with pytest.raises(infermax_opt.InputError, match="give profiles, or samples"):
        infermax_opt.configure_worker(demand, atgt="0.05")


def test_fits_show_their_coefficients_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    rows = [f"prefill,{n},,,{n / 10_000 + 0.01}" for n in (100, 200, 400)]
    rows += [f"decode,,{100 * b},{b},{b / 1000 + 0.02}" for b in (1, 2, 4, 8)]
    rows += [f"decode,,{300 * b},{b},{b / 1000 + 0.02}" for b in (1, 2, 4, 8)]
    path.write_text("\n".join(["kind,input_tokens,context_tokens,batch_size,seconds", *rows]) + "\n")
    found = infermax_opt.calibrate(infermax_opt.read_samples(path))
    assert shows_itself(found)
    frame = found.to_frame().set_index("kind")
    assert list(frame.index) == list(found.fits)
    # Eq 3 speaks of two requests or more: two decode rows are left out.
    assert frame.loc["prefill", "k1"] == pytest.approx(1e-4)
    assert frame.loc["decode", "c3"] == pytest.approx(0.02)
    assert list(zip(frame["samples"], frame["left_out"], strict=True)) == [(3, 0), (6, 2)]
    assert found.facts()["prefill_error"] == found.fits["prefill"].mean_relative


def test_a_profile_shows_the_worker_that_was_made_of_it() -> None:
    found = infermax_opt.fit_profile("llama-3.1-8b_h100")
    assert shows_itself(found)
    assert found.facts()["profile"] == "llama-3.1-8b_h100"
    kinds = [fit.kind for fit in (found.prefill, found.decode) if fit is not None]
    assert list(found.to_frame()["kind"]) == kinds


def test_fitted_batches_show_their_errors(tmp_path: Path) -> None:
    path = tmp_path / "batches.csv"
    path.write_text(whole_batches(120))
    found = infermax_opt.fit_batches(infermax_opt.read_batches(path))
    assert shows_itself(found)
    facts, frame = found.facts(), found.to_frame().set_index("batches")
    assert (facts["measured"], facts["samples"]) == ("batches.csv", 120)
    assert facts["band_lo"] <= 1 <= facts["band_hi"]
    assert list(frame.index) == [region.name for region in found.regions]
    assert frame.loc["all", "mean"] == facts["mean_error"]


@pytest.mark.parametrize("problem", ["infermax", "stream", "makespan", "pipelining"])
def test_what_is_made_of_a_trace_shows_itself(problem: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    options: dict[str, dict[str, Any]] = {
        "infermax": {"profile": "llama-3.1-8b_h100", "kv_capacity": 100_000},
        "stream": {"worker": "13b"},
        "makespan": {"clients": 2},
        "pipelining": {"reservation": 4000},
    }
    made = infermax_opt.import_trace(path, problem=problem, format="vidur", **options[problem])
    assert shows_its_facts(made)
    assert made.to_dict()["requests"] == 3
    assert made.to_dict()["left_out"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"problem": "pipelining"}, "reservation: --problem pipelining needs --reservation."),
        ({"problem": "makespan"}, "clients: --problem makespan needs --clients."),
        ({"problem": "abacus"}, "problem: 'abacus' is none of infermax, "),
        ({"window": "0:1"}, "window: '0:1' is no pair of seconds"),
        ({"window": ("a", 1)}, "window: 'a' is not a decimal number"),
    ],
)
def test_what_cannot_be_made_of_a_trace_is_one_line(options: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    with pytest.raises(infermax_opt.InputError) as raised:
        infermax_opt.import_trace(path, "vidur", **options)
    assert str(raised.value).startswith(said)


def test_a_run_of_another_system_shows_itself(tmp_path: Path) -> None:
    run = infermax_opt.read_run(put(tmp_path, texts()["vllm"]))
    assert shows_itself(run)
    assert run.facts()["requests"] == len(REQUESTS)
    assert run.to_frame()["output_tokens"].tolist() == [tokens for _, _, tokens, *_ in REQUESTS]


def test_what_was_exported_shows_itself(tmp_path: Path) -> None:
    instance = infermax_opt.load_instance("toy")
    model = infermax_opt.export_formulation(instance, "flow", tmp_path / "toy.mps", time_limit=5)
    assert shows_its_facts(model)
    assert model.to_dict()["files"] == dict(model.files)
    plan = infermax_opt.schedule(instance, "vllm")
    requests = infermax_opt.export_requests(instance, plan, tmp_path / "toy.jsonl", "vllm-requests")
    assert shows_its_facts(requests)


@pytest.fixture(scope="module")
def toy() -> Any:
    return infermax_opt.load_instance("toy")


#: What a person mistypes in a notebook, and what is said of it.
MISTAKES: tuple[tuple[str, Any, str], ...] = (
    ("bound", {"time_limit": "5"}, "time_limit: '5' is not a number of seconds, 0 or more"),
    ("bound", {"time_limit": -1}, "time_limit: -1 is not a number of seconds, 0 or more"),
    ("solve", {"time_limit": "5"}, "time_limit: '5' is not a positive number of seconds"),
    ("solve", {"time_limit": 0}, "time_limit: 0 is not a positive number of seconds"),
    ("solve", {"seed": "x"}, "seed: 'x' is not a whole number"),
    ("solve", {"threads": 1.5}, "threads: 1.5 is not a whole number"),
    ("solve", {"target": 0.5}, "target: a float is no Fraction"),
    ("schedule", {"scheduler": 3}, "scheduler: 3 is not a non-empty text"),
    ("compare_schedulers", {"time_limit": float("nan")}, "time_limit: nan is not a number of seconds"),
    ("trace_front", {"x": "makespan", "y": "mean_ttft", "time_limit": -1}, "time_limit: -1 is not"),
    ("trace_front", {"x": "makespan", "y": "mean_ttft", "directions": "a"}, "directions: 'a' is not a whole"),
    ("worker_series", {}, "stream: a Instance is no Stream"),
    ("prefill_stream", {}, "stream: a Instance is no Stream"),
    ("simulate_stream", {}, "stream: a Instance is no Stream"),
    ("calibrate", {}, "samples: a Instance is no Samples"),
    ("explained", {}, "group: a Instance is no Group"),
    ("plot_gap", {}, "group: a Instance is no Group"),
    ("plot_gaps", {}, "group: a Instance is no Group"),
    ("plot_comparison", {}, "group: a Instance is no Group"),
    ("plot_front", {}, "front: a Instance is no Front"),
    ("plot_workers", {}, "series: a Instance is no WorkerSeries"),
    ("plot_residuals", {}, "made: a Instance is no BatchFit"),
    ("plot_convergence", {}, "run: a Instance is no result and no sequence of events"),
)


@pytest.mark.parametrize(("function", "options", "said"), MISTAKES)
def test_a_mistake_in_a_notebook_is_named(function: str, options: Any, said: str, toy: Any) -> None:
    with pytest.raises(infermax_opt.InputError) as raised:
        getattr(infermax_opt, function)(toy, **options)
    assert str(raised.value).startswith(said)


def test_a_metric_instead_of_a_list_is_named(toy: Any) -> None:
    with pytest.raises(infermax_opt.InputError, match="metrics: 'makespan' is no list of texts"):
        infermax_opt.gap(toy, infermax_opt.schedule(toy, "vllm"), metrics="makespan")


@pytest.mark.parametrize(("first", "said"), [(0, "0 is not between 1 and"), ("a", "'a' is not a whole")])
def test_a_part_of_a_trace_has_a_request(first: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    with pytest.raises(infermax_opt.InputError, match=f"first: {said}"):
        infermax_opt.read_trace(path, "vidur", first=first)
