"""Proof: a rank of the TTFT, by how many prompts can be on time on one machine that serves as they arrive."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR, Piece

#: Steps of checking an entry of the table, and those besides of a request, of a kind, and of a prompt length.
ENTRY_STEPS, JOB_STEPS, KIND_STEPS, PROMPT_STEPS = 12, 30, 100, 250


def on_time(percent: int) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof that a rank of the TTFT is above a limit: more requests are late than may be.

    See `infermax_opt.infermax.bounds.on_time`.

    Parameters
    ----------
    percent : int
        Of the rank; 100 is the largest.
    """

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """The limit, for it is below the rank."""
        limit, count = evidence["limit"].number(), sum(instance.kinds.values())
        require(limit >= 0, "limit: is below 0")
        allowed = count - -(-percent * count // 100)
        require(late_ones(instance, limit, allowed, piece) > allowed, "no more requests are late than may be")
        return limit

    return prove


def late_ones(instance: Instance, limit: Fraction, allowed: int, piece: Piece) -> int:
    """Requests that are late at least, counted up to one more than may be.

    Parameters
    ----------
    instance : Instance
    limit : Fraction
        Of the TTFT, in seconds.
    allowed : int
        Requests that may be late.
    piece : Piece
        Affine piece of the batch time.
    """
    instance.work.spend(KIND_STEPS * len(instance.kinds))
    dates = {at: math.floor(at * instance.scale) for _, _, at in instance.kinds}
    window = max(math.ceil((at + limit) * instance.scale) - date for at, date in dates.items())
    prompts = {i for i, _, _ in instance.kinds}
    instance.work.spend(PROMPT_STEPS * len(prompts))
    lengths = {i: paid(instance, i, window, piece) for i in prompts}
    fewest, ends = 0, list[Any]([0])  # least end of all in time if fewest, fewest + 1, ... are late
    for (i, _, at), count in sorted(instance.kinds.items(), key=lambda kind: kind[0][2]):
        length = lengths[i]
        for _ in range(count):
            instance.work.spend(JOB_STEPS + ENTRY_STEPS * len(ends))
            ends = with_one_more(ends, dates[at], FAR if length is None else length, dates[at] + window)
            late = ends.index(next(end for end in ends if end < FAR))
            fewest += late
            if fewest > allowed:
                return fewest
            ends = ends[late : late + allowed - fewest + 1]
    return fewest


def with_one_more(ends: list[Any], begin: int, length: Any, due: int) -> list[Any]:
    """Least ends by how many are late, from as many on; the new one is late, or served last and in time.

    Parameters
    ----------
    ends : list
        Before it.
    begin, length, due : int
        Of the new one.
    """
    while len(ends) > 1 and ends[-2] <= begin:  # no more need be late for the same end
        ends = ends[:-1]
    begun = [max(end, begin) for end in ends]
    served = [end + length if end + length <= due else FAR for end in begun]
    return [min(pair) for pair in zip([FAR, *begun], [*served, FAR], strict=True)]


def paid(instance: Instance, prompt: int, window: int, piece: Piece) -> int | None:
    """What a prompt on time pays at least, in ticks; None if it never is.

    Parameters
    ----------
    instance : Instance
    prompt : int
        Tokens.
    window : int
        Ticks until its first token, at most.
    piece : Piece
        Affine piece of the batch time.
    """
    linear, square, start = piece.beta * prompt, instance.p1 * prompt**2, piece.alpha + instance.p0
    if linear == square == 0:
        return 0
    few, found = -(-prompt // instance.budget), list[int]()
    best = around(linear, square, start, window) if start else (prompt, prompt)
    for chunks in best if instance.spread else [few]:
        q = max(few, min(chunks, prompt)) if instance.spread else few
        room = window - q * start
        work = Fraction(linear) + Fraction(square, q if instance.spread else 1)
        if room < work:  # not in time even alone
            continue
        if not instance.spread:
            found.append(math.floor(work * (1 + Fraction(start, room))))
        elif square * room >= linear * start * q * q:
            found.append(math.floor(work * window / room))
        else:
            twice = math.isqrt(4 * linear * square * start * room)
            found.append(linear + (square * start + twice) // room)
    return min(found, default=None)


def around(linear: int, square: int, start: int, window: int) -> tuple[int, int]:
    """Whole numbers of chunks on either side of the best one: where the payment in equal chunks is least.

    Parameters
    ----------
    linear, square, start, window : int
        Ticks of a prompt by tokens and by attention, of a batch before its work, and until the first token.
    """
    if linear == 0:
        low = window // (2 * start)
    else:
        half = start * square
        low = (math.isqrt(half * half + half * linear * window) - half) // (start * linear)
    return low, low + 1
