"""Proof: fewest machines at the rate of a certificate and at every higher one.

The same as of `pooled`, in windows long enough for every higher rate.  The proof stands in
`infermax_opt.fleet.sustains`.
"""

from __future__ import annotations

from math import ceil, floor

from infermax_opt.fleet.checker.needs import needs_of, unit_of
from infermax_opt.fleet.checker.pooled import Charged
from infermax_opt.fleet.checker.windows import COMPARING, NEVER, finding

#: Picoseconds by which two arrivals may lie further apart than the rate says, as both are rounded.
ROUNDING = 2


def fewest_from(found: Charged) -> int | str:
    """Machines that are needed at the rate of a certificate and at every higher one, or `NEVER`."""
    if found.least is None:
        return NEVER
    lengths = _lengths(found)
    room = sum(length * window[2] for length, window in zip(lengths, found.windows, strict=True))
    some = min(1, found.question.must)
    return max(some, -(-found.least // (room * unit_of(found.machine)))) if room else some


def _lengths(found: Charged) -> list[int]:
    """Ticks within which the needs of each window lie at this rate and at every higher one."""
    machine, windows, asked = found.machine, found.windows, found.question
    soonest: list[int | None] = [None] * len(windows)
    latest = [0] * len(windows)
    asked.work.spend(finding(machine, asked))
    for date, prompt, outputs, limits in asked.requests:
        needs = needs_of(machine, date, (prompt, outputs), limits, asked.groups) or ()
        start = floor(date * machine.ticks_per_second)
        # Twice, as both ends are kept.
        asked.work.spend(2 * COMPARING * len(windows) * len(needs))
        for k, (begin, end, *_) in enumerate(windows):
            for need in needs:
                if begin <= need[0] and need[1] <= end:
                    offset, known = need[0] - start, soonest[k]
                    soonest[k] = offset if known is None else min(known, offset)
                    latest[k] = max(latest[k], need[1] - start)
    rounding = ceil(machine.ticks_per_second * ROUNDING / 10**12)
    return [
        max(end - begin, late - (early or 0)) + rounding
        for (begin, end, *_), early, late in zip(windows, soonest, latest, strict=True)
    ]
