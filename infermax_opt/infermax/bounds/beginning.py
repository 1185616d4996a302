r"""The beginning bound: memory that is empty at first, and then the release bound.

`releases` counts what is wasted between two releases, but lets memory be full of requests of any age from the
first batch on.  Here the first T batches are looked at one by one.

*Prices.*  Count the batches that process tokens of the requests that are looked at.  Let T be no more than
the largest O of these, so that there are T batches, and p_t >= 0 a price of a token of KV in batch t.  After
batch t no more than M tokens are held, so that

    T M >= sum over t of (1 - p_t) M + sum over t and requests of p_t times what each holds after t.

*Rest.*  What `releases` says of all batches holds for those after the first T, too: the first window begins
there, and no more windows end than requests that have not finished.  There each token has a w of its own; but
a request's tokens are in runs one after the other, and a run of g tokens up to size s wastes T(g) + lambda s
at least.  So its runs together waste no less than the cheapest way to part its tokens into runs, d(n) once it
has made n of them: d(O) = 0, and

    d(n) = the least of T(g) + lambda (I + n + g - 1) + d(n + g) over 1 <= g <= O - n.

With the next token it has I + n tokens of KV.  So after n < O tokens it still counts

    c(n) = sum over its later tokens of s, plus d(n), less lambda M;        c(O) = 0.

*Long runs.*  Let z be the largest size, and let k be 2 sqrt(lambda z) + 2 or more.  A run of g > k tokens is
no cheaper than two of them, if g <= H or k < H: one more run costs lambda z at most.  Its parts may be
halves, of a and b tokens, and save a b >= (g**2 - 1) / 4 where g <= H.  Where H < g <= 2 H they save the
least of a and H - p for each p < b, no less than H**2 / 4; and where g > 2 H, the last H tokens alone save as
much.  So g <= k is enough if k < H.  Else T(g) rises by H with each token beyond H: such a run is followed
token by token.

*Lives.*  So J M is at least the sum of (1 - p_t) M, plus for each request what it pays in the first T batches
and c of what it has made by then.  That is no less than the cheapest of all lives: sequences of

- a batch without KV: free, as long as no token was made, and after an eviction;
- a batch with a token, the n-th: p_t (I + n - 1), also if it is the first one or ends a refill;
- a batch in memory without a token, of which n are made: p_t (I + n - 1);
- an eviction before a batch: V (I + n - 1), V being what a refill of the whole memory is worth in batches.

A part of a prompt, or of a refill, holds KV as well, which may count nothing.  An eviction after the first T
batches frees m_x tokens and saves (H + lambda) m_x, as in `releases`, where H + lambda <= V; so all evictions
together cost no less than they save here, each V m_x.  Without preemption there are none.

*Whose.*  Whatever requests are looked at, it holds; so those count whose cheapest life costs more than
nothing, and T is no more than the largest O of these.

With T = 0 it is the bound of `releases`, or a little more.  The prices are found by steps along their slopes:
what all cheapest lives hold, less M.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds._steps import Steps
from infermax_opt.infermax.bounds.closed_form import counted_bound
from infermax_opt.infermax.bounds.pieces import Stop, best_piece
from infermax_opt.infermax.bounds.release_runs import rests, run_steps
from infermax_opt.infermax.bounds.releases import SCALE, released_batches
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["BEGINNING", "Search", "beginning_batches", "beginning_bound", "cheapest_life"]

BEGINNING = "KV beginning"
"""Name of the argument."""

#: Batches times tokens that a request of each kind may have made, at most: a checker looks at each.
LIVES = 3_000_000
#: Up to so many plain Python does.
FEW = 60
#: Kinds of requests, at most: of many different ones hardly more is proved, and slowly.
MOST_KINDS = 64
#: Sizes of tokens times lengths of runs, at most, of all sizes with which requests end together.
RUNS = 5_000_000
#: Parts of the price of `releases` that are tried besides.
PARTS = (0.85, 1.15, 0.7, 1.3)
#: Parts of the first batches that have a price each; steps of these; the first step.
CELLS, STEPS, WIDTH = 48, 400, 0.1
#: The largest price, in parts of a batch for a full memory.
DEAREST = 2**10

Row = tuple[int, int, int]


def beginning_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best beginning bound found over the pieces; None where the release bound proves as much.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to search no longer.
    """
    return best_piece(instance, _piece_bound, stop)


def _piece_bound(instance: Instance, piece: int, stop: Stop) -> LowerBound | None:
    def argument(rows: Sequence[Row], worth: int | None) -> tuple[int, Any]:
        return beginning_batches(rows, instance.system.kv_capacity, worth, stop)

    return counted_bound(instance, BEGINNING, piece, argument)


def beginning_batches(
    rows: Sequence[Row], capacity: int, worth: int | None, stop: Stop
) -> tuple[int, dict[str, Any]]:
    """Batches of the beginning bound, and its prices; 0 where it does not prove more than `releases`.

    Parameters
    ----------
    rows : sequence of (input tokens, output tokens, number of requests)
    capacity : int
        M, in tokens.
    worth : int or None
        V in parts of `SCALE` of a batch; None without evictions.
    stop : callable
        Asked often whether to search no longer.
    """
    numbers = Counter[tuple[int, int]]()
    for i, o, number in rows:
        numbers[i, o] += number
    sizes = [(i, o, number) for (i, o), number in numbers.items()]
    if len(sizes) > MOST_KINDS:
        return 0, {}
    before, price = released_batches(sizes, capacity, worth)
    if price == 0 or run_steps(numbers, 2 * price) > RUNS:
        return 0, {}
    search, best = _at_best_price(sizes, capacity, worth, price, stop), 0
    found: list[int] = []
    for count in [0, *search.counts()]:
        kv = search.prices(count, stop) if count else []
        batches = search.batches(kv)
        if batches > best:
            best, found = batches, kv
        if stop():
            break
    return (best, {"price": search.price, "kv": found}) if best > before else (0, {})


def _at_best_price(sizes: Sequence[Row], capacity: int, worth: int | None, price: int, stop: Stop) -> Search:
    """The search with the price near that of `releases` that proves most without first batches."""
    searches = [Search(sizes, capacity, worth, price)]
    for some in (int(part * price) for part in PARTS):
        if stop():
            break
        if worth is None or some <= worth:
            searches.append(Search(sizes, capacity, worth, some))
    return max(searches, key=lambda search: search.batches([]))


def cheapest_life(
    inputs: int, outputs: int, rest: Sequence[int], kv: Sequence[int], worth: int | None
) -> int:
    """The cheapest life of a request, in parts of `SCALE`.

    Parameters
    ----------
    inputs, outputs : int
        Tokens.
    rest : sequence of int, (outputs + 1,)
        What it counts after the first batches, by the tokens made.
    kv : sequence of int
        Price of KV in each of these.
    worth : int or None
        V; None without evictions.
    """
    inside = outside = list(rest[: len(kv) + 1])
    for t in range(len(kv) - 1, -1, -1):
        price, most = kv[t], min(t + 1, outputs)
        made = [price * (inputs + n) + inside[n + 1] for n in range(most)]
        beside = list(map(min, made, outside))
        stays = [min(some, price * (inputs + n - 1) + inside[n]) for n, some in enumerate(made)]
        if worth is not None:
            stays = [min(some, worth * (inputs + n - 1) + beside[n]) for n, some in enumerate(stays)]
        inside, outside = ([*some, rest[outputs]] if most == outputs else some for some in (stays, beside))
    return outside[0]


class Search:
    """Looks for prices.

    Parameters
    ----------
    sizes, capacity, worth
        As for `beginning_batches`, each size once.
    price : int
        lambda, in parts of `SCALE`.
    """

    def __init__(self, sizes: Sequence[Row], capacity: int, worth: int | None, price: int):
        self.capacity, self.worth, self.price = capacity, worth, price
        rest = rests([(i, o) for i, o, _ in sizes], capacity, price, worth)
        #: Who counts at all, and what they count by the tokens that they have made.
        self.kinds = [(size, row) for size, row in zip(sizes, rest, strict=True) if row[0] > 0]

    def counts(self) -> list[int]:
        """Numbers of first batches that are tried: outputs of requests, as many as a checker has time for."""
        outputs = sorted({o for (_, o, _), _ in self.kinds})
        if not outputs:
            return []
        some = {outputs[0], outputs[-1] // 2, outputs[-1]}
        return sorted({self._checkable(count) for count in some} - {0, 1})

    def _checkable(self, count: int) -> int:
        while count * sum(min(count, o) for (_, o, _), _ in self.kinds) > LIVES:
            count = count * 3 // 4
        return count

    def batches(self, kv: Sequence[int]) -> int:
        """Batches that prices prove, exactly; 0 if there are fewer than prices."""
        total, longest = sum(SCALE - price for price in kv) * self.capacity, 0
        for (i, o, number), row in self.kinds:
            life = cheapest_life(i, o, row, kv, self.worth)
            if life > 0:
                total, longest = total + number * life, max(longest, o)
        unit = self.capacity * SCALE
        if longest < len(kv):
            return 0
        return -(-total // unit) if self.worth is None else total // unit

    def prices(self, count: int, stop: Stop) -> list[int]:
        """Good prices of so many batches, in parts of `SCALE`."""
        import numpy as np

        cells = min(CELLS, count)
        edges = np.arange(cells + 1) * count // cells
        spans = np.diff(edges)
        # Memory is free at first, and worth a batch when it is full.
        point = np.minimum(1.0, 2 * np.arange(1, cells + 1) / cells)
        steps, best, level = Steps([point]), point, -np.inf
        lives = _Lives(self, count)
        for step in range(STEPS):
            total, held = lives.held(np.repeat(point, spans))
            value = total + float(spans @ (1 - point)) * self.capacity
            if value > level:
                best, level = point, value
            if stop():
                break
            sums = np.append(0.0, np.cumsum(held))
            slope = (sums[edges[1:]] - sums[edges[:-1]]) / spans - self.capacity
            (way,) = steps.ways([slope / self.capacity])
            point = np.clip(point + WIDTH * (1 - step / STEPS) * way, 0.0, DEAREST)
        found = np.repeat(np.round(best * SCALE).astype(np.int64), spans)
        return [int(price) for price in found]


class _Lives:
    """Cheapest lives of all kinds in so many batches, in floats."""

    def __init__(self, search: Search, count: int):
        import numpy as np

        self.rows = [
            (i, o, float(number), np.array(row[: count + 1]) / SCALE) for (i, o, number), row in search.kinds
        ]
        self.worth = -1.0 if search.worth is None else search.worth / SCALE
        longest = max(o for _, o, _, _ in self.rows) + 1
        self.choices = np.zeros((2, count, longest), np.int8)
        self.costs = np.zeros((2, longest + 1))
        self.few = count * sum(min(count, o) for _, o, _, _ in self.rows) <= FEW

    def held(self, kv: Floats) -> tuple[float, Floats]:
        """What all pay together, and what they hold after each batch."""
        import numpy as np

        held, total, loop = np.zeros(len(kv)), 0.0, _kernel(self.few)
        for i, o, number, rest in self.rows:
            total += loop(i, o, number, rest, kv, self.worth, self.choices, self.costs, held)
        return total, held


@functools.cache
def _kernel(small: bool) -> Callable[..., Any]:
    from infermax_opt.infermax.bounds import _kernels_beginning as plain

    found: Callable[..., Any] = compiled(plain.live, (), allocates=False, small=small)
    return found
