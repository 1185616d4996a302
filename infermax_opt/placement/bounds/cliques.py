"""Bounds on the fresh workers from pairs of requests that do not fit on a worker together.

Of requests no two of which fit on a fresh worker, each worker takes one at most, fresh or not (ongoing
requests only take room).  Those in use take no more of them than there are of these workers that one of them
fits on, and no more than there are of them that fit on one of these workers.

The sets are found greedily, without a graph.  Of 400 requests of `infermax_opt.placement.data.generate`,
networkx's `find_cliques` finds no larger set in any family.  To write the graph down alone takes 47 to 70 ms,
a fifth of the time of all bounds, where the greedy search takes 3 to 7 ms.

Weights give no more fresh workers either.  `max_weight_clique` of networkx, with requests that fit on no
worker in use above all others, needs none more than the greedy sets on 54 instances of all families (60 and
120 requests) and on 102 heartbeats of streams, many with workers in use; nor does any of the first 5,000
maximal cliques.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infermax_opt.placement.bounds.rows import Row
from infermax_opt.placement.data.limits import Limits

__all__ = ["Clique", "best_clique", "excluding"]


@dataclass(frozen=True, slots=True)
class Clique:
    """Places (among the placeable) of requests that exclude each other, and how many go on workers in use."""

    members: tuple[int, ...]
    taken: int

    @property
    def fresh(self) -> int:
        """Fresh workers needed."""
        return len(self.members) - self.taken


def excluding(limits: Limits) -> Callable[[int, int], bool]:
    """Function of two new requests: whether they do not fit on a fresh worker together."""
    context, prompt, held, lasts = limits.context, limits.prompt, limits.held, limits.lasts

    def excludes(i: int, k: int) -> bool:
        if context[i] + context[k] > limits.most_context or prompt[i] + prompt[k] > limits.most_prompt:
            return True
        # Each by itself fits; together they hold the most when the first of them ends.
        end = min(lasts[i], lasts[k])
        return held[i] + held[k] + 2 * limits.grows * end > limits.most_kv

    return excludes


def best_clique(limits: Limits, new: Sequence[int], rows: Sequence[Row]) -> Clique | None:
    """The best set found greedily, by several orders; None where nothing is placeable.

    Parameters
    ----------
    limits : Limits
    new : sequence of int
        The placeable requests.
    rows : sequence of Row
        The weights of each give an order, largest first, and the rooms tell which workers take none.
    """
    excludes, best = excluding(limits), None
    for row in rows:
        members = list[int]()
        for k in sorted(range(len(new)), key=lambda k: -row.weights[k]):
            if all(excludes(new[k], new[other]) for other in reversed(members)):
                members.append(k)
        found = Clique(tuple(members), _taken(members, rows))
        if members and (best is None or found.fresh > best.fresh):
            best = found
    return best


def _taken(members: Sequence[int], rows: Sequence[Row]) -> int:
    fit, workers = set[int](), 0
    for e in range(len(rows[0].rooms)):
        here = [k for k in members if all(row.weights[k] <= row.rooms[e] for row in rows)]
        fit.update(here)
        workers += bool(here)
    return min(len(fit), workers)
