r"""Machines that are too few, by prices of time and shares of the batches of each moment.

`infermax_opt.infermax.bounds.attainment` says how many requests miss their limits on one machine.  This is
the same for m of them, with a few things more.  Its words and those of `infermax_opt.fleet.bounds.pooled` are
used here.  `priced` gives a request one share for all of its time; here it has one in each cell of time, and
makes its tokens no faster than batches can follow each other.

Fix an affine piece of the batch time.  Let u(t) >= 0 be the price of a moment, the same on all machines, a
constant on each cell.  A batch is spread evenly over its time, and so is all that it does.

*Credits.*  A later token of a good request, with s tokens cached after it, is one credit of the batch that
decodes it; if it ends a refill, each chunk of c tokens has c / s of it.  So a request has at most one credit
in a batch.  A batch takes e or more for each credit that one request has in it,

    e = alpha + beta + min(d0 + d1 (s - 1), p0 + beta (s - 1)),    without preemption the former,

as a chunk takes alpha + p0 + beta c, which is at least c / s of what all of the refill would.  Here the piece
by which it takes longest counts, as for all times that something takes at least.

*Charges.*  In each cell, a request has a share of a batch, and so have KV, tokens and requests, which are
scarce: none is below 0, and all are 1 together at most.  A batch is charged, each tick of it at u,

* beta for each token of a prompt, p1 for its attention work, p0 / P for each token without preemption;
* w = beta + d1 (s - 1) for each credit, with preemption w = beta + min(d1, beta) (s - 1);
* f times the share of the request for each credit, f = alpha + d0 if there is no preemption or (beta - d1) I
  >= d0, else alpha + min(d0, p0);
* alpha times the share of KV for s / M of each credit and I / M of each prompt, by its tokens; of tokens for
  1 / C and I / C, of requests for 1 / R and 1 / R.  No batch has more than 1 of any of these.

If the batch decodes, it takes alpha + d0 and all work, and p0 if it holds a prompt.  If not, its credits are
of refills, it takes alpha + p0 and all work.  A chunk of a refill works beta c >= c / s (w + (beta - d1) I),
as s - 1 >= I, which pays for d0 where f has it; and else f is no more than alpha + p0.  So in any case what
is charged is at most what the batch takes; and all good requests of a machine pay the integral of u at most.

*Requests.*  The prompt of a good request pays at least the lowest charge of a cell in its stretch, its
attention work the lowest price there.  Its later tokens are taken in groups, each with a stretch of its own.
Each cell has as many credits of a group as its time there divided by e of the first token of the group, at
the charges of that one; so the group pays at least the cheapest cells, and for what its tokens work beyond
the first one the lowest price.  After the last cell all is free.

*Machines.*  So all good requests pay at most m times the integral of u; whoever is good, they pay at least
the sum of the ceil(q n) smallest payments among requests that are not lost.  QED.

On one machine, as often in a window of minutes, this sees what windows and one share do not: each of those
who decode needs as many batches as tokens in its own time, so that batches have to follow each other fast
enough for all who are there.  Of m machines each might have one of m such batches, for all it knows.

*Choice.*  The linear program of `infermax_opt.infermax.bounds._attainment_program` for m machines.  Cells
that have a price are cut smaller, as long as it proves enough to hope.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.core.deadline import Deadline
from infermax_opt.files.text import counted
from infermax_opt.fleet.checker.attainment import WHOLE, attained
from infermax_opt.fleet.checker.pooled import grouped_needs, least_paid
from infermax_opt.fleet.checker.question import Question, read_question
from infermax_opt.fleet.machine import machine_of
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.bounds.attainment import AttainmentProgram, AttainmentProof, Prices

__all__ = ["ANY_STEPS", "batches_of_too_few"]

#: Requests beyond which it is not tried.
MOST_REQUESTS = 2_500
#: Groups of later tokens.
GROUPS = 8
#: Rounds: pairs of a request and a cell in its time, about, and the part of what may be missed that a round
#: has to prove, or no more are tried.
ROUNDS = (6_000, 0.02), (15_000, 0.4), (40_000, 1.0)
#: Parts of a cell that has a price, at most; price below which, as a part of the highest, it has none.
PARTS, LEAST = (16, 12, 8, 6, 4, 3, 2), 1e-4
#: Seconds for a program.
SECONDS = 60.0
#: Steps of checking a proof of one's own.
ANY_STEPS = 10**18


def batches_of_too_few(
    question: FleetQuestion,
    certificate: dict[str, Any],
    known: int,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any] | None:
    """Evidence that most machines are too few; None if no more than are known.

    Parameters
    ----------
    question : FleetQuestion
    certificate : dict
        With the question.
    known : int
        Machines that are needed.
    tell : callable, optional
        Takes lines of progress.
    """
    requests = question.workload.requests
    if not known or len(requests) > MOST_REQUESTS:
        return None
    search = _Search(question, certificate, tell)
    best = None
    while (found := search.too_few(known)) is not None:
        best, known = found, known + 1
    return best


class _Search:
    """Prices of time of a question.

    Parameters
    ----------
    question : FleetQuestion
    certificate : dict
    tell : callable or None
    """

    def __init__(
        self, question: FleetQuestion, certificate: dict[str, Any], tell: Callable[[str], None] | None
    ):
        self.certificate, self.tell = certificate, tell
        self.machine, self.size = machine_of(question.workload), question.size
        self.asked: Question = read_question(Field(certificate, "certificate"), Work(ANY_STEPS))
        places = {one.id: place for place, one in enumerate(question.everyone)}
        requests = question.workload.requests
        self.places, self.spare = [places[one.id] for one in requests], question.may_miss
        whole = question.machine(range(len(requests)))
        self.proofs = [AttainmentProof(whole, piece) for piece in range(len(self.machine.alpha))]

    def too_few(self, machines: int) -> dict[str, Any] | None:
        """Evidence that so many machines are too few, if it is found."""
        proofs, before = self.proofs, None
        for pairs, hope in ROUNDS:
            tried = list[tuple[float, AttainmentProof, Prices]]()
            for proof in proofs:
                if self.tell is not None:
                    self.tell(f"{counted(machines, 'machines')}: shares of batches, {pairs} pairs")
                ends = None if before is None else _finer(proof, before, pairs)
                prices = AttainmentProgram(proof, pairs, machines, ends).prices(Deadline(SECONDS))
                evidence = self._evidence(prices, proof)
                missed, proved = self._missed(evidence, prices, machines)
                if proved:
                    return evidence
                tried.append((missed, proof, prices))
            missed, proof, before = max(tried, key=lambda one: one[0])
            if missed < hope * self.spare or missed <= 0:
                return None
            proofs = [proof]
        return None

    def _evidence(self, prices: Prices, proof: AttainmentProof) -> dict[str, Any]:
        shares: list[list[int]] = [[0] for _ in range(self.size)]
        for members, (first, some) in zip(proof.members, prices.shares, strict=True):
            for member in members:
                shares[self.places[member]] = [first, *some]
        rows = zip(prices.ends, prices.prices, prices.scarce, strict=True)
        return {
            "piece": proof.piece,
            "groups": GROUPS,
            "cells": [[end, price, *some] for end, price, some in rows],
            "shares": shares,
        }

    def _missed(self, evidence: dict[str, Any], prices: Prices, machines: int) -> tuple[float, bool]:
        """How many miss at least, about, and whether it proves that so many machines are too few."""
        given = Field({**self.certificate, "attainment": evidence}, "certificate")
        found = attained(given, self.machine, self.asked, partial(grouped_needs, self.machine))
        assert found is not None
        paid, room = found
        one = WHOLE << prices.exponent
        payments = sum(one if some is None else min(one, some) for some in paid)
        least = least_paid(paid, self.asked.must)
        return (payments - machines * room) / one, least is not None and least > machines * room


def _finer(proof: AttainmentProof, before: Prices, pairs: int) -> list[int]:
    """Ends of cells: those that had a price, and their neighbours, are cut in as many parts as there may be.

    Parameters
    ----------
    proof : AttainmentProof
    before : Prices
    pairs : int
        Pairs of a request and a cell in its time, at most.
    """
    price = [0, *before.prices, 0]
    dear = [some > max(price) * LEAST for some in price]
    near = [any(dear[k : k + 3]) for k in range(len(before.prices))]
    times = [(guest.begin, guest.end) for guest in proof.guests if not guest.lost and guest.end]
    ends = list(before.ends)
    for parts in PARTS:
        cells = zip(pairwise([0, *before.ends]), near, strict=True)
        ends = [end for cell, cut in cells for end in _cut(cell, parts if cut else 1)]
        if sum(bisect_left(ends, end) - bisect_right(ends, begin) + 1 for begin, end in times) <= pairs:
            return ends
    return ends


def _cut(cell: tuple[int, int], parts: int) -> Iterator[int]:
    """Ends of parts of a cell that are about alike."""
    begin, end = cell
    parts = min(parts, end - begin)
    return (begin + (end - begin) * k // parts for k in range(1, parts + 1))
