"""Steps of many numbers at once along their slopes, as those of Adam (Kingma and Ba 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Steps"]

#: How much of the means of slopes and of their squares is kept.
KEEP, KEEP_SQUARE = 0.9, 0.99


class Steps:
    """Which way each number goes, and how far, by its slopes so far.

    Parameters
    ----------
    point : sequence of arrays
        With which it begins.
    """

    def __init__(self, point: Sequence[Floats]):
        import numpy as np

        self._means, self._squares = ([np.zeros_like(some) for some in point] for _ in range(2))
        self._count = 0

    def ways(self, slope: Sequence[Floats]) -> list[Floats]:
        """One for each of the numbers, 1 where the slope was always the same."""
        self._count += 1
        found = []
        for k, way in enumerate(slope):
            self._means[k] = KEEP * self._means[k] + (1 - KEEP) * way
            self._squares[k] = KEEP_SQUARE * self._squares[k] + (1 - KEEP_SQUARE) * way**2
            mean = self._means[k] / (1 - KEEP**self._count)
            square = self._squares[k] / (1 - KEEP_SQUARE**self._count)
            found.append(mean / (square**0.5 + 1e-9))
        return found
