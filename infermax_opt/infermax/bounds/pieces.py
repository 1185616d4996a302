"""What the searched bounds share: a bound for each affine piece, costs in whole units, a small LP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.core.linear import maximizer
from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = [
    "BITS", "BatchCosts", "PriceProgram", "Stop", "best_piece", "better_pieces", "few_pieces", "in_units",
    "longest",
]  # fmt: skip

#: Bits of a batch's fixed cost in units: rounding costs less than 1e-6 of a bound, and sums along a
#: path stay in int64.
BITS = 34
#: Slack of a cut, so that prices rounded to whole units do not run into it again.
SLACK = 1e-6

Stop = Callable[[], bool]


def better_pieces(
    instance: Instance,
    search: Callable[[Instance, int, Stop], LowerBound | None],
    stop: Stop | None,
    pieces: Sequence[int] | None = None,
) -> Iterator[LowerBound]:
    """Ever better bounds that a search finds for one affine piece of the batch time after the other.

    Once there is one and it is to stop, no more pieces are tried: each takes some time even so.

    Parameters
    ----------
    instance : Instance
    search : callable
        Takes the instance, the number of a piece, and `stop`.
    stop : callable or None
        Asked often whether to search no longer.
    pieces : sequence of int, optional
        Which pieces, in this order; without it all of them.
    """
    best, is_over = None, stop or (lambda: False)
    for piece in range(len(instance.cost.batch)) if pieces is None else pieces:
        if best is not None and is_over():
            return
        found = search(instance, piece, is_over)
        if found is not None and (best is None or found.value > best.value):
            best = found
            yield best


def best_piece(
    instance: Instance,
    search: Callable[[Instance, int, Stop], LowerBound | None],
    stop: Stop | None,
    pieces: Sequence[int] | None = None,
) -> LowerBound | None:
    """The best of the bounds that a search finds for each affine piece of the batch time.

    Parameters
    ----------
    instance : Instance
    search, stop, pieces
        As in `better_pieces`.
    """
    best = None
    for found in better_pieces(instance, search, stop, pieces):
        best = found
    return best


def few_pieces(instance: Instance, most: int) -> list[int]:
    """All affine pieces of the batch time, or so many of them from the flattest to the steepest.

    Parameters
    ----------
    instance : Instance
    most : int
        2 or more.
    """
    beta = instance.cost.ticks.beta
    order = sorted(range(len(beta)), key=lambda piece: beta[piece])
    last = len(order) - 1
    return order if last < most else sorted({order[last * k // (most - 1)] for k in range(most)})


class BatchCosts(NamedTuple):
    """Ticks of a batch besides its tokens: of decodes, with prefills besides, and of prefills alone.

    Without hybrid batching no batch has both: the second one is what two batches cost, one after the other.
    """

    plain: int
    mixed: int
    pure: int

    @classmethod
    def of(cls, instance: Instance, piece: int) -> BatchCosts:
        """Those by one affine piece of the batch time."""
        ticks = instance.cost.ticks
        alpha: int = ticks.alpha[piece]
        both = ticks.p0 if instance.policy.hybrid_batching else alpha + ticks.p0
        return cls(alpha + ticks.d0, alpha + ticks.d0 + both, alpha + ticks.p0)


def longest(instance: Instance) -> int:
    """More tokens than any request caches: the size of tables by cached tokens."""
    return max(group.input_tokens + group.output_tokens for group in instance.groups)


def in_units(ticks: int, exponent: int) -> int:
    """Whole units of 2**-exponent ticks, rounded down."""
    return int(ticks << exponent if exponent >= 0 else ticks >> -exponent)


class PriceProgram:
    """The LP over scaled prices: what they earn at most if no cycle found so far gains.

    Parameters
    ----------
    gain : float array
        What a unit of each scaled price earns.
    low, high : float arrays
        Bounds of the scaled prices.
    scale : float array
        Prices per scaled price.
    """

    def __init__(self, gain: Floats, low: Floats, high: Floats, scale: Floats):
        import numpy as np

        self.gain, self.scale = gain, scale
        self.columns = np.arange(len(scale), dtype=np.int32)
        self.solver = maximizer()
        self.solver.addVars(len(scale), low, high)
        self.solver.changeColsCost(len(scale), self.columns, gain)

    def cut(self, weights: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> None:
        """Demand weights @ (1, *prices) >= 0: what a cycle costs must not be less than nothing."""
        import numpy as np

        row = weights[1:] * self.scale
        size = max(float(np.abs(row).max()), 1e-300)
        least = -float(weights[0]) * (1 - SLACK) / size
        self.solver.addRow(least, np.inf, len(row), self.columns, row / size)

    def solve(self) -> tuple[float, Floats]:
        """Most that any prices earn under the constraints so far, and these prices, scaled."""
        import numpy as np

        self.solver.run()
        return self.solver.getInfo().objective_function_value, np.array(self.solver.getSolution().col_value)
