r"""The occupancy bound: potentials on (active requests, KV tokens they hold).

Where few requests fit into memory at once, area arguments ignore that memory is freed only by
finishing or evicting whole requests, whole numbers at a time.  This bound does not.

*Walk.*  Fix one affine piece of the batch time.  Call a request active from the batch of its first
token until it finishes, except between an eviction and its return: the batch after which it holds I+n-1
tokens of KV again, or more.  Let k be the number of active requests and U the sum of s = I + n, their KV
after their next token (n tokens exist).  Any schedule moves (k, U), from (0, 0) back to (0, 0), in steps
of these kinds:

- *admit*, a first token comes: (k+1, U+I); *finish*: (k-1, U-I-O);
- *evict*: (k-1, U-s); *return*: (k+1, U+s), for some I+1 <= s <= I+O-1;
- *batch*: (k, U+k), only if U <= M.  A request that stays idle counts as one whose s is one less
  during the batch, as that is what it holds: *idle* steps (k, U-1).  With chunked prefill a request may
  return and make no token in that batch, a *late return*: (k+1, U+s-1).
- In a batch in which nobody decodes, only first tokens and returns count: (k+1, U+I+1), (k+1, U+s+1) with
  a token, (k+1, U+s) without.

*Payments.*  Each generated token earns a + b s.  A batch earns at most a k + b U, less a + b s' for
each idle request, with s' >= min I, and s' = s-1 where it returns late; where nobody decodes, what first
tokens and returns with a token earn.  Who returns was not in decode, so its batch prefills, as it does
for first tokens.  So a batch costs at least alpha + d0, with first tokens or returns alpha + d0 + p0, and
alpha + p0 where nobody decodes.  Without hybrid batching there is none of the second sort, which may cost
anything.  An eviction with its return makes the token s cost beta s rather than
beta + d1 (s-1) or more: at least rho(s) = max(0, beta - d1) (s-1) more, of which out(s) is charged to the
eviction and rho(s) - out(s) to the return.  Where the return is late, the refill itself costs beta (s-1),
and the token, should it ever be made without another return, costs no less than without the eviction.

*Bound.*  If every cycle of this graph costs at least what it earns, so does every schedule: its
makespan is at least the work F of `closed_form`, in which each later token of request i costs
beta + min(d1, beta) (I+n-1), plus all payments, sum over requests of a O + b (I + ... + I+O-1).
The proof is a potential: distances from (0, 0), as `check` verifies edge by edge.  It needs no
exact numbers: costs are rounded down to units, payments are whole units.

*Old requests only.*  Crowds of young requests that turn into one old one are allowed in this graph,
and spoil the bound where prompts are short.  For any y, only tokens n > y may be looked at (in a
request of no more tokens, the last one): each request is then one with a prompt of I + min(y, O-1)
tokens that turns up in memory when it makes that token, and what it did before is free.  That token
may be a decode, so who turns up does not make a batch pay p0 in which somebody decodes; who returns does.
The payments of all other tokens are lost.

*Pairs.*  Requests that begin soon after each other share many batches, and when one of them finishes, the
other holds much memory.  The walk above may have the one without the other: many requests at once, all of
them young, of which old ones finish.  Let G be the sum over all pairs of active requests of the n = s - I of
that with fewer tokens.  It is 0 before the first batch and after the last.  So any gamma >= 0 may be paid for
each token by which a step raises G, or fewer, if it is paid back for each by which a step lowers G, or more.
Between batches every n is 1 or more.

- A batch of k requests that all make a token raises G by k (k - 1) / 2.  Who idles may leave out its pairs
  with those who were active before: an idle step is paid back k - 1.  Its pairs with first tokens grow, as
  their n = 0 becomes 1.
- A return raises G by 1 or more for each other active request, those included that returned before it in
  the same batch.  It pays for none: that makes up for what one of the two leaves out in this batch, where it
  idles or returns late.
- Who finishes or is evicted, with size s, leaves k' others with U' tokens.  Of each pair it takes away n of
  the other, or its own n if that is less.  So U' - k' min I are paid back, which is all tokens of the others
  or more, or k' (s - min I), if that is less.
- A batch without decodes lowers nothing, and pays nothing.

No other step changes G.  Where the last k stands for others, a batch pays for k, and who idles or leaves is
paid back for the largest number.

*Many requests.*  The last k has the edges of all larger numbers, too: steps into and out of itself,
batches that earn and grow as any of those numbers.

*Ends.*  Few requests fill and empty the memory for much of a schedule, in ways that the walk above does not
see.  Number the batches that process a token 1 ... J.  A request makes a token in any of them at most, so
that it makes token n in batch n or later, and has O - t tokens or more after batch J - t.  Let I', O' be
those of the requests with the young tokens left out, i and e the largest I' and the least I' + O', and y0
the least min(y, O - 1).  Then

- in the first y0 batches nobody is looked at;
- after y0 + t batches the s of active requests are at most i + t, and before batch least O nobody finishes;
- with t batches to come they are at least e - t, and in the last least O' - 1 batches no first token comes.

So, if 0 <= T <= least O - y0, 0 <= L < least O' and y0 + T + L <= J, the walk first takes T batches from
(0, 0), one by one, without finishes, with sizes (also of those evicted and returning) from the least I' + 1
to i + t before batch y0 + t + 1; then any steps; then L batches without first tokens, with sizes from e - t
to the largest I' + O' when t are to come; and finishes.  J is at least the largest O, and the area of all KV
through M.  Here any batch is a step: one without decodes, first tokens and returns costs alpha + p0 and
changes nothing, one with nobody active alpha + d0 or that, as do the first y0.  In the last batches a late
return counts as a return and an idle step: it would cost the token a + b (s-1) that is not made besides, and
idling costs a + b min I or less.  The least cost z of such a walk comes from distances after 1, 2 ... T
batches, the potentials, which must not be above those after batch T, and distances from them on through the
last L batches.  Where a distance is above the potential already, so it stays along all steps.  The makespan
is at least F plus all payments plus z.  Pairs pay as in all batches, but an eviction is paid back k' (s - min
I) here.  The last k must not stand for others.

*Knots.*  Where the first T batches pass too many states, a bound on the cost of each does, between knots.
Say that a request of size s is i + t - s tokens behind after t batches, and that k of them are v behind
together: U = k (i + t) - v.  Whoever makes a token stays as far behind.  So let a batch cost alpha +
min(d0, p0) at least, whatever it does, and earn a k + b U, where U <= M, in steps of these kinds before it:

- evictions and returns of sizes from the least I' + 1 to i + t, at out(s) and rho(s) - out(s): v falls or
  rises by i + t - s;
- first tokens of prompts I: v rises by i + t - I;
- requests that make no token: v rises by one for each, k at most, at a cost of a + b min I each.

A batch without decodes is one of these, too: all that were there before idle.  That earns b (s - 1 - min I)
or more too much for each, and what idling costs is paid back by what the batch earns; a late return is one
that idles.  Costs are kept at knots, the v that are multiples of a spacing g, so that at each state reached
the line between the two knots next to it, both known, is no higher than its cost.  That stays so:

- A batch adds a linear function of v.
- An eviction or a return leads from y to v with v - n <= y <= v, or v <= y <= v + n, and costs c + e (y - v).
  The least value of a line is at a knot or at v itself.  So at knot j take the least of cost plus e y of
  knots j to j + 1 + ceil(n / g), in the direction of y: both ends of the line over v are then no higher
  than any of them that v may come from.  Idling is the same without a limit, but leads no more than k tokens
  beyond the last knot.
- First tokens move all lines by w = q g + r.  At the new knots the moved lines have values, and where they
  bend upwards between two of these, at a distance r from one, the new line would be higher than the bend by
  r (g - r) / g**2 of the second difference of the three knots there: both new knots are lowered by that.
  Beyond the last knot the line goes on straight.
- Lowering a knot to the least of several values keeps all this true.

No pair pays in these batches, so that gamma G is left after them.  Let k requests have made A tokens
together: 1 or more each, and no more than t = min(T, largest O').  Then G is least where as many as possible
have made t and all others but one have made 1; A is at least U - k i.  No potential may be above the lines
after batch T with gamma times that least G added.  A line between two knots may be left out, at either end
of those of k requests, once it is nowhere below the potentials: from there on the graph says that the rest of
the walk costs enough, and gamma G is left besides.  In a batch it may be, if it is nowhere below what leads
to the potential after it by any of these steps.  Knots beyond the memory, U > M, are kept where a line leads
to them only.

*Prices of memory.*  Requests may be followed one by one through the first T batches instead, each at prices
of its own, where T <= J; the last k may then stand for others, and there are no last batches.  Let p_t >= 0
be the price of a token of KV in batch t.  Active requests hold M tokens at most after a batch, so that it
costs at least alpha + min(d0, p0) - p_t M, plus p_t for each token that they hold: s where a request makes a
token, s - 1 where it is idle or returns late.  Of these sums, and of what first tokens, finishes, evictions,
returns and tokens pay, each request has a part of its own.  It is no less than that of the cheapest life in T
batches, which is any sequence of these:

- a first token, in batch y + 1 or later (batch 1, if no more than one token is looked at);
- then in each batch a token, or none;
- evictions, each followed by a return in the same batch or a later one, or by none; with a token or, in
  chunks, without;
- a finish with the last token.

Who does nothing at all pays nothing.  Let any c and h be given, and let a request that is active with size s
after batch T pay c + h s less for its life.  Then the first T batches, at the end of which k requests are
active with U tokens, cost at least T (alpha + min(d0, p0)) - M (p_1 + ... + p_T), plus over all requests
min(0, the cheapest life), plus c k + h U.  Let no potential be above that, with gamma times the least G added
as after knots, or gamma k (k - 1) / 2 where the last k stands for others.  A schedule goes through some
state after batch T, and from there on costs the potential of (0, 0) less that of the state, or more.  So the
makespan is at least F plus all payments plus the potential of (0, 0).  Where the last k stands for others, c
>= 0 is demanded: they then cost no less.

Blocks of KV hold at least the tokens in them; P, C and arrivals only restrict schedules further.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.bounds.pieces import BITS, BatchCosts, best_piece, in_units
from infermax_opt.infermax.data.instance import Instance

__all__ = ["occupancy_bound", "occupancy_graph"]

#: Requests of mean size in the KV beyond which the bound is not tried: area arguments are good there.
MAX_SLOTS = 64
#: States beyond which the bound is not tried.
MAX_STATES = 3_000_000
#: Steps of a check; active requests that are told apart in any case, for each that fits.
MAX_CHECKED, ROOM = 65_000_000, 2.0
#: Different sizes of prompts, or of finished requests, beyond which the bound is not tried.
MAX_SIZES = 32
#: Longest output, so that no sum along a path leaves int64.
MAX_OUTPUT = 2**16


def occupancy_bound(
    instance: Instance, *, stop: Callable[[], bool] | None = None, ends: bool = True
) -> LowerBound | None:
    """Best occupancy bound on the makespan that the search for prices finds.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to improve the prices no longer.
    ends : bool
        Whether to walk the first and the last batches one by one, where these are a part of the schedule.

    Returns
    -------
    LowerBound or None
        None where the graph is too large, or nothing better than zero was found.
    """
    return best_piece(instance, functools.partial(_piece_bound, ends=ends), stop)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool], ends: bool) -> LowerBound | None:
    graph, exponent = occupancy_graph(instance, piece)
    if graph is None or graph.slots > MAX_SLOTS or graph.states > MAX_STATES:
        return None
    from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR
    from infermax_opt.infermax.bounds._occupancy_search import OccupancyPrices

    search = OccupancyPrices(graph, stop, ends)
    search.run()
    graph, prices, potential = search.graph, search.prices, search.potential
    if prices is None or potential is None:
        return None
    units = graph.earned(prices) + search.least
    ticks = least_work(instance, instance.types, piece) + units / Fraction(2) ** exponent
    evidence = {
        "kind": "occupancy",
        "piece": piece,
        "exponent": exponent,
        "young": graph.young,
        "prices": {**asdict(prices), "first": list(prices.first), "finish": list(prices.finish)},
        "potential": [
            [value if value < FAR else None for value in potential[k, first : last + 1].tolist()]
            for k, (first, last) in enumerate(graph.ranges)
        ],
        **search.walked,
    }
    value = ticks / instance.cost.ticks_per_second
    return LowerBound(value, "occupancy", Proof.CERTIFICATE, evidence=evidence)


def occupancy_graph(instance: Instance, piece: int) -> tuple[OccupancyGraph | None, int]:
    """The graph of one affine piece and the exponent of its units of ticks; None where it has too much."""
    ticks, system, policy = instance.cost.ticks, instance.system, instance.policy
    beta, costs = ticks.beta[piece], BatchCosts.of(instance, piece)
    kinds = tuple((t.input_tokens, t.output_tokens, len(t.members)) for t in instance.types)
    if (
        costs.mixed == 0
        or max(o for _, o, _ in kinds) > MAX_OUTPUT
        or len({i for i, _, _ in kinds}) > MAX_SIZES
        or len({i + o for i, o, _ in kinds}) > MAX_SIZES
    ):
        return None, 0
    exponent = BITS - costs.mixed.bit_length()

    units = functools.partial(in_units, exponent=exponent)
    most = min(sum(count for _, _, count in kinds), system.kv_capacity // min(i for i, _, _ in kinds))
    if system.max_running is not None:
        most = min(most, system.max_running)
    graph = OccupancyGraph(
        capacity=system.kv_capacity,
        most=most,
        kinds=kinds,
        plain=units(costs.plain),
        mixed=units(costs.mixed),
        pure=units(costs.pure),
        rho=min(units(max(0, beta - ticks.d1)), 2**52 // (system.kv_capacity + most + 1)),
        evictions=policy.preemption,
        chunked=policy.chunked_prefill,
    )
    return _checkable(graph), exponent


def _checkable(graph: OccupancyGraph) -> OccupancyGraph:
    """The graph with as many active requests told apart as a checker has time for."""
    while graph.checked > MAX_CHECKED and graph.rows > ROOM * graph.slots:
        graph = replace(graph, limit=graph.rows - 1 - max(1, graph.rows // 16))
    return graph
