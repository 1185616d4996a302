"""Whatever a file holds, the user gets one line and exit code 2; nothing is written."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Result, SolverReport, UpperBound
from infermax_opt.files.json import to_json_text
from infermax_opt.files.results import read_schedule_or_claim, result_to_json
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import instance_to_json, schedule_to_json
from infermax_opt.infermax.data.instance import Instance, RequestClass, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.replay.plain import replay_plain
from tests.campaign import one_in
from tests.support import ROOT

INSTANCE = Instance(
    "t",
    (
        RequestGroup("a", 4, 3),
        RequestGroup("b", 4, 3, "0.5", 2, "rt", 2, {"ttft": "0.25", "e2e": 9}, predicted_output_tokens=4),
    ),
    System(24, 16, 16, max_running=3),
    CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9")),
    classes=(RequestClass("rt", "1.5", {"tpot": "0.05"}),),
)
SCHEDULE = Schedule(
    "t",
    (
        Batch({"a": 4}),
        Batch(decode_all=True, repeat=2),
        Batch({"b.1": 4, "b.2": 4}, start=INSTANCE.requests[1].arrival),
        Batch({"b.1": 1}, evict=("b.2",)),
        Batch({"b.1": 1, "b.2": 5}),
        Batch({"b.2": 1}),
    ),
)


def result() -> Result:
    metrics = measure(INSTANCE, replay_plain(INSTANCE, SCHEDULE))
    upper = UpperBound(metrics.makespan, "hand")
    lower = LowerBound(metrics.makespan / 2, "hand", Proof.SOLVER)
    solver = SolverReport(engine="hand")
    return Result("t", INSTANCE.sha256, "makespan", upper, lower, SCHEDULE, metrics, solver)


def as_json(value: dict[str, Any]) -> dict[str, Any]:
    return json.loads(to_json_text(value))


VALID = {
    "instance": as_json(instance_to_json(INSTANCE)),
    "schedule": as_json(schedule_to_json(SCHEDULE)),
    "result": as_json(result_to_json(result())),
}
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100,7\n0.1,20,1\n"


class Bench:
    """A folder with one valid file of each kind, and the command that reads each."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.runner = CliRunner()
        self.good = folder / "good.json"
        self.good.write_text(json.dumps(VALID["instance"]))
        self.output = folder / "out.json"

    def run(self, kind: str, path: Path) -> tuple[int, str]:
        command = {
            "instance": ["bound", str(path), "-o", str(self.output)],
            "schedule": ["verify", str(self.good), str(path)],
            "result": ["verify", str(self.good), str(path)],
            "trace": ["import", str(path), "--format", "vidur", "-o", str(self.output)],
        }[kind]
        done = self.runner.invoke(cli, command)
        assert "Traceback" not in done.output
        assert "internal error" not in done.stderr, done.stderr
        if done.exit_code == 2:
            assert done.stderr.count("\n") == 1, done.stderr
            assert done.stderr.startswith("infermax-opt: ")
            assert done.stdout == ""
            assert not self.output.exists()
        else:
            assert done.exit_code in (0, 1)
            self.output.unlink(missing_ok=True)
        left = {path.name for path in self.folder.iterdir()}
        assert not any(name.startswith(".tmp") for name in left)
        return done.exit_code, done.stderr

    def refuses(self, kind: str, content: str | bytes, name: str = "bad.json") -> str:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        code, text = self.run(kind, path)
        assert code == 2, content[:200]
        assert str(path) in text
        return text


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


Path_ = tuple[str | int, ...]


def nodes(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Paths of everything below `value`."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield (*path, key)
        yield from nodes(child, (*path, key))


def changed(kind: str, path: Path_, new: Any, delete: bool = False) -> dict[str, Any]:
    value = copy.deepcopy(VALID[kind])
    parent: Any = value
    for key in path[:-1]:
        parent = parent[key]
    if delete:
        del parent[path[-1]]
    else:
        parent[path[-1]] = new
    return value


KINDS = tuple(VALID)
#: Values that fit no field, or almost none.
JUNK: dict[str, Any] = {
    "null": None,
    "bool": True,
    "text": "x",
    "empty text": "",
    "negative": -1,
    "negative text": "-0.5",
    "fraction": 1.5,
    "huge": 10**45,
    "vast text": "1e999999",
    "nan text": "NaN",
    "list": [],
    "object": {},
    "nested": [[{"a": [None]}]],
    "surrogate": "\ud800",
    "control": "a\nb\x1b[31m",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_unchanged_files_are_fine(bench: Bench, kind: str) -> None:
    path = bench.folder / "fine.json"
    path.write_text(json.dumps(VALID[kind]))
    assert bench.run(kind, path) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", JUNK)
def test_junk_in_any_place_is_never_more_than_one_line(bench: Bench, kind: str, junk: str) -> None:
    refused = 0
    paths = list(one_in(2, nodes(VALID[kind])))
    for path in paths:
        file = bench.folder / "bad.json"
        file.write_text(json.dumps(changed(kind, path, JUNK[junk])))
        refused += bench.run(kind, file)[0] == 2
    # Some values are fine in some places, and a wrong schedule is found by replay (exit code 1).
    assert refused > len(paths) / 4


@pytest.mark.parametrize("kind", KINDS)
def test_deleted_keys(bench: Bench, kind: str) -> None:
    optional = {
        "arrival", "count", "max_running", "block_size", "tokens", "evict", "start", "decode", "repeat",
        "certificate", "metrics", "solver", "upper", "lower", "class", "weight", "slo", "ttft", "tpot", "e2e",
        "predicted_output_tokens", "classes", "rt",
    }  # fmt: skip
    for path in nodes(VALID[kind]):
        inner = {"tokens", "metrics", "solver", "versions", "details"} & set(path[:-1])
        if isinstance(path[-1], int) or path[-1] in optional or inner:
            continue
        text = bench.refuses(kind, json.dumps(changed(kind, path, None, delete=True)))
        assert text.endswith(f"{path[-1]}: is missing\n")


@pytest.mark.parametrize("kind", ["schedule", "result"])
@pytest.mark.parametrize(
    ("name", "key"),
    [("toy", "batches"), ("makespan-100x20", "bins"), ("placement-toy", "workers")],
)
def test_schedule_without_decisions_misses_those_of_its_instance(
    kind: str, name: str, key: str, tmp_path: Path
) -> None:
    schedule = kind == "schedule"
    value = changed(kind, ("batches",) if schedule else ("schedule", "batches"), None, delete=True)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(value))
    done = CliRunner().invoke(cli, ["verify", str(ROOT / "instances" / f"{name}.json"), str(path)])
    where = key if schedule else f"schedule.{key}"
    assert (done.exit_code, done.stderr) == (2, f"infermax-opt: {path}: {where}: is missing\n")
    with pytest.raises(
        InputError, match="has no decisions, which are its batches or select or bins or offsets or workers"
    ):
        read_schedule_or_claim(path)


@pytest.mark.parametrize("name", ["toy", "makespan-100x20", "placement-toy"])
def test_metrics_without_a_schedule_are_a_wrong_claim(name: str, tmp_path: Path) -> None:
    value = {**VALID["result"], "schedule": None, "metrics": {"workers": 3, "makespan": 2}}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(value))
    done = CliRunner().invoke(cli, ["verify", str(ROOT / "instances" / f"{name}.json"), str(path)])
    assert done.exit_code == 1
    assert "metrics: workers is 3.0, but the schedule is null; they must be null, too" in done.stdout


@pytest.mark.parametrize("junk", [["infermax"], None, 3, {}, True])
def test_problem_that_is_no_name(bench: Bench, junk: object) -> None:
    text = bench.refuses("instance", json.dumps({**VALID["instance"], "problem": junk}))
    assert f"problem: {junk} is none of infermax, iteration, makespan, pipelining, placement, stream" in text


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_keys(bench: Bench, kind: str) -> None:
    free = {"tokens", "solver"}  # request ids; notes on the computation, which claim nothing
    objects = [path for path in [(), *nodes(VALID[kind])] if not free & set(path) and path != ("classes",)]
    for path in objects:
        inner: Any = VALID[kind]
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict):
            text = bench.refuses(kind, json.dumps(changed(kind, (*path, "surplus"), 1)))
            assert "surplus: is not a known key" in text


@pytest.mark.parametrize("kind", [*KINDS, "trace"])
def test_files_that_are_no_such_file(bench: Bench, kind: str) -> None:
    good = (TRACE if kind == "trace" else json.dumps(VALID[kind])).encode()
    packed = gzip.compress(good)
    assert "not UTF-8" in bench.refuses(kind, b"\xff\xfe" + good)
    bench.refuses(kind, b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    bench.refuses(kind, bytes(1000))
    bench.refuses(kind, "")
    bench.refuses(kind, "\n\n")
    bench.refuses(kind, "<html>\n<body>\n")
    bench.refuses(kind, packed)
    for content in (packed[:-9], packed[: len(packed) // 2], good, b"", packed[:-4] + b"\x00\x00\x00\x00"):
        if content or kind != "trace":
            assert "bad.json.gz" in bench.refuses(kind, content, "bad.json.gz")
    for path, reason in ((bench.folder, "directory"), (bench.folder / "none.json", "No such file")):
        code, text = bench.run(kind, path)
        assert code == 2
        assert reason in text
    bench.run(kind, bench.folder / ("n" * 5000))


@pytest.mark.parametrize(
    ("rows", "layout"),
    [
        (TRACE, "CSV"),
        ('"a","b"\n1,2\n', "CSV"),
        ('{"timestamp": 0, "input_length": 1}\n{"timestamp": 1}\n', "JSON lines"),
    ],
)
def test_a_trace_is_no_instance(bench: Bench, rows: str, layout: str) -> None:
    path = bench.folder / "trace.csv"
    path.write_text(rows)
    for command in (["verify", str(path), str(bench.good)], ["solve", str(path)]):
        done = bench.runner.invoke(cli, command)
        assert (done.exit_code, done.stdout) == (2, "")
        hint = "`infermax-opt import` makes an instance of a trace"
        assert done.stderr == f"infermax-opt: {path}: is not JSON, but {layout}; {hint}\n"
    done = bench.runner.invoke(cli, ["verify", str(bench.good), str(path)])
    assert (done.exit_code, done.stderr) == (2, f"infermax-opt: {path}: is not JSON, but {layout}\n")


@pytest.mark.parametrize(
    ("command", "path", "told"),
    [
        (
            ["bound"],
            "SCHEDULE",
            "SCHEDULE: schema: 'infermax-opt/schedule/1' is not 'infermax-opt/instance/1'",
        ),
        (
            ["workers"],
            "SCHEDULE",
            "SCHEDULE: schema: 'infermax-opt/schedule/1' is not 'infermax-opt/instance/1'",
        ),
        (["simulate"], "GOOD", "GOOD: problem: 'infermax' is not 'stream'"),
        (["workers"], "TRACE", "TRACE: is not JSON, but CSV; --format says how a trace is laid out"),
        (["bound"], "", "'': cannot be read: No such file or directory"),
    ],
)
def test_a_file_of_another_kind(bench: Bench, command: list[str], path: str, told: str) -> None:
    names = {"GOOD": bench.good, "SCHEDULE": bench.folder / "s.json", "TRACE": bench.folder / "t.csv", "": ""}
    (bench.folder / "s.json").write_text(json.dumps(VALID["schedule"]))
    (bench.folder / "t.csv").write_text(TRACE)
    done = bench.runner.invoke(cli, [*command, str(names[path])])
    words = told.replace(path, str(names[path])) if path else told
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"infermax-opt: {words}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_anywhere(bench: Bench, kind: str) -> None:
    text = json.dumps(VALID[kind])
    for end in range(0, len(text) - 1, max(len(text) // 40, 1)):
        assert "is not JSON" in bench.refuses(kind, text[:end])


@pytest.mark.parametrize("kind", KINDS)
def test_tops_that_are_no_object(bench: Bench, kind: str) -> None:
    for text in ("[]", "null", "1", '"text"', "[" * 100_000, '{"a":' * 100_000):
        bench.refuses(kind, text)


def test_numbers_that_json_cannot_mean(bench: Bench) -> None:
    text = json.dumps(VALID["instance"])
    numbers = [
        "NaN", "Infinity", "-Infinity", "1e999999", "1e-999999", "1e99999999999999999999", "9" * 5000,
        "0." + "1" * 5000, "-1e-30", '"1e999999"', '"infinity"', '"0x10"', '"1,5"',
    ]  # fmt: skip
    for number in numbers:
        for place in ('"0.5"', "0.5"):
            if place in text:
                bench.refuses("instance", text.replace(place, number, 1))
        bench.refuses("instance", text.replace('"0.007"', number, 1))
        bench.refuses("instance", text.replace('"kv_capacity": 24', f'"kv_capacity": {number}', 1))


def test_duplicates(bench: Bench) -> None:
    text = json.dumps(VALID["instance"])
    assert "given twice" in bench.refuses("instance", text[:-1] + ', "name": "u"}')
    assert "used twice" in bench.refuses("instance", text.replace('"id": "a"', '"id": "b.1"'))
    schedule = json.dumps(VALID["schedule"])
    assert "given twice" in bench.refuses("schedule", schedule.replace('"b.2": 4', '"b.1": 4'))


@pytest.mark.parametrize(
    ("path", "new", "expected"),
    [
        (("schema",), "infermax-opt/instance/2", "schema: 'infermax-opt/instance/2' is not"),
        (("problem",), "knapsack", "problem: "),
        (("name",), "", "name: "),
        (("requests",), [], "requests: holds no request"),
        (("requests", 0, "input_tokens"), 0, "requests[0].input_tokens: 0 is not between 1 and"),
        (("requests", 0, "input_tokens"), "4.5", "requests[0].input_tokens: 4.5 is not a whole number"),
        (("requests", 0, "output_tokens"), 22, "requests[0]: request 'a' can never fit"),
        (("requests", 1, "arrival"), -1, "requests[1].arrival: -1 is negative"),
        (("requests", 1, "count"), 0, "requests[1].count: "),
        (("requests", 1, "count"), 10**8, "requests[1].count: "),
        (("requests", 1, "class"), "", "requests[1].class: '' is not a non-empty text"),
        (("requests", 1, "weight"), 0, "requests[1].weight: 0 is too little; a weight is above 0"),
        (("requests", 1, "weight"), "-1", "requests[1].weight: -1 is negative; the least is 0"),
        (("requests", 1, "slo"), [1], "requests[1].slo: [1] is not an object of seconds"),
        (("requests", 1, "slo", "ttft"), -1, "requests[1].slo.ttft: -1 is negative; the least is 0"),
        (("requests", 1, "slo", "atgt"), 1, "requests[1].slo.atgt: is not a known key"),
        (("requests", 1, "slo"), None, "requests[1].slo: null is no value"),
        (("requests", 1, "predicted_output_tokens"), 0, "predicted_output_tokens: 0 is not between 1 and"),
        (("classes", "rt"), 3, "classes.rt: 3 is not an object"),
        (("classes", "rt", "weight"), 0, "classes.rt.weight: 0 is too little"),
        (("classes", "rt", "weight"), None, "classes.rt.weight: null is no value"),
        (("classes", "rt", "slo", "tpot"), "x", "classes.rt.slo.tpot: 'x' is not a decimal number"),
        (("system", "kv_capacity"), 5, "can never fit"),
        (("system", "block_size"), 0, "system.block_size: "),
        (("system", "block_size"), 25, "can never fit"),
        (("system", "max_batch_tokens"), 2.5, "system.max_batch_tokens: "),
        (("policy", "preemption"), 1, "policy.preemption: 1 is not true or false"),
        (("cost", "batch"), [], "cost.batch: "),
        (("cost", "batch", 0), ["1"], "cost.batch[0]: "),
        (("cost", "batch", 0, 1), "-1", "cost.batch[0][1]: -1 is negative"),
        (("cost", "attention"), "cubic", "cost.attention: 'cubic' is none of"),
        (("cost",), {"profile": "abacus"}, "cost.profile: 'abacus' is no profile"),
        (("cost",), {"profile": "../secret"}, "cost.profile: "),
        (("objective",), "fun", "objective: 'fun' is none of"),
        (("objective",), {"makespan": 0}, "objective: every weight is 0"),
        (("objective",), {"fun": 1}, "objective: 'fun' is none of"),
    ],
)
def test_messages_name_field_value_and_limit(bench: Bench, path: Path_, new: Any, expected: str) -> None:
    assert expected in bench.refuses("instance", json.dumps(changed("instance", path, new)))


def test_mutated_traces(bench: Bench) -> None:
    for old in ("arrived_at", "num_prefill_tokens", "num_decode_tokens", "\n", "0.1", ",20", ",1\n"):
        for new in ("", "x", '"', "\x00", "-1", "\ud800", ",,", "NaN", "9" * 200, "1e999999"):
            path = bench.folder / "bad.csv"
            path.write_bytes(TRACE.replace(old, new, 1).encode("utf-8", "surrogatepass"))
            bench.run("trace", path)
    path.write_text(TRACE)
    assert bench.run("trace", path)[0] == 0


@pytest.mark.parametrize(
    "command",
    [
        ["fly"],
        ["--fly"],
        ["solve"],
        ["solve", "x.json", "y.json"],
        ["solve", "GOOD", "--solver", "abacus"],
        ["solve", "GOOD", "--solver", "highs", "--formulation", "abacus"],
        ["solve", "GOOD", "--time-limit", "nan"],
        ["solve", "GOOD", "--time-limit", "inf"],
        ["solve", "GOOD", "--time-limit", "-1"],
        ["solve", "GOOD", "--time-limit", "0"],
        ["solve", "GOOD", "--time-limit", "soon"],
        ["solve", "GOOD", "--threads", "0"],
        ["solve", "GOOD", "--seed", "-1"],
        ["solve", "GOOD", "--memory-limit", "0"],
        ["solve", "GOOD", "--warm-start", "abacus"],
        ["solve", "GOOD", "--warm-start", "none.json"],
        ["solve", "GOOD", "--warm-start", "GOOD"],
        ["solve", "GOOD", "-o", "missing/out.json"],
        ["solve", "GOOD", "-o", "FOLDER"],
        ["solve", "GOOD", "-o", "GOOD"],
        ["solve", "GOOD", "-o", "GOOD/out.json"],
        ["bound", "GOOD", "-o", "missing/out.json"],
        ["schedule", "GOOD"],
        ["schedule", "GOOD", "--scheduler", "abacus"],
        ["schedule", "GOOD", "--scheduler", "vllm@r0"],
        ["schedule", "GOOD", "--scheduler", "vllm", "-o", "missing/out.json"],
        ["verify", "GOOD"],
        ["verify", "GOOD", "GOOD"],
        ["plot", "GOOD", "SCHEDULE"],
        ["plot", "GOOD", "SCHEDULE", "-o", "picture.bmp"],
        ["plot", "GOOD", "SCHEDULE", "-o", "missing/picture.png"],
        ["plot", "GOOD", "BOUND", "-o", "picture.png"],
        ["import", "TRACE"],
        ["import", "TRACE", "--format", "vidur"],
        ["import", "TRACE", "--format", "abacus", "-o", "out.json"],
        ["import", "TRACE", "--format", "mooncake", "-o", "out.json"],
        ["import", "TRACE", "--format", "azure", "--time-unit", "s", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--first", "0", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--window", "5", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--window", "5:1", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--window", "a:b", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--window", "nan:inf", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--window", "100:200", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--kv-capacity", "5", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--kv-capacity", "5", "--skip-unfit", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--kv-capacity", str(10**30), "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--profile", "abacus", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "--objective", "fun", "-o", "out.json"],
        ["import", "TRACE", "--format", "vidur", "-o", "TRACE"],
    ],
    ids=" ".join,
)
def test_unusable_command_lines(bench: Bench, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.folder)
    names = {"GOOD": bench.good, "FOLDER": bench.folder}
    for name, text in (("SCHEDULE", json.dumps(VALID["schedule"])), ("TRACE", TRACE)):
        names[name] = bench.folder / f"{name}.json"
        names[name].write_text(text)
    bound = {**VALID["result"], "schedule": None}
    names["BOUND"] = bench.folder / "BOUND.json"
    names["BOUND"].write_text(json.dumps(bound))
    before = {path: path.read_bytes() for path in bench.folder.iterdir()}
    for name, path in names.items():
        command = [part.replace(name, str(path)) if part.startswith(name) else part for part in command]
    done = bench.runner.invoke(cli, command)
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("infermax-opt: ")
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.output
    assert {path: path.read_bytes() for path in bench.folder.iterdir()} == before
