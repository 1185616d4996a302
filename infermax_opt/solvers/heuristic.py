"""Admissible estimates of the cost that a search state still needs.

Fix one affine piece k of the batch time.  Every batch costs at least::

    alpha_k + d0 [decode] + p0 [prefill]   (its *overhead*)
    + beta_k * tokens + d1 * decode_kv + p1 * prefill_work   (the *work* of its requests)

Work adds up over requests, so the work of a state is at least the sum over its requests of the
cheapest work that request could need with the machine to itself (`Work`).  The overhead is at
least that of the cheapest sequence of batches in a relaxed problem (`BatchOverhead`) that keeps
only how many tokens each request has generated: in a batch, a request may generate its next token
if the KV needed for that by all who do so fits together.  Both drop under one batch by no more
than what that batch pays, hence their sum is consistent; so is the maximum over k, as the batch
time is the maximum over the pieces.  (The search relies only on the estimates being never too high.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infermax_opt.cost import Coefficients
from infermax_opt.instance import Instance, Metric
from infermax_opt.solvers.space import DONE, Move, Node, Pattern, Space, State

__all__ = ["Heuristic", "Rates"]

#: Dual feasible functions tried by the counting estimate, about.
THRESHOLDS = 8


class Work:
    """Least work that one request needs from a node on, for one piece of the batch time.

    In the single-request graph the chunks of a prefill may be chosen freely.  A chunk of c tokens
    does work c**2 >= c ("square" attention, exactly (I+n)**2 without chunks; at least 1 in a
    relaxed space), or (m+c)**2 - m**2 ("exact"), which telescopes.  With A(n) the least work from
    the decode state of token n on, and T(n) = A(n), T(O) = 0::

        A(n) = min(beta + d1 (I+n-1) + T(n+1),  refill of I+n tokens + T(n+1) if preemption is on)
    """

    def __init__(self, instance: Instance, ticks: Coefficients, beta: int, relaxed: bool):
        self.instance = instance
        self.relaxed = relaxed
        self.d1, self.p1, self.beta = ticks.d1, ticks.p1, beta
        self.chunked = instance.policy.chunked_prefill
        self.tails = [self._tail(kind.input_tokens, kind.output_tokens) for kind in instance.types]

    def prefill(self, cached: int, until: int) -> int:
        """Least work to prefill from `cached` to `until` cached tokens."""
        tokens = until - cached
        if self.instance.cost.exact_attention:
            pairs = until * until - cached * cached
        elif self.relaxed:
            pairs = min(tokens, 1)
        else:
            pairs = tokens if self.chunked else tokens * tokens
        return int(self.beta * tokens + self.p1 * pairs)

    def _decode(self, kind_input: int, n: int) -> int:
        return int(self.beta + self.d1 * (kind_input + n - 1))

    def generate(self, kind_input: int, n: int, cached: int) -> int:
        """Least work to generate token n + 1 from `cached` tokens without evicting."""
        best = self.prefill(cached, kind_input + n)
        ready = kind_input + n - 1
        if n >= 1 and (cached == ready or self.chunked):
            decode = self.prefill(cached, ready) + self._decode(kind_input, n)
            best = decode if cached == ready else min(best, decode)
        return best

    def _tail(self, kind_input: int, outputs: int) -> list[int]:
        """T(n) for n = 0..O."""
        tail = [0] * (outputs + 1)
        for n in range(outputs - 1, -1, -1):
            ready = kind_input + n - 1 if n else 0
            best = self.generate(kind_input, n, ready)
            if self.instance.policy.preemption:
                best = min(best, self.generate(kind_input, n, 0))
            tail[n] = best + tail[n + 1]
        return tail

    def __call__(self, node: Node) -> int:
        """Least work from `node` on."""
        kind_input = self.instance.types[node.kind].input_tokens
        n = node.generated
        best = self.generate(kind_input, n, node.cached)
        if node.cached and self.instance.policy.preemption:
            best = min(best, self.generate(kind_input, n, 0))
        return best + self.tails[node.kind][n + 1]


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
        policy = self.instance.policy
        groups: list[tuple[tuple[int, int], int]] = []
        for key in classes:
            if groups and groups[-1][0] == key:
                groups[-1] = (key, groups[-1][1] + 1)
            else:
                groups.append((key, 1))
        first = [g for g in groups if g[0][1] == 0]
        later = [g for g in groups if g[0][1] > 0]
        if policy.preemption:
            cheapest = min(self.d0, self.p0)
            if first:
                yield from self._maximal(groups, groups, self.alpha + self.p0)
            if later and (not first or self.d0 < self.p0):
                yield from self._maximal(groups, later, self.alpha + cheapest)
        else:
            if first and later and policy.hybrid_batching:
                yield from self._maximal(groups, groups, self.alpha + self.p0 + self.d0)
            if first:
                yield from self._maximal(groups, first, self.alpha + self.p0)
            if later:
                yield from self._maximal(groups, later, self.alpha + self.d0)

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


class Rates:
    """The objective as a cost per second spent in a state, scaled to integers.

    Every metric is an integral over time: the makespan of 1, the mean TTFT of the share of
    requests without a first token, the mean end-to-end latency of the share of unfinished ones,
    the mean TPOT of the sum of 1/(O-1) over requests between first and last token, divided by the
    number of requests with O > 1.  (Arrivals shift TTFT and latency by a constant.)

    Attributes
    ----------
    scale : int
        All rates are multiplied by it.
    makespan : int
    """

    def __init__(self, instance: Instance):
        objective = instance.objective
        requests = len(instance.requests)
        several = sum(1 for r in instance.requests if r.output_tokens > 1)
        ttft = objective.weight(Metric.MEAN_TTFT) / requests
        e2e = objective.weight(Metric.MEAN_E2E) / requests
        tpot = objective.weight(Metric.MEAN_TPOT) / several if several else objective.weight(
            Metric.MEAN_TPOT) * 0  # fmt: skip
        before, after = [], []
        for kind in instance.types:
            steps = kind.output_tokens - 1
            before.append(ttft + e2e)
            after.append(e2e + (tpot / steps if steps else 0))
        makespan = objective.weight(Metric.MAKESPAN)
        scale = 1
        for value in (makespan, *before, *after):
            scale *= (value * scale).denominator
        self.scale = scale
        self.makespan = int(makespan * scale)
        self.before = [int(value * scale) for value in before]
        self.after = [int(value * scale) for value in after]
        self.shift = sum(
            (kind.arrival * len(kind.members) * (ttft + e2e) for kind in instance.types),
            start=makespan * 0,
        )
        self.per_request = any(self.before) or any(self.after)

    def of(self, node: Node) -> int:
        """Rate of one request in `node`."""
        return self.after[node.kind] if node.generated else self.before[node.kind]


class Heuristic:
    """Lower estimate of the scaled cost from a state on.

    The makespan part is `Work` plus `BatchOverhead`.  The per-request part lets every request run
    alone: in any schedule it takes part in at least those batches, each costing at least that.

    Parameters
    ----------
    space : Space
    rates : Rates
    pieces : sequence of int
        Affine pieces of the batch time to use.
    budget : int
        Relaxed batches that `BatchOverhead` may try, per piece.
    """

    def __init__(self, space: Space, rates: Rates, pieces: Sequence[int], budget: int):
        self.space = space
        self.rates = rates
        instance = space.instance
        ticks = instance.cost.ticks
        self.pieces: list[tuple[Work, BatchOverhead, list[int], list[int]]] = []
        for k in pieces:
            work = Work(instance, ticks, ticks.beta[k], space.relaxed)
            self.pieces.append((work, BatchOverhead(space, ticks, ticks.alpha[k], budget), [], []))

    def __call__(self, state: State) -> int:
        """Least scaled cost from `state` on, whatever the time."""
        return max(self.piece(k, state) for k in range(len(self.pieces)))

    def piece(self, k: int, state: State) -> int:
        """The same for the k-th of the given pieces."""
        nodes, rates = self.space.nodes, self.rates
        work, overhead, works, alone = self.pieces[k]
        while len(works) < len(nodes):
            node = nodes[len(works)]
            works.append(work(node))
            alone.append(self._alone(node, work, overhead.alpha) if rates.per_request else 0)
        value = 0
        if rates.makespan and state:
            value = rates.makespan * (sum([works[i] for i in state]) + overhead(state))
        if rates.per_request:
            value += sum([alone[i] for i in state])
        return value

    def work(self, k: int, state: State) -> int:
        """Least work from a state on by the k-th piece, in ticks."""
        self.piece(k, state)  # fills the table for nodes met since
        works = self.pieces[k][2]
        return sum([works[i] for i in state])

    def through(self, k: int, state: State, pattern: Pattern) -> int:
        """Least overhead from a state on by the k-th piece, a batch of `pattern` first, in ticks."""
        return self.pieces[k][1].through(state, pattern)

    def price(self, k: int, number: int, move: Move) -> int:
        """Work of a move above the least: what it adds to cost plus estimate, in ticks."""
        work = self.pieces[k][0]
        ticks = self.space.instance.cost.ticks
        load = move.load
        paid = work.beta * load.tokens + ticks.d1 * load.decode_kv + ticks.p1 * load.work
        left = work(self.space.nodes[move.target]) if move.target != DONE else 0
        return int(paid + left - work(self.space.nodes[number]))

    def _alone(self, node: Node, work: Work, alpha: int) -> int:
        """Scaled cost of finishing one request alone, from its own rate only."""
        instance = self.space.instance
        ticks = instance.cost.ticks
        kind = instance.types[node.kind]
        budget = instance.system.prefill_budget

        def step(n: int, cached: int) -> int:
            """Least time to the next token from `cached` tokens without evicting."""
            missing = kind.input_tokens + n - cached
            if n >= 1 and missing == 1:
                return int(alpha + ticks.d0 + work.generate(kind.input_tokens, n, cached))
            if cached and self.space.relaxed:
                # Anything up to the end of its cell may be cached already.
                missing = max(1, missing - self.space.steps[node.kind] + 1)
            # Even if the last token is a decode step, at least one batch prefills.
            overhead = -(-missing // budget) * alpha + ticks.p0
            return int(overhead + work.generate(kind.input_tokens, n, cached))

        def next_token(n: int, cached: int) -> int:
            best = step(n, cached)
            if cached and instance.policy.preemption:
                best = min(best, step(n, 0))
            return best

        total = next_token(node.generated, node.cached) * self.rates.of(node)
        for n in range(node.generated + 1, kind.output_tokens):
            later = Node(node.kind, n, kind.input_tokens + n - 1)
            total += next_token(n, later.cached) * self.rates.of(later)
        return total
