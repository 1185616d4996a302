"""Proof: the tree of a case, each leaf closed by prices."""

from __future__ import annotations

from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.iteration.checker.cases import Case

#: How an entry of a tree says that it is a leaf.
LEAF = -2
#: How it says that it cuts a sum over the batch: requests, value, blocks from the host.
SUMS = (-1, -3, -4)


class Node(NamedTuple):
    """Fewest and most of each type, and least and most of each sum."""

    low: list[int]
    high: list[int]
    least: list[int]
    most: list[int]


class Tree:
    """The tree of a case: each entry is [cut, at, prices ...], before those of the two parts."""

    def __init__(self, case: Case, value: int, ticks: int, one: int, entries: Field):
        self.case, self.p, self.q, self.one, self.entries = case, value, ticks, one, entries.items()
        self.kinds, self.instance = case.kinds, case.kinds.instance
        #: What each type adds to the sums.
        self.adds = [1] * len(self.kinds.loads), self.kinds.values, [load[6] for load in self.kinds.loads]
        self.instance.work.spend(20 * len(self.kinds.loads))
        self.alike = [] if self.instance.product else self.separable()

    def check(self, idle_out: bool) -> None:
        """Reject unless no batch of the case is better than p / q.

        Parameters
        ----------
        idle_out : bool
            Whether the tree is of batches without requests that have no value and are no calls.
        """
        root, at = self.root(idle_out), 0
        todo = [] if root is None else [root]
        while todo:
            require(at < len(self.entries), "a tree ends too early")
            entry = self.entries[at]
            at += 1
            node = todo.pop()
            kind, cut, *prices = entry.integers()
            self.instance.work.spend(40 + 14 * len(node.low))
            left = self._left(node, prices, entry)
            if kind == LEAF:
                require(left is None, f"{entry.path}: the prices do not close the node")
            elif left is None:
                entry.fail("is cut, and closed already")
            else:
                todo += self.parts(left, kind, cut, entry)
        if root is None:
            require(all(entry.value == [LEAF, 0] for entry in self.entries), "a tree has no root")
            at = len(self.entries)
        require(at == len(self.entries), "a tree has entries beyond its end")

    def root(self, idle_out: bool) -> Node | None:
        """The batches of the case that decide; None if there is none.

        Requests without a value that are no calls may stay out: without them a batch takes no more time, and
        its value and its calls are the same ones.

        Parameters
        ----------
        idle_out : bool
            Whether they do.
        """
        case, copies = self.case, self.kinds.copies
        high = [n if self._may(t, idle_out) else 0 for t, n in enumerate(copies)]
        low = [0] * len(high)
        if case.need and sum(copies[t] for t in case.calls) == case.need:
            for t in case.calls:
                low[t] = copies[t]
        bad = any(a > b for a, b in zip(low, high, strict=True))
        value, host = (_dot(each, high) for each in self.adds[1:])
        return None if bad else Node(low, high, [1, 0, 0], [self.instance.batch, value, host])

    def _may(self, t: int, idle_out: bool) -> bool:
        """Whether requests of a type may be in a batch of the tree."""
        case = self.case
        able = case.prefills if self.kinds.requests[t].prefills else case.decodes
        return able and (not idle_out or self.kinds.values[t] > 0 or t in case.calls)

    def parts(self, node: Node, kind: int, at: int, entry: Field) -> list[Node]:
        """The part with fewer than `at` of a type, and the one with as many or more.

        Parameters
        ----------
        node : Node
        kind : int
            The type, or one of `SUMS`.
        at : int
        entry : Field
            That says so.
        """
        low, high, least, most = node
        if kind in SUMS:
            i, less, more = SUMS.index(kind), list(most), list(least)
            less[i], more[i] = min(most[i], at - 1), max(least[i], at)
            return [Node(low, high, least, less), Node(low, high, more, most)]
        if not 0 <= kind < len(low) or not low[kind] < at <= high[kind]:
            entry.fail("cuts nothing")
        fewer, more = list(high), list(low)
        fewer[kind], more[kind] = at - 1, at
        return [Node(low, fewer, least, most), Node(more, high, least, most)]

    def lines(self, low: list[int]) -> list[tuple[int, list[int]]]:
        """Ticks of `low` of each type and of one more of each, no more than the true ones for any batch."""
        instance, loads = self.instance, self.kinds.loads
        if not instance.product:
            return [
                (base + sum(each[t] * n for t, n in enumerate(low) if n), each) for base, each in self.alike
            ]
        p1, d, fixed = instance.prefill[1], self.case.exactly or 0, self.fixed()
        each_read = instance.decode[1] + (instance.mixed[1] if self.case.prefills else 0)
        sums = [sum(load[c] * n for load, n in zip(loads, low, strict=True) if n) for c in range(7)]
        n0, a0 = sums[4], sums[5]
        self.instance.work.spend(10 * len(loads))
        more = [each_read * d * x[2] + p1 * (n0 * x[5] + a0 * x[4] + x[4] * x[5]) for x in loads]
        base = fixed + each_read * d * sums[2] + p1 * n0 * a0
        found = [
            (
                alpha + beta * sums[0] + base,
                [beta * x[0] + extra for x, extra in zip(loads, more, strict=True)],
            )
            for alpha, beta in instance.pieces
        ]
        if instance.swap:
            found.append(
                (instance.swap[0] + instance.swap[1] * sums[6], [instance.swap[1] * x[6] for x in loads])
            )
        return found

    def fixed(self) -> int:
        """Ticks that the phases of the case take in any batch."""
        case, instance = self.case, self.instance
        both = instance.mixed[0] if case.decodes and case.prefills else 0
        return (
            both + (instance.decode[0] if case.decodes else 0) + (instance.prefill[0] if case.prefills else 0)
        )

    def separable(self) -> list[tuple[int, list[int]]]:
        """Lines of work that adds up."""
        case, instance, loads = self.case, self.instance, self.kinds.loads
        mixed = instance.mixed[1] if case.decodes and case.prefills else 0
        read, work, fixed = instance.decode[1] + mixed, instance.prefill[1], self.fixed()
        found = [
            (alpha + fixed, [beta * x[0] + read * x[2] + work * x[4] for x in loads])
            for alpha, beta in instance.pieces
        ]
        if instance.swap:
            found.append((instance.swap[0], [instance.swap[1] * x[6] for x in loads]))
        return found

    def empty(self, node: Node, lines: list[tuple[int, list[int]]]) -> bool:
        """Whether limits leave no batch."""
        case, (low, high, least, most) = self.case, node
        if any(a > b for a, b in zip(low, high, strict=True)):
            return True
        for each, fewest, largest in zip(self.adds, least, most, strict=True):
            if fewest > largest or _dot(each, low) > largest or _dot(each, high) < fewest:
                return True
        if max(base for base, _ in lines) > case.tau:
            return True
        blocks = sum(self.kinds.requests[t].blocks * n for t, n in enumerate(low) if n)
        if blocks > self.instance.blocks or sum(high[t] for t in case.calls) < case.need:
            return True
        return case.exactly is not None and not self.counted(node, case.exactly)

    def counted(self, node: Node, decodes: int) -> bool:
        """Whether there can be so many decodes."""
        own = [t for t, r in enumerate(self.kinds.requests) if not r.prefills]
        return sum(node.low[t] for t in own) <= decodes <= sum(node.high[t] for t in own)

    def _left(self, node: Node, prices: list[int], entry: Field) -> Node | None:
        """What the prices leave of a node; None if there is no better batch in it."""
        lines = self.lines(node.low)
        if self.empty(node, lines):
            return None
        if len(prices) == len(lines) + 4:
            prices = [*prices, 0, 0, 0, 0]  # without those of value and host
        if len(prices) != len(lines) + 8 or min(prices) < 0:
            entry.fail("holds no prices")
        over = self.q * sum(prices[: len(lines)]) - self.p * self.one
        if over < 0:
            entry.fail("holds prices of lines that are too small")
        reduced = self._reduced(node, lines, prices)
        total = self.q * self._of_low(node, lines, prices) + over * self.case.tau
        total += self.q * sum(r * (node.high[t] - node.low[t]) for t, r in reduced.items() if r > 0)
        return None if total < self.one else self._narrowed(node, reduced, (total - self.one) // self.q)

    def _of_low(self, node: Node, lines: list[tuple[int, list[int]]], prices: list[int]) -> int:
        """What the prices say of the batch with the fewest of each type, over q."""
        case, kinds, low = self.case, self.kinds, node.low
        a, b, m, k, *others = prices[len(lines) :]
        some = [(t, n) for t, n in enumerate(low) if n]
        found, pairs = self.one * _dot(kinds.values, low), ((a, b), others[:2], others[2:])
        for each, least, most, (above, below) in zip(self.adds, node.least, node.most, pairs, strict=True):
            total = _dot(each, low)
            found += above * (most - total) + below * (total - least)
        found += m * (self.instance.blocks - sum(kinds.requests[t].blocks * n for t, n in some))
        found += k * (sum(n for t, n in some if t in case.calls) - case.need)
        return found - sum(w * fixed for w, (fixed, _) in zip(prices, lines, strict=False))

    def _reduced(self, node: Node, lines: list[tuple[int, list[int]]], prices: list[int]) -> dict[int, int]:
        """Reduced prices, over q, of the types of which the number is open."""
        case, kinds, (a, b, m, k, *others) = self.case, self.kinds, prices[len(lines) :]
        value, host = self.one + others[1] - others[0], others[3] - others[2]
        open_ = [t for t, (low, high) in enumerate(zip(node.low, node.high, strict=True)) if low < high]
        self.instance.work.spend(10 + (8 + 3 * len(lines)) * len(open_))
        found = {}
        for t in open_:
            price = value * kinds.values[t] + host * kinds.loads[t][6]
            price += b - a - m * kinds.requests[t].blocks
            price += k if t in case.calls else 0
            for w, (_, each) in zip(prices, lines, strict=False):
                price -= w * each[t]
            found[t] = price
        return found

    def _narrowed(self, node: Node, reduced: dict[int, int], spare: int) -> Node | None:
        """The node without the copies whose reduced prices exceed what is to spare."""
        low, high = list(node.low), list(node.high)
        for t, r in reduced.items():
            if (high[t] - low[t]) * abs(r) > spare:
                if r > 0:
                    low[t] = high[t] - spare // r
                else:
                    high[t] = low[t] + spare // -r
        left = node._replace(low=low, high=high)
        if low != high:
            return left
        lines = self.lines(low)
        if self.empty(left, lines):
            return None
        value = sum(v * n for v, n in zip(self.kinds.values, low, strict=True))
        return left if self.q * value > self.p * max(base for base, _ in lines) else None


def _dot(left: list[int], right: list[int]) -> int:
    return sum(a * n for a, n in zip(left, right, strict=True) if n)
