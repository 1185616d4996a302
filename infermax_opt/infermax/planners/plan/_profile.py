"""Profiles of the future: what the requests placed so far process and hold, batch by batch.

Output lengths are known, so a request whose first token comes in batch f holds I+u-f tokens
after batch u > f and leaves after batch f+O-1.  `fit` asks whether a request can start in a batch
without breaking any limit in any later one, `commit` writes it into the profiles.

Time may run backwards: seen from the end, a request first holds its peak, sheds one token per
batch and ends with its prompt, last chunk first.  The limits are the same in both directions, but
backwards nothing grows: whatever fits now fits for good, and the KV stays full without foresight.

Without hybrid batching the profiles cover the decode batches only; prompts are processed between
them, just before the batch of their second token.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.schedulers._state import held

__all__ = [
    "CHUNKS",
    "END",
    "FIRST",
    "HELPERS",
    "SHORT",
    "Profiles",
    "Rules",
    "Trial",
    "best_parts",
    "commit",
    "fit",
]

# Entries of `Trial.count`: chunks planned; batch of the first token; batch after the last one, or
# the one where a limit was met; KV tokens by which it was missed.
CHUNKS, FIRST, END, SHORT = 0, 1, 2, 3


class Rules(NamedTuple):
    """Limits and switches of one plan.  Token counts, and 0 or 1 for the switches.

    `reserve`: tokens of a batch that chunks leave to decodes, where that is planned before them.
    `window`, `walk`, `choice`: requests that may fail, be looked at and be compared per batch.
    `slack`: batches by which the KV area of the requests placed may run ahead of the clock.
    `prefix`: what a chunk pays for each token cached before it, in units of attention work.
    `every`: batches between two in which requests start.  `gather`: KV that has to be free before prompts
    are processed; `round`: most tokens of these then; 0 for no such rule.  `group`: batches between two in
    which prompts begin, backwards with hybrid batching: a prompt idles up to the next one.
    """

    capacity: int
    tokens: int
    prefill: int
    running: int
    block: int
    chunked: int
    hybrid: int
    exact: int
    backwards: int
    reserve: int
    window: int
    walk: int
    choice: int
    every: int
    gather: int
    round: int
    group: int
    slack: float
    prefix: float


class Profiles(NamedTuple):
    """Per batch: tokens processed, prefill tokens among them, KV held, requests holding it.

    Without hybrid batching the prefill tokens are those processed just before, and not among the
    tokens of the (decode) batch.
    """

    tokens: Any
    prefill: Any
    kv: Any
    running: Any


class Trial(NamedTuple):
    """The chunks that the latest call of `fit` planned, and the counters named above."""

    time: Any
    chunk: Any
    count: Any


def occupied(rules: Any, tokens: Any) -> Any:
    """KV tokens that `tokens` cached ones occupy."""
    if rules.block == 1:
        return tokens
    return held(tokens, rules.block)


def fits(rules: Any, profiles: Any, trial: Any, u: Any, need: Any) -> Any:
    """Whether `need` more KV tokens and one more request fit into batch u."""
    over = profiles.kv[u] + occupied(rules, need) - rules.capacity
    if over > 0:
        trial.count[SHORT] = over
        return False
    return profiles.running[u] < rules.running


def next_chunk(rules: Any, profiles: Any, u: Any, left: Any, width: Any) -> Any:
    """Tokens of a prompt with `left` to go that batch u takes; 0 where it has no room."""
    room = min(rules.tokens - profiles.tokens[u], rules.prefill - profiles.prefill[u])
    if rules.chunked or profiles.prefill[u] > 0:
        room = min(room, rules.tokens - rules.reserve - profiles.prefill[u])
    if not rules.chunked:
        return left if left <= room else 0
    return max(min(left, width, room), 0)


def note(trial: Any, u: Any, chunk: Any) -> None:
    """Plan a chunk in batch u."""
    k = trial.count[CHUNKS]
    trial.time[k] = u
    trial.chunk[k] = chunk
    trial.count[CHUNKS] = k + 1


def best_parts(rules: Any, inputs: Any, most: Any) -> Any:
    """Chunks of a prompt, at most so many, that cost least for attention and what is cached before them."""
    if rules.prefix <= 0.0:
        return most
    return min(most, max(1, round((2.0 * inputs / rules.prefix) ** 0.5)))


def overflows(rules: Any, profiles: Any, t: Any, inputs: Any) -> Any:
    """Whether the prompts that gather before batch t would be too many with this one."""
    before = profiles.prefill[t]
    return rules.round > 0 and before > 0 and before + inputs > rules.round


def fit(rules: Any, profiles: Any, trial: Any, t: Any, inputs: Any, outputs: Any, width: Any) -> Any:
    """Whether a request that starts in batch t breaks no limit.

    Long on purpose: it runs for each try, and its steps share where the request has got to.
    """
    count = trial.count
    count[CHUNKS] = 0
    count[FIRST] = count[END] = u = t
    count[SHORT] = 1
    if overflows(rules, profiles, t, inputs):
        return False
    if not rules.hybrid and outputs == 1:
        # It is done before the batch, which counts it nevertheless: a little too strict.
        note(trial, t, inputs)
        count[END] = t + 1
        return fits(rules, profiles, trial, t, inputs)
    if rules.backwards:
        for k in range(outputs - 1, 0, -1):
            if not fits(rules, profiles, trial, u, inputs + k) or profiles.tokens[u] >= rules.tokens:
                return False
            u += 1
        count[FIRST] = u
    if not rules.hybrid:
        note(trial, u - 1 if rules.backwards else t, inputs)
    else:
        left = inputs
        while left > 0:
            idle = left == inputs and rules.group > 1 and u % rules.group > 0 and outputs > 1
            if left == inputs and outputs == 1 and u % rules.group > 0:
                return False
            chunk = 0 if idle else next_chunk(rules, profiles, u, left, width)
            if chunk == 0 and left == inputs and not idle:
                return False
            if chunk > 0:
                note(trial, u, chunk)
            if not fits(rules, profiles, trial, u, left if rules.backwards else inputs - left + chunk):
                return False
            left -= chunk
            u += 1
    if not rules.backwards:
        count[FIRST] = u - 1
        for k in range(1, outputs):
            if not fits(rules, profiles, trial, u, inputs + k) or profiles.tokens[u] >= rules.tokens:
                count[END] = u
                return False
            u += 1
    count[END] = u
    return True


def commit(rules: Any, profiles: Any, trial: Any, t: Any, inputs: Any, outputs: Any) -> None:
    """Write the request that `fit` tried in batch t into the profiles.

    Long on purpose: it mirrors `fit` step by step.
    """
    count, kv = trial.count, profiles.kv
    for k in range(count[CHUNKS]):
        u, chunk = trial.time[k], trial.chunk[k]
        profiles.prefill[u] += chunk
        if rules.hybrid:
            profiles.tokens[u] += chunk
    if not rules.hybrid and outputs == 1:
        kv[t] += occupied(rules, inputs)
        profiles.running[t] += 1
        return
    begin = t
    if rules.hybrid:
        # Between two chunks a request may hold its KV without processing anything.
        begin, end = (count[FIRST], count[END]) if rules.backwards else (t, count[FIRST] + 1)
        k = 0
        cached = inputs if rules.backwards else 0
        for u in range(begin, end):
            chunk = 0
            if k < count[CHUNKS] and trial.time[k] == u:
                chunk = trial.chunk[k]
                k += 1
            if not rules.backwards:
                cached += chunk
            kv[u] += occupied(rules, cached)
            profiles.running[u] += 1
            if rules.backwards:
                cached -= chunk
        begin = t if rules.backwards else end
    for k in range(1, outputs):
        u = begin + (outputs - 1 - k if rules.backwards else k - 1)
        profiles.tokens[u] += 1
        profiles.running[u] += 1
        kv[u] += occupied(rules, inputs + k)


HELPERS = (held, occupied, fits, next_chunk, note, best_parts, overflows, fit, commit)
"""What the planner's loop calls from here, callees first."""
