"""The instance and schedule formats."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any, TypeVar

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import INSTANCE_SCHEMA, SCHEDULE_SCHEMA, Fields, shown
from infermax_opt.files.json import read_as, under
from infermax_opt.files.writing import dump_json
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.cost_format import cost_to_json
from infermax_opt.infermax.data.instance import (
    Instance,
    Objective,
    Policy,
    Release,
    RequestClass,
    RequestGroup,
    ServiceLevel,
    System,
)
from infermax_opt.infermax.data.intervals import costs_from_json, costs_to_json
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, run_length

__all__ = [
    "cost_to_json",
    "instance_from_json",
    "instance_to_json",
    "read_instance",
    "schedule_from_json",
    "schedule_to_json",
    "write_instance",
    "write_schedule",
]


T = TypeVar("T")


# --- instance -----------------------------------------------------------------------------------


def instance_from_json(value: object) -> Instance:
    """Build an instance from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    # First of all, as another problem has other keys.
    if isinstance(value, dict) and value.get("problem", "infermax") != "infermax":
        raise InputError(f"{shown(value['problem'])} is not 'infermax'", field="problem")
    required = ["schema", "problem", "name", "requests", "system", "policy", "cost", "objective"]
    top = Fields(value, "", required, ["classes", "horizon", "release"])
    top.schema(INSTANCE_SCHEMA)
    groups = [_group(item, f"requests[{index}]") for index, item in enumerate(top.items("requests"))]
    system = Fields(
        top.get("system"),
        "system",
        ["kv_capacity", "max_batch_tokens", "max_prefill_tokens"],
        ["max_running", "block_size"],
    )
    cost, slowest = _costs(top.get("cost"))
    policy = Fields(top.get("policy"), "policy", ["hybrid_batching", "chunked_prefill", "preemption"])
    return Instance(
        name=top.text("name"),
        groups=tuple(groups),
        system=System(
            kv_capacity=system.get("kv_capacity"),
            max_batch_tokens=system.get("max_batch_tokens"),
            max_prefill_tokens=system.get("max_prefill_tokens"),
            max_running=system.get("max_running"),
            block_size=system.get("block_size", 1),
        ),
        policy=Policy(**policy.values),
        cost=cost,
        objective=Objective.of(top.get("objective")),
        classes=_classes(top.get("classes", {})),
        horizon=_present(top, "horizon") if "horizon" in top.values else None,
        release=_release(top.get("release")) if "release" in top.values else None,
        slowest=slowest,
    )


def _release(value: object) -> Release:
    """A closed loop."""
    given = Fields(value, "release", ["class", "batch"])
    return Release(given.text("class"), given.get("batch"))


#: Keys of a request that may be left out, and the fields of `RequestGroup` that they fill.
OPTIONAL = {
    "arrival": "arrival",
    "count": "count",
    "class": "class_name",
    "weight": "weight",
    "slo": "slo",
    "predicted_output_tokens": "predicted_output_tokens",
    "optional": "optional",
}


def _group(item: object, path: str) -> RequestGroup:
    """One entry of ``requests``."""
    fields = Fields(item, path, ["id", "input_tokens", "output_tokens"], OPTIONAL)
    with under(path):
        return RequestGroup(
            id=fields.get("id"),
            input_tokens=fields.get("input_tokens"),
            output_tokens=fields.get("output_tokens"),
            **{name: _present(fields, key) for key, name in OPTIONAL.items() if key in fields.values},
        )


def _present(fields: Fields, key: str) -> Any:
    """A value that may be left out, but is not null."""
    value = fields.get(key)
    if value is None:
        raise InputError("null is no value; leave the key out", field=key)
    return value


def _classes(value: object) -> tuple[RequestClass, ...]:
    """The object ``classes``: defaults by name."""
    if not isinstance(value, dict):
        raise InputError(f"{shown(value)} is not an object", field="classes")
    found = []
    for name, item in value.items():
        fields = Fields(item, f"classes.{name}", [], ["weight", "slo", "optional"])
        with under(f"classes.{name}"):
            given = {key: _present(fields, key) for key in fields.values}
        found.append(RequestClass(name, **given))
    return tuple(found)


def _costs(value: object) -> tuple[CostModel, CostModel | None]:
    """Of the fastest machine, and of the slowest where that is another one."""
    if isinstance(value, dict) and "profile" in value:
        from infermax_opt.infermax.data.profiles import load_profile

        return load_profile(Fields(value, "cost", ["profile"]).text("profile")).cost, None
    return costs_from_json(value)


def read_instance(path: str | os.PathLike[str]) -> Instance:
    """Read an instance file."""
    return read_as(path, instance_from_json)


def instance_to_json(instance: Instance) -> dict[str, Any]:
    """Return the JSON value that `instance_from_json` reads."""
    from infermax_opt.infermax.data.profiles import profile_of

    system, policy, cost, loop = instance.system, instance.policy, instance.cost, instance.release
    profile = profile_of(cost) if instance.slowest is None else None
    return {
        "schema": INSTANCE_SCHEMA,
        "problem": "infermax",
        "name": instance.name,
        "requests": [_group_to_json(group) for group in instance.groups],
        **(
            {"classes": {known.name: _given(known) for known in instance.classes}} if instance.classes else {}
        ),
        "system": {
            "kv_capacity": system.kv_capacity,
            "max_batch_tokens": system.max_batch_tokens,
            "max_prefill_tokens": system.max_prefill_tokens,
            "max_running": system.max_running,
            "block_size": system.block_size,
        },
        "policy": {
            "hybrid_batching": policy.hybrid_batching,
            "chunked_prefill": policy.chunked_prefill,
            "preemption": policy.preemption,
        },
        "cost": costs_to_json(cost, instance.slowest) if profile is None else {"profile": profile},
        "objective": instance.objective.to_json(),
        **({} if instance.horizon is None else {"horizon": Fraction(instance.horizon)}),
        **({} if loop is None else {"release": {"class": loop.class_name, "batch": loop.batch}}),
    }


def _group_to_json(group: RequestGroup) -> dict[str, Any]:
    """One entry of ``requests``; keys that are not given are left out, but for the arrival."""
    value: dict[str, Any] = {"id": group.id}
    if group.count is not None:
        value["count"] = group.count
    value |= {"input_tokens": group.input_tokens, "output_tokens": group.output_tokens}
    value["arrival"] = group.arrival
    if group.class_name is not None:
        value["class"] = group.class_name
    value |= _given(group)
    if group.predicted_output_tokens is not None:
        value["predicted_output_tokens"] = group.predicted_output_tokens
    return value


def _given(some: RequestGroup | RequestClass) -> dict[str, Any]:
    """Weight, service level and whether they are optional, as far as these are given."""
    value: dict[str, Any] = {} if some.weight is None else {"weight": Fraction(some.weight)}
    if some.optional is not None:
        value["optional"] = some.optional
    slo = ServiceLevel.of(some.slo, "slo")
    return {**value, "slo": slo.given()} if slo else value


def write_instance(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write an instance file."""
    dump_json(instance_to_json(instance), path)


# --- schedule -----------------------------------------------------------------------------------


def schedule_from_json(value: object, path: str = "") -> Schedule:
    """Build a schedule from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the schedule is valid is the verifier's question.
    """
    top = Fields(value, path, ["schema", "instance", "batches"])
    top.schema(SCHEDULE_SCHEMA)
    batches = []
    for index, item in enumerate(top.items("batches")):
        fields = Fields(
            item, f"{top.at('batches')}[{index}]", [], ["tokens", "evict", "start", "decode", "repeat"]
        )
        batches.append(_batch(fields))
    if sum(batch.repeat for batch in batches) > MAX_BATCHES:
        raise InputError(f"more than {MAX_BATCHES} batches, repetitions counted", field=top.at("batches"))
    return Schedule(instance=top.text("instance"), batches=tuple(batches))


def _batch(fields: Fields) -> Batch:
    tokens = fields.get("tokens", {})
    if not isinstance(tokens, dict):
        raise InputError(f"{shown(tokens)} is not an object", field=fields.at("tokens"))
    for name, count in tokens.items():
        if isinstance(count, bool) or not isinstance(count, int):
            raise InputError(f"{shown(count)} is not a whole number", field=fields.at(f"tokens.{name}"))
    evict = fields.get("evict", [])
    if not isinstance(evict, list):
        raise InputError(f"{shown(evict)} is not a list", field=fields.at("evict"))
    for index, name in enumerate(evict):
        if not isinstance(name, str):
            raise InputError(f"{shown(name)} is not a text", field=fields.at(f"evict[{index}]"))
    start = fields.seconds("start")
    if start is not None and start < 0:
        raise InputError(
            f"{shown(fields.get('start'))} is negative; the least is 0", field=fields.at("start")
        )
    return Batch(tokens, tuple(evict), start, _decode_all(fields), _repeat(fields))


def _decode_all(fields: Fields) -> bool:
    decode = fields.get("decode")
    if decode not in (None, "all") or ("decode" in fields.values and decode is None):
        raise InputError(f"{shown(decode)} is not 'all'", field=fields.at("decode"))
    return bool(decode == "all")


def _repeat(fields: Fields) -> int:
    repeat = fields.get("repeat", 1)
    if isinstance(repeat, bool) or not isinstance(repeat, int) or not 1 <= repeat <= MAX_BATCHES:
        raise InputError(
            f"{shown(repeat)} is not a whole number between 1 and {MAX_BATCHES}", field=fields.at("repeat")
        )
    return repeat


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the JSON value that `schedule_from_json` reads; equal batches in a row are merged."""

    def entry(batch: Batch) -> dict[str, Any]:
        value: dict[str, Any] = {}
        if batch.tokens or not batch.decode_all:
            value["tokens"] = dict(batch.tokens)
        if batch.decode_all:
            value["decode"] = "all"
        if batch.evict:
            value["evict"] = list(batch.evict)
        if batch.start is not None:
            value["start"] = batch.start
        if batch.repeat > 1:
            value["repeat"] = batch.repeat
        return value

    return {
        "schema": SCHEDULE_SCHEMA,
        "instance": schedule.instance,
        "batches": [entry(batch) for batch in run_length(schedule.batches)],
    }


def write_schedule(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule file."""
    dump_json(schedule_to_json(schedule), path)
