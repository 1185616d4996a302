r"""The progress bound on the mean end-to-end latency: a full memory is full of half-finished requests.

The sum of all finishing times is the integral of the number of unfinished requests over time.  Area
bounds count a request as finished in shares, as its tokens are made.  This bound counts it as unfinished
until its last token, and charges for the difference.

*Tokens.*  Fix one affine piece, in ticks.  Every token has a presence a', a work w and a size k:

- a first token: a' = alpha + p0, w = beta I + p1 W, with W = I if chunks save attention work, else I**2;
- a later one with s = I + n tokens cached after it: a' = alpha + d0 and w = beta + d1 (s-1) without
  preemption.  With it, too, if a refill of s tokens costs e = beta s + p1 W(s) - w >= max(0, d0 - p0);
  else a' = alpha + min(d0, p0) and w = beta + min(d1, beta) (s-1);
- k = held(KV after it) / M, or 1 / R, with R the most requests that can make a token in one batch:
  their number, R_max, or as many as fit with the shortest prompts.

Let u = w + a' k.  U is the sum of u over a request, P the sum over its tokens before this one, and
q = (P + u/2) / U the share of the request that is done when half of the token is.

*Batches.*  Let j be a batch that makes tokens, N_j the number of requests unfinished until it ends, and let
sums run over its tokens.  Its time is at least A_j + X_j, X_j = sum of w, with A_j >= a' of each of its
tokens: a decode pays alpha + d0, a first token alpha + p0; where only refills end, each has e to spare or
the small a', and the batch prefills.  Work of chunks is moved to the batch that completes their token: this
only lowers the sum of T_j N_j, as N falls; batches that make no token count nothing.  Sizes sum to at most 1,
so g_j = 1 - sum of k is at least 0, and A_j >= sum of a' k + a0 g_j, a0 being the least a' of all.

*Unfinished.*  Let mid_j be the sum, over unfinished requests, of the share that is not yet done, on average
while batch j does its shares evenly.  A request that makes a token counts 1 = its share left + q; so
N_j >= mid_j + sum of q, and

    T_j N_j >= mid_j (sum of u + a0 g_j) + sum of a' q + X_j (sum of q).

(i) The first part, mid_j (sum of u), adds up to the integral of the shares left over the clock V that
advances by u: at least the sum of mean busy dates, with the smallest U first.
(ii) sum of a' q is the same in all schedules.
(iii) By Cauchy X_j (sum of q) >= Y_j**2, Y_j = sum of y, y = sqrt(w q).  For any number x_j with
x_j**2 <= a0 mid_j:  a0 mid_j g_j + Y_j**2 >= x_j**2 g_j + 2 x_j Y_j - x_j**2 = 2 x_j Y_j - x_j**2 (sum of k).
Take any x(V) that falls with V, x(V)**2 <= a0 (n - F(V)), F(V) being the most requests, in shares, that are
done when the clock shows V, and x_j its mean over the batch.  Then x_j**2 is at most the mean of x**2, and
that is at most a0 mid_j.  So (iii) is at least the integral of 2 x(V) (y/u) - x(V)**2 (k/u) over V, with each
token spread evenly over its batch.  The first term is least if tokens lie by rising y/u, as x falls; the
second is largest if they lie by falling k/u.  Each is taken at its extreme.  QED.

Requests with U = 0 are left out of F and n.  Idle time only adds.  With arrivals nothing changes if requests
count as unfinished from time 0: the sum of finishing times is bounded, and the arrivals are subtracted.

Source: this project; the shares are those of mean busy dates (Goemans et al., 2002).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import isqrt
from typing import TYPE_CHECKING

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.pieces import best_piece
from infermax_opt.infermax.bounds.token_parts import Token, TokenParts, by_lengths
from infermax_opt.infermax.data.instance import Instance, RequestType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["ProgressProof", "progress_bound"]

#: Different tokens beyond which the bound is not tried: checking it takes some microseconds for each.
MAX_TOKENS = 10**6
#: Different tokens up to which one bound is found even when time is over: it takes less than a second.
FEW_TOKENS = 10**5
#: Bits of a density, and of the largest x.
DENSITY_BITS, LEVEL_BITS = 64, 40
#: Steps in which x falls to 0, and values of its beginning that are tried in a round, and rounds.
STEPS, LEVELS, ROUNDS = 192, 16, 3


def progress_bound(
    instance: Instance, *, stop: Callable[[], bool] | None = None, pieces: Sequence[int] | None = None
) -> LowerBound | None:
    """Best progress bound on the mean end-to-end latency, over pieces, sizes and levels of x.

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
        None where there are too many different tokens, or many and no time.  Below zero it says nothing.
    """
    tokens = sum(kind.output_tokens for kind in by_lengths(instance))
    if tokens > MAX_TOKENS or (tokens > FEW_TOKENS and stop is not None and stop()):
        return None
    return best_piece(instance, _piece_bound, stop, pieces)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    found = []
    for by_slots in (False, True):
        if (piece or by_slots) and stop():
            break
        proof = ProgressProof(instance, piece, by_slots)
        found.append(proof.bound(proof.levels(stop)))
    return max(found, key=lambda bound: bound.value, default=None)


@dataclass(frozen=True)
class _Kind:
    """Equal requests: their number, tokens, mass u of each, and the mass U of a whole request."""

    count: int
    tokens: Sequence[Token]
    masses: Sequence[int]
    mass: int


class ProgressProof:
    """The bound for one affine piece and one choice of sizes.

    Parameters
    ----------
    instance : Instance
    piece : int
    by_slots : bool
        Whether the size of a token is one slot of R, not KV.
    """

    def __init__(self, instance: Instance, piece: int, by_slots: bool):
        self.instance, self.piece, self.by_slots = instance, piece, by_slots
        self._parts = TokenParts(instance, piece, by_slots)
        self._divisor = self._parts.divisor
        self._kinds = sorted(map(self._kind, by_lengths(instance)), key=lambda kind: kind.mass)
        self._least = min(presence for kind in self._kinds for presence, _, _ in kind.tokens)
        #: Those that count, and of these requests and mass up to each.
        self._massive = [kind for kind in self._kinds if kind.mass]
        self._upto = [0, *accumulate(kind.count for kind in self._massive)]
        self._clocks = [0, *accumulate(kind.count * kind.mass for kind in self._massive)]
        self._counted = self._upto[-1]
        self.exponent = max(0, LEVEL_BITS - (self._least * self._counted).bit_length() // 2)

    def _kind(self, kind: RequestType) -> _Kind:
        tokens = list(self._parts.of(kind))
        masses = [self._divisor * work + presence * size for presence, work, size in tokens]
        return _Kind(len(kind.members), tokens, masses, sum(masses))

    # --- the levels of x --------------------------------------------------------------------------

    def levels(self, stop: Callable[[], bool]) -> list[tuple[int, int]]:
        """Ends of cells of V and the level of x in each, in units, that give the best bound found.

        Parameters
        ----------
        stop : callable
            Asked whether to try no more.
        """
        import numpy as np

        if self._least == 0:
            return []
        rows = np.array([row for kind in self._kinds for row in self._rows(kind)], dtype=np.float64)
        mass, y, size = rows[rows[:, 0] > 0].T
        rising, falling = np.argsort(y / mass, kind="stable"), np.argsort(-size / mass, kind="stable")
        clock = (
            np.concatenate(([0.0], np.cumsum(mass[rising]))),
            np.concatenate(([0.0], np.cumsum(mass[falling]))),
        )
        sums = (
            np.concatenate(([0.0], np.cumsum(y[rising]))),
            np.concatenate(([0.0], np.cumsum(size[falling]))),
        )

        def gain(cells: list[tuple[int, int]]) -> float:
            ends = np.array([0, *(end for end, _ in cells)], dtype=np.float64)
            x = np.array([level for _, level in cells], dtype=np.float64) / 2.0**self.exponent
            ys, sizes = (np.diff(np.interp(ends, *pair)) for pair in zip(clock, sums, strict=True))
            return float(2 * x @ ys - x * x @ sizes / self._divisor)

        top = isqrt(self._least * self._counted << 2 * self.exponent)
        low, high = top / 50, float(top)
        best: list[tuple[int, int]] = []
        for _ in range(ROUNDS):
            tried = [self._cells(int(low * (high / low) ** (k / LEVELS))) for k in range(LEVELS + 1)]
            gains = [gain(cells) for cells in tried]
            k = int(np.argmax(gains))
            best = tried[k]
            ratio = (high / low) ** (1 / LEVELS)
            middle = low * ratio**k
            low, high = middle / ratio, min(float(top), middle * ratio)
            if stop():
                break
        return best

    def _rows(self, kind: _Kind) -> Iterator[tuple[float, float, float]]:
        """Mass, y and size of each token of all its requests."""
        before = 0
        for (_, work, size), mass in zip(kind.tokens, kind.masses, strict=True):
            y = (work * (2 * before + mass) / (2 * kind.mass)) ** 0.5 if kind.mass else 0.0
            yield float(kind.count * mass), kind.count * y, float(kind.count * size)
            before += mass

    def _cells(self, top: int) -> list[tuple[int, int]]:
        """Cells of an x that begins with `top` and falls as fast as it must."""
        # Requests are counted in shares of `scale`: fractions are many times slower.
        share = self._least << 2 * self.exponent
        scale, left = share * STEPS, min(self._counted * share, top * top)
        cells: list[tuple[int, int]] = []
        before = 0
        for step in range(STEPS):
            end = self._clock(self._counted * scale - left * (STEPS - step), scale)
            if end > before:
                level = min(top, self._level(end))
                if level:
                    cells.append((end, level))
                    before = end
        return cells

    def _clock(self, done: int, scale: int) -> int:
        """Where the clock is, at least, when `done` shares of `scale` of a request may be done."""
        k = bisect_left(self._upto, -(-done // scale)) - 1
        if k < 0:
            return 0
        return self._clocks[k] + (done - self._upto[k] * scale) * self._massive[k].mass // scale

    def _level(self, end: int) -> int:
        """Largest x that is allowed up to there, in units."""
        k = bisect_left(self._clocks, end) - 1
        if k < 0:
            return isqrt(self._least * self._counted << 2 * self.exponent)
        # Shares of a request of this mass that are left.
        mass = self._massive[k].mass
        left = (self._counted - self._upto[k]) * mass - (end - self._clocks[k])
        return isqrt((self._least * left << 2 * self.exponent) // mass)

    # --- the value ----------------------------------------------------------------------------------

    def bound(self, levels: Sequence[tuple[int, int]]) -> LowerBound:
        """The bound with these levels of x, exactly, rounded down."""
        instance = self.instance
        ticks = Fraction(self._busy(), 2 * self._divisor) + self._constant() + self._transported(levels)
        arrivals = sum((kind.arrival * len(kind.members) for kind in instance.types), Fraction(0))
        value = (ticks / instance.cost.ticks_per_second - arrivals) / len(instance.requests)
        evidence = {
            "kind": "progress",
            "piece": self.piece,
            "exponent": self.exponent,
            "by_slots": self.by_slots,
            "levels": [list(cell) for cell in levels],
        }
        return LowerBound(value, "progress", Proof.CERTIFICATE, evidence=evidence)

    def _busy(self) -> int:
        """(i): twice the sum of mean busy dates."""
        clock = total = 0
        for kind in self._kinds:
            total += kind.count * (2 * clock + kind.count * kind.mass)
            clock += kind.count * kind.mass
        return total

    def _constant(self) -> Fraction:
        """(ii): sum of a' q."""
        total = 0
        for kind in self._kinds:
            before = doubled = 0
            for (presence, _, _), mass in zip(kind.tokens, kind.masses, strict=True):
                doubled += presence * (2 * before + mass)
                before += mass
            if kind.mass:
                total += (kind.count * doubled << DENSITY_BITS) // (2 * kind.mass)
        return Fraction(total, 2**DENSITY_BITS)

    def _transported(self, levels: Sequence[tuple[int, int]]) -> Fraction:
        """(iii): twice the least sum of x y, less the most of x**2 k."""
        rising: list[tuple[int, int]] = []
        falling: list[tuple[int, int]] = []
        for kind in self._kinds:
            before = 0
            for (_, work, size), mass in zip(kind.tokens, kind.masses, strict=True):
                if mass:
                    y = isqrt((work * (2 * before + mass) << 2 * self.exponent) // (2 * kind.mass))
                    rising.append(((y << DENSITY_BITS) // mass, kind.count * mass))
                    falling.append((-(-(size << DENSITY_BITS) // mass), kind.count * mass))
                before += mass
        rising.sort()
        falling.sort(reverse=True)
        scale = 4**self.exponent << DENSITY_BITS
        gained = 2 * _spread(rising, [(end, level) for end, level in levels])
        lost = _spread(falling, [(end, level * level) for end, level in levels])
        return Fraction(gained, scale) - Fraction(lost, scale * self._divisor)


def _spread(tokens: Sequence[tuple[int, int]], cells: Sequence[tuple[int, int]]) -> int:
    """Sum of density times level times mass: (density, mass) are laid in turn into cells (end, level)."""
    total = clock = 0
    queue = iter(tokens)
    density = left = 0
    for end, level in cells:
        earned = 0
        while clock < end:
            if not left:
                density, left = next(queue, (0, end - clock))
            here = min(left, end - clock)
            earned += density * here
            clock, left = clock + here, left - here
        total += level * earned
    return total
