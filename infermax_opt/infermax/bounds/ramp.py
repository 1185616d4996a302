r"""The ramp bound: memory fills no faster than tokens are processed, and those beyond a knee cost more.

The area argument lets memory be full from the first batch on.  But what is cached was processed before: to
fill memory in few batches takes large ones, which cost more than the lowest slope of the batch time where
it has several pieces, and no batch has more than C tokens.

*Bound.*  Fix an affine piece (alpha, beta), and let g(x) >= 0 be what the largest piece is above it with x
tokens in the batch.  Let s be the block size, M the KV in whole blocks, A the KV in blocks that the
generated tokens hold, summed, and K the largest number of requests whose prompts fit together.  Let
R = M - (s-1) K.  Then for any H <= A / M, rounded up, the makespan is at least

    W + presence + alpha A / M + sum over k = 1..H of (alpha R / M - max over 0 <= x <= C of
    (alpha k x / M - g(x))),

W being the `least_work`, and presence the d0 and p0 of that many batches (`closed_form`).

*Proof.*  Count the J batches that process tokens; J >= A / M.  Let x_t be the tokens processed in batch t,
S_t their sum up to t, and h_t the KV held after t by the requests that make a token in it.  A token is made
once, so the h_t sum to A.  Each h_t is at most M.  At most K requests make a token together, as each holds
its prompt then; each holds at most s-1 more than the tokens it has cached, and these were processed, be
they cached for the first time or again.  So h_t <= S_t + (s-1) K, and

    J M = A + sum over t of (M - h_t) >= A + sum over t <= H of (R - S_t).

The batches cost W and presence, alpha J, and g(x_t) each, which is not in W.  Prompts with "square"
attention count in W as if in chunks of one token each, so that no number of batches takes from it.  The sum
of S_t over t <= H is that of (H-t+1) x_t.  With k = H-t+1 each of these batches costs at least its term of
the sum.  g is convex and linear between the tokens at which two pieces cross: the maximum is at such a
number, at 0 or at C.

Evictions, chunks, arrivals and the limits P and R_max change none of this.
"""

from __future__ import annotations

import math
from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.closed_form import presence_ticks
from infermax_opt.infermax.bounds.counts import BatchCounts, blocks_upto, count_batches
from infermax_opt.infermax.bounds.least_work import Totals
from infermax_opt.infermax.data.instance import Instance

__all__ = ["ramp_bound"]

#: Most batches in which memory is looked at while it fills.
MAX_BATCHES = 100_000


def ramp_bound(instance: Instance) -> LowerBound | None:
    """Best ramp bound on the makespan over the pieces; None where memory may be full at once."""
    counts, best = count_batches(instance, instance.types), None
    for piece in range(len(instance.cost.batch)):
        found = _piece_bound(instance, counts, piece)
        if found is not None and (best is None or found.value > best.value):
            best = found
    return best


def _piece_bound(instance: Instance, counts: BatchCounts, piece: int) -> LowerBound | None:
    kinds, system, ticks = instance.types, instance.system, instance.cost.ticks
    block, alpha = system.block_size, ticks.alpha[piece]
    blocks = system.kv_capacity // block
    sizes = [(k.input_tokens, k.output_tokens, len(k.members)) for k in kinds]
    volume = sum((blocks_upto(i + o - 1, block) - blocks_upto(i - 1, block)) * c for i, o, c in sizes)
    least = -(-volume // blocks)
    room = blocks * block - (block - 1) * _together(sizes, block, blocks)
    saved, length = _ramp(instance, piece, room, min(least, MAX_BATCHES))
    if length == 0:
        return None
    batches = max(least, counts.prefill)
    totals = Totals.of(instance, kinds)
    paid = totals.least_work(instance, piece) + Fraction(alpha * volume, blocks) + saved
    paid += presence_ticks(instance, totals, counts, ticks.beta[piece], batches)
    evidence = {"kind": "ramp", "piece": piece, "batches": length}
    return LowerBound(paid / instance.cost.ticks_per_second, "ramp", Proof.CERTIFICATE, evidence=evidence)


def _together(sizes: list[tuple[int, int, int]], block: int, blocks: int) -> int:
    """Most requests whose prompts fit together."""
    number = 0
    for i, _, count in sorted(sizes):
        fitting = min(count, blocks // -(-i // block))
        number, blocks = number + fitting, blocks - fitting * -(-i // block)
    return number


def _ramp(instance: Instance, piece: int, room: int, most: int) -> tuple[Fraction, int]:
    """Sum of the terms that are above 0, in ticks, and their number, at most so many."""
    ticks, system = instance.cost.ticks, instance.system
    alpha, beta = ticks.alpha[piece], ticks.beta[piece]
    pieces = list(zip(ticks.alpha, ticks.beta, strict=True))
    full = system.kv_capacity // system.block_size * system.block_size
    corners = {Fraction(0), Fraction(system.max_batch_tokens)}
    for (a, b), (c, d) in ((one, other) for one in pieces for other in pieces if one[1] < other[1]):
        corners.add(min(max(Fraction(a - c, d - b), Fraction(0)), Fraction(system.max_batch_tokens)))
    unit = math.lcm(*(corner.denominator for corner in corners))
    lines = []
    for corner in corners:
        tokens = int(corner * unit)
        above = max(a * unit + b * tokens for a, b in pieces) - (alpha * unit + beta * tokens)
        lines.append((alpha * tokens, full * above))
    total, length = 0, 0
    while length < most:
        term = alpha * room * unit - max(slope * (length + 1) - less for slope, less in lines)
        if term <= 0:
            break
        total, length = total + term, length + 1
    return Fraction(total, full * unit), length
