r"""The waves bound on the mean end-to-end latency of equal requests: who is ahead waits for those behind.

The sum of all finishing times is the integral of the number of unfinished requests over time.  Serving many
at once makes those ahead wait for those behind; serving few leaves all others waiting for a batch that is
nearly empty.  Where memory is not scarce, waves are best: some requests from the first to the last token,
then some more, each wave as large as those who still wait make worth while.  This bound says so, and prices
memory where it is scarce.

*Tokens and batches* are those of `infermax_opt.infermax.bounds.progress`: token l of a request has a
presence a', a work w and a size k; sizes in a batch sum to at most 1; a batch takes at least A + (sum of
w), A being at least each a' in it; chunks count where their token is completed. Fix a base b > 0. Let w' =
w + (a' - b) k where a' >= b, and w' = w + a' - b elsewhere; none may be below 0. A batch takes at least b +
(sum of w'): if the largest a' in it is at least b, it exceeds b by no less than the sum of (a' - b) k over
those above b; if not, one token alone makes up for it, with its a' - b < 0.

*Order.*  All n requests have the same I and O. After each batch sort the numbers of tokens that the
requests have made, the largest first, and let line r of this list stand for a request. A batch adds at most
1 to each number, so it adds at most 1 to each line; the same tokens are made in it, and as many requests
are unfinished. So let the requests be the lines: whoever is ahead stays ahead. Give them ranks, n to the
one that is furthest ahead, 1 to the last. A batch with N unfinished requests has the ranks 1, ..., N, and
counts N times its time.

*Pairs.*  For a token of some rank, N w' = rank w' + (N - rank) w'. The second part is what the N - rank
unfinished requests ahead of it wait. Take a pair, one ahead of the other. While the one ahead is
unfinished, the one behind makes its first r tokens, for some r. Take any heights 0 <= h(1) <= h(2) <= ...
that sum over 1, ..., r to at most what w' does, for all r. The pair waits at least the sum of h over these
r tokens, and so over the batches in which both make a token; there h of the one behind is the smaller one.
Cut h into layers: layer i is d_i high, for the last g_i tokens of a request. Then a batch in which c
requests make one of their last g_i tokens counts d_i c (c-1) / 2 for layer i.

*Memory.*  Take a knee K, and let L(N) = b max(0, N - K). As sizes sum to at most 1,

    N b >= N b - L(N) + (sum of k) L(N),   L(N) >= L(rank), and L(N) = L(rank) + b (N - rank) if rank > K.

So a token pays k L(rank) for memory; and b k, too, is something for which those ahead wait, among the ranks
above K. It is cut into layers like w', h(l) being at most b k in sums. What is left of N b is b min(N, K).

*Prices.*  Share out b min(N, K) among the layers; let one have s(N) of it. A request of some rank pays
q(rank) for each of its last g tokens, q >= 0 rising with the rank (of a layer of memory, q = 0 up to K).
That is covered if for all N and c, of any c ranks up to N (of memory, above K) the q sum to at most s(N) +
d c (c-1) / 2. As q rises, the c ranks at the top are the worst. The next one adds its q and takes d c,
which is less and less worth while, so that for each N one c is the worst.

*Young tokens.*  Of the first O - 1 batches that make tokens, the j-th makes none after token j of a request,
and all n are unfinished. If it makes c tokens, memory leaves at least (1 - c k(j)) L(n) or 0, layers of later
tokens leave all of s(n), and a layer of work for all tokens leaves s(n) + d c (c-1) / 2 less the c largest q.
The least of their sum over c is earned beyond the prices. As q rises, the differences of this sum from one c
to the next do, too.

All in all, the sum of finishing times is at least

    sum over ranks of (rank W + L(rank) S) + sum over layers of g (q(1) + ... + q(n))
    + what the first batches earn,

W and S being the sums of w' and k over the tokens of a request. QED. Arrivals as in `progress`.

With one layer and K = n the largest q are the differences of what the best waves cost: Q(N) is the least of
Q(N-c) + N b + d c (c-1) / 2. Any others will do: the certificate has K, layers, shares and q at some ranks.

Source: this project.
"""

from __future__ import annotations

from collections.abc import Callable

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds._waves_proof import WavesProof
from infermax_opt.infermax.bounds._waves_search import best_waves
from infermax_opt.infermax.bounds.pieces import best_piece
from infermax_opt.infermax.bounds.token_parts import by_lengths
from infermax_opt.infermax.data.instance import Instance

__all__ = ["waves_bound"]

#: Tokens of a request, and requests, beyond which the bound is not tried: it takes seconds.
MAX_OUTPUT, MAX_REQUESTS = 20_000, 20_000


def waves_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best waves bound on the mean end-to-end latency, over pieces, sizes, bases and knees.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no more.

    Returns
    -------
    LowerBound or None
        None where requests differ, or are too many or too long.
    """
    kinds = by_lengths(instance)
    if len(kinds) > 1 or len(instance.requests) > MAX_REQUESTS or kinds[0].output_tokens > MAX_OUTPUT:
        return None
    return best_piece(instance, _piece_bound, stop)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    found: list[LowerBound] = []
    for by_slots in (False, True):
        for by_first in (False, True):
            if found and stop():
                break
            proof = WavesProof(instance, piece, by_slots, by_first)
            if proof.usable and not (by_first and proof.bases_agree):
                found.append(best_waves(proof, stop))
    return max(found, key=lambda bound: bound.value, default=None)
