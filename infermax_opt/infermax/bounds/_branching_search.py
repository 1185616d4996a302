"""The search of `infermax_opt.infermax.bounds.branching`: the weakest node is branched first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infermax_opt.infermax.bounds._branching_program import CountProgram
from infermax_opt.infermax.bounds._branching_proof import (
    DECODES,
    FIRST,
    LATE,
    MOVES,
    PREFILLS,
    RETURN,
    Box,
    Counted,
    Prices,
    Split,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["BranchingSearch", "Node", "Tree"]

#: Batches, and these times output tokens, beyond which no program is solved.
MAX_BATCHES, MAX_CELLS = 512, 4_200
#: Steps of the checker for a leaf: of a batch and a token in it, of a batch, of these in a box; in all.
CELL_STEPS, BATCH_STEPS, BOX_STEPS, MAX_STEPS = 40, 60, 8, 50_000_000
#: Share of the batches that the next tree may have more.
FURTHER = 16
#: Branchings after which a search ends that has not passed the bound that is known: those that do need few.
PATIENCE = 3
#: What counts as whole; gains below this share of a batch count as none when branchings are compared.
WHOLE, LEAST_GAIN = 1e-5, 1e-3

Stop = Callable[[], bool]


@dataclass
class Node:
    """Splits from the root, what prices prove under them, and the two sides if it was branched."""

    splits: tuple[Split, ...]
    prices: Prices
    value: int
    columns: Floats | None
    sides: tuple[Node, Node] | None = None


@dataclass
class Tree:
    """The root of a number of batches, which bounds the numbers from `least` on, too."""

    least: int
    program: CountProgram
    root: Node

    @property
    def batches(self) -> int:
        """The number of batches of its schedules."""
        return self.program.batches

    def nodes(self) -> Iterator[Node]:
        """All nodes, each branching before its sides, that with less in the box first."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack += (node.sides or ())[::-1]

    def leaves(self) -> Iterator[Node]:
        """Those that were not branched."""
        return (node for node in self.nodes() if node.sides is None)


class BranchingSearch:
    """Trees of some numbers of batches, and what they prove of all.

    Parameters
    ----------
    counted : Counted
    above : int
        Units of alpha, presence and refills in a bound that is known.
    stop : callable
        Asked often whether to search no longer.
    """

    def __init__(self, counted: Counted, above: int, stop: Stop):
        self.counted, self.above, self.stop = counted, above, stop
        self.trees: list[Tree] = []
        self.queue: list[tuple[int, int, Tree, Node]] = []
        self.steps = self.pushed = self.branched = 0
        self.reach(above // (counted.alpha + counted.presence) + 1)

    def reach(self, batches: int) -> bool:
        """Have a tree of so many batches behind the others; False where there is none."""
        least = self.trees[-1].batches + 1 if self.trees else self.counted.outputs
        tree = self._tree(least, max(least, batches))
        if tree is not None:
            self.trees.append(tree)
            self._push(tree, tree.root)
        return tree is not None

    def _tree(self, least: int, batches: int) -> Tree | None:
        if batches * self.counted.outputs > MAX_CELLS or batches > MAX_BATCHES:
            return None
        program = CountProgram(self.counted, batches, self.stop)
        root = self._solved(program, (), None)
        return None if root is None else Tree(least, program, root)

    def _solved(self, program: CountProgram, splits: tuple[Split, ...], parent: Node | None) -> Node | None:
        """The node of some splits; None where the search was stopped."""
        if self.stop():
            return None
        found = program.solve(splits)
        if found is None:
            return None
        value = self.counted.value(found.prices, splits)
        node = Node(splits, found.prices, value, found.columns[: len(program.columns)])
        if parent is not None and parent.value > value:  # by rounding
            node.prices, node.value = extended(parent.prices), parent.value
        return node

    def worth(self, tree: Tree, node: Node) -> int:
        """Units of alpha, presence and refills that a node proves for the batches of its tree."""
        saved = tree.batches - tree.least
        return tree.least * self.counted.alpha + node.value - saved * self.counted.presence

    @property
    def beyond(self) -> int:
        """Units that more batches than those of all trees cost."""
        last = self.trees[-1].batches if self.trees else self.counted.outputs - 1
        return (last + 1) * (self.counted.alpha + self.counted.presence)

    @property
    def proved(self) -> int:
        """Units of alpha, presence and refills that all prove together."""
        return min([self.beyond, *(self.worth(tree, leaf) for tree in self.trees for leaf in tree.leaves())])

    def run(self) -> None:
        """Branch until the weakest node is a schedule of counts, or nothing may be added."""
        while self.queue and self.steps < MAX_STEPS and not self.stop():
            worth, _, tree, node = self.queue[0]
            if worth <= self.above and self.branched >= PATIENCE:
                return
            if self.beyond < worth:
                last = self.trees[-1].batches
                if not self.reach(last + 1 + last // FURTHER):
                    return
                continue
            heapq.heappop(self.queue)
            if worth < self.worth(tree, node):
                self._push(tree, node)
            elif tree.least < tree.batches:
                if not self._halve(tree):
                    return
                self._push(tree, node)
            elif not self._branch(tree, node):
                return

    def _push(self, tree: Tree, node: Node) -> None:
        self.pushed += 1
        heapq.heappush(self.queue, (self.worth(tree, node), self.pushed, tree, node))

    def _halve(self, tree: Tree) -> bool:
        """Another tree for the smaller half of the batches of one."""
        middle = (tree.least + tree.batches) // 2
        lower = self._tree(tree.least, middle)
        if lower is None:
            return False
        self.trees.insert(self.trees.index(tree), lower)
        tree.least = middle + 1
        self._push(lower, lower.root)
        return True

    def _branch(self, tree: Tree, node: Node) -> bool:
        """Both sides of the branching that gains most; False where there is none, or no time."""
        best, most = None, -1.0
        least = LEAST_GAIN * self.counted.alpha
        for box, limit in self.branchings(tree.program, node):
            low = self._solved(tree.program, (*node.splits, Split(box, limit, False)), node)
            high = low and self._solved(tree.program, (*node.splits, Split(box, limit + 1, True)), node)
            if low is None or high is None:
                return False
            gain = max(low.value - node.value, least) * max(high.value - node.value, least)
            if gain > most:
                best, most = (low, high), gain
        if best is None:
            return False
        node.sides, node.columns = best, None
        self.branched += 1
        self.steps += sum(self._steps(tree, side) for side in best) - self._steps(tree, node)
        for side in best:
            self._push(tree, side)
        return True

    def _steps(self, tree: Tree, leaf: Node) -> int:
        """Steps of the checker for a leaf, about."""
        wide = sum((box.last - box.first + 1) * (box.most - box.fewest + 3) for box, *_ in leaf.splits)
        return (CELL_STEPS * self.counted.outputs + BATCH_STEPS) * tree.batches + BOX_STEPS * wide

    def branchings(self, program: CountProgram, node: Node) -> Iterator[tuple[Box, int]]:
        """Boxes that do not hold a whole number, and what is just below it: the worst of each family."""
        import numpy as np

        batches, outputs = program.batches, self.counted.outputs
        moves = np.zeros((8, batches, outputs))
        kind = np.log2(np.maximum(program.kind, 1)).astype(int)
        chosen = program.kind > 0
        at = kind[chosen], program.batch[chosen] - 1, np.maximum(program.tokens[chosen], 1) - 1
        assert node.columns is not None
        moves[at] = node.columns[chosen]
        prefills, decodes = moves[5:7, :, 0]
        again = moves[3] + moves[4]
        older = moves[:5].sum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1]
        ends = range(1, batches + 1)
        begun, returned = moves[0].sum(axis=1).cumsum(), again.sum(axis=1).cumsum()
        families = [
            [(Box(PREFILLS, 1, batches, 1, 1), prefills.sum())],
            [(Box(DECODES, 1, batches, 1, 1), decodes.sum())],
            [(Box(RETURN | LATE, 1, batches, 1, outputs), again.sum())],
            [(Box(PREFILLS, j, j, 1, 1), prefills[j - 1]) for j in ends],
            [(Box(DECODES, j, j, 1, 1), decodes[j - 1]) for j in ends],
            [(Box(FIRST, 1, j, 1, 1), begun[j - 1]) for j in ends],
            [(Box(RETURN | LATE, 1, j, 1, outputs), returned[j - 1]) for j in ends],
            [(Box(MOVES, j, j, n + 1, outputs), older[j - 1, n]) for j in ends for n in range(outputs)],
        ]
        for family in families:
            box, value = max(family, key=lambda pair: abs(pair[1] - round(float(pair[1]))))
            if abs(value - round(float(value))) > WHOLE:
                yield box, int(np.floor(value))


def extended(prices: Prices) -> Prices:
    """Prices with one of nothing for another split."""
    import numpy as np

    return prices._replace(splits=np.append(prices.splits, 0))
