"""Where a request was restarted, read off the tokens that its batches processed.

A file of batches has no event for it.  A prompt or a refill is processed in chunks that add up to what is
needed for the next token.  Chunks that add up to more were begun anew somewhere.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Chunks", "Processed", "chunks_of", "refill_of"]

#: Most first chunks of one token that a refill is thought to have: these look like decode steps.
MOST_SINGLE = 4


class Chunks(NamedTuple):
    """The chunks of a prompt or a refill.

    Attributes
    ----------
    end : int
        Position of the last one; the number of counts where they end before it is whole.
    restarts : list of int
        Positions from which it was begun anew.
    """

    end: int
    restarts: list[int]


class Processed(NamedTuple):
    """What a request processed.

    Attributes
    ----------
    places : list of int
        Its batches.
    counts : list of int
        Its tokens in each.
    """

    places: list[int]
    counts: list[int]

    def pauses(self, t: int) -> bool:
        """Whether there is a batch without it before the one at position `t`: one that can evict it."""
        return self.places[t - 1] + 1 < self.places[t]


def chunks_of(of: Processed, begin: int, needed: int) -> Chunks | None:
    """Follow a prompt or a refill; None where no restart explains its chunks.

    Parameters
    ----------
    of : Processed
    begin : int
        Position of its first chunk.
    needed : int
        Tokens that it has when it is whole.

    Notes
    -----
    As few restarts as can be: none where the chunks add up.  Else the last restart is before the first
    stretch of chunks that adds up, and there is one wherever the chunks before it would be more than is
    needed: at the latest pause, or where there is none, at the chunk that is too much.
    """
    counts = of.counts
    total, over = 0, None
    for t in range(begin, len(counts)):
        total += counts[t]
        if total == needed:
            return Chunks(t, [])
        if total > needed:
            over = t
            break
    if over is None:
        return Chunks(len(counts), [])
    if counts[over] > needed:
        return None
    first, end = begin, over
    while True:
        while total > needed:
            total -= counts[first]
            first += 1
        if total == needed:
            break
        end += 1
        if end == len(counts) or counts[end] > needed:
            return None
        total += counts[end]
    return Chunks(end, [*_earlier(of, begin, first, needed), first])


def _earlier(of: Processed, begin: int, first: int, needed: int) -> list[int]:
    """Restarts of the chunks before the last restart, which is at position `first`."""
    restarts: list[int] = []
    total, pause = 0, None
    since_pause = 0
    for t in range(begin, first):
        if t > begin and of.pauses(t):
            pause, since_pause = t, 0
        total += of.counts[t]
        since_pause += of.counts[t]
        if total > needed:
            at_pause = pause is not None and since_pause <= needed
            restarts.append(pause if at_pause and pause is not None else t)
            total = since_pause if at_pause else of.counts[t]
            pause = None
    return restarts


def refill_of(of: Processed, k: int, needed: int, earliest: int) -> tuple[int, Chunks] | None:
    """Where a refill begins that a request shows at position `k`, and its chunks.

    It shows by processing several tokens.  A first chunk of one token looks like a decode step.  So the
    single tokens before are tried as chunks, too; each is a token less to refill.  The first choice is one
    without another restart, that begins after a pause.

    Parameters
    ----------
    of : Processed
    k : int
    needed : int
        Tokens to refill if those before `k` were decode steps.
    earliest : int
        Position before which it does not begin.
    """
    best: tuple[tuple[bool, bool, int], Chunks] | None = None
    for back in range(min(MOST_SINGLE, k - earliest) + 1):
        found = chunks_of(of, k - back, needed - back)
        if found is not None and (not back or found.end < len(of.counts)):
            rank = (bool(found.restarts), not of.pauses(k - back), back)
            if best is None or rank < best[0]:
                best = rank, found
            if not any(rank[:2]):
                break
    return None if best is None else (k - best[0][2], best[1])
