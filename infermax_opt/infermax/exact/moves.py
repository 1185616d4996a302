"""The words of the search: nodes of requests, their moves, and what moves add to a batch.

`infermax_opt.infermax.exact.space` says how they make up the state space.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from infermax_opt.infermax.data.cost import PRICED, BatchFeatures, Coefficients, Extra, batch_time

__all__ = [
    "DONE", "Bucket", "Chunks", "GroupMoves", "Load", "Node", "NodeMove", "Pattern", "State", "load_time",
]  # fmt: skip

State = tuple[int, ...]
"""Numbers of the nodes of all unfinished requests, sorted."""

#: Node of a finished request; never part of a state.
DONE = -1


class Chunks(enum.Enum):
    """What a space does with the chunks of a prefill."""

    EXACT = "exact"
    RESTRICTED = "restricted"
    RELAXED = "relaxed"


class Node(NamedTuple):
    """Progress of one unfinished request."""

    kind: int
    generated: int
    cached: int


class Load(NamedTuple):
    """What a move (or several) adds to a batch.

    `held` and `running` are the KV tokens occupied and the requests holding KV after the batch,
    finishing ones included; `limited` are the prefill tokens that count against P and C; the rest
    are the `BatchFeatures` of the cost model.
    """

    held: int = 0
    running: int = 0
    limited: int = 0
    tokens: int = 0
    decodes: int = 0
    decode_kv: int = 0
    prefills: int = 0
    work: int = 0
    prefill_kv: int = 0


class NodeMove(NamedTuple):
    """One request's part in a batch: the node it leads to, the tokens processed, the load."""

    target: int
    tokens: int
    evicts: bool
    load: Load


class GroupMoves(NamedTuple):
    """One way to move all requests of a node: price, nodes reached, summed load, the moves."""

    price: int
    targets: tuple[int, ...]
    load: Load
    moves: tuple[NodeMove, ...]


class Bucket(NamedTuple):
    """The options of a group that agree in how many requests generate and in the phases held.

    `held` and `limited` are the least of the options, which are sorted by price.
    """

    generates: int
    decodes: bool
    prefills: bool
    held: int
    limited: int
    options: list[GroupMoves]


Pattern = list[Bucket]
"""One bucket per group of a state: who generates, and which phases the batch holds."""


def load_time(ticks: Coefficients, extra: Extra | None, load: Load) -> int:
    """Ticks of a batch with this load.

    Parameters
    ----------
    ticks : Coefficients
    extra : Extra, optional
        None where a batch takes no longer than these say.
    load : Load
    """
    features = load[3:]
    took = batch_time(*ticks, *features[:PRICED])
    return int(took if extra is None else took + extra.of(BatchFeatures(*features)))
