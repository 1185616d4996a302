"""Stages of a request for `pace`: its prompt, and parts of its later tokens, with what each costs there."""

from __future__ import annotations

from itertools import pairwise
from math import isqrt
from typing import NamedTuple

from infermax_opt.infermax.bounds.least_work import prompt_pairs, spreads
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["ROOT_BITS", "UNPAID", "Stage", "Stages", "offset"]

#: Bits after the point of r, k, q and x.
ROOT_BITS = 12


class Stage(NamedTuple):
    """Tokens, or a prompt.

    Sums of e, sqrt(e w) and w in ticks, least and largest x in 2**-12; e of each token, the work R of the
    least refill (0 where there is none, or where KV does not count), and the least KV that counts.
    """

    fixed: int
    roots: int
    works: int
    low: int
    high: int
    each: int
    again: int
    held: int


#: A prompt without rewards, whose work pays the price of its moment.
UNPAID = Stage(0, 0, 0, 0, 0, 1, 0, 0)


class Stages:
    """Reads the stages of requests.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    parts : int
        In how many parts later tokens are cut, at most twice as many where refills are cheap for some.
    """

    def __init__(self, instance: Instance, piece: int, parts: int):
        self.instance, self.piece, self.parts = instance, piece, parts
        self._sums: dict[bool, list[tuple[int, int, int]]] = {}

    def of(self, kind: RequestType) -> tuple[Stage, ...]:
        """The prompt, then the later tokens."""
        ticks, i = self.instance.cost.ticks, kind.input_tokens
        prompt = ticks.beta[self.piece] * i + ticks.p1 * prompt_pairs(self.instance, kind)
        chunk = ticks.alpha[self.piece] + ticks.p0
        root = _root(prompt, chunk)
        stages = [Stage(chunk, isqrt(chunk * prompt), prompt, root, root + 1, chunk, 0, 0)]
        for first, last, dear in self._cut(i + 1, i + kind.output_tokens - 1):
            count = last - first + 1
            cuts = [first + count * part // self.parts for part in range(self.parts + 1)]
            stages += [self._tokens(a, b - 1, dear) for a, b in pairwise(cuts) if a < b]
        return tuple(stages)

    def prompt_at_least(self, work: int) -> int:
        """What a prompt pays in batches as long as may be, where time costs 1.

        Parameters
        ----------
        work : int
            Of the prompt.
        """
        ticks, system = self.instance.cost.ticks, self.instance.system
        variable = ticks.d0 + ticks.beta[self.piece] * system.max_batch_tokens
        variable += ticks.d1 * system.kv_capacity + ticks.p1 * system.prefill_budget
        if not spreads(self.instance) or variable == 0:
            return work
        return int(work * (variable + ticks.alpha[self.piece] + ticks.p0) // variable)

    def _spare(self, s: int) -> int:
        """R - w - max(0, d0 - p0) of the token with s cached after it: not below 0 where refills are dear."""
        ticks = self.instance.cost.ticks
        more = max(0, ticks.d0 - ticks.p0)
        return int(self._again(s) - ticks.beta[self.piece] - ticks.d1 * (s - 1) - more)

    def _again(self, s: int) -> int:
        """R: the least work of a refill that ends with s cached."""
        ticks = self.instance.cost.ticks
        return int((ticks.beta[self.piece] + ticks.p1) * s)

    def _cut(self, first: int, last: int) -> list[tuple[int, int, bool]]:
        """Later tokens: from and to which s, and whether refills are dear."""
        if not self.instance.policy.preemption:
            return [(first, last, True)]
        slope = self._spare(1) - self._spare(0)
        if slope <= 0:
            return [(first, last, self._spare(last) >= 0)]
        least = max(first, -(self._spare(0) // slope))  # the first s at which they are
        return [(first, min(last, least - 1), False), (least, last, True)]

    def _tokens(self, first: int, last: int, dear: bool) -> Stage:
        """The stage of the later tokens with s = first, ..., last cached after them."""
        rest, (low, high) = self._fixed(dear), (self._work(s, dear) for s in (first, last))
        sums = self._table(dear, last)
        fixed, roots, works = (b - a for a, b in zip(sums[first - 1], sums[last], strict=True))
        policy, block = self.instance.policy, self.instance.system.block_size
        again = self._again(first) if policy.preemption and dear else 0
        # A chunk of a refill may hold less than its share of whole blocks.
        whole = not (policy.preemption and policy.chunked_prefill)
        held = (-(-first // block) * block if whole else first) if dear else 0
        return Stage(fixed, roots, works, _root(low, rest), _root(high, rest) + 1, rest, again, held)

    def _fixed(self, dear: bool) -> int:
        """E of later tokens."""
        ticks = self.instance.cost.ticks
        more = ticks.d0 if dear else min(ticks.d0, ticks.p0)
        return int(ticks.alpha[self.piece] + more)

    def _work(self, s: int, dear: bool) -> int:
        """The work of a later token."""
        ticks = self.instance.cost.ticks
        decode = int(ticks.beta[self.piece] + ticks.d1 * (s - 1))
        return decode if dear else min(decode, self._again(s))

    def _table(self, dear: bool, last: int) -> list[tuple[int, int, int]]:
        """Sums of e, sqrt(e w) and w over s = 1, 2, ..., up to `last` at least."""
        sums, fixed = self._sums.setdefault(dear, [(0, 0, 0)]), self._fixed(dear)
        while len(sums) <= last:
            work = self._work(len(sums), dear)
            before = sums[-1]
            sums.append((before[0] + fixed, before[1] + isqrt(fixed * work), before[2] + work))
        return sums


def _root(work: int, fixed: int) -> int:
    """sqrt(work / fixed) in units of 2**-ROOT_BITS, rounded down."""
    return isqrt((work << 2 * ROOT_BITS) // fixed)


def offset(stage: Stage, q: int, r: int) -> int:
    """The largest (q - r) x of a stage, rounded up.

    Parameters
    ----------
    stage : Stage
    q, r : int
    """
    return -((r - q) * (stage.high if q > r else stage.low) >> ROOT_BITS)
