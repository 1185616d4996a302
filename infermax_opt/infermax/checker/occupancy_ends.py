"""Proof: what the first and the last batches cost in the graph of occupancy, one by one."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.occupancy import Occupancy, paid_in
from infermax_opt.infermax.checker.occupancy_knots import KnotBatches
from infermax_opt.infermax.checker.occupancy_pairs import leave
from infermax_opt.infermax.checker.occupancy_prices import priced_start
from infermax_opt.infermax.checker.occupancy_start import FirstBatches
from infermax_opt.infermax.checker.pieces import FAR, Piece
from infermax_opt.infermax.checker.steps import Step, reach

#: Fewest and most tokens of some number of active requests.
Span = tuple[int, int]


def occupancy_makespan(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Seconds that all requests pay, and what the walk costs beside that.

    See `infermax_opt.infermax.bounds.occupancy`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    graph = Occupancy(instance, evidence, piece)
    paid = sum((pay * c for pay, c in paid_in(graph, instance, piece)), Fraction(0))
    if "memory" in evidence:
        require("ends" not in evidence, "memory: the first batches are followed in two ways")
        paid += priced_start(graph, instance, evidence["memory"]) / piece.unit
    if "ends" in evidence:
        first, last = (number.whole(0) for number in evidence["ends"].items(2))
        spacing = evidence["knots"].whole(1) if "knots" in evidence else 0
        paid += walked_ends(graph, instance, (first, last), spacing) / piece.unit
    return paid / instance.scale


def walked_ends(graph: Occupancy, instance: Instance, batches: tuple[int, int], spacing: int) -> Fraction:
    """Units that a walk costs at least, batch by batch at its beginning and its end.

    Parameters
    ----------
    graph : Occupancy
    instance : Instance
    batches : (int, int)
        Those at the beginning, those before any token is looked at left out, and those at the end.
    spacing : int
        Tokens between knots at which the first batches are followed; 0 where all states are.
    """
    (first, last), kinds, work = batches, instance.since(), Work()  # each part as long as a proof of its own
    shortest, longest = (some(o for _, o, _ in kinds) for some in (min, max))
    young = min(graph.young_tokens, shortest - 1)
    area = sum(c * (i * o + o * (o - 1) // 2) for i, o, c in kinds)
    require(not graph.wide, "ends: the last list stands for several numbers of requests")
    require(first <= shortest - young, "ends: a request may finish in the first batches")
    require(last < min(o for _, o, _ in graph.old), "ends: a request may start in the last batches")
    fewest = max(longest, -(-area // graph.capacity))
    require(young + first + last <= fewest, "ends: there may be fewer batches")
    begin = KnotBatches(graph, spacing) if spacing else FirstBatches(graph, graph.layers, Work())
    begin.follow(first, young * min(graph.plain, graph.pure))
    smallest, largest = min(graph.finishes), max(graph.finishes)
    sizes = [(smallest - left, largest) for left in range(last, -1, -1)]
    rows = pass_batches(graph, cut_potentials(graph, sizes[0]), sizes, False, work)
    leave_memory(graph, rows, token_spans(graph, *sizes[-1]), leaving(graph, [], True), work)
    require(rows[0][0] < FAR, "ends: no walk is known")
    return Fraction(rows[0][0])


def cut_potentials(graph: Occupancy, sizes: Span) -> list[list[Any]]:
    """Potentials of those states in which active requests have some sizes.

    Parameters
    ----------
    graph : Occupancy
    sizes : (int, int)
        Least and largest.
    """
    lows = [low for low, _ in graph.ranges]
    spans = enumerate(token_spans(graph, *sizes))
    return [graph.potential[k][low - lows[k] : high - lows[k] + 1] for k, (low, high) in spans]


def token_spans(graph: Occupancy, least: int, most: int, more: int = 0) -> list[Span]:
    """Tokens of each number of requests of these sizes that are in memory between batches.

    Parameters
    ----------
    graph : Occupancy
    least, most : int
        Sizes.
    more : int
        Tokens that may be there beside them.
    """
    found = [(k * least, min(k * most, graph.capacity + k + more)) for k in range(graph.most + 1)]
    return [(low, high) for low, high in found if low <= high]


def pass_batches(
    graph: Occupancy, rows: list[list[Any]], sizes: list[Span], begins: bool, work: Work
) -> list[list[Any]]:
    """Least costs after some batches, by active requests and tokens.

    Parameters
    ----------
    graph : Occupancy
    rows : list of list
        Those before, changed.
    sizes : list of (int, int)
        Least and largest size of an active request before each batch, and after the last.
    begins : bool
        Whether requests may start, but none may finish; else none may start.
    work : Work
        Counts the steps.
    """
    for (least, most), (later, grown) in pairwise(sizes):
        held, wide = token_spans(graph, least, most), token_spans(graph, least, grown, 1)
        begin, end = max(least, graph.shortest + 1), min(most, graph.longest)
        evicted: list[Step] = [(begin, end, *graph.out)] if graph.evictions and begin <= end else []
        leave_memory(graph, rows, held, leaving(graph, evicted, not begins), work)
        rows = [idling(graph, k, row, work) for k, row in enumerate(rows)]
        starts = started(graph, begins)
        if graph.young:
            rows = list(map(lower, rows, join(graph, rows, held, (starts, 0), work)))
        mixed, alone = coming(graph, starts, evicted)
        returns = len(evicted) if graph.late else 0
        before = [row + [FAR] * (b - a + 1 - len(row)) for row, (a, b) in zip(rows, wide, strict=False)]
        decoding = join(graph, rows, held, (mixed, returns), work)
        pure = join(graph, before, wide, (alone, returns), work)
        spans = zip(held, token_spans(graph, later, grown), strict=False)
        layers = zip(rows, decoding, map(lower, before, pure), strict=True)
        rows = [pass_one(graph, k, *both, work) for k, both in enumerate(zip(layers, spans, strict=False))]
    return rows


def leaving(graph: Occupancy, evicted: list[Step], finish: bool) -> list[Step]:
    """Evictions, and finishes if there may be any.

    Parameters
    ----------
    graph : Occupancy
    evicted : list of Step
    finish : bool
    """
    return evicted + [(end, end, -pay, 0) for end, pay in graph.finishes.items() if finish]


def leave_memory(
    graph: Occupancy, rows: list[list[Any]], held: list[Span], leaves: list[Step], work: Work
) -> None:
    """Lower the costs by finishes and evictions, of the largest numbers of requests first.

    Parameters
    ----------
    graph : Occupancy
    rows : list of list
    held : list of (int, int)
        Tokens that the rows are for.
    leaves : list of Step
    work : Work
        Counts the steps.
    """
    for k in range(len(rows) - 1, 0, -1):
        for some in leaves:
            reached = leave(rows[k], held[k], held[k - 1], some, graph.pairs.others(k - 1, k - 1, True), work)
            rows[k - 1] = list(map(min, rows[k - 1], reached))


def idling(graph: Occupancy, k: int, row: list[Any], work: Work) -> list[Any]:
    """Least costs if some make no token in the next batch.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    row : list
        Costs by tokens.
    work : Work
        Counts the steps.
    """
    work.spend(2 * len(row))
    last, each = len(row) - 1, graph.waiting(k)
    least = accumulate([row[last - x] - x * each for x in range(last + 1)], min)
    return [value + x * each for x, value in enumerate(least)][::-1]


def join(
    graph: Occupancy, before: list[list[Any]], held: list[Span], joins: tuple[list[Step], int], work: Work
) -> list[list[Any]]:
    """Least costs in a batch into which some requests came.

    Who returns and makes no token counts as one that makes one and is idle, which costs no more.

    Parameters
    ----------
    graph : Occupancy
    before : list of list
        Costs without any of them, by active requests and tokens.
    held : list of (int, int)
        Tokens that the rows are for.
    joins : (list of Step, int)
        How many of them, the first ones, may make no token.
    work : Work
        Counts the steps.
    """
    steps, late = joins
    rows = [[FAR] * len(row) for row in before]
    for k in range(1, len(rows)):
        source = lower(before[k - 1], rows[k - 1])
        for number, some in enumerate(steps):
            rows[k] = lower(rows[k], reach(source, held[k - 1], held[k], some, work))
            if number < late:
                rows[k] = idling(graph, k, rows[k], work)
    return rows


def lower(one: list[Any], other: list[Any]) -> list[Any]:
    """The lower of two costs, state by state."""
    return list(map(min, one, other))


def started(graph: Occupancy, begins: bool) -> list[Step]:
    """First tokens, if there may be any.

    Parameters
    ----------
    graph : Occupancy
    begins : bool
    """
    return [(i, i, -pay, 0) for i, pay in graph.starts.items()] if begins else []


def coming(graph: Occupancy, starts: list[Step], evicted: list[Step]) -> tuple[list[Step], list[Step]]:
    """Requests that come into a batch with decodes, and into one without: returns before first tokens.

    Parameters
    ----------
    graph : Occupancy
    starts : list of Step
        First tokens.
    evicted : list of Step
        Evictions of those that return.
    """
    token, size = graph.token, graph.size
    mixed: list[Step] = []
    pure: list[Step] = []
    for low, high, fixed, slope in evicted:
        back, each = -graph.rho - fixed, graph.rho - slope
        mixed.append((low, high, back, each))
        pure.append((low + 1, high + 1, back - each - token + size, each - size))
    mixed += [] if graph.young else starts
    pure += [(i + 1, i + 1, pay - token - size * i, 0) for i, _, pay, _ in starts]
    return mixed, pure


def pass_one(
    graph: Occupancy, k: int, layers: tuple[list[Any], ...], spans: tuple[Span, Span], work: Work
) -> list[Any]:
    """Least costs of k requests after a batch.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    layers : three lists
        Costs before it, if it decodes only, if it prefills besides, and if it does not decode.
    spans : two pairs
        Tokens that the first two are for, the third begins with the same; and those of the result.
    work : Work
        Counts the steps.
    """
    ((first, last), (begin, end)), (plain, mixed, pure) = spans, layers
    work.spend(6 * (last - first + 1))
    row = [value + graph.pure for value in pure[begin - first : end - first + 1]]
    fitting = zip(range(first, min(last, end - k, graph.capacity) + 1), plain, mixed, strict=False)
    earned = graph.earned_by(k)
    made = [min(p + graph.plain, m + graph.mixed) - earned - graph.size * u for u, p, m in fitting]
    at = first + k - begin
    row[at : at + len(made)] = map(min, row[at : at + len(made)], made)
    return row
