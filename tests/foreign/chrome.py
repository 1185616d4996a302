"""Chrome traces in Vidur's layout, made of schedules of ours."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.timeline import Walk, each_batch


def processed(instance: Instance, schedule: Schedule) -> list[dict[int, int]]:
    """Tokens of each request of each batch, shorthands resolved."""
    walk, found = Walk(instance), []
    for batch, evict in each_batch(instance, schedule.batches):
        active = walk.step(batch, evict)
        found.append({i: tokens for i, (_, tokens) in active.items()})
        walk.settle()
    return found


def chrome_trace(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """What Vidur would write of a schedule: requests by number, no evictions, no empty batches."""
    done = replay(instance, schedule)
    unit = Fraction(10**6, done.ticks_per_second)
    events = []
    for j, tokens in enumerate(processed(instance, schedule)):
        if tokens:
            start, end = done.starts[j] * unit, done.ends[j] * unit
            args = {
                "batch_id": j,
                "batch_size": len(tokens),
                "request_ids": list(tokens),
                "num_tokens": list(tokens.values()),
            }
            event = {"name": str(list(tokens)), "ph": "X", "ts": float(start), "dur": float(end - start)}
            events.append({**event, "pid": 0, "tid": 0, "args": args})
    return {"traceEvents": events}
