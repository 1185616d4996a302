"""Regrouping of prompts: as few batches as possible pay the fixed price of prefill.

A request may idle between two tokens, at the price of the KV that it holds.  So a prompt may be
processed earlier than its second token needs, in a batch in which others are prefilled anyway.
The decodes stay where they are.  Every prompt (its last chunk, of several) is taken out and put
back in the order of the second tokens: into the latest batch with prefill in which it fits, and
otherwise as late as possible, where it opens a new one.  Where nothing else limits a batch, no
choice has fewer batches with prefill: a group takes all prompts that it can, and those that it
can take are consecutive.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.data.cost import batch_time

__all__ = ["HELPERS", "BatchLoads", "Moves", "PolishLimits", "regroup"]


class PolishLimits(NamedTuple):
    """Limits of a batch, whether prompts and decodes mix, and how far a prompt may be moved back."""

    capacity: int
    tokens: int
    prefill: int
    running: int
    hybrid: int
    far: int


class BatchLoads(NamedTuple):
    """Per batch: tokens processed, prefill tokens among them, requests that prefill and decode, KV
    held and requests holding it after the batch, and whether it stays even if nothing is processed.
    """

    tokens: Any
    prefill: Any
    prefills: Any
    decodes: Any
    kv: Any
    running: Any
    kept: Any


class Moves(NamedTuple):
    """Columns per chunk that may be moved, by `latest`.

    `at`: its batch; `after`, `latest`: the batch that it must come after, and the last one that it
    may be in.  `chunk`: its tokens; `size`, `fresh`: KV and requests holding some that it adds.
    """

    at: Any
    after: Any
    latest: Any
    chunk: Any
    size: Any
    fresh: Any


def spend(load: Any, cost: Any) -> Any:
    """Time of all batches, but for the attention, which no move changes."""
    seconds = 0.0
    for u in range(len(load.tokens)):
        if load.tokens[u] > 0 or load.kept[u] > 0:
            seconds += batch_time(
                cost.alpha, cost.beta, cost.d0, 0.0, cost.p0, 0.0,
                load.tokens[u], load.decodes[u], 0.0, load.prefills[u], 0.0,
            )  # fmt: skip
    return seconds


def put(load: Any, moves: Any, k: Any, u: Any, sign: Any) -> None:
    """Add chunk k to batch u, or take it away."""
    chunk = sign * moves.chunk[k]
    load.tokens[u] += chunk
    load.prefill[u] += chunk
    load.prefills[u] += sign
    for v in range(u, moves.latest[k] + 1):
        load.kv[v] += sign * moves.size[k]
        load.running[v] += sign * moves.fresh[k]


def place(limits: Any, load: Any, moves: Any, k: Any) -> Any:
    """Batch for chunk k: the latest with prefill, else with decodes, else at all; -1 if none."""
    latest = moves.latest[k]
    found = empty = -1
    for u in range(latest, max(moves.after[k], latest - limits.far), -1):
        if load.kv[u] + moves.size[k] > limits.capacity or load.running[u] + moves.fresh[k] > limits.running:
            break
        if (
            load.tokens[u] + moves.chunk[k] > limits.tokens
            or load.prefill[u] + moves.chunk[k] > limits.prefill
            or (load.decodes[u] > 0 and limits.hybrid == 0)
        ):
            continue
        if load.prefills[u] > 0:
            return u
        if load.tokens[u] == 0:
            empty = max(empty, u)
        else:
            found = max(found, u)
    return found if found >= 0 else empty


def regroup(limits: Any, load: Any, moves: Any, cost: Any) -> Any:
    """Move chunks into fewer batches.

    Parameters
    ----------
    limits, load, moves : PolishLimits, BatchLoads, Moves
        `load` is used up; `moves.at` becomes the new batches, if that pays.
    cost : Coefficients
        Floats.

    Returns
    -------
    float
        Seconds saved; 0 if nothing has been moved.
    """
    before = spend(load, cost)
    n = len(moves.at)
    new = [0 for _ in range(n)]
    for k in range(n):
        put(load, moves, k, moves.at[k], -1)
    for k in range(n):
        u = place(limits, load, moves, k)
        if u < 0:
            return 0.0
        put(load, moves, k, u, 1)
        new[k] = u
    saved = before - spend(load, cost)
    if saved <= 1e-9 * before:
        return 0.0
    for k in range(n):
        moves.at[k] = new[k]
    return saved


HELPERS = (batch_time, spend, put, place)
"""What `regroup` calls, callees first."""
