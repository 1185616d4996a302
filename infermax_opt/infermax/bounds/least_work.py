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
from typing import Any, NamedTuple

from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["Totals", "later_reads", "later_work", "least_work", "prompt_pairs", "spreads"]

#: Types of requests up to which columns of them do not pay.
FEW = 100


def spreads(instance: Instance) -> bool:
    """Whether splitting a prompt into chunks saves attention work."""
    return instance.policy.chunked_prefill and not instance.cost.exact_attention


def prompt_pairs(instance: Instance, kind: RequestType) -> int:
    """Least attention work of the prompt of one request: pairs of tokens."""
    return int(_pairs(instance, kind.input_tokens))


def _pairs(instance: Instance, inputs: Any) -> Any:
    return inputs if spreads(instance) else inputs**2


def later_reads(kind: RequestType) -> int:
    """KV tokens that the later tokens of one request read: I + n - 1 for n = 1..O-1, summed."""
    return int(_reads(kind.input_tokens, kind.output_tokens))


def _reads(inputs: Any, outputs: Any) -> Any:
    steps = outputs - 1
    return steps * inputs + steps * (steps - 1) // 2


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
    def of_sizes(cls, instance: Instance, sizes: Sizes) -> Totals:
        """Those of requests of some lengths."""
        return cls(*(int(column.sum()) for column in _parts(instance, *sizes)))

    @classmethod
    def of(cls, instance: Instance, kinds: Sequence[RequestType]) -> Totals:
        """Those of some requests."""
        if len(kinds) > FEW:
            return cls.of_sizes(instance, Sizes.of(kinds))
        found = [_parts(instance, k.input_tokens, k.output_tokens, len(k.members)) for k in kinds]
        return cls(*map(sum, zip(*found, strict=True))) if found else cls(0, 0, 0, 0)

    def token_work(self, instance: Instance, piece: int) -> int:
        """Least work in ticks but for the attention work of the prompts."""
        return _work(instance, self.prompts + self.later, self.reads, piece)

    def least_work(self, instance: Instance, piece: int) -> int:
        """Least work in ticks, attention work of the prompts included."""
        return self.token_work(instance, piece) + int(instance.cost.ticks.p1 * self.pairs)


def _parts(instance: Instance, inputs: Any, outputs: Any, count: Any) -> tuple[Any, Any, Any, Any]:
    """What `Totals` sums, of requests of equal lengths, or of columns of them."""
    reads, pairs = _reads(inputs, outputs), _pairs(instance, inputs)
    return count * inputs, count * (outputs - 1), count * reads, count * pairs


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
