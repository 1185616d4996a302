"""Checker of lower bounds on machines at a rate and at every higher one: standard library, exact numbers.

    python -m infermax_opt.fleet.rate_checker CERTIFICATE [QUESTION]

A certificate is one of `infermax_opt.fleet.checker`, of the trace at one rate.  The proof that it holds on
from there stands in `infermax_opt.fleet.sustains`.
"""

from __future__ import annotations

import sys
from math import ceil, floor
from typing import Any

from infermax_opt.fleet.checker import (
    NEVER,
    Machine,
    Question,
    charged,
    main,
    needs_of,
    question_of,
    unit_of,
    well_formed,
)

__all__ = ["machines_from"]

#: Picoseconds by which two arrivals may lie further apart than the rate says, as both are rounded.
ROUNDING = 2


def machines_from(certificate: Any) -> int | str:
    """Machines that are needed at the rate of a certificate and at every higher one, or `NEVER`.

    Raises
    ------
    Rejected
        If it is malformed.
    """
    return well_formed(_from_there, certificate)


def _from_there(certificate: Any) -> int | str:
    found, asked = charged(certificate), question_of(certificate)
    if found.least is None:
        return NEVER
    lengths = _lengths(found.machine, found.windows, asked)
    room = sum(length * window[2] for length, window in zip(lengths, found.windows, strict=True))
    some = min(1, found.must)
    return max(some, -(-found.least // (room * unit_of(found.machine)))) if room else some


def _lengths(machine: Machine, windows: list[Any], asked: Question) -> list[int]:
    """Ticks within which the needs of each window lie at this rate and at every higher one."""
    soonest: list[int | None] = [None] * len(windows)
    latest = [0] * len(windows)
    for date, prompt, outputs, limits in asked.requests:
        needs = needs_of(machine, date, (prompt, outputs), limits, asked.groups)
        start = floor(date * machine.ticks_per_second)
        for k, (begin, end, *_) in enumerate(windows):
            for need in needs or ():
                if begin <= need.begin and need.end <= end:
                    offset, known = need.begin - start, soonest[k]
                    soonest[k] = offset if known is None else min(known, offset)
                    latest[k] = max(latest[k], need.end - start)
    rounding = ceil(machine.ticks_per_second * ROUNDING / 10**12)
    return [
        max(end - begin, late - (early or 0)) + rounding
        for (begin, end, *_), early, late in zip(windows, soonest, latest, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], machines_from, "machines_from"))
