r"""The largest set of vectors whose sum stays within limits: a table of sums, with bounds that thin it out.

Vectors are taken into account one after the other.  A *label* is a number q of chosen ones and their sum.
Two rules drop labels.

*Dominance.*  Of two labels with the same q whose sums agree in all columns but two, the one that is no less
in both of these is dropped: whatever can be added to it can be added to the other one.  Of two equal ones,
one is.

*Bound.*  Let u be a vector of weights >= 0 of the columns.  A set that fits has

    sum over the set of floor(W sum_c u_c row_c / room_c) <= W sum_c u_c,

as each floor is at most its argument.  So of the vectors that are left no more can be added than the
smallest of these whole numbers fit into what is left of the right side.  A label that cannot get above the
best number known that way is dropped.  Each column by itself is such a bound, too, exactly.  In the same way,
a vector beside which too few others fit is left out at the start.

A set above the number known has a label at each step that neither rule drops without leaving one as good:
so if none is left at the end, there is no such set.  The number of labels is limited.  Beyond it the most
promising ones are kept, and what is found is a set, and no longer the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Whole = npt.NDArray[np.int64]

__all__ = ["MOST_SUM", "LargestSet", "largest_set", "most_by_weights"]

#: Sums stay below this, so that 64 bits hold them.
MOST_SUM = 2**61
#: Labels at one step.
MOST_LABELS = 60_000
#: What a step counts beside its labels.
STEP = 200
#: Bits of W at most.
BITS = 30
#: Rounds that better the weights, and weights that bound labels.
ROUNDS, WEIGHTS = 6, 3


@dataclass(frozen=True)
class LargestSet:
    """What is known: a set (numbers of rows) above a number, if one was found; how large any can be; labels.

    Attributes
    ----------
    best : list of int or None
    most : int
        No set is larger than this: the size of the best one, or the number given, where it is decided.
    labels : int
        Work that it took.
    """

    best: list[int] | None
    most: int
    labels: int


class _Vectors:
    """Those vectors that fit at all, the columns that can be broken, and their weights."""

    def __init__(self, rows: Whole, room: Whole, most: int):
        import numpy as np

        fits = (rows <= room).all(axis=1)
        binding = rows[fits].sum(axis=0) > room
        self.at, self.most = np.flatnonzero(fits), min(most, int(fits.sum()))
        self.rows: Whole = np.ascontiguousarray(rows[fits][:, binding])
        self.room: Whole = room[binding]
        self.scaled, self.unit = self._scaled()
        self.weights = self._weights()

    def _scaled(self) -> tuple[Whole, int]:
        """Each column in shares of its limit, rounded down to whole numbers; and the limit."""
        import numpy as np

        largest = int(self.rows.max(initial=1))
        unit = 1 << max(0, min(BITS, 61 - largest.bit_length()))
        return self.rows * unit // np.maximum(self.room, 1), unit

    def could(self, weights: Whole) -> int:
        """How many a set can have by these weights alone."""
        import numpy as np

        sums = np.cumsum(np.sort(self.scaled @ weights))
        return int(np.searchsorted(sums, self.unit * int(weights.sum()), "right"))

    def _weights(self) -> list[tuple[int, Whole]]:
        """Weights, those that bound best first."""
        import numpy as np

        columns = len(self.room)
        if not columns:
            return []
        found = {(1,) * columns: self.could(np.ones(columns, dtype=np.int64))}
        for c in range(columns):
            alone = np.zeros(columns, dtype=np.int64)
            alone[c] = 1
            found[tuple(alone.tolist())] = self.could(alone)
        if columns > 1:
            start = (8,) * columns
            found[start] = found.pop((1,) * columns)
            for _ in range(ROUNDS):
                before = found[start]
                for c in range(columns):
                    for way in (2, 0.5):
                        tried = (*start[:c], min(1024, int(start[c] * way)), *start[c + 1 :])
                        if any(tried) and tried not in found:
                            found[tried] = self.could(np.array(tried, dtype=np.int64))
                start = min(found, key=lambda some: found[some])
                if found[start] == before:
                    break
        ranked = sorted(found.items(), key=lambda some: some[1])
        return [(could, np.array(some, dtype=np.int64)) for some, could in ranked[:WEIGHTS]]

    def filled(self) -> list[int]:
        """The largest set that taking what fits, the smallest first, gives; by each of the weights."""
        import numpy as np

        best, columns = list[int](), self.rows.tolist()
        for lead in [self.scaled @ weights for _, weights in self.weights] or [np.zeros(len(self.at), int)]:
            left, chosen = self.room.tolist(), list[int]()
            for k in np.argsort(lead, kind="stable").tolist():
                if len(chosen) == self.most:
                    break
                if all(w <= room for w, room in zip(columns[k], left, strict=True)):
                    chosen.append(int(self.at[k]))
                    left = [room - w for w, room in zip(columns[k], left, strict=True)]
            best = max(best, chosen, key=len)
        return best

    @property
    def bound(self) -> int:
        """How many a set can have at most."""
        return min([self.most, *(could for could, _ in self.weights)])


def most_by_weights(rows: Whole, room: Whole, most: int) -> int:
    """How many vectors a set within the limits can have at most, by the bounds alone.

    Parameters
    ----------
    rows : array of int
        One vector a row, with a column for each limit.
    room : array of int
        The limits.
    most : int
        Vectors of a set.
    """
    return _Vectors(rows, room, most).bound


def largest_set(rows: Whole, room: Whole, most: int, above: int, labels: int) -> LargestSet:
    """Find the largest set if it has more than `above` vectors.

    Parameters
    ----------
    rows : array of int
        One vector a row, whole numbers >= 0 whose sums are below `MOST_SUM`.
    room : array of int
        The limits, >= 0.
    most : int
        Vectors of a set.
    above : int
        Larger sets count only.
    labels : int
        How many may be made; beyond that, the set found is not known to be the largest.
    """
    vectors = _Vectors(rows, room, most)
    bound, best, made = vectors.bound, None, 0
    if bound > above:
        filled = vectors.filled()
        if len(filled) > above:
            best, above = filled, len(filled)
    # From the largest size down, as few labels can get there.
    while bound > above:
        table = _Table(vectors, bound - 1, max(1, labels - made))
        chosen, complete = table.run()
        made += table.made
        if chosen is not None:
            best = chosen
            break
        if not complete:
            break
        bound -= 1
    found = above if best is None else len(best)
    return LargestSet(best, max(bound, found), made)


class _Table:
    """The labels of one step: a row each, the number of chosen ones first."""

    def __init__(self, vectors: _Vectors, above: int, labels: int):
        import numpy as np

        self.vectors, self.above, self.left, self.made = vectors, above, labels, 0
        lead = vectors.scaled @ vectors.weights[0][1] if vectors.weights else np.zeros(len(vectors.at), int)
        # The large ones first: of these few are chosen, so few labels arise.
        order = np.argsort(-lead, kind="stable")
        order = order[self._useful()[order]]
        self.order, self.rows = order, vectors.rows[order]
        # Columns that bound: those of the weights, rounded, and the exact ones.
        weighed = [(vectors.scaled[order] @ w, vectors.unit * int(w.sum())) for _, w in vectors.weights]
        # Those with the most values come last, which are compared by size and not asked to be equal.
        values = [len(np.unique(column)) for column in self.rows.T]
        exact = [(self.rows[:, c], int(vectors.room[c])) for c in np.argsort(values, kind="stable")]
        self.bounding = [*weighed, *exact]
        self.ranked = [np.argsort(column, kind="stable") for column, _ in self.bounding]
        self.steps: list[npt.NDArray[np.int32]] = []

    def _useful(self) -> npt.NDArray[np.bool_]:
        """Vectors beside which enough others may fit for a set above the number."""
        import numpy as np

        vectors = self.vectors
        useful = np.ones(len(vectors.at), dtype=bool)
        weighed = [(vectors.scaled @ w, vectors.unit * int(w.sum())) for _, w in vectors.weights]
        for column, limit in [*weighed, *zip(vectors.rows.T, vectors.room.tolist(), strict=True)]:
            others = np.searchsorted(np.cumsum(np.sort(column)), limit - column, "right")
            useful &= others + 1 > self.above
        return useful

    def run(self) -> tuple[list[int] | None, bool]:
        """A set above the number, and whether it is known that there is none where none was found."""
        import numpy as np

        n, columns = self.rows.shape
        wide = len(self.bounding)
        counts, sums = np.zeros(1, dtype=np.int64), np.zeros((1, wide), dtype=np.int64)
        each = np.column_stack([column for column, _ in self.bounding]) if wide else np.zeros((n, 0), int)
        limits = np.array([limit for _, limit in self.bounding], dtype=np.int64)
        exact, complete = wide - columns, True
        for at in range(n):
            take = np.flatnonzero((sums + each[at] <= limits).all(axis=1) & (counts < self.vectors.most))
            parents = np.concatenate([np.arange(len(counts)), take])
            taken = np.arange(len(parents)) >= len(counts)
            counts = np.concatenate([counts, counts[take] + 1])
            sums = np.concatenate([sums, sums[take] + each[at]])
            if int(counts.max()) > self.above:
                label = int(np.argmax(counts))
                return self._chosen(at, int(parents[label]), bool(taken[label])), True
            keep = np.flatnonzero(counts + self._could(at + 1, sums, counts) > self.above)
            keep = keep[_undominated(counts[keep], sums[keep][:, exact:])]
            self.made += len(parents) + STEP
            if len(keep) > min(MOST_LABELS, max(1, self.left - self.made)):
                complete = False
                keep = self._promising(keep, counts, sums, limits)
            if not len(keep):
                break
            counts, sums = counts[keep], sums[keep]
            self.steps.append((parents[keep] * 2 + taken[keep]).astype(np.int32))
        return None, complete

    def _could(self, at: int, sums: Whole, counts: Whole) -> Whole:
        """How many more each label can get of the vectors from this one on."""
        import numpy as np

        more = np.minimum(len(self.rows) - at, self.vectors.most - counts)
        for c, ((column, limit), ranked) in enumerate(zip(self.bounding, self.ranked, strict=True)):
            prefix = np.cumsum(column[ranked[ranked >= at]])
            more = np.minimum(more, np.searchsorted(prefix, limit - sums[:, c], "right"))
        return more

    def _promising(self, keep: Whole, counts: Whole, sums: Whole, limits: Whole) -> Whole:
        """Some labels, where there are too many: those with the most room for what they have."""
        import numpy as np

        room = ((limits - sums[keep]) / np.maximum(limits, 1)).min(axis=1, initial=1.0)
        size = max(1, min(MOST_LABELS, self.left - self.made) // 4)
        return np.sort(keep[np.argsort(-(counts[keep] / self.above + room), kind="stable")[:size]])

    def _chosen(self, at: int, label: int, taken: bool) -> list[int]:
        """The set of a label of this step, told by the label of the step before."""
        chosen = list[int]()
        while True:
            if taken:
                chosen.append(int(self.vectors.at[self.order[at]]))
            at -= 1
            if at < 0:
                return sorted(chosen)
            code = int(self.steps[at][label])
            label, taken = code // 2, bool(code % 2)


def _undominated(counts: Whole, sums: Whole) -> Whole:
    """Labels that no other one is as good as, as far as one sort tells: the last two columns are compared."""
    import numpy as np

    columns = [counts, *sums.T]
    if len(counts) < 2:
        return np.arange(len(counts))
    equal, compared = columns[: max(1, len(columns) - 2)], columns[1:][-2:]
    order = np.lexsort((*reversed(compared), *reversed(equal)))
    new = np.zeros(len(order), dtype=bool)
    new[0] = True
    for column in equal:
        new[1:] |= np.diff(column[order]) != 0
    if not compared:
        return np.sort(order[new])
    group, last = np.cumsum(new), compared[-1][order]
    if int(last.max()) >= MOST_SUM // len(order):
        last = np.unique(last, return_inverse=True)[1]
    # In each group by the first, an entry counts where it is below all before it in the last.
    shifted = last - group * (int(last.max()) + 1)
    fine = np.ones(len(order), dtype=bool)
    fine[1:] = shifted[1:] < np.minimum.accumulate(shifted)[:-1]
    return np.sort(order[fine])
