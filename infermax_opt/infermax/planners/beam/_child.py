"""One child of the beam search: what a decision costs, and where the child goes."""

from __future__ import annotations

from typing import Any

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.beam._state import NO_KEY

__all__ = ["consider", "fits_for_good", "held_after"]


def staying(move: Any, position: Any) -> Any:
    """Whether the held request at `position` is not evicted."""
    return position != move.out[0] and position != move.out[1]


def held_after(problem: Any, nodes: Any, row: Any, move: Any, ell: Any) -> Any:
    """KV of whole blocks held after `ell` batches, by those that stay and those brought in."""
    total = 0
    for i in range(nodes.helds[row]):
        if staying(move, i):
            total += -(-(problem.size[nodes.held[row, i]] + ell - 1) // problem.block)
    for j in range(move.stays[3]):
        total += move.times[j] * -(-(problem.size[move.key[j]] + ell - 1) // problem.block)
    return total * problem.block


def lasting(problem: Any, nodes: Any, row: Any, move: Any, used: Any, count: Any, most: Any) -> Any:
    """Batches, at most `most`, until the held requests overflow the KV; 0 if they do at once."""
    if problem.block == 1:
        if used > problem.capacity:
            return 0
        return min(most, (problem.capacity - used) // count + 1)
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if held_after(problem, nodes, row, move, middle) <= problem.capacity:
            low = middle
        else:
            high = middle - 1
    return low


def fits_for_good(problem: Any, nodes: Any, row: Any, move: Any, delay: Any) -> Any:
    """Whether all that is held can run to its end; the KV peaks where one of them ends.

    Those brought in end `delay` batches late and count as if they grew meanwhile.
    """
    count = nodes.helds[row]
    for i in range(count + move.stays[3]):
        if i < count:
            if not staying(move, i):
                continue
            ell = problem.left[nodes.held[row, i]]
        else:
            ell = problem.left[move.key[i - count]] + delay
        total = 0
        for k in range(count + move.stays[3]):
            key = nodes.held[row, k] if k < count else move.key[k - count]
            if k < count:
                if staying(move, k) and problem.left[key] >= ell:
                    total += -(-(problem.size[key] + ell - 1) // problem.block)
            elif problem.left[key] + delay >= ell:
                total += move.times[k - count] * -(-(problem.size[key] + ell - 1) // problem.block)
        if total * problem.block > problem.capacity:
            return False
    return True


def sliced(problem: Any, nodes: Any, row: Any, move: Any, key: Any) -> Any:
    """Bring in one request whose prompt takes several batches: (batches, seconds, KV batches, tokens).

    Ends with the batch that makes its token; (0, ...) if it does not fit.
    """
    missing, seconds, area, made, ell = problem.size[key], 0.0, 0, 0, 0
    cost = problem.cost
    while missing > 0:
        decodes = cached = blocks = 0
        for i in range(nodes.helds[row]):
            mine = nodes.held[row, i]
            if staying(move, i) and problem.left[mine] > ell:
                decodes += 1
                cached += problem.size[mine] + ell - 1
                blocks += -(-(problem.size[mine] + ell) // problem.block)
        chunk = min(missing, problem.prefill, problem.tokens - decodes)
        before = problem.size[key] - missing
        blocks += -(-(before + chunk) // problem.block)
        if chunk <= 0 or blocks * problem.block > problem.capacity:
            return 0, 0.0, 0, 0
        # A refill that is one token short is a decode step, and priced as one.
        step = 1 if missing == 1 and ell > 0 and key != problem.first[problem.kind[key]] else 0
        seconds += batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
            decodes + chunk, decodes + step, cached + step * before,
            1 - step, (1 - step) * prefill_work(problem.exact, chunk, before),
        )  # fmt: skip
        missing -= chunk
        area += cached + decodes
        made += decodes
        ell += 1
    return ell, seconds, area + problem.size[key], made + 1


def consider(problem: Any, rules: Any, nodes: Any, log: Any, row: Any, move: Any, scratch: Any) -> None:
    """Work out the child of node `row` by `move` and put it where it belongs.

    Long on purpose: it runs for each child, where a call costs as much as in `insert`.
    """
    count, used, ends = move.stays[0], move.stays[1], move.stays[2]
    stay, cached = count, used - count
    prompt = prompts = work = 0
    pay, debt = nodes.pay[row], nodes.debt[row]
    waiting = nodes.pools[row]
    for e in range(2):
        if move.out[e] != NO_KEY:
            debt += problem.out[nodes.held[row, move.out[e]]]
            waiting += 1
    for j in range(move.stays[3]):
        key, times = move.key[j], move.times[j]
        size, kind = problem.size[key], problem.kind[key]
        prompt += times * size
        prompts += times
        work += times * prefill_work(problem.exact, size, 0)
        ends = min(ends, problem.left[key])
        if key == problem.first[kind]:
            pay += times * problem.start[kind]
        else:
            debt -= times * problem.out[key]
            waiting -= times
    count += prompts
    used += prompt
    if count == 0 or count > problem.slots:
        return
    cost = problem.cost
    if prompt <= min(problem.prefill, problem.tokens - stay):
        if count > problem.tokens:
            return
        ell = lasting(problem, nodes, row, move, used, count, ends)
        if ell == 0:
            return
        for kind in range(len(problem.first)):
            waiting += nodes.fresh[row, kind]
        if waiting > 0:
            ell = min(ell, rules.pace)
        seconds = nodes.cost[row] + batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
            stay + prompt, stay, cached, prompts, work,
        )  # fmt: skip
        if ell > 1:
            # Equal batches but for the KV they read: the first of them, then what grows.
            seconds += (ell - 1) * batch_time(
                cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1, count, count, used, 0, 0
            ) + cost.d1 * count * ((ell - 1) * (ell - 2) // 2)
        pay += problem.area * (ell * used + count * (ell * (ell - 1) // 2)) + problem.token * count * ell
        gain = ell
    else:
        if problem.chunked == 0 or prompts != 1:
            return
        ell, spent, kv, made = sliced(problem, nodes, row, move, move.key[0])
        if ell == 0:
            return
        seconds = nodes.cost[row] + spent
        pay += problem.area * kv + problem.token * made
        gain = 1
    delay = ell - gain
    if rules.free == 1 and prompts > 0 and not fits_for_good(problem, nodes, row, move, delay):
        return
    bucket = log.state[2]
    target = min(max(int(pay / rules.step), bucket + 1), bucket + rules.ring - 1)
    ring = target % rules.ring
    value = seconds - pay + debt
    if nodes.filled[ring] == rules.width and value >= nodes.value[ring * rules.width + nodes.worst[ring]]:
        return
    insert(problem, rules, nodes, log, row, move, scratch, ring, ell, gain, seconds, pay, debt)


def gather(problem: Any, nodes: Any, row: Any, move: Any, ell: Any, gain: Any, held: Any) -> Any:
    """Write the requests held after `ell` batches, the next to end first; return how many.

    Those brought in made `gain` tokens, those that stayed `ell`.
    """
    count = 0
    for i in range(nodes.helds[row]):
        key = nodes.held[row, i]
        if staying(move, i) and problem.left[key] > ell:
            held[count] = key + ell
            count += 1
    for j in range(move.stays[3]):
        if problem.left[move.key[j]] <= gain:
            continue
        key = move.key[j] + gain
        for _ in range(move.times[j]):
            at = count
            while at > 0 and later(problem, held[at - 1], key):
                held[at] = held[at - 1]
                at -= 1
            held[at] = key
            count += 1
    return count


def later(problem: Any, one: Any, other: Any) -> Any:
    """Whether `one` is sorted behind `other` among the held requests."""
    return problem.left[one] > problem.left[other] or (
        problem.left[one] == problem.left[other] and one > other
    )


def insert(
    problem: Any, rules: Any, nodes: Any, log: Any, row: Any, move: Any, scratch: Any,
    ring: Any, ell: Any, gain: Any, seconds: Any, pay: Any, debt: Any,
) -> None:  # fmt: skip
    """Keep a child among the best of its bucket, one per multiset of held requests.

    Long on purpose: in five parts, which pass all columns to each other, the search measured 30 % slower.
    """
    entry = log.state[0]
    if entry == len(log.parent):
        return
    value = seconds - pay + debt
    held = scratch.held
    count = gather(problem, nodes, row, move, ell, gain, held)
    kept = nodes.kept[row]
    for e in range(2):
        if move.out[e] != NO_KEY:
            kept += scratch.pool_salt[nodes.held[row, move.out[e]]]
    for j in range(move.stays[3]):
        kept -= move.times[j] * scratch.pool_salt[move.key[j]]
    code = kept
    used = 0
    for i in range(count):
        code += scratch.salt[held[i]]
        used += problem.size[held[i]]
    base = ring * rules.width
    filled = nodes.filled[ring]
    place = NO_KEY
    for k in range(base, base + filled):
        if nodes.hash[k] == code:
            if value >= nodes.value[k]:
                return
            place = k
            break
    if place == NO_KEY:
        if filled < rules.width:
            place = base + filled
            filled += 1
            nodes.filled[ring] = filled
        else:
            place = base + nodes.worst[ring]
    for i in range(count):
        nodes.held[place, i] = held[i]
    nodes.helds[place] = count
    nodes.used[place] = used
    trade(problem, nodes, row, move, place)
    nodes.cost[place] = seconds
    nodes.pay[place] = pay
    nodes.debt[place] = debt
    nodes.value[place] = value
    nodes.hash[place] = code
    nodes.kept[place] = kept
    if filled == rules.width:
        worst = base
        for k in range(base + 1, base + filled):
            if nodes.value[k] > nodes.value[worst]:
                worst = k
        nodes.worst[ring] = worst - base
    log.parent[entry] = nodes.log[row]
    for e in range(2):
        log.move[entry, e] = NO_KEY if move.out[e] == NO_KEY else nodes.held[row, move.out[e]]
    for j in range(len(move.key)):
        inside = j < move.stays[3]
        log.move[entry, 2 + 2 * j] = move.key[j] if inside else NO_KEY
        log.move[entry, 3 + 2 * j] = move.times[j] if inside else 0
    log.move[entry, 2 + 2 * len(move.key)] = ell
    nodes.log[place] = entry
    log.state[0] = entry + 1
    if count == 0 and nodes.pools[place] == 0 and seconds < log.best[0]:
        for kind in range(len(problem.first)):
            if nodes.fresh[place, kind] > 0:
                return
        log.best[0] = seconds
        log.state[1] = entry


def trade(problem: Any, nodes: Any, row: Any, move: Any, place: Any) -> None:
    """Give node `place` the pool and the fresh requests that node `row` has after `move`."""
    for kind in range(len(problem.first)):
        nodes.fresh[place, kind] = nodes.fresh[row, kind]
    pools = nodes.pools[row]
    for k in range(pools):
        nodes.pool[place, k] = nodes.pool[row, k]
    for j in range(move.stays[3]):
        key = move.key[j]
        kind = problem.kind[key]
        if key == problem.first[kind]:
            nodes.fresh[place, kind] -= move.times[j]
            continue
        for _ in range(move.times[j]):
            at = 0
            while nodes.pool[place, at] != key:
                at += 1
            pools -= 1
            for k in range(at, pools):
                nodes.pool[place, k] = nodes.pool[place, k + 1]
    for e in range(2):
        if move.out[e] == NO_KEY:
            continue
        key = nodes.held[row, move.out[e]]
        at = pools
        while at > 0 and problem.size[nodes.pool[place, at - 1]] > problem.size[key]:
            nodes.pool[place, at] = nodes.pool[place, at - 1]
            at -= 1
        nodes.pool[place, at] = key
        pools += 1
    nodes.pools[place] = pools
