"""State flow: integer flows of request types through their states, batch by batch.

Requests of one type (I, O) are alike, so only their number in each state matters.  A request is
in state (m, n): m tokens cached, n generated.  In batch j it takes one arc:

=========  ==========================  ====================================================
idle       (m, n) -> (m, n)            holds m
evict      (m, n) -> (0, n)            m > 0; holds nothing
process c  (m, n) -> (m + c, n)        m + c < I + n: a chunk
           (m, n) -> (m + c, n + 1)    m + c = I + n: generates a token
finish     (m, n) -> out               the same with n + 1 = O; holds I + n in this batch only
=========  ==========================  ====================================================

It is a decode if c = 1, m = I + n - 1 and n >= 1, else a prefill.  Without chunked prefill only
m = 0 and m = I + n - 1 occur.  With it all levels of m do; where these are too many, chunks end at
multiples of a grid (or with a token) and the model is a restriction.

``x[a, j]``  requests on arc a in batch j
``u[j]``     1 if batch j is used;  ``ad[j]``, ``ap[j]``: it decodes, it prefills
``nu[j]``    non-attention time of batch j in ticks, if that has several affine pieces

Aggregation removes the symmetry of identical requests; the only Big-M are on ad and ap.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import pyomo.environ as pyo
from infermax_opt.models.infermax_meanings import column_meaning

from infermax_opt.core.result import Scope
from infermax_opt.infermax.bounds.horizon import PackingRow, least_batches, packing_rows
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.formulation import Move, trajectory
from infermax_opt.infermax.replay.plain import replay_plain

__all__ = ["Arc", "StateFlow", "arcs_of", "columns_of"]

#: Columns above which the automatic chunk grid gets coarser.
MAX_COLUMNS = 60_000


class Arc(NamedTuple):
    """One decision of a request of type `kind`, from state (m, n) to state (m2, n2)."""

    kind: int
    m: int
    n: int
    tokens: int
    evicts: bool
    decodes: bool
    m2: int
    n2: int
    held: int


@dataclass(frozen=True)
class StateFlow:
    """The state-flow model.

    Parameters
    ----------
    cuts : bool
        Add the packing cuts.
    chunk_grid : int, optional
        Chunks end at multiples of it; None takes the finest one of reasonable size.
    """

    cuts: bool = True
    chunk_grid: int | None = None
    name: ClassVar[str] = "flow"

    def unsupported(self, instance: Instance) -> str | None:
        """Why `instance` cannot be modelled; None if it can."""
        if instance.required is not instance:
            return "it serves every request, and some may be left unfinished here"
        if not instance.objective.is_makespan:
            return f"it minimises the makespan only, not {instance.objective}"
        if not instance.offline:
            late = next(r for r in instance.requests if r.arrival)
            return f"it needs every arrival to be 0, but {late.id!r} has {float(late.arrival):g} s"
        return None

    def columns(self, instance: Instance, horizon: int) -> int:
        """Estimate the number of columns."""
        return _count_arcs(instance, self.grid(instance, horizon)) * horizon

    def grid(self, instance: Instance, horizon: int) -> int:
        """Chunk grid used: 1 allows every chunk."""
        if self.chunk_grid is not None:
            return self.chunk_grid
        grid = 1
        largest = max(kind.input_tokens + kind.output_tokens for kind in instance.types)
        while grid < largest and _count_arcs(instance, grid) * horizon > MAX_COLUMNS:
            grid *= 2
        return grid

    def scope(self, instance: Instance, horizon: int, proved: int | None) -> Scope:
        """Exact where the horizon is long enough and chunks may end anywhere.

        Parameters
        ----------
        instance : Instance
        horizon : int
            Batches of the model.
        proved : int or None
            Batches that an optimal schedule has at most.
        """
        enough = proved is not None and horizon >= proved
        fine = not instance.policy.chunked_prefill or self.grid(instance, horizon) == 1
        return Scope.EXACT if enough and fine else Scope.RESTRICTION

    def build(self, instance: Instance, horizon: int) -> pyo.ConcreteModel:
        """Model of all schedules with at most `horizon` batches."""
        return _FlowBuilder(instance, horizon, self).build()

    def warm_start(self, model: pyo.ConcreteModel, schedule: Schedule) -> None:
        """Set every variable to what `schedule` does."""
        instance: Instance = model.instance
        replayed = replay_plain(instance, schedule)
        if not replayed.valid:
            raise ValueError(f"the schedule is not valid: {replayed.violations[0]}")
        moves = trajectory(instance, schedule)
        if len(moves) > model.horizon:
            raise ValueError(f"{len(moves)} batches; the horizon is {model.horizon}")
        _set_flow(model, moves)
        ticks = instance.cost.ticks
        for j in model.J:
            used = j <= len(moves)
            batch = moves[j - 1] if used else []
            tokens = sum(move.tokens for move in batch)
            model.u[j].set_value(int(used))
            model.ad[j].set_value(int(any(move.decodes for move in batch)))
            model.ap[j].set_value(int(any(move.tokens and not move.decodes for move in batch)))
            if model.component("nu") is not None:
                pieces = zip(ticks.alpha, ticks.beta, strict=True)
                model.nu[j].set_value(max(a * used + b * tokens for a, b in pieces))

    def meaning(self, model: pyo.ConcreteModel, variable: str, index: tuple[int, ...]) -> str:
        """What a column is, in words.

        Parameters
        ----------
        model : ConcreteModel
        variable : str
        index : tuple of int
        """
        if variable != "x":
            known: str = column_meaning(model.instance, variable, index)
            return known
        arc: Arc = model.arcs[index[0]]
        kind = model.instance.types[arc.kind]
        does = f"process {arc.tokens} tokens" if arc.tokens else "are evicted" if arc.evicts else "are idle"
        return (
            f"requests of {kind.input_tokens} input and {kind.output_tokens} output tokens that {does} in "
            f"batch {index[1]}, with {arc.m} tokens cached and {arc.n} generated before it"
        )

    def extract(self, model: pyo.ConcreteModel) -> Schedule:
        """Read a schedule: follow the flow, first come first served among those in one state.

        Flow conservation leaves exactly as many requests in a state as arcs take out of it.
        """
        instance: Instance = model.instance
        where: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        for t, kind in enumerate(instance.types):
            where[t, 0, 0].extend(kind.members)
        taken = defaultdict(list)
        for (a, j), column in model.x.items():
            count = round(column.value)
            if count:
                taken[j].append((model.arcs[a], count))
        batches = []
        for j in model.J:
            tokens: dict[str, int] = {}
            evict: list[str] = []
            after: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
            # Served ones first, so that the oldest are.
            for arc, count in sorted(taken[j], key=lambda taken: taken[0].tokens == 0):
                for _ in range(count):
                    i = where[arc.kind, arc.m, arc.n].popleft()
                    after[arc.kind, arc.m2, arc.n2].append(i)
                    if arc.tokens:
                        tokens[instance.requests[i].id] = arc.tokens
                    elif arc.evicts:
                        evict.append(instance.requests[i].id)
            where = after
            if tokens or evict:
                batches.append(Batch(tokens, tuple(evict)))
        return Schedule(instance.name, tuple(batches))


def _set_flow(model: pyo.ConcreteModel, moves: list[list[Move]]) -> None:
    """Set the requests on every arc to what the moves of the batches say."""
    instance: Instance = model.instance
    number = {arc: a for a, arc in enumerate(model.arcs)}
    kinds = {i: t for t, kind in enumerate(instance.types) for i in kind.members}
    for column in model.x.values():
        column.set_value(0)
    for j, batch in enumerate(moves, 1):
        for i, move in enumerate(batch):
            if move.generated == instance.requests[i].output_tokens:
                continue
            arc = number.get(_arc(instance, kinds[i], move))
            if arc is None or (arc, j) not in model.x:
                raise ValueError(f"batch {j}: the chunk grid leaves this step out: {move}")
            model.x[arc, j].set_value(model.x[arc, j].value + 1)


def _arc(instance: Instance, kind: int, move: Move) -> Arc:
    """The arc that a move takes."""
    n2 = move.generated + move.generates
    m2 = 0 if n2 == instance.types[kind].output_tokens else move.held
    return Arc(
        kind, move.cached, move.generated, move.tokens, move.evicted, move.decodes, m2, n2, move.held
    )  # fmt: skip


def _levels(instance: Instance, full: int, n: int, grid: int) -> list[int]:
    """Values of m at which a request that needs `full` = I + n cached tokens may stop."""
    levels = {0}
    if n:
        levels.add(full - 1)
    if instance.policy.chunked_prefill:
        levels.update(range(0, full, grid))
    return sorted(levels)


def _count_arcs(instance: Instance, grid: int) -> int:
    """Estimate the number of arcs of all types."""
    total = 0
    for kind in instance.types:
        for n in range(kind.output_tokens):
            if not instance.policy.chunked_prefill:
                total += 5
                continue
            stops = -(-(kind.input_tokens + n) // grid)
            reach = min(stops, instance.system.prefill_budget // grid + 1)
            total += stops * (reach + 4) - reach * reach // 2
    return total


def arcs_of(instance: Instance, grid: int) -> Iterator[Arc]:
    """Yield every decision of every type that breaks no rule by itself; chunks end on a grid."""
    system, policy = instance.system, instance.policy
    for t, kind in enumerate(instance.types):
        for n in range(kind.output_tokens):
            full = kind.input_tokens + n
            levels = _levels(instance, full, n, grid)
            for m in levels:
                yield Arc(t, m, n, 0, False, False, m, n, m)
                if m and policy.preemption:
                    yield Arc(t, m, n, 0, True, False, 0, n, 0)
                decodes = n >= 1 and m == full - 1
                most = 1 if decodes else system.prefill_budget
                if policy.chunked_prefill:
                    for stop in levels:
                        if 1 <= stop - m <= most:
                            yield Arc(t, m, n, stop - m, False, False, stop, n, stop)
                if full - m <= most:
                    kept = 0 if n + 1 == kind.output_tokens else full
                    yield Arc(t, m, n, full - m, False, decodes, kept, n + 1, full)


def columns_of(instance: Instance, arcs: Sequence[Arc], horizon: int) -> Iterator[tuple[int, int]]:
    """Positions of arcs, and batches in which requests may take them.

    Arcs that come too early or leave too few batches for what is missing are left out: before
    batch j at most j - 1 tokens are generated, and O - n2 more batches must follow.

    Parameters
    ----------
    instance : Instance
    arcs : sequence of Arc
    horizon : int
        Number of batches.
    """
    kinds = instance.types
    for j in range(1, horizon + 1):
        for a, arc in enumerate(arcs):
            enough = kinds[arc.kind].output_tokens - arc.n2 <= horizon - j
            if arc.n <= j - 1 and (arc.m == 0 or j > 1) and enough:
                yield a, j


def _tokens(arc: Arc) -> int:
    return arc.tokens


def _decodes(arc: Arc) -> bool:
    return arc.decodes


def _prefills(arc: Arc) -> bool:
    return arc.tokens > 0 and not arc.decodes


def _of_kind(is_one: Callable[[Arc], bool], kind: int, arc: Arc) -> bool:
    return arc.kind == kind and is_one(arc)


class _FlowBuilder:
    """Builds one model; every constraint of it is one short method."""

    def __init__(self, instance: Instance, horizon: int, options: StateFlow):
        self.instance = instance
        self.options = options
        self.arcs = list(arcs_of(instance, options.grid(instance, horizon)))
        self.ticks = instance.cost.ticks
        self.model = pyo.ConcreteModel(name=f"flow:{instance.name}")
        self.model.instance = instance
        self.model.horizon = horizon
        self.model.ticks_per_second = instance.cost.ticks_per_second
        self.model.arcs = tuple(self.arcs)

    def build(self) -> pyo.ConcreteModel:
        self.add_variables()
        self.add_constraints()
        self.add_objective()
        return self.model

    def add_variables(self) -> None:
        """Columns; see `columns_of`."""
        model, kinds = self.model, self.instance.types
        model.J = range(1, model.horizon + 1)
        places = list(columns_of(self.instance, self.arcs, model.horizon))
        most = [len(kinds[arc.kind].members) for arc in self.arcs]
        model.x = pyo.Var(places, domain=pyo.NonNegativeIntegers, bounds=lambda _, a, j: (0, most[a]))
        model.u, model.ad, model.ap = (pyo.Var(model.J, domain=pyo.Binary) for _ in range(3))
        if len(self.ticks.alpha) > 1:
            tokens = self.instance.system.max_batch_tokens
            pieces = zip(self.ticks.alpha, self.ticks.beta, strict=True)
            model.nu = pyo.Var(
                model.J, domain=pyo.NonNegativeReals, bounds=(0, max(a + b * tokens for a, b in pieces))
            )

    def add_constraints(self) -> None:
        """Table of contents."""
        self._each("conservation", self.conservation)
        self._each("tokens", self.tokens)
        self._each("kv", self.kv)
        self._each("running", self.running)
        self._each("phases", self.phases)
        self._each("used_batches", self.used_batches)
        self._each("roofline", self.roofline)
        if self.options.cuts:
            self._each("packing", self.packing)
            self._each("least_number", self.least_number)

    def _each(self, name: str, rows: Callable[[pyo.ConcreteModel], Iterator[Any]]) -> None:
        found = list(rows(self.model))
        if found:
            constraints = pyo.ConstraintList()
            self.model.add_component(name, constraints)
            for row in found:
                # A row of empty sums reduces to True.
                if row is not True:
                    constraints.add(row)

    @cached_property
    def _placed(self) -> dict[int, list[int]]:
        placed = defaultdict(list)
        for a, j in self.model.x:
            placed[j].append(a)
        return placed

    def total(self, j: int, weight: Callable[[Arc], int]) -> Any:
        """sum_a weight(a) x_aj."""
        terms = ((weight(self.arcs[a]), self.model.x[a, j]) for a in self._placed[j])
        return pyo.quicksum(int(w) * x for w, x in terms if w)

    def conservation(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Who enters a state in batch j leaves it in batch j + 1; all start at (0, 0), end outside."""
        into: dict[tuple[int, int, int, int], list[Any]] = defaultdict(list)
        out: dict[tuple[int, int, int, int], list[Any]] = defaultdict(list)
        for (a, j), x in model.x.items():
            arc = self.arcs[a]
            out[arc.kind, arc.m, arc.n, j].append(x)
            into[arc.kind, arc.m2, arc.n2, j + 1].append(x)
        kinds = self.instance.types
        for t, kind in enumerate(kinds):
            yield pyo.quicksum(out.pop((t, 0, 0, 1), ())) == len(kind.members)
        for state in sorted({*into, *out}):
            t, _, n, _ = state
            if n < kinds[t].output_tokens:
                yield pyo.quicksum(into[state]) == pyo.quicksum(out[state])
        for t, kind in enumerate(kinds):
            ends = [
                x for (t2, _, n, _), arcs in into.items() if t2 == t and n == kind.output_tokens for x in arcs
            ]
            yield pyo.quicksum(ends) == len(kind.members)

    def tokens(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Sum c x <= C u_j;   over prefills sum c x <= min(P, C) ap_j."""
        system = self.instance.system
        for j in model.J:
            yield self.total(j, _tokens) <= system.max_batch_tokens * model.u[j]
            prefill = self.total(j, lambda arc: 0 if arc.decodes else arc.tokens)
            yield prefill <= system.prefill_budget * model.ap[j]

    def kv(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Sum held x <= M u_j, in whole blocks: an unused batch comes last and holds nothing."""
        system = self.instance.system
        for j in model.J:
            yield self.total(j, lambda arc: system.held(arc.held)) <= system.kv_capacity * model.u[j]

    def running(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Requests holding KV are at most R_max, where that can bind."""
        most = self.instance.system.max_running
        if most is None or most >= len(self.instance.requests):
            return
        for j in model.J:
            yield self.total(j, lambda arc: arc.held > 0) <= most * model.u[j]

    def phases(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Decoding requests are at most D ad_j, prefilling ones at most N ap_j; of one type, N_t ap_j.

        D and N: how many fit into a batch, given the fewest tokens that one of them holds.
        """
        kinds = self.instance.types
        for flag, is_one in ((model.ad, _decodes), (model.ap, _prefills)):
            arcs = [arc for arc in self.arcs if is_one(arc)]
            most = self._most(arcs) if arcs else 0
            for j in model.J:
                yield self.total(j, is_one) <= most * flag[j]
                for t, kind in enumerate(kinds):
                    if len(kind.members) < most:
                        of_kind = partial(_of_kind, is_one, t)
                        yield self.total(j, of_kind) <= len(kind.members) * flag[j]
        for j in model.J:
            yield model.ad[j] <= model.u[j]
            yield model.ap[j] <= model.u[j]
            if not self.instance.policy.hybrid_batching:
                yield model.ad[j] + model.ap[j] <= 1

    def _most(self, arcs: list[Arc]) -> int:
        system = self.instance.system
        return min(
            len(self.instance.requests),
            system.max_running or len(self.instance.requests),
            system.kv_capacity // min(system.held(arc.held) for arc in arcs),
            system.max_batch_tokens // min(arc.tokens for arc in arcs),
        )

    def used_batches(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Used batches come first, and evictions happen in them: evictions <= N u_j; u_j <= u_j-1."""
        count = len(self.instance.requests)
        for j in model.J:
            if self.instance.policy.preemption:
                yield self.total(j, lambda arc: arc.evicts) <= count * model.u[j]
            if j > 1:
                yield model.u[j] <= model.u[j - 1]

    def roofline(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """nu_j >= alpha_k u_j + beta_k sum c x for every affine piece k, where there are several."""
        if len(self.ticks.alpha) == 1:
            return
        for j in model.J:
            tokens = self.total(j, _tokens)
            for alpha, beta in zip(self.ticks.alpha, self.ticks.beta, strict=True):
                yield model.nu[j] >= alpha * model.u[j] + beta * tokens

    def weight(self, row: PackingRow, arc: Arc) -> int:
        """Scaled weight of what a request on the arc holds."""
        return row.weight(self.instance.system.held(arc.held))

    def packing(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """Sum f(held) x <= limit u_j, f dual feasible: see `packing_rows` for the proof.

        Every request that holds KV after the batch counts with what it holds, idle ones too.
        """
        for row in packing_rows(self.instance):
            for j in model.J:
                yield self.total(j, partial(self.weight, row)) <= row.limit * model.u[j]

    def least_number(self, model: pyo.ConcreteModel) -> Iterator[Any]:
        """u_j = 1 for the batches that every schedule needs (`least_batches`)."""
        for j in range(1, min(least_batches(self.instance), model.horizon) + 1):
            yield model.u[j] == 1

    def attention(self, arc: Arc) -> int:
        """Ticks of attention that one request on the arc adds, without the terms per batch."""
        if arc.decodes:
            return int(self.ticks.d1 * arc.m)
        if not arc.tokens:
            return 0
        return int(self.ticks.p1 * prefill_work(self.instance.cost.exact_attention, arc.tokens, arc.m))

    def add_objective(self) -> None:
        """Minimise the makespan, in ticks."""
        model, ticks = self.model, self.ticks
        total = pyo.quicksum(ticks.d0 * model.ad[j] + ticks.p0 * model.ap[j] for j in model.J)
        total += pyo.quicksum(self.total(j, self.attention) for j in model.J)
        if len(ticks.alpha) > 1:
            total += pyo.quicksum(model.nu[j] for j in model.J)
        else:
            total += pyo.quicksum(
                ticks.alpha[0] * model.u[j] + ticks.beta[0] * self.total(j, _tokens) for j in model.J
            )
        model.makespan = pyo.Objective(expr=total)
