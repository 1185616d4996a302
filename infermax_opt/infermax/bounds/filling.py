r"""The filling bound on the makespan: before requests have arrived, they cannot fill the memory.

The area bound lets every batch make tokens that hold M.  With arrivals the first ones cannot: this bound
pays for what they leave empty, less the work that may be done meanwhile.

*Dates.*  A batch that processes a token of a request takes at least tau = max_k (alpha_k + beta_k) + min(d0
+ d1, p0 + p1).  A prompt of I tokens takes at least q = ceil(I / min(P, C)) batches, f = max_k (q alpha_k +
beta_k I) + q p0 + p1 W in all, W = I**2, or I where chunks save attention work.  So a batch that processes
anything for token n of request i after its token n - 1 starts at e = a_i or later for n = 1, and at e = a_i
+ f + (n - 2) tau or later for n >= 2.

*Sizes.*  Let M be the capacity in whole blocks.  A batch that makes token n holds s = held(I + n - 1) for
it; let u_j be their sum over the tokens that batch j makes, u_j <= M.  If it starts at S_j, then u_j <=
C(S_j): the sum over the requests of the largest s whose e is S_j or before.

*Work.*  Fix one affine piece (alpha, beta).  A prompt works beta I + p1 W + p0 I / min(P, C).  A later
token works beta + d1' (I + n - 2) + d0' (I + n - 1) / M, d1' = d1 without preemption, else min(d1, beta);
d0' = d0 without preemption or if (beta - d1) M >= 2 d0, else 0.  A batch takes at least alpha plus the
works w_j that are done in it: presence of prefill is paid by its tokens, at most min(P, C); that of decode
by what decodes hold, at most M; and a refill of L >= 2 tokens pays beta L, no less than beta + d1' (L - 1)
+ d0' L / M.

*Proof.*  Let g fall with time, 0 <= g(t) <= 1 - C(t) / M.  Let D_j be the duration of batch j and x_j = D_j
- w_j >= alpha.  As u_j <= (1 - g(S_j)) M,

    x_j >= g(S_j) x_j + (1 - g(S_j)) alpha >= g(S_j) x_j + alpha u_j / M,
    D_j >= g(S_j) D_j + (1 - g(S_j)) w_j + alpha u_j / M.

g(S_j) D_j is at least the integral of g over the batch, and idle time is no less than that of g over it.
The work of a token is done in batches that start at its e or later, where 1 - g is at least 1 - g(e).
Summed over the batches, with T the makespan and G(T) the integral of g up to it,

    T - G(T) >= K = sum of (1 - g(e)) w over all tokens + alpha / M (sum of s over all tokens).

Let g be 0 from some moment E on, and E < V = K + G(E).  The left side does not fall with T, as g <= 1, and
at E it is E - G(E) < K; so T > E, where it is T - G(E), and T >= V.  QED.

With g = 0 this is an area bound.  By slots everything holds likewise where at most R requests may run: every
s is 1, R is in the place of M, and d0' / R is the presence of a decode, which a refill pays, too.

The search takes g as large as it may be, in steps, up to an E that it raises while V does.  Arrivals are
rounded down to ticks, which only lowers e.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import islice
from math import ceil
from typing import Any

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.counts import blocks_of
from infermax_opt.infermax.bounds.least_work import Totals, prompt_pairs
from infermax_opt.infermax.bounds.pieces import best_piece
from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["filling_bound"]

#: Steps of g, and steps of all requests together, at most: the checker looks at each.
CELLS, ALL_CELLS = 128, 500_000
#: Times that E is raised at most, and what each has to gain, as a share of the bound.
RAISES, GAIN = 40, Fraction(1, 1000)
#: Levels of g are in units of 2**-LEVEL_BITS.
LEVEL_BITS = 20


def filling_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best filling bound over the pieces; None offline, where the memory is full at once.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no more.
    """
    return None if instance.offline else best_piece(instance, _piece_bound, stop)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    if piece and stop():
        return None
    limited = instance.system.max_running is not None
    proofs = [
        FillingProof(instance, piece, by_slots) for by_slots in ((False, True) if limited else (False,))
    ]
    return max((_raised(proof, stop) for proof in proofs), key=lambda bound: bound.value)


def _raised(proof: FillingProof, stop: Callable[[], bool]) -> LowerBound:
    """The bound with the last E that pays."""
    best = proof.bound([])
    for _ in range(RAISES):
        better = proof.bound(proof.cells(proof.last_end(best)))
        gained = better.value - best.value
        if gained > 0:
            best = better
        if gained <= GAIN * best.value or stop():
            break
    return best


class FillingProof:
    """The bound for one affine piece.

    Parameters
    ----------
    instance : Instance
    piece : int
    by_slots : bool
        Whether requests, not tokens, fill the memory; needs a limit on them.
    """

    def __init__(self, instance: Instance, piece: int, by_slots: bool):
        self.instance, self.piece, self.by_slots = instance, piece, by_slots
        ticks, system, policy = instance.cost.ticks, instance.system, instance.policy
        self.capacity = system.kv_capacity // system.block_size * system.block_size
        if by_slots and system.max_running is not None:
            self.capacity = system.max_running
        self._beta = ticks.beta[piece]
        self._d1 = min(ticks.d1, self._beta) if policy.preemption else ticks.d1
        paid = not policy.preemption or (self._beta - ticks.d1) * self.capacity >= 2 * ticks.d0
        self._d0 = ticks.d0 if paid else 0
        most = max(alpha + beta for alpha, beta in zip(ticks.alpha, ticks.beta, strict=True))
        self._step = most + min(ticks.d0 + ticks.d1, ticks.p0 + ticks.p1)
        #: Works are in ticks / unit.
        self.unit = self.capacity * system.prefill_budget
        by_prompt = {kind.input_tokens: kind for kind in instance.types}
        prompts = {tokens: self._prompt(kind) for tokens, kind in by_prompt.items()}
        dated = ((kind, self._dates_of(kind, prompts[kind.input_tokens])) for kind in instance.types)
        self._dated = sorted(dated, key=lambda pair: pair[1][0])
        self._firsts = [first for _, (first, _) in self._dated]
        area, work = self._area(Sizes.of(instance.types)), self._work_of(Totals.of(instance, instance.types))
        #: Area and work, in ticks / unit.
        self._base = ticks.alpha[piece] * area * system.prefill_budget + work

    def bound(self, cells: Sequence[tuple[int, int]]) -> LowerBound:
        """The bound by some steps of g, (end in ticks, level), whose last end is below it."""
        left = sum(level * (end - start) for start, end, level in _spans(cells))
        early = Fraction(self._early(cells), self.unit)
        value = Fraction(self._base, self.unit) + (left - early) / (1 << LEVEL_BITS)
        evidence: dict[str, Any] = {
            "kind": "filling",
            "piece": self.piece,
            "by_slots": self.by_slots,
            "exponent": LEVEL_BITS,
            "cells": [list(cell) for cell in cells],
        }
        seconds = value / self.instance.cost.ticks_per_second
        return LowerBound(seconds, "filling", Proof.CERTIFICATE, evidence=evidence)

    def last_end(self, bound: LowerBound) -> int:
        """The last tick before a bound."""
        return ceil(bound.value * self.instance.cost.ticks_per_second) - 1

    def cells(self, end: int) -> list[tuple[int, int]]:
        """The largest g that the sizes allow, in equal steps until the memory may be full, or until `end`.

        They prove what they give if that is more than `end`.
        """
        low, high = 0, max(0, end)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if self._may_be_full(middle) else (middle, high)
        number = min(CELLS, max(1, ALL_CELLS // len(self.instance.types)))
        found: list[tuple[int, int]] = []
        for k in range(number):
            stop = low * (k + 1) // number
            level = ((self.capacity - self.most_held(stop)) << LEVEL_BITS) // self.capacity
            if level > 0 and stop > (found[-1][0] if found else 0):
                found.append((stop, level))
        return found

    def most_held(self, end: int) -> int:
        """C before some moment, in ticks."""
        return sum(self._held(end))

    def _may_be_full(self, end: int) -> bool:
        """Whether C before some moment is the capacity or more, which the first requests can show."""
        held = 0
        for one in self._held(end):
            held += one
            if held >= self.capacity:
                return True
        return False

    def _held(self, end: int) -> Iterator[int]:
        """What the requests of each type hold at most before some moment, in ticks."""
        held = self.instance.system.held
        for kind, dates in self._begun(end):
            last = self._last_before(kind, dates, end)
            if last:
                yield len(kind.members) * (1 if self.by_slots else held(kind.input_tokens + last - 1))

    def _begun(self, end: int) -> Iterator[tuple[RequestType, tuple[int, int]]]:
        """Requests for which something may be done before some moment, in ticks, and their dates."""
        return islice(self._dated, bisect_left(self._firsts, end))

    def _dates_of(self, kind: RequestType, prompt: int) -> tuple[int, int]:
        """Least moments, in ticks, at which something is done for the first and for the second token."""
        arrival = kind.arrival.numerator * self.instance.cost.ticks_per_second // kind.arrival.denominator
        return arrival, arrival + prompt

    def _prompt(self, kind: RequestType) -> int:
        """Ticks that a prompt takes at least: f."""
        instance, prompt = self.instance, kind.input_tokens
        ticks = instance.cost.ticks
        chunks = -(-prompt // instance.system.prefill_budget)
        pieces = zip(ticks.alpha, ticks.beta, strict=True)
        fixed = max(chunks * alpha + beta * prompt for alpha, beta in pieces)
        return int(fixed + chunks * ticks.p0 + ticks.p1 * prompt_pairs(instance, kind))

    def _last_before(self, kind: RequestType, dates: tuple[int, int], end: int) -> int:
        """The last token for which something may be done before `end`; 0 if there is none."""
        first, second = dates
        if first >= end:
            return 0
        if second >= end:
            return 1
        if self._step == 0:
            return kind.output_tokens
        return int(min(kind.output_tokens, 2 + (end - 1 - second) // self._step))

    def _area(self, sizes: Sizes) -> int:
        """Sizes of the tokens of all requests, summed."""
        if self.by_slots:
            return int((sizes.outputs * sizes.counts).sum())
        return self.instance.system.block_size * blocks_of(sizes, self.instance.system.block_size)

    def _work(self, kind: RequestType, first: int, last: int) -> int:
        """Works of tokens `first` to `last` of one request, the prompt being that of token 1."""
        prompt = pairs = 0
        if first == 1:
            prompt, pairs, first = kind.input_tokens, prompt_pairs(self.instance, kind), 2
        count = max(0, last - first + 1)
        reads = count * (kind.input_tokens - 2) + count * (first + last) // 2  # sum of I + n - 2
        return self._work_of(Totals(prompt, count, reads, pairs))

    def _work_of(self, some: Totals) -> int:
        """Work of prompts and later tokens."""
        ticks, budget = self.instance.cost.ticks, self.instance.system.prefill_budget
        whole = self._beta * (some.prompts + some.later) + self._d1 * some.reads + ticks.p1 * some.pairs
        paid = some.later if self.by_slots else some.later + some.reads
        return int(self.unit * whole + self.capacity * ticks.p0 * some.prompts + budget * self._d0 * paid)

    def _early(self, cells: Sequence[tuple[int, int]]) -> int:
        """Work times the level of g at its date."""
        total, spans = 0, _spans(cells)
        for kind, dates in self._begun(spans[-1][1] if spans else 0):
            done = 0
            for _, end, level in spans:
                last = self._last_before(kind, dates, end)
                if last > done:
                    total += level * self._work(kind, done + 1, last) * len(kind.members)
                    done = last
        return total


def _spans(cells: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Start, end and level of each step."""
    starts = [0, *(end for end, _ in cells)]
    return [(start, end, level) for start, (end, level) in zip(starts, cells, strict=False)]
