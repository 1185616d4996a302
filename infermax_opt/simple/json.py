"""Records as JSON objects: one key a field, decimals as text."""

from __future__ import annotations

from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any, TypeVar, get_args, get_origin

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.files.fields import Fields, shown
from infermax_opt.files.json import under
from infermax_opt.simple.records import Record, field_kinds, needed

__all__ = ["record_from_json", "record_to_json"]

R = TypeVar("R", bound=Record)


def record_from_json(kind: type[R], value: object, path: str, head: dict[str, str] | None = None) -> R:
    """Read a record.

    Parameters
    ----------
    kind : type
    value : object
        Parsed JSON.
    path : str
        Where it stands in the file, for messages; "" is the whole file.
    head : dict of str, optional
        Keys above the fields, and what each must hold.

    Raises
    ------
    InputError
        Naming the field that is missing, unknown or wrong.
    """
    kinds, head = field_kinds(kind), head or {}
    given = {field.name for field in fields(kind) if field.default is not MISSING}
    required = [name for name, some in kinds.items() if needed(some)[1] and name not in given]
    top = Fields(value, path, [*head, *required], kinds)
    for key, expected in head.items():
        if top.values[key] != expected:
            raise InputError(f"{shown(top.values[key])} is not {expected!r}", field=top.at(key))
    there = {name: some for name, some in kinds.items() if name in top.values or name not in given}
    parsed = {name: _parsed(some, top.get(name), top.at(name)) for name, some in there.items()}
    if not path:
        return kind(**parsed)
    with under(path):
        return kind(**parsed)


def _parsed(kind: Any, value: object, path: str) -> object:
    """A field as its record takes it; plain values are checked there."""
    kind, must = needed(kind)
    if value is None and not must:
        return None
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InputError(f"{shown(value)} is not a list", field=path)
        return tuple(_parsed(get_args(kind)[0], some, f"{path}[{k}]") for k, some in enumerate(value))
    if isinstance(kind, type) and issubclass(kind, Record):
        return record_from_json(kind, value, path)
    return value


def record_to_json(record: Record) -> dict[str, Any]:
    """Return the JSON value of a record; fields that are None are left out."""
    values = {name: getattr(record, name) for name in field_kinds(type(record))}
    return {name: _written(value) for name, value in values.items() if value is not None}


def _written(value: object) -> object:
    if isinstance(value, Record):
        return record_to_json(value)
    if isinstance(value, tuple):
        return [_written(part) for part in value]
    return decimal_text(value) if isinstance(value, Fraction) else value
