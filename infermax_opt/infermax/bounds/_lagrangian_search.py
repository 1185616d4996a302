"""Search for the prices of the Lagrangian bound by cutting planes.

For a fixed number J of batches the bound is concave in the prices: the minimum over all sets of
paths of a linear function.  A master LP keeps the paths found so far, the shortest paths under its
prices give new ones.  Only the exact evaluation of rounded prices counts.

Prices vary where memory fills and where it drains; all batches between have one price, so that the LP
is small and the paths are cheap to find whatever J is.  Where outputs are long, several batches in a
row have one price, and the search begins at that scale: so many tokens and batches for each one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from infermax_opt.core.linear import maximizer
from infermax_opt.infermax.bounds._lagrangian_relaxation import Prices, Relaxation, cheapest_paths, retrace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["find_prices"]

#: How long memory drains, and fills at most, as multiples of the longest output; or fills, where all
#: batches are more than so many of these.
DRAIN, FILL, SHORT_FILL, MANY = 1.25, 12.0, 3.0, 24.0
#: Steps of the cutting planes for one J; relative gap at which they end; share of the best prices
#: so far in the next ones to try; largest price, where 1 prices a full memory like a batch.
STEPS, TOLERANCE, STAY, DEAREST = 300, 1e-4, 0.6, 40.0
#: Tokens of the longest output at the coarse scale; steps at the finest scale after that.
COARSE, FINE_STEPS = 64, 250
#: Lists of prices at most; relative gain of the bound below which the search ends; share of the
#: bound that leaving a list out may cost.
LISTS, GAIN, SLACK = 60, 2e-5, 5e-5
#: Share of the way from the number of batches where the bound is least that is gone ahead.
FORWARD = 0.5


@dataclass(frozen=True)
class _Path:
    """A path of one kind: what it holds and processes from batch `start` on, what it pays besides prices."""

    kind: int
    start: int
    blocks: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.int64]
    cost: float

    @property
    def end(self) -> int:
        """Number of batches within which it ends."""
        return self.start + len(self.blocks)


def find_prices(
    relaxation: Relaxation, horizon: int, stop: Callable[[], bool]
) -> list[tuple[Prices, npt.NDArray[np.int64]]]:
    """Lists of prices that together bound every number of batches well.

    Parameters
    ----------
    relaxation : Relaxation
    horizon : int
        Length of the lists.
    stop : callable
        Asked often whether to search no longer.

    Returns
    -------
    list of (Prices, int64 array)
        Prices, and the `Relaxation.values` of them; empty if there was no time.
    """
    longest = relaxation.longest
    lists = _Lists(relaxation, relaxation.least + longest // 2)
    scale = max(1, longest // COARSE)
    search = LagrangianPrices(relaxation, horizon, scale, stop)
    if scale > 1:
        coarse = coarser(relaxation, scale)
        draft = LagrangianPrices(coarse, horizon // scale, 1, stop)
        sketch = _Lists(coarse, coarse.least + longest // (2 * scale))
        sketch.extend(draft, STEPS)
        for number in sketch.needed():
            nodes, point = draft.found[number]
            lists.add(search.like(nodes, point))
            if stop():
                break
    if not stop():
        lists.extend(search, STEPS if scale == 1 else FINE_STEPS)
    return [(lists.prices[number], lists.values[number]) for number in lists.needed()]


class _Lists:
    """Lists of prices, and the bounds they prove for each number of batches."""

    def __init__(self, relaxation: Relaxation, worst: int):
        self.relaxation = relaxation
        self.prices: list[Prices] = []
        self.values: list[npt.NDArray[np.int64]] = []
        #: The number of batches where the bound is least, and that bound in units.
        self.worst, self.level = worst, -math.inf
        #: The least that a search found for its number of batches: the bound will hardly be better.
        self.ceiling = math.inf

    def add(self, prices: Prices) -> None:
        """Evaluate one more list."""
        import numpy as np

        self.prices.append(prices)
        self.values.append(self.relaxation.values(prices))
        best = np.max(self.values, axis=0)
        self.worst, self.level = self.relaxation.least + int(best.argmin()), float(best.min())

    def extend(self, search: LagrangianPrices, steps: int) -> None:
        """Add prices for a number of batches, until those where the bound is least hardly help.

        Prices for so many batches bound fewer, too, where the bound is larger than these batches cost.  So
        the search halves the way from where the bound is least to where it cannot be less than the ceiling.
        """
        import numpy as np

        least = self.relaxation.least
        while len(self.prices) < LISTS:
            worst, level = self.worst, self.level
            ahead = 0.0 if math.isinf(self.ceiling) else max(0.0, self.ceiling - level)
            batches = min(worst + int(FORWARD * ahead / self.relaxation.batch), search.horizon)
            self.add(search.run(batches, steps))
            self.ceiling = min(self.ceiling, float(np.max(self.values, axis=0)[batches - least]))
            settled = self.worst == batches and self.level <= level + GAIN * abs(self.level)
            if settled or search.stop():
                break

    def needed(self) -> list[int]:
        """Numbers of the lists without those that the bound hardly needs."""
        import numpy as np

        kept = list(range(len(self.prices)))
        for number in range(len(self.prices) - 1):
            fewer = [self.values[k] for k in kept if k != number]
            if fewer and np.max(fewer, axis=0).min() >= self.level - SLACK * abs(self.level):
                kept.remove(number)
        return kept


class LagrangianPrices:
    """Cutting planes for one relaxation, for one number of batches after another.

    Parameters
    ----------
    relaxation : Relaxation
    horizon : int
        Length of the lists of prices.
    scale : int
        Number of batches in a row that have one price.
    stop : callable
        Asked before each step.
    """

    def __init__(self, relaxation: Relaxation, horizon: int, scale: int, stop: Callable[[], bool]):
        import numpy as np

        self.relaxation, self.horizon, self.scale, self.stop = relaxation, horizon, scale, stop
        self.choices = [np.empty((horizon, k.output_tokens + 1), np.int8) for k in relaxation.kinds]
        self.paths: list[_Path] = []
        #: The prices found so far, where 1 prices a full memory, or a full budget of tokens, like a batch.
        self.found: list[tuple[PriceNodes, npt.NDArray[np.float64]]] = []

    def like(self, nodes: PriceNodes, point: npt.NDArray[np.float64]) -> Prices:
        """Prices like those found at another scale."""
        batches = min(self.horizon, nodes.batches * self.scale // nodes.scale)
        here = PriceNodes(batches, self.relaxation.longest, self.scale)
        self.found.append((here, here.moved(nodes, point)))
        return self.prices(*self.found[-1])

    def run(self, batches: int, steps: int) -> Prices:
        """Prices that are good for schedules of so many batches."""
        import numpy as np

        relaxation = self.relaxation
        nodes = PriceNodes(batches, relaxation.longest, self.scale)
        master = _PathMaster(relaxation, nodes)
        for number, kind in enumerate(relaxation.kinds):
            for start in nodes.at[nodes.at <= batches - kind.output_tokens].tolist():
                # A token in every batch from `start` on.
                tokens = np.append(kind.loads[1], np.full(kind.output_tokens - 1, relaxation.decoded))
                blocks = kind.sizes[1:].astype(np.float64)
                master.add(_Path(number, start, blocks, tokens, float(kind.steps[2:].sum())))
        for path in self.paths:
            if path.end <= batches:
                master.add(path)
        # From those for about as many batches: prices rise steeply where batches are nearly too few.
        near = min(reversed(self.found), key=lambda one: abs(one[0].batches - batches), default=None)
        if near is None:
            centre = np.stack([np.ones(len(nodes.at)), np.zeros(len(nodes.at))])
        else:
            centre = nodes.moved(*near)
        best, kept, target = -np.inf, self.prices(nodes, centre), np.inf
        for step in range(steps):
            point = centre
            if step > 0:
                target, point = master.solve()
                point = STAY * centre + (1 - STAY) * point
            prices = self.prices(nodes, point)
            first = prices.first(batches)
            entries, value = relaxation.entries(first), float(relaxation.batches(first).sum())
            for number in range(len(relaxation.kinds)):
                path, cost = self._cheapest(number, first, *entries)
                value += cost
                self.paths.append(path)
                master.add(path)
            value /= relaxation.batch
            if value > best:
                best, kept, centre = value, prices, point
            if target - best < TOLERANCE * abs(best) or self.stop():
                break
        self.found.append((nodes, centre))
        return kept

    def prices(self, nodes: PriceNodes, point: npt.NDArray[np.float64]) -> Prices:
        """Whole prices of every batch, 0 beyond those that count, from those of the nodes."""
        import numpy as np

        def whole(some: npt.NDArray[np.float64], full: int) -> npt.NDArray[np.int64]:
            prices = np.zeros(self.horizon, np.int64)
            prices[: nodes.batches] = np.maximum(0, np.round(some[nodes.of] * (self.relaxation.batch / full)))
            return prices

        return Prices(whole(point[0], self.relaxation.capacity), whole(point[1], self.relaxation.budget))

    def _cheapest(
        self, number: int, prices: Prices, entries: npt.NDArray[np.int64], origins: npt.NDArray[np.int64]
    ) -> tuple[_Path, float]:
        """A cheapest path of a kind, and what all its requests would pay, in units.

        Parameters
        ----------
        number : int
            Of the kind.
        prices : Prices
            Of the batches that there are.
        entries, origins : int64 arrays (T,)
            What `Relaxation.entries` says of them.
        """
        import numpy as np

        relaxation, batches = self.relaxation, len(prices.kv)
        kind, choices = relaxation.kinds[number], self.choices[number]
        ends, rows = cheapest_paths(relaxation, kind, prices, entries, choices)
        end = int(np.argmax(ends == ends[batches]))
        blocks, entered, made = (np.empty(batches, np.int64) for _ in range(3))
        cost = retrace(choices, rows, end, kind, blocks, entered, made)
        # What is prefilled in batches before is held since.
        held, tokens = blocks.astype(np.float64), made * relaxation.decoded
        for batch in np.flatnonzero(entered):
            tokens[origins[batch]] += entered[batch]
            held[origins[batch] : batch] += entered[batch] / relaxation.block
        start = int(np.argmax(held + tokens > 0))
        path = _Path(number, start, held[start:end], tokens[start:end], float(cost))
        return path, kind.count * float(ends[batches])


class PriceNodes:
    """Stretches of batches of one price: `scale` batches each, or all those in the middle."""

    def __init__(self, batches: int, longest: int, scale: int):
        import numpy as np

        self.batches, self.scale = batches, scale
        longest_fill = FILL if batches <= MANY * longest else SHORT_FILL
        fill = np.arange(0, min(batches, int(longest_fill * longest)), scale)
        drain = np.arange(batches - scale, max(batches - int(DRAIN * longest), fill[-1]), -scale)[::-1]
        #: First batch of each stretch, from 0, and the stretch of each batch.
        self.at = np.concatenate([fill, drain])
        if len(drain) and drain[0] > fill[-1] + scale:
            self.at = np.insert(self.at, len(fill), fill[-1] + scale)
        self.of = np.searchsorted(self.at, np.arange(batches), side="right") - 1

    def gather(self, start: int, held: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Coefficients of the nodes in the sum of price times what is held from `start` on."""
        import numpy as np

        return np.bincount(self.of[start : start + len(held)], held, len(self.at)).astype(np.float64)

    def moved(self, source: PriceNodes, point: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Prices at these nodes like those of others, each a row: near the end, those as near to its end."""
        import numpy as np

        ratio = source.scale / self.scale
        middle = (self.at + min(self.scale, self.batches - 1) / 2) * ratio
        late = self.at > self.batches / 2
        at = np.where(late, middle - self.batches * ratio + source.batches, middle)
        nodes = source.of[np.clip(at.astype(np.int64), 0, source.batches - 1)]
        moved: npt.NDArray[np.float64] = point[:, nodes]
        return moved


def coarser(relaxation: Relaxation, scale: int) -> Relaxation:
    """The same relaxation with `scale` tokens and batches for each one; sizes are means, rounded."""
    import numpy as np

    kinds = []
    for kind in relaxation.kinds:
        tokens = max(1, round(kind.output_tokens / scale))
        ends = np.round(np.linspace(0, kind.output_tokens, tokens + 1)).astype(np.int64)
        sizes = np.diff(np.append(0, np.cumsum(kind.sizes[1:]))[ends]) // np.diff(ends)
        steps = np.diff(np.append(0, np.cumsum(kind.steps[1:]))[ends])
        refills, loads = kind.refills[ends[:-1] + 1], kind.loads[ends[:-1] + 1]
        parts = (np.append(0, part).astype(np.int64) for part in (sizes, steps, refills, loads))
        sizes, steps, refills, loads = parts
        kinds.append(
            replace(kind, output_tokens=tokens, sizes=sizes, steps=steps, refills=refills, loads=loads)
        )
    batch, budget, decoded = (
        number * scale for number in (relaxation.batch, relaxation.budget, relaxation.decoded)
    )
    return replace(relaxation, batch=batch, budget=budget, decoded=decoded, kinds=tuple(kinds))


class _PathMaster:
    """The LP over prices (1: a full memory, or a full budget, costs as much as a batch), and pay in batches.

    Its columns are the prices of KV, those of tokens, and what each kind pays.
    """

    def __init__(self, relaxation: Relaxation, nodes: PriceNodes):
        import highspy
        import numpy as np

        self.relaxation, self.nodes = relaxation, nodes
        self.solver = maximizer()
        count = 2 * len(nodes.at)
        self.solver.addVars(count, np.zeros(count), np.full(count, DEAREST))
        lengths = nodes.gather(0, np.ones(nodes.batches))
        self.solver.changeColsCost(
            count, np.arange(count, dtype=np.int32), -np.concatenate([lengths, lengths])
        )
        for kind in relaxation.kinds:
            self.solver.addVar(-highspy.kHighsInf, highspy.kHighsInf)
            self.solver.changeColCost(self.solver.getNumCol() - 1, float(kind.count))

    def add(self, path: _Path) -> None:
        """The kind of the path pays no more than it."""
        import numpy as np

        held = self.nodes.gather(path.start, path.blocks) / self.relaxation.capacity
        processed = self.nodes.gather(path.start, path.tokens) / self.relaxation.budget
        row = np.concatenate([held, processed])
        used = np.flatnonzero(row)
        columns = np.append(used, len(row) + path.kind).astype(np.int32)
        cost = path.cost / self.relaxation.batch
        self.solver.addRow(-np.inf, cost, len(columns), columns, np.append(-row[used], 1.0))

    def solve(self) -> tuple[float, npt.NDArray[np.float64]]:
        """Bound on what any prices reach, in batches, and the prices at the nodes that promise it."""
        import numpy as np

        self.solver.run()
        value = self.solver.getInfo().objective_function_value + self.nodes.batches
        count = len(self.nodes.at)
        return value, np.array(self.solver.getSolution().col_value[: 2 * count]).reshape(2, count)
