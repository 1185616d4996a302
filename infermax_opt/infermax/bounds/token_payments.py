"""What tokens pay at least that have to wait, or to share a chunk, or to lie beyond a knee.

A group of n tokens is processed in chunks.  The c-th token of a chunk after which, or before which, r other
batches pass pays ``wait`` r + ``square`` (c-1); a chunk has at most ``width`` tokens that pay so, and any
token may pay ``dear`` instead.  No two tokens pay the same one of these numbers, so that the group pays at
least the sum of the n least ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heappop, heappush, heapreplace

from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.data.instance import Instance

__all__ = ["chunk_payments", "least_payments", "prompt_lengths"]

#: Tokens of a group up to which what they pay is listed, where all of a chunk pay the same, and where not;
#: those beyond pay no less than the next one.
LISTED, SQUARE_LISTED = 2**20, 2**17


def prompt_lengths(instance: Instance) -> Counter[int]:
    """Requests by their prompt tokens."""
    found = Counter[int]()
    for kind in instance.types:
        found[kind.input_tokens] += len(kind.members)
    return found


def chunk_payments(
    instance: Instance,
    lengths: Mapping[int, int],
    wait: Fraction,
    knee: int | None = None,
    dear: Fraction | None = None,
) -> Fraction:
    """Ticks that prompts pay at least while they are in chunks, for attention and where they wait.

    Parameters
    ----------
    instance : Instance
    lengths : mapping of int to int
        Requests by their prompt tokens.
    wait : Fraction
        Of a token for each chunk that comes behind it.
    knee : int, optional
        Tokens of a chunk beyond which each one is dear.
    dear : Fraction, optional
    """
    if wait == 0:
        return Fraction(0)
    budget = instance.system.prefill_budget
    square = Fraction(2 * instance.cost.ticks.p1 if spreads(instance) else 0)
    return least_payments(lengths, wait, square, budget if knee is None else min(budget, knee), dear)


def least_payments(
    groups: Mapping[int, int], wait: Fraction, square: Fraction, width: int, dear: Fraction | None
) -> Fraction:
    """Least sum of what the tokens of some groups pay.

    Parameters
    ----------
    groups : mapping of int to int
        Number of groups of each number of tokens.
    wait, square : Fraction
        The first one is above 0.
    width : int
    dear : Fraction or None
        None where a chunk cannot have more tokens.
    """
    unit = math.lcm(wait.denominator, square.denominator, 1 if dear is None else dear.denominator)
    rest = None if dear is None else int(dear * unit)
    found = _least_sums(sorted(groups), int(wait * unit), int(square * unit), width, rest)
    return Fraction(sum(groups[tokens] * paid for tokens, paid in found), unit)


def _least_sums(
    numbers: Sequence[int], wait: int, square: int, width: int, dear: int | None
) -> Iterator[tuple[int, int]]:
    """Each of some numbers, rising, and the sum of so many least ones.

    Parameters
    ----------
    numbers : sequence of int
    wait, square, width, dear : int
        As above, in whole units.
    """
    # For each chunk that has tokens, and the next one: what its next token pays, r, and its tokens.
    chunks = [(0, 0, 0)]
    each = width if square == 0 else 1
    taken = paid = 0
    for number in numbers:
        listed = min(number, SQUARE_LISTED if square else LISTED)
        while taken < listed and (dear is None or chunks[0][0] < dear):
            cost, r, tokens = chunks[0]
            if tokens == 0:
                heappush(chunks, (wait * (r + 1), r + 1, 0))
            some = min(each, width - tokens, listed - taken)
            taken, paid, tokens = taken + some, paid + some * cost, tokens + some
            if tokens < width:
                heapreplace(chunks, (wait * r + square * tokens, r, tokens))
            else:
                heappop(chunks)
        cost = chunks[0][0]
        yield number, paid + (number - taken) * (cost if dear is None else min(cost, dear))
