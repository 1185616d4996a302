"""Checker of lower bounds on machine time: standard library, exact numbers.

    python -m infermax_opt.fleet.hours_checker CERTIFICATE [QUESTION]

A certificate holds parts, each of them one of `infermax_opt.fleet.checker` for requests of its own with one
window of time, the same in all; one that proves how many machines there are at least; and how long a
start-up and a stay take.  The proof stands in `infermax_opt.fleet.autoscaling`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from infermax_opt.fleet.checker import NEVER, charged, check, main, number, require, unit_of, well_formed

__all__ = ["HOURS_SCHEMA", "joint_hash", "machine_seconds"]

HOURS_SCHEMA = "infermax-opt/fleet-hours-bound/1"


def joint_hash(lines: Iterable[str]) -> str:
    """Hash of what several hashes and numbers are of."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def machine_seconds(certificate: Any) -> Fraction | str:
    """Seconds for which machines are on together, at least; or `NEVER`.

    Raises
    ------
    Rejected
        If it is malformed, or its parts have other machines or windows.
    """
    return well_formed(_seconds, certificate)


def _seconds(certificate: Any) -> Fraction | str:
    require(certificate["schema"] == HOURS_SCHEMA, "schema: is another one")
    parts, least = certificate["parts"], certificate["machines"]
    require(len(parts) > 0, "parts: there are none")
    machines, busy = check(least), Fraction(0)
    start, stay = (number(certificate[key], key) for key in ("start_up", "min_stay"))
    require(least["machine"] == parts[0]["machine"], "machine: is another one")
    for part in parts:
        require(part["machine"] == parts[0]["machine"], "machine: is another one")
        require(part["windows"] == parts[0]["windows"], "windows: are others")
    known = joint_hash([*(part["question"] for part in parts), least["question"], str(start), str(stay)])
    require(certificate["question"] == known, f"question: that of the parts is {known}")
    for part in parts:
        found = charged(part)
        require(len(found.windows) == 1 and found.windows[0][2] == 1, "windows: not one of weight 1")
        if found.least is None:
            return NEVER
        busy += Fraction(found.least, unit_of(found.machine) * found.machine.ticks_per_second)
    if not isinstance(machines, int):
        return NEVER
    return max(busy + machines * start, machines * (start + stay))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], machine_seconds, "seconds"))
