r"""The release bound: a release of KV is shared by those in memory, each by its size.

`age` says what is wasted while memory fills up between two releases, but not who is there then: it lets small
requests make all of their tokens just after releases.  Here each request pays for that itself.

*Windows*, p_u, H and m_x are those of `age`, for any n requests.  There it is shown that

    J M - sum of U_t >= sum over tokens of min(p_u, H) - H * sum of m_x,

p_u being the number of batches of its window before that in which the token is made.

*Runs.*  A run is all the tokens that one request makes in one window: g of them, of which the last is the
largest, of KV size s.  They are made in different batches, so that their min(p_u, H) sum up to T(g) or more,

    T(g) = min(0, H) + min(1, H) + ... + min(g - 1, H).

When the window ends the request still holds s, or it was evicted after its last token there and freed s: the
first such eviction x has m_x = s.  A window ends with a batch, after which all hold M at most, those included
that finish in it, and there are n windows at most.  So the s of all runs sum up to n M + sum of m_x or less.

*Price.*  Let lambda >= 0 be a price of that, and

    w(s) = the least of (T(g) + lambda s) / g over all g >= 1.

It does not fall where s grows, so that w of all tokens of a run is T(g) + lambda s or less.  With A the KV
sizes of all tokens, of which each U_t is at least the sum of those made in t,

    J M >= A + sum over tokens of w - lambda n M - (H + lambda) * sum of m_x.

*Evictions* cost more than the batches that they save where H + lambda batches are worth no more than a refill
of the whole memory, as for `age`.  Without preemption there are none, and H is unlimited.

*Whose.*  All this holds for any of the requests.  So each request counts with its part of the right side,

    sum over its tokens of (s + w(s)) - lambda M,

where that is positive, and is left out else.  A request with few tokens counts more by the window that it
opens than by its own KV.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infermax_opt.infermax.bounds.sizes import LARGE

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["MAX_SIZE", "SCALE", "released_batches"]

#: Largest KV size of a token for which the bound is tried, so that sums over one request fit in int64.
MAX_SIZE = 1_000_000
#: Prices are multiples of one part of a batch in so many.
SCALE = 2**20
#: Times that the steps between prices that are tried are halved, as powers of two.
HALVINGS = 4


def released_batches(
    sizes: Sequence[tuple[int, int, int]], capacity: int, worth: int | None = None
) -> tuple[int, int]:
    """Batches of the release bound, and its price lambda.

    Parameters
    ----------
    sizes : sequence of (input tokens, output tokens, number of requests)
    capacity : int
        M, in tokens.
    worth : int, optional
        What a refill of the whole memory is worth, in parts of `SCALE` of a batch; None without evictions.

    Returns
    -------
    batches, price : int
        The batches are rounded down with evictions, as these may save a part of one.  The price is in parts
        of `SCALE`; both are 0 where a size exceeds `MAX_SIZE`.
    """
    if max(i + o for i, o, _ in sizes) > MAX_SIZE:
        return 0, 0
    shares = _Shares(sizes, capacity, None if worth is None else min(worth, LARGE))
    price = shares.best_price()
    parts, unit = shares.total(price), capacity * SCALE
    return (-(-parts // unit) if worth is None else parts // unit), price


class _Shares:
    """What each request counts at a price.

    Parameters
    ----------
    sizes, capacity, worth
        As for `released_batches`.
    """

    def __init__(self, sizes: Sequence[tuple[int, int, int]], capacity: int, worth: int | None):
        import numpy as np

        self.capacity, self.worth = capacity, worth
        inputs, outputs, self.counts = (np.array(column, np.int64) for column in zip(*sizes, strict=True))
        least = int(inputs.min())
        self.first, self.end = inputs - least, inputs + outputs - least
        self.tokens = np.arange(least, int((inputs + outputs).max()), dtype=np.int64)

    def best_price(self) -> int:
        """The price at which requests count most, of those that are tried."""
        highest = int(self.tokens[-1]) * SCALE
        highest = highest if self.worth is None else min(highest, self.worth)

        def price(power: float) -> int:
            return min(highest, int(2**power))

        @functools.cache
        def counted(power: float) -> float:
            return float(self.of(price(power)) @ self.counts.astype(float))

        best = max((float(power) for power in range(highest.bit_length() + 1)), key=counted)
        for halving in range(1, HALVINGS + 1):
            step = 0.5**halving
            best = max((best - step, best, best + step), key=counted)
        return price(best)

    def total(self, price: int) -> int:
        """What all of them count, exactly."""
        return sum(int(part) * int(count) for part, count in zip(self.of(price), self.counts, strict=True))

    def of(self, price: int) -> Integers:
        """What a request of each kind counts, in parts of `SCALE`; 0 where that is not positive."""
        import numpy as np

        up_to = np.concatenate(([0], np.cumsum(self.tokens * SCALE + self._waste(price))))
        opened = min(price * self.capacity, LARGE)
        counted: Integers = np.maximum(0, up_to[self.end] - up_to[self.first] - opened)
        return counted

    def _waste(self, price: int) -> Integers:
        """The w of each size, rounded down: the best g has g (g - 1) <= 2 lambda s <= g (g + 1)."""
        import numpy as np

        paid = price * self.tokens
        run = np.floor((1 + np.sqrt(1 + 8 / SCALE * paid)) / 2).astype(np.int64)
        run -= run * (run - 1) // 2 * SCALE > paid
        run += run * (run + 1) // 2 * SCALE <= paid
        waste: Integers = (run * (run - 1) // 2 * SCALE + paid) // run
        if self.worth is not None:
            horizon = (self.worth - price) // SCALE
            waste[run > horizon] = horizon * SCALE
        return waste
