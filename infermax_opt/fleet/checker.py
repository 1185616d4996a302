"""Stand-alone checker of lower bounds on machines: one file, standard library only, exact numbers.

    python checker.py CERTIFICATE [QUESTION]

A certificate holds all that it speaks of: the machine in ticks, the requests with their limits, the share
that has to keep these, and windows of time with weights.  The hash of all but the windows is recomputed.  It
is told, as whoever wrote the file may have put in other requests; each row of a plan has its own.  With
QUESTION another hash is rejected.  Exit code 0: it proves its number of machines; 1: it does not; 2: the file
cannot be read.  The proof stands in `infermax_opt.fleet.bounds.pooled`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

__all__ = ["KINDS", "NEVER", "SCHEMA", "Asked", "Machine", "Need", "Rejected", "check", "machine_seconds"]
__all__ += ["needs_of", "question_hash"]

SCHEMA = "infermax-opt/fleet-bound/1"
#: What alpha is shared by: KV tokens held, tokens processed, requests that hold KV.
KINDS = ("kv", "tokens", "running")
#: What is proved where more requests can never keep their limits than may miss them.
NEVER = "no number of machines"
#: Most comparisons of a stretch of a request with a window.
MOST_COMPARED = 100_000_000
#: Most groups of later tokens of a request.
MOST_GROUPS = 64
#: Whole numbers are below this.
MOST_WHOLE = 2**256
#: Numbers that are not whole, or written as text.
NUMBER = re.compile(r"[0-9]{1,200}(\.[0-9]{1,200}|/[0-9]{1,200})?")


class Rejected(Exception):
    """The certificate does not prove its bound; the text says why."""


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


class Need(NamedTuple):
    """A stretch of a request's life and what it does there: ticks between which all of it lies.

    `first` to `last`: its tokens made there, by number; token 1 is made by the prompt.
    """

    begin: int
    end: int
    first: int
    last: int


def require(condition: bool, problem: str) -> None:
    """Reject unless the condition holds."""
    if not condition:
        raise Rejected(problem)


# --- what is asked ----------------------------------------------------------------------------------

#: Arrival in seconds, prompt and output tokens; TTFT, TPOT and end-to-end latency in seconds, or None.
Asked = tuple[Fraction, int, int, tuple[Fraction | None, ...]]


def question_hash(machine: Machine, share: Fraction, requests: Iterable[Asked]) -> str:
    """Hash of what is asked: how many of these machines keep the limits of this share of the requests.

    Numbers are in lowest terms and coefficients in seconds, so that notation makes no difference.

    Parameters
    ----------
    machine : Machine
    share : Fraction
    requests : iterable of Asked
        In the order of the trace.
    """
    second, alpha, beta, *rest = machine
    terms = [*zip(alpha, beta, strict=True), rest[:4]]
    costs = [" ".join(str(Fraction(x, second)) for x in some) for some in terms]
    lines = ["infermax-opt/fleet-question/1", str(share), " | ".join(costs), " ".join(map(str, rest[4:]))]
    lines += [f"{a} {i} {o} {' '.join(map(str, limits))}" for a, i, o, limits in requests]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# --- time of a request with a machine to itself -----------------------------------------------------


def prompt_pairs(machine: Machine, prompt: int) -> int:
    """Least attention work of a prompt, in pairs of tokens."""
    return prompt if machine.spreads else prompt * prompt


def prompt_ticks(machine: Machine, prompt: int) -> int:
    """Ticks to a first token, at least."""
    batches = -(-prompt // machine.prefill)
    return max(
        batches * (alpha + machine.p0) + beta * prompt + machine.p1 * prompt_pairs(machine, prompt)
        for alpha, beta in zip(machine.alpha, machine.beta, strict=True)
    )


def later_ticks(machine: Machine, prompt: int, first: int, last: int) -> int:
    """Ticks from token `first` - 1 to token `last`, at least; 2 <= first.

    Parameters
    ----------
    machine, prompt, first, last
    """
    count = last - first + 1
    if count <= 0:
        return 0
    # Token k is made with prompt + k - 1 tokens cached after it; beyond token 2, k - 2 more than with it.
    rise = (first - 2 + last - 2) * count // 2
    best = 0
    for alpha, beta in zip(machine.alpha, machine.beta, strict=True):
        least, slope = machine.d0 + machine.d1 * prompt, machine.d1
        if machine.preemption:
            least, slope = min(least, machine.p0 + beta * prompt), min(slope, beta)
        best = max(best, count * (alpha + beta + least) + slope * rise)
    return best


def needs_of(
    machine: Machine, arrival: Fraction, lengths: tuple[int, int], limits: Any, groups: int
) -> list[Need] | None:
    """What a request needs to keep its limits, and when; None if it never keeps them.

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
    if ends is None:
        return None
    (until, due), date = ends, arrival * machine.ticks_per_second
    begin, found = floor(date), list[Need]()
    if until is not None:
        found.append(Need(begin, ceil(date + until), 1, 1))
    if due is not None and outputs > 1:
        size, first = -(-(outputs - 1) // groups), prompt_ticks(machine, prompt)
        for low in range(2, outputs + 1, size):
            high = min(outputs, low + size - 1)
            ready = begin + first + later_ticks(machine, prompt, 2, low - 1)
            end = ceil(date + due) - later_ticks(machine, prompt, high + 1, outputs)
            found.append(Need(ready, end, low, high))
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


# --- what a stretch costs a machine -----------------------------------------------------------------


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


# --- the certificate --------------------------------------------------------------------------------


def whole(value: Any, least: int, what: str) -> int:
    """A whole number of at least so much.

    Parameters
    ----------
    value, least, what
        The last one names it in the reason.
    """
    fits = type(value) is int and least <= value < MOST_WHOLE
    require(fits, f"{what}: {value!r:.60} is no whole number from {least}, or too large")
    return int(value)


def number(value: Any, what: str) -> Fraction:
    """An exact number of 0 or more: whole, or a text with a decimal or a fraction."""
    if type(value) is int:
        return Fraction(whole(value, 0, what))
    # Without exponents: "1e999999999" would take all memory.
    fits = isinstance(value, str) and NUMBER.fullmatch(value) is not None
    require(fits, f"{what}: {value!r:.60} is no number from 0, or too long")
    return Fraction(value)


def machine_of(value: Any) -> Machine:
    """The machine of a certificate."""
    alpha, beta = (tuple(whole(x, 0, key) for x in value[key]) for key in ("alpha", "beta"))
    require(len(alpha) == len(beta) > 0, "pieces: alpha and beta differ in number")
    switches = value["spreads"], value["preemption"]
    require(all(type(some) is bool for some in switches), "spreads, preemption: are no truth values")
    d0, d1, p0, p1, running = (whole(value[key], 0, key) for key in ("d0", "d1", "p0", "p1", "running"))
    names = ("ticks_per_second", "kv", "tokens", "prefill")
    second, kv, tokens, prefill = (whole(value[key], 1, key) for key in names)
    return Machine(second, alpha, beta, d0, d1, p0, p1, kv, tokens, prefill, running, *switches)


def check(certificate: Any) -> int | str:
    """The number of machines that a certificate proves, or `NEVER`.

    Raises
    ------
    Rejected
        If it is malformed.
    """
    charged = _charged(certificate)
    if charged.least is None:
        return NEVER
    room = unit_of(charged.machine) * sum(
        (end - begin) * weight for begin, end, weight, *_ in charged.windows
    )
    some = 1 if charged.must else 0
    return max(some, -(-charged.least // room)) if room else some


def machine_seconds(certificate: Any) -> Fraction | None:
    """Seconds for which machines are busy together, at least, by windows apart; None if never in time.

    Raises
    ------
    Rejected
        If it is malformed, windows overlap, or their weights are not 1.
    """
    charged, before = _charged(certificate), 0
    for begin, end, weight, *_ in sorted(charged.windows):
        require(begin >= before and weight == 1, "windows: overlap, or have weights")
        before = end
    if charged.least is None:
        return None
    return Fraction(charged.least, unit_of(charged.machine) * charged.machine.ticks_per_second)


class Charged(NamedTuple):
    """What a certificate comes to: `least` that the good requests pay together; None if there are too few."""

    machine: Machine
    windows: list[Any]
    must: int
    least: int | None


def _charged(certificate: Any) -> Charged:
    try:
        return _charge(certificate)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Rejected(f"is malformed: {type(error).__name__}: {error}") from None


def _charge(certificate: Any) -> Charged:
    require(certificate["schema"] == SCHEMA, "schema: is another one")
    machine, share = machine_of(certificate["machine"]), number(certificate["share"], "share")
    require(share <= 1, "share: is above 1")
    groups = whole(certificate["groups"], 1, "groups")
    require(groups <= MOST_GROUPS, f"groups: more than {MOST_GROUPS}")
    windows = [_window(some, machine) for some in certificate["windows"]]
    work = len(certificate["requests"]) * (len(windows) + 1) * (groups + 1)
    require(work <= MOST_COMPARED, "takes too long to check")
    levels = certificate["levels"]
    requests = [_asked(levels[whole(level, 0, "level")], *rest) for *rest, level in certificate["requests"]]
    question = question_hash(machine, share, requests)
    require(certificate["question"] == question, f"question: machine, share and requests are of {question}")
    paid = []
    for arrival, prompt, outputs, limits in requests:
        needs = needs_of(machine, arrival, (prompt, outputs), limits, groups)
        if needs is not None:
            paid.append(sum(_paid(machine, prompt, needs, *window) for window in windows))
    must = ceil(share * len(requests))
    return Charged(machine, windows, must, sum(sorted(paid)[:must]) if len(paid) >= must else None)


def _asked(level: Any, arrival: Any, prompt: Any, outputs: Any) -> Asked:
    """A request with its limits."""
    ttft, tpot, e2e = (None if limit is None else number(limit, "level") for limit in level)
    lengths = whole(prompt, 1, "prompt"), whole(outputs, 1, "outputs")
    return number(arrival, "arrival"), *lengths, (ttft, tpot, e2e)


def _window(value: Any, machine: Machine) -> tuple[int, int, int, int, str]:
    begin, end, weight, piece, kind = value
    whole(begin, 0, "window")
    whole(end, begin + 1, "window")
    whole(weight, 1, "weight")
    require(whole(piece, 0, "piece") < len(machine.alpha), "piece: there is none of that number")
    require(kind in KINDS, f"kind: {kind!r} is unknown")
    return begin, end, weight, piece, kind


def _paid(
    machine: Machine, prompt: int, needs: list[Need], begin: int, end: int, weight: int, piece: int, kind: str
) -> int:
    inside = (need for need in needs if begin <= need.begin and need.end <= end)
    return weight * sum(cost_of(machine, prompt, need, piece, kind) for need in inside)


def main(arguments: list[str]) -> int:
    """Check a file; the exit code."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write("usage: checker.py CERTIFICATE [QUESTION]\n")
        return 2
    path, *asked = arguments
    try:
        with open(path, encoding="utf-8") as handle:
            certificate = json.load(handle)
        claimed = certificate["machines"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        sys.stderr.write(f"{path}: cannot be read: {type(error).__name__} {error}\n")
        return 2
    try:
        proved = check(certificate)
        counts = type(claimed) is int and type(proved) is int and 0 <= claimed <= proved
        require(counts or claimed == proved == NEVER, f"proves {proved}, not {claimed!r:.60}")
        question = certificate["question"]
        require(asked in ([], [question]), f"is for another question, {question}")
    except Rejected as error:
        sys.stdout.write(f"{path}: rejected: {error}\n")
        return 1
    what = NEVER if claimed == NEVER else f"at least {claimed} machines, whoever routes and schedules"
    sys.stdout.write(f"{path}: proves: {what}; question {question}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
