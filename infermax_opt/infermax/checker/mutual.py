"""Proof: mutual, by requests that delay each other, pair by pair."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.guests import guest, token_tables
from infermax_opt.infermax.checker.instance import REQUEST_STEPS, Instance
from infermax_opt.infermax.checker.pairs import (
    FACTOR_BITS,
    PAIR_BITS,
    Paid,
    Visitor,
    least_chunked,
    pair_paid,
)
from infermax_opt.infermax.checker.pieces import Piece

#: Steps of checking a pair.
PAIR_STEPS = 350


def mutual(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Requests that are there together delay each other, pair by pair.

    See `infermax_opt.infermax.bounds.mutual`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    step, fixed = piece.alpha + instance.d0, piece.alpha + instance.p0
    require(step > 0, "piece: a batch that decodes takes no time")
    visitors = by_arrival(instance, piece)
    rows = [row.integers() for row in evidence["pairs"].items(len(visitors))]
    spare = spare_shares(rows)
    instance.work.spend(PAIR_STEPS * (len(visitors) + sum(map(len, rows)) // 3))
    paid: list[list[Paid]] = [[] for _ in visitors]
    lost, gained = [0] * len(visitors), 0
    for k, row in enumerate(rows):
        for back, mine, other in zip(row[::3], row[1::3], row[2::3], strict=True):
            shares = step * mine >> PAIR_BITS - FACTOR_BITS, step * other >> PAIR_BITS - FACTOR_BITS
            one = pair_paid(visitors[k - back], visitors[k], shares, (step, instance.d1, fixed))
            paid[k].append(one)
            lost[k - back], lost[k], gained = (
                lost[k - back] + one.delay,
                lost[k] + one.term,
                gained + one.delay,
            )
    total = gained + sum(
        (some.guest.later << FACTOR_BITS)
        + least_chunked(some.guest, paid[k], (lost[k], step * spare[k] >> PAIR_BITS - FACTOR_BITS), fixed)
        for k, some in enumerate(visitors)
    )
    return Fraction(total, (instance.scale << FACTOR_BITS) * len(visitors))


def by_arrival(instance: Instance, piece: Piece) -> list[Visitor]:
    """All requests by arrival, then by their lengths."""
    instance.work.spend(REQUEST_STEPS * sum(instance.kinds.values()))
    tables, more = token_tables(instance, piece), max(0, instance.d0 - instance.p0)
    visitors = []
    for key in sorted(instance.kinds, key=lambda key: (key[2], key[0], key[1])):
        i, outputs = key[0], key[1] - 1
        # A refill that ends with token s is dearer than a decode, at both ends of a line.
        spare = ((piece.beta + instance.p1 - instance.d1) * s + instance.d1 for s in (i + 1, i + outputs))
        dearer = not instance.preemption or all(value >= piece.beta + more for value in spare)
        some = guest(instance, key, 1, piece, tables)
        visitor = Visitor(some, outputs, piece.beta + instance.d1 * i, dearer)
        visitors += [visitor] * instance.kinds[key]
    return visitors


def spare_shares(rows: list[list[int]]) -> list[int]:
    """What each request keeps of a batch's fixed part, 0 or more; pairs are of two requests, each once."""
    shared = [0] * len(rows)
    for k, row in enumerate(rows):
        require(len(row) % 3 == 0, f"pairs[{k}]: holds {len(row)} values, which are no triples")
        backs = row[::3]
        require(len(set(backs)) == len(backs), f"pairs[{k}]: names a request twice")
        require(all(0 < back <= k for back in backs), f"pairs[{k}]: names no earlier request")
        require(min(row, default=0) >= 0, f"pairs[{k}]: holds a negative share")
        shared[k] += sum(row[1::3])
        for back, other in zip(backs, row[2::3], strict=True):
            shared[k - back] += other
    most = max(shared, default=0)
    require(most <= 1 << PAIR_BITS, f"pairs: a request shares out {most}, more than {1 << PAIR_BITS}")
    return [(1 << PAIR_BITS) - some for some in shared]
