"""The occupancy graph listed edge by edge, and the strongest certificate that a list admits.

Written from the docstring of `infermax_opt.infermax.bounds.occupancy` alone: the edges are told one by one,
the prices come from a linear program, the potentials from Bellman and Ford.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import highspy
import numpy as np

from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.checker import check
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance
from tests.support import certificate_to_json

#: Steps that occur with any last list, and those of a last list that stands for several numbers.
BASIC_KINDS = (
    "return", "late return", "pure return", "late entry", "admit", "pure admit", "pure end", "idle",
    "plain batch", "mixed batch", "finish", "evict",
)  # fmt: skip
#: Those that only matter where memory is short of one token.
LATE = ("late return", "late entry")
WIDE_KINDS = ("again", "growth", "beyond")
KINDS = BASIC_KINDS + WIDE_KINDS

#: Active requests, tokens, and P: between batches, R: in a batch of decodes, with who turns up by one,
#: A: in a batch with decodes and prefills, U: in a batch with prefills and no decode.
Node = tuple[int, int, str]
#: Prices, what the last list's batches earn for their number of requests, and the price of pairs.  Then come
#: those of first tokens, by size of the prompt, and of finishes, by size of the request.
TOKEN, SIZE, OUT_FIXED, OUT_SIZE, EARNED, PAIRS, BESIDES = range(7)
EXPONENT = 20


@dataclass(frozen=True)
class Edge:
    """potential[target] <= potential[source] + cost + sum of coefficients * prices."""

    kinds: frozenset[str]
    source: Node
    target: Node
    cost: int
    prices: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    piece: int
    edges: list[Edge]
    prompts: list[int]
    ends: list[int]
    ranges: list[tuple[int, int]]
    top: int
    most: int
    shortest: int
    fixed: int
    young: int

    @property
    def columns(self) -> int:
        """Number of prices."""
        return BESIDES + len(self.prompts) + len(self.ends)


def edges(instance: Instance, piece: int, top: int, young: int = 0) -> Graph:
    """List the graph whose last list is `top`, or the largest number of active requests.

    `young`: first tokens of each request that are left out.
    """
    ticks, system, kinds = instance.cost.ticks, instance.system, instance.types
    alpha, beta = ticks.alpha[piece], ticks.beta[piece]
    prompts = sorted({kind.input_tokens + min(young, kind.output_tokens - 1) for kind in kinds})
    ends = sorted({kind.input_tokens + kind.output_tokens for kind in kinds})
    shortest, longest, capacity = prompts[0], ends[-1] - 1, system.kv_capacity
    most = min(len(instance.requests), capacity // shortest, system.max_running or capacity)
    top = min(top, most)
    preemption = instance.policy.preemption
    plain, pure = alpha + ticks.d0, alpha + ticks.p0
    mixed = plain + (ticks.p0 if instance.policy.hybrid_batching else pure)
    joined, decodes = ("R", "PR") if young > 0 else ("A", "P")
    rho = max(0, beta - ticks.d1)
    sizes = range(shortest + 1, longest + 1) if preemption else range(0)
    ranges = [(k * shortest, min(k * max(ends), capacity + k)) for k in range(top + 1)]
    if top < most:
        ranges[top] = (top * shortest, capacity + most)
    found: list[Edge] = []

    def add(
        kind: str,
        source: Node,
        target: Node,
        cost: int,
        *prices: int,
        also: str = "",
        pays: int | None = None,
    ) -> None:
        inside = all(ranges[k][0] <= u <= ranges[k][1] for k, u, _ in (source, target))
        if inside and not (source[0] == 0 and source[2] != "P"):
            filled = [*prices, *[0] * (BESIDES + len(prompts) + len(ends) - len(prices))]
            if pays is not None:
                filled[BESIDES + pays] = -1
            found.append(Edge(frozenset({kind, also}), source, target, cost, tuple(filled)))

    for k in range(1, top + 1):
        several = k == top < most
        others = (most if several else k) - 1
        for below in (k - 1, k) if several else (k - 1,):
            also = "again" if below == k else ""
            for u in range(ranges[below][0], ranges[below][1] + 1):
                for s in sizes:
                    back = rho * (s - 1)
                    for layer in f"{decodes}A":
                        add("return", (below, u, layer), (k, u + s, "A"), back, 0, 0, -1, -s, also=also)
                    for layer in "PU":
                        target = (k, u + s + 1, "U")
                        add("pure return", (below, u, layer), target, back, -1, -s, -1, -s, also=also)
                    for layer in f"{decodes}A" if instance.policy.chunked_prefill else "":
                        target = (k, u + s - 1, "A")
                        add("late return", (below, u, layer), target, back, 1, s - 1, -1, -s, also=also)
                    for layer in "PU" if instance.policy.chunked_prefill else "":
                        add("late entry", (below, u, layer), (k, u + s, "U"), back, 0, 0, -1, -s, also=also)
                for index, i in enumerate(prompts):
                    for layer in ("P", joined):
                        add("admit", (below, u, layer), (k, u + i, joined), 0, also=also, pays=index)
                    for layer in "PU":
                        target = (k, u + i + 1, "U")
                        add("pure admit", (below, u, layer), target, 0, -1, -i, also=also, pays=index)
            for u in range(ranges[k][0], ranges[k][1] + 1):
                for index, end in enumerate(ends, start=len(prompts)):
                    back = -min(u - end - below * shortest, others * (end - shortest))
                    target = (below, u - end, "P")
                    add("finish", (k, u, "P"), target, 0, 0, 0, 0, 0, 0, back, also=also, pays=index)
                for s in sizes:
                    back = -min(u - s - below * shortest, others * (s - shortest))
                    add("evict", (k, u, "P"), (below, u - s, "P"), 0, 0, 0, 1, s, 0, back, also=also)
        for u in range(ranges[k][0], ranges[k][1] + 1):
            add("pure end", (k, u, "U"), (k, u, "P"), pure)
            add("idle", (k, u, "P"), (k, u - 1, "P"), 0, 1, shortest, 0, 0, 0, -others)
            # The checker allows the last list any growth, not only by 1 for each active request.
            for grow in range(k, ranges[k][1] - u + 1) if several else (k,):
                also = "" if grow == k else "growth" if u + grow <= capacity + k else "beyond"
                together = k * (k - 1) // 2
                earn = (0, -u, 0, 0, -1, together) if several else (-k, -u, 0, 0, 0, together)
                if u <= capacity:
                    for layer in decodes:
                        add("plain batch", (k, u, layer), (k, u + grow, "P"), plain, *earn, also=also)
                    add("mixed batch", (k, u, "A"), (k, u + grow, "P"), mixed, *earn, also=also)
    fixed = max(1, alpha + ticks.d0 + ticks.p0 + (0 if instance.policy.hybrid_batching else alpha))
    return Graph(piece, found, prompts, ends, ranges, top, most, shortest, fixed, young)


def strongest(
    instance: Instance,
    graph: Graph,
    without: str = "none",
    besides: float = 1e3,
    pairs: tuple[float, float] = (0.0, 1e7),
) -> dict[str, Any] | None:
    """Certificate of the best prices, as if there were no edges of the kind `without`.

    `besides`: most that a first token or a finish earns or pays besides, in batches; `pairs`: least and
    most that a pair costs.
    """
    steps = reachable([edge for edge in graph.edges if without not in edge.kinds])
    nodes = sorted({node for edge in steps for node in (edge.source, edge.target)} | {(0, 0, "P")})
    column = {node: number for number, node in enumerate(nodes, start=graph.columns)}
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for _ in range(graph.columns + len(nodes)):
        solver.addVar(-1e7, 1e7)
    solver.changeColBounds(SIZE, 0, 1e7)
    solver.changeColBounds(PAIRS, *pairs)
    for price, times in enumerate(payments(instance, graph)):
        solver.changeColCost(price, float(times))
        if price >= BESIDES:
            # Potentials can balance some of these, so that nothing else would limit them.
            solver.changeColBounds(price, -besides, besides)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)

    rows: list[tuple[float, dict[int, int]]] = [
        (0, {TOKEN: -1, SIZE: -graph.shortest}),
        (0, {TOKEN: graph.top, EARNED: -1}),
        (0, {TOKEN: graph.most, EARNED: -1}),
    ]
    for edge in steps:
        row = {price: -factor for price, factor in enumerate(edge.prices) if factor}
        if edge.source != edge.target:
            row |= {column[edge.target]: 1, column[edge.source]: -1}
        rows.append((edge.cost / graph.fixed, row))
    at_most(solver, rows)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    best = [value * graph.fixed * 2**EXPONENT for value in solver.getSolution().col_value[: graph.columns]]
    for shrink in (1 - 1e-5, 1 - 1e-3):  # rounding must not make a cycle earn
        prices = [math.floor(value * shrink) for value in best]
        prices[SIZE], prices[PAIRS] = max(0, prices[SIZE]), max(0, prices[PAIRS])
        prices[TOKEN] = max(prices[TOKEN], -prices[SIZE] * graph.shortest)
        certificate = certified(instance, graph, prices, without)
        if certificate is not None:
            return certificate
    return None


def at_most(solver: highspy.Highs, rows: Sequence[tuple[float, Mapping[int, int]]]) -> None:
    """Add rows, each with the most that it may be and its factors by column."""
    sizes = [len(row) for _, row in rows]
    solver.addRows(
        len(rows),
        np.full(len(rows), -highspy.kHighsInf),
        np.array([limit for limit, _ in rows], dtype=float),
        sum(sizes),
        np.array([0, *itertools.accumulate(sizes)][:-1], dtype=np.int32),
        np.array([index for _, row in rows for index in row], dtype=np.int32),
        np.array([factor for _, row in rows for factor in row.values()], dtype=float),
    )


def distances(start: Any, arcs: Iterable[tuple[Any, Any, int]]) -> dict[Any, int] | None:
    """Least cost from `start` to each node that is reached; None where a cycle earns."""
    number = {start: 0}
    listed = [
        (number.setdefault(a, len(number)), number.setdefault(b, len(number)), weight)
        for a, b, weight in arcs
    ]
    found: list[Any] = [0] + [None] * (len(number) - 1)
    for _ in range(len(number) + 1):
        changed = False
        for a, b, weight in listed:
            if found[a] is not None:
                value, known = found[a] + weight, found[b]
                if known is None or value < known:
                    found[b], changed = value, True
        if found[0] < 0:
            return None
        if not changed:
            return {node: found[k] for node, k in number.items() if found[k] is not None}
    return None


def reachable(steps: list[Edge]) -> list[Edge]:
    """Those whose source is reached from the empty state."""
    leaving: dict[Node, list[Node]] = {}
    for edge in steps:
        leaving.setdefault(edge.source, []).append(edge.target)
    seen, stack = {(0, 0, "P")}, [(0, 0, "P")]
    while stack:
        for node in leaving.get(stack.pop(), ()):
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return [edge for edge in steps if edge.source in seen]


def certified(
    instance: Instance, graph: Graph, prices: list[int], without: str = "none", start: Node = (0, 0, "P")
) -> dict[str, Any] | None:
    """Certificate of these prices with distances from `start` as potentials; None where a cycle earns.

    What the last list's batches earn for their number of requests is set here.
    """
    steps = reachable([edge for edge in graph.edges if without not in edge.kinds])
    paid = list(prices)
    paid[EARNED] = max(paid[TOKEN] * graph.top, paid[TOKEN] * graph.most)
    weights = [
        (edge.cost << EXPONENT) + sum(f * p for f, p in zip(edge.prices, paid, strict=True)) for edge in steps
    ]
    arcs = ((edge.source, edge.target, weight) for edge, weight in zip(steps, weights, strict=True))
    distance = distances(start, arcs)
    if distance is None:
        return None
    ticks = least_work(instance, instance.types, graph.piece)
    earned = sum(times * price for times, price in zip(payments(instance, graph), paid, strict=True))
    proved = (ticks + Fraction(earned, 2**EXPONENT)) / instance.cost.ticks_per_second
    split = BESIDES + len(graph.prompts)
    evidence = {
        "kind": "occupancy",
        "piece": graph.piece,
        "exponent": EXPONENT,
        "young": graph.young,
        "prices": {
            "token": paid[TOKEN],
            "size": paid[SIZE],
            "out_fixed": paid[OUT_FIXED],
            "out_size": paid[OUT_SIZE],
            "pairs": paid[PAIRS],
            "first": paid[BESIDES:split],
            "finish": paid[split:],
        },
        "potential": [
            [distance.get((k, u, "P")) for u in range(first, last + 1)]
            for k, (first, last) in enumerate(graph.ranges)
        ],
    }
    base = certificate_to_json(instance, closed_form_bounds(instance)[0])
    text = f"{proved.numerator}/{proved.denominator}"
    return signed({**base, "evidence": evidence, "source": "adversary", "lower_bound": text})


def payments(instance: Instance, graph: Graph) -> list[int]:
    """How often all requests earn each price: for each token that is not left out, start and finish."""
    times = [0] * graph.columns
    for request in instance.requests:
        i, o = request.input_tokens, request.output_tokens
        left_out = min(graph.young, o - 1)
        for n in range(left_out, o):
            times[TOKEN] += 1
            times[SIZE] += i + n
        times[BESIDES + graph.prompts.index(i + left_out)] += 1
        times[BESIDES + len(graph.prompts) + graph.ends.index(i + o)] += 1
    return times


def signed(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate with the hash that belongs to it."""
    body = {key: value for key, value in certificate.items() if key != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return {**body, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def submitted(instance: Instance, certificate: dict[str, Any]) -> Fraction:
    """What the checker says of a certificate, as if it came from a file."""
    given = {**instance_to_json(instance), "cost": cost_to_json(instance.cost)}
    return check(*(json.loads(json.dumps(some, default=str)) for some in (given, certificate)))
