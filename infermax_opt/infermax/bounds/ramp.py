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

*Prompts in chunks.*  A prompt that is not done holds KV, too, and makes no token.  With "square" attention
small chunks save work, but there are more of them.  Choose another piece (alpha', beta'), alpha' <= alpha and
beta' > beta, and a share lambda of g.  Let d = lambda (beta' - beta), and L the least of (alpha - alpha') /
(beta' - beta), rounded up to 1 or more, and the prefill tokens that a batch may have.  Without another piece
lambda is 0, d infinite, and L what a batch may have.  Let q be p1 where prompts may be split and attention is
"square", else 0.  The bound holds with (1 - lambda) g for g, and each prompt adds the sum of the I least ones
of

    (alpha / M + p2) r + 2 q (c-1)  for r = 0, 1, ... and c = 1..L,  and d as often as need be.

*Proof.*  Let p_t be the tokens that prompts which are not done hold after t.  The requests that make a token
in t hold S_t - p_t + (s-1) K at most, and M - p_t at most.  So each M - h_t is at least p_t more than was
counted, and J alpha is alpha / M times the sum of p_t more.  The chunks of the last try of a prompt, from its
last eviction before its first token on, lie in different batches.  Let r be the number of those that come
after a chunk.  Its tokens are held after r batches at least, and pay alpha / M r each, and p2 for each chunk
that comes behind them.  With c tokens its
attention is p1 c**2, of which W has p1 c: the c-th token adds 2 q (c-1).  lambda g(x) is at least d times
what x is above the rounded quotient, convex and 0 at 0: of the tokens that a batch processes of a prompt
all but the first L pay d each, or there are none.  So each of the I tokens pays one of these numbers, and
no two the same one.

*Batches by tokens.*  A schedule processes I + O - 1 tokens of each request or more, so J is at least their
sum N by C, too.  For any 0 <= mu <= 1 J alpha is (1 - mu) J alpha, at least (1 - mu) alpha N / C, and mu J
alpha, of which all of the above holds, with mu alpha for alpha wherever it is paid; L stays.

Evictions, chunks, arrivals and the limits P and R_max change none of this.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.closed_form import presence_ticks
from infermax_opt.infermax.bounds.counts import BatchCounts, blocks_of, count_batches
from infermax_opt.infermax.bounds.least_work import Totals, spreads
from infermax_opt.infermax.bounds.pieces import few_pieces
from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.bounds.token_payments import chunk_payments, prompt_lengths
from infermax_opt.infermax.data.instance import Instance

__all__ = ["filling_terms", "ramp_bound"]

#: Most pieces that are tried.
PIECES = 6
#: Most batches in which memory is looked at while it fills.
MAX_BATCHES = 100_000
#: Shares of what tokens beyond a knee cost that may be for prompts in chunks.
PERCENTS = (2, 5, 10, 20)
#: Units of mu in one.
WHOLE = 1000


def ramp_bound(instance: Instance) -> LowerBound | None:
    """Best ramp bound on the makespan over the pieces; None where memory may be full at once."""
    counts, best = count_batches(instance, instance.types), None
    for piece in few_pieces(instance, PIECES):
        found = _piece_bound(instance, counts, piece)
        if found is not None and (best is None or found.value > best.value):
            best = found
    return best


def _piece_bound(instance: Instance, counts: BatchCounts, piece: int) -> LowerBound | None:
    kinds, system, ticks = instance.types, instance.system, instance.cost.ticks
    block, alpha = system.block_size, ticks.alpha[piece]
    blocks = system.kv_capacity // block
    sizes = Sizes.of(kinds)
    volume = blocks_of(sizes, block)
    least = -(-volume // blocks)
    room = blocks * block - (block - 1) * _together(sizes, block, blocks)
    totals = Totals.of(instance, kinds)
    tokens = Fraction(totals.prompts + totals.later, system.max_batch_tokens)
    lengths = prompt_lengths(instance)

    def counted(split: _Split, share: int) -> _Counted:
        """With so much of the batches by KV, and the others by tokens."""
        ramp, length = _ramp(instance, piece, room, min(least, MAX_BATCHES), 100 - split.percent, share)
        prompts = _prompts(instance, lengths, piece, split, share)
        by_count = (tokens * (WHOLE - share) + Fraction(volume, blocks) * share) / WHOLE
        return _Counted(alpha * by_count + ramp, prompts, length, split, share)

    best = max((counted(split, WHOLE) for split in _splits(instance, piece)), key=lambda some: some.paid)
    lost = alpha * tokens - best.batches
    if spreads(instance) and ticks.p1 and best.prompts > 0 and lost > 0:
        # In chunks of any size prompts pay as the root of the share, and batches are as many fewer as it is.
        share = max(1, min(WHOLE, round(WHOLE * (best.prompts / (2 * lost)) ** 2)))
        best = max(best, counted(best.split, share), key=lambda some: some.paid)
    if best.length == 0 and best.prompts == 0:
        return None
    batches = max(least, counts.prefill)
    paid = totals.least_work(instance, piece) + best.paid
    paid += presence_ticks(instance, totals, counts, ticks.beta[piece], batches)
    evidence: dict[str, Any] = {"kind": "ramp", "piece": piece, "batches": best.length}
    if best.prompts > 0:
        evidence["prompts"] = {"knee": best.split.knee, "percent": best.split.percent}
    if best.share < WHOLE:
        evidence["share"] = best.share
    return LowerBound(paid / instance.cost.ticks_per_second, "ramp", Proof.CERTIFICATE, evidence=evidence)


def _together(sizes: Sizes, block: int, blocks: int) -> int:
    """Most requests whose prompts fit together."""
    number = 0
    for k in sizes.inputs.argsort(kind="stable"):
        each, count = -(-int(sizes.inputs[k]) // block), int(sizes.counts[k])
        fitting = min(count, blocks // each)
        number, blocks = number + fitting, blocks - fitting * each
        if fitting < count:  # those behind it are no smaller
            break
    return number


class _Split(NamedTuple):
    """The piece beyond whose knee tokens of prompts are dear, and the percent of g that pays for them."""

    knee: int | None
    percent: int


class _Counted(NamedTuple):
    """Ticks of batches, those that cannot be full yet among them, and of prompts in chunks; and how.

    The terms of the ramp, the split, and the share of the batches that is counted by KV.
    """

    batches: Fraction
    prompts: Fraction
    length: int
    split: _Split
    share: int

    @property
    def paid(self) -> Fraction:
        return self.batches + self.prompts


def _splits(instance: Instance, piece: int) -> Iterator[_Split]:
    """Splits to try."""
    ticks = instance.cost.ticks
    yield _Split(None, 0)
    for knee in few_pieces(instance, PIECES):
        if ticks.alpha[knee] <= ticks.alpha[piece] and ticks.beta[knee] > ticks.beta[piece]:
            yield from (_Split(knee, percent) for percent in PERCENTS)


def _prompts(
    instance: Instance, lengths: Mapping[int, int], piece: int, split: _Split, share: int
) -> Fraction:
    """Ticks that prompts pay while they are in chunks, at least."""
    ticks, system = instance.cost.ticks, instance.system
    full = system.kv_capacity // system.block_size * system.block_size
    wait = Fraction(ticks.alpha[piece] * share, WHOLE * full) + instance.cost.extra_ticks.p2
    if split.knee is None:
        return chunk_payments(instance, lengths, wait)
    steeper = ticks.beta[split.knee] - ticks.beta[piece]
    knee = max(1, -(-(ticks.alpha[piece] - ticks.alpha[split.knee]) // steeper))
    return chunk_payments(instance, lengths, wait, knee, Fraction(split.percent * steeper, 100))


def _ramp(
    instance: Instance, piece: int, room: int, most: int, percent: int, share: int
) -> tuple[Fraction, int]:
    """Sum of the terms that are above 0, in ticks, with so much of g, and their number, at most so many.

    Parameters
    ----------
    instance : Instance
    piece : int
    room : int
        R.
    most : int
    percent, share : int
    """
    ticks, system = instance.cost.ticks, instance.system
    alpha, beta = ticks.alpha[piece], ticks.beta[piece]
    pieces = list(zip(ticks.alpha, ticks.beta, strict=True))
    full = system.kv_capacity // system.block_size * system.block_size
    corners = _corners(pieces, system.max_batch_tokens)
    lines = []
    for corner in corners:
        above = max(a + b * corner for a, b in pieces) - (alpha + beta * corner)
        lines.append((Fraction(share * alpha, WHOLE * full) * corner, Fraction(percent, 100) * above))
    return filling_terms(Fraction(share * alpha * room, WHOLE * full), lines, most)


def _corners(pieces: Sequence[tuple[int, int]], most: int) -> set[Fraction]:
    """0, the most tokens of a batch, and the numbers between them from which on another piece is largest."""

    def crossing(one: tuple[int, int], other: tuple[int, int]) -> Fraction:
        return Fraction(one[0] - other[0], other[1] - one[1])

    largest: list[tuple[int, int]] = []
    for piece in sorted(pieces, key=lambda piece: (piece[1], piece[0])):
        if largest and largest[-1][1] == piece[1]:
            largest.pop()
        while len(largest) > 1 and crossing(*largest[-2:]) >= crossing(largest[-1], piece):
            largest.pop()
        largest.append(piece)
    found = {crossing(one, other) for one, other in pairwise(largest)}
    return {Fraction(0), Fraction(most)} | {corner for corner in found if 0 < corner < most}


def filling_terms(
    missing: Fraction, lines: Sequence[tuple[Fraction, Fraction]], most: int
) -> tuple[Fraction, int]:
    """Sum of the terms of the ramp that are above 0, in ticks, and their number, at most so many.

    Parameters
    ----------
    missing : Fraction
        Ticks for memory that is empty in a batch.
    lines : sequence of pair of Fraction
        For each number of tokens of a batch that may be best: ticks for the memory that they fill, to be
        taken k times from the k-th term, and what they cost besides.
    most : int
    """
    unit = math.lcm(missing.denominator, *(value.denominator for line in lines for value in line))
    whole = [(int(slope * unit), int(less * unit)) for slope, less in lines]
    total, length, start = 0, 0, int(missing * unit)
    while length < most:
        term = start - max(slope * (length + 1) - less for slope, less in whole)
        if term <= 0:
            break
        total, length = total + term, length + 1
    return Fraction(total, unit), length
