"""Costs to go in a relaxation, by which finer searches go; see `backwards`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds import _kernels_rounds as kernel
from infermax_opt.infermax.bounds._backwards_search import ending_costs
from infermax_opt.infermax.bounds._backwards_states import Relaxation
from infermax_opt.infermax.bounds._kernels_backwards import Kinds, Links
from infermax_opt.infermax.data.instance import Instance

__all__ = ["Guide", "earliest_ends", "last_end"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Guide:
    """What paths of a relaxation cost with some prices.

    Attributes
    ----------
    costs : Costs
        From each state of each round on.
    cost : array
        What ending in a round costs, a row for each kind.
    links, kinds, order : Links, Kinds, array
        What paths are made of, the kinds in another order, and this order.
    """

    costs: kernel.Costs
    cost: Ints
    links: Links
    kinds: Kinds
    order: Ints

    @classmethod
    def of(
        cls,
        relaxation: Relaxation,
        prices: Ints,
        unit: int,
        horizon: int,
        exits: Sequence[Sequence[int]] | Ints,
        links: Links | None = None,
    ) -> Guide:
        """Of some prices, up to a round.

        Parameters
        ----------
        relaxation : Relaxation
        prices : array
            Of the kinds.
        unit : int
            Units of a round.
        horizon : int
            The last round.
        exits : sequence of sequences of int
            What leaving costs in round 1, 2, ...
        links : Links, optional
            Of the relaxation, if they are known.
        """
        table = np.zeros((len(relaxation.exits), horizon + 1), np.int64)
        for row, some in zip(table, exits, strict=True):
            row[1 : len(some) + 1] = some[:horizon]
        cost = ending_costs(relaxation, prices, table, unit)
        first, rounds = np.array(earliest_ends(relaxation.instance)), np.arange(horizon + 1)
        worth = np.where(rounds >= first[:, None], np.minimum(cost, 0), 0)
        sort = np.array(relaxation.sort_numbers)
        count = np.array([len(kind.members) for kind in relaxation.instance.types])
        order, links = np.argsort(sort, kind="stable"), links or relaxation.links()
        kinds = Kinds(sort[order], count[order], worth[order])
        ahead = np.empty((horizon + 1, len(links.shrunk)), np.int64)
        _kernels()[0](links, kinds, table, ahead)
        group, left = _exit_rows(relaxation, links)
        last = np.array(relaxation.exits, np.int64)
        return cls(kernel.Costs(ahead, *links[:3], group, last, table, left), cost, links, kinds, order)

    @functools.cached_property
    def least_with(self) -> Ints:
        """What a path costs at least in which a kind ends in a round, less this end; a row for each kind."""
        found, least = np.empty_like(self.cost), np.empty_like(self.cost)
        _kernels()[1](self.links, self.kinds, self.costs.exits, self.costs.ahead, found)
        least[self.order] = found
        return least


def earliest_ends(instance: Instance) -> list[int]:
    """First round in which each kind of request may end."""
    alpha = instance.cost.seconds.alpha[0]
    return [int(kind.arrival / alpha) + kind.output_tokens for kind in instance.types]


def last_end(instance: Instance) -> int:
    """Last round in which somebody ends in some best schedule."""
    alpha = instance.cost.seconds.alpha[0]
    return max(int(kind.arrival / alpha) for kind in instance.types) + instance.output_tokens


def _exit_rows(relaxation: Relaxation, links: Links) -> tuple[Ints, Ints]:
    """As in `kernel.Costs`: the row of each I - 1, and states without the part that leaves."""
    longest = max(kind.input_tokens for kind in relaxation.instance.types)
    group = np.full(longest, -1, np.int64)
    left = np.full((len(relaxation.exits), len(links.shrunk)), -1, np.int64)
    for c, d in enumerate(relaxation.exits):
        some = slice(links.ends[c], links.ends[c + 1])
        left[c, links.leaving[some]] = links.left[some]
        group[relaxation.leave[c] + 1 : d + 1] = c
    return group, left


@functools.cache
def _kernels() -> tuple[Callable[..., Any], ...]:
    return compiled(kernel.cost_to_go, ()), compiled(kernel.least_with, ())
