r"""The mutual delay bound on the mean end-to-end latency with arrivals: requests delay each other in pairs.

Fix one affine piece, in ticks.  A request is there from the first batch that starts no sooner than it
arrives to its last token.  The sum of latencies is at least the sum, over requests and the batches in which
they are there, of the batch times.  A batch has a fixed part, work w(l) = beta + d1 (I + l - 1) for each
later token l that it makes by decoding, and the work of its prompts and refills.  Share the time that
request y spends in it:

- *own*: what y would take alone, its least latency: a' = alpha + d0 and w for each later token, the work of
  its prompt, alpha + p0 for each of the chunks;
- *of others*: the work of their tokens and prompts, each for the pair of y and that other;
- *waiting*: a' if others decode in it and y neither makes a token nor has a chunk that counts as its own.
  Shares of a' go to the pairs of y: s(y, z) for the pair with z, all together a' or less.

No part is taken twice.  Now bound what goes to the pair of i and k, of which i came first.  When k comes,
let x be the tokens of i whose making has begun, r the later tokens left after them, o those of k.  Any
potential that starts no lower than its bound, that falls by no more than the pair is paid, and that is 0 or
less once one of both has left, is paid in full.

*Tokens.*  For 0 <= f <= 1 take f S(m), S(m) being the work of the next m tokens of both, and m the lesser
of what is left to i and to k.  A batch in which both make a token pays the work of both, and S falls by
these. One in which i does while k waits pays w_i + s(k, i), and f S falls by f (w_i + w_k) at most, w_k
being the last that S counts.  So f w_k <= s(k, i) + (1 - f) w_i is enough; likewise with i and k exchanged.

*Prompt of k*, in q chunks with work P.  While it is not done, a pair is paid A: its work that is left, and
f S for m less by the chunks that are left: a batch with such a chunk pays its work to i, and if i makes a
token in it, then k could not, but m stays as it was.  Or i leaves before the prompt is done, and the pair
is paid W: the work of all tokens left to i.  Then k has waited in one batch for each token left to i, but
for q - 1, as it does not wait in its own chunks.  Each time it pays s(k, i), which counts in W, and b(k),
what is left of a' besides all of its shares.  So all pairs of k with earlier ones together are paid the
least, over numbers n of such batches, of n b(k) and A, or the lesser of A and W for those i with n + q - 1
tokens left or fewer.  A batch in which k waits takes at most one token from each i and one from n; one with
a chunk of k, at most one token from each i and one from q.  After the last chunk A is what is left.

*Prompt of i.*  If it is not done, or a refill of i is under way when k comes (then its token counts among
x), k may make tokens in those batches of i, so m is less by the q chunks of i, at least one.  If it cannot
be done, as i has been there for t < first_i, then its work that is left is paid, too, beside A and W; or k
leaves first, and i pays the prompt of k, all of its tokens, and s(i, k) for each but (chunks of i) - 1.
Done is at most a share of t / (alpha + p0 + beta I) of beta I: k pays what is left of the batch in which it
comes.

*Refills.*  A token after an eviction ends a refill of s = I + l tokens, which works (beta + p1) s or more.
If that is at least w + max(0, d0 - p0), those who are there throughout the refill are paid like for a
decode, and a' is paid in its last batch.  Only such requests, or any without preemption, are paid for their
tokens; others are in pairs for their prompts alone.  Chunks of a prompt that is evicted before its end, and
those of a refill, are waiting.

*Bounds on x.*  Alone i would take first_i + sum (a' + w) before it begins token x, so k finds x0 at most.
A and W are concave or fall in x, so S at x = 0 and at x0, and W at x0, are the least.

*Chunks.*  Whichever is the lesser, m is less by at most both numbers of chunks less one, and S by so many
terms.  So the bound is a sum over requests of functions of their own q.  Each takes its least.  Only some
of its chunks, with the last, need count as its own, so from Q to Q' > q chunks charge Q, or the fewest, and
attention as for Q' - 1; and none that chunks save from the last Q on.  QED.

Certificate: the shares, in units of a' / 2**16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, isqrt
from typing import NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._mutual_search import SHARE_BITS, Crowd, shared_out
from infermax_opt.infermax.bounds.interaction import Prices, in_chunks
from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.bounds.pieces import best_piece, longest
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["Guest", "MutualProof", "mutual_bound"]

#: Largest KV of a request for which the bound is tried: times alone are tabulated by it.
MAX_SIZE = 2**20
#: Requests beyond which it is not tried.
MAX_CHECKED = 50_000
#: Bits after the point of f.
FACTOR_BITS = 12
#: How many chunks more than the fewest, each up to the next: those between are not told apart.
CHUNKINGS = (0, 1, 2, 4, 8, 16)


def mutual_bound(
    instance: Instance, *, stop: Callable[[], bool] | None = None, pieces: Sequence[int] | None = None
) -> LowerBound | None:
    """Best mutual delay bound found over pieces and shares.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no more.
    pieces : sequence of int, optional
        Which pieces of the batch time, in this order; without it all of them.

    Returns
    -------
    LowerBound or None
        None where the bound is not tried.
    """
    few = longest(instance) <= MAX_SIZE and len(instance.requests) <= MAX_CHECKED
    if instance.offline or not few:
        return None
    return best_piece(instance, _piece_bound, stop, pieces)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    prices = Prices.of(instance, piece)
    if prices is None:
        return None
    proof, best = MutualProof(instance, prices), None
    for shares in shared_out(proof.crowd(), stop):
        found = proof.bound(shares)
        if best is None or found.value > best.value:
            best = found
        if stop():
            break
    return best


class Guest(NamedTuple):
    """A request, in ticks.

    Attributes
    ----------
    begin, until : int
        Arrival, rounded down and up.
    outputs : int
        Later tokens.
    work : int
        Of the first of them; each works d1 more than the one before.
    first, later : int
        Least times alone of the first token and of the later ones.
    chunks : int
        Fewest of the prompt.
    linear, square : int
        Work of the prompt, but for attention that chunks share; that attention in one chunk.
    paired : bool
        Whether its tokens may delay others: a refill is never the cheaper way to make one.
    """

    begin: int
    until: int
    outputs: int
    work: int
    first: int
    later: int
    chunks: int
    linear: int
    square: int
    paired: bool


class MutualProof:
    """The bound for some shares.

    Parameters
    ----------
    instance : Instance
    prices : Prices
    """

    def __init__(self, instance: Instance, prices: Prices):
        self.instance, self.prices = instance, prices
        ticks = instance.cost.ticks
        self._growth: int = ticks.d1
        self._chunk: int = ticks.alpha[prices.piece] + ticks.p0
        kinds = sorted(instance.types, key=lambda kind: (kind.arrival, kind.input_tokens, kind.output_tokens))
        #: By arrival, then by lengths: certificates count them in this order.
        self.guests = [guest for kind in kinds for guest in [self._read(kind)] * len(kind.members)]

    def _read(self, kind: RequestType) -> Guest:
        ticks, prices = self.instance.cost.ticks, self.prices
        beta, i, outputs = ticks.beta[prices.piece], kind.input_tokens, kind.output_tokens - 1
        square, linear = ticks.p1 * i * i, beta * i
        if not spreads(self.instance):
            square, linear = 0, linear + square
        chunks = -(-i // self.instance.system.prefill_budget)
        dearer = (
            (beta + ticks.p1) * s - beta - ticks.d1 * (s - 1) >= max(0, ticks.d0 - ticks.p0)
            for s in (i + 1, i + outputs)
        )
        arrival = kind.arrival * self.instance.cost.ticks_per_second
        return Guest(
            floor(arrival), ceil(arrival), outputs, beta + ticks.d1 * i,
            linear + in_chunks(self._chunk, chunks, square, 1, 1),
            prices.alone[i + outputs] - prices.alone[i],
            chunks, linear, square, not self.instance.policy.preemption or all(dearer),
        )  # fmt: skip

    def crowd(self) -> Crowd:
        """What the search for shares goes by."""
        return Crowd(self.prices.step, self._growth, self._chunk, self.guests)

    def bound(self, shares: Sequence[Sequence[int]]) -> LowerBound:
        """The bound, exactly.

        Parameters
        ----------
        shares : sequence of sequences of int
            For each request, three numbers for each of its pairs with an earlier one: how many requests
            before it that one came, the share of its own a', and the share of the other's.
        """
        instance = self.instance
        pairs: list[list[Pair]] = [[] for _ in self.guests]
        lost, gained = [0] * len(self.guests), 0
        spare = [1 << SHARE_BITS] * len(self.guests)
        for k, row in enumerate(shares):
            for back, mine, other in zip(*[iter(row)] * 3, strict=True):
                pair = self._pair(self.guests[k - back], self.guests[k], mine, other)
                spare[k] -= mine
                spare[k - back] -= other
                pairs[k].append(pair)
                lost[k - back] += pair.delay
                lost[k] += pair.term
                gained += pair.delay
        total = gained + sum(
            (guest.later << FACTOR_BITS) + self._least(guest, pairs[k], lost[k], self._ticks(spare[k]))
            for k, guest in enumerate(self.guests)
        )
        ticks = Fraction(total, 1 << FACTOR_BITS)
        evidence = {"kind": "mutual", "piece": self.prices.piece, "pairs": [list(row) for row in shares]}
        value = ticks / instance.cost.ticks_per_second / len(instance.requests)
        return LowerBound(value, "mutual delay", Proof.CERTIFICATE, evidence=evidence)

    def _pair(self, early: Guest, late: Guest, mine: int, other: int) -> Pair:
        """What a pair of requests is paid at least, given the shares of a' of the late and the early one."""
        growth = self._growth
        waits, yields = self._ticks(mine), self._ticks(other)
        time = late.until - early.begin
        pending = time < early.first
        begun = self._begun(early, time)
        left = early.outputs - begun if early.paired else 0
        if left <= 0 and not pending:
            return Pair(0, 0, 0, 0, 0, 0, 0, 0)
        lasts = early.work + growth * (early.outputs - 1), late.work + growth * (late.outputs - 1)
        factor = 0
        if left and late.paired and late.outputs:
            factor = min(_factor(early.work, lasts[1], waits), _factor(late.work, lasts[0], yields))
        few, count = min(left, late.outputs), min(early.outputs, late.outputs)
        tokens = factor * min(
            self._work(early, begun, few) + self._work(late, 0, few),
            self._work(early, 0, count) + self._work(late, 0, count),
        )
        term, outlived = factor * sum(lasts), self._work(early, begun, left) << FACTOR_BITS
        if not pending:
            return Pair(tokens, term, term, outlived, left, waits, 0, tokens)
        whole = self._chunk + early.linear
        prompt = (early.linear * max(0, whole - time) << FACTOR_BITS) // max(1, whole)
        overtaken = 0
        if late.paired:
            overtaken = (self._work(late, 0, late.outputs) << FACTOR_BITS) + late.outputs * yields
        return Pair(tokens, term, max(term, yields), outlived, left, waits, prompt, overtaken)

    def _ticks(self, share: int) -> int:
        """A share of a' in units of 2**-FACTOR_BITS ticks."""
        return self.prices.step * share >> SHARE_BITS - FACTOR_BITS

    def _work(self, guest: Guest, since: int, count: int) -> int:
        """Work of so many later tokens after the first `since`."""
        return count * guest.work + self._growth * (count * (2 * since + count - 1) // 2)

    def _begun(self, guest: Guest, time: int) -> int:
        """Most later tokens whose making has begun when so much time has gone by."""
        rest, step = time - guest.first, self.prices.step + guest.work
        if rest <= 0:
            return 0
        # The greatest x with x step + growth x (x - 1) / 2 < rest, and one more.
        linear, twice = 2 * step - self._growth, 2 * (rest - 1)
        x = twice // linear
        if self._growth:
            x = (isqrt(linear * linear + 4 * self._growth * twice) - linear) // (2 * self._growth)
        return min(guest.outputs, x + 1)

    def _least(self, guest: Guest, pairs: Sequence[Pair], term: int, spare: int) -> int:
        """Least over its chunks of what a request pays for its prompt, and of what its pairs are paid.

        Parameters
        ----------
        guest : Guest
        pairs : sequence of Pair
            Those with earlier ones.
        term : int
            What each chunk of it costs its pairs at most.
        spare : int
            What it pays besides all shares when it waits.
        """
        least, pairs = [], sorted(pairs, key=lambda pair: pair.left)
        for more, beyond in zip(CHUNKINGS, (*CHUNKINGS[1:], 0), strict=True):
            work = guest.linear + (guest.square // (guest.chunks + beyond - 1) if beyond else 0)
            least.append(
                max(
                    (own * self._chunk + work << FACTOR_BITS)
                    - own * term
                    + _paid(pairs, work << FACTOR_BITS, own, spare)
                    for own in {guest.chunks, guest.chunks + more}
                )
            )
            if not guest.square:
                break
        return min(least)


class Pair(NamedTuple):
    """What a pair is paid, in units of 2**-FACTOR_BITS ticks.

    Attributes
    ----------
    tokens, term : int
        f S(m), and a term of it at most: what a chunk of the late one costs.
    delay : int
        What a chunk of the early one costs, but for the first.
    outlived, left, waits : int
        Work of all tokens left to the early one, their number, and what the late one pays for each.
    prompt : int
        Work surely left of the prompt of the early one.
    overtaken : int
        What the early one pays for all tokens of the late one, if that leaves before its prompt is done.
    """

    tokens: int
    term: int
    delay: int
    outlived: int
    left: int
    waits: int
    prompt: int
    overtaken: int


def _paid(pairs: Sequence[Pair], prompt: int, chunks: int, spare: int) -> int:
    """What the pairs of a late one are paid, the least over how long it waits before its prompt.

    Parameters
    ----------
    pairs : sequence of Pair
        By tokens left to the early one.
    prompt, chunks : int
        Work of the prompt of the late one, and its chunks.
    spare : int
        What it pays for each batch besides its shares.
    """
    total = dropped = most = 0
    for pair in pairs:
        stays = min(pair.prompt + prompt + pair.tokens, prompt + pair.overtaken)
        waited = max(0, pair.left - chunks + 1)
        total += stays
        dropped += max(0, stays - pair.prompt - pair.outlived - waited * pair.waits)
        most = max(most, dropped - waited * spare)
    return total - most


def _factor(first: int, last: int, share: int) -> int:
    """Greatest f <= 1 with f last <= share + (1 - f) first; f and the share in units of 2**-FACTOR_BITS."""
    if last << FACTOR_BITS <= share:
        return 1 << FACTOR_BITS
    return (share + (first << FACTOR_BITS)) // (last + first)
