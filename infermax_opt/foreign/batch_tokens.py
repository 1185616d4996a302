"""What the requests of a batch processed, in a few bytes each: files hold millions."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BatchTokens"]


class BatchTokens(Mapping[str, int]):
    """Tokens by request.

    Parameters
    ----------
    names : array of int or of str
        See `infermax_opt.foreign.names`; none is there twice.
    counts : array of int
    """

    __slots__ = ("counts", "names")

    def __init__(self, names: NDArray[Any], counts: NDArray[np.int32]):
        self.names, self.counts = names, counts

    def _dict(self) -> dict[str, int]:
        return dict(zip(map(str, self.names.tolist()), self.counts.tolist(), strict=True))

    def __getitem__(self, name: str) -> int:
        return self._dict()[name]

    def __iter__(self) -> Iterator[str]:
        return map(str, self.names.tolist())

    def __len__(self) -> int:
        return len(self.counts)

    def items(self) -> ItemsView[str, int]:
        """Requests and tokens."""
        return self._dict().items()

    def keys(self) -> KeysView[str]:
        """Requests."""
        return self._dict().keys()

    def values(self) -> ValuesView[int]:
        """Tokens."""
        return self._dict().values()

    def __repr__(self) -> str:
        return repr(self._dict())
