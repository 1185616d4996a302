"""Least overhead of the batches that a search state still needs (see `estimates`)."""

from __future__ import annotations

from collections.abc import Iterator

from infermax_opt.infermax.data.cost import Coefficients
from infermax_opt.infermax.exact.moves import Pattern, State
from infermax_opt.infermax.exact.space import Space

__all__ = ["BatchOverhead"]

#: Dual feasible functions tried by the counting estimate, about.
THRESHOLDS = 8


class _TooMuch(Exception):
    """The budget of relaxed batches is used up."""


class BatchOverhead:
    """Least overhead of the batches that generate the remaining tokens.

    A relaxed state is the sorted tuple of (type, n) classes.  A relaxed batch picks requests that
    generate their next token; they need held(I + n) KV each, one token of C each, one place of
    R_max each and, without chunks, I tokens of P for a first token.  A first token needs the
    prefill overhead; a later one the decode overhead or, with preemption, either (it may come from
    a refill).  Taking more requests along under the same overhead never hurts, so only
    inclusion-maximal batches are tried.

    Once that has taken too much work (`budget` steps of choosing), the overhead of further states is
    estimated by counting: generated tokens are items of size held(I + n) in batches of capacity M,
    so for every dual feasible function f (sum of f at most 1 over sizes that fit together) there
    are at least sum(f) batches, and at least the sum over first tokens that prefill.  The functions
    are those behind the bound L2 of Martello and Toth: with a threshold t <= M/2, sizes above M - t
    count 1, sizes below t nothing, others size / M.  The estimate is no longer consistent then,
    but still never too high.
    """

    def __init__(self, space: Space, ticks: Coefficients, alpha: int, budget: int):
        self.space = space
        self.instance = space.instance
        self.alpha, self.d0, self.p0 = alpha, ticks.d0, ticks.p0
        self.budget = budget
        self.memo: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        system = self.instance.system
        requests = len(self.instance.requests)
        self.places = min(requests if system.max_running is None else system.max_running,
                          system.max_batch_tokens)  # fmt: skip
        self.sizes = [
            [system.held(kind.input_tokens + n) for n in range(kind.output_tokens)]
            for kind in self.instance.types
        ]
        self.coarse = budget <= 0
        self.packings = [self._packing(t) for t in self._thresholds()]

    def _thresholds(self) -> list[int]:
        """Thresholds of the dual feasible functions: sizes up to M/2, a few of them."""
        half = self.instance.system.kv_capacity // 2
        sizes = sorted({size for table in self.sizes for size in table if size <= half})
        return sorted({0, half, *sizes[:: max(1, len(sizes) // THRESHOLDS)]})

    def _packing(self, threshold: int) -> list[tuple[list[int], int]]:
        """Per type: M f summed over tokens n, n + 1, ..., and M f of the first token."""
        capacity = self.instance.system.kv_capacity

        def f(size: int) -> int:
            if size > capacity - threshold:
                return capacity
            return size if size >= threshold else 0

        packing = []
        for table in self.sizes:
            tails = [0] * (len(table) + 1)
            for n in range(len(table) - 1, -1, -1):
                tails[n] = tails[n + 1] + f(table[n])
            packing.append((tails, f(table[0])))
        return packing

    def __call__(self, state: State) -> int:
        """Least overhead from `state` on, in ticks."""
        nodes = self.space.nodes
        return self.of_classes(sorted([(nodes[i].kind, nodes[i].generated) for i in state]))

    def of_classes(self, sorted_classes: list[tuple[int, int]]) -> int:
        """The same for the sorted (type, n) classes of a state."""
        classes = tuple(sorted_classes)
        known = self.memo.get(classes)
        return self._solve(classes) if known is None else known

    def through(self, state: State, pattern: Pattern) -> int:
        """Overhead of a batch of `pattern` in `state`, and the least one after it, in ticks."""
        nodes, types = self.space.nodes, self.instance.types
        after: list[tuple[int, int]] = []
        decodes = prefills = False
        for (number, count), bucket in zip(self.space.groups(state), pattern, strict=True):
            kind, n, _ = nodes[number]
            after += [(kind, n)] * (count - bucket.generates)
            if n + 1 < types[kind].output_tokens:
                after += [(kind, n + 1)] * bucket.generates
            decodes, prefills = decodes or bucket.decodes, prefills or bucket.prefills
        paid = self.alpha + decodes * self.d0 + prefills * self.p0
        return int(paid + self.of_classes(sorted(after)))

    def _solve(self, root: tuple[tuple[int, int], ...]) -> int:
        """Depth-first evaluation on an explicit stack: the depth is the number of tokens."""
        if self.coarse:
            return self._count(root)
        stack: list[tuple[tuple[tuple[int, int], ...], dict[tuple[tuple[int, int], ...], int] | None]]
        stack = [(root, None)]
        while stack:
            classes, children = stack.pop()
            if classes in self.memo:
                continue
            if children is None:
                children = {}
                try:
                    for child, cost in self._batches(classes):
                        if cost < children.get(child, cost + 1):
                            children[child] = cost
                except _TooMuch:
                    self.coarse = True
                    return self._count(root)
                stack.append((classes, children))
                stack.extend((child, None) for child in children if child not in self.memo)
            else:
                self.memo[classes] = min(cost + self.memo[child] for child, cost in children.items())
        return self.memo[root]

    def _count(self, classes: tuple[tuple[int, int], ...]) -> int:
        capacity = self.instance.system.kv_capacity
        types = self.instance.types
        batches = prefilling = 0
        for packing in self.packings:
            volume = first = 0
            for kind, n in classes:
                tails, one = packing[kind]
                volume += tails[n]
                if n == 0:
                    first += one
            batches = max(batches, -(-volume // capacity))
            prefilling = max(prefilling, -(-first // capacity))
        outputs = [types[kind].output_tokens for kind, _ in classes]
        left = [o - n for o, (_, n) in zip(outputs, classes, strict=True)]
        firsts = sum(n == 0 for _, n in classes)
        batches = max(batches, max(left, default=0), -(-sum(left) // self.places))
        prefilling = max(prefilling, -(-firsts // self.places))
        if self.instance.policy.preemption:
            later = max(0, batches - prefilling) * min(self.d0, self.p0)
        else:
            # Later tokens come from decode steps only, which may share batches with prefills.
            decodes = [o - max(n, 1) for o, (_, n) in zip(outputs, classes, strict=True)]
            later = max(decodes, default=0) * self.d0
        cost = int(batches * self.alpha + prefilling * self.p0 + later)
        self.memo[classes] = cost
        return cost

    def _batches(
        self, classes: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
        """Inclusion-maximal relaxed batches: the classes left, and the overhead."""
        groups: list[tuple[tuple[int, int], int]] = []
        for key in classes:
            if groups and groups[-1][0] == key:
                groups[-1] = (key, groups[-1][1] + 1)
            else:
                groups.append((key, 1))
        for allowed, presence in self._phases(groups):
            yield from self._maximal(groups, allowed, self.alpha + presence)

    def _phases(
        self, groups: list[tuple[tuple[int, int], int]]
    ) -> Iterator[tuple[list[tuple[tuple[int, int], int]], int]]:
        """Groups that may share a batch, and the presence of prefill and decode that it pays."""
        policy = self.instance.policy
        first = [g for g in groups if g[0][1] == 0]
        later = [g for g in groups if g[0][1] > 0]
        if policy.preemption:
            if first:
                yield groups, self.p0
            if later and (not first or self.d0 < self.p0):
                yield later, min(self.d0, self.p0)
            return
        if first and later and policy.hybrid_batching:
            yield groups, self.p0 + self.d0
        if first:
            yield first, self.p0
        if later:
            yield later, self.d0

    def _maximal(
        self,
        groups: list[tuple[tuple[int, int], int]],
        allowed: list[tuple[tuple[int, int], int]],
        cost: int,
    ) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
        system, types = self.instance.system, self.instance.types
        chunked = self.instance.policy.chunked_prefill
        # Largest KV first, so that the last groups fill what is left.
        order = sorted(allowed, key=lambda g: -self.sizes[g[0][0]][g[0][1]])
        sizes = [self.sizes[kind][n] for (kind, n), _ in order]
        prompts = [types[kind].input_tokens if n == 0 and not chunked else 0 for (kind, n), _ in order]
        counts = [count for _, count in order]
        chosen = [0] * len(order)

        def fits(g: int, room: int, places: int, budget: int) -> bool:
            return places > 0 and sizes[g] <= room and prompts[g] <= budget

        def choose(g: int, room: int, places: int, budget: int) -> Iterator[None]:
            self.budget -= 1
            if self.budget < 0:
                raise _TooMuch
            if g == len(order):
                if not any(chosen[x] < counts[x] and fits(x, room, places, budget) for x in range(g)):
                    yield
                return
            most = min(counts[g], room // sizes[g], places)
            if prompts[g]:
                most = min(most, budget // prompts[g])
            for k in range(most, -1, -1):
                chosen[g] = k
                yield from choose(g + 1, room - k * sizes[g], places - k, budget - k * prompts[g])
            chosen[g] = 0

        for _ in choose(0, system.kv_capacity, self.places, system.prefill_budget):
            taken = {key: k for (key, _), k in zip(order, chosen, strict=True)}
            rest: list[tuple[int, int]] = []
            for (kind, n), count in groups:
                k = taken.get((kind, n), 0)
                rest += [(kind, n)] * (count - k)
                if n + 1 < types[kind].output_tokens:
                    rest += [(kind, n + 1)] * k
            yield tuple(sorted(rest)), cost
