r"""Closed forms: the most that schedules of requests that start together can select.

*Circle.*  A set of requests has valid offsets on M cells iff it has some on a circle of M cells, on which
the way from each to the other, either way round, is min(g_i, g_j) or more.  *Proof.*  Let g_1 be the longest,
g_1 <= M.  On a circle, cut at its offset: s_1 = 0, and every other has g_j <= s_j <= M - g_j.  Conversely
join the ends of the line: for s_i < s_j the way around is s_i + M - s_j >= M - s_j >= g_j >= min(g_i, g_j).

*Splitting.*  Put the longest on the circle: one interval of M cells.  Add the others, longest first.  Each
falls into an interval between longer ones, x = a + b, and must keep a, b >= g.

*Theorem 1.*  For every convex nondecreasing U with U(0) = 0 and L >= the longest selected,

    sum over the selected of [U(2g) - 2 U(g)]  <=  U(M) + U(2L) - 2 U(L).

*Proof.*  A split lowers the sum of U over all intervals by U(a + b) - U(a) - U(b), which for a, b >= g is
least at a = b = g, by convexity.  It begins with U(M) and never falls below 0.  The longest itself adds
U(2g_1) - 2 U(g_1), which grows with g_1, as U' does.

The closed forms, as what is selected at most:

- ``all``: everything that fits by itself.
- ``counts``: of length h or more at most floor(M / h), for their distances on the circle are h or more.
  These sets lie within each other, so the most valuable choice is greedy: longest first, drop the least
  valuable while there are too many.
- ``token law``, for tokens: M (1 + l/2) with l = log2(L / g_min).  U(x) = (x/2) log2(x / g_min) from g_min to
  L, 0 below, beyond L linear with slope l/2 + 1, which is no less than the slope before, l/2 + 0.73.  For
  g <= L/2, U(2g) - 2U(g) = g.  For larger g it is g log2(L/g) + 2g - L >= g, as log2 t + 1 >= t for
  t = L/g in [1, 2].  The right side is M (1 + l/2).
- ``three quarters``, for area: U(x) = x^2/4 up to L, then 3Lx/4 - L^2/2.  For g <= L/2, U(2g) - 2U(g) is
  g^2/2; for larger g it exceeds that by (g - L/2)(L - g) >= 0.  So the sum of g^2/2 is at most 3/4 M L, and
  the area, the sum of g^2/2 + g/2, at most that and half the token law.

M is the capacity in whole blocks: lengths are, so offsets may be rounded down to blocks, too.

All are for requests that start at the same time, which is the only case that instances state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby
from math import gcd, lcm

from infermax_opt.core.exact import figures_text
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.pipelining.data.instance import PipeliningInstance

__all__ = ["closed_form_bounds", "lower_bound"]

#: The logarithm of the token law is rounded up to a multiple of 1 / STEPS.
STEPS = 1024


def lower_bound(
    instance: PipeliningInstance, most: Fraction, source: str, proof: Proof, **more: object
) -> LowerBound:
    """The bound on capacity / objective where the objective is at most `most`.

    Parameters
    ----------
    instance : PipeliningInstance
    most : Fraction
        Above 0.
    source : str
    proof : Proof
    **more : object
        Further fields of the bound.
    """
    # Values are multiples of a common part, so what is selected is, too.
    parts = [instance.values[k] for k in instance.useful]
    part = Fraction(gcd(*(v.numerator for v in parts)), lcm(*(v.denominator for v in parts)))
    most = part * (most // part)
    limit = figures_text(most, rounding="ceiling")
    reason = f"starting together, no selection has more {instance.objective} than {limit}"
    value = Fraction(instance.capacity) / most
    return LowerBound(value, source, proof, reason=reason, **more)  # type: ignore[arg-type]


def closed_form_bounds(instance: PipeliningInstance) -> Iterator[LowerBound]:
    """All closed forms that apply; none where no request fits."""
    if not instance.useful:
        return
    found = {"all": sum((instance.values[k] for k in instance.useful), Fraction(0))}
    found["counts"] = counts(instance)
    if instance.objective == "tokens":
        found["token law"] = token_law(instance)
    elif instance.objective == "area":
        longest = max(instance.sizes[k] for k in instance.useful)
        growth = Fraction(3 * instance.room * longest, 4)
        found["three quarters"] = growth + token_law(instance) / 2
    for source, most in sorted(found.items(), key=lambda item: item[1]):
        yield lower_bound(instance, most, source, Proof.CLOSED_FORM)


def counts(instance: PipeliningInstance) -> Fraction:
    """The most value with at most floor(M / h) requests of length h or more, for every h."""
    kept, total = list[Fraction](), Fraction(0)
    longest_first = sorted(instance.useful, key=lambda k: -instance.sizes[k])
    for size, places in groupby(longest_first, key=lambda k: instance.sizes[k]):
        for k in places:
            heapq.heappush(kept, instance.values[k])
            total += instance.values[k]
        while len(kept) > instance.room // size:
            total -= heapq.heappop(kept)
    return total


def token_law(instance: PipeliningInstance) -> Fraction:
    """M (1 + log2(L / g_min) / 2), rounded up."""
    sizes = [instance.sizes[k] for k in instance.useful]
    longest, shortest = max(sizes) ** STEPS, min(sizes) ** STEPS
    power = max(0, longest.bit_length() - shortest.bit_length() - 1)
    while longest > shortest << power:
        power += 1
    return instance.room * (1 + Fraction(power, 2 * STEPS))
