"""Proof: Lagrangian, by prices of KV and of tokens for each batch."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.instance import Instance, Kinds, blocks_up_to
from infermax_opt.infermax.checker.pieces import FAR, Piece
from infermax_opt.infermax.checker.request_paths import Prices, Runs, cheapest_paths, each, with_entries

#: Most batches that a list of prices is for; the bound's own limit is 2**18.
MAX_BATCHES = 2**20


def lagrangian(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Cheapest paths of all kinds under lists of prices, for each number of batches.

    Each list bounds what so many batches cost; the least over their number, each by its best list, is
    the bound (`infermax_opt.infermax.bounds.lagrangian`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds, blocks = instance.since(), instance.capacity // instance.block
    theta = evidence["theta"].whole(0, min(instance.d0, instance.p0))
    lists = read_lists(evidence, instance.work)
    longest, horizon = max(o for _, o, _ in kinds), sum(times for _, times in lists[0][0])
    require(longest <= horizon <= MAX_BATCHES, "prices: too short or too long")
    batch, rho = piece.units(piece.alpha + theta), piece.units(max(0, piece.beta - instance.d1))
    share = piece.units(instance.d0 - theta) // blocks
    instance.work.spend((10 + 2 * len(kinds)) * horizon * len(lists))
    best: list[Any] = [-FAR] * horizon  # for 1, 2, ... batches
    for held, tokens in lists:
        both = zip(each(held), each(tokens), strict=True)
        cost: list[Any] = list(accumulate(batch - blocks * p - instance.budget * q for p, q in both))
        runs = with_entries(instance, (held, tokens))
        for i, o, c in kinds:
            ends = cheapest_paths(instance, (i, o), runs, share, rho)
            cost = [total + c * end for total, end in zip(cost, ends, strict=True)]
        best = list(map(max, best, cost))
    total = least_total(instance, kinds, best, batch, piece.unit)
    prefill = -(-sum(i * c for i, _, c in kinds) // instance.budget)
    fixed = instance.token_work(kinds, piece.beta) + (instance.p0 - theta) * prefill
    return (total + fixed) / instance.scale


def read_lists(evidence: Field, work: Work) -> list[Prices]:
    """Lists of prices of KV and of tokens, all for the same number of batches."""
    held = read_prices(evidence["prices"], work)
    batches = sum(times for _, times in held[0])
    if "tokens" not in evidence:
        return [(runs, [[0, batches]]) for runs in held]
    tokens = read_prices(evidence["tokens"], work)
    same = len(tokens) == len(held) and sum(times for _, times in tokens[0]) == batches
    require(same, "tokens: not as many lists or batches as prices")
    return list(zip(held, tokens, strict=True))


def read_prices(prices: Field, work: Work) -> list[Runs]:
    """Lists of prices of one sort, all for the same number of batches."""
    work.spend(15 * sum(len(some.value) for some in prices.items() if isinstance(some.value, list)))
    lists = [[run.integers(2) for run in some.items()] for some in prices.items()]
    if not lists:
        prices.fail("holds no list")
    for k, runs in enumerate(lists):
        require(all(price >= 0 and times >= 0 for price, times in runs), f"prices: list {k} goes below 0")
        require(sum(t for _, t in runs) == sum(t for _, t in lists[0]), "prices: lists of different lengths")
    return lists


def least_total(instance: Instance, kinds: Kinds, best: list[Any], batch: int, unit: Fraction) -> Fraction:
    """Least ticks of batches, paths and prompts, over the numbers of batches by area or more.

    Parameters
    ----------
    instance : Instance
    kinds : Kinds
        Kinds of requests.
    best : list[Any]
    batch : int
        Least units of a batch.
    unit : Fraction
        Units of a tick.
    """
    size = instance.block
    sizes = sum(c * (blocks_up_to(i + o - 1, size) - blocks_up_to(i - 1, size)) for i, o, c in kinds)
    least = max(-(-sizes // (instance.capacity // size)), max(o for _, o, _ in kinds))
    longer = Fraction(max(least, len(best) + 1) * batch) / unit + instance.squares(kinds)
    instance.work.spend((6 + 6 * len(kinds) * instance.spread) * len(best))
    up, down = unit.numerator, unit.denominator
    squares = 0 if instance.spread else instance.squares(kinds)
    total: Any = FAR  # of ticks, in parts
    for j in range(least, len(best) + 1):
        if best[j - 1] < FAR:
            total = min(
                total, best[j - 1] * down + (instance.squares(kinds, j) if instance.spread else squares) * up
            )
    return longer if total == FAR else min(longer, Fraction(total, up))
