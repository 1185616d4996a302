"""Tool of the proof by occupancy: steps of so many tokens, and where they lead at least cost."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import Any

from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.pieces import FAR

#: Fewest and most tokens that a step adds, and its cost: fixed, and for each of these tokens.
Step = tuple[int, int, int, int]


def push(queue: deque[tuple[Any, int]], key: Any, position: int) -> None:
    """Add a value to those of a window that no later one undercuts, so that the first is the least.

    Parameters
    ----------
    queue : deque[tuple[Any, int]]
        Candidates, best first.
    key : Any
        Value of the new candidate.
    position : int
        Where it stands.
    """
    while queue and queue[-1][0] >= key:
        queue.pop()
    queue.append((key, position))


def reach(
    source: list[Any], held: tuple[int, int], span: tuple[int, int], step: Step, work: Work
) -> list[Any]:
    """Least source[u - s] + cost of s over the tokens s of a step, for each u of the span, or FAR.

    Parameters
    ----------
    source : list[Any]
        Values to take the least of.
    held : tuple[int, int]
        Tokens of the first and the last value of the source.
    span : tuple[int, int]
        The first and the last u that are wanted.
    step : Step
        Fewest and most tokens of the step, its fixed cost, and that of each token.
    work : Work
        Counts the steps.
    """
    (start, end), (first, last), (low, high, fixed, slope) = held, span, step
    begin, stop = max(first, start + low), min(last, end + high)
    work.spend(20 + (len(source) + last - first) * (1 if low == high else 5))
    found: list[Any] = [FAR] * (last - first + 1)
    if begin > stop:
        return found
    if low == high:
        moved = source[max(0, begin - low - start) : max(0, stop - low - start + 1)]
        found[begin - first : begin - first + len(moved)] = [value + fixed + slope * low for value in moved]
        return found
    # Windows of `size` values: each is the end of a block of so many, and the beginning of the next one.
    size, before, after = high - low + 1, begin - high, stop - low
    values = zip(range(max(start, before), end + 1), source[max(0, before - start) :], strict=False)
    keys = [FAR] * (start - before) + [value - slope * u for u, value in values]
    keys = keys[: max(0, after - before + 1)] + [FAR] * (after - end)
    starts: list[Any] = []
    ends: list[Any] = []
    for block in range(0, len(keys), size):
        some = keys[block : block + size]
        starts += accumulate(some, min)
        ends += list(accumulate(reversed(some), min))[::-1]
    least = map(min, ends, starts[size - 1 :])
    found[begin - first : stop - first + 1] = [
        value + fixed + slope * u for u, value in zip(range(begin, stop + 1), least, strict=False)
    ]
    return found


def moved(costs: list[int], rest: int, spacing: int) -> list[int]:
    """Values at knots whose lines are no higher than those of some costs, moved by less than a spacing.

    Moved lines bend between knots.  Where they do so upwards, the line from knot to knot would be too high
    there: both are lower by as much.

    Parameters
    ----------
    costs : list[int]
        At knots in a row, at least one.
    rest : int
        By which they are moved.
    spacing : int
        From knot to knot.
    """
    if rest == 0:
        return costs
    before, after = (2 * costs[0] - costs[1], 2 * costs[-1] - costs[-2]) if costs[1:] else costs * 2
    line = [before, *costs, after]
    bends = [0, *(max(0, a + c - 2 * b) for a, b, c in zip(line, costs, line[2:], strict=False)), 0]
    share = rest * (spacing - rest)
    return [
        (a * rest + b * (spacing - rest)) // spacing - -(-share * max(some) // spacing**2)
        for a, b, *some in zip(line, line[1:], bends, bends[1:], strict=False)
    ]


def join_again(between: list[Any], layer: list[Any], first: int, joins: list[Step], work: Work) -> None:
    """Lower the potentials in a batch by joins within their list: once, as all lead to more tokens.

    Parameters
    ----------
    between : list[Any]
    layer : list[Any]
    first : int
    joins : list[Step]
        Requests that join.
    work : Work
        Counts the steps.
    """
    work.spend(8 * len(layer) * len(joins))
    windows = [(join, deque[tuple[Any, int]]()) for join in joins]
    for u in range(first, first + len(layer)):
        for (low, high, fixed, slope), queue in windows:
            new = u - low
            if new >= first:
                push(queue, min(between[new - first], layer[new - first]) - slope * new, new)
            if queue and queue[0][1] < u - high:
                queue.popleft()
            if queue:
                layer[u - first] = min(layer[u - first], queue[0][0] + fixed + slope * u)
