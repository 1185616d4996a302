r"""Placement on the fewest workers: the MIP of Aladdin (section 4.2, constraints a to h).

``y[i]`` 1 if worker i is used; ``x[i,j]`` 1 if request j is on worker i.  Minimise the sum of y.

- a ``one``: every request is on one worker; ongoing ones are fixed to theirs.
- b ``iteration``: sum of (k2 (l_in + gamma p) + theta c2) x <= theta (T_dec - c3) y, p the predicted output.
- c, d ``prefill``: k1 times the sum of l_in x over new requests <= the less of T_pre and of what ongoing
  requests have saved, minus c1.
- e ``kv``: at iteration k, the sum of (h (l_in + l_out + k) + j) x over requests with k or more tokens to
  generate <= M y.
- f ``used``: x <= y.
- g, h: x and y are binary.

*Iterations.*  Rows e are there only for last iterations of requests (where the horizon cuts one short,
that of the horizon).  Let k' be the first such iteration from k on.  None that is there at k has ended before
k', and each holds h (k' - k) more then, so the row of k' implies that of k; if there is no k', none is there
at k.

*Ongoing requests.*  Their workers are used.  Where they break b or e by themselves, or have saved nothing for
a prefill, the worker takes no new request and has no rows, as in `infermax_opt.placement.data.limits`.

*Symmetry.*  Fresh workers are alike, so they may be numbered by the first of their requests: ``order``, new
request j on the k-th fresh worker needs an earlier one on the fresh worker before it.

All numbers are whole: ticks, and units of KV.
"""

from __future__ import annotations

from itertools import count, islice
from typing import ClassVar

import pyomo.environ as pyo

from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.check import check_placement

__all__ = ["AladdinModel"]


class AladdinModel:
    """The placement model."""

    name: ClassVar[str] = "aladdin"

    def build(self, instance: PlacementInstance, workers: int) -> pyo.ConcreteModel:
        """Model of all placements on at most so many workers.

        Raises
        ------
        ValueError
            If more have ongoing requests.
        """
        limits = Limits.of(instance)
        if workers < len(limits.ongoing):
            raise ValueError(f"{len(limits.ongoing)} workers have ongoing requests; the model has {workers}")
        m = pyo.ConcreteModel()
        m.instance, m.limits = instance, limits
        spare = (number for number in count(1) if number not in limits.ongoing)
        m.fresh = list(islice(spare, workers - len(limits.ongoing)))
        m.open = [number for number in limits.ongoing if _takes_more(limits, number)]
        m.I = pyo.Set(initialize=[*sorted(limits.ongoing), *m.fresh])
        m.J = pyo.RangeSet(0, len(instance.requests) - 1)
        m.x = pyo.Var(m.I, m.J, domain=pyo.Binary)  # g
        m.y = pyo.Var(m.I, domain=pyo.Binary)  # h
        self._fix(m)
        m.workers = pyo.Objective(expr=sum(m.y[i] for i in m.I))
        m.one = pyo.Constraint(limits.new, rule=lambda m, j: sum(m.x[i, j] for i in m.I) == 1)  # a
        self._add_iteration(m)
        self._add_prefill(m)
        self._add_kv(m)
        m.used = pyo.Constraint(m.fresh, limits.new, rule=lambda m, i, j: m.x[i, j] <= m.y[i])  # f
        self._add_order(m)
        return m

    def _fix(self, m: pyo.ConcreteModel) -> None:
        limits: Limits = m.limits
        for worker, members in limits.ongoing.items():
            m.y[worker].fix(1)
            for i in m.I:
                for j in members:
                    m.x[i, j].fix(int(i == worker))
            if worker not in m.open:
                for j in limits.new:
                    m.x[worker, j].fix(0)

    def _add_iteration(self, m: pyo.ConcreteModel) -> None:
        """Add b."""
        limits: Limits = m.limits

        def rule(m: pyo.ConcreteModel, i: int) -> object:
            return sum(limits.context[j] * m.x[i, j] for j in m.J) <= limits.most_context * m.y[i]

        m.iteration = pyo.Constraint([*m.open, *m.fresh], rule=rule)

    def _add_prefill(self, m: pyo.ConcreteModel) -> None:
        """Add c and d."""
        limits: Limits = m.limits

        def rule(m: pyo.ConcreteModel, i: int) -> object:
            most = limits.worker_prompt.get(i, limits.most_prompt)
            return sum(limits.prompt[j] * m.x[i, j] for j in limits.new) <= most * m.y[i]

        m.prefill = pyo.Constraint([*m.open, *m.fresh], rule=rule)

    def _add_kv(self, m: pyo.ConcreteModel) -> None:
        """Add e."""
        limits: Limits = m.limits
        new_ends = {limits.lasts[j] for j in limits.new}
        ends = [
            (i, k)
            for i in [*m.open, *m.fresh]
            for k in sorted(new_ends.union(limits.lasts[j] for j in limits.ongoing.get(i, ())))
        ]

        def rule(m: pyo.ConcreteModel, i: int, k: int) -> object:
            held = sum((limits.held[j] + limits.grows * k) * m.x[i, j] for j in m.J if limits.lasts[j] >= k)
            return held <= limits.most_kv * m.y[i]

        m.kv = pyo.Constraint(ends, rule=rule)

    def _add_order(self, m: pyo.ConcreteModel) -> None:
        """Add the numbering of fresh workers."""
        limits: Limits = m.limits

        def rule(m: pyo.ConcreteModel, k: int, at: int) -> object:
            before = sum(m.x[m.fresh[k - 1], j] for j in limits.new[:at])
            return m.x[m.fresh[k], limits.new[at]] <= before

        m.order = pyo.Constraint(range(1, len(m.fresh)), range(len(limits.new)), rule=rule)

    def warm_start(self, m: pyo.ConcreteModel, placement: Placement) -> None:
        """Set every variable to what a placement does; fresh workers are numbered as the model does.

        Raises
        ------
        ValueError
            If the placement is not valid, or uses too many workers.
        """
        instance, limits = m.instance, m.limits
        checked = check_placement(instance, placement)
        if not checked.valid:
            raise ValueError(f"the placement is not valid: {checked.violations[0]}")
        if checked.workers > len(m.I):
            raise ValueError(f"{checked.workers} workers; the model has {len(m.I)}")
        names = {number: number for number in limits.ongoing}
        fresh = iter(m.fresh)
        at = {}
        for j in limits.new:
            number = placement.workers[instance.requests[j].id]
            if number not in names:
                names[number] = next(fresh)
            at[j] = names[number]
        for i in m.I:
            if i not in limits.ongoing:
                m.y[i].set_value(int(i in at.values()))
            for j in limits.new:
                m.x[i, j].set_value(int(at[j] == i))

    def meaning(self, m: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        m : ConcreteModel
        variable : str
        index : tuple of int
        """
        if variable == "y":
            return f"1 if worker {index[0]} is used"
        return f"1 if {m.instance.requests[index[1]].id} is on worker {index[0]}"

    def extract(self, m: pyo.ConcreteModel) -> Placement:
        """Read the placement of the new requests from the variables."""
        requests = m.instance.requests
        return Placement(
            m.instance.name,
            {requests[j].id: i for j in m.limits.new for i in m.I if pyo.value(m.x[i, j]) > 0.5},
        )


def _takes_more(limits: Limits, worker: int) -> bool:
    members = limits.ongoing[worker]
    return (
        sum(limits.context[j] for j in members) <= limits.most_context
        and limits.kv_peak(members) <= limits.most_kv
        and limits.worker_prompt[worker] >= 0
    )
