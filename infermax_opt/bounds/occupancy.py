r"""The occupancy bound: potentials on (active requests, KV tokens they hold).

Where few requests fit into memory at once, area arguments ignore that memory is freed only by
finishing or evicting whole requests, whole numbers at a time.  This bound does not.

*Walk.*  Fix one affine piece of the batch time.  Call a request active from the batch of its first
token until it finishes, except between an eviction and the batch of its next token.  Let k be the
number of active requests and U the sum of s = I + n, their KV after their next token (n tokens
exist).  Any schedule moves (k, U), from (0, 0) back to (0, 0), in steps of these kinds:

- *admit*, a first token comes: (k+1, U+I); *finish*: (k-1, U-I-O);
- *evict*: (k-1, U-s); *refill*: (k+1, U+s), for some I+1 <= s <= I+O-1;
- *batch*: (k, U+k), only if U <= M.  A request that stays idle counts as one whose s is one less
  during the batch, as that is what it holds: *idle* steps (k, U-1).

*Payments.*  Each generated token earns a + b s.  A batch earns at most a k + b U, less a + b s' for
each idle request, with s' >= min I.  A batch without first tokens costs at least alpha + d0, or
alpha + min(d0, p0) if only refills end in it; with first tokens alpha + p0, and alpha + d0 + p0 if
anything decodes (in a batch where nothing does, only first tokens and refills earn).  An eviction
with its refill makes the token s cost beta s rather than beta + d1 (s-1) or more: at least
rho(s) = max(0, beta - d1) (s-1) more, of which out(s) is charged to the eviction and in(s) <=
rho(s) - out(s) to the refill.

*Bound.*  If every cycle of this graph costs at least what it earns, so does every schedule: its
makespan is at least the work F of `closed_form`, in which each later token of request i costs
beta + min(d1, beta) (I+n-1), plus all payments, sum over requests of a O + b (I + ... + I+O-1).
The proof is a potential: distances from (0, 0), as `check` verifies edge by edge.  It needs no
exact numbers: costs are rounded down to units, payments are whole units.

*Old requests only.*  Crowds of young requests that turn into one old one are allowed in this graph,
and spoil the bound where prompts are short.  For any y, only tokens n > y may be looked at (in a
request of no more tokens, the last one): each request is then one with a prompt of I + min(y, O-1)
tokens that turns up in memory when it makes that token, and what it did before is free.  A batch
then costs alpha + min(d0, p0), with first tokens or without, and the payments of all other tokens
are lost.

*Many requests.*  The last k has the edges of all larger numbers, too: steps into and out of itself,
batches that earn and grow as any of those numbers.

Blocks of KV hold at least the tokens in them; P, C and arrivals only restrict schedules further.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt._compile import compiled
from infermax_opt.bounds.pieces import BITS, best_piece, in_units, maximizer
from infermax_opt.bounds.work import least_work
from infermax_opt.instance import Instance
from infermax_opt.result import LowerBound, Proof

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Prices", "occupancy_bound"]

#: Most active requests that are told apart, and requests of mean size in the KV beyond which the
#: bound is not tried: area arguments are good there.
MAX_ACTIVE, MAX_SLOTS = 128, 48
#: States beyond which the bound is not tried.
MAX_STATES = 3_000_000
#: Different sizes of prompts, or of finished requests, beyond which the bound is not tried.
MAX_SIZES = 32
#: Longest output, so that no sum along a path leaves int64.
MAX_OUTPUT = 2**16
#: Sweeps over all edges after which the search gives up.
SWEEPS = 2000
#: Rows and states of the smaller graphs on which prices are sought first; how far from 0 the scaled
#: prices there may lie, and those on the graph itself from them.
ROWS, COARSE, FAR_OFF, NEAR = 32, 400_000, 4.0, 0.25
#: Most cycles that one set of prices gives.
CYCLES = 16
#: Steps of the cutting planes, in all and in a row that do not settle; relative precision of what the
#: prices earn; how much less than on the smaller graph is tried first; slack of a cut, so that rounded
#: prices do not run into it again.
STEPS, PATIENCE, DRAFT_TOLERANCE, TOLERANCE, FIRST_STEP, SLACK = 400, 60, 1e-3, 3e-4, 2e-3, 1e-6
#: First tokens that are tried to be left out, in 128ths of the longest output; and in tokens, where
#: outputs are short.
YOUNG, FEW_YOUNG, SHORT = (0, 1, 2, 4, 8, 16), (1, 2, 3), 32
#: Where a graph promises this share of the best one, it is tried, too.
CLOSE = 0.99


@dataclass(frozen=True)
class Prices:
    """Payments and shares of the eviction cost, in units.

    `token` and `size`: a generated token earns token + size * s.  `out_fixed + out_size * s` is
    the share of rho(s) that an eviction pays.  `first` and `finish`: what a first token and a finish
    earn besides, for each size of prompts and of finished requests, smallest first.
    """

    token: int
    size: int
    out_fixed: int
    out_size: int
    first: tuple[int, ...]
    finish: tuple[int, ...]


@dataclass(frozen=True)
class _Graph:
    """The graph of one instance and piece, possibly at a coarser scale; costs in units.

    `plain`, `mixed`, `pure`: fixed cost of a batch without first tokens, with first tokens and
    decodes, with first tokens and no decode; `least`: the least of any batch.
    `kinds`: input tokens, output tokens and number of requests, less the first `young` outputs.
    `limit`: most active requests that are told apart, MAX_ACTIVE if None.
    """

    capacity: int
    most: int
    kinds: tuple[tuple[int, int, int], ...]
    plain: int
    mixed: int
    pure: int
    least: int
    rho: int
    evictions: bool
    young: int = 0
    limit: int | None = None

    @functools.cached_property
    def prompts(self) -> tuple[int, ...]:
        return tuple(sorted({i for i, _, _ in self.kinds}))

    @functools.cached_property
    def ends(self) -> tuple[int, ...]:
        return tuple(sorted({i + o for i, o, _ in self.kinds}))

    @functools.cached_property
    def starting(self) -> tuple[int, ...]:
        """Number of requests of each of `prompts`."""
        return tuple(sum(count for i, _, count in self.kinds if i == prompt) for prompt in self.prompts)

    @functools.cached_property
    def ending(self) -> tuple[int, ...]:
        """Number of requests of each of `ends`."""
        return tuple(sum(count for i, o, count in self.kinds if i + o == end) for end in self.ends)

    @functools.cached_property
    def tokens(self) -> int:
        return sum(o * count for _, o, count in self.kinds)

    @functools.cached_property
    def area(self) -> int:
        """KV sizes of all generated tokens, summed."""
        return sum(count * (i * o + o * (o - 1) // 2) for i, o, count in self.kinds)

    @functools.cached_property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Least and largest U for each number of active requests."""
        shortest, longest = self.prompts[0], self.ends[-1]
        ranges = [(k * shortest, min(k * longest, self.capacity + k)) for k in range(self.rows)]
        if self.wide:
            ranges[-1] = (ranges[-1][0], self.capacity + self.most)
        return tuple(ranges)

    @property
    def scale(self) -> float:
        """What the area alone would earn, each batch at most the capacity, in units."""
        return self.area / self.capacity * max(1, self.plain)

    @property
    def rows(self) -> int:
        return min(self.most, self.limit or MAX_ACTIVE) + 1

    @property
    def wide(self) -> int:
        """Largest number of active requests where the last row stands for several, else 0."""
        return self.most if self.most >= self.rows else 0

    @property
    def slots(self) -> float:
        """Requests of mean size that fit at once."""
        return self.capacity * self.tokens / self.area

    def older(self, young: int) -> _Graph:
        """The graph of the tokens that requests make when they have `young` or more."""
        kinds = tuple((i + min(young, o - 1), o - min(young, o - 1), c) for i, o, c in self.kinds)
        return replace(
            self,
            most=max(1, min(self.most, self.capacity // min(i for i, _, _ in kinds))),
            kinds=kinds,
            plain=self.least,
            mixed=self.least,
            pure=self.least,
            young=young,
        )

    @property
    def states(self) -> int:
        return self.rows * (max(last for _, last in self.ranges) + 1)

    def coarser(self, scale: int) -> _Graph:
        """The same graph with `scale` tokens and batches for each one; prices keep their meaning."""
        kinds = tuple((max(1, round(i / scale)), max(1, round(o / scale)), c) for i, o, c in self.kinds)
        capacity = max(round(self.capacity / scale), max(i + o for i, o, _ in kinds))
        return replace(
            self,
            capacity=capacity,
            most=max(1, min(self.most, capacity // min(i for i, _, _ in kinds))),
            kinds=kinds,
            plain=self.plain * scale,
            mixed=self.mixed + self.plain * (scale - 1),
            pure=self.pure + self.plain * (scale - 1),
            least=self.least * scale,
            rho=self.rho * scale,
        )

    def earned(self, prices: Prices) -> int:
        """All that all requests earn, in units."""
        starts = zip(self.starting, prices.first, strict=True)
        ends = zip(self.ending, prices.finish, strict=True)
        fixed = sum(count * price for count, price in (*starts, *ends))
        return prices.token * self.tokens + prices.size * self.area + fixed

    @property
    def prices(self) -> int:
        """Number of prices."""
        return 4 + len(self.prompts) + len(self.ends)

    def moved(self, other: _Graph, point: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scaled prices like those of this graph at another scale."""
        import numpy as np

        scale = self.capacity / other.capacity
        split = 4 + len(other.prompts)
        parts = [point[:4]]
        for mine, theirs, part in (
            (self.prompts, other.prompts, point[4:split]),
            (self.ends, other.ends, point[split:]),
        ):
            parts.append(part[[int(np.abs(np.array(theirs) * scale - size).argmin()) for size in mine]])
        return np.concatenate(parts)

    def tables_like(
        self, other: _Graph, tables: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.int64] | None:
        """Potentials like those of this graph at another scale."""
        import numpy as np

        if tables is None:
            return None
        rows = np.minimum(np.arange(self.rows), other.rows - 1)
        width = max(last for _, last in self.ranges) + 1
        at = np.minimum(np.arange(width) * other.capacity // self.capacity, tables.shape[2] - 1)
        return tables[:, rows][:, :, at]

    def settle(
        self, prices: Prices, start: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64]]:
        """Potentials that prove the prices; or, if none were found, the weights of cycles that gain.

        Their costs at other prices are weights @ (1, token, size, out_fixed, out_size, *first, *finish).
        The nearer to potentials `start` is, the faster.  Returns three tables: `settle` of the kernels.
        """
        import numpy as np

        from infermax_opt.bounds._kernels_occupancy import FAR, Costs

        shortest = self.prompts[0]
        shape = (3, self.rows, max(last for _, last in self.ranges) + 1)
        tables = np.full(shape, FAR, np.int64) if start is None else start.copy()
        tables[0, 0, 0] = min(0, tables[0, 0, 0])
        came = np.full(shape, -1, np.int64)
        first, last = np.array(self.ranges, dtype=np.int64).T.copy()
        costs = Costs(
            self.plain, self.mixed, self.pure, prices.token, prices.size,
            prices.out_fixed, prices.out_size,
            -self.rho - prices.out_fixed, self.rho - prices.out_size,
            np.array(prices.first, np.int64), np.array(prices.finish, np.int64),
        )  # fmt: skip
        prompts, ends = np.array(self.prompts, np.int64), np.array(self.ends, np.int64)
        cycles = np.zeros(CYCLES, np.int64)
        settle, weigh = _kernels()
        found = settle(
            tables, came, first, last, self.capacity, self.wide, prompts, ends,
            shortest, self.ends[-1] - 1, self.evictions, costs, SWEEPS, cycles,
        )  # fmt: skip
        weights = np.zeros((max(0, found), 5 + len(prompts) + len(ends)), np.int64)
        for row, state in zip(weights, cycles, strict=False):
            weigh(came, state, self.wide, prompts, ends, shortest, costs, row)
        return (tables if found == 0 else None), weights


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from infermax_opt.bounds import _kernels_occupancy as kernels

    helpers = (kernels.shift, kernels.lift, kernels.drop, kernels.relax, kernels.gains)
    return compiled(kernels.settle, helpers), compiled(kernels.weigh, (), allocates=False)


def occupancy_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best occupancy bound on the makespan that the search for prices finds.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to improve the prices no longer.

    Returns
    -------
    LowerBound or None
        None where the graph is too large, or nothing better than zero was found.
    """
    return best_piece(instance, _piece_bound, stop)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    graph, exponent = _graph(instance, piece)
    if graph is None or graph.slots > MAX_SLOTS or graph.states > MAX_STATES:
        return None
    from infermax_opt.bounds._kernels_occupancy import FAR

    search = _Search(graph, stop)
    search.run()
    graph, prices, potential = search.graph, search.prices, search.potential
    if prices is None or potential is None:
        return None
    ticks = least_work(instance, instance.types, piece) + graph.earned(prices) / Fraction(2) ** exponent
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
    }
    value = ticks / instance.cost.ticks_per_second
    return LowerBound(value, "occupancy", Proof.CERTIFICATE, evidence=evidence)


def _graph(instance: Instance, piece: int) -> tuple[_Graph | None, int]:
    ticks, system, policy = instance.cost.ticks, instance.system, instance.policy
    alpha, beta = ticks.alpha[piece], ticks.beta[piece]
    kinds = tuple((t.input_tokens, t.output_tokens, len(t.members)) for t in instance.types)
    fixed = alpha + ticks.d0 + ticks.p0
    if (
        fixed == 0
        or max(o for _, o, _ in kinds) > MAX_OUTPUT
        or len({i for i, _, _ in kinds}) > MAX_SIZES
        or len({i + o for i, o, _ in kinds}) > MAX_SIZES
    ):
        return None, 0
    exponent = BITS - fixed.bit_length()

    units = functools.partial(in_units, exponent=exponent)
    most = min(sum(count for _, _, count in kinds), system.kv_capacity // min(i for i, _, _ in kinds))
    if system.max_running is not None:
        most = min(most, system.max_running)
    graph = _Graph(
        capacity=system.kv_capacity,
        most=most,
        kinds=kinds,
        plain=units(alpha + (min(ticks.d0, ticks.p0) if policy.preemption else ticks.d0)),
        mixed=units(fixed),
        pure=units(alpha + ticks.p0),
        least=units(alpha + min(ticks.d0, ticks.p0)),
        rho=min(units(max(0, beta - ticks.d1)), 2**52 // (system.kv_capacity + most + 1)),
        evictions=policy.preemption,
    )
    return graph, exponent


class _Draft(NamedTuple):
    """The best scaled prices found on a graph, what they earn in units, and their potentials."""

    graph: _Graph
    point: npt.NDArray[np.float64]
    level: float
    tables: npt.NDArray[np.int64] | None


class _Search:
    """Search for prices by cutting planes.

    A cycle that gains at some prices is a linear constraint on all prices.  A linear program finds the
    prices that earn most under those found so far; half way from the best prices that settled to those
    either settles or gains on a new cycle.  First on graphs of fewer states, for several numbers of young
    tokens; their prices then bound those to try.  Only prices that settle on the graph itself count.
    """

    def __init__(self, graph: _Graph, stop: Callable[[], bool]):
        self.whole = graph
        self.stop = stop
        #: The best graph, what prices earn there (units), these prices and their potentials.
        self.graph, self.level = graph, 0.0
        self.prices: Prices | None = None
        self.potential: npt.NDArray[np.int64] | None = None

    def run(self) -> None:
        """Find prices and potentials, as good as time allows."""
        whole = self.whole
        scale = max(1, min(ROWS * whole.capacity // COARSE, whole.ends[-1] // 8))
        longest = max(o for _, o, _ in whole.kinds)
        drafts: list[tuple[_Graph, _Draft]] = []
        # Large numbers first: their graphs are small.
        several = {longest * share // 128 for share in YOUNG}
        several |= {young for young in FEW_YOUNG if young < longest <= SHORT}
        for young in sorted(several, reverse=True):
            levels = [draft.level for _, draft in drafts]
            if young > 0 and len(levels) > 2 and levels[-1] < levels[-2] < levels[-3]:
                continue  # past the best one; none at all is another matter, as it counts first tokens
            graph = whole.older(young) if young > 0 else whole
            coarse = graph.coarser(scale) if scale > 1 else graph
            drafts.append((graph, self.improve(replace(coarse, limit=ROWS), DRAFT_TOLERANCE, scale == 1)))
        drafts.sort(key=lambda entry: -entry[1].level)
        for graph, draft in drafts[:2]:
            if draft.level >= CLOSE * drafts[0][1].level:
                self.improve(graph, TOLERANCE, True, draft)

    def improve(self, graph: _Graph, tolerance: float, counts: bool, draft: _Draft | None = None) -> _Draft:
        """Find the best prices on a graph, within reach of those of a draft.

        `counts`: whether they are proved by what settles on this graph.
        """
        import numpy as np

        centre, tables = np.zeros(graph.prices), None
        if draft is not None:
            centre, tables = (
                graph.moved(draft.graph, draft.point),
                graph.tables_like(draft.graph, draft.tables),
            )
        master = _Master(graph, centre, FAR_OFF if draft is None else NEAR)
        best, level, less, failed = np.zeros(len(centre)), 0.0, FIRST_STEP, 0
        for _ in range(STEPS):
            if self.stop() or failed > PATIENCE:
                break
            target, furthest = master.solve()
            if target - level <= tolerance * target:
                break
            point = (best + furthest) / 2
            if level == 0 and less < 1 and centre.any():
                # Somewhat smaller prices than those of the smaller graph, to begin with.
                point = centre * (1 - less)
                point[2:4] = centre[2:4]
                less *= 2
            prices = master.whole(point)
            settled, weights = graph.settle(prices, tables)
            if settled is not None:
                best, level, tables, failed = point, float(point @ master.gain), settled, 0
                if counts and level * graph.scale > self.level:
                    self.graph, self.level, self.prices = graph, level * graph.scale, prices
                    self.potential = settled[0]
            elif len(weights):
                failed += 1
                for row in weights:
                    master.cut(row)
            else:
                break
        return _Draft(graph, best, level * graph.scale, tables)


class _Master:
    """The LP over scaled prices: 1 earns as much as the area by `token` or `size`; shares of rho."""

    def __init__(self, graph: _Graph, centre: npt.NDArray[np.float64], reach: float):
        import numpy as np

        self.graph = graph
        earned, count = graph.scale, sum(graph.starting)
        share = max(1, graph.rho)
        ends = np.full(len(graph.prompts) + len(graph.ends), earned / count)
        self.scale = np.array(
            [earned / graph.tokens, earned / graph.area, share * graph.ends[-1], float(share), *ends]
        )
        #: What each scaled price earns.
        self.gain = np.array([1.0, 1.0, 0.0, 0.0, *(n / count for n in graph.starting + graph.ending)])
        self.solver = maximizer()
        low, high = centre - reach, centre + reach
        low[1] = max(0.0, low[1])
        low[4] = high[4] = 0.0  # as many requests start as finish
        self.columns = np.arange(len(centre), dtype=np.int32)
        self.solver.addVars(len(centre), low, high)
        self.solver.changeColsCost(len(centre), self.columns, self.gain)
        # Idling must not earn.
        self.add(0.0, np.array([1.0, graph.prompts[0], *np.zeros(len(centre) - 2)]))

    def add(self, constant: float, weights: npt.NDArray[np.float64]) -> None:
        """Whatever the prices are, constant + weights @ prices >= 0 must hold."""
        import numpy as np

        row = weights * self.scale
        size = max(float(np.abs(row).max()), 1e-300)
        self.solver.addRow(-constant / size, np.inf, len(row), self.columns, row / size)

    def cut(self, weights: npt.NDArray[np.int64]) -> None:
        """The cycle of these weights must not gain."""
        self.add(float(weights[0]) * (1 - SLACK), weights[1:].astype(float))

    def solve(self) -> tuple[float, npt.NDArray[np.float64]]:
        """Most that any prices earn under the constraints so far, and these prices, scaled."""
        import numpy as np

        self.solver.run()
        return self.solver.getInfo().objective_function_value, np.array(self.solver.getSolution().col_value)

    def whole(self, point: npt.NDArray[np.float64]) -> Prices:
        """Prices in units; idling does not earn."""
        token, size, out_fixed, out_size, *ends = (int(v) for v in (point * self.scale).round())
        size = max(0, size)
        token = max(token, -size * self.graph.prompts[0])
        split = len(self.graph.prompts)
        return Prices(token, size, out_fixed, out_size, tuple(ends[:split]), tuple(ends[split:]))
