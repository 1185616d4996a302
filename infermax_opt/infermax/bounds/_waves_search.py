"""Search for a good knee, shares and prices of the waves bound; any that hold are valid."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds._waves_proof import SHARE_BITS, Knot, Layer, WavesProof, interpolated

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["best_waves", "layered", "waves_at"]

#: Layers of work, and of memory, at most.
LAYERS = 16
#: Knees that are tried in each of two rounds.
KNEES = 12
#: How much prices rise with what is left of the base, in parts of what equally large waves allow; the more
#: promising first.
RISES = (0.8, float("inf"), 0.95, 0.5, 0.0)
#: The one of these by which knees are judged.
USUAL_RISE = 0.8
#: Ranks at which a price is named, by ratio and by difference.
KNOTS = 24
#: Prices are lowered by one of these shares, so that they hold at all ranks.
LOWERED = (1e-9, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)


def best_waves(proof: WavesProof, stop: Callable[[], bool]) -> LowerBound:
    """The bound with the best knee found.

    Parameters
    ----------
    proof : WavesProof
    stop : callable
        Asked whether to try no more.
    """
    work, memory = layered(proof.works), layered(proof.sizes)
    found: dict[int, float] = {}

    def judged(knee: int) -> float:
        if knee not in found and not (found and stop()):
            found[knee] = _estimate(proof, knee, *_shared(proof, knee, work, memory))
        return found.get(knee, float("-inf"))

    knees = _spread(1, proof.count)
    middle = knees.index(max(knees, key=judged))
    near = _spread(knees[max(0, middle - 1)], knees[min(len(knees) - 1, middle + 1)])
    return waves_at(proof, max([*near, knees[middle]], key=judged), work, memory, stop)


def waves_at(
    proof: WavesProof,
    knee: int,
    work: list[tuple[int, int]],
    memory: list[tuple[int, int]],
    stop: Callable[[], bool] = lambda: False,
) -> LowerBound:
    """The bound with this knee and the best shares and prices found.

    Parameters
    ----------
    proof : WavesProof
    knee : int
    work, memory : lists of (int, int)
        Tokens and height of each layer.
    stop : callable
        Asked whether to try no more.
    """
    layers = _shared(proof, knee, work, memory)
    priced = [
        [layer._replace(knots=_knots(proof, layer, (knee, first), stop)) for layer in some]
        for some, first in zip(layers, (0, knee), strict=True)
    ]
    return proof.bound(knee, *priced)


def _shared(proof: WavesProof, knee: int, *layers: list[tuple[int, int]]) -> tuple[list[Layer], list[Layer]]:
    """Layers of work and of memory with the shares that earn most."""
    work, memory = layers if knee < proof.count else (layers[0], [])
    total = sum(height * tokens**2 for tokens, height in (*work, *memory)) or 1

    def shared(some: list[tuple[int, int]]) -> list[Layer]:
        return [Layer(g, d, (d * g * g << SHARE_BITS) // total) for g, d in some]

    return shared(work), shared(memory)


def _left(proof: WavesProof, layer: Layer, knee: int, first: int) -> Floats:
    """What a layer has of the base, by the number of unfinished requests above `first`."""
    import numpy as np

    left = float(proof.base) * np.minimum(np.arange(first + 1, proof.count + 1.0), knee)
    return np.asarray(left * (layer.share / 2**SHARE_BITS))


def _estimate(proof: WavesProof, knee: int, work: list[Layer], memory: list[Layer]) -> float:
    """About what a knee gives."""
    n, above = proof.count, proof.count - knee
    value = n * (n + 1) / 2 * sum(proof.works) + above * (above + 1) / 2 * sum(proof.sizes)
    for some, first in ((work, 0), (memory, knee)):
        for layer in some:
            tops = _tops(_left(proof, layer, knee, first), layer.height, USUAL_RISE)
            value += layer.tokens * float(tops.sum())
    return value


def _knots(proof: WavesProof, layer: Layer, ranks: tuple[int, int], stop: Callable[[], bool]) -> list[Knot]:
    """Prices of a layer that hold, at some ranks, given the knee and how many ranks pay nothing."""
    import numpy as np

    knee, first = ranks
    left = _left(proof, layer, knee, first)
    if not left.size:
        return []
    most = proof.count - first
    places = sorted({*_spread(1, most, KNOTS), *np.linspace(1, most, KNOTS).astype(int).tolist()})
    best: list[Knot] = []
    for rise in RISES:
        if best and stop():
            break
        prices = _greedy(left, layer.height, rise)
        for lowered in LOWERED:
            knots = [(first + place, int(prices[place - 1] * (1 - lowered))) for place in places]
            every = interpolated(knots, proof.count)
            if sum(every) <= sum(interpolated(best, proof.count)):
                break
            if proof.holds(every, layer.height, layer.share, knee, first):
                best = knots
    return best


def layered(values: Sequence[int]) -> list[tuple[int, int]]:
    """Layers, as tokens and height, whose sums from the first token on are at most those of the values.

    The heights of all tokens follow the largest convex function below the sums, in few steps.

    Parameters
    ----------
    values : sequence of int
        One for each token, none below 0.
    """
    sums = [0, *accumulate(values)]
    corners = [0]
    for k in range(1, len(sums)):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (sums[b] - sums[a]) * (k - b) < (sums[k] - sums[b]) * (b - a):
                break
            corners.pop()
        corners.append(k)
    heights = [(sums[b] - sums[a]) // (b - a) for a, b in pairwise(corners) for _ in range(a, b)]
    length, layers, before = len(heights), list[tuple[int, int]](), 0
    for k in sorted({length * part // LAYERS for part in range(LAYERS)}):
        if heights[k] > before:
            layers.append((length - bisect_left(heights, heights[k]), heights[k] - before))
            before = heights[k]
    return layers


def _spread(low: int, high: int, steps: int = KNEES) -> list[int]:
    """Whole numbers from one to the other, by about the same ratio."""
    return sorted({low, high, *(round(low * (high / low) ** (k / steps)) for k in range(1, steps))})


def _tops(left: Floats, height: int, rise: float) -> Floats:
    """Rising prices that equally large batches would allow, and more where what is left rises."""
    import numpy as np

    numbers = np.arange(1.0, len(left) + 1)
    c = np.clip(np.sqrt(2 * left / height), 1, numbers)
    tops = left / c + height * (c - 1) / 2
    growth = np.diff(left, prepend=left[:1])
    tops += np.where(growth > 0, rise / 2 * growth, 0.0) if rise < float("inf") else rise
    return np.asarray(np.minimum.accumulate(tops[::-1])[::-1])


def _greedy(left: Floats, height: int, rise: float) -> Floats:
    """Rising prices below `_tops`, each as large as those before it allow."""
    import numpy as np

    tops = _tops(left, height, rise)
    prices, paid, c = [0.0] * (len(left) + 1), [0.0] * (len(left) + 1), 1
    for number, (top, here) in enumerate(zip(tops.tolist(), left.tolist(), strict=True), 1):
        while c < number and height * c < prices[number - c]:
            c += 1
        room = here + height * c * (c - 1) / 2 - (paid[number - 1] - paid[number - c])
        prices[number] = max(0.0, min(top, room))
        paid[number] = paid[number - 1] + prices[number]
    return np.asarray(np.minimum.accumulate(prices[:0:-1])[::-1])
