r"""The full makespan model, eqs 1-25 of Pang et al., equation by equation.

Requests i, clients j, bins k (a prefill stage and a decode stage each), levels l.  Times are in ticks.

===========  =========================================================================================
``tmax``     makespan
``tsp[k]``   start of prefill stage k, ``np[k]`` its length
``tsd[k]``   start of decode stage k, ``nd[k]`` its length
``p[i,j,k]`` 1 if request i is prefilled on client j in stage k
``d[i,j,k]`` 1 if client j is assigned to request i in decode stage k
``w[i,j,k]`` tokens of request i that are decoded there: N_i times the paper's share
``x[i,j]``   1 if request i is on client j
``y[k,l]``   1 if prefill stage k is at level l
===========  =========================================================================================

How the text is read where it leaves something open:

- T^d of eq 8 is the time of a round, in which each client generates a token: "T^d |J|" in section III-B,
  overhead + token * clients in section V-A.
- Nothing in eqs 1-25 ties w to d, so that decodes could be spread over stages in which the client serves
  another request.  By the definition of d a request decodes only where it is assigned: w <= d is added
  (`link`).
- Eq 7 puts every stage at a level, so that a bin that prefills nothing costs a stage.  Here it may be at
  none (<=): then the number of bins is a limit, and a bin without a prefill is part of the one before.
- Eq 11 holds for k1 > k2: no decode stage before the prefill.  Its M is 1, that of eq 10 is the number of
  bins: no more is needed.
- Eq 17 is meant for every request and client, summed over the stages.
- Eq 13 never binds; it is there to be complete.

Whole rounds need no integer variables: for given p, d, x, y the least lengths of the decode stages are
longest paths of output tokens.
"""

from __future__ import annotations

from typing import ClassVar

import pyomo.environ as pyo

from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule, merged
from infermax_opt.makespan.replay.bins import replay_valid

__all__ = ["MakespanModel"]

#: What the columns are; a request i is named.
MEANINGS = {
    "tmax": "makespan, ticks",
    "tsp": "start of prefill stage {0}, ticks",
    "np": "length of prefill stage {0}, ticks",
    "tsd": "start of decode stage {0}, ticks",
    "nd": "length of decode stage {0}, ticks",
    "p": "1 if {0} is prefilled on client {1} in stage {2}",
    "d": "1 if client {1} is assigned to {0} in decode stage {2}",
    "w": "tokens of {0} that client {1} decodes in stage {2}",
    "x": "1 if {0} is on client {1}",
    "y": "1 if prefill stage {0} is at level {1}",
}


class MakespanModel:
    """The full model."""

    name: ClassVar[str] = "mip"

    def entries(self, instance: MakespanInstance, bins: int) -> int:
        """About how many entries the matrix of the model has: most of them in `eq10` and `eq11`."""
        return len(instance.requests) * instance.clients * (bins * bins * (bins + 9) // 6 + 12 * bins)

    def build(self, instance: MakespanInstance, bins: int) -> pyo.ConcreteModel:
        """Model of all schedules with at most so many bins."""
        m = pyo.ConcreteModel()
        m.instance, m.bins, m.ticks_per_second = instance, bins, instance.ticks_per_second
        m.I = pyo.RangeSet(len(instance.requests))
        m.J = pyo.RangeSet(instance.clients)
        m.K = pyo.RangeSet(bins)
        m.L = pyo.RangeSet(len(instance.level_ticks))
        # Eqs 24, 25.  No decode stage need be longer than the longest request.
        longest = max(request.output_tokens for request in instance.requests)
        most = bins * (instance.level_ticks[-1][1] + instance.round_ticks * longest)
        times = {"domain": pyo.NonNegativeReals, "bounds": (0, most)}
        m.tmax = pyo.Var(**times)
        m.tsp, m.np = pyo.Var(m.K, **times), pyo.Var(m.K, **times)
        m.tsd, m.nd = pyo.Var(m.K, **times), pyo.Var(m.K, **times)
        m.x = pyo.Var(m.I, m.J, domain=pyo.Binary)  # eq 19
        m.y = pyo.Var(m.K, m.L, domain=pyo.Binary)  # eq 20
        m.p = pyo.Var(m.I, m.J, m.K, domain=pyo.Binary)  # eq 21
        m.d = pyo.Var(m.I, m.J, m.K, domain=pyo.Binary)  # eq 22
        tokens = [request.output_tokens for request in instance.requests]
        m.w = pyo.Var(m.I, m.J, m.K, bounds=lambda m, i, j, k: (0, tokens[i - 1]))  # eq 23
        m.makespan = pyo.Objective(expr=m.tmax)  # eq 1
        self._times(m)
        self._prefill(m)
        self._decode(m)
        self._assignment(m)
        return m

    def _times(self, m: pyo.ConcreteModel) -> None:
        """Eqs 2-4: stages follow each other; the last one ends no later than the makespan."""
        m.eq2 = pyo.Constraint(m.K, rule=lambda m, k: m.tmax >= m.tsd[k] + m.nd[k])

        def after_decode(m: pyo.ConcreteModel, k: int) -> object:
            return pyo.Constraint.Skip if k == 1 else m.tsp[k] - (m.tsd[k - 1] + m.nd[k - 1]) >= 0

        m.eq3 = pyo.Constraint(m.K, rule=after_decode)
        m.eq4 = pyo.Constraint(m.K, rule=lambda m, k: m.tsd[k] - (m.tsp[k] + m.np[k]) >= 0)

    def _prefill(self, m: pyo.ConcreteModel) -> None:
        """Eqs 5-7: a stage takes the time of its level, which holds its input tokens."""
        requests, levels = m.instance.requests, m.instance.level_ticks

        def length(m: pyo.ConcreteModel, k: int) -> object:
            return m.np[k] >= sum(levels[level - 1][1] * m.y[k, level] for level in m.L)

        def capacity(m: pyo.ConcreteModel, k: int) -> object:
            tokens = sum(requests[i - 1].input_tokens * m.p[i, j, k] for i in m.I for j in m.J)
            return tokens <= sum(levels[level - 1][0] * m.y[k, level] for level in m.L)

        m.eq5 = pyo.Constraint(m.K, rule=length)
        m.eq6 = pyo.Constraint(m.K, rule=capacity)
        m.eq7 = pyo.Constraint(m.K, rule=lambda m, k: sum(m.y[k, level] for level in m.L) <= 1)

    def _decode(self, m: pyo.ConcreteModel) -> None:
        """Eqs 8-15: who decodes where, and for how long."""
        requests, unit = m.instance.requests, m.instance.round_ticks

        def length(m: pyo.ConcreteModel, j: int, k: int) -> object:
            return m.nd[k] >= unit * sum(m.w[i, j, k] for i in m.I)

        def tokens(i: int) -> int:
            return int(requests[i - 1].output_tokens)

        m.eq8 = pyo.Constraint(m.J, m.K, rule=length)
        m.eq9 = pyo.Constraint(m.I, m.J, m.K, rule=lambda m, i, j, k: m.d[i, j, k] - m.p[i, j, k] >= 0)

        def no_gap(m: pyo.ConcreteModel, i: int, j: int, k1: int, k2: int) -> object:
            if k1 >= k2:
                return pyo.Constraint.Skip
            between = sum(m.d[i, j, k] for k in range(k1, k2 + 1))
            return m.bins * (2 - m.d[i, j, k1] - m.d[i, j, k2]) + between >= k2 - k1 + 1

        def not_before(m: pyo.ConcreteModel, i: int, j: int, k1: int, k2: int) -> object:
            return pyo.Constraint.Skip if k1 <= k2 else (m.p[i, j, k1] - 1) + m.d[i, j, k2] <= 0

        m.eq10 = pyo.Constraint(m.I, m.J, m.K, m.K, rule=no_gap)
        m.eq11 = pyo.Constraint(m.I, m.J, m.K, m.K, rule=not_before)
        m.eq12 = pyo.Constraint(m.J, m.K, rule=lambda m, j, k: sum(m.d[i, j, k] for i in m.I) <= 1)
        m.eq13 = pyo.Constraint(m.I, m.J, rule=lambda m, i, j: sum(m.d[i, j, k] for k in m.K) <= m.bins)
        m.eq14 = pyo.Constraint(
            m.I, m.J, rule=lambda m, i, j: sum(m.w[i, j, k] for k in m.K) == tokens(i) * m.x[i, j]
        )
        m.eq15 = pyo.Constraint(
            m.I, rule=lambda m, i: sum(m.w[i, j, k] for j in m.J for k in m.K) == tokens(i)
        )
        m.link = pyo.Constraint(
            m.I, m.J, m.K, rule=lambda m, i, j, k: m.w[i, j, k] <= tokens(i) * m.d[i, j, k]
        )

    def _assignment(self, m: pyo.ConcreteModel) -> None:
        """Eqs 16-18: one prefill at a time on a client, one prefill and one client for a request."""
        m.eq16 = pyo.Constraint(m.J, m.K, rule=lambda m, j, k: sum(m.p[i, j, k] for i in m.I) <= 1)
        m.eq17 = pyo.Constraint(m.I, m.J, rule=lambda m, i, j: sum(m.p[i, j, k] for k in m.K) == m.x[i, j])
        m.eq18 = pyo.Constraint(m.I, rule=lambda m, i: sum(m.x[i, j] for j in m.J) == 1)

    def warm_start(self, m: pyo.ConcreteModel, schedule: MakespanSchedule) -> None:
        """Set every variable to what a schedule does.

        Raises
        ------
        ValueError
            If the schedule is not valid, or has too many bins.
        """
        instance: MakespanInstance = m.instance
        found = replay_valid(instance, schedule, m.bins)
        for block in (m.x, m.y, m.p, m.d, m.w, m.np, m.nd):
            for column in block.values():
                column.set_value(0)
        ticks = [level for _, level in instance.level_ticks]
        now = 0
        for k in m.K:
            m.tsp[k].set_value(now)
            if k <= len(schedule.bins):
                m.np[k].set_value(found.prefill_ticks[k - 1])
                m.nd[k].set_value(found.decode_ticks[k - 1])
                m.y[k, ticks.index(found.prefill_ticks[k - 1]) + 1].set_value(1)
            now += m.np[k].value
            m.tsd[k].set_value(now)
            now += m.nd[k].value
        m.tmax.set_value(now)
        for i, request in enumerate(instance.requests):
            j, first, last = found.client[i], found.first_bin[i] + 1, found.last_bin[i] + 1
            m.x[i + 1, j].set_value(1)
            m.p[i + 1, j, first].set_value(1)
            left = request.output_tokens
            for k in range(first, last + 1):
                m.d[i + 1, j, k].set_value(1)
                made = schedule.bins[k - 1].tokens(request.id, left)
                left -= made
                m.w[i + 1, j, k].set_value(made)

    def meaning(self, m: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        m : ConcreteModel
        variable : str
        index : tuple of int
        """
        of_request = variable in ("p", "d", "w", "x")
        first = (m.instance.requests[index[0] - 1].id,) if of_request else index[:1]
        return MEANINGS[variable].format(*first, *index[1:])

    def extract(self, m: pyo.ConcreteModel) -> MakespanSchedule:
        """Read the schedule from the variables; requests decode one token a round.

        In the model a request may rest between two rounds of a stage, never to any gain.
        """
        instance: MakespanInstance = m.instance
        bins = []
        for k in m.K:
            started = {
                instance.requests[i - 1].id: j for i in m.I for j in m.J if pyo.value(m.p[i, j, k]) > 0.5
            }
            rounds = round(pyo.value(m.nd[k]) / instance.round_ticks)
            bins.append(Bin(started, rounds))
        return MakespanSchedule(instance.name, merged(bins))
