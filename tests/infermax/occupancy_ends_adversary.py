"""First and last batches of the occupancy graph listed step by step, and the strongest certificates.

Written from *Ends* in the docstring of `infermax_opt.infermax.bounds.occupancy` alone: every batch at the
ends has nodes of its own, prices and distances come from one linear program over all of them, and exact
distances from Bellman and Ford.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import highspy

from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.data.instance import Instance
from tests.infermax.occupancy_adversary import (
    BESIDES,
    EXPONENT,
    LATE,
    PAIRS,
    SIZE,
    TOKEN,
    Edge,
    Graph,
    Node,
    at_most,
    certified,
    distances,
    payments,
    signed,
)

#: When, and where.  -1: between the ends; at the beginning batches done, at the end -2 less those to come.
Stage = tuple[int, Node]
MIDDLE = -1
EMPTY: Node = (0, 0, "P")
#: Kinds of steps that end a batch, and those in which requests return.
BATCHES = ("plain batch", "mixed batch", "pure end")
RETURNS = ("return", "pure return")


@dataclass(frozen=True)
class Step:
    """distance[target] <= distance[source] + cost + sum of coefficients * prices."""

    kind: str
    source: Stage
    target: Stage
    cost: int
    prices: tuple[int, ...]


@dataclass(frozen=True)
class Ends:
    """Batches at both ends, those before anything is looked at, and what each of these costs."""

    first: int
    last: int
    before: int
    least: int


def ends_of(instance: Instance, graph: Graph, first: int = 99, last: int = 99) -> Ends | None:
    """As many batches at the ends as there may be, up to some; None where there are none."""
    outputs = [request.output_tokens for request in instance.requests]
    before = min(min(graph.young, o - 1) for o in outputs)
    area = sum(r.output_tokens * (2 * r.input_tokens + r.output_tokens - 1) // 2 for r in instance.requests)
    batches = max(max(outputs), -(-area // instance.system.kv_capacity))
    last = min(last, min(o - min(graph.young, o - 1) for o in outputs) - 1, batches - before)
    first = min(first, min(outputs) - before, batches - before - last)
    ticks = instance.cost.ticks
    least = ticks.alpha[graph.piece] + min(ticks.d0, ticks.p0)
    return Ends(first, last, before, least) if graph.top == graph.most else None


def limits(graph: Graph, ends: Ends, stage: int) -> tuple[int, int]:
    """Least and largest size of active requests between batches at some stage."""
    if stage >= 0:
        return graph.prompts[0] + 1, graph.prompts[-1] + stage
    return graph.ends[0] - (-2 - stage), graph.ends[-1]


def walk(graph: Graph, ends: Ends) -> Iterator[Step]:
    """All steps from the empty state before the first batch to the one after the last."""
    none = (0,) * graph.columns
    for edge in graph.edges:
        yield Step(kind_of(edge), (MIDDLE, edge.source), (MIDDLE, edge.target), edge.cost, edge.prices)
    empty = [(0, 0)]
    states = empty + [(k, u) for k in range(1, graph.top + 1) for u in range(*span(graph, k))]
    for k, u in states:
        yield Step("enter", (ends.first, (k, u, "P")), (MIDDLE, (k, u, "P")), 0, none)
        yield Step("enter", (MIDDLE, (k, u, "P")), (-2 - ends.last, (k, u, "P")), 0, none)
    stages = [*range(ends.first), *(-2 - left for left in range(ends.last, 0, -1))]
    pure = next(edge.cost for edge in graph.edges if "pure end" in edge.kinds)
    for stage in stages:
        for edge in graph.edges:
            yield from at_stage(graph, ends, stage, edge)
        for k, u in states:
            yield Step("nothing", (stage, (k, u, "P")), (stage + 1, (k, u, "P")), pure, none)
            late = stage < 0 and any("late return" in edge.kinds for edge in graph.edges)
            for layer in "AU" if late else "":
                idle = [0] * graph.columns
                idle[TOKEN], idle[SIZE], idle[PAIRS] = 1, graph.shortest, 1 - k
                yield Step("late", (stage, (k, u + 1, layer)), (stage, (k, u, layer)), 0, tuple(idle))
        yield Step("nothing", (stage, EMPTY), (stage + 1, EMPTY), ends.least, none)
    for edge in graph.edges:
        if kind_of(edge) == "finish":
            yield Step("finish", (-2, edge.source), (-2, edge.target), edge.cost, edge.prices)


def span(graph: Graph, k: int) -> tuple[int, int]:
    first, last = graph.ranges[k]
    return first, last + 1


def kind_of(edge: Edge) -> str:
    """The kind of an edge."""
    return max(edge.kinds)


def at_stage(graph: Graph, ends: Ends, stage: int, edge: Edge) -> Iterator[Step]:
    """The step that an edge is at some stage, if it is one."""
    kind, (least, most) = kind_of(edge), limits(graph, ends, stage)
    size = abs(edge.target[1] - edge.source[1]) - (kind == "pure return")
    size += kind == "late return"
    if kind in ("evict", *LATE, *RETURNS) and not least <= size <= most:
        return
    if kind == "late return" and stage < 0:
        return  # a return and an idle step
    if kind == "late entry" and stage < 0:  # the same, but where there is no room for the return
        idle = list(edge.prices)
        idle[SIZE] -= size - graph.shortest
        idle[PAIRS] -= edge.target[0] - 1
        yield Step("late", (stage, edge.source), (stage, edge.target), edge.cost, tuple(idle))
        return
    if kind == "finish" and stage >= 0:
        return
    if kind in ("admit", "pure admit") and stage < 0:
        return
    target, prices = stage + (kind in BATCHES), list(edge.prices)
    if kind == "evict":  # paid back by its size alone
        prices[PAIRS] = -(edge.source[0] - 1) * (size - graph.shortest)
    yield Step(kind, (stage, edge.source), (target, edge.target), edge.cost, tuple(prices))


def sensible(graph: Graph, ends: Ends, steps: Iterator[Step]) -> list[Step]:
    """Those between states whose requests have the sizes that they may have."""

    def fits(stage: Stage) -> bool:
        at, (k, u, layer) = stage
        if at == MIDDLE:
            return True
        least, most = limits(graph, ends, at)
        least = min(least, graph.prompts[0]) if at >= 0 else least
        grown = 1 if layer == "U" and at >= 0 else 0
        return k * least <= u <= k * (most + grown)

    kept = [step for step in steps if fits(step.source) and fits(step.target)]
    leaving: dict[Stage, list[Stage]] = {}
    for step in kept:
        leaving.setdefault(step.source, []).append(step.target)
    seen, stack = {(0, EMPTY)}, [(0, EMPTY)]
    if not ends.first:
        seen, stack = {(MIDDLE, EMPTY)}, [(MIDDLE, EMPTY)]
    while stack:
        for node in leaving.get(stack.pop(), ()):
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return [step for step in kept if step.source in seen]


def strongest(
    instance: Instance, graph: Graph, ends: Ends, without: str = "none", besides: float = 1e2
) -> dict[str, Any] | None:
    """Certificate of the best prices, as if there were no steps of the kind `without` at the ends."""
    listed = (s for s in walk(graph, ends) if s.kind != without or s.source[0] == MIDDLE)
    steps = sensible(graph, ends, listed)
    start: Stage = (0, EMPTY) if ends.first else (MIDDLE, EMPTY)
    goal: Stage = (-2, EMPTY)
    nodes = sorted({node for step in steps for node in (step.source, step.target)} | {start, goal})
    column = {node: number for number, node in enumerate(nodes, start=graph.columns)}
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for _ in range(graph.columns + len(nodes)):
        solver.addVar(-1e6, 1e6)
    solver.changeColBounds(SIZE, 0, 1e6)
    solver.changeColBounds(PAIRS, 0, 1e6)
    for price, times in enumerate(payments(instance, graph)):
        solver.changeColCost(price, float(times))
        if price >= BESIDES:
            solver.changeColBounds(price, -besides, besides)
    solver.changeColCost(column[goal], 1.0)
    solver.changeColBounds(column[start], 0, 0)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    rows: list[tuple[float, dict[int, int]]] = [(0, {TOKEN: -1, SIZE: -graph.shortest})]
    for step in steps:
        row = {price: -factor for price, factor in enumerate(step.prices) if factor}
        if step.source != step.target:
            row |= {column[step.target]: 1, column[step.source]: -1}
        rows.append((step.cost / graph.fixed, row))
    at_most(solver, rows)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    best = [value * graph.fixed * 2**EXPONENT for value in solver.getSolution().col_value[: graph.columns]]
    for shrink in (1 - 1e-5, 1 - 1e-3):  # rounding must not make a cycle earn
        prices = [math.floor(value * shrink) for value in best]
        prices[SIZE], prices[PAIRS] = max(0, prices[SIZE]), max(0, prices[PAIRS])
        prices[TOKEN] = max(prices[TOKEN], -prices[SIZE] * graph.shortest)
        found = with_ends(instance, graph, ends, prices, steps)
        if found is not None:
            return found
    return None


def with_ends(
    instance: Instance, graph: Graph, ends: Ends, prices: list[int], steps: list[Step]
) -> dict[str, Any] | None:
    """Certificate of these prices with distances along these steps; None where a cycle earns."""
    base = certified(instance, graph, prices)
    if base is None:
        return None
    start: Stage = (0, EMPTY) if ends.first else (MIDDLE, EMPTY)
    arcs = (
        (
            step.source,
            step.target,
            (step.cost << EXPONENT) + sum(f * p for f, p in zip(step.prices, prices, strict=True)),
        )
        for step in steps
    )
    found = distances(start, arcs)
    if found is None or (-2, EMPTY) not in found:
        return None
    before = (ends.before * ends.least) << EXPONENT
    earned = sum(times * price for times, price in zip(payments(instance, graph), prices, strict=True))
    units = earned + found[-2, EMPTY] + before
    ticks = least_work(instance, instance.types, graph.piece) + Fraction(units, 2**EXPONENT)
    proved = ticks / instance.cost.ticks_per_second
    potential = [
        [
            None if (MIDDLE, (k, u, "P")) not in found else found[MIDDLE, (k, u, "P")] + before
            for u in range(first, last + 1)
        ]
        for k, (first, last) in enumerate(graph.ranges)
    ]
    evidence = {**base["evidence"], "potential": potential, "ends": [ends.first, ends.last]}
    return signed({**base, "evidence": evidence, "lower_bound": f"{proved.numerator}/{proved.denominator}"})
