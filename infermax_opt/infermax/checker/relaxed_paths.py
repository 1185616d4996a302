"""Tool of the proof backwards: what paths among few states cost from each state on."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from infermax_opt.checking.errors import require

#: Costs that are kept at most: states times rounds.
MAX_CELLS = 2 * 10**7


class Ending(NamedTuple):
    """Equal requests that end: where to in each state that has room, how many, and what each round costs.

    A round that costs 0 is none in which they end; the list ends with the last one that costs less.
    """

    grown: list[int]
    times: int
    costs: list[int]


class Leaving(NamedTuple):
    """Parts that may leave: states with such a part, by falling totals, without it, and what rounds cost."""

    states: list[int]
    left: list[int]
    costs: list[int]

    def price(self, time: int) -> int:
        """What it costs that one leaves in a round."""
        return self.costs[time - 1] if time <= len(self.costs) else 0


class Relaxed(NamedTuple):
    """Paths among few states: who ends, in the order of the kinds; what leaves; each state a round before.

    `without`: the kinds that are no part of any state; `prices`, `groups`: of each kind its price and class;
    `leave`: the hold at which each class leaves a state.
    """

    endings: list[Ending]
    leaving: list[Leaving]
    shrunk: list[int]
    without: list[int]
    prices: list[int]
    groups: list[int]
    leave: list[int]


def ends(ending: Ending, time: int) -> bool:
    """Whether requests may end in a round."""
    return time < len(ending.costs) and ending.costs[time] < 0


def costs_ahead(relaxed: Relaxed) -> list[array[int]]:
    """What a path costs at least from each state on, before each round; row 0 is zero.

    Parameters
    ----------
    relaxed : Relaxed
    """
    endings, leaving, shrunk, without = relaxed[:4]
    rounds = max(len(ending.costs) for ending in endings) - 1
    require(max(1, rounds + 1) * len(shrunk) <= MAX_CELLS, "prices: too many states and rounds")
    # Backwards those without a part come last, so here they come first.
    order = sorted(range(len(endings)), key=lambda k: k not in without)
    rows = [array("q", bytes(8 * len(shrunk)))]
    for time in range(1, rounds + 1):
        before = rows[-1]
        values = [before[number] for number in shrunk]
        for some in leaving:
            price = some.price(time)
            for state, number in zip(reversed(some.states), reversed(some.left), strict=True):
                if values[number] + price < values[state]:
                    values[state] = values[number] + price
        for k in order:
            if ends(endings[k], time):
                cost = endings[k].costs[time]
                for _ in range(endings[k].times):
                    for state, number in enumerate(endings[k].grown):
                        if values[number] + cost < values[state]:
                            values[state] = values[number] + cost
        rows.append(array("q", values))
    return rows
