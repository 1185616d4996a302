"""Proof: fewest machines, by how many prompts are late if all machines serve in turn, as one of their speed.

The proof stands in `infermax_opt.fleet.bounds.in_turn`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.in_turn import (
    JOB_STEPS,
    PROMPT_STEPS,
    PromptCosts,
    fewest_late,
    least_paid_in_turn,
)
from infermax_opt.checking.limits import MAX_INTEGER
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.machine import Machine
from infermax_opt.fleet.checker.needs import Need
from infermax_opt.fleet.checker.question import Asked, Question
from infermax_opt.fleet.checker.windows import finding

#: What a request needs of a machine; None if it never keeps its limits.
Needs = Callable[[Asked], list[Need] | None]


class Prompts(NamedTuple):
    """Prompts with a limit, by arrival, and how many may be late of these.

    `arrivals`, `lengths`: in ticks, what each pays; None: it never is in time.  `window`: from the arrival of
    each to its latest first token.
    """

    arrivals: list[int]
    lengths: list[int | None]
    window: int
    allowed: int


def prompts_of(machine: Machine, question: Question, piece: int, needs_of: Needs) -> Prompts:
    """The prompts of a question, and what each pays at least.

    Parameters
    ----------
    machine : Machine
    question : Question
        Not more of its requests are never in time than may be late.
    piece : int
        Affine piece of the batch time.
    needs_of : callable
    """
    work, known = question.work, dict[tuple[int, int], int | None]()
    work.spend(finding(machine, question) + JOB_STEPS * len(question.requests))
    costs = PromptCosts(
        machine.alpha[piece] + machine.p0, machine.beta[piece], machine.p1, machine.prefill, machine.spreads
    )
    found, window, allowed = list[tuple[int, int | None]](), 0, len(question.requests) - question.must
    for asked in question.requests:
        needs, prompt = needs_of(asked), asked[1]
        if needs is None:
            allowed -= 1
        elif needs and needs[0].first == 1:
            begin, time = needs[0].begin, needs[0].end - needs[0].begin
            if (prompt, time) not in known:
                work.spend(PROMPT_STEPS)
                known[prompt, time] = least_paid_in_turn(costs, prompt, time)
            found.append((begin, known[prompt, time]))
            window = max(window, time)
    found.sort(key=lambda job: job[0])
    return Prompts([begin for begin, _ in found], [length for _, length in found], window, allowed)


def too_few(machines: int, prompts: Prompts, work: Work) -> bool:
    """Whether more prompts are late on so many machines than may be.

    Parameters
    ----------
    machines : int
    prompts : Prompts
    work : Work
    """
    jobs = zip((machines * begin for begin in prompts.arrivals), prompts.lengths, strict=True)
    return fewest_late(jobs, machines * prompts.window, prompts.allowed, work) > prompts.allowed


def machines_in_turn(given: Field, machine: Machine, question: Question, needs_of: Needs) -> int:
    """One machine more than are too few by a certificate; 0 if it says nothing of them.

    Parameters
    ----------
    given : Field
        The certificate.
    machine : Machine
    question : Question
    needs_of : callable
    """
    if "in_turn" not in given:
        return 0
    evidence = given["in_turn"]
    machines = evidence["too_few"].whole(0, MAX_INTEGER)
    piece = evidence["piece"].whole(0, len(machine.alpha) - 1)
    shown = too_few(machines, prompts_of(machine, question, piece, needs_of), question.work)
    require(shown, f"in_turn: no more requests are late on {machines} machines than may be")
    return machines + 1
