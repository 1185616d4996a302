r"""The branching bound: how few batches equal requests take, by branch and bound on counts.

Where few requests make two or three generations, what is lost are fractions: a prompt more or less in one
batch, a request that is half evicted. Here the number of batches is fixed, and a tree of branchings on whole
numbers excludes such fractions; each leaf has prices that prove it.

*Batches.* Fix one affine piece of the batch time, and count the batches that process a token: 1 ... J. Each
decodes (D_j = 1), prefills (P_j = 1), or both if hybrid batching is on. What is evicted in a batch without
tokens is evicted before the next one. As each request makes its O tokens in different batches, J >= O.

*Moves.* All N requests have I and O. Call one active as in `state_flow`: from the batch of its first token
until it finishes, except between an eviction and its return, the batch after which it holds I+n-1 tokens of
KV again, n being the tokens that it has made. It does one of these in batch j, n tokens after it:

- *first*, n = 1: before, it was not active;
- *decode*: active before, with n - 1 tokens;
- *idle*, n < O: active before, with n;
- *return*: evicted with n - 1 tokens, it returns and makes one;
- *late return*, n < O, with chunked prefill only: evicted with n, it returns and makes none.

It may be evicted, with n < O tokens, before any batch, if preemption is on. In each of these moves it holds
I+n-1 tokens, so h(n) = ceil((I+n-1) / s) blocks of s tokens, of at most m = M // s after each batch. First
tokens and returns prefill, as who returns held fewer than I+n-1 tokens before.

*Costs.* The makespan is at least

    F + alpha J + sum of (d0 D_j + p0 P_j) + sum over returns of rho (I + tokens made before - 1),

F being the `least_work`, rho = max(0, beta - d1): see `state_flow`, *Proof*.

*Rows.* With b = min(P, C), for each batch j,

- *held*, for each of some divisors x: the h of all moves in it are at most m together, so the whole parts
  floor(h / x) are at most floor(m / x) together; x = 1 is the KV itself, and where x is above m / 2, one
  request at most holds x;
- *decoded*: those of its decodes, at most m D_j;
- *prefilled*: those of first tokens and returns, at most m P_j;
- *prompts*: I times the first tokens in batches 1 ... j is at most b (P_1 + ... + P_j).

*Splits.* A box is a set of moves and of indicators P, D: of some kinds, in batches first ... last, to fewest
... most tokens. How many there are in it is a whole number: at most k, or k + 1 or more. A tree of such
branchings ends in leaves; every schedule of J batches obeys the splits above one of them.

*Leaf.* Let every row and every split have a price of 0 or more. Add to the costs, for each, price times (left
side - right side), for a split `k + 1 or more` price times (k + 1 - what is in the box). In a schedule that
obeys the splits nothing of this is above 0. What results falls apart: a sum over requests, each at least the
cheapest sequence of moves from its start to O tokens in J batches; a sum over batches, each at least the
cheapest of D_j = 1, P_j = 1 and, with hybrid batching, both; and a constant. So

    presence and refills >= N cheapest way + sum of cheapest presence - sum of price floor(m / x) of held
                            + sum over splits of (-price k, or price (k + 1)).

The value V(J) of a tree is the least of its leaves.

*All numbers of batches.* The best values R(J) of presence and refills over all whole solutions of the rows
obey R(J + 1) <= R(J) + min(d0, p0): add a batch at the end in which nothing happens. A tree for J' so bounds
all J = l ... J': R(J) >= V(J') - (J' - J) min(d0, p0). With trees for J_1 < J_2 < ... and l_1 = O, l_(i+1) =
J_i + 1, the makespan is at least F plus the least of

    alpha l_i + V(J_i) - (J_i - l_i) min(d0, p0),    (alpha + min(d0, p0)) (J_last + 1).

If no schedule has J_i batches, prices may be as high as one likes. Costs are rounded down to units, prices
are whole units. Arrivals, C, R_max, KV of chunks and of refills that have not ended only restrict further.

*Search.* A leaf's best prices are the dual of a linear program. The weakest leaf is branched next, so that
the search may end at any time. Several boxes are tried: all refills, first tokens up to a batch, requests of
some age after a batch, batches that prefill; the one that gains most on both sides is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._branching_proof import Counted
from infermax_opt.infermax.bounds._branching_search import BranchingSearch, Node
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.bounds.pieces import Stop, best_piece
from infermax_opt.infermax.data.instance import Instance

__all__ = ["branching_bound"]


def branching_bound(
    instance: Instance, *, above: Fraction = Fraction(0), stop: Callable[[], bool] | None = None
) -> LowerBound | None:
    """Best branching bound on the makespan that is found.

    Parameters
    ----------
    instance : Instance
    above : Fraction
        A bound that is known, in seconds: a search that does not soon prove more ends.
    stop : callable, optional
        Asked often whether to search no longer.

    Returns
    -------
    LowerBound or None
        None where requests are of several kinds, or there are too many batches.
    """
    return best_piece(instance, functools.partial(_piece_bound, above), stop)


def _piece_bound(above: Fraction, instance: Instance, piece: int, stop: Stop) -> LowerBound | None:
    counted = Counted.of(instance, piece)
    if counted is None:
        return None
    work, unit = least_work(instance, instance.types, piece), Fraction(2) ** counted.exponent
    left = int((above * instance.cost.ticks_per_second - work) * unit)
    search = BranchingSearch(counted, max(0, left), stop)
    search.run()
    if not search.trees:
        return None
    evidence = {
        "kind": "count-branching",
        "piece": piece,
        "exponent": counted.exponent,
        "divisors": list(counted.divisors),
        "trees": [
            {"batches": tree.batches, "nodes": [_shown(node) for node in tree.nodes()]}
            for tree in search.trees
        ],
    }
    value = (work + search.proved / unit) / instance.cost.ticks_per_second
    return LowerBound(value, "count branching", Proof.CERTIFICATE, evidence=evidence)


def _shown(node: Node) -> Any:
    """A node as the certificate has it: the box and limit of a branching, or the prices of a leaf."""
    if node.sides is not None:
        box, limit, _ = node.sides[0].splits[-1]
        return [*box, limit]
    return {name: values.tolist() for name, values in node.prices._asdict().items()}
