r"""One batch of real-time and best-effort requests: the ratio itself (Charnes and Cooper).

``u`` = S / T, S a scale; ``p[r]`` = u x[r] for the binary ``x[r]``; likewise ``h[i]`` = u k[i], k[i] 1 if
(6) holds for savable request i.  With both sides of each row of the other formulation
(`infermax_opt.models.iteration_dinkelbach`) divided by T: maximise the sum of v p.

- ``piece`` (2) to (4): alpha u + beta tokens + attention + d0 D + p0 P + e0 M + E <= S, all multiplied by u.
- ``swap`` (5), ``size`` (7), ``blocks`` (8), ``deadline`` (6) and ``keep`` likewise:
  S <= slack u - T_avg (u - p) + spare (u - h).
- ``below``, ``off``, ``on``: p <= u, p <= U x, p >= u - U (1 - x), U the largest u: exact, as x is binary.
- ``D``, ``P`` >= p of their phase; ``M`` >= D + P - u; E >= e1 (what decodes read) - most (u - M).

It has no ratio, and one solve is enough; it does not hold attention as a product.
"""

from __future__ import annotations

from typing import ClassVar

import pyomo.environ as pyo
from infermax_opt.models._iteration_batch import Chosen, Work

from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection

__all__ = ["CharnesCooper"]

#: Largest u: as many parts has the rate of the shortest batch.
LARGEST = 2**40


class CharnesCooper:
    """The batch model of rates."""

    name: ClassVar[str] = "charnes-cooper"
    iterates: ClassVar[bool] = False

    def build(self, instance: IterationInstance, value: int, ticks: int) -> pyo.ConcreteModel:
        """The model; it needs no ratio.

        Parameters
        ----------
        instance : IterationInstance
        value, ticks : int
            Not used.

        Raises
        ------
        ValueError
            If attention is a product.
        """
        if instance.machine.product:
            raise ValueError("it does not hold attention as a product")
        m, work = pyo.ConcreteModel(), Work(instance)
        m.instance, m.work, t = instance, work, work.ticks
        m.scale = LARGEST * work.least_time
        m.R, m.S = pyo.RangeSet(0, len(instance.requests) - 1), pyo.Set(initialize=t.savable)
        m.x, m.k = pyo.Var(m.R, domain=pyo.Binary), pyo.Var(m.S, domain=pyo.Binary)
        m.u = pyo.Var(bounds=(0, LARGEST))
        m.p, m.h = pyo.Var(m.R, bounds=(0, LARGEST)), pyo.Var(m.S, bounds=(0, LARGEST))
        m.D, m.P, m.M = (pyo.Var(bounds=(0, LARGEST)) for _ in range(3))
        most = sum(work.beside.values())
        m.E = pyo.Var(bounds=(0, LARGEST * most))
        m.rate = pyo.Objective(expr=-sum(v * m.p[r] for r, v in enumerate(t.value) if v) + 0 * m.u)
        self._add_time(m, most)
        m.size = pyo.Constraint(expr=sum(m.p[r] for r in m.R) <= instance.machine.batch * m.u)
        m.some = pyo.Constraint(expr=sum(m.p[r] for r in m.R) >= m.u)
        blocks = sum(r.new_blocks * m.p[k] for k, r in enumerate(instance.requests) if r.new_blocks)
        m.blocks = pyo.Constraint(expr=blocks <= instance.machine.blocks * m.u)
        self._add_products(m)
        self._add_deadlines(m)
        return m

    def _add_time(self, m: pyo.ConcreteModel, most: int) -> None:
        """Add (2) to (5)."""
        work: Work = m.work
        d0, p0, e0 = work.fixed
        rest = sum(w * m.p[r] for r, w in work.alone.items() if w) + d0 * m.D + p0 * m.P + e0 * m.M + m.E

        def piece(m: pyo.ConcreteModel, at: int) -> object:
            alpha, beta = work.pieces[at]
            tokens = sum(n * m.p[k] for k, n in enumerate(work.tokens))
            return alpha * m.u + beta * tokens + rest <= m.scale

        m.piece = pyo.Constraint(range(len(work.pieces)), rule=piece)
        if work.ticks.swap is not None:
            s0, s1 = work.ticks.swap
            host = sum(h * m.p[k] for k, h in enumerate(work.host) if h)
            m.swap = pyo.Constraint(expr=s0 * m.u + s1 * host <= m.scale)
        decodes = set(work.decodes)
        m.phase = pyo.Constraint(m.R, rule=lambda m, r: m.p[r] <= (m.D if r in decodes else m.P))
        m.both = pyo.Constraint(expr=m.D + m.P - m.u <= m.M)
        if work.beside:
            read = sum(w * m.p[k] for k, w in work.beside.items())
            m.mixed = pyo.Constraint(expr=read - most * (m.u - m.M) <= m.E)

    def _add_products(self, m: pyo.ConcreteModel) -> None:
        """Tie p to u x, and h to u k."""
        for name, whole, part in (("x", m.R, m.p), ("k", m.S, m.h)):
            binary = getattr(m, name)

            def below(m: pyo.ConcreteModel, r: int, part: pyo.Var = part) -> object:
                return part[r] <= m.u

            def off(m: pyo.ConcreteModel, r: int, part: pyo.Var = part, binary: pyo.Var = binary) -> object:
                return part[r] <= LARGEST * binary[r]

            def on(m: pyo.ConcreteModel, r: int, part: pyo.Var = part, binary: pyo.Var = binary) -> object:
                return part[r] >= m.u - LARGEST * (1 - binary[r])

            for kind, rule in (("below", below), ("off", off), ("on", on)):
                m.add_component(f"{kind}_{name}", pyo.Constraint(whole, rule=rule))

    def _add_deadlines(self, m: pyo.ConcreteModel) -> None:
        """Add (6) for as many as can be kept."""
        work: Work = m.work
        ticks = work.ticks

        def deadline(m: pyo.ConcreteModel, i: int) -> object:
            slack = ticks.limit(i, selected=True)
            spare = max(0, ticks.all_time + ticks.t_avg - slack)
            allowed = slack * m.u - ticks.t_avg * (m.u - m.p[i]) + spare * (m.u - m.h[i])
            return m.scale <= allowed

        m.deadline = pyo.Constraint(m.S, rule=deadline)
        if ticks.savable:
            m.keep = pyo.Constraint(expr=sum(m.k[i] for i in m.S) >= work.kept)

    def warm_start(self, m: pyo.ConcreteModel, selection: Selection) -> None:
        """Set every variable to what a selection does, its rate rounded down.

        Raises
        ------
        ValueError
            If the selection is not valid, or selects nobody.
        """
        work: Work = m.work
        chosen = Chosen.of(work, selection)
        rate = m.scale // chosen.time
        for keys, binary, part, some in ((m.R, m.x, m.p, chosen.batch), (m.S, m.k, m.h, chosen.kept)):
            for r in keys:
                binary[r].set_value(int(r in some))
                part[r].set_value(rate if r in some else 0)
        m.u.set_value(rate)
        both = chosen.decodes > 0 and chosen.prefills > 0
        for variable, there in ((m.D, chosen.decodes > 0), (m.P, chosen.prefills > 0), (m.M, both)):
            variable.set_value(rate if there else 0)
        read = sum(w for k, w in work.beside.items() if k in chosen.batch)
        m.E.set_value(rate * read if both else 0)

    def meaning(self, m: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        m : ConcreteModel
        variable : str
        index : tuple of int
        """
        name = m.instance.requests[index[0]].id if index else ""
        words = {
            "x": f"1 if {name} is selected", "k": f"1 if (6) holds for {name}",
            "p": f"u if {name} is selected", "h": f"u if (6) holds for {name}",
            "u": f"{m.scale} / time of the batch in ticks",
            "D": "u if it holds decodes", "P": "u if it holds prefills", "M": "u if it holds both",
            "E": "what both take longer, ticks, times u",
        }  # fmt: skip
        return words[variable]

    def extract(self, m: pyo.ConcreteModel) -> Selection:
        """Read the selection from the variables."""
        chosen = (r.id for k, r in enumerate(m.instance.requests) if pyo.value(m.x[k]) > 0.5)
        return Selection(m.instance.name, tuple(chosen))
