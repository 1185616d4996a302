r"""Offline assignment of requests to clients: min-makespan bin packing, eqs 26-30 of Pang et al.

``x[i,j]`` 1 if request i is on client j; ``t[j]`` decode rounds of client j; ``tmax`` the largest.
T_i of eq 28 is the request's number of rounds: its output tokens, or what is known of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyomo.environ as pyo

__all__ = ["AssignmentModel"]


class AssignmentModel:
    """The offline model."""

    name: ClassVar[str] = "makespan-assignment"

    def build(self, lengths: Sequence[int], clients: int) -> pyo.ConcreteModel:
        """Model of all assignments of requests of so many rounds."""
        m = pyo.ConcreteModel()
        m.I, m.J = pyo.RangeSet(len(lengths)), pyo.RangeSet(clients)
        m.x = pyo.Var(m.I, m.J, domain=pyo.Binary)  # eq 29
        m.t = pyo.Var(m.J, domain=pyo.NonNegativeReals, bounds=(0, sum(lengths)))  # eq 30
        m.tmax = pyo.Var(domain=pyo.NonNegativeReals, bounds=(0, sum(lengths)))
        m.makespan = pyo.Objective(expr=m.tmax)  # eq 26
        m.largest = pyo.Constraint(m.J, rule=lambda m, j: m.tmax >= m.t[j])
        m.eq27 = pyo.Constraint(m.I, rule=lambda m, i: sum(m.x[i, j] for j in m.J) == 1)
        m.eq28 = pyo.Constraint(m.J, rule=lambda m, j: sum(m.x[i, j] * lengths[i - 1] for i in m.I) <= m.t[j])
        return m

    def warm_start(self, m: pyo.ConcreteModel, assignment: Sequence[int], lengths: Sequence[int]) -> None:
        """Set every variable to what an assignment does: the client, from 1, of each request.

        Parameters
        ----------
        m : ConcreteModel
        assignment : sequence of int
            Client, from 1, of each request.
        lengths : sequence of int
            Rounds of each request.
        """
        for i in m.I:
            for j in m.J:
                m.x[i, j].set_value(int(assignment[i - 1] == j))
        for j in m.J:
            m.t[j].set_value(sum(n for n, at in zip(lengths, assignment, strict=True) if at == j))
        m.tmax.set_value(max(m.t[j].value for j in m.J))

    def extract(self, m: pyo.ConcreteModel) -> list[int]:
        """Client of each request, from 1."""
        return [next(j for j in m.J if pyo.value(m.x[i, j]) > 0.5) for i in m.I]
