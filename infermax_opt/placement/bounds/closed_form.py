r"""Closed-form lower bounds on the number of workers of a placement, in whole numbers.

Workers with ongoing requests are in use whatever is done, and each takes new requests as far as there is
room.  All others are alike: fresh.  So a placement uses as many workers as have ongoing requests, and the
fresh ones.  Suppose that w_i >= 0 of the new requests on one worker add up to C at most if it is fresh, and
to R_e on worker e with ongoing requests.  All new requests are on some worker, hence

    sum over all i of w_i  <=  C * fresh + sum over e of R_e,

and fresh >= (sum of w_i - sum of R_e) / C, rounded up.  Every bound here but *levels* and *ends* is of this
form; `rows`, `dual` and `cliques` say for which w, C and R it holds, and why.

- *continuous*: a row as it is.  KV summed over a span of time, or any other sum of rows, says no more than
  the best of its rows: a ratio of sums is at most the largest of the ratios.
- *function*: a dual-feasible function of a row, or of a sum of rows.  For the same reason, sums of these
  functions say no more than the best of them.
- *count*: how many of the largest requests fit on a worker.
- *levels*: how many workers can hold k requests or more, for every k
  (`infermax_opt.placement.bounds.levels`).
- *pairs*: requests no two of which fit together.
- *ends*: requests on a worker grow on until the first of them ends
  (`infermax_opt.placement.bounds.first_ends`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from infermax_opt.placement.bounds.cliques import Clique, best_clique
from infermax_opt.placement.bounds.dual import Found, best_count, best_function
from infermax_opt.placement.bounds.first_ends import workers_by_ends
from infermax_opt.placement.bounds.levels import best_levels
from infermax_opt.placement.bounds.rows import (
    Row,
    base_rows,
    combined,
    kv_iterations,
    kv_row,
    open_workers,
    placeable,
    tightened,
)
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits

__all__ = ["WorkerBound", "bounds_from_simplest", "excluded", "placement_bounds"]

#: KV rows: so many requests times rows, but never more or fewer rows than these.
KV_WORK, FEWEST_KV, MOST_KV = 16_000, 8, 48
#: Rows of KV, those with the most need, that are summed with others.
SUMMED_KV = 2


@dataclass(frozen=True)
class WorkerBound:
    """No placement uses fewer workers.

    Attributes
    ----------
    value : int
        Workers, those with ongoing requests included.
    source : str
        ``in use``, ``continuous``, ``function``, ``count``, ``levels``, ``ends`` or ``pairs``.
    detail : mapping
        What recomputes it, and ``reason``, a sentence.
    """

    value: int
    source: str
    detail: Mapping[str, object] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why, for people."""
        return str(self.detail["reason"])


def placement_bounds(instance: PlacementInstance) -> list[WorkerBound]:
    """All bounds, best first, of equal ones the simplest first.

    New requests that fit on no worker are left out: there is no placement, and any number is a bound.
    """
    return sorted(bounds_from_simplest(instance), key=lambda bound: -bound.value)


def excluded(instance: PlacementInstance, workers: int) -> str:
    """Why a number of workers is not enough, by the simplest bound above it.

    Raises
    ------
    ValueError
        If no bound is above it.
    """
    for bound in bounds_from_simplest(instance):
        if bound.value > workers:
            return bound.reason
    raise ValueError(f"no bound excludes {workers} workers")


def bounds_from_simplest(instance: PlacementInstance) -> Iterator[WorkerBound]:
    """The best bound of each kind, the simplest kind first, each worked out when it is asked for."""
    limits = Limits.of(instance)
    used = len(limits.ongoing)
    yield WorkerBound(used, "in use", {"used": used, "reason": f"workers in use whatever is done: {used}"})
    new, workers = placeable(limits), open_workers(limits)
    if not new:
        return
    plain = base_rows(limits, new, workers)
    most = min(MOST_KV, max(FEWEST_KV, KV_WORK // len(new)))
    kv = [kv_row(limits, new, workers, k) for k in kv_iterations(limits, new, workers, most)]
    kv.sort(key=lambda row: -row.lacking)
    heavy = [*plain, *kv[:SUMMED_KV]]
    rows = tightened([*plain, *kv], heavy)
    heavy = rows[: len(heavy)]

    yield from _continuous(rows, used)
    sums = [combined([(a, one), (b, other)]) for one, other in itertools.combinations(heavy, 2)
            for a, b in ((1, 1), (2, 1), (1, 2))]  # fmt: skip
    if len(heavy) > 2:
        sums.append(combined((1, row) for row in heavy[:3]))
    yield from _functions([*rows, *sums], used)
    yield from _counts([*rows, *sums], used)
    yield from _levels([*rows, *sums], used)
    yield from _ends(limits, new, workers, rows)
    clique = best_clique(limits, new, [*rows[: len(heavy)], *sums])
    if clique is not None:
        yield _pairs(clique, [instance.requests[new[k]].id for k in clique.members], used)


def _ends(
    limits: Limits, new: Sequence[int], workers: Sequence[int], rows: Sequence[Row]
) -> Iterator[WorkerBound]:
    used = len(limits.ongoing)
    shut = used - len(workers)
    known = used + max(row.fresh for row in rows) if rows else used
    ends = workers_by_ends(limits, new, workers, known - shut)
    if ends is None:
        return
    reason = (
        f"KV from iteration {ends.iteration} on: until the first request on each worker ends, the others "
        f"grow to more than {ends.workers} workers hold{_used_text(used)}"
    )
    detail = {"iteration": ends.iteration, "refuted": ends.workers, "reason": reason}
    yield WorkerBound(shut + ends.workers + 1, "ends", detail)


def _pairs(clique: Clique, members: Sequence[str], used: int) -> WorkerBound:
    some = ", ".join(members[:5]) + (", .." if len(members) > 5 else "")
    reason = f"of {len(members)} new requests no two fit on a worker ({some}){_used_text(used)}"
    detail = {"requests": tuple(members), "taken": clique.taken, "reason": reason}
    return WorkerBound(used + clique.fresh, "pairs", detail)


def _used_text(used: int) -> str:
    return f", {used} in use" if used else ""


def _continuous(rows: list[Row], used: int) -> Iterator[WorkerBound]:
    row = max(rows, key=lambda row: (row.fresh, row.lacking / row.capacity))
    need, room = sum(row.weights), sum(row.rooms)
    reason = (
        f"{row.name}: the new requests need {row.text(need)}, {_left(used, row.text(room))}"
        f"a fresh worker has {row.text(row.capacity)}"
    )
    detail = {"row": row.name, "need": need, "room": room, "capacity": row.capacity, "reason": reason}
    yield WorkerBound(used + row.fresh, "continuous", detail)


def _functions(rows: list[Row], used: int) -> Iterator[WorkerBound]:
    found = [(some, row) for row in rows if (some := best_function(row)) is not None]
    if not found:
        return
    best, row = max(found, key=lambda pair: pair[0].fresh)
    reason = (
        f"{row.name}, sizes rounded by the dual-feasible function {best.function} {best.parameter}: "
        f"{best.lacking} units are lacking on those in use ({used}), and a fresh worker has {best.capacity}"
    )
    detail = {
        "row": row.name, "function": best.function, "parameter": best.parameter, "lacking": best.lacking,
        "capacity": best.capacity, "reason": reason,
    }  # fmt: skip
    yield WorkerBound(used + best.fresh, "function", detail)


def _counts(rows: list[Row], used: int) -> Iterator[WorkerBound]:
    found: tuple[Found, int, Row] | None = None
    for row in rows:
        some = best_count(row, 0 if found is None else found[0].fresh)
        if some is not None:
            found = (*some, row)
    if found is None:
        return
    best, number, row = found
    taken = number - best.lacking
    reason = (
        f"{row.name}: of the {number} largest new requests (from {row.text(best.parameter)} on) at most "
        f"{best.capacity} fit on a fresh worker, {_left(used, f'{taken} on these')}all need a place"
    )
    detail = {
        "row": row.name, "from": best.parameter, "requests": number, "taken": taken,
        "capacity": best.capacity, "reason": reason,
    }  # fmt: skip
    yield WorkerBound(used + best.fresh, "count", detail)


def _levels(rows: list[Row], used: int) -> Iterator[WorkerBound]:
    found = [(some, row) for row in rows if (some := best_levels(row)) is not None]
    if not found:
        return
    best, row = max(found, key=lambda pair: pair[0].fresh)
    number = len(row.weights)
    reason = (
        f"{row.name}: counting how many workers can hold 1, 2, .. requests, {_left(used, str(best.taken))}"
        f"and {best.fresh - 1} fresh workers hold {best.held} of the {number} new requests with these"
    )
    detail = {"row": row.name, "held": best.held, "taken": best.taken, "requests": number, "reason": reason}
    yield WorkerBound(used + best.fresh, "levels", detail)


def _left(used: int, room: str) -> str:
    return f"those in use ({used}) have room for {room}, " if used else ""
