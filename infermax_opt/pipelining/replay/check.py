r"""The rules of a schedule, checked exactly.

*Lemma 1.*  Requests with reserved lengths g and offsets s share M cells, each filling one cell an iteration
from s on, all from the same moment, and leaving after g iterations, iff 0 <= s_i <= M - g_i and
\|s_i - s_j\| >= min(g_i, g_j).  *Proof.*  Request i uses cell p, from s_i to s_i + g_i - 1, at times
from p - s_i up to, not including, g_i.  Let s_i <= s_j.  On a cell p of both, i is the later to arrive, at
p - s_i, and j leaves at g_j: they meet iff p - s_i < g_j.  The first cell of j is the first of both, if any
is: that is so iff s_j - s_i < g_i.  So they meet iff s_j - s_i < g_i and s_j - s_i < g_j.

*All pairs at once.*  In order of s, let j be next.  Some earlier i breaks the rule with j iff
s_i + g_i > s_j and s_i > s_j - g_j.  Of those with s_i + g_i > s_j the one with the largest s_i decides.
An earlier request with an end no later than that of a later one is never it, so a stack holds the others:
offsets rise in it, ends fall.  Those whose end is s_j or less are dropped from its top; what is then on top
decides.  This is O(n log n).
"""

from __future__ import annotations

import enum

from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.simple.records import BrokenRule

__all__ = ["PipeliningRule", "broken_rules"]


class PipeliningRule(enum.Enum):
    """Rules that a schedule can break."""

    UNKNOWN_REQUEST = "unknown_request"
    CAPACITY = "capacity"
    OVERWRITTEN = "overwritten"


def broken_rules(instance: PipeliningInstance, schedule: Pipelining) -> tuple[BrokenRule, ...]:
    """Every request that is unknown, does not fit, or meets one before it; none if valid."""
    found, placed = list[BrokenRule](), list[tuple[int, int, str]]()
    for name, offset in schedule.offsets.items():
        if name not in instance.index:
            found.append(
                BrokenRule(PipeliningRule.UNKNOWN_REQUEST, f"request {name!r}", "is not in the instance")
            )
            continue
        size = instance.sizes[instance.index[name]]
        placed.append((offset, size, name))
        if offset + size > instance.capacity:
            what = f"offset {offset} and {size} tokens are more than the capacity, {instance.capacity}"
            found.append(BrokenRule(PipeliningRule.CAPACITY, f"request {name!r}", what))
    placed.sort()
    stack = list[tuple[int, int, str]]()
    for offset, size, name in placed:
        while stack and stack[-1][0] + stack[-1][1] <= offset:
            stack.pop()
        if stack and stack[-1][0] > offset - size:
            before, other, whose = stack[-1]
            what = f"begins {offset - before} tokens behind {whose!r}; the least is {min(size, other)}"
            found.append(BrokenRule(PipeliningRule.OVERWRITTEN, f"request {name!r}", what))
        while stack and stack[-1][0] + stack[-1][1] <= offset + size:
            stack.pop()
        stack.append((offset, size, name))
    return tuple(found)
