"""The least seconds per value by trying every batch: exact, for few requests."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from infermax_opt.iteration.bounds.cases import Kinds
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["MOST_BATCHES", "best_of_all"]

#: Batches to look at, those of equal requests counted once; about five seconds.
MOST_BATCHES = 100_000


def best_of_all(ticks: Ticks) -> Fraction | None:
    """The optimum: as many savable requests kept as can be, then least seconds per value.

    None if there are too many batches.
    """
    kinds = Kinds.of(ticks)
    if math.prod(n + 1 for n in kinds.copies) > MOST_BATCHES:
        return None
    best: tuple[int, Fraction] | None = None
    for counts in itertools.product(*(range(n + 1) for n in kinds.copies)):
        batch = kinds.positions(counts)
        if ticks.fits(batch):
            found = -len(ticks.kept(batch)), ticks.objective(batch)
            best = found if best is None else min(best, found)
    assert best is not None, "a batch of nobody fits"
    return best[1]
