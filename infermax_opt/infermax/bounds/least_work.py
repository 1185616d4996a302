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
from typing import NamedTuple

from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["Totals", "later_reads", "later_work", "least_work", "prompt_pairs", "spreads"]


def spreads(instance: Instance) -> bool:
    """Whether splitting a prompt into chunks saves attention work."""
    return instance.policy.chunked_prefill and not instance.cost.exact_attention


def prompt_pairs(instance: Instance, kind: RequestType) -> int:
    """Least attention work of the prompt of one request: pairs of tokens."""
    return kind.input_tokens if spreads(instance) else kind.input_tokens**2


def later_reads(kind: RequestType) -> int:
    """KV tokens that the later tokens of one request read: I + n - 1 for n = 1..O-1, summed."""
    i, steps = kind.input_tokens, kind.output_tokens - 1
    return steps * i + steps * (steps - 1) // 2


def later_work(instance: Instance, kind: RequestType, piece: int) -> int:
    """Least work in ticks of the tokens that one request makes after its first.

    Parameters
    ----------
    instance : Instance
    kind : RequestType
    piece : int
        Affine piece of the batch time.
    """
    return _work(instance, kind.output_tokens - 1, later_reads(kind), piece)


def _work(instance: Instance, tokens: int, reads: int, piece: int) -> int:
    """Least work in ticks of some tokens.

    Parameters
    ----------
    instance : Instance
    tokens, reads : int
        How many, and the KV tokens that the later ones among them read.
    piece : int
        Affine piece of the batch time.
    """
    ticks = instance.cost.ticks
    beta = ticks.beta[piece]
    d1 = min(ticks.d1, beta) if instance.policy.preemption else ticks.d1
    return int(beta * tokens + d1 * reads)


class Totals(NamedTuple):
    """Sums over requests, in which their least work is linear whatever the piece.

    Attributes
    ----------
    prompts, later : int
        Tokens of the prompts, and tokens that are made after the first ones.
    reads : int
        KV tokens that the later ones read.
    pairs : int
        Least attention work of the prompts.
    """

    prompts: int
    later: int
    reads: int
    pairs: int

    @classmethod
    def of(cls, instance: Instance, kinds: Sequence[RequestType]) -> Totals:
        """Those of some requests."""
        prompts = later = reads = pairs = 0
        for kind in kinds:
            count = len(kind.members)
            prompts += count * kind.input_tokens
            later += count * (kind.output_tokens - 1)
            reads += count * later_reads(kind)
            pairs += count * prompt_pairs(instance, kind)
        return cls(prompts, later, reads, pairs)

    def token_work(self, instance: Instance, piece: int) -> int:
        """Least work in ticks but for the attention work of the prompts."""
        return _work(instance, self.prompts + self.later, self.reads, piece)

    def least_work(self, instance: Instance, piece: int) -> int:
        """Least work in ticks, attention work of the prompts included."""
        return self.token_work(instance, piece) + int(instance.cost.ticks.p1 * self.pairs)


def least_work(instance: Instance, kinds: Sequence[RequestType], piece: int) -> int:
    """Least work in ticks of some requests, attention work of the prompts included.

    Parameters
    ----------
    instance : Instance
    kinds : sequence of RequestType
        The requests that count.
    piece : int
        Affine piece of the batch time.
    """
    return Totals.of(instance, kinds).least_work(instance, piece)
