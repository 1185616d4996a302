r"""A bound from prices: any number of copies of every length, each for a price.

For any prices p_g >= 0 of lengths,

    sum of v_i  =  sum of p_{g_i}  +  sum of (v_i - p_{g_i})
                <=  W_p  +  sum over all i of max(0, v_i - p_{g_i}),

W_p the most that a reservation can hold in prices where every length can be had as often as one likes.  Only
the limit on copies is relaxed (its multiplier is v - p).  W_p is exact, by recursion over intervals of the
circle (`infermax_opt.pipelining.bounds.closed_form`): `infermax_opt.pipelining.bounds._prices_kernel`.

The prices are those of the hats, p_g = sum of y_h c_h(g) + sum over h <= g of z_h, for which Theorem 1 and
the counts bound W_p by sum of y_h r_h + sum of z_h floor(M / h).  So, rounding apart, this bound is no worse.

Lengths are counted in cells; where these are coarser than the blocks, lengths and capacity are rounded down,
which relaxes (`Kinds.of`).  Those of no cell are selected, at no price.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from infermax_opt.core.compiled import compiled
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.pipelining.bounds import _prices_kernel as kernel
from infermax_opt.pipelining.bounds.closed_form import lower_bound
from infermax_opt.pipelining.bounds.hats import Hats
from infermax_opt.pipelining.bounds.kinds import Kinds, coarse_unit
from infermax_opt.pipelining.data.instance import PipeliningInstance

__all__ = ["price_bound", "price_kinds", "priced"]

#: Cells of the reservation at most.
MOST_CELLS = 1024
#: Lengths times cells squared of a table at most, about half a second of it compiled, a few in the checker.
MOST_STEPS = 10**8
#: Prices are multiples of a power of two for which all values together are about this.
LARGEST = 2**50


def price_kinds(instance: PipeliningInstance) -> tuple[int, Kinds]:
    """Tokens of a cell, as few as there is time for, and the requests by length in cells."""
    cells = MOST_CELLS
    while True:
        unit = coarse_unit(instance, cells)
        kinds = Kinds.of(instance, unit, up=False)
        if len(kinds.sizes) * kinds.cells**2 <= MOST_STEPS or cells <= 64:
            return unit, kinds
        cells = cells * 3 // 4


@cache
def _most_held() -> Callable[..., int]:
    return compiled(kernel.most_held, [kernel.fill], allocates=False)


def priced(instance: PipeliningInstance, kinds: Kinds, prices: Sequence[int], scale: Fraction) -> Fraction:
    """What can be selected at most, by these prices.

    Parameters
    ----------
    instance : PipeliningInstance
    kinds : Kinds
        Rounded down.
    prices : sequence of int
        Of each length, 0 or more.
    scale : Fraction
        Prices are multiples of it.
    """
    import numpy as np

    worth = np.zeros((len(kinds.sizes) + 1, kinds.cells + 1), dtype=np.int64)
    held = _most_held()(np.array(kinds.sizes, dtype=np.int64), np.array(prices, dtype=np.int64), worth)
    most = int(held) * scale + sum((instance.values[k] for k in kinds.free), Fraction(0))
    for places, price in zip(kinds.places, prices, strict=True):
        most += sum((max(Fraction(0), instance.values[k] - price * scale) for k in places), Fraction(0))
    return most


def price_bound(instance: PipeliningInstance, hats: Hats, weights: Sequence[Fraction]) -> LowerBound | None:
    """The bound of the prices of these weights of hats; None where all requests are shorter than a cell.

    Parameters
    ----------
    instance : PipeliningInstance
        Some of its requests are useful.
    hats : Hats
        Of the instance.
    weights : sequence of Fraction
        Of its rows.
    """
    unit, kinds = price_kinds(instance)
    if not kinds.sizes:
        return None
    total, scale = sum((instance.values[k] for k in instance.useful), Fraction(0)), Fraction(1)
    while total < LARGEST * scale:
        scale /= 2
    while total > LARGEST * scale:
        scale *= 2
    by_length = hats.prices(weights)
    prices = [
        min(round(by_length[instance.sizes[some[0]]] / scale), int(instance.values[some[0]] / scale))
        for some in kinds.places
    ]
    most = priced(instance, kinds, prices, scale)
    evidence = {"kind": "prices", "unit": unit, "scale": scale, "sizes": list(kinds.sizes), "prices": prices}
    return lower_bound(instance, most, "prices", Proof.CERTIFICATE, evidence=evidence)
