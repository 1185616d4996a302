"""Strict access to the fields of a JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import to_fraction
from infermax_opt.files.schemas import SCHEMAS

__all__ = ["INSTANCE_SCHEMA", "SCHEDULE_SCHEMA", "Fields", "check_format", "shown"]


def shown(value: object) -> str:
    """`value` as a short text for an error message."""
    try:
        text = str(value) if not isinstance(value, str) else repr(value)
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def check_format(value: object, schema: str) -> None:
    """Refuse what is said to be of another format of this program; its first unknown key would tell less."""
    found = str(value.get("schema")) if isinstance(value, dict) else ""
    if found.startswith("infermax-opt/") and found.split("/")[1] != schema.split("/")[1]:
        raise InputError(f"{shown(found)} is not {schema!r}", field="schema")


class Fields:
    """A JSON object whose keys are known.

    Parameters
    ----------
    value : object
        What the file holds at `path`.
    path : str
        Dotted path, for messages ("" is the whole file).
    required, optional : iterable of str
        Keys that must and may be there.

    Raises
    ------
    InputError
        If `value` is no object, a required key is missing, or a key is unknown.
    """

    def __init__(self, value: object, path: str, required: Iterable[str], optional: Iterable[str] = ()):
        self.path = path
        if not isinstance(value, Mapping):
            what = "a list" if isinstance(value, list) else shown(value)
            raise InputError(f"{what} is not an object", field=path or None)
        self.values = value
        required = list(required)
        known = {*required, *optional}
        for key in value:
            if key not in known:
                raise InputError("is not a known key", field=self.at(str(key)))
        for key in required:
            if key not in value:
                raise InputError("is missing", field=self.at(key))

    def at(self, key: str) -> str:
        """Dotted path of `key`."""
        return f"{self.path}.{key}" if self.path else key

    def get(self, key: str, default: Any = None) -> Any:
        """Raw value, or `default` where the key is absent."""
        return self.values.get(key, default)

    def text(self, key: str) -> str:
        """A non-empty text."""
        value = self.values[key]
        if not isinstance(value, str) or not value:
            raise InputError(f"{shown(value)} is not a non-empty text", field=self.at(key))
        return value

    def items(self, key: str) -> list[Any]:
        """A list."""
        value = self.values[key]
        if not isinstance(value, list):
            raise InputError(f"{shown(value)} is not a list", field=self.at(key))
        return value

    def seconds(self, key: str) -> Fraction | None:
        """A decimal, or None for null or an absent key."""
        value = self.values.get(key)
        if value is None:
            return None
        return self.decimal(key)

    def decimal(self, key: str) -> Fraction:
        """A decimal number or decimal text."""
        try:
            return to_fraction(self.values[key])
        except ValueError as error:
            raise InputError(str(error), field=self.at(key)) from None

    def schema(self, expected: str) -> None:
        """Check the ``schema`` key."""
        value = self.values.get("schema")
        if value != expected:
            raise InputError(f"{shown(value)} is not {expected!r}", field=self.at("schema"))


INSTANCE_SCHEMA = "infermax-opt/instance/1"


SCHEDULE_SCHEMA = SCHEMAS["schedule"]
