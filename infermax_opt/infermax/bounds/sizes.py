"""Lengths of requests as columns, so that sums over a million of them take no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.infermax.data.instance import RequestType

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["LARGE", "Sizes"]

#: What sums of 64 bits stay below.
LARGE = 2**62


class Sizes(NamedTuple):
    """Lengths of types of requests, and how many there are of each.

    Attributes
    ----------
    inputs, outputs, counts : array of whole numbers
        Of 64 bits where no sum over requests of a product of two KV sizes needs more, else Python's own.
    """

    inputs: npt.NDArray[Any]
    outputs: npt.NDArray[Any]
    counts: npt.NDArray[Any]

    @property
    def are_equal(self) -> bool:
        """Whether all requests are."""
        return all(int(column.min()) == int(column.max()) for column in (self.inputs, self.outputs))

    def since(self, first: int) -> Sizes:
        """Those from some place on."""
        return Sizes(*(column[first:] for column in self))

    @classmethod
    def of(cls, kinds: Sequence[RequestType]) -> Sizes:
        """Those of some requests, at least one."""
        import numpy as np

        columns = (
            [kind.input_tokens for kind in kinds],
            [kind.output_tokens for kind in kinds],
            [len(kind.members) for kind in kinds],
        )
        inputs, outputs, counts = columns
        largest = (max(inputs) + max(outputs)) ** 2 * sum(counts)
        return cls(*(np.array(column, dtype=np.int64 if largest < LARGE else object) for column in columns))
