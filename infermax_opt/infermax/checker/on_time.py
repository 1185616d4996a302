"""Proof: a rank of the TTFT, by how many prompts can be on time on one machine that serves as they arrive."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.in_turn import PROMPT_STEPS, PromptCosts, fewest_late, least_paid_in_turn
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import Piece

#: Steps of checking a kind of requests.
KIND_STEPS = 100


def on_time(percent: int) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof that a rank of the TTFT is above a limit: more requests are late than may be.

    See `infermax_opt.infermax.bounds.on_time`.

    Parameters
    ----------
    percent : int
        Of the rank; 100 is the largest.
    """

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """The limit, for it is below the rank."""
        limit, allowed = evidence["limit"].number(), instance.above(percent)
        require(limit >= 0, "limit: is below 0")
        require(late_ones(instance, limit, allowed, piece) > allowed, "no more requests are late than may be")
        return limit

    return prove


def late_ones(instance: Instance, limit: Fraction, allowed: int, piece: Piece) -> int:
    """Requests that are late at least, counted up to one more than may be.

    Parameters
    ----------
    instance : Instance
    limit : Fraction
        Of the TTFT, in seconds.
    allowed : int
        Requests that may be late.
    piece : Piece
        Affine piece of the batch time.
    """
    instance.work.spend(KIND_STEPS * len(instance.kinds))
    dates = {at: math.floor(at * instance.scale) for _, _, at in instance.kinds}
    window = max(math.ceil((at + limit) * instance.scale) - date for at, date in dates.items())
    prompts = {i for i, _, _ in instance.kinds}
    instance.work.spend(PROMPT_STEPS * len(prompts))
    costs = prompt_costs(instance, piece)
    lengths = {i: least_paid_in_turn(costs, i, window) for i in prompts}
    kinds = sorted(instance.kinds.items(), key=lambda kind: kind[0][2])
    jobs = ((dates[at], lengths[i]) for (i, _, at), count in kinds for _ in range(count))
    return fewest_late(jobs, window, allowed, instance.work)


def prompt_costs(instance: Instance, piece: Piece) -> PromptCosts:
    """What prompts cost by an affine piece."""
    start = piece.alpha + instance.p0
    return PromptCosts(start, piece.beta, instance.p1, instance.budget, instance.spread)
