"""Values that check themselves: dataclasses whose annotations say what each field may hold.

An annotation is ``str`` (not empty), ``int`` (0 to `MAX_TOKENS`), ``Fraction`` (a decimal of 0 or more), a
record, ``tuple[X, ...]`` of one of these, or ``X | None``.  A file may leave out what has a default or may be
None.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from infermax_opt.core.checks import (
    MAX_TOKENS,
    Meaning,
    checked_decimal,
    checked_ids,
    checked_text,
    checked_whole,
)
from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownInstance, ShownMetrics, ShownSchedule

__all__ = [
    "BrokenRule",
    "InstanceRecord",
    "MetricsRecord",
    "Record",
    "ScheduleRecord",
    "field_kinds",
    "needed",
]


#: What `field_kinds` found so far: annotations are read once a class.
_KINDS: dict[type[Any], dict[str, Any]] = {}


def field_kinds(record: type[Any]) -> dict[str, Any]:
    """Annotated type of each field of a record, in their order."""
    if record not in _KINDS:
        hints = get_type_hints(record)
        _KINDS[record] = {field.name: hints[field.name] for field in fields(record)}
    return _KINDS[record]


def needed(kind: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into X and False; any other annotation is itself and True."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind, True
    (inner,) = set(get_args(kind)) - {types.NoneType}
    return inner, False


@dataclass(frozen=True)
class Record:
    """A frozen dataclass that checks and converts what it is given; raises `InputError` naming the field."""

    def __post_init__(self) -> None:
        for name, kind in field_kinds(type(self)).items():
            object.__setattr__(self, name, _checked(getattr(self, name), kind, name))


@dataclass(frozen=True)
class InstanceRecord(ShownInstance, Record):
    """An instance with a `name` and `requests`, each with an `id` of its own.

    Attributes
    ----------
    problem, objective_name : str
        Name of the problem, the same as that of its class, and of the metric to minimise.
    unit : pair of str
        Of the objective, for one and for many.
    name : str
        Of the instance, which its schedules and results repeat.
    requests : tuple of records
        At least one; the class of its own annotates their record, which has a field ``id``, a text.
    """

    problem: ClassVar[str]
    objective_name: ClassVar[str]
    unit: ClassVar[tuple[str, str]] = ("s", "s")

    name: str
    requests: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.requests:
            raise InputError("holds no request; at least 1 is needed", field="requests")
        checked_ids([request.id] for request in self.requests)

    @property
    def sha256(self) -> str:
        """Hash of the meaning."""
        meaning = Meaning(self.problem)
        _feed(meaning, self)
        return meaning.hexdigest()


@dataclass(frozen=True)
class ScheduleRecord(ShownSchedule, Record):
    """A schedule, with the name of the instance it is for."""

    instance: str


@dataclass(frozen=True)
class MetricsRecord(ShownMetrics):
    """Metrics: each field is one, and may be None where it is undefined.

    Attributes
    ----------
    definitions, units : mapping of metric to text
        As `infermax_opt.core.values.AnyMetrics` says.
    """

    definitions: ClassVar[Mapping[str, str]]
    units: ClassVar[Mapping[str, str]] = {}

    def items(self) -> Sequence[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a schedule breaks.

    Attributes
    ----------
    rule : enum.Enum
        Its value is what reports print.
    where, what : str
        Such as "request r1", and what is wrong there.
    """

    rule: enum.Enum
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.rule.value}: {self.what}"


def _checked(value: object, kind: Any, field: str) -> object:
    """What a field of that annotation holds, given a value."""
    kind, must = needed(kind)
    if value is None and not must:
        return None
    if get_origin(kind) is tuple:
        return tuple(_checked(some, get_args(kind)[0], f"{field}[{k}]") for k, some in enumerate(value))  # type: ignore[arg-type,var-annotated]
    if kind is str:
        checked_text(value, field)
        return value
    if kind is int:
        return checked_whole(value, field, 0, MAX_TOKENS)
    if kind is Fraction:
        return checked_decimal(value, field)
    if kind is not Any and not isinstance(value, kind):
        raise InputError(f"{value!r} is no {kind.__name__}", field=field)
    return value


def _feed(meaning: Meaning, value: object) -> None:
    """Add a value and all within it, each with how many parts it has, so that no two feed the same."""
    if isinstance(value, Record):
        _feed(meaning, tuple(getattr(value, name) for name in field_kinds(type(value))))
    elif isinstance(value, tuple):
        meaning.feed("parts", len(value))
        for part in value:
            _feed(meaning, part)
    else:
        meaning.feed(type(value).__name__, value)
