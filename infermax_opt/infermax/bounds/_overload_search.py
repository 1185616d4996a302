"""Good prices of machine time for `overload`, in floats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.core.extras import absent
from infermax_opt.infermax.bounds import _kernels_overload as kernels
from infermax_opt.infermax.bounds._overload_prompts import SHARES
from infermax_opt.infermax.bounds._overload_tables import PRICE_BITS

if TYPE_CHECKING:
    from infermax_opt.infermax.bounds.overload import Kind

Floats = npt.NDArray[np.float64]

__all__ = ["PLACES", "Setting", "good_prices"]

#: Shares of a request that are told apart, before a token of a prompt in parts.
PLACES = 32
#: Sizes of parts that are tried, each so much larger than the one before.
LARGER, LARGEST = 1.15, 2**13
#: Values of the largest x that are tried, as shares of what the highest price allows.
TOPS = (1.0, 0.85, 0.7, 0.5, 0.25)
#: Requests that judge where no kernel is compiled.
SAMPLE = 150
#: Cells times groups below which plain Python takes less time than loading compiled code, the same once that
#: is loaded, and than compiling.
PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED = 20_000, 300, 100_000


class Setting(NamedTuple):
    """Requests for `_kernels_overload.payments`: kinds, groups, and w, p1 and a' of a token of a prompt.

    `least`: a0, in ticks.
    """

    kinds: Floats
    groups: Floats
    rates: Floats
    least: float

    @classmethod
    def of(
        cls, kinds: Sequence[Kind], capacity: int, unit: int, rates: tuple[int, int, int], least: int
    ) -> Setting:
        """Those of a proof.

        Parameters
        ----------
        kinds : sequence of Kind
        capacity : int
            KV tokens, by which masses are larger than ticks.
        unit : int
            What roots are in units of.
        rates : tuple of int
            w, p1 and a' of a token of a prompt.
        least : int
            a0, in ticks.
        """
        rows, groups = list[tuple[float, ...]](), list[tuple[float, ...]]()
        for kind in (some for some in kinds if some.mass):
            first = len(groups)
            groups += [(n, mass / capacity, y / unit, size / capacity, 0) for n, mass, y, size in kind.groups]
            parts, besides = len(groups), 0.0
            if kind.prompt is not None:
                besides, each = kind.prompt.presence / 2**PRICE_BITS, kind.prompt.mass / capacity
                places = ((n, share * PLACES // SHARES) for n, share in kind.prompt.groups)
                groups += [(n, each, 0, 1 / capacity, place) for n, place in places]
            rows.append((kind.count, kind.begin, kind.mass / capacity, besides, first, parts, len(groups)))
        return cls(np.array(rows, float), np.array(groups, float), np.array(rates, float), float(least))


def good_prices(
    setting: Setting, given: Iterable[Sequence[tuple[int, float]]], stop: Callable[[], bool]
) -> tuple[Sequence[tuple[int, float]], float]:
    """The best of some prices, and how large x may be.

    Parameters
    ----------
    setting : Setting
    given : iterable of sequences of (int, float)
        The end of each cell, in ticks, and l.
    stop : callable
        Asked whether to try no more.

    Returns
    -------
    prices : sequence of (int, float)
        As given.
    top : float
        The largest x, in roots of a0.
    """
    if not len(setting.kinds):
        return [], 0.0
    if absent("numba"):
        every = -(-len(setting.kinds) // SAMPLE)
        setting = setting._replace(kinds=setting.kinds[::every] * [every, 1, 1, 1, 1, 1, 1])
    best: tuple[float, float, Sequence[tuple[int, float]]] | None = None
    for prices in given:
        # The best of them hardly depends on the prices.
        for top in TOPS if best is None else (best[1],):
            value = _value(setting, prices, top)
            best = (value, top, prices) if best is None or value > best[0] else best
        if stop():
            break
    assert best is not None
    _, top, prices = best
    return prices, top * max(0.0, *(price for _, price in prices)) ** 0.5


def _value(setting: Setting, prices: Sequence[tuple[int, float]], top: float) -> float:
    """What is proved but for a constant.

    Parameters
    ----------
    setting : Setting
    prices : sequence of (int, float)
        The end of each cell, in ticks, and l.
    top : float
        The largest x, as a share of what the highest price allows.
    """
    ends, found = np.array(prices, dtype=np.float64).T
    every = np.maximum(0.0, np.append(found, 0.0))
    roots = np.sqrt(setting.least * every)
    levels, costs = np.minimum(top * roots.max(), roots), np.zeros((len(every), PLACES))
    work = _looked(setting, ends, every) + costs.size * len(_sizes())
    compiles = worthwhile(_payments, work, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED)
    part_costs, payments = (
        (_part_costs(), _payments()) if compiles else (kernels.part_costs, kernels.payments)
    )
    part_costs(every, levels, _sizes(), setting.rates, costs)
    paid = payments(ends, every, levels, setting.kinds, setting.groups, costs)
    return float(paid - np.diff(ends, prepend=0.0) @ every[:-1])


def _looked(setting: Setting, ends: Floats, prices: Floats) -> int:
    """How many cells all groups look at: those from the arrival on, up to the first with price 0.

    Parameters
    ----------
    setting : Setting
    ends, prices : float arrays
        Of each cell; with the price of 0 after them.
    """
    idle = np.flatnonzero(prices <= 0)
    here = np.searchsorted(ends, setting.kinds[:, 1], side="right")
    looked = idle[np.searchsorted(idle, here)] - here + 1
    return int(looked @ (setting.kinds[:, 6] - setting.kinds[:, 4]))


@functools.cache
def _sizes() -> Floats:
    """Sizes of parts, rising."""
    found: Floats = np.unique(np.floor(LARGER ** np.arange(np.log(LARGEST) / np.log(LARGER))))
    return found


@functools.cache
def _part_costs() -> Callable[..., Any]:
    return compiled(kernels.part_costs, ())


@functools.cache
def _payments() -> Callable[..., Any]:
    return compiled(kernels.payments, ())
