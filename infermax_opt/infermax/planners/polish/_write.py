"""Between schedules and the columns of the polisher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule, run_length

__all__ = ["rewritten"]


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
