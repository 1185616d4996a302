"""The formats of the placement problem: instances and placements.

An instance is an object with ``schema`` (that of all instances), ``problem`` (``"placement"``), ``name``,
and

- ``requests``: list of ``id``, ``input_tokens``, ``predicted_output_tokens``, and optionally
  ``output_tokens`` (the truth), ``count`` (equal ones named ``id.1``, ``id.2``, ...) and, for an ongoing
  request, ``worker`` (from 1), ``generated_tokens`` and ``decode_seconds``;
- ``worker``: ``kv_capacity``, ``kv`` as ``[h, j]``, ``prefill`` as ``[k1, c1]``, ``decode`` as
  ``[k2, c2, c3]`` (eqs 1 to 3) and optionally ``gpus``;
- ``slo``: ``ttft`` and ``atgt``, seconds;
- optionally ``theta`` (1 if not given), ``gamma`` (0.5), ``horizon`` (none), ``busy`` (seconds by worker;
  none) and ``split_phase`` (false).

A placement has ``schema`` (that of all schedules), ``instance`` and ``workers``: request id to worker, from
1.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.files.fields import INSTANCE_SCHEMA, SCHEDULE_SCHEMA, Fields, shown
from infermax_opt.files.json import read_as, under
from infermax_opt.files.writing import dump_json
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.schedule import Placement

__all__ = [
    "PLACEMENT",
    "placement_from_json",
    "placement_instance_from_json",
    "placement_instance_to_json",
    "placement_to_json",
    "read_placement",
    "read_placement_instance",
    "worker_from_json",
    "worker_to_json",
    "write_placement",
    "write_placement_instance",
]

#: What instances name as their problem.
PLACEMENT = "placement"

#: Coefficients of the performance models, as `Worker` names them.
_MODELS = {
    "kv": ("kv_token", "kv_request"),
    "prefill": ("prefill_token", "prefill_overhead"),
    "decode": ("decode_context", "decode_request", "decode_overhead"),
}
_OPTIONAL = ("output_tokens", "count", "worker", "generated_tokens", "decode_seconds")


def placement_instance_from_json(value: object) -> PlacementInstance:
    """Build an instance from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    optional = ["theta", "gamma", "horizon", "busy", "split_phase"]
    top = Fields(value, "", ["schema", "problem", "name", "requests", "worker", "slo"], optional)
    top.schema(INSTANCE_SCHEMA)
    if top.get("problem") != PLACEMENT:
        raise InputError(f"{shown(top.get('problem'))} is not {PLACEMENT!r}", field="problem")
    groups = []
    for index, item in enumerate(top.items("requests")):
        path = f"requests[{index}]"
        fields = Fields(item, path, ["id", "input_tokens", "predicted_output_tokens"], _OPTIONAL)
        for key in fields.values:
            if fields.get(key) is None:
                raise InputError("null is not a value; leave the key out", field=fields.at(key))
        with under(path):
            groups.append(PlacementGroup(**fields.values))
    slo = Fields(top.get("slo"), "slo", ["ttft", "atgt"])
    given = {key: top.get(key) for key in optional if top.get(key) is not None}
    return PlacementInstance(
        top.text("name"),
        tuple(groups),
        worker_from_json(top.get("worker")),
        Slo(slo.decimal("ttft"), slo.decimal("atgt")),
        **given,
    )


def worker_from_json(value: object) -> Worker:
    """Build a worker from parsed JSON, the ``worker`` of an instance.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    fields = Fields(value, "worker", ["kv_capacity", "kv", "prefill", "decode"], ["gpus"])
    models = {}
    for key, names in _MODELS.items():
        items = fields.items(key)
        if len(items) != len(names):
            raise InputError(f"holds {len(items)} numbers, not {len(names)}", field=fields.at(key))
        for index, name in enumerate(names):
            place = f"{key}[{index}]"
            models[name] = Fields({place: items[index]}, "worker", [place]).decimal(place)
    return Worker(fields.decimal("kv_capacity"), **models, gpus=fields.get("gpus", 1))


def worker_to_json(worker: Worker) -> dict[str, Any]:
    """Return the JSON value that `worker_from_json` reads."""
    return {
        "kv_capacity": decimal_text(worker.kv_capacity),
        **{key: [decimal_text(getattr(worker, name)) for name in names] for key, names in _MODELS.items()},
        "gpus": worker.gpus,
    }


def placement_instance_to_json(instance: PlacementInstance) -> dict[str, Any]:
    """Return the JSON value that `placement_instance_from_json` reads."""

    def text(value: Fraction) -> str:
        return decimal_text(Fraction(value))

    def group(g: PlacementGroup) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": g.id,
            "input_tokens": g.input_tokens,
            "predicted_output_tokens": g.predicted_output_tokens,
        }
        if g.worker is not None:
            entry["generated_tokens"] = g.generated_tokens
            entry["decode_seconds"] = text(g.decode_seconds)
        optional = {"output_tokens": g.output_tokens, "count": g.count, "worker": g.worker}
        return {**entry, **{key: value for key, value in optional.items() if value is not None}}

    return {
        "schema": INSTANCE_SCHEMA,
        "problem": PLACEMENT,
        "name": instance.name,
        "requests": [group(g) for g in instance.groups],
        "worker": worker_to_json(instance.worker),
        "slo": {"ttft": text(instance.slo.ttft), "atgt": text(instance.slo.atgt)},
        "theta": text(instance.theta),
        "gamma": text(instance.gamma),
        **({} if instance.horizon is None else {"horizon": instance.horizon}),
        **({"busy": {str(k): text(v) for k, v in instance.busy.items()}} if instance.busy else {}),
        **({"split_phase": True} if instance.split_phase else {}),
    }


def placement_from_json(value: object, path: str = "") -> Placement:
    """Build a placement from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the placement is valid is the verifier's question.
    """
    top = Fields(value, path, ["schema", "instance", "workers"])
    top.schema(SCHEDULE_SCHEMA)
    workers = top.get("workers")
    if not isinstance(workers, dict):
        raise InputError(f"{shown(workers)} is not an object", field=top.at("workers"))
    for name, number in workers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise InputError(f"{shown(number)} is not a whole number", field=top.at(f"workers.{name}"))
    with under(path) if path else nullcontext():
        return Placement(top.text("instance"), workers)


def placement_to_json(placement: Placement) -> dict[str, Any]:
    """Return the JSON value that `placement_from_json` reads."""
    return {
        "schema": SCHEDULE_SCHEMA,
        "instance": placement.instance,
        "workers": dict(placement.workers),
    }


def write_worker(worker: Worker, path: str | os.PathLike[str]) -> None:
    """Write a worker file, which `import_trace` and instances take."""
    dump_json(worker_to_json(worker), path)


def read_placement_instance(path: str | os.PathLike[str]) -> PlacementInstance:
    """Read an instance file."""
    return read_as(path, placement_instance_from_json)


def write_placement_instance(instance: PlacementInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance file."""
    dump_json(placement_instance_to_json(instance), path)


def read_placement(path: str | os.PathLike[str]) -> Placement:
    """Read a placement file."""
    return read_as(path, placement_from_json)


def write_placement(placement: Placement, path: str | os.PathLike[str]) -> None:
    """Write a placement file."""
    dump_json(placement_to_json(placement), path)
