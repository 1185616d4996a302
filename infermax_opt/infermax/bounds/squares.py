"""Attention of prompts that may be split: how little it can be in so many batches.

See *Chunks with "square" attention* in `infermax_opt.infermax.bounds.closed_form`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.bounds.sizes import LARGE, Sizes
from infermax_opt.infermax.data.instance import Instance

__all__ = ["Squares", "spread_squares"]


class Squares(NamedTuple):
    """Attention work of the prompts and output tokens, by type, where splitting prompts saves work.

    Attributes
    ----------
    work, outputs : array of whole numbers
        Of 64 bits where the sum of the work needs no more, else Python's own; ticks and tokens.
    """

    work: Any
    outputs: Any

    @classmethod
    def of(cls, instance: Instance, sizes: Sizes) -> Squares:
        """That of requests of some lengths."""
        import numpy as np

        i, o, count = sizes
        p1 = instance.cost.ticks.p1
        small = i.dtype == np.int64 and int((i**2 * count).sum()) * p1 < LARGE
        kind = np.int64 if small else object
        return cls(i.astype(kind) ** 2 * count.astype(kind) * p1, o.astype(kind))

    def split(self, reference: int) -> tuple[Any, Any]:
        """Work and most chunks of the prompts in so many batches; a product of chunks fits, too."""
        kind = object if reference**2 >= LARGE else self.work.dtype
        return self.work.astype(kind), reference - self.outputs.astype(kind) + 1


def spread_squares(squares: Squares, batches: int, alpha: int) -> tuple[int, int | None]:
    """Least prefill work, plus alpha for each batch beyond `batches` that spreading it takes; J0.

    Parameters
    ----------
    squares : Squares
    batches : int
        As many as there are at least.
    alpha : int
        Ticks of a batch.
    """
    low = max(batches, int(squares.outputs.max()))

    def slope(reference: int) -> int:
        """Work saved per batch added, rounded up."""
        work, chunks = squares.split(reference)
        return int((-(-work // chunks**2)).sum())

    reference, step = low, 1
    while slope(reference) > alpha:
        # The slope falls like 1/q**2, but for a rounding of one tick per type.
        if alpha <= len(squares.work):
            return 0, None
        reference, step = reference + step, step * 2
    if reference > low:
        below = reference - step // 2
        while reference - below > 1:
            middle = (reference + below) // 2
            if slope(middle) > alpha:
                below = middle
            else:
                reference = middle
    work, chunks = squares.split(reference)
    base, gain = int((work // chunks).sum()), int((work // chunks**2).sum())
    return base + (reference - batches) * gain, reference
