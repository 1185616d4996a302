"""Windows of time with weights, and what each request pays in them: the argument of all proofs."""

from __future__ import annotations

from typing import NamedTuple

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_INTEGER
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.machine import Machine, read_machine
from infermax_opt.fleet.checker.needs import KINDS, PACE, Kind, Need, cost_of, needs_of, whole_of
from infermax_opt.fleet.checker.question import Question, question_hash

#: What is proved where more requests can never keep their limits than may miss them.
NEVER = "no number of machines"
#: Steps: to find a need, besides that for each affine piece; to compare it with a window; to cost it, and by
#: pace or a horizon, besides those for each affine piece.
FINDING, PIECE, COMPARING, COSTING, PACING, LOOKING = 60, 12, 2, 35, 40, 100

#: Steps of reading a window; a machine, and each of its pieces; of hashing a request.
READING_WINDOW, OPENING, OPENING_PIECE, HASHING = 70, 1000, 60, 50

#: Begin and end in ticks, weight, affine piece, what shares alpha or a horizon.
Window = tuple[int, int, int, int, Kind]


class Paid(NamedTuple):
    """A type of machine, its windows, and what each request pays there, in units; None: never in time."""

    machine: Machine
    windows: list[Window]
    paid: list[int | None]


def read_windows(given: Field, machine: Machine, work: Work) -> list[Window]:
    """The windows of a certificate.

    Parameters
    ----------
    given, machine, work
    """
    work.spend(READING_WINDOW * len(given.values()))
    found = []
    for entry in given.items():
        begin, end, weight, piece, kind = entry.items(5)
        start = begin.whole(0, MAX_INTEGER)
        number = piece.whole(0, len(machine.alpha) - 1)
        until = end.whole(start + 1, 2 * MAX_INTEGER)
        found.append((start, until, weight.whole(1, MAX_INTEGER), number, _kind(kind)))
    return found


def _kind(given: Field) -> Kind:
    """What shares alpha, or a horizon."""
    if type(given.value) is int:
        return given.whole(1, MAX_INTEGER)
    if given.value not in KINDS:
        given.fail(f"{shown(given.value)} is none of {', '.join(KINDS)}")
    return given.text()


def finding(machine: Machine, question: Question) -> int:
    """Steps of finding what all requests need."""
    each = (question.groups + 2) * (FINDING + PIECE * len(machine.alpha))
    return len(question.requests) * each + question.digits


def paid_by(given: Field, question: Question) -> Paid:
    """What each request pays in the windows of a type; its question is recomputed.

    Parameters
    ----------
    given : Field
        A certificate, or a type of one.
    question : Question
    """
    machine, work = read_machine(given["machine"]), question.work
    windows = read_windows(given["windows"], machine, work)
    work.spend(OPENING + OPENING_PIECE * len(machine.alpha))
    work.spend(len(question.requests) * HASHING + finding(machine, question))
    known = question_hash(machine, question.share, question.requests)
    if given["question"].value != known:
        given["question"].fail(f"machine, share and requests are of {known}")
    paid: list[int | None] = []
    for arrival, prompt, outputs, limits in question.requests:
        needs = needs_of(machine, arrival, (prompt, outputs), limits, question.groups)
        paid.append(None if needs is None else paid_in(machine, windows, prompt, needs, work))
    return Paid(machine, windows, paid)


def paid_in(machine: Machine, windows: list[Window], prompt: int, needs: list[Need], work: Work) -> int:
    """What a request pays in all windows; a need costs the same in each of a piece and kind.

    Parameters
    ----------
    machine, windows, prompt, needs, work
    """
    weights = _weights(windows, needs, work) if needs else {}
    paced = sum(kind == PACE for *_, kind in weights)
    looked = sum(isinstance(kind, int) for *_, kind in weights)
    by_pieces = PIECE * (paced + looked) * len(machine.alpha)
    work.spend(COSTING * len(weights) + PACING * paced + LOOKING * looked + by_pieces)
    return sum(
        weight * cost_of(machine, prompt, need, piece, kind)
        for (need, piece, kind), weight in weights.items()
    )


def _weights(windows: list[Window], needs: list[Need], work: Work) -> dict[tuple[Need, int, Kind], int]:
    """Weights of the windows that each need lies in, by piece and kind."""
    begins, ends = [need.begin for need in needs], [need.end for need in needs]
    first, last, soonest, latest = min(begins), max(begins), min(ends), max(ends)
    joined, groups = _stretches(needs)
    found: dict[tuple[Need, int, Kind], int] = {}
    work.spend(COMPARING * len(windows))
    for begin, end, weight, piece, kind in windows:
        inside = joined
        if begin > first or latest > end:
            if begin > last or soonest > end:
                continue
            work.spend(COMPARING * (len(needs) + 1))
            inside = _within(joined, begin, end)
            if groups and joined[-1] not in inside:
                inside += _within(groups, begin, end)
        for need in inside:
            found[need, piece, kind] = found.get((need, piece, kind), 0) + weight
    return found


def _stretches(needs: list[Need]) -> tuple[list[Need], list[Need]]:
    """The needs with all later tokens as one, the last, which costs what its groups do or more; and these."""
    groups = [need for need in needs if need.first > 1]
    joined = [need for need in needs if need.first == 1]
    return (joined if not groups else [*joined, whole_of(groups)]), groups


def _within(needs: list[Need], begin: int, end: int) -> list[Need]:
    """Those that lie in a window."""
    return [need for need in needs if begin <= need[0] and need[1] <= end]
