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

from collections.abc import Sequence

from infermax_opt.infermax.data.cost import Coefficients
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.exact.batch_overhead import BatchOverhead
from infermax_opt.infermax.exact.moves import DONE, Node, NodeMove, Pattern, State
from infermax_opt.infermax.exact.objective_rates import Rates
from infermax_opt.infermax.exact.space import Space

__all__ = ["Estimate"]


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
        """Least work to generate token n + 1 without evicting.

        Parameters
        ----------
        kind_input : int
            Input tokens.
        n : int
            Tokens generated.
        cached : int
            Tokens cached.
        """
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


class Estimate:
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
        """Least overhead from a state on, in ticks.

        Parameters
        ----------
        k : int
            Which of the pieces.
        state : tuple of int
        pattern : list of Bucket
            Of the first batch.
        """
        return self.pieces[k][1].through(state, pattern)

    def price(self, k: int, number: int, move: NodeMove) -> int:
        """Work of a move above the least: what it adds to cost plus estimate, in ticks.

        Parameters
        ----------
        k : int
            Which of the pieces.
        number : int
            Node.
        move : NodeMove
            One of that node's.
        """
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
