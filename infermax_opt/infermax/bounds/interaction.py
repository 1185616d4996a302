r"""The interaction bound on the mean end-to-end latency with arrivals: batches are slow as others are there.

Fix one affine piece, in ticks.  The sum of latencies is the integral of N(t), the number of requests that
have arrived and are not finished.  Let batch j, of time T_j, have N_j of them throughout, m_j that decode,
X_j the work of their tokens (w = beta + d1 (s-1) each, s = I + n tokens cached after it), and P_j the work of
its prompts and refills.  Let a' = alpha + d0 > 0.

*Presence.*  Requests that decode, end a refill or prefill in j are among the N_j, so N_j times the constants
of the batch is at least a' for each decode and alpha + p0 for each of the others.

*Decodes.*  m_j X_j >= z_j**2 (Cauchy), z_j the sum of sqrt(w); and z**2 >= 2 r z - r**2 for any r.  Take any
step function r(t) >= 0, h = r**2, and the means h_j and r_j over the batch: z_j**2 >= 2 r_j z_j - h_j, as the
root of a mean is at least the mean of the roots.

*Time.*  T_j >= a' + X_j + P_j if m_j > 0, else T_j >= P_j.  So the sum of h_j over batches that decode is at
most (the integral of h - sum of h_j (X_j + P_j)) / a'.

*Prompts.*  At time t at least L(t) requests are there: those with a_i <= t < a_i + lone_i, `lone` being the
least latency of each.  Work of prompts is spread evenly over its batch; it costs at least max(1, L) of the
time that it takes.  Work of refills costs at least itself.

*Prices.*  Together the sum of latencies is at least, less the integral of h / a',

- for a later token made at t:  a' + 2 r sqrt(w) + r**2 w / a',  or, if it ends a refill,
  alpha + p0 + (beta + p1) s (1 + r**2 / a');
- for a prompt:  (alpha + p0) for each of its q chunks, and its work, beta I + p1 I**2 / q, times
  max(1, L(t)) + r**2 / a'.

A refill is dearer at every r if R0 = alpha + p0 + (beta + p1) s - a' >= 0 and w a' <= R0 ((beta + p1) s - w);
else the token counts its price at r = 0, the smaller of the two.  The best q is at least ceil(I / min(P, C)),
and q A + B / q >= 2 sqrt(A B).

*Delays.*  For any 0 <= theta <= 1 the sum is theta times itself plus (1 - theta) times the sum of
lone_i + D_i, D_i >= 0 being the delay.  Tokens are made in [a_i, a_i + lone_i + D_i], and the prompt before
that less the later tokens alone.  So each request pays at least its least over D_i, with r and L at their
least in these windows.  QED.

Certificate: theta, and r on cells of time.  L is rounded down to whole cells, windows are rounded up to them,
and D_i is rounded down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise, product
from math import ceil, floor, isqrt
from typing import TYPE_CHECKING

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._fluid import fluid_of
from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.bounds.pieces import best_piece, longest
from infermax_opt.infermax.data.instance import Instance, RequestType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["InteractionProof", "Kind", "Prices", "in_chunks", "in_groups", "interaction_bound"]

#: Largest KV of a request for which the bound is tried: prices are tabulated by it.
MAX_SIZE = 2**20
#: Requests beyond which it is not tried: checking takes some tens of microseconds for each.
MAX_CHECKED = 50_000
#: Bits after the point of r and of square roots, and of theta.
ROOT_BITS, THETA_BITS = 12, 10
#: Cells of time before the last arrival: as many as requests, but within these; fewer where checking is long.
CELLS, FEWER = (1_000, 20_000), 4
#: Cheaper cells that all requests together come to by waiting, at most: checking takes 25 steps for each.
MAX_STEPS = 1_200_000
#: Requests of which a choice is judged.
SAMPLE = 60
#: Values of theta that are tried, factors of r, and shares of the cells over which it is smoothed.
#: Theta 1 is worth no more than the least times alone: who waits to the end pays no more.
THETAS = (0.6, 0.7, 0.8, 0.9, 0.95)
FACTORS = (0.6, 0.75, 0.9)
WIDTHS = (0.05, 0.15, 0.5)


def interaction_bound(
    instance: Instance, *, stop: Callable[[], bool] | None = None, pieces: Sequence[int] | None = None
) -> LowerBound | None:
    """Best interaction bound found over pieces, theta and scales of r.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no more.
    pieces : sequence of int, optional
        Which pieces of the batch time, in this order; without it all of them.

    Returns
    -------
    LowerBound or None
        None where the bound is not tried.  Below zero it says nothing.
    """
    if instance.offline or longest(instance) > MAX_SIZE or len(instance.requests) > MAX_CHECKED:
        return None
    return best_piece(instance, _piece_bound, stop, pieces)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    prices = Prices.of(instance, piece)
    if prices is None:
        return None
    kinds = [Kind.of(kind, instance, prices) for kind in instance.types]
    cells = min(CELLS[1], max(CELLS[0], len(kinds)))
    while (found := _best(instance, prices, kinds, cells, stop)) is None and cells > 1 and not stop():
        cells //= FEWER
    return found


def _best(
    instance: Instance, prices: Prices, kinds: Sequence[Kind], cells: int, stop: Callable[[], bool]
) -> LowerBound | None:
    """The bound by the best r and theta, judged by some of the requests; None where all take too many steps.

    Parameters
    ----------
    instance : Instance
    prices : Prices
    kinds : sequence of Kind
        All of the instance.
    cells : int
        Cells of time before the last arrival.
    stop : callable
        Asked whether to try no more.
    """
    ends, roots, _ = fluid_of(instance, prices.piece, cells)
    best: tuple[int, InteractionProof, int] | None = None
    for width, factor in product(WIDTHS, FACTORS):
        levels = (factor * _smoothed(roots, int(width * len(roots)))).astype(int).tolist()
        proof = InteractionProof(instance, prices, kinds, list(zip(ends, levels, strict=True)))
        for share in THETAS:
            theta = round(share * 2**THETA_BITS)
            worth = proof.sampled(theta, -(-len(kinds) // SAMPLE))
            if worth is not None and (best is None or worth > best[0]):
                best = worth, proof, theta
            if stop():
                break
        if stop():
            break
    return None if best is None else best[1].bound(best[2])


def _smoothed(roots: Sequence[float], width: int) -> Floats:
    """Means over so many cells to each side, in units of 2**-ROOT_BITS."""
    import numpy as np

    sums = np.cumsum(np.pad(np.array(roots) * 2**ROOT_BITS, (width + 1, width), mode="edge"))
    means: Floats = (sums[2 * width + 1 :] - sums[: -2 * width - 1]) / (2 * width + 1)
    return means


@dataclass(frozen=True)
class Prices:
    """Sums over tokens with s = 0, 1, ... cached after them, for one affine piece.

    Attributes
    ----------
    piece, step : int
        `step` is a', in ticks.
    alone : sequence of int
        Least time of a later token with the machine to itself.
    fixed, roots, works : sequence of int
        What a later token pays at r = 0; sqrt(w) in units of 2**-ROOT_BITS, and w, where it pays these.
    """

    piece: int
    step: int
    alone: Sequence[int]
    fixed: Sequence[int]
    roots: Sequence[int]
    works: Sequence[int]

    @classmethod
    def of(cls, instance: Instance, piece: int) -> Prices | None:
        """Tabulate the prices; None where a' is 0.

        Parameters
        ----------
        instance : Instance
        piece : int
            Affine piece of the batch time.
        """
        ticks, refills = instance.cost.ticks, instance.policy.preemption
        alpha, beta = ticks.alpha[piece], ticks.beta[piece]
        step, again = alpha + ticks.d0, beta + ticks.p1
        if step == 0:
            return None
        alone, fixed, roots, works = [0], [0], [0], [0]
        for s in range(1, longest(instance)):
            work = beta + ticks.d1 * (s - 1)
            more = alpha + ticks.p0 + again * s - step
            alone.append(min(step + work, step + more) if refills else step + work)
            dearer = more >= 0 and work * step <= more * (again * s - work)
            if not refills or dearer:
                fixed.append(step)
                roots.append(isqrt(work << 2 * ROOT_BITS))
                works.append(work)
            else:
                fixed.append(min(step, step + more))
                roots.append(0)
                works.append(0)
        return cls(piece, step, *(list(accumulate(row)) for row in (alone, fixed, roots, works)))


@dataclass(frozen=True)
class Kind:
    """Equal requests: their number, and what each pays.

    `begin`, `until`: arrival in ticks, rounded down and up.  `later`, `lone`: least times of its later tokens
    and of all.  `fixed`, `roots`, `works`: of its later tokens.  `linear`: work of its prompt without the
    attention that chunks share; `square`: that attention in one chunk; `chunks`: its fewest.
    """

    count: int
    begin: int
    until: int
    later: int
    lone: int
    fixed: int
    roots: int
    works: int
    linear: int
    square: int
    chunks: int

    @classmethod
    def of(cls, kind: RequestType, instance: Instance, prices: Prices) -> Kind:
        """What requests of a type pay.

        Parameters
        ----------
        kind : RequestType
        instance : Instance
        prices : Prices
        """
        ticks = instance.cost.ticks
        i, last = kind.input_tokens, kind.input_tokens + kind.output_tokens - 1
        tables = prices.alone, prices.fixed, prices.roots, prices.works
        later, fixed, roots, works = (row[last] - row[i] for row in tables)
        square = ticks.p1 * i * i
        linear, shared = ticks.beta[prices.piece] * i, square
        if not spreads(instance):
            linear, shared = linear + square, 0
        chunks = -(-i // instance.system.prefill_budget)
        lone = linear + in_chunks(ticks.alpha[prices.piece] + ticks.p0, chunks, shared, 1, 1) + later
        arrival = kind.arrival * instance.cost.ticks_per_second
        return cls(
            len(kind.members), floor(arrival), ceil(arrival), later, lone, fixed, roots, works,
            linear, shared, chunks,
        )  # fmt: skip


class InteractionProof:
    """The bound for some r.

    Parameters
    ----------
    instance : Instance
    prices : Prices
    kinds : sequence of Kind
        All of the instance.
    cells : sequence of (int, int)
        End of each cell in ticks, and r there in units of 2**-ROOT_BITS.
    """

    def __init__(
        self, instance: Instance, prices: Prices, kinds: Sequence[Kind], cells: Sequence[tuple[int, int]]
    ):
        self.instance, self.prices, self.cells = instance, prices, cells
        self._chunk = instance.cost.ticks.alpha[prices.piece] + instance.cost.ticks.p0
        self._kinds = kinds
        self._ends = [end for end, _ in cells]
        #: Prices are whole numbers of 1 / unit.
        self._unit = prices.step << 2 * ROOT_BITS
        #: What a tick of prompt work costs in each cell, and r; after the last cell nobody need be there.
        work = [max(1, n) * self._unit + r * r for n, (_, r) in zip(self._present(), cells, strict=True)]
        self._work, self._root = [*work, self._unit], [*(root for _, root in cells), 0]
        self._falls = falls(self._work), falls(self._root)
        #: Cheaper cells that requests came to so far.
        self._steps = 0
        starts = [0, *self._ends]
        self._spent = sum((end - start) * r * r for start, (end, r) in zip(starts, cells, strict=False))

    def _present(self) -> list[int]:
        """Requests that are there throughout each cell, at least."""
        changes = [0] * (len(self.cells) + 1)
        starts = [0, *self._ends]
        for kind in self._kinds:
            first, last = bisect_left(starts, kind.until), bisect_right(self._ends, kind.begin + kind.lone)
            if first < last:
                changes[first] += kind.count
                changes[last] -= kind.count
        return list(accumulate(changes[:-1]))

    def bound(self, theta: int) -> LowerBound:
        """The bound, exactly; theta in units of 2**-THETA_BITS."""
        instance = self.instance
        total = sum(kind.count * self._least(kind, theta) for kind in self._kinds) - theta * self._spent
        ticks = Fraction(total, self._unit << THETA_BITS)
        evidence = {
            "kind": "interaction",
            "piece": self.prices.piece,
            "theta": theta,
            "cells": [list(cell) for cell in self.cells],
        }
        value = ticks / instance.cost.ticks_per_second / len(instance.requests)
        return LowerBound(value, "interaction", Proof.CERTIFICATE, evidence=evidence)

    def sampled(self, theta: int, every: int) -> int | None:
        """About what `bound` is worth, of every so many requests; None where it takes too many steps."""
        some = self._kinds[::every]
        total = self._steps = 0
        for kind in some:
            total += kind.count * self._least(kind, theta)
            if self._steps * len(self._kinds) > MAX_STEPS * len(some):
                return None
        return total * len(self._kinds) // len(some) - theta * self._spent

    def _least(self, kind: Kind, theta: int) -> int:
        """Least that a request pays, over its delays, in ticks times unit * 2**THETA_BITS."""
        waiting = ((1 << THETA_BITS) - theta) * self._unit
        ends, last = self._ends, len(self._ends)
        end, early = kind.until + kind.lone, kind.until + kind.lone - kind.later
        cell, prompt, token = (bisect_right(ends, moment) for moment in (kind.begin, early, end))
        # Where, as delays grow, work and tokens first find a lower price.
        prompt = min(range(cell, prompt + 1), key=self._work.__getitem__)
        token = min(range(cell, token + 1), key=self._root.__getitem__)
        free = waiting * kind.lone + theta * self._paid(kind, self._unit, 0)
        best = waiting * kind.lone + theta * self._paid(kind, self._work[prompt], self._root[token])
        while True:
            self._steps += 1
            lower, cheaper = self._falls[0][prompt], self._falls[1][token]
            delays = [ends[k - 1] - since for k, since in ((lower, early), (cheaper, end)) if k <= last]
            if not delays or waiting * min(delays) + free >= best:
                return best
            delay = min(delays)
            if lower <= last and ends[lower - 1] - early == delay:
                prompt = lower
            if cheaper <= last and ends[cheaper - 1] - end == delay:
                token = cheaper
            paid = self._paid(kind, self._work[prompt], self._root[token])
            best = min(best, waiting * (kind.lone + delay) + theta * paid)

    def _paid(self, kind: Kind, work: int, root: int) -> int:
        """What a request pays at these prices, in ticks times unit."""
        tokens = kind.fixed * self._unit + root * (2 * kind.roots * self.prices.step + root * kind.works)
        chunks = in_chunks(self._chunk, kind.chunks, kind.square, work, self._unit)
        return tokens + work * kind.linear + chunks * self._unit


def falls(values: Sequence[int]) -> list[int]:
    """For each place, the next one with a smaller value; the number of values where there is none."""
    found, open_ = [len(values)] * len(values), list[int]()
    for k, value in enumerate(values):
        while open_ and values[open_[-1]] > value:
            found[open_.pop()] = k
        open_.append(k)
    return found


def in_chunks(fixed: int, chunks: int, square: int, work: int, unit: int) -> int:
    """Least of q * fixed + square * (work / unit) / q over q >= chunks, rounded down.

    Parameters
    ----------
    fixed : int
        Ticks of a chunk.
    chunks : int
        Fewest chunks.
    square : int
        Attention work in one chunk, in ticks.
    work, unit : int
        Price of a tick of work, in parts of a unit.
    """
    if square * work <= fixed * chunks * chunks * unit:
        return chunks * fixed + square * work // (chunks * unit)
    return isqrt(4 * fixed * square * work // unit)


def in_groups(i: int, o: int, groups: int) -> list[tuple[int, int]]:
    """Later tokens in groups as equal as can be: tokens cached before the first and after the last of each.

    Parameters
    ----------
    i, o : int
        Input and output tokens.
    groups : int
        At most.
    """
    many = min(groups, o - 1)
    return list(pairwise(i + (o - 1) * k // many for k in range(many + 1))) if many else []
