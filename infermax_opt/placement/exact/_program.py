r"""Are so many workers enough?  An integer program with rows added as they are found broken.

Columns ``x[t, e]``: how many new requests of type t (equal in every limit) go on worker e, in use or fresh.

Rows: every request is placed; b and c/d for every worker; KV at some iterations, for every worker.  The rows
of all other iterations are added where a solution breaks them.

Symmetry: fresh workers are alike, so any numbering of theirs will do.  Requests that exclude each other in
pairs and fit on no worker in use are on fresh workers of their own: these get the first numbers, in the order
of the requests.  Workers whose numbers are still open (those without such a request, and those with ones of
one type) are numbered by falling load.

Numbers: a row whose capacity C is above `largest` is replaced by one with weights floor(w * largest / C) and
capacity `largest`, which holds whenever the row does.  So what is impossible here is impossible, and what is
found has to be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.placement.bounds.cliques import excluding
from infermax_opt.placement.bounds.rows import Row, base_rows, kv_iterations, kv_row, open_workers
from infermax_opt.placement.data.limits import Limits

__all__ = ["Program"]

#: Iterations whose KV rows are there from the start.
FIRST_KV = 6


#: Entries (column, weight), and the least and the most of their sum; None is no limit.
_ProgramRow = tuple[list[tuple[int, int]], int | None, int | None]


@dataclass(frozen=True)
class _Scaled:
    """A row in smaller numbers; one room per worker in use that is open."""

    weights: tuple[int, ...]
    capacity: int
    rooms: tuple[int, ...]


class Program:
    """The program for a number of fresh workers.

    Parameters
    ----------
    limits : Limits
        All new requests fit on a fresh worker.
    fresh : int
        Workers besides those with ongoing requests.
    largest : int
        Capacities of rows stay up to this.
    """

    def __init__(self, limits: Limits, fresh: int, largest: int):
        self.limits, self.fresh, self.largest = limits, fresh, largest
        self.workers: tuple[int, ...] = open_workers(limits)
        kinds: dict[tuple[int, ...], list[int]] = {}
        for k in limits.new:
            kinds.setdefault(
                (limits.context[k], limits.prompt[k], limits.held[k], limits.lasts[k]), []
            ).append(k)
        #: Requests of each type, the types largest first.
        self.types = sorted(kinds.values(), key=lambda members: -self._share(members[0]))
        self.firsts = [members[0] for members in self.types]
        self.base = [self._scaled(row) for row in base_rows(limits, self.firsts, self.workers)]
        self.kv: dict[int, _Scaled] = {}
        for k in self._first_iterations():
            self.kv[k] = self._scaled(kv_row(limits, self.firsts, self.workers, k))
        self.leaders = self._leaders()

    def _share(self, k: int) -> float:
        """Largest share of a limit that a request takes."""
        limits = self.limits
        pairs = [
            (limits.context[k], limits.most_context),
            (limits.prompt[k], limits.most_prompt),
            (limits.held[k] + limits.grows * limits.lasts[k], limits.most_kv),
        ]
        return max(need / most for need, most in pairs if most > 0)

    def _first_iterations(self) -> list[int]:
        """Iterations whose KV may bind."""
        limits, found = self.limits, []
        for k in kv_iterations(limits, limits.new, self.workers, FIRST_KV):
            row = kv_row(limits, limits.new, self.workers, k)
            if sum(row.weights) > min([row.capacity, *row.rooms]):
                found.append(k)
        return found

    def _leaders(self) -> list[int]:
        """Types of requests on fresh workers of their own, one for each of the first workers."""
        excludes, chosen = excluding(self.limits), list[int]()
        rows = [*self.base, *self.kv.values()]
        for t, members in enumerate(self.types):
            if any(
                all(row.weights[t] <= row.rooms[e] for row in rows) for e in range(len(self.workers))
            ) or not all(excludes(members[0], self.firsts[other]) for other in chosen):
                continue
            chosen.append(t)
            if len(members) > 1 and excludes(members[0], members[1]):
                chosen += [t] * (len(members) - 1)
        return chosen

    def _scaled(self, row: Row) -> _Scaled:
        capacity = row.capacity
        if capacity <= self.largest:
            return _Scaled(row.weights, capacity, row.rooms)
        weights = tuple(w * self.largest // capacity for w in row.weights)
        return _Scaled(weights, self.largest, tuple(-(-r * self.largest // capacity) for r in row.rooms))

    @property
    def impossible(self) -> bool:
        """Whether there are too few workers for requests that exclude each other, or none at all."""
        return len(self.leaders) > self.fresh or (not self.workers and not self.fresh)

    def separate(self, sets: Sequence[Sequence[int]]) -> bool:
        """Add the KV rows that a solution breaks the most, for each worker; whether there are any new."""
        limits, new = self.limits, set[int]()
        for place, members in enumerate(sets):
            ongoing = limits.ongoing[self.workers[place]] if place < len(self.workers) else ()
            together = [*ongoing, *members]
            if not members or limits.kv_peak(together) <= limits.most_kv:
                continue

            def held(end: int, together: Sequence[int] = together) -> int:
                return sum(limits.held[k] + limits.grows * end for k in together if limits.lasts[k] >= end)

            new.add(max({limits.lasts[k] for k in together}, key=held))
        new -= self.kv.keys()
        for iteration in sorted(new):
            self.kv[iteration] = self._scaled(kv_row(limits, self.firsts, self.workers, iteration))
        return bool(new)

    def model(self) -> LoweredModel:
        """The program as it is now; columns by type, then worker (in use first)."""
        places = len(self.workers) + self.fresh
        ub = [len(members) for members in self.types for _ in range(places)]
        lb = [0] * len(ub)
        for j, t in enumerate(self.leaders):
            lb[self.column(t, len(self.workers) + j)] = 1
        rows = [*self._all_placed(places), *self._capacities(places), *self._order(places)]
        start, index, value = [0], list[int](), list[int]()
        for entries, _, _ in rows:
            index += [column for column, _ in entries]
            value += [weight for _, weight in entries]
            start.append(len(index))
        return LoweredModel(
            lb, ub, [True] * len(ub), [0] * len(ub), 0, start, index, value,
            [low for _, low, _ in rows], [high for _, _, high in rows],
        )  # fmt: skip

    def _all_placed(self, places: int) -> Iterator[_ProgramRow]:
        """All requests of each type are on some worker."""
        for t, members in enumerate(self.types):
            yield [(self.column(t, p), 1) for p in range(places)], len(members), len(members)

    def _capacities(self, places: int) -> Iterator[_ProgramRow]:
        """No worker takes more than it has."""
        for row in [*self.base, *self.kv.values()]:
            for p in range(places):
                end = row.rooms[p] if p < len(self.workers) else row.capacity
                yield self._entries(row.weights, p), None, end

    def _order(self, places: int) -> Iterator[_ProgramRow]:
        """Of fresh workers that are alike, the one before has the larger load."""
        load = self._load()
        for p in range(len(self.workers), places - 1):
            if self._leader(p) == self._leader(p + 1):
                yield self._entries(load, p) + self._entries([-w for w in load], p + 1), 0, None

    def column(self, t: int, place: int) -> int:
        """Number of the column of a type and a worker."""
        return t * (len(self.workers) + self.fresh) + place

    def _entries(self, weights: Sequence[int], place: int) -> list[tuple[int, int]]:
        return [(self.column(t, place), w) for t, w in enumerate(weights) if w]

    def _leader(self, place: int) -> int | None:
        j = place - len(self.workers)
        return self.leaders[j] if j < len(self.leaders) else None

    def _load(self) -> Sequence[int]:
        """Weights by which fresh workers are numbered: of the row with the most need."""
        rows = [*self.base, *self.kv.values()]
        counts = [len(members) for members in self.types]
        if not rows:
            return [1] * len(counts)

        def need(row: _Scaled) -> float:
            return sum(n * w for n, w in zip(counts, row.weights, strict=True)) / row.capacity

        return max(rows, key=need).weights

    def sets(self, values: Sequence[int]) -> list[list[int]]:
        """Requests on each worker, of a solution; workers in use first."""
        places = len(self.workers) + self.fresh
        found: list[list[int]] = [[] for _ in range(places)]
        for t, members in enumerate(self.types):
            rest = iter(members)
            for p in range(places):
                found[p] += [next(rest) for _ in range(values[self.column(t, p)])]
        return found
