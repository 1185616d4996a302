"""Tool of the proof by occupancy: what it costs to leave memory where pairs of active requests have a price.

See `infermax_opt.infermax.bounds.occupancy`, *Pairs*.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.pieces import FAR
from infermax_opt.infermax.checker.steps import Step, push, reach


class Others(NamedTuple):
    """Who remains active where one request leaves.

    `pairs`: the price of a pair; `number`: of those that remain, at most; `floor`: their prompts, at least;
    `shortest`: the least prompt of all; `by_size`: evictions are paid back by their size alone.
    """

    pairs: int
    number: int
    floor: int
    shortest: int
    by_size: bool

    def paid_back(self, tokens: int, size: int) -> int:
        """Most that is paid back where one of some size leaves others that have so many tokens."""
        return self.pairs * min(tokens - self.floor, self.number * (size - self.shortest))


class Pairs(NamedTuple):
    """The price of pairs of active requests, for each token of the one with fewer tokens.

    `shortest`, `largest`: prompts; `outputs`: most tokens that a request makes.
    """

    price: int
    shortest: int
    largest: int
    outputs: int

    def all(self, k: int) -> int:
        """What all pairs of k requests cost for one token of each."""
        return self.price * (k * (k - 1) // 2)

    def least(self, k: int, tokens: int, batches: int, several: bool) -> int:
        """What all pairs of k requests cost at least, or of more of them, that have so many tokens.

        Parameters
        ----------
        k, tokens : int
        batches : int
            Since the first token that was looked at.
        several : bool
            Whether there may be more than k.
        """
        most, made = min(batches, self.outputs) - 1, max(0, tokens - k * self.largest - k)
        if several or most <= 0:
            return self.all(k)
        # Who has more tokens than one has all that there may be, as far as they go.
        full, rest = divmod(made, most)
        return self.all(k) + most * self.all(full) + self.price * rest * full

    def others(self, number: int, most: int, by_size: bool) -> Others:
        """Those who remain where one leaves.

        Parameters
        ----------
        number : int
            Of their list.
        most : int
            How many they may be.
        by_size : bool
            Whether evictions are paid back by their size alone.
        """
        return Others(self.price, most, number * self.shortest, self.shortest, by_size)


def leave(
    source: list[Any], held: tuple[int, int], span: tuple[int, int], step: Step, others: Others, work: Work
) -> list[Any]:
    """Least costs after one of the active requests left, by the tokens of those that remain.

    Parameters
    ----------
    source : list
        Costs before, by tokens.
    held : (int, int)
        Tokens of the first and the last of these.
    span : (int, int)
        Tokens of the first and the last cost that is wanted.
    step : Step
        Least and largest size of who leaves, and what that costs.
    others : Others
    work : Work
        Counts the steps.
    """
    low, high, fixed, slope = step
    pairs, number, floor, least, by_size = others
    each = pairs * number
    if low == high or each == 0 or by_size:
        if low < high:
            step = low, high, fixed + each * least, slope - each
        found = reach(source[::-1], (-held[1], -held[0]), (-span[1], -span[0]), step, work)[::-1]
        if low < high or pairs == 0:
            return found
        return [value - others.paid_back(u, low) for u, value in enumerate(found, span[0])]

    def turn(u: int) -> int:
        """The largest size up to which the product is the smaller one."""
        return least + (u - floor) // number

    small = lowest(source, held, span, (lambda u: (low, min(high, turn(u))), slope - each), work)
    large = lowest(source, held, span, (lambda u: (max(low, turn(u) + 1), high), slope), work)
    return [
        min(some + each * least, more - pairs * (u - floor)) + fixed
        for u, (some, more) in enumerate(zip(small, large, strict=True), span[0])
    ]


def lowest(
    source: list[Any],
    held: tuple[int, int],
    span: tuple[int, int],
    windows: tuple[Callable[[int], tuple[int, int]], int],
    work: Work,
) -> list[Any]:
    """Least source[u + s] + slope * s over a window of s for each u of the span, or FAR.

    Parameters
    ----------
    source : list
    held : (int, int)
        Tokens of its first and last value.
    span : (int, int)
        The first and the last u.
    windows : (callable, int)
        The least and the largest s for a u, neither of which falls by more than 1 from a u to the next; and
        the slope.
    work : Work
        Counts the steps.
    """
    (begin, end), (window, slope), queue = held, windows, deque[tuple[Any, int]]()
    work.spend(20 + 8 * (end - begin + span[1] - span[0] + 2))
    found, fed = [], end
    for u in range(span[1], span[0] - 1, -1):
        low, high = window(u)
        while fed >= max(begin, u + low):
            push(queue, source[fed - begin] + slope * fed, fed)
            fed -= 1
        while queue and queue[0][1] > u + high:
            queue.popleft()
        found.append(queue[0][0] - slope * u if queue else FAR)
    return found[::-1]
