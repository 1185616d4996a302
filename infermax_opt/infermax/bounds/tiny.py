"""Instances that are bounded sooner than the kernels for it are compiled."""

from __future__ import annotations

import functools
import math

from infermax_opt.core.compiled import in_rehearsal

__all__ = ["MOST_SIZES", "is_tiny"]

#: Output tokens of all requests together.
MOST_TOKENS = 64
#: Ways in which requests can have had so many tokens each, those of one kind taken together.
MOST_STATES = 5_000
#: Numbers of KV tokens, times rows, that a graph of occupancies tells apart: each is looked at many times.
MOST_SIZES = 20_000


def is_tiny(kinds: tuple[tuple[int, int, int], ...]) -> bool:
    """Whether plain Python lists all states and paths of these requests within about a second.

    Parameters
    ----------
    kinds : tuple of (input tokens, output tokens, requests)
    """
    return not in_rehearsal() and _is_tiny(kinds)


@functools.lru_cache(maxsize=64)
def _is_tiny(kinds: tuple[tuple[int, int, int], ...]) -> bool:
    if sum(tokens * count for _, tokens, count in kinds) > MOST_TOKENS:
        return False
    return math.prod(math.comb(tokens + 1 + count, count) for _, tokens, count in kinds) <= MOST_STATES
