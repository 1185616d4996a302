"""Shares of waiting time for `mutual`: a Lagrangian over what each request has to share, in floats.

A pair earns a concave function of its two shares.  At prices of a request's time each pair takes the best of
four points, the mean over rounds comes near the best shares, and is scaled down to what there is.  How much
each request had better keep for its own wait is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from infermax_opt.infermax.bounds.mutual import Guest

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

__all__ = ["Crowd", "shared_out"]

#: Most pairs: those of each request with the next ones to come.
MAX_PAIRS = 150_000
#: Pairs, and 1.6 times the requests, that can be checked within the limit of steps.
MAX_CHECKED = 185_000
#: Rounds of prices, those of them that are left out of the mean, and how far the first one goes.
ROUNDS, WARM_UP, PACE = 120, 20, 0.3
#: Parts of a' that requests share out at most, and pairs beyond which only the first is tried.
PARTS, MANY = (0.6, 1.0), 60_000
#: Shares of a' are whole numbers of 2**-SHARE_BITS.
SHARE_BITS = 16


class Crowd(NamedTuple):
    """Ticks of a batch (a'), of a token more than of the one before, and of a chunk; requests by arrival."""

    step: int
    growth: int
    chunk: int
    guests: Sequence[Guest]


class Pairs(NamedTuple):
    """Requests of each pair, and works in units of a'.

    `pending` prompt of the early one, `prompt` of the late one, `tokens` S(m), first and last token of both,
    `outlived` all `left` tokens of the early one, `overtaken` all `rest` tokens of the late one if it may
    leave before that prompt is done.
    """

    early: Integers
    late: Integers
    pending: Floats
    prompt: Floats
    tokens: Floats
    early_work: tuple[Floats, Floats]
    late_work: tuple[Floats, Floats]
    outlived: Floats
    left: Floats
    overtaken: Floats
    rest: Floats


def shared_out(crowd: Crowd, stop: Callable[[], bool]) -> Iterator[list[list[int]]]:
    """Shares for `MutualProof.bound`, some of them good.

    Parameters
    ----------
    crowd : Crowd
    stop : callable
        Asked whether to end soon.

    Yields
    ------
    list of lists of int
        For each request: how many requests before it the other came, its share, the share of the other.
    """
    import numpy as np

    pairs, count = _together(crowd), len(crowd.guests)
    for part in PARTS:
        mine, other = _averaged(pairs, count, part, stop)
        used = np.bincount(pairs.late, mine, count) + np.bincount(pairs.early, other, count)
        fair = part / np.maximum(part, used)
        units = (1 << SHARE_BITS) * (1 - 1e-9)
        mine, other = (
            np.floor(units * share * fair[who]).astype(np.int64)
            for share, who in ((mine, pairs.late), (other, pairs.early))
        )
        shares: list[list[int]] = [[] for _ in crowd.guests]
        for row in zip(pairs.early, pairs.late, mine, other, strict=True):
            i, k, own, given = (int(value) for value in row)
            shares[k] += [k - i, own, given]
        yield shares
        if used.max(initial=0.0) < part or len(pairs.left) > MANY:
            break  # nobody would share out more


def _together(crowd: Crowd) -> Pairs:
    """Pairs of requests of which the early one is there when the late one comes, however fast it is."""
    import numpy as np

    columns = np.array([guest[:] for guest in crowd.guests], dtype=np.float64).T / crowd.step
    begin, until, outputs, work, first, later, chunks, linear, square, paired = columns
    outputs, chunks, growth = outputs * crowd.step, chunks * crowd.step, crowd.growth / crowd.step
    begun_last = begin + first + later - (1 + work + growth * np.maximum(0, outputs - 1))
    there = np.maximum(begin + first, np.where((paired > 0) & (outputs > 0), begun_last, begin))
    n = len(begin)
    ends = np.searchsorted(until, there, side="left")
    most = min(MAX_PAIRS, MAX_CHECKED - 16 * n // 10)
    numbers = np.clip(ends - np.arange(n) - 1, 0, max(1, most // n))
    early = np.repeat(np.arange(n), numbers)
    late = early + 1 + np.arange(len(early)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    time = until[late] - begin[early]
    begun = _begun(time - first[early], 1 + work[early], growth, outputs[early])
    left = np.where(paired[early] > 0, outputs[early] - begun, 0)

    def of(guests: Integers, since: Floats | float, number: Floats) -> Floats:
        total: Floats = number * work[guests] + growth * number * (2 * since + number - 1) / 2
        return total

    few, most = np.minimum(left, outputs[late]), np.minimum(outputs[early], outputs[late])
    tokens = np.minimum(
        of(early, begun, few) + of(late, 0.0, few), of(early, 0.0, most) + of(late, 0.0, most)
    )
    tokens *= (paired[late] > 0) & (left > 0)
    last = work + growth * np.maximum(0, outputs - 1)
    prompt = linear + square / np.maximum(1, chunks)
    fresh = time < first[early]
    whole = crowd.chunk / crowd.step + linear
    pending = np.where(fresh, linear[early] * np.maximum(0, 1 - time / np.maximum(1e-12, whole[early])), 0)
    ahead = fresh & (paired[late] > 0)
    return Pairs(
        early, late, pending, prompt[late], tokens, (work[early], last[early]), (work[late], last[late]),
        of(early, begun, left), left, np.where(fresh, np.where(ahead, of(late, 0.0, outputs[late]), 0), 1e30),
        np.where(ahead, outputs[late], 0),
    )  # fmt: skip


def _begun(rest: Floats, step: Floats, growth: float, most: Floats) -> Floats:
    """Most later tokens whose making has begun, after so much time since the first."""
    import numpy as np

    linear = 2 * step - growth
    rest = np.maximum(0, rest)
    x = 2 * rest / linear
    if growth:
        x = (np.sqrt(linear * linear + 8 * growth * rest) - linear) / (2 * growth)
    begun: Floats = np.minimum(most, np.where(rest > 0, np.floor(x) + 1, 0))
    return begun


def _averaged(pairs: Pairs, count: int, part: float, stop: Callable[[], bool]) -> tuple[Floats, Floats]:
    """Mean shares over rounds of prices, where each request has so much to share.

    Parameters
    ----------
    pairs : Pairs
    count : int
        Requests.
    part : float
        What each shares out, as a part of a'.
    stop : callable
        Asked whether to end soon.
    """
    import numpy as np

    points = _points(pairs)
    price = np.zeros(count)
    scale = float(np.median(pairs.left)) if len(pairs.left) else 1.0
    total = np.zeros((2, len(pairs.left)))
    rounds = 0
    for k in range(ROUNDS):
        gains = [
            earned - price[pairs.late] * mine - price[pairs.early] * other for earned, mine, other in points
        ]
        best = np.argmax(gains, axis=0)
        mine, other = (np.choose(best, [point[side] for point in points]) for side in (1, 2))
        used = np.bincount(pairs.late, mine, count) + np.bincount(pairs.early, other, count)
        price = np.maximum(0, price + scale * PACE / (1 + k) ** 0.5 * np.clip(used / part - 1, -1, 3))
        if k >= WARM_UP:
            total += (mine, other)
            rounds += 1
        if rounds and stop():
            break
    return total[0] / rounds, total[1] / rounds


def _points(pairs: Pairs) -> list[tuple[Floats, Floats, Floats]]:
    """What each pair earns, and its two shares, at four points.

    What tokens are paid without shares, or all; for each, without what a prompt wants beside, or with it.
    """
    import numpy as np

    (early, early_last), (late, late_last) = pairs.early_work, pairs.late_work
    free = np.minimum(
        early / np.maximum(1e-12, late_last + early), late / np.maximum(1e-12, early_last + late)
    )
    found = []
    for factor in (np.minimum(1, free), np.ones_like(free)):
        waits = np.maximum(0, factor * (late_last + early) - early)
        other = np.maximum(0, factor * (early_last + late) - late)
        stays = pairs.pending + pairs.prompt + factor * pairs.tokens
        overtakes = (stays - pairs.prompt - pairs.overtaken) / np.maximum(1, pairs.rest)
        for yields in (other, np.maximum(other, np.where(pairs.rest > 0, overtakes, 0))):
            passed = pairs.prompt + pairs.overtaken + pairs.rest * yields
            found.append((np.minimum(stays, passed), waits, yields))
    return found
