"""Packing by depth-first search, and repair of a few machines at a time: jobs on machines of limited load.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["HELPERS", "pack", "repair_loop"]

#: One in so many failures is followed by a random split, the others by a tight packing.
CALM = 3
#: Random numbers are 31 bits of a linear congruential sequence.
MULTIPLIER, INCREMENT, MASK = 1103515245, 12345, 0x7FFFFFFF


def drawn(state: Any, below: Any) -> Any:
    """Next random whole number in [0, below); `state` holds one number."""
    state[0] = (state[0] * MULTIPLIER + INCREMENT) & MASK
    return (state[0] >> 8) % below


def pack(items: Any, bins: Any, capacity: Any, limit: Any, where: Any) -> Any:
    """Put all items into the bins, or find that they do not fit.

    One bin after the other is filled.  It takes the largest item left, which has to go somewhere, then
    others of the rest in the order of their sizes.  A bin may be closed only if nothing that is left
    fits (moving a smaller item in from a later bin does no harm), and if what it wastes is no
    more than all bins may waste together: bins * capacity less the sum of the items.  Of items of one
    size only the first is tried in a place.

    Long on purpose: each step forward and back changes most of the eleven numbers of its state.

    Parameters
    ----------
    items : array of int
        Sizes, largest first; none larger than `capacity`.
    bins, capacity : int
    limit : int
        Most items put somewhere before the search gives up.
    where : array of int
        Receives the bin per item, if all fit.

    Returns
    -------
    fits : int
        1 they do, 0 they do not (every possibility was tried), -1 the search gave up.
    placed : int
        Items put somewhere.
    """
    n = len(items)
    slack = bins * capacity
    for i in range(n):
        slack -= items[i]
    if slack < 0:
        return 0, 0
    if n == 0:
        return 1, 0
    used = np.zeros(n, np.bool_)
    pick = np.zeros(n, np.int64)
    seed = np.zeros(n, np.bool_)
    before = np.zeros(n, np.int64)
    depth, current, load, j = 1, 0, items[0], 1
    used[0], seed[0], where[0] = True, True, 0
    first, last = 1, n - 1
    placed = 1
    while True:
        while first < n and used[first]:
            first += 1
        while last >= 0 and used[last]:
            last -= 1
        if last < 0:
            return 1, placed
        room = capacity - load
        i = n
        if items[last] <= room:
            # The first candidate that fits: by halves, as the items are sorted.
            i, high = j, n
            while i < high:
                middle = (i + high) // 2
                if items[middle] <= room:
                    high = middle
                else:
                    i = middle + 1
            while i < n and used[i]:
                i += 1
            if i == n:
                room = slack + 1
        if i < n:
            used[i], pick[depth], seed[depth], where[i] = True, i, False, current
            depth += 1
            load += items[i]
            j = i + 1
            placed += 1
        elif room <= slack and current + 1 < bins:
            current += 1
            before[depth] = load
            slack -= room
            i = first
            used[i], pick[depth], seed[depth], where[i] = True, i, True, current
            depth += 1
            load = items[i]
            j = i + 1
            placed += 1
        else:
            while True:
                depth -= 1
                if depth == 0:
                    return 0, placed
                i = pick[depth]
                used[i] = False
                first, last = min(first, i), max(last, i)
                if not seed[depth]:
                    load -= items[i]
                    break
                load = before[depth]
                slack += capacity - load
                current -= 1
            j = i + 1
            while j < n and items[j] == items[i]:
                j += 1
        if placed >= limit:
            return -1, placed


def repacked(chosen: Any, target: Any, limit: Any, items: Any, ids: Any, machine: Any, load: Any) -> Any:
    """Pack the jobs of the chosen machines into as many, none above `target`; whether that worked."""
    where = np.zeros(len(items), np.int64)
    fits, placed = pack(items, len(chosen), target, limit, where)
    if fits == 1:
        for k in range(len(chosen)):
            load[chosen[k]] = 0
        for i in range(len(items)):
            machine[ids[i]] = chosen[where[i]]
            load[chosen[where[i]]] += items[i]
    return fits, placed


def repair_loop(
    lengths: Any, machine: Any, load: Any, target: Any, width: Any, limit: Any, budget: Any, state: Any
) -> Any:
    """Repack a few machines at a time until no load exceeds `target`, or the budget is used up.

    Long on purpose: what is drawn, and in which order, is the search.

    Parameters
    ----------
    lengths : array of int
        Longest first.
    machine : array of int
        Per job; updated.
    load : array of int
        Per machine; updated.
    target : int
    width : int
        Most machines repacked at once.
    limit : int
        Most items placed in one attempt.
    budget : int
        Items placed in all.
    state : array of one int
        Of the random numbers; updated.

    Returns
    -------
    int
        The largest load.
    """
    n, m = len(lengths), len(load)
    chosen = np.zeros(width, np.int64)
    ids = np.zeros(n, np.int64)
    among = np.zeros(m, np.bool_)
    spent = 0
    while True:
        worst = 0
        roomy = 0
        for k in range(1, m):
            if load[k] > load[worst]:
                worst = k
            if load[k] < load[roomy]:
                roomy = k
        top = load[worst]
        if top <= target or spent >= budget:
            return top
        # The worst, one with room, and others at random.
        size = 2 + drawn(state, width - 1)
        chosen[0], count = worst, 1
        if drawn(state, 2) == 0:
            chosen[1], count = roomy, 2
        count = more_machines(chosen, count, size, load, target, False, among, state)
        spent += 10 + m // 4 + n // 4
        if count < 2:
            continue
        members = jobs_of(chosen, count, machine, among, ids)
        items = lengths[ids[:members]]
        total = 0
        for q in range(count):
            total += load[chosen[q]]
        goal = max(target, (total + count - 1) // count)
        fits = 0
        while fits != 1 and goal < top:
            fits, placed = repacked(chosen[:count], goal, limit, items, ids, machine, load)
            spent += placed
            goal = (goal + top) // 2 if goal < (goal + top) // 2 else goal + 1
        if fits == 1:
            continue
        # Something else of the same quality, so that the next attempt differs.
        if drawn(state, CALM) == 0:
            a, b = drawn(state, m), drawn(state, m)
            if a != b and load[a] < top and load[b] < top:
                shuffle_two(lengths, machine, load, a, b, max(target, max(load[a], load[b])), ids, state)
            continue
        chosen[0] = drawn(state, m)
        if load[chosen[0]] > target:
            continue
        count = more_machines(chosen, 1, size, load, target + 1, True, among, state)
        members = jobs_of(chosen, count, machine, among, ids)
        items = lengths[ids[:members]]
        spent += repacked(chosen[:count], target, limit // 16, items, ids, machine, load)[1]


def more_machines(
    chosen: Any, count: Any, size: Any, load: Any, below: Any, strict: Any, among: Any, state: Any
) -> Any:
    """Choose machines at random until there are `size`; how many there are.

    The second one has a load under `below`, all have if `strict`; or so it is tried for a while.
    """
    for q in range(count):
        among[chosen[q]] = True
    tries = 0
    while count < size and tries < 8 * size:
        tries += 1
        k = drawn(state, len(load))
        picky = strict or (count == 1 and tries < 4 * size)
        if not among[k] and (not picky or load[k] < below):
            chosen[count] = k
            among[k] = True
            count += 1
    for q in range(count):
        among[chosen[q]] = False
    return count


def jobs_of(chosen: Any, count: Any, machine: Any, among: Any, ids: Any) -> Any:
    """Write the jobs of the chosen machines to `ids`, longest first; how many."""
    for q in range(count):
        among[chosen[q]] = True
    members = 0
    for i in range(len(machine)):
        if among[machine[i]]:
            ids[members] = i
            members += 1
    for q in range(count):
        among[chosen[q]] = False
    return members


def shuffle_two(
    lengths: Any, machine: Any, load: Any, a: Any, b: Any, most: Any, ids: Any, state: Any
) -> None:
    """Split the jobs of two machines anew, at random, neither above `most`; a few tries."""
    members, total = 0, load[a] + load[b]
    for i in range(len(lengths)):
        if machine[i] == a or machine[i] == b:
            ids[members] = i
            members += 1
    for _ in range(32):
        mine = 0
        code = drawn(state, 1 << 20) | (drawn(state, 1 << 20) << 20)
        for q in range(members):
            if (code >> (q % 40)) & 1:
                mine += lengths[ids[q]]
        if mine <= most and total - mine <= most and mine != load[a] and mine != load[b]:
            for q in range(members):
                machine[ids[q]] = a if (code >> (q % 40)) & 1 else b
            load[a], load[b] = mine, total - mine
            return


HELPERS = (drawn, pack, repacked, more_machines, jobs_of, shuffle_two)
"""What `repair_loop` calls, callees first."""
