"""What an instance says of its cost model and of each request."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_RATES

#: Most tokens, blocks and the like of a request.
MAX_TOKENS = 10**9
PHASES = {"decode": False, "prefill": True}
CLASSES = {"rt": True, "be": False}


def read_pair(field: Field) -> tuple[Fraction, Fraction]:
    """Two decimals."""
    first, second = field.items(2)
    return first.decimal(), second.decimal()


def choose(field: Field, known: dict[str, bool]) -> bool:
    """What one of some words stands for."""
    word = field.text()
    if word not in known:
        field.fail(f"{shown(word)} is none of {', '.join(known)}")
    return known[word]


class Cost:
    """Coefficients as they are written."""

    def __init__(self, cost: Field):
        self.batch = [read_pair(piece) for piece in cost["batch"].items()]
        if not 1 <= len(self.batch) <= MAX_RATES:
            cost["batch"].fail(f"holds {len(self.batch)} pieces, not 1 to {MAX_RATES}")
        if not any(alpha for alpha, _ in self.batch):
            cost["batch"].fail("no piece has an overhead above 0")
        self.decode, self.prefill = read_pair(cost["decode"]), read_pair(cost["prefill"])
        self.mixed = read_pair(cost["mixed"]) if "mixed" in cost else (Fraction(0), Fraction(0))
        self.attention = cost["attention"].text()
        if self.attention not in ("square", "exact", "product"):
            cost["attention"].fail(f"{shown(self.attention)} is none of square, exact, product")

    def parts(self) -> tuple[Any, ...]:
        """All that tells it from another one."""
        return self.batch, self.decode, self.prefill, self.mixed, self.attention


class Request(NamedTuple):
    """A request, times in seconds."""

    real_time: bool
    prefills: bool
    tokens: int
    context: int
    waited: Fraction
    blocks: int
    host: int
    worth: Fraction
    group: int


def read_request(entry: Field, most: int | None) -> Request:
    """What an entry says of each of its requests."""
    real_time, prefills = choose(entry["class"], CLASSES), choose(entry["phase"], PHASES)
    context = entry["context"].whole(1, MAX_TOKENS)
    whole = context if prefills else 1
    worth = "weight" if real_time else "value"

    def count(key: str, default: int, least: int, top: int) -> int:
        return entry[key].whole(least, top) if key in entry else default

    made = Request(
        real_time,
        prefills,
        count("input", whole, 1, whole),
        context,
        entry["waited"].decimal() if "waited" in entry else Fraction(0),
        count("new_blocks", 0, 0, MAX_TOKENS),
        count("host_blocks", 0, 0, MAX_TOKENS),
        entry[worth].decimal() if worth in entry else Fraction(int(not real_time)),
        count("group", 1, 1, most or MAX_TOKENS),
    )
    if not real_time and (made.waited or made.group != 1):
        entry.fail("waited and group are of real-time requests only")
    return made
