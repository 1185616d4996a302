"""Annealing of arcs over bins: when bins begin, and where clients change from one request to the next.

Nodes are moments, counted in decode rounds: 0 .. B-1 where the bins begin (the first at 0), B where the
last one ends.  Every client is a path of arcs from node 0 to node B.  An arc is room for one request that
starts in the bin of its first node and has at most as many output tokens as the arc has rounds.  Which
request takes which arc is left open: by Hall's theorem all have one if and only if, for every x, there are
as many arcs of x rounds or more as requests of x tokens or more.  ``spare[x]`` is the difference, and
tokens that miss are ``sum over x of max(0, -spare[x])``: what the longest requests exceed the longest arcs
by, the second longest those, and so on.  A step changes it in as many places as an arc gets longer; with 1319
requests one matching by networkx's `hopcroft_karp_matching` takes 5 s.

What is minimised is missing + weight * (rounds + prefill in rounds); prefill is taken from a table of how
many requests start in a bin, as if all had the average prompt.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["HELPERS", "Arcs", "anneal"]

#: Steps between changes of the temperature.
SAME = 1024
#: Share of the moves in which a client changes to its next request in another bin.
SHIFT = 0.4
#: Share of the moves in which a bin begins at another moment.
MOMENT = 0.15
#: Share of the moves in which a change of one client goes to another client.  The rest of the moves begin a
#: bin and all later ones at another moment.
RELOCATE = 0.445
#: Share of the moves to another bin that may go to any bin, not only to one nearby.
FAR = 0.1
#: Share of the moves to another moment that may be of up to `LONG` rounds.
JUMP = 0.2
#: Rounds of a long move of a bin.
LONG = 30


class Arcs(NamedTuple):
    """Paths of all clients.

    `time`: per node.  `source`, `target`: nodes per arc.  `into`, `out_of`: arcs per node, in no order;
    `entering`, `leaving`: how many; `at_target`, `at_source`: per arc, its place there.  `spare`: per
    number of rounds, up to the longest request.
    """

    time: Any
    source: Any
    target: Any
    into: Any
    out_of: Any
    entering: Any
    leaving: Any
    at_target: Any
    at_source: Any
    spare: Any


def stretch(spare: Any, before: Any, after: Any) -> Any:
    """Change the length of an arc; tokens that miss more than before."""
    most, more = len(spare) - 1, 0
    for x in range(before + 1, min(after, most) + 1):
        if spare[x] < 0:
            more -= 1
        spare[x] += 1
    for x in range(after + 1, min(before, most) + 1):
        spare[x] -= 1
        if spare[x] < 0:
            more += 1
    return more


def enter(arcs: Any, k: Any, node: Any) -> None:
    """Let arc k end at a node."""
    place = arcs.entering[node]
    arcs.target[k] = node
    arcs.at_target[k] = place
    arcs.into[node, place] = k
    arcs.entering[node] = place + 1


def unenter(arcs: Any, k: Any) -> None:
    """Take arc k from the node where it ends."""
    node, place = arcs.target[k], arcs.at_target[k]
    last = arcs.entering[node] - 1
    other = arcs.into[node, last]
    arcs.into[node, place] = other
    arcs.at_target[other] = place
    arcs.entering[node] = last


def leave(arcs: Any, k: Any, node: Any) -> None:
    """Let arc k begin at a node."""
    place = arcs.leaving[node]
    arcs.source[k] = node
    arcs.at_source[k] = place
    arcs.out_of[node, place] = k
    arcs.leaving[node] = place + 1


def unleave(arcs: Any, k: Any) -> None:
    """Take arc k from the node where it begins."""
    node, place = arcs.source[k], arcs.at_source[k]
    last = arcs.leaving[node] - 1
    other = arcs.out_of[node, last]
    arcs.out_of[node, place] = other
    arcs.at_source[other] = place
    arcs.leaving[node] = last


def move_node(arcs: Any, node: Any, rounds: Any) -> Any:
    """Let a bin begin so many rounds later; tokens that miss more than before."""
    more = 0
    for place in range(arcs.entering[node]):
        length = arcs.time[node] - arcs.time[arcs.source[arcs.into[node, place]]]
        more += stretch(arcs.spare, length, length + rounds)
    for place in range(arcs.leaving[node]):
        length = arcs.time[arcs.target[arcs.out_of[node, place]]] - arcs.time[node]
        more += stretch(arcs.spare, length, length - rounds)
    arcs.time[node] += rounds
    return more


def move_later(arcs: Any, node: Any, rounds: Any) -> Any:
    """Let a bin and all after it begin so many rounds later; tokens that miss more than before."""
    more = 0
    for k in range(len(arcs.source)):
        if arcs.source[k] < node <= arcs.target[k]:
            length = arcs.time[arcs.target[k]] - arcs.time[arcs.source[k]]
            more += stretch(arcs.spare, length, length + rounds)
    for later in range(node, len(arcs.time)):
        arcs.time[later] += rounds
    return more


def lengthen(arcs: Any, k: Any, source: Any, target: Any) -> Any:
    """Count arc k as one between other nodes; tokens that miss more than before."""
    time = arcs.time
    before = time[arcs.target[k]] - time[arcs.source[k]]
    return stretch(arcs.spare, before, time[target] - time[source])


def below(random: Any, limit: Any) -> Any:
    """A random whole number from 0 to limit - 1."""
    return min(int(random.random() * limit), limit - 1)


def anneal(
    arcs: Any, cost: Any, weight: Any, steps: Any, first: Any, total: Any, hot: Any, cold: Any, random: Any
) -> None:  # fmt: skip
    """Run steps `first` .. `first + steps - 1` of `total`, over which it cools down from `hot` to `cold`.

    Long on purpose: with the four moves as a function each the same steps take a tenth longer.

    Parameters
    ----------
    arcs : Arcs
        Updated.
    cost : array of float
        Prefill, in rounds, of 0, 1, .. requests that start together.
    weight : float
        Tokens that may miss for one round less.
    steps, first, total : int
    hot, cold : float
        Temperatures, in tokens that miss.
    random : numpy Generator
    """
    time, source, target = arcs.time, arcs.source, arcs.target
    end, n = len(time) - 1, len(source)
    temperature = hot
    for step in range(first, first + steps):
        if step % SAME == 0:
            temperature = hot * (cold / hot) ** (step / total)
        most = -temperature * math.log(1.0 - random.random())
        kind = random.random()
        if kind < SHIFT:
            # A client changes from j to k in another bin.
            k = below(random, n)
            node = source[k]
            if node == 0:
                continue
            j = arcs.into[node, below(random, arcs.entering[node])]
            a, b = source[j], target[k]
            if b - a < 3:
                continue
            if random.random() < FAR:
                other = a + 1 + below(random, b - a - 1)
            else:
                other = node + (1 + below(random, 3)) * (1 if random.random() < 0.5 else -1)
            if other == node or other <= a or other >= b:
                continue
            more = lengthen(arcs, j, a, other) + lengthen(arcs, k, other, b)
            here, there = arcs.leaving[node], arcs.leaving[other]
            rise = weight * (cost[here - 1] - cost[here] + cost[there + 1] - cost[there])
            if more + rise > most:
                stretch(arcs.spare, time[other] - time[a], time[node] - time[a])
                stretch(arcs.spare, time[b] - time[other], time[b] - time[node])
                continue
            unenter(arcs, j)
            unleave(arcs, k)
            enter(arcs, j, other)
            leave(arcs, k, other)
        elif kind < SHIFT + MOMENT:
            # A bin begins at another moment.
            node = 1 + below(random, end)
            rounds = 1 + below(random, LONG if random.random() < JUMP else 3)
            if random.random() < 0.5:
                rounds = -rounds
            if time[node] + rounds < time[node - 1] or (node < end and time[node] + rounds > time[node + 1]):
                continue
            more = move_node(arcs, node, rounds)
            if more + (weight * rounds if node == end else 0.0) > most:
                move_node(arcs, node, -rounds)
        elif kind < SHIFT + MOMENT + RELOCATE:
            # A client does not change from j to k in some bin, but both become one arc; another client
            # changes in the middle of its arc.
            k = below(random, n)
            node = source[k]
            if node == 0:
                continue
            j = arcs.into[node, below(random, arcs.entering[node])]
            other = below(random, n)
            if other in (j, k):
                continue
            a, b, c, d = source[j], target[k], source[other], target[other]
            if d - c < 2:
                continue
            middle = c + 1 + below(random, d - c - 1)
            more = lengthen(arcs, other, c, middle)
            more += lengthen(arcs, j, a, b) + lengthen(arcs, k, middle, d)
            rise = 0.0
            if middle != node:
                here, there = arcs.leaving[node], arcs.leaving[middle]
                rise = weight * (cost[here - 1] - cost[here] + cost[there + 1] - cost[there])
            if more + rise > most:
                stretch(arcs.spare, time[middle] - time[c], time[d] - time[c])
                stretch(arcs.spare, time[b] - time[a], time[node] - time[a])
                stretch(arcs.spare, time[d] - time[middle], time[b] - time[node])
                continue
            unenter(arcs, j)
            unenter(arcs, k)
            unenter(arcs, other)
            unleave(arcs, k)
            enter(arcs, j, b)
            enter(arcs, other, middle)
            leave(arcs, k, middle)
            enter(arcs, k, d)
        else:
            # A bin and all after it begin earlier or later.
            node = 1 + below(random, end)
            rounds = 1 + below(random, 3)
            if random.random() < 0.5:
                rounds = -rounds
            if time[node] + rounds < time[node - 1]:
                continue
            more = move_later(arcs, node, rounds)
            if more + weight * rounds > most:
                move_later(arcs, node, -rounds)


HELPERS = (
    stretch, enter, unenter, leave, unleave, move_node, move_later, lengthen, below,
)  # fmt: skip
"""What `anneal` calls, callees first."""
