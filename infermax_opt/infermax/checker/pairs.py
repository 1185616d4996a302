"""Tool of the proof by pairs: what two requests that meet are paid at least."""

from __future__ import annotations

import math
from typing import NamedTuple

from infermax_opt.infermax.checker.guests import Guest

#: Bits of the shares of a batch's fixed part.
PAIR_BITS = 16
#: Bits after the point of f.
FACTOR_BITS = 12
#: How many chunks more than the fewest, each up to the next: those between are not told apart.
CHUNKINGS = (0, 1, 2, 4, 8, 16)


class Visitor(NamedTuple):
    """A request that comes at some time: its guest, later tokens, work of the first, whether it is paired."""

    guest: Guest
    outputs: int
    work: int
    paired: bool


class Paid(NamedTuple):
    """What a pair is paid for tokens; what a chunk of the late and of the early one takes from that.

    Work and tokens left to the early one, what the late one pays for each; the prompt left to the early one,
    and what that pays for the tokens of the late one if this leaves before that prompt is done.
    """

    tokens: int
    term: int
    delay: int
    outlived: int
    left: int
    waits: int
    prompt: int
    overtaken: int


def pair_paid(early: Visitor, late: Visitor, shares: tuple[int, int], ticks: tuple[int, int, int]) -> Paid:
    """What a pair of requests is paid at least.

    Parameters
    ----------
    early, late : Visitor
    shares : (int, int)
        What the late one pays for a batch in which the early one decodes and it waits, and the reverse; in
        units of 2**-FACTOR_BITS ticks.
    ticks : (int, int, int)
        Fixed part of a batch that decodes, what a token works more than the one before, and fixed part of a
        batch that prefills.
    """
    step, growth, fixed = ticks
    time = late.guest.until - early.guest.begin
    pending = time < early.guest.lone - early.guest.later
    begun = most_begun(early, time, step, growth)
    left = early.outputs - begun if early.paired else 0
    if left <= 0 and not pending:
        return Paid(0, 0, 0, 0, 0, 0, 0, 0)

    def work(of: Visitor, since: int, count: int) -> int:
        """Work of so many tokens after the first `since`."""
        return count * of.work + growth * (count * (2 * since + count - 1) // 2)

    def share(first: int, last: int, waits: int) -> int:
        """The greatest f with f last <= waits + (1 - f) first."""
        free = last << FACTOR_BITS <= waits
        return 1 << FACTOR_BITS if free else (waits + (first << FACTOR_BITS)) // (last + first)

    lasts = early.work + growth * (early.outputs - 1), late.work + growth * (late.outputs - 1)
    factor = 0
    if left and late.paired and late.outputs:
        factor = min(share(early.work, lasts[1], shares[0]), share(late.work, lasts[0], shares[1]))
    few, most = min(left, late.outputs), min(early.outputs, late.outputs)
    least = min(work(early, begun, few) + work(late, 0, few), work(early, 0, most) + work(late, 0, most))
    tokens, term, outlived = factor * least, factor * sum(lasts), work(early, begun, left) << FACTOR_BITS
    if not pending:
        return Paid(tokens, term, term, outlived, left, shares[0], 0, tokens)
    linear, overtaken = early.guest.linear, 0
    prompt = (linear * max(0, fixed + linear - time) << FACTOR_BITS) // max(1, fixed + linear)
    if late.paired:
        overtaken = (work(late, 0, late.outputs) << FACTOR_BITS) + late.outputs * shares[1]
    return Paid(tokens, term, max(term, shares[1]), outlived, left, shares[0], prompt, overtaken)


def most_begun(early: Visitor, time: int, step: int, growth: int) -> int:
    """Most later tokens whose making has begun after so much time.

    Parameters
    ----------
    early : Visitor
    time, step, growth : int
        As for `pair_paid`.
    """
    rest = time - (early.guest.lone - early.guest.later)
    if rest <= 0:
        return 0
    # Those that take less than `rest` in all, and one more.
    linear, twice = 2 * (step + early.work) - growth, 2 * (rest - 1)
    x = twice // linear
    if growth:
        x = (math.isqrt(linear * linear + 4 * growth * twice) - linear) // (2 * growth)
    return min(early.outputs, x + 1)


def least_chunked(some: Guest, paid: list[Paid], chunk: tuple[int, int], fixed: int) -> int:
    """Least that a request pays for its prompt, and that is paid to its pairs with earlier ones.

    Parameters
    ----------
    some : Guest
    paid : list of Paid
    chunk : (int, int)
        What each chunk of it costs its pairs at most, and what it pays besides its shares when it waits.
    fixed : int
        Ticks of each chunk.
    """
    (term, spare), least = chunk, []
    paid = sorted(paid, key=lambda one: one.left)
    for more, beyond in zip(CHUNKINGS, (*CHUNKINGS[1:], 0), strict=True):
        work = some.linear + (some.square // (some.chunks + beyond - 1) if beyond else 0)
        values = []
        for own in {some.chunks, some.chunks + more}:
            pairs = least_waiting(paid, work << FACTOR_BITS, own, spare)
            values.append((own * fixed + work << FACTOR_BITS) - own * term + pairs)
        least.append(max(values))
        if not some.square:
            break
    return min(least)


def least_waiting(paid: list[Paid], prompt: int, chunks: int, spare: int) -> int:
    """What the pairs of a late one are paid at least, however long it waits before its prompt.

    Parameters
    ----------
    paid : list of Paid
        By tokens left to the early one.
    prompt, chunks : int
        Work of the prompt of the late one, and its chunks.
    spare : int
        What it pays besides its shares for each batch in which it waits.
    """
    total = dropped = most = 0
    for one in paid:
        stays = min(one.prompt + prompt + one.tokens, prompt + one.overtaken)
        waited, total = max(0, one.left - chunks + 1), total + stays
        dropped += max(0, stays - one.prompt - one.outlived - waited * one.waits)
        most = max(most, dropped - waited * spare)
    return total - most
