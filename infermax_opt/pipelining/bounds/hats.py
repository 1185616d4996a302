r"""Hat inequalities: Theorem 1 with U(x) = (x - h)^+, and a linear program over them.

U(2g) - 2U(g) is the hat c_h(g): 0 up to h/2, 2g - h up to h, h above.  So for every h

    sum over the selected of c_h(g_i)  <=  r_h  =  (M - h)^+ + c_h(L),    L the longest that fits,

which is M for h <= L.  Sums of these with weights y_h >= 0, and of the counts (at most floor(M / h) requests
of h or more) with weights z_h >= 0, price each length at p_g = sum of y_h c_h(g) + sum over h <= g of z_h,
and for any prices

    sum of v_i  <=  sum of y_h r_h + sum of z_h floor(M / h) + sum over all i of max(0, v_i - p_{g_i}).

The weights are duals of max sum of v x over these rows, 0 <= x <= 1, rounded; the bound is then computed
exactly, so it holds whatever they are.  h in {g, 2g} and M is enough: between neighbours of this set every
hat is linear in h, and so is r_h, so a row there is a mix of those two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from infermax_opt.core.linear import quiet_solver, sparse_program
from infermax_opt.pipelining.data.instance import PipeliningInstance

__all__ = ["Hats", "hat", "hat_limit"]

#: Lengths whose hats are in the program; of more, so many are chosen evenly.
MOST_HATS = 600
#: Weights are multiples of 2**-SHIFT of the value of a token.
SHIFT = 24
#: Seconds that the program may take.
SECONDS = 20.0


def hat(h: int, g: int) -> int:
    """c_h(g), what a request of g tokens takes of the hat at h."""
    return max(0, min(2 * g - h, h))


def hat_limit(h: int, room: int, longest: int) -> int:
    """r_h, what all selected requests take of it at most.

    Parameters
    ----------
    h : int
    room, longest : int
        Tokens of the reservation, in whole blocks, and of the longest request that fits.
    """
    return max(0, room - h) + hat(h, longest)


class Hats:
    """The rows of an instance, and the bound of weights of them.

    Parameters
    ----------
    instance : PipeliningInstance
        Some of its requests are useful.

    Attributes
    ----------
    hats, counts : list of int
        Values of h in rows of the two kinds.
    """

    def __init__(self, instance: PipeliningInstance):
        self.instance = instance
        self.longest = max(instance.sizes[k] for k in instance.useful)
        self.groups = Counter((instance.sizes[k], instance.values[k]) for k in instance.useful)
        sizes = sorted({g for g, _ in self.groups})
        step = -(-len(sizes) // MOST_HATS)
        chosen = sizes[::-step][::-1]
        self.hats = sorted(
            h for h in {instance.room, *chosen, *(2 * g for g in chosen)} if h < 2 * self.longest
        )
        self.counts = chosen

    def rows(self) -> list[tuple[list[int], int]]:
        """Coefficient of each group in each row, and its limit."""
        room = self.instance.room
        lengths = [g for g, _ in self.groups]
        found = [([hat(h, g) for g in lengths], hat_limit(h, room, self.longest)) for h in self.hats]
        return found + [([int(g >= h) for g in lengths], room // h) for h in self.counts]

    def most(self, weights: Sequence[Fraction]) -> Fraction:
        """The bound of weights, 0 or more each."""
        rows = self.rows()
        used = [(w, row) for w, row in zip(weights, rows, strict=True) if w]
        found = sum((w * limit for w, (_, limit) in used), Fraction(0))
        for place, ((_, value), number) in enumerate(self.groups.items()):
            price = sum((w * row[place] for w, (row, _) in used if row[place]), Fraction(0))
            found += number * max(Fraction(0), value - price)
        return found

    def duals(self) -> list[Fraction]:
        """Weights of about the best bound."""
        import numpy as np

        scale = max(value / g for g, value in self.groups)
        rows = self.rows()
        matrix = np.array([row for row, _ in rows], dtype=float)
        costs = [-float(value / scale) for _, value in self.groups]
        lows, highs = np.full(len(rows), -np.inf), [float(limit) for _, limit in rows]
        filled = np.nonzero(matrix)
        program = sparse_program(costs, [*self.groups.values()], lows, highs, (*filled, matrix[filled]))
        solver = quiet_solver(time_limit=SECONDS)
        solver.passModel(program)
        solver.run()
        found: list[Any] = list(solver.getSolution().row_dual)
        if len(found) != len(rows):
            return [Fraction(0)] * len(rows)
        return [scale * Fraction(max(0, round(-y * 2**SHIFT)), 2**SHIFT) for y in found]

    def prices(self, weights: Sequence[Fraction]) -> dict[int, Fraction]:
        """Price of each length."""
        rows = self.rows()
        used = [(w, row) for w, (row, _) in zip(weights, rows, strict=True) if w]
        places = {g: place for place, (g, _) in enumerate(self.groups)}
        return {g: sum((w * row[k] for w, row in used), Fraction(0)) for g, k in places.items()}

    def evidence(self, weights: Sequence[Fraction]) -> dict[str, Any]:
        """What a certificate holds of weights."""
        split = len(self.hats)

        def kept(heights: Sequence[int], some: Sequence[Fraction]) -> list[list[int | str]]:
            return [[h, f"{w.numerator}/{w.denominator}"] for h, w in zip(heights, some, strict=True) if w]

        return {
            "kind": "hats",
            "hats": kept(self.hats, weights[:split]),
            "counts": kept(self.counts, weights[split:]),
        }
