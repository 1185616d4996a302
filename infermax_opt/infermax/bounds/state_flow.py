r"""The state-flow bound: potentials on which requests are in memory, with how many tokens each.

Where few requests fit at once, all multisets of what can be in memory together can be listed.  A
schedule is a walk among them; the flow of least cost that serves all requests bounds it from below,
and the dual of that flow is the certificate: prices and potentials.

*States.*  Fix one affine piece of the batch time.  A kind is all requests of the same I and O.  Call a
request active from the batch of its first token until it finishes, except between an eviction and its
return: the batch after which it holds I+n-1 tokens of KV again, or more.  With n tokens, 0 <= n <= O, it
is the element (kind, n), of size s = I + n, its KV after its next token.  A state S is a multiset of |S|
elements, no more of a kind than there are requests of it, |S| <= K, with sum of s <= M + |S|.  K is the
least of the number of requests, R_max, and M // min I.  There are three layers: P(S), between batches;
A(S), when first tokens and returns were added for a batch in which others decode; U(S), when a batch
without decodes is being put together.

*Steps and costs.*  rho = max(0, beta - d1).  Any price first[kind], and out[kind, n] for 1 <= n < O.

- *finish*: P(S) -> P(S - (kind, O)), 0;
- *evict*: P(S) -> P(S - (kind, n)), out[kind, n], 1 <= n < O;
- *idle*: P(S) -> P(S with an n replaced by n-1), 0, 1 <= n < O;
- *plain batch*: P(S) -> P(S+1), every n one more; alpha + d0; if S is not empty, no n is O, and sum of
  s <= M;
- *admit*: P(S) or A(S) -> A(S + (kind, 0)), -first[kind];
- *return*: P(S) or A(S) -> A(S + (kind, n)), rho (I+n-1) - out[kind, n], 1 <= n < O; *late return*: the
  same to A(S + (kind, n-1));
- *mixed batch*: A(S) -> P(S+1), alpha + d0 + p0, as a plain batch otherwise;
- *enter*: P(S) or U(S) -> U(S + (kind, 1)), -first[kind];
- *enter again*: P(S) or U(S) -> U(S + (kind, n+1)), rho (I+n-1) - out[kind, n], 1 <= n < O; *late entry*:
  the same to U(S + (kind, n));
- *pure batch*: U(S) -> P(S), alpha + p0.

Evictions and returns exist only where preemption is on, late ones only with chunked prefill besides.

*Bound.*  If potentials exist, one for each state that steps lead to from P(empty), such that no step
leads to more than the potential it leaves plus its cost, then the makespan is at least

    F + sum over requests of first[kind],

F being the `least_work`, in which each later token costs beta + min(d1, beta) (I+n-1), or d1 in place
of min(d1, beta) when preemption is off.

*Proof.*  Let S be the active requests after a batch, those that finish in it included.  A request that
made a token in the batch, and now has n, holds I+n-1 = s-1 tokens of KV.  One that did not holds its
s-1, too: still, or because it returned in the batch, all but the last token of its refill done.  All of
them hold KV, so |S| <= K, and sum of (s-1) <= M: S is a state.  So is any part of it, and S with any n
lower, as every s-1 is at least 0.  The next batch is walked in this order: finish, evict, then as
follows.  Whoever is evicted while not active counts for nothing.  A batch without tokens and returns
changes no state: its time beyond the work counts as 0.  Who returns in a batch held less than I+n-1
tokens before, so it is not in decode: the batch prefills.

(1) A request decodes in it.  Let D be the active requests that make a token in it or stay idle, those
that return and those with first tokens included.  During the batch those that make a token hold s, and
the others s-1, the size of (kind, n-1); they have 1 <= n < O.  With these lowered so, the sizes of D sum
to at most M, and D is a state; what there is before all of D were added is a part of it, so is a state.
The steps: idle for each that was active and makes no token, return for each that returns with a token,
late return for each without, admit for each first token.  Then a mixed batch if there is any of these
three: it decodes and prefills; without hybrid batching there is no such batch, which may cost anything.
Else a plain batch: it decodes.  After it those lowered have n again, and
the state is that after the batch.

(2) No request decodes.  Only first tokens and returns change the state: enter for each first token,
enter again for each that returns with a token, late entry for each without, all with the tokens that they
have after the batch, then pure batch.  Every state is a part of that after the batch.  It prefills.

Sizes count active requests only: KV of chunks and of refills that have not ended makes less fit, and
so do whole blocks; P, C and arrivals only restrict or delay.  Along this walk from P(empty) to P(empty),
prices of evictions and returns cancel: whoever is evicted with n tokens returns with n, once.  Until it
does it processes at least I+n-1 tokens of KV again.  With the next one, if it makes its token then, this
token costs beta (I+n) or more, rho (I+n-1) more than in F (`occupancy`, *Payments*).  If it returned late,
the beta (I+n-1) of its refill are in excess of F, whether its token follows by a decode or it is evicted
before.  Each request earns first[kind] once.
So the batches and refills of the walk cost the sum of its steps plus all first[kind]; and the sum of
the steps of a closed walk is at least 0, by the potentials.  No exact numbers are needed: costs are
rounded down to units, prices are whole units.

A flow may split in any shares among states.  Where the optimum repeats a few patterns the bound comes
close to it; it knows nothing of the beginning and the end of a schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._state_flow_search import FlowGraph, FlowSearch, FlowSpace
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.bounds.pieces import best_piece
from infermax_opt.infermax.data.instance import Instance

__all__ = ["state_flow_bound"]


def state_flow_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best state-flow bound on the makespan that the search for prices finds.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to improve the prices no longer.

    Returns
    -------
    LowerBound or None
        None where there are too many states, or nothing better than zero was found.
    """
    space = FlowSpace.of(instance)
    if space is None:
        return None
    return best_piece(instance, functools.partial(_piece_bound, space), stop)


def _piece_bound(
    space: FlowSpace, instance: Instance, piece: int, stop: Callable[[], bool]
) -> LowerBound | None:
    from infermax_opt.infermax.bounds._kernels_state_flow import FAR

    graph = FlowGraph.of(instance, space, piece)
    if graph is None:
        return None
    search = FlowSearch(graph, stop)
    search.run()
    prices, potential = search.prices, search.potential
    if prices is None or potential is None:
        return None
    earned = graph.earned(prices) / Fraction(2) ** graph.exponent
    evidence = {
        "kind": "state-flow",
        "piece": piece,
        "exponent": graph.exponent,
        "prices": {"first": prices[: len(space.kinds)].tolist(), "out": graph.out(prices)},
        "potential": [value if value < FAR else None for value in potential.tolist()],
    }
    value = (least_work(instance, instance.types, piece) + earned) / instance.cost.ticks_per_second
    return LowerBound(value, "state flow", Proof.CERTIFICATE, evidence=evidence)
