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

*Many requests.*  The last k has the edges of all larger numbers, too: steps into and out of itself,
batches that earn and grow as any of those numbers.

Blocks of KV hold at least the tokens in them; P, C and arrivals only restrict schedules further.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt._compile import compiled
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
#: Bits of a batch's fixed cost in units: rounding costs less than 1e-6 of the bound; and the longest
#: output, so that no sum along a path leaves int64.
BITS, MAX_OUTPUT = 34, 2**16
#: Sweeps over all edges after which a graph counts as gaining.
SWEEPS = 200
#: KV capacity of the coarse graph on which prices are sought.
COARSE = 400
#: States up to which directions are sought on the graph itself, too.
SMALL = 60_000
#: Relative precision of a level on a large graph.
TOLERANCE = 3e-4


@dataclass(frozen=True)
class Prices:
    """Payments and shares of the eviction cost, in units.

    `token` and `size`: a generated token earns token + size * s.  `out_fixed + out_size * s` is
    the share of rho(s) that an eviction pays.
    """

    token: int
    size: int
    out_fixed: int
    out_size: int


@dataclass(frozen=True)
class _Graph:
    """The graph of one instance and piece, possibly at a coarser scale; costs in units.

    `kinds`: input tokens, output tokens and number of requests.
    """

    capacity: int
    most: int
    kinds: tuple[tuple[int, int, int], ...]
    plain: int
    mixed: int
    pure: int
    rho: int
    evictions: bool

    @functools.cached_property
    def prompts(self) -> tuple[int, ...]:
        return tuple(sorted({i for i, _, _ in self.kinds}))

    @functools.cached_property
    def ends(self) -> tuple[int, ...]:
        return tuple(sorted({i + o for i, o, _ in self.kinds}))

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
    def rows(self) -> int:
        return min(self.most, MAX_ACTIVE) + 1

    @property
    def wide(self) -> int:
        """Largest number of active requests where the last row stands for several, else 0."""
        return self.most if self.most > MAX_ACTIVE else 0

    @property
    def slots(self) -> float:
        """Requests of mean size that fit at once."""
        return self.capacity * self.tokens / self.area

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
            rho=self.rho * scale,
        )

    def settle(self, prices: Prices) -> npt.NDArray[np.int64] | None:
        """Potentials that prove the prices, or None if none were found."""
        import numpy as np

        from infermax_opt.bounds._kernels_occupancy import FAR, Costs

        shortest = self.prompts[0]
        if prices.size < 0 or prices.token + prices.size * shortest < 0:
            return None
        shape = (self.rows, max(last for _, last in self.ranges) + 1)
        tables = [np.full(shape, FAR, dtype=np.int64) for _ in range(3)]
        tables[0][0, 0] = 0
        first, last = np.array(self.ranges, dtype=np.int64).T.copy()
        costs = Costs(
            self.plain, self.mixed, self.pure, prices.token, prices.size,
            prices.out_fixed, prices.out_size,
            -self.rho - prices.out_fixed, self.rho - prices.out_size,
        )  # fmt: skip
        rested = _kernel()(
            *tables, first, last, self.capacity, self.wide,
            np.array(self.prompts, dtype=np.int64), np.array(self.ends, dtype=np.int64),
            shortest, self.ends[-1] - 1, self.evictions, costs, SWEEPS,
        )  # fmt: skip
        return tables[0] if rested else None


@functools.cache
def _kernel() -> Callable[..., Any]:
    from infermax_opt.bounds import _kernels_occupancy as kernels

    return compiled(kernels.settle, (kernels.shift, kernels.lift, kernels.drop, kernels.relax))


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
    best = None
    for piece in range(len(instance.cost.batch)):
        found = _piece_bound(instance, piece, stop or (lambda: False))
        if found is not None and (best is None or found.value > best.value):
            best = found
    return best


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    graph, exponent = _graph(instance, piece)
    if graph is None or graph.slots > MAX_SLOTS or graph.states > MAX_STATES:
        return None
    from infermax_opt.bounds._kernels_occupancy import FAR

    search = _Search(graph, stop)
    prices = search.run()
    potential = search.potential
    if prices is None or potential is None:
        return None
    units = prices.token * graph.tokens + prices.size * graph.area
    ticks = least_work(instance, instance.types, piece) + Fraction(units) / Fraction(2) ** exponent
    evidence = {
        "kind": "occupancy",
        "piece": piece,
        "exponent": exponent,
        "prices": asdict(prices),
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

    def units(cost: int) -> int:
        return int(cost << exponent if exponent >= 0 else cost >> -exponent)

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
        rho=min(units(max(0, beta - ticks.d1)), 2**52 // (system.kv_capacity + most + 1)),
        evictions=policy.preemption,
    )
    return graph, exponent


@dataclass(frozen=True)
class _Direction:
    """Prices up to scale, and the split of rho.

    `lean`: where negative, the share of what a request earns that its number of tokens earns, and
    not its area; where positive, a token earns size * (s - lean * min I).  `young` and `old`:
    shares of rho that evicting the smallest and the largest request costs.
    """

    lean: float
    young: float
    old: float


STARTS = tuple(
    _Direction(lean, young, old)
    for lean, young, old in (
        (0.0, 0.5, 0.5),
        (0.2, 0.5, 0.5),
        (-0.1, 0.6, 0.4),
        (0.6, 0.3, 0.7),
        (-0.6, 0.5, 0.5),
    )
)
STEPS, FINE_STEPS = (0.25, 0.4, 0.4), (0.01, 0.03, 0.02)


class _Search:
    """Search for prices: directions by random steps, the scale of each by bisection.

    First on a coarse graph, where thousands of tries take seconds; what is best there starts the
    search on the graph itself.  Only prices that settle there count.
    """

    def __init__(self, graph: _Graph, stop: Callable[[], bool]):
        self.graph = graph
        self.stop = stop
        self.random = random.Random(0)
        self.potential: npt.NDArray[np.int64] | None = None

    def run(self) -> Prices | None:
        graph = self.graph
        scale = max(1, min(graph.capacity // COARSE, graph.ends[-1] // 8))
        coarse = graph if scale == 1 else graph.coarser(scale)
        tries, tolerance = (300, 1e-4) if scale == 1 else (100, 1e-3)
        direction, level = self.improve(coarse, STARTS, STEPS, tries, tolerance)
        if level > 0 and scale > 1:
            # Levels compare as shares of what the area alone would earn.
            level = self.level_near(direction, level / _area_level(coarse) * _area_level(graph))
            if level > 0 and graph.states <= SMALL:
                direction, level = self.improve(graph, [direction], FINE_STEPS, tries=40, tolerance=2e-4)
        return None if level <= 0 else self.prices(graph, direction, level)

    def level_near(self, direction: _Direction, guess: float) -> float:
        """A level close to the largest one of the graph, near a guess; 0 if none was found."""
        step, level = 0.002, guess
        while not self.settles(self.graph, direction, level):
            if step > 0.1 or self.stop():
                return 0.0
            level, step = guess * (1 - step), 2 * step
        return self.level(self.graph, direction, level / (1 + TOLERANCE), TOLERANCE)

    def settles(self, graph: _Graph, direction: _Direction, level: float) -> bool:
        found = graph.settle(self.prices(graph, direction, level))
        if found is not None and graph is self.graph:
            self.potential = found
        return found is not None

    def prices(self, graph: _Graph, direction: _Direction, level: float) -> Prices:
        """Prices of a direction that earn `level` units over all requests."""
        small, large = graph.prompts[0] + 1, max(graph.prompts[0] + 2, graph.ends[-1] - 1)
        cheap, dear = (direction.young * (small - 1), direction.old * (large - 1))
        slope = (dear - cheap) / (large - small)
        if direction.lean < 0:
            token = math.floor(level * -direction.lean / graph.tokens)
            size = math.floor(level * (1 + direction.lean) / graph.area)
        else:
            offset = min(1.0, direction.lean) * graph.prompts[0]
            size = math.floor(level / (graph.area - offset * graph.tokens))
            token = math.ceil(-offset * size)
        return Prices(
            token=token,
            size=size,
            out_fixed=round((cheap - slope * small) * graph.rho),
            out_size=round(slope * graph.rho),
        )

    def improve(
        self,
        graph: _Graph,
        starts: Sequence[_Direction],
        steps: tuple[float, float, float],
        tries: int,
        tolerance: float,
    ) -> tuple[_Direction, float]:
        """Best direction found, and the largest level at which it settles."""
        best, level = starts[0], 0.0
        for start in starts:
            found = self.level(graph, start, level, tolerance)
            if found > level:
                best, level = start, found
        for number in range(tries):
            if self.stop():
                break
            width = 0.03 ** (number / tries)
            step = [self.random.gauss(0, width * size) for size in steps]
            candidate = _Direction(best.lean + step[0], best.young + step[1], best.old + step[2])
            found = self.level(graph, candidate, level, tolerance)
            if found > level:
                best, level = candidate, found
        return best, level

    def level(self, graph: _Graph, direction: _Direction, floor: float, tolerance: float) -> float:
        """Largest level above `floor` at which the direction settles, or 0."""
        low = floor * (1 + tolerance) if floor else 0.3 * _area_level(graph)
        if not self.settles(graph, direction, low):
            return 0.0
        high, factor = low, 0.005 if floor else 0.2
        while not self.stop():
            high = low * (1 + factor)
            if not self.settles(graph, direction, high):
                break
            low, factor = high, factor * 2
        while high - low > tolerance * high and not self.stop():
            middle = (low + high) / 2
            if self.settles(graph, direction, middle):
                low = middle
            else:
                high = middle
        return low


def _area_level(graph: _Graph) -> float:
    """What a schedule earns by area alone, each batch at most the capacity."""
    return graph.area / graph.capacity * max(1, graph.plain)
