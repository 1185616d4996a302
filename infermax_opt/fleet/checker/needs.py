"""What a request needs to keep its limits, when, and what that costs a machine."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, isqrt
from typing import Any, NamedTuple

from infermax_opt.fleet.checker.beside import batches_beside, prompt_beside, shared_by
from infermax_opt.fleet.checker.machine import Machine, later_ticks, prompt_pairs, prompt_ticks

#: What alpha is shared by, each token by itself: KV tokens held, tokens processed, requests that hold KV.
SHARED = ("kv", "tokens", "running")
#: The same, and by the pace at which requests have to go on, where a stretch pays more than its parts.
PACE = "pace"
KINDS = (*SHARED, PACE)
#: One of these, or the horizon within which prompts and later tokens are beside each other.
Kind = str | int


class Need(NamedTuple):
    """A stretch of a request's life and what it does there: ticks between which all of it lies.

    `first` to `last`: its tokens made there, by number; token 1 is made by the prompt.  `spare`: ticks by
    which its batches may take longer together than they do at least for the request alone; of all later
    tokens if of some of them.  `wait`: ticks from arrival to the latest first token, if that was made by the
    same machine; `outputs`: tokens of the request, where that is there.
    """

    begin: int
    end: int
    first: int
    last: int
    spare: int
    wait: int | None = None
    outputs: int = 0


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
    (until, due, slack), date = ends, arrival * machine.ticks_per_second
    begin, found, first = floor(date), list[Need](), prompt_ticks(machine, prompt)
    if until is not None:
        found.append(Need(begin, ceil(date + until), 1, 1, ceil(until) - first))
    if due is not None and outputs > 1:
        later = later_needs(machine, lengths, (begin + first, ceil(date + due)), slack, groups)
        wait = None if until is None else ceil(until)
        found += [need._replace(wait=wait, outputs=outputs) for need in later]
    return found


def later_needs(
    machine: Machine, lengths: tuple[int, int], between: tuple[int, int], spare: int, groups: int
) -> list[Need]:
    """Stretches of the later tokens of a request, of which there are some.

    Parameters
    ----------
    machine : Machine
    lengths : (int, int)
        Prompt and output tokens.
    between : (int, int)
        Ticks at which the first token is there at the soonest, and the last one has to be.
    spare : int
        Of all of them, see `Need`.
    groups : int
        As in `needs_of`.
    """
    (prompt, outputs), (ready, due) = lengths, between
    size, found = -(-(outputs - 1) // groups), list[Need]()
    for low in range(2, outputs + 1, size):
        high = min(outputs, low + size - 1)
        begin = ready + later_ticks(machine, prompt, 2, low - 1)
        found.append(Need(begin, due - later_ticks(machine, prompt, high + 1, outputs), low, high, spare))
    return found


def whole_of(later: list[Need]) -> Need:
    """All later tokens of a request as one stretch."""
    return later[0]._replace(end=later[-1].end, last=later[-1].last)


def _ends(machine: Machine, prompt: int, outputs: int, limits: Any) -> tuple[Any, Any, Any] | None:
    """Ticks from arrival to the latest first and last token, and the spare ones of later tokens.

    None for no end; None for all if never in time.
    """
    ttft, tpot, e2e = (None if limit is None else limit * machine.ticks_per_second for limit in limits)
    first, later = prompt_ticks(machine, prompt), later_ticks(machine, prompt, 2, outputs)
    span = span_of(tpot, outputs)
    if span is not None and later > span:
        return None
    due = least_of(e2e, None if ttft is None or span is None else ttft + span)
    until = least_of(ttft, None if due is None else due - later)
    if until is not None and first > until:
        return None
    slack = least_of(span, None if due is None else due - first)
    return until, due, None if slack is None else ceil(slack) - later


def span_of(tpot: Any, outputs: int) -> Any:
    """The longest time from first to last token; None for no limit."""
    if outputs == 1:
        return 0
    return None if tpot is None else tpot * (outputs - 1)


def least_of(one: Any, other: Any) -> Any:
    """The smaller of two numbers, where None is infinite."""
    return min((some for some in (one, other) if some is not None), default=None)


def unit_of(machine: Machine) -> int:
    """Units of cost in a tick."""
    return machine.kv * machine.tokens * machine.prefill * max(1, machine.running)


def cost_of(machine: Machine, prompt: int, need: Need, piece: int, kind: Kind) -> int:
    """What a stretch costs at least, in units.

    Parameters
    ----------
    machine, prompt, need
    piece : int
        Affine piece of the batch time.
    kind : str or int
        One of `KINDS`, or a horizon.
    """
    if isinstance(kind, int):
        return _beside(machine, prompt, need, piece, kind)
    unit, alpha, beta = unit_of(machine), machine.alpha[piece], machine.beta[piece]
    count = need.last - need.first + 1
    if need.first == 1:
        work = unit * (beta * prompt + machine.p1 * prompt_pairs(machine, prompt))
        if kind == PACE:
            batches = -(-prompt // machine.prefill)
            time = need.spare + prompt_ticks(machine, prompt)
            return work + _paced(work, time, batches, alpha + machine.p0)
        work += unit // machine.prefill * machine.p0 * prompt
        shares = {"kv": (machine.kv, prompt), "tokens": (machine.tokens, prompt)}
    else:
        after = _read(prompt, need) + count
        decode, work = _decode(machine, beta), unit * later_work(machine, prompt, need, beta)
        if kind == PACE:
            one, other = (beta + decode * (prompt + token - 2) for token in (need.first, need.last))
            root = count * count * (one + other + isqrt(4 * one * other))
            fixed = alpha + (min(machine.d0, machine.p0) if machine.preemption else machine.d0)
            time = need.spare + later_ticks(machine, prompt, need.first, need.last)
            return work + _paced(unit * root, 4 * time, 4 * count, fixed)
        if not machine.preemption or (beta - machine.d1) * machine.kv >= 2 * machine.d0:
            work += unit // machine.kv * machine.d0 * after
        shares = {"kv": (machine.kv, after), "tokens": (machine.tokens, count)}
    limit, used = shares.get(kind, (max(1, machine.running), count if machine.running else 0))
    return work + unit // limit * alpha * used


def _decode(machine: Machine, beta: int) -> int:
    """Ticks of a token that a later one reads, at least."""
    return min(machine.d1, beta) if machine.preemption else machine.d1


def _read(prompt: int, need: Need) -> int:
    """Tokens that those of a later stretch read."""
    count = need.last - need.first + 1
    return count * prompt + (need.first - 2 + need.last - 2) * count // 2


def later_work(machine: Machine, prompt: int, need: Need, beta: int) -> int:
    """Ticks of work of a later stretch, at least.

    Parameters
    ----------
    machine, prompt, need, beta
    """
    return beta * (need.last - need.first + 1) + _decode(machine, beta) * _read(prompt, need)


def _beside(machine: Machine, prompt: int, need: Need, piece: int, horizon: int) -> int:
    """What a stretch costs by a horizon.

    Parameters
    ----------
    machine, prompt, need, piece, horizon
    """
    unit = unit_of(machine)
    if need.first == 1:
        time = need.spare + prompt_ticks(machine, prompt)
        return prompt_beside(machine, prompt, piece, time, unit)
    work = unit * later_work(machine, prompt, need, machine.beta[piece])
    if need.wait is None:
        return work
    lengths, span = (prompt, need.outputs), need.spare + later_ticks(machine, prompt, 2, need.outputs)
    share, whole = shared_by(machine, lengths, piece, (need.wait, span), horizon)
    if not share:
        return work
    batches = batches_beside(machine, lengths, piece, need.last - need.first + 1, span)
    return work + unit * share * batches // whole


def _paced(root: int, time: int, batches: int, fixed: int) -> int:
    """What batches of a request cost beyond its work, as they take no longer than `time` together.

    Parameters
    ----------
    root : int
        Square of the sum of the roots of the work in each, at least.
    time, batches : int
        The number of batches that there are at least; both times the same number, if any.
    fixed : int
        Ticks of a batch beside all work.
    """
    left = time - batches * fixed
    return fixed * root // left if root and left > 0 else 0
