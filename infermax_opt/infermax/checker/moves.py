"""Tool of the proof by branching: the cheapest moves of a request, and of batches, under prices."""

from __future__ import annotations

from typing import NamedTuple

from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR

#: Kinds of moves: first, decode, idle, return, late return; and with batches that prefill and that decode.
MOVES, KINDS = 5, 7
#: Steps of one number of tokens in a box.
BOX_STEPS = 2


class LeafPrices(NamedTuple):
    """Prices of a leaf by batch, of splits by kind, batch and tokens.

    `held`: of what a request holds, by its tokens; `prompts`: of all rows from a batch on.
    """

    held: list[list[int]]
    decoded: list[int]
    prefilled: list[int]
    prompts: list[int]
    moves: list[list[list[int]]]
    present: list[list[int]]


class Counts(NamedTuple):
    """Requests of one kind, and costs in units.

    `sizes`: blocks that a request holds, by its tokens; `room`: blocks in all; `divisors`: of these.
    """

    requests: int
    inputs: int
    outputs: int
    sizes: list[int]
    room: int
    divisors: list[int]
    alpha: int
    d0: int
    p0: int
    rho: int


def add_to_box(instance: Instance, paid: LeafPrices, box: list[int], price: int) -> None:
    """Add a price to all that a box counts.

    Parameters
    ----------
    instance : Instance
    paid : LeafPrices
    box : list[int]
    price : int
    """
    if not price:
        return
    kinds, first, last, fewest, most, _ = box
    instance.work.spend(KINDS * (last - first + 1) * (BOX_STEPS + most - fewest))
    for kind in range(KINDS):
        if not kinds >> kind & 1:
            continue
        for j in range(first - 1, last):
            if kind >= MOVES:
                paid.present[kind - MOVES][j] += price
            else:
                row = paid.moves[kind][j]
                row[fewest - 1 : most] = [value + price for value in row[fewest - 1 : most]]


def cheapest_presence(instance: Instance, counts: Counts, paid: LeafPrices) -> int:
    """Units of all batches, each of which prefills, or decodes, or both with hybrid batching.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    paid : LeafPrices
    """
    total = 0
    for j, begun in enumerate(paid.prompts):
        prefills = counts.p0 + paid.present[0][j] - counts.room * paid.prefilled[j] - instance.budget * begun
        decodes = counts.d0 + paid.present[1][j] - counts.room * paid.decoded[j]
        both = prefills + decodes if instance.hybrid else prefills
        total += min(prefills, decodes, both)
    return total


def cheapest_moves(instance: Instance, counts: Counts, paid: LeafPrices) -> int:
    """Units of the cheapest sequence of moves of one request.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    paid : LeafPrices
    """
    outputs, sizes = counts.outputs, counts.sizes
    active, out, done = [FAR] * outputs, [FAR] * outputs, FAR
    for j, held in enumerate(paid.held):
        first, decode, idle, again, late = (kind[j] for kind in paid.moves)
        decoded, prefilled = paid.decoded[j], paid.prefilled[j]
        if instance.preemption:  # before the batch
            out = list(map(min, out, active))
        begin = held[0] + prefilled * sizes[0] + counts.inputs * paid.prompts[j] + first[0]
        after = [begin, *[FAR] * (outputs - 1)]
        for n in range(outputs - 1):  # n + 1 tokens were made
            refill = counts.rho * (counts.inputs + n)
            stay, more = sizes[n], sizes[n + 1]
            after[n] = min(after[n], active[n] + held[n] + idle[n])
            made = active[n] + decoded * more + decode[n + 1]
            after[n + 1] = held[n + 1] + min(made, out[n] + refill + prefilled * more + again[n + 1])
            if instance.chunked:
                after[n] = min(after[n], out[n] + refill + held[n] + prefilled * stay + late[n])
        done = min(done, after[-1])
        active = after
    return int(done)
