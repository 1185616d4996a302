"""Optimal scheduling as constraint satisfaction: equations (1) to (6) of InferMax, section 3.3.

Requests i, batches j = 1..J; j = 0 is the state before the first batch.

==========  ====================================================================================
``I[i,j]``  input size: tokens to have cached for the next token, I_i + tokens generated
``m[i,j]``  tokens cached after batch j (a finishing request's included)
``c[i,j]``  tokens processed in batch j
``g[i,j]``  1 if i generates a token in batch j
``e[i,j]``  1 if i is evicted at the start of batch j
``d[i,j]``  1 if i is in decode before batch j
``cz[i,j]`` 1 if c[i,j] > 0: i is in batch j
``mz[i,j]`` 1 if m[i,j] > 0: i is running
``dg[i,j]`` 1 if i decodes in batch j: d and g
``h[i,j]``  1 if i has its first token after batch j
``f[i,j]``  1 if i is finished after batch j
``t[i,k,j]`` 1 if i has k tokens or more after batch j (1 < k < O_i; only for the packing cuts)
``r[i,j]``  cached tokens that i's decode in batch j reads
``q[i,j]``  cached tokens that this decode would read if a refill did not stand in for it
``w[i,j]``  prefill attention work
``v[i,k,j]`` 1 if m[i,j] >= k (only for exact attention of chunks with arrivals or latencies)
``u[j]``    1 if batch j is used; ``ad[j]``, ``ap[j]``: it decodes, it prefills
``nu[j]``   non-attention time of batch j, ticks; ``start[j]``: its start, ticks
``end[j]``  and two tables of times for latencies: see `infermax_csp_latencies`
==========  ====================================================================================

Where this departs from the paper, and why
------------------------------------------
* The paper lets I grow when a decoding request is evicted (its eq. 2, linearised with Big-M in
  eq. 6).  Growing it by one with every token asks for the same refills, and eq. 2 becomes linear.
* Decode is "one token short of the next one, and not of the first": a refill whose last chunk is a
  single token ends with the decode step it is.  The paper has ``d = [m >= I]``.
* A finished request holds its cache in its last batch and nothing after it.
* Every Big-M is the smallest that its own constraint admits, never one large constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import lcm
from typing import Any, ClassVar

import pyomo.environ as pyo
from infermax_opt.models.infermax_csp_latencies import Latencies
from infermax_opt.models.infermax_meanings import column_meaning

from infermax_opt.core.result import Scope
from infermax_opt.infermax.bounds.horizon import PackingRow, least_batches, packing_rows
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.formulation import Move, trajectory
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.replay.waits import with_best_waits

__all__ = ["CSP"]

#: Most output tokens for which the packing cuts know which token a batch makes.
MAX_UNARY = 16
#: Longest chunk whose square is modelled: it takes one tangent per token, request and batch.
MAX_TANGENTS = 512
#: Most tokens that a request caches where there is a column for each of them, request and batch.
MAX_LEVELS = 64


def _work_by_levels(instance: Instance) -> bool:
    """Whether the work of a chunk depends on what is cached, and it matters when it is done.

    Elsewhere all work of a prefill may be charged when it ends: c (2m + c) telescopes to the square of the
    tokens cached then, and the sum of all batch times stays as it is.
    """
    totals = instance.offline and instance.objective.is_makespan
    return instance.cost.exact_attention and instance.policy.chunked_prefill and not totals


def _charged_at_end(instance: Instance) -> bool:
    """Whether the model charges work when a prefill ends; without chunks that is when it is done."""
    exact = instance.cost.exact_attention and not _work_by_levels(instance)
    return exact or not instance.policy.chunked_prefill


@dataclass(frozen=True)
class CSP:
    """The paper's model, per request and batch.

    Parameters
    ----------
    cuts : bool
        Add the packing cuts, without which the bound is weak.
    symmetry : bool
        Order identical requests by their first tokens.
    """

    cuts: bool = True
    symmetry: bool = True
    name: ClassVar[str] = "csp"

    def unsupported(self, instance: Instance) -> str | None:
        """Why `instance` cannot be modelled; None if it can."""
        if instance.required is not instance:
            return "it serves every request, and some may be left unfinished here"
        if instance.objective.beyond_sums:
            return f"it minimises the makespan and sums of latencies, not {instance.objective}"
        if not instance.policy.chunked_prefill:
            return None
        if instance.cost.exact_attention:
            peak = max(_Bounds.of(instance).peak)
            if _work_by_levels(instance) and peak > MAX_LEVELS:
                why = "exact attention of chunks with arrivals or latencies takes a column a cached token"
                return f"{why}, and {peak} are more than {MAX_LEVELS}"
        elif max(_Bounds.of(instance).chunk) > MAX_TANGENTS:
            return f"squares of chunks above {MAX_TANGENTS} tokens need too many tangents"
        return None

    def columns(self, instance: Instance, horizon: int) -> int:
        """Estimate the number of columns."""
        each = (13 if instance.objective.is_makespan else 15) * len(instance.requests)
        if _work_by_levels(instance):
            each += sum(request.peak_kv for request in instance.requests)
        return each * horizon

    def scope(self, instance: Instance, horizon: int, proved: int | None) -> Scope:
        """Exact where the horizon is long enough for an optimal schedule.

        Parameters
        ----------
        instance : Instance
        horizon : int
            Batches of the model.
        proved : int or None
            Batches that an optimal schedule has at most.
        """
        return Scope.EXACT if proved is not None and horizon >= proved else Scope.RESTRICTION

    def build(self, instance: Instance, horizon: int) -> pyo.ConcreteModel:
        """Model of all schedules with at most `horizon` batches."""
        return _CspBuilder(instance, horizon, self).build()

    def warm_start(self, model: pyo.ConcreteModel, schedule: Schedule) -> None:
        """Set every variable to what `schedule` does; identical requests may swap names.

        Where all requests are there from the start, waits are left out.
        """
        instance: Instance = model.instance
        if instance.offline:
            schedule = with_best_waits(instance, schedule)
        replayed = replay_plain(instance, schedule)
        if not replayed.valid:
            raise ValueError(f"the schedule is not valid: {replayed.violations[0]}")
        moves = trajectory(instance, schedule)
        if len(moves) > model.horizon:
            raise ValueError(f"{len(moves)} batches; the horizon is {model.horizon}")
        if model.unit != replayed.ticks_per_second:
            raise ValueError("a start time is no multiple of the model's tick")
        setter = _Setter(model)
        for i, k in enumerate(self.names(instance, replayed.first_batch)):
            setter.request(i, [batch[k] for batch in moves])
        setter.batches(moves, [*replayed.starts, replayed.ends[-1]])
        if model.latencies is not None:
            model.latencies.set_times(replayed.starts, replayed.ends)

    def names(self, instance: Instance, first: list[int]) -> list[int]:
        """Which request of a schedule each one of the model stands for; `first`: batches of first tokens."""
        source = list(range(len(instance.requests)))
        if self.symmetry:
            for kind in instance.types:
                order = sorted(kind.members, key=lambda i: first[i])
                for member, i in zip(kind.members, order, strict=True):
                    source[member] = i
        return source

    def meaning(self, model: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        model : ConcreteModel
        variable : str
        index : tuple of int
        """
        text: str = column_meaning(model.instance, variable, index)
        return text

    def extract(self, model: pyo.ConcreteModel) -> Schedule:
        """Read what the batches do; they wait as `with_best_waits` says."""
        instance: Instance = model.instance
        batches = []
        for j in model.J:
            tokens = {}
            evict = []
            for i, request in enumerate(instance.requests):
                count = round(model.c[i, j].value)
                if count:
                    tokens[request.id] = count
                if round(model.e[i, j].value):
                    evict.append(request.id)
            if tokens or evict:
                batches.append(Batch(tokens, tuple(evict)))
        return with_best_waits(instance, Schedule(instance.name, tuple(batches)))


@dataclass(frozen=True)
class _Bounds:
    """Per request: I, O, the most it caches, and the most it processes in one batch."""

    size: list[int]
    outputs: list[int]
    peak: list[int]
    chunk: list[int]

    @classmethod
    def of(cls, instance: Instance) -> _Bounds:
        requests = instance.requests
        budget = instance.system.prefill_budget
        longest = [r.peak_kv if instance.policy.preemption else r.input_tokens for r in requests]
        return cls(
            [r.input_tokens for r in requests],
            [r.output_tokens for r in requests],
            [r.peak_kv for r in requests],
            [min(budget, tokens) for tokens in longest],
        )


class _CspBuilder:
    """Builds one model; every constraint of it is one short method."""

    def __init__(self, instance: Instance, horizon: int, options: CSP):
        self.instance = instance
        self.options = options
        self.bounds = _Bounds.of(instance)
        arrivals = {r.arrival.denominator for r in instance.requests}
        self.unit = lcm(instance.cost.ticks_per_second, *arrivals)
        scale = self.unit // instance.cost.ticks_per_second
        ticks = instance.cost.ticks
        self.alpha = [scale * value for value in ticks.alpha]
        self.beta = [scale * value for value in ticks.beta]
        self.d0, self.d1, self.p0, self.p1 = (scale * value for value in ticks[2:])
        policy = instance.policy
        self.limited = (instance.system.max_running or len(instance.requests)) < len(instance.requests)
        self.counts_running = self.limited or not policy.chunked_prefill
        #: Whether work is charged when a prefill ends: c(2m+c) telescopes to the square of the
        #: tokens cached then, and without chunks there is no difference.
        self.at_end = _charged_at_end(instance)
        self.by_levels = _work_by_levels(instance)
        self.short_refills = self.at_end and policy.chunked_prefill and policy.preemption
        self.model = pyo.ConcreteModel(name=f"csp:{instance.name}")
        self.model.instance = instance
        self.model.horizon = horizon
        self.model.R = range(len(instance.requests))
        self.model.unit = self.model.ticks_per_second = self.unit
        self.model.latencies = self.latencies = None
        if not instance.objective.is_makespan:
            self.model.latencies = self.latencies = Latencies(self)
            self.model.ticks_per_second *= self.latencies.weights.scale

    def build(self) -> pyo.ConcreteModel:
        self.add_variables()
        self.add_constraints()
        self.add_objective()
        return self.model

    def add_variables(self) -> None:
        model, peak, chunk = self.model, self.bounds.peak, self.bounds.chunk
        model.J = range(1, model.horizon + 1)
        before = range(model.horizon + 1)

        def table(batches: range, domain: Any, bounds: Callable[[int], tuple[int, int]]) -> Any:
            return pyo.Var(model.R, batches, domain=domain, bounds=lambda _, i, j: bounds(i))

        def flags(batches: range) -> Any:
            return pyo.Var(model.R, batches, domain=pyo.Binary)

        sizes = self.bounds.size
        model.I = table(before, pyo.NonNegativeIntegers, lambda i: (sizes[i], peak[i] + 1))
        model.m = table(before, pyo.NonNegativeIntegers, lambda i: (0, peak[i]))
        model.c = table(model.J, pyo.NonNegativeIntegers, lambda i: (0, chunk[i]))
        model.g, model.e, model.d = flags(model.J), flags(model.J), flags(model.J)
        model.cz, model.dg = flags(model.J), flags(model.J)
        model.h, model.f = flags(before), flags(before)
        model.r = table(model.J, pyo.NonNegativeReals, lambda i: (0, peak[i] - 1))
        model.q = table(model.J, pyo.NonNegativeReals, lambda i: (0, peak[i] - 1))
        model.w = table(model.J, pyo.NonNegativeReals, lambda i: (0, peak[i] ** 2))
        model.u, model.ad, model.ap = (pyo.Var(model.J, domain=pyo.Binary) for _ in range(3))
        if self.options.cuts:
            self.add_token_numbers()
        if self.counts_running:
            model.mz = flags(before)
        if self.instance.system.block_size > 1:
            model.blocks = table(model.J, pyo.NonNegativeIntegers, lambda i: (0, self.held(peak[i])))
        if self.by_levels:
            self.add_levels()
        if self.short_refills:
            model.fill, model.sh = flags(before), flags(model.J)
        self.add_times()
        for i in model.R:
            model.I[i, 0].fix(sizes[i])
            for state in ("m", "h", "f", "mz", "fill"):
                if model.component(state) is not None:
                    model.component(state)[i, 0].fix(0)

    def add_token_numbers(self) -> None:
        """``t[i, k, j]``: whether request i has at least k tokens after batch j."""
        model = self.model
        longest = [outputs if outputs <= MAX_UNARY else 2 for outputs in self.bounds.outputs]
        batches = range(model.horizon + 1)
        steps = [(i, k, j) for i in model.R for k in range(2, longest[i]) for j in batches]
        model.t = pyo.Var(steps, domain=pyo.Binary)
        for i, k, j in model.t:
            if j == 0:
                model.t[i, k, 0].fix(0)

    def add_levels(self) -> None:
        """``v[i, k, j]``: whether request i caches at least k tokens after batch j."""
        model = self.model
        levels = [(i, k) for i in model.R for k in range(1, self.bounds.peak[i] + 1)]
        model.v = pyo.Var([(*level, j) for level in levels for j in (0, *model.J)], domain=pyo.Binary)
        for i, k in levels:
            model.v[i, k, 0].fix(0)

    def add_times(self) -> None:
        """Times of batches, where their sum is not linear or somebody arrives."""
        model = self.model
        if len(self.alpha) > 1:
            model.nu = pyo.Var(model.J, domain=pyo.NonNegativeReals, bounds=(0, self.longest_batch()))
        if not self.instance.offline:
            model.start = pyo.Var(
                range(1, model.horizon + 2), domain=pyo.NonNegativeReals, bounds=(0, self.latest)
            )
        if self.latencies is not None:
            self.latencies.add_variables()

    def add_constraints(self) -> None:
        """Table of contents: the paper's equations first, then policy, cost and cuts."""
        self._each("termination", self.termination)
        self._each("input_size", self.input_size)
        self._each("progress", self.progress)
        self._each("memory", self.memory)
        self._each("generation", self.generation)
        self._each("decode_phase", self.decode_phase)
        self._each("control_of_c", self.control_of_c)
        self._each("batch_limits", self.batch_limits)
        self._each("running", self.running)
        self._each("used_batches", self.used_batches)
        self._each("policy", self.policy)
        self._each("whole_prefills", self.whole_prefills)
        self._each("processed", self.processed)
        self._each("phases", self.phases)
        self._each("decode_reads", self.decode_reads)
        self._each("all_reads", self.all_reads)
        self._each("held_at_tokens", self.held_at_tokens)
        self._each("prefill_at_end", self.prefill_at_end)
        self._each("prefill_squares", self.prefill_squares)
        self._each("prefill_levels", self.prefill_levels)
        self._each("short_refill", self.short_refill)
        self._each("roofline", self.roofline)
        self._each("arrivals", self.arrivals)
        if self.latencies is not None:
            self._each("batch_ends", self.latencies.batch_ends)
            self._each("unfinished", self.latencies.unfinished)
            self._each("latency_phases", self.latencies.phases)
        if self.options.cuts:
            self._each("token_numbers", self.token_numbers)
            self._each("packing", self.packing)
            self._each("least_number", self.least_number)
            if self.latencies is not None:
                self._each("own_part", self.latencies.own_part)
                self._each("alone", self.latencies.alone)
        if self.options.symmetry:
            self._each("same_requests", self.same_requests)

    def _each(self, name: str, rows: Callable[[pyo.ConcreteModel], Iterator[Any]]) -> None:
        found = list(rows(self.model))
        if found:
            constraints = pyo.ConstraintList()
            self.model.add_component(name, constraints)
            for row in found:
                # A row of fixed variables and empty sums reduces to True.
                if row is not True:
                    constraints.add(row)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return ((i, j) for i in self.model.R for j in self.model.J)

    def held(self, cached: int) -> int:
        """KV tokens occupied, in whole blocks."""
        return self.instance.system.held(cached)

    # --- The paper's equations ---------------------------------------------------------------

    def termination(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Eq. (1): sum_j g_ij = O_i."""
        for i in model.R:
            yield pyo.quicksum(model.g[i, j] for j in model.J) == self.bounds.outputs[i]

    def input_size(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Eq. (2), non-decreasing input size: I_ij = I_i,j-1 + g_ij."""
        for i, j in self._pairs():
            yield model.I[i, j] == model.I[i, j - 1] + model.g[i, j]

    def progress(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """h_ij = [n >= 1] and f_ij = [n = O] with n = I_ij - I_i.

        h <= n <= O h;   O f <= n <= O - 1 + f;   h and f never fall.
        """
        for i, j in self._pairs():
            outputs, n = self.bounds.outputs[i], model.I[i, j] - self.bounds.size[i]
            yield model.h[i, j] <= n
            yield n <= outputs * model.h[i, j]
            yield outputs * model.f[i, j] <= n
            yield n <= outputs - 1 + model.f[i, j]
            yield model.h[i, j - 1] <= model.h[i, j]
            yield model.f[i, j - 1] <= model.f[i, j]

    def memory(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Eq. (3): m_ij = 0 if e_ij = 1 or i was finished, else m_i,j-1 + c_ij.

        With peak = I_i + O_i - 1 and out = e_ij + f_i,j-1:
        m_i,j-1 + c_ij - peak * out <= m_ij <= m_i,j-1 + c_ij   and   m_ij <= peak * (1 - out).
        Prefill and decode do not overlap, as m never passes the input size: m_ij <= I_ij - 1.
        """
        for i, j in self._pairs():
            peak, out = self.bounds.peak[i], model.e[i, j] + model.f[i, j - 1]
            moved = model.m[i, j - 1] + model.c[i, j]
            yield model.m[i, j] <= moved
            yield model.m[i, j] >= moved - peak * out
            yield model.m[i, j] <= peak * (1 - out)
            yield model.m[i, j] <= model.I[i, j] - 1

    def generation(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """g_ij = 1 exactly if m reaches the input size: m_ij = I_i,j-1.

        m_ij >= I_i,j-1 - peak (1 - g_ij) - f_i,j-1; the other half is the last row of eq. (3).
        """
        for i, j in self._pairs():
            missing = self.bounds.peak[i] * (1 - model.g[i, j]) + model.f[i, j - 1]
            yield model.m[i, j] >= model.I[i, j - 1] - missing
            yield model.g[i, j] <= model.cz[i, j]

    def decode_phase(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """d_ij = 1 exactly if i is unfinished, has a token and misses one: m_i,j-1 = I_i,j-1 - 1.

        With s = I_i,j-1 - 1 - m_i,j-1 >= 0:   h_i,j-1 - f_i,j-1 - d_ij <= s <= peak (1 - d_ij).
        """
        for i, j in self._pairs():
            short = model.I[i, j - 1] - 1 - model.m[i, j - 1]
            yield short <= self.bounds.peak[i] * (1 - model.d[i, j])
            yield short >= model.h[i, j - 1] - model.f[i, j - 1] - model.d[i, j]
            yield model.d[i, j] <= model.h[i, j - 1] - model.f[i, j - 1]

    def control_of_c(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Eq. (4): c_ij = 0 if e_ij = 1, c_ij <= 1 if d_ij = 1; dg_ij = d_ij and g_ij.

        cz <= c <= dg + chunk (cz - dg);   cz + e + f_i,j-1 <= 1;   d + cz - 1 <= dg <= d, g.
        A request that caches nothing cannot be evicted: e_ij <= m_i,j-1.
        """
        for i, j in self._pairs():
            cz, dg, e = model.cz[i, j], model.dg[i, j], model.e[i, j]
            yield cz <= model.c[i, j]
            yield model.c[i, j] <= dg + self.bounds.chunk[i] * (cz - dg)
            yield cz + e + model.f[i, j - 1] <= 1
            yield dg >= model.d[i, j] + cz - 1
            yield dg <= model.d[i, j]
            yield dg <= model.g[i, j]
            yield e <= model.m[i, j - 1]

    def batch_limits(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Eq. (5): sum c <= C, sum (c - dg) <= P, sum m <= M, each times u_j.

        A finished request holds nothing after its last batch, so an unused batch holds nothing.
        With blocks of s tokens: m <= s * blocks <= m + s - 1 and s * sum blocks <= M.
        """
        system = self.instance.system
        for j in model.J:
            tokens = pyo.quicksum(model.c[i, j] for i in model.R)
            yield tokens <= system.max_batch_tokens * model.u[j]
            prefill = tokens - pyo.quicksum(model.dg[i, j] for i in model.R)
            yield prefill <= system.prefill_budget * model.ap[j]
            if system.block_size == 1:
                yield pyo.quicksum(model.m[i, j] for i in model.R) <= system.kv_capacity * model.u[j]
                continue
            size = system.block_size
            for i in model.R:
                yield model.m[i, j] <= size * model.blocks[i, j]
                yield size * model.blocks[i, j] <= model.m[i, j] + size - 1
            yield size * pyo.quicksum(model.blocks[i, j] for i in model.R) <= system.kv_capacity * model.u[j]

    def running(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Eq. (5): sum mz <= R_max with mz_ij = [m_ij > 0], where R_max can bind."""
        if not self.limited:
            return
        for i, j in self._pairs():
            yield model.mz[i, j] <= model.m[i, j]
            yield model.m[i, j] <= self.bounds.peak[i] * model.mz[i, j]
        for j in model.J:
            yield (
                pyo.quicksum(model.mz[i, j] for i in model.R) <= self.instance.system.max_running * model.u[j]
            )

    # --- Batches, policy, cost ---------------------------------------------------------------

    def used_batches(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Things happen in used batches only, and those come first: cz, e <= u_j <= u_j-1."""
        for i, j in self._pairs():
            yield model.cz[i, j] + model.e[i, j] <= model.u[j]
        for j in model.J[1:]:
            yield model.u[j] <= model.u[j - 1]

    def policy(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Switches: no chunks: cz = g (who prefills, finishes it); no hybrid batches; no evictions."""
        policy = self.instance.policy
        for i, j in self._pairs():
            if not policy.chunked_prefill:
                yield model.cz[i, j] == model.g[i, j]
                yield model.c[i, j] >= model.dg[i, j] + self.bounds.size[i] * (
                    model.cz[i, j] - model.dg[i, j]
                )
            if not policy.preemption:
                yield model.e[i, j] == 0
        if not policy.hybrid_batching:
            for j in model.J:
                yield model.ad[j] + model.ap[j] <= 1

    def whole_prefills(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Without chunks a request that runs has a token, and misses one: no Big-M is needed.

        With done_ij = f_ij - f_i,j-1:

        mz_ij = mz_i,j-1 - done_i,j-1 - e_ij + first_ij + refilled_ij,
        d_ij = mz_i,j-1 - done_i,j-1,   dg_ij + e_ij <= d_ij,
        c_ij = I_i first_ij + dg_ij + (q_ij + refilled_ij).

        Implied by the rest for integers, and most of the strength of the relaxation.
        """
        if self.instance.policy.chunked_prefill:
            return
        for i, j in self._pairs():
            kept = model.d[i, j] - model.e[i, j]
            before = model.mz[i, j - 1] - (model.f[i, j - 1] - model.f[i, j - 2] if j > 1 else 0)
            yield model.d[i, j] == before
            yield model.mz[i, j] == kept + self.first(i, j) + self.refilled(i, j)
            yield model.dg[i, j] <= kept
            refill = model.q[i, j] + self.refilled(i, j)
            yield model.c[i, j] == self.bounds.size[i] * self.first(i, j) + model.dg[i, j] + refill

    def processed(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Sum_j c_ij >= I_i + sum_j (dg_ij + q_ij + refilled_ij), and at least peak.

        The first token takes I_i tokens, every decode one, and a refill that ends with a token as
        many as i has cached then.  Implied for integers; without chunks it holds batch by batch.
        """
        for i in model.R:
            total = pyo.quicksum(model.c[i, j] for j in model.J)
            steps = (model.dg[i, j] + model.q[i, j] + self.refilled(i, j) for j in model.J)
            yield total >= self.bounds.size[i] + pyo.quicksum(steps)
            yield total >= self.bounds.peak[i]

    def phases(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """dg_ij <= ad_j <= u_j,   cz_ij - dg_ij <= ap_j <= u_j,   and their sums over i at most
        D ad_j and N ap_j.

        A decode leaves at least I_i + 1 tokens cached, a prefill without chunks I_i: D and N are
        how many of the smallest of these fit into M.
        """
        capacity, smallest = self.instance.system.kv_capacity, min(self.bounds.size)
        early = 1 if self.instance.policy.chunked_prefill else smallest
        for i, j in self._pairs():
            yield model.dg[i, j] <= model.ad[j]
            yield model.cz[i, j] - model.dg[i, j] <= model.ap[j]
        for j in model.J:
            decodes = pyo.quicksum(model.dg[i, j] for i in model.R)
            prefills = pyo.quicksum(model.cz[i, j] for i in model.R) - decodes
            yield decodes <= capacity // self.held(smallest + 1) * model.ad[j]
            yield prefills <= capacity // self.held(early) * model.ap[j]
            yield model.ad[j] <= model.u[j]
            yield model.ap[j] <= model.u[j]

    def first(self, i: int, j: int) -> Any:
        """1 if i generates its first token in batch j."""
        return self.model.h[i, j] - self.model.h[i, j - 1]

    def refilled(self, i: int, j: int) -> Any:
        """1 if a later token is generated by the prefill that ends a refill."""
        return self.model.g[i, j] - self.model.dg[i, j] - self.first(i, j)

    def idle(self, i: int, j: int) -> Any:
        """1 if i runs without generating; known only without chunks, else 0."""
        if self.instance.policy.chunked_prefill:
            return 0
        return self.model.mz[i, j] - self.model.g[i, j]

    def decode_reads(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """r_ij = m_i,j-1 * dg_ij   and   q_ij = (I_i,j-1 - 1) * refilled_ij.

        Both are products with a binary, bounded on either side; tokens 2.. read I_i or more.
        """
        for i, j in self._pairs():
            size, peak = self.bounds.size[i], self.bounds.peak[i]
            for product, factor, flag in (
                (model.r[i, j], model.m[i, j - 1], model.dg[i, j]),
                (model.q[i, j], model.I[i, j - 1] - 1, self.refilled(i, j)),
            ):
                yield product >= size * flag
                yield product <= (peak - 1) * flag
                yield product >= factor - peak * (1 - flag)
                yield product <= factor

    def all_reads(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """sum_j (r_ij + q_ij) = sum_(k=2..O) (I_i + k - 2).

        Token k is made by a decode that reads I+k-2 tokens, or by a refill in its stead.  Implied
        for integers; in the relaxation it keeps the products from vanishing.
        """
        for i in model.R:
            steps = self.bounds.outputs[i] - 1
            reads = steps * self.bounds.size[i] + steps * (steps - 1) // 2
            if steps:
                yield pyo.quicksum(model.r[i, j] + model.q[i, j] for j in model.J) == reads

    def held_at_tokens(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """m_ij >= I_i first_ij + (r_ij + dg_ij) + (q_ij + refilled_ij) + I_i idle_ij.

        Who generates holds all it has read and one token more; without chunks, who runs and does
        not (idle_ij = mz_ij - g_ij) holds I_i or more.  Implied for integers.
        """
        for i, j in self._pairs():
            later = model.r[i, j] + model.dg[i, j] + model.q[i, j] + self.refilled(i, j)
            yield model.m[i, j] >= self.bounds.size[i] * (self.first(i, j) + self.idle(i, j)) + later

    def prefill_at_end(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """w_ij >= I_i^2 first_ij + I_i,j-1^2 refilled_ij: work charged when a prefill ends.

        Chunks that grow the cache from 0 to L do L^2 under "exact" attention, since
        c (2m + c) = (m + c)^2 - m^2, and so does one chunk of L under "square".  As L is an
        integer from I_i + 1 to peak, tangents at these (times the flag) are exact:
        (2t+1) L - t (t+1) with L * refilled = q + refilled.
        """
        if not self.at_end:
            return
        for i, j in self._pairs():
            size, peak = self.bounds.size[i], self.bounds.peak[i]
            prompt = size**2 * self.first(i, j)
            yield model.w[i, j] >= prompt
            level = model.q[i, j] + self.refilled(i, j)
            for t in range(size + 1, max(peak, size + 2)):
                yield model.w[i, j] >= prompt + (2 * t + 1) * level - t * (t + 1) * self.refilled(i, j)

    def prefill_squares(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """w_ij >= x^2 for the prefill tokens x = c_ij - dg_ij: tangents at every integer."""
        if self.at_end or self.by_levels:
            return
        for i, j in self._pairs():
            x = model.c[i, j] - model.dg[i, j]
            for t in range(self.bounds.chunk[i]):
                yield model.w[i, j] >= (2 * t + 1) * x - t * (t + 1)

    def prefill_levels(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """w_ij >= m_ij^2 - m_i,j-1^2 - (2 peak - 1) dg_ij: exact attention, c (2m + c) is that difference.

        m_ij = sum_k v_ikj and m_ij^2 = sum_k (2k - 1) v_ikj with v_ikj >= v_i,k+1,j; a decode caches one
        token more, at most the last one.  The prefill of the prompt does I_i^2: sum_j w_ij >= I_i^2.
        """
        if not self.by_levels:
            return
        for i, j in self._pairs():
            levels = range(1, self.bounds.peak[i] + 1)
            yield pyo.quicksum(model.v[i, k, j] for k in levels) == model.m[i, j]
            for k in levels[1:]:
                yield model.v[i, k, j] <= model.v[i, k - 1, j]
            grown = pyo.quicksum((2 * k - 1) * (model.v[i, k, j] - model.v[i, k, j - 1]) for k in levels)
            yield model.w[i, j] >= grown - (2 * self.bounds.peak[i] - 1) * model.dg[i, j]
        for i in model.R:
            yield pyo.quicksum(model.w[i, j] for j in model.J) >= self.bounds.size[i] ** 2

    def short_refill(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """w_ij >= (I_i,j-1 - 1)^2 sh_ij: a refill that stopped one token short ends in a decode.

        fill_ij = 1 while a prefill is under way: set by a chunk, kept while idle, cleared by a
        token or an eviction; sh_ij = fill_i,j-1 and dg_ij.  With L = I_i,j-1 - 1 in I_i..peak-1
        and t over these, w >= (2t+1) L - t (t+1) - (2t+1) peak (1 - sh).

        A prefill that is evicted half-way is not charged.  That does not move the optimum: leave
        its chunks out and every limit still holds, at a cost that is no higher than the one
        charged here, so an optimal schedule has none, and it is priced exactly.
        """
        if not self.short_refills:
            return
        for i, j in self._pairs():
            fill, before, g, e = model.fill[i, j], model.fill[i, j - 1], model.g[i, j], model.e[i, j]
            chunk = model.cz[i, j] - model.dg[i, j]
            yield fill >= chunk - g
            yield fill >= before - g - e
            yield fill <= before + chunk
            yield fill <= 1 - g
            yield fill <= 1 - e
            sh, dg = model.sh[i, j], model.dg[i, j]
            yield sh >= before + dg - 1
            yield sh <= before
            yield sh <= dg
            level, peak = model.I[i, j - 1] - 1, self.bounds.peak[i]
            for t in range(self.bounds.size[i], max(peak - 1, self.bounds.size[i] + 1)):
                yield model.w[i, j] >= (2 * t + 1) * (level - peak * (1 - sh)) - t * (t + 1) * sh

    def roofline(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """nu_j >= alpha_k u_j + beta_k sum_i c_ij for every affine piece k, where there are several."""
        if len(self.alpha) == 1:
            return
        for j in model.J:
            tokens = pyo.quicksum(model.c[i, j] for i in model.R)
            for alpha, beta in zip(self.alpha, self.beta, strict=True):
                yield model.nu[j] >= alpha * model.u[j] + beta * tokens

    def batch_time(self, j: int) -> Any:
        """Ticks that batch j takes (section 3.2)."""
        model = self.model
        if len(self.alpha) == 1:
            tokens = pyo.quicksum(model.c[i, j] for i in model.R)
            time = self.alpha[0] * model.u[j] + self.beta[0] * tokens
        else:
            time = model.nu[j]
        time += self.d0 * model.ad[j] + self.d1 * pyo.quicksum(model.r[i, j] for i in model.R)
        return time + self.p0 * model.ap[j] + self.p1 * pyo.quicksum(model.w[i, j] for i in model.R)

    def longest_batch(self, without: int | None = None) -> int:
        """Ticks that no batch exceeds, or none in which request `without` has no part."""
        others = [i for i in self.model.R if i != without]
        chunk, peak = self.bounds.chunk, self.bounds.peak
        tokens = min(self.instance.system.max_batch_tokens, sum(chunk[i] for i in others))
        linear = max(a + b * tokens for a, b in zip(self.alpha, self.beta, strict=True))
        # Work of a prefill that is charged at its end may be charged beside a decode.
        if self.short_refills:
            attention = sum(self.d1 * peak[i] + self.p1 * peak[i] ** 2 for i in others)
        else:
            attention = sum(max(self.d1 * (peak[i] - 1), self.p1 * self.most_work(i)) for i in others)
        return int(linear + self.d0 + self.p0 + attention)

    def most_work(self, i: int) -> int:
        """Most attention work of request i that is charged to one batch."""
        peak, chunk = self.bounds.peak[i], self.bounds.chunk[i]
        if self.by_levels:
            return int(peak**2 - (peak - chunk) ** 2)
        collected = self.at_end and self.instance.policy.chunked_prefill
        return int(peak**2 if collected else chunk**2)

    @property
    def latest(self) -> int:
        """Ticks by which the last batch ends, unless the schedule waits for nothing."""
        latest = max(request.arrival for request in self.instance.requests)
        horizon: int = self.model.horizon
        return int(latest * self.unit) + horizon * self.longest_batch()

    def arrivals(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Online setting: start_j+1 >= end_j = start_j + T_j, and start_j >= a_i for whom batch j holds.

        The paper's Acc_j; once a request was processed (cz, h) later batches start after a_i too.
        """
        if self.instance.offline:
            return
        for j in model.J:
            end = model.start[j] + self.batch_time(j) if self.latencies is None else model.end[j]
            yield model.start[j + 1] >= end
            for i, request in enumerate(self.instance.requests):
                if request.arrival:
                    ticks = int(request.arrival * self.unit)
                    yield model.start[j] >= ticks * model.cz[i, j]
                    yield model.start[j] >= ticks * model.h[i, j]

    # --- Cuts --------------------------------------------------------------------------------

    def packing(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """sum_i f(I_i) idle_ij + sum_k f(I_i + k - 1) made_ijk <= limit * u_j.

        Who makes token k in batch j (made_ijk) holds I_i + k - 1 tokens then, and, without chunks,
        who only runs at least I_i; f is dual feasible and non-decreasing (`packing_rows`).  Where
        O_i is too large for t_ikj, every later token counts with I_i + 1.
        """
        for row in packing_rows(self.instance):
            for j in model.J:
                yield pyo.quicksum(self.load(row, i, j) for i in model.R) <= row.limit * model.u[j]

    def load(self, row: PackingRow, i: int, j: int) -> Any:
        """Weight of what request i surely holds after batch j."""
        model, size, outputs = self.model, self.bounds.size[i], self.bounds.outputs[i]
        early, later = row.weight(self.held(size)), row.weight(self.held(size + 1))
        load = early * (self.first(i, j) + self.idle(i, j)) + later * (model.g[i, j] - self.first(i, j))
        if not 2 < outputs <= MAX_UNARY:
            return load
        for k in range(3, outputs + 1):
            if k == outputs:
                made = model.f[i, j] - model.f[i, j - 1]
            else:
                made = model.t[i, k, j] - model.t[i, k, j - 1]
            load += (row.weight(self.held(size + k - 1)) - later) * made
        return load

    def token_numbers(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Unary count of tokens: h + sum_k t_ikj + f = I_ij - I_i;   h >= t_i2j >= ... >= f; none falls."""
        for i, j in self._pairs():
            outputs = self.bounds.outputs[i]
            if not 2 < outputs <= MAX_UNARY:
                continue
            unary = [model.h[i, j], *(model.t[i, k, j] for k in range(2, outputs)), model.f[i, j]]
            yield pyo.quicksum(unary) == model.I[i, j] - self.bounds.size[i]
            for fewer, more in pairwise(unary):
                yield more <= fewer
            for k in range(2, outputs):
                yield model.t[i, k, j - 1] <= model.t[i, k, j]

    def least_number(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """u_j = 1 for the batches that every schedule needs (`least_batches`)."""
        for j in range(1, min(least_batches(self.instance), model.horizon) + 1):
            yield model.u[j] == 1

    def same_requests(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """h_aj >= h_bj for identical requests a before b: first tokens come in order.

        Identical requests may swap whole histories.  Sorting the histories by the batch of the
        first token satisfies the rows, so every schedule keeps an equivalent one.  Ordering by
        *progress* in every batch would be wrong: after an eviction a request may be overtaken.
        """
        for kind in self.instance.types:
            for a, b in pairwise(kind.members):
                for j in model.J:
                    yield model.h[a, j] >= model.h[b, j]

    def add_objective(self) -> None:
        """Minimise the total latency, in ticks, or a sum of latencies."""
        model = self.model
        if self.latencies is not None:
            total = self.latencies.objective()
        elif self.instance.offline:
            total = pyo.quicksum(self.batch_time(j) for j in model.J)
        else:
            total = model.start[model.horizon + 1]
        model.makespan = pyo.Objective(expr=total)


class _Setter:
    """Sets the variables of a model from the moves of a schedule."""

    def __init__(self, model: pyo.ConcreteModel):
        self.model = model
        self.instance: Instance = model.instance
        self.exact = self.instance.cost.exact_attention
        self.at_end = _charged_at_end(self.instance)

    def request(self, i: int, moves: list[Move]) -> None:
        """Set the columns of request i, which moves like this; then it is finished and idle."""
        model, request = self.model, self.instance.requests[i]
        idle = Move(0, request.output_tokens, 0, False, False, False, 0)
        filling = False
        for j in model.J:
            move = moves[j - 1] if j <= len(moves) else idle
            after = move.generated + move.generates
            first = move.generates and move.generated == 0
            refilled = move.generates and not move.decodes and not first
            done = move.generated == request.output_tokens
            short = filling and move.decodes
            missing = request.input_tokens + move.generated - move.cached
            values = {
                "I": request.input_tokens + after,
                "m": move.held,
                "c": move.tokens,
                "g": move.generates,
                "e": move.evicted,
                "d": not done and move.generated > 0 and missing == 1,
                "cz": move.tokens > 0,
                "mz": move.held > 0,
                "dg": move.decodes,
                "h": after > 0,
                "f": after == request.output_tokens,
                "r": move.cached * move.decodes,
                "q": (request.input_tokens + move.generated - 1) * refilled,
                "w": self.work(move, filling),
                "sh": short,
                "blocks": self.instance.system.held(move.held) // self.instance.system.block_size,
            }
            prefills = move.tokens > 0 and not move.decodes
            filling = (filling or prefills) and not move.generates and not move.evicted
            values["fill"] = filling
            self.set_columns(i, j, values)
            self.set_token_number(i, j, after)
            if model.component("v") is not None:
                for k in range(1, request.peak_kv + 1):
                    model.v[i, k, j].set_value(int(move.held >= k))

    def set_columns(self, i: int, j: int, values: dict[str, int]) -> None:
        """Set those columns of request i and batch j that the model has, by name."""
        for name, value in values.items():
            column = self.model.component(name)
            if column is not None:
                column[i, j].set_value(int(value))

    def set_token_number(self, i: int, j: int, generated: int) -> None:
        """Set which numbers of tokens request i has reached after batch j."""
        column = self.model.component("t")
        if column is not None:
            for k in range(2, self.instance.requests[i].output_tokens):
                if (i, k, j) in column:
                    column[i, k, j].set_value(int(generated >= k))

    def work(self, move: Move, filling: bool) -> int:
        """Prefill attention work, charged where the model charges it."""
        prefills = move.tokens > 0 and not move.decodes
        if not self.at_end:
            return int(prefill_work(self.exact, move.tokens, move.cached)) if prefills else 0
        if prefills and move.generates:
            return move.held**2
        if filling and (move.decodes or move.evicted):
            return move.cached**2
        return 0

    def batches(self, moves: list[list[Move]], times: list[int]) -> None:
        """Set the columns of every batch; `times`: starts and the last end, in the model's ticks."""
        model = self.model
        ticks = self.instance.cost.ticks
        scale = model.unit // self.instance.cost.ticks_per_second
        for j in model.J:
            used = j <= len(moves)
            batch = moves[j - 1] if used else []
            tokens = sum(move.tokens for move in batch)
            model.u[j].set_value(int(used))
            model.ad[j].set_value(int(any(move.decodes for move in batch)))
            model.ap[j].set_value(int(any(move.tokens and not move.decodes for move in batch)))
            if model.component("nu") is not None:
                pieces = zip(ticks.alpha, ticks.beta, strict=True)
                model.nu[j].set_value(scale * max(a * used + b * tokens for a, b in pieces))
        if model.component("start") is not None:
            for j in range(1, model.horizon + 2):
                model.start[j].set_value(times[min(j, len(times)) - 1])
