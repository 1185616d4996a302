# ruff: noqa: NPY002 - compiled code has the old random numbers only, a state for each thread
"""A local search over orders: requests swap places or move, and are placed again one after the other.

Where each request starts in the first batch in which it fits, and none before its predecessor, a plan is an
order.  What comes before the first place that changes stays as it is; so does its part of the profiles.

With early starts (`infermax_opt.infermax.planners.plan._early_evictions`) the number of batches is given, as
it says where in the profiles they are.  An order is a plan if what is left of all requests needs no more.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.plan import _profile
from infermax_opt.infermax.planners.plan._kernel import estimate
from infermax_opt.infermax.planners.plan._profile import CHUNKS, END, commit, fit

__all__ = ["FAR", "HELPERS", "Columns", "climb"]

#: Seconds of a plan that is too long for the profiles.
FAR = 1e30
#: Largest number of moves that are made at once; share of these that swap.
MOVES, SWAPS = 3, 0.5


class Columns(NamedTuple):
    """Per request: tokens to prefill and to generate, and most tokens of a chunk; batches of the longest.

    `made`: tokens that an early start of the request generates, of which the former two are without; or 0.
    `least`: batches of a plan with these.
    """

    inputs: Any
    outputs: Any
    width: Any
    made: Any
    longest: int
    least: int


def follow(
    rules: Any, columns: Any, profiles: Any, trial: Any, order: Any, begin: Any, end: Any, t: Any, reach: Any
) -> Any:  # fmt: skip
    """Place the requests at `begin` to `end` of the order from batch t on.

    Returns
    -------
    t : int
        Batch in which the last of them starts; -1 where the profiles might be too short, or a refill is cut.
    reach : int
        Batches in use, at least those given, and those that early starts need before their refills.
    work : float
        Attention work of their prompts, in token pairs, if it depends on chunks.
    """
    work = 0.0
    for k in range(begin, end):
        i = order[k]
        inputs, outputs, width = columns.inputs[i], columns.outputs[i], columns.width[i]
        while True:
            if max(t, reach) + columns.longest >= len(profiles.kv):
                return -1, reach, work
            if fit(rules, profiles, trial, t, inputs, outputs, width):
                break
            t += 1
        commit(rules, profiles, trial, t, inputs, outputs)
        reach = max(reach, trial.count[END])
        if columns.made[i] > 0:
            if trial.count[CHUNKS] > 1:
                return -1, reach, work
            reach = max(reach, trial.count[END] + columns.made[i] + 1)
        if not rules.exact:
            for part in range(trial.count[CHUNKS]):
                work += prefill_work(0, trial.chunk[part], 0)
    return t, reach, work


def copy(source: Any, target: Any, size: Any) -> None:
    """Copy the first batches of profiles."""
    for u in range(size):
        target.tokens[u] = source.tokens[u]
        target.prefill[u] = source.prefill[u]
        target.kv[u] = source.kv[u]
        target.running[u] = source.running[u]


def moment(profiles: Any, size: Any) -> Any:
    """KV held in each batch times the number of the batch, summed."""
    total = 0.0
    for u in range(size):
        total += float(u) * profiles.kv[u]
    return total


def change(order: Any, low: Any, draw: Any) -> None:
    """Swap two requests from place `low` on, or move one."""
    count = len(order) - low
    a, b = low + int(draw[1] * count), low + int(draw[2] * count)
    moved = order[a]
    if draw[0] < SWAPS:
        order[a], order[b] = order[b], moved
        return
    step = 1 if b > a else -1
    while a != b:
        order[a] = order[a + step]
        a += step
    order[b] = moved


def climb(
    rules: Any, columns: Any, profiles: Any, kept: Any, trial: Any, cost: Any, order: Any, low: Any,
    reads: Any, work: Any, rounds: Any, heat: Any, weight: Any, seed: Any,
) -> Any:  # fmt: skip
    """Improve an order from place `low` on.

    Parameters
    ----------
    rules, columns, profiles, trial : Rules, Columns, Profiles, Trial
        The profiles are empty.
    kept : Profiles
        Room for a copy of them; empty but for early starts.
    cost : Coefficients
        Floats.
    order : column of int
        The requests; becomes the best order found.
    low : int
    reads, work : float
        KV tokens that all decodes read, and attention work of the prompts that does not depend on chunks.
    rounds : int
    heat : float
        Seconds by which a plan may be worse than the one before, about; falls to 0.
    weight : float
        Seconds that it counts if a full memory is a batch later through the longest request, so that more
        than the last requests counts.
    seed : int

    Returns
    -------
    seconds : float
        Estimated makespan of the best order, without the attention of early starts; FAR if none ever fits.
        More than that if it needs more batches than there are.
    batches : int
        That it needs.
    """
    np.random.seed(seed)
    least = columns.least
    t, reach, before = follow(rules, columns, kept, trial, order, 0, low, 0, least)
    if t < 0:
        return FAR, 0
    current, best, found, value, used = order.copy(), order.copy(), FAR, FAR, reach
    batches = 0
    for turn in range(rounds + 1):
        other = current.copy()
        if turn > 0:
            for _ in range(1 + int(MOVES * np.random.random() ** 2)):
                change(other, low, np.random.random(3))
        copy(kept, profiles, max(used, reach))
        last, used, more = follow(rules, columns, profiles, trial, other, low, len(order), t, reach)
        seconds, late = FAR, 0.0
        if last >= 0:
            seconds = estimate(rules, profiles, cost, used, reads, work + before + more)
            late = weight * moment(profiles, used) / (rules.capacity * columns.longest)
            if least > 0:
                seconds += cost.alpha[0] * (used - least)
        else:
            used = len(profiles.kv)
        allowed = heat * (1 - turn / (rounds + 1)) * -np.log(1 - np.random.random())
        if seconds + late <= value + allowed:
            current, value = other, seconds + late
            if seconds < found:
                best, found, batches = other.copy(), seconds, used
    order[:] = best
    return found, batches


HELPERS = (batch_time, prefill_work, *_profile.HELPERS, estimate, follow, copy, moment, change)
"""What `climb` calls, callees first."""
