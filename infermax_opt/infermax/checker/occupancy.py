"""Proof: occupancy, by prices and potentials on active requests and tokens."""

from __future__ import annotations

from itertools import accumulate
from operator import le
from typing import Any, NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.occupancy_pairs import Pairs, leave
from infermax_opt.infermax.checker.payments import Payments, payments
from infermax_opt.infermax.checker.pieces import FAR, Piece
from infermax_opt.infermax.checker.steps import Step, join_again, reach


class Occupancy:
    """Prices and potentials on the graph of active requests and tokens.

    See `infermax_opt.infermax.bounds.occupancy`.

    `young_tokens`: first tokens that are not looked at; `most`: active requests at most; `top`: the last list
    of potentials, which stands for `top` and more where `wide`; `ranges`: tokens that each list is for.
    """

    def __init__(self, instance: Instance, evidence: Field, piece: Piece):
        young, prices = evidence["young"].whole(0), evidence["prices"]
        kinds, self.young_tokens, self.young = instance.since(), young, young > 0
        self.old = [(i + min(young, o - 1), o - min(young, o - 1), c) for i, o, c in kinds]
        names = ("token", "size", "out_fixed", "out_size")
        self.token, self.size, *self.out = Field([prices[n].value for n in names], prices.path).integers()
        prompts, ends = sorted({i for i, _, _ in self.old}), sorted({i + o for i, o, _ in self.old})
        self.starts = dict(zip(prompts, prices["first"].integers(len(prompts)), strict=True))
        self.finishes = dict(zip(ends, prices["finish"].integers(len(ends)), strict=True))
        self.shortest, self.longest, self.capacity = prompts[0], ends[-1] - 1, instance.capacity
        price, outputs = prices["pairs"].whole(0) if "pairs" in prices else 0, max(o for _, o, _ in self.old)
        self.pairs = Pairs(price, self.shortest, prompts[-1], outputs)
        self.idle = self.token + self.size * self.shortest
        require(self.size >= 0 and self.idle >= 0, "prices: idling would earn")
        self.evictions = instance.preemption and self.longest > self.shortest
        self.late = self.evictions and instance.chunked
        self.plain, self.mixed, self.pure, self.rho = instance.presence(piece)
        self._read_potential(instance, evidence["potential"])
        #: Of each number of active requests, as they are checked.
        self.layers: list[Layers] = []

    def _read_potential(self, instance: Instance, given: Field) -> None:
        """A list for each number of active requests, from no tokens but the prompts up to a full memory."""
        lists, requests = given.items(), sum(c for *_, c in self.old)
        self.most = min(requests, self.capacity // self.shortest, instance.running or self.capacity)
        self.top, end = len(lists) - 1, self.longest + 1
        require(1 <= self.top <= self.most, "potential: wrong number of lists")
        self.wide = self.top < self.most
        lasts = [min(k * end, self.capacity + k) for k in range(self.top + 1)]
        if self.wide:
            lasts[-1] = self.capacity + self.most
        self.ranges = [(k * self.shortest, last) for k, last in enumerate(lasts)]
        rows = zip(self.ranges, lists, strict=True)
        found = [row.integers(last - first + 1, nulls=True) for (first, last), row in rows]
        self.potential = [[FAR if v is None else v for v in values] for values in found]
        require(self.potential[0][0] < FAR, "potential: the empty state has none")

    def last_of_several(self, k: int) -> bool:
        """Whether the list of k requests stands for more of them, too."""
        return self.wide and k == self.top

    def most_of(self, k: int) -> int:
        """Most requests that the list of k stands for."""
        return self.most if self.last_of_several(k) else k

    def waiting(self, k: int) -> int:
        """What it costs that one of k requests makes no token in a batch, at least."""
        return int(self.idle - self.pairs.price * (self.most_of(k) - 1))

    def earned_by(self, k: int) -> int:
        """What a batch of k requests earns, but for their tokens of KV, less what their pairs cost."""
        return int(max(self.token * k, self.token * self.most_of(k)) - self.pairs.all(k))


class Layers(NamedTuple):
    """Potentials of a number of active requests by tokens.

    `between`: between batches; `ready`: for a batch of decodes, those included who turn up by one, as they
    may where young tokens are left out; `mixed`: in a batch with decodes and prefills; `pure`: in one with
    prefills alone.
    """

    between: list[Any]
    ready: list[Any]
    mixed: list[Any]
    pure: list[Any]


def occupancy(instance: Instance, evidence: Field, piece: Piece) -> Payments:
    """No step of the graph earns more than it costs: a schedule costs what its requests earn, at least.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    return paid_in(Occupancy(instance, evidence, piece), instance, piece)


def paid_in(graph: Occupancy, instance: Instance, piece: Piece) -> Payments:
    """What each request pays, as no step of the graph earns more than it costs.

    Parameters
    ----------
    graph : Occupancy
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = instance.since()
    graph.layers = [Layers(graph.potential[0], graph.potential[0], [FAR], [FAR])]
    for k in range(1, graph.top + 1):
        graph.layers.append(joined(graph, k, graph.layers[-1], instance.work))
        instance.work.spend(6 * len(graph.potential[k]))
        check_batches(graph, k, graph.layers[k])
        check_leaves(graph, k, instance.work)
    earned = [
        graph.size * (i * o + o * (o - 1) // 2) + graph.token * o + graph.starts[i] + graph.finishes[i + o]
        for i, o, _ in graph.old
    ]
    return payments(instance, kinds, earned, piece)


def joined(graph: Occupancy, k: int, below: Layers, work: Work) -> Layers:
    """Least potentials of k requests in a batch that some turn up or return in.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    below : Layers
        Potentials of one request less.
    work : Work
        Counts the steps.
    """
    between, (mixed, pure) = graph.potential[k], returns(graph)
    starts: list[Step] = [(i, i, -pay, 0) for i, pay in graph.starts.items()]
    pure += [(i + 1, i + 1, pay - graph.token - graph.size * i, 0) for i, _, pay, _ in starts]
    ready = between
    if graph.young:
        ready = list(map(min, between, least_after(graph, k, below.ready, between, starts, work)))
    else:
        mixed += starts
    before = list(map(min, below.ready, below.mixed)), list(map(min, below.between, below.pure))
    return Layers(
        between,
        ready,
        least_after(graph, k, before[0], ready, mixed, work),
        least_after(graph, k, before[1], between, pure, work),
    )


def least_after(
    graph: Occupancy, k: int, below: list[Any], same: list[Any], joins: list[Step], work: Work
) -> list[Any]:
    """Least potentials of k requests after the last of them joined.

    A request joins fewer by one; in a last list for several numbers, those of that list, too.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    below : list[Any]
        Potentials of one request less, before that.
    same : list[Any]
        Those of k requests of which none joined by these steps.
    joins : list[Step]
        Requests that join.
    work : Work
        Counts the steps.
    """
    span, least = graph.ranges[k], [FAR] * len(same)
    for join in joins:
        least = list(map(min, least, reach(below, graph.ranges[k - 1], span, join, work)))
    if graph.last_of_several(k):
        join_again(same, least, span[0], joins, work)
    return least


def returns(graph: Occupancy) -> tuple[list[Step], list[Step]]:
    """Returns of evicted requests into a batch with decodes, and into one without.

    With chunked prefill, late ones, too, that make no token in it.
    """
    if not graph.evictions:
        return [], []
    token, size, (fixed, slope) = graph.token, graph.size, graph.out
    low, high, back, each = graph.shortest + 1, graph.longest, -graph.rho - fixed, graph.rho - slope
    mixed: list[Step] = [(low, high, back, each)]
    pure: list[Step] = [(low + 1, high + 1, back - each - token + size, each - size)]
    if graph.late:
        mixed.append((low - 1, high - 1, back + each + token, each + size))
        pure.append((low, high, back, each))
    return mixed, pure


def check_batches(graph: Occupancy, k: int, layers: Layers) -> None:
    """Neither idling nor a batch of k requests earns: one that makes a token of each, or prompts alone.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    layers : Layers
    """
    (first, last), row = graph.ranges[k], layers.between
    require(all(map(le, row, [v + graph.pure for v in layers.pure])), "potential: a prefill batch earns")
    require(all(map(le, row, [v + graph.waiting(k) for v in row[1:]])), "potential: idling earns")
    earned = graph.earned_by(k)
    fitting = zip(range(first, min(last, graph.capacity) + 1), layers.ready, layers.mixed, strict=False)
    after = [min(p + graph.plain, a + graph.mixed) - earned - graph.size * u for u, p, a in fitting]
    if graph.last_of_several(k):  # more than k requests grow by more
        after = list(accumulate(after, min))
        after += after[-1:] * (last - first + 1 - len(after))
    require(all(map(le, row[k:], after)), "potential: a batch earns")


def check_leaves(graph: Occupancy, k: int, work: Work) -> None:
    """Neither a finish nor an eviction earns.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    work : Work
        Counts the steps.
    """
    leaves: list[Step] = [(end, end, -pay, 0) for end, pay in graph.finishes.items()]
    if graph.evictions:
        leaves.append((graph.shortest + 1, graph.longest, *graph.out))
    for number in (k - 1, k) if graph.last_of_several(k) else (k - 1,):
        others = graph.pairs.others(number, graph.most_of(k) - 1, False)
        for step in leaves:
            reached = leave(graph.potential[k], graph.ranges[k], graph.ranges[number], step, others, work)
            require(
                all(map(le, graph.potential[number], reached)), "potential: finishing or an eviction earns"
            )
