"""The loop of the beam search: buckets of nodes in order of progress, and their children."""

from __future__ import annotations

from typing import Any

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.beam._child import (
    consider,
    fits_for_good,
    gather,
    held_after,
    insert,
    lasting,
    later,
    sliced,
    staying,
    trade,
)
from infermax_opt.infermax.planners.beam._state import NO_KEY

__all__ = ["HELPERS", "search"]


def bring(problem: Any, move: Any, key: Any, times: Any) -> None:
    """Add to what is brought in."""
    last = move.stays[3] - 1
    if last >= 0 and move.key[last] == key:
        move.times[last] += times
    else:
        move.key[last + 1] = key
        move.times[last + 1] = times
        move.stays[3] = last + 2
    move.stays[4] += times
    move.stays[5] += times * problem.size[key]


def largest(problem: Any, nodes: Any, row: Any, room: Any) -> Any:
    """Position of the largest evicted request that `room` tokens hold; -1 if none."""
    low, high = 0, nodes.pools[row]
    while low < high:
        middle = (low + high) // 2
        if problem.size[nodes.pool[row, middle]] <= room:
            low = middle + 1
        else:
            high = middle
    return low - 1


def returns(nodes: Any, row: Any, move: Any, key: Any) -> Any:
    """Whether `key` is what the move evicts: to evict one and refill its like is no use."""
    one, other = move.out[0], move.out[1]
    if one != NO_KEY and nodes.held[row, one] == key:
        return True
    return other != NO_KEY and nodes.held[row, other] == key


def refill(
    problem: Any, rules: Any, nodes: Any, log: Any, row: Any, move: Any, scratch: Any, span: Any, known: Any
) -> Any:
    """Bring in evicted requests, largest first, as long as the KV lasts for `span` batches.

    Each of them makes a child, but the first one where it is the one at position `known`.  Returns
    the position of the first.
    """
    before = nodes.pools[row]
    first = -1
    while move.stays[3] < len(move.key):
        count = move.stays[0] + move.stays[4]
        room = problem.capacity - move.stays[1] - move.stays[5] - (count + 1) * (span - 1)
        before = min(before - 1, largest(problem, nodes, row, room))
        while before >= 0 and returns(nodes, row, move, nodes.pool[row, before]):
            before -= 1
        if before < 0 or count == problem.slots:
            break
        bring(problem, move, nodes.pool[row, before], 1)
        if first >= 0 or before != known:
            consider(problem, rules, nodes, log, row, move, scratch)
        if first < 0:
            first = before
    return first


def fill(problem: Any, rules: Any, nodes: Any, log: Any, row: Any, move: Any, scratch: Any) -> None:
    """Try what to bring in after the evictions of `move`.

    Long on purpose: with a call for each kind of try the search measured 12 % slower.
    """
    clear(move)
    consider(problem, rules, nodes, log, row, move, scratch)
    room = problem.capacity - move.stays[1]
    kinds = len(problem.first)
    starts = nodes.pools[row] < rules.pool
    if nodes.pools[row] > 0:
        known = -1
        span = 1
        while span <= move.stays[2]:
            clear(move)
            known = refill(problem, rules, nodes, log, row, move, scratch, span, known)
            if known < 0:
                break
            span = longer(span, move.stays[2], 2)
        clear(move)
        small = nodes.pool[row, 0]
        if known != 0 and problem.size[small] <= room and not returns(nodes, row, move, small):
            bring(problem, move, small, 1)
            consider(problem, rules, nodes, log, row, move, scratch)
    if not starts:
        return
    for kind in range(kinds):
        key = problem.first[kind]
        size = problem.size[key]
        if nodes.fresh[row, kind] == 0 or size > room:
            continue
        most = min(nodes.fresh[row, kind], room // size, problem.slots - move.stays[0])
        times = 1
        while times <= most:
            clear(move)
            bring(problem, move, key, times)
            consider(problem, rules, nodes, log, row, move, scratch)
            if nodes.pools[row] > 0 and times <= 3:
                known = -1
                span = 1
                while span <= move.stays[2]:
                    clear(move)
                    bring(problem, move, key, times)
                    known = refill(problem, rules, nodes, log, row, move, scratch, span, known)
                    if known < 0:
                        break
                    span = longer(span, move.stays[2], 1)
            rest = room - times * size
            for other in range(kind):
                small = problem.size[problem.first[other]]
                many = min(nodes.fresh[row, other], rest // small, problem.slots - move.stays[0] - times)
                for number in (1, many):
                    if number <= many and (number > 1 or times <= 3):
                        clear(move)
                        bring(problem, move, key, times)
                        bring(problem, move, problem.first[other], number)
                        consider(problem, rules, nodes, log, row, move, scratch)
            times += 1 if times < 4 else times // 2
            if most < times < most + max(1, most // 3):
                times = most


def longer(span: Any, ends: Any, share: Any) -> Any:
    """Next span to try: longer by 1 / `share`, at most `ends`; beyond it when that was the last."""
    if span == ends:
        return ends + 1
    return min(ends, span + max(1, span // share))


def clear(move: Any) -> None:
    """Bring in nothing."""
    for k in range(3, 6):
        move.stays[k] = 0


def leave(problem: Any, nodes: Any, row: Any, move: Any, one: Any, other: Any) -> None:
    """Set the held requests that `move` evicts."""
    move.out[0] = one
    move.out[1] = other
    count, used = 0, 0
    ends = 0
    for i in range(nodes.helds[row]):
        if i != one and i != other:
            key = nodes.held[row, i]
            if count == 0:
                ends = problem.left[key]
            count += 1
            used += problem.size[key]
    move.stays[0] = count
    move.stays[1] = used
    move.stays[2] = ends if count > 0 else problem.capacity


def allowance(rules: Any, nodes: Any, log: Any, row: Any) -> Any:
    """Debt beyond which no child of node `row` would be kept, by the buckets it can reach."""
    limit = nodes.value[row]
    for ahead in range(1, rules.reach + 1):
        ring = (log.state[2] + ahead) % rules.ring
        if nodes.filled[ring] < rules.width:
            return 1e300
        limit = max(limit, nodes.value[ring * rules.width + nodes.worst[ring]])
    return limit - nodes.value[row] + rules.gain


def expand(problem: Any, rules: Any, nodes: Any, log: Any, row: Any, move: Any, scratch: Any) -> None:
    """Try every decision in node `row`."""
    leave(problem, nodes, row, move, NO_KEY, NO_KEY)
    fill(problem, rules, nodes, log, row, move, scratch)
    if rules.free == 1:
        return
    most = allowance(rules, nodes, log, row)
    helds = nodes.helds[row]
    room = nodes.pool.shape[1] - nodes.pools[row]
    for i in range(helds if room >= 1 else 0):
        key = nodes.held[row, i]
        if i > 0 and nodes.held[row, i - 1] == key:
            continue
        if problem.out[key] >= most:
            continue
        leave(problem, nodes, row, move, i, NO_KEY)
        fill(problem, rules, nodes, log, row, move, scratch)
        if helds > rules.pairs or room < 2:
            continue
        for k in range(i + 1, helds):
            if problem.out[key] + problem.out[nodes.held[row, k]] >= most:
                continue
            if k > i + 1 and nodes.held[row, k - 1] == nodes.held[row, k]:
                continue
            leave(problem, nodes, row, move, i, k)
            fill(problem, rules, nodes, log, row, move, scratch)


def mark(rules: Any, nodes: Any, log: Any) -> None:
    """Set `keep` to 1 for the log entries that a node or the best schedule descends from, else to 0."""
    keep = log.keep
    for entry in range(log.state[0]):
        keep[entry] = 0
    for ring in range(rules.ring):
        for k in range(ring * rules.width, ring * rules.width + nodes.filled[ring]):
            if nodes.log[k] >= 0:
                keep[nodes.log[k]] = 1
    if log.state[1] >= 0:
        keep[log.state[1]] = 1
    for entry in range(log.state[0] - 1, -1, -1):
        # A parent is older than its children.
        if keep[entry] == 1 and log.parent[entry] >= 0:
            keep[log.parent[entry]] = 1


def compact(rules: Any, nodes: Any, log: Any) -> None:
    """Drop the log entries that no node descends from."""
    mark(rules, nodes, log)
    keep = log.keep
    count = 0
    for entry in range(log.state[0]):
        if keep[entry] == 1:
            parent = log.parent[entry]
            log.parent[count] = keep[parent] if parent >= 0 else -1
            for column in range(log.move.shape[1]):
                log.move[count, column] = log.move[entry, column]
            keep[entry] = count
            count += 1
        else:
            keep[entry] = -1
    for ring in range(rules.ring):
        for k in range(ring * rules.width, ring * rules.width + nodes.filled[ring]):
            if nodes.log[k] >= 0:
                nodes.log[k] = keep[nodes.log[k]]
    if log.state[1] >= 0:
        log.state[1] = keep[log.state[1]]
    log.state[0] = count


def search(problem: Any, rules: Any, nodes: Any, log: Any, move: Any, scratch: Any, buckets: Any) -> Any:
    """Work through the next `buckets` buckets.

    Returns
    -------
    bool
        Whether none is left with a node in it.
    """
    for _ in range(buckets):
        bucket = log.state[2]
        ring = bucket % rules.ring
        # The bucket's own nodes stay in place meanwhile: no child falls into it.
        base = ring * rules.width
        filled = nodes.filled[ring]
        for k in range(filled):
            at = k
            while at > 0 and nodes.value[scratch.order[at - 1]] > nodes.value[base + k]:
                scratch.order[at] = scratch.order[at - 1]
                at -= 1
            scratch.order[at] = base + k
        for k in range(filled):
            row = scratch.order[k]
            if log.state[0] + log.state[3] > len(log.parent):
                compact(rules, nodes, log)
                if log.state[0] + log.state[3] > len(log.parent):
                    return True
            if nodes.cost[row] < log.best[0]:
                expand(problem, rules, nodes, log, row, move, scratch)
        nodes.filled[ring] = 0
        log.state[2] = bucket + 1
        left = 0
        for k in range(rules.ring):
            left += nodes.filled[k]
        if left == 0:
            return True
    return False


HELPERS = (
    batch_time, prefill_work, staying, held_after, lasting, fits_for_good, sliced, later, gather, trade,
    insert, consider, clear, longer, bring, largest, returns, refill, fill, leave,
    allowance, expand, mark, compact,
)  # fmt: skip
"""What `search` calls, callees first."""
