# ruff: noqa: NPY002 - compiled code has the old random numbers only, a state for each thread
"""Ruin and recreate over lives: what each of a few requests does in every step of a schedule.

A step is `span` batches in a row.  In each a request is away, decodes, idles or enters: it processes its
prompt, or all that it lost, and goes on with decodes.  Where all others stay as they are, the life of least
cost of one request is a shortest path through its steps and tokens: whatever it adds to the time of a step
and to what exceeds the limits there depends on what the others do, and on nothing that it does elsewhere.
So a few lives are taken out, those that meet in some step or any, and put back one by one; simulated
annealing keeps the outcome or not (Schrimpf et al. 2000, Record breaking optimization results using the
ruin and recreate principle).  What exceeds a limit is priced step by step, and the price rises where that
lasts.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.data.cost import batch_time

__all__ = ["AWAY", "DECODE", "ENTER", "FAR", "HELPERS", "IDLE", "Level", "Loads", "anneal"]

#: What a request does in a step.
AWAY, DECODE, IDLE, ENTER = range(4)
#: Mark of a life that is not whole.
BROKEN = -1
#: Cost of what cannot be.
FAR = 1e30
#: Changes of the prices in an annealing; their factors where a limit is exceeded, and not.
PERIODS, RISE, FALL = 100, 1.1, 0.98
#: Most by which the prices of a step differ for one request, as a share.
NOISE = 0.3


class Level(NamedTuple):
    """A scale of `span` batches and tokens a step; KV in tokens, costs in seconds.

    `ends`: steps with tokens that each kind takes.  `size`, `prompt`, by kind and steps made before:
    KV held at the end of such a step, and tokens processed on entering.  `reads`, `attends`: attention of
    a step of decodes, and of one that begins by entering.  `capacity`, `running`: limits of memory.
    `budget`: prefill tokens of a batch.  `preemption`: 1 if requests may be evicted.  Then the cost model.
    """

    ends: Any
    size: Any
    prompt: Any
    reads: Any
    attends: Any
    span: int
    capacity: int
    running: int
    budget: int
    preemption: int
    alpha: Any
    beta: Any
    d0: float
    p0: float


class Loads(NamedTuple):
    """What all lives together do in each step.

    `held`, `present`: KV, and requests that hold some.  `decodes`, `enters`: requests that do; `prompts`:
    tokens that the latter process.  `attention`: seconds.
    """

    held: Any
    present: Any
    decodes: Any
    enters: Any
    prompts: Any
    attention: Any


def step_time(level: Any, decodes: Any, enters: Any, prompts: Any) -> Any:
    """Seconds of a step but for attention by the token; a step without tokens is left out."""
    made = decodes + enters
    if made == 0:
        return 0.0
    first = batch_time(
        level.alpha, level.beta, level.d0, 0.0, level.p0, 0.0, decodes + prompts, decodes, 0.0, enters, 0.0
    )
    if level.span == 1:
        return first
    rest = batch_time(level.alpha, level.beta, level.d0, 0.0, level.p0, 0.0, made, made, 0.0, 0, 0.0)
    return first + (level.span - 1) * rest


def excess(level: Any, held: Any, present: Any) -> Any:
    """KV beyond the limits; a request too many counts like its share of the memory."""
    beyond = 0.0
    if held > level.capacity:
        beyond += held - level.capacity
    if present > level.running:
        beyond += (present - level.running) * (level.capacity / level.running)
    return beyond


def whole(end: Any, life: Any) -> Any:
    """Whether a life makes `end` tokens, and does nothing that it cannot."""
    made, here = 0, False
    for does in life:
        if does == AWAY:
            here = False
            continue
        # Only who is away enters, and all else is done by those that are there.
        if made == end or (here and does == ENTER) or (not here and does != ENTER):
            return False
        here = True
        if does != IDLE:
            made += 1
    return made == end


def put(level: Any, loads: Any, kind: Any, life: Any, sign: Any) -> None:
    """Add a life to the loads, or take it away."""
    made = 0
    for t in range(len(life)):
        does = life[t]
        if does == AWAY:
            continue
        loads.present[t] += sign
        if does == IDLE:
            loads.held[t] += sign * level.size[kind, made - 1]
            continue
        loads.held[t] += sign * level.size[kind, made]
        if does == DECODE:
            loads.decodes[t] += sign
            loads.attention[t] += sign * level.reads[kind, made]
        else:
            loads.enters[t] += sign
            loads.prompts[t] += sign * level.prompt[kind, made]
            loads.attention[t] += sign * level.attends[kind, made]
        made += 1


def cheapest(
    level: Any, loads: Any, price: Any, noise: Any, kind: Any, near: Any, band: Any, life: Any, active: Any,
    away: Any, came: Any, left: Any,
) -> Any:  # fmt: skip
    """Write the life of least cost beside the others, and return that cost; FAR if there is none.

    `near`: tokens made before each step by another life, from which it differs by `band` at most.
    `active`, `away`: room for costs, by tokens made.  `came`: what an active request did, by step and tokens
    made; `left`: whether one that is away was evicted.

    Long on purpose: this is where all time goes, and a call for each way to go on would pass every table.
    """
    end, steps = level.ends[kind], len(life)
    active[:] = FAR
    away[:] = FAR
    away[0] = 0.0
    best, last, final = FAR, -1, 0
    for t in range(steps):
        low = max(0, end - (steps - t), near[t] - band)
        high = min(end - 1, t, near[t] + band)
        decodes, enters, prompts = loads.decodes[t], loads.enters[t], loads.prompts[t]
        room = max(0, level.capacity - loads.held[t])
        crowd = level.capacity / level.running if loads.present[t] >= level.running else 0.0
        dear = price[t] * (1 + NOISE * noise[t])
        now = step_time(level, decodes, enters, prompts)
        more = step_time(level, decodes + 1, enters, prompts) - now
        if high + 1 < end:
            active[high + 1] = FAR
        for n in range(high, low - 1, -1):
            stays, returns, size = active[n], away[n], level.size[kind, n]
            over = dear * (max(0, size - room) + crowd)
            value, does = FAR, DECODE
            if stays < FAR:
                value = stays + more + level.reads[kind, n] + over
            other = returns + level.attends[kind, n] + over
            if other < value and prompts + level.prompt[kind, n] <= level.budget:
                other += step_time(level, decodes, enters + 1, prompts + level.prompt[kind, n]) - now
                if other < value:
                    value, does = other, ENTER
            if n + 1 == end:
                if value < best:
                    best, last, final = value, t, does
            elif value < active[n + 1]:
                active[n + 1], came[t, n + 1] = value, does
            left[t, n], came[t, n] = 0, IDLE
            if stays < FAR:
                if level.preemption and stays < returns:
                    away[n], left[t, n] = stays, 1
                active[n] = stays + dear * (max(0, level.size[kind, n - 1] - room) + crowd)
        for n in range(max(0, low - 1), low):
            active[n] = away[n] = FAR
    if last >= 0:
        trace(end, last, final, life, came, left)
    return best


def trace(end: Any, last: Any, final: Any, life: Any, came: Any, left: Any) -> None:
    """Write the life that makes its last token in step `last`, by doing `final`."""
    for t in range(len(life)):
        life[t] = AWAY
    n, t, does = end, last, final
    while True:
        life[t] = does
        t -= 1
        if does != IDLE:
            n -= 1
        if does == ENTER:
            if n == 0:
                return
            while left[t, n] == 0:
                t -= 1
            t -= 1
        does = came[t, n]


def value_of(level: Any, loads: Any, price: Any) -> Any:
    """Seconds that all steps take, and what is paid for the limits exceeded."""
    seconds = fine = 0.0
    for t in range(len(price)):
        if loads.decodes[t] + loads.enters[t] > 0:
            seconds += loads.attention[t]
            seconds += step_time(level, loads.decodes[t], loads.enters[t], loads.prompts[t])
        fine += price[t] * excess(level, loads.held[t], loads.present[t])
    return seconds, fine


def reprice(level: Any, loads: Any, price: Any, base: Any) -> None:
    """Raise the price where a limit is exceeded, and let it fall elsewhere, not below `base`."""
    for t in range(len(price)):
        if excess(level, loads.held[t], loads.present[t]) > 0:
            price[t] *= RISE
        else:
            price[t] = max(base, price[t] * FALL)


def before(life: Any, near: Any) -> None:
    """Write the tokens made before each step."""
    made = 0
    for t in range(len(life)):
        near[t] = made
        if life[t] == DECODE or life[t] == ENTER:
            made += 1


def meeting(level: Any, loads: Any, lives: Any, order: Any, draw: Any, chosen: Any) -> Any:
    """Choose lives, as many as `chosen` has places for; return their number.

    A third of the draws take any, a third those that meet in some step, a third in one that exceeds a limit.
    """
    steps, at = lives.shape[1], -1
    if draw[0] >= 1 / 3:
        at = int(draw[1] * steps)
        if draw[0] >= 2 / 3:
            beyond = 0.0
            for t in range(steps):
                beyond += excess(level, loads.held[t], loads.present[t])
            until = draw[1] * beyond
            for t in range(steps):
                until -= excess(level, loads.held[t], loads.present[t])
                if beyond > 0 and until < 0:
                    at = t
                    break
    count = 0
    for i in order:
        if count < len(chosen) and (at < 0 or lives[i, at] != AWAY):
            chosen[count] = i
            count += 1
    return count


def take_back(level: Any, loads: Any, kinds: Any, lives: Any, chosen: Any, taken: Any) -> None:
    """Give the chosen requests the lives that were taken from them."""
    for i in chosen:
        put(level, loads, kinds[i], lives[i], -1)
    for k in range(len(chosen)):
        i = chosen[k]
        for t in range(lives.shape[1]):
            lives[i, t] = taken[k, t]
        put(level, loads, kinds[i], lives[i], 1)


def anneal(
    level: Any, kinds: Any, lives: Any, price: Any, base: Any, band: Any, most: Any, rounds: Any, hot: Any,
    cold: Any, seed: Any, best: Any,
) -> Any:  # fmt: skip
    """Shorten a schedule; write the best lives that keep the limits, and return their seconds, FAR without.

    Parameters
    ----------
    level : Level
    kinds : array of int
        Kind of each request.
    lives : int8 array
        A row for each request, used up.  What is not whole is put back first.
    price : array of float
        Of a token of KV too much, by step; changed.
    base : float
        Least price.
    band : int
        Most tokens by which a life may run ahead of that before it, or fall behind.
    most : int
        Lives taken out together at most.
    rounds : int
    hot, cold : float
        Temperatures at the beginning and the end, in seconds.
    seed : int
    best : int8 array
        Of the shape of `lives`.

    Notes
    -----
    Long on purpose: all random numbers are drawn here, so that plain Python draws the same.
    """
    np.random.seed(seed)
    requests, steps = lives.shape
    top = level.ends.max() + 1
    active, away = np.zeros(top), np.zeros(top)
    came, left = np.zeros((steps, top), np.int8), np.zeros((steps, top), np.int8)
    loads = Loads(
        np.zeros(steps, np.int64), np.zeros(steps, np.int64), np.zeros(steps, np.int64),
        np.zeros(steps, np.int64), np.zeros(steps, np.int64), np.zeros(steps),
    )  # fmt: skip
    near, chosen = np.zeros(steps, np.int64), np.zeros(most, np.int64)
    taken = np.zeros((most, steps), np.int8)
    found, value, count, period = FAR, FAR, 0, max(1, rounds // PERIODS)
    order = np.random.permutation(requests)
    for i in order:
        if whole(level.ends[kinds[i]], lives[i]):
            put(level, loads, kinds[i], lives[i], 1)
        else:
            lives[i, 0] = BROKEN
    for i in order:
        if lives[i, 0] == BROKEN:
            lives[i, 0] = AWAY
            before(lives[i], near)
            cost = cheapest(
                level, loads, price, np.random.random(steps), kinds[i], near, band, lives[i], active, away,
                came, left,
            )  # fmt: skip
            if cost >= FAR:
                return FAR
            put(level, loads, kinds[i], lives[i], 1)
    for turn in range(rounds + 1):
        seconds, fine = value_of(level, loads, price)
        heat = hot * (cold / hot) ** (turn / max(1, rounds))
        if seconds + fine <= value or np.random.random() < np.exp((value - seconds - fine) / heat):
            value = seconds + fine
            if fine == 0 and seconds < found:
                found = seconds
                best[:] = lives
        else:
            take_back(level, loads, kinds, lives, chosen[:count], taken)
        if turn % period == 0:
            reprice(level, loads, price, base)
            seconds, fine = value_of(level, loads, price)
            value = seconds + fine
        places = chosen[: np.random.randint(most) + 1]
        count = meeting(level, loads, lives, np.random.permutation(requests), np.random.random(2), places)
        for k in range(count):
            taken[k] = lives[chosen[k]]
            put(level, loads, kinds[chosen[k]], lives[chosen[k]], -1)
        for k in range(count):
            i = chosen[k]
            before(lives[i], near)
            cheapest(
                level, loads, price, np.random.random(steps), kinds[i], near, band, lives[i], active, away,
                came, left,
            )  # fmt: skip
            put(level, loads, kinds[i], lives[i], 1)
    return found


HELPERS = (
    batch_time, step_time, excess, whole, put, trace, cheapest, value_of, reprice, before, meeting, take_back
)  # fmt: skip
"""What `anneal` calls, callees first."""
