"""Proof: fewest prefill machines, or fewest decode machines, where each does its part alone.

The same as of `pooled`, with what a request needs of one side.  The proof stands in
`infermax_opt.fleet.bounds.split`.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.in_turn import machines_in_turn
from infermax_opt.fleet.checker.machine import Machine, later_ticks, prompt_ticks, read_machine
from infermax_opt.fleet.checker.needs import Need, later_needs, least_of, span_of
from infermax_opt.fleet.checker.pooled import Charged, fewest_of, least_paid
from infermax_opt.fleet.checker.question import (
    Asked,
    joint_hash,
    quantity,
    question_hash,
    read_question,
    require_schema,
)
from infermax_opt.fleet.checker.windows import HASHING, OPENING, OPENING_PIECE, finding, paid_in, read_windows

SPLIT_SCHEMA = "infermax-opt/fleet-split-bound/1"
SIDES = ("prefill", "decode")


class Apart(NamedTuple):
    """A machine of either side, and the seconds that a token of KV takes from one to the other."""

    prefill: Machine
    decode: Machine
    transfer: Fraction


def split_needs(apart: Apart, side: str, asked: Asked, groups: int) -> list[Need] | None:
    """What a request needs of a side to keep its limits; None if it never does, or fits no machine.

    Parameters
    ----------
    apart : Apart
    side : str
        One of `SIDES`.
    asked : Asked
    groups : int
        Stretches into which later tokens are divided.
    """
    arrival, prompt, outputs, limits = asked
    ends = _dates(apart, prompt, outputs, limits)
    if ends is None or not holds(apart.prefill.kv, apart.decode.kv, prompt, outputs):
        return None
    first, until, due, slack = ends
    if side == "prefill":
        second = apart.prefill.ticks_per_second
        if until is None:
            return []
        spare = ceil((until - first) * second)
        return [Need(floor(arrival * second), ceil((arrival + until) * second), 1, 1, spare)]
    if due is None or outputs == 1:
        return []
    second = apart.decode.ticks_per_second
    ready = floor((arrival + first + apart.transfer * prompt) * second)
    between = ready, ceil((arrival + due) * second)
    return later_needs(apart.decode, (prompt, outputs), between, ceil(slack * second), groups)


def holds(prefill: int, decode: int, prompt: int, outputs: int) -> bool:
    """Whether a prefill and a decode machine of so many tokens of KV can hold a request.

    Parameters
    ----------
    prefill, decode, prompt, outputs
    """
    return prompt <= prefill and (outputs == 1 or prompt + outputs - 1 <= decode)


def _dates(apart: Apart, prompt: int, outputs: int, limits: Any) -> tuple[Fraction, Any, Any, Any] | None:
    """Seconds from arrival to the soonest first token, to the latest first and last one, and spare ones.

    Those are of transfer and later tokens.  None for no end; None for all if never in time.
    """
    ttft, tpot, e2e = limits
    first, rest = Fraction(prompt_ticks(apart.prefill, prompt), apart.prefill.ticks_per_second), Fraction(0)
    if outputs > 1:
        later = later_ticks(apart.decode, prompt, 2, outputs)
        rest = apart.transfer * prompt + Fraction(later, apart.decode.ticks_per_second)
    span = span_of(tpot, outputs)
    if span is not None and rest > span:
        return None
    due = least_of(e2e, None if ttft is None or span is None else ttft + span)
    until = least_of(ttft, None if due is None else due - rest)
    if until is not None and first > until:
        return None
    slack = least_of(span, None if due is None else due - first)
    return first, until, due, None if slack is None else slack - rest


def ends_apart(apart: Apart, asked: Asked) -> Fraction | None:
    """Seconds from arrival to the latest first token of a request that is in time at all; None for no end."""
    _, prompt, outputs, limits = asked
    ends = _dates(apart, prompt, outputs, limits)
    return None if ends is None else ends[1]


def split_hash(apart: Apart, share: Fraction, requests: list[Asked]) -> str:
    """Hash of what is asked: how many of these machines of either side keep the limits of this share.

    Parameters
    ----------
    apart, share, requests
    """
    machines = (question_hash(machine, share, requests) for machine in (apart.prefill, apart.decode))
    return joint_hash([*machines, str(apart.transfer)])


def fewest_apart(given: Field, work: Work) -> tuple[str, int | str]:
    """The side that a certificate speaks of, and the number of its machines that is proved, or `NEVER`."""
    require_schema(given, SPLIT_SCHEMA)
    question, side = read_question(given, work), given["side"].value
    if side not in SIDES:
        given["side"].fail(f"{shown(side)} is none of {', '.join(SIDES)}")
    prefill, decode = (read_machine(given[name]) for name in SIDES)
    if decode.preemption:
        given["decode"].fail("drops what was cached, and computes it again")
    apart = Apart(prefill, decode, quantity(given["transfer"]))
    machine: Machine = getattr(apart, side)
    windows = read_windows(given["windows"], machine, work)
    for one in (prefill, decode):
        work.spend(OPENING + OPENING_PIECE * len(one.alpha))
        work.spend(len(question.requests) * HASHING + finding(one, question))
    asked_hash = split_hash(apart, question.share, question.requests)
    if given["question"].value != asked_hash:
        given["question"].fail(f"machines, transfer, share and requests are of {asked_hash}")
    paid, done = list[int | None](), 0
    for asked in question.requests:
        needs = split_needs(apart, side, asked, question.groups)
        paid.append(None if needs is None else paid_in(machine, windows, asked[1], needs, work))
        # Whoever has a single token is done before the decode pool.
        done += needs is not None and side == "decode" and asked[2] == 1
    least, known = least_paid(paid, question.must), 0
    if least is not None and side == "prefill":
        known = machines_in_turn(given, machine, question, lambda asked: split_needs(apart, side, asked, 1))
    found = Charged(machine, windows, question, least, known)
    return side, fewest_of(found, int(question.must > done))
