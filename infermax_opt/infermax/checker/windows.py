"""Windows of time in which requests are expected to be, and what time costs by those that are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import NamedTuple

from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.guests import ROOT_BITS, Guest
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.interaction import Cells, next_lower, read_roots


class Expected(NamedTuple):
    """A guest that is expected for some time, and the share of its latency that counts by uses.

    It has all of its weight for `whole` ticks after its arrival, and `part` / `span` of it until `until`.
    """

    some: Guest
    share: int
    whole: int
    until: int
    part: int
    span: int

    def missing(self, life: int, unit: int) -> int:
        """Its weight in the time after its life, rounded up; life and time in parts 1 / unit of a tick."""
        full, rest = max(0, self.whole * unit - life), max(0, self.until * unit - life)
        return full - (-self.part * min(rest, self.span * unit) // self.span)


def expected(
    instance: Instance,
    given: Field,
    guests: list[tuple[Guest, int, int]],
    theta: int,
    step: int,
    fading: bool,
) -> tuple[list[Expected], Cells]:
    """Guests with their windows, and cells of time with prices of prompt work, in small units times theta's.

    Parameters
    ----------
    instance : Instance
    given : Field
        Ends and roots of cells.
    guests : list of (Guest, int, int)
        With its stay in ticks and its share.
    theta : int
        The largest share, or more.
    step : int
        Constant of a batch that decodes, in ticks.
    fading : bool
        Whether windows have a weight in the cell in which they end.
    """
    ends, roots = read_roots(instance, given, len(guests))
    starts, unit = [0, *ends], step << 2 * ROOT_BITS
    there, more, found = [0] * (len(ends) + 1), [0] * (len(ends) + 1), []
    for some, stay, share in guests:
        end = some.begin + stay
        first, last = bisect_left(starts, some.until), bisect_right(ends, end)
        one = Expected(some, share, stay, stay, 0, 1)
        if fading and first > last:
            one = one._replace(whole=0, until=0)
        elif fading:
            whole, until = starts[last] - some.begin, starts[min(last + 1, len(ends))] - some.begin
            one = one._replace(whole=whole, until=until)
            if last < len(ends):
                one = one._replace(part=stay - whole, span=until - whole)
        if first <= last:
            there[first] += some.times * share
            there[last] -= some.times * share
            more[last] += some.times * share * one.part // one.span
        found.append(one)
    least = min(share for _, _, share in guests)
    present = [n + part for n, part in zip(accumulate(there[:-1]), more, strict=False)]
    work = [max(least, n) * unit + theta * root**2 for n, root in zip(present, roots, strict=True)]
    roots, work = [*roots, 0], [*work, least * unit]
    return found, Cells(ends, roots, work, unit, (next_lower(roots), next_lower(work)))
