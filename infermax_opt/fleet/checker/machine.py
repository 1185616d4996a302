"""The machine of a certificate, and the least time that a request takes alone on it."""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

from infermax_opt.checking.fields import Field
from infermax_opt.checking.limits import MAX_INTEGER, MAX_RATES


class Machine(NamedTuple):
    """Coefficients in ticks, and limits of a batch; `running` 0 is no limit.

    `spreads`: chunks save attention work; `preemption`: what was cached may be dropped and computed again.
    """

    ticks_per_second: int
    alpha: tuple[int, ...]
    beta: tuple[int, ...]
    d0: int
    d1: int
    p0: int
    p1: int
    kv: int
    tokens: int
    prefill: int
    running: int
    spreads: bool
    preemption: bool


def read_machine(given: Field) -> Machine:
    """The machine of a certificate."""
    alpha, beta = (_pieces(given[key]) for key in ("alpha", "beta"))
    if len(alpha) != len(beta):
        given["beta"].fail(f"{len(beta)} pieces, but alpha has {len(alpha)}")
    d0, d1, p0, p1, running = (
        given[key].whole(0, MAX_INTEGER) for key in ("d0", "d1", "p0", "p1", "running")
    )
    names = ("ticks_per_second", "kv", "tokens", "prefill")
    second, kv, tokens, prefill = (given[key].whole(1, MAX_INTEGER) for key in names)
    switches = given["spreads"].flag(), given["preemption"].flag()
    return Machine(second, alpha, beta, d0, d1, p0, p1, kv, tokens, prefill, running, *switches)


def _pieces(given: Field) -> tuple[int, ...]:
    values = given.integers()
    if not 0 < len(values) <= MAX_RATES:
        given.fail(f"holds {len(values)} pieces, not 1 to {MAX_RATES}")
    if min(values) < 0:
        given.fail("a piece is below 0")
    return tuple(values)


def prompt_pairs(machine: Machine, prompt: int) -> int:
    """Least attention work of a prompt, in pairs of tokens."""
    return prompt if machine.spreads else prompt * prompt


def prompt_ticks(machine: Machine, prompt: int) -> int:
    """Ticks to a first token, at least.

    Where chunks save attention work, q of them do no less than prompt**2 / q pairs, but take q batches.
    """
    few, found = -(-prompt // machine.prefill), 0
    for alpha, beta in zip(machine.alpha, machine.beta, strict=True):
        start, square = alpha + machine.p0, machine.p1 * prompt * prompt
        best = isqrt(square // start) if machine.spreads and start else prompt
        most = prompt if machine.spreads else few
        tried = {min(most, max(few, chunks)) for chunks in (best, best + 1)}
        least = min(q * start + (square // q if machine.spreads else square) for q in tried)
        found = max(found, beta * prompt + least)
    return found


def later_ticks(machine: Machine, prompt: int, first: int, last: int) -> int:
    """Ticks from token `first` - 1 to token `last`, at least; 2 <= first.

    Parameters
    ----------
    machine, prompt, first, last
    """
    pieces = range(len(machine.alpha))
    return max(later_by_piece(machine, prompt, (first, last), piece) for piece in pieces)


def later_by_piece(machine: Machine, prompt: int, tokens: tuple[int, int], piece: int) -> int:
    """The same by an affine piece of the batch time.

    Parameters
    ----------
    machine, prompt
    tokens : (int, int)
        First and last.
    piece : int
    """
    first, last = tokens
    count = last - first + 1
    if count <= 0:
        return 0
    # Token k is made with prompt + k - 1 tokens cached after it; beyond token 2, k - 2 more than with it.
    rise = (first - 2 + last - 2) * count // 2
    beta, least, slope = machine.beta[piece], machine.d0 + machine.d1 * prompt, machine.d1
    if machine.preemption:
        least, slope = min(least, machine.p0 + beta * prompt), min(slope, beta)
    return count * (machine.alpha[piece] + beta + least) + slope * rise
