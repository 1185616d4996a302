"""The state space of the search: multisets of request nodes, and the batches between them.

A *node* is the progress (type, n, m) of one unfinished request: n tokens generated, m cached.
Requests of one type are interchangeable, so a *state* is the sorted tuple of the nodes of all
unfinished requests.  A batch gives every request one *move*: idle, evict, or process c tokens.

With chunked prefill a long prompt has too many chunks to enumerate, so a space also comes in two
coarse variants, on a grid of `step` tokens per type:

*restricted*: chunks end at multiples of `step`, or complete the prefill.  Its schedules are
schedules; its bound bounds nothing.

*relaxed*: m is 0, or only known to lie in a cell [L, L + step - 1] with L = 1, step + 1, ..., and
every quantity is taken at its best: KV held(L), at least max(1, L' - L - step + 1) tokens for P, C
and for the attention work from cell L to L' (L' from m = 0).  Tokens are charged as L' - L, which
adds up to the true number over a prefill and to no more than it when the prefill is evicted; a
chunk that stays in its cell is charged nothing; so does "exact" attention, L'**2 - L**2.  At any
moment no more has been charged than was processed: charges come late, if at all.  Every schedule
maps to a path that costs no more, so the optimum is a lower bound, provided that lateness cannot
cost: batch times add up (one affine piece is used), nothing waits (no arrivals), and the objective
weighs a second no more later than earlier (no TPOT).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.exact.moves import (
    DONE,
    Bucket,
    Chunks,
    GroupMoves,
    Load,
    Node,
    NodeMove,
    Pattern,
    State,
)

__all__ = ["Space"]

#: Steps of an enumeration between two looks at the limits.
WATCH_EVERY = 4096


Priced = Callable[[int, NodeMove], int]


def _free(number: int, move: NodeMove) -> int:
    return 0


def _idle(partial: int) -> None:
    pass


@dataclass
class Space:
    """Nodes, moves and batches of an instance.

    Parameters
    ----------
    instance : Instance
    chunks : Chunks
    levels : int
        Cells that a prompt is divided into (restricted and relaxed spaces).
    price : callable
        Non-negative price of a move from a node: what it costs above the least (`Estimate`).
    budget : int or None
        Largest total price of a batch that can matter; None is no limit.
    watch : callable
        Told now and then how many partial batches are in memory; may raise to stop.

    Attributes
    ----------
    nodes : list of Node
        Node numbers are positions here; they are created when first met.
    """

    instance: Instance
    chunks: Chunks = Chunks.EXACT
    levels: int = 1
    price: Priced = _free
    budget: int | None = None
    watch: Callable[[int], None] = _idle
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers: dict[Node, int] = {}
        self._moves: dict[int, tuple[NodeMove, ...]] = {}
        self._options: dict[tuple[int, int], list[GroupMoves]] = {}
        self._buckets: dict[tuple[int, int], list[Bucket]] = {}
        self._steps_taken = 0
        self.kinds = self.instance.types
        self.relaxed = self.chunks is Chunks.RELAXED
        self.steps = [self._step(kind.input_tokens) for kind in self.kinds]

    def _step(self, prompt: int) -> int:
        """Grid of a prompt, in tokens: no chunk of it exceeds a batch."""
        if self.chunks is Chunks.EXACT:
            return 1
        return min(-(-prompt // self.levels), self.instance.system.prefill_budget)

    def number(self, node: Node) -> int:
        """Number of `node`, created if new."""
        known = self._numbers.get(node)
        if known is None:
            known = self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return known

    def start(self) -> State:
        """State with nothing done."""
        state: list[int] = []
        for kind, requests in enumerate(self.kinds):
            state += [self.number(Node(kind, 0, 0))] * len(requests.members)
        return tuple(sorted(state))

    def moves(self, number: int) -> tuple[NodeMove, ...]:
        """All moves of a node; idling comes first."""
        known = self._moves.get(number)
        if known is None:
            known = self._moves[number] = tuple(self._find_moves(number))
        return known

    def _find_moves(self, number: int) -> Iterator[NodeMove]:
        node = self.nodes[number]
        system, policy = self.instance.system, self.instance.policy
        kind, n, m = node
        held = system.held
        goal = self.kinds[kind].input_tokens + n
        yield NodeMove(number, 0, False, Load(held=held(m), running=int(m > 0)))
        if m > 0 and policy.preemption:
            yield NodeMove(self.number(Node(kind, n, 0)), 0, True, Load())
        if n >= 1 and goal - m == 1:
            load = Load(held(goal), 1, 0, 1, 1, m, 0, 0, 0)
            yield NodeMove(self._generated(kind, n), 1, False, load)
            return
        for end in self._chunk_ends(kind, n, m, goal):
            least = self._least_chunk(kind, m, end)
            if least > system.prefill_budget or held(end) > system.kv_capacity:
                break
            target = self._generated(kind, n) if end == goal else self.number(Node(kind, n, end))
            if self.relaxed and not self.instance.cost.exact_attention:
                work = least * least
            else:
                work = prefill_work(self.instance.cost.exact_attention, end - m, m)
            yield NodeMove(target, end - m, False, Load(held(end), 1, least, end - m, 0, 0, 1, work, m))

    def _chunk_ends(self, kind: int, n: int, m: int, goal: int) -> Iterator[int]:
        """Cached tokens that a chunk from m can end with, ascending."""
        if self.instance.policy.chunked_prefill:
            step = self.steps[kind]
            # A refill that stops one token short leaves a decode step: a cell of its own.
            ready = goal - 1 if n else goal
            offset = 1 if self.relaxed else 0
            first = offset if m < offset else m - (m - offset) % step + step
            yield from range(first, ready, step)
            if ready > m and ready < goal:
                yield ready
        yield goal

    def _least_chunk(self, kind: int, m: int, end: int) -> int:
        """Least tokens that take a request from the cell of m to the cell of `end`."""
        if self.relaxed and m > 0:
            return max(1, end - m - self.steps[kind] + 1)
        return end - m

    def _generated(self, kind: int, n: int) -> int:
        """Node after generating token n + 1."""
        request = self.kinds[kind]
        if n + 1 == request.output_tokens:
            return DONE
        return self.number(Node(kind, n + 1, request.input_tokens + n))

    def options(self, number: int, count: int) -> list[GroupMoves]:
        """Ways to move `count` requests of one node within the limits, cheapest price first."""
        key = (number, count)
        known = self._options.get(key)
        if known is None:
            priced = sorted(((self.price(number, move), move) for move in self.moves(number)), key=_by_price)
            known = list(self._combine(priced, count, 0, GroupMoves(0, (), Load(), ())))
            known.sort(key=_by_price)
            self._options[key] = known
        return known

    def _combine(
        self, moves: list[tuple[int, NodeMove]], count: int, first: int, chosen: GroupMoves
    ) -> Iterator[GroupMoves]:
        """Multisets of `count` moves from position `first` on, added to `chosen`."""
        if count == 0:
            yield chosen
            return
        self._step_taken()
        for position in range(first, len(moves)):
            price, move = moves[position]
            total = chosen.price + price
            if self.budget is not None and total > self.budget:
                return
            load = Load(*map(sum, zip(chosen.load, move.load, strict=True)))
            if not self._within(load):
                continue
            target = () if move.target == DONE else (move.target,)
            option = GroupMoves(total, chosen.targets + target, load, (*chosen.moves, move))
            yield from self._combine(moves, count - 1, position, option)

    def _step_taken(self) -> None:
        """Let `watch` look at the limits every so many steps of an enumeration."""
        self._steps_taken += 1
        if self._steps_taken % WATCH_EVERY == 0:
            self.watch(0)

    def _within(self, load: Load) -> bool:
        """Whether a load alone respects the limits of a batch."""
        system = self.instance.system
        return (
            load.held <= system.kv_capacity
            and load.limited + load.decodes <= system.max_batch_tokens
            and load.limited <= system.max_prefill_tokens
            and (system.max_running is None or load.running <= system.max_running)
            and (self.instance.policy.hybrid_batching or not load.decodes or not load.prefills)
        )

    @staticmethod
    def groups(state: State) -> list[tuple[int, int]]:
        """(node, count) pairs of a state, in order."""
        pairs: list[tuple[int, int]] = []
        for number in state:
            if pairs and pairs[-1][0] == number:
                pairs[-1] = (number, pairs[-1][1] + 1)
            else:
                pairs.append((number, 1))
        return pairs

    def buckets(self, number: int, count: int) -> list[Bucket]:
        """The options of a group by `Bucket`, cheapest first."""
        key = (number, count)
        known = self._buckets.get(key)
        if known is None:
            sorted_in: dict[tuple[int, bool, bool], list[GroupMoves]] = {}
            for option in self.options(number, count):
                generates = sum(self._generates(number, move) for move in option.moves)
                phases = (option.load.decodes > 0, option.load.prefills > 0)
                sorted_in.setdefault((generates, *phases), []).append(option)
            known = self._buckets[key] = [
                Bucket(
                    *shared,
                    min(o.load.held for o in options),
                    min(o.load.limited for o in options),
                    options,
                )
                for shared, options in sorted_in.items()
            ]
        return known

    def _generates(self, number: int, move: NodeMove) -> bool:
        if move.target == DONE:
            return True
        return self.nodes[move.target].generated > self.nodes[number].generated

    def patterns(self, state: State) -> Iterator[Pattern]:
        """Every pattern of a batch in `state` that the limits may allow, whoever has arrived."""
        system = self.instance.system
        hybrid = self.instance.policy.hybrid_batching
        groups = [self.buckets(number, count) for number, count in self.groups(state)]

        def choose(
            group: int, chosen: Pattern, held: int, limited: int, phases: tuple[bool, bool]
        ) -> Iterator[Pattern]:
            self._step_taken()
            if group == len(groups):
                yield chosen
                return
            for bucket in groups[group]:
                decodes, prefills = phases[0] or bucket.decodes, phases[1] or bucket.prefills
                if decodes and prefills and not hybrid:
                    continue
                more_held, more_limited = held + bucket.held, limited + bucket.limited
                if more_held > system.kv_capacity or more_limited > system.max_prefill_tokens:
                    continue
                yield from choose(group + 1, [*chosen, bucket], more_held, more_limited, (decodes, prefills))

        return choose(0, [], 0, 0, (False, False))

    def batches(
        self, pattern: Pattern, requests: int, slack: int | None
    ) -> list[tuple[int, tuple[int, ...], Load]]:
        """Every batch of a pattern within the limits: price, targets (unsorted) and load.

        Parameters
        ----------
        pattern : list of Bucket
        requests : int
            Unfinished requests.
        slack : int or None
            Largest total price of interest.
        """
        system = self.instance.system
        max_held, max_tokens = system.kv_capacity, system.max_batch_tokens
        max_prefill = system.max_prefill_tokens
        max_running = requests if system.max_running is None else system.max_running
        grown: list[tuple[int, tuple[int, ...], Load]] = [(0, (), Load())]
        for bucket in pattern:
            partial, grown = grown, []
            for price, targets, (a0, a1, a2, a3, a4, a5, a6, a7, a8) in partial:
                rest = None if slack is None else slack - price
                for more, new, (b0, b1, b2, b3, b4, b5, b6, b7, b8), _ in bucket.options:
                    if rest is not None and more > rest:
                        break
                    held, running, limited, decodes = a0 + b0, a1 + b1, a2 + b2, a4 + b4
                    if held > max_held or running > max_running or limited > max_prefill:
                        continue
                    if limited + decodes > max_tokens:
                        continue
                    rest_of_it = a5 + b5, a6 + b6, a7 + b7, a8 + b8
                    load = Load(held, running, limited, a3 + b3, decodes, *rest_of_it)
                    grown.append((price + more, targets + new, load))
                if len(grown) > WATCH_EVERY:
                    self.watch(len(grown))
        return grown

    def find_batch(self, state: State, child: State, load: Load) -> list[tuple[NodeMove, ...]]:
        """Moves per group (in the order of `groups`) of a batch from `state` to `child`.

        Parameters
        ----------
        state, child : tuple of int
        load : Load
            Of the batch, all moves together.

        Raises
        ------
        LookupError
            If there is no such batch.
        """
        options = [self.options(number, count) for number, count in self.groups(state)]

        def search(group: int, left: Counter[int], rest: Load) -> list[tuple[NodeMove, ...]] | None:
            if group == len(options):
                return [] if not any(rest) and not any(left.values()) else None
            for option in options[group]:
                after = Load(*(a - b for a, b in zip(rest, option.load, strict=True)))
                need = Counter(option.targets)
                if after.tokens < 0 or after.held < 0 or any(left[t] < k for t, k in need.items()):
                    continue
                found = search(group + 1, left - need, after)
                if found is not None:
                    return [option.moves, *found]
            return None

        found = search(0, Counter(child), load)
        if found is None:
            raise LookupError("no such batch")
        return found


def _by_price(item: tuple[int, object] | GroupMoves) -> int:
    return item[0]
