r"""Closed-form lower bounds of the makespan problem.

A schedule of B bins with a prefill (bins without one are part of the bin before) takes the time of B
prefill stages and of R decode rounds: makespan = prefill + R * round.

*Prefill.*  All input tokens, S, are prefilled, each stage at one level.  However many stages: at least
the least cost of levels whose capacities add up to S (`prefill_cover`).  In exactly B stages
(`prefill_ticks`): on the lower convex hull of (capacity, time), where smaller loads cost as much as
the smallest level, B stages of S/B tokens on average cost at least B times the hull at S/B (Jensen);
and the sum of B level times differs from B times the least one by a multiple of the greatest common
divisor of their differences.

*Decode.*  On every client the requests' decodes add up to R rounds or less: R is at least the optimum
of P||Cmax (eqs 26-30), hence at least each of `rounds_needed`:

- average: ceil(sum N / J);
- k + 1 on one client: of the k J + 1 longest requests, some client serves k + 1, which take at least as
  long as the k + 1 shortest of these; k = 0: the longest request.

*Arcs* (`arc_bound`).  A request that starts in bin a keeps its client until bin b > a at least, the next
one in which that client prefills, or the end (b = B+1).  Let t_a be the rounds before bin a, so that it
keeps it for t_b - t_a >= N_i rounds.  These arcs are disjoint on a client: they add up to at most J R.
B bins and the end give at most B (B+1) / 2 distinct arc lengths.  So J R is at least sum N + W(D), W(D)
being the least total rounding up of all N_i to at most D distinct lengths.  That is a shortest
path: lengths are rounded up to the largest one in their segment of the sorted list.  The bound is the
least over B >= ceil(I / J), as a client starts at most one request a bin.

*Lengths add up* (`arc_lengths`), so fewer of them are of use.  Let X be the longest N.  A request on an arc
longer than X loses no less than on one of length X, so all of these count as one length, X.  Where two
nodes (moments t_a, and the end) that follow each other are X + e apart, every client loses e there, on
arcs that are that long; let the e add up to E.  Then J (R - E) >= sum N.  Cut all such gaps down to X: the
nodes span S = R - E >= sum N / J rounds, no gap exceeds X, and arcs of X or less are as they were.
With q = ceil(S / X), put the nodes into q + 1 classes: at 0, in (0, X], (X, 2X], ..., ((q-1) X, S].  None is
empty, and nodes of classes that are not neighbours are more than X apart.  So of B + 1 nodes with
a_k in class k, at most sum a_k (a_k - 1) / 2 + sum a_k a_(k+1) pairs are X or less apart.  Along a move
of nodes between classes that are not neighbours this is convex, between neighbours linear; so it is
largest where all classes but one hold one node: a (a-1) / 2 + 2 a + q - 2 with a = B + 1 - q for q >= 2.
It falls as q grows, and B >= q.

*Paper* (`paper_bound`, eqs 31-32): T_L floor(S / N_L) for the largest level L, and `rounds_needed` where
the paper has the optimum.  It holds where no level has more capacity for its time than L.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled, in_rehearsal
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.machines.closed_form import quick

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "arc_bound",
    "arc_lengths",
    "closed_form_makespan_bounds",
    "paper_bound",
    "prefill_cover",
    "prefill_ticks",
    "rounds_needed",
    "stage_bound",
]

#: Steps (capacities times levels) up to which the cover of all input tokens is computed exactly.
MAX_COVER = 20_000_000
#: Distinct lengths up to which plain Python takes less time than loading compiled code.
PLAIN_LENGTHS = 40
#: The same where compiling comes before that, which takes seconds.
UNCOMPILED_LENGTHS = 400


def closed_form_makespan_bounds(instance: MakespanInstance) -> list[LowerBound]:
    """All bounds on the makespan in exact seconds, best first."""
    found = [bound(instance) for bound in (arc_bound, stage_bound, paper_bound)]
    return sorted((some for some in found if some is not None), key=lambda some: -some.value)


def _seconds(instance: MakespanInstance, ticks: int, source: str) -> LowerBound:
    value, evidence = Fraction(ticks, instance.ticks_per_second), {"kind": "closed-form", "argument": source}
    return LowerBound(value, source, Proof.CLOSED_FORM, evidence=evidence)


def paper_bound(instance: MakespanInstance) -> LowerBound | None:
    """Eqs 31 and 32; None where eq 31 does not hold."""
    levels = instance.level_ticks
    tokens, ticks = levels[-1]
    if any(ticks * fewer > less * tokens for fewer, less in levels):
        return None
    stages = sum(r.input_tokens for r in instance.requests) // tokens
    rounds = rounds_needed([r.output_tokens for r in instance.requests], instance.clients)
    return _seconds(instance, stages * ticks + rounds * instance.round_ticks, "paper eq 32")


def stage_bound(instance: MakespanInstance) -> LowerBound:
    """Prefill and decode, each for itself."""
    rounds = rounds_needed([r.output_tokens for r in instance.requests], instance.clients)
    return _seconds(instance, prefill_cover(instance) + rounds * instance.round_ticks, "stages")


def arc_bound(instance: MakespanInstance) -> LowerBound:
    """Bins against distinct arc lengths (module docstring, *Arcs*)."""
    lengths = [r.output_tokens for r in instance.requests]
    clients, total = instance.clients, sum(lengths)
    least, cover = rounds_needed(lengths, clients), prefill_cover(instance)
    stages, wastes, best = _Prefill(instance), _Wastes(lengths), None
    # Classes of nodes are for the rounds that are busy on average.
    busy = -(-total // clients)
    classes = -(-busy // max(lengths))
    bins = max(-(-len(lengths) // clients), -(-stages.tokens // instance.level_ticks[-1][0]), classes)
    while True:
        prefill = max(cover, stages.ticks(bins))
        waste = wastes.least(arc_lengths(bins, classes))
        rounds = max(least, -(-(total + waste) // clients))
        here = prefill + rounds * instance.round_ticks
        best = here if best is None else min(best, here)
        # What any larger number of bins takes: on the hull, convex in it, prefill rises from where it does.
        later, following = cover, stages.on_hull(bins + 1)
        rises = following >= stages.on_hull(bins)
        if rises:
            later = max(cover, math.ceil(following))
        later += least * instance.round_ticks
        if bins == len(lengths) or later >= best:
            break
        if rounds == least and not rises:
            best = later
            break
        bins += 1
    return _seconds(instance, best, "arc lengths")


def arc_lengths(bins: int, classes: int) -> int:
    """Most distinct lengths of arcs that are of use (module docstring, *Lengths add up*).

    Parameters
    ----------
    bins : int
        B; at least `classes`.
    classes : int
        q: busy rounds of a client over the longest request, rounded up.
    """
    if classes < 2:
        return bins * (bins + 1) // 2
    full = bins + 1 - classes
    return full * (full - 1) // 2 + 2 * full + classes - 1


def rounds_needed(lengths: Sequence[int], clients: int) -> int:
    """Rounds in which so many clients can decode these numbers of tokens, at least.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each request, at least one request.
    clients : int
    """
    return quick(sorted(lengths, reverse=True), clients)[0]


def prefill_cover(instance: MakespanInstance) -> int:
    """Least ticks of prefill stages that take all input tokens, in any number of stages.

    Where levels and tokens are many, by the best capacity for its time instead.
    """
    levels = instance.level_ticks
    step = math.gcd(*(tokens for tokens, _ in levels))
    sizes = [(tokens // step, ticks) for tokens, ticks in levels]
    units = -(-sum(r.input_tokens for r in instance.requests) // step)
    if units * len(sizes) > MAX_COVER:
        return min(-(-units * ticks // size) for size, ticks in sizes)
    least = [0] * (units + 1)
    for some in range(1, units + 1):
        least[some] = min(ticks + least[max(0, some - size)] for size, ticks in sizes)
    return least[units]


def prefill_ticks(instance: MakespanInstance, stages: int) -> int:
    """Ticks that exactly so many prefill stages take for all input tokens, at least.

    Parameters
    ----------
    stages : int
        Enough for the tokens at the largest level.
    """
    return _Prefill(instance).ticks(stages)


class _Prefill:
    """Least ticks of so many prefill stages for all input tokens."""

    def __init__(self, instance: MakespanInstance):
        levels = instance.level_ticks
        self.tokens = sum(r.input_tokens for r in instance.requests)
        self.base = levels[0][1]
        self.edges = list(itertools.pairwise(_hull(instance)))
        self.divisor = math.gcd(*(ticks - self.base for _, ticks in levels)) or 1

    def on_hull(self, stages: int) -> Fraction:
        """Ticks of the stages on the hull, each with as many tokens: convex in their number."""
        # The hull is the largest of the lines through its edges.
        return max(
            stages * y + Fraction((self.tokens - stages * x) * (higher - y), right - x)
            for (x, y), (right, higher) in self.edges
        )

    def ticks(self, stages: int) -> int:
        """The same, rounded up to what levels add up to."""
        more = self.on_hull(stages) - stages * self.base
        return stages * self.base + math.ceil(more / self.divisor) * self.divisor


def _hull(instance: MakespanInstance) -> list[tuple[int, int]]:
    """Lower convex hull of (tokens, ticks) of a stage, from 0 tokens on."""
    hull: list[tuple[int, int]] = []
    for x, y in [(0, instance.level_ticks[0][1]), *instance.level_ticks]:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull


class _Wastes:
    """Least total rounding up of lengths to at most so many distinct ones."""

    def __init__(self, lengths: Sequence[int]):
        counts = sorted(Counter(lengths).items())
        self.values = [value for value, _ in counts]
        self.count = [0, *accumulate(number for _, number in counts)]
        self.total = [0, *accumulate(value * number for value, number in counts)]
        self.rows = 1
        self.row: Any = None

    def least(self, segments: int) -> int:
        """Least waste; `segments` must not fall from call to call."""
        import numpy as np

        from infermax_opt.makespan.bounds import _segments as plain

        if segments >= len(self.values):
            return 0
        values, count, total = (np.array(some, np.int64) for some in (self.values, self.count, self.total))
        if self.row is None:
            # One segment that ends at each of the values.
            self.row = np.concatenate([[0], values * count[1:] - total[1:]])
        small = len(self.values) <= PLAIN_LENGTHS and not in_rehearsal()
        few = len(self.values) <= UNCOMPILED_LENGTHS and not in_rehearsal()
        step = plain.next_row if small else _next_row(few)
        while self.rows < segments:
            self.row = step(values, count, total, self.row)
            self.rows += 1
        return int(self.row[-1])


@functools.cache
def _next_row(few: bool) -> Callable[..., npt.NDArray[np.int64]]:
    from infermax_opt.makespan.bounds import _segments as plain

    return compiled(plain.next_row, plain.HELPERS, small=few)
