r"""When no batch of a part of a case is better than a ratio: prices, in whole numbers.

A batch is better than p/q (units of value for a tick) if q V - p T > 0.  Let a node be the batches of a
case with low <= z <= high of each type, least <= |z| <= most in all.  With prices y_l >= 0 of the lines with
q Y >= p 2^s, Y = sum y, and a, b, m, k >= 0, all of them whole, and L_l <= T <= tau,

    2^s (q V - p T) <= q (2^s V - sum y_l L_l(z)) + (q Y - p 2^s) tau
                       + q (a (most - |z|) + b (|z| - least) + m (M - blocks(z)) + k (sum of calls - need)).

It is linear in z: U is its largest value over the box.  As q V - p T is whole, a better batch makes it 2^s
or more: with U < 2^s there is none in the node.  Else a type whose reduced price is r is at most (U - 2^s) /
|r| copies away from its better end in a better batch, which narrows the box; where that leaves a single
batch, it is looked at itself.  So floating-point numbers decide nothing: prices may be any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infermax_opt.iteration.bounds.cases import Case, Line

__all__ = ["Node", "Ratio", "closed", "first_node"]


@dataclass(frozen=True)
class Ratio:
    """p units of value for q ticks."""

    p: int
    q: int


@dataclass(frozen=True)
class Node:
    """Batches of a case: copies of each type, and requests in all."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    least: int
    most: int

    def cut(self, kind: int, at: int, up: bool) -> Node:
        """The part with at least `at` of a type (of all requests, if it is -1), or with fewer.

        Parameters
        ----------
        kind : int
        at : int
        up : bool
            Which of the two.
        """
        if kind < 0:
            return (
                replace(self, least=max(self.least, at)) if up else replace(self, most=min(self.most, at - 1))
            )
        side = list(self.low if up else self.high)
        side[kind] = at if up else at - 1
        return replace(self, low=tuple(side)) if up else replace(self, high=tuple(side))


def first_node(case: Case) -> Node | None:
    """All batches of a case; None if there is none."""
    limits = case.limits()
    if limits is None:
        return None
    return Node(tuple(limits[0]), tuple(limits[1]), 1, case.kinds.ticks.machine.batch)


def _empty(case: Case, node: Node, lines: Sequence[Line]) -> bool:
    """Whether limits leave no batch; of decodes in a number that is given, too."""
    kinds, low, high = case.kinds, node.low, node.high
    if any(a > b for a, b in zip(low, high, strict=True)) or node.least > node.most:
        return True
    fixed = max(base for base, _ in lines)
    blocks = sum(kinds.blocks[t] * n for t, n in enumerate(low) if n)
    if fixed > case.tau or blocks > kinds.ticks.machine.blocks:
        return True
    called = sum(high[t] for t in case.calls)
    if called < case.need or sum(low) > node.most or sum(high) < node.least:
        return True
    return case.exactly is not None and not _counted(case, node, case.exactly)


def _counted(case: Case, node: Node, decodes: int) -> bool:
    """Whether there can be so many decodes."""
    own = [t for t, r in enumerate(case.kinds.requests) if not r.prefills]
    return sum(node.low[t] for t in own) <= decodes <= sum(node.high[t] for t in own)


def closed(case: Case, node: Node, ratio: Ratio, exponent: int, prices: Sequence[int]) -> Node | None:
    """None if no batch of the node is better than the ratio; else what is left of it.

    Parameters
    ----------
    case : Case
    node : Node
    ratio : Ratio
    exponent : int
        s.
    prices : sequence of int
        y of each line, then a, b, m, k; empty: what needs none.

    Raises
    ------
    ValueError
        If they are no prices.
    """
    lines = case.lines(node.low)
    if _empty(case, node, lines):
        return None
    if not prices:
        return node
    one, low, high = 1 << exponent, node.low, node.high
    y = prices[:-4]
    if len(y) != len(lines) or min(prices) < 0 or ratio.q * sum(y) < ratio.p * one:
        raise ValueError("these are no prices")
    reduced = _reduced(case, node, lines, prices, one)
    total = ratio.q * _upper(case, node, lines, prices, one) + (ratio.q * sum(y) - ratio.p * one) * case.tau
    total += ratio.q * sum(r * (high[t] - low[t]) for t, r in reduced.items() if r > 0)
    if total < one:
        return None
    left = _narrowed(node, reduced, (total - one) // ratio.q)
    return None if left.low == left.high and not better(case, left, ratio) else left


def _reduced(
    case: Case, node: Node, lines: Sequence[Line], prices: Sequence[int], one: int
) -> dict[int, int]:
    """Reduced prices, over q, of the types of which the number is open."""
    kinds, size = case.kinds, prices[-3] - prices[-4]
    m, k = prices[-2:]
    weighted = [(w, line) for w, (_, line) in zip(prices, lines, strict=False) if w]
    found = {}
    for t, (a, b) in enumerate(zip(node.low, node.high, strict=True)):
        if a < b:
            price = one * kinds.value[t] + size - m * kinds.blocks[t] + (k if t in case.calls else 0)
            for w, line in weighted:
                price -= w * line[t]
            found[t] = price
    return found


def _narrowed(node: Node, reduced: dict[int, int], spare: int) -> Node:
    """The node without the copies whose reduced prices exceed what is to spare."""
    low, high = list(node.low), list(node.high)
    for t, r in reduced.items():
        if (high[t] - low[t]) * abs(r) > spare:
            if r > 0:
                low[t] = high[t] - spare // r
            else:
                high[t] = low[t] + spare // -r
    return replace(node, low=tuple(low), high=tuple(high))


def _upper(case: Case, node: Node, lines: Sequence[Line], prices: Sequence[int], one: int) -> int:
    """What the prices say of the batch `low`, without the part of tau, over q."""
    kinds, some = case.kinds, [(t, n) for t, n in enumerate(node.low) if n]
    *y, a, b, m, k = prices
    size, blocks = sum(n for _, n in some), sum(kinds.blocks[t] * n for t, n in some)
    found = one * sum(kinds.value[t] * n for t, n in some)
    found -= sum(w * base for w, (base, _) in zip(y, lines, strict=True))
    found += a * (node.most - size) + b * (size - node.least)
    called = sum(n for t, n in some if t in case.calls)
    return found + m * (kinds.ticks.machine.blocks - blocks) + k * (called - case.need)


def better(case: Case, node: Node, ratio: Ratio) -> bool:
    """Whether the one batch of a node is in the case and better than the ratio.

    Parameters
    ----------
    case : Case
    node : Node
    ratio : Ratio
    """
    lines = case.lines(node.low)
    if _empty(case, node, lines):
        return False
    value = sum(v * n for v, n in zip(case.kinds.value, node.low, strict=True))
    return ratio.q * value > ratio.p * max(base for base, _ in lines)
