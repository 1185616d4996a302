r"""The spacing bound: without evictions, requests that finish soon after each other need memory together.

For n requests of I prompt and O output tokens each, offline or not; at first, where nobody is evicted.

*Memory.*  Count the batches that process tokens.  Let e be the batch of a request's last token, and s =
e - O + 1.  A request makes a token in any batch at most, so that it is in memory from batch s on, and in
batch t holds I + t - s tokens or more.  Number the requests by s, and let d_l be the s of the l-th after
request j less its own.  Let m be the number of those, itself included, that have d_l <= O - 1: all of them
are in memory in batch e of request j.  With F = I + O - 1 they hold m F - (d_1 + ... + d_{m-1}) <= M there.
As each holds I or more, F + (m - 1) I <= M.

*Chain.*  Let x be any number.  Suppose d_l < l x for all l up to m.  Then d_l <= min(ceil(l x), O) - 1 for
those in memory, and their sum is at most t_m, that of these for l = 1 ... m - 1.  So that cannot be if
t_m < m F - M; nor if m x <= O, as d_m >= O, if there is a request after those m.  Let one of both be true
for each m >= 1 that fits.  Then request j is followed by one whose s is l x later or more, for some l <= m;
if all K requests from j on are in memory, that is so if t_K < K F - M.  From request 1 on, whose s is the
number f of batches that its prompt takes, or more, a chain of such steps leads on while that holds for K, and
for all larger numbers that fit.  Let K0 be the least such K.  The chain ends at a request before which there
are n - K0 + 1 others or more, so that

    J >= f + O - 1 + ceil((n - K0 + 1) x).

Evenly spaced requests keep all these limits, so that hardly more can be proved of their number of batches.

*Evictions.*  Let b requests be evicted that have made a token.  Leave them out: the others still need
f + O - 1 + (n - b - K0 + 1) x batches, and K0 is no larger for fewer of them; and any one needs f + O - 1.
Each of the b processes I tokens or more again, which costs rho I or more beside the work that counts, as for
`age`.  Where that is worth x batches or more, evictions cost as much as they save.  So J >= f + O - 1 +
(n - K0 + 1) x, rounded down, or refills cost more than the batches that are missing.
"""

from __future__ import annotations

__all__ = ["MOST", "SCALE", "spaced_batches"]

#: Requests in memory at once beyond which the bound is not tried: area arguments are good there.
MOST = 2_000
#: x is a multiple of one part in so many.
SCALE = 2**16


def spaced_batches(
    inputs: int, outputs: int, count: int, capacity: int, budget: int, worth: int | None = None
) -> tuple[int, int]:
    """Batches of the spacing bound, for equal requests, and its x.

    Parameters
    ----------
    inputs, outputs, count : int
        Tokens of each, and how many there are.
    capacity : int
        M, in tokens; at least what one request needs.
    budget : int
        Tokens of prompts in a batch, at most.
    worth : int, optional
        Parts of `SCALE` of a batch that an eviction costs, at least; None where there are no evictions.

    Returns
    -------
    batches, apart : int
        `apart`: the largest x, in parts of `SCALE`; 0 where more than `MOST` requests may be in memory.
    """
    most = min(count, 1 + (capacity - (inputs + outputs - 1)) // inputs)
    apart = 0
    if most <= MOST:
        step = 1 << (outputs * SCALE).bit_length()
        while step:
            wider = apart + step
            if worth is None or wider <= worth:
                apart += step * (_together(inputs, outputs, capacity, most, wider) is not None)
            step //= 2
    together = _together(inputs, outputs, capacity, most, apart) if apart else None
    followed = 0 if together is None else max(0, count - together + 1)
    parts = followed * apart
    spaced = -(-parts // SCALE) if worth is None else parts // SCALE
    return -(-inputs // budget) + outputs - 1 + spaced, apart


def _together(inputs: int, outputs: int, capacity: int, most: int, apart: int) -> int | None:
    """K0 of an x; None where no chain follows from it."""
    room, bad = -capacity, 0
    for m in range(1, most + 1):
        room += inputs + outputs - 1
        if m > 1:
            room -= min(-(-(m - 1) * apart // SCALE), outputs) - 1
        if room <= 0:
            if m * apart > outputs * SCALE:
                return None
            bad = m
    return bad + 1
