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

__all__ = ["later_work", "least_work", "prompt_pairs", "spreads", "token_work"]


def spreads(instance: Instance) -> bool:
    """Whether splitting a prompt into chunks saves attention work."""
    return instance.policy.chunked_prefill and not instance.cost.exact_attention


def prompt_pairs(instance: Instance, kind: RequestType) -> int:
    """Least attention work of the prompt of one request: pairs of tokens."""
    return kind.input_tokens if spreads(instance) else kind.input_tokens**2


def later_work(instance: Instance, kind: RequestType, piece: int) -> int:
    """Least work in ticks of the tokens that one request makes after its first.

    Parameters
    ----------
    instance : Instance
    kind : RequestType
    piece : int
        Affine piece of the batch time.
    """
    ticks = instance.cost.ticks
    beta = ticks.beta[piece]
    d1 = min(ticks.d1, beta) if instance.policy.preemption else ticks.d1
    i, steps = kind.input_tokens, kind.output_tokens - 1
    reads = steps * i + steps * (steps - 1) // 2  # sum of I + n - 1 for n = 1..O-1
    return int(beta * steps + d1 * reads)


def token_work(instance: Instance, kinds: Sequence[RequestType], piece: int) -> int:
    """Least work in ticks but for the attention work of the prompts.

    Parameters
    ----------
    instance : Instance
    kinds : sequence of RequestType
        The requests that count.
    piece : int
        Affine piece of the batch time.
    """
    beta = instance.cost.ticks.beta[piece]
    return sum(len(k.members) * (beta * k.input_tokens + later_work(instance, k, piece)) for k in kinds)


def least_work(instance: Instance, kinds: Sequence[RequestType], piece: int) -> int:
    """Least work in ticks, attention work of the prompts included.

    Parameters
    ----------
    instance : Instance
    kinds : sequence of RequestType
        The requests that count.
    piece : int
        Affine piece of the batch time.
    """
    pairs = sum(len(kind.members) * prompt_pairs(instance, kind) for kind in kinds)
    return token_work(instance, kinds, piece) + int(instance.cost.ticks.p1 * pairs)
