r"""The running bound: few may run at once, so prompts in many chunks and batches that decode cost more.

A request that is in chunks takes a place among the R_max that may hold KV, and makes no token.

*Bound.*  Fix an affine piece (alpha, beta), and let w = alpha / R_max.  Let S(q) be the least sum of squares
of q whole numbers whose sum is I, and q0 = I / min(P, C), rounded up.  The makespan is at least

    W + presence + w (sum of O) + sum over requests of the least over q = q0..I of (w (q-1) + p (S(q) - I)),

W being the `least_work`, and p = p1 where prompts may be split and attention is "square".  Else p = 0, and
without chunks q = 1.

*Proof.*  Count the J batches that process tokens.  Take the last try of a prompt: from the last eviction
before its first token on.  Its q chunks are in q different batches, q >= q0, and the last of them makes the
first token.  After each of the others the request holds KV, as after each of the O batches that make its
tokens, which are others again.  At most R_max requests hold KV, so J R_max is at least the sum of O + q - 1,
and alpha J at least w times that.  The attention of the chunks is p1 S(q) at least, of which W has p1 I.

*One q is best.*  S(q) is the sum of the I least of the numbers 1, 3, 5, ... where each is there q times: the
c-th token of a chunk adds 2 c - 1 to its square.  Each copy more takes the place of the greatest of those,
which fall.  So S(q) - S(q+1) falls with q, and the first q from which the next is no better is the best.

*Presence* is p0 of `counts` prefill batches, what decodes pay, and min(d0, p0) for the rest of J, as in
`closed_form`.  Of X batches that decode each has R_max tokens at most; any other of the N later tokens ends a
refill, which costs (beta - d1) (s-1) >= beta - d1 more than W counts, s >= 2 being what is cached then.  If
(beta - d1) R_max >= d0, or nothing is ever evicted, both together cost d0 N / R_max or more.  The greater of
that and what `closed_form` has for KV counts.

Arrivals change none of this.
"""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.closed_form import presence_ticks
from infermax_opt.infermax.bounds.counts import BatchCounts, count_batches
from infermax_opt.infermax.bounds.least_work import Totals, spreads
from infermax_opt.infermax.bounds.pieces import few_pieces
from infermax_opt.infermax.bounds.token_payments import prompt_lengths
from infermax_opt.infermax.data.instance import Instance

__all__ = ["running_bound"]

#: Most pieces that are tried.
PIECES = 6


def running_bound(instance: Instance) -> LowerBound | None:
    """Best running bound on the makespan over the pieces; None without a limit of those who run."""
    places = instance.system.max_running
    if places is None:
        return None
    counts, totals = count_batches(instance, instance.types), Totals.of(instance, instance.types)
    pieces = few_pieces(instance, PIECES)
    return max((_piece_bound(instance, counts, totals, piece, places) for piece in pieces), key=_value)


def _value(bound: LowerBound) -> Fraction:
    return bound.value


def _piece_bound(
    instance: Instance, counts: BatchCounts, totals: Totals, piece: int, places: int
) -> LowerBound:
    ticks = instance.cost.ticks
    outputs = totals.later + len(instance.requests)
    paid = ticks.alpha[piece] * outputs  # from here on in parts of R_max
    for tokens, count in prompt_lengths(instance).items():
        paid += count * _chunks(instance, tokens, ticks.alpha[piece], places)
    batches = max(counts.prefill, -(-outputs // places))
    whole = totals.least_work(instance, piece)
    decoded = _decoded(instance, totals, piece, places)
    whole += presence_ticks(instance, totals, counts, ticks.beta[piece], batches, decoded)
    value = (whole + Fraction(paid, places)) / instance.cost.ticks_per_second
    evidence = {"kind": "running", "piece": piece}
    return LowerBound(value, "running requests", Proof.CERTIFICATE, evidence=evidence)


def _chunks(instance: Instance, tokens: int, alpha: int, places: int) -> int:
    """Least that a prompt of so many tokens pays for its places and its attention, in parts of R_max."""
    if not instance.policy.chunked_prefill:
        return 0
    square = places * instance.cost.ticks.p1 if spreads(instance) else 0

    def paid(chunks: int) -> int:
        each, more = divmod(tokens, chunks)
        squares = (chunks - more) * each**2 + more * (each + 1) ** 2
        return alpha * (chunks - 1) + square * (squares - tokens)

    low, high = -(-tokens // instance.system.prefill_budget), tokens
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if paid(middle + 1) >= paid(middle) else (middle + 1, high)
    return paid(low)


def _decoded(instance: Instance, totals: Totals, piece: int, places: int) -> list[tuple[int, int]]:
    """Least sum of d0 in ticks, and the batches that pay it at least; none where refills may be cheaper."""
    ticks = instance.cost.ticks
    if instance.policy.preemption and (ticks.beta[piece] - ticks.d1) * places < ticks.d0:
        return []
    return [(ticks.d0 * totals.later // places, -(-totals.later // places))]
