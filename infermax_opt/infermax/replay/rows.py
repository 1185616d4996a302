"""What a valid schedule does to each request, and in each batch: rows of frames, exact seconds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.files.figure import Phase
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import NEVER
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import valid_replay
from infermax_opt.infermax.replay.timeline import each_batch, timeline

__all__ = ["batch_rows", "request_rows"]


def request_rows(instance: Instance, schedule: Schedule) -> list[dict[str, Any]]:
    """First token, finish and latencies of each request, s; None where a request is not served.

    Raises
    ------
    ValueError
        If the schedule breaks a rule.
    """
    replayed = valid_replay(instance, schedule)
    found = replayed.latencies(instance)
    evictions = [0] * len(instance.requests)
    for _, evicted in each_batch(instance, schedule.batches):
        for i in evicted:
            evictions[i] += 1
    rows = []
    for i, request in enumerate(instance.requests):
        first, last = (
            replayed.seconds(times[i]) if times[i] < NEVER else None for times in (found.firsts, found.lasts)
        )
        came = replayed.seconds(replayed.released[i]) if i in replayed.released else request.arrival
        steps = request.output_tokens - 1
        rows.append(
            {
                "arrival": came,
                "first_token": first,
                "finish": last,
                "ttft": None if first is None else first - came,
                "tpot": None if first is None or last is None or not steps else (last - first) / steps,
                "e2e": None if last is None else last - came,
                "evictions": evictions[i],
            }
        )
    return rows


def batch_rows(instance: Instance, schedule: Schedule) -> list[dict[str, Any]]:
    """Times, tokens and requests of each batch; times in s.

    Raises
    ------
    ValueError
        If the schedule breaks a rule.
    """
    lines = timeline(instance, schedule, rows=False)
    replayed = lines.replay
    return [
        {
            "batch": j,
            "start": replayed.seconds(replayed.starts[j]),
            "end": replayed.seconds(replayed.ends[j]),
            "seconds": Fraction(replayed.ends[j] - replayed.starts[j], replayed.ticks_per_second),
            "tokens": features.tokens,
            "decode_requests": features.decodes,
            "kv_tokens": replayed.kv_used[j],
            "running": replayed.running[j],
            "waiting": lines.counts[Phase.WAITING][j],
            "evicted": lines.counts[Phase.EVICTED][j],
        }
        for j, features in enumerate(replayed.features)
    ]
