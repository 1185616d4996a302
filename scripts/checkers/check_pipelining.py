"""Stand-alone checker of certificates of bounds of pipelining instances: standard library only.

    python check_pipelining.py INSTANCE CERTIFICATE [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.pipelining.bounds`.

Assembled from the parts in `infermax_opt/checking` and `infermax_opt/pipelining/checker`:
change these, then run `make checkers`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

# --- infermax_opt/checking/errors.py --------------------------------------------------------------
# How a checker says that a proof, an instance or a file is not what it should be.


class Rejected(Exception):
    """The certificate does not prove its bound; the text says why."""


class Unusable(Rejected):
    """The instance, not the certificate, is at fault."""


class Unreadable(Exception):
    """A file that is not what it should be; the text names it and says why."""


def require(condition: bool, problem: str) -> None:
    """Reject unless the condition holds."""
    if not condition:
        raise Rejected(problem)


# --- infermax_opt/checking/limits.py --------------------------------------------------------------
# What a checker reads at most.

#: Most bytes of a file, after decompression, unless told otherwise.
MAX_BYTES = 256 * 2**20
#: Most values in a file, counted by commas and opening brackets; archived certificates hold 720,000.
MAX_VALUES = 10**7
#: Most requests of an instance.
MAX_REQUESTS = 10**6
#: Most characters of the names of all requests.
MAX_NAMES = 2**28
#: Most affine pieces or prefill levels of a cost model.
MAX_RATES = 10**5
#: Numbers of a certificate that are not read digit by digit are below this.
MAX_INTEGER = 2**256


# --- infermax_opt/checking/fields.py --------------------------------------------------------------
# Values of a file, read exactly, with messages that say what is wrong where.

NUMBER = re.compile(r"-?[0-9]{1,60}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,2})?")
#: A whole number is at most this, unless told otherwise.
MAX_WHOLE = 10**18
RATIO = re.compile(r"[0-9]{1,600}/[1-9][0-9]{0,600}")


def one_line(text: str, most: int = 300) -> str:
    """The text without line breaks and other control characters, cut where it is long."""
    short = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in short)


def shown(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        return one_line(repr(value) if isinstance(value, str) else str(value), 60)
    except ValueError:
        return "a number of thousands of digits"


class Field:
    """A value of a file and where it stands there, so that a message can say what is wrong where."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str):
        self.value, self.path = value, path

    def fail(self, problem: str) -> NoReturn:
        """Reject because of this value."""
        raise Rejected(f"is malformed: {self.path}: {problem}")

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __getitem__(self, key: str) -> Field:
        if not isinstance(self.value, dict):
            self.fail(f"{shown(self.value)} is not an object")
        if key not in self.value:
            raise Rejected(f"is malformed: {self.path}.{key}: is missing")
        return Field(self.value[key], f"{self.path}.{key}")

    def items(self, length: int | None = None) -> list[Field]:
        """The fields of a list, of so many if a length is given."""
        values = self.values()
        if length is not None and len(values) != length:
            self.fail(f"wrong length of a list: holds {len(values)} values, not {length}")
        return [Field(value, f"{self.path}[{k}]") for k, value in enumerate(values)]

    def values(self) -> list[Any]:
        """The values of a list, of which there may be too many for a field each."""
        if not isinstance(self.value, list):
            self.fail(f"{shown(self.value)} is not a list")
        return self.value

    def integers(self, length: int | None = None, nulls: bool = False) -> list[Any]:
        """A list of whole numbers, written without point or quotes; or nulls where these are allowed."""
        if type(self.value) is not list or (length is not None and len(self.value) != length):
            self.items(length)
        for k, value in enumerate(self.value):
            if not ((type(value) is int and -MAX_INTEGER < value < MAX_INTEGER) or (nulls and value is None)):
                self.fail(f"value {k}, {shown(value)}, is no whole number, or too large")
        return list(self.value)

    def decimal(self) -> Fraction:
        """A decimal of 0 or more, exactly."""
        value = self._number(NUMBER)
        if value < 0:
            self.fail(f"{shown(self.value)} is below 0")
        return value

    def number(self) -> Fraction:
        """A decimal or a fraction p/q, exactly."""
        return self._number(RATIO if isinstance(self.value, str) and "/" in self.value else NUMBER)

    def _number(self, pattern: re.Pattern[str]) -> Fraction:
        if type(self.value) is Fraction:  # of no file: one that the package holds, which needs no text
            return self.value
        if self.value is None or isinstance(self.value, bool | list | dict):
            self.fail(f"{shown(self.value)} is no number")
        if type(self.value) is int and -MAX_INTEGER < self.value < MAX_INTEGER:
            return Fraction(self.value)
        text = "" if isinstance(self.value, int) else str(self.value)
        if pattern.fullmatch(text) is None:
            self.fail(f"{shown(self.value)} is no number, or has too many digits")
        return Fraction(text)

    def whole(self, least: int, most: int = MAX_WHOLE) -> int:
        """A whole number within limits."""
        value = self.value if type(self.value) is int else self._number(NUMBER)
        if not (least <= value <= most and value == int(value)):
            self.fail(f"{shown(self.value)} is not a whole number from {least} to {most}")
        return int(value)

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.fail(f"{shown(self.value)} is neither true nor false")
        return self.value

    def text(self) -> str:
        """A text that can be hashed."""
        if not isinstance(self.value, str):
            self.fail(f"{shown(self.value)} is no text")
        try:
            self.value.encode()
        except UnicodeEncodeError:
            self.fail("holds half a surrogate pair")
        return self.value


# --- infermax_opt/checking/envelope.py ------------------------------------------------------------
# What surrounds the evidence of a certificate: its hash, the instance it is for, the bound it claims.


def check_envelope(certificate: Field, data: Any, instance_sha256: str) -> None:
    """The certificate is whole, and made out for this instance and its objective.

    Parameters
    ----------
    certificate : Field
        As parsed.
    data : Any
        The instance, as parsed.
    instance_sha256 : str
        Of the instance.
    """
    if not isinstance(certificate.value, dict):
        certificate.fail(f"{shown(certificate.value)} is not an object")
    body = {key: value for key, value in certificate.value.items() if key != "sha256"}
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str).encode()
    except (TypeError, ValueError, RecursionError):
        certificate.fail("holds what cannot be hashed, or is nested too deeply")
    expected = {"schema": "infermax-opt/certificate/1", "sha256": hashlib.sha256(text).hexdigest()}
    expected["instance"] = data["name"]
    for key, value in expected.items():
        if certificate[key].value != value:
            certificate[key].fail(f"{shown(certificate[key].value)} is not {shown(value)}")
    # Before the hash of the instance, of which the objective is a part; of weights that says enough.
    objective, own = certificate["objective"].value, data.get("objective", "makespan")
    if isinstance(own, str) and objective != own:
        raise Rejected(f"is for the objective {shown(objective)}; the instance's is {shown(own)}")
    if certificate["instance_sha256"].value != instance_sha256:
        found = shown(certificate["instance_sha256"].value)
        certificate["instance_sha256"].fail(f"{found} is not {shown(instance_sha256)}")
    if not isinstance(certificate["source"].value, str):
        certificate["source"].fail(f"{shown(certificate['source'].value)} is no text")


def compare(certificate: Field, proved: Fraction) -> Fraction:
    """The claim of the certificate, if no more than what is proved."""
    claimed = certificate["lower_bound"].number()
    require(claimed <= proved, f"claims {seconds(claimed)}, only {seconds(proved)} is proved")
    return claimed


def seconds(value: Fraction) -> str:
    """A number of seconds, as far as one can show it, and never more than it is."""
    try:
        number = float(value)
        # The nearest number may be above what was proved.
        return repr(math.nextafter(number, -math.inf) if Fraction(repr(number)) > value else number)
    except OverflowError:
        return f"about 10**{len(str(int(abs(value)))) - 1}"


# --- infermax_opt/checking/reading.py -------------------------------------------------------------
# Files: JSON with exact decimals, no key twice, no more than a checker reads.


def load(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Read a JSON object with exact decimals; ``.gz`` is decompressed."""
    data = read_bytes(path, max_bytes)
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Unreadable(f"{path}: holds more than {MAX_VALUES} values")
    hooks: Any = {"parse_constant": _no_number, "object_pairs_hook": _object}
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_float=str, **hooks)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"{path}: is not JSON: {error.msg} (line {error.lineno})") from None
    except RecursionError:
        raise Unreadable(f"{path}: is nested too deeply") from None
    except ValueError as error:  # of the two hooks; or an integer with more digits than int() takes
        raise Unreadable(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"{path}: {shown(value)} is not an object")
    return value


def read_bytes(path: Path, most: int) -> bytearray:
    """What a file holds, decompressed piece by piece up to the limit."""
    data = bytearray()
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as stream:
            while len(data) <= most and (piece := stream.read(2**20)):
                data += piece
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise Unreadable(f"{path}: is not a complete gzip file") from None
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None
    if len(data) > most:
        raise Unreadable(f"{path}: is larger than {most} bytes; --max-size allows more")
    return data


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"key {shown(twice)} is given twice")
    return result


# --- infermax_opt/checking/command.py -------------------------------------------------------------
# The command line of every checker.

#: What `--json` writes.
REPORT_SCHEMA = "infermax-opt/checked/1"


def objective_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds, and its unit: seconds of what it names."""
    return instance.get("objective", "makespan"), "s"


class Checker(NamedTuple):
    """The checker of a problem.

    `check`: takes instance and certificate, as parsed, and where the cost may be a profile (`profiles`) the
    folder of these; returns the bound, or raises Rejected.  `bounded`: what it bounds of an instance that has
    been checked, and the unit, as `objective_and_unit`.
    """

    check: Callable[..., Fraction]
    profiles: bool = False
    bounded: Callable[[Any], tuple[str, str]] = objective_and_unit


class Held(NamedTuple):
    """What a certificate holds that names no instance: the hash of its question, and the bound.

    `bounded`: what is bounded; `bound`: None where nothing is enough; `unit`: of the bound.
    """

    question: str
    bounded: str
    bound: Fraction | None
    unit: str


class AloneChecker(NamedTuple):
    """The checker of certificates that hold their question.

    `check`: takes a certificate, as parsed, and the hash of the question that it has to be of, or None;
    returns what it holds, or raises Rejected.
    """

    check: Callable[[Any, str | None], Held]


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all of a checker's are."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, one_line(f"{self.prog}: {message}; --help tells more", 1000) + "\n")


def argument_parser(profiles: Path | None = None, instance: bool | None = True) -> argparse.ArgumentParser:
    """What a checker is told on its command line.

    Parameters
    ----------
    profiles : Path, optional
        Where cost may be a profile: the folder of these.
    instance : bool or None
        Whether an instance stands before the certificate; None: not where the certificate holds its question.
    """
    parser = OneLineParser(
        description="check a lower bound; exit code 0: it holds, 1: rejected, 2: cannot be read"
    )
    parser.set_defaults(instance=None, question=None)
    if instance is not False:
        without = "" if instance else "; none where the certificate holds its question, as of fleets"
        told = f"instance that the bound is of, JSON, .gz or not{without}"
        parser.add_argument("instance", type=Path, nargs=None if instance else "?", help=told)
    parser.add_argument("certificate", type=Path, help="certificate of the bound, JSON, .gz or not")
    if instance is not True:
        told = "of a certificate that holds its question: reject it unless this is the hash of it"
        parser.add_argument("--question", metavar="HASH", help=told)
    mebibytes = "most MiB that a file may hold, decompressed (default: %(default)s)"
    parser.add_argument("--max-size", metavar="MIB", type=int, default=MAX_BYTES // 2**20, help=mebibytes)
    parser.add_argument("--json", action="store_true", help="say what came of it as a JSON object")
    if profiles is not None:
        told = "folder of the cost profiles that instances name (default: %(default)s)"
        parser.add_argument("--profiles", metavar="DIR", type=Path, default=profiles, help=told)
    return parser


def report(options: argparse.Namespace, checker_of: Callable[[Any], Checker | AloneChecker]) -> int:
    """Check the files named on the command line, say what came of it, return the exit code.

    Parameters
    ----------
    options : argparse.Namespace
        As parsed.
    checker_of : Callable
        The checker of an instance, as parsed; where none is named, of a certificate that holds its question.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started this
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    found = dict[str, str | None]()
    try:
        text, found = certified(options, checker_of)
    except Unusable as problem:
        code, outcome = 2, "unusable"
        text = f"cannot be used: {options.instance or options.certificate}: {problem}"
    except Rejected as problem:
        code, outcome, text = 1, "rejected", f"rejected: {problem}"
    except Unreadable as problem:
        code, outcome, text = 2, "unreadable", f"cannot be read: {problem}"
    except MemoryError:
        code, outcome, text = 2, "unreadable", "cannot be read: there is not enough memory"
    else:
        code, outcome = 0, "certified"
    line = one_line(text, 1000)
    if options.json:
        whole = {"schema": REPORT_SCHEMA, "outcome": outcome, "message": line, **found}
        return code if said(sys.stdout, json.dumps(whole, indent=2)) else 2
    return code if said(sys.stderr if code else sys.stdout, line) else 2


def certified(
    options: argparse.Namespace, checker_of: Callable[[Any], Checker | AloneChecker]
) -> tuple[str, dict[str, str | None]]:
    """What is said of a certificate that holds, in words and as fields; as `report`.

    Parameters
    ----------
    options, checker_of
    """
    most = options.max_size * 2**20
    given = load(options.instance or options.certificate, most)
    checker = checker_of(given)
    if isinstance(checker, AloneChecker):
        held = checker.check(given, options.question)
        bound = None if held.bound is None else str(held.bound)
        unit = held.unit.removesuffix("s") or "s" if held.bound == 1 else held.unit
        told = "nothing is enough" if held.bound is None else f">= {amount(held.bound)} {unit}"
        fields = {"question": held.question, "bounded": held.bounded, "lower_bound": bound, "unit": held.unit}
        return f"certified: question {held.question}: {held.bounded} {told}", fields
    folder = [options.profiles] if checker.profiles else []
    proved = checker.check(given, load(options.certificate, most), *folder)
    (what, unit), name = checker.bounded(given), given["name"]
    fields = {"instance": name, "bounded": what, "lower_bound": str(proved), "unit": unit}
    return f"certified: {name}: {what} >= {seconds(proved)} {unit}", fields


def amount(value: Fraction) -> str:
    """A number of things, which may be whole."""
    return str(value) if value.denominator == 1 else seconds(value)


def said(stream: TextIO | None, text: str) -> bool:
    """Whether a text could be written; one that nobody can read is no outcome."""
    problem: str | None = "it is closed"
    if stream is not None:
        try:
            stream.write(text + "\n")
            stream.flush()
            return True
        except OSError as error:
            problem = error.strerror
            # What is left in its buffer must not fail again when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if stream is not sys.stderr:
        said(sys.stderr, f"cannot be written: {problem}")
    return False


# --- infermax_opt/checking/meaning.py -------------------------------------------------------------
# The hash of what an instance means.


class Meaning:
    """Hash of what an instance means: each part with its length before it, a line at a time."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def feed(self, *parts: object) -> None:
        """Add a line."""
        texts = map(str, parts)
        self._digest.update((" ".join([f"{len(text)}:{text}" for text in texts]) + "\n").encode())

    def feed_requests(self, entry: Field, *parts: object) -> int:
        """Add the line of each request of an entry of ``requests``; return how many these are."""
        name = entry["id"].text()
        if "count" not in entry:
            self.feed(name, *parts)
            return 1
        times = entry["count"].whole(1, MAX_REQUESTS)
        if times * len(name) > MAX_NAMES:
            entry["id"].fail(f"{times} names of {len(name)} characters; the most is {MAX_NAMES} in all")
        rest = " ".join(f"{len(str(p))}:{p}" for p in parts)
        for k in range(1, times + 1):
            one = f"{name}.{k}"
            self._digest.update(f"{len(one)}:{one} {rest}\n".encode())
        return times

    def hexdigest(self) -> str:
        """The hash of all lines so far."""
        return self._digest.hexdigest()


# --- infermax_opt/checking/work.py ----------------------------------------------------------------
# How long a checker works at most.

#: Most steps of checking, each about a tenth of a microsecond: seven seconds in all.  The largest
#: certificate of the archive, one of occupancy, takes 25 million, but for the ends of its schedule, which
#: have limits of their own.  The search for paths of whole prompts stops at 60 million.
MAX_STEPS = 7 * 10**7


class Exhausted(Rejected):
    """Checking would take too long."""


class Work:
    """Steps of checking so far; rejects beyond a limit, `MAX_STEPS` unless told, before they are done."""

    def __init__(self, most: int | None = None) -> None:
        self.spent, self.most = 0, MAX_STEPS if most is None else most

    def spend(self, steps: int) -> None:
        """Count steps that come next."""
        self.spent += steps
        if self.spent > self.most:
            raise Exhausted(f"takes more than {self.most} steps to check, the limit")


# --- infermax_opt/pipelining/checker/instance.py --------------------------------------------------
# The instance: reserved lengths and values of the requests that are of use, and its hash.

#: Most tokens of a length or the capacity.
MAX_TOKENS = 10**9
#: Largest buffer, as a share of a length.
MAX_BUFFER = 10
#: The metric that is minimised where something else is to be as much as possible.
OBJECTIVES = {
    "tokens": "capacity_per_token",
    "area": "capacity_per_area",
    "count": "capacity_per_request",
    "value": "capacity_per_value",
}


def read_reservation(top: Field) -> tuple[int, int, Fraction]:
    """Capacity, block size and buffer as they are written; blocks of one token and no buffer by default."""
    block = top["block_size"].whole(1, MAX_TOKENS) if "block_size" in top else 1
    buffer = top["buffer"].decimal() if "buffer" in top else Fraction(0)
    if buffer > MAX_BUFFER:
        top["buffer"].fail(f"more than {MAX_BUFFER}")
    return top["capacity"].whole(1, MAX_TOKENS), block, buffer


class Instance:
    """What the bounds need of an instance file: lengths and values of the requests that are of use.

    Raises `Rejected` where the file is no instance.
    """

    def __init__(self, data: Any):
        top, self.work = Field(data, "instance"), Work()
        for key, value in (("schema", "infermax-opt/instance/1"), ("problem", "pipelining")):
            if top[key].value != value:
                top[key].fail(f"{shown(top[key].value)} is not {value!r}")
        self.reservation = self.capacity, block, buffer = read_reservation(top)
        self.room = self.capacity - self.capacity % block
        self.objective = top["objective"].text() if "objective" in top else "tokens"
        if self.objective not in OBJECTIVES:
            top["objective"].fail(f"{shown(self.objective)} is none of {', '.join(OBJECTIVES)}")
        entries = top["requests"].items()
        if not 0 < len(entries) <= MAX_REQUESTS:
            top["requests"].fail(f"holds {len(entries)} requests, not 1 to {MAX_REQUESTS}")
        #: Reserved length and value of each request that fits by itself and is worth something.
        self.requests: list[tuple[int, Fraction]] = []
        meaning = Meaning()
        meaning.feed("infermax-opt/instance/1", "pipelining")
        meaning.feed("parts", 6)
        meaning.feed("str", top["name"].text())
        meaning.feed("parts", len(entries))
        self._read_requests(entries, meaning)
        meaning.feed("int", self.capacity)
        meaning.feed("str", self.objective)
        meaning.feed("int", block)
        meaning.feed("Fraction", buffer)
        self.sha256 = meaning.hexdigest()

    def _read_requests(self, entries: list[Field], meaning: Meaning) -> None:
        """Lengths and values, and the hash of each request."""
        _, block, buffer = self.reservation
        for entry in entries:
            length = entry["length"].whole(1, MAX_TOKENS)
            size = block * math.ceil((1 + buffer) * length / block)
            given = "value" in entry and entry["value"].value is not None
            worth = entry["value"].decimal() if given else None
            meaning.feed("parts", 3)
            meaning.feed("str", entry["id"].text())
            meaning.feed("int", length)
            meaning.feed("NoneType" if worth is None else "Fraction", worth)
            if self.objective == "value" and worth is None:
                entry["value"].fail("is missing; the objective is value")
            values = {"tokens": Fraction(size), "area": Fraction(size * (size + 1), 2), "count": Fraction(1)}
            own = values.get(self.objective, worth or Fraction(0))
            if size <= self.room and own > 0:
                self.requests.append((size, own))


# --- infermax_opt/pipelining/checker/hats.py ------------------------------------------------------
# Proof: hats, by sums of hat inequalities and counts.


def weights(field: Field) -> list[tuple[int, Fraction]]:
    """Heights h, 1 or more, each with a weight of 0 or more."""
    found = []
    for entry in field.items():
        height, weight = entry.items(2)
        found.append((height.whole(1, 2 * MAX_TOKENS * (1 + MAX_BUFFER)), weight.number()))
        if found[-1][1] < 0:
            weight.fail("is below 0")
    return found


def hats(instance: Instance, evidence: Field) -> Fraction:
    """Sums of hat inequalities and counts, each with a weight; what is worth more than its price is added."""
    over, counts = weights(evidence["hats"]), weights(evidence["counts"])
    longest = max(size for size, _ in instance.requests)
    kinds = Counter(instance.requests)
    instance.work.spend(20 * (len(over) + len(counts)) * (len(kinds) + 1))
    most = Fraction(0)
    for height, weight in over:
        most += weight * (max(0, instance.room - height) + hat(height, longest))
    for height, weight in counts:
        most += weight * (instance.room // height)
    for (size, value), number in kinds.items():
        price = sum((weight * hat(height, size) for height, weight in over), Fraction(0))
        price += sum((weight for height, weight in counts if height <= size), Fraction(0))
        most += number * max(Fraction(0), value - price)
    return most


def hat(height: int, size: int) -> int:
    """What a request of that length takes of the hat of that height."""
    return max(0, min(2 * size - height, height))


# --- infermax_opt/pipelining/checker/prices.py ----------------------------------------------------
# Proof: prices of lengths, by the most that a circle holds.


def prices(instance: Instance, evidence: Field) -> Fraction:
    """The most that any number of requests of each length holds in prices, and what exceeds the prices."""
    unit, scale = evidence["unit"].whole(1, MAX_TOKENS), evidence["scale"].number()
    if scale <= 0:
        evidence["scale"].fail("is not above 0")
    sizes = evidence["sizes"].integers()
    given = evidence["prices"].integers(len(sizes))
    require(all(size > 0 for size in sizes) and sizes == sorted(set(sizes)), "lengths are not in order")
    require(all(price >= 0 for price in given), "a price is below 0")
    by_size = dict(zip(sizes, given, strict=True))
    cells = instance.room // unit
    instance.work.spend(sum(max(0, cells - 2 * size) ** 2 // 4 + cells for size in sizes))
    most = scale * most_held(cells, by_size)
    for size, value in instance.requests:
        most += max(Fraction(0), value - scale * by_size.get(size // unit, 0))
    return most


def most_held(cells: int, by_size: dict[int, int]) -> int:
    """The most that a circle of so many cells holds, lengths in order; the longest on it goes first."""
    worth, best = [0] * (cells + 1), 0
    for size, price in by_size.items():
        before = worth
        worth = before[:]
        for x in range(2 * size, cells + 1) if price else ():
            # The first of this length in x cells: shorter ones before it, any behind it.
            parts = map(add, before[size : x - size + 1], worth[x - size : size - 1 : -1])
            worth[x] = max(before[x], price + max(parts))
        if size <= cells:
            best = max(best, price + worth[cells])
    return best


# --- infermax_opt/pipelining/checker/certificate.py -----------------------------------------------
# The certificate: which proof its evidence is, and whether that proves what is claimed.


def check(instance_data: Any, certificate: Any) -> Fraction:
    """Return the bound on capacity / objective that the certificate proves, or raise Rejected."""
    try:
        instance = Instance(instance_data)
    except Rejected as problem:
        raise Unusable(str(problem)) from None
    given = Field(certificate, "certificate")
    try:
        aimed = {**instance_data, "objective": OBJECTIVES[instance.objective]}
        check_envelope(given, aimed, instance.sha256)
        require(read_reservation(given["cost"]) == instance.reservation, "is for another reservation")
        require(bool(instance.requests), "no request fits")
        most = prove(instance, Field(given["evidence"].value, "evidence"))
        # Values are multiples of a common part, so what is selected is, too.
        values = [value for _, value in instance.requests]
        part = Fraction(math.gcd(*(v.numerator for v in values)), math.lcm(*(v.denominator for v in values)))
        most = part * (most // part)
        require(most > 0, "proves nothing")
        return compare(given, instance.capacity / most)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """The most of the objective that can be selected, as the evidence proves."""
    proofs = {"hats": hats, "prices": prices}
    kind = evidence["kind"].text()
    if kind not in proofs:
        evidence["kind"].fail(f"{shown(kind)} is none of {', '.join(proofs)}")
    return proofs[kind](instance, evidence)


# --- infermax_opt/pipelining/checker/command.py ---------------------------------------------------
# The command line.


def share_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds, and its unit."""
    objective = instance.get("objective", "tokens")
    return f"capacity / {objective}", f"tokens/{'token' if objective == 'tokens' else objective}"


#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check, bounded=share_and_unit)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser().parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
