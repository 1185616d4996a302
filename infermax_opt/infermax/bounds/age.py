r"""The age bound: KV comes free only where a request finishes or is evicted, and fills up in between.

*Windows.*  Count the batches that process tokens.  A window ends with a batch in which a request
finishes; there are at most n, the number of requests.  Let U_t be the tokens held after batch t, and
tau_t those generated in it.  Inside a window nothing finishes, and a request that generates a token
holds one more at least, so for t < t' <= t + H in one window

    U_t <= M - sum of tau_u over t < u <= t' + sum of m_x over the evictions x between,

m_x being the tokens that eviction x frees.  Let p_u be the number of batches before u in its window.
Summed over all t, with t' as late as H and the window allow:

    J M - sum of U_t >= sum of tau_u min(p_u, H) - H * sum of m_x.

*Evictions* make good what they free: m_x tokens are processed again.  That costs beta m_x instead of d1
m_x at most (a decode that becomes a refill) or nothing at all (a prompt that was not done), so rho m_x =
max(0, beta - d1) m_x more than the work F counts (`closed_form`).  They save H m_x / M batches.  So none
pays if H times what a batch is worth is at most rho M; without preemption there are none, and H is
unlimited.

*Waste.*  As U_t is at least the KV sizes of the tokens made in t, the sum of all is at least their total A,
so that J M >= A + W for any lower bound W on the sum of tau_u min(p_u, H).  There are at most n batches
of each p, which hold at most n M tokens.  A token in batch u counts min(p_u, H).  Let the tokens be
sorted by KV size, v being the total size up to a token, itself included.  In batches of less than p
before them at most p n M fits: no more tokens than those of v <= p n M.  So at least as many tokens as
have v > p n M count for the p-th time, p = 1, ..., H:

    W = sum over tokens of min(H, ceil(v / (n M)) - 1).

With arrivals, or for some of the requests only, all this holds for what those process and hold.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MAX_SIZE", "aged_batches"]

#: Largest KV size of a token for which the bound is tried.
MAX_SIZE = 1_000_000


def aged_batches(sizes: Sequence[tuple[int, int, int]], capacity: int, horizon: int | None) -> int:
    """Batches of the age bound; rounded down with a horizon, as evictions may save a part of one.

    Parameters
    ----------
    sizes : sequence of (input tokens, output tokens, number of requests)
    capacity : int
        M, in tokens.
    horizon : int or None
        H; None is no limit.

    Returns
    -------
    int
        0 where a size exceeds `MAX_SIZE`.
    """
    import numpy as np

    top = max(i + o for i, o, _ in sizes)
    requests = sum(count for *_, count in sizes)
    if top > MAX_SIZE or requests * top * (top + capacity) >= 2**62:
        return 0
    steps = np.zeros(top + 1, np.int64)
    i, o, count = (np.array(column, np.int64) for column in zip(*sizes, strict=True))
    np.add.at(steps, i, count)
    np.add.at(steps, i + o, -count)
    many = np.cumsum(steps)[:top]  # tokens of each size; never more than requests
    size = np.arange(top)
    volume = np.cumsum(many * size)
    before, room = volume - many * size, requests * capacity
    position = before // room
    # The tokens of one size reach into the next position at most.
    late = np.maximum(0, many - ((position + 1) * room - before) // np.maximum(1, size))
    # A horizon beyond the last position is none; it may be too large for a column.
    most = int(position.max()) + 1
    most = most if horizon is None else min(most, horizon)
    waste = many * np.minimum(position, most) + late * (position < most)
    filled = int(volume[-1]) + int(waste.sum())
    return -(-filled // capacity) if horizon is None else filled // capacity
