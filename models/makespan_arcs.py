r"""The compact makespan model: requests are arcs over bins; clients and shares of decodes vanish.

Let t_k be the rounds before bin k, t_1 = 0, and t_{K+1} all rounds.  A request that starts in bin a and
whose client next starts another one in bin b, or that is its last (b = K+1), is the arc (a, b); it is
served in time if t_b - t_a >= N_i.  Arcs over the same bin need different clients, and J clients are
enough where no bin has more than J arcs over it (intervals are coloured greedily, bin by bin).  So eqs 8
to 18 become

- ``one[i]``: every request is one arc;
- ``over[k]``: at most J arcs (a, b) with a <= k < b;
- ``long[i,a,b]``: t_b - t_a >= N_i where i is on (a, b); summed over the later ends of arcs from a, as
  t rises: t_b - t_a >= N_i * (sum of z[i,a,c] over c <= b);
- ``capacity[k]``, ``level[k]``: eqs 6 and 7, the prefill of bin k being that of the arcs that start there.

``z[i,a,b]`` 1 if request i is the arc (a, b); ``t[k]`` rounds; ``y[k,l]`` level of bin k.
The makespan is the time of all levels and of t_{K+1} rounds, in ticks.
"""

from __future__ import annotations

from typing import ClassVar

import pyomo.environ as pyo

from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule, merged
from infermax_opt.makespan.replay.bins import replay_valid

__all__ = ["MakespanArcs", "colour"]


class MakespanArcs:
    """The compact model."""

    name: ClassVar[str] = "arcs"

    def entries(self, instance: MakespanInstance, bins: int) -> int:
        """About how many entries the matrix of the model has: most of them in `long` and `over`."""
        return len(instance.requests) * bins * (bins + 1) * (bins + 8) // 3

    def build(self, instance: MakespanInstance, bins: int) -> pyo.ConcreteModel:
        """Model of all schedules with at most so many bins."""
        m = pyo.ConcreteModel()
        m.instance, m.bins, m.ticks_per_second = instance, bins, instance.ticks_per_second
        requests, levels = instance.requests, instance.level_ticks
        m.I = pyo.RangeSet(len(requests))
        m.K = pyo.RangeSet(bins)
        m.L = pyo.RangeSet(len(levels))
        m.A = pyo.Set(initialize=[(a, b) for a in m.K for b in range(a + 1, bins + 2)], dimen=2)
        m.z = pyo.Var(m.I, m.A, domain=pyo.Binary)
        m.y = pyo.Var(m.K, m.L, domain=pyo.Binary)
        # No decode stage need be longer than the longest request.
        most = bins * max(request.output_tokens for request in requests)
        m.t = pyo.Var(pyo.RangeSet(bins + 1), domain=pyo.NonNegativeReals, bounds=(0, most))
        m.t[1].fix(0)
        prefill = sum(levels[level - 1][1] * m.y[k, level] for k in m.K for level in m.L)
        m.makespan = pyo.Objective(expr=prefill + instance.round_ticks * m.t[bins + 1])
        m.one = pyo.Constraint(m.I, rule=lambda m, i: sum(m.z[i, arc] for arc in m.A) == 1)
        m.over = pyo.Constraint(
            m.K,
            rule=lambda m, k: (
                sum(m.z[i, a, b] for a, b in m.A if a <= k < b for i in m.I) <= instance.clients
            ),
        )
        m.forward = pyo.Constraint(m.K, rule=lambda m, k: m.t[k + 1] - m.t[k] >= 0)

        def long(m: pyo.ConcreteModel, i: int, a: int, b: int) -> object:
            ended = sum(m.z[i, a, c] for c in range(a + 1, b + 1))
            return m.t[b] - m.t[a] >= requests[i - 1].output_tokens * ended

        m.long = pyo.Constraint(m.I, m.A, rule=long)

        def capacity(m: pyo.ConcreteModel, k: int) -> object:
            tokens = sum(
                requests[i - 1].input_tokens * m.z[i, k, b] for i in m.I for b in range(k + 1, bins + 2)
            )
            return tokens <= sum(levels[level - 1][0] * m.y[k, level] for level in m.L)

        m.capacity = pyo.Constraint(m.K, rule=capacity)
        m.level = pyo.Constraint(m.K, rule=lambda m, k: sum(m.y[k, level] for level in m.L) <= 1)
        return m

    def warm_start(self, m: pyo.ConcreteModel, schedule: MakespanSchedule) -> None:
        """Set every variable to what a schedule does.

        Raises
        ------
        ValueError
            If the schedule is not valid, or has too many bins.
        """
        instance: MakespanInstance = m.instance
        found = replay_valid(instance, schedule, m.bins)
        for block in (m.z, m.y):
            for column in block.values():
                column.set_value(0)
        ticks = [level for _, level in instance.level_ticks]
        now = 0
        for k in m.K:
            m.t[k].set_value(now)
            if k <= len(schedule.bins):
                now += schedule.bins[k - 1].rounds
                m.y[k, ticks.index(found.prefill_ticks[k - 1]) + 1].set_value(1)
        m.t[m.bins + 1].set_value(now)
        following: dict[int, int] = {}
        for i in sorted(range(len(instance.requests)), key=lambda i: -found.first_bin[i]):
            start, client = found.first_bin[i] + 1, found.client[i]
            m.z[i + 1, start, following.get(client, m.bins + 1)].set_value(1)
            following[client] = start

    def meaning(self, m: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        m : ConcreteModel
        variable : str
        index : tuple of int
        """
        if variable == "t":
            return f"rounds before bin {index[0]}" if index[0] <= m.bins else "rounds in all"
        if variable == "y":
            return f"1 if the prefill of bin {index[0]} is at level {index[1]}"
        request, start, end = m.instance.requests[index[0] - 1].id, *index[1:]
        then = f"its client next starts another one in bin {end}" if end <= m.bins else "is its client's last"
        return f"1 if {request} starts in bin {start} and {then}"

    def extract(self, m: pyo.ConcreteModel) -> MakespanSchedule:
        """Read the schedule from the variables; clients are given out bin by bin."""
        instance: MakespanInstance = m.instance
        arcs = [(a, b, i - 1) for i in m.I for a, b in m.A if pyo.value(m.z[i, a, b]) > 0.5]
        clients = colour(arcs, instance.clients)
        bins = []
        for k in m.K:
            started = {instance.requests[i].id: clients[i] for a, _, i in arcs if a == k}
            rounds = round(pyo.value(m.t[k + 1])) - round(pyo.value(m.t[k]))
            bins.append(Bin(started, rounds))
        return MakespanSchedule(instance.name, merged(bins))


def colour(arcs: list[tuple[int, int, int]], clients: int) -> dict[int, int]:
    """Client, from 1, of the request of each arc (start, end, request); arcs of a client are disjoint.

    Raises
    ------
    ValueError
        If more than `clients` arcs are over a bin.
    """
    free = list(range(clients, 0, -1))
    busy: list[tuple[int, int]] = []
    found = {}
    for start, end, request in sorted(arcs):
        free += [client for until, client in busy if until <= start]
        busy = [(until, client) for until, client in busy if until > start]
        if not free:
            raise ValueError(f"more than {clients} requests are under way in bin {start}")
        found[request] = free.pop()
        busy.append((end, found[request]))
    return found
