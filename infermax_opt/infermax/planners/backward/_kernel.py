"""The children of a beam of nodes, one batch earlier; see `infermax_opt.infermax.planners.backward.search`.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.planners.children import keep

__all__ = ["HELPERS", "MOVE", "Nodes", "Steps", "expand"]

#: A move: tokens made before the refill and number of the requests that were refilled in the batch after, for
#: two kinds; tokens and number of the heads that end, for two kinds; how many requests end; whether prompts
#: are processed.
MOVE = 10


class Steps(NamedTuple):
    """The instance, as numbers and columns.

    `inputs`, `outputs`: tokens of a request; `capacity`, `running`, `tokens`, `prefill`: KV, requests, all
    tokens and those of prompts of a batch; `pool`: most requests whose head is still to place.  `fixed`:
    seconds of a batch beside its work; `mixed`: those that a prompt adds; `price`: what a token of KV earns
    in a batch that puts it to use.  `refill`, by tokens made before: seconds of a refill beyond the decode
    step that it replaces.  `worth`, `early`, by tokens: what a head is worth that waits for the first
    batches, and how many of them are.
    """

    inputs: Any
    outputs: Any
    capacity: Any
    running: Any
    tokens: Any
    prefill: Any
    pool: Any
    fixed: Any
    mixed: Any
    price: Any
    refill: Any
    worth: Any
    early: Any


class Nodes(NamedTuple):
    """Nodes between two batches, best first.

    `held`, `heads`: tables of the number of requests, by tokens made before the earlier of the two, and of
    those whose head is still to place, by its tokens.  Those in the first column of `held` idle or get their
    prompt.  `fresh`: column of those not placed; `tokens`, `prefill`: columns of the tokens of
    the later batch, and of those of its prompts; `value`: column of seconds beyond what is earned.
    """

    held: Any
    heads: Any
    fresh: Any
    tokens: Any
    prefill: Any
    value: Any


def run(
    steps: Any, node: Any, children: Any, move: Any, count: Any, held: Any, idle: Any, value: Any
) -> None:
    """Keep the children after a batch of so many requests that hold so much, with prompts and without."""
    decodes = count - idle
    if count == 0 or count > steps.running or decodes > steps.tokens:
        return
    value += steps.fixed - steps.price * held
    if idle == 0:
        keep(node, children, move, value)
        return
    prompts = idle * steps.inputs
    if prompts <= steps.prefill and decodes + prompts <= steps.tokens:
        move[9] = 1
        keep(node, children, move, value + steps.mixed)
        move[9] = 0
    if decodes > 0:
        keep(node, children, move, value + steps.price * prompts)


def end(
    steps: Any, fresh: Any, node: Any, children: Any, move: Any, count: Any, held: Any, idle: Any, value: Any
) -> None:
    """Try how many requests end in the batch: as many as fit, or one fewer."""
    largest = steps.inputs + steps.outputs - 1
    most = min(fresh, (steps.capacity - held) // largest)
    for number in range(most, max(-1, most - 2), -1):
        move[8] = number
        run(steps, node, children, move, count + number, held + number * largest, idle, value)
    move[8] = 0


def back(steps: Any, heads: Any, fresh: Any, tokens: Any, number: Any) -> Any:
    """Worth of the heads lost where so many end that make so many tokens; none once these come."""
    if fresh == 0:
        return 0.0
    left = heads[tokens] - number
    return steps.worth[tokens] * (min(heads[tokens], steps.early[tokens]) - min(left, steps.early[tokens]))


def place(
    steps: Any, heads: Any, fresh: Any, node: Any, children: Any, move: Any,
    count: Any, held: Any, idle: Any, value: Any,
) -> None:  # fmt: skip
    """Try what ends in the batch: heads of up to two kinds, largest first, and requests."""
    # No batch earns more than a full one.
    if held > steps.capacity or value + steps.fixed - steps.price * steps.capacity >= children.cut[0]:
        return
    end(steps, fresh, node, children, move, count, held, idle, value)
    for one in range(steps.outputs - 1, 1, -1):
        size = steps.inputs + one - 1
        most = min(heads[one], (steps.capacity - held) // size)
        if most <= 0 or one == move[0] or one == move[2]:
            continue
        for number in range(1, most + 1):
            move[4], move[5] = one, number
            value1 = value + back(steps, heads, fresh, one, number)
            held1 = held + number * size
            end(steps, fresh, node, children, move, count + number, held1, idle, value1)
            for other in range(one - 1, 1, -1):
                small = steps.inputs + other - 1
                many = min(heads[other], (steps.capacity - held1) // small)
                if many <= 0 or other == move[0] or other == move[2]:
                    continue
                move[6], move[7] = other, many
                value2 = value1 + back(steps, heads, fresh, other, many)
                end(
                    steps, fresh, node, children, move, count + number + many, held1 + many * small, idle,
                    value2,
                )  # fmt: skip
                break
            move[6] = move[7] = 0
    move[4] = move[5] = 0


def cut(steps: Any, heads: Any, fresh: Any, tokens: Any, number: Any) -> Any:
    """Cost of so many refills, less what their heads are worth."""
    if fresh == 0:
        return number * steps.refill[tokens]
    before = min(heads[tokens], steps.early[tokens])
    after = min(heads[tokens] + number, steps.early[tokens])
    return number * steps.refill[tokens] - steps.worth[tokens] * (after - before)


def expand(steps: Any, nodes: Any, begin: Any, children: Any, move: Any) -> Any:
    """Find the children below the cut, of the nodes from `begin` on, until half of the room is taken.

    Returns
    -------
    int
        The first node that was left out.  Children of a node for which there is no room are lost.
    """
    for node in range(begin, len(nodes.value)):
        if 2 * children.found[0] > len(children.value):
            return node
        count = held = pool = 0
        for made in range(steps.outputs):
            count += nodes.held[node, made]
            held += nodes.held[node, made] * (steps.inputs + made)
            pool += nodes.heads[node, made]
        heads, fresh, value = nodes.heads[node], nodes.fresh[node], nodes.value[node]
        idle = nodes.held[node, 0]
        place(steps, heads, fresh, node, children, move, count, held, idle, value)
        if pool >= steps.pool:
            continue
        first = 0.0 if nodes.prefill[node] > 0 else steps.mixed
        room = min(steps.prefill - nodes.prefill[node], 1 + steps.tokens - nodes.tokens[node])
        # Who would make so many tokens more in this batch was refilled in the one after it instead.
        for one in range(steps.outputs - 2, 0, -1):
            for times in range(1, min(2, nodes.held[node, one]) + 1):
                refills = times * (steps.inputs + one + 1)
                if refills > room:
                    break
                move[0], move[1] = one + 1, times
                count1, held1 = count - times, held - times * (steps.inputs + one)
                value1 = value + first + cut(steps, heads, fresh, one + 1, times)
                place(steps, heads, fresh, node, children, move, count1, held1, idle, value1)
                if times > 1:
                    continue
                for other in range(one - 1, 0, -1):
                    if nodes.held[node, other] == 0 or refills + steps.inputs + other + 1 > room:
                        continue
                    move[2], move[3] = other + 1, 1
                    value2 = value1 + cut(steps, heads, fresh, other + 1, 1)
                    held2 = held1 - (steps.inputs + other)
                    place(steps, heads, fresh, node, children, move, count1 - 1, held2, idle, value2)
                move[2] = move[3] = 0
            move[0] = move[1] = 0
    return len(nodes.value)


HELPERS = (keep, run, end, back, place, cut)
"""What `expand` calls, callees first."""
