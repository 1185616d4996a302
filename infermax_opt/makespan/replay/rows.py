"""Which client serves each request, and when: the data behind pictures and frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any

from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.replay.bins import BinReplay, replay_bins

__all__ = ["Served", "bin_rows", "request_rows", "served"]


@dataclass
class Served:
    """One request on its client, from 1; starts and lengths in ticks, a decode of each bin."""

    client: int
    prefill: tuple[int, int]
    decodes: list[tuple[int, int]] = field(default_factory=list)


def served(instance: MakespanInstance, schedule: MakespanSchedule, found: BinReplay) -> dict[int, Served]:
    """Every request that a valid schedule serves, by its position.

    Parameters
    ----------
    instance : MakespanInstance
    schedule : MakespanSchedule
    found : BinReplay
        Of the schedule.
    """
    left = {k: request.output_tokens for k, request in enumerate(instance.requests)}
    everyone: dict[int, Served] = {}
    serving: dict[int, Served] = {}
    now = 0
    for some, stage, rounds in zip(schedule.bins, found.prefill_ticks, found.decode_ticks, strict=True):
        for name, client in some.prefill.items():
            k = instance.index[name]
            everyone[k] = serving[k] = Served(client, (now, stage))
        now += stage
        for k, one in list(serving.items()):
            made = some.tokens(instance.requests[k].id, left[k])
            if made > 0:
                one.decodes.append((now, made * instance.round_ticks))
            left[k] -= made
            if left[k] == 0:
                del serving[k]
        now += rounds
    return everyone


def request_rows(instance: MakespanInstance, schedule: MakespanSchedule) -> list[dict[str, Any]]:
    """Client, start, end of the prefill stage and finish of each request, s."""
    everyone = served(instance, schedule, replay_bins(instance, schedule))
    unit = instance.ticks_per_second
    rows: list[dict[str, Any]] = []
    for k in range(len(instance.requests)):
        one = everyone.get(k)
        if one is None:
            rows.append({"client": None, "start": None, "decode_start": None, "finish": None})
            continue
        start, stage = one.prefill
        finish = max((begin + length for begin, length in one.decodes), default=start + stage)
        times = {"start": start, "decode_start": start + stage, "finish": finish}
        rows.append({"client": one.client, **{name: Fraction(t, unit) for name, t in times.items()}})
    return rows


def bin_rows(instance: MakespanInstance, schedule: MakespanSchedule) -> list[dict[str, Any]]:
    """Start, lengths of both stages, and requests prefilled, of each bin; times in s."""
    found = replay_bins(instance, schedule)
    stages = list(zip(found.prefill_ticks, found.decode_ticks, strict=True))
    starts = accumulate((prefill + decode for prefill, decode in stages), initial=0)
    unit = instance.ticks_per_second
    return [
        {
            "bin": j,
            "start": Fraction(start, unit),
            "prefill_seconds": Fraction(prefill, unit),
            "decode_seconds": Fraction(decode, unit),
            "prefills": len(some.prefill),
        }
        for j, (some, (prefill, decode), start) in enumerate(zip(schedule.bins, stages, starts, strict=False))
    ]
