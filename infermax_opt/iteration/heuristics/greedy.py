"""Greedy over prefixes: for each set of real-time requests that a time asks for, add what pays and fits.

The sets are those of `infermax_opt.iteration.bounds.cases` in which all calls are selected; where not all
savable requests can be kept, the one set that keeps the most.  Requests with a value are added in the order
of what they are worth for the time that they take alone; one that does not fit, or makes the batch worse, is
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infermax_opt.iteration.bounds.cases import Kinds, all_windows
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.ticks import Load, Ticks

__all__ = ["skip_greedy"]

#: Requests looked at in all windows together, at about two microseconds each; of more windows some are tried.
MOST_LOOKS = 400_000
NOBODY: Load = (0, 0, 0, 0, 0, 0, 0)


def skip_greedy(instance: IterationInstance) -> tuple[int, ...]:
    """The best of the batches so made (positions)."""
    ticks = Ticks.of(instance)
    # Beyond what a batch takes anyway.
    alone = ticks.load_time(NOBODY)
    able = [k for k, value in enumerate(ticks.value) if value]
    able.sort(key=lambda k: ((ticks.time([k]) - alone) / ticks.value[k], k))
    best = most_kept(ticks).batch
    starts = list(_starts(ticks, max(1, MOST_LOOKS // max(1, len(able)))))
    for base, most in starts:
        batch = _filled(ticks, base, most, able)
        if ticks.objective(batch) < ticks.objective(best):
            best = tuple(batch)
    return best


def _starts(ticks: Ticks, tried: int) -> Iterator[tuple[list[int], int]]:
    """Real-time requests to begin with, and the most ticks of their batch; of so many windows."""
    kept, kinds = most_kept(ticks), Kinds.of(ticks)
    if kept.least < len(ticks.savable):
        batch = list(kept.batch)
        limits = [ticks.limit(k, k in kept.batch) for k in ticks.kept(batch)]
        yield batch, min(limits, default=ticks.all_time)
        return
    windows = list(all_windows(ticks, kept.least))
    for tau, calls, need in windows[:: -(-len(windows) // tried) or 1]:
        batch = [k for t in sorted(calls) for k in kinds.members[t]] if need else []
        if ticks.fits(batch) and ticks.time(batch) <= tau:
            yield batch, tau


def _filled(ticks: Ticks, base: Sequence[int], most: int, able: Sequence[int]) -> list[int]:
    """The batch with all that pays and fits."""
    requests, machine = ticks.instance.requests, ticks.machine
    batch, chosen, worth = list(base), set(base), ticks.worth(base)
    load: Load = NOBODY
    for k in base:
        load = tuple(a + b for a, b in zip(load, ticks.loads[k], strict=True))  # type: ignore[assignment]
    blocks, time = sum(requests[k].new_blocks for k in base), ticks.time(base)
    for k in able:
        if len(batch) == machine.batch:
            break
        if k in chosen or blocks + requests[k].new_blocks > machine.blocks:
            continue
        more: Load = tuple(a + b for a, b in zip(load, ticks.loads[k], strict=True))  # type: ignore[assignment]
        then, gain = ticks.load_time(more), worth + ticks.value[k]
        if then <= most and gain * time >= worth * then:
            batch.append(k)
            load, time, worth, blocks = more, then, gain, blocks + requests[k].new_blocks
    return batch
