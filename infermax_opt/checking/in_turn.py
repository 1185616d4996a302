"""Prompts in turn: what each pays at least, and how many are late if they are served as they arrive.

The proof stands in `infermax_opt.infermax.bounds.on_time`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.checking.work import Work

#: Steps of checking an entry of the table, and those besides of a prompt in turn, and of what one pays.
ENTRY_STEPS, JOB_STEPS, PROMPT_STEPS = 12, 30, 250
#: Of a job that is never in time.
NO_END = math.inf


class PromptCosts(NamedTuple):
    """What a batch of one affine piece costs before its work, a token, and a pair of tokens in attention.

    In ticks.  `budget`: most prompt tokens of a batch; `spread`: chunks save attention work.
    """

    start: int
    token: int
    pair: int
    budget: int
    spread: bool


def least_paid_in_turn(costs: PromptCosts, prompt: int, window: int) -> int | None:
    """What a prompt on time pays at least, in ticks; None if it never is.

    Parameters
    ----------
    costs : PromptCosts
    prompt : int
        Tokens.
    window : int
        Ticks until its first token, at most.
    """
    linear, square, start = costs.token * prompt, costs.pair * prompt**2, costs.start
    if linear == square == 0:
        return 0
    few, found = -(-prompt // costs.budget), list[int]()
    best = _around(linear, square, start, window) if start else (prompt, prompt)
    for chunks in best if costs.spread else [few]:
        q = max(few, min(chunks, prompt)) if costs.spread else few
        room = window - q * start
        work = Fraction(linear) + Fraction(square, q if costs.spread else 1)
        if room < work:  # not in time even alone
            continue
        if not costs.spread:
            found.append(math.floor(work * (1 + Fraction(start, room))))
        elif square * room >= linear * start * q * q:
            found.append(math.floor(work * window / room))
        else:
            twice = math.isqrt(4 * linear * square * start * room)
            found.append(linear + (square * start + twice) // room)
    return min(found, default=None)


def _around(linear: int, square: int, start: int, window: int) -> tuple[int, int]:
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


def fewest_late(jobs: Iterable[tuple[int, int | None]], window: int, allowed: int, work: Work) -> int:
    """Jobs that are late at least, counted up to one more than may be.

    Parameters
    ----------
    jobs : iterable of (int, int or None)
        Arrival and length, by arrival; no length: always late.
    window : int
        From the arrival of each to the latest end in time.
    allowed : int
        Jobs that may be late.
    work : Work
    """
    fewest, ends = 0, list[Any]([0])  # least end of all in time if fewest, fewest + 1, ... are late
    for begin, length in jobs:
        work.spend(JOB_STEPS + ENTRY_STEPS * len(ends))
        ends = _with_one_more(ends, begin, NO_END if length is None else length, begin + window)
        late = ends.index(next(end for end in ends if end < NO_END))
        fewest += late
        if fewest > allowed:
            return fewest
        ends = ends[late : late + allowed - fewest + 1]
    return fewest


def _with_one_more(ends: list[Any], begin: int, length: Any, due: int) -> list[Any]:
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
    served = [end + length if end + length <= due else NO_END for end in begun]
    return [min(pair) for pair in zip([NO_END, *begun], [*served, NO_END], strict=True)]
