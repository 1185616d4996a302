"""Proof: fewest machines, by what requests pay for time and for the batches of cells of time.

The proof stands in `infermax_opt.fleet.bounds.attainment`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.machine import Machine, later_ticks, prompt_pairs
from infermax_opt.fleet.checker.needs import Need, later_work
from infermax_opt.fleet.checker.question import MOST_GROUPS, Asked, Question
from infermax_opt.fleet.checker.windows import PIECE, finding

#: A whole batch, of which requests and what is scarce have shares.
WHOLE = 1 << 24
#: Steps: to read a cell or a share; to cost a cell for a stretch; for a stretch besides.
READING_CELL, PER_COST, PER_GROUP = 40, 16, 60


class Timed(NamedTuple):
    """Cells of time from 0 on: ends in ticks, prices, and shares of alpha for KV, tokens and requests."""

    ends: list[int]
    prices: list[int]
    scarce: list[tuple[int, int, int]]


class Share(NamedTuple):
    """Shares of a request in batches: the first cell, and those from there on."""

    first: int
    shares: list[int]


def read_timed(given: Field, machine: Machine, work: Work) -> Timed:
    """The cells of a certificate.

    Parameters
    ----------
    given, machine, work
    """
    work.spend(READING_CELL * len(given.values()))
    rows = [row.integers(5) for row in given.items()]
    ends = [row[0] for row in rows]
    require(all(a < b for a, b in pairwise([0, *ends])), "attainment.cells: their ends do not rise")
    require(all(min(row[1:]) >= 0 for row in rows), "attainment.cells: a price or share is below 0")
    require(
        machine.running > 0 or not any(row[4] for row in rows), "attainment.cells: requests are not scarce"
    )
    return Timed(ends, [row[1] for row in rows], [(row[2], row[3], row[4]) for row in rows])


def read_share(given: Field, cells: int, work: Work) -> Share:
    """Shares of a request in cells that are there, 0 or more.

    Parameters
    ----------
    given, cells, work
    """
    first, *shares = given.integers()
    work.spend(READING_CELL + len(shares))
    require(0 <= first <= first + len(shares) <= max(first, cells), "attainment.shares: of no cell")
    require(min(shares, default=0) >= 0, "attainment.shares: one is below 0")
    return Share(first, shares)


def require_whole(cells: Timed, owned: list[Share]) -> None:
    """All shares of a cell are at most a whole batch together."""
    sums = [sum(some) for some in cells.scarce]
    for own in owned:
        for cell, share in enumerate(own.shares, own.first):
            sums[cell] += share
    require(max(sums, default=0) <= WHOLE, "attainment.shares: more than a batch in a cell")


def overlaps(cells: Timed, begin: int, end: int) -> list[tuple[int, int]] | None:
    """Cells that overlap a stretch of time, each with the ticks in it; None if it goes on after the last.

    Parameters
    ----------
    cells, begin, end
    """
    if not cells.ends or end > cells.ends[-1]:
        return None
    k, found = bisect_right(cells.ends, begin), list[tuple[int, int]]()
    while begin < end:
        until = min(end, cells.ends[k])
        found.append((k, until - begin))
        begin, k = until, k + 1
    return found


def charge(machine: Machine, piece: int, scarce: tuple[int, int, int], held: int, tokens: int) -> int:
    """What alpha is charged for KV, tokens and one request, in parts of a batch.

    Parameters
    ----------
    machine, piece, scarce, held, tokens
    """
    kv, each, running = scarce
    shared = kv * held // machine.kv + each * tokens // machine.tokens
    return machine.alpha[piece] * (shared + running // max(1, machine.running))


def prompt_paid(machine: Machine, piece: int, cells: Timed, need: Need, prompt: int) -> int:
    """Least that a prompt pays.

    Parameters
    ----------
    machine, piece, cells, need, prompt
    """
    here = overlaps(cells, need.begin, need.end)
    if not here:
        return 0
    work = machine.beta[piece] * prompt * WHOLE
    if not machine.preemption:
        work += machine.p0 * prompt * WHOLE // machine.prefill
    by_tokens = min(
        cells.prices[k] * (work + charge(machine, piece, cells.scarce[k], prompt, prompt)) for k, _ in here
    )
    attention = machine.p1 * prompt_pairs(machine, prompt) * WHOLE
    return by_tokens + min(cells.prices[k] for k, _ in here) * attention


def fixed_ticks(machine: Machine, piece: int, prompt: int) -> int:
    """Ticks that a batch that makes a later token takes besides work, as far as its token is charged.

    Parameters
    ----------
    machine, piece, prompt
    """
    paid = not machine.preemption or (machine.beta[piece] - machine.d1) * prompt >= machine.d0
    return machine.alpha[piece] + (machine.d0 if paid else min(machine.d0, machine.p0))


def later_paid(machine: Machine, piece: int, cells: Timed, need: Need, prompt: int, own: Share) -> int:
    """Least that some later tokens pay.

    Parameters
    ----------
    machine, piece, cells, need, prompt, own
    """
    here = overlaps(cells, need.begin, need.end)
    if not here:
        return 0
    tokens, beta = need.last - need.first + 1, machine.beta[piece]
    least = later_ticks(machine, prompt, need.first, need.first)
    step = later_work(machine, prompt, need._replace(last=need.first), beta)
    fixed, tried = fixed_ticks(machine, piece, prompt), list[tuple[int, int]]()
    for k, ticks in here:
        share = own.shares[k - own.first] if 0 <= k - own.first < len(own.shares) else 0
        each = charge(machine, piece, cells.scarce[k], prompt + need.first - 1, 1)
        tried.append((cells.prices[k] * (step * WHOLE + fixed * share + each), ticks))
    paid, left = 0, tokens * least
    for price, ticks in sorted(tried):
        paid += price * min(left, ticks)
        left -= min(left, ticks)
    beyond = later_work(machine, prompt, need, beta) - tokens * step
    lowest = min(cells.prices[k] for k, _ in here)
    return paid // max(1, least) + lowest * beyond * WHOLE


def all_paid(
    machine: Machine, piece: int, cells: Timed, needs: list[Need], prompt: int, own: Share, work: Work
) -> int:
    """Least that a request pays.

    Parameters
    ----------
    machine, piece, cells, needs, prompt, own, work
    """
    total = 0
    for need in needs:
        looked = bisect_left(cells.ends, need.end) - bisect_right(cells.ends, need.begin) + 1
        work.spend(PER_GROUP + PIECE * len(machine.alpha) + PER_COST * max(1, looked))
        if need.first == 1:
            total += prompt_paid(machine, piece, cells, need, prompt)
        else:
            total += later_paid(machine, piece, cells, need, prompt, own)
    return total


def attained(
    given: Field, machine: Machine, question: Question, needs_in: Callable[[Asked, int], list[Need] | None]
) -> tuple[list[int | None], int] | None:
    """What each request pays, and what machine time costs of each machine; None if not told.

    Parameters
    ----------
    given : Field
        The certificate.
    machine : Machine
    question : Question
    needs_in : callable
        What a request needs of a machine, its later tokens in so many groups; None if it never is good.
    """
    if "attainment" not in given:
        return None
    evidence, work, requests = given["attainment"], question.work, question.requests
    piece = evidence["piece"].whole(0, len(machine.alpha) - 1)
    groups = evidence["groups"].whole(1, MOST_GROUPS)
    cells, told = read_timed(evidence["cells"], machine, work), evidence["shares"].items(len(requests))
    owned = [read_share(some, len(cells.ends), work) for some in told]
    require_whole(cells, owned)
    work.spend(finding(machine, question._replace(groups=groups)))
    paid = list[int | None]()
    for asked, own in zip(requests, owned, strict=True):
        needs = needs_in(asked, groups)
        paid.append(None if needs is None else all_paid(machine, piece, cells, needs, asked[1], own, work))
    spans = zip([0, *cells.ends], cells.ends, cells.prices, strict=False)
    return paid, WHOLE * sum((end - begin) * price for begin, end, price in spans)
