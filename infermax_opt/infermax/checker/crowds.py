"""Proof: a rank of a latency, by disjoint crowds of requests, of each of which some miss a limit."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from fractions import Fraction
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.attainment import PROMISE_STEPS, attainment, promising_all
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.keepers import keeper
from infermax_opt.infermax.checker.pieces import Piece


def crowds(percent: int, place: int) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof that a rank of a latency is above a limit: more requests miss it than may.

    See `infermax_opt.infermax.bounds.crowds`.

    Parameters
    ----------
    percent : int
        Of the rank; 100 is the largest.
    place : int
        Of the latency among the limits of a request: TTFT, TPOT, end-to-end latency.
    """

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """The limit, for it is below the rank."""
        limit = evidence["limit"].number()
        instance.work.spend(2 * PROMISE_STEPS * len(instance.kinds))
        promised = promising_all(instance, place, limit)
        kinds = sorted(promised.promised.items(), key=lambda kind: (kind[0][2], kind[0][0], kind[0][1]))
        late, end = Fraction(0), 0
        for crowd in evidence["crowds"].items():
            first = crowd["first"].whole(end, len(kinds))
            outside, end = kinds[end:first], first + len(crowd["shares"].items())
            late += surely_late(promised, outside, piece)
            part = copy(promised)
            part.promised = dict(kinds[first:end])
            unit = Fraction(2) ** crowd["exponent"].whole(0, 512)
            late += attainment(part, crowd, piece._replace(unit=unit))
        late += surely_late(promised, kinds[end:], piece)
        require(late > instance.above(percent), "no more requests miss the limit than may")
        return limit

    return prove


def surely_late(instance: Instance, kinds: list[tuple[Any, int]], piece: Piece) -> int:
    """Requests that miss the limit even alone.

    Parameters
    ----------
    instance : Instance
    kinds : list
        Lengths, arrival and promise, and how many of them.
    piece : Piece
        Affine piece of the batch time.
    """
    return sum(count for key, count in kinds if keeper(instance, key, piece) is None)
