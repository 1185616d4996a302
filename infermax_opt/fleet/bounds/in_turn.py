r"""Prompts in turn: how many are late at least, if all machines serve as one that is as fast as all of them.

The pooled bound lets an adversary choose who misses the limits, but by parts: a share of each request.  This
bound counts whole requests.  It sees prompts only.

Fix an affine piece of the batch time and a number of machines m.  Let S be good requests with a limit of the
first token: each has it within its *window*, from its arrival to the latest moment that its limits allow.

*Payments.*  `infermax_opt.infermax.bounds.on_time` says what a prompt pays at least, for work and for its
share of batches, if its batches take no longer together than its window.  Of a set of requests on one machine
the payments add up to no more than the batches take there that hold chunks of their prompts.

*One machine for all.*  Let L be the longest window.  Take two requests of S, h that arrives no later than r,
and one of the machines.  Of S, let it serve some that arrive between h and r.  Their prompts are processed
between the arrival of h and L after that of r, so they pay no more than that time.  Sum over the machines:
all that arrive between h and r pay at most m times that.  Hence, with every payment divided by m,

    arrival of h + payments of all from h to r <= arrival of r + L, for all h and r.

That is: on one machine that serves in the order of arrival, each as long as its payment by m, all of S end
within L.

*Late ones.*  How many of all requests can end within L there at most follows from the table of `on_time`.
Who never keeps its limits is late in any case; who has no limit of the first token is not counted.  If more
are late than may miss their limits, m machines are too few, whatever routing and schedules know.  QED.

It is stronger than windows where bursts are short: parts of many requests that are late count for less than
as many whole ones.  It is weaker where windows differ, as all get the longest, and where decoding matters,
which it ignores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Exhausted, Work
from infermax_opt.fleet.checker.in_turn import Needs, prompts_of, too_few
from infermax_opt.fleet.checker.machine import Machine
from infermax_opt.fleet.checker.question import read_question

__all__ = ["machines_too_few"]


def machines_too_few(
    certificate: dict[str, Any], machine: Machine, needs_of: Needs, known: int
) -> dict[str, int] | None:
    """Evidence that most machines are too few, by the best affine piece; None if no more than are known.

    Parameters
    ----------
    certificate : dict
        With the question.
    machine : Machine
    needs_of : callable
        What a request needs of it.
    known : int
        Machines that are needed.
    """
    given, best = Field(certificate, "certificate"), None
    for piece in range(len(machine.alpha)):
        try:
            question = read_question(given, Work())
            prompts = prompts_of(machine, question, piece, needs_of)
            if prompts.lengths.count(None) > prompts.allowed:
                continue  # every number is too few: there is no most
            most = _most(lambda machines: too_few(machines, prompts, Work()), known)  # noqa: B023
        except Exhausted:
            continue
        if most is not None:
            best, known = {"too_few": most, "piece": piece}, most + 1
    return best


def _most(holds: Callable[[int], bool], low: int) -> int | None:
    """The largest number for which it holds, which it does for all below; None if not for `low`."""
    if not holds(low):
        return None
    step = 1
    while holds(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
