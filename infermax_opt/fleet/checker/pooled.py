"""Proof: fewest machines.

What the good requests pay in windows, or at prices of time, is at most what all machines have room for there,
and no more prompts are late than may be.  The proofs stand in `infermax_opt.fleet.bounds`: `pooled`,
`attainment`, `priced` and `in_turn`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.attainment import attained
from infermax_opt.fleet.checker.in_turn import machines_in_turn
from infermax_opt.fleet.checker.machine import Machine
from infermax_opt.fleet.checker.needs import Need, needs_of, unit_of
from infermax_opt.fleet.checker.priced import priced
from infermax_opt.fleet.checker.question import Asked, Question, read_question, require_schema
from infermax_opt.fleet.checker.windows import NEVER, Window, paid_by

POOLED_SCHEMA = "infermax-opt/fleet-bound/1"


class Charged(NamedTuple):
    """What a certificate comes to.

    `least`: what the good requests pay together; None if there are too few.  `known`: machines that prompts
    need in turn, or all at prices of time.
    """

    machine: Machine
    windows: list[Window]
    question: Question
    least: int | None
    known: int = 0


def charged(given: Field, work: Work) -> Charged:
    """What a certificate comes to."""
    require_schema(given, POOLED_SCHEMA)
    question = read_question(given, work)
    machine, windows, paid = paid_by(given, question)
    least = least_paid(paid, question.must)
    known = 0
    if least is not None:
        needs_on = partial(prompt_needs, machine)
        known = max(
            machines_in_turn(given, machine, question, needs_on),
            machines_paid(priced(given, machine, question, needs_on), question),
            machines_paid(attained(given, machine, question, partial(grouped_needs, machine)), question),
        )
    return Charged(machine, windows, question, least, known)


def machines_paid(found: tuple[list[int | None], int] | None, question: Question) -> int:
    """Machines whose time costs what good requests pay; 0 if a certificate says nothing of that.

    Parameters
    ----------
    found : (list of int or None, int) or None
        What each request pays, and the time of each machine.
    question : Question
        So many requests can be good as have to.
    """
    if found is None:
        return 0
    paid, room = found
    return -(-(least_paid(paid, question.must) or 0) // max(1, room))


def grouped_needs(machine: Machine, asked: Asked, groups: int) -> list[Need] | None:
    """What a request needs of a machine that serves it to its end, its later tokens in so many groups.

    Parameters
    ----------
    machine, asked, groups
    """
    arrival, prompt, outputs, limits = asked
    return needs_of(machine, arrival, (prompt, outputs), limits, groups)


def prompt_needs(machine: Machine, asked: Asked) -> list[Need] | None:
    """The same with all later tokens as one stretch."""
    return grouped_needs(machine, asked, 1)


def least_paid(paid: list[int | None], must: int) -> int | None:
    """What so many requests pay together at least; None if fewer can be good."""
    known = sorted(some for some in paid if some is not None)
    return sum(known[:must]) if len(known) >= must else None


def fewest_of(found: Charged, least: int | None = None) -> int | str:
    """The number of machines that is proved, or `NEVER`.

    `least` are needed in any case; one without it, if a request has to be good.
    """
    if found.least is None:
        return NEVER
    room = unit_of(found.machine) * sum((end - begin) * weight for begin, end, weight, *_ in found.windows)
    known = min(1, found.question.must) if least is None else least
    return max(known, found.known, -(-found.least // max(1, room)))
