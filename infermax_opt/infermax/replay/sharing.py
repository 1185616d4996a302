"""Blocks that a real-time and a best-effort request could share, filling them from both sides.

Last blocks with r and b tokens fit into one block of s where r + b <= s; each block is shared by at most one
of each kind.  The most pairs are a maximum matching, which sorting finds: the smallest r takes the largest b
that fits it, and so on.

*Proof.*  Let r be the smallest, and b the largest that fits it; where there is none, no pair fits.  Some
maximum matching has the pair (r, b).  Take any.  If r or b is free in it, put the pair in the place of the
other one's pair, if that has one.  If r is with b' and r' with b, then b' <= b, so r' + b' <= r' + b <= s,
and (r, b), (r', b') fit, too.  The rest is the same problem without both.  QED.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.machine import Machine

__all__ = ["Shared", "most_shared", "shared_blocks", "shared_by_rule"]


class Shared(NamedTuple):
    """Blocks held between two batches, and how many of them sharing saves: by BROS's rule, and at most."""

    blocks: int
    by_rule: int
    most: int


def most_shared(real_time: Sequence[int], best_effort: Sequence[int], size: int) -> int:
    """Most pairs of last blocks that share one.

    Parameters
    ----------
    real_time, best_effort : sequence of int
        Tokens in the last block of each request, from 1 to `size`.
    size : int
        Tokens of a block.
    """
    left, pairs = sorted(best_effort), 0
    for tokens in sorted(real_time):
        while left and left[-1] + tokens > size:
            left.pop()  # too large for this one, and so for all after it
        if not left:
            break
        left.pop()
        pairs += 1
    return pairs


def shared_by_rule(real_time: Sequence[int], best_effort: Sequence[int], size: int) -> int:
    """Pairs by the rule of BROS: each best-effort request, in turn, takes the block with most empty slots.

    Parameters
    ----------
    real_time, best_effort : sequence of int
        As for `most_shared`; best-effort requests in the order in which they came.
    size : int
    """
    left, pairs = sorted(real_time, reverse=True), 0
    for tokens in best_effort:
        if left and left[-1] + tokens <= size:
            left.pop()
            pairs += 1
    return pairs


def shared_blocks(instance: Instance, schedule: Schedule, every: int = 1) -> Iterator[Shared]:
    """What sharing would save after every so many batches of a valid schedule.

    Real-time is who has a service level.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
    every : int
        Batches from one look to the next.
    """
    size, machine = instance.system.block_size, Machine(instance)
    promised = [bool(request.terms.slo) for request in instance.requests]
    for batch in schedule.batches:
        for k in range(batch.repeat):
            machine.run(machine.examine(batch, k == 0))
            if machine.position % every:
                continue
            tails: tuple[list[int], list[int]] = ([], [])
            for i, cached in enumerate(machine.state.cached):
                if cached:
                    tails[promised[i]].append((cached - 1) % size + 1)
            best_effort, real_time = tails
            rule, most = (count(real_time, best_effort, size) for count in (shared_by_rule, most_shared))
            yield Shared(machine.state.held // size, rule, most)
