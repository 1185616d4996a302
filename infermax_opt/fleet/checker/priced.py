"""Proof: fewest machines, by prices of their time and shares of what batches of later tokens cost.

The proof stands in `infermax_opt.fleet.bounds.priced`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.limits import MAX_INTEGER
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.beside import batches_beside, prompt_beside
from infermax_opt.fleet.checker.machine import Machine, later_ticks, prompt_ticks
from infermax_opt.fleet.checker.needs import Need, later_work, unit_of
from infermax_opt.fleet.checker.question import Asked, Question
from infermax_opt.fleet.checker.windows import COSTING, LOOKING, PIECE, finding

#: Most parts of a batch, of which one is shared by work.
MOST_PARTS = 1000
#: Steps: to read a cell or a share; to look at a cell for a stretch; for a stretch besides.
READING_PRICE, PER_CELL, PER_STRETCH = 40, 2, 30


class Costs(NamedTuple):
    """What a request costs: stretches of its prompt and of all later tokens, or None, and units of time.

    `prompt` and `work` at the prices of time, `batches` at its own share.
    """

    first: Need | None
    later: Need | None
    prompt: int
    work: int
    batches: int


class Cells(NamedTuple):
    """Cells of time with a price, one after the other: begins and ends in ticks; between them it is 0."""

    begins: list[int]
    ends: list[int]
    prices: list[int]


def costs_of(machine: Machine, asked: Asked, needs: list[Need], piece: int, parts: int) -> Costs:
    """What a request costs by an affine piece.

    Parameters
    ----------
    machine : Machine
    asked : Asked
    needs : list of Need
        With all later tokens as one stretch.
    piece : int
    parts : int
        One part of so many of a batch is shared by work: q.
    """
    _, prompt, outputs, _ = asked
    unit = unit_of(machine)
    first = next((need for need in needs if need.first == 1), None)
    later = next((need for need in needs if need.first > 1), None)
    whole = work = batches = 0
    if first is not None:
        time = first.spare + prompt_ticks(machine, prompt)
        whole = prompt_beside(machine, prompt, piece, time, unit, parts)
    if later is not None:
        work = unit * later_work(machine, prompt, later, machine.beta[piece])
        if machine.beta[piece]:
            span = later.spare + later_ticks(machine, prompt, 2, outputs)
            batches = unit * batches_beside(machine, (prompt, outputs), piece, outputs - 1, span, parts)
    return Costs(first, later, whole, work, batches)


def read_cells(given: Field, work: Work) -> Cells:
    """The cells of a certificate."""
    work.spend(READING_PRICE * len(given.values()))
    found, last = Cells([], [], []), 0
    for entry in given.items():
        begin, end, price = entry.items(3)
        found.begins.append(begin.whole(last, MAX_INTEGER))
        last = end.whole(found.begins[-1] + 1, 2 * MAX_INTEGER)
        found.ends.append(last)
        found.prices.append(price.whole(1, MAX_INTEGER))
    return found


def lowest(cells: Cells, need: Need | None, work: Work) -> int:
    """The lowest price within a stretch.

    Parameters
    ----------
    cells, need, work
    """
    if need is None:
        return 0
    first, last = bisect_right(cells.ends, need.begin), bisect_left(cells.begins, need.end)
    work.spend(PER_STRETCH + PER_CELL * max(0, last - first))
    covered = need.begin < need.end and first < last and cells.begins[first] <= need.begin
    covered = covered and cells.ends[last - 1] >= need.end
    gaps = any(cells.ends[k] < cells.begins[k + 1] for k in range(first, last - 1))
    return min(cells.prices[first:last]) if covered and not gaps else 0


def most_shared(cells: Cells, stretches: list[tuple[Need, int]], work: Work) -> list[int]:
    """The sum of the shares of all stretches that reach into each cell.

    Parameters
    ----------
    cells : Cells
    stretches : list of (Need, int)
        Each with its share.
    work : Work
    """
    changes = [0] * (len(cells.begins) + 1)
    work.spend(PER_STRETCH * len(stretches) + PER_CELL * len(changes))
    for need, share in stretches:
        changes[bisect_right(cells.ends, need.begin)] += share
        changes[bisect_left(cells.begins, need.end)] -= share
    total, found = 0, list[int]()
    for change in changes[:-1]:
        total += change
        found.append(total)
    return found


def priced(
    given: Field, machine: Machine, question: Question, needs_of: Callable[[Asked], list[Need] | None]
) -> tuple[list[int | None], int] | None:
    """What each request pays, in units, and what machine time costs of each machine; None if not told.

    Parameters
    ----------
    given : Field
        The certificate.
    machine : Machine
    question : Question
    needs_of : callable
        What a request needs of a machine, its later tokens as one stretch; None if it never is good.
    """
    if "prices" not in given:
        return None
    evidence, work, requests = given["prices"], question.work, question.requests
    piece, parts = evidence["piece"].whole(0, len(machine.alpha) - 1), evidence["parts"].whole(2, MOST_PARTS)
    cells, told = read_cells(evidence["cells"], work), evidence["shares"]
    require(len(told.values()) == len(requests), "prices.shares: not one for each request")
    each = READING_PRICE + COSTING + LOOKING + PIECE * len(machine.alpha)
    work.spend(finding(machine, question) + each * len(requests))
    paid, sharing = list[int | None](), list[tuple[Need, int]]()
    for asked, given_share in zip(requests, told.items(), strict=True):
        share, needs = given_share.whole(0, MAX_INTEGER), needs_of(asked)
        if needs is None:
            paid.append(None)
            continue
        costs = costs_of(machine, asked, needs, piece, parts)
        require(not share or costs.batches > 0, "prices.shares: of a request that has no batches to share")
        price = lowest(cells, costs.later, work)
        require(share <= price, "prices.shares: more than the price of time")
        if share and costs.later is not None:
            sharing.append((costs.later, share))
        paid.append(
            lowest(cells, costs.first, work) * costs.prompt + price * costs.work + share * costs.batches
        )
    for shared, price in zip(most_shared(cells, sharing, work), cells.prices, strict=True):
        require(shared <= price, "prices.shares: those who may share a batch have more than its price")
    room = unit_of(machine) * sum((end - begin) * price for begin, end, price in zip(*cells, strict=True))
    return paid, room
