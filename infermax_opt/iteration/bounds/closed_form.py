r"""Closed forms: bounds on the seconds per value that are formulas.

**cheapest.**  A batch of q requests has at most the q largest values together, and takes at least the least
fixed time of a batch, with the q least times that requests add to the first line by themselves, in any pair
of phases.  So value per tick is at most the largest of these quotients over q = 1 .. B.  It knows neither
deadlines nor blocks.  (Of attention as a product it counts the tokens of a prefill times its own context:
the product of sums is no less.  Of decodes there may be one.)

**prefix.**  The optimum, where `infermax_opt.iteration.bounds.prefix` applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.iteration.bounds.cases import Case, Kinds
from infermax_opt.iteration.bounds.prefix import applies, best_prefix
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["CHEAPEST", "PREFIX", "closed_form_bounds"]

CHEAPEST, PREFIX = "cheapest", "prefix"


def closed_form_bounds(instance: IterationInstance) -> Iterator[LowerBound]:
    """All of them, the cheapest to compute first."""
    text = "the largest values, with the cheapest requests, without deadlines and blocks"
    yield LowerBound(_cheapest(instance), CHEAPEST, Proof.CLOSED_FORM, reason=text)
    if applies(instance):
        text = "the table of all prefixes of real-time and numbers of best-effort requests"
        yield LowerBound(best_prefix(instance).value, PREFIX, Proof.CLOSED_FORM, reason=text)


def _cheapest(instance: IterationInstance) -> Fraction:
    """Seconds per value, at least."""
    ticks = Ticks.of(instance)
    kinds, most = Kinds.of(ticks), instance.machine.batch
    values = sorted(
        (v for v, n in zip(kinds.value, kinds.copies, strict=True) for _ in range(n)), reverse=True
    )
    bases, added = [], list[int]()
    for prefills in (False, True):
        case = Case(kinds, ticks.all_time, frozenset(), 0, not prefills, prefills, 1)
        base, each = case.lines([0] * len(kinds.members))[0]
        own = [t for t, r in enumerate(kinds.requests) if r.prefills is prefills]
        bases += [base] if own else []
        added += [each[t] for t in own for _ in range(kinds.copies[t])]
    times = accumulate(sorted(added)[:most])
    pairs = zip(accumulate(values[:most]), times, strict=True)
    found = [(worth, min(bases) + time) for worth, time in pairs if worth]
    if not found:
        return ticks.worst
    if not all(time for _, time in found):
        return Fraction(0)  # the first line of the cost says nothing
    ratios = [Fraction(worth, time) for worth, time in found]
    return ticks.units / (max(ratios) * ticks.scale)
