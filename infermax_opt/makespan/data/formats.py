"""The formats of the makespan problem: instances and schedules.

An instance is an object with ``schema`` (that of all instances), ``problem`` (``"makespan"``), ``name``,
``clients``, and

- ``requests``: list of ``id``, ``input_tokens``, ``output_tokens``, and optionally
  ``estimated_output_tokens`` and ``count`` (equal ones named ``id.1``, ``id.2``, ...);
- ``prefill``: ``levels`` as a list of ``[tokens, seconds]``; or as a list of ``tokens``, with
  ``overhead`` and ``token`` in seconds, where a level takes overhead + token * tokens;
- ``decode``: ``overhead`` and ``token``: a round takes overhead + token * clients seconds.

A schedule has ``schema`` (that of all schedules), ``instance`` and ``bins``: a list of objects with
``prefill`` (request id to client, from 1), ``rounds``, and optionally ``decode`` (request id to tokens,
for those that generate fewer than one a round).
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.files.fields import INSTANCE_SCHEMA, SCHEDULE_SCHEMA, Fields, shown
from infermax_opt.files.json import read_as, under
from infermax_opt.files.writing import dump_json
from infermax_opt.makespan.data.instance import (
    ClientRequestGroup,
    MakespanInstance,
    PrefillLevel,
    linear_levels,
)
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule

__all__ = [
    "bins_from_json",
    "bins_to_json",
    "makespan_instance_from_json",
    "makespan_instance_to_json",
    "read_bins",
    "write_bins",
    "write_makespan_instance",
]


def makespan_instance_from_json(value: object) -> MakespanInstance:
    """Build an instance from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    top = Fields(value, "", ["schema", "problem", "name", "requests", "clients", "prefill", "decode"])
    top.schema(INSTANCE_SCHEMA)
    if top.get("problem") != "makespan":
        raise InputError(f"{shown(top.get('problem'))} is not 'makespan'", field="problem")
    groups = []
    for index, item in enumerate(top.items("requests")):
        path = f"requests[{index}]"
        optional = ["estimated_output_tokens", "count"]
        fields = Fields(item, path, ["id", "input_tokens", "output_tokens"], optional)
        for key in optional:
            if key in fields.values and fields.get(key) is None:
                raise InputError("null is not a whole number", field=fields.at(key))
        with under(path):
            groups.append(ClientRequestGroup(**fields.values))
    decode = Fields(top.get("decode"), "decode", ["overhead", "token"])
    return MakespanInstance(
        top.text("name"),
        tuple(groups),
        top.get("clients"),
        _levels(top.get("prefill")),
        decode.decimal("overhead"),
        decode.decimal("token"),
    )


def _levels(value: object) -> tuple[PrefillLevel, ...]:
    if isinstance(value, dict) and ("overhead" in value or "token" in value):
        fields = Fields(value, "prefill", ["levels", "overhead", "token"])
        tokens = fields.items("levels")
        for index, some in enumerate(tokens):
            if isinstance(some, bool) or not isinstance(some, int):
                problem = f"{shown(some)} is not a whole number"
                raise InputError(problem, field=f"prefill.levels[{index}]")
        return linear_levels(fields.get("overhead"), fields.get("token"), tokens)
    fields = Fields(value, "prefill", ["levels"])
    levels = []
    for index, some in enumerate(fields.items("levels")):
        field = f"prefill.levels[{index}]"
        if not isinstance(some, list) or len(some) != 2:
            raise InputError(f"{shown(some)} is not a pair of tokens and seconds", field=field)
        pair = Fields({"tokens": some[0], "seconds": some[1]}, field, ["tokens", "seconds"])
        levels.append(PrefillLevel(pair.get("tokens"), pair.decimal("seconds")))
    return tuple(levels)


def makespan_instance_to_json(instance: MakespanInstance) -> dict[str, Any]:
    """Return the JSON value that `makespan_instance_from_json` reads."""

    def group(g: ClientRequestGroup) -> dict[str, Any]:
        optional = {"estimated_output_tokens": g.estimated_output_tokens, "count": g.count}
        return {
            "id": g.id,
            "input_tokens": g.input_tokens,
            "output_tokens": g.output_tokens,
            **{key: value for key, value in optional.items() if value is not None},
        }

    return {
        "schema": INSTANCE_SCHEMA,
        "problem": "makespan",
        "name": instance.name,
        "requests": [group(g) for g in instance.groups],
        "clients": instance.clients,
        "prefill": {"levels": [[level.tokens, decimal_text(level.seconds)] for level in instance.levels]},
        "decode": {
            "overhead": decimal_text(Fraction(instance.decode_overhead)),
            "token": decimal_text(Fraction(instance.decode_token)),
        },
    }


def write_makespan_instance(instance: MakespanInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance file."""
    dump_json(makespan_instance_to_json(instance), path)


def bins_from_json(value: object, path: str = "") -> MakespanSchedule:
    """Build a schedule from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the schedule is valid is the verifier's question.
    """
    top = Fields(value, path, ["schema", "instance", "bins"])
    top.schema(SCHEDULE_SCHEMA)
    bins = []
    for index, item in enumerate(top.items("bins")):
        where = f"{top.at('bins')}[{index}]"
        fields = Fields(item, where, ["rounds"], ["prefill", "decode"])
        for name in ("prefill", "decode"):
            _whole_numbers(fields, name)
        rounds = fields.get("rounds")
        if isinstance(rounds, bool) or not isinstance(rounds, int):
            raise InputError(f"{shown(rounds)} is not a whole number", field=fields.at("rounds"))
        with under(where):
            bins.append(Bin(fields.get("prefill", {}), rounds, fields.get("decode", {})))
    return MakespanSchedule(top.text("instance"), bins)


def _whole_numbers(fields: Fields, name: str) -> None:
    given = fields.get(name, {})
    if not isinstance(given, dict):
        raise InputError(f"{shown(given)} is not an object", field=fields.at(name))
    for key, some in given.items():
        if isinstance(some, bool) or not isinstance(some, int):
            raise InputError(f"{shown(some)} is not a whole number", field=fields.at(f"{name}.{key}"))


def read_bins(path: str | os.PathLike[str]) -> MakespanSchedule:
    """Read a schedule file."""
    return read_as(path, bins_from_json)


def bins_to_json(schedule: MakespanSchedule) -> dict[str, Any]:
    """Return the JSON value that `bins_from_json` reads."""

    def entry(some: Bin) -> dict[str, Any]:
        decode = {"decode": dict(some.decode)} if some.decode else {}
        return {"prefill": dict(some.prefill), "rounds": some.rounds, **decode}

    return {
        "schema": SCHEDULE_SCHEMA,
        "instance": schedule.instance,
        "bins": [entry(some) for some in schedule.bins],
    }


def write_bins(schedule: MakespanSchedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule file."""
    dump_json(bins_to_json(schedule), path)
