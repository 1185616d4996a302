"""First and last batches in the occupancy graph; see `infermax_opt.infermax.bounds.occupancy`, *Ends*.

The functions run as plain Python or compiled.  Tables are indexed by [layer, active requests, x], where x are
their tokens less `low` for each of them.  Layers are those of `_kernels_occupancy.settle`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.bounds._kernels_occupancy_steps import (
    ADMIT,
    EDGES,
    ENTER,
    EVICT,
    FAR,
    FIRST,
    IDLE,
    MIXED,
    PLAIN,
    PURE,
    RETURN,
    drop,
    finish,
    lift,
    shift,
)

__all__ = ["bounds", "come", "leave", "pass_batches", "run", "turn_up", "wait"]


def bounds(
    rows: Any, width: Any, low: Any, least: Any, most: Any, capacity: Any, first: Any, last: Any
) -> None:
    """Write the least and the largest x of each number of requests of sizes `least` to `most`."""
    for k in range(rows):
        first[k] = k * (least - low)
        last[k] = min(min(k * (most - low), capacity + k - k * low), width - 1)


def leave(
    between: Any, came: Any, base: Any, first: Any, last: Any, low: Any, begin: Any, end: Any, ends: Any,
    shortest: Any, costs: Any,
) -> None:  # fmt: skip
    """Finishes, and evictions of sizes from `begin` to `end`, both less `low`.

    Evictions are paid back by their size alone, which a checker follows sooner.
    """
    rows, width = between.shape
    least = shortest - low
    for k in range(rows - 1, 0, -1):
        at, others = base + k * width, k - 1
        for index in range(len(ends)):
            finish(
                between[k], between[k - 1], first[k - 1], last[k - 1], ends[index] - low, costs.finish[index],
                costs.pairs, others * least, others * (ends[index] - shortest), came[k - 1], at,
            )  # fmt: skip
        if begin <= end and first[k - 1] <= last[k - 1]:
            each = costs.pairs * others
            fixed, slope = costs.out_fixed + costs.out_size * low + each * least, costs.out_size - each
            drop(
                between[k], between[k - 1], first[k - 1], last[k - 1], begin, end, fixed, slope,
                came[k - 1], at, EVICT,
            )  # fmt: skip


def wait(row: Any, came: Any, at: Any, first: Any, last: Any, idle: Any) -> None:
    """Requests that make no token in a batch; `at`: the state from which a row of the table is counted."""
    for x in range(last - 1, first - 1, -1):
        if row[x + 1] < FAR and row[x + 1] + idle < row[x]:
            row[x] = row[x + 1] + idle
            came[x] = (at + x + 1) * EDGES + IDLE


def turn_up(
    between: Any, came: Any, base: Any, first: Any, last: Any, low: Any, prompts: Any, costs: Any
) -> None:
    """First tokens that are looked at, by requests that decode."""
    rows, width = between.shape
    for k in range(1, rows):
        for index in range(len(prompts)):
            shift(
                between[k - 1], between[k], first[k], last[k], prompts[index] - low, -costs.first[index],
                came[k], base + (k - 1) * width, ADMIT,
            )  # fmt: skip


def come(
    table: Any, came: Any, base: Any, first: Any, last: Any, final: Any, low: Any, begin: Any, end: Any,
    prompts: Any, young: Any, late: Any, idle: Any, costs: Any,
) -> None:  # fmt: skip
    """Returns and first tokens, in a batch with decodes, and in one without; `final`: the last x in this one.

    Sizes of returns run from `begin` to `end`, both less `low`; `late`: whether they may make no token.
    """
    between, admitted, pure = table
    rows, width = between.shape
    token, size, fixed, slope = costs.token, costs.size, costs.in_fixed, costs.in_size
    for k in range(1, rows):
        at = base + (k - 1) * width
        at_admitted, at_pure = at + rows * width, at + 2 * rows * width
        if begin <= end and first[k] <= last[k]:
            lift(
                between[k - 1], admitted[k - 1], admitted[k], first[k], last[k], begin, end,
                fixed + slope * low, slope, came[1, k], at, at_admitted, RETURN,
            )  # fmt: skip
            lift(
                between[k - 1], pure[k - 1], pure[k], first[k], final[k], begin + 1, end + 1,
                fixed - slope - token + size + (slope - size) * low, slope - size,
                came[2, k], at, at_pure, ENTER,
            )  # fmt: skip
            if late:
                waited = idle - costs.pairs * (k - 1)
                wait(admitted[k], came[1, k], at_admitted + width, first[k], last[k], waited)
                wait(pure[k], came[2, k], at_pure + width, first[k], final[k], waited)
        for index in range(len(prompts)):
            by, pay = prompts[index] - low, costs.first[index]
            if not young:
                shift(between[k - 1], admitted[k], first[k], last[k], by, -pay, came[1, k], at, ADMIT)
                shift(
                    admitted[k - 1], admitted[k], first[k], last[k], by, -pay, came[1, k], at_admitted, ADMIT
                )
            pay += token + size * prompts[index]
            shift(between[k - 1], pure[k], first[k], final[k], by + 1, -pay, came[2, k], at, FIRST)
            shift(pure[k - 1], pure[k], first[k], final[k], by + 1, -pay, came[2, k], at_pure, FIRST)


def run(
    table: Any, after: Any, came: Any, base: Any, first: Any, last: Any, final: Any, begin: Any, low: Any,
    capacity: Any, costs: Any,
) -> None:  # fmt: skip
    """One batch, from `table` to `after`, where x is from `begin` to `final`."""
    _, rows, width = table.shape
    after[:] = FAR
    for k in range(rows):
        for x in range(begin[k], final[k] + 1):
            value, where = table[0, k, x], base + k * width + x
            if table[2, k, x] < value:
                value, where = table[2, k, x], where + 2 * rows * width
            if value < FAR and value + costs.pure < after[0, k, x]:
                after[0, k, x] = value + costs.pure
                came[0, k, x] = where * EDGES + PURE
        for x in range(first[k], min(min(last[k], final[k] - k), capacity - k * low) + 1):
            value, where, kind = table[0, k, x] + costs.plain, base + k * width + x, PLAIN
            if table[1, k, x] + costs.mixed < value:
                value, where, kind = table[1, k, x] + costs.mixed, where + rows * width, MIXED
            value -= costs.token * k + costs.size * (x + k * low) - costs.pairs * (k * (k - 1) // 2)
            if min(table[0, k, x], table[1, k, x]) < FAR and value < after[0, k, x + k]:
                after[0, k, x + k] = value
                came[0, k, x + k] = where * EDGES + kind


def pass_batches(
    table: Any, other: Any, came: Any, low: Any, lows: Any, highs: Any, capacity: Any, prompts: Any,
    ends: Any, shortest: Any, longest: Any, young: Any, evictions: Any, chunked: Any, costs: Any,
    potential: Any, below: Any,
) -> Any:  # fmt: skip
    """Least distances after some batches, in the first layer of the table that is returned.

    Long on purpose, with many parameters: they are told once, and its parts are told apart.

    Parameters
    ----------
    table : int64 array (3, rows, width)
        Distances before them, in its first layer; used up.
    other : int64 array
        Room for those after a batch.
    came : int array (batches + 1, 3, rows, width)
        Filled with -1; the last edge to each state.
    low : int
    lows, highs : int64 arrays
        Least and largest size of an active request before each batch, and after the last one.
    capacity : int
    prompts, ends : int64 arrays
        Sizes of requests that may start and finish.
    shortest, longest : int
        The least size, and the largest of those that are evicted.
    young, evictions, chunked : bool
        `settle` of `_kernels_occupancy`.
    costs : Costs
    potential : int64 array (rows, width)
        Of the states.
    below : int64 array
        Becomes how many cost less than their potential before each batch, and after the last one.
    """
    _, rows, width = table.shape
    first, last, begin, final, beyond = np.empty((5, rows), np.int64)
    idle, batches = costs.token + costs.size * shortest, len(lows) - 1
    for step in range(batches + 1):
        base = step * 3 * rows * width
        bounds(rows, width, low, lows[step], highs[step], capacity, first, last)
        for k in range(rows):
            for x in range(first[k], last[k] + 1):
                below[step] += table[0, k, x] < potential[k, x]
        fewest, most = max(lows[step], shortest + 1) - low, min(highs[step], longest) - low
        if not evictions or step == batches:
            most = -1
        leave(table[0], came[step, 0], base, first, last, low, fewest, most, ends, shortest, costs)
        if step == batches:
            break
        for k in range(1, rows):
            waited = idle - costs.pairs * (k - 1)
            wait(table[0, k], came[step, 0, k], base + k * width, first[k], last[k], waited)
        if young:
            turn_up(table[0], came[step, 0], base, first, last, low, prompts, costs)
        table[1:] = FAR
        bounds(rows, width, low, lows[step], highs[step + 1], capacity + 1, begin, beyond)
        come(
            table, came[step], base, first, last, beyond, low, fewest, most, prompts, young, chunked, idle,
            costs,
        )  # fmt: skip
        bounds(rows, width, low, lows[step + 1], highs[step + 1], capacity, begin, final)
        run(table, other, came[step + 1], base, first, last, final, begin, low, capacity, costs)
        table, other = other, table
    return table
