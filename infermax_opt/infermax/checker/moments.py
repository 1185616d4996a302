"""Tool of the proof by overload: what a moment costs."""

from __future__ import annotations

from bisect import bisect_right

from infermax_opt.infermax.checker.instance import Instance

#: Bits after the point of prices.
PRICE_BITS = 12
#: Bits after the point of waiting by work.
WAIT_BITS = 96
#: Steps of checking a moment.
MOMENT_STEPS = 10
#: Leading bits of a price that prompts are told.
LEADING_BITS = 4


def leading(price: int) -> int:
    """A price without all but its leading bits."""
    shift = max(0, price.bit_length() - LEADING_BITS)
    return price >> shift << shift


def cheapest_moments(
    instance: Instance,
    begin: int,
    whole: int,
    cells: list[tuple[int, int, int]],
    ends: list[int],
    told: bool,
) -> dict[tuple[int, int], int]:
    """Least rate of a request: what waiting and the price cost a unit of mass, in small units.

    By the leading bits of the price, or 0 unless these are to be told, and by level.  After the first cell
    with price 0 none is cheaper.

    Parameters
    ----------
    instance : Instance
    begin : int
        Arrival in ticks.
    whole : int
        Mass of the request.
    cells : list
        Ends, prices and levels.
    ends : list of int
    told : bool
        Whether prices are.
    """
    rates: dict[tuple[int, int], int] = {}
    for k in range(bisect_right(ends, begin), len(cells) + 1):
        instance.work.spend(MOMENT_STEPS)
        _, price, level = cells[k] if k < len(cells) else (0, 0, 0)  # all time after the cells
        waiting = (max(0, ends[k - 1] - begin) << WAIT_BITS) // whole if k else 0
        rate = waiting + (price << WAIT_BITS - PRICE_BITS) // instance.capacity
        key = leading(price) if told else 0, level
        rates[key] = min(rate, rates.get(key, rate))
        if price == 0:
            break
    return rates


def least_rate(instance: Instance, token: list[int], rates: dict[int, int], exponent: int) -> int:
    """Least that a token pays at any level, in units of prices.

    Parameters
    ----------
    instance : Instance
    token : list of int
        Its mass, root and size.
    rates : dict
        By level.
    exponent : int
        Bits after the point of roots and levels.
    """
    (mass, root, size), one = token, 1 << 2 * exponent
    paid = [
        (mass * rate >> WAIT_BITS - PRICE_BITS)
        + (2 * level * root << PRICE_BITS) // one
        + (-level * level * size << PRICE_BITS) // (one * instance.capacity)
        for level, rate in rates.items()
    ]
    return min(paid)
