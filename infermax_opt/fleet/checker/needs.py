"""What a request needs to keep its limits, when, and what that costs a machine."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

from infermax_opt.fleet.checker.machine import Machine, later_ticks, prompt_pairs, prompt_ticks

#: What alpha is shared by: KV tokens held, tokens processed, requests that hold KV.
KINDS = ("kv", "tokens", "running")


class Need(NamedTuple):
    """A stretch of a request's life and what it does there: ticks between which all of it lies.

    `first` to `last`: its tokens made there, by number; token 1 is made by the prompt.
    """

    begin: int
    end: int
    first: int
    last: int


def needs_of(
    machine: Machine, arrival: Fraction, lengths: tuple[int, int], limits: Any, groups: int
) -> list[Need] | None:
    """What a request needs to keep its limits, and when; None if it never does, or fits no machine.

    Parameters
    ----------
    machine : Machine
    arrival : Fraction
        Seconds.
    lengths : (int, int)
        Prompt and output tokens.
    limits : sequence
        TTFT, TPOT and end-to-end latency in seconds, or None.
    groups : int
        Stretches into which later tokens are divided.
    """
    prompt, outputs = lengths
    ends = _ends(machine, prompt, outputs, limits)
    if ends is None or prompt + outputs - 1 > machine.kv:
        return None
    (until, due), date = ends, arrival * machine.ticks_per_second
    begin, found = floor(date), list[Need]()
    if until is not None:
        found.append(Need(begin, ceil(date + until), 1, 1))
    if due is not None and outputs > 1:
        ready, end = begin + prompt_ticks(machine, prompt), ceil(date + due)
        found += later_needs(machine, lengths, (ready, end), groups)
    return found


def later_needs(
    machine: Machine, lengths: tuple[int, int], between: tuple[int, int], groups: int
) -> list[Need]:
    """Stretches of the later tokens of a request, of which there are some.

    Parameters
    ----------
    machine : Machine
    lengths : (int, int)
        Prompt and output tokens.
    between : (int, int)
        Ticks at which the first token is there at the soonest, and the last one has to be.
    groups : int
        As in `needs_of`.
    """
    (prompt, outputs), (ready, due) = lengths, between
    size, found = -(-(outputs - 1) // groups), list[Need]()
    for low in range(2, outputs + 1, size):
        high = min(outputs, low + size - 1)
        begin = ready + later_ticks(machine, prompt, 2, low - 1)
        found.append(Need(begin, due - later_ticks(machine, prompt, high + 1, outputs), low, high))
    return found


def _ends(machine: Machine, prompt: int, outputs: int, limits: Any) -> tuple[Any, Any] | None:
    """Ticks from arrival to the latest first and last token, None for no end; None if never in time."""
    ttft, tpot, e2e = (None if limit is None else limit * machine.ticks_per_second for limit in limits)
    first, later = prompt_ticks(machine, prompt), later_ticks(machine, prompt, 2, outputs)
    span = 0 if outputs == 1 else None if tpot is None else tpot * (outputs - 1)
    if span is not None and later > span:
        return None
    due = least_of(e2e, None if ttft is None or span is None else ttft + span)
    until = least_of(ttft, None if due is None else due - later)
    return None if until is not None and first > until else (until, due)


def least_of(one: Any, other: Any) -> Any:
    """The smaller of two numbers, where None is infinite."""
    return min((some for some in (one, other) if some is not None), default=None)


def unit_of(machine: Machine) -> int:
    """Units of cost in a tick."""
    return machine.kv * machine.tokens * machine.prefill * max(1, machine.running)


def cost_of(machine: Machine, prompt: int, need: Need, piece: int, kind: str) -> int:
    """What a stretch costs at least, in units.

    Parameters
    ----------
    machine, prompt, need
    piece : int
        Affine piece of the batch time.
    kind : str
        One of `KINDS`.
    """
    unit, alpha, beta = unit_of(machine), machine.alpha[piece], machine.beta[piece]
    count = need.last - need.first + 1
    if need.first == 1:
        work = unit * (beta * prompt + machine.p1 * prompt_pairs(machine, prompt))
        work += unit // machine.prefill * machine.p0 * prompt
        shares = {"kv": (machine.kv, prompt), "tokens": (machine.tokens, prompt)}
    else:
        before = count * prompt + (need.first - 2 + need.last - 2) * count // 2
        after = before + count
        decode = min(machine.d1, beta) if machine.preemption else machine.d1
        work = unit * (beta * count + decode * before)
        if not machine.preemption or (beta - machine.d1) * machine.kv >= 2 * machine.d0:
            work += unit // machine.kv * machine.d0 * after
        shares = {"kv": (machine.kv, after), "tokens": (machine.tokens, count)}
    limit, used = shares.get(kind, (max(1, machine.running), count if machine.running else 0))
    return work + unit // limit * alpha * used
