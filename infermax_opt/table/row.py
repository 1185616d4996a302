"""One row of a table, of any problem, and the options it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Self

from infermax_opt.core.columns import RowKind
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.registry import problems
from infermax_opt.core.result import Status, gap_of
from infermax_opt.core.truth import Trust
from infermax_opt.files.fields import Fields

__all__ = ["SHARED_FIELDS", "Row", "RowOptions", "row_from_json"]


@dataclass(frozen=True)
class RowOptions:
    """What a row depends on besides its instance.

    Parameters
    ----------
    time_limit : float
        Wall-clock seconds of `infermax_opt.solve`.  The schedulers of Table 1, which a row
        compares with the bound, and the verification come on top.
    seed : int
    best_known : bool
        Whether rows may start from the schedules of a best-known archive.
    """

    time_limit: float = 60.0
    seed: int = 0
    best_known: bool = False

    def protocol(self, version: str) -> str:
        """Name of these options under a version of this package: eight hex digits."""
        text = json.dumps([float(self.time_limit), self.seed, self.best_known, version])
        return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Row:
    """A row; None is unknown.  Times in seconds.

    Bounds and schedulers' values are in the unit of the objective: seconds, or workers of a placement.

    Attributes
    ----------
    kind : RowKind
        Of the instance's problem.
    suite, instance, instance_sha256, protocol : str
        The last two identify the row.
    requests : int
    status : str
        As in a result.
    upper_bound, lower_bound : Fraction
        Replayed objective of the schedule, rounded up in the 30th digit where its decimals do
        not end, and the lower bound, rounded down.
    bound, proof, bound_check : str
        What proved the lower bound, how, and how the verifier checked it.
    certificate : str
        File, relative to the table's folder, of a certificate that the checker accepted.
    schedule_source, schedule_sha256 : str
        What found the schedule, and the hash of its canonical JSON.
    result : str
        The result file, relative to the table's folder.
    schedulers : mapping of name to Fraction
        Objective that each scheduler or method reaches; None where it failed.
    seconds : float or None
        Wall-clock time of `infermax_opt.solve`.
    time_limit, seed, best_known, threads, versions
        How it was computed.
    own : mapping
        The fields that only rows of its problem have.
    """

    kind: RowKind
    suite: str
    instance: str
    instance_sha256: str
    protocol: str
    requests: int
    status: str
    upper_bound: Fraction | None
    lower_bound: Fraction | None
    bound: str | None
    proof: str | None
    bound_check: str | None
    certificate: str | None
    schedule_source: str | None
    schedule_sha256: str | None
    result: str
    schedulers: Mapping[str, Fraction | None]
    seconds: float | None
    time_limit: float
    seed: int
    best_known: bool
    threads: int
    versions: Mapping[str, str]
    own: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """What makes two rows the same row."""
        return self.instance_sha256, self.protocol

    @property
    def gap(self) -> Fraction | None:
        """(UB - LB) / UB."""
        return Fraction(0) if self.status == Status.OPTIMAL.value else self.distance(self.upper_bound)

    @property
    def verified(self) -> bool:
        """Whether the verifier replayed the schedule and re-checked the bound itself."""
        if self.upper_bound is None or self.bound_check is None:
            return False
        return not self.bound_check.startswith(Trust.UNCHECKED.value)

    @property
    def certified(self) -> bool:
        """Whether a certificate of the bound passed the checker."""
        return self.certificate is not None

    def distance(self, value: Fraction | None) -> Fraction | None:
        """Gap of a schedule that reaches `value` to the lower bound."""
        return gap_of(value, self.lower_bound)

    def to_json(self) -> dict[str, Any]:
        """Return the value that `from_json` reads; decimals are exact, as text."""

        def plain(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: plain(item) for key, item in value.items()}
            return decimal_text(value) if isinstance(value, Fraction) else value

        return {"schema": self.kind.schema, **plain(self.values())}

    def values(self) -> dict[str, Any]:
        """All fields by name."""
        return {**{name: getattr(self, name) for name in SHARED_FIELDS}, **self.own}

    @classmethod
    def from_json(cls, value: object, kind: RowKind) -> Self:
        """Read what `to_json` wrote.

        Raises
        ------
        InputError
            Naming the offending field.
        """
        top = Fields(value, "", ["schema", *SHARED_FIELDS, *kind.fields])
        top.schema(kind.schema)
        found = {name: top.get(name) for name in SHARED_FIELDS}
        for name in ("upper_bound", "lower_bound"):
            found[name] = top.seconds(name)
        for name in ("schedulers", "versions"):
            if not isinstance(found[name], Mapping):
                raise InputError("is not an object", field=name)
        schedulers = Fields(found["schedulers"], "schedulers", [], found["schedulers"])
        found["schedulers"] = {name: schedulers.seconds(name) for name in schedulers.values}
        found["time_limit"] = float(top.decimal("time_limit"))
        if found["seconds"] is not None:
            found["seconds"] = float(top.decimal("seconds"))
        own = {name: top.seconds(name) if name in kind.decimals else top.get(name) for name in kind.fields}
        return cls(kind=kind, own=own, **found)


#: Fields that the rows of all problems have.
SHARED_FIELDS = tuple(field.name for field in fields(Row) if field.name not in ("kind", "own"))


def row_from_json(value: object) -> Row:
    """Read the row of any problem, as its schema says.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    schema = value.get("schema") if isinstance(value, Mapping) else None
    kinds = [problem.row_kind for problem in problems()]
    kind = next((kind for kind in kinds if kind.schema == schema), kinds[0])
    return Row.from_json(value, kind)
