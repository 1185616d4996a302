"""Children of the nodes of a beam: found by a compiled function, the best of them kept, traced to the root.

A node is how many requests have made how many tokens, between two batches; a child is one batch on.  Which
moves there are, and how nodes are compared, is each search's own: the planner `counts` goes forwards, the
planner `backward` backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["Children", "distinct", "find_children", "keep", "no_children", "path"]


class Children(NamedTuple):
    """Children found so far.

    `value`, `parent`: columns; `move`: table; `found`: column of one, how many there are; `cut`: column of
    one, the value from which on none is kept.
    """

    value: Any
    parent: Any
    move: Any
    found: Any
    cut: Any


def no_children(room: int, columns: int) -> Children:
    """Room for so many children, whose moves have so many numbers."""
    import numpy as np

    return Children(
        np.zeros(room), np.zeros(room, np.int64), np.zeros((room, columns), np.int64), np.zeros(1, np.int64),
        np.zeros(1),
    )  # fmt: skip


def keep(node: Any, children: Any, move: Any, value: Any) -> None:
    """Keep a child if it is below the cut and there is room.  Runs as plain Python or compiled.

    Parameters
    ----------
    node : int
        Its parent.
    children : Children
        Where it is kept.
    move : column of int
        What leads to it.
    value : float
        What nodes are compared by.
    """
    child = children.found[0]
    if not value < children.cut[0] or child == len(children.value):
        return
    children.value[child], children.parent[child] = value, node
    for column in range(len(move)):
        children.move[child, column] = move[column]
    children.found[0] = child + 1


def find_children(
    expand: Callable[..., Any],
    steps: Any,
    nodes: Any,
    children: Children,
    move: Any,
    *,
    cut: float,
    most: int,
) -> None:
    """Find the children below the cut; where they are too many, lower it to the best.

    Parameters
    ----------
    expand : callable
        Takes steps, nodes, the first node to look at, children and a move to fill; returns
        the first node that it left out when half of the room was taken.
    steps, nodes : tuple of columns
        What `expand` works on.
    children : Children
        Overwritten.
    move : column of int
        Overwritten.
    cut : float
        Value from which on no child is kept.
    most : int
        How many are kept where there are too many; less than half of the room.
    """
    import numpy as np

    children.found[0], children.cut[0], node = 0, cut, 0
    while True:
        node = expand(steps, nodes, node, children, move)
        found = int(children.found[0])
        if 2 * found <= len(children.value):
            return
        best = np.sort(np.argpartition(children.value[:found], most)[:most])
        for column in (children.value, children.parent, children.move):
            column[:most] = column[best]
        children.found[0], children.cut[0] = most, children.value[:most].max()


def distinct(alike: Integers, width: int) -> Integers:
    """Places of the first of those that are alike, at most `width` of them."""
    import numpy as np

    return np.sort(np.unique(alike, return_index=True)[1])[:width]


def path(log: Sequence[tuple[Integers, Integers]], node: int) -> list[list[int]]:
    """The moves that led to a node, in the order of the log.

    Parameters
    ----------
    log : sequence of (column, table)
        For each batch the parents of its nodes and the moves that lead to them.
    node : int
        One after the last batch.
    """
    moves = []
    for parent, move in reversed(log):
        moves.append(move[node].tolist())
        node = int(parent[node])
    return moves[::-1]
