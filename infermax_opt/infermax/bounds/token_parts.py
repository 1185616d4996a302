"""Presence, work and size of each token, as the proofs of `progress` and `waves` count them.

Which they are, and why a batch takes no less, stands in `infermax_opt.infermax.bounds.progress`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["Token", "TokenParts", "by_lengths"]

#: Presence, work and size (a whole number of shares of the divisor) of a token.
Token = tuple[int, int, int]


def by_lengths(instance: Instance) -> list[RequestType]:
    """Requests by input and output tokens; arrivals play no role."""
    merged: dict[tuple[int, int], tuple[int, ...]] = {}
    for kind in instance.types:
        key = kind.input_tokens, kind.output_tokens
        merged[key] = merged.get(key, ()) + kind.members
    return [RequestType(i, o, Fraction(0), members) for (i, o), members in merged.items()]


class TokenParts:
    """The tokens of requests, for one affine piece and one choice of sizes.

    Parameters
    ----------
    instance : Instance
    piece : int
    by_slots : bool
        Whether the size of a token is one slot of those that there are, not KV.

    Attributes
    ----------
    divisor : int
        What the sizes of the tokens of a batch sum to, at most.
    """

    def __init__(self, instance: Instance, piece: int, by_slots: bool):
        self.instance, self.piece, self.by_slots = instance, piece, by_slots
        system = instance.system
        held = system.held(min(r.input_tokens for r in instance.groups))
        slots = [len(instance.requests), system.kv_capacity // held]
        if system.max_running is not None:
            slots.append(system.max_running)
        self.divisor = min(slots) if by_slots else system.kv_capacity

    def of(self, kind: RequestType) -> Iterator[Token]:
        """Presence, work and size of each token of a request."""
        ticks, policy, system = self.instance.cost.ticks, self.instance.policy, self.instance.system
        alpha, beta = ticks.alpha[self.piece], ticks.beta[self.piece]
        chunked = spreads(self.instance)
        spare = max(0, ticks.d0 - ticks.p0)

        def size(cached: int) -> int:
            return 1 if self.by_slots else system.held(cached)

        i = kind.input_tokens
        yield alpha + ticks.p0, beta * i + ticks.p1 * (i if chunked else i * i), size(i)
        for s in range(i + 1, i + kind.output_tokens):
            step = beta + ticks.d1 * (s - 1)
            refill = beta * s + ticks.p1 * (s if chunked else s * s)
            if not policy.preemption or refill - step >= spare:
                yield alpha + ticks.d0, step, size(s)
            else:
                least = beta + min(ticks.d1, beta) * (s - 1)
                yield alpha + min(ticks.d0, ticks.p0), least, size(s)
