"""Windows of requests for `lingering`: cells of time in which each is expected to be."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from infermax_opt.infermax.bounds.interaction import Kind

__all__ = ["Window", "present_in"]


class Window(NamedTuple):
    """Cells in which a request is expected to be: the first, and the one in which it has a part of the span.

    For how many ticks after its arrival it has all of its weight, and any.
    """

    first: int
    last: int
    part: int
    span: int
    whole: int
    until: int

    @classmethod
    def of(cls, starts: Sequence[int], kind: Kind, stay: int, fading: bool) -> Window:
        """The window of a request.

        Parameters
        ----------
        starts : sequence of int
            Of the cells, and of the time after them.
        kind : Kind
        stay : int
            Ticks from its arrival.
        fading : bool
            Whether the last cell counts in part.
        """
        end, cells = kind.begin + stay, len(starts) - 1
        first, last = bisect_left(starts, kind.until), bisect_right(starts, end, 1) - 1
        if not fading:
            return cls(first, last, 0, 1, stay, stay)
        if first > last:
            return cls(first, last, 0, 1, 0, 0)
        begin, until = starts[last], starts[min(last + 1, cells)]
        if last == cells:
            return cls(first, last, 0, 1, begin - kind.begin, begin - kind.begin)
        return cls(first, last, end - begin, until - begin, begin - kind.begin, until - kind.begin)


def present_in(cells: int, windows: Sequence[tuple[int, Window]]) -> list[int]:
    """Those in whose window each cell is, by what they count and their weight there; nobody after the cells.

    Parameters
    ----------
    cells : int
        How many.
    windows : sequence of (int, Window)
        With what each counts at full weight.
    """
    changes, more = [0] * (cells + 1), [0] * (cells + 1)
    for counts, window in windows:
        if window.first <= window.last:
            changes[window.first] += counts
            changes[window.last] -= counts
            more[window.last] += counts * window.part // window.span
    present = [n + part for n, part in zip(accumulate(changes[:-1]), more, strict=False)]
    return [*present, 0]
