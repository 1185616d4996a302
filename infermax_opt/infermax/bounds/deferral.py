r"""The deferral bound on the mean latency with arrivals: prompts slow others down, or wait for them.

Fix one affine piece, in ticks.  Let a' = alpha + d0 > 0, c = alpha + p0.  Batch j has length T_j, X_j is the
sum of the works w = beta + d1 (s-1) of the tokens that are decoded in it, s cached after them, P_j the work
of prompts and Q_j that of refills.  Request i arrives at a_i, has its first token at b_i and its last at C_i,
both ends of batches.  V_i is the sum of P_j over the batches from b_i to C_i.

*Lives.*  A batch between b_i and C_i takes a' + X_j + P_j + Q_j or more if i decodes in it, c + P_j + R' or
more if it has a chunk of a refill of i, of work R', and P_j or more else.  So C_i - b_i - V_i is at least the
sum over the batches of i of T_j - P_j.  For any g_i >= 0, chosen when b_i and C_i are known, it follows that

    latency_i >= (b_i - a_i) + (1 - g_i) (C_i - b_i) + g_i V_i + g_i times the sum of T_j - P_j.

*Decodes.*  In batch j those who decode count g_i X_j each, together at least z_j**2, where z_j is the sum of
their sqrt(g_i w) (Cauchy).  For any step function r(t) >= 0, h = r**2, and means r_j, h_j over the batch,
z_j**2 >= 2 r_j z_j - r_j**2, and r_j**2 <= h_j.  As a' <= T_j - X_j - P_j - Q_j where anything decodes, the
sum of h_j over such batches is at most (integral of h - sum of h_j (X_j + P_j + Q_j)) / a'.  So a token that
is decoded at r counts g a' + 2 r sqrt(g w) + r**2 w / a', work of a prompt r**2 / a' of itself, and the
integral of h / a' is subtracted.  A refill of work R = (beta + p1) s counts g (c + R) + r**2 R / a': that is
no less at any r and g if R0 = c + R - a' >= 0 and w a' <= R0 (R - w), as in `interaction`.  Else the token
counts the lesser of g a' and g (c + R).

*Prompts.* Let p_k be the least work of the prompt of k, f_k the least time of a first token, and zeta_k a
share of the wait after a_k + f_k that k counts itself.  The rest of that wait is given to those i with a_i
+ f_i <= a_k, who *watch* k: of each tick of time, by weights v_i, which are given beforehand.  They depend
on i, on the time, and on how long k has been there by then.  Let S_ik(C) be what i has up to C, and

    u_k = min(g_i p_k, S_ik(C_i)).

- If b_k > C_i, k was waiting up to C_i, and i counts S_ik(C_i), or u_k.
- Else all of the prompt of k is processed by C_i, q_k of it before b_i, and g_i V_i has g_i (p_k - q_k) of
  it, so that i counts u_k less min(u_k, g_i q_k). Nothing was processed before b_i if k came after it.

*What is lost* of u_k by this is little where b_i is early.  Let a_1 <= a_2 <= ... be the arrivals of those
whom i watches, D_m the sum of u_k over the first m of them, and n come before b_i.  For m < n, what was
processed of prompts m + 1 to n before b_i took its time after a_(m+1).  So the loss is at most

    L(b_i) = min(D_n, I_n + g_i b_i),   I_n = min over m < n of D_m - g_i a_(m+1).

*Least over b and C.* Each i counts at least the least over b and C of

    f_i + zeta_i (b - a_i - f_i) + (1 - g) (C - b) + g fixed + tokens and prompt at the least r
        + D_N - L(b),

N of them there by C, and fixed the sum of a', or less, over its later tokens.  Tokens are taken in groups;
the first token is there at a_i + f_i or later, each group after the least times alone of those before it,
and before those of the ones after it, which end at C.  Any g may be chosen for each C, with zeta_i + g at
least 1.

Let C be in one cell of time.  The least r of cells up to its end counts.  Weights are constant in it, and
so S_ik is linear if k waits in all of it.  If k begins to wait within it, S_ik is taken as 0 up to its end,
and in the next cell as a line from 0 to what it is at the end of that.  Let D' be D at the begin of the
cell, and D at its end.  For each b take the m that is best with D, or n.  For it D_N - D_m - g (b -
a_(m+1)) is a sum of lesser ones of constants and lines that rise with C: concave, so both ends of the cell
are enough.  For b between two arrivals all falls with b where m < n is best, as zeta_i <= 1, and rises from
where L is D_n, as zeta_i + g >= 1.  Both meet at g b = D_n - I_n, where, with the m of I_n, L is

    D_n at the end of the cell,   D'_m + D_n - D_m at its begin;

the latter is no less than D'_n, which is L there for a larger b.  That b may be past the next arrival: then
it is no less low.  If nobody has come before b, it is a_i + f_i.

Who ends at C or later counts (1 - zeta_i) (f_i + fixed) + zeta_i (C - a_i) or more: take g = 1 - zeta_i and
no prompts.  Where that is as much as the least so far no more need be looked at, nor after the last cell,
where it counts.  Call the time of that E.  Nor need it after the end e of a cell with g <= 1, if what is
counted there is as much with the least r up to E.  For who ends later may keep that g, and all D_N - D_m
rise with C.  So he counts no less if he has b <= e - (least time of later tokens), and (zeta_i + g - 1) b
of b if it is later, as L <= D_N.  QED.

Certificate: r on cells of time; ages in ticks; of each kind of requests the share zeta, the stay, of which
each tenth, and five more, has a weight v for each time between two ages of those who wait, and the roots of
g / (1 - zeta), 1 or more, each for so many cells from that of the arrival on.  Cells belong to the tenth in
which they start, and to the ages that are reached where they start.  After the last weight, where S_ik does
not change, `WIDEST` cells count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._deferral_lives import Member, Row, Waits
from infermax_opt.infermax.bounds._deferral_search import Choices, good_choices
from infermax_opt.infermax.bounds.interaction import ROOT_BITS, Kind, Prices, in_groups
from infermax_opt.infermax.bounds.least_work import prompt_pairs
from infermax_opt.infermax.bounds.pieces import best_piece, longest
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["GROUPS", "DeferralProof", "deferral_bound"]

#: Largest KV of a request for which the bound is tried, and most requests: both are work of a checker.
MAX_SIZE, MAX_CHECKED = 2**20, 10_000
#: Groups of the later tokens of a request, at most.
GROUPS = 4


def deferral_bound(
    instance: Instance, *, stop: Callable[[], bool] | None = None, pieces: Sequence[int] | None = None
) -> LowerBound | None:
    """Best deferral bound found over pieces, prices of time, weights and shares.

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
        None where the bound is not tried.  Below zero it says nothing.
    """
    few = longest(instance) <= MAX_SIZE and len(instance.requests) <= MAX_CHECKED
    if instance.offline or not few:
        return None
    return best_piece(instance, _piece_bound, stop, pieces)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    prices = Prices.of(instance, piece)
    if prices is None:
        return None
    proof = DeferralProof(instance, prices, GROUPS)
    found = good_choices(instance, piece, prices.step, proof.members, stop)
    return None if found is None else proof.bound(found)


class DeferralProof:
    """The bound for so many groups of later tokens at most.

    Parameters
    ----------
    instance : Instance
    prices : Prices
    groups : int
    """

    def __init__(self, instance: Instance, prices: Prices, groups: int):
        self.instance, self.prices, self.groups = instance, prices, groups
        found: dict[tuple[int, int, Fraction], Member] = {}
        for kind in instance.types:
            key = kind.input_tokens, kind.output_tokens, kind.arrival
            made = self._member(kind)
            if key in found:
                made = made._replace(times=made.times + found[key].times)
            found[key] = made
        #: Kinds of requests, in order of their first appearance.
        self.members = list(found.values())

    def _member(self, kind: RequestType) -> Member:
        instance, prices = self.instance, self.prices
        ticks, i, o = instance.cost.ticks, kind.input_tokens, kind.output_tokens
        alone = Kind.of(kind, instance, prices)
        first = alone.lone - alone.later
        prompt = ticks.beta[prices.piece] * i + ticks.p1 * prompt_pairs(instance, kind)
        last, times = i + o - 1, prices.alone
        rows = [Row(0, alone.later, 0, prompt)]
        rows += [
            Row(
                first + times[a] - times[i], times[last] - times[b],
                prices.roots[b] - prices.roots[a], prices.works[b] - prices.works[a],
            )
            for a, b in in_groups(i, o, self.groups)
        ]  # fmt: skip
        return Member(
            alone.count, o, alone.begin, alone.until, first, alone.later, prompt, alone.fixed, tuple(rows)
        )

    def bound(self, choices: Choices) -> LowerBound:
        """The bound, exactly."""
        instance, prices = self.instance, self.prices
        waits = Waits(self.members, choices, prices.step)
        evidence = {
            "kind": "deferral",
            "piece": prices.piece,
            "groups": self.groups,
            "cells": [list(cell) for cell in choices.cells],
            "ages": list(choices.ages),
            "stays": list(choices.stays),
            "shares": list(choices.shares),
            "weights": [list(row) for row in choices.weights],
            "levels": [[list(run) for run in runs] for runs in choices.levels],
        }
        ticks = Fraction(waits.total(), prices.step << 2 * ROOT_BITS + waits.bits)
        value = ticks / instance.cost.ticks_per_second / len(instance.requests)
        return LowerBound(value, "deferral", Proof.CERTIFICATE, evidence=evidence)
