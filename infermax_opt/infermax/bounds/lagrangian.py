r"""The Lagrangian bound: prices of KV and tokens batch by batch, a cheapest path for each kind of requests.

Area arguments let any token share a batch with any other.  But memory fills slowly: at the start
all requests are young, and a batch prefills a few prompts only.  Here every request must make its tokens in
order, and have its prompt prefilled before.

*Relaxation.*  Fix one affine piece of the batch time and the number J of batches, those that process
nothing not counted.  The KV blocks held in batch t are at most B = M // s (block size s); let
lambda_t >= 0 be a price on them.  A batch has at most b = min(P, C) tokens of prefill, and if C <= P at most
b tokens with those of decodes; let mu_t >= 0 be a price on those.
A schedule's makespan is at least the sum of

- the work of `least_work` (F);  alpha for each batch;
- theta for each batch, delta = d0 - theta for each batch with decodes and p0 - theta for each of
  the at least Y batches that prefill, for theta = 0 or min(d0, p0): a batch pays d0, p0 or both;
- rho (s-1), rho = max(0, beta - d1), for each token of KV size s that ends a refill
  (`occupancy`: F counts a decode step for it, and the refill costs at least so much more);
- lambda_t (blocks held in t - B), which is never positive;
- mu_t (such tokens in t - b), which is never positive.

Decode steps hold at most B blocks per batch, so delta in a batch with decodes is at least delta / B
for each block of a request that decodes.  What is left falls apart into one problem per request:

- in each batch it *decodes* its next token (lambda_t + delta / B a block), stays *idle* or *enters*
  with its first token or after a refill (lambda_t a block), or is *out* (0);
- having n tokens it holds I + n - 1 tokens of KV, also in the batch that makes token n;
- to enter with token n+1 > 1 costs rho (I + n - 1); to leave costs nothing.  A request may leave and
  enter again between two batches, so a decode step costs no more than entering;
- to enter in batch t costs c_t besides for each of I tokens, with its first token, or of I + n - 1;
- if C <= P, each token but the first costs mu_t, as the token before it is processed in that batch.

*Prefill.*  Who enters in t holds the KV of these tokens then.  Each was prefilled in some batch u <= t and
has been held since, also in the batches u ... t-1, in which the path above is out; s such tokens fill a block
at least.  The token made last is not one of them: where it is processed alone, it is a decode.  So each has
paid c_t or more,

    c_t = min(mu_t, c_(t-1) + floor(lambda_(t-1) / s)),    c_1 = mu_1.

Without chunks all are prefilled in t itself, and c_t = mu_t.

With f_k(J) the cheapest path of kind k that ends by batch J, and N_k requests,

    makespan >= F + (p0 - theta) Y + J (alpha + theta) + sum_k N_k f_k(J)
                - sum_{t <= J} (B lambda_t + b mu_t).

Dropped constraints (arrivals, R_max, P where it is above C) only lower the right side.
The best prices reach the value of the aggregated count LP (how many requests of each kind have how many
tokens after each batch), whose dual this is: its flows of one kind are mixtures of paths.

*All numbers of batches.*  One list of prices bounds every J.  The bound takes for each J the best
of several lists, and then the least over J: J at least by area and at most the length T of the
lists, for above that (T + 1) (alpha + theta) is paid.  With "square" attention and chunks, J batches
split a prompt into at most J - O + 1 chunks, whose squares cost at least p1 I**2 / (J - O + 1).

*Rounding.*  Costs are rounded down to units, prices are whole units: shortest paths are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._lagrangian_relaxation import Relaxation, moved_prices, relaxation_of
from infermax_opt.infermax.bounds.pieces import best_piece
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["lagrangian_bound"]

#: Most states of all kinds together, in batches of varied prices; with more the bound is not tried.
MAX_STATES = 50_000_000
#: Batches of varied prices, about, as a multiple of the longest output.
VARIED = 7
#: Longest horizon, in batches, so that sums stay in int64.
MAX_HORIZON = 2**18
#: First part of the horizon: a multiple of the least number of batches.
REACH = 1.15
#: Second part of the horizon: a multiple of the longest output.
TAIL = 2


def lagrangian_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best Lagrangian bound on the makespan that the search for prices finds.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to improve the prices no longer.

    Returns
    -------
    LowerBound or None
        None where there are too many kinds of requests or batches.
    """
    return best_piece(instance, _piece_bound, stop)


def _too_large(relaxation: Relaxation, horizon: int) -> bool:
    """Whether the search would take too much time or memory."""
    # Where prices are constant, batches soon change nothing.
    varied = min(horizon, VARIED * relaxation.longest)
    states = varied * sum(kind.output_tokens for kind in relaxation.kinds)
    return horizon > MAX_HORIZON or states > MAX_STATES


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    from infermax_opt.infermax.bounds._lagrangian_search import find_prices

    ticks = instance.cost.ticks
    relaxation = relaxation_of(instance, piece, min(ticks.d0, ticks.p0))
    if relaxation is None:
        return None
    horizon = int(REACH * relaxation.least) + TAIL * relaxation.longest
    if _too_large(relaxation, horizon):
        return None
    found = find_prices(relaxation, horizon, stop)
    if not found:
        return None
    lists = [prices for prices, _ in found]
    value = relaxation.bound([values for _, values in found])
    bare = relaxation_of(instance, piece, 0)
    if bare is not None and relaxation.theta > 0 and not stop():
        # The presence that theta no longer pays moves into the prices.
        moved = [moved_prices(prices, relaxation, bare) for prices in lists]
        other = bare.bound([bare.values(prices) for prices in moved])
        if other > value:
            relaxation, value, lists = bare, other, moved
    evidence = {
        "kind": "lagrangian",
        "piece": piece,
        "theta": relaxation.theta,
        "exponent": relaxation.exponent,
        "prices": [_runs(prices.kv) for prices in lists],
        "tokens": [_runs(prices.tokens) for prices in lists],
    }
    return LowerBound(value, "Lagrangian", Proof.CERTIFICATE, evidence=evidence)


def _runs(prices: npt.NDArray[np.int64]) -> list[list[int]]:
    """Each price, and how many batches in a row have it."""
    return [[price, len(list(run))] for price, run in groupby(prices.tolist())]
