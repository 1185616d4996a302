"""Tool of the proof by attainment: the cheapest way to keep limits under prices of time."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.keepers import Keeper, least_sum
from infermax_opt.infermax.checker.pieces import Piece

#: Bits after the point of shares.
SHARE_BITS = 24
#: Steps of checking a cell in a group of tokens.
PRICED_STEPS = 80


class Priced(NamedTuple):
    """Cells of time: ends, prices of a tick, and shares of alpha for KV, tokens and requests in each."""

    ends: list[int]
    prices: list[int]
    scarce: list[tuple[int, int, int]]


def stretches(instance: Instance, cells: Priced, begin: int, end: Any) -> list[tuple[int, int]] | None:
    """Cells that overlap a stretch of time, with the ticks in it; None if it goes on after the last cell.

    Parameters
    ----------
    instance : Instance
    cells : Priced
    begin, end : int
        Ticks; no end is None.
    """
    last = cells.ends[-1] if cells.ends else 0
    if end is None or (begin < end and end > last):
        return None
    found, k = [], bisect_right(cells.ends, begin)
    while begin < end:
        instance.work.spend(PRICED_STEPS)
        until = min(end, cells.ends[k])
        found.append((k, until - begin))
        begin, k = until, k + 1
    return found


def cheapest_way(
    instance: Instance, kept: Keeper, cells: Priced, own: tuple[int, list[int]], groups: int, piece: Piece
) -> int | None:
    """Least that a request pays that keeps its limits, in small units; None if it has no time for that.

    Parameters
    ----------
    instance : Instance
    kept : Keeper
    cells : Priced
    own : tuple
        Its shares: the first cell, and shares from there on.
    groups : int
        Groups of later tokens, at most.
    piece : Piece
        Affine piece of the batch time.
    """
    total = prompt_paid(instance, kept, cells, piece)
    if kept.later == 0 or kept.due is None or kept.least == 0:
        return total
    width = -(-kept.later // groups)
    for before in range(0, kept.later, width):
        tokens = min(width, kept.later - before)
        begin = kept.ready + before * kept.least
        over = stretches(instance, cells, begin, kept.due - (kept.later - before - tokens) * kept.least)
        if over is not None:
            low = kept.prompt + 1 + before
            paid = group_paid(instance, kept, (low, tokens), over, cells, own, piece)
            if paid is None:
                return None
            total += paid
    return total


def prompt_paid(instance: Instance, kept: Keeper, cells: Priced, piece: Piece) -> int:
    """Least that the prompt pays, in small units.

    Parameters
    ----------
    instance : Instance
    kept : Keeper
    cells : Priced
    piece : Piece
        Affine piece of the batch time.
    """
    over = stretches(instance, cells, kept.begin, kept.until)
    if not over:
        return 0
    found = []
    for cell, _ in over:
        kv, tokens, requests = cells.scarce[cell]
        work = (kept.whole << SHARE_BITS) // instance.budget
        work += piece.alpha * kv * kept.prompt // instance.capacity
        work += piece.alpha * tokens * kept.prompt // instance.batch_tokens
        work += piece.alpha * requests // (instance.running or 1)
        found.append(cells.prices[cell] * work)
    return min(found) + (min(cells.prices[cell] for cell, _ in over) * kept.telescoped << SHARE_BITS)


def group_paid(
    instance: Instance,
    kept: Keeper,
    some: tuple[int, int],
    over: list[tuple[int, int]],
    cells: Priced,
    own: tuple[int, list[int]],
    piece: Piece,
) -> int | None:
    """Least that a group of later tokens pays, in small units; None if it has no time.

    Parameters
    ----------
    instance : Instance
    kept : Keeper
    some : tuple
        Tokens cached after the first of the group, and tokens of the group.
    over : list
        Cells and ticks in which they are made.
    cells : Priced
    own : tuple
        Shares of the request: the first cell, and shares from there on.
    piece : Piece
        Affine piece of the batch time.
    """
    (low, tokens), (first, shares) = some, own
    step, found = least_sum(kept.works, low, low), []
    for cell, ticks in over:
        kv, each, requests = cells.scarce[cell]
        share = shares[cell - first] if 0 <= cell - first < len(shares) else 0
        work = (step << SHARE_BITS) + kept.fixed * share
        work += piece.alpha * kv * low // instance.capacity
        work += piece.alpha * each // instance.batch_tokens
        work += piece.alpha * requests // (instance.running or 1)
        found.append((cells.prices[cell] * work, ticks))
    paid, left = 0, tokens * kept.least
    for price, ticks in sorted(found):
        paid += price * min(left, ticks)
        left -= min(left, ticks)
    if left or not over:
        return None
    beyond = least_sum(kept.works, low, low + tokens - 1) - tokens * step
    held = min(cells.prices[cell] * cells.scarce[cell][0] for cell, _ in over)
    more = piece.alpha * held * (tokens * (tokens - 1) // 2) // instance.capacity
    return paid // kept.least + (min(cells.prices[cell] for cell, _ in over) * beyond << SHARE_BITS) + more
