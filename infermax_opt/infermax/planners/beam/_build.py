"""Between instances and the beam's columns: what goes into the kernel, what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infermax_opt.infermax.data.cost import Coefficients, batch_time, prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule, run_length
from infermax_opt.infermax.planners.beam._state import (
    KINDS,
    NO_KEY,
    BeamMove,
    BeamNodes,
    BeamProblem,
    BeamRules,
    Log,
    Scratch,
)

__all__ = ["BeamColumns", "build", "columns", "decisions", "write"]

#: Entries of the log; it is compacted when full.
LOG_ENTRIES = 500_000
#: Room in the log that an expansion is given.
LOG_MARGIN = 20_000


@dataclass(frozen=True)
class BeamColumns:
    """All that the kernel works on."""

    problem: BeamProblem
    rules: BeamRules
    nodes: BeamNodes
    log: Log
    move: BeamMove
    scratch: Scratch
    total: float


def build(
    instance: Instance, slots: int, batches: float, credit: float, area: float
) -> tuple[BeamProblem, float]:
    """Columns of an instance, and the pay for all of it.

    Parameters
    ----------
    slots : int
        Most requests held at a time.
    batches : float
        Expected batches, for the tokens of a typical one.
    credit : float
        Share of a refill's price that is charged at the refill instead of at the eviction.
    area : float
        Seconds per token of KV and batch, beside all work.
    """
    import numpy as np

    system, cost = instance.system, instance.cost.floats
    exact = int(instance.cost.exact_attention)
    types = instance.types
    typical = sum(r.peak_kv for r in instance.requests) / batches

    def marginal(tokens: float) -> float:
        """Seconds by which so many tokens lengthen a typical batch."""
        more = batch_time(*cost, typical + tokens, 0, 0, 0, 0)
        return float(more - batch_time(*cost, typical, 0, 0, 0, 0))

    rate = area + cost.d1
    token = marginal(1) - cost.d1
    first: list[int] = []
    kind: list[int] = []
    size: list[int] = []
    left: list[int] = []
    out: list[float] = []
    start: list[float] = []
    total = 0.0
    for number, request_type in enumerate(types):
        i, o = request_type.input_tokens, request_type.output_tokens
        first.append(len(kind))
        start.append(marginal(i) + cost.p1 * prefill_work(exact, i, 0) - cost.d1 * i - token)
        count = len(request_type.members)
        total += count * (rate * (o * i + o * (o - 1) // 2) + token * o + start[-1])
        for n in range(o):
            tokens = i + n
            kind.append(number)
            size.append(tokens)
            left.append(o - n)
            price = marginal(tokens) - marginal(1) + cost.p0 + cost.p1 * prefill_work(exact, tokens, 0)
            out.append((price - cost.d1 * (tokens - 1)) * (1 - credit))

    def integers(values: list[int]) -> Any:
        return np.array(values, dtype=np.int64)

    floats = np.array
    problem = BeamProblem(
        system.kv_capacity, system.max_batch_tokens, system.prefill_budget, slots, system.block_size,
        int(instance.policy.chunked_prefill), exact,
        integers(first), integers(kind), integers(size), integers(left),
        floats(out), floats(start), rate, token,
        Coefficients(floats(cost.alpha), floats(cost.beta), *cost[2:]),
    )  # fmt: skip
    return problem, total


def columns(
    instance: Instance, problem: BeamProblem, rules: BeamRules, total: float, upper: float,
    ages: float, pool_ages: float, seed: int,
) -> BeamColumns:  # fmt: skip
    """Columns of a search that stands at its start.

    Parameters
    ----------
    total : float
        Pay for all requests.
    upper : float
        Seconds beyond which no schedule is wanted.
    ages, pool_ages : float
        Classes of tokens made, per type, by which nodes are alike; 0 ignores the pool.
    seed : int
        Shifts the classes.
    """
    import numpy as np

    kinds = len(problem.first)
    rows = rules.ring * rules.width
    # While few are in the pool a fresh one may start; later, all that is held may join the pool.
    pool = rules.pool + problem.slots + 4

    def table(width: int) -> Any:
        return np.zeros((rows, width), dtype=np.int32)

    def zeros(length: int, kind: Any = np.int64) -> Any:
        return np.zeros(length, dtype=kind)

    nodes = BeamNodes(
        held=table(problem.slots + 1), helds=zeros(rows), pool=table(pool), pools=zeros(rows),
        fresh=table(kinds), used=zeros(rows),
        cost=zeros(rows, np.float64), pay=zeros(rows, np.float64),
        debt=zeros(rows, np.float64), value=zeros(rows, np.float64),
        hash=zeros(rows), kept=zeros(rows), log=np.full(rows, NO_KEY, dtype=np.int64),
        filled=zeros(rules.ring), worst=zeros(rules.ring),
    )  # fmt: skip
    nodes.fresh[0] = [len(t.members) for t in instance.types]
    nodes.filled[0] = 1
    log = Log(
        np.zeros(LOG_ENTRIES, dtype=np.int32), np.zeros((LOG_ENTRIES, 3 + 2 * KINDS), dtype=np.int32),
        np.array([0, NO_KEY, 0, LOG_MARGIN]), np.array([upper]), np.zeros(LOG_ENTRIES, dtype=np.int32),
    )  # fmt: skip
    random = np.random.default_rng(0).integers(1, 2**62, len(problem.kind))
    start = problem.first[problem.kind]
    made = np.arange(len(problem.kind)) - start
    outputs = made + problem.left

    def classes(number: float) -> Any:
        width = np.maximum(1, (outputs / number).astype(np.int64))
        return random[start + np.maximum(0, made - seed % width) // width * width]

    pool_salt = np.where(made > 0, classes(pool_ages) ^ 0x5BD1E995, 0) if pool_ages else zeros(len(made))
    scratch = Scratch(zeros(problem.slots + 1), classes(ages), pool_salt, zeros(rules.width))
    move = BeamMove(zeros(2), zeros(KINDS), zeros(KINDS), zeros(6))
    return BeamColumns(problem, rules, nodes, log, move, scratch, total)


def decisions(log: Log) -> Iterator[list[int]]:
    """Moves of the best complete schedule, in order."""
    entries = []
    entry = int(log.state[1])
    while entry >= 0:
        entries.append(entry)
        entry = int(log.parent[entry])
    for entry in reversed(entries):
        yield log.move[entry].tolist()


class _Writer:
    """Applies moves to named requests."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.names = [request.id for request in instance.requests]
        self.size: list[int] = []
        self.left: list[int] = []
        self.fresh: dict[int, list[int]] = {}
        for kind in instance.types:
            self.fresh[len(self.left)] = list(reversed(kind.members))
            self.size.extend(range(kind.input_tokens, kind.input_tokens + kind.output_tokens))
            self.left.extend(range(kind.output_tokens, 0, -1))
        self.held: dict[int, list[int]] = {}
        self.pool: dict[int, list[int]] = {}
        self.batches: list[Batch] = []

    def apply(self, move: list[int]) -> None:
        evicted = []
        for key in move[:2]:
            if key != NO_KEY:
                request = self.held[key].pop()
                evicted.append(self.names[request])
                self.pool.setdefault(key, []).append(request)
        incoming = []
        for key, times in zip(move[2:-1:2], move[3:-1:2], strict=True):
            for _ in range(times):
                source = self.fresh if key in self.fresh else self.pool
                incoming.append((key, source[key].pop()))
        self.run(evicted, incoming, move[-1])

    def run(self, evicted: list[str], incoming: list[tuple[int, int]], ell: int) -> None:
        """Run `ell` batches, prompts first."""
        system = self.instance.system
        missing = [self.size[key] for key, _ in incoming]
        done = 0
        while any(missing):
            alive = sum(len(members) for key, members in self.held.items() if self.left[key] > done)
            prefill, tokens = system.prefill_budget, system.max_batch_tokens - alive
            chunks = {}
            for k, (_, request) in enumerate(incoming):
                chunk = min(missing[k], prefill, tokens)
                if chunk:
                    chunks[self.names[request]] = chunk
                    missing[k] -= chunk
                    prefill -= chunk
                    tokens -= chunk
            self.batches.append(Batch(chunks, tuple(evicted), None, alive > 0))
            evicted = []
            done += 1
        gain = ell if done <= 1 else 1
        if ell > done:
            self.batches.append(Batch({}, tuple(evicted), None, True, ell - done))
        held: dict[int, list[int]] = {}
        for key, members in self.held.items():
            if self.left[key] > ell:
                held[key + ell] = members
        for key, request in incoming:
            if self.left[key] > gain:
                held.setdefault(key + gain, []).append(request)
        self.held = held


def write(instance: Instance, log: Log) -> Schedule:
    """Write the best complete schedule."""
    writer = _Writer(instance)
    for move in decisions(log):
        writer.apply(move)
    return Schedule(instance.name, run_length(writer.batches))
