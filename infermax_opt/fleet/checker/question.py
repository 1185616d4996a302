"""The question that a certificate of a fleet holds: requests with their limits, the share that keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_INTEGER, MAX_REQUESTS
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.machine import Machine

#: Most groups of later tokens of a request.
MOST_GROUPS = 64
#: Steps of reading a request or its limits, without the digits.
READING = 110

#: Arrival in seconds, prompt and output tokens; TTFT, TPOT and end-to-end latency in seconds, or None.
Asked = tuple[Fraction, int, int, tuple[Fraction | None, ...]]


class Question(NamedTuple):
    """Requests with their limits, the share and number that keep them, and groups of later tokens.

    `digits`: in which times of requests are written, for fractions of many take long.
    """

    requests: list[Asked]
    share: Fraction
    must: int
    groups: int
    digits: int
    work: Work


def require_schema(given: Field, schema: str) -> None:
    """The certificate is of this schema."""
    if given["schema"].value != schema:
        given["schema"].fail(f"{shown(given['schema'].value)} is not {schema}")


def quantity(given: Field) -> Fraction:
    """A decimal or a fraction of 0 or more, exactly."""
    value = given.number()
    if value < 0:
        given.fail("is below 0")
    return value


def read_question(given: Field, work: Work) -> Question:
    """The question of a certificate, but for the machine."""
    share, groups = quantity(given["share"]), given["groups"].whole(1, MOST_GROUPS)
    if share > 1:
        given["share"].fail("is above 1")
    work.spend(READING * (len(given["levels"].values()) + len(given["requests"].values())))
    levels, entries = given["levels"].items(), given["requests"].items()
    known = [_level(level, work) for level in levels]
    if len(entries) > MAX_REQUESTS:
        given["requests"].fail(f"holds {len(entries)} requests; the most is {MAX_REQUESTS}")
    requests, digits = list[Asked](), 0
    for entry in entries:
        arrival, prompt, outputs, level = entry.items(4)
        work.spend(written(arrival))
        lengths = prompt.whole(1, MAX_INTEGER), outputs.whole(1, MAX_INTEGER)
        place = level.whole(0, len(levels) - 1)
        requests.append((quantity(arrival), *lengths, known[place]))
        digits += written(arrival) + sum(map(written, levels[place].items()))
    return Question(requests, share, ceil(share * len(requests)), groups, digits, work)


def written(given: Field) -> int:
    """Digits of a time, if it is a text."""
    return len(given.value) if isinstance(given.value, str) else 0


def _level(given: Field, work: Work) -> tuple[Fraction | None, ...]:
    limits = given.items(3)
    work.spend(sum(map(written, limits)))
    return tuple(None if limit.value is None else quantity(limit) for limit in limits)


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
    return joint_hash(lines)


def joint_hash(lines: Iterable[str]) -> str:
    """Hash of what several hashes and numbers are of."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
