"""Restarts are read off the chunks of a request."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from infermax_opt.foreign.restarts import Chunks, Processed, chunks_of, refill_of


def chunks(counts: list[int], needed: int, places: list[int] | None = None) -> Chunks | None:
    return chunks_of(Processed(places or list(range(len(counts))), counts), 0, needed)


@pytest.mark.parametrize(
    ("counts", "needed", "end", "restarts"),
    [
        ([5], 5, 0, []),
        ([3, 2, 1, 1], 5, 1, []),
        ([3, 5, 1], 5, 1, [1]),
        ([3, 4, 1, 1], 5, 2, [1]),
        ([4, 4, 4, 1], 5, 3, [1, 2]),
        ([3, 1], 5, 2, []),
    ],
)
def test_examples(counts: list[int], needed: int, end: int, restarts: list[int]) -> None:
    assert chunks(counts, needed) == (end, restarts)


def test_no_restart_explains_more_than_is_needed() -> None:
    assert chunks([7], 5) is None
    assert chunks([3, 4], 5) is None


def test_chunks_between_restarts_are_never_more_than_needed() -> None:
    rng = random.Random(1)
    explained = 0
    for _ in range(2000):
        needed = rng.randint(1, 12)
        counts = [rng.randint(1, 6) for _ in range(rng.randint(1, 8))]
        found = chunks(counts, needed)
        if found is None or found.end == len(counts):
            continue
        explained += 1
        cuts = [0, *found.restarts, found.end + 1]
        sums = [sum(counts[a:b]) for a, b in pairwise(cuts)]
        assert max(sums) <= needed
        assert sums[-1] == needed
    assert explained > 500


def test_many_equal_chunks_take_no_time() -> None:
    assert chunks([2] * 200_000, 200_001) is None


def test_restarts_are_at_pauses_where_there_are_some() -> None:
    assert chunks([20, 4, 25, 26, 11], 37, [63, 101, 102, 116, 117]) == (4, [1, 3])
    assert chunks([20, 4, 25, 26, 11], 37) == (4, [2, 3])


def test_a_first_chunk_of_one_token_is_no_decode_step() -> None:
    counts = [25, 22, 1, 1, 26, 22, 1, 1, 1]
    paused = Processed([58, 59, 60, 99, 100, 101, 102, 103, 104], counts)
    assert refill_of(paused, 4, 47 + 3, 2) == (3, Chunks(5, []))
    # Where the pause is behind it, it is one.
    paused = Processed([58, 59, 60, 61, 100, 101, 102, 103, 104], counts)
    assert refill_of(paused, 4, 47 + 3, 2) == (4, Chunks(7, []))
