"""Entries of the best-known archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import gap_of
from infermax_opt.files.fields import Fields

__all__ = ["BestLower", "BestUpper", "Entry"]


@dataclass(frozen=True)
class BestUpper:
    """Best schedule: its replayed objective, hash, file (relative; None if too large) and origin."""

    value: Fraction
    source: str
    schedule_sha256: str
    schedule: str | None
    versions: Mapping[str, str]
    date: str


@dataclass(frozen=True)
class BestLower:
    """Best lower bound: value, origin, proof, how it was verified, certificate (relative)."""

    value: Fraction
    source: str
    proof: str
    check: str
    certificate: str | None
    versions: Mapping[str, str]
    date: str


@dataclass(frozen=True)
class Entry:
    """What is known of one instance.

    Raises
    ------
    InputError
        If the lower bound exceeds the upper bound: one of the two is wrong.
    """

    instance: str
    instance_sha256: str
    upper: BestUpper | None = None
    lower: BestLower | None = None

    def __post_init__(self) -> None:
        if self.upper and self.lower and self.lower.value > self.upper.value:
            raise InputError(
                f"lower bound {decimal_text(self.lower.value)} ({self.lower.source}) exceeds upper bound "
                f"{decimal_text(self.upper.value)} ({self.upper.source}): one of the two is wrong",
                field=self.instance,
            )

    @property
    def row(self) -> dict[str, Any]:
        """The entry as a row of a table: both sides, where they are from, and the gap."""
        upper, lower = self.upper, self.lower
        return {
            "instance": self.instance,
            "upper": upper.value if upper else None,
            "lower": lower.value if lower else None,
            "gap": gap_of(upper.value if upper else None, lower.value if lower else None),
            "schedule_by": upper.source if upper else None,
            "bound_by": lower.source if lower else None,
            "check": lower.check if lower else None,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the value that `from_json` reads."""
        upper, lower = self.upper, self.lower
        return {
            **self.__dict__,
            "upper": dict(upper.__dict__) if upper else None,
            "lower": dict(lower.__dict__) if lower else None,
        }

    @classmethod
    def from_json(cls, value: object, path: str) -> Entry:
        """Read an entry; errors name the field below `path`."""
        top = Fields(value, path, ["instance", "instance_sha256", "upper", "lower"])
        upper = lower = None
        if top.get("upper") is not None:
            upper = BestUpper(**_side(top, "upper", BestUpper, ["source", "schedule_sha256", "date"]))
        if top.get("lower") is not None:
            lower = BestLower(**_side(top, "lower", BestLower, ["source", "proof", "check", "date"]))
        return cls(top.text("instance"), top.text("instance_sha256"), upper, lower)


def _side(top: Fields, key: str, kind: type, texts: list[str]) -> dict[str, Any]:
    fields = Fields(top.get(key), top.at(key), list(kind.__dataclass_fields__))  # type: ignore[attr-defined]
    found = {**fields.values, "value": fields.decimal("value")}
    for name in texts:
        fields.text(name)
    for name in ("schedule", "certificate"):
        # A path from a file is opened later: it must stay below the archive.
        if found.get(name) is not None and not _is_below(fields.text(name)):
            raise InputError(f"{found[name]!r} is no relative path below the archive", field=fields.at(name))
    if not isinstance(found["versions"], Mapping):
        raise InputError("is not an object", field=fields.at("versions"))
    return found


def _is_below(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts
