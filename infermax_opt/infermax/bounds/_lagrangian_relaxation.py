"""The relaxation behind the Lagrangian bound: its numbers, and its cheapest paths.

`infermax_opt.infermax.bounds.lagrangian` says what it is and proves that it bounds the makespan.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds.least_work import Totals, spreads
from infermax_opt.infermax.bounds.pieces import BITS, in_units
from infermax_opt.infermax.bounds.tiny import is_tiny
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "MAX_KINDS", "Kind", "Prices", "Relaxation", "cheapest_paths", "moved_prices", "relaxation_of", "retrace",
]  # fmt: skip

#: Most kinds of requests; with more of them the bound is not tried.
MAX_KINDS = 64


@dataclass(frozen=True)
class Kind:
    """Requests of equal lengths.

    `sizes[n]`: blocks held with n tokens, an int64 array (O + 1,); `steps[n]` and `refills[n]`: units
    that decoding token n and entering with it cost; `loads[n]`: tokens prefilled before one enters with it.
    `tiny`: whether all requests together are few.
    """

    input_tokens: int
    output_tokens: int
    count: int
    sizes: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    refills: npt.NDArray[np.int64]
    loads: npt.NDArray[np.int64]
    tiny: bool


@dataclass(frozen=True)
class Prices:
    """Units in each batch: for a block of KV, and for a token that it processes; int64 arrays (T,)."""

    kv: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]

    def first(self, batches: int) -> Prices:
        """Those of the first batches."""
        return Prices(self.kv[:batches], self.tokens[:batches])


@dataclass(frozen=True)
class Relaxation:
    """What the bound needs of one instance, piece and theta; costs in units.

    `budget`: tokens in a batch; `decoded`: how many of them a decode takes, 0 where only those of prefill are
    limited so; `block`: tokens of a block of KV; `chunked`: whether a prompt may be prefilled in several
    batches.  `batch`: alpha + theta; `share`: delta / B; `base` (ticks): work but for
    squares, and prefill presence; `squares`: ticks p1 I**2 of all requests of each kind, spread over chunks
    if `spread`.
    """

    instance: Instance
    piece: int
    theta: int
    exponent: int
    capacity: int
    budget: int
    decoded: int
    block: int
    chunked: bool
    batch: int
    share: int
    base: int
    kinds: tuple[Kind, ...]
    spread: bool

    @property
    def area(self) -> int:
        """Blocks held in all batches that make tokens, summed over tokens."""
        return sum(kind.count * int(kind.sizes.sum()) for kind in self.kinds)

    @property
    def longest(self) -> int:
        """Output tokens of the longest requests."""
        return max(kind.output_tokens for kind in self.kinds)

    @property
    def least(self) -> int:
        """Least number of batches, by area."""
        return max(-(-self.area // self.capacity), self.longest)

    @property
    def longest_prompt(self) -> int:
        """Input tokens."""
        return max(kind.input_tokens for kind in self.kinds)

    def squares(self, batches: int) -> int:
        """Least attention work of the prompts in so many batches, in ticks."""
        p1 = self.instance.cost.ticks.p1
        total = 0
        for kind in self.kinds:
            i, chunks = kind.input_tokens, batches - kind.output_tokens + 1
            total += kind.count * p1 * (max(i, i * i // chunks) if self.spread else i * i)
        return int(total)

    def entries(self, prices: Prices) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """What a token of prefill costs at least that is held in each batch, and when it is prefilled.

        In chunks it may be prefilled in any batch before, and is held since.
        """
        import numpy as np

        batches = np.arange(len(prices.kv))
        if not self.chunked:
            return prices.tokens, batches
        held = np.append(0, np.cumsum(prices.kv[:-1] // self.block))
        least = np.minimum.accumulate(prices.tokens - held)
        begins = np.append(True, least[1:] < least[:-1])
        return least + held, np.maximum.accumulate(np.where(begins, batches, 0))

    def batches(self, prices: Prices) -> npt.NDArray[np.int64]:
        """Units of each batch less what may be held and processed in it at these prices."""
        return self.batch - self.capacity * prices.kv - self.budget * prices.tokens

    def values(self, prices: Prices) -> npt.NDArray[np.int64]:
        """Units that depend on the number J of batches, J = least..T: paths, batches and prices."""
        import numpy as np

        total = np.concatenate([[0], np.cumsum(self.batches(prices))])[self.least :]
        entries, _ = self.entries(prices)
        for kind in self.kinds:
            ends, _ = cheapest_paths(self, kind, prices, entries, np.empty((0, 0), np.int8))
            total += kind.count * ends[self.least :]
        return total

    def bound(self, values: Sequence[npt.NDArray[np.int64]]) -> Fraction:
        """Bound in seconds from the `values` of several lists of prices of one length."""
        import numpy as np

        best = np.max(values, axis=0).tolist()
        beyond = self.least + len(best)  # T + 1
        if not self.spread:
            best = [min(best)]
        units = Fraction(2) ** self.exponent
        ticks = [Fraction(value) / units + self.squares(self.least + k) for k, value in enumerate(best)]
        # Chunks of single tokens, were there batches enough.
        ticks.append(Fraction(beyond * self.batch) / units + self.squares(beyond + self.longest_prompt))
        return (self.base + min(ticks)) / self.instance.cost.ticks_per_second


def relaxation_of(instance: Instance, piece: int, theta: int) -> Relaxation | None:
    """Relaxation of an instance.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    theta : int
        Ticks of presence that every batch pays.

    Returns
    -------
    Relaxation or None
        None where batches are free of charge, decoding costs too much for a column of whole numbers beside
        them, or the kinds of requests are too many.
    """
    import numpy as np

    ticks, system = instance.cost.ticks, instance.system
    alpha, beta = ticks.alpha[piece], ticks.beta[piece]
    if alpha + theta == 0:
        return None
    lengths: Counter[tuple[int, int]] = Counter()
    for t in instance.types:
        lengths[t.input_tokens, t.output_tokens] += len(t.members)
    if len(lengths) > MAX_KINDS:
        return None
    exponent = BITS - (alpha + theta).bit_length()

    units = functools.partial(in_units, exponent=exponent)
    block, capacity = system.block_size, system.kv_capacity // system.block_size
    rho, share = units(max(0, beta - ticks.d1)), units(ticks.d0 - theta) // capacity
    if share * capacity >= 1 << 50:
        return None
    tiny = is_tiny(tuple((i, o, count) for (i, o), count in lengths.items()))
    kinds = []
    for (i, o), count in sorted(lengths.items()):
        kv = np.arange(i - 1, i + o)
        kv[0] = 0
        sizes = -(-kv // block)
        refills = np.array([0, 0, *(min(rho * int(s), 1 << 50) for s in kv[1:-1])], np.int64)
        steps = share * sizes
        if instance.policy.preemption:
            steps = np.minimum(steps, refills)
        loads = np.array([0, i, *kv[1:-1]], np.int64)
        kinds.append(Kind(i, o, count, sizes, steps, refills, loads, tiny))
    prefill = -(-sum(k.input_tokens * k.count for k in kinds) // system.prefill_budget)
    return Relaxation(
        instance=instance,
        piece=piece,
        theta=theta,
        exponent=exponent,
        capacity=capacity,
        budget=system.prefill_budget,
        decoded=int(system.max_batch_tokens <= system.prefill_budget),
        block=block,
        chunked=instance.policy.chunked_prefill,
        batch=units(alpha + theta),
        share=share,
        base=Totals.of(instance, instance.types).token_work(instance, piece) + (ticks.p0 - theta) * prefill,
        kinds=tuple(kinds),
        spread=spreads(instance),
    )


def moved_prices(prices: Prices, source: Relaxation, target: Relaxation) -> Prices:
    """Prices of one relaxation in the units of another, less what decode steps pay there besides.

    Parameters
    ----------
    prices : Prices
        In units of `source`.
    source, target : Relaxation
    """
    import numpy as np

    def moved(some: npt.NDArray[np.int64], less: int) -> npt.NDArray[np.int64]:
        whole = np.round(np.ldexp(some.astype(np.float64), target.exponent - source.exponent)) - less
        return np.maximum(0, whole).astype(np.int64)

    return Prices(moved(prices.kv, target.share - source.share), moved(prices.tokens, 0))


@functools.cache
def _kernels(small: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    from infermax_opt.infermax.bounds import _kernels_lagrangian as kernels

    return (
        compiled(kernels.cheapest, (), small=small),
        compiled(kernels.retrace, (), allocates=False, small=small),
    )


def cheapest_paths(
    relaxation: Relaxation,
    kind: Kind,
    prices: Prices,
    entries: npt.NDArray[np.int64],
    choices: npt.NDArray[np.int8],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cheapest paths of the requests of one kind.

    Parameters
    ----------
    relaxation : Relaxation
    kind : Kind
    prices : Prices
    entries : int64 array (T,)
        Of prefill, as `Relaxation.entries` gives them.
    choices : int8 array (T, O + 1), or (0, 0)
        Set to how each state is reached, unless it is empty.

    Returns
    -------
    ends : int64 array (T + 1,)
        Units of the cheapest path that ends within 0, 1, ... batches.
    rows : int64 array (T,)
        Row of `choices` that holds for each batch.
    """
    import numpy as np

    horizon = len(prices.kv)
    ends, rows = np.empty(horizon + 1, np.int64), np.empty(horizon, np.int64)
    evictions = relaxation.instance.policy.preemption
    _kernels(kind.tiny)[0](
        prices.kv, entries, relaxation.decoded * prices.tokens, kind.sizes, kind.steps, kind.refills,
        kind.loads, evictions, ends, choices, rows,
    )  # fmt: skip
    return ends, rows


def retrace(
    choices: npt.NDArray[np.int8],
    rows: npt.NDArray[np.int64],
    end: int,
    kind: Kind,
    blocks: npt.NDArray[np.int64],
    entered: npt.NDArray[np.int64],
    made: npt.NDArray[np.int64],
) -> int:
    """Follow the cheapest path that ends with batch `end` back.

    Parameters
    ----------
    choices : int8 array
    rows : int64 array (T,)
        As `cheapest_paths` left and gave them.
    end : int
        Batch, from 1.
    kind : Kind
    blocks : int64 array (T,)
        Set to the blocks that the path holds in each batch.
    entered : int64 array (T,)
        Set to the tokens that were prefilled for one made in each batch.
    made : int64 array (T,)
        Set to the later tokens that are made in each batch.

    Returns
    -------
    int
        Units that it pays besides prices.
    """
    kernel = _kernels(kind.tiny)[1]
    return int(
        kernel(choices, rows, end, kind.sizes, kind.steps, kind.refills, kind.loads, blocks, entered, made)
    )
