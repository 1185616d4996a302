"""Proof: waves, by what equal requests that are ahead wait for those behind."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.progress import TOKEN_STEPS, token_parts, token_room

#: Bits of a share of the base.
WAVE_BITS = 20
#: Steps of checking the price of a rank in one layer, and a token of one layer.
WAVE_STEPS = 40


def waves(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Those ahead wait, pair by pair, and a token pays a price by the rank of its request.

    See `infermax_opt.infermax.bounds.waves`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    lengths, n = {(i, o) for i, o, _ in instance.since()}, sum(count for *_, count in instance.since())
    require(len(lengths) == 1, "waves: requests are of different lengths")
    ((i, o),) = lengths
    knee, slots = evidence["knee"].whole(0, n), evidence["by_slots"].flag()
    unit = token_room(instance, slots, i, n) << evidence["exponent"].whole(0, 256)
    instance.work.spend(TOKEN_STEPS * o)
    tokens = list(token_parts(instance, i, o, piece, slots))
    base = tokens[0 if evidence["by_first"].flag() else -1][0]
    works, sizes = above_base(tokens, base, unit, evidence["exponent"].whole(0, 256))
    units = n * (n + 1) // 2 * sum(works) + (n - knee) * (n - knee + 1) // 2 * sum(sizes)
    found: list[list[WaveLayer]] = []
    for name, parts, first in (("work", works, 0), ("memory", sizes, knee)):
        heights, ranks = [0] * o, (n, first, knee)
        found.append(
            [priced_layer(instance, given, o, ranks, base * unit) for given in evidence[name].items()]
        )
        for layer in found[-1]:
            units += layer.tokens * layer.paid[n]
            for at in range(o - layer.tokens, o):
                heights[at] += layer.height
        require(
            all(high <= most for high, most in zip(accumulate(heights), accumulate(parts), strict=True)),
            f"{name}: layers are higher than what they are cut of",
        )
    layers = [layer for some in found for layer in some]
    require(sum(layer.share for layer in layers) <= 1 << WAVE_BITS, "waves: shares sum to more than 1")
    instance.work.spend(WAVE_STEPS * o * (n.bit_length() + len(layers)))
    whole = [layer for layer in found[0] if layer.tokens == o]
    units += young_batches(layers, whole, sizes, (n, knee), base * unit)
    return instance.mean_latency(Fraction(units, unit) / instance.scale)


def above_base(
    tokens: list[tuple[int, int, int]], base: int, unit: int, exponent: int
) -> tuple[list[int], list[int]]:
    """Units of work of each token beside the base of its batch, and of its size times the base.

    Parameters
    ----------
    tokens : list of (int, int, int)
        Presence, work and size of each.
    base : int
        Ticks of each batch.
    unit : int
        Units in a tick.
    exponent : int
        Of two, by which sizes are multiplied.
    """
    require(base > 0, "waves: the base is 0")
    works = [
        w * unit + ((a - base) * k << exponent) if a >= base else (w + a - base) * unit for a, w, k in tokens
    ]
    require(min(works) >= 0, "waves: a work is below 0")
    return works, [base * k << exponent for _, _, k in tokens]


class WaveLayer(NamedTuple):
    """A layer of work or of memory: its last tokens, height, share, and what the first ranks pay in all."""

    tokens: int
    height: int
    share: int
    paid: list[int]

    def left(self, base: int, number: int, knee: int) -> int:
        """What it has of the base while so many requests are unfinished.

        Parameters
        ----------
        base : int
            Units of the base of a batch.
        number, knee : int
        """
        return self.share * base * min(number, knee) >> WAVE_BITS


def young_batches(
    layers: list[WaveLayer], whole: list[WaveLayer], sizes: list[int], ranks: tuple[int, int], base: int
) -> int:
    """What the first O - 1 batches cost beyond what is paid: no token in the j-th is older than j.

    Parameters
    ----------
    layers, whole : lists of WaveLayer
        All, and those of work that belong to all tokens.
    sizes : list of int
        Of each token, in units.
    ranks : (int, int)
        How many there are, and the knee.
    base : int
        Units of the base of a batch.
    """
    (n, knee), o = ranks, len(sizes)

    def beyond(c: int, size: int) -> int:
        """What a batch of c tokens, none of a smaller size, costs beyond what is paid."""
        earned = sum(
            layer.left(base, n, knee) + layer.height * (c * (c - 1) // 2) - layer.paid[n] + layer.paid[n - c]
            for layer in whole
        )
        return (n - knee) * max(0, base - c * size) + earned

    units = 0
    for batch, size in enumerate(sizes[:-1], 1):
        # The differences rise, so the first that is not below 0 ends the search.
        low, high = 1, min(n, base // sizes[0])
        while low < high:
            c = (low + high) // 2
            low, high = (low, c) if beyond(c + 1, size) >= beyond(c, size) else (c + 1, high)
        units += beyond(low, size)
        units += sum(layer.left(base, n, knee) for layer in layers if o - layer.tokens >= batch)
    return units


def priced_layer(
    instance: Instance, given: Field, o: int, ranks: tuple[int, int, int], base: int
) -> WaveLayer:
    """A layer, whose prices are covered.

    Parameters
    ----------
    instance : Instance
    given : Field
        Tokens, height, share, and prices at some ranks.
    o : int
        Tokens of a request.
    ranks : (int, int, int)
        How many there are, those that pay nothing, and the knee.
    base : int
        Units of the base of a batch.
    """
    fields, (n, first, knee) = given.items(4), ranks
    tokens, height = fields[0].whole(0, o), fields[1].whole(0, 1 << 512)
    instance.work.spend(WAVE_STEPS * (n + tokens))
    prices = list(by_rank(fields[3], n))
    for rank in range(first):
        prices[rank] = 0
    paid, c = [0, *accumulate(prices)], 0
    layer = WaveLayer(tokens, height, fields[2].whole(0, 1 << WAVE_BITS), paid)
    for number in range(first + 1, n + 1):
        # One more request pays what is above its price, as long as it pays more than it makes others wait.
        while c < number - first and prices[number - c - 1] > height * c:
            c += 1
        require(
            paid[number] - paid[number - c] <= layer.left(base, number, knee) + height * (c * (c - 1) // 2),
            f"prices: those of {c} requests up to rank {number} are not covered",
        )
    return layer


def by_rank(knots: Field, n: int) -> Iterator[int]:
    """Prices of the ranks 1, ..., n, which rise: on lines between those given.

    Parameters
    ----------
    knots : Field
        Ranks and prices.
    n : int
        How many ranks there are.
    """
    given = [(0, 0)] + [
        (knot.whole(1, n), price.whole(0, 1 << 512)) for knot, price in ranks_and_prices(knots)
    ]
    require(
        all(a < b and low <= high for (a, low), (b, high) in pairwise(given)), "prices: ranks or prices fall"
    )
    yield from (0 for _ in range(min(given[1][0] - 1 if len(given) > 1 else n, n)))
    for (a, low), (b, high) in pairwise(given[1:]):
        yield from (low + (high - low) * (rank - a) // (b - a) for rank in range(a, b))
    if len(given) > 1:
        yield from (given[-1][1] for _ in range(given[-1][0], n + 1))


def ranks_and_prices(knots: Field) -> Iterator[tuple[Field, Field]]:
    """Rank and price of each."""
    for knot in knots.items():
        rank, price = knot.items(2)
        yield rank, price
