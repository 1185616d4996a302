"""The hat inequalities as a mixed-integer program: a bound on what one reservation can hold.

``x[i]`` 1 if request i is selected.  Minimise the value left out, under every hat inequality and count of
`infermax_opt.pipelining.bounds.hats`, which every schedule satisfies.  It says nothing of offsets, so its
points are no schedules.
"""

from __future__ import annotations

from typing import ClassVar

import pyomo.environ as pyo
from infermax_opt.models.pipelining_order import add_rows, place_of_group, whole_values

from infermax_opt.core.result import Scope
from infermax_opt.pipelining.bounds.hats import Hats
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining

__all__ = ["PipeliningHats"]


class PipeliningHats:
    """The model of the hat inequalities."""

    name: ClassVar[str] = "hats"
    scope: ClassVar[Scope] = Scope.RELAXATION

    def columns(self, instance: PipeliningInstance) -> int:
        """One for each request."""
        return len(instance.useful)

    def parts(self, instance: PipeliningInstance) -> int:
        """Denominator of the values."""
        parts: int = whole_values(instance)[0]
        return parts

    def build(self, instance: PipeliningInstance) -> pyo.ConcreteModel:
        """The model of the useful requests."""
        m = pyo.ConcreteModel()
        m.instance = instance
        values = whole_values(instance)[1]
        m.x = pyo.Var(range(len(values)), domain=pyo.Binary)
        m.left_out = pyo.Objective(expr=sum(v * (1 - m.x[i]) for i, v in enumerate(values)))
        hats = Hats(instance)
        add_rows(m, hats, place_of_group(instance, hats))
        return m

    def warm_start(self, m: pyo.ConcreteModel, schedule: Pipelining) -> None:
        """Set which requests a schedule selects; those that are worth nothing are no part of the model."""
        for i, k in enumerate(m.instance.useful):
            m.x[i].set_value(int(m.instance.requests[k].id in schedule.offsets))

    def meaning(self, m: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        m : ConcreteModel
        variable : str
        index : tuple of int
        """
        return f"1 if {m.instance.requests[m.instance.useful[index[0]]].id} is selected"

    def extract(self, m: pyo.ConcreteModel) -> Pipelining:
        """A selection has no offsets.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("the hat inequalities select requests and say nothing of their offsets")
