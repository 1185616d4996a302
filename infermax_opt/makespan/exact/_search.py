"""What the kernels of the exact makespan search work on, and schedules from what they find."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from infermax_opt.core.compiled import compiled
from infermax_opt.makespan.data.instance import ClientRequest, MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.exact._groups import subset_sums

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Arrays", "Worker", "greedy", "kinds_of"]

#: Nodes searched between two looks at the clock.
STEPS = 500
#: Rows of the table of nodes: it fits the cache.
ROWS = 2**16
#: Nodes on a stack, which grows.
NODES = 1000


class Arrays:
    """What the kernels work on; see `infermax_opt.makespan.exact._bound`."""

    def __init__(
        self, requests: Sequence[ClientRequest], clients: int, instance: MakespanInstance, unit: int
    ):
        import numpy as np

        from infermax_opt.makespan.exact import _bound as kernel

        count = len(requests)
        self.requests, self.clients = requests, clients
        kinds = kinds_of(requests)
        inputs = np.array([r.input_tokens for r in requests], np.int64)
        output = np.array([r.output_tokens for r in requests], np.int64)
        twin = [1 << (i - 1) if i and kinds[i - 1] == kinds[i] else 0 for i in range(count)]
        least = np.full(1 << count, 2**62, np.int64)
        for i in range(count):
            least[1 << i : 2 << i] = np.minimum(least[: 1 << i], inputs[i])
        levels = [(tokens, ticks // unit) for tokens, ticks in instance.level_ticks]
        self.decode = instance.round_ticks // unit
        self.data = kernel.Data(
            clients, inputs, output, np.array(twin, np.int64),
            np.array(subset_sums(output.tolist()), np.int64), least, np.array(levels, np.int64), self.decode,
        )  # fmt: skip
        at = 2 * clients
        self.starts, self.bound, self.time = at + kernel.COLUMNS, at + kernel.BOUND, at + kernel.TIME
        self.width = self.starts + 3 * count

    def roots(self, batch: Sequence[tuple[int, ...]], best: int) -> npt.NDArray[np.int64]:
        """Nodes without the columns of starts, those that are below `best`."""
        import numpy as np

        nodes = np.zeros((len(batch), self.starts), np.int64)
        for node, groups in zip(nodes, batch, strict=True):
            node[: len(groups)] = groups
        nodes[:, self.time] = -1
        cost = np.zeros(len(self.data.sums), np.int64)
        _rate()(self.data, nodes, best, cost, np.zeros(self.clients, np.int64))
        return nodes[nodes[:, self.bound] < best]

    def schedule(self, instance: MakespanInstance, node: npt.NDArray[np.int64]) -> MakespanSchedule:
        """The schedule of a node that has nothing left."""
        bins, starts, clients = node[self.starts :].reshape(3, -1).tolist()
        prefill: list[dict[str, int]] = [{} for _ in range(max(bins) + 1)]
        times = [0] * (len(prefill) + 1)
        for r, some, start, client in zip(self.requests, bins, starts, clients, strict=True):
            prefill[some][r.id] = client + 1
            times[some] = start
            times[-1] = max(times[-1], start + r.output_tokens)
        return _schedule(instance, prefill, times)


class Worker:
    """A search with a stack and a table of its own."""

    def __init__(self, arrays: Arrays):
        import numpy as np

        from infermax_opt.makespan.exact import _bound as kernel

        clients = arrays.clients
        self.arrays = arrays
        self.stack = np.zeros((NODES, arrays.width), np.int64)
        self.state = np.zeros(3, np.int64)
        self.found = np.zeros(arrays.width, np.int64)
        self.table = np.zeros((ROWS, 2 * arrays.clients + 2), np.int64)
        self.children = 0
        sizes = len(arrays.data.sums), clients, clients, 2 * clients + 1, arrays.width, 0
        self.scratch = kernel.Scratch(*(np.zeros(size, np.int64) for size in sizes))

    @property
    def open(self) -> bool:
        """Whether nodes are left."""
        return bool(self.state[0])

    @property
    def best(self) -> int:
        """Ticks of the best known, here or elsewhere."""
        return int(self.state[1])

    @property
    def nodes(self) -> int:
        """Nodes expanded so far."""
        return int(self.state[2])

    def start(self, root: npt.NDArray[np.int64]) -> None:
        """Begin with this grouping."""
        import numpy as np

        self.stack[0, : len(root)] = root
        self.state[0] = 1
        # Each client starts one of its requests, or none.
        self.children = math.prod(int(some).bit_count() + 1 for some in root[: self.arrays.clients])
        if self.children > len(self.scratch.order):
            self.scratch = self.scratch._replace(order=np.zeros(self.children, np.int64))

    def go(self, best: int) -> None:
        """Search on for a while, for something better than `best`."""
        import numpy as np

        a = self.arrays
        self.state[1] = best
        full = _explore()(
            a.data, self.stack, self.state, self.found, self.table, self.scratch, self.children, STEPS
        )
        if full:
            more = np.zeros((max(self.children, len(self.stack)), a.width), np.int64)
            self.stack = np.concatenate([self.stack, more])


@functools.cache
def _rate() -> Callable[..., None]:
    from infermax_opt.makespan.exact import _bound as plain

    return compiled(plain.rate, plain.NODE, allocates=False)


@functools.cache
def _explore() -> Callable[..., bool]:
    from infermax_opt.makespan.exact import _explore as plain

    return compiled(plain.explore, plain.HELPERS, allocates=False)


def kinds_of(requests: Sequence[ClientRequest]) -> list[int]:
    """Number of the kind of each request; equal ones are side by side."""
    kinds: list[int] = []
    for k, r in enumerate(requests):
        before = requests[max(k - 1, 0)]
        same = (before.input_tokens, before.output_tokens) == (r.input_tokens, r.output_tokens)
        kinds.append(0 if k == 0 else kinds[-1] + (not same))
    return kinds


def greedy(instance: MakespanInstance) -> MakespanSchedule:
    """Whenever a client is free: the longest requests that fit the largest level."""
    waiting = sorted(instance.requests, key=lambda r: -r.output_tokens)
    free = dict.fromkeys(range(1, min(instance.clients, len(waiting)) + 1), 0)
    prefill: list[dict[str, int]] = []
    times: list[int] = []
    while waiting:
        now = min(free.values())
        ready = [client for client, since in free.items() if since <= now]
        room, started = instance.level_ticks[-1][0], dict[str, int]()
        for r in list(waiting):
            if ready and r.input_tokens <= room:
                room -= r.input_tokens
                started[r.id] = client = ready.pop()
                free[client] = now + r.output_tokens
                waiting.remove(r)
        prefill.append(started)
        times.append(now)
    return _schedule(instance, prefill, [*times, max(free.values())])


def _schedule(
    instance: MakespanInstance, prefill: Sequence[dict[str, int]], times: Sequence[int]
) -> MakespanSchedule:
    """Bins that begin at these times, and the end."""
    lengths = (after - before for before, after in itertools.pairwise(times))
    return MakespanSchedule(instance.name, map(Bin, prefill, lengths))
