"""Orders by the pilot method: try every type next, go on greedily for a while, keep the best.

Where only a few requests fit into the KV at once, it matters which type starts next and which
ones end together.  Types are few in synthetic workloads, so each can be tried at each turn.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.planners.plan import _profile as _planner_profile
from infermax_opt.infermax.planners.plan._profile import END, commit, fit

__all__ = ["HELPERS", "Kinds", "pilot_loop"]


class Kinds(NamedTuple):
    """Columns per (I, O) type: tokens, chunk width, requests left; the last one is changed.

    `bias`: KV area granted to a type that starts next; steers which types are used up first.
    """

    inputs: Any
    outputs: Any
    width: Any
    left: Any
    bias: Any


def start(rules: Any, kinds: Any, profiles: Any, trial: Any, t: Any, k: Any) -> Any:
    """Start a request of type k in batch t, if it fits; whether it does."""
    inputs, outputs = kinds.inputs[k], kinds.outputs[k]
    if not fit(rules, profiles, trial, t, inputs, outputs, kinds.width[k]):
        return False
    commit(rules, profiles, trial, t, inputs, outputs)
    kinds.left[k] -= 1
    return True


def roll(rules: Any, kinds: Any, profiles: Any, trial: Any, greedy: Any, t: Any, until: Any) -> None:
    """From batch t on, start whatever fits, types in the order of `greedy`."""
    for u in range(t, until):
        for place in range(len(greedy)):
            k = greedy[place]
            while kinds.left[k] > 0 and start(rules, kinds, profiles, trial, u, k):
                pass


def save(profiles: Any, copies: Any, t: Any, size: Any) -> None:
    """Keep batches t to t + size of the profiles."""
    for u in range(size):
        copies.tokens[u] = profiles.tokens[t + u]
        copies.prefill[u] = profiles.prefill[t + u]
        copies.kv[u] = profiles.kv[t + u]
        copies.running[u] = profiles.running[t + u]


def restore(profiles: Any, copies: Any, t: Any, size: Any) -> None:
    """Undo everything since `save`."""
    for u in range(size):
        profiles.tokens[t + u] = copies.tokens[u]
        profiles.prefill[t + u] = copies.prefill[u]
        profiles.kv[t + u] = copies.kv[u]
        profiles.running[t + u] = copies.running[u]


def pilot_loop(
    rules: Any, kinds: Any, profiles: Any, trial: Any, copies: Any, counts: Any, greedy: Any, far: Any
) -> Any:
    """Order of types in which to start the requests, one after the other.

    Long on purpose: one loop over tries, each of which saves, goes on and restores the same columns.

    Parameters
    ----------
    rules, kinds, profiles, trial : Rules, Kinds, Profiles, Trial
        All columns are used up.
    copies : Profiles
        Room for the part of the profiles that one try can touch.
    counts : column of int
        Room for one number per type.
    greedy : column of int
        Types by priority, for the greedy continuation.
    far : int
        Batches for which a try goes on; what counts is the KV held in them.

    Returns
    -------
    order : list of int
        Types; fewer than requests where the profiles are too short.
    """
    order = [0 for _ in range(0)]
    total = longest = 0
    for k in range(len(kinds.left)):
        total += kinds.left[k]
        longest = max(longest, kinds.inputs[k] + kinds.outputs[k] + rules.group)
    t = reach = 0
    while len(order) < total:
        # Nothing starts later than when all is empty, or reaches farther than the longest.
        size = max(far, reach - t + 1) + 2 * longest
        if t + size > len(profiles.kv) or size > len(copies.kv):
            break
        best, most = -1, 0.0
        for k in range(len(kinds.left)):
            if kinds.left[k] == 0:
                continue
            save(profiles, copies, t, size)
            for other in range(len(counts)):
                counts[other] = kinds.left[other]
            u = t
            while not start(rules, kinds, profiles, trial, u, k):
                u += 1
            roll(rules, kinds, profiles, trial, greedy, u, t + far)
            value = kinds.bias[k]
            for v in range(t, t + far):
                value += profiles.kv[v]
            restore(profiles, copies, t, size)
            for other in range(len(counts)):
                kinds.left[other] = counts[other]
            if best < 0 or value > most:
                best, most = k, value
        while not start(rules, kinds, profiles, trial, t, best):
            t += 1
        reach = max(reach, trial.count[END])
        order.append(best)
    return order


HELPERS = (*_planner_profile.HELPERS, start, roll, save, restore)
"""What `pilot_loop` calls, callees first."""
