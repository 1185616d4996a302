"""How good cells are for `overload`, in floats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.infermax.bounds import _kernels_overload as kernels
from infermax_opt.infermax.bounds._overload_prompts import SHARES
from infermax_opt.infermax.bounds._overload_tables import PRICE_BITS, Cell, leading

if TYPE_CHECKING:
    from infermax_opt.infermax.bounds.overload import Kind

Floats = npt.NDArray[np.float64]

__all__ = ["PLACES", "Setting", "judged"]

#: Shares of a request that are told apart, before a token of a prompt in parts.
PLACES = 64
#: Sizes of parts that are tried, each so much larger than the one before.
LARGER, LARGEST = 1.15, 2**13
#: Cells times groups below which plain Python takes less time than loading compiled code, the same once that
#: is loaded, and than compiling.
PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED = 20_000, 300, 100_000


class Setting(NamedTuple):
    """Requests for `_kernels_overload.payments`: kinds, groups, and w, p1 and a' of a token of a prompt."""

    kinds: Floats
    groups: Floats
    rates: Floats

    @classmethod
    def of(cls, kinds: Sequence[Kind], capacity: int, unit: int, rates: tuple[int, int, int]) -> Setting:
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
        return cls(np.array(rows, float), np.array(groups, float), np.array(rates, float))


def judged(setting: Setting, cells: Sequence[Cell], unit: int) -> float:
    """What some cells prove, but for a constant.

    Parameters
    ----------
    setting : Setting
    cells : sequence of Cell
    unit : int
        What their x are in units of.
    """
    ends, _, levels = np.array([*cells, (0, 0, 0)], dtype=np.float64).T
    prices, told = (
        np.array([*some, 0], dtype=np.float64) / 2**PRICE_BITS
        for some in ((price for _, price, _ in cells), (leading(price) for _, price, _ in cells))
    )
    ends, levels, costs = ends[:-1], levels / unit, np.zeros((len(prices), PLACES))
    work = _looked(setting, ends, prices) + costs.size * len(_sizes())
    compiles = worthwhile(_payments, work, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED)
    part_costs, payments = (
        (_part_costs(), _payments()) if compiles else (kernels.part_costs, kernels.payments)
    )
    part_costs(told, levels, _sizes(), setting.rates, costs)
    paid = payments(ends, prices, levels, setting.kinds, setting.groups, costs)
    return float(paid - np.diff(ends, prepend=0.0) @ prices[:-1])


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
