"""What prices prove of schedules with a number of batches: `infermax_opt.infermax.bounds.branching`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.infermax.bounds.pieces import BITS, in_units
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = [
    "DECODE", "DECODES", "FIRST", "IDLE", "LATE", "MOST", "MOVES", "PREFILLS", "RETURN",
    "Box", "Counted", "Prices", "Split",
]  # fmt: skip

#: What a request does in a batch, and what a batch does: bits of the kinds of a box.
FIRST, DECODE, IDLE, RETURN, LATE, PREFILLS, DECODES = (1 << k for k in range(7))
#: All that a request does.
MOVES = FIRST | DECODE | IDLE | RETURN | LATE
#: Largest price of all KV, of a split and of all prompts of a batch, in units.
MOST = 2**50
#: No sum along a way of a request leaves int64 where its moves cost less than this together.
FAR = 2**61
#: Divisors of KV sizes beside 1, at most.
DIVISORS = 6


class Box(NamedTuple):
    """What is counted: moves of these kinds, in batches first ... last, to fewest ... most tokens.

    Of batches that prefill or decode, tokens say nothing.
    """

    kinds: int
    first: int
    last: int
    fewest: int
    most: int


class Split(NamedTuple):
    """One side of a branching: what is in the box is `limit` at most, or at least, where `above`."""

    box: Box
    limit: int
    above: bool


class Prices(NamedTuple):
    """Units, 0 or more: of KV held in parts of each divisor, decoded and prefilled, and of prompts, by batch;
    and of splits.
    """

    held: Integers
    decoded: Integers
    prefilled: Integers
    prompts: Integers
    splits: Integers


@dataclass(frozen=True)
class Counted:
    """Requests of one kind, and costs in units of 2**-exponent ticks.

    `sizes`: blocks that a request holds, by its tokens; `room`: blocks in all; `divisors`: of these.
    """

    count: int
    inputs: int
    outputs: int
    sizes: Integers
    room: int
    divisors: tuple[int, ...]
    budget: int
    exponent: int
    alpha: int
    d0: int
    p0: int
    rho: int
    hybrid: bool
    chunked: bool
    evictions: bool

    @classmethod
    def of(cls, instance: Instance, piece: int) -> Counted | None:
        """The requests of an instance and a piece; None where they differ, or batches are next to free."""
        import numpy as np

        lengths = {(kind.input_tokens, kind.output_tokens) for kind in instance.types}
        ticks, system, policy = instance.cost.ticks, instance.system, instance.policy
        fixed, beta = (ticks.alpha[piece], ticks.d0, ticks.p0), ticks.beta[piece]
        exponent = BITS - sum(fixed).bit_length()
        alpha, d0, p0 = (in_units(cost, exponent) for cost in fixed)
        if len(lengths) > 1 or not alpha + min(d0, p0):
            return None
        ((inputs, outputs),) = lengths
        sizes = -(-np.arange(inputs, inputs + outputs, dtype=np.int64) // system.block_size)
        room, rho = system.kv_capacity // system.block_size, in_units(max(0, beta - ticks.d1), exponent)
        return cls(
            count=len(instance.requests),
            inputs=inputs,
            outputs=outputs,
            sizes=sizes,
            room=room,
            divisors=_divisors(sizes.tolist(), room),
            budget=system.prefill_budget,
            exponent=exponent,
            alpha=alpha,
            d0=d0,
            p0=p0,
            rho=min(MOST // (inputs + outputs), rho),
            hybrid=policy.hybrid_batching,
            chunked=policy.chunked_prefill,
            evictions=policy.preemption,
        )

    @property
    def presence(self) -> int:
        """Units that a batch costs beside alpha and its tokens, at least."""
        return min(self.d0, self.p0)

    def value(self, prices: Prices, splits: Sequence[Split]) -> int:
        """Units of presence and refills that prices prove, under some splits, for as many batches."""
        import numpy as np

        batches = len(prices.decoded)
        moves = np.zeros((5, batches, self.outputs), np.int64)
        present = np.zeros((2, batches), np.int64)
        total = 0
        for price, ((kinds, first, last, fewest, most), limit, above) in zip(
            prices.splits.tolist(), splits, strict=True
        ):
            paid = -price if above else price
            total -= paid * limit
            for k in range(7):
                if kinds >> k & 1 and k < 5:
                    moves[k, first - 1 : last, fewest - 1 : most] += paid
                elif kinds >> k & 1:
                    present[k - 5, first - 1 : last] += paid
        prompts = np.cumsum(prices.prompts[::-1])[::-1]
        prefills = present[0] + self.p0 - self.room * prices.prefilled - self.budget * prompts
        decodes = present[1] + self.d0 - self.room * prices.decoded
        alone = np.minimum(prefills, decodes)
        total += int((np.minimum(alone, prefills + decodes) if self.hybrid else alone).sum())
        for divisor, held in zip(self.divisors, prices.held, strict=True):
            moves += np.multiply.outer(held, self.sizes // divisor)
            total -= self.room // divisor * int(held.sum())
        moves[1] += np.multiply.outer(prices.decoded, self.sizes)
        moves[[0, 3, 4]] += np.multiply.outer(prices.prefilled, self.sizes)
        moves[0, :, 0] += self.inputs * prompts
        if int(np.abs(moves).max()) >= FAR // batches:  # with refills, still less than twice that
            return -FAR
        return total + self.count * self.cheapest(moves)

    def cheapest(self, moves: Integers) -> int:
        """Units of the cheapest way of one request, by what its moves cost."""
        import numpy as np

        far, outputs = 2 * FAR, self.outputs
        refill = self.rho * np.arange(self.inputs, self.inputs + outputs - 1, dtype=np.int64)
        active, out = np.full((2, outputs), far, np.int64)
        done = far
        for first, decode, idle, again, late in moves.swapaxes(0, 1):
            if self.evictions:
                np.minimum(out, active, out=out)
            stay = np.minimum(active[:-1], far - idle[:-1].clip(0)) + idle[:-1]
            make = np.minimum(active[:-1], far - decode[1:].clip(0)) + decode[1:]
            if self.evictions:
                back = refill + again[1:]
                make = np.minimum(make, np.minimum(out[:-1], far - back.clip(0)) + back)
            if self.evictions and self.chunked:
                back = refill + late[:-1]
                stay = np.minimum(stay, np.minimum(out[:-1], far - back.clip(0)) + back)
            active[0] = first[0]
            active[1:] = make
            active[:-1] = np.minimum(active[:-1], stay)
            done = min(done, int(active[-1]))
        return done


def _divisors(sizes: Sequence[int], room: int) -> tuple[int, ...]:
    """1, and the least sizes of which no more than 1, 2, 3, ... fit: the fewest that the oldest can be."""
    fewest = room // sizes[-1]
    some = {room // (k + 1) + 1 for k in range(fewest, fewest + DIVISORS)}
    return (1, *sorted(x for x in some if x > 1))
