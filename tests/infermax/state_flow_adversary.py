"""The state-flow graph listed step by step, and the strongest certificate that a list admits.

Written from the docstring of `infermax_opt.infermax.bounds.state_flow` alone: states are listed by brute
force, prices and potentials come from one linear program, and exact potentials from Bellman and Ford.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import highspy

from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.data.instance import Instance
from tests.infermax.occupancy_adversary import at_most, distances, signed
from tests.support import certificate_to_json

#: Kinds of steps that a checker might forget.
KINDS = (
    "finish", "evict", "idle", "plain batch", "admit", "another admit", "return", "late return",
    "mixed batch", "enter", "another enter", "enter again", "late entry", "pure batch",
)  # fmt: skip
EXPONENT = 20

State = tuple[tuple[int, int], ...]
#: P: between batches, A: with prefills for a batch in which others decode, U: for one without decodes.
Node = tuple[str, State]
START: Node = ("P", ())


@dataclass(frozen=True)
class Step:
    """potential[target] <= potential[source] + cost + sign * price, a price or none."""

    kind: str
    source: Node
    target: Node
    cost: int
    price: tuple[int, int] | None = None
    sign: int = 0


@dataclass(frozen=True)
class Graph:
    """`kinds`: input, output and number of requests; prices are keyed (kind, n), first tokens by n = 0."""

    piece: int
    kinds: list[tuple[int, int, int]]
    states: list[State]
    steps: list[Step]
    fixed: int


def graph(instance: Instance, piece: int) -> Graph:
    """List all states and steps of an instance."""
    ticks, system = instance.cost.ticks, instance.system
    alpha, beta = ticks.alpha[piece], ticks.beta[piece]
    d0, p0, rho = ticks.d0, ticks.p0, max(0, beta - ticks.d1)
    both = p0 if instance.policy.hybrid_batching else alpha + p0
    preemption, capacity = instance.policy.preemption, system.kv_capacity
    numbers = Counter((r.input_tokens, r.output_tokens) for r in instance.requests)
    kinds = [(i, o, count) for (i, o), count in sorted(numbers.items())]
    most = min(len(instance.requests), capacity // min(i for i, _, _ in kinds))
    most = min(most, system.max_running or most)
    elements = [(k, n) for k, (_, o, _) in enumerate(kinds) for n in range(o + 1)]

    def held(state: State) -> int:
        return sum(kinds[k][0] + n for k, n in state)

    states = [
        state
        for size in range(most + 1)
        for state in itertools.combinations_with_replacement(elements, size)
        if held(state) <= capacity + len(state)
        and all(sum(kind == k for kind, _ in state) <= kinds[k][2] for k, _ in state)
    ]
    known = set(states)
    steps: list[Step] = []

    def add(kind: str, source: Node, target: Node, cost: int, price: Any = None, sign: int = 0) -> None:
        if target[1] in known:
            steps.append(Step(kind, source, target, cost, price, sign))

    for state in states:
        here = ("P", state)
        for k, n in sorted(set(state)):
            rest = list(state)
            rest.remove((k, n))
            without = ("P", tuple(rest))
            if n == kinds[k][1]:
                add("finish", here, without, 0)
            elif n >= 1:
                add("idle", here, ("P", tuple(sorted([*rest, (k, n - 1)]))), 0)
                if preemption:
                    add("evict", here, without, 0, (k, n), 1)
        for k, (i, o, _) in enumerate(kinds):
            for layer, kind in (("P", ""), ("A", "another ")):
                target = ("A", tuple(sorted([*state, (k, 0)])))
                add(f"{kind}admit", (layer, state), target, 0, (k, 0), -1)
            for layer, kind in (("P", ""), ("U", "another ")):
                target = ("U", tuple(sorted([*state, (k, 1)])))
                add(f"{kind}enter", (layer, state), target, 0, (k, 0), -1)
            comes = [("return", "A", 0), ("enter again", "U", 1)]
            if instance.policy.chunked_prefill:
                comes += [("late return", "A", -1), ("late entry", "U", 0)]
            for n, (kind, batch, more) in itertools.product(range(1, o if preemption else 0), comes):
                target = (batch, tuple(sorted([*state, (k, n + more)])))
                for layer in ("P", batch):
                    add(kind, (layer, state), target, rho * (i + n - 1), (k, n), -1)
        if state and held(state) <= capacity and all(n < kinds[k][1] for k, n in state):
            grown = ("P", tuple((k, n + 1) for k, n in state))
            add("plain batch", here, grown, alpha + d0)
            add("mixed batch", ("A", state), grown, alpha + d0 + both)
        add("pure batch", ("U", state), here, alpha + p0)
    return Graph(piece, kinds, states, steps, max(1, alpha + d0 + both))


def reachable(steps: list[Step]) -> list[Step]:
    """Those whose source is reached from the empty state."""
    leaving: dict[Node, list[Node]] = {}
    for step in steps:
        leaving.setdefault(step.source, []).append(step.target)
    seen, stack = {START}, [START]
    while stack:
        for node in leaving.get(stack.pop(), ()):
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return [step for step in steps if step.source in seen]


def lacking(listed: Graph, kind: str) -> Graph:
    """The graph without one kind of step."""
    return replace(listed, steps=[step for step in listed.steps if step.kind != kind])


def strongest(instance: Instance, listed: Graph, most: float = 1e3) -> dict[str, Any] | None:
    """Certificate of the best prices, each at most so many batches."""
    steps = reachable(listed.steps)
    nodes = sorted({node for step in steps for node in (step.source, step.target)} | {START})
    prices = [(k, n) for k, (_, o, _) in enumerate(listed.kinds) for n in range(o)]
    column: dict[Any, int] = {key: index for index, key in enumerate([*prices, *nodes])}
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for key in column:
        limit = most if key in prices else 1e7
        solver.addVar(-limit, limit)
    for k, (_, _, count) in enumerate(listed.kinds):
        solver.changeColCost(column[k, 0], float(count))
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    rows: list[tuple[float, dict[int, int]]] = []
    for step in steps:
        row = {column[step.target]: 1, column[step.source]: -1} if step.source != step.target else {}
        if step.price is not None:
            row[column[step.price]] = -step.sign
        rows.append((step.cost / listed.fixed, row))
    at_most(solver, rows)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    values = solver.getSolution().col_value
    for shrink in (1 - 1e-5, 1 - 1e-3):  # rounding must not make a cycle earn
        scale = listed.fixed * 2**EXPONENT * shrink
        found = certified(instance, listed, {key: math.floor(values[column[key]] * scale) for key in prices})
        if found is not None:
            return found
    return None


def certified(
    instance: Instance, listed: Graph, prices: dict[tuple[int, int], int], start: Node = START
) -> dict[str, Any] | None:
    """Certificate of these prices with distances from `start` as potentials; None where a cycle earns."""
    steps = reachable(listed.steps)
    weights = [
        (step.cost << EXPONENT) + (step.sign * prices[step.price] if step.price else 0) for step in steps
    ]
    arcs = ((step.source, step.target, weight) for step, weight in zip(steps, weights, strict=True))
    distance = distances(start, arcs)
    if distance is None:
        return None
    earned = sum(count * prices[k, 0] for k, (_, _, count) in enumerate(listed.kinds))
    ticks = least_work(instance, instance.types, listed.piece)
    proved = (ticks + Fraction(earned, 2**EXPONENT)) / instance.cost.ticks_per_second
    first = [prices[k, 0] for k in range(len(listed.kinds))]
    evidence = {
        "kind": "state-flow",
        "piece": listed.piece,
        "exponent": EXPONENT,
        "prices": {
            "first": first,
            "out": [[prices[k, n] for n in range(1, o)] for k, (_, o, _) in enumerate(listed.kinds)],
        },
        "potential": [distance.get(("P", state)) for state in listed.states],
    }
    base = certificate_to_json(instance, closed_form_bounds(instance)[0])
    text = f"{proved.numerator}/{proved.denominator}"
    return signed({**base, "evidence": evidence, "source": "adversary", "lower_bound": text})
