"""Where Vidur restarted a request, by the rule by which Vidur restarts.

A *life* of a request is what it processes between two restarts.  Vidur counts a token as processed when it
is generated.  A restarted request takes all that it had processed for its prompt: `p` tokens, even where that
is only a part of the prompt that it came with.  So its next life begins with chunks that add up to `p`; these
make a token, and what is left are single tokens.  Hence

- a life that was restarted within its chunks hands on their sum, which is less than its own `p`;
- one that was restarted later hands on p + 1 and one for each single token;
- the last life processes the tokens of prompt and output but one, which says where it begins.

A chunk that is not the last one of its prompt takes what is left of the budget of its batch.  So it is in a
batch that is full.

Source: microsoft/vidur, ``vidur/entities/request.py`` and ``vidur/scheduler/replica_scheduler``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.foreign.known_lengths import MOST_STEPS, Reading, Stretch
from infermax_opt.foreign.restarts import Chunks, Processed

__all__ = ["vidur_reading"]


class _Way(NamedTuple):
    """The best way to the begin of a life.

    Attributes
    ----------
    cost : tuple of int
        Restarts without a pause, KV tokens summed over the batches that they are held in, restarts.
    ways : int
        How many ways lead there.
    before : (int, int) or None
        The life before: its first position, and the tokens of its prompt.
    """

    cost: tuple[int, int, int]
    ways: int
    before: tuple[int, int] | None = None


class _Lives:
    """The table of one request over (first position, tokens of the prompt) of its lives.

    Parameters
    ----------
    of : Processed
    full : sequence of bool
        Of each of its batches, whether it is full.
    total : int
        Its tokens, of prompt and output.
    """

    def __init__(self, of: Processed, full: Sequence[bool], total: int):
        counts, n = of.counts, len(of.counts)
        self.of, self.size, self.total = of, n, total
        self.sums = list(accumulate(counts, initial=0))
        self.at = {total: k for k, total in enumerate(self.sums)}
        # From each position on: the first that processes several tokens, and the first in a batch with room.
        self.several, self.roomy = [n] * (n + 1), [n] * (n + 1)
        for k in reversed(range(n)):
            self.several[k] = k if counts[k] > 1 else self.several[k + 1]
            self.roomy[k] = self.roomy[k + 1] if full[k] else k
        self.lasts = [*(after - here for here, after in pairwise(of.places)), 1]
        self.batches = list(accumulate(self.lasts, initial=0))
        held = (total * last for total, last in zip(self.sums[1:], self.lasts, strict=True))
        self.held_before = list(accumulate(held, initial=0))

    def held(self, begin: int, end: int) -> int:
        """KV tokens of a life, summed over the batches that they are held in."""
        batches = self.batches[end] - self.batches[begin]
        found = self.held_before[end] - self.held_before[begin] - self.sums[begin] * batches
        return found - (self.sums[end] - self.sums[begin]) * (self.lasts[end - 1] - 1)

    def prompt_ends(self, begin: int, prompt: int) -> int | None:
        """The position after the chunks of a life; None if they do not add up to its prompt."""
        end = self.at.get(self.sums[begin] + prompt)
        return None if end is None or self.roomy[begin] < end - 1 else end

    def restarts(self, begin: int, prompt: int, last: int) -> Iterator[tuple[int, int]]:
        """First positions and prompts of the lives that can come after one; none is after `last`."""
        for k in range(begin + 1, min(last, self.roomy[begin]) + 1):
            processed = self.sums[k] - self.sums[begin]
            if processed >= prompt:
                break
            yield k, processed
        end = self.prompt_ends(begin, prompt)
        if end is not None:
            unfinished = end + self.total - prompt - 2
            for k in range(end, min(last, self.several[end], unfinished) + 1):
                yield k, prompt + 1 + k - end

    def best(self, prompt: int, last: int) -> tuple[list[int], bool] | None:
        """Positions of restarts, and whether there are no others; None where there are none or too many.

        Parameters
        ----------
        prompt : int
        last : int
            Where the last life begins.
        """
        table = {(0, prompt): _Way((0, 0, 0), 1)}
        queue, ends = [(0, prompt)], list[tuple[int, int]]()
        steps = 0
        while queue:
            life = heappop(queue)
            if life[0] == last:
                end = self.prompt_ends(*life)
                if end is not None and self.several[end] == self.size:
                    ends.append(life)
                continue
            without, held, restarts = table[life].cost
            for after in self.restarts(*life, last):
                steps += 1
                k = after[0]
                cost = (without + (not self.of.pauses(k)), held + self.held(life[0], k), restarts + 1)
                new, known = _Way(cost, table[life].ways, life), table.get(after)
                if known is None:
                    heappush(queue, after)
                    table[after] = new
                else:
                    table[after] = min(known, new)._replace(ways=known.ways + new.ways)
            if steps > MOST_STEPS:
                return None
        if not ends:
            return None
        found, state = list[int](), min(ends, key=lambda life: table[life].cost)
        while (before := table[state].before) is not None:
            found.append(state[0])
            state = before
        return found[::-1], sum(table[life].ways for life in ends) == 1


def _stretches(of: Processed, prompt: int, restarts: list[int]) -> Iterator[Stretch]:
    """Chunks between the tokens that a request makes, if it is restarted at these positions."""
    dropped, again = set(restarts), list[int]()
    cached, needed = 0, prompt
    for k, count in enumerate(of.counts):
        if k in dropped:
            again.append(k)
            cached = 0
        cached += count
        if cached == needed:
            if needed == prompt:
                yield Stretch(0, Chunks(k, again))
            elif again:
                yield Stretch(again[0], Chunks(k, again[1:]))
            needed, again = needed + 1, []


def vidur_reading(of: Processed, full: Sequence[bool], prompt: int, outputs: int) -> Reading | None:
    """Read what a request did, by the rule by which Vidur restarts.

    Where several ways keep it: that with the fewest restarts without a pause, of these that with the least
    KV, summed over the batches.

    Parameters
    ----------
    of : Processed
    full : sequence of bool
        Of each of its batches, whether it is full.
    prompt, outputs : int
        Its tokens.

    Returns
    -------
    Reading or None
        None where no way keeps the rule: it is not finished, is another one, or another program wrote the
        file.  Also where there is too much to try.
    """
    lives = _Lives(of, full, prompt + outputs)
    last = lives.at.get(lives.sums[-1] - (prompt + outputs - 1))
    found = None if last is None else lives.best(prompt, last)
    if found is None:
        return None
    restarts, alone = found
    return Reading(tuple(_stretches(of, prompt, restarts)), alone)
