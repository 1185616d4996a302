"""What a request did in each of its batches, where its lengths are known.

A file of batches says how many tokens a request processed, not what they were.  A *reading* says it: a token
is a decode step, or a chunk of a prompt or refill; and where its KV was dropped.  A stretch of chunks is one
from the first that is no decode step to the one that makes the next token.  Let a request of `I` prompt
tokens have `n` tokens before a stretch.  The chunks since its last restart hold I + n tokens, and each at
least one.  So the last restart says where it can end.  The chunks before that restart came to nothing.

Every position makes a token but those inside stretches, so that positions less output tokens is what all
stretches are longer than one.  With that little is left to try; a table over (position, tokens made) tries
it all.  A request may have several readings, as its own tokens alone do not always tell.  Who is evicted
misses a batch, a *pause*.  So those come first with all restarts at pauses, then those whose stretches begin
and restart last at pauses or with several tokens, then all others; of these those with the fewest restarts
elsewhere than at pauses, then the one with the least KV, summed over the batches, then with the
fewest restarts.

Chunks that came to nothing are dropped wherever the request pauses.  If all restarts are at pauses, no
reading in which the same batches make tokens leaves more KV to others: since a pause a request holds at
least what it processed, and in this reading just that.  So if any of them keeps the KV capacity, this one
does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.foreign.restarts import Chunks, Processed

__all__ = ["MOST_STEPS", "Reading", "Stretch", "reading_of"]

#: Restarts that are tried for one request, and chunks that are added up.
MOST_STEPS = 10**5


class Stretch(NamedTuple):
    """Chunks of a prompt or a refill.

    Attributes
    ----------
    begin : int
        Position of the first one.
    chunks : Chunks
        Their end, and the restarts after the first one.
    """

    begin: int
    chunks: Chunks


class Reading(NamedTuple):
    """A reading of a finished request.

    Attributes
    ----------
    stretches : tuple of Stretch
        All other positions are decode steps.
    alone : bool
        Whether there is no other one that comes as early in the order above by where restarts are.
    """

    stretches: tuple[Stretch, ...]
    alone: bool


class _Best(NamedTuple):
    """The best way to a state.

    Attributes
    ----------
    cost : tuple of int
        Restarts without a pause, KV tokens summed over the batches that they are held in, restarts.
    ways : int
        How many ways lead there.
    before : (int, int) or None
        The state before.
    stretch : Stretch or None
        That leads from there.
    """

    cost: tuple[int, int, int]
    ways: int
    before: tuple[int, int] | None = None
    stretch: Stretch | None = None


class _Chunked(NamedTuple):
    """What a stretch costs.

    Attributes
    ----------
    restarts : list of int
        Positions from which it was begun anew.
    without : int
        How many of them no pause is before.
    held : int
        KV tokens summed over the batches that they are held in.
    """

    restarts: list[int]
    without: int
    held: int


class _Search:
    """The table of one request.

    Parameters
    ----------
    of : Processed
    prompt, outputs : int
    allowed : list of int
        Positions at which stretches may begin and restart last.
    anywhere : bool
        Whether it may be restarted where it does not pause, too.
    """

    def __init__(self, of: Processed, prompt: int, outputs: int, allowed: list[int], anywhere: bool):
        self.of, self.prompt, self.outputs = of, prompt, outputs
        self.allowed, self.anywhere = allowed, anywhere
        self.sums = list(accumulate(of.counts, initial=0))
        self.at = {total: k for k, total in enumerate(self.sums)}
        self.several = [k for k, count in enumerate(of.counts) if count > 1]
        # Batches from each position to the next one, and sums of them and of positions times them.
        places = of.places
        self.lasts = [*(after - here for here, after in pairwise(places)), 1]
        self.batches = list(accumulate(self.lasts, initial=0))
        self.moments = list(accumulate((k * last for k, last in enumerate(self.lasts)), initial=0))
        self.steps = 0

    def spare(self, k: int, n: int) -> int:
        """Positions from `k` on that make no token, if `n` are made before."""
        return len(self.of.counts) - k - (self.outputs - n)

    def only_decodes_to(self, k: int) -> int:
        """The first position from `k` on that processes several tokens; the number of positions if none."""
        next_one = bisect_left(self.several, k)
        return self.several[next_one] if next_one < len(self.several) else len(self.of.counts)

    def stretches(self, k: int, n: int) -> Iterator[tuple[int, int, int]]:
        """Where the next stretch can begin, restart last, and end, after `n` tokens before `k`."""
        spare, until = self.spare(k, n), self.only_decodes_to(k)
        # Single tokens alone fill no stretch, unless there are as many as it needs.
        first = k if spare + 1 >= self.prompt + n else max(k, until - spare)
        for begin in self.restarts(first, min(until + 1, len(self.of.counts))) if n else (0,):
            needed, most = self.prompt + n + begin - k, begin + spare + 1
            restarts = self.restarts(begin + 1, min(most, len(self.of.counts)))
            self.steps += len(restarts) + 1
            for restart in (begin, *restarts):
                end = self.at.get(self.sums[restart] + needed, most + 1)
                if end <= most:
                    yield begin, restart, end - 1

    def restarts(self, begin: int, end: int) -> Sequence[int]:
        """Positions from `begin` to before `end` at which it can have been restarted."""
        return self.allowed[bisect_left(self.allowed, begin) : bisect_left(self.allowed, end)]

    def decoded(self, k: int, until: int, n: int) -> int:
        """KV that decode steps from `k` to before `until` hold, after `n` tokens."""
        batches = self.batches[until] - self.batches[k]
        return (self.prompt + n - k) * batches + self.moments[until] - self.moments[k]

    def chunked(self, begin: int, restart: int, end: int, needed: int) -> _Chunked | None:
        """What a stretch costs; None if it cannot be.

        Parameters
        ----------
        begin, restart, end : int
            Positions of the first chunk, of that after the last restart, and of the last one.
        needed : int
            Tokens since the last restart.
        """
        restarts: list[int] = []
        without = held = total = 0
        self.steps += end - begin
        for t in range(begin, end + 1):
            count = self.of.counts[t]
            if t < restart and count >= needed:
                return None
            pauses = t > begin and self.of.pauses(t)
            if t == restart > begin or (t < restart and (pauses or total + count >= needed)):
                restarts.append(t)
                without += not pauses
                held -= total * (self.lasts[t - 1] - 1)
                total = 0
            total += count
            held += total * self.lasts[t]
        return _Chunked(restarts, without, held)

    def after(self, state: tuple[int, int], here: _Best, begin: int, restart: int, end: int) -> _Best | None:
        """The way on from a state through decode steps and a stretch; None if there is none.

        Parameters
        ----------
        state : (int, int)
            Position and tokens made.
        here : _Best
        begin, restart, end : int
            Of the stretch.
        """
        k, n = state
        made = n + begin - k
        found = self.chunked(begin, restart, end, self.prompt + made)
        if found is None or (found.without and not self.anywhere):
            return None
        without, held, restarts = here.cost
        without += found.without
        held += self.decoded(k, begin, n) + found.held
        restarts += len(found.restarts)
        if n:
            without += not self.of.pauses(begin)
            held -= (self.prompt + made - 1) * (self.lasts[begin - 1] - 1)
            restarts += 1
        stretch = Stretch(begin, Chunks(end, found.restarts))
        return _Best((without, held, restarts), here.ways, state, stretch)

    def best(self) -> Reading | None:
        """The reading with the fewest restarts; None where there is none."""
        table = {(0, 0): _Best((0, 0, 0), 1)}
        queue, done = [(0, 0)], (len(self.of.counts), self.outputs)
        while queue and queue[0] != done:
            k, n = state = heappop(queue)
            here = table[state]
            if n and not self.spare(k, n) and self.only_decodes_to(k) == done[0]:
                without, held, restarts = here.cost
                held += self.decoded(k, done[0], n)
                self.enter(table, queue, done, _Best((without, held, restarts), here.ways, state))
            for begin, restart, end in self.stretches(k, n):
                if self.steps > MOST_STEPS:
                    return None
                way = self.after(state, here, begin, restart, end)
                if way is not None:
                    self.enter(table, queue, (end + 1, n + begin - k + 1), way)
        return self.followed(table, done) if done in table else None

    def enter(
        self,
        table: dict[tuple[int, int], _Best],
        queue: list[tuple[int, int]],
        state: tuple[int, int],
        new: _Best,
    ) -> None:
        """Enter a way to a state.

        Parameters
        ----------
        table, queue
        state : (int, int)
            Position and tokens made.
        new : _Best
        """
        if state[1] > self.outputs or self.spare(*state) < 0:
            return
        known = table.get(state)
        if known is None:
            heappush(queue, state)
            table[state] = new
        else:
            kept = min(known, new, key=lambda way: way.cost)
            table[state] = kept._replace(ways=known.ways + new.ways)

    def followed(self, table: dict[tuple[int, int], _Best], done: tuple[int, int]) -> Reading:
        """The stretches on the best way."""
        found, state = [], done
        while True:
            way = table[state]
            if way.stretch is not None:
                found.append(way.stretch)
            if way.before is None:
                return Reading(tuple(reversed(found)), table[done].ways == 1)
            state = way.before


def reading_of(of: Processed, prompt: int, outputs: int) -> Reading | None:
    """Read what a request did.

    Parameters
    ----------
    of : Processed
    prompt, outputs : int
        Its tokens.

    Returns
    -------
    Reading or None
        None where no reading makes just its output tokens with just its positions: it is not finished, or is
        another one.  Also where there is too much to try.
    """
    if len(of.counts) < outputs or sum(of.counts) < prompt + outputs - 1:
        return None
    pauses = [k for k, (before, here) in enumerate(pairwise(of.places), 1) if before + 1 < here]
    found = _Search(of, prompt, outputs, pauses, False).best()
    if found is not None:
        return found
    later = range(1, len(of.counts))
    likely = sorted({*pauses, *(k for k in later if of.counts[k] > 1)})
    return (
        _Search(of, prompt, outputs, likely, True).best()
        or _Search(of, prompt, outputs, list(later), True).best()
    )
