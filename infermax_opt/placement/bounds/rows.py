r"""Rows: what the requests on a worker need of a limit adds up, and there is only so much of it.

A row gives each new request a whole number, its weight.  The weights of new requests that fit on a fresh
worker together add up to `capacity` at most, and those on worker e with ongoing requests to ``rooms[e]``.
The rows b and c/d of `infermax_opt.placement.data.limits` are of this kind, and so is the KV at an iteration
k: weight h (l_in + k) + j if the request has k or more tokens to generate, else 0.  So is every combination
of rows with factors of 0 or more.

*Rooms.*  What ongoing requests leave of row r may be out of reach as the room of another row q ends before
it.  A set S on e has sum of q_i <= room_q.  For any number f >= 0,

    sum over S of r_i  <=  f room_q + sum over all i of max(0, r_i - f q_i),

and at most the sum of r_i over the requests with q_i <= room_q.  `tightened` takes the least of these.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from infermax_opt.placement.data.limits import Limits

__all__ = [
    "Row",
    "base_rows",
    "combined",
    "kv_iterations",
    "kv_row",
    "open_workers",
    "placeable",
    "tightened",
]

#: Factors f are multiples of 2**-SHIFT.
SHIFT = 64


@dataclass(frozen=True)
class Row:
    """A row.

    Attributes
    ----------
    name : str
    weights : tuple of int
        Of each placeable new request (see `placeable`).
    capacity : int
        1 or more.
    rooms : tuple of int
        Of each worker that may take new requests beside its ongoing ones (see `open_workers`), 0 up to
        the capacity.
    unit : int
        So many are one `quantity`; 0: a mere number.
    quantity : str
    """

    name: str
    weights: tuple[int, ...]
    capacity: int
    rooms: tuple[int, ...]
    unit: int = 0
    quantity: str = ""

    @property
    def lacking(self) -> int:
        """What the requests need beyond the room on workers with ongoing ones."""
        return sum(self.weights) - sum(self.rooms)

    @property
    def fresh(self) -> int:
        """Fresh workers needed, as each takes `capacity` at most."""
        return max(0, -(-self.lacking // self.capacity))

    def text(self, amount: int) -> str:
        """An amount of it, for people."""
        return str(amount) if self.unit == 0 else f"{amount / self.unit:.6g} {self.quantity}"


def placeable(limits: Limits) -> tuple[int, ...]:
    """New requests that fit on a fresh worker, and so may be placed at all."""
    return tuple(k for k in limits.new if not limits.excesses([k]))


def open_workers(limits: Limits) -> tuple[int, ...]:
    """Workers with ongoing requests that these do not fill by themselves."""
    return tuple(
        worker
        for worker, members in sorted(limits.ongoing.items())
        if sum(limits.context[k] for k in members) <= limits.most_context
        and limits.kv_peak(members) <= limits.most_kv
        and limits.worker_prompt[worker] >= 0
    )


def base_rows(limits: Limits, new: Sequence[int], workers: Sequence[int]) -> list[Row]:
    """Rows b and c/d; without capacity, none has weights."""
    ticks = limits.ticks_per_second
    left = [limits.most_context - sum(limits.context[k] for k in limits.ongoing[e]) for e in workers]
    rows = [
        Row("iteration time", tuple(limits.context[k] for k in new), limits.most_context, tuple(left), ticks,
            "s"),
        Row("prefill", tuple(limits.prompt[k] for k in new), limits.most_prompt,
            tuple(limits.worker_prompt[e] for e in workers), ticks, "s"),
    ]  # fmt: skip
    return [row for row in rows if row.capacity > 0]


def kv_row(limits: Limits, new: Sequence[int], workers: Sequence[int], iteration: int) -> Row:
    """KV at an iteration."""

    def held(i: int) -> int:
        return limits.held[i] + limits.grows * iteration if limits.lasts[i] >= iteration else 0

    rooms = tuple(limits.most_kv - sum(held(i) for i in limits.ongoing[e]) for e in workers)
    name, weights = f"KV at iteration {iteration}", tuple(held(i) for i in new)
    return Row(name, weights, limits.most_kv, rooms, limits.kv_scale, "of KV")


def kv_iterations(limits: Limits, new: Sequence[int], workers: Sequence[int], most: int) -> list[int]:
    """Up to so many iterations: half of them those at which most KV is lacking, the others spread.

    Between two iterations at which requests end, need rises and room falls, so others say no more.
    """
    members = [*new, *(k for e in workers for k in limits.ongoing[e])]
    ends = sorted({limits.lasts[k] for k in members})
    if len(ends) <= most:
        return ends
    lacking = dict(zip(ends, _held_at(limits, members, ends), strict=True))
    chosen = sorted(ends, key=lambda k: -lacking[k])[: (most + 1) // 2]
    others = sorted(set(ends).difference(chosen))
    number = most - len(chosen)
    spread = [others[(2 * j + 1) * len(others) // (2 * number)] for j in range(number)]
    return sorted([*chosen, *spread])


def _held_at(limits: Limits, members: Sequence[int], ends: Sequence[int]) -> list[int]:
    """KV of requests at each of the iterations, all together."""
    ordered = sorted(members, key=lambda i: limits.lasts[i])
    lasts = [limits.lasts[i] for i in ordered]
    before = [0, *accumulate(limits.held[i] for i in ordered)]
    found = []
    for k in ends:
        gone = bisect_left(lasts, k)
        found.append(before[-1] - before[gone] + (len(ordered) - gone) * limits.grows * k)
    return found


def combined(parts: Iterable[tuple[int, Row]]) -> Row:
    """Sum of rows, each brought to one capacity and taken so many times."""
    parts = list(parts)
    whole = 1
    for _, row in parts:
        whole *= row.capacity
    factors = [times * (whole // row.capacity) for times, row in parts]
    rows = [row for _, row in parts]
    return Row(
        " + ".join(f"{times} x {row.name}" if times > 1 else row.name for times, row in parts),
        tuple(
            sum(f * w for f, w in zip(factors, some, strict=True))
            for some in zip(*(row.weights for row in rows), strict=True)
        ),
        sum(f * row.capacity for f, row in zip(factors, rows, strict=True)),
        tuple(
            sum(f * w for f, w in zip(factors, some, strict=True))
            for some in zip(*(row.rooms for row in rows), strict=True)
        ),
    )


def tightened(rows: Sequence[Row], by: Sequence[Row]) -> list[Row]:
    """The rows with rooms no larger than what the rooms of other rows let in (module docstring)."""
    if not rows or not rows[0].rooms:
        return list(rows)
    found = []
    for row in rows:
        rooms = list(row.rooms)
        for other in [row, *by]:
            let_in = _let_in(row.weights, other.weights)
            rooms = [min(room, let_in(end)) for room, end in zip(rooms, other.rooms, strict=True)]
        found.append(replace(row, rooms=tuple(rooms)))
    return found


def _let_in(weights: Sequence[int], others: Sequence[int]) -> Callable[[int], int]:
    """Function of a room for `others`: how much of `weights` requests can need that fit in it."""
    small = sorted(zip(others, weights, strict=True))
    sizes, fitting = [q for q, _ in small], [0, *accumulate(r for _, r in small)]
    # Rounded down: r / q < (key + 1) / 2**SHIFT.  Requests without need of the other row come first.
    free = (max(weights, default=0) + 1) << SHIFT
    keyed = sorted(
        ((r << SHIFT) // q if q else free, r, q) for r, q in zip(weights, others, strict=True) if r
    )[::-1]
    falling = [-key for key, _, _ in keyed]
    needs = [0, *accumulate(q for _, _, q in keyed)]
    gains = [0, *accumulate(r for _, r, _ in keyed)]

    def let_in(room: int) -> int:
        bound = fitting[bisect_right(sizes, room)]
        at = bisect_right(needs, room) - 1
        if at < len(keyed):
            # f = (key + 1) / 2**SHIFT: r - f q is above 0 for exactly those with a larger key.
            factor, ahead = 1 - falling[at], bisect_left(falling, falling[at])
            bound = min(bound, gains[ahead] + (factor * (room - needs[ahead]) >> SHIFT))
        return bound

    return let_in
