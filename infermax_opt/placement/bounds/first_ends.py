r"""Workers that the KV needs, as requests on a worker go on growing until the first of them ends.

Take an iteration k and so many workers, W, that have requests then.  Let e_w be the first iteration from k on
at which a request of worker w ends.  All its requests of iteration k are still there then, so that

    sum over its requests of (s_j + d_w)  <=  M,   s_j = KV of j at iteration k,   d_w = h (e_w - k).

The e_w belong to different requests: sorted, they are no less than the W first ends of all requests, one by
one.  With D_1 <= D_2 <= ... from these in place of the d_w (of a worker that has none, anything), requests
fit if there are x_wj >= 0 with sum over w of x_wj = 1 for each j and sum over j of x_wj (s_j + D_w) <= M for
each w.  For any prices v_w >= 0 of the workers that is impossible if

    sum over j of min over w of v_w (s_j + D_w)  >  M * sum over w of v_w,

as the left side is at most sum over w, j of x_wj v_w (s_j + D_w).  Good prices come from filling workers
greedily, the smallest requests on those that end first: a request that is cut between two workers is worth as
much on one as on the other.  They are rounded to whole numbers; any prices prove what they prove.

Ongoing requests count on workers that may take new ones, and those are among the W; other workers in use are
left out with their requests.  With W workers refuted, fewer are, too: the condition is the same with the
prices of the others 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infermax_opt.placement.data.limits import Limits

__all__ = ["Ends", "refuted", "workers_by_ends"]

#: Iterations that are tried, those with the most KV.
MOST_ITERATIONS = 32
#: Prices are whole numbers up to this.
PRICE = 1 << 40


@dataclass(frozen=True)
class Ends:
    """So many workers are too few, for what the requests hold from this iteration on."""

    workers: int
    iteration: int


def workers_by_ends(limits: Limits, new: Sequence[int], workers: Sequence[int], least: int) -> Ends | None:
    """Most workers that are refuted.

    Parameters
    ----------
    limits : Limits
    new : sequence of int
        New requests that fit on a worker.
    workers : sequence of int
        Workers with ongoing requests that may take new ones.
    least : int
        Workers known to be needed, these included: at least so many less one are refuted already.

    Returns
    -------
    Ends or None
        None if nothing is refuted that was not before.
    """
    members = [*new, *(k for e in workers for k in limits.ongoing[e])]
    total: dict[int, int] = {}
    for k in {limits.lasts[i] for i in members}:
        total[k] = sum(limits.held[i] + limits.grows * k for i in members if limits.lasts[i] >= k)
    found = None
    number = max(least, 1)
    for k in sorted(total, key=lambda k: -total[k])[:MOST_ITERATIONS]:
        alive = [i for i in members if limits.lasts[i] >= k]
        sizes = sorted(limits.held[i] + limits.grows * k for i in alive)
        delays = sorted(limits.grows * (limits.lasts[i] - k) for i in alive)
        while number < len(alive) and refuted(sizes, delays[:number], limits.most_kv):
            found = Ends(number, k)
            number += 1
    return found


def refuted(sizes: Sequence[int], delays: Sequence[int], capacity: int) -> bool:
    """Whether requests certainly do not fit on workers.

    Parameters
    ----------
    sizes : sequence of int
        KV of each request, smallest first; above 0 in all.
    delays : sequence of int
        KV that each request of a worker takes until the first of them ends, per worker, smallest first.
    capacity : int
    """
    prices = _prices(sizes, delays, capacity)
    if prices is None:
        return False
    lines = list(zip(prices, delays, strict=True))
    need = sum(min(price * (size + delay) for price, delay in lines) for size in sizes)
    return need > capacity * sum(prices)


def _prices(sizes: Sequence[int], delays: Sequence[int], capacity: int) -> list[int] | None:
    """Prices of the workers if requests do not fit when filled in greedily; None if they do."""
    prices, price, worker, room = [float(PRICE)], float(PRICE), 0, float(capacity)
    for size in sizes:
        left = 1.0
        while True:
            each = size + delays[worker]
            if left * each <= room:
                room -= left * each
                break
            left -= room / each if each else 0.0
            worker += 1
            if worker == len(delays):
                return [max(0, round(some)) for some in prices]
            more = size + delays[worker]
            price *= each / more if more else 1.0
            prices.append(price)
            room = float(capacity)
    return None
