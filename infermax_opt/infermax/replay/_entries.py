"""A schedule in columns, for compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule

__all__ = ["Entries", "entries_of"]


class Entries(NamedTuple):
    """A schedule in columns.

    Per entry: `token_end` and `evict_end`, where its stretches of the columns below end;
    `decode_all`, its flag; `repeat`, its repetitions.  Behind each other: `request` and `tokens`,
    what is processed; `evicted`, who is evicted.
    """

    token_end: Any
    evict_end: Any
    decode_all: Any
    repeat: Any
    request: Any
    tokens: Any
    evicted: Any


def entries_of(instance: Instance, schedule: Schedule, integers: Callable[[Iterable[int]], Any]) -> Entries:
    """A schedule in columns.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
    integers : callable
        Makes a column of an iterable of int.

    Raises
    ------
    KeyError
        If the schedule names a request that the instance does not have.
    """
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
