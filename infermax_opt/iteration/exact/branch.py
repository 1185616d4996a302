r"""The optimum by branching, with a certificate: a tree of prices for each case.

For the ratio of the best batch known, each case of `infermax_opt.iteration.bounds.cases` is searched for a
better one: the relaxation of a node gives prices, which close it or narrow it
(`infermax_opt.iteration.bounds.nodes`), or it is cut in two, first by the number of requests, by their value
and by their blocks on the host, then by the copies of a type.  A better batch raises the ratio.  At the end
the trees of cases that were searched with a lower ratio are made again, so all prove the same one.

Nothing but whole numbers decides; a tree is as good as the checker says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.iteration.bounds._program import Program, Relaxed, exponent_of
from infermax_opt.iteration.bounds.cases import Case, all_cases
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.bounds.nodes import SUMS, Node, Ratio, closed, first_node
from infermax_opt.iteration.bounds.relaxation import LEAF, Tree, evidence_of, seconds_of
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["BRANCHING", "Branched", "branch"]

BRANCHING = "branching"
#: A count this close to a whole number is one.
WHOLE = 1e-6
#: A sum that is larger is not cut: a whole number more or less of it says too little.
LARGE = 2_000


@dataclass(frozen=True)
class Branched:
    """Outcome: the best batch (positions), its proof if it is one, and the nodes looked at."""

    batch: tuple[int, ...]
    lower: LowerBound | None
    nodes: int


class _Better(Exception):
    """A batch that is better than the ratio."""

    def __init__(self, batch: Sequence[int]):
        super().__init__()
        self.batch = tuple(batch)


class _Stopped(Exception):
    """Time is up, or prices are of no use."""


def branch(ticks: Ticks, start: Sequence[int], stop: Callable[[], bool]) -> Branched:
    """Look for the best batch, and prove it.

    Parameters
    ----------
    ticks : Ticks
    start : sequence of int
        A batch that keeps as many savable requests as any.
    stop : callable
        Asked often whether to end.
    """
    search = _Search(ticks, start, stop)
    try:
        trees = search.run()
    except _Stopped:
        return Branched(search.batch, None, search.nodes)
    text = f"{search.nodes} nodes, the prices of each taken exactly"
    evidence = evidence_of(ticks, search.ratio, search.exponent, trees)
    value = seconds_of(ticks, search.ratio)
    return Branched(
        search.batch,
        LowerBound(value, BRANCHING, Proof.CERTIFICATE, evidence=evidence, reason=text),
        search.nodes,
    )


class _Search:
    """One search."""

    def __init__(self, ticks: Ticks, start: Sequence[int], stop: Callable[[], bool]):
        self.ticks, self.stop, self.nodes = ticks, stop, 0
        self.exponent = exponent_of(ticks.all_time)
        self.kept = most_kept(ticks).least
        self.take(start)

    def take(self, batch: Sequence[int]) -> None:
        """Go on from a batch and its ratio."""
        self.batch = tuple(batch)
        worth = self.ticks.worth(batch)
        self.ratio = Ratio(worth, self.ticks.time(batch)) if worth else Ratio(0, 1)

    def run(self) -> list[Tree]:
        """A tree for each case."""
        cases = []
        for case in all_cases(self.ticks, self.kept):
            if self.stop():
                raise _Stopped
            cases.append(case)
        made: dict[int, tuple[Ratio, Tree]] = {}
        while stale := [k for k in range(len(cases)) if k not in made or made[k][0] != self.ratio]:
            for k in stale:
                try:
                    made[k] = self.ratio, self.tree(cases[k])
                except _Better as found:
                    self.take(found.batch)
        return [made[k][1] for k in range(len(cases))]

    def tree(self, case: Case) -> Tree:
        """The tree of a case, each node before what it is cut into."""
        root, tree = first_node(case), Tree()
        if root is None:
            return [[LEAF, 0]]
        program, todo = Program(case, self.ratio, self.exponent), [root]
        while todo:
            if self.stop():
                raise _Stopped
            node = todo.pop()
            self.nodes += 1
            if closed(case, node, self.ratio, self.exponent, ()) is None:
                tree.append([LEAF, 0])
                continue
            found = program.solve(node)
            if found is None:
                raise _Stopped
            left = closed(case, node, self.ratio, self.exponent, found.prices)
            if left is None:
                tree.append([LEAF, 0, *found.prices])
                continue
            self.offer(case, left, found)
            kind, at = _cut(case, left, found)
            tree.append([kind, at, *found.prices])
            todo += [left.cut(kind, at, up=False), left.cut(kind, at, up=True)]
        return tree

    def offer(self, case: Case, node: Node, found: Relaxed) -> None:
        """Raise `_Better` if the solution, rounded, is a better batch."""
        for way in (round, math.floor):
            counts = [
                min(max(way(z + (WHOLE if way is math.floor else 0)), a), b)
                for z, a, b in zip(found.counts, node.low, node.high, strict=True)
            ]
            self.check(case.kinds.positions(counts))
        if node.low == node.high:
            self.check(case.kinds.positions(node.low))

    def check(self, batch: Sequence[int]) -> None:
        """Raise `_Better` if a batch is better."""
        ticks = self.ticks
        worth = ticks.worth(batch)
        better = worth * self.ratio.q > self.ratio.p * ticks.time(batch)
        if better and ticks.fits(batch) and len(ticks.kept(batch)) >= self.kept:
            raise _Better(batch)


def _cut(case: Case, node: Node, found: Relaxed) -> tuple[int, int]:
    """Type, or one of `SUMS`, and the least number of it in the upper part."""
    for kind, each, least, most in zip(SUMS, case.kinds.sums, node.least, node.most, strict=True):
        total = sum(c * n for c, n in zip(each, found.counts, strict=True))
        broken = abs(total - round(total)) > WHOLE and total < LARGE
        if broken and least < math.ceil(total) <= most:
            return kind, math.ceil(total)
    open_ = [t for t, (a, b) in enumerate(zip(node.low, node.high, strict=True)) if a < b]
    if not open_:
        raise _Stopped  # the batch is not better, and prices do not see that: never in practice
    off = {t: abs(found.counts[t] - round(found.counts[t])) for t in open_}
    # One that moves a line far: what is left of the others is small change.
    lines = case.lines(node.low)
    t = max(open_, key=lambda t: (off[t] > WHOLE, off[t] * max(each[t] for _, each in lines)))
    at = math.ceil(found.counts[t]) if off[t] > WHOLE else round(found.counts[t])
    return t, min(max(at, node.low[t] + 1), node.high[t])
