r"""What a worker can take: the limits b to e of the placement MIP in whole numbers.

With S the requests on a worker, N the new ones among them, l_out the tokens generated so far, and p the
predicted output (or l_out, if that is more):

- b, iteration time (eqs 3, 4): sum over S of (k2 (l_in + gamma p) + theta c2) <= theta (T_dec - c3).
  The paper states eq 4 for two requests or more; here it holds for one, too.
- c, prefill: k1 (sum over N of l_in) + c1 <= T_pre, less the time that the worker is busy, where N is not
  empty.
- d, prefill against what ongoing requests have saved: the same sum <= theta min over ongoing requests of
  (T_dec l_out - t_dec).
- e, KV: at iteration k = 0, 1, .. (below the horizon) each request that has k or more tokens to generate
  holds h (l_in + l_out + k) + j; all together at most M.  Between two moments at which requests end, the
  KV of all grows, so the iterations at which one ends are enough, with the last one of the horizon.

Where other workers do the prefill (split phase), c and d always hold.

A worker whose ongoing requests break b or e by themselves is taken as it is: no placement can mend that, and
it takes no new request.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import common_denominator
from infermax_opt.placement.data.instance import PlacementInstance, PlacementRequest

__all__ = ["LIMITS", "NOTHING_LEFT", "Excess", "Limit", "Limits", "check_placeable", "kv_peak", "unplaceable"]


class Limit(enum.Enum):
    """Limits of a worker, by the letters of the paper."""

    ITERATION = "b"
    PREFILL = "c"
    SAVED_TIME = "d"
    KV = "e"


#: Name and unit of each limit.
LIMITS = {
    Limit.ITERATION: ("b, iteration time", " s"),
    Limit.PREFILL: ("c, prefill", " s"),
    Limit.SAVED_TIME: ("d, saved time", " s"),
    Limit.KV: ("e, KV", ""),
}

#: Why nothing at all is allowed.
NOTHING_LEFT = {
    Limit.ITERATION: ", as ATGT is not above the overhead c3 of an iteration",
    Limit.PREFILL: ", as TTFT is not above the overhead c1 of a prefill",
}


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that requests exceed together: need and limit in seconds, or in units of KV."""

    limit: Limit
    need: Fraction
    most: Fraction


@dataclass(frozen=True)
class Limits:
    """The limits of an instance.

    Attributes
    ----------
    context : tuple of int, one per request
        What it needs of limit b, in ticks.
    prompt : tuple of int, one per request
        What it needs of limits c and d, in ticks; 0 if ongoing.
    held : tuple of int, one per request
        KV at iteration 0.
    lasts : tuple of int, one per request
        Last iteration in which it holds KV, from 0.
    grows : int
        KV that a request takes with each iteration.
    most_context, most_prompt, most_kv : int
        Limits b, c and e.  They may be negative: then no worker takes anything.
    """

    context: tuple[int, ...]
    prompt: tuple[int, ...]
    held: tuple[int, ...]
    lasts: tuple[int, ...]
    grows: int
    most_context: int
    most_prompt: int
    most_kv: int
    ticks_per_second: int
    kv_scale: int
    #: Ongoing requests of each worker in use, if any.
    ongoing: dict[int, tuple[int, ...]]
    #: Limit c of these workers.
    worker_ttft: dict[int, int]
    #: Limits c and d of these workers together.
    worker_prompt: dict[int, int]

    @classmethod
    def of(cls, instance: PlacementInstance) -> Limits:
        """Return the limits of an instance, which are worked out once."""
        memo = vars(instance)
        if "limits" not in memo:
            memo["limits"] = cls._work_out(instance)
        limits: Limits = memo["limits"]
        return limits

    @classmethod
    def _work_out(cls, instance: PlacementInstance) -> Limits:
        worker, slo, theta, requests = instance.worker, instance.slo, instance.theta, instance.requests
        split, none = instance.split_phase, Fraction(0)
        by_input, by_output = worker.decode_context, worker.decode_context * instance.gamma
        by_request = theta * worker.decode_request
        by_prompt = none if split else worker.prefill_token
        most_context = theta * (slo.atgt - worker.decode_overhead)
        most_prompt = none if split else slo.ttft - worker.prefill_overhead
        on = _members(instance)
        busy = {} if split else instance.busy
        free = {number: most_prompt - busy.get(number, none) for number in on}
        rooms = free if split else _prefill_rooms(instance, on, free)
        ticks = common_denominator(
            [by_input, by_output, by_request, by_prompt, most_context, most_prompt, *free.values(),
             *rooms.values()]
        )  # fmt: skip
        # Many requests: whole numbers are much faster than fractions.
        one_input, one_output, one_request, one_prompt = (
            int(value * ticks) for value in (by_input, by_output, by_request, by_prompt)
        )
        scale = common_denominator([worker.kv_capacity, worker.kv_token, worker.kv_request])
        grows, at_once = int(worker.kv_token * scale), int(worker.kv_request * scale)
        return cls(
            context=tuple(
                one_input * r.input_tokens
                + one_output * max(r.predicted_output_tokens, r.generated_tokens)
                + one_request
                for r in requests
            ),
            prompt=tuple(one_prompt * r.input_tokens * (not r.ongoing) for r in requests),
            held=tuple(grows * (r.input_tokens + r.generated_tokens) + at_once for r in requests),
            lasts=_lasts(instance),
            grows=grows,
            most_context=int(most_context * ticks),
            most_prompt=int(most_prompt * ticks),
            most_kv=int(worker.kv_capacity * scale),
            ticks_per_second=ticks,
            kv_scale=scale,
            ongoing={number: tuple(members) for number, members in on.items()},
            worker_ttft=_in_ticks(free, ticks),
            worker_prompt=_in_ticks(rooms, ticks),
        )

    @cached_property
    def new(self) -> tuple[int, ...]:
        """Positions of the new requests."""
        placed = {k for members in self.ongoing.values() for k in members}
        return tuple(k for k in range(len(self.context)) if k not in placed)

    def kv_peak(self, members: Iterable[int]) -> int:
        """Most KV that requests hold together."""
        return kv_peak([(self.held[k], self.lasts[k]) for k in members], self.grows)

    def excesses(self, new: Sequence[int], worker: int | None = None) -> list[Excess]:
        """Limits that new requests exceed on a worker with its ongoing ones; None: on a fresh one."""
        if not new:
            return []
        ongoing: tuple[int, ...] = ()
        most_ttft = most_prompt = self.most_prompt
        if worker is not None:
            ongoing = self.ongoing.get(worker, ())
            most_ttft = self.worker_ttft.get(worker, most_ttft)
            most_prompt = self.worker_prompt.get(worker, most_prompt)
        members = [*ongoing, *new]
        context, prompt = sum(self.context[k] for k in members), sum(self.prompt[k] for k in new)
        ticks, scale = self.ticks_per_second, self.kv_scale
        rows = [
            (Limit.ITERATION, context, self.most_context, ticks),
            (Limit.PREFILL, prompt, most_ttft, ticks),
            (Limit.KV, self.kv_peak(members), self.most_kv, scale),
        ]
        if most_prompt < most_ttft:
            rows.insert(2, (Limit.SAVED_TIME, prompt, most_prompt, ticks))
        return [
            Excess(limit, Fraction(need, unit), Fraction(most, unit))
            for limit, need, most, unit in rows
            if need > most
        ]


def _members(instance: PlacementInstance) -> dict[int, list[int]]:
    """Positions of the ongoing requests of each worker in use."""
    on: dict[int, list[int]] = {number: [] for number in instance.busy}
    for k, r in enumerate(instance.requests):
        if r.worker is not None:
            on.setdefault(r.worker, []).append(k)
    return on


def _prefill_rooms(
    instance: PlacementInstance, on: Mapping[int, Sequence[int]], free: Mapping[int, Fraction]
) -> dict[int, Fraction]:
    """Limits c and d together, in seconds, of workers whose limit c is `free`."""
    rooms = dict(free)
    for number, members in on.items():
        if members:
            saved = least_saved([instance.requests[k] for k in members], instance.slo.atgt)
            rooms[number] = min(free[number], instance.theta * saved - instance.worker.prefill_overhead)
    return rooms


def _in_ticks(seconds: Mapping[int, Fraction], ticks: int) -> dict[int, int]:
    return {number: int(value * ticks) for number, value in seconds.items()}


def _lasts(instance: PlacementInstance) -> tuple[int, ...]:
    """Last iteration of each request, or that of the horizon."""
    if instance.horizon is None:
        return tuple(r.remaining_tokens for r in instance.requests)
    return tuple(min(instance.horizon - 1, r.remaining_tokens) for r in instance.requests)


def least_saved(requests: Sequence[PlacementRequest], atgt: Fraction) -> Fraction:
    """Least time that ongoing requests have saved against an ATGT: T_dec l_out - t_dec, in seconds."""
    scale = common_denominator([atgt, *(r.decode_seconds for r in requests)])
    token = int(atgt * scale)
    spent = ((r, r.decode_seconds) for r in requests)
    return Fraction(
        min(token * r.generated_tokens - t.numerator * (scale // t.denominator) for r, t in spent), scale
    )


def kv_peak(requests: Iterable[tuple[int, int]], grows: int) -> int:
    """Most KV that requests hold together.

    Parameters
    ----------
    requests : iterable of (int, int)
        KV at iteration 0, and the last iteration, of each.
    grows : int
        KV that each takes with every iteration.
    """
    held = most = 0
    # From the last end to the first: at an iteration, those that have not ended before it are there.
    for count, (start, last) in enumerate(sorted(requests, key=lambda some: -some[1]), 1):
        held += start
        most = max(most, held + count * grows * last)
    return most


def unplaceable(instance: PlacementInstance) -> list[str]:
    """One line for each limit that a new request exceeds by itself on a fresh worker.

    Notes
    -----
    Such a request fits nowhere: ongoing requests only add to the needs of limits b and e (no need is
    negative, and a set's peak of KV is at least that of a subset), and limits c and d of their worker are
    at most limit c.  So what a worker takes, a fresh one takes.
    """
    limits = Limits.of(instance)
    found = []
    for k in limits.new:
        kv = limits.held[k] + limits.grows * limits.lasts[k]
        needs = (limits.context[k], limits.most_context), (limits.prompt[k], limits.most_prompt)
        if all(need <= most for need, most in (*needs, (kv, limits.most_kv))):
            continue
        for excess in limits.excesses([k]):
            name, unit = LIMITS[excess.limit]
            need, most = float(excess.need), float(excess.most)
            request = f"request {instance.requests[k].id!r} fits on no worker"
            why = NOTHING_LEFT.get(excess.limit, "") if most <= 0 else ""
            found.append(f"{request}: limit {name}: {need:.9g}{unit} where {most:.9g}{unit} are allowed{why}")
    return found


def check_placeable(instance: PlacementInstance) -> None:
    """Check that every request fits on a worker by itself.

    Raises
    ------
    InputError
        If one does not; the line names it, the limit, the need and what is allowed.
    """
    found = unplaceable(instance)
    if found:
        others = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        raise InputError(found[0] + others, field="requests")
