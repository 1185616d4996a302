"""What prompts and later tokens cost beside each other, see `infermax_opt.fleet.bounds.beside`.

A horizon, in ticks, says how long prompts of requests that decode together may have taken.
"""

from __future__ import annotations

from math import isqrt

from infermax_opt.fleet.checker.machine import Machine, later_by_piece, prompt_pairs

#: In windows: one part of so many of what a batch takes before its work is shared by work, others by tokens.
PARTS = 8


def prompt_beside(machine: Machine, prompt: int, piece: int, time: int, unit: int, parts: int = PARTS) -> int:
    """What a prompt costs at least, in units.

    Parameters
    ----------
    machine, prompt
    piece : int
        Affine piece of the batch time.
    time : int
        Ticks that its batches take together at most.
    unit : int
        Units of cost in a tick, a multiple of the prompt tokens of a batch.
    parts : int
        One part of so many is shared by work: q, above 1.
    """
    fixed, beta = machine.alpha[piece] + machine.p0, machine.beta[piece]
    pairs, each = prompt_pairs(machine, prompt), fixed * beta
    if machine.spreads and each and machine.p1 and time:
        chunk = isqrt(prompt * each // (parts * machine.p1 * time))
        pairs = max(pairs, 3 * chunk * prompt + -parts * machine.p1 * chunk**3 * time // each)
    by_tokens = (parts - 1) * (unit // machine.prefill) * fixed * prompt // parts
    return unit * (beta * prompt + machine.p1 * pairs) + by_tokens


def reach(machine: Machine, lengths: tuple[int, int], piece: int, between: tuple[int, int]) -> int | None:
    """The least horizon of a request, in ticks; None if it has none.

    Parameters
    ----------
    machine : Machine
    lengths : (int, int)
        Prompt and output tokens.
    piece : int
        Affine piece of the batch time.
    between : (int, int)
        Ticks from arrival to first token, and from first to last one, at most.
    """
    wait, spare = between[0], _spare(machine, lengths, piece, between[1])
    full = machine.beta[piece] * machine.prefill
    return None if not full else wait + spare - (-spare * (machine.alpha[piece] + machine.p0) // full)


def shared_by(
    machine: Machine, lengths: tuple[int, int], piece: int, between: tuple[int, int], horizon: int
) -> tuple[int, int]:
    """The share of a batch that a request pays which makes a later token of it, as a fraction times units.

    Ticks that the prompt pays at least, times the tokens of a batch; and the same of the horizon.

    Parameters
    ----------
    machine, lengths, piece, between
        As for `reach`.
    horizon : int
    """
    prompt, least = lengths[0], reach(machine, lengths, piece, between)
    if least is None or least > horizon:
        return 0, 1
    fixed, size = machine.alpha[piece] + machine.p0, machine.prefill
    work = machine.beta[piece] * prompt + machine.p1 * prompt_pairs(machine, prompt)
    return work * size + fixed * prompt, horizon * size


def batches_beside(
    machine: Machine, lengths: tuple[int, int], piece: int, count: int, span: int, parts: int = PARTS
) -> int:
    """Ticks of batches that make so many later tokens of a request, which its share is of, at least.

    Parameters
    ----------
    machine, lengths, piece
        As for `reach`.
    count : int
        Of these tokens.
    span : int
        Ticks from first to last token, at most.
    parts : int
        As for `prompt_beside`.
    """
    alpha, beta = machine.alpha[piece], machine.beta[piece]
    full, spare = beta * machine.prefill, _spare(machine, lengths, piece, span)
    decoding = 0
    if not machine.preemption or (beta - machine.d1) * lengths[0] >= machine.d0:
        decoding = machine.d0 * count
    return (parts - 1) * alpha * max(0, count * full - spare) // (parts * full) + decoding


def _spare(machine: Machine, lengths: tuple[int, int], piece: int, span: int) -> int:
    """Ticks from first to last token that are left for others, at most."""
    return span - later_by_piece(machine, lengths[0], (2, lengths[1]), piece)
