r"""Pipelining with an order of each pair: Lemma 1 as a mixed-integer program.

``x[i]`` 1 if request i is selected, ``s[i]`` its offset in cells, ``b[i,j]`` 1 if i begins before j (i < j).
Minimise the value left out.

- ``before``: s_j >= s_i + min(g_i, g_j), unless b is 0 or one of the two is not selected.
- ``after``: the same the other way round, unless b is 1.
- ``fits``: 0 <= s_i <= M - g_i.
- ``hats`` and ``counts``: `infermax_opt.pipelining.bounds.hats`; they are implied, and cut off fractions.
- ``alike``: of requests of one length the more valuable are selected first.  An exchange of two of them
  keeps a schedule valid and its value no lower.

A cell is the greatest common part of the lengths: offsets may be rounded down to it, as
`infermax_opt.pipelining.bounds.kinds` says.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from math import gcd, lcm
from typing import ClassVar

import pyomo.environ as pyo

from infermax_opt.core.result import Scope
from infermax_opt.pipelining.bounds.hats import Hats
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining

__all__ = ["PipeliningOrder", "add_rows", "place_of_group", "whole_values"]


def whole_values(instance: PipeliningInstance) -> tuple[int, list[int]]:
    """Values of the useful requests as whole numbers, and how many of these are one."""
    values = [instance.values[k] for k in instance.useful]
    parts = lcm(*(v.denominator for v in values))
    return parts, [int(v * parts) for v in values]


def place_of_group(instance: PipeliningInstance, hats: Hats) -> list[int]:
    """For each useful request, the place of its length and value in the rows of the hats."""
    places = {group: k for k, group in enumerate(hats.groups)}
    return [places[instance.sizes[k], instance.values[k]] for k in instance.useful]


def add_rows(m: pyo.ConcreteModel, hats: Hats, places: list[int]) -> None:
    """Add hats and counts on ``m.x``.

    Parameters
    ----------
    m : ConcreteModel
    hats : Hats
    places : list of int
        Of each of its requests, the place of its group in the rows.
    """
    rows = hats.rows()

    def rule(m: pyo.ConcreteModel, r: int) -> object:
        row, limit = rows[r]
        terms = [row[place] * m.x[i] for i, place in enumerate(places) if row[place]]
        return sum(terms) <= limit if terms else pyo.Constraint.Skip

    m.hats = pyo.Constraint(range(len(rows)), rule=rule)


class PipeliningOrder:
    """The model with an order of each pair."""

    name: ClassVar[str] = "order"
    scope: ClassVar[Scope] = Scope.EXACT

    def columns(self, instance: PipeliningInstance) -> int:
        """Requests twice, and pairs."""
        n = len(instance.useful)
        return 2 * n + n * (n - 1) // 2

    def parts(self, instance: PipeliningInstance) -> int:
        """Denominator of the values."""
        return whole_values(instance)[0]

    def build(self, instance: PipeliningInstance) -> pyo.ConcreteModel:
        """The model of the useful requests."""
        m = pyo.ConcreteModel()
        m.instance = instance
        m.cell = gcd(*(instance.sizes[k] for k in instance.useful))
        g = [instance.sizes[k] // m.cell for k in instance.useful]
        room, values = instance.room // m.cell, whole_values(instance)[1]
        m.I = pyo.RangeSet(0, len(g) - 1)
        m.pairs = pyo.Set(initialize=list(combinations(range(len(g)), 2)), dimen=2)
        m.x = pyo.Var(m.I, domain=pyo.Binary)
        m.s = pyo.Var(m.I, domain=pyo.NonNegativeIntegers, bounds=lambda m, i: (0, room - g[i]))  # fits
        m.b = pyo.Var(m.pairs, domain=pyo.Binary)
        m.left_out = pyo.Objective(expr=sum(v * (1 - m.x[i]) for i, v in enumerate(values)))

        def apart(m: pyo.ConcreteModel, first: int, second: int, unordered: object) -> object:
            """The second begins late enough behind the first, unless something is 1 or more."""
            least = min(g[first], g[second])
            large = least + room - g[first]
            unless = unordered + 2 - m.x[first] - m.x[second]  # type: ignore[operator]
            return m.s[second] - m.s[first] + large * unless >= least

        m.before = pyo.Constraint(m.pairs, rule=lambda m, i, j: apart(m, i, j, 1 - m.b[i, j]))
        m.after = pyo.Constraint(m.pairs, rule=lambda m, i, j: apart(m, j, i, m.b[i, j]))
        hats = Hats(instance)
        add_rows(m, hats, place_of_group(instance, hats))
        ranked = sorted(m.I, key=lambda i: (g[i], -values[i], i))
        m.ranked = [(i, j) for i, j in pairwise(ranked) if g[i] == g[j]]
        m.alike = pyo.Constraint(
            range(len(m.ranked)), rule=lambda m, k: m.x[m.ranked[k][0]] >= m.x[m.ranked[k][1]]
        )
        return m

    def warm_start(self, m: pyo.ConcreteModel, schedule: Pipelining) -> None:
        """Set every variable to what a schedule does, the more valuable of requests of one length selected.

        Raises
        ------
        ValueError
            If it selects a request that is of no use.
        """
        instance: PipeliningInstance = m.instance
        place = {instance.requests[k].id: i for i, k in enumerate(instance.useful)}
        if not schedule.offsets.keys() <= place.keys():
            raise ValueError("the schedule selects a request that does not fit, or is worth nothing")
        offsets = {place[name]: offset // m.cell for name, offset in schedule.offsets.items()}
        for i, j in m.ranked * len(m.ranked):
            if j in offsets and i not in offsets:
                offsets[i] = offsets.pop(j)
        for i in m.I:
            m.x[i].set_value(int(i in offsets))
            m.s[i].set_value(offsets.get(i, 0))
        for i, j in m.pairs:
            m.b[i, j].set_value(int(offsets.get(i, 0) <= offsets.get(j, 0)))

    def meaning(self, m: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        m : ConcreteModel
        variable : str
        index : tuple of int
        """
        names = [m.instance.requests[m.instance.useful[i]].id for i in index]
        if variable == "b":
            return f"1 if {names[0]} begins before {names[1]}"
        return (
            f"1 if {names[0]} is selected" if variable == "x" else f"offset of {names[0]} in {m.cell} tokens"
        )

    def extract(self, m: pyo.ConcreteModel) -> Pipelining:
        """Read the offsets of the selected requests."""
        instance: PipeliningInstance = m.instance
        chosen = [(k, m.s[i]) for i, k in enumerate(instance.useful) if pyo.value(m.x[i]) > 0.5]
        offsets = {instance.requests[k].id: round(pyo.value(s)) * m.cell for k, s in chosen}
        return Pipelining(instance.name, offsets)
