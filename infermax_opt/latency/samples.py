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

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.rows import csv_rows, fault
from infermax_opt.latency import cells
from infermax_opt.latency.cells import LEAST, MOST_SECONDS
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
#: Most of what is measured; the least is `LEAST`.
MOST = {"kv": 10**15, "seconds": MOST_SECONDS}
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
    for line, row in csv_rows(
        name,
        ("kind",),
        (
            *COUNTS,
            *MOST,
        ),
    ):
        kind = _kind(name, line, row)
        *given, measured = KINDS[kind]
        counts = tuple(cells.count(name, line, column, row[column], COUNTS[column]) for column in given)
        gpus = 1
        if kind != "kv" and row.get("gpus", "").strip():
            gpus = cells.count(name, line, "gpus", row["gpus"], MAX_GPUS)
        if kind == "comm" and counts[0] == 1:
            fault(name, line, "gpus", "is 1, which needs no communication; the least is 2")
        if kind == "decode" and counts[0] < counts[1]:
            problem = f"{counts[0]} is below the batch size of {counts[1]}; it is summed over the batch"
            fault(name, line, "context_tokens", problem)
        value = cells.number(name, line, measured, row[measured])
        if not LEAST <= value <= MOST[measured]:
            fault(
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
        fault(path, line, "kind", f"{shown(kind)} is none of {', '.join(KINDS)}")
    for column in KINDS[kind]:
        if column not in row:
            problem = f"is missing; row {line} of kind {kind!r} needs it"
            fault(path, 1, column, f"{problem}; the header is {shown(','.join(row))}")
    return kind
