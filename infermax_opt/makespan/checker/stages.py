"""Proofs: prefill and decode each for itself (stages), and equations 31 and 32 (paper eq 32)."""

from __future__ import annotations

import math
from itertools import accumulate

from infermax_opt.checking.errors import require
from infermax_opt.makespan.checker.instance import Instance

#: Tokens times levels up to which the cover of all prompts is computed exactly.
MAX_COVER = 20_000_000


def rounds(instance: Instance) -> int:
    """Decode rounds: all tokens on all clients, and of k J + 1 requests, k + 1 on one client."""
    jobs, clients = sorted(instance.outputs.elements(), reverse=True), instance.clients
    sums = [0, *accumulate(jobs)]
    ends = range(1, len(jobs) + 1, clients)
    together = max(sums[end] - sums[end - k] for k, end in enumerate(ends, 1))
    return max(-(-instance.tokens // clients), together)


def cover(instance: Instance) -> int:
    """Least ticks of levels that hold all prompts together."""
    unit = math.gcd(*(tokens for tokens, _ in instance.levels))
    need, sizes = -(-instance.prompts // unit), [(tokens // unit, time) for tokens, time in instance.levels]
    if need * len(sizes) > MAX_COVER:
        return min(-(-need * time // size) for size, time in sizes)
    instance.work.spend(5 * need + 2 * need * len(sizes))
    least = [0]
    for held in range(1, need + 1):
        least.append(min([time + least[max(0, held - size)] for size, time in sizes]))
    return least[need]


def stages(instance: Instance) -> int:
    """Prefill and decode, each for itself."""
    return cover(instance) + rounds(instance) * instance.round


def paper(instance: Instance) -> int:
    """Equations 31 and 32: the floor of tokens over the largest level, where that is the best one."""
    tokens, time = instance.levels[-1]
    require(all(time * fewer <= less * tokens for fewer, less in instance.levels), "eq 31 does not hold")
    return instance.prompts // tokens * time + rounds(instance) * instance.round
