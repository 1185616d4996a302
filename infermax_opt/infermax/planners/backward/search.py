"""Beam search, batch by batch from the last to the first, over how many requests make how many tokens.

For offline workloads of many equal requests.  Backwards nothing grows: a request that ends in a batch sheds
a token of KV per batch until it gets its prompt, so that what fits now fits for good, and the search decides
three things only.  How many requests end in a batch: as many as fit, or one fewer.  Whether prompts are
processed in it: otherwise those that are due idle, and share an earlier one.  And which requests are *cut*:
their refill takes place in the batch that comes next, and their head, the tokens made before it, ends in some
batch that lies still farther back; heads are small and fill what is free.  Nothing but heads can fill the
first batches, so as many as an early start takes (`infermax_opt.infermax.planners.plan._early_evictions`) are
worth their KV area from the moment of the cut on.

Nodes are compared after equal numbers of batches, by their seconds less what the KV area in use has earned,
at the price that the makespan to beat suggests.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Schedule
from infermax_opt.infermax.planners.backward import _kernel
from infermax_opt.infermax.planners.backward._write import written
from infermax_opt.infermax.planners.children import distinct, find_children, no_children, path
from infermax_opt.infermax.planners.plan._early_evictions import early_tokens
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.replay.fast import valid_replay

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["WIDTH", "BackwardOptions", "BackwardSearch", "backward_helps", "backward_search"]

#: Tokens of the longest output, and batches that the KV area takes, at most.
MAX_OUTPUT, MAX_EXPECTED = 64, 20_000
#: Fewest requests of mean size that fill the KV; where they are fewer, `beam` finds more.
FEW = 8.0
#: Room for children, in widths, and beside that; children of which nodes are made, in widths.
ROOM, SPARE, SORTED = 24, 2000, 3
#: By what the spread of those may grow from batch to batch.
SPREAD = 1.5
#: So many times what the KV area takes, and a few more, are the batches after which a search is given up.
LONG = 4
#: Width where nothing else is said.
WIDTH = 30


@dataclass(frozen=True)
class BackwardOptions:
    """What distinguishes one search from another.

    Parameters
    ----------
    width : int
        Most nodes kept after a batch.
    coarse : int
        Nodes are alike if the numbers of their requests are equal, for each number of tokens made, in steps
        of so many.
    pool : int
        Most requests whose head is still to place, beside those of early starts.
    early : float
        Share of early starts; see `early_tokens`.
    worth : float
        Share of their KV area that they are worth.
    price : float
        What KV area earns, relative to what the makespan to beat suggests.
    seed : int
        Shifts the steps in which numbers are alike.
    """

    width: int = WIDTH
    coarse: int = 1
    pool: int = 30
    early: float = 1.0
    worth: float = 1.0
    price: float = 1.0
    seed: int = 0


def backward_helps(instance: Instance) -> bool:
    """Whether the search applies, and is likely to find good schedules."""
    kinds = {(kind.input_tokens, kind.output_tokens) for kind in instance.types}
    system, policy, cost = instance.system, instance.policy, instance.cost
    if (
        not instance.offline or len(kinds) > 1 or len(cost.batch) > 1 or system.block_size > 1
        or not policy.preemption or not policy.hybrid_batching or not instance.objective.is_makespan
    ):  # fmt: skip
        return False
    inputs, outputs = kinds.pop()
    held = int(area(inputs, outputs))
    return (
        2 < outputs <= MAX_OUTPUT
        and held * FEW <= outputs * system.kv_capacity
        and held * len(instance.requests) <= MAX_EXPECTED * system.kv_capacity
        and inputs + outputs <= min(system.prefill_budget, system.kv_capacity)
    )


def backward_search(instance: Instance, options: BackwardOptions, upper: float) -> Schedule | None:
    """Search once for a schedule of small makespan.

    Parameters
    ----------
    instance : Instance
    options : BackwardOptions
    upper : float
        Makespan in seconds that is known, for the price of KV area.

    Returns
    -------
    Schedule or None
        None where the search does not help or finds none.
    """
    if not backward_helps(instance):
        return None
    return BackwardSearch(instance).search(options, upper)[1]


@functools.cache
def _compiled() -> Callable[..., Any]:
    return compiled(_kernel.expand, _kernel.HELPERS, allocates=False)


class BackwardSearch:
    """An instance on which searches run one after the other."""

    def __init__(self, instance: Instance):
        self.instance = instance
        cost, kind = instance.cost.floats, instance.types[0]
        i, o = self.inputs, self.outputs = kind.input_tokens, kind.output_tokens

        def prompt(tokens: int) -> float:
            """Attention of a whole prompt."""
            return float(cost.p1 * prefill_work(int(instance.cost.exact_attention), tokens, 0))

        self.area = len(instance.requests) * int(area(i, o))
        #: Seconds of all tokens of all requests.
        self.least = len(instance.requests) * (
            cost.beta[0] * (i + o - 1) + prompt(i) + cost.d1 * int(area(i, o - 1))
        )
        #: Seconds of a refill beyond the decode step that it replaces, by tokens made before.
        self.refill = [
            (cost.beta[0] - cost.d1) * (i + made - 1) + prompt(i + made) if made else 0.0 for made in range(o)
        ]
        #: Batches after which a search is given up.
        self.most = LONG * (self.area // instance.system.kv_capacity + o)

    def steps(self, options: BackwardOptions, upper: float) -> _kernel.Steps:
        """What the kernel works on."""
        import numpy as np

        system, cost = self.instance.system, self.instance.cost.floats
        price = float(options.price * (upper - self.least) / self.area)
        made = range(self.outputs)
        early = Counter(early_tokens(self.instance, options.early, 1.0) if options.early > 0 else ())
        worth = [options.worth * price * int(area(self.inputs, tokens)) for tokens in made]
        running = len(self.instance.requests) if system.max_running is None else system.max_running
        return _kernel.Steps(
            self.inputs, self.outputs, system.kv_capacity, running, system.max_batch_tokens,
            system.max_prefill_tokens, options.pool + early.total() - early[0], cost.alpha[0] + cost.d0,
            cost.p0, price, np.array(self.refill), np.array(worth),
            np.array([early[tokens] if tokens else 0 for tokens in made]),
        )  # fmt: skip

    def search(
        self, options: BackwardOptions, upper: float, late: Callable[[], bool] = lambda: False
    ) -> tuple[float, Schedule | None]:
        """Makespan of what was found, and the schedule; infinite and None without one.

        Parameters
        ----------
        options : BackwardOptions
        upper : float
            Makespan in seconds that is known, for the price of KV area.
        late : callable
            Asked after each batch whether to give up.
        """
        found = _Beam(self, options, upper).run(late)
        if found is None or len(found) > MAX_BATCHES:
            return math.inf, None
        schedule = written(self.instance, found)
        played = valid_replay(self.instance, schedule)
        return played.ends[-1] / played.ticks_per_second, schedule


class _Beam:
    """One search: the nodes before each batch, and the moves that led to them."""

    def __init__(self, work: BackwardSearch, options: BackwardOptions, upper: float):
        import numpy as np

        self.work, self.options = work, options
        room, columns = options.width * ROOM + SPARE, work.outputs
        self.steps = work.steps(options, upper)
        self.move = np.zeros(_kernel.MOVE, np.int64)
        self.children = no_children(room, _kernel.MOVE)
        self.nodes = _kernel.Nodes(
            np.zeros((1, columns), np.int64), np.zeros((1, columns), np.int64),
            np.array([len(work.instance.requests)]), np.zeros(1, np.int64), np.zeros(1, np.int64),
            np.zeros(1),
        )  # fmt: skip
        self.salt = np.random.default_rng(options.seed).integers(1, 2**62, columns)
        #: For each batch the parents of its nodes and the moves that lead to them.
        self.log: list[tuple[Integers, Integers]] = []
        #: How far above the best node children are looked for.
        self.window = math.inf

    def run(self, late: Callable[[], bool] = lambda: False) -> list[list[int]] | None:
        """Moves of the first whole schedule, the last batch first; None if there is none in time."""
        while len(self.log) < self.work.most and self.grow():
            if late():
                return None
            nodes = self.nodes
            left = nodes.held.sum(axis=1) + nodes.heads.sum(axis=1) + nodes.fresh
            # Nodes are sorted by value, but what heads were worth is not paid back there.
            paths = [path(self.log, int(node)) for node in (left == 0).nonzero()[0]]
            if paths:
                return min(paths, key=self.extra)
        return None

    def extra(self, moves: list[list[int]]) -> float:
        """Seconds beyond those of the same number of decode batches."""
        steps, total, mixed = self.steps, 0.0, 1
        for one, times, other, more, *_, now in moves:
            total += times * steps.refill[one] + more * steps.refill[other] + steps.mixed * now
            total += steps.mixed if times and not mixed else 0.0
            mixed = now
        return float(total)

    def grow(self) -> bool:
        """Replace the nodes by the best of their children; return whether there are any."""
        import numpy as np

        children, width, coarse = self.children, self.options.width, self.options.coarse
        best = float(self.nodes.value.min())
        self.find(best + self.window)
        if children.found[0] < SORTED * width and self.window < math.inf:
            self.find(math.inf)
        found = int(children.found[0])
        if not found:
            return False
        order = np.argsort(children.value[:found], kind="stable")[: SORTED * width]
        full = len(order) == SORTED * width
        self.window = SPREAD * float(children.value[order[-1]] - best) if full else math.inf
        parent, moves = children.parent[order], children.move[order]
        held, heads, fresh, tokens, prefill = self.moved(parent, moves)
        value = children.value[order]
        wasted = self.wasted(held, heads, fresh)
        if wasted.any():
            by = np.argsort(value + self.steps.fixed * wasted, kind="stable")
            order, parent, moves, value = order[by], parent[by], moves[by], value[by]
            held, heads, fresh, tokens, prefill = (some[by] for some in (held, heads, fresh, tokens, prefill))
        alike = (held + (len(self.log) + self.options.seed) % coarse) // coarse @ self.salt
        # Once all have ended what is left to place decides.
        alike += np.where(fresh == 0, heads[:, ::-1] @ self.salt, 0)
        kept = distinct(alike, width)
        self.nodes = _kernel.Nodes(
            held[kept], heads[kept], fresh[kept], tokens[kept], prefill[kept], value[kept]
        )
        self.log.append((parent[kept], moves[kept]))
        return True

    def wasted(self, held: Integers, heads: Integers, fresh: Integers) -> Any:
        """Batches of a full memory, at least, that nodes waste until the longest request left has begun."""
        import numpy as np

        tokens = np.arange(1, self.work.outputs + 1)
        areas = np.array([int(area(self.work.inputs, some)) for some in tokens.tolist()])
        left = held @ areas + heads[:, 1:] @ areas[:-1] + fresh * areas[-1]
        longest = (np.where(held > 0, tokens, 0)).max(axis=1)
        longest = np.maximum(longest, np.where(heads > 0, tokens - 1, 0).max(axis=1))
        longest = np.where(fresh > 0, tokens[-1], longest)
        return np.maximum(0.0, longest - left / self.work.instance.system.kv_capacity)

    def find(self, cut: float) -> None:
        """Find children of all nodes below the cut."""
        most = SORTED * self.options.width
        find_children(_compiled(), self.steps, self.nodes, self.children, self.move, cut=cut, most=most)

    def moved(self, parent: Integers, moves: Integers) -> tuple[Integers, ...]:
        """Columns of the nodes that moves lead to, as they stand before the batch before."""
        import numpy as np

        rows = np.arange(len(parent))
        held, heads = self.nodes.held[parent], self.nodes.heads[parent]
        for column, sign in ((0, -1), (2, -1), (4, 1), (6, 1)):
            made, times = moves[:, column], sign * moves[:, column + 1]
            held[rows, made - 1] += times
            heads[rows, made] -= times
        held[:, -1] += moves[:, 8]
        earlier = np.pad(held[:, 1:], ((0, 0), (0, 1)))
        earlier[:, 0] += np.where(moves[:, 9] > 0, 0, held[:, 0])
        prefill = moves[:, 9] * held[:, 0] * self.work.inputs
        tokens = held[:, 1:].sum(axis=1) + prefill
        return earlier, heads, self.nodes.fresh[parent] - moves[:, 8], tokens, prefill
