"""First batches in the occupancy graph between knots; see `infermax_opt.infermax.bounds.occupancy`, *Knots*.

The functions run as plain Python or compiled.  Tables are indexed by [active requests, knot].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.bounds._kernels_occupancy_steps import (
    ADMIT,
    EDGES,
    EVICT,
    FAR,
    IDLE,
    RETURN,
    drop,
    lift,
    shift,
)

#: Steps of a checker at each knot that is looked at, besides those of evictions and returns.
EACH = 8

__all__ = ["allowed", "between", "known", "lag", "pass_knots", "trim", "wait_long", "work"]


def known(row: Any) -> Any:
    """The first and the last knot whose cost is known; where none is, the last one twice."""
    begin, end = 0, len(row) - 1
    while begin < end and row[begin] >= FAR:
        begin += 1
    while begin < end and row[end] >= FAR:
        end -= 1
    return begin, end


def between(row: Any, knot: Any, other: Any) -> Any:
    """Cost at a knot, where that is known, or on the line through the next two on the side of `other`."""
    if 0 <= knot < len(row) and row[knot] < FAR:
        return row[knot]
    near, far = other, 2 * other - knot
    if 0 <= far < len(row) and row[far] < FAR:
        return 2 * row[near] - row[far]
    return row[near]


def lag(
    source: Any, target: Any, last: Any, spacing: Any, by: Any, cost: Any, came: Any, origin: Any
) -> None:
    """Requests come that are `by` tokens behind: lower target[0 ... last], at the knots.

    Costs moved by so many tokens bend between knots: where they do so upwards, both knots are lower by what
    the line between them would be too high there.
    """
    whole, rest = by // spacing, by % spacing
    for knot in range(max(0, whole), min(last, len(source) + whole) + 1):
        after, before = knot - whole, knot - whole - 1
        has_after = after < len(source) and source[after] < FAR
        has_before = rest > 0 and before >= 0 and source[before] < FAR
        if not has_after and not has_before:
            continue
        high = source[after] if has_after else between(source, after, before)
        value = high
        if rest > 0:
            low = source[before] if has_before else between(source, before, after)
            value = (high * (spacing - rest) + low * rest) // spacing
            bend = 0
            if has_after:
                bend = max(bend, low + between(source, after + 1, after) - 2 * high)
            if has_before:
                bend = max(bend, between(source, before - 1, before) + high - 2 * low)
            value += -(rest * (spacing - rest) * bend) // (spacing * spacing)
        if value + cost < target[knot]:
            target[knot] = value + cost
            came[knot] = (origin + (after if has_after else before)) * EDGES + ADMIT


def wait_long(row: Any, came: Any, at: Any, last: Any, idle: Any, more: Any) -> None:
    """Requests that fall behind, from knot to knot: up to so many knots more, but not beyond `last`."""
    end = min(last, len(row) - 1)
    while end > 0 and row[end] >= FAR:
        end -= 1
    for knot in range(1, min(last, end + more, len(row) - 1) + 1):
        if row[knot - 1] < FAR and row[knot - 1] + idle < row[knot]:
            row[knot] = row[knot - 1] + idle
            came[knot] = (at + knot - 1) * EDGES + IDLE


def trim(row: Any, limit: Any, top: Any, spacing: Any) -> Any:
    """Leave out what is no less than the limits, from both ends; return how many knots were looked at.

    Parameters
    ----------
    row : int64 array
        Costs, changed.
    limit : int64 array
        By tokens: the largest potential of so many tokens, and of up to a spacing fewer.
    top : int
        Tokens at the first knot.
    spacing : int
    """
    begin, end = known(row)
    several, count = begin < end, end - begin + 1
    for knot in range(begin, end):
        tokens = top - knot * spacing
        if 0 <= tokens < len(limit) and min(row[knot], row[knot + 1]) < limit[tokens]:
            break
        row[knot] = FAR
        begin += 1
    for knot in range(end - 1, begin - 1, -1):
        tokens = top - knot * spacing
        if 0 <= tokens < len(limit) and min(row[knot], row[knot + 1]) < limit[tokens]:
            break
        row[knot + 1] = FAR
        end -= 1
    if several and begin == end:
        row[begin] = FAR
    return count


def allowed(
    potential: Any, least: Any, first: Any, last: Any, capacity: Any, prompts: Any, longest: Any,
    evictions: Any, batch: Any, costs: Any,
) -> None:  # fmt: skip
    """Write, negative, the most that a state in a batch may cost without leading to less than a potential.

    Parameters
    ----------
    potential, least : int64 arrays (rows, tokens)
        `least`: filled with FAR.
    first, last : int64 arrays
        Tokens of each number of active requests.
    capacity : int
    prompts : int64 array
        Sizes of requests that may start.
    longest : int
        The largest size of those that are evicted.
    evictions : bool
    batch : int
        What each batch costs at least.
    costs : Costs
    """
    shortest, rows = prompts[0], len(potential)
    idle = costs.token + costs.size * shortest
    came = np.empty(potential.shape[1], np.int64)
    for k in range(rows - 1, -1, -1):
        for u in range(first[k], min(capacity, last[k] - k) + 1):
            least[k, u] = batch - costs.token * k - costs.size * u - potential[k, u + k]
        if k + 1 < rows:
            if evictions and longest > shortest:
                drop(
                    least[k + 1], least[k], first[k], last[k], shortest + 1, longest, costs.in_fixed,
                    costs.in_size, came, 0, RETURN,
                )  # fmt: skip
            for index in range(len(prompts)):
                shift(
                    least[k + 1], least[k], first[k], last[k], -prompts[index], -costs.first[index], came, 0,
                    ADMIT,
                )  # fmt: skip
        for u in range(first[k] + 1, last[k] + 1):
            if least[k, u - 1] < FAR:
                least[k, u] = min(least[k, u], least[k, u - 1] + idle)


def work(row: Any, last: Any, fewer: Any, more: Any) -> Any:
    """About how many steps a checker takes for the knots, up to the last, near those of a row."""
    begin, end = known(row)
    return 30 + 5 * (end - begin + 1) + 5 * max(0, min(last, end + more) - max(0, begin - fewer) + 1)


def pass_knots(
    table: Any, came: Any, spacing: Any, capacity: Any, prompts: Any, shortest: Any, evictions: Any,
    batch: Any, costs: Any, limit: Any, inside: Any,
) -> Any:  # fmt: skip
    """Costs at the knots after some first batches; return about how many steps it takes to check.

    Long on purpose: the steps of a batch follow each other, and share what sizes cost then.

    Parameters
    ----------
    table : int64 array (rows, knots)
        Costs before them, which become those after.
    came : int array (batches, 2, rows, knots)
        Filled with -1; before each batch, the edge to each knot by evictions and idling, and then that by
        starts, returns and idling, each from a knot of the same table.
    spacing : int
        Tokens from knot to knot.
    capacity : int
    prompts : int64 array
        Sizes of requests that may start.
    shortest : int
        The least size.
    evictions : bool
    batch : int
        What each batch costs at least.
    costs : Costs
    limit, inside : int64 arrays (rows, tokens)
        What costs no less, between batches and in a batch, is left out; see `trim`.
    """
    rows, width = table.shape
    steps = 0
    idle = (costs.token + costs.size * shortest) * spacing
    for done in range(len(came)):
        largest = prompts[-1] + done
        out, back = costs.out_fixed + costs.out_size * largest, costs.in_fixed + costs.in_size * largest
        apart = 1 - (shortest + 1 - largest) // spacing
        returns = evictions and largest > shortest
        if returns:
            for k in range(rows - 1, 0, -1):
                last = min(width - 1, (k - 1) * (largest - shortest) // spacing + 1) if k > 1 else 0
                steps += work(table[k], last, apart, 0)
                drop(
                    table[k], table[k - 1], 0, last, 0, apart, out, -costs.out_size * spacing,
                    came[done, 0, k - 1], k * width, EVICT,
                )  # fmt: skip
        for k in range(1, rows):
            last = min(width - 1, k * (largest - shortest) // spacing + 1)
            wait_long(table[k], came[done, 0, k], k * width, last, idle, 0)
            steps += EACH * trim(table[k], limit[k], k * largest, spacing)
        for k in range(1, rows):
            last, at = min(width - 1, k * (largest - shortest) // spacing + 1), (k - 1) * width
            if returns:
                steps += work(table[k - 1], last, 0, apart)
                lift(
                    table[k - 1], table[k - 1], table[k], 0, last, 0, apart, back, -costs.in_size * spacing,
                    came[done, 1, k], at, at, RETURN,
                )  # fmt: skip
            for index in range(len(prompts)):
                by = largest - prompts[index]
                lag(table[k - 1], table[k], last, spacing, by, -costs.first[index], came[done, 1, k], at)
            wait_long(table[k], came[done, 1, k], k * width, last, idle, -(-k // spacing))
            steps += EACH * trim(table[k], inside[k], k * largest, spacing)
        for k in range(rows):
            least = max(0, k * largest - capacity) // spacing
            for knot in range(width):
                if knot < least:
                    table[k, knot] = FAR
                elif table[k, knot] < FAR:
                    made = k * largest - knot * spacing
                    table[k, knot] += batch - costs.token * k - costs.size * made
            steps += EACH * trim(table[k], limit[k], k * (largest + 1), spacing)
    return steps
