"""Proof: potentials in the graph of occupancy are costs of its first batches, or lower ones.

These are bounded at prices of memory.  See `infermax_opt.infermax.bounds.occupancy`, *Prices of memory*.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.occupancy import Occupancy
from infermax_opt.infermax.checker.pieces import FAR


def priced_start(graph: Occupancy, instance: Instance, given: Field) -> int:
    """Units that a walk costs at least, as its first batches cost what their prices say or more.

    Parameters
    ----------
    graph : Occupancy
    instance : Instance
    given : Field
        Prices of memory.
    """
    kv = given["kv"].integers()
    active, size = Field([given[name].value for name in ("active", "size")], given.path).integers()
    kinds = instance.since()
    area = sum(c * (i * o + o * (o - 1) // 2) for i, o, c in kinds)
    fewest = max(max(o for _, o, _ in kinds), -(-area // graph.capacity))
    require(1 <= len(kv) <= fewest, "memory: there may be fewer batches")
    require(min(kv) >= 0, "memory: a price of KV is below 0")
    require(not graph.wide or active >= 0, "memory: more active requests than lists would cost less")
    work = Work()  # as long as a proof of its own
    fixed = len(kv) * min(graph.plain, graph.pure) - graph.capacity * sum(kv)
    for inputs, outputs, count in graph.old:
        work.spend(12 * len(kv) * outputs)
        fixed += count * min(0, cheapest_life(graph, inputs, outputs, kv, (active, size)))
    for k, ((first, _), row) in enumerate(zip(graph.ranges, graph.potential, strict=True)):
        several = graph.last_of_several(k)
        costs = (
            v - size * u - graph.pairs.least(k, u, len(kv), several)
            for u, v in enumerate(row, first)
            if v != FAR
        )
        # No step leads to a state that has no potential.
        require(max(costs, default=fixed) <= fixed + active * k, "potential: the first batches cost less")
    return int(graph.potential[0][0])


def cheapest_life(graph: Occupancy, inputs: int, outputs: int, kv: list[int], after: tuple[int, int]) -> int:
    """Units that a request costs at least that makes a token in the first batches, less what it earns.

    Parameters
    ----------
    graph : Occupancy
    inputs, outputs : int
        Its tokens, those that are not looked at in the prompt.
    kv : list of int
        Price of a token of KV in each batch.
    after : (int, int)
        What an active request counts after them, and what each of its tokens does.
    """
    young, every = graph.young_tokens if outputs > 1 else 0, range(inputs, inputs + outputs)
    pays_first, pays_finish = graph.starts[inputs], graph.finishes[inputs + outputs]
    # Costs from here on, by tokens made, of an active request and of one that is away.
    inside: list[Any] = [-after[0] - after[1] * size for size in every] + [-pays_finish]
    outside: list[Any] = [0] * outputs
    least: Any = FAR
    for t in range(len(kv) - 1, young - 1, -1):
        price, most = kv[t], min(outputs, t + 1 - young)
        sizes, each = every[:most], price - graph.size
        token = [v - graph.token + each * s for v, s in zip(inside[1:], sizes, strict=False)]
        least = min(least, token[0] - pays_first)
        idle = [v + price * (s - 1) for v, s in zip(inside, sizes, strict=False)]
        makes = list(map(min, token, idle))
        if graph.evictions:
            back = returning(graph, sizes, makes if graph.late else token)
            outside[1:most] = map(min, outside[1:most], back[1:])
            fixed, slope = graph.out
            leaves = [v + fixed + slope * s for v, s in zip(outside, sizes, strict=False)]
            makes = list(map(min, makes, leaves))
        inside[1:most] = makes[1:]
    return int(least) if least < FAR else 0


def returning(graph: Occupancy, sizes: range, costs: list[Any]) -> list[Any]:
    """What it costs to return with such sizes and go on from there.

    Parameters
    ----------
    graph : Occupancy
    sizes : range
    costs : list
        Of what follows.
    """
    fixed, each = -graph.rho - graph.out[0], graph.rho - graph.out[1]
    return [v + fixed + each * s for v, s in zip(costs, sizes, strict=True)]
