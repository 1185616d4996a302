"""Hostile files: the checkers refuse in one line, soon, and within little memory; so do the commands."""

from __future__ import annotations

import copy
import functools
import gzip
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt.api import write_certificate
from infermax_opt.cli.main import cli
from infermax_opt.cluster.data.formats import read_stream
from infermax_opt.core.checks import MAX_NAMES, MAX_REQUESTS
from infermax_opt.core.errors import InputError
from infermax_opt.files.instances import read_instance as read_any
from infermax_opt.files.json import MAX_BYTES, limit_bytes, load_json, parse_json
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json, read_instance
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.table.archive import Archive
from infermax_opt.table.journal import Journal
from tests.campaign import size
from tests.infermax.occupancy_adversary import signed
from tests.judged import judged_here
from tests.support import ROOT, one_file, stand_alone

INSTANCES = ROOT / "instances"
SCRIPT = ROOT / "scripts" / "check_certificate.py"
CHECKERS = (stand_alone("infermax"), stand_alone("makespan"))
certificate_checker = one_file("infermax")
makespan_checker = one_file("makespan")
#: Seconds that a rejection may take, whatever is rejected.
SOON = 30.0
#: Tenths of a checker's work, and of certificates without end.
TENTHS = size(1, 10)
#: Bytes of memory, all told, in which a checker refuses a file that would unpack to far more.
LITTLE_MEMORY = 2 * 2**30
TOY = read_instance(INSTANCES / "toy.json")
COST = CostModel([("1", "0.1"), ("0.5", "0.2")], ("0.25", "0.05"), ("0.3", "0.02"))


def shown(of: Instance) -> dict[str, Any]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(of), "cost": cost_to_json(of.cost)}
    loaded: dict[str, Any] = json.loads(json.dumps(value, default=lambda number: str(float(number))))
    return loaded


def case(count: int, prompt: int, outputs: int, capacity: int) -> dict[str, Any]:
    group = RequestGroup("r", prompt, outputs, count=count)
    return shown(Instance("case", (group,), System(capacity, 10**6, 10**6), COST))


def forged(of: dict[str, Any], evidence: dict[str, Any], claim: str = "0") -> dict[str, Any]:
    """A certificate of this evidence, whole and made out for the instance."""
    return signed(
        {
            "schema": "infermax-opt/certificate/1",
            "instance": of["name"],
            "instance_sha256": certificate_checker.Instance(of, None).sha256,
            "objective": "makespan",
            "cost": of["cost"],
            "lower_bound": claim,
            "source": "adversary",
            "evidence": {"piece": 0, "exponent": 0, **evidence},
        }
    )


def soon(work: Callable[[], object], limit: float = SOON) -> None:
    began = time.process_time()
    work()
    assert time.process_time() - began < limit


def run(*command: object, cwd: Path, memory: int | None = None) -> subprocess.CompletedProcess[str]:
    """A process that ends soon, in one line, without a traceback."""

    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd, capture_output=True, text=True, timeout=60, check=False, preexec_fn=limit,
    )  # fmt: skip
    assert time.perf_counter() - began < SOON
    assert "Traceback" not in done.stderr, done.stderr
    assert (done.stdout + done.stderr).count("\n") == 1, done.stderr
    return done


# --- work -----------------------------------------------------------------------------------------


def lagrangian(*lists: list[list[int]]) -> dict[str, Any]:
    return {"kind": "lagrangian", "theta": 0, "prices": list(lists)}


def occupancy(potential: list[list[int]], sizes: int = 1) -> dict[str, Any]:
    prices = {
        "token": 0,
        "size": 0,
        "out_fixed": 0,
        "out_size": 0,
        "first": [0] * sizes,
        "finish": [0] * sizes,
    }
    return {"kind": "occupancy", "young": 0, "prices": prices, "potential": potential}


def filling(cells: list[list[int]]) -> dict[str, Any]:
    return {"kind": "filling", "by_slots": False, "exponent": 256, "cells": cells}


def states(outputs: int, potential: int) -> dict[str, Any]:
    prices = {"first": [0], "out": [[0] * (outputs - 1)]}
    return {"kind": "state-flow", "prices": prices, "potential": [0] * potential}


def levels(outputs: int, width: int, potential: int) -> dict[str, Any]:
    prices = {"worth": [0] * -(-outputs // width), "idle": 0}
    return {"kind": "levels", "width": width, "prices": prices, "potential": [0] * potential}


TWO_KINDS = Instance(
    "two", (RequestGroup("a", 1, 1), RequestGroup("b", 10_000, 20_000)), System(30_000, 40_000, 40_000), COST
)


@functools.cache
def large() -> dict[str, Any]:
    """A million long requests."""
    return case(10**6, 1, 10**5, 10**6)


def sizes() -> dict[str, Any]:
    """Two thousand sizes."""
    groups = tuple(RequestGroup(f"r{k}", k + 1, 5000 - k, count=2) for k in range(2000))
    return shown(Instance("sizes", groups, System(10**6, 10**6, 10**6), COST))


def endless() -> dict[str, Any]:
    """One request of 10**17 output tokens."""
    of = {**case(1, 1, 1, 1), "system": {**case(1, 1, 1, 1)["system"], "kv_capacity": 10**18}}
    of["requests"][0]["output_tokens"] = 10**17
    return of


#: Made when its test runs, as some are large.
HOSTILE: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
    "prices for ten million batches": lambda: (shown(TOY), lagrangian([[10**18, 10**7]])),
    "prices for a quintillion batches": lambda: (shown(TOY), lagrangian([[10**18, 10**18]])),
    "prices for a million batches": lambda: (shown(TOY), lagrangian([[10**18, 2**20]])),
    "prices that change": lambda: (
        case(3, 2, 4000, 9000),
        lagrangian([[k % 7, 1] for k in range(TENTHS * 20_000)]),
    ),
    "cheap prices that settle late": lambda: (large(), lagrangian([[1, 2**20]])),
    "many lists": lambda: (shown(TOY), lagrangian(*[[[k, 10_000]] for k in range(2000)])),
    "prices of hundreds of bits": lambda: (large(), lagrangian([[2**255, 2**20]])),
    "states by pairs": lambda: (
        shown(TWO_KINDS),
        {
            "kind": "state-flow",
            "prices": {"first": [0, 0], "out": [[], [0] * 19_999]},
            "potential": [0] * 3_000_000,
        },
    ),
    "states that are large": lambda: (case(5000, 1, 1, 5000), states(1, 2000)),
    "states without end": lambda: (case(5000, 1, 50, 5000), states(50, 2000)),
    "levels that are many": lambda: (case(6, 1, TENTHS * 30, 5000), levels(TENTHS * 30, 1, 10**6)),
    "levels of many requests": lambda: (case(5000, 1, 50, 5000), levels(50, 1, 2000)),
    "levels of a billion tokens": lambda: (case(3, 1, 10**9, 10**9), levels(4, 1, 10)),
    "a wide list": lambda: (
        case(10**6, 1, 50, TENTHS * 30_000),
        occupancy([[0], [0] * (TENTHS * 60_000)]),
    ),
    "lists that are far apart": lambda: (case(9, 10**8, 1, 10**9 - 1), occupancy([[0]] + [[0, 0]] * 9)),
    "as many lists as requests": lambda: (case(1000, 1, 1000, 2000), occupancy([[0]] * 1001)),
    "prices for no batches": lambda: (large(), lagrangian([*[[1, 0]] * (TENTHS * 30_000), [1, 2**18]])),
    "prices of hundreds of bits and a long request": lambda: (
        case(1, 1, 10**6, 10**6),
        lagrangian([[2**255, 2**20]]),
    ),
    "runs without end": lambda: (shown(TOY), lagrangian([*[[1, 0]] * (TENTHS * 100_000), [1, 20]])),
    "steps of time without end": lambda: (
        sizes(),
        filling([[k, 2**200] for k in range(1, TENTHS * 40_000)]),
    ),
    "steps of time and many sizes": lambda: (
        sizes(),
        filling([[2**250 + k, 2**250] for k in range(400)]),
    ),
    "many sizes on many lists": lambda: (sizes(), occupancy([[0]] * 3000, sizes=2000)),
    "ages of a quintillion sizes": lambda: (
        endless(),
        {"kind": "closed-form", "argument": "KV age", "since": "0", "reference": None},
    ),
    "releases of a quintillion sizes": lambda: (
        endless(),
        {"kind": "closed-form", "argument": "KV releases", "since": "0", "reference": None, "cut": 0},
    ),
    "runs of a quintillion sizes": lambda: (
        endless(),
        {
            "kind": "closed-form", "argument": "KV beginning", "since": "0", "reference": None,
            "cut": {"price": 2**20, "kv": []},
        },
    ),
    "first batches of many sizes": lambda: (
        sizes(),
        {
            "kind": "closed-form", "argument": "KV beginning", "since": "0", "reference": None,
            "cut": {"price": 0, "kv": [0] * 2**16},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_certificate_is_judged_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tenth of the work allowed in a fifth of the time, as reading is no work; or with all in all."""
    of, evidence = HOSTILE[name]()
    certificate = forged(of, evidence, claim="1e50")
    monkeypatch.setattr(certificate_checker, "MAX_STEPS", certificate_checker.MAX_STEPS * TENTHS // 10)

    def judge() -> None:
        with pytest.raises(certificate_checker.Rejected):
            certificate_checker.check(of, certificate)

    soon(judge, SOON * size(2, 10) / 10)


def test_work_beyond_the_limit_is_rejected_before_it_is_done() -> None:
    with pytest.raises(certificate_checker.Rejected, match="takes more than 70000000 steps"):
        certificate_checker.check(
            shown(TOY), forged(shown(TOY), lagrangian(*[[[k, 10**6]] for k in range(99)]))
        )
    work = certificate_checker.Work()
    work.spend(certificate_checker.MAX_STEPS)
    with pytest.raises(certificate_checker.Rejected, match="the limit"):
        work.spend(1)


def test_archived_certificates_stay_far_below_the_limit() -> None:
    """The largest state flow of the archive, the longest prices of a small batch, and levels."""
    shares = {
        "b32-i8-o8-m100-p4096": 0.15,
        "b32-i1024-o512-m10000-p4096": 0.08,  # occupancy, but for the ends, which have a limit of their own
        "b1024-i128-o32-m1000-p4096": 0.25,  # levels, which may take three times the limit
    }
    for name, most in shares.items():
        suite = f"paper-{name.split('-')[0]}"
        (path,) = (INSTANCES / "best-known" / suite).glob(f"{name}.*.certificate.json.gz")
        certificate = certificate_checker.load(path)
        prompt, outputs, capacity = (int(part[1:]) for part in name.split("-")[1:4])
        from infermax_opt.table.suites import get_suite

        (of,) = (some.build() for some in get_suite(suite).cases if some.name == name)
        assert isinstance(of, Instance)
        assert of.system.kv_capacity == capacity
        assert {(r.input_tokens, r.output_tokens) for r in of.requests} == {(prompt, outputs)}
        instance = certificate_checker.Instance(shown(of), None)
        evidence = certificate_checker.Field(certificate["evidence"], "evidence")
        proved = certificate_checker.prove(instance, evidence)
        assert proved == Fraction(certificate["lower_bound"])
        assert 0 < instance.work.spent < most * certificate_checker.MAX_STEPS


def test_lanes_compare_as_lists_do() -> None:
    import random

    rng = random.Random(1)
    for _ in range(300):
        count, most = rng.randint(1, 9), rng.choice((1, 2, 255, 256, 10**9, 2**90))
        lanes = certificate_checker.Lanes(count, most)
        a, b = ([rng.choice((0, most, rng.randint(0, most))) for _ in range(count)] for _ in "ab")
        assert lanes.least(lanes.pack(a), lanes.pack(b)) == lanes.pack(list(map(min, a, b)))
        assert lanes.ones == lanes.pack([1] * count)


@pytest.mark.parametrize("preemption", [False, True])
def test_cheapest_paths_are_those_of_plain_lists(preemption: bool) -> None:
    import random
    from types import SimpleNamespace

    rng, far = random.Random(2), certificate_checker.FAR
    for _ in range(200):
        prompt, outputs, share, rho = (
            rng.randint(1, 6),
            rng.randint(1, 6),
            rng.randint(0, 9),
            rng.randint(0, 9),
        )
        runs = [
            [*(rng.choice((0, 1, rng.randint(0, 50))) for _ in range(3)), rng.randint(0, 9)]
            for _ in range(rng.randint(1, 5))
        ]
        block = rng.randint(1, 3)
        instance: Any = SimpleNamespace(block=block, preemption=preemption, work=certificate_checker.Work())
        found = certificate_checker.cheapest_paths(instance, (prompt, outputs), runs, share, rho)
        held, out, done, expected = [far] * (outputs + 1), [0, *[far] * outputs], far, []
        for price, entry, token in [prices for *prices, times in runs for _ in range(times)]:
            after: list[Any] = [far] * (outputs + 1)
            for n in range(1, outputs + 1):
                blocks = -(-(prompt + n - 1) // block)
                enter = 0 if n == 1 else rho * (prompt + n - 2)
                load = prompt if n == 1 else prompt + n - 2
                if n == 1 or preemption:
                    after[n] = out[n - 1] + enter + entry * load + (token if n > 1 else 0)
                if n > 1:
                    decode = min(share * blocks, enter) if preemption else share * blocks
                    after[n] = min(after[n], held[n - 1] + decode + token)
                if n < outputs:
                    after[n] = min(after[n], held[n])
                after[n] += price * blocks
            if preemption:
                out = [0, *map(min, out[1:], held[1:])]
            done, held = min(done, after[outputs]), [*after[:outputs], far]
            expected.append(done)
        assert found == expected


# --- size -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 GiB of blanks in 4 MiB: the same member over and over."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**24) * 256)
    return path


@pytest.mark.parametrize("program", [*CHECKERS, SCRIPT], ids=lambda path: path.stem)
def test_programs_stop_at_the_most_bytes(program: Path, bomb: Path) -> None:
    """All have the same part that reads, whose own limit is for the first of them to show."""
    pairs = (INSTANCES / "makespan-100x20.json", bomb), (bomb, INSTANCES / "toy.json")
    for pair in pairs if program == CHECKERS[0] else ():
        done = run("-I", "-S", program, *pair, cwd=bomb.parent, memory=LITTLE_MEMORY)
        assert done.returncode == 2
        assert f"bomb.json.gz: is larger than {256 * 2**20} bytes" in done.stderr
    done = run("-I", "-S", program, bomb, bomb, "--max-size", "1", cwd=bomb.parent, memory=2**28)
    assert (done.returncode, "larger than 1048576 bytes" in done.stderr) == (2, True)


def test_commands_stop_at_the_most_bytes(bomb: Path) -> None:
    toy, text = str(INSTANCES / "toy.json"), str(bomb)
    assert MAX_BYTES == certificate_checker.MAX_BYTES == makespan_checker.MAX_BYTES == 256 * 2**20
    done = run("-m", "infermax_opt", "check", toy, text, cwd=ROOT)
    assert (done.returncode, f"is larger than {256 * 2**20} bytes" in done.stderr) == (2, True)
    commands = (
        ["solve", text], ["bound", text], ["schedule", text, "--scheduler", "vllm"], ["verify", toy, text],
        ["check", toy, text], ["plot", toy, text, "-o", "x.png"], ["workers", text], ["simulate", text],
        ["import", text, "--format", "vidur", "-o", "x.json"], ["calibrate", text],
    )  # fmt: skip
    for command in commands:
        failed = CliRunner().invoke(cli, [*command, "--max-size", "1"])
        assert failed.exit_code == 2
        assert "is larger than 1048576 bytes; --max-size allows more" in failed.stderr, command
        assert failed.stderr.count("\n") == 1


def test_the_limit_is_for_one_command_only(tmp_path: Path) -> None:
    path = tmp_path / "blank.json"
    path.write_text(" " * (2**20 + 1) + "{}")
    assert CliRunner().invoke(cli, ["bound", str(path), "--max-size", "1"]).exit_code == 2
    assert load_json(path) == {}
    try:
        limit_bytes(2**20)
        with pytest.raises(InputError, match="larger than 1048576 bytes"):
            load_json(path)
    finally:
        limit_bytes(None)
    assert load_json(path) == {}


def test_files_of_too_many_values_are_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "values.json").write_text('{"a": [' + "[]," * 10_000_001 + "[]]}")
    done = run("-I", "-S", CHECKERS[0], INSTANCES / "toy.json", "values.json", cwd=tmp_path)
    assert (done.returncode, "holds more than 10000000 values" in done.stderr) == (2, True)


def test_too_little_memory_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "values.json").write_text('{"a": [' + "{}," * 3_000_000 + "[]]}")
    for program in CHECKERS:
        done = run("-I", "-S", program, "values.json", "values.json", cwd=tmp_path, memory=150 * 2**20)
        assert (done.returncode, done.stderr) == (2, "cannot be read: there is not enough memory\n")
    (tmp_path / "values.json").write_text('{"a": [' + "{}," * 6_000_000 + "[]]}")
    for command in (["check", INSTANCES / "toy.json", "values.json"], ["bound", "values.json"]):
        done = run("-m", "infermax_opt", *command, cwd=tmp_path, memory=400 * 2**20)
        assert (done.returncode, "values.json: takes more memory than there is" in done.stderr) == (2, True)


# --- what cannot be read --------------------------------------------------------------------------


def broken_files(good: str) -> dict[str, bytes]:
    packed = gzip.compress(good.encode())
    return {
        "empty.json": b"",
        "list.json": b"[]",
        "number.json": b"7",
        "null.json": b"null",
        "text.json": b'"text"',
        "cut.json": good[: len(good) // 2].encode(),
        "nan.json": (good[:-1] + ', "more": NaN}').encode(),
        "infinity.json": (good[:-1] + ', "more": -Infinity}').encode(),
        "digits.json": (good[:-1] + ', "more": ' + "9" * 10_000 + "}").encode(),
        "deep.json": b"[" * 10**6,
        "deep objects.json": b'{"a":' * 10**6,
        "bytes.json": b"\xff\xfe" + good.encode(),
        "late byte.json": good[:-1].encode() + b', "more": "\xc3"}',
        "twice.json": (good[:-1] + ', "name": 1, "name": 2}').encode(),
        "twice inside.json": (good[:-1] + ', "more": [{"a": 1, "a": 1}]}').encode(),
        "twice after an escape.json": (good[:-1] + ', "a": 1, "\\u0061": 2}').encode(),
        "cut.json.gz": packed[:-9],
        "half.json.gz": packed[: len(packed) // 2],
        "checksum.json.gz": packed[:-8] + b"\0" * 8,
        "rubbish.json.gz": packed + b"rubbish",
        "plain.json.gz": good.encode(),
        "nothing.json.gz": b"",
    }


#: Files that may harm a process, so that they get one of their own.
HARMFUL = ("deep.json", "deep objects.json", "digits.json")


@pytest.mark.parametrize("problem", ["infermax", "makespan"])
def test_what_cannot_be_read_is_said_in_one_line(problem: str, tmp_path: Path) -> None:
    good = json.dumps(shown(TOY))
    (tmp_path / "good.json").write_text(good)
    for name, content in broken_files(good).items():
        (tmp_path / name).write_bytes(content)
        for pair in ((name, "good.json"), ("good.json", name))[: 2 if name == "list.json" else 1]:
            if name in HARMFUL:
                done = run("-I", "-S", stand_alone(problem), *pair, cwd=tmp_path)
            else:
                done = judged_here(problem, *pair, cwd=tmp_path)
            assert done.returncode == 2, name
            assert done.stderr.startswith(f"cannot be read: {name}: "), done.stderr
            assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    for name in ("none.json", ".", "\nnone.json"):
        done = judged_here(problem, name, "good.json", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), name


def test_the_command_says_it_alike(tmp_path: Path) -> None:
    good = json.dumps(shown(TOY))
    for name, content in broken_files(good).items():
        (tmp_path / name).write_bytes(content)
        done = CliRunner().invoke(cli, ["check", str(INSTANCES / "toy.json"), str(tmp_path / name)])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), (name, done.stderr)
        assert name in done.stderr


def test_keys_given_twice_are_an_error_everywhere(tmp_path: Path) -> None:
    """Instances of every kind, schedules, results, certificates, archives, journals, lines of traces."""

    def twice(text: str) -> str:
        return text.rstrip()[:-1] + ', "name": "x", "name": "y"}'

    path = tmp_path / "twice.json"
    for name in ("toy", "makespan-100x20", "placement-toy", "stream-poisson-8"):
        path.write_text(twice((INSTANCES / f"{name}.json").read_text()))
        with pytest.raises(InputError, match="'name' is given twice"):
            (read_stream if name.startswith("stream") else read_any)(path)
    toy = str(INSTANCES / "toy.json")
    result, certificate = tmp_path / "result.json", tmp_path / "certificate.json"
    assert CliRunner().invoke(cli, ["bound", toy, "-o", str(result)]).exit_code == 0
    write_certificate(TOY, closed_form_bounds(TOY)[0], certificate)
    schedule = tmp_path / "schedule.json"
    made = ["schedule", toy, "--scheduler", "vllm", "-o", str(schedule)]
    assert CliRunner().invoke(cli, made).exit_code == 0
    for command, given in (("verify", result), ("verify", schedule), ("check", certificate)):
        path.write_text(twice(given.read_text()))
        done = CliRunner().invoke(cli, [command, toy, str(path)])
        assert (done.exit_code, "'name' is given twice" in done.stderr) == (2, True)
    archive = tmp_path / "toy.json"
    archive.write_text(
        '{"schema": "infermax-opt/best-known/1", "suite": "toy", "entries": [], "entries": []}'
    )
    with pytest.raises(InputError, match="'entries' is given twice"):
        Archive(tmp_path, "toy").entries()
    journal = tmp_path / "journal.jsonl"
    journal.write_text('{"a": 1, "a": 2}\n')
    with pytest.raises(InputError, match="'a' is given twice"):
        Journal(journal)
    with pytest.raises(InputError, match="'a' is given twice"):
        parse_json('[{"a": {"a": 1, "b": 2, "a": 3}}]')


# --- how many requests ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [MAX_REQUESTS + 1, 10**7, 10**18])
@pytest.mark.parametrize("name", ["toy", "makespan-100x20", "placement-toy"])
def test_a_count_beyond_the_limit_is_refused(name: str, count: int, tmp_path: Path) -> None:
    assert certificate_checker.MAX_REQUESTS == makespan_checker.MAX_REQUESTS == MAX_REQUESTS == 10**6
    value = json.loads((INSTANCES / f"{name}.json").read_text())
    value["requests"][0]["count"] = count
    path, other = tmp_path / "many.json", str(INSTANCES / "toy.json")
    path.write_text(json.dumps(value))
    commands = [["bound"], ["solve"], ["verify", other], ["check", other], ["plot", other, "-o", "x.png"]]
    for command, *rest in commands:

        def refuse(line: list[str]) -> None:
            done = CliRunner().invoke(cli, line)
            assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
            assert f"{path}: requests[0].count: " in done.stderr
            assert "is not between 1 and 1000000" in done.stderr

        soon(lambda: refuse([command, str(path), *rest]))  # noqa: B023
    done = run("-I", "-S", SCRIPT, path, other, cwd=tmp_path)
    assert done.returncode == 2
    if name != "placement-toy":
        assert "requests[0].count" in done.stderr


def test_all_entries_count_together(tmp_path: Path) -> None:
    for name in ("toy", "makespan-100x20", "placement-toy"):
        value = json.loads((INSTANCES / f"{name}.json").read_text())
        first = value["requests"][0]
        value["requests"] = [{**first, "id": f"g{k}", "count": MAX_REQUESTS // 4} for k in range(5)]
        (tmp_path / "many.json").write_text(json.dumps(value))
        with pytest.raises(InputError, match="1250000 requests in all; the most is 1000000"):
            read_any(tmp_path / "many.json")
        if name != "placement-toy":
            checker = CHECKERS[name != "toy"]
            done = run("-I", "-S", checker, "many.json", INSTANCES / "toy.json", cwd=tmp_path)
            assert (done.returncode, "more than 1000000 requests in all" in done.stderr) == (2, True)


def test_long_names_of_many_requests_are_refused(tmp_path: Path) -> None:
    value = shown(TOY)
    value["requests"] = [{**value["requests"][0], "id": "x" * (MAX_NAMES // 10**6 + 1), "count": 10**6}]
    (tmp_path / "names.json").write_text(json.dumps(value))
    with pytest.raises(InputError, match="characters of ids in all; the most is"):
        read_any(tmp_path / "names.json")
    done = run("-I", "-S", CHECKERS[0], "names.json", "names.json", cwd=tmp_path)
    assert (done.returncode, "the most is" in done.stderr) == (2, True)


def test_a_stream_of_too_many_requests_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infermax_opt.cluster.data.stream.MAX_REQUESTS", 3)
    with pytest.raises(InputError, match="more than 3 requests in all"):
        read_stream(INSTANCES / "stream-poisson-8.json")


def test_a_million_requests_are_checked() -> None:
    of = case(10**6, 7, 3, 1000)
    area = {"kind": "closed-form", "argument": "KV area", "cut": 0, "since": "0", "reference": None}
    certificate = forged(of, area, "1000")
    soon(lambda: certificate_checker.check(of, certificate))
    group = [{"id": "r", "input_tokens": 9, "output_tokens": 5, "count": 10**6}]
    many = {**json.loads((INSTANCES / "makespan-100x20.json").read_text()), "requests": group}
    certificate = {
        **forged(of, {"kind": "closed-form", "argument": "arc lengths"}, "100"),
        "instance": many["name"],
        "instance_sha256": makespan_checker.Instance(many).sha256,
        "cost": {"prefill": many["prefill"], "decode": many["decode"]},
    }
    soon(lambda: makespan_checker.check(many, signed(certificate)))


# --- messages -------------------------------------------------------------------------------------


def changed(value: Any, path: str, new: Any) -> Any:
    """A copy with another value at a dotted path; without it where `new` is `...`."""
    made = copy.deepcopy(value)
    *parents, last = path.split(".")
    inner = made
    for key in parents:
        inner = inner[key]
    if new is ...:
        del inner[last]
    else:
        inner[last] = new
    return made


@pytest.mark.parametrize(
    ("evidence", "path", "new", "expected"),
    [
        (lagrangian([[0, 9]]), "evidence", 7, "evidence: 7 is not an object"),
        (lagrangian([[0, 9]]), "evidence", ..., "certificate.evidence: is missing"),
        (lagrangian([[0, 9]]), "evidence.kind", ..., "evidence.kind: is missing"),
        (lagrangian([[0, 9]]), "evidence.kind", [], "evidence.kind: a list is no text"),
        (lagrangian([[0, 9]]), "evidence.kind", "magic", "evidence.kind: 'magic' is none of closed-form,"),
        (lagrangian([[0, 9]]), "evidence.piece", 1, "evidence.piece: 1 is not a whole number from 0 to 0"),
        (lagrangian([[0, 9]]), "evidence.piece", True, "evidence.piece: true is no number"),
        (lagrangian([[0, 9]]), "evidence.exponent", "1e9", "evidence.exponent: '1e9' is not a whole number"),
        (lagrangian([[0, 9]]), "evidence.theta", None, "evidence.theta: null is no number"),
        (lagrangian([[0, 9]]), "evidence.prices", 3, "evidence.prices: 3 is not a list"),
        (lagrangian([[0, 9]]), "evidence.prices", [3], "evidence.prices[0]: 3 is not a list"),
        (lagrangian([[0, 9]]), "evidence.prices", [[3]], "evidence.prices[0][0]: 3 is not a list"),
        (lagrangian([[0, 9]]), "evidence.prices", [[[3]]], "evidence.prices[0][0]: wrong length of a list"),
        (lagrangian([[0, 9]]), "evidence.prices", [], "evidence.prices: holds no list"),
        (lagrangian([[0, 9]]), "lower_bound", "1/0", "certificate.lower_bound: '1/0' is no number"),
        (lagrangian([[0, 9]]), "lower_bound", "9" * 70, "is no number, or has too many digits"),
        (lagrangian([[0, 9]]), "cost.batch", {}, "certificate.cost.batch: an object is not a list"),
        (lagrangian([[0, 9]]), "cost.decode", ["1"], "certificate.cost.decode: wrong length of a list"),
        (lagrangian([[0, 9]]), "source", 3, "certificate.source: 3 is no text"),
        (occupancy([[0], [0]]), "evidence.young", -1, "evidence.young: -1 is not a whole number from 0"),
        (occupancy([[0], [0]]), "evidence.prices.size", ..., "evidence.prices.size: is missing"),
        (occupancy([[0], [0]]), "evidence.prices.size", "1", "prices: value 1, '1', is no whole"),
        (occupancy([[0], [0]]), "evidence.prices.first", 1, "evidence.prices.first: 1 is not a list"),
        (occupancy([[0], [0]]), "evidence.potential", [[0], 4], "evidence.potential[1]: 4 is not a list"),
        (states(4, 20), "evidence.potential", [0, "a"], "potential: value 1, 'a', is no whole"),
        (states(4, 20), "evidence.prices.out", [0], "evidence.prices.out[0]: 0 is not a list"),
        (states(4, 20), "evidence.prices.out", [[0]], "evidence.prices.out[0]: wrong length of a list"),
    ],
)  # fmt: skip
def test_messages_name_the_field(evidence: dict[str, Any], path: str, new: Any, expected: str) -> None:
    certificate = signed(changed(forged(shown(TOY), evidence), path, new))
    with pytest.raises(certificate_checker.Rejected) as caught:
        certificate_checker.check(shown(TOY), certificate)
    assert f"is malformed: {expected}" in str(caught.value) or expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_messages_are_one_line_whatever_a_file_holds(tmp_path: Path) -> None:
    value = {**shown(TOY), "name": "a\nb\r\x1b[31m" + "x" * 10**6}
    (tmp_path / "i.json").write_text(json.dumps(value))
    (tmp_path / "c.json").write_text(json.dumps(forged(value, lagrangian([[0, 9]]))))
    assert run("-I", "-S", CHECKERS[0], "i.json", "c.json", cwd=tmp_path).returncode == 0
    (tmp_path / "c.json").write_text(
        json.dumps({**forged(value, lagrangian([[0, 9]])), "instance": "\n" * 999})
    )
    assert run("-I", "-S", CHECKERS[0], "i.json", "c.json", cwd=tmp_path).returncode == 1
