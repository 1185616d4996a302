"""The children of a beam of nodes, one batch later; see `infermax_opt.infermax.planners.counts.planner`.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.planners.children import keep

__all__ = ["HELPERS", "MOVE", "Nodes", "Steps", "expand"]

#: A move: tokens made and number of the requests evicted, for two kinds; the same of those that return; and
#: how many fresh ones start.
MOVE = 9


class Steps(NamedTuple):
    """The instance and the guide, as columns and numbers.

    `inputs`, `outputs`: tokens of a request; `capacity`, `tokens`, `prefill`: M, C and P; `pool`: evicted
    requests from which on no fresh one starts; `returns`: most that return in a batch.  The rest is as in
    `OccupancyGuide`.
    """

    inputs: Any
    outputs: Any
    capacity: Any
    tokens: Any
    prefill: Any
    pool: Any
    returns: Any
    between: Any
    admitted: Any
    mixed: Any
    token: Any
    size: Any
    out_fixed: Any
    out_size: Any
    back_fixed: Any
    back_size: Any
    first: Any
    finish: Any


class Nodes(NamedTuple):
    """Nodes between two batches, best first.

    `held`, `evicted`: tables of the number of active and of evicted requests, by tokens made; `fresh`: column
    of those without a token; `value`: column of what walks cost beyond their potential.
    """

    held: Any
    evicted: Any
    fresh: Any
    value: Any


def run(steps: Any, node: Any, children: Any, move: Any, k: Any, held: Any, ending: Any, value: Any) -> None:
    """Keep the child after a batch of k requests that hold so much after it, of which so many end."""
    left, after = k - ending, held + k - ending * (steps.inputs + steps.outputs)
    if left >= steps.between.shape[0] or after >= steps.between.shape[1]:
        return
    value -= steps.token * k + steps.size * held + steps.finish * ending + steps.between[left, after]
    keep(node, children, move, value)


def start(
    steps: Any, fresh: Any, node: Any, children: Any, move: Any,
    k: Any, held: Any, ending: Any, work: Any, value: Any, before: Any,
) -> None:  # fmt: skip
    """Start any number of fresh requests beside what is in the batch; `before` is its potential."""
    decodes = k - (move[5] + move[7])
    number = 0
    while True:
        if work > 0:
            move[8] = number
            run(steps, node, children, move, k, held, ending, value + before + steps.mixed)
        number += 1
        k, held, work = k + 1, held + steps.inputs, work + steps.inputs
        if (
            number > fresh or held > steps.capacity or k >= steps.admitted.shape[0]
            or work > steps.prefill or decodes + work > steps.tokens
        ):  # fmt: skip
            break
        after = steps.admitted[k, held]
        value += before - steps.first - after
        before = after
        if not value < children.cut[0]:
            break
    move[8] = 0


def refill(
    steps: Any, evicted: Any, fresh: Any, node: Any, children: Any, move: Any,
    k: Any, held: Any, ending: Any, value: Any,
) -> None:  # fmt: skip
    """Try what to put into the batch beside those that stay: up to two kinds of evicted requests.

    Long on purpose: both kinds are gone through by the same few lines, with what the first ones left.
    """
    if held > steps.capacity:
        return
    before = steps.between[k, held]
    if 0 < k <= steps.tokens:
        run(steps, node, children, move, k, held, ending, value + before + 1.0)
    start(steps, fresh, node, children, move, k, held, ending, 0, value, before)
    rows, last = steps.admitted.shape[0], steps.outputs - 1
    for one in range(last, 0, -1):
        s = steps.inputs + one
        k1, held1, work1, value1, before1 = k, held, 0, value, before
        for times in range(1, min(steps.returns, evicted[one]) + 1):
            k1, held1, work1 = k1 + 1, held1 + s, work1 + s
            if held1 > steps.capacity or k1 >= rows or work1 > steps.prefill or k + work1 > steps.tokens:
                break
            after = steps.admitted[k1, held1]
            value1 += before1 + steps.back_fixed + steps.back_size * s - after
            before1 = after
            if not value1 < children.cut[0]:
                break
            ending1 = ending + times if one == last else ending
            move[4], move[5] = one, times
            start(steps, fresh, node, children, move, k1, held1, ending1, work1, value1, before1)
            for other in range(one - 1, 0, -1):
                t = steps.inputs + other
                k2, held2, work2, value2, before2 = k1, held1, work1, value1, before1
                for more in range(1, min(steps.returns - times, evicted[other]) + 1):
                    k2, held2, work2 = k2 + 1, held2 + t, work2 + t
                    if (
                        held2 > steps.capacity or k2 >= rows or work2 > steps.prefill
                        or k + work2 > steps.tokens
                    ):  # fmt: skip
                        break
                    after = steps.admitted[k2, held2]
                    value2 += before2 + steps.back_fixed + steps.back_size * t - after
                    before2 = after
                    if not value2 < children.cut[0]:
                        break
                    move[6], move[7] = other, more
                    start(steps, fresh, node, children, move, k2, held2, ending1, work2, value2, before2)
                move[6] = move[7] = 0
        move[4] = move[5] = 0


def expand(steps: Any, nodes: Any, begin: Any, children: Any, move: Any) -> Any:
    """Find the children below the cut, of the nodes from `begin` on, until half of the room is taken.

    Every step costs at least what the potential grows by, so that nothing is below the cut after a step that
    is not.  Long on purpose: as `refill`, for up to two kinds of requests that are evicted.

    Returns
    -------
    int
        The first node that was left out.  Children of a node for which there is no room are lost.
    """
    last = steps.outputs - 1
    for node in range(begin, len(nodes.value)):
        if 2 * children.found[0] > len(children.value) or not nodes.value[node] < children.cut[0]:
            return node
        k = held = pool = 0
        for made in range(1, steps.outputs):
            k += nodes.held[node, made]
            held += nodes.held[node, made] * (steps.inputs + made)
            pool += nodes.evicted[node, made]
        if k >= steps.between.shape[0] or held >= steps.between.shape[1]:
            continue
        evicted = nodes.evicted[node]
        fresh = nodes.fresh[node] if pool < steps.pool else 0
        value, ending = nodes.value[node], nodes.held[node, last]
        refill(steps, evicted, fresh, node, children, move, k, held, ending, value)
        for one in range(last, 0, -1):
            s = steps.inputs + one
            k1, held1, value1 = k, held, value
            for times in range(1, nodes.held[node, one] + 1):
                value1 += steps.between[k1, held1] + steps.out_fixed + steps.out_size * s
                k1, held1 = k1 - 1, held1 - s
                value1 -= steps.between[k1, held1]
                if not value1 < children.cut[0]:
                    break
                ending1 = ending - times if one == last else ending
                move[0], move[1] = one, times
                refill(steps, evicted, fresh, node, children, move, k1, held1, ending1, value1)
                for other in range(one - 1, 0, -1):
                    t = steps.inputs + other
                    k2, held2, value2 = k1, held1, value1
                    for more in range(1, nodes.held[node, other] + 1):
                        value2 += steps.between[k2, held2] + steps.out_fixed + steps.out_size * t
                        k2, held2 = k2 - 1, held2 - t
                        value2 -= steps.between[k2, held2]
                        if not value2 < children.cut[0]:
                            break
                        move[2], move[3] = other, more
                        refill(steps, evicted, fresh, node, children, move, k2, held2, ending1, value2)
                    move[2] = move[3] = 0
            move[0] = move[1] = 0
    return len(nodes.value)


HELPERS = (keep, run, start, refill)
"""What `expand` calls, callees first."""
