"""Proof: filling, by what the first requests leave empty of the memory."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance, blocks_up_to
from infermax_opt.infermax.checker.pieces import Piece

#: Steps of looking at one request in one step of time.
FILL_STEPS = 40


class Fill(NamedTuple):
    """Equal requests: their lengths, when their first and second tokens may begin, in ticks, and how many."""

    i: int
    o: int
    first: int
    second: int
    times: int

    def last_before(self, end: int, step: int) -> int:
        """The last token that something may be done for before `end`, tokens being `step` apart."""
        if end <= self.second:
            return 1 if self.first < end else 0
        return min(self.o, 2 + (end - 1 - self.second) // step) if step else self.o


class Room(NamedTuple):
    """What fills: tokens in blocks of that size, or (block 0) requests; and how many there may be."""

    block: int
    most: int

    def sizes(self, before: int, last: int) -> int:
        """Sum of what a request takes with before + 1, ..., last tokens cached."""
        if self.block == 0:
            return last - before
        return self.block * (blocks_up_to(last, self.block) - blocks_up_to(before, self.block))


def filling(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """What requests that have just arrived leave of the memory, less the work done meanwhile.

    See `infermax_opt.infermax.bounds.filling`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    one = 1 << evidence["exponent"].whole(0, 256)
    room, step = room_of(instance, evidence["by_slots"].flag()), shortest_step(instance)
    kinds = [fill_of(instance, key) for key in instance.kinds.items()]
    cells = falling_levels(evidence["cells"], one)
    instance.work.spend(FILL_STEPS * len(kinds) * (2 * len(cells) + 1))
    whole = sum(k.times * fill_work(instance, piece, k, room, (1, k.o)) for k in kinds)
    area = sum(k.times * room.sizes(k.i - 1, k.i + k.o - 1) for k in kinds)
    whole += piece.alpha * instance.budget * area
    left = early = 0
    done = [0] * len(kinds)
    for start, end, level in cells:
        reached = [k.last_before(end, step) for k in kinds]
        pairs = zip(kinds, reached, strict=True)
        held = sum(k.times * room.sizes(k.i + n - 2, k.i + n - 1) for k, n in pairs if n)
        require(level * room.most <= (room.most - held) * one, "cells: requests may fill more than is left")
        left += level * (end - start)
        spans = zip(kinds, done, reached, strict=True)
        work = (k.times * fill_work(instance, piece, k, room, (a + 1, b)) for k, a, b in spans if b > a)
        early += level * sum(work)
        done = reached
    proved = (Fraction(whole * one - early, room.most * instance.budget) + left) / one
    require(not cells or cells[-1][1] < proved, "cells: a schedule may end before the last one")
    return proved / instance.scale


def room_of(instance: Instance, by_slots: bool) -> Room:
    """The KV cache in whole blocks, or the limit on running requests."""
    if by_slots:
        require(instance.running is not None, "by_slots: any number of requests may run")
        return Room(0, instance.running or 0)
    return Room(instance.block, instance.capacity // instance.block * instance.block)


def shortest_step(instance: Instance) -> int:
    """Least time of a batch that processes a token."""
    presence = min(instance.d0 + instance.d1, instance.p0 + instance.p1)
    return max(a + b for a, b in instance.pieces) + presence


def fill_of(instance: Instance, entry: tuple[tuple[int, int, Fraction], int]) -> Fill:
    """Dates of equal requests: the prompt takes so many batches at least, of any piece."""
    (i, o, arrival), times = entry
    chunks, first = -(-i // instance.budget), math.floor(arrival * instance.scale)
    prompt = max(chunks * a + b * i for a, b in instance.pieces) + chunks * instance.p0
    return Fill(i, o, first, first + prompt + instance.p1 * (i if instance.spread else i * i), times)


def fill_work(instance: Instance, piece: Piece, kind: Fill, room: Room, tokens: tuple[int, int]) -> int:
    """Least work of a span of the tokens of one request, in ticks / (room * min(P, C)).

    The prompt is that of the first one; presence of prefill is paid by the prompt, that of decode by sizes.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    kind : Fill
    room : Room
    tokens : (int, int)
        The first and the last.
    """
    slack, (first, last), total = (piece.beta - instance.d1) * room.most - 2 * instance.d0, tokens, 0
    d0 = instance.d0 if slack >= 0 or not instance.preemption else 0
    d1 = min(instance.d1, piece.beta) if instance.preemption else instance.d1
    if first == 1:
        square = kind.i if instance.spread else kind.i**2
        total = room.most * instance.budget * (piece.beta * kind.i + instance.p1 * square)
        total += room.most * instance.p0 * kind.i
        first = 2
    count = last - first + 1
    if count <= 0:
        return total
    read = sum((kind.i + first - 2, kind.i + last - 2)) * count // 2
    sizes = read + count if room.block else count
    return total + instance.budget * (room.most * (piece.beta * count + d1 * read) + d0 * sizes)


def falling_levels(given: Field, one: int) -> list[tuple[int, int, int]]:
    """Start, end and level of spans of time; ends rise, levels fall from `one` at most to 0 at least."""
    cells, start, above = [], 0, one
    for cell in given.items():
        end, level = cell.integers(2)
        require(end > start, "cells: their ends do not rise")
        require(0 <= level <= above, "cells: their levels do not fall")
        cells.append((start, end, level))
        start, above = end, level
    return cells
