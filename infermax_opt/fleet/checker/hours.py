"""Proof: least time for which machines are on together.

Parts of the trace keep the share each by itself, in one window of time, the same in all; a certificate of
`pooled` proves how many machines there are; each is switched on once.  The proof stands in
`infermax_opt.fleet.scaling`.
"""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.needs import unit_of
from infermax_opt.fleet.checker.pooled import charged, fewest_of
from infermax_opt.fleet.checker.question import joint_hash, quantity, require_schema
from infermax_opt.fleet.checker.windows import NEVER, OPENING

HOURS_SCHEMA = "infermax-opt/fleet-hours-bound/1"


def seconds_of(given: Field, work: Work) -> Fraction | str:
    """Seconds for which machines are on together, at least; or `NEVER`."""
    require_schema(given, HOURS_SCHEMA)
    parts, least = given["parts"].items(), given["machines"]
    require(len(parts) > 0, "parts: there are none")
    work.spend(OPENING * len(parts))
    start, stay = (quantity(given[key]) for key in ("start_up", "min_stay"))
    machine, windows = parts[0]["machine"].value, parts[0]["windows"].value
    for part in (*parts, least):
        require(part["machine"].value == machine, f"{part.path}.machine: is another one")
    for part in parts:
        require(part["windows"].value == windows, f"{part.path}.windows: are others")
    asked = [part["question"].text() for part in (*parts, least)]
    known = joint_hash([*asked, str(start), str(stay)])
    require(given["question"].value == known, f"question: that of the parts is {known}")
    machines, busy = fewest_of(charged(least, work)), Fraction(0)
    for part in parts:
        found = charged(part, work)
        require(len(found.windows) == 1 and found.windows[0][2] == 1, "windows: not one of weight 1")
        if found.least is None:
            return NEVER
        busy += Fraction(found.least, unit_of(found.machine) * found.machine.ticks_per_second)
    if isinstance(machines, str):
        return NEVER
    return max(busy + machines * start, machines * (start + stay))
