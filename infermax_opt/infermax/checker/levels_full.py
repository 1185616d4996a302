"""Proof by levels of one token, where each batch is charged in full, as in a state flow."""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR, Piece


class BatchCosts(NamedTuple):
    """Units of the steps; of a request that appears or leaves by its level, FAR where that cannot be.

    `plain`, `mixed`, `pure`: of batches of decodes, with prefills besides, and of prefills alone.
    """

    plain: int
    mixed: int
    pure: int
    appear: list[Any]
    leave: list[Any]


def batch_costs(instance: Instance, inputs: int, worth: list[int], piece: Piece) -> BatchCosts:
    """Costs of the steps, at what levels are worth.

    Parameters
    ----------
    instance : Instance
    inputs : int
        Input tokens of each request.
    worth : list[int]
        Of each level, lowest first.
    piece : Piece
        Affine piece of the batch time.
    """
    plain, mixed, pure, _ = instance.presence(piece)
    rho, last, out = max(0, piece.beta - instance.d1), len(worth) - 1, [*worth, 0]
    for q in range(last, -1, -1):
        out[q] += out[q + 1]
    again = [piece.units(rho * (inputs + q - 1)) - out[q] for q in range(1, last + 1)]
    appear: list[Any] = [-out[0], *(again if instance.preemption else [FAR] * last)]
    if instance.preemption and instance.chunked:  # also late, a token short
        appear[:-1] = map(min, appear[:-1], again)
    leave = [out[q + 1] if instance.preemption or q == last else FAR for q in range(last + 1)]
    return BatchCosts(plain, mixed, pure, appear, leave)


def check_in_full(between: dict[tuple[int, ...], Any], costs: BatchCosts, work: Work) -> None:
    """No leaving, idling or batch earns, from any state.

    Parameters
    ----------
    between : dict[tuple[int, ...], Any]
        Potentials of the states, by the levels of their requests.
    costs : BatchCosts
    work : Work
        Counts the steps.
    """
    plain, mixed, pure, appear, leave = costs
    #: Potentials between batches, and while requests appear in one with decodes, and in one without.
    rows = {state: [value, FAR, FAR] for state, value in between.items()}
    for state, row in rows.items():
        distinct, here = set(state), row[0]
        work.spend(20 + 3 * len(state) + 16 * len(distinct))
        before = rows[tuple([q - 1 if q else 0 for q in state])][0]  # on level 0 are those that were idle
        beside, alone = before + mixed, FAR
        for q in distinct:
            at = state.index(q)
            rest = rows[(*state[:at], *state[at + 1 :])]
            beside = min(beside, rest[1] + appear[q])
            alone = min(alone, min(rest[0], rest[2]) + appear[q])
            require(rest[0] <= here + leave[q], "potential: leaving earns")
            if q:
                lower = rows[(*state[:at], q - 1, *state[at + 1 :])]
                require(lower[0] <= here, "potential: idling earns")
        row[1:] = beside, alone
        require(here <= min(before + plain, beside, alone + pure), "potential: a batch earns")
