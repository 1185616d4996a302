r"""When no batch of a part of a case is better than a ratio: prices, in whole numbers.

A batch is better than p/q (units of value for a tick) if q V - p T > 0.  Let a node be the batches of a
case with low <= z <= high of each type and least_i <= S_i(z) <= most_i of three sums: the requests, the
value, the blocks that come from the host.  With prices y_l >= 0 of the lines with q Y >= p 2^s, Y = sum y,
and a_i, b_i, m, k >= 0, all of them whole, and L_l <= T <= tau,

    2^s (q V - p T) <= q (2^s V - sum y_l L_l(z)) + (q Y - p 2^s) tau
                       + q (m (M - blocks(z)) + k (sum of calls - need))
                       + q (sum over i of a_i (most_i - S_i(z)) + b_i (S_i(z) - least_i)).

It is linear in z: U is its largest value over the box.  As q V - p T is whole, a better batch makes it 2^s
or more: with U < 2^s there is none in the node.  Else a type whose reduced price is r is at most (U - 2^s) /
|r| copies away from its better end in a better batch, which narrows the box; where that leaves a single
batch, it is looked at itself.  So floating-point numbers decide nothing: prices may be any.

A node is cut in two by a sum or by the copies of a type: less than a whole number, or that at least.  All of
them are whole, so each batch is in one of the parts.  Blocks from the host are worth a cut, as a single one
may take longer than what separates the best batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infermax_opt.iteration.bounds.cases import Case, Line

__all__ = ["PRICES", "SUMS", "Node", "Ratio", "closed", "first_node"]

#: Prices that are of no line.
PRICES = 8
#: What else than a type a cut may be of, in the order of the sums: requests, value, host (-2 is a leaf).
SUMS = -1, -3, -4


@dataclass(frozen=True)
class Ratio:
    """p units of value for q ticks."""

    p: int
    q: int


@dataclass(frozen=True)
class Node:
    """Batches of a case: copies of each type, and the sums of `SUMS`."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]

    def cut(self, kind: int, at: int, up: bool) -> Node:
        """The part with at least `at` of a type or of a sum, or with less.

        Parameters
        ----------
        kind : int
            A type, or one of `SUMS`.
        at : int
        up : bool
            Which of the two.
        """
        if kind < 0:
            i, ends = SUMS.index(kind), list(self.least if up else self.most)
            ends[i] = max(ends[i], at) if up else min(ends[i], at - 1)
            return replace(self, least=tuple(ends)) if up else replace(self, most=tuple(ends))
        side = list(self.low if up else self.high)
        side[kind] = at if up else at - 1
        return replace(self, low=tuple(side)) if up else replace(self, high=tuple(side))


def first_node(case: Case) -> Node | None:
    """All batches of a case; None if there is none."""
    limits = case.limits()
    if limits is None:
        return None
    low, high = limits
    _, *others = (_dot(each, high) for each in case.kinds.sums)
    return Node(tuple(low), tuple(high), (1, 0, 0), (case.kinds.ticks.machine.batch, *others))


def _empty(case: Case, node: Node, lines: Sequence[Line]) -> bool:
    """Whether limits leave no batch; of decodes in a number that is given, too."""
    kinds, low, high = case.kinds, node.low, node.high
    if any(a > b for a, b in zip(low, high, strict=True)):
        return True
    for each, least, most in zip(kinds.sums, node.least, node.most, strict=True):
        if least > most or _dot(each, low) > most or _dot(each, high) < least:
            return True
    fixed = max(base for base, _ in lines)
    blocks = sum(kinds.blocks[t] * n for t, n in enumerate(low) if n)
    if fixed > case.tau or blocks > kinds.ticks.machine.blocks:
        return True
    called = sum(high[t] for t in case.calls)
    if called < case.need:
        return True
    return case.exactly is not None and not _counted(case, node, case.exactly)


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True) if b)


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
        y of each line, a and b of requests, m, k, a and b of the other sums; empty: what needs none.

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
    y = prices[:-PRICES]
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
    kinds, (a, b, m, k, *others) = case.kinds, prices[-PRICES:]
    size, value, host = b - a, one + others[1] - others[0], others[3] - others[2]
    weighted = [(w, line) for w, (_, line) in zip(prices, lines, strict=False) if w]
    found = {}
    for t, (fewest, most) in enumerate(zip(node.low, node.high, strict=True)):
        if fewest < most:
            price = value * kinds.value[t] + size + host * kinds.host[t] - m * kinds.blocks[t]
            price += k if t in case.calls else 0
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
    y, (a, b, m, k, *others) = prices[:-PRICES], prices[-PRICES:]
    blocks = sum(kinds.blocks[t] * n for t, n in some)
    found = one * sum(kinds.value[t] * n for t, n in some)
    found -= sum(w * base for w, (base, _) in zip(y, lines, strict=True))
    pairs = (a, b), others[:2], others[2:]
    for each, least, most, (above, below) in zip(kinds.sums, node.least, node.most, pairs, strict=True):
        total = sum(each[t] * n for t, n in some)
        found += above * (most - total) + below * (total - least)
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
