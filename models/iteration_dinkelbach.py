r"""One batch of real-time and best-effort requests: value less time at a ratio (Dinkelbach).

``x[r]`` 1 if request r is selected; ``T`` time of the batch, ticks; ``D``, ``P``, ``M`` 1 if it holds
decodes, prefills, both; ``k[i]`` 1 if (6) holds for savable request i.  With the ratio p/q (units of value
for a tick): minimise

    p T - q sum of v x.

- ``piece`` (2) to (4): T >= alpha + beta tokens + attention + d0 D + p0 P + e0 M + ``E``.
- ``swap`` (5): T >= s0 + s1 (blocks from the host).
- ``phase``: x <= D or P.  ``both``: M >= D + P - 1.
- ``mixed``: E >= e1 (what decodes read) where M is 1.
- ``deadline`` (6): T + T_avg (1 - x) <= slack, where k is 1.  ``keep``: the sum of k is no less than can be.
- ``size`` (7), ``blocks`` (8), and ``some``: a batch has a request.

*Attention as a product.*  ``c[n]`` 1 if there are n decodes; ``read``: their attention is n times that of
their contexts, where c[n] is 1.  ``w[i,j]`` 1 if both prefills are selected (``pair``).

The optimum is 0 at the best ratio; at a smaller one, it is negative, and its batch has a larger ratio.
"""

from __future__ import annotations

from typing import ClassVar

import pyomo.environ as pyo
from infermax_opt.models._iteration_batch import Chosen, Work

from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection

__all__ = ["Dinkelbach"]


class Dinkelbach:
    """The batch model with a ratio."""

    name: ClassVar[str] = "dinkelbach"
    #: Its objective depends on the ratio.
    iterates: ClassVar[bool] = True

    def build(self, instance: IterationInstance, value: int, ticks: int) -> pyo.ConcreteModel:
        """Model for a ratio of so many units of value to so many ticks.

        Parameters
        ----------
        instance : IterationInstance
        value, ticks : int
        """
        m, work = pyo.ConcreteModel(), Work(instance)
        m.instance, m.work, t = instance, work, work.ticks
        m.R, m.S = pyo.RangeSet(0, len(instance.requests) - 1), pyo.Set(initialize=t.savable)
        m.x, m.k = pyo.Var(m.R, domain=pyo.Binary), pyo.Var(m.S, domain=pyo.Binary)
        m.T = pyo.Var(bounds=(0, t.all_time))
        m.D, m.P, m.M = (pyo.Var(domain=pyo.Binary) for _ in range(3))
        most = sum(work.beside.values()) + len(work.counts) * sum(work.contexts_beside.values())
        m.E = pyo.Var(bounds=(0, most))
        m.less_value = pyo.Objective(
            expr=value * m.T - ticks * sum(v * m.x[r] for r, v in enumerate(t.value) if v)
        )
        attention = sum(w * m.x[r] for r, w in work.alone.items() if w) + self._products(m)
        self._add_time(m, attention)
        m.size = pyo.Constraint(expr=sum(m.x[r] for r in m.R) <= instance.machine.batch)
        m.some = pyo.Constraint(expr=sum(m.x[r] for r in m.R) >= 1)
        blocks = sum(r.new_blocks * m.x[k] for k, r in enumerate(instance.requests) if r.new_blocks)
        m.blocks = pyo.Constraint(expr=blocks + 0 * m.T <= instance.machine.blocks)
        self._add_deadlines(m)
        return m

    def _products(self, m: pyo.ConcreteModel) -> object:
        """Attention of decodes and pairs of prefills, where it is a product."""
        work: Work = m.work
        m.C, m.Q = pyo.Set(initialize=list(work.counts)), pyo.Set(dimen=2, initialize=list(work.pairs))
        m.c, m.w = pyo.Var(m.C, domain=pyo.Binary), pyo.Var(m.Q, domain=pyo.Binary)
        if not work.ticks.machine.product:
            return 0
        m.pair = pyo.Constraint(m.Q, rule=lambda m, i, j: m.w[i, j] >= m.x[i] + m.x[j] - 1)
        pairs = sum(w * m.w[pair] for pair, w in work.pairs.items() if w)
        if not work.counts:
            return pairs
        whole = sum(work.contexts.values())
        m.A = pyo.Var(bounds=(0, len(work.counts) * whole))
        m.one_count = pyo.Constraint(expr=sum(m.c[n] for n in m.C) == m.D)
        m.count = pyo.Constraint(expr=sum(n * m.c[n] for n in m.C) == sum(m.x[k] for k in work.decodes))
        sums = sum(w * m.x[k] for k, w in work.contexts.items())
        m.read = pyo.Constraint(m.C, rule=lambda m, n: n * sums - n * whole * (1 - m.c[n]) <= m.A)
        return m.A + pairs

    def _add_time(self, m: pyo.ConcreteModel, attention: object) -> None:
        """Add (2) to (5)."""
        work: Work = m.work
        d0, p0, e0 = work.fixed
        rest = attention + d0 * m.D + p0 * m.P + e0 * m.M + m.E

        def piece(m: pyo.ConcreteModel, at: int) -> object:
            alpha, beta = work.pieces[at]
            return alpha + beta * sum(n * m.x[k] for k, n in enumerate(work.tokens)) + rest <= m.T

        m.piece = pyo.Constraint(range(len(work.pieces)), rule=piece)
        if work.ticks.swap is not None:
            s0, s1 = work.ticks.swap
            m.swap = pyo.Constraint(
                expr=s0 + s1 * sum(h * m.x[k] for k, h in enumerate(work.host) if h) <= m.T
            )
        decodes = set(work.decodes)
        m.phase = pyo.Constraint(m.R, rule=lambda m, r: m.x[r] <= (m.D if r in decodes else m.P))
        m.both = pyo.Constraint(expr=m.M >= m.D + m.P - 1)
        if work.beside:
            most = sum(work.beside.values())
            read = sum(w * m.x[k] for k, w in work.beside.items())
            m.mixed = pyo.Constraint(expr=read - most * (1 - m.M) <= m.E)
        if work.contexts_beside:
            most, sums = sum(work.contexts_beside.values()), work.contexts_beside

            def mixed(m: pyo.ConcreteModel, n: int) -> object:
                read = sum(w * m.x[k] for k, w in sums.items())
                return n * read - n * most * (2 - m.M - m.c[n]) <= m.E

            m.mixed = pyo.Constraint(m.C, rule=mixed)

    def _add_deadlines(self, m: pyo.ConcreteModel) -> None:
        """Add (6) for as many as can be kept."""
        work: Work = m.work
        ticks = work.ticks

        def deadline(m: pyo.ConcreteModel, i: int) -> object:
            slack = ticks.limit(i, selected=True)
            spare = max(0, ticks.all_time + ticks.t_avg - slack)
            return m.T + ticks.t_avg * (1 - m.x[i]) <= slack + spare * (1 - m.k[i])

        m.deadline = pyo.Constraint(m.S, rule=deadline)
        if ticks.savable:
            m.keep = pyo.Constraint(expr=sum(m.k[i] for i in m.S) >= work.kept)

    def warm_start(self, m: pyo.ConcreteModel, selection: Selection) -> None:
        """Set every variable to what a selection does.

        Raises
        ------
        ValueError
            If the selection is not valid, or selects nobody.
        """
        work: Work = m.work
        chosen = Chosen.of(work, selection)
        for r in m.R:
            m.x[r].set_value(int(r in chosen.batch))
        for i in m.S:
            m.k[i].set_value(int(i in chosen.kept))
        both = int(chosen.decodes > 0 and chosen.prefills > 0)
        for variable, value in (
            (m.T, chosen.time),
            (m.D, chosen.decodes > 0),
            (m.P, chosen.prefills > 0),
            (m.M, both),
        ):
            variable.set_value(int(value))
        read = sum(w for k, w in work.beside.items() if k in chosen.batch)
        read += chosen.decodes * sum(w for k, w in work.contexts_beside.items() if k in chosen.batch)
        m.E.set_value(both * read)
        for n in m.C:
            m.c[n].set_value(int(n == chosen.decodes))
        for i, j in m.Q:
            m.w[i, j].set_value(int(i in chosen.batch and j in chosen.batch))
        if work.counts:
            m.A.set_value(chosen.decodes * sum(w for k, w in work.contexts.items() if k in chosen.batch))

    def meaning(self, m: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        m : ConcreteModel
        variable : str
        index : tuple of int
        """
        names = [m.instance.requests[k].id for k in index] if variable in "xkw" else []
        words = {
            "x": "1 if {} is selected", "k": "1 if (6) holds for {}", "w": "1 if {} and {} are selected",
            "T": "time of the batch, ticks", "D": "1 if it holds decodes", "P": "1 if it holds prefills",
            "M": "1 if it holds both", "E": "what both take longer, ticks",
            "c": f"1 if there are {index} decodes", "A": "attention of the decodes, ticks",
        }  # fmt: skip
        return words[variable].format(*names)

    def extract(self, m: pyo.ConcreteModel) -> Selection:
        """Read the selection from the variables."""
        chosen = (r.id for k, r in enumerate(m.instance.requests) if pyo.value(m.x[k]) > 0.5)
        return Selection(m.instance.name, tuple(chosen))
