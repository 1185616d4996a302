"""Requests by length, in cells of one or more tokens: what searches on an instance work on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.pipelining.data.instance import PipeliningInstance

__all__ = ["Kinds", "coarse_unit"]


def coarse_unit(instance: PipeliningInstance, most_cells: int) -> int:
    """Tokens of a cell, so that the reservation has no more than `most_cells`: blocks, or several of them."""
    block = instance.block_size
    return block * max(1, -(-(instance.capacity // block) // most_cells))


@dataclass(frozen=True)
class Kinds:
    """Useful requests by length in cells, shortest first.

    Attributes
    ----------
    cells : int
        Of the reservation, rounded down.
    sizes : tuple of int
        Distinct lengths, 1 or more.
    places : tuple of tuple of int
        The requests of each length, the most valuable first.
    free : tuple of int
        Requests of length 0 after rounding down.
    """

    cells: int
    sizes: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    free: tuple[int, ...] = ()

    @classmethod
    def of(cls, instance: PipeliningInstance, unit: int, *, up: bool) -> Kinds:
        """Group requests.

        Rounding lengths and capacity down relaxes the instance: where s_i - s_j >= g >= k floor(g / k), also
        floor(s_i / k) - floor(s_j / k) >= floor(g / k), and s + g <= M likewise.  With lengths rounded up and
        the capacity down, offsets in cells times k are valid offsets in tokens.

        Parameters
        ----------
        instance : PipeliningInstance
        unit : int
            Tokens of a cell, k.
        up : bool
            Whether to round lengths up.
        """
        cells, groups = instance.capacity // unit, defaultdict[int, list[int]](list)
        for k in instance.useful:
            size = instance.sizes[k]
            groups[-(-size // unit) if up else size // unit].append(k)
        free = tuple(groups.pop(0, ()))
        kept = sorted(size for size in groups if size <= cells)
        ordered = (tuple(sorted(groups[g], key=lambda k: (-instance.values[k], k))) for g in kept)
        return cls(cells, tuple(kept), tuple(ordered), free)

    def values(self, instance: PipeliningInstance) -> Sequence[Sequence[Fraction]]:
        """Values of the requests of each length, the highest first."""
        return [[instance.values[k] for k in places] for places in self.places]
