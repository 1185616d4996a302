"""Proof: waves, by what equal requests that are ahead wait for those behind."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, pairwise

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
    knee, exponent = evidence["knee"].whole(0, n), evidence["exponent"].whole(0, 256)
    slots, by_first = evidence["by_slots"].flag(), evidence["by_first"].flag()
    unit = token_room(instance, slots, i, n) << exponent
    instance.work.spend(TOKEN_STEPS * o)
    tokens = list(token_parts(instance, i, o, piece, slots))
    base = tokens[0 if by_first else -1][0]
    require(base > 0, "waves: the base is 0")
    works = [
        w * unit + ((a - base) * k << exponent) if a >= base else (w + a - base) * unit for a, w, k in tokens
    ]
    require(min(works) >= 0, "waves: a work is below 0")
    sizes = [base * k << exponent for _, _, k in tokens]
    units = n * (n + 1) // 2 * sum(works) + (n - knee) * (n - knee + 1) // 2 * sum(sizes)
    shares = 0
    for name, parts, first in (("work", works, 0), ("memory", sizes, knee)):
        heights = [0] * o
        for layer in evidence[name].items():
            share, earned = priced_layer(instance, layer, heights, (n, first, knee), base * unit)
            shares, units = shares + share, units + earned
        require(
            all(high <= most for high, most in zip(accumulate(heights), accumulate(parts), strict=True)),
            f"{name}: layers are higher than what they are cut of",
        )
    require(shares <= 1 << WAVE_BITS, "waves: shares sum to more than 1")
    return instance.mean_latency(Fraction(units, unit) / instance.scale)


def priced_layer(
    instance: Instance, layer: Field, heights: list[int], ranks: tuple[int, int, int], base: int
) -> tuple[int, int]:
    """Share of a layer and what its prices earn, all covered; its height is added to those of the tokens.

    Parameters
    ----------
    instance : Instance
    layer : Field
        Tokens, height, share, and prices at some ranks.
    heights : list of int
        Of each token, so far.
    ranks : (int, int, int)
        How many there are, those that pay nothing, and the knee.
    base : int
        Units of the base of a batch.
    """
    fields, (n, first, knee) = layer.items(4), ranks
    tokens, height = fields[0].whole(0, len(heights)), fields[1].whole(0, 1 << 512)
    share = fields[2].whole(0, 1 << WAVE_BITS)
    instance.work.spend(WAVE_STEPS * (n + tokens))
    for at in range(len(heights) - tokens, len(heights)):
        heights[at] += height
    prices = list(by_rank(fields[3], n))
    for rank in range(first):
        prices[rank] = 0
    paid, c = [0, *accumulate(prices)], 0
    for number in range(first + 1, n + 1):
        # One more request pays what is above its price, as long as it pays more than it makes others wait.
        while c < number - first and prices[number - c - 1] > height * c:
            c += 1
        left = share * base * min(number, knee) >> WAVE_BITS
        require(
            paid[number] - paid[number - c] <= left + height * (c * (c - 1) // 2),
            f"prices: those of {c} requests up to rank {number} are not covered",
        )
    return share, tokens * paid[n]


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
