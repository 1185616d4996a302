"""What the search for first tokens tries: choices that are good somewhere, then changes to the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from infermax_opt.infermax.planners.first_tokens._state import ANY
from infermax_opt.infermax.planners.first_tokens.crowds import Crowds, Sizes
from infermax_opt.infermax.planners.first_tokens.given_up import given_up, least_limit

if TYPE_CHECKING:
    from infermax_opt.infermax.planners.first_tokens.aims import Aims, Flags, Floats

__all__ = ["TINY", "Choices", "FirstChoice"]

#: Least work and weight of a request, so that scores and chances are finite.
TINY = 1e-12

#: Most requests that are moved at once.
MOVED = 3
#: Share of the tries that change the best choice by much.
FAR = 0.25
#: Numbers and flags of a choice that are changed.
NUMBERS, FLAGS = ("work", "arrival", "share", "hold", "cut", "budget"), ("fill", "keep")
#: Budgets of batches, in parts of the best chunk.
ROOM = (1.15, 1.42)
#: Places among the arrivals within which somebody is taken to be in the way of another one.
NEAR = 6
#: How often it is changed who is given up, where it pays to give up somebody.
OTHERS = 0.4
#: Shares of the fixed time of a batch that a prompt is taken to pay, where it is judged who is given up.
CROWDS = (1.0, 0.5, 0.2, 0.05)


@dataclass(frozen=True)
class FirstChoice:
    """What is searched.

    Attributes
    ----------
    work, arrival : float
        A prompt comes the sooner, the smaller the sum of these times the logarithm of its work by its weight,
        and the moment at which it is due (`Aims.due`) in units of the mean time between arrivals.
    share, hold, cut, fill, budget, look
        As in `_kernel.Knobs`.
    keep : bool
        Whether nobody is evicted, even where that is allowed.
    out : frozenset of int
        Requests that are given up: they come last.
    moves : tuple of (int, float)
        Requests, and what is added to their scores.
    sizes : Sizes
        How requests share batches.
    """

    work: float = 1.0
    arrival: float = 0.0
    share: float = 1.0
    hold: float = 0.0
    cut: float = -1.0
    fill: bool = False
    budget: int = ANY
    look: int = 16
    keep: bool = False
    out: frozenset[int] = frozenset()
    moves: tuple[tuple[int, float], ...] = ()
    sizes: Sizes = ()


class Choices:
    """Choices for one instance.

    Parameters
    ----------
    aims : Aims
    arrival, work : array
        Of each request: its arrival, and the time of its prompt alone, seconds.
    fixed : float
        Seconds that a batch of it takes before its first token.
    top : int
        Most prefill tokens of a batch.
    chunk : float
        Tokens in a chunk where prompts are cut so that they take least; 0 where that gains nothing.
    crowds : Crowds, optional
        Where prompts may be cut.
    rng : numpy.random.Generator
    """

    def __init__(
        self, aims: Aims, arrival: Floats, work: Floats, *, fixed: float, top: int, chunk: float,
        crowds: Crowds | None, rng: np.random.Generator,
    ):  # fmt: skip
        self.aims, self.rng, self._crowds = aims, rng, crowds
        self._arrival, self._work, self._fixed, self._top = arrival, work, fixed, top
        # Chunks of equal size have between these and half as many tokens.
        self._sizes = [min(top, round(part * chunk)) for part in ROOM] if chunk >= 1 else []
        self._arriving = np.argsort(arrival, kind="stable")
        self._sorted = arrival[self._arriving]

    def known(self, best: Callable[[], FirstChoice]) -> Iterator[FirstChoice]:
        """Orders and knobs that are good somewhere; `best` gives the best of what was tried."""
        for order in (FirstChoice(), FirstChoice(work=0.0, arrival=1.0), FirstChoice(arrival=0.02)):
            for share in (1.0, 0.0, 4.0, 1e9):
                yield replace(order, share=share)
        for out in self._late_sets():
            for share in (1e9, 1.0):
                yield FirstChoice(work=0.0, arrival=1.0, share=share, out=out)
                yield replace(best(), out=out, share=share)
            for budget in (ANY, *self._sizes):
                yield FirstChoice(work=0.0, arrival=1.0, share=0.0, hold=0.1, cut=0.0, budget=budget, out=out)
        yield from self._shared()
        yield replace(best(), fill=True)
        for hold in (0.1, 0.3, 1.0):
            yield replace(best(), hold=hold)
        for cut in (0.0, 1.0):
            yield replace(best(), cut=cut, hold=max(best().hold, 0.1))
        for budget in (256, 512, 1024, 2048):
            yield replace(best(), budget=budget)
        yield replace(best(), keep=True)

    def _shared(self) -> Iterator[FirstChoice]:
        """Some share batches in a crowd, so that fewer are given up."""
        if self._crowds is None or self.aims.levels:
            return
        which = np.flatnonzero(self.aims.counted)
        for percent in self.aims.percents if len(which) else ():
            found = self._crowds.least(which, percent)
            if found is not None:
                out, sizes = found
                yield FirstChoice(work=0.0, arrival=1.0, share=0.0, hold=0.1, cut=0.0, out=out, sizes=sizes)

    def _late_sets(self) -> Iterator[frozenset[int]]:
        """Who to give up so that all others keep a limit: of a percentile, or their own."""
        aims = self.aims
        if not aims.spares:
            return
        which = np.flatnonzero(aims.counted)
        arrival = self._arrival[which]
        for crowd in CROWDS:
            work = self._work[which] - (1 - crowd) * self._fixed
            for percent in aims.percents:
                yield _named(which, least_limit(arrival, work, percent))
            if aims.levels:
                yield _named(which, given_up(arrival, work, aims.due[which], aims.weight[which]))

    def changed(self, choice: FirstChoice, late: Flags, waited: Floats) -> FirstChoice:
        """A choice near another one, or far from it.

        Parameters
        ----------
        choice : FirstChoice
        late : array of bool
            Who comes too late by it.
        waited : array
            How long each request waits for its first token by it, seconds.
        """
        rng, far = self.rng, self.rng.random() < FAR
        if self.aims.spares and rng.random() < OTHERS:
            return replace(choice, out=self._others(choice.out, late, waited))
        step, near = 0.6 if far else 0.15, abs(choice.arrival) or 0.02
        changed: dict[str, Any] = {}
        if far:
            changed["share"] = float(rng.lognormal(0.0, 1.5))
        for name in NUMBERS:
            if rng.random() < (0.5 if far else 0.25):
                size = near * step if name == "arrival" else step
                changed[name] = self._stepped(name, getattr(choice, name), size)
        for name in FLAGS if far else ():
            if rng.random() < 0.5:
                changed[name] = not getattr(choice, name)
        return replace(choice, **changed)

    def _stepped(self, name: str, value: float, size: float) -> float:
        """A number of a choice, moved.

        Parameters
        ----------
        name : str
        value : float
        size : float
            How far, typically: as it is, or in parts of the number where that is more than 0.
        """
        rng = self.rng
        if name == "cut":
            return float(rng.choice([-1.0, 0.0, 0.2, 1.0, 3.0]))
        if name == "share":
            return value * float(rng.lognormal(0.0, size))
        if name == "budget":
            return max(1, min(self._top, round(min(value, self._top) * float(rng.lognormal(0.0, size)))))
        moved = value + float(rng.normal(0.0, size))
        return abs(moved) if name == "hold" else moved

    def _others(self, out: frozenset[int], late: Flags, waited: Floats) -> frozenset[int]:
        """Give up who comes too late, or who is in the way of one that waits nearly as long.

        Parameters
        ----------
        out : frozenset of int
            Who is given up.
        late : array of bool
        waited : array
        """
        rng, missed = self.rng, np.flatnonzero(late)
        if len(missed) and rng.random() < 0.3:
            some = missed[rng.random(len(missed)) < rng.choice([0.1, 0.5, 1.0])]
            return out | frozenset(some.tolist())
        size = int(rng.integers(1, MOVED + 1))
        back = rng.choice(sorted(out), min(size, len(out)), replace=False).tolist() if out else []
        there = np.flatnonzero(self.aims.counted & ~late)
        if not len(there):
            return out - set(back)
        longest = there[np.argsort(-waited[there], kind="stable")]
        gone = set()
        for _ in range(size):
            which = longest[min(int(rng.geometric(0.2)), len(longest)) - 1]
            place = int(np.searchsorted(self._sorted, self._arrival[which])) + int(
                rng.integers(-NEAR, NEAR + 1)
            )
            gone.add(int(self._arriving[min(max(place, 0), len(self._arriving) - 1)]))
        return (out - set(back)) | frozenset(k for k in gone if self.aims.counted[k])

    def moved(self, choice: FirstChoice) -> FirstChoice:
        """The same with some requests sooner or later."""
        rng = self.rng
        some = rng.integers(0, len(self._work), int(rng.integers(1, MOVED + 1))).tolist()
        size = float(rng.choice([0.03, 0.3, 1.5]))
        moves = dict(choice.moves)
        for i in some:
            moves[i] = moves.get(i, 0.0) + float(rng.normal(0.0, size))
        return replace(choice, moves=tuple(moves.items()))


def _named(which: np.ndarray[tuple[int], np.dtype[np.int64]], chosen: frozenset[int]) -> frozenset[int]:
    """Requests by their places among some of them."""
    return frozenset(which[sorted(chosen)].tolist())
