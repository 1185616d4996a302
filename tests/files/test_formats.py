"""The JSON Schemas of the file formats: what one refuses its reader refuses, what is shipped both accept."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from referencing import Registry, Resource

import infermax_opt
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problems
from infermax_opt.core.result import Answer, Proof, Status
from infermax_opt.files.instances import any_schedule_from_json, any_schedule_to_json
from infermax_opt.files.results import claim_from_json, result_to_json
from infermax_opt.infermax.data.profiles import profile_from_json, profile_names
from tests.campaign import campaign
from tests.support import ROOT

FOLDER = ROOT / "infermax_opt" / "files" / "formats"
NAMES = sorted(path.name.removesuffix(".schema.json") for path in FOLDER.glob("*.json"))


@cache
def schemas() -> dict[str, Any]:
    return {name: json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8")) for name in NAMES}


@cache
def checker(name: str) -> jsonschema.Draft202012Validator:
    known = [(some["$id"], Resource.from_contents(some)) for some in schemas().values()]
    return jsonschema.Draft202012Validator(schemas()[name], registry=Registry().with_resources(known))


def load(path: Path) -> Any:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


def plain(value: Any) -> Any:
    """A value as a file has it."""
    return json.loads(json.dumps(value, default=float))


def readers(kind: str) -> dict[str, Callable[[Any], object]]:
    """Reader of each format of a problem."""
    problem = next(problem for problem in problems() if problem.name == kind)
    return {
        "instance": problem.instance_from_json,
        "schedule": lambda value: problem.schedule_from_json(value, ""),
    }


def refuses(reader: Callable[[Any], object], value: Any) -> bool:
    try:
        reader(copy.deepcopy(value))
    except InputError:
        return True
    return False


INSTANCES = [
    path
    for pattern in ("*.json", "paper-csp/*.json", "vllm-runs/*.json", "vectors/instances/*.json")
    for path in sorted((ROOT / "instances").glob(pattern))
]
#: The archive holds hundreds; every twentieth is tried, the same ones always.
ARCHIVE = sorted((ROOT / "instances" / "best-known").glob("*/*.json.gz"))[::20]


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas()[name])
    assert schemas()[name]["$id"] == f"{name}.schema.json"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("common", "cost")])
def test_a_schema_is_given_whole(name: str) -> None:
    """It says what the files say together, and needs none of them."""
    whole = infermax_opt.json_schema(name)
    jsonschema.Draft202012Validator.check_schema(whole)
    alone = jsonschema.Draft202012Validator(whole, registry=Registry())
    rng = random.Random(name)
    value = examples()[name][0] if name in examples() else {"kv_capacity": 3}
    for other in (value, *(mutated(value, rng) for _ in range(15))):
        assert alone.is_valid(other) == checker(name).is_valid(other)


def test_formats_are_listed_and_printed() -> None:
    assert infermax_opt.json_schema_names() == tuple(name for name in NAMES if name not in ("common", "cost"))
    listed = CliRunner().invoke(cli, ["formats"]).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(infermax_opt.json_schema_names())
    titles = [infermax_opt.json_schema(name)["title"] for name in infermax_opt.json_schema_names()]
    assert [line.split(maxsplit=1)[1] for line in listed] == titles
    for name in infermax_opt.json_schema_names():
        for options in ((), ("--json",)):
            done = CliRunner().invoke(cli, ["formats", name, *options])
            assert json.loads(done.stdout) == infermax_opt.json_schema(name)
    done = CliRunner().invoke(cli, ["formats", "instance"])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("infermax-opt: format: 'instance' is none of certificate, checked, ")


def test_every_problem_has_its_schemas() -> None:
    kinds = {path.removeprefix("instance-") for path in NAMES if path.startswith("instance-")}
    assert kinds == {"infermax", "iteration", "makespan", "pipelining", "placement", "stream"}
    for kind in kinds - {"stream"}:  # whose schedules are those of placement
        assert f"schedule-{kind}" in NAMES


def test_words_are_those_of_the_code() -> None:
    result = schemas()["result"]["properties"]
    assert result["status"]["enum"] == [some.value for some in Status]
    assert result["answer"]["enum"] == [some.value for some in Answer]
    assert result["lower"]["anyOf"][0]["properties"]["proof"]["enum"] == [some.value for some in Proof]


@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.name)
def test_shipped_instances(path: Path) -> None:
    value = load(path)
    checker(f"instance-{value['problem']}").validate(value)
    instance = infermax_opt.read_instance(path)
    written = plain(next(p for p in problems() if p.name == value["problem"]).instance_to_json(instance))
    checker(f"instance-{value['problem']}").validate(written)


@pytest.mark.parametrize("path", ARCHIVE, ids=lambda path: path.name)
def test_shipped_schedules_results_and_certificates(path: Path) -> None:
    value = load(path)
    kind = value["schema"].split("/")[1]
    checker(schedule_schema(value) if kind == "schedule" else kind).validate(value)


def test_shipped_profiles() -> None:
    folder = ROOT / "infermax_opt" / "infermax" / "data" / "profiles"
    for name in profile_names():
        checker("profile").validate(load(folder / f"{name}.json"))


def schedule_schema(value: dict[str, Any]) -> str:
    decisions = {"batches": "infermax", "bins": "makespan", "workers": "placement"}
    decisions |= {"select": "iteration", "offsets": "pipelining"}
    return f"schedule-{next(kind for key, kind in decisions.items() if key in value)}"


# --- what a schema refuses ------------------------------------------------------------------------

REQUEST = {
    "id": "r", "count": 2, "input_tokens": 3, "output_tokens": "4", "arrival": "0.5", "class": "a",
    "weight": 2, "slo": {"ttft": "0.5", "tpot": 1}, "predicted_output_tokens": 3, "optional": False,
}  # fmt: skip


@cache
def examples() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """A value of each format with as many keys as it may have, and its reader."""
    found: dict[str, tuple[Any, Callable[[Any], object]]] = {}
    for path in INSTANCES:
        value = load(path)
        if len(value["requests"]) < 40:
            found[f"instance-{value['problem']}"] = value, readers(value["problem"])["instance"]
    toy = load(ROOT / "instances" / "toy.json")
    toy |= {"classes": {"a": {"weight": 1, "slo": {"e2e": 9}, "optional": True}}, "horizon": 9}
    toy["requests"] = [REQUEST]
    found["instance-infermax"] = toy, readers("infermax")["instance"]
    batch = {"tokens": {"r": 3}, "evict": ["s"], "start": "0.5", "decode": "all", "repeat": 2}
    for kind, decisions in (
        ("infermax", {"batches": [batch]}),
        ("makespan", {"bins": [{"prefill": {"a": 1}, "rounds": 3, "decode": {"a": 2}}]}),
        ("placement", {"workers": {"a": 1}}),
        ("iteration", {"select": ["a", "b"]}),
        ("pipelining", {"offsets": {"a": 0}}),
    ):  # fmt: skip
        schedule = {"schema": "infermax-opt/schedule/1", "instance": "i", **decisions}
        found[f"schedule-{kind}"] = schedule, readers(kind)["schedule"]
    small = infermax_opt.read_instance(ROOT / "instances" / "stream-poisson-8.json")
    value = plain(next(p for p in problems() if p.name == "stream").instance_to_json(small))
    value["requests"] = value["requests"][:2]
    value["requests"][0]["predicted_output_tokens"] = 7
    found["instance-stream"] = value, readers("stream")["instance"]
    clients = load(ROOT / "instances" / "makespan-100x20.json")
    clients["requests"] = clients["requests"][:2]
    found["instance-makespan"] = clients, readers("makespan")["instance"]
    instance = infermax_opt.read_instance(ROOT / "instances" / "toy.json")
    found["result"] = plain(result_to_json(infermax_opt.solve(instance, time_limit=5))), claim_from_json
    folder = ROOT / "infermax_opt" / "infermax" / "data" / "profiles"
    profile = load(folder / "llama-3.1-8b_rtx4090_mixed.json")
    found["profile"] = profile, lambda value: profile_from_json(value, "mine")
    return found


ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 0.5, "", "x", "1", "0.5", "-1", "1e400", " 2 ", "1_0", [], {}, [1],
    [1, 2], [1, 2, 3], {"a": 1}, "all", "rt", "infermax-opt/schedule/1",
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def mutated(value: Any, rng: random.Random) -> Any:
    """A value with one thing changed, left out or added."""
    value = copy.deepcopy(value)
    spots = list(places(value))
    where, key = rng.choice(
        [spot for spot in spots if not isinstance(spot[1], int)] if rng.random() < 0.5 else spots
    )
    way = rng.randrange(4)
    if way == 0:
        del where[key]
    elif way == 1 and isinstance(where, dict):
        where[rng.choice(["unknown", "count", "start", "schema", ""])] = rng.choice(ODD)
    else:
        where[key] = copy.deepcopy(rng.choice(ODD))
    return value


FORMATS = [name for name in NAMES if name not in ("common", "cost", "worker", "certificate", "checked")]


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_schema_refuses_its_reader_refuses(name: str) -> None:
    value, reader = examples()[name]
    checker(name).validate(value)
    assert not refuses(reader, value)
    rng, wrong = random.Random(name), 0
    for _ in campaign(200, 20_000):
        other = mutated(value, rng)
        if not checker(name).is_valid(other):
            wrong += 1
            assert refuses(reader, other), json.dumps(other)[:2000]
    assert wrong > 20


def test_what_the_schema_of_certificates_refuses_is_rejected(tmp_path: Path) -> None:
    instance = infermax_opt.read_instance(ROOT / "instances" / "toy.json")
    bounds = infermax_opt.bound(instance, time_limit=5)
    path = tmp_path / "certificate.json"
    # The schema says nothing of evidence, so that with the least of it has most to refuse.
    proved = [bound for bound in bounds if bound.proof is Proof.CERTIFICATE]
    infermax_opt.write_certificate(instance, min(proved, key=lambda bound: len(str(bound.evidence))), path)
    value, rng, wrong = load(path), random.Random(0), 0
    checker("certificate").validate(value)
    for _ in campaign(100, 5_000):
        other = mutated(value, rng)
        if not checker("certificate").is_valid(other):
            wrong += 1
            path.write_text(json.dumps(other), encoding="utf-8")
            with pytest.raises((InputError, infermax_opt.CertificateRejected)):
                infermax_opt.check_certificate(instance, path)
    assert wrong > 10


def test_results_as_they_are_written(tmp_path: Path) -> None:
    for name in ("toy.json", "placement-toy.json", "iteration-toy.json"):
        instance = infermax_opt.read_instance(ROOT / "instances" / name)
        infermax_opt.write_result(infermax_opt.solve(instance, time_limit=5), tmp_path / "result.json")
        value = load(tmp_path / "result.json")
        checker("result").validate(value)
        checker(schedule_schema(value["schedule"])).validate(value["schedule"])
        assert (
            any_schedule_to_json(any_schedule_from_json(value["schedule"], "schedule")) == value["schedule"]
        )
