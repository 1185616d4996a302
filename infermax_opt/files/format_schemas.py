"""The JSON Schemas of the file formats, which ship with the package."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

from infermax_opt.core.errors import InputError

__all__ = ["json_schema", "json_schema_names"]

#: How the names of the files end.
ENDING = ".schema.json"
#: What formats share; nothing is written in these alone.
SHARED = ("common", "cost")
#: A reference to another file.
REFERENCE = re.compile(r'"\$ref": "([a-z-]+)\.schema\.json')


def json_schema_names() -> tuple[str, ...]:
    """Names of the formats that have a JSON Schema, such as ``instance-infermax`` and ``result``."""
    entries = (entry.name for entry in files(__package__).joinpath("formats").iterdir())
    names = sorted(name.removesuffix(ENDING) for name in entries if name.endswith(ENDING))
    return tuple(name for name in names if name not in SHARED)


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a format, whole: schemas that it refers to are embedded in it.

    A reader of the format refuses what its schema refuses, and more.

    Parameters
    ----------
    name : str
        One of `json_schema_names`.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in json_schema_names():
        raise InputError(f"{name!r} is none of {', '.join(json_schema_names())}", field="format")
    text = _text(name)
    schema: dict[str, Any] = json.loads(text)
    embedded = {f"{other}{ENDING}": json.loads(_text(other)) for other in _referred(text)}
    return {**schema, "$defs": embedded} if embedded else schema


def _text(name: str) -> str:
    return files(__package__).joinpath("formats", f"{name}{ENDING}").read_text(encoding="utf-8")


def _referred(text: str) -> list[str]:
    """Names of the schemas that a schema refers to, and that these refer to."""
    found: set[str] = set()
    new = set(REFERENCE.findall(text))
    while new:
        found |= new
        new = {name for known in new for name in REFERENCE.findall(_text(known))} - found
    return sorted(found)
