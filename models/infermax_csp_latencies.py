"""What sums of latencies add to the model of `infermax_csp`: alternative objectives of section 3.3.

==========  ====================================================================================
``end[j]``  end of batch j, ticks; ``end[0]`` = 0
``y[i,j]``  ticks of batch j, and of the wait before it, if i is unfinished then, else 0
``x[i,j]``  the same for one phase of i: before its first token, or after it
==========  ====================================================================================

The last token of i comes at sum_j y_ij, the first one at sum_j x_ij, or sum_j x_ij passes between the
two.  So each mean of TTFT, TPOT, end-to-end and normalised latency, by weights or not, and each sum of
these and of the makespan, is linear: of what a second weighs before the first token and after it, the
smaller part goes to y, the rest to x.  All weights are 0 or more, so rows from below are enough.  The
paper has the product ``Acc_j g_ij - T_i``; y and x are that product step by step, each with a Big-M of
one batch and the wait before it alone.

A column of times may be larger than it has to be.  That does the objective no good: a longer batch is
the same as one that starts later, and ends when it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import Any, Protocol

import pyomo.environ as pyo

from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.data.instance import Instance, Metric

__all__ = ["Latencies", "Weights"]


@dataclass(frozen=True)
class Weights:
    """What a tick weighs, in whole units of which `scale` are one.

    Attributes
    ----------
    scale, makespan : int
    unfinished : list of int
        Of each request, until its last token.
    young, old : list of int
        Beyond that, before its first token and after it; one of the two is 0.
    """

    scale: int
    makespan: int
    unfinished: list[int]
    young: list[int]
    old: list[int]

    @classmethod
    def of(cls, instance: Instance) -> Weights:
        """Those of the objective of an instance."""
        makespan = instance.objective.weight(Metric.MAKESPAN)
        rates = instance.objective.rates(instance.types)
        scale = lcm(*(rate.denominator for rate in (makespan, *rates[0], *rates[1])))
        young, old = [0] * len(instance.requests), [0] * len(instance.requests)
        for kind, first, later in zip(instance.types, *rates, strict=True):
            for i in kind.members:
                young[i] = int(first * scale)
                old[i] = young[i] if kind.output_tokens == 1 else int(later * scale)
        both = [min(pair) for pair in zip(young, old, strict=True)]
        return cls(
            scale,
            int(makespan * scale),
            both,
            [first - common for first, common in zip(young, both, strict=True)],
            [later - common for later, common in zip(old, both, strict=True)],
        )


class _Builder(Protocol):
    """What is needed of the builder of the model."""

    instance: Instance
    model: pyo.ConcreteModel
    unit: int
    alpha: list[int]
    beta: list[int]
    d0: int
    d1: int
    p0: int
    p1: int

    def batch_time(self, j: int) -> Any:
        """Ticks that batch j takes."""
        ...

    def longest_batch(self, without: int | None = None) -> int:
        """Ticks that no batch exceeds, or none in which some request has no part."""
        ...

    @property
    def latest(self) -> int:
        """Ticks by which the last batch ends."""
        ...


class Latencies:
    """Columns, rows and objective of one model; every constraint is one short method."""

    def __init__(self, builder: _Builder):
        self.builder = builder
        self.model = builder.model
        self.arrivals = [int(r.arrival * builder.unit) for r in builder.instance.requests]
        self.weights = Weights.of(builder.instance)
        self.longest = builder.longest_batch()

    def add_variables(self) -> None:
        """Ends of batches, and what of them counts for each request."""
        model, weights = self.model, self.weights
        times = pyo.NonNegativeReals
        model.end = pyo.Var(range(model.horizon + 1), domain=times, bounds=(0, self.builder.latest))
        model.end[0].fix(0)

        def counted(some: list[int]) -> Any:
            pairs = [(i, j) for i in model.R for j in model.J if some[i]]
            return pyo.Var(pairs, domain=times, bounds=lambda _, i, j: (0, self.longest + self.most_wait(j)))

        model.y = counted(weights.unfinished)
        model.x = counted([first + later for first, later in zip(weights.young, weights.old, strict=True)])

    def most_wait(self, j: int) -> int:
        """Ticks that are waited before batch j at most: until the last arrival.

        A best wait (`with_best_waits`) ends when a request arrives, or leaves a later batch to begin then.
        The batches before take max_k alpha_k each.
        """
        return max(0, max(self.arrivals) - (j - 1) * max(self.builder.alpha))

    def batch_ends(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """end_j >= start_j + T_j with start_j >= end_j-1; where nobody arrives that is where it starts."""
        for j in model.J:
            start = model.end[j - 1] if self.builder.instance.offline else model.start[j]
            yield model.end[j] >= start + self.builder.batch_time(j)

    def unfinished(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """y_ij >= end_j - end_j-1 - L_ij f_i,j-1.

        L_ij: the longest batch without i, which is finished, and the longest wait before batch j.
        """
        longest = [self.builder.longest_batch(i) for i in model.R]
        for i, j in model.y:
            span = model.end[j] - model.end[j - 1]
            yield model.y[i, j] >= span - (longest[i] + self.most_wait(j)) * model.f[i, j - 1]

    def phases(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """x_ij >= end_j - end_j-1 - L_j out_ij with out_ij = h_i,j-1, or 1 - h_i,j-1 + f_i,j-1 after it.

        L_j: the longest batch, and the longest wait before batch j.
        """
        for i, j in model.x:
            span, most = model.end[j] - model.end[j - 1], self.longest + self.most_wait(j)
            out = model.h[i, j - 1] if self.weights.young[i] else 1 - self.old(i, j)
            yield model.x[i, j] >= span - most * out

    def old(self, i: int, j: int) -> Any:
        """1 if i is between its first and its last token before batch j."""
        return self.model.h[i, j - 1] - self.model.f[i, j - 1]

    def own_part(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """y_ij, x_ij >= what batch j takes for i alone, by every affine piece k.

        y_ij >= alpha_k (1 - f_i,j-1) + beta_k c_ij + d0 dg_ij + d1 r_ij + p0 (cz_ij - dg_ij) + p1 w_ij,
        x_ij >= alpha_k (1 - h_i,j-1) before the first token, after it
        x_ij >= alpha_k (h_i,j-1 - f_i,j-1) + (beta_k + d0) dg_ij + d1 r_ij.

        Who is unfinished before batch j makes a token in it or later, so it is used; who is finished has no
        part in it.
        """
        cost = self.builder
        for alpha, beta in zip(cost.alpha, cost.beta, strict=True):
            for i, j in model.y:
                dg = model.dg[i, j]
                work = beta * model.c[i, j] + cost.d0 * dg + cost.d1 * model.r[i, j]
                work += cost.p0 * (model.cz[i, j] - dg) + cost.p1 * model.w[i, j]
                yield model.y[i, j] >= alpha * (1 - model.f[i, j - 1]) + work
            for i, j in model.x:
                if self.weights.young[i]:
                    yield model.x[i, j] >= alpha * (1 - model.h[i, j - 1])
                else:
                    work = (beta + cost.d0) * model.dg[i, j] + cost.d1 * model.r[i, j]
                    yield model.x[i, j] >= alpha * self.old(i, j) + work

    def alone(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """sum_j y_ij >= a_i + lone latency of i, and so for the phases (`LoneLatency`)."""
        lone, weights = LoneLatency(self.builder.instance), self.weights
        scale = self.builder.unit // self.builder.instance.cost.ticks_per_second
        for i, request in enumerate(self.builder.instance.requests):
            known = lone.of(request)
            phase = scale * known.later if weights.old[i] else self.arrivals[i] + scale * known.first // 1
            if weights.unfinished[i]:
                total = pyo.quicksum(model.y[i, j] for j in model.J)
                yield total >= self.arrivals[i] + scale * known.total // 1
            if weights.young[i] or weights.old[i]:
                yield pyo.quicksum(model.x[i, j] for j in model.J) >= phase

    def objective(self) -> Any:
        """Makespan and latencies, each with its weight; a latency begins when its request arrives."""
        model, weights = self.model, self.weights
        total = weights.makespan * model.end[model.horizon]
        for i in model.R:
            in_phase = weights.young[i] + weights.old[i]
            for j in model.J:
                if weights.unfinished[i]:
                    total += weights.unfinished[i] * model.y[i, j]
                if in_phase:
                    total += in_phase * model.x[i, j]
            total -= (weights.unfinished[i] + weights.young[i]) * self.arrivals[i]
        return total

    def set_times(self, starts: list[int], ends: list[int]) -> None:
        """Set the columns to a schedule's times; what requests do is set before.

        Parameters
        ----------
        starts, ends : list of int, one for each batch
            Ticks.

        Raises
        ------
        ValueError
            If it waits longer than the model knows.
        """
        model = self.model
        for j, (start, before) in enumerate(zip(starts, [0, *ends], strict=False), 1):
            if start - before > self.most_wait(j):
                raise ValueError(f"batch {j} waits {start - before} ticks; the most is {self.most_wait(j)}")
        for j in model.J:
            model.end[j].set_value(ends[min(j, len(ends)) - 1])
        for i, j in model.y:
            model.y[i, j].set_value(self.span(j) * (1 - model.f[i, j - 1].value))
        for i, j in model.x:
            out = model.h[i, j - 1].value
            inside = 1 - out if self.weights.young[i] else out - model.f[i, j - 1].value
            model.x[i, j].set_value(self.span(j) * inside)

    def span(self, j: int) -> int:
        """Ticks of batch j, and of the wait before it, that are set."""
        return int(self.model.end[j].value - self.model.end[j - 1].value)
