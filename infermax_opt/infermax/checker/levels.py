"""Proof: state flow on levels of several tokens, looked at every so many batches."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import MAX_STEPS, Work
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.levels_full import batch_costs, check_in_full
from infermax_opt.infermax.checker.pieces import FAR, Piece

#: Such a proof may take so many times as many steps as others: it may have 600,000 states.
LONGER = 3
#: Levels in all states together, at most: they are held in less than a GiB.
MOST_MEMBERS = 21 * 10**6

#: Levels of the requests in memory, in order.
Look = tuple[int, ...]


class Levels(NamedTuple):
    """Requests of one kind, on levels of `width` tokens; `most`: of them in memory."""

    inputs: int
    outputs: int
    requests: int
    width: int
    most: int

    @property
    def number(self) -> int:
        """How many levels there are."""
        return -(-self.outputs // self.width)

    @property
    def last(self) -> int:
        """Tokens of the last level."""
        return self.outputs - self.width * (self.number - 1)


class LookCosts(NamedTuple):
    """Units of the steps; of a request that appears or leaves by its level, FAR where that cannot be.

    `block`: of the batches from one look to the next; `more`: beside it where requests appear in one;
    `stay`: what one earns that stays on its level.
    """

    block: int
    more: int
    stay: int
    appear: list[Any]
    leave: list[Any]


def levels(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """No step among the states seen at looks earns more than it costs, by the potentials.

    So a schedule costs at least what the levels of all requests are worth
    (`infermax_opt.infermax.bounds.levels`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    instance.work = Work(LONGER * MAX_STEPS)
    space = on_levels(instance, evidence)
    worth = evidence["prices"]["worth"].integers(space.number)
    full = "full" in evidence and evidence["full"].flag()
    require(space.width == 1 or not full, "full: levels are of more than one token")
    costs = None if full else read_costs(instance, evidence["prices"], space, worth, piece)
    given = evidence["potential"].integers(nulls=True)
    require(0 < len(given) <= MOST_MEMBERS // space.most, "potential: too many states, or none")
    require(given[0] is not None, "potential: the empty state has none")
    states = list_levels(instance, space, len(given))
    require(len(states) == len(given), "potential: wrong number of states")
    between = {state: FAR if v is None else v for state, v in zip(states, given, strict=True)}
    if costs is None:
        check_in_full(between, batch_costs(instance, space.inputs, worth, piece), instance.work)
    else:
        check_looks(between, costs, instance.work)
    beyond = 0 if costs is None else (space.width - 1) * costs.block
    return (work_of_all(instance, space, piece) + phases(space, worth, beyond) / piece.unit) / instance.scale


def on_levels(instance: Instance, evidence: Field) -> Levels:
    """The requests, which must be of one kind, and how wide their levels are."""
    kinds = instance.since()
    inputs, outputs, _ = kinds[0]
    require({kind[:2] for kind in kinds} == {(inputs, outputs)}, "width: requests are of several kinds")
    count = sum(c for *_, c in kinds)
    most = min(count, instance.capacity // inputs, instance.running or 10**18)
    require(most >= 1, "potential: there is no state, as no request fits")
    return Levels(inputs, outputs, count, evidence["width"].whole(1, outputs), most)


def read_costs(instance: Instance, prices: Field, space: Levels, worth: list[int], piece: Piece) -> LookCosts:
    """LookCosts of the steps; no level may be worth less than staying on it earns.

    Parameters
    ----------
    instance : Instance
    prices : Field
        Of the certificate.
    space : Levels
    worth : list[int]
        Of each level, lowest first.
    piece : Piece
        Affine piece of the batch time.
    """
    width, shared = space.width, min(instance.d0, instance.p0)
    idle = prices["idle"].whole(0, piece.units(shared))
    more = piece.units(instance.p0 - shared) + idle
    require(width == 1 or min(worth) >= width * idle, "prices: idling earns more than a level is worth")
    require(worth[0] >= width * idle + more, "prices: idling on the lowest level would earn")
    out = [*worth, 0]
    for q in range(space.number - 1, -1, -1):
        out[q] += out[q + 1]
    rho = max(0, piece.beta - instance.d1)
    again = [piece.units(rho * (space.inputs + width * q - 1)) for q in range(space.number)]
    ends = space.outputs // width - 1
    returns = instance.preemption
    appear = [-out[0], *(again[q] - out[q] if returns else FAR for q in range(1, space.number))]
    if width == 1 and returns and instance.chunked:  # late ones, too
        appear[:-1] = [min(appear[q], again[q + 1] - out[q + 1] - idle) for q in range(space.number - 1)]
    return LookCosts(
        piece.units(width * (piece.alpha + shared)),
        more,
        width * idle,
        appear,
        [out[q + 1] if returns or q == 0 or q >= ends else FAR for q in range(space.number)],
    )


def list_levels(instance: Instance, space: Levels, expected: int) -> list[Look]:
    """All sets of levels that memory holds, smallest first, then in order.

    Parameters
    ----------
    instance : Instance
    space : Levels
    expected : int
        States that the certificate has.
    """
    states: list[Look] = [()]
    inputs, width = space.inputs, space.width
    for state in states:
        if len(state) == space.most:
            break
        instance.work.spend(8 + len(state))
        free = instance.capacity - len(state) * inputs - width * sum(state) - inputs
        highest = min(space.number - 1, free // width)
        states += [(*state, q) for q in range(state[-1] if state else 0, highest + 1)]
        require(len(states) <= expected, "potential: too few states")
    return states


def check_looks(between: dict[Look, Any], costs: LookCosts, work: Work) -> None:
    """No leaving, staying or block earns, from any state.

    Parameters
    ----------
    between : dict[Look, Any]
        Potentials of the states.
    costs : LookCosts
    work : Work
        Counts the steps.
    """
    block, more, stay, appear, leave = costs
    within, start = dict.fromkeys(between, FAR), between[()]
    for state, here in between.items():
        distinct = set(state)
        work.spend(10 + len(state) + 12 * len(distinct))
        grown = FAR
        if state and state[0] > 0:
            grown = between[tuple([q - 1 for q in state])] + block
        least = grown + more
        for q in distinct:
            at = state.index(q)
            rest = (*state[:at], *state[at + 1 :])
            least = min(least, within[rest] + appear[q])
            require(between[rest] <= here + leave[q], "potential: leaving earns")
            if q:
                lower = (*state[:at], q - 1, *state[at + 1 :])
                require(between[lower] <= here - stay, "potential: idling earns")
        within[state] = least
        fresh = start + block + sum([appear[q] for q in state])
        require(here <= min(grown, least, fresh), "potential: a block of batches earns")


def work_of_all(instance: Instance, space: Levels, piece: Piece) -> int:
    """Work of all requests, in ticks.

    Parameters
    ----------
    instance : Instance
    space : Levels
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = [(space.inputs, space.outputs, space.requests)]
    return instance.token_work(kinds, piece.beta) + instance.squares(kinds)


def phases(space: Levels, worth: list[int], beyond: int) -> Fraction:
    """What all levels are worth less the blocks that reach beyond the ends, in units of one phase.

    Parameters
    ----------
    space : Levels
    worth : list[int]
        Of each level, lowest first.
    beyond : int
        What the blocks beyond the ends cost in all phases.
    """
    tokens = space.width * sum(worth[:-1]) + space.last * worth[-1]
    return Fraction(space.requests * tokens - beyond, space.width)
