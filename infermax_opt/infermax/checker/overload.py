"""Proof: overload, by a price of machine time at every moment."""

from __future__ import annotations

import math
from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import REQUEST_STEPS, Instance
from infermax_opt.infermax.checker.moments import PRICE_BITS, cheapest_moments, least_rate
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.prompt_parts import LONGEST_PART, PartPrices, least_in_parts
from infermax_opt.infermax.checker.token_masses import later_tokens, masses_of, presence_waited, token_groups

#: Steps of checking a group of tokens at one level.
GROUP_STEPS = 15
#: Most different levels.
MAX_LEVELS = 64


def overload(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """A price of machine time at every moment: each token picks the moment that is cheapest for it.

    See `infermax_opt.infermax.bounds.overload`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    exponent, groups = evidence["exponent"].whole(0, 256), evidence["groups"].whole(1, 10**6)
    parts = evidence["parts"].whole(0, 10**6) if "parts" in evidence else 0
    if parts and not instance.spread:
        evidence["parts"].fail("chunks save no attention work")
    later = later_tokens(instance, piece)
    soonest = [later.presence[i + 1] - later.presence[i] for i, o, _ in instance.kinds if o > 1]
    least = min([piece.alpha + instance.p0, *soonest])  # it rises with the tokens cached
    cells = priced_cells(evidence["cells"], least << 2 * exponent)
    ends, prices = [end for end, *_ in cells], PartPrices(instance, piece, exponent)
    total = Fraction(0)
    for (i, o, arrival), count in instance.kinds.items():
        instance.work.spend(REQUEST_STEPS)
        masses = masses_of(instance, i, o, piece, later)
        if masses[1] == 0:
            continue
        begin = math.floor(arrival * instance.scale)
        moments = cheapest_moments(instance, begin, masses[1], cells, ends, bool(parts))
        rates: dict[int, int] = {}
        for (_, level), rate in moments.items():
            rates[level] = min(rate, rates.get(level, rate))
        instance.work.spend(GROUP_STEPS * len(rates) * min(groups + 1, o))
        tokens = token_groups(instance, (i, o), masses, later, groups, exponent)
        whole, *others = (n * least_rate(instance, token, rates, exponent) for n, *token in tokens)
        if parts and min(i, instance.budget) <= LONGEST_PART:
            whole = max(whole, least_in_parts(instance, i, masses, moments, parts, prices))
        paid = whole + sum(others)
        total += count * (presence_waited(i, o, masses, later) + Fraction(paid, 1 << PRICE_BITS))
    spans = zip([0, *ends], cells, strict=False)
    total -= Fraction(sum((end - start) * price for start, (end, price, _) in spans), 1 << PRICE_BITS)
    return total / (instance.scale * sum(instance.kinds.values()))


def priced_cells(given: Field, least: int) -> list[tuple[int, int, int]]:
    """Cells of time: end, price, and a level of at most the root of `least` times the price."""
    cells, before, levels = [], 0, {0}
    for cell in given.items():
        end, price, level = cell.integers(3)
        require(end > before, "cells: their ends do not rise")
        require(price >= 0 and level >= 0, "cells: a price or level is below 0")
        require(level**2 << PRICE_BITS <= least * price, "cells: a level is above what its price allows")
        cells.append((end, price, level))
        levels.add(level)
        before = end
    require(len(levels) <= MAX_LEVELS, "cells: too many levels")
    return cells
