"""What requests waste between releases of KV at least, if their tokens are parted into runs.

See *Rest* and *Long runs* in `infermax_opt.infermax.bounds.beginning`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import isqrt
from operator import add

from infermax_opt.infermax.bounds.releases import SCALE

__all__ = ["rests", "run_steps"]


def rests(sizes: Sequence[tuple[int, int]], capacity: int, price: int, worth: int | None) -> list[list[int]]:
    """What a request of each size still counts once it has made 0, 1, ... of its tokens, in parts of `SCALE`.

    Parameters
    ----------
    sizes : sequence of (input tokens, output tokens)
    capacity : int
        M, in tokens.
    price : int
        lambda, in parts of `SCALE`.
    worth : int or None
        V, likewise; None without evictions.
    """
    horizon = None if worth is None else (worth - price) // SCALE
    wasted = {end: _parted(begin, end, price, horizon) for end, begin in _ends(sizes).items()}
    found = []
    for i, o in sizes:
        held = list(accumulate(range(i + o - 1, i - 1, -1)))
        counted = map(add, (SCALE * kv for kv in held), wasted[i + o][1 : o + 1])
        found.append([*reversed([part - price * capacity for part in counted]), 0])
    return found


def run_steps(sizes: Iterable[tuple[int, int]], price: int) -> int:
    """Steps that this takes, about.

    Parameters
    ----------
    sizes : iterable of (input tokens, output tokens)
    price : int
    """
    return sum((end - begin) * (10 + _longest(price, end)) for end, begin in _ends(sizes).items())


def _ends(sizes: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The least size with which requests begin that end with each size."""
    least: dict[int, int] = {}
    for i, o in sizes:
        least[i + o] = min(i, least.get(i + o, i))
    return least


def _longest(price: int, top: int) -> int:
    """Tokens of a run that is worth while, at most, where they all waste more than those before."""
    return isqrt(4 * price * top // SCALE) + 3


def _parted(begin: int, end: int, price: int, horizon: int | None) -> list[int]:
    """The least waste of the last 0, 1, ... tokens of a request that ends with some size, down to `begin`."""
    most, beyond = _longest(price, end), None
    if horizon is not None and horizon <= most:  # runs may go on, each token at the waste of the one before
        most, beyond = max(1, horizon), horizon
    # Of runs of 1, 2, ... tokens: waste, and price of the last one's size beyond that of the first one.
    runs = [SCALE * waste + price * p for p, waste in enumerate(accumulate(range(most)))]
    least, going = [0], [price * (end - 1)]
    for j in range(1, end - begin + 1):
        size = end - j
        best = price * size + min(map(add, runs, least[: -most - 1 : -1]))
        if beyond is not None and j >= most:
            best = min(best, runs[-1] - price * (most - 1) + going[j - most])
        least.append(best)
        if beyond is not None:
            going.append(min(price * (size - 1) + best, SCALE * beyond + going[-1]))
    return least
