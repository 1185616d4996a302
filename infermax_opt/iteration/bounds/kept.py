r"""How many savable requests one batch can keep: (6) for as many as possible, before the objective.

*All of them.*  With time T every i with slack_i - T_avg < T must be selected, and T is at most the least
slack of those selected.  More requests than these make T no shorter.  So all can be kept if, and only if, a
prefix by slack can be the batch: its time is at most its least slack and slack - T_avg of the next, and it
fits.

*As many as possible.*  In a family of `infermax_opt.iteration.bounds.cases` the free ones are kept; of the
calls as many as fit a batch of at most tau.  Only calls are worth selecting, as others make it longer.  So
the most is the largest, over all families, of the free ones and the largest set of calls that fits.

*With separable attention* the calls of a family that are decodes, that are prefills, and all of them are
three parts, in each of which what fits is a sum for each line of the time, and one for the blocks
(`infermax_opt.iteration.bounds.cases`; a part of both with the fixed times of both, though one phase may be
missing: that batch is in another part).  `infermax_opt.iteration.bounds.largest_set` decides the largest set
of a part exactly, within a limit on its table.  Families are looked at by what they can hold at most, until
none can hold more than is found.

*With attention as a product, and numbers beyond 64 bits*, a search decides (include or exclude a call, the
one with the least work first), with a bound for each limit by itself: of the calls left, the smallest that
fit into what is left of it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from infermax_opt.iteration.bounds.cases import Case, Kinds
from infermax_opt.iteration.bounds.largest_set import MOST_SUM, largest_set, most_by_weights
from infermax_opt.iteration.data.ticks import Ticks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Whole = npt.NDArray[np.int64]

__all__ = ["Kept", "all_kept", "most_kept", "note_kept", "undecided_text"]

#: Steps of the search for one family.
MOST_STEPS = 4_000
#: Work of all families together, in units of about a microsecond; after that the rest is left undecided.
MOST_WORK = 1_000_000
#: Calls of a family up to which it is searched; of more, only the first that fit are taken.
MOST_CALLS = 300
#: Labels of the tables of all families together; after that the rest is left undecided.
MOST_LABELS = 3_000_000
#: What bounding one part counts, in labels.
BOUNDING = 1_000


@dataclass(frozen=True)
class Kept:
    """Savable requests that a batch can keep: at least, at most, and a batch (positions) that keeps
    `least`.
    """

    least: int
    most: int
    batch: tuple[int, ...]


def all_kept(ticks: Ticks) -> tuple[int, ...] | None:
    """A batch that keeps all savable requests, the shortest; None if there is none."""
    order = ticks.savable
    for k in range(min(len(order), ticks.machine.batch) + 1):
        batch = order[:k]
        time = ticks.time(batch)
        last = k == len(order) or time <= ticks.limit(order[k], selected=False)
        if last and ticks.fits(batch) and (k == 0 or time <= ticks.limit(order[0], selected=True)):
            return tuple(batch)
    return None


def most_kept(ticks: Ticks) -> Kept:
    """The most savable requests that one batch keeps, as far as the search gets; worked out once."""
    memo = vars(ticks)
    if "most_kept" not in memo:
        memo["most_kept"] = _search(ticks)
    found: Kept = memo["most_kept"]
    return found


def note_kept(ticks: Ticks, batch: Sequence[int]) -> None:
    """Go on from a batch that fits, if it keeps more than any known before."""
    known, kept = most_kept(ticks), len(ticks.kept(batch))
    if kept > known.least:
        vars(ticks)["most_kept"] = Kept(kept, max(kept, known.most), tuple(batch))


def undecided_text(kept: Kept) -> str | None:
    """What is not known of the most savable requests that a batch keeps; None where that is known."""
    if kept.least == kept.most:
        return None
    return (
        f"whether a batch can keep more than {kept.least} savable real-time requests, up to {kept.most}, "
        "was not found out; one that can would come first"
    )


def _search(ticks: Ticks) -> Kept:
    everyone, batch = len(ticks.savable), all_kept(ticks)
    if batch is not None:
        return Kept(everyone, everyone, batch)
    if not ticks.machine.product and _largest_sum(ticks) < MOST_SUM:
        return _Parts(ticks).most_kept()
    best: tuple[int, ...] = ()
    least, most = len(ticks.kept(())), 0
    rows, left = _Rows(ticks), MOST_WORK
    for tau, free, calls in sorted(_families(ticks), key=lambda some: -some[1] - len(some[2])):
        most_here = min(free + len(calls), everyone)
        if most_here <= least:
            break
        if left <= 0:
            # No later family holds more.
            return Kept(least, max(most, most_here), best)
        search = _Family(rows, tau, calls, least - free)
        search.run()
        left -= search.work
        if search.best is not None:
            best = tuple(search.best)
            # Never fewer than the family says; the time may be shorter than its tau.
            least = len(ticks.kept(best))
        most = max(most, free + search.most)
    return Kept(least, max(least, most), best)


def _families(ticks: Ticks) -> Iterator[tuple[int, int, Sequence[int]]]:
    """tau, number of free requests, and calls (positions) of each family."""
    limits = [ticks.limit(k, selected=True) for k in ticks.savable]
    ends = {*limits, *(s - ticks.t_avg for s in limits)}
    for tau in sorted(end for end in ends if end > 0):
        # Savable requests stand by slack.
        first, free = bisect_left(limits, tau), bisect_left(limits, tau + ticks.t_avg)
        yield tau, len(limits) - free, ticks.savable[first:free]


def _largest_sum(ticks: Ticks) -> int:
    """No sum of a line or of blocks is larger."""
    return max(ticks.all_time, sum(r.new_blocks for r in ticks.instance.requests))


@dataclass(frozen=True, slots=True)
class _Part:
    """Calls of a family (positions among the savable ones) in one part: which rows, and their limits."""

    free: int
    calls: tuple[int, int]
    phases: tuple[bool, bool]
    tau: int


class _Parts:
    """The search by tables."""

    def __init__(self, ticks: Ticks):
        import numpy as np

        self.ticks, kinds = ticks, Kinds.of(ticks)
        kind_of = {k: t for t, some in enumerate(kinds.members) for k in some}
        types = [kind_of[k] for k in ticks.savable]
        nobody = [0] * len(kinds.members)
        self.prefills = np.array([kinds.requests[t].prefills for t in types], dtype=bool)
        self.fixed: dict[tuple[bool, bool], list[int]] = {}
        self.rows: dict[tuple[bool, bool], Whole] = {}
        for phases in ((True, False), (False, True), (True, True)):
            lines = Case(kinds, ticks.all_time, frozenset(), 0, *phases, None).lines(nobody)
            self.fixed[phases] = [base for base, _ in lines]
            columns = [kinds.blocks, *(each for _, each in lines)]
            self.rows[phases] = np.array([[column[t] for column in columns] for t in types], dtype=np.int64)

    def most_kept(self) -> Kept:
        """The most that a batch can keep."""
        best, labels = tuple[int, ...](), MOST_LABELS
        least = len(self.ticks.kept(best))
        # By what a part may hold at most; first by its calls alone, then by their bound.
        queue = [(-part.free - size, n, False, part) for n, (size, part) in enumerate(self._all())]
        heapq.heapify(queue)
        most = least
        while queue and -queue[0][0] > max(least, most):
            could, n, bounded, part = heapq.heappop(queue)
            if labels <= 0:
                most = -could
                break
            rows, room, at = self._vectors(part)
            size = self.ticks.machine.batch
            if not bounded:
                labels -= BOUNDING
                heapq.heappush(queue, (-part.free - most_by_weights(rows, room, size), n, True, part))
                continue
            found = largest_set(rows, room, size, max(0, least - part.free), labels)
            labels -= found.labels + BOUNDING
            if found.best is not None:
                best = tuple(self.ticks.savable[at[k]] for k in found.best)
                # Never fewer than the family says; the time may be shorter than its tau.
                least = len(self.ticks.kept(best))
            most = max(most, part.free + found.most)
        return Kept(least, max(least, most), best)

    def _all(self) -> Iterator[tuple[int, _Part]]:
        """All parts that may hold somebody, and how many calls each has."""
        import numpy as np

        prefills = np.concatenate([[0], np.cumsum(self.prefills)])
        everyone = len(self.ticks.savable)
        for tau, free, calls in _families(self.ticks):
            last = everyone - free
            first = last - len(calls)
            second = int(prefills[last] - prefills[first])
            for phases, size in (
                ((True, False), len(calls) - second), ((False, True), second), ((True, True), len(calls))
            ):  # fmt: skip
                both = all(phases)
                if size and min(self.fixed[phases]) <= tau and not (both and second in (0, len(calls))):
                    yield min(size, self.ticks.machine.batch), _Part(free, (first, last), phases, tau)

    def _vectors(self, part: _Part) -> tuple[Whole, Whole, list[int]]:
        """Vectors and limits of a part, and where among the savable ones they stand."""
        import numpy as np

        first, last = part.calls
        prefills = self.prefills[first:last]
        ours = np.flatnonzero(np.where(prefills, part.phases[1], part.phases[0]))
        limits = [self.ticks.machine.blocks, *(part.tau - base for base in self.fixed[part.phases])]
        room = np.array([min(limit, MOST_SUM) for limit in limits], dtype=np.int64)
        rows = self.rows[part.phases][first:last][ours]
        return (rows if (room >= 0).all() else rows[:0]), np.maximum(room, 0), (ours + first).tolist()


class _Rows:
    """What each request takes of each limit, at least, and the least fixed ticks of each line.

    Attributes
    ----------
    of : dict of int to list of int
        Position of a savable request to its blocks, and its ticks of each line.
    fixed : list of int
    alone : dict of int to int
        Ticks of a batch of it alone.
    """

    def __init__(self, ticks: Ticks):
        self.ticks, kinds = ticks, Kinds.of(ticks)
        nobody = [0] * len(kinds.members)
        lines = [
            Case(kinds, ticks.all_time, frozenset(), 0, not prefills, prefills, 1).lines(nobody)
            for prefills in (False, True)
        ]
        self.fixed = [min(base for base, _ in pair) for pair in zip(*lines, strict=True)]
        self.of: dict[int, list[int]] = {}
        self.alone: dict[int, int] = {}
        for t, some in enumerate(kinds.members):
            if kinds.slack[t] is None:
                continue
            row = [kinds.blocks[t], *(each[t] for _, each in lines[kinds.requests[t].prefills])]
            time = ticks.time(some[:1])
            self.of.update(dict.fromkeys(some, row))
            self.alone.update(dict.fromkeys(some, time))


class _Family:
    """The largest set of calls that fits, if it is above a number."""

    def __init__(self, rows: _Rows, tau: int, calls: Sequence[int], above: int):
        self.ticks, self.tau, self.above = rows.ticks, tau, max(above, 0)
        self.best: list[int] | None = None
        self.steps = 0
        self.calls = sorted(calls, key=lambda k: (rows.alone[k], k))
        self.rows = [rows.of[k] for k in self.calls]
        self.room = [self.ticks.machine.blocks, *(tau - base for base in rows.fixed)]
        self.most = len(self.calls)
        self.work = self.most * len(self.room)
        # Of the calls from some one on, the sums of the smallest, for each limit.
        self.sums = [self._sums(0)]

    def _sums(self, at: int) -> list[list[int]]:
        return [list(accumulate(sorted(row[c] for row in self.rows[at:]))) for c in range(len(self.room))]

    def run(self) -> None:
        """Search; `most` is what it leaves possible at most."""
        self.most = self._could(0, self.room, 0)
        if self.most <= self.above:
            return
        if len(self.calls) > MOST_CALLS:
            self._take_first()
            return
        self.sums += [self._sums(at) for at in range(1, len(self.calls) + 1)]
        self._go(0, [], self.room)
        self.work += len(self.calls) * self.work // 4 + 20 * self.steps
        if self.steps <= MOST_STEPS:
            self.most = self.above

    def _take_first(self) -> None:
        """Take each call in turn that fits."""
        chosen: list[int] = []
        for k in self.calls:
            if len(chosen) == self.ticks.machine.batch:
                break
            self.work += 5 + len(chosen)
            more = [*chosen, k]
            if self.ticks.fits(more) and self.ticks.time(more) <= self.tau:
                chosen = more
        if len(chosen) > self.above:
            self.best = chosen

    def _could(self, at: int, room: Sequence[int], size: int) -> int:
        """How many there can be, with `size` chosen before."""
        most = self.ticks.machine.batch - size
        for sums, left in zip(self.sums[at], room, strict=True):
            most = min(most, bisect_right(sums, left) if left >= 0 else -1)
        return size + most

    def _go(self, at: int, chosen: list[int], room: Sequence[int]) -> None:
        self.steps += 1
        if len(chosen) > self.above:
            self.above, self.best = len(chosen), list(chosen)
        if (
            at == len(self.calls)
            or self.steps > MOST_STEPS
            or self._could(at, room, len(chosen)) <= self.above
        ):
            return
        more = [*chosen, self.calls[at]]
        if self.ticks.fits(more) and self.ticks.time(more) <= self.tau:
            self._go(at + 1, more, [left - w for left, w in zip(room, self.rows[at], strict=True)])
        self._go(at + 1, chosen, room)
