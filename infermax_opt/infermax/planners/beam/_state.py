"""What the beam search works on: columns of the problem, of its nodes and of its log.

A *key* stands for one request type at one progress: key ``first[t] + n`` is a request of type t
that has made n tokens, n < O_t.  Keys of one type are consecutive, so ell batches later a held
request has the key ``key + ell``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.data.cost import Coefficients

__all__ = ["KINDS", "NO_KEY", "BeamMove", "BeamNodes", "BeamProblem", "BeamRules", "Log", "Scratch"]

#: Absent key, absent position.
NO_KEY = -1
#: Most kinds of requests brought in at once.
KINDS = 5


class BeamProblem(NamedTuple):
    """The instance, as columns.

    Attributes
    ----------
    capacity, tokens, prefill, slots, block : int
        M, C, P, the most requests ever held, the block size.
    chunked, exact : int
    first : column of int, one per type
        Key of a fresh request.
    kind, size, left : columns of int, one per key
        Type; tokens cached after the next batch; tokens still to make.
    out : column of float, one per key
        Debt of an evicted request: what its refill is expected to cost.
    start : column of float, one per type
        Pay for the first token beyond that of a decode step.
    area, token : float
        Pay per token of KV and batch, and per token made.
    cost : Coefficients
        Floats.
    """

    capacity: Any
    tokens: Any
    prefill: Any
    slots: Any
    block: Any
    chunked: Any
    exact: Any
    first: Any
    kind: Any
    size: Any
    left: Any
    out: Any
    start: Any
    area: Any
    token: Any
    cost: Coefficients


class BeamRules(NamedTuple):
    """The search: nodes a bucket, width of a bucket in pay, ring length, and what is tried.

    Attributes
    ----------
    width, step, ring : int, float, int
    pool : int
        Evicted requests beyond which no fresh one starts.
    pace : int
        Most batches between two decisions while requests wait.
    pairs : int
        Most held requests at which evicting two at once is tried.
    free : int
        Whether nothing is evicted at all.
    reach : int
        Buckets ahead that children fall into, as a rule.
    gain : float
        Value that a child may gain on the way, as a rule.
    """

    width: Any
    step: Any
    ring: Any
    pool: Any
    pace: Any
    pairs: Any
    free: Any
    reach: Any
    gain: Any


class BeamNodes(NamedTuple):
    """Columns of the nodes; bucket b has the rows from ``(b % ring) * width``.

    Attributes
    ----------
    held, pool : tables of int
        Keys of the held requests, the next to finish first; of the evicted ones, smallest first.
    helds, pools : columns of int
    fresh : table of int, one column per type
    used : column of int
        KV after the next batch, whole blocks not counted.
    cost, pay, debt, value : columns of float
        Seconds so far, pay so far, sum of `BeamProblem.out`; ``value = cost - pay + debt``.
    hash, kept, log : columns of int
        Hash of the node, its part from the pool, entry of the log.
    filled, worst : columns, one per bucket in the ring
        Nodes in it, and the position of the worst one.
    """

    held: Any
    helds: Any
    pool: Any
    pools: Any
    fresh: Any
    used: Any
    cost: Any
    pay: Any
    debt: Any
    value: Any
    hash: Any
    kept: Any
    log: Any
    filled: Any
    worst: Any


class Log(NamedTuple):
    """Decisions, parents first.

    Attributes
    ----------
    parent : column of int
    move : table of int
        Two evicted keys, `KINDS` times (key brought in, how many), batches.
    state : column of int
        [entries, entry of the best complete schedule, bucket, room that an expansion needs]
    best : column of float
        [seconds of the best complete schedule, or beyond which none is wanted]
    keep : column of int, one per entry
        Work space.
    """

    parent: Any
    move: Any
    state: Any
    best: Any
    keep: Any


class BeamMove(NamedTuple):
    """A decision under consideration, changed in place.

    Attributes
    ----------
    out : column of two positions in the node's held requests, `NO_KEY` for none
    key, times : columns of int
        Requests brought in.
    stays : column of int
        [requests that stay, their `used`, batches until the first of them ends, then of what is
        brought in: kinds, requests, tokens]
    """

    out: Any
    key: Any
    times: Any
    stays: Any


class Scratch(NamedTuple):
    """Work space: a child's held requests, the order of a bucket's nodes.

    `salt` and `pool_salt` hold random numbers by key, the same for keys that count as alike.
    """

    held: Any
    salt: Any
    pool_salt: Any
    order: Any
