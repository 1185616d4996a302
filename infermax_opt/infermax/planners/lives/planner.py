"""Plans for a few requests by ruin and recreate, first in long steps, then in ever shorter ones.

In steps of w batches a request makes w tokens or none, and is held there as if it had all that it makes in
the step; so what fits there fits batch by batch.  Each step becomes several shorter ones, in which memory
is left over at first.  The search leaves out steps at random and repairs what broke, as long as that pays.
In steps of one batch that search and the best moments for what it found (`_timing`, `_reorder`) take turns.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.lives._kernel import AWAY, DECODE, ENTER, FAR, IDLE
from infermax_opt.infermax.planners.lives._level import enter_whole, kernel, level_of
from infermax_opt.infermax.planners.lives._reorder import reordered
from infermax_opt.infermax.planners.lives._timing import retimed, times_help
from infermax_opt.infermax.planners.lives._write import lives_of, written
from infermax_opt.infermax.planners.plan._options import filled_batches

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Lives = npt.NDArray[np.int8]

__all__ = ["MAX_REQUESTS", "lives_help", "lives_plans"]

#: Most requests; with more there is too little time for each.
MAX_REQUESTS = 64
#: Most batches times tokens of the longest request: a search has a table of these.
MAX_CELLS = 20_000_000
#: Steps with tokens that the longest request takes in the longest steps; by what steps become shorter.
STEPS, SHORTER = 32, 4
#: Share of the time by which searches from longer steps end, and that from a known schedule.
STARTS_SHARE, KNOWN_SHARE = 0.6, 0.7
#: Seconds that each of the former has at least, where memory is full for no more than so many batches.
START_SECONDS, START_BATCHES = 5.0, 1500
#: Shares of these by which the search in the longest steps ends, and that in all but the shortest.
FIRST_SHARE, LAST_SHARE = 0.6, 0.7
#: Share of the time left that the search for another order has, and seconds at most.
ORDER_SHARE, ORDER_SECONDS = 0.5, 16.0
#: Share of the time left that the search for better moments has, that after a start, and seconds at most.
TIMES_SHARE, START_TIMES_SHARE, TIMES_SECONDS = 0.25, 0.7, 8.0
#: Share of the time left between two of these, and seconds at most; seconds at the end that are not shared.
TURN_SHARE, TURN_SECONDS, LAST_SECONDS = 0.4, 6.0, 2.0
#: Steps at the beginning, as a multiple of what the memory needs.
ROOM = 1.3
#: Price of a token of KV too much, in shares of what a full batch pays for one.
PRICE = 4.0
#: The largest price where nothing has kept the limits yet, as a multiple of the first.
DEAREST = 1e3
#: Lives taken out together at most; tokens by which one differs from that before it, in shorter steps.
TOGETHER, BAND = 6, 16
#: Temperatures at the beginning, where lives are good, and at the end, as shares of what a refill costs.
HOT, WARM, COLD = 0.5, 0.2, 0.04
#: Shares of the first one with which annealing begins again.
REHEAT = (1.0, 0.5, 0.2)
#: Seconds between two changes of what is searched for; those changes and rounds where there is no deadline.
SPELL, SPELLS, ROUNDS = 0.4, 8, 400
#: Share of the steps left out at once, first.
SHRINK = 0.03


def lives_help(instance: Instance) -> bool:
    """Whether requests are so few, and prompts so short, that whole lives can be searched."""
    longest = max(request.output_tokens for request in instance.requests)
    return (
        instance.offline
        and instance.objective.is_makespan
        and instance.policy.hybrid_batching
        and 1 < len(instance.requests) <= MAX_REQUESTS
        and longest * (filled_batches(instance) + longest) <= MAX_CELLS
        and enter_whole(instance)
    )


def lives_plans(
    instance: Instance, *, known: Schedule | None = None, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Plans of ruin and recreate, each better than those before by its own estimate.

    Parameters
    ----------
    instance : Instance
        One of those that `lives_help` names; others have no such plans.
    known : Schedule, optional
        A valid one, from which the search in steps of one batch starts if it finds nothing better before.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without one a fixed number of rounds is tried.

    Yields
    ------
    name : str
        ``lives``.
    schedule : Schedule
    """
    if not lives_help(instance):
        return
    began = time.monotonic()

    def until(share: float) -> float | None:
        return None if deadline is None else began + share * (deadline - began)

    best: _Search | None = None
    for search in _starts(instance, seed, known, until):
        least = FAR if best is None else best.value
        if search.value < least:
            best = search
            yield "lives", written(instance, search.lives)
    if best is not None:
        for lives in _in_turns(best, seed, deadline):
            yield "lives", written(instance, lives)


def _starts(
    instance: Instance, seed: int, known: Schedule | None, until: Callable[[float], float | None]
) -> Iterator[_Search]:
    """Searches in steps of one batch: some from longer steps, one from a known schedule.

    Parameters
    ----------
    instance : Instance
    seed : int
    known : Schedule or None
    until : callable
        Moment when a share of the time has passed.
    """
    begin, end = until(0.0), until(STARTS_SHARE)
    least = START_SECONDS * max(1.0, filled_batches(instance) / START_BATCHES)
    number = 1 if begin is None or end is None else max(1, int((end - begin) / least))
    for turn in range(number):
        # What took longer than it should takes from all that follow.
        now = time.monotonic()
        last = None if end is None else now + (end - now) / (number - turn)
        lives = _in_longer_steps(instance, seed + turn, now, last)
        yield from _improved(instance, lives, seed + turn, last)
    lives = None if known is None else lives_of(instance, known)
    if lives is not None:
        yield from _improved(instance, lives, seed, until(KNOWN_SHARE))


def _improved(
    instance: Instance, lives: Lives | None, seed: int, deadline: float | None
) -> Iterator[_Search]:
    """A search in steps of one batch, from better moments if there are any, that has lasted some time."""
    if lives is not None and times_help(instance):
        changed = retimed(instance, lives, deadline=_soon(deadline, TIMES_SECONDS, START_TIMES_SHARE))
        lives = lives if changed is None else changed
    search = _Search(instance, 1, lives, seed)
    for _ in search.improve(deadline):
        pass
    if search.value < FAR:
        yield search


def _in_turns(best: _Search, seed: int, deadline: float | None) -> Iterator[Lives]:
    """Better moments for lives in steps of one batch, and a search from there, again and again.

    Parameters
    ----------
    best : _Search
    seed : int
    deadline : float or None
        Without one, each has one turn.
    """
    instance, turn, timed = best.instance, 0, times_help(best.instance)
    while turn == 0 if deadline is None else time.monotonic() < deadline:
        turn += 1
        search = best
        if timed and best.value < FAR:
            lives = _better_timed(best, turn, seed + turn, deadline)
            if lives is not None:
                search = _Search(instance, 1, lives, seed + turn)
        search.hot, least, until = WARM, best.value, _soon(deadline, TURN_SECONDS, TURN_SHARE)
        if deadline is not None and time.monotonic() + LAST_SECONDS > deadline:
            until = deadline
        for seconds in search.improve(until):
            if seconds < least:
                least = seconds
                yield search.lives
        best = min((search, best), key=lambda some: some.value)


def _better_timed(best: _Search, turn: int, seed: int, deadline: float | None) -> Lives | None:
    """Its lives at better moments, from the second turn on in another order as well where there is time."""
    if deadline is None or turn == 1:
        until = _soon(deadline, TIMES_SECONDS, TIMES_SHARE)
        return retimed(best.instance, best.lives, seed=seed, deadline=until)
    until = time.monotonic() + min(ORDER_SECONDS, ORDER_SHARE * (deadline - time.monotonic()))
    return reordered(best.instance, best.lives, seed=seed, deadline=until)


def _soon(deadline: float | None, seconds: float, share: float) -> float | None:
    """A moment so many seconds from now, but no more than a share of the time left."""
    now = time.monotonic()
    return None if deadline is None else now + min(seconds, share * (deadline - now))


def _in_longer_steps(instance: Instance, seed: int, begin: float, end: float | None) -> Lives | None:
    """Lives in steps of one batch, found in longer ones; None where outputs are short.

    Parameters
    ----------
    instance : Instance
    seed : int
    begin, end : float, float or None
        Moments between which this and a search from there take place.
    """
    spans, lives = _spans(max(request.output_tokens for request in instance.requests)), None
    for number, (span, shorter) in enumerate(itertools.pairwise(spans)):
        search = _Search(instance, span, lives, seed)
        share = FIRST_SHARE + (LAST_SHARE - FIRST_SHARE) * number / (len(spans) - 1)
        for _ in search.improve(None if end is None else begin + share * (end - begin)):
            pass
        lives = search.finer(span // shorter)
    return lives


def _spans(longest: int) -> list[int]:
    """Batches of a step, ever fewer, until one; each of them is a multiple of the next."""
    spans = [1]
    while longest > STEPS * spans[0]:
        spans[0] *= 2
    while spans[-1] > 1:
        spans.append(max(1, spans[-1] // SHORTER))
    return spans


class _Search:
    """Lives in steps of so many batches.

    Parameters
    ----------
    instance : Instance
    span : int
    lives : int8 array or None
        To start from; they need not keep the limits.
    seed : int

    Attributes
    ----------
    lives : int8 array
        The best found so far, if there are any.
    value : float
        Their makespan in seconds; FAR without.
    hot : float
        Temperature at the beginning of an annealing, as a share of what a refill costs.
    """

    def __init__(self, instance: Instance, span: int, lives: Lives | None, seed: int):
        import numpy as np

        self.hot = HOT
        self.instance, self.rng = instance, np.random.default_rng((seed, span))
        self.level, self.kinds = level_of(instance, span)
        longest, self.value = int(self.level.ends.max()), FAR
        self.band = longest if lives is None or longest <= STEPS else BAND
        if lives is None:
            area = sum(float(self.level.size[k, : self.level.ends[k]].sum()) for k in self.kinds)
            slots = sum(int(self.level.ends[k]) for k in self.kinds) / self.level.running
            steps = max(area / self.level.capacity, slots)
            lives = np.zeros((len(self.kinds), math.ceil(ROOM * steps) + longest), np.int8)
        self.lives = lives
        # What is free has to cost something, or nothing would lead back within the limits.
        fixed = span * (float(max(self.level.alpha + self.level.beta)) + self.level.d0) or 1.0
        self.base = PRICE * fixed / self.level.capacity
        mean = float(np.mean([self.level.prompt[k, self.level.ends[k] // 2] for k in self.kinds]))
        self.refill = float(self.level.beta[0]) * mean + self.level.p0 or fixed
        self.price = np.full(self.lives.shape[1], self.base)

    def improve(self, deadline: float | None) -> Iterator[float]:
        """Shorten the schedule; yield its seconds whenever it is shorter."""
        fewer, rounds, failed, spells = 0, ROUNDS // 16, 0, 0
        while spells < SPELLS if deadline is None else time.monotonic() < deadline:
            spells += 1
            began = time.monotonic()
            found = self._anneal(fewer, rounds if deadline is not None else ROUNDS)
            took = time.monotonic() - began
            steps = self.lives.shape[1]
            if found < self.value:
                failed, self.value = 0, found
                yield found
            else:
                failed += 1
            if self.value < FAR:
                size = max(1, round(SHRINK * steps / 2 ** min(failed, 20)))
                fewer = size * int(self.rng.choice([1, 0, -1])) if failed else size
            rounds = rounds * 2 if took < SPELL else max(1, rounds // 2) if took > 4 * SPELL else rounds

    def _anneal(self, fewer: int, rounds: int) -> float:
        """Leave out so many steps and repair; the best lives become those found if they are shorter."""
        import numpy as np

        lives, price = self._changed(fewer)
        best, hot = np.zeros_like(lives), self.hot * self.refill
        if self.value < FAR:
            hot *= float(self.rng.choice(REHEAT))
        found = kernel()(
            self.level, self.kinds, lives, price, self.base, self.band, min(TOGETHER, len(lives)), rounds,
            hot, COLD * self.refill, int(self.rng.integers(2**31)), best,
        )  # fmt: skip
        if found < self.value:
            found, best = self._without_idle_steps(float(found), best)
        if found < self.value:
            self.lives = np.ascontiguousarray(best)
            self.price = np.full(self.lives.shape[1], self.base)
        elif self.value >= FAR:
            # On from here, until something keeps the limits, at prices that still tell steps apart.
            self.lives, self.price = lives, np.minimum(price, DEAREST * self.base)
        return float(found)

    def _without_idle_steps(self, seconds: float, lives: Lives) -> tuple[float, Lives]:
        """Lives without steps that make no token, but for those that an eviction needs: these take time."""
        import numpy as np

        kept = ((lives == DECODE) | (lives == ENTER)).any(axis=0)
        used = np.flatnonzero(kept)
        for before, after in itertools.pairwise(used.tolist()):
            if after > before + 1 and ((lives[:, after] == ENTER) & (lives[:, before] != AWAY)).any():
                kept[after - 1] = True
                seconds += float(max(self.level.alpha))
        return seconds, lives[:, kept]

    def _changed(self, fewer: int) -> tuple[Lives, Any]:
        """The lives without so many steps, or with more in which nobody does anything; their prices."""
        import numpy as np

        steps = self.lives.shape[1]
        if fewer >= 0:
            kept = np.sort(self.rng.permutation(steps)[: max(1, steps - fewer)])
            return np.ascontiguousarray(self.lives[:, kept]), self.price[kept]
        where = np.sort(self.rng.integers(1, steps + 1, -fewer))
        goes_on = np.hstack([self.lives, np.zeros((len(self.lives), 1), np.int8)])[:, where]
        active = (self.lives[:, where - 1] != AWAY) & ((goes_on == DECODE) | (goes_on == IDLE))
        lives = np.insert(self.lives, where, np.where(active, IDLE, AWAY), axis=1)
        return np.ascontiguousarray(lives), np.insert(self.price, where, self.base)

    def finer(self, parts: int) -> Lives:
        """The lives in steps that are so many times shorter."""
        import numpy as np

        lives = np.repeat(self.lives, parts, axis=1)
        entered = np.repeat(self.lives == ENTER, parts, axis=1)
        entered[:, ::parts] = False
        lives[entered] = DECODE
        finer, _ = level_of(self.instance, self.level.span // parts)
        made = np.cumsum((lives == DECODE) | (lives == ENTER), axis=1)
        lives[made > finer.ends[self.kinds][:, None]] = AWAY
        return lives
