r"""Cases: the batches of an instance, cut into families in each of which the time is a maximum of lines.

Let R requests be kept at least: (6) holds for R savable ones.  Which ones the batch keeps depends on its
time T and on what it selects: without being selected those with T <= slack - T_avg (the *free* ones),
selected those with T <= slack.  Between two neighbours among all slacks and all slacks - T_avg both sets are
the same, so every batch with 0 < T <= tau, tau the upper neighbour, is in the family of tau: at least need =
R - (number of free ones) of the *calls*, those with slack - T_avg < tau <= slack, are selected, and T <=
tau.

- Where need > number of calls, the family is empty; where they are equal, the calls are all selected.
- Of the families that need nobody the one with the largest tau holds the others.
- No batch takes more than one of all requests, so that is the last tau, where R = 0.
- Requests without a value that are no calls stay out.  Take them out of a batch of a family: its value and
  its calls are the same ones, it takes no more time, requests and blocks.  So it is in the family yet (maybe
  in another part of it, see below), and no worse.  Where no such batch is better than a ratio, none is.

*Phases.*  A family is split once more: decodes only, prefills only, both.  In each of the three the fixed
times d0, p0, e0 are known.  For "both" they are charged even if one phase is missing, which only makes a
batch of this part longer; such a batch is in another part, too.

*Lines.*  Within a part, T is the largest of its affine pieces and of the swap line.  For attention as a
product let the decodes be n; a part for each n has a line in their contexts.  The product of the prefills, N
A, is not linear: with N = N0 + sum n e, A = A0 + sum a e, where N0, A0 belong to the requests that are in
for sure, and e >= 0 whole numbers of others,

    N A = N0 A0 + N0 sum a e + A0 sum n e + (sum n e)(sum a e) >= N0 A0 + sum (N0 a + A0 n + n a) e,

as e^2 >= e.  It is equal where no e is left.

*Types.*  Requests that nothing tells apart are one type with a number of copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from infermax_opt.infermax.data.cost import Extra, prefill_work
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["Case", "Kinds", "Line", "all_cases", "all_windows"]

#: Fixed ticks, and ticks of one more of each type.
Line = tuple[int, list[int]]


class Kinds:
    """The types of an instance, by number.

    Attributes
    ----------
    members : list of list of int
        Positions of the requests of each type.
    slack : list of int or None
        None where requests are not savable.
    value, blocks, host : list of int
    sums : tuple of list of int
        What a request of each type adds to the sums of `infermax_opt.iteration.bounds.nodes`.
    """

    def __init__(self, ticks: Ticks):
        self.ticks, savable = ticks, set(ticks.savable)
        found: dict[tuple[object, ...], list[int]] = {}
        for k, r in enumerate(ticks.instance.requests):
            slack = ticks.slack[k] if k in savable else None
            key = r.prefills, r.input, r.context, r.new_blocks, r.host_blocks, ticks.value[k], slack
            found.setdefault(key, []).append(k)
        self.members = list(found.values())
        firsts = [some[0] for some in self.members]
        self.requests = [ticks.instance.requests[k] for k in firsts]
        self.slack = [ticks.slack[k] if k in savable else None for k in firsts]
        self.value = [ticks.value[k] for k in firsts]
        self.blocks = [r.new_blocks for r in self.requests]
        self.copies = [len(some) for some in self.members]
        self.host = [r.host_blocks for r in self.requests]
        self.sums = [1] * len(firsts), self.value, self.host

    @classmethod
    def of(cls, ticks: Ticks) -> Kinds:
        """Those of an instance, which are worked out once."""
        memo = vars(ticks)
        if "kinds" not in memo:
            memo["kinds"] = cls(ticks)
        made: Kinds = memo["kinds"]
        return made

    def positions(self, counts: Sequence[int]) -> list[int]:
        """Positions of so many requests of each type."""
        return [k for some, n in zip(self.members, counts, strict=True) for k in some[:n]]

    def counts(self, batch: Sequence[int]) -> list[int]:
        """How many of each type a batch takes."""
        chosen = set(batch)
        return [sum(k in chosen for k in some) for some in self.members]


@dataclass(frozen=True)
class Case:
    """One part of a family.

    Attributes
    ----------
    kinds : Kinds
    tau : int
        Most ticks.
    calls : frozenset of int
        Types of which `need` requests are selected at least.
    need : int
    decodes, prefills : bool
        Whether the batch holds such requests.
    exactly : int or None
        Decodes, where attention is a product.
    """

    kinds: Kinds
    tau: int
    calls: frozenset[int]
    need: int
    decodes: bool
    prefills: bool
    exactly: int | None

    def limits(self) -> tuple[list[int], list[int]] | None:
        """Fewest and most of each type, 0 of those that stay out; None where the case is empty for that."""
        kinds = self.kinds
        high = [
            n if (self.prefills if r.prefills else self.decodes) and (value or t in self.calls) else 0
            for t, (n, r, value) in enumerate(zip(kinds.copies, kinds.requests, kinds.value, strict=True))
        ]
        low = [0] * len(high)
        if self.need and sum(kinds.copies[t] for t in self.calls) == self.need:
            for t in self.calls:
                low[t] = kinds.copies[t]
        return None if any(a > b for a, b in zip(low, high, strict=True)) else (low, high)

    @cached_property
    def _alike(self) -> list[Line]:
        """Lines of separable work, and of all but the work of prefills where it is a product."""
        ticks, kinds = self.kinds.ticks, self.kinds
        factor, cost, product = ticks.factor, ticks.machine.cost, ticks.machine.product
        c = cost.ticks
        e0, e1, _ = cost.extra_ticks if self.decodes and self.prefills else Extra()
        fixed = (c.d0 + e0 if self.decodes else 0) + (c.p0 if self.prefills else 0)

        def attention(r: object) -> int:
            if r.prefills:  # type: ignore[attr-defined]
                return 0 if product else c.p1 * prefill_work(cost.exact_attention, r.input, r.cached)  # type: ignore[attr-defined]
            read = (self.exactly or 0) * r.context if product else r.cached  # type: ignore[attr-defined]
            return int((c.d1 + e1) * read)

        works = [attention(r) for r in kinds.requests]
        lines = [
            (
                factor * (alpha + fixed),
                [factor * (beta * r.input + w) for r, w in zip(kinds.requests, works, strict=True)],
            )
            for alpha, beta in zip(c.alpha, c.beta, strict=True)
        ]
        if ticks.swap is not None:
            s0, s1 = ticks.swap
            lines.append((s0, [s1 * r.host_blocks for r in kinds.requests]))
        return lines

    def lines(self, low: Sequence[int]) -> list[Line]:
        """Lines at `low` of each type: ticks of that, and of one more; none is above the true time."""
        ticks = self.kinds.ticks
        found = [(base + _dot(each, low), each) for base, each in self._alike]
        if not (ticks.machine.product and self.prefills):
            return found
        p1 = ticks.factor * ticks.machine.cost.ticks.p1
        some = [(r.input, r.context) if r.prefills else (0, 0) for r in self.kinds.requests]
        n0 = sum(n * low[t] for t, (n, _) in enumerate(some))
        a0 = sum(a * low[t] for t, (_, a) in enumerate(some))
        more = [p1 * (n0 * a + a0 * n + n * a) for n, a in some]
        for at in range(len(ticks.machine.cost.batch)):
            base, each = found[at]
            found[at] = base + p1 * n0 * a0, [x + y for x, y in zip(each, more, strict=True)]
        return found


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(left[t] * n for t, n in enumerate(right) if n)


def all_windows(ticks: Ticks, kept: int) -> Iterator[tuple[int, frozenset[int], int]]:
    """tau, calls and need of each family (module docstring), least tau first."""
    kinds, average = Kinds.of(ticks), ticks.t_avg
    known = sorted(((t, s) for t, s in enumerate(kinds.slack) if s is not None), key=lambda some: some[1])
    slacks = [s for _, s in known]
    before = [0, *accumulate(kinds.copies[t] for t, _ in known)]
    ends = {s for _, s in known} | {s - average for _, s in known} | {ticks.all_time}
    easy: tuple[int, frozenset[int], int] | None = None
    found = []
    for tau in sorted(end for end in ends if 0 < end <= ticks.all_time):
        first, free = bisect_left(slacks, tau), bisect_left(slacks, tau + average)
        need = kept - (before[-1] - before[free])
        if need <= 0:
            easy = tau, frozenset(), 0
        elif need <= before[free] - before[first]:
            found.append((tau, first, free, need))
    if easy is not None:
        yield easy
    for tau, first, free, need in found:
        yield tau, frozenset(t for t, _ in known[first:free]), need


def all_cases(ticks: Ticks, kept: int) -> Iterator[Case]:
    """All cases of an instance in which so many savable requests are kept at least."""
    kinds, product = Kinds.of(ticks), ticks.machine.product
    most = min(ticks.machine.batch, sum(not r.prefills for r in ticks.instance.requests))
    for tau, calls, need in all_windows(ticks, kept):
        for decodes, prefills in ((True, False), (False, True), (True, True)):
            for n in range(1, most + 1) if product and decodes else (None,):
                yield Case(kinds, tau, calls, need, decodes, prefills, n)
