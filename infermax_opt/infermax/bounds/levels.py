"""State flow on levels of w tokens: the state-flow bound for more requests in memory, or longer ones.

`state_flow` lists what may be in memory, token by token. Here requests of one kind are looked at every w
batches only, and their tokens are rounded down to levels of w: far fewer states, and a bound that is the
weaker the larger w. With w = 1 it is as good as `state_flow`, by fewer states: see *Levels of one token*.

*Looks.* Fix one affine piece of the batch time, and count the batches that process a token: 1 ... J. Call a
request active as in `state_flow`: from the batch of its first token until it finishes, except between an
eviction and its return, the batch after which it holds I+n-1 tokens of KV again, or more. With n tokens it
is on level q = (n-1) // w, 0 <= q < R = ceil(O / w). For each phase t = 1 ... w look at the active requests
after batches t, t+w, t+2w ...: at their levels, a multiset S. A request on level q holds I + w q tokens or
more, so sum of (I + w q) <= M, and |S| <= K, the least of the number of requests, R_max and M // I. Any part
of such a state is one, and so is one with lower levels.

*Prices.* Any worth[q] of each level, and idle, from 0 to m = min(d0, p0). Let out(q) = worth[q] + ... +
worth[R-1], out(R) = 0, and more = p0 - m + idle. Demanded are worth[0] >= w idle + more and, if w > 1,
worth[q] >= w idle for all q. rho = max(0, beta - d1).

*Steps and costs.* The block is w (alpha + m).

- *leave*: P(S) -> P(S - q), out(q+1); without preemption only if q = 0 or q >= O // w - 1;
- *stay*: P(S) -> P(S with a q replaced by q-1), -w idle, q >= 1;
- *plain block*: P(S) -> P(S+1), every level one higher; block; if S+1 is a state;
- *mixed block*: P(S) -> A(S+1), block + more; if S+1 is a state and not empty;
- *appear*: A(S) -> A(S + q), -out(0) for q = 0; with preemption also rho (I + w q - 1) - out(q) for q >= 1;
  if w = 1, there is preemption and prefill may be in chunks, also a *late return*: rho (I + q) - out(q+1) -
  idle for q < R-1;
- *enough*: A(S) -> P(S), 0;
- *fresh block*: P(empty) -> P(S), block and the cost of appearing of each in S.

*Bound.* If potentials exist, one for each state that steps lead to from P(empty), such that no step leads to
more than the potential it leaves plus its cost, then the makespan is at least

    F + (number of requests times (w (worth[0] + ... + worth[R-2]) + (O - w (R-1)) worth[R-1])
         - (w-1) block) / w,

F being the `least_work`.

*Proof.* Sum the steps of the walks of all w phases, each from P(empty) before batch 1 to P(empty) after J.

(1) Requests. Take one from when it becomes active with A tokens (and makes one in that batch, or returned
late and made none) until it leaves with E: batches a ... b, each seen by one phase, n(t) tokens after batch
t, n(t) <= n(t-1) + 1. From a look to the next its level rises by one or stays. Let the walks pay -out(level)
where it is seen first, out(level + 1) where it is seen last, and -w idle where it stays. As out telescopes,
batch t contributes -worth[q], q the level of n(t), or -w idle if the request is on q after t+w, too, and t+w
<= b. On level q it spends c successive batches, so max(0, c-w) of them are of the second sort and min(c, w)
of the first. In k of the c it makes a token, k <= min(c, w), as a level has w tokens. By the demand, with w
> 1 or c = k or k > 0, it pays at most -k worth[q] - (c - k) w idle. What is left is w = 1 and k = 0: the
level of a late return with A tokens, q = A-1. Let it appear by that step: then it pays -c idle there, and as
much as before elsewhere. So over all its lives a request pays at most -(sum of worth[level of n] over n = 1
... O), which is what it earns above, and w idle less for each batch in which it is active before and after
and makes no token.

(2) Refills. First tokens are seen on level 0 at first. Who returns with A tokens is seen first by w phases
at most, the one j batches later with A+1+j tokens or less: on level (A+j) // w or lower, and these w numbers
add up to A. So the phases pay w rho (I+A-1) at most. The refill and its token cost rho (I+A-1) more than in
F; as `state_flow` shows, late returns, too.

(3) Batches. Each lies in one block of each phase, and J + w - 1 blocks hold any. Beside alpha and its tokens
a batch costs m at least; d0 + p0 if it prefills and a request decodes, and p0 if none does. In X, the
batches in which first tokens come or requests return, requests are prefilled. Let X0 be those of X before
which no request is active, those left out that finish or are evicted. If requests appear in a block in which
others remain, it has a batch of X and none of X0: at most w blocks for each other batch of X pay `more`.
That is w (p0 - m + idle) <= w p0 if somebody decodes. If nobody does, those active before and after make no
token, there is one at least, and by (1) they pay w idle less: w (p0 - m) remains, as it should.

(4) Steps. Let L leave and T remain between two looks. Those of T that stay on level 0 leave, too, and appear
again: that costs -worth[0] for each, and `more` once if nothing else appears and others remain: no more than
-w idle for each, by the demand. Other steps in this order: leave; stay; plain or mixed block; appear;
enough. If nobody remains, a fresh block. All on the way are parts of the states at the looks, or lower.
Without preemption a request leaves when it finishes, within w batches of being seen with O-w+1 tokens or
more, and never returns. Finish and return between two looks are seen as leaving and appearing.

So 0 <= the sum of all walks <= w times (what batches and refills cost beyond F) + (w-1) block - w times what
is earned. Costs are rounded down to units, prices are whole units; `more` uses p0 - m rounded down.

KV of chunks and of refills that have not ended is left out, and whole blocks are not smaller; P, C and
arrivals only restrict or delay; a batch without hybrid batching costs no less. Batches that process no token
only evict.

*Levels of one token.* All this holds for w = 1, too, but there each batch can be charged in full (`full` in
the evidence). States are as above, in three layers: P(S), after a batch; A(S), while requests appear in a
batch in which others decode; U(S), while they appear in one without decodes. Any worth[q]; nothing is paid
for idling. back(q) is what appearing on level q costs: the least of -out(0) if q = 0; with preemption of
rho (I + q - 1) - out(q) if q >= 1; with preemption and prefill in chunks, for a return without a token in its
batch, of rho (I + q) - out(q+1) if q < O-1. S- is S with every level q replaced by max(q - 1, 0).

- *leave*: P(S) -> P(S - q), out(q+1); without preemption only if q = O - 1;
- *idle*: P(S) -> P(S with a q replaced by q-1), 0, q >= 1;
- *plain batch*: P(S-) -> P(S), alpha + d0;
- *mixed batch*: P(S-) -> A(S), alpha + d0 + p0; *join*: A(S) -> A(S + q), back(q); *joined*: A(S) -> P(S), 0;
- *enter*: P(S) or U(S) -> U(S + q), back(q); *pure batch*: U(S) -> P(S), alpha + p0.

If no step leads to more than the potential it leaves plus its cost, then the makespan is at least

    F + number of requests times (worth[0] + ... + worth[O-1]).

Let S be the levels of the active requests after a batch, those that finish in it included. First leave all
that have finished or are evicted before the next batch; T remain, and N make first tokens or return in that
batch. T makes tokens by decodes alone, as all of T hold the KV of their tokens but the last, and the batch
prefills if N is not empty: `state_flow` says why.

(1) A request decodes. It is of T. Without hybrid batching N is empty, so that a mixed batch may cost
anything. Let X be the levels of T after the batch. Those of T that make no token and are on a level q >= 1
idle. That leads to X-: who makes a token comes to q >= 1 from q - 1; who idled is on q after the batch and
was lowered to q - 1; who makes none on level 0 was there and is. If N is empty, a plain batch leads to
P(X). Else a mixed batch leads to A(X), each of N joins on its level after the batch, and all have joined.
Beside its tokens the batch costs as much, or more: it decodes, and prefills if N is not empty.

(2) None does. T is after the batch what it was. If N is empty, nothing is stepped, and nothing charged. Else
each of N enters on its level after the batch, and a pure batch follows: it prefills.

All on the way are parts of the states after the two batches, or lower, so states. Evicted with n tokens a
request pays out(n), and earns it when it returns with n; first tokens earn out(0), and finishing costs
out(O) = 0. Returns pay for refills as above. So the walk from P(empty) to P(empty) costs 0 or more, and
batches and refills cost no less than its steps and what all first tokens earn. Steps that no schedule makes
do no harm. All these steps are walks of `state_flow`, too, so this bound is no less; it may be more, as there
requests whose only token was taken back may stay so, with less KV, for batches without decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._levels_full import FullGraph
from infermax_opt.infermax.bounds._levels_search import LevelSearch
from infermax_opt.infermax.bounds._levels_space import (
    LevelGraph,
    LevelSpace,
    most_at_once,
    states_on_levels,
)
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.bounds.pieces import BatchCosts, in_units
from infermax_opt.infermax.data.instance import Instance

__all__ = ["Ladder", "levels_bounds", "one_token_fits"]

#: States beyond which levels are wider, and levels in all of them together: the checker takes no more.
MAX_STATES, MAX_MEMBERS = 600_000, 10**7
#: Levels in all states of one token: on these the bound is as good as one by states can be.
MAX_TOKENS = 21 * 10**6
#: Requests at once, and tokens of KV times these, beyond which the bound is not tried: area arguments are
#: good there, and counting states takes long.
MAX_ACTIVE, MAX_TABLE = 64, 3_000_000
#: Fewest levels of several tokens that say anything, and most of all, each of which has a price.
FEWEST, MAX_LEVELS = 4, 400
#: Share of a bound that is known from which on levels half as wide are tried; they were found to add 5 %.
CLOSE = Fraction(95, 100)
#: Bits of the fixed cost of a block in units, so that rounding costs a millionth of a bound; and most of that
#: of any batch, so that no sum leaves int64.
BITS, MOST_BITS = 20, 34
#: Relative precision of what prices earn: on levels of one token, on the finest levels, and on wider ones.
FULL_TOLERANCE, TOLERANCE, DRAFT_TOLERANCE = 2e-5, 1e-4, 1e-3

Stop = Callable[[], bool]


def levels_bounds(
    instance: Instance, *, above: Fraction = Fraction(0), stop: Stop | None = None
) -> Iterator[LowerBound]:
    """Bounds on the makespan by levels: one soon, on wide ones, and one on the finest that are tried.

    Parameters
    ----------
    instance : Instance
    above : Fraction
        A bound that is known, in seconds: no long search for one that will hardly be better.
    stop : callable, optional
        Asked often whether to improve the prices no longer.
    """
    stop = stop or (lambda: False)
    widths = _widths(instance)
    best = _best_piece(instance, widths, stop)
    draft = best.bound() if best is not None else None
    if draft is not None:
        yield draft
    if best is not None and len(widths) > 1 and best.may_exceed(above):
        best.climb(widths[-1], stop)
        final = best.bound()
        if final is not None and (draft is None or final.value > draft.value):
            yield final


def one_token_fits(instance: Instance) -> bool:
    """Whether levels of one token are searched on: no bound that knows all states is better."""
    return _widths(instance)[-1:] == [1]


def _best_piece(instance: Instance, widths: list[int], stop: Stop) -> Ladder | None:
    """The piece of the batch time that is best on all levels but the narrowest ones."""
    ladders = [Ladder(instance, piece, widths[-1]) for piece in range(len(instance.cost.batch)) if widths]
    for ladder in ladders:
        for width in widths[:-1] or widths:
            ladder.climb(width, stop)
    return max(ladders, key=lambda ladder: ladder.values[-1], default=None)


class Ladder:
    """The search on one affine piece of the batch time, from wide levels to narrow ones.

    Parameters
    ----------
    instance : Instance
    piece : int
    narrowest : int
        Tokens of the narrowest levels.

    Attributes
    ----------
    values : list of Fraction
        0, and what was proved on each width, in seconds.
    """

    def __init__(self, instance: Instance, piece: int, narrowest: int):
        ticks = instance.cost.ticks
        self._instance, self._piece = instance, piece
        self._narrowest = narrowest
        self._batch = ticks.alpha[piece] + min(ticks.d0, ticks.p0)
        self._longest = BatchCosts.of(instance, piece).mixed
        block = BITS - (narrowest * self._batch).bit_length()
        self._exponent = min(block, MOST_BITS - self._longest.bit_length())
        self._last: LevelSearch | None = None
        self.values = [Fraction(0)]

    def climb(self, width: int, stop: Stop) -> None:
        """Search on levels of some width, starting from the last prices.

        Parameters
        ----------
        width : int
        stop : callable
        """
        block = width * self._batch if width > 1 else self._longest
        if in_units(block, self._exponent) == 0 or stop():
            return
        space = LevelSpace.of(self._instance, width)
        of = FullGraph.of if width == 1 else LevelGraph.of
        graph = of(self._instance, space, self._piece, self._exponent)
        search = LevelSearch(graph, stop)
        finest = FULL_TOLERANCE if width == 1 else TOLERANCE
        search.run(finest if width == self._narrowest else DRAFT_TOLERANCE, self._last)
        if search.prices is not None:
            self._last = search
            self.values.append(self._value(search))

    def may_exceed(self, above: Fraction) -> bool:
        """Whether levels half as wide may prove more than this: wider ones come close.

        Parameters
        ----------
        above : Fraction
            In seconds.
        """
        return self.values[-1] >= CLOSE * above

    def _value(self, search: LevelSearch) -> Fraction:
        """What prices prove, in seconds."""
        assert search.prices is not None
        graph = search.graph
        width = graph.space.width
        units = Fraction(graph.space.earned(search.prices) - (width - 1) * graph.block, width)
        ticks = units / Fraction(2) ** self._exponent
        ticks += least_work(self._instance, self._instance.types, self._piece)
        return Fraction(ticks / self._instance.cost.ticks_per_second)

    def bound(self) -> LowerBound | None:
        """What the last prices that were found prove; None where there are none, or it is nothing."""
        search = self._last
        if search is None or search.prices is None or search.tables is None or self.values[-1] <= 0:
            return None
        from infermax_opt.infermax.bounds._kernels_levels import FAR

        prices, width = search.prices, search.graph.space.width
        evidence = {
            "kind": "levels",
            "piece": self._piece,
            "exponent": self._exponent,
            "width": width,
            **({"full": True} if width == 1 else {}),
            "prices": {"worth": prices.worth.tolist(), **({"idle": prices.idle} if width > 1 else {})},
            "potential": [value if value < FAR else None for value in search.tables[0].tolist()],
        }
        return LowerBound(self.values[-1], "levels", Proof.CERTIFICATE, evidence=evidence)


def _widths(instance: Instance) -> list[int]:
    """Widths of levels to search on, the widest first; none where the bound is not tried."""
    if len({(kind.input_tokens, kind.output_tokens) for kind in instance.types}) > 1:
        return []
    _, outputs, _, most = most_at_once(instance)
    if not 1 <= most <= MAX_ACTIVE or most * instance.system.kv_capacity > MAX_TABLE:
        return []

    def too_many(width: int) -> bool:
        limit = min(MAX_STATES, (MAX_MEMBERS if width > 1 else MAX_TOKENS) // most)
        return states_on_levels(instance, width, limit) > limit

    low = (outputs - 1) // MAX_LEVELS  # too narrow, as is every one that becomes it
    high = low + 1
    while high < outputs and too_many(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if too_many(middle):
            low = middle
        else:
            high = middle
    widths = [high]
    while -(-outputs // (2 * widths[0])) >= FEWEST:
        widths.insert(0, 2 * widths[0])
    return widths if high == 1 or -(-outputs // high) >= FEWEST else []
