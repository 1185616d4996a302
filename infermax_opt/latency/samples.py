"""Measured samples, read from a CSV file (``.gz`` accepted).

One row is one measurement.  The column ``kind`` says of what, and which other columns count; cells of other
columns may be empty and are not read:

========  ==================================  =========  ================================================
kind      given                               measured   meaning
========  ==================================  =========  ================================================
kv        ``tokens``                          ``kv``     KV of one request of so many tokens, in any unit
prefill   ``input_tokens``                    seconds    a prefill batch of so many tokens in all
decode    ``context_tokens``, ``batch_size``  seconds    a decode iteration; context summed over the batch
compute   ``gpus``                            seconds    computing of one iteration of a certain shape
comm      ``gpus``                            seconds    communication of one iteration of that shape
========  ==================================  =========  ================================================

A row of kind prefill or decode may name the ``gpus`` of its worker; 1, if not.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import to_fraction
from infermax_opt.files.fields import shown
from infermax_opt.files.json import read_text
from infermax_opt.placement.data.instance import MAX_GPUS, MAX_TOKENS

__all__ = ["KINDS", "Sample", "Samples", "read_samples"]

#: Kind of a row -> the columns it needs, the measured one last.
KINDS: Mapping[str, tuple[str, ...]] = {
    "kv": ("tokens", "kv"),
    "prefill": ("input_tokens", "seconds"),
    "decode": ("context_tokens", "batch_size", "seconds"),
    "compute": ("gpus", "seconds"),
    "comm": ("gpus", "seconds"),
}
#: Least and most of what is measured: a slip of the unit, not a measurement, lies beyond.
LEAST, MOST = Fraction(1, 10**9), {"kv": 10**15, "seconds": 10**6}
#: Most of what is given; the least is 1.
COUNTS = {
    "tokens": MAX_TOKENS,
    "input_tokens": MAX_TOKENS,
    "context_tokens": MAX_TOKENS,
    "batch_size": MAX_TOKENS,
    "gpus": MAX_GPUS,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Attributes
    ----------
    given : tuple of int
        Values of the kind's columns but the last.
    measured : Fraction
        Value of the kind's last column; above 0.
    gpus : int
        Of the worker that it was measured on; 1 for KV, which does not depend on it.
    """

    given: tuple[int, ...]
    measured: Fraction
    gpus: int = 1


@dataclass(frozen=True)
class Samples:
    """The measurements of a file, by kind; kinds without rows have no key."""

    path: str
    rows: Mapping[str, tuple[Sample, ...]]

    def of(self, kind: str, gpus: int | None = None) -> tuple[Sample, ...]:
        """Rows of a kind, or those of them that were measured on so many GPUs."""
        return tuple(s for s in self.rows.get(kind, ()) if gpus in (None, s.gpus))

    def gpus(self, *kinds: str) -> tuple[int, ...]:
        """Numbers of GPUs that rows of these kinds were measured on, ascending."""
        return tuple(sorted({s.gpus for kind in kinds for s in self.of(kind)}))


def read_samples(path: str | os.PathLike[str]) -> Samples:
    """Read a file of samples.

    Raises
    ------
    InputError
        Naming file, line, column, value and limit.
    """
    name = os.fspath(path)
    rows: dict[str, list[Sample]] = {}
    for line, row in _rows(name):
        kind = _kind(name, line, row)
        *given, measured = KINDS[kind]
        counts = tuple(_count(name, line, column, row[column]) for column in given)
        gpus = 1
        if kind != "kv" and row.get("gpus", "").strip():
            gpus = _count(name, line, "gpus", row["gpus"])
        if kind == "comm" and counts[0] == 1:
            _fault(name, line, "gpus", "is 1, which needs no communication; the least is 2")
        if kind == "decode" and counts[0] < counts[1]:
            problem = f"{counts[0]} is below the batch size of {counts[1]}; it is summed over the batch"
            _fault(name, line, "context_tokens", problem)
        value = _number(name, line, measured, row[measured])
        if not LEAST <= value <= MOST[measured]:
            _fault(
                name, line, measured,
                f"{shown(row[measured])} is not between {float(LEAST):g} and {MOST[measured]:g}",
            )  # fmt: skip
        rows.setdefault(kind, []).append(Sample(counts, value, gpus))
    if not rows:
        raise InputError("holds no sample", source=name)
    return Samples(name, {kind: tuple(rows[kind]) for kind in KINDS if kind in rows})


def _kind(path: str, line: int, row: Mapping[str, str]) -> str:
    """Kind of a row that has all columns of it."""
    kind = row["kind"].strip()
    if kind not in KINDS:
        _fault(path, line, "kind", f"{shown(kind)} is none of {', '.join(KINDS)}")
    for column in KINDS[kind]:
        if column not in row:
            problem = f"is missing; row {line} of kind {kind!r} needs it"
            _fault(path, 1, column, f"{problem}; the header is {shown(','.join(row))}")
    return kind


def _rows(path: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise InputError("is empty; a header line is needed", source=path)
        for name in ("kind", *COUNTS, *MOST):
            if header.count(name) > 1 or (name == "kind" and name not in header):
                problem = "is there twice" if name in header else "is missing"
                _fault(path, 1, name, f"{problem}; the header is {shown(','.join(header))}")
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                _fault(path, reader.line_num, None, f"has {len(row)} columns; the header has {len(header)}")
            yield reader.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        _fault(path, reader.line_num, None, f"is not CSV: {error}")


def _number(path: str, line: int, column: str, text: str) -> Fraction:
    text = text.strip()
    # Decimal() also takes underscores and digits of other scripts; a measurement holds neither.
    if not text or not text.isascii() or "_" in text:
        _fault(path, line, column, f"{shown(text)} is not a decimal number")
    try:
        return to_fraction(text)
    except ValueError as error:
        _fault(path, line, column, str(error))


def _count(path: str, line: int, column: str, text: str) -> int:
    number = _number(path, line, column, text)
    if number.denominator != 1 or not 1 <= number <= COUNTS[column]:
        _fault(path, line, column, f"{shown(text)} is not a whole number from 1 to {COUNTS[column]}")
    return int(number)


def _fault(path: str, line: int, column: str | None, problem: str) -> NoReturn:
    where = f"line {line}" + (f", column {column!r}" if column else "")
    raise InputError(problem, field=where, source=path)
