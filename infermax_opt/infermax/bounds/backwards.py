r"""The mean end-to-end latency of rounds, by paths of memory backwards in time.

Where every batch takes alpha and KV is the only limit (`in_rounds`), a request that has started need
never stop, and memory, looked at from the end, is simple: a request appears in its last round with its
peak, shrinks by a token a round, and leaves.  What is in memory is a multiset of holds.  Paths among few such
multisets are a relaxation in which a request may appear often or never; prices see to it that each
appears once on average.

*Rounds.*  Let round r be the time from (r-1) alpha to r alpha.  A batch that starts at t, put at the start
of round floor(t / alpha) + 1 instead, is not later.  The next one starts at t + alpha or later, so it gets a
later round; an arrival is a multiple of alpha, and one at t or sooner is still no later than the batch.

*No pauses.*  Let a request end in round C and, in a schedule as above, pause at will.  Nobody is evicted, so
by round C - t, 0 <= t < O, it has O - t tokens or more and holds at least I + O - 1 - t.  If it makes a token
in each of the rounds C - O + 1 ... C instead, it holds just that, and it starts no sooner than before.  So
all may do so at once, with the same C, and C >= a + O, with a the arrival in rounds.

*Paths.*  Each request has a number d >= I - 1; it is seen as a part h of the state while it holds h > d.
Backwards, round C adds the part p = I + O - 1, if p > d; each round takes one from all parts, and those that
are d then are gone.  Parts are told apart by their d.  The state of a round, all that appear in it included,
has a total of at most M, as it is a part of memory.  A request with p <= d appears without a part; then the
total and p are at most M.  So a schedule is a path from the empty state through rounds H, H-1, ..., 1, in
which each request appears once, in a round from a + O on.

*Bound.*  For any prices u, one for each request, the latencies of all requests, in rounds, add up to at least

    sum of u - sum of a + the least of the sum of (C - u) over the appearances of a path

in which a request appears at most once in a round.  For a schedule gives such a path with sum of C - u as its
cost.  Without an appearance a path stays one, in which no total is more; so appearances with C >= u can
be left out, and rounds beyond all u hold none.  The minimum is one dynamic program backwards in time: a
round adds requests one by one, those without a part last, then shrinks all parts.  Prices are whole numbers
of 1 / `unit` of a round, so it is exact.

*Prices of leaving.*  States are fewer if parts are not told apart.  Let d_0 < d_1 < ... be the holds to
leave at, and let every part be seen down to d_0.  In a round in which it holds d_c + 1, c >= 1, a part may
leave once the round's appearances are in: this costs V_c >= 0 of that round, whoever it is.  A request
of class c >= 1, that is with d = d_c, that appears with a part in round C, is paid V_c of round
C - (I + O - 1) + d_c + 1 back, in which it holds d_c + 1; that is none before the first, as d_c >= I - 1.
Any V >= 0 will do: in a schedule let each part leave just then.  It is out of memory in the next round, as
above, and what it costs is what it is paid back, so that the path of a schedule still costs the sum
of C - u.  Where C - u less what is paid back is not negative, an appearance can be left out still:
whatever its part does costs 0 or more.  With V = 0 all can leave at the last d, as in a relaxation with one.

*Whole prompts.*  If each part knows its own I - 1, it leaves when its request does: there are too many such
memories to list, but few are on a path that costs less than some limit.  A node of a round is what is in
memory in some schedule, backwards, with the state of the relaxation that this leads to, where each part
leaves for the price of its own class; of all ways there the cheapest counts.  The rest of a schedule is a
path from that state on, so it costs at least the least of these.  Where both together are not below the
limit, the node is dropped. Appearances that cost 0 or more are left out, as above.  If no node is left,
every schedule costs the limit or more.

*Remembered.*  A node also knows some of those that have appeared.  When a request appears, the node
remembers it and, of those that it remembers, the ones of kinds that are among the `near` next ones below
and above by their prices.  Who is remembered does not appear.  In a schedule nobody appears twice, and
those remembered have appeared, so it still is a path.  Of equal requests it remembers how many have
appeared, and no more appear than there are.  Nodes alike in memory and in whom they remember can go on in
the same ways.

*Prices.*  By subgradients: a request that appears too often is too dear, and a part that leaves more often in
some round than requests of its class are paid back for it leaves too cheaply.  Equal requests share a
price; V is straight between some rounds.  First all have one d; then parts leave for prices, from a d_0 on
that gives few states, and with these prices from as small a d_0 on as the checker has time for; or where
they are too many, few different d are told apart.  Last come whole prompts, with limits a little above the
best value: either no node is left, or the cheapest path that is says which requests appear too often.
Where there soon are too many nodes, the prices of the relaxation are improved further, and then it is
tried again: the better they are, the fewer nodes are below a limit.

Source: this project.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._backwards_prompts import PromptPaths
from infermax_opt.infermax.bounds._backwards_search import BackwardPaths, Prices, Start, Timing, chosen
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.rounds import in_rounds

__all__ = ["backwards_bounds"]

#: By how much more than the best value prices aim for, as a share: at first, from good prices on, and from
#: good prices of leaving on; at last, before a finer relaxation, and in the finest, each time before whole
#: prompts.
AIM, NEXT_AIM, NEAR_AIM, AIMS, LAST_AIMS = 0.1, 0.02, 0.003, (0.001,), (0.0005, 0.0001)
#: Share by which the next bound by whole prompts that is told is better.
TOLD = 0.0003


def backwards_bounds(
    instance: Instance,
    *,
    stop: Callable[[], bool] | None = None,
    states: int | None = None,
    linked: bool = True,
    whole: bool = True,
) -> Iterator[LowerBound]:
    """Bounds by paths of ever finer states, each better than those before.

    None where batches are no rounds, or where there are too many states and rounds.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to improve the prices no longer.
    states : int, optional
        Most states of memory: more take long to list.
    linked : bool
        Whether the last one may have prices of leaving.
    whole : bool
        Whether to go on with whole prompts.
    """
    if not in_rounds(instance):
        return
    timing = Timing.of(instance)
    start, best = Start(timing.prices, {}), Fraction(0)
    every = list(chosen(instance, timing, states, linked=linked))
    for relaxation in every:
        if best > 0 and stop is not None and stop():
            return
        paths, finest = BackwardPaths(relaxation, timing), relaxation is every[-1]
        prompts = PromptPaths(paths)
        aim = AIM if best == 0 else NEAR_AIM if start.exits else NEXT_AIM
        for last_aim in LAST_AIMS if finest else AIMS:
            least, prices = paths.search(start, (aim, last_aim), stop)
            start, aim = paths.started(prices), last_aim
            found = [_bound(instance, paths, least, prices)]
            wholes = _whole_prompts(instance, prompts, max(best, found[0].value), prices, stop)
            for bound in itertools.chain(found, wholes if whole and finest else ()):
                if bound.value > best:
                    best = bound.value
                    yield bound


def _whole_prompts(
    instance: Instance,
    prompts: PromptPaths,
    known: Fraction,
    prices: Prices,
    stop: Callable[[], bool] | None,
) -> Iterator[LowerBound]:
    """Bounds by whole prompts, each better than the one before by some share.

    Parameters
    ----------
    instance : Instance
    prompts : PromptPaths
        Of the last relaxation.
    known : Fraction
        The best bound so far.
    prices : Prices
        Of the relaxation.
    stop : callable, optional
        As above.
    """
    paths, told, best = prompts.paths, known, None
    least = _units(instance, paths.timing, known)
    for value, found, near in prompts.search(least, prices, stop) if prompts.able else ():
        best = _bound(instance, paths, value, found, near=near)
        if best.value >= (1 + TOLD) * told:
            yield best
            told, best = best.value, None
    if best is not None:
        yield best


def _units(instance: Instance, timing: Timing, mean: Fraction) -> int:
    """Units of all latencies and arrivals."""
    arrived = sum((kind.arrival * len(kind.members) for kind in instance.types), Fraction(0))
    return int((mean * len(instance.requests) + arrived) * timing.unit / instance.cost.seconds.alpha[0])


def _bound(
    instance: Instance, paths: BackwardPaths, least: int, prices: Prices, near: int | None = None
) -> LowerBound:
    """The bound with these prices, and what they say, in units.

    Parameters
    ----------
    instance : Instance
    paths : BackwardPaths
    least : int
        Of all latencies and arrivals.
    prices : Prices
    near : int, optional
        Of whole prompts.
    """
    alpha = instance.cost.seconds.alpha[0]
    arrived = sum((kind.arrival * len(kind.members) for kind in instance.types), Fraction(0))
    finished = alpha * Fraction(least, paths.timing.unit)
    evidence = {
        "kind": "backwards",
        "piece": 0,
        "unit": paths.timing.unit,
        "leave": list(paths.relaxation.leave),
        "prices": prices.kinds.tolist(),
    }
    if paths.relaxation.linked:
        evidence["exits"] = [np.trim_zeros(row, "b").tolist() for row in prices.exits[:, 1:]]
    if near is not None:
        evidence |= {"limit": least, "near": near}
    value = (finished - arrived) / len(instance.requests)
    return LowerBound(value, "backwards paths", Proof.CERTIFICATE, evidence=evidence)
