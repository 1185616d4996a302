"""Work that every schedule performs, whatever its batches.

Before its first token, request i processes at least I tokens of prefill: beta I, plus attention
work.  Each later token, made when n exist, is either a decode step, beta + d1 (I+n-1), or ends a
refill of I+n tokens, which costs at least beta (I+n).  So it costs at least
beta + min(d1, beta) (I+n-1), or d1 in place of min(d1, beta) when preemption is off.

The attention work of a prompt is I**2 without chunks, and with "exact" attention, where the chunks
telescope.  With "square" attention a chunk may be a single token: at least I.
"""

from __future__ import annotations

from collections.abc import Sequence

from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["least_work", "spreads", "token_work"]


def spreads(instance: Instance) -> bool:
    """Whether splitting a prompt into chunks saves attention work."""
    return instance.policy.chunked_prefill and not instance.cost.exact_attention


def token_work(instance: Instance, kinds: Sequence[RequestType], piece: int) -> int:
    """Least work in ticks but for the attention work of the prompts."""
    ticks = instance.cost.ticks
    beta = ticks.beta[piece]
    d1 = min(ticks.d1, beta) if instance.policy.preemption else ticks.d1
    work = 0
    for kind in kinds:
        i, o = kind.input_tokens, kind.output_tokens
        reads = (o - 1) * i + (o - 1) * (o - 2) // 2  # sum of I + n - 1 for n = 1..O-1
        work += len(kind.members) * (beta * (i + o - 1) + d1 * reads)
    return int(work)


def least_work(instance: Instance, kinds: Sequence[RequestType], piece: int) -> int:
    """Least work in ticks, attention work of the prompts included."""
    spread = spreads(instance)
    pairs = sum(len(k.members) * (k.input_tokens if spread else k.input_tokens**2) for k in kinds)
    return token_work(instance, kinds, piece) + int(instance.cost.ticks.p1 * pairs)
