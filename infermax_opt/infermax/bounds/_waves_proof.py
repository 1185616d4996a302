"""What prices of the ranks of equal requests prove: see `infermax_opt.infermax.bounds.waves`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.token_parts import TokenParts, by_lengths
from infermax_opt.infermax.data.instance import Instance

__all__ = ["SHARE_BITS", "Knot", "Layer", "WavesProof", "interpolated"]

#: Bits of the base in units, at least, and of a share.
BASE_BITS, SHARE_BITS = 40, 20

#: A rank, and the price of its tokens; between two of them prices lie on a line.
Knot = tuple[int, int]


class Layer(NamedTuple):
    """A layer of what those ahead wait.

    Attributes
    ----------
    tokens : int
        The last tokens of a request to which it belongs.
    height : int
        Units.
    share : int
        What it has of the base, in parts of 2**SHARE_BITS.
    knots : sequence of (int, int)
    """

    tokens: int
    height: int
    share: int
    knots: Sequence[Knot] = ()


class WavesProof:
    """The bound for one affine piece, one choice of sizes and one base.

    Parameters
    ----------
    instance : Instance
        Its requests all have the same lengths.
    piece : int
    by_slots : bool
        Whether the size of a token is one slot, not KV.
    by_first : bool
        Whether the base is the presence of a first token, not of the last one.

    Attributes
    ----------
    usable : bool
        Whether the base is above 0, and no work below.
    bases_agree : bool
        Whether both bases are the same.
    """

    def __init__(self, instance: Instance, piece: int, by_slots: bool, by_first: bool):
        self.instance, self.piece, self.by_slots, self.by_first = instance, piece, by_slots, by_first
        parts, (kind,) = TokenParts(instance, piece, by_slots), by_lengths(instance)
        tokens = list(parts.of(kind))
        base = tokens[0 if by_first else -1][0]
        self.bases_agree = tokens[0][0] == tokens[-1][0]
        self.count = len(kind.members)
        self.exponent = max(0, BASE_BITS - (base * parts.divisor).bit_length())
        #: Units in a tick.
        self.unit = parts.divisor << self.exponent
        self.base = base * self.unit
        #: Units of each token: w', and b k.
        self.works = [
            work * self.unit + ((presence - base) * size << self.exponent)
            if presence >= base
            else (work + presence - base) * self.unit
            for presence, work, size in tokens
        ]
        self.sizes = [base * size << self.exponent for _, _, size in tokens]
        self.usable = base > 0 and min(self.works) >= 0

    def bound(self, knee: int, work: Sequence[Layer], memory: Sequence[Layer]) -> LowerBound:
        """The bound with this knee and these layers, which must hold.

        Parameters
        ----------
        knee : int
        work, memory : sequences of Layer
        """
        instance, n = self.instance, self.count
        above = n - knee
        units = n * (n + 1) // 2 * sum(self.works) + above * (above + 1) // 2 * sum(self.sizes)
        for layer in (*work, *memory):
            units += layer.tokens * sum(interpolated(layer.knots, n))
        units += self.young(knee, work, memory)
        arrivals = sum((kind.arrival * len(kind.members) for kind in instance.types), Fraction(0))
        finished = Fraction(units, self.unit) / instance.cost.ticks_per_second
        evidence = {
            "kind": "waves",
            "piece": self.piece,
            "exponent": self.exponent,
            "by_slots": self.by_slots,
            "by_first": self.by_first,
            "knee": knee,
            "work": [[*layer[:3], [list(knot) for knot in layer.knots]] for layer in work],
            "memory": [[*layer[:3], [list(knot) for knot in layer.knots]] for layer in memory],
        }
        return LowerBound((finished - arrivals) / n, "waves", Proof.CERTIFICATE, evidence=evidence)

    def young(self, knee: int, work: Sequence[Layer], memory: Sequence[Layer]) -> int:
        """What the first batches cost beyond what is paid, as their tokens are young.

        Parameters
        ----------
        knee : int
        work, memory : sequences of Layer
        """
        n, length = self.count, len(self.works)
        whole = [layer for layer in work if layer.tokens == length]
        tops = [[0, *accumulate(reversed(interpolated(layer.knots, n)))] for layer in whole]

        def beyond(c: int, batch: int) -> int:
            memory_left = (n - knee) * max(0, self.base - c * self.sizes[batch - 1])
            of_work = (
                self.left(layer.share, n, knee) + layer.height * (c * (c - 1) // 2) - top[c]
                for layer, top in zip(whole, tops, strict=True)
            )
            return memory_left + sum(of_work)

        units, most = 0, min(n, self.base // self.sizes[0])
        for batch in range(1, length):
            low, high = 1, most  # it falls with c, then rises
            while low < high:
                c = (low + high) // 2
                low, high = (low, c) if beyond(c + 1, batch) >= beyond(c, batch) else (c + 1, high)
            old = (layer for layer in (*work, *memory) if layer.tokens < length - batch + 1)
            units += beyond(low, batch) + sum(self.left(layer.share, n, knee) for layer in old)
        return units

    def left(self, share: int, number: int, knee: int) -> int:
        """What a layer has of the base while so many requests are unfinished.

        Parameters
        ----------
        share, number, knee : int
        """
        return share * self.base * min(number, knee) >> SHARE_BITS

    def holds(self, prices: Sequence[int], height: int, share: int, knee: int, first: int) -> bool:
        """Whether rising prices of the ranks 1, ..., n are covered; those up to `first` count as 0.

        Parameters
        ----------
        prices : sequence of int
        height, share : int
            Of the layer.
        knee, first : int
        """
        paid = [0, *accumulate(price if rank > first else 0 for rank, price in enumerate(prices, 1))]
        c = 0
        for number in range(first + 1, self.count + 1):
            while c < number - first and prices[number - c - 1] > height * c:
                c += 1
            left = self.left(share, number, knee)
            if paid[number] - paid[number - c] > left + height * (c * (c - 1) // 2):
                return False
        return True


def interpolated(knots: Sequence[Knot], count: int) -> list[int]:
    """Prices of the ranks 1, ..., count: 0 before the first knot, on lines between two, then constant.

    Parameters
    ----------
    knots : sequence of (int, int)
        By rising rank and price.
    count : int
    """
    if not knots:
        return [0] * count
    prices = [0] * (knots[0][0] - 1)
    for (a, low), (b, high) in pairwise(knots):
        prices += [low + (high - low) * (rank - a) // (b - a) for rank in range(a, b)]
    return prices + [knots[-1][1]] * (count - len(prices))
