"""Proof: interaction, by prices of tokens and of prompt work over time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.guests import ROOT_BITS, Guest, guest, in_chunks, token_tables
from infermax_opt.infermax.checker.instance import REQUEST_STEPS, Instance
from infermax_opt.infermax.checker.pieces import Piece

#: Bits after the point of theta.
THETA_BITS = 10
#: Steps of checking a cell of a request.
CELL_STEPS = 25


class Cells(NamedTuple):
    """Ends of cells of time, r in each and 0 after them, the price of work likewise; units of a tick.

    `lower`: for each cell, the next one with a smaller r, and the next one where work costs less.
    """

    ends: list[int]
    root: list[int]
    work: list[int]
    unit: int
    lower: tuple[list[int], list[int]]


def interaction(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Batches are slow as others decode: prices of tokens and of prompt work over time.

    See `infermax_opt.infermax.bounds.interaction`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    step = piece.alpha + instance.d0
    require(step > 0, "piece: a batch that decodes takes no time")
    theta = evidence["theta"].whole(0, 1 << THETA_BITS)
    tables = token_tables(instance, piece)
    guests = [guest(instance, key, count, piece, tables) for key, count in instance.kinds.items()]
    cells = read_cells(instance, evidence["cells"], guests, step)
    total = sum(some.times * least_paid(instance, some, cells, theta, piece) for some in guests)
    spans = zip([0, *cells.ends], cells.ends, cells.root, strict=False)
    total -= theta * sum((end - start) * root * root for start, end, root in spans)
    return Fraction(total, (cells.unit << THETA_BITS) * instance.scale * sum(instance.kinds.values()))


def read_cells(instance: Instance, given: Field, guests: list[Guest], step: int) -> Cells:
    """Cells of time, with the price of prompt work: that of all that are there all of it, and of time.

    Parameters
    ----------
    instance : Instance
    given : Field
        Ends and roots.
    guests : list of Guest
        Each is there from its arrival for as long as it takes alone.
    step : int
        Constant of a batch that decodes, in ticks.
    """
    ends, roots = read_roots(instance, given, len(guests))
    starts, there = [0, *ends], [0] * (len(ends) + 1)
    for some in guests:
        first, last = bisect_left(starts, some.until), bisect_right(ends, some.begin + some.lone)
        if first < last:
            there[first] += some.times
            there[last] -= some.times
    unit = step << 2 * ROOT_BITS
    present = accumulate(there[:-1])
    work = [max(1, n) * unit + root**2 for n, root in zip(present, roots, strict=True)]
    roots, work = [*roots, 0], [*work, unit]
    return Cells(ends, roots, work, unit, (next_lower(roots), next_lower(work)))


def read_roots(instance: Instance, given: Field, guests: int) -> tuple[list[int], list[int]]:
    """Ends of cells of time, and roots.

    Parameters
    ----------
    instance : Instance
    given : Field
        What the certificate holds.
    guests : int
        How many are to be put into the cells.
    """
    pairs = [cell.integers(2) for cell in given.items()]
    ends, roots = [end for end, _ in pairs], [root for _, root in pairs]
    require(all(a < b for a, b in pairwise([0, *ends])), "cells: their ends do not rise")
    require(all(root >= 0 for root in roots), "cells: a root is below 0")
    instance.work.spend(REQUEST_STEPS * guests + CELL_STEPS * len(ends))
    return ends, roots


def next_lower(values: list[int]) -> list[int]:
    """For each value, the place of the next one that is smaller; where there is none, their number."""
    places, waiting = [len(values)] * len(values), list[int]()
    for place, value in enumerate(values):
        while waiting and value < values[waiting[-1]]:
            places[waiting.pop()] = place
        waiting.append(place)
    return places


def least_paid(instance: Instance, some: Guest, cells: Cells, theta: int, piece: Piece) -> int:
    """Least of theta times what it pays and the rest of its latency, over all delays; in small units.

    Parameters
    ----------
    instance : Instance
    some : Guest
    cells : Cells
    theta : int
    piece : Piece
        Affine piece of the batch time.
    """
    fixed, (plain, roots, works), ends = piece.alpha + instance.p0, some.tokens, cells.ends
    step, waiting = cells.unit >> 2 * ROOT_BITS, ((1 << THETA_BITS) - theta) * cells.unit

    def worth(delay: int, work: int, root: int) -> int:
        """What is paid after such a delay, at these prices."""
        tokens = plain * cells.unit + root * (2 * roots * step + root * works)
        chunks = in_chunks(fixed, some.chunks, some.square, work, cells.unit) * cells.unit
        return waiting * (some.lone + delay) + theta * (tokens + work * some.linear + chunks)

    end = some.until + some.lone
    early = end - some.later
    begin, prompt, token = (bisect_right(ends, moment) for moment in (some.begin, early, end))
    instance.work.spend(prompt + token - 2 * begin)
    prompt = min(range(begin, prompt + 1), key=cells.work.__getitem__)
    token = min(range(begin, token + 1), key=cells.root.__getitem__)
    best = worth(0, cells.work[prompt], cells.root[token])
    while True:
        # Delays change what is paid where prompt or tokens come to a cell that is cheaper than all before.
        instance.work.spend(CELL_STEPS)
        cheaper, fewer = cells.lower[1][prompt], cells.lower[0][token]
        delays = [ends[k - 1] - since for k, since in ((cheaper, early), (fewer, end)) if k <= len(ends)]
        if not delays or worth(min(delays), cells.unit, 0) >= best:
            return best  # longer delays pay more, whatever the prices
        delay = min(delays)
        if cheaper <= len(ends) and ends[cheaper - 1] - early == delay:
            prompt = cheaper
        if fewer <= len(ends) and ends[fewer - 1] - end == delay:
            token = fewer
        best = min(best, worth(delay, cells.work[prompt], cells.root[token]))
