"""Between schedules and the columns of the polisher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule, run_length
from infermax_opt.infermax.planners.polish._trace import Entries

__all__ = ["entries_of", "rewritten"]


def entries_of(instance: Instance, schedule: Schedule, integers: Callable[[Iterable[int]], Any]) -> Entries:
    """A schedule in columns."""
    index, batches = instance.index, schedule.batches
    columns = (
        list(accumulate(len(batch.tokens) for batch in batches)),
        list(accumulate(len(batch.evict) for batch in batches)),
        [int(batch.decode_all) for batch in batches],
        [batch.repeat for batch in batches],
        [index[name] for batch in batches for name in batch.tokens],
        [count for batch in batches for count in batch.tokens.values()],
        [index[name] for batch in batches for name in batch.evict],
    )
    return Entries(*map(integers, columns))


def rewritten(
    instance: Instance,
    schedule: Schedule,
    everyone: Sequence[bool],
    named: Iterable[tuple[int, int, int]],
) -> Schedule:
    """A schedule with the evictions of another one.

    Parameters
    ----------
    everyone : sequence of bool
        Whether all requests in decode take part, per batch.
    named : iterable of (batch, request, tokens)
        What else is processed.  A batch without anything to do is left out.
    """
    names = [request.id for request in instance.requests]
    tokens: dict[int, dict[str, int]] = {}
    for j, i, count in named:
        tokens.setdefault(j, {})[names[i]] = count
    entries: list[Batch] = []
    j = -1
    for batch in schedule.batches:
        for again in range(batch.repeat):
            j += 1
            evict = batch.evict if again == 0 else ()
            mine = tokens.get(j)
            if mine is None and not evict:
                if not everyone[j]:
                    continue
                if entries and entries[-1].decode_all and not entries[-1].tokens:
                    # Long stretches that only decode: count them instead of comparing them.
                    before = entries[-1]
                    entries[-1] = Batch(before.tokens, before.evict, None, True, before.repeat + 1)
                    continue
            entries.append(Batch(mine or {}, evict, None, everyone[j]))
    return Schedule(schedule.instance, run_length(entries))
