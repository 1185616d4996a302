"""Proof: trees of branchings on counts of moves, each leaf by prices."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.moves import (
    BOX_STEPS,
    KINDS,
    MOVES,
    Counts,
    LeafPrices,
    add_to_box,
    cheapest_moves,
    cheapest_presence,
)
from infermax_opt.infermax.checker.pieces import Piece

#: Steps of a batch in a leaf, of one number of tokens in it, and of one or the other for a divisor.
LEAF_STEPS, MOVE_STEPS, DIVISOR_STEPS = 60, 25, 3

#: A side of a branching: kinds, first and last batch, fewest and most tokens, limit; whether at least that.
Side = tuple[list[int], int, bool]


def branching(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Schedules of every number of batches cost at least what the leaves of the trees prove.

    See `infermax_opt.infermax.bounds.branching`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    counts = read_counts(instance, evidence, piece)
    presence, least = min(counts.d0, counts.p0), counts.outputs
    proved: list[int] = []
    for tree in evidence["trees"].items():
        batches = tree["batches"].whole(least)
        value = tree_value(instance, counts, tree["nodes"].items(), batches)
        proved.append(least * counts.alpha + value - (batches - least) * presence)
        least = batches + 1
    units = min([*proved, least * (counts.alpha + presence)])
    kinds = [(counts.inputs, counts.outputs, counts.requests)]
    work = instance.token_work(kinds, piece.beta) + instance.squares(kinds)
    return (work + units / piece.unit) / instance.scale


def read_counts(instance: Instance, evidence: Field, piece: Piece) -> Counts:
    """The requests, which must be of one kind, what they cost, and the divisors.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = instance.since()
    inputs, outputs, _ = kinds[0]
    require({kind[:2] for kind in kinds} == {(inputs, outputs)}, "trees: requests are of several kinds")
    instance.work.spend(MOVE_STEPS * outputs)
    return Counts(
        sum(c for *_, c in kinds),
        inputs,
        outputs,
        [-(-(inputs + n) // instance.block) for n in range(outputs)],
        instance.capacity // instance.block,
        [divisor.whole(1) for divisor in evidence["divisors"].items()],
        piece.units(piece.alpha),
        piece.units(instance.d0),
        piece.units(instance.p0),
        piece.units(max(0, piece.beta - instance.d1)),
    )


def tree_value(instance: Instance, counts: Counts, nodes: list[Field], batches: int) -> int:
    """The least that a leaf proves; nodes stand before their sides, that with less in the box first.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    nodes : list[Field]
    batches : int
        Of the schedules of the tree.
    """
    values, open_sides = list[int](), [list[Side]()]
    for node in nodes:
        require(bool(open_sides), "trees: more nodes than branchings have sides")
        sides = open_sides.pop()
        if isinstance(node.value, list):
            box = read_box(node, batches, counts.outputs)
            open_sides += [[*sides, (box, box[5] + 1, True)], [*sides, (box, box[5], False)]]
            instance.work.spend(20 + 2 * len(sides))
        else:
            values.append(leaf_value(instance, counts, node, sides, batches))
    require(not open_sides, "trees: a side of a branching is missing")
    return min(values)


def read_box(node: Field, batches: int, outputs: int) -> list[int]:
    """Kinds, first and last batch, fewest and most tokens, and the limit of the lower side.

    Parameters
    ----------
    node : Field
    batches, outputs : int
        The last that there are.
    """
    box = node.integers(6)
    kinds, first, last, fewest, most, _ = box
    if not (0 < kinds < 1 << KINDS and 1 <= first <= last <= batches and 1 <= fewest <= most <= outputs):
        node.fail("is no box of these batches and tokens")
    return box


def leaf_value(instance: Instance, counts: Counts, leaf: Field, sides: list[Side], batches: int) -> int:
    """Units of presence and refills that a leaf proves by its prices.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    leaf : Field
        Its prices.
    sides : list[Side]
        The branchings above it.
    batches : int
        Of its schedules.
    """
    instance.work.spend(batches * (LEAF_STEPS + MOVE_STEPS * counts.outputs))
    decoded, prefilled, prompts = (
        leaf[name].integers(batches) for name in ("decoded", "prefilled", "prompts")
    )
    splits = leaf["splits"].integers(len(sides))
    if min([0, *decoded, *prefilled, *prompts, *splits]) < 0:
        leaf.fail("a price is below 0")
    begun = list(accumulate(reversed(prompts)))[::-1]
    held, value = held_prices(instance, counts, leaf, batches)
    moves = [[[0] * counts.outputs for _ in range(batches)] for _ in range(MOVES)]
    prices = LeafPrices(held, decoded, prefilled, begun, moves, [[0] * batches for _ in range(MOVES, KINDS)])
    for price, (box, limit, above) in zip(splits, sides, strict=True):
        paid = -price if above else price
        value -= paid * limit
        add_to_box(instance, prices, box, paid)
    value += cheapest_presence(instance, counts, prices)
    return value + counts.requests * cheapest_moves(instance, counts, prices)


def held_prices(instance: Instance, counts: Counts, leaf: Field, batches: int) -> tuple[list[list[int]], int]:
    """What a request pays in each batch for what it holds, by its tokens; and less what all may hold.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    leaf : Field
        Its prices.
    batches : int
        Of its schedules.
    """
    instance.work.spend(DIVISOR_STEPS * len(counts.divisors) * (batches + counts.outputs))
    value, held = 0, [[0] * counts.outputs for _ in range(batches)]
    for divisor, given in zip(counts.divisors, leaf["held"].items(len(counts.divisors)), strict=True):
        prices = given.integers(batches)
        if min(prices) < 0:
            given.fail("a price is below 0")
        value -= counts.room // divisor * sum(prices)
        weights = [size // divisor for size in counts.sizes]
        for j, price in enumerate(prices):
            if price:
                instance.work.spend(BOX_STEPS * counts.outputs)
                held[j] = [own + price * weight for own, weight in zip(held[j], weights, strict=True)]
    return held, value
