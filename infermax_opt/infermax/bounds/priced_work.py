r"""Priced work: what a request brings to any schedule, its shares of what batches cost anyway included.

Fix one affine piece (alpha, beta), in ticks, and prices of KV, tokens and requests that sum to at most 1.  A
batch holds at most M tokens of KV, processes at most C tokens and makes tokens of at most R_max requests.  So
if each request in it pays alpha times price times its share of each, all together pay at most alpha.  A
request pays, by its first token,

    A = alpha (kv I / M + tokens I / C + requests / R_max) + beta I + p1 W + p0 I / P,

with W the least attention work of its prompt (`least_work`): the prompt is done in batches that prefill, P
tokens of prompts at most in each; of a chunk of c tokens, c / I of all that counts.  For a later token, with
s tokens cached after it, it pays

    alpha (kv s / M + tokens / C + requests / R_max) + beta + min(d1, beta) (s - 1) + d s / M,

d = d0 where evictions are forbidden or (beta - d1) M >= 2 d0, else 0.  If a decode step makes it, its batch
costs d0 + d1 (s - 1) for it, and those that decode hold at most M.  If a refill does, its chunks process s
tokens, each of them has its share of what counts, and beta s covers beta + min(d1, beta) (s - 1) and, as
(beta - d1) (s - 1) >= d0 s / M for s >= 2 under the condition, d s / M.  Without preemption d1 stands for the
least of d1 and beta.  What all pay in a batch is at most what it takes.

*One machine.*  So every schedule is one of jobs A + B on one preemptive machine, each worked on between its
arrival and its last token only.  Of all such schedules the one by shortest remaining work has the most jobs
done at every time (Schrage).  So the k-th last token of any schedule comes no earlier than its k-th
completion.  The same holds of first tokens and jobs A.  All prices and pieces hold for each k.

*Rate.*  Served at a sustained rate, n requests take at least the sum of A + B, so the rate is at most n by
that sum.

Numbers are rounded down to 2**-20 ticks, shares of a token to that as well; less work and earlier arrivals
end no later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from infermax_opt.infermax.bounds.least_work import later_work, prompt_pairs
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import Latency

__all__ = ["completion_ticks", "sustainable_rate"]

#: Bits after the point of a tick.
BITS = 20
#: Parts of 1 in which prices are stated.
PARTS = 4
#: Prices whose schedules are formed: those that make the most work in all.
BEST = 3
#: The same where there are so many requests that each takes seconds.
MANY, BEST_OF_MANY = 200_000, 1


class _Price(NamedTuple):
    """Prices in parts of `PARTS`, and the piece of the batch time."""

    kv: int
    tokens: int
    requests: int
    piece: int


def _prices(instance: Instance) -> Iterator[_Price]:
    """A grid of prices for each piece; of requests only where their number is limited."""
    requests = range(PARTS + 1) if instance.system.max_running is not None else range(1)
    for piece in range(len(instance.cost.batch)):
        for some in requests:
            for kv in range(PARTS - some + 1):
                yield _Price(kv, PARTS - some - kv, some, piece)


class _Columns:
    """What each type of request pays for, until its first or its last token.

    Attributes
    ----------
    kv, tokens, made : list of int
        KV tokens and tokens processed, summed over the tokens it makes, and how many these are.
    own : list of list of int
        By piece: what it pays whatever the prices, in 2**-`BITS` ticks.
    """

    def __init__(self, instance: Instance, latency: Latency):
        self.instance = instance
        kinds = [(kind.input_tokens, kind.output_tokens - 1) for kind in instance.types]
        if latency is not Latency.E2E:
            kinds = [(prompt, 0) for prompt, _ in kinds]
        later = [s * i + s * (s + 1) // 2 for i, s in kinds]  # sums of s = I + 1, ..., I + O - 1
        self.kv = [i + kv for (i, _), kv in zip(kinds, later, strict=True)]
        self.tokens = [i + s for i, s in kinds]
        self.made = [1 + s for _, s in kinds]
        self.own = [self._own(piece, later) for piece in range(len(instance.cost.batch))]
        self._sums = [self._sum(column) for column in (self.kv, self.tokens, self.made)]
        self._own_sums = [self._sum(column) for column in self.own]

    def _sum(self, column: list[int]) -> int:
        """Over all requests."""
        pairs = zip(column, self.instance.types, strict=True)
        return sum(value * len(kind.members) for value, kind in pairs)

    def _own(self, piece: int, later: list[int]) -> list[int]:
        instance, ticks, system = self.instance, self.instance.cost.ticks, self.instance.system
        beta = ticks.beta[piece]
        decodes = not instance.policy.preemption or (beta - ticks.d1) * system.kv_capacity >= 2 * ticks.d0
        found = []
        for kind, kv in zip(instance.types, later, strict=True):
            prompt = kind.input_tokens
            own = beta * prompt + ticks.p1 * prompt_pairs(instance, kind)
            shared = (ticks.p0 * prompt << BITS) // system.max_prefill_tokens
            if kv:
                own += later_work(instance, kind, piece)
                shared += (ticks.d0 * kv << BITS) // system.kv_capacity if decodes else 0
            found.append((int(own) << BITS) + int(shared))
        return found

    def shares(self, price: _Price) -> tuple[Fraction, Fraction, Fraction]:
        """What is paid for a token of KV, a token processed and a request, in 2**-`BITS` ticks."""
        system = self.instance.system
        alpha = Fraction(self.instance.cost.ticks.alpha[price.piece] << BITS, PARTS)
        return (
            alpha * price.kv / system.kv_capacity,
            alpha * price.tokens / system.max_batch_tokens,
            alpha * price.requests / (system.max_running or 1),
        )

    def total(self, price: _Price) -> Fraction:
        """Work of all requests."""
        paid = zip(self.shares(price), self._sums, strict=True)
        return self._own_sums[price.piece] + sum((share * used for share, used in paid), Fraction(0))

    def works(self, price: _Price) -> list[int]:
        """Work of one request of each type, rounded down."""
        kv, tokens, made = map(int, self.shares(price))
        columns = zip(self.own[price.piece], self.kv, self.tokens, self.made, strict=True)
        return [own + kv * a + tokens * b + made * c for own, a, b, c in columns]


def sustainable_rate(instance: Instance) -> Fraction:
    """Most requests a second that can be served for ever, if they are like those of the instance."""
    columns = _Columns(instance, Latency.E2E)
    total = max(columns.total(price) for price in _prices(instance))
    unit = instance.cost.ticks_per_second << BITS
    return len(instance.requests) * unit / max(Fraction(1), total)


def completion_ticks(instance: Instance, latency: Latency) -> list[int]:
    """Least time, ticks, at which 1, 2, ... requests have their last (for the TTFT: first) token."""
    unit = instance.cost.ticks_per_second << BITS
    arrivals = [int(kind.arrival * unit) for kind in instance.types]
    best = BEST if len(instance.requests) <= MANY else BEST_OF_MANY
    times: list[int] = [0] * len(instance.requests)
    columns = _Columns(instance, latency)
    for price in sorted(_prices(instance), key=columns.total, reverse=True)[:best]:
        jobs = [
            (arrival, work)
            for arrival, work, kind in zip(arrivals, columns.works(price), instance.types, strict=True)
            for _ in kind.members
        ]
        times = list(map(max, times, _shortest_remaining(jobs)))
    return [time >> BITS for time in times]


def _shortest_remaining(jobs: list[tuple[int, int]]) -> list[int]:
    """Completion times on one machine by shortest remaining work, ascending; jobs are arrival and work."""
    if all(arrival == jobs[0][0] for arrival, _ in jobs):
        return [jobs[0][0] + done for done in accumulate(sorted(work for _, work in jobs))]
    jobs = sorted(jobs, reverse=True)
    now = 0
    left: list[int] = []
    done = []
    while jobs or left:
        if not left:
            now = max(now, jobs[-1][0])
        while jobs and jobs[-1][0] <= now:
            heapq.heappush(left, jobs.pop()[1])
        work = heapq.heappop(left)
        if jobs and now + work > jobs[-1][0]:
            heapq.heappush(left, work - (jobs[-1][0] - now))
            now = jobs[-1][0]
        else:
            now += work
            done.append(now)
    return done
