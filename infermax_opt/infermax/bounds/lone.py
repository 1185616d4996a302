"""Lone latency: how soon one request can have its tokens with the machine to itself.

Company, waiting and batches that only evict add time and never save any: dropping all other requests from a
schedule leaves a schedule of this one whose batches are no longer.

*First token.*  Its prompt of I tokens is processed in q chunks, ceil(I / min(P, C)) <= q <= I, each in a
batch of its own.  By any piece k these batches take at least q alpha_k + beta_k I + q p0, and attention work
of I**2 / q or more with "square" attention, of I**2 with "exact", where chunks telescope.  Without chunked
prefill q is 1.  The least over q counts.

*Later tokens.*  Let s = I + k - 1 be the KV after token k >= 2.  The last batch of its making either decodes:

    D(s) = max_k (alpha_k + beta_k) + d0 + d1 (s - 1),

or it ends a refill, after an eviction since token k - 1, so all s tokens were processed again since then.
A refill takes a batch that prefills or more (if its last chunk is one token, that batch decodes: D(s)):

    R_k(s) = alpha_k + p0 + beta_k s + p1 w(s),    for any piece k,

with w(s) = s**2 without chunks or with "exact" attention, where chunks telescope, else at least s.  Refills
need preemption, and without chunked prefill s <= min(P, C).  These batches follow those of token k - 1.  So
token k comes at least min(D(s), R_k(s)) after token k - 1, **the smaller of the two sums**.

R - D is a convex polynomial in s, so it is negative between two values of s only, and sums over a
request's tokens are sums of polynomials over two ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.data.instance import Instance, Request, RequestType
from infermax_opt.infermax.data.objective import Latency

__all__ = ["Lone", "LoneLatency"]


@dataclass(frozen=True)
class Lone:
    """Least time to the first token, and from the first to the last, in ticks."""

    first: Fraction
    later: int

    @property
    def total(self) -> Fraction:
        """Least time to the last token, in ticks."""
        return self.first + self.later

    def ticks(self, latency: Latency, outputs: int) -> Fraction:
        """Least of a latency in ticks, for so many output tokens; a TPOT needs two."""
        if latency is Latency.TPOT:
            return Fraction(self.later, outputs - 1)
        return self.first if latency is Latency.TTFT else self.total


@dataclass(frozen=True)
class _Quadratic:
    """A polynomial c0 + c1 s + c2 s**2 with whole coefficients, c2 >= 0."""

    c0: int
    c1: int
    c2: int

    def total(self, low: int, high: int) -> int:
        """Sum over s = low, ..., high; 0 if there is none."""
        if low > high:
            return 0

        def ones(s: int) -> int:
            return s * (s + 1) // 2

        def squares(s: int) -> int:
            return s * (s + 1) * (2 * s + 1) // 6

        count = high - low + 1
        return (
            self.c0 * count
            + self.c1 * (ones(high) - ones(low - 1))
            + self.c2 * (squares(high) - squares(low - 1))
        )

    def negative(self, high: int) -> tuple[int, int]:
        """First and last s of 0, ..., high at which it is below 0; (1, 0) if there is none."""
        if self.c2 == 0:
            if self.c1 == 0:
                return (0, high) if self.c0 < 0 else (1, 0)
            if self.c1 > 0:
                return 0, min(high, -(self.c0 // self.c1) - 1)  # s < -c0 / c1
            return max(0, self.c0 // -self.c1 + 1), high  # s > c0 / -c1
        root = self.c1 * self.c1 - 4 * self.c2 * self.c0
        if root <= 0:
            return 1, 0
        # Whole numbers near the two zeros, then moved to where the sign changes.
        low = (-self.c1 - isqrt(root)) // (2 * self.c2) - 1
        last = (-self.c1 + isqrt(root)) // (2 * self.c2) + 2
        low, last = max(0, low), min(high, last)
        while low <= last and self.at(low) >= 0:
            low += 1
        while low <= last and self.at(last) >= 0:
            last -= 1
        return (low, last) if low <= last else (1, 0)

    def at(self, s: int) -> int:
        """Value at s."""
        return self.c0 + self.c1 * s + self.c2 * s * s


class LoneLatency:
    """Lone latencies of the requests of an instance.

    Parameters
    ----------
    instance : Instance
    """

    def __init__(self, instance: Instance):
        self._instance = instance
        self._found: dict[tuple[int, int], Lone] = {}
        self._firsts: dict[int, Fraction] = {}
        ticks, policy = instance.cost.ticks, instance.policy
        longest = max(r.input_tokens + r.output_tokens for r in instance.groups)
        #: Largest s that a refill can have.
        self._refilled = 0
        if policy.preemption:
            self._refilled = longest if policy.chunked_prefill else instance.system.prefill_budget
        most = max(alpha + beta for alpha, beta in zip(ticks.alpha, ticks.beta, strict=True))
        self._decode = _Quadratic(most + ticks.d0 - ticks.d1, ticks.d1, 0)
        self._saved = []
        for alpha, beta in zip(ticks.alpha, ticks.beta, strict=True):
            line, square = (ticks.p1, 0) if spreads(instance) else (0, ticks.p1)
            decode = self._decode
            self._saved.append(_Quadratic(alpha + ticks.p0 - decode.c0, beta + line - decode.c1, square))
        self._negative = [saved.negative(self._refilled) for saved in self._saved]

    def of(self, request: Request | RequestType) -> Lone:
        """Lone latency of a request."""
        key = request.input_tokens, request.output_tokens
        if key not in self._found:
            if key[0] not in self._firsts:
                self._firsts[key[0]] = self._first(key[0])
            self._found[key] = Lone(self._firsts[key[0]], self._later(*key))
        return self._found[key]

    def _first(self, prompt: int) -> Fraction:
        """Least time of a prompt; convex in the number of chunks."""
        instance = self._instance
        ticks, parts = instance.cost.ticks, spreads(instance)
        work = ticks.p1 * prompt * prompt

        def fixed(chunks: int) -> int:
            pieces = zip(ticks.alpha, ticks.beta, strict=True)
            return int(max(chunks * alpha + beta * prompt for alpha, beta in pieces) + chunks * ticks.p0)

        low = -(-prompt // instance.system.prefill_budget)
        high = prompt if parts else low
        while low < high:
            middle = (low + high) // 2
            # One chunk more saves work / (middle * (middle + 1)).
            if work <= (fixed(middle + 1) - fixed(middle)) * middle * (middle + 1):
                high = middle
            else:
                low = middle + 1
        return fixed(low) + Fraction(work, low if parts else 1)

    def _later(self, prompt: int, outputs: int) -> int:
        """Least time of all tokens but the first: s = I + 1, ..., I + O - 1."""
        first, last = prompt + 1, prompt + outputs - 1
        best = 0
        for saved, (low, high) in zip(self._saved, self._negative, strict=True):
            by_refill = saved.total(max(first, low), min(last, high))
            best = max(best, self._decode.total(first, last) + by_refill)
        return best
