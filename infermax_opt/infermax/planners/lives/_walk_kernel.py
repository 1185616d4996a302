# ruff: noqa: NPY002 - compiled code has the old random numbers only, a state for each thread
"""Prices of memory step by step, and a walk of all requests together that they guide.

With a price on a token of KV in each step, what a request does costs what it pays in time and for the KV it
holds; without the limit, each follows its cheapest path.  What all paths cost, less what the memory is worth,
is a bound on what a schedule of so many steps pays beyond them, and the best prices make it as large as a
mixture of paths allows (the Lagrangian bound).  The walk keeps the limits: a beam of nodes, each with the
tokens made by each request, goes step by step.  A node is valued by what it has spent and what those prices
say of the rest, so each choice costs by how much it is worse than the best one at these prices, and memory
left empty its price.  Which requests decode, idle, enter and leave in a step is chosen for each node by a
dynamic program over requests and KV held, which gives the best choice for each of so many amounts of KV.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.planners.lives._kernel import AWAY, DECODE, ENTER, FAR, IDLE

__all__ = ["RAISE_HELPERS", "WALK_HELPERS", "Ways", "raise_prices", "walk"]

#: Amounts of KV that a step tells apart.
PLACES = 250
#: Children of a node that are kept at most.
EACH = 8
#: Share of the last direction in which prices move; the first and the last step, as a share of the price.
INERTIA, STEP, LAST_STEP = 0.95, 0.1, 0.03
#: Most by which the logarithm of a price moves at once; least price; rounds between two looks at the bound.
MOST_MOVE, LEAST, LOOK = 0.5, 1e-15, 20


class Ways(NamedTuple):
    """What requests may do in a step and what it costs each, in seconds, by kind and steps made before.

    `ends`, `size`, `prompt`, `capacity`, `running`, `budget`, `preemption`: of the level of `_kernel`.
    `decode`, `enter`: cost of a step of decodes, and of one that begins by entering.  `prefill`: cost of a
    step in which any enters.
    """

    ends: Any
    size: Any
    prompt: Any
    decode: Any
    enter: Any
    capacity: int
    running: int
    budget: int
    preemption: int
    prefill: float


def values(ways: Any, price: Any, value: Any) -> None:
    """Write what the rest of a request costs at least, by kind, step, steps made, and 0 away or 1 there."""
    steps = len(price)
    for k in range(len(ways.ends)):
        end = ways.ends[k]
        for n in range(end):
            value[k, steps, n, 0] = value[k, steps, n, 1] = FAR
        for t in range(steps, -1, -1):
            value[k, t, end, 0] = value[k, t, end, 1] = 0.0
        for t in range(steps - 1, -1, -1):
            for n in range(end):
                goes_on = price[t] * ways.size[k, n] + value[k, t + 1, n + 1, 1]
                stays = value[k, t + 1, n, 0]
                value[k, t, n, 0] = min(stays, ways.enter[k, n] + goes_on)
                value[k, t, n, 1] = FAR
                if n > 0:
                    idles = price[t] * ways.size[k, n - 1] + value[k, t + 1, n, 1]
                    least = min(ways.decode[k, n] + goes_on, idles)
                    value[k, t, n, 1] = min(least, stays) if ways.preemption else least


def bound(ways: Any, counts: Any, price: Any, value: Any) -> Any:
    """Seconds that so many requests in each state cost at least beyond the batches of the steps left."""
    values(ways, price, value)
    total = 0.0
    for t in range(len(price)):
        total -= ways.capacity * price[t]
    for k in range(len(ways.ends)):
        for n in range(ways.ends[k]):
            for h in range(2):
                if counts[k, n, h] > 0:
                    total += counts[k, n, h] * value[k, 0, n, h]
    return total


def softest(heat: Any, first: Any, second: Any, third: Any) -> Any:
    """A smooth minimum of three costs; FAR where none is less."""
    least = min(first, second, third)
    if least >= FAR / 2:
        return FAR
    near = np.exp((least - first) / heat) + np.exp((least - second) / heat) + np.exp((least - third) / heat)
    return least - heat * np.log(near)


def soften(ways: Any, price: Any, heat: Any, value: Any) -> None:
    """Write `values` with smooth minima."""
    steps = len(price)
    for k in range(len(ways.ends)):
        for t in range(steps - 1, -1, -1):
            for n in range(ways.ends[k]):
                goes_on = price[t] * ways.size[k, n] + value[k, t + 1, n + 1, 1]
                stays = value[k, t + 1, n, 0]
                value[k, t, n, 0] = softest(heat, ways.enter[k, n] + goes_on, stays, FAR)
                if n > 0:
                    idles = price[t] * ways.size[k, n - 1] + value[k, t + 1, n, 1]
                    leaves = stays if ways.preemption else FAR
                    value[k, t, n, 1] = softest(heat, ways.decode[k, n] + goes_on, idles, leaves)


def spread(ways: Any, price: Any, heat: Any, value: Any, counts: Any, held: Any, share: Any) -> None:
    """Write the KV held in each step where requests choose by `soften`: the cheaper, the more of them."""
    held[:] = 0.0
    for k in range(len(ways.ends)):
        end = ways.ends[k]
        share[:] = 0.0
        for n in range(end):
            share[0, n, 0], share[0, n, 1] = counts[k, n, 0], counts[k, n, 1]
        for t in range(len(price)):
            now, later = t % 2, (t + 1) % 2
            for n in range(end):
                goes_on = price[t] * ways.size[k, n] + value[k, t + 1, n + 1, 1]
                some = share[now, n, 0]
                if some > 0:
                    enters = some * np.exp((value[k, t, n, 0] - ways.enter[k, n] - goes_on) / heat)
                    held[t] += enters * ways.size[k, n]
                    share[later, n + 1, 1] += enters
                    share[later, n, 0] += max(0.0, some - enters)
                some = share[now, n, 1]
                if some > 0:
                    rests = price[t] * ways.size[k, n - 1] + value[k, t + 1, n, 1]
                    decodes = some * np.exp((value[k, t, n, 1] - ways.decode[k, n] - goes_on) / heat)
                    idles = some * np.exp((value[k, t, n, 1] - rests) / heat)
                    held[t] += decodes * ways.size[k, n] + idles * ways.size[k, n - 1]
                    share[later, n + 1, 1] += decodes
                    share[later, n, 1] += idles
                    share[later, n, 0] += max(0.0, some - decodes - idles)
            share[now] = 0.0


def raise_prices(ways: Any, counts: Any, price: Any, hot: Any, cold: Any, rounds: Any) -> Any:
    """Move the prices to where the bound is largest; return it, FAR where requests cannot end in time.

    Parameters
    ----------
    ways : Ways
    counts : float array
        Requests by kind, steps made, and 0 away or 1 there.
    price : float array
        By step; becomes the best one found.
    hot, cold : float
        How smooth the minima are at the beginning and the end, in seconds.
    rounds : int
    """
    kinds, steps, longest = len(ways.ends), len(price), ways.ends.max()
    value = np.zeros((kinds, steps + 1, longest + 1, 2))
    held, move, share = np.zeros(steps), np.zeros(steps), np.zeros((2, longest + 1, 2))
    best, found = price.copy(), bound(ways, counts, price, value)
    if found >= FAR / 2:
        return FAR
    for turn in range(rounds):
        done = turn / rounds
        heat = hot * (cold / hot) ** done
        soften(ways, price, heat, value)
        spread(ways, price, heat, value, counts, held, share)
        for t in range(steps):
            move[t] = INERTIA * move[t] + (1 - INERTIA) * (held[t] / ways.capacity - 1)
            by = (STEP + (LAST_STEP - STEP) * done) * move[t]
            price[t] = max(LEAST, price[t] * np.exp(max(-MOST_MOVE, min(MOST_MOVE, by))))
        if turn % LOOK == LOOK - 1 or turn == rounds - 1:
            now = bound(ways, counts, price, value)
            if now > found:
                found = now
                best[:] = price
    price[:] = best
    return found


def fill(
    ways: Any, kinds: Any, dear: Any, t: Any, value: Any, made: Any, here: Any, noise: Any, cost: Any,
    size: Any, prompts: Any, present: Any, does: Any, came: Any,
) -> None:  # fmt: skip
    """Write the least cost of what the first requests may do in a step, for each amount of KV they hold.

    The cost is beyond what the prices say.  `size`, `prompts`, `present`: KV, prefill tokens and requests
    there; `does`, `came`: what the last of them does, and the amount before it.

    Long on purpose: a call for each way to go on would pass every table.
    """
    cost[0, :] = FAR
    cost[0, 0], size[0, 0], prompts[0, 0], present[0, 0] = 0.0, 0, 0, 0
    for i in range(len(kinds)):
        k, n, h = kinds[i], made[i], here[i]
        cost[i + 1, :] = FAR
        for way in range(4):
            # One that has finished is away, and all else is done by those that are there, but entering.
            if n == ways.ends[k]:
                if way != AWAY:
                    continue
                more, holds, prompt = 0.0, 0, 0
            elif way == AWAY:
                if h == 1 and ways.preemption == 0:
                    continue
                more, holds, prompt = value[k, t + 1, n, 0] - value[k, t, n, h], 0, 0
            elif way == IDLE:
                if h == 0:
                    continue
                holds, prompt = ways.size[k, n - 1], 0
                more = dear * holds + value[k, t + 1, n, 1] - value[k, t, n, h]
            else:
                if (way == ENTER) == (h == 1):
                    continue
                holds, prompt = ways.size[k, n], 0
                more = dear * holds + value[k, t + 1, n + 1, 1] - value[k, t, n, h]
                if way == ENTER:
                    prompt = ways.prompt[k, n]
                    more += ways.enter[k, n]
                else:
                    more += ways.decode[k, n]
            if more >= FAR / 2:
                continue
            more *= 1 + noise * np.random.random()
            for b in range(PLACES + 1):
                total = cost[i, b] + more
                if total >= FAR / 2:
                    continue
                holding, entering = size[i, b] + holds, prompts[i, b] + prompt
                there = present[i, b] + (1 if holds > 0 else 0)
                if holding > ways.capacity or entering > ways.budget or there > ways.running:
                    continue
                place = holding * PLACES // ways.capacity
                if total < cost[i + 1, place]:
                    cost[i + 1, place], size[i + 1, place] = total, holding
                    prompts[i + 1, place], present[i + 1, place] = entering, there
                    does[i + 1, place], came[i + 1, place] = way, b


def follow(
    ways: Any, kinds: Any, does: Any, came: Any, place: Any, made: Any, here: Any, mark: Any, step: Any,
    made_then: Any, here_then: Any,
) -> Any:  # fmt: skip
    """Write what each request does and the node after it; return its seconds and the sum of its marks."""
    seconds, alike = 0.0, 0
    for i in range(len(kinds) - 1, -1, -1):
        k, n, way = kinds[i], made[i], does[i + 1, place]
        place = came[i + 1, place]
        step[i] = way
        if way == DECODE:
            seconds += ways.decode[k, n]
        if way == ENTER:
            seconds += ways.enter[k, n]
        if way in (DECODE, ENTER):
            n += 1
        there = 1 if way != AWAY and n < ways.ends[k] else 0
        made_then[i], here_then[i] = n, there
        alike += mark[k, n, there]
    return seconds, alike


def walk(
    ways: Any, kinds: Any, price: Any, width: Any, noise: Any, seed: Any, made: Any, here: Any, spent: Any,
    steps: Any,
) -> Any:  # fmt: skip
    """Go on with a beam of nodes for so many steps.

    Parameters
    ----------
    ways : Ways
    kinds : int array
        Kind of each request.
    price : float array
        Of a token of KV, in each step that is left.
    width : int
        Most nodes.
    noise : float
        Most by which the cost of a choice is raised at random, as a share.
    seed : int
    made, here : int array
        Steps made by each request of each node, and whether it is there.
    spent : float array
        Seconds of each node beyond its batches.
    steps : int
        At most those left.

    Returns
    -------
    tuple
        Steps done, fewer where no node can go on; `made`, `here`, `spent` of the nodes after them, the best
        first; what each request does in each step and node, and the node before.

    Notes
    -----
    Long on purpose: it makes all tables once.
    """
    np.random.seed(seed)
    requests, longest = len(kinds), ways.ends.max()
    value = np.zeros((len(ways.ends), len(price) + 1, longest + 1, 2))
    values(ways, price, value)
    shape = (requests + 1, PLACES + 1)
    cost, size = np.zeros(shape), np.zeros(shape, np.int64)
    prompts, present = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    does, came = np.zeros((width, *shape), np.int8), np.zeros((width, *shape), np.int16)
    mark = np.random.randint(1, 2**40, (len(ways.ends), longest + 1, 2))
    total, node = np.zeros(width * (PLACES + 1)), np.zeros(width * (PLACES + 1), np.int64)
    place, pays = np.zeros(width * (PLACES + 1), np.int64), np.zeros(width * (PLACES + 1))
    acts, parents = np.zeros((steps, width, requests), np.int8), np.zeros((steps, width), np.int64)
    for t in range(steps):
        found = 0
        for w in range(len(spent)):
            rest = 0.0
            for i in range(requests):
                rest += value[kinds[i], t, made[w, i], here[w, i]]
            fill(
                ways, kinds, price[t], t, value, made[w], here[w], noise, cost, size, prompts, present,
                does[w], came[w],
            )  # fmt: skip
            for b in range(PLACES + 1):
                if cost[requests, b] < FAR / 2:
                    pays[found] = ways.prefill if prompts[requests, b] > 0 else 0.0
                    empty = price[t] * (ways.capacity - size[requests, b])
                    total[found] = spent[w] + rest + cost[requests, b] + empty + pays[found]
                    node[found], place[found] = w, b
                    found += 1
        if found == 0:
            return t, made, here, spent, acts, parents
        made_then, here_then = np.zeros((width, requests), np.int64), np.zeros((width, requests), np.int64)
        then, seen, used = np.zeros(width), np.zeros(width, np.int64), np.zeros(len(spent), np.int64)
        kept = 0
        for c in np.argsort(total[:found]):
            w = node[c]
            if used[w] == EACH:
                continue
            seconds, alike = follow(
                ways, kinds, does[w], came[w], place[c], made[w], here[w], mark, acts[t, kept],
                made_then[kept], here_then[kept],
            )  # fmt: skip
            if (seen[:kept] == alike).any():
                continue
            then[kept], seen[kept], parents[t, kept] = spent[w] + seconds + pays[c], alike, w
            used[w] += 1
            kept += 1
            if kept == width:
                break
        made, here, spent = made_then[:kept].copy(), here_then[:kept].copy(), then[:kept].copy()
    return steps, made, here, spent, acts, parents


RAISE_HELPERS = (values, bound, softest, soften, spread)
"""What `raise_prices` calls, callees first."""
WALK_HELPERS = (values, fill, follow)
"""What `walk` calls, callees first."""
