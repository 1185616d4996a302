"""What `overload` tabulates: later tokens by what is cached, and moments by what they cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from infermax_opt.infermax.bounds.pieces import longest
from infermax_opt.infermax.data.instance import Instance

__all__ = ["PRICE_BITS", "WAIT_BITS", "Cell", "Moments", "TokenTables", "leading"]

#: Bits after the point of prices and of what is paid, and of waiting by work.
PRICE_BITS, WAIT_BITS = 12, 96
#: Leading bits of a price that prompts are told.
LEADING_BITS = 4

#: End of a cell of time in ticks, and l and x there, in units.
Cell = tuple[int, int, int]


@dataclass(frozen=True)
class TokenTables:
    """Later tokens by s, the tokens cached after them; for one affine piece.

    Attributes
    ----------
    piece : int
    presence, work, size, mass : sequence of int
        Of one such token: a', w, k in tokens, and u in ticks * M.
    masses, early, shares : sequence of int
        Sums up to s: of u; of a' times the sum of u before; and of a' u.
    presences : sequence of int
        Sums of a' up to s.
    """

    piece: int
    presence: Sequence[int]
    work: Sequence[int]
    size: Sequence[int]
    mass: Sequence[int]
    masses: Sequence[int]
    early: Sequence[int]
    shares: Sequence[int]
    presences: Sequence[int]

    @classmethod
    def of(cls, instance: Instance, piece: int) -> TokenTables:
        """Tabulate tokens.

        Parameters
        ----------
        instance : Instance
        piece : int
            Affine piece of the batch time.
        """
        ticks, policy, system = instance.cost.ticks, instance.policy, instance.system
        alpha, beta, spare = ticks.alpha[piece], ticks.beta[piece], max(0, ticks.d0 - ticks.p0)
        presence, work, size = [0], [0], [0]
        rises = not policy.chunked_prefill or beta + ticks.p1 >= ticks.d1
        for s in range(1, longest(instance)):
            step = beta + ticks.d1 * (s - 1)
            refill = beta * s + ticks.p1 * s * (1 if policy.chunked_prefill else s)
            if not policy.preemption or (rises and refill - step >= spare):
                presence.append(alpha + ticks.d0)
                work.append(step)
            else:
                presence.append(alpha + min(ticks.d0, ticks.p0))
                work.append(beta + min(ticks.d1, beta) * (s - 1))
            size.append(s if policy.chunked_prefill else system.held(s))
        mass = [system.kv_capacity * w + a * k for a, w, k in zip(presence, work, size, strict=True)]
        masses = list(accumulate(mass))
        early = [0, *(a * before for a, before in zip(presence[1:], masses, strict=False))]
        shares = [a * u for a, u in zip(presence, mass, strict=True)]
        return cls(
            piece, presence, work, size, mass, masses,
            list(accumulate(early)), list(accumulate(shares)), list(accumulate(presence)),
        )  # fmt: skip


class Moments:
    """What it costs to wait for a moment, and the price there.

    Parameters
    ----------
    cells : sequence of Cell
    capacity : int
        KV tokens, by which masses are larger than ticks.
    """

    def __init__(self, cells: Sequence[Cell], capacity: int):
        self.ends = [end for end, _, _ in cells]
        every = [*cells, (0, 0, 0)]  # the last is all time after the cells
        self._prices = [price for _, price, _ in every]
        self._rates = [(price << WAIT_BITS - PRICE_BITS) // capacity for price in self._prices]
        self._keys = [(leading(price), level) for _, price, level in every]

    def rates(self, begin: int, mass: int) -> dict[tuple[int, int], int]:
        """By price, rounded down to its leading bits, and level: what a unit of mass pays, in small units.

        After the first cell with price 0 none is cheaper: a token pays no less than for its wait, as
        x**2 k <= a0 l k <= l u.

        Parameters
        ----------
        begin : int
            Arrival in ticks.
        mass : int
            U.
        """
        found: dict[tuple[int, int], int] = {}
        here = bisect_right(self.ends, begin)
        for k in range(here, len(self._keys)):
            wait = max(0, self.ends[k - 1] - begin) if k else 0
            rate = (wait << WAIT_BITS) // mass + self._rates[k]
            key = self._keys[k]
            found[key] = min(rate, found.get(key, rate))
            if not self._prices[k]:
                break
        return found


def leading(price: int) -> int:
    """A price without all but its leading bits."""
    shift = max(0, price.bit_length() - LEADING_BITS)
    return price >> shift << shift
