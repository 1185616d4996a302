r"""The Lagrangian bound: prices of KV batch by batch, a shortest path for each kind of requests.

Area arguments let any token share a batch with any other.  But memory fills slowly: at the start
all requests are young.  Here every request must make its tokens in order.

*Relaxation.*  Fix one affine piece of the batch time and the number J of batches, those that process
nothing not counted.  The KV blocks held in batch t are at most B = M // s (block size s); let
lambda_t >= 0 be a price on them.
A schedule's makespan is at least the sum of

- the work of `work` (F);  alpha for each batch;
- theta for each batch, delta = d0 - theta for each batch with decodes and p0 - theta for each of
  the at least Y batches that prefill, for theta = 0 or min(d0, p0): a batch pays d0, p0 or both;
- rho (s-1), rho = max(0, beta - d1), for each token of KV size s that ends a refill
  (`occupancy`: F counts a decode step for it, and the refill costs at least so much more);
- lambda_t (blocks held in t - B), which is never positive.

Decode steps hold at most B blocks per batch, so delta in a batch with decodes is at least delta / B
for each block of a request that decodes.  What is left falls apart into one problem per request:

- in each batch it *decodes* its next token (lambda_t + delta / B a block), stays *idle* or *enters*
  with its first token or after a refill (lambda_t a block), or is *out* (0);
- having n tokens it holds I + n - 1 tokens of KV, also in the batch that makes token n;
- to enter with token n+1 > 1 costs rho (I + n - 1); to leave costs nothing.  A request may leave and
  enter again between two batches, so a decode step costs no more than entering.

With f_k(J) the cheapest path of kind k that ends by batch J, and N_k requests,

    makespan >= F + (p0 - theta) Y + J (alpha + theta) + sum_k N_k f_k(J) - B sum_{t <= J} lambda_t.

Dropped constraints (arrivals, C, P, R_max, the KV of unfinished refills) only lower the right side.
The best prices reach the value of the aggregated count LP (how many requests of each kind have how many
tokens after each batch), whose dual this is: its flows of one kind are mixtures of paths.

*All numbers of batches.*  One list of prices bounds every J.  The bound takes for each J the best
of several lists, and then the least over J: J at least by area and at most the length T of the
lists, for above that (T + 1) (alpha + theta) is paid.  With "square" attention and chunks, J batches
split a prompt into at most J - O + 1 chunks, whose squares cost at least p1 I**2 / (J - O + 1).

*Rounding.*  Costs are rounded down to units, prices are whole units: shortest paths are exact.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.least_work import spreads, token_work
from infermax_opt.infermax.bounds.pieces import BITS, best_piece, in_units
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Kind", "Relaxation", "cheapest_paths", "lagrangian_bound", "retrace"]

#: Kinds, and states of all kinds together in batches of varied prices, beyond which the bound is not
#: tried; how many such batches there are, as a multiple of the longest output.
MAX_KINDS, MAX_STATES, VARIED = 64, 50_000_000, 7
#: Longest horizon, in batches, so that sums stay in int64.
MAX_HORIZON = 2**18
#: The first horizon, as a multiple of the least number of batches and of the longest output.
REACH, TAIL = 1.15, 2


@dataclass(frozen=True)
class Kind:
    """Requests of equal lengths.

    `sizes[n]`: blocks held with n tokens, an int64 array (O + 1,); `steps[n]` and `refills[n]`: units
    that decoding token n and entering with it cost.
    """

    input_tokens: int
    output_tokens: int
    count: int
    sizes: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    refills: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Relaxation:
    """What the bound needs of one instance, piece and theta; costs in units.

    `batch`: alpha + theta; `share`: delta / B; `base` (ticks): work but for squares, and prefill presence;
    `squares`: ticks p1 I**2 of all requests of each kind, spread over chunks if `spread`.
    """

    instance: Instance
    piece: int
    theta: int
    exponent: int
    capacity: int
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

    def values(self, prices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Units that depend on the number J of batches, J = least..T: paths, batches and prices."""
        import numpy as np

        total = np.concatenate([[0], np.cumsum(self.batch - self.capacity * prices)])[self.least :]
        for kind in self.kinds:
            ends, _ = cheapest_paths(self, kind, prices, np.empty((0, 0), np.int8))
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


def lagrangian_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best Lagrangian bound on the makespan that the search for prices finds.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to improve the prices no longer.

    Returns
    -------
    LowerBound or None
        None where there are too many kinds of requests or batches.
    """
    return best_piece(instance, _piece_bound, stop)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    from infermax_opt.infermax.bounds._lagrangian_search import find_prices

    ticks = instance.cost.ticks
    relaxation = _relaxation(instance, piece, min(ticks.d0, ticks.p0))
    if relaxation is None:
        return None
    horizon = int(REACH * relaxation.least) + TAIL * relaxation.longest
    # Where prices are constant, batches soon change nothing.
    states = min(horizon, VARIED * relaxation.longest) * sum(kind.output_tokens for kind in relaxation.kinds)
    if horizon > MAX_HORIZON or states > MAX_STATES:
        return None
    found = find_prices(relaxation, horizon, stop)
    if not found:
        return None
    lists = [prices for prices, _ in found]
    value = relaxation.bound([values for _, values in found])
    bare = _relaxation(instance, piece, 0)
    if bare is not None and relaxation.theta > 0 and not stop():
        # The presence that theta no longer pays moves into the prices.
        moved = [_moved(prices, relaxation, bare) for prices in lists]
        other = bare.bound([bare.values(prices) for prices in moved])
        if other > value:
            relaxation, value, lists = bare, other, moved
    evidence = {
        "kind": "lagrangian",
        "piece": piece,
        "theta": relaxation.theta,
        "exponent": relaxation.exponent,
        "prices": [[[p, len(list(run))] for p, run in groupby(prices.tolist())] for prices in lists],
    }
    return LowerBound(value, "Lagrangian", Proof.CERTIFICATE, evidence=evidence)


def _moved(prices: npt.NDArray[np.int64], source: Relaxation, target: Relaxation) -> npt.NDArray[np.int64]:
    """Prices of one relaxation in the units of another, less what decode steps pay there besides."""
    import numpy as np

    moved = np.ldexp(prices.astype(np.float64), target.exponent - source.exponent)
    return np.maximum(0, np.round(moved) - (target.share - source.share)).astype(np.int64)


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from infermax_opt.infermax.bounds import _kernels_lagrangian as kernels

    return compiled(kernels.cheapest, ()), compiled(kernels.retrace, (), allocates=False)


def cheapest_paths(
    relaxation: Relaxation, kind: Kind, prices: npt.NDArray[np.int64], choices: npt.NDArray[np.int8]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Units of the cheapest path of a kind that ends within 0, 1, ... batches; rows of `choices`.

    `choices` is set to how each state is reached, unless it is empty.
    """
    import numpy as np

    ends, rows = np.empty(len(prices) + 1, np.int64), np.empty(len(prices), np.int64)
    evictions = relaxation.instance.policy.preemption
    _kernels()[0](prices, kind.sizes, kind.steps, kind.refills, evictions, ends, choices, rows)
    return ends, rows


def retrace(
    choices: npt.NDArray[np.int8],
    rows: npt.NDArray[np.int64],
    end: int,
    kind: Kind,
    blocks: npt.NDArray[np.int64],
) -> int:
    """Follow the cheapest path that ends with batch `end` back: units that it pays besides prices.

    `blocks` is set to what it holds in each batch.
    """
    return int(_kernels()[1](choices, rows, end, kind.sizes, kind.steps, kind.refills, blocks))


def _relaxation(instance: Instance, piece: int, theta: int) -> Relaxation | None:
    """Relaxation of an instance, or None where there is nothing to price."""
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
    kinds = []
    for (i, o), count in sorted(lengths.items()):
        kv = np.arange(i - 1, i + o)
        kv[0] = 0
        sizes = -(-kv // block)
        refills = np.array([0, 0, *(min(rho * int(s), 1 << 50) for s in kv[1:-1])], np.int64)
        steps = share * sizes
        if instance.policy.preemption:
            steps = np.minimum(steps, refills)
        kinds.append(Kind(i, o, count, sizes, steps, refills))
    prefill = -(-sum(k.input_tokens * k.count for k in kinds) // system.prefill_budget)
    return Relaxation(
        instance=instance,
        piece=piece,
        theta=theta,
        exponent=exponent,
        capacity=capacity,
        batch=units(alpha + theta),
        share=share,
        base=token_work(instance, instance.types, piece) + (ticks.p0 - theta) * prefill,
        kinds=tuple(kinds),
        spread=spreads(instance),
    )
