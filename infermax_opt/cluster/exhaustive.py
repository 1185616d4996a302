"""All placements of a small stream, one by one.

A placement is a partition of the requests: workers are alike, and which number one has does not matter.  So
the requests are taken in their order, each joins one of the groups so far or opens a new one, and every
partition comes up once.  Each is replayed by the verifier; what breaks no limit counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.check import check_stream
from infermax_opt.placement.data.schedule import Placement

__all__ = ["MAX_REQUESTS", "least_mean_workers"]

#: Most requests whose placements are all looked at: 877 partitions of 7, which take a second or two.
MAX_REQUESTS = 7


def least_mean_workers(stream: Stream) -> Fraction | None:
    """Least mean number of workers of any placement that keeps the limits at every heartbeat.

    Returns
    -------
    Fraction or None
        None if there are more than `MAX_REQUESTS` requests, or no placement keeps the limits.
    """
    names = [request.id for request in stream.requests]
    if len(names) > MAX_REQUESTS:
        return None
    found = (
        check.metrics.mean_workers
        for groups in _partitions(len(names))
        if (check := check_stream(stream, Placement(stream.name, dict(zip(names, groups, strict=True))))).ok
        and check.metrics is not None
    )
    return min(found, default=None)


def _partitions(count: int, groups: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Numbers of groups, from 1, of so many items: every partition once."""
    if len(groups) == count:
        yield groups
        return
    for group in range(1, max(groups, default=0) + 2):
        yield from _partitions(count, (*groups, group))
