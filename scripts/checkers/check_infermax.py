"""Stand-alone checker of lower-bound certificates of InferMax instances: standard library only.

    python check_infermax.py INSTANCE CERTIFICATE [--profiles DIR] [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.infermax.bounds`.

Assembled from the parts in `infermax_opt/checking` and `infermax_opt/infermax/checker`:
change these, then run `make checkers`.
"""

from __future__ import annotations

import argparse
import bisect
import gzip
import hashlib
import json
import math
import operator
import os
import re
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator
from copy import copy
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, chain, groupby, pairwise
from math import isqrt
from operator import le
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


# --- infermax_opt/checking/profiles.py ------------------------------------------------------------
# Cost models that an instance names and does not spell out.

#: Where cost profiles lie in a checkout or an installation.
PROFILES = Path("infermax_opt", "infermax", "data", "profiles")


def default_profiles() -> Path:
    """The profiles of the checkout or installation that this file lies in; else a folder beside this file."""
    here = Path(__file__).resolve().parent
    inside = (folder / PROFILES for folder in here.parents)
    return next((folder for folder in inside if folder.is_dir()), here / "profiles")


def spelled_out(cost: Field, profiles: Path | None) -> Field:
    """The cost model itself, where the instance names a profile."""
    if "profile" not in cost:
        return cost
    name = cost["profile"].text()
    if re.fullmatch(r"[\w.-]+", name) is None:
        cost["profile"].fail(f"{shown(name)} is no name of a profile")
    return Field(load(Path(profiles or ".", f"{name}.json")), f"profile {name}")["cost"]


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


# --- infermax_opt/infermax/checker/pieces.py ------------------------------------------------------
# The cost of a batch: affine pieces in ticks, and in the units that prices count in.

#: Costs in units are below this, so that they can be compared with infinity.
MAX_UNITS = 2**700
FAR = math.inf  # potential of a state that is never reached


class Piece(NamedTuple):
    """One affine piece of the batch time, in ticks; units are what prices and potentials count in."""

    alpha: int
    beta: int
    unit: Fraction  # in a tick

    def units(self, ticks: int) -> int:
        """Whole units of so many ticks, rounded down."""
        units = math.floor(ticks * self.unit)
        require(units < MAX_UNITS, "exponent: costs are too many units")
        return units


def low_end(coefficient: Field) -> Fraction:
    """A coefficient; of an interval its low end."""
    if not isinstance(coefficient.value, list):
        return coefficient.decimal()
    low, high = (end.decimal() for end in coefficient.items(2))
    if low > high:
        coefficient.fail(f"{seconds(low)} to {seconds(high)} is no interval")
    return low


def read_cost(
    cost: Field,
) -> tuple[list[list[Fraction]], list[Fraction], list[Fraction], str, list[Fraction]]:
    """Coefficients of a cost model: batch, decode, prefill, attention, and what some batches take longer.

    Each proof is about the cost without the latter.  A schedule whose batches all start later by that, and so
    end when they did, makes each token at the same time: no objective is less than one without it may be.
    """
    batch = cost["batch"].items()  # of intervals the low ends: no batch takes less, and it may end later
    if not 1 <= len(batch) <= MAX_RATES:
        cost["batch"].fail(f"holds {len(batch)} pieces, not 1 to {MAX_RATES}")
    pieces = [[low_end(v) for v in pair.items(2)] for pair in batch]
    decode, prefill = ([low_end(v) for v in cost[key].items(2)] for key in ("decode", "prefill"))
    mixed = [low_end(v) for v in cost["mixed"].items(2)] if "mixed" in cost else [Fraction(0)] * 2
    prefix = low_end(cost["prefix"]) if "prefix" in cost else Fraction(0)
    return pieces, decode, prefill, cost["attention"].text(), [*mixed, prefix]


# --- infermax_opt/infermax/checker/terms.py -------------------------------------------------------
# What requests are promised: weights, service levels, and which may be left out.

#: Weight of a request, and its limits of TTFT, TPOT and end-to-end latency, in seconds.
Promise = tuple[Fraction, Any, Any, Any]
#: That of a request of which nothing is said.
PLAIN: Promise = (Fraction(1), None, None, None)
#: All that an entry of ``requests`` holds which says nothing of what it is promised, and is one request.
PLAIN_KEYS = {"id", "input_tokens", "output_tokens", "arrival"}


def read_terms(entry: Field, classes: Field) -> tuple[list[object], Promise]:
    """What an entry of ``requests`` says besides lengths and arrival, as it is hashed; its weight and limits.

    Parameters
    ----------
    entry : Field
    classes : Field
        Defaults by class.
    """
    name = entry["class"].text() if "class" in entry else ""
    places = [entry, *([classes[name]] if name in classes else [])]  # what comes first counts
    weight = next((some["weight"].number() for some in places if "weight" in some), Fraction(1))
    slos = [some["slo"] for some in places if "slo" in some]
    limits = [next((s[key].number() for s in slos if key in s), None) for key in ("ttft", "tpot", "e2e")]
    optional = next((some["optional"].flag() for some in places if "optional" in some), False)
    plain = not name and weight == 1 and limits == [None] * 3 and not optional
    terms: list[object] = [] if plain else [name, weight, *limits]
    if optional:
        terms.append("optional")
    if "predicted_output_tokens" in entry:
        terms += ["predicted", entry["predicted_output_tokens"].whole(1)]
    return terms, (weight, limits[0], limits[1], limits[2])


def read_plain(value: Any) -> tuple[str, int, int, Fraction] | None:
    """Name, lengths and arrival of an entry that holds these alone, all of them in order.

    None says nothing of an entry: it is read value by value then.  So is each of a file, where arrivals are
    texts.  Of a million most are plain, and a field for each of their values takes several times as long.
    """
    if type(value) is not dict or value.keys() != PLAIN_KEYS:
        return None
    name, i, o, arrival = value["id"], value["input_tokens"], value["output_tokens"], value["arrival"]
    if type(name) is not str or not name.isascii() or type(i) is not int or type(o) is not int:
        return None
    if not (1 <= i <= MAX_WHOLE and 1 <= o <= MAX_WHOLE):
        return None
    if type(arrival) is not Fraction or arrival.numerator < 0:
        return None
    return name, i, o, arrival


def read_release(given: Field, meaning: Meaning) -> str:
    """The class of a closed loop, which is hashed."""
    name = given["class"].text()
    meaning.feed("release", name, given["batch"].whole(1))
    return name


# --- infermax_opt/infermax/checker/instance.py ----------------------------------------------------
# The instance: limits, cost model and requests, by kinds, and its hash.

#: All metrics, in the order in which the hash of an instance has their weights.
METRICS = (
    "makespan", "mean_ttft", "mean_tpot", "mean_e2e",
    "weighted_mean_ttft", "weighted_mean_tpot", "weighted_mean_e2e",
    "mean_normalised_latency", "max_normalised_latency",
    "p50_ttft", "p90_ttft", "p99_ttft", "max_ttft",
    "p50_tpot", "p90_tpot", "p99_tpot", "max_tpot", "p50_e2e", "p90_e2e", "p99_e2e", "max_e2e",
    "class_spread", "missed", "unserved", "unserved_tokens",
)  # fmt: skip
#: Steps of checking a number of tokens cached.
SIZE_STEPS = 40
#: Steps of checking a request.
REQUEST_STEPS = 200
#: Input tokens, output tokens and number of requests.
Kinds = list[tuple[int, int, int]]


class Instance:
    """What the bounds need of an instance file.

    Raises `Rejected` where the file is no instance, and `Unreadable` where its profile cannot be read.
    """

    def __init__(self, data: Any, profiles: Path | None):
        top, self.work = Field(data, "instance"), Work()
        if top["schema"].value != "infermax-opt/instance/1":
            top["schema"].fail(f"{shown(top['schema'].value)} is not 'infermax-opt/instance/1'")
        system, policy = top["system"], top["policy"]
        limits = ("kv_capacity", "max_batch_tokens", "max_prefill_tokens")
        self.capacity, self.batch_tokens, self.prefill_tokens = (system[key].whole(1) for key in limits)
        limited = "max_running" in system and system["max_running"].value is not None
        self.running = system["max_running"].whole(1) if limited else None
        self.block = system["block_size"].whole(1, self.capacity) if "block_size" in system else 1
        flags = ("hybrid_batching", "chunked_prefill", "preemption")
        self.hybrid, self.chunked, self.preemption = (policy[flag].flag() for flag in flags)
        self.budget = min(self.batch_tokens, self.prefill_tokens)
        self._read_rates(spelled_out(top["cost"], profiles))
        self._read_requests(top)

    def _read_rates(self, cost: Field) -> None:
        """Coefficients as they are written and, all as whole numbers, in ticks."""
        self.cost = pieces, decode, prefill, attention, extra = read_cost(cost)
        self.spread = self.chunked and attention != "exact"  # chunks save attention work
        self.scale = math.lcm(*(v.denominator for pair in [*pieces, decode, prefill, extra] for v in pair))
        self.pieces = [(int(a * self.scale), int(b * self.scale)) for a, b in pieces]
        self.d0, self.d1, self.p0, self.p1 = (int(v * self.scale) for v in [*decode, *prefill])
        self.e0, self.e1, self.p2 = (int(v * self.scale) for v in extra)

    def _machine(self, top: Field) -> Meaning:
        """What is hashed before the requests."""
        meaning, (pieces, decode, prefill, attention, extra) = Meaning(), self.cost
        meaning.feed("infermax-opt/instance/1", top["problem"].text(), top["name"].text())
        meaning.feed(self.capacity, self.batch_tokens, self.prefill_tokens)
        meaning.feed(self.running, self.block)
        meaning.feed(self.hybrid, self.chunked, self.preemption)
        meaning.feed(attention, *(v for pair in pieces for v in pair))
        meaning.feed(*decode, *prefill)
        if any(extra[:2]):
            meaning.feed("mixed", *extra[:2])
        if extra[2]:
            meaning.feed("prefix", extra[2])
        meaning.feed(*self._read_objective(top["objective"]))
        self.horizon = top["horizon"].number() if "horizon" in top else None
        if self.horizon is not None:
            meaning.feed("horizon", self.horizon)
        self.released = read_release(top["release"], meaning) if "release" in top else None
        return meaning

    def _read_requests(self, top: Field) -> None:
        """Requests by kind, and the hash of the instance."""
        meaning = self._machine(top)
        #: Those that must be served; there may be none.
        self.kinds: dict[tuple[int, int, Fraction], int] = {}
        #: Of requests of which more is said: input and output tokens, arrival, weight and limits, whether
        #: they are optional, and how many.
        self.entries: list[tuple[int, int, Fraction, Promise, bool, int]] = []
        #: Requests that count, by what they do if they keep their limits.
        self.promised: dict[tuple[int, int, Fraction, Promise], int] = {}
        classes, total = top["classes"] if "classes" in top else Field({}, "instance.classes"), 0
        for k, value in enumerate(top["requests"].values()):
            plain = read_plain(value)
            if plain is None:
                entry = Field(value, f"{top['requests'].path}[{k}]")
                total += self._read_entry(entry, classes, meaning)
            else:
                meaning.feed(*plain)
                self._count(*plain[1:], 1)
                total += 1
            if total > MAX_REQUESTS:
                top["requests"].fail(f"more than {MAX_REQUESTS} requests in all")
        if not total:
            top["requests"].fail("holds no request")
        self.sha256 = meaning.hexdigest()

    def _read_entry(self, entry: Field, classes: Field, meaning: Meaning) -> int:
        """How many requests an entry stands for, which are noted and hashed."""
        i, o = entry["input_tokens"].whole(1), entry["output_tokens"].whole(1)
        arrival = entry["arrival"].number() if "arrival" in entry else Fraction(0)
        if arrival < 0:
            entry["arrival"].fail(f"{shown(entry['arrival'].value)} is below 0")
        terms, promise = read_terms(entry, classes)
        times = meaning.feed_requests(entry, i, o, arrival, *terms)
        optional = "optional" in terms[1:]
        if not optional:  # these may be left out, so the bounds are about the others
            self._count(i, o, arrival, times)
        if optional or promise != PLAIN:
            self.entries.append((i, o, arrival, promise, optional, times))
        if self.released and "class" in entry and entry["class"].text() == self.released:
            self._check_release(promise, optional)
        return int(times)

    def _count(self, i: int, o: int, arrival: Fraction, times: int) -> None:
        """Count requests that must be served."""
        known, key = len(self.kinds), (i, o, arrival)
        before = self.kinds.setdefault(key, times)
        if len(self.kinds) == known:  # to hash a fraction takes long, and most are there once
            self.kinds[key] = before + times

    def _check_release(self, promise: Promise, optional: bool) -> None:
        """Bounds are those without a closed loop, so no latency of a released request may count."""
        counted = {self.objective, *self.limits, *self.weights} - {"weighted sum", "at_most"}
        late = "missed" in counted and promise[1:] != (None, None, None)
        if late or not (optional or counted <= {"makespan", "missed", "unserved", "unserved_tokens"}):
            raise Rejected("is for latencies of released requests, which have no certificates")

    def _read_objective(self, given: Field) -> list[object]:
        """The one metric, or the limits of several; what the hash holds of it."""
        self.limits: dict[str, Fraction] = {}
        self.weights: dict[str, Fraction] = {}
        if isinstance(given.value, dict) and "at_most" in given.value:
            self.objective = "at_most"
            self.limits = {name: given["at_most"][name].number() for name in given["at_most"].value}
            return ["at_most", *(part for pair in sorted(self.limits.items()) for part in pair)]
        if isinstance(given.value, dict):
            self.objective = "weighted sum"
            self.weights = {name: given[name].number() for name in METRICS if name in given.value}
            if min(self.weights.values(), default=Fraction(0)) < 0:
                given.fail("holds a negative weight")
            return [None, *(part for pair in self.weights.items() if pair[1] for part in pair)]
        self.objective = "makespan" if given.text() == "throughput" else given.text()
        return [given.text(), self.objective, 1]

    def promising(self, worth: dict[str, Fraction]) -> Instance:
        """The same, with those that count where metrics weigh this: by a broken limit, or unserved."""
        found = copy(self)
        found.promised = {}
        for i, o, arrival, (weight, *limits), optional, times in self.entries:
            missed = worth.get("missed", Fraction(0)) * weight * any(limit is not None for limit in limits)
            left = worth.get("unserved", Fraction(0)) * weight + worth.get("unserved_tokens", Fraction(0)) * o
            left *= optional and self.horizon is not None
            if missed or left:
                ttft, tpot, e2e = limits if missed >= left else [None] * 3
                if self.horizon is not None:
                    e2e = self.horizon - arrival if e2e is None else min(e2e, self.horizon - arrival)
                key = (i, o, arrival, (max(missed, left), ttft, tpot, e2e))
                found.promised[key] = found.promised.get(key, 0) + times
        return found

    def above(self, percent: int) -> int:
        """Requests that may be above a rank of a latency, at most: those behind it."""
        count = sum(self.kinds.values())
        return count - -(-percent * count // 100)

    def worth(self, metric: str) -> Fraction:
        """What a unit of a metric that has certificates is worth in a weighted sum, at least."""
        if metric != "mean_e2e":
            return self.weights.get(metric, Fraction(0))
        ttft, tpot, e2e, normalised = (
            self.weights.get(name, Fraction(0))
            for name in ("mean_ttft", "mean_tpot", "mean_e2e", "mean_normalised_latency")
        )
        outputs = Counter[int]()
        for (_, o, _), count in self.kinds.items():
            outputs[o] += count
        several = sum(count for o, count in outputs.items() if o > 1)
        young = [ttft + e2e + normalised / o for o in outputs]  # times the number of requests
        share = Fraction(sum(outputs.values()), several or 1)
        old = [e2e + normalised / o + tpot * share / (o - 1) for o in outputs if o > 1]
        return min([*young, *old])

    def since(self, time: Fraction = Fraction(0)) -> Kinds:
        """Kinds of the requests that arrive at `time` or later."""
        if time <= 0:
            return self._whole
        return [(i, o, count) for (i, o, arrival), count in self.kinds.items() if arrival >= time]

    @cached_property
    def _whole(self) -> Kinds:
        """All kinds, which no proof changes."""
        return [(i, o, count) for (i, o, _), count in self.kinds.items()]

    @cached_property
    def prompts(self) -> list[tuple[int, int]]:
        """Input tokens, rising, and how many requests have so many."""
        found = Counter[int]()
        for i, _, count in self.since():
            found[i] += count
        return sorted(found.items())

    def token_work(self, kinds: Kinds, beta: int) -> int:
        """Least work but for the attention of the prompts, in ticks."""
        d1 = min(self.d1, beta) if self.preemption else self.d1
        return sum(c * (beta * (i + o - 1) + d1 * (o - 1) * (2 * i + o - 2) // 2) for i, o, c in kinds)

    def mean_latency(self, finished: Fraction) -> Fraction:
        """Mean end-to-end latency, given the sum of all finishing times in seconds."""
        arrived = sum((arrival * count for (*_, arrival), count in self.kinds.items()), Fraction(0))
        return (finished - arrived) / sum(self.kinds.values())

    def squares(self, kinds: Kinds, limit: int = 10**18) -> int:
        """Least attention work of the prompts in so many batches at most, in ticks."""
        return self.p1 * sum(c * max(i, i * i // (limit - o + 1 if self.spread else 1)) for i, o, c in kinds)

    def presence(self, piece: Piece) -> list[int]:
        """Units of a batch of decodes, with prefills besides, and of prefills alone; rho.

        Without hybrid batching no batch has both: the second one is what two batches cost.
        """
        both = self.d0 + self.p0 + (0 if self.hybrid else piece.alpha)
        costs = [piece.alpha + c for c in (self.d0, both, self.p0)]
        return [piece.units(v) for v in [*costs, max(0, piece.beta - self.d1)]]


def blocks_up_to(last: int, size: int) -> int:
    """Blocks of one token each of the KV sizes 1, 2, ..., last."""
    full = last // size
    return (full + 1) * (2 * last - full * size) // 2


# --- infermax_opt/infermax/checker/served.py ------------------------------------------------------
# Requests whose batches are counted by the closed forms, and what evictions may save of them.


class Served:
    """Requests whose batches are counted.

    `prefill`: batches that prefill, at least; `decode`: those that decode, at least; `slack`: what
    refills of a full memory cost more than the work counts, `spare`: of that, what decode presence leaves;
    `worth`: of a batch that evictions may save; `horizon`: H of the age bound.
    """

    def __init__(self, instance: Instance, kinds: Kinds, evidence: Field, piece: Piece):
        self.instance, self.kinds, self.evidence, self.piece = instance, kinds, evidence, piece
        alone = 0 if instance.chunked else sum(c for i, _, c in kinds if 2 * i > instance.budget)
        self.prefill = max(alone, -(-sum(i * c for i, _, c in kinds) // instance.budget))
        later, self.longest = sum((o - 1) * c for _, o, c in kinds), max(o for _, o, _ in kinds)
        fixed = not instance.preemption
        self.decode = max(self.longest - 1, -(-later // instance.batch_tokens)) if fixed else 0
        self.slack = max(0, piece.beta - instance.d1) * instance.capacity
        refills = 2 * instance.d0 if self.slack >= 2 * instance.d0 else 0  # of it, for decode presence
        self.least = min(instance.p0, instance.d0)
        self.spare, self.worth = self.slack - refills, max(1, piece.alpha + self.least)
        self.horizon: Any = FAR if fixed else self.spare // self.worth


# --- infermax_opt/infermax/checker/releases.py ----------------------------------------------------
# Proofs: the least number of batches, by the KV that lies idle between two releases of it.

#: Parts of a batch for a full memory in which prices are.
IN_A_BATCH = 1 << 20
#: Most first batches with prices.
MOST_BATCHES = 1 << 16


def most_price(served: Served) -> tuple[int, int]:
    """The largest price lambda of memory that may be, and what a refill of all of it is worth, in parts."""
    worth = served.spare * IN_A_BATCH // served.worth
    top = IN_A_BATCH * max(i + o for i, o, _ in served.kinds)
    return (min(top, worth) if served.instance.preemption else top), worth


def in_batches(served: Served, parts: int) -> int:
    """So many parts of full memories, in batches; evictions may save a part of one."""
    unit = IN_A_BATCH * served.instance.capacity
    return parts // unit if served.instance.preemption else -(-parts // unit)


def kv_releases(served: Served) -> int:
    """Requests share the memory in which each window ends, and waste it in between, or they are left out.

    See `infermax_opt.infermax.bounds.releases`; `cut` is the price of memory there in parts of 2**20.
    """
    instance, unit, evictions = served.instance, IN_A_BATCH, served.instance.preemption
    least, top = min(i for i, _, _ in served.kinds), max(i + o for i, o, _ in served.kinds)
    most, worth = most_price(served)
    price = served.evidence["cut"].whole(0, most)
    horizon: Any = (worth - price) // unit if evictions else FAR
    instance.work.spend(10 * (top - least))
    run, total, up_to = 1, 0, [0]
    for size in range(least, top):
        while run * (run + 1) // 2 * unit <= price * size:
            instance.work.spend(1)
            run += 1
        waste = (run * (run - 1) // 2 * unit + price * size) // run
        total += size * unit + (waste if run <= horizon else horizon * unit)
        up_to.append(total)
    opened = price * instance.capacity
    parts = sum(max(0, up_to[i + o - least] - up_to[i - least] - opened) * c for i, o, c in served.kinds)
    return in_batches(served, parts)


def kv_beginning(served: Served) -> int:
    """The first batches have a price of memory each; what follows them wastes it between releases.

    See `infermax_opt.infermax.bounds.beginning`.
    """
    (most, worth), cut, instance = most_price(served), served.evidence["cut"], served.instance
    price, kv = cut["price"].whole(0, most), cut["kv"].integers()
    require(len(kv) <= MOST_BATCHES and min(kv, default=0) >= 0, "cut: too many prices, or one below 0")
    horizon = (worth - price) // IN_A_BATCH if instance.preemption else None
    total, longest = (len(kv) * IN_A_BATCH - sum(kv)) * instance.capacity, 0
    numbers, tokens = Counter[tuple[int, int]](), Counter[int]()
    for i, o, c in served.kinds:
        numbers[i, o] += c
        tokens[i + o] = max(tokens[i + o], o)
    wasted = {end: least_waste(end, o, price, horizon, instance.work) for end, o in tokens.items()}
    for (i, o), count in numbers.items():
        instance.work.spend(100 + 5 * o + 8 * len(kv) * min(len(kv), o))
        rest, held = [0], 0
        for later in range(1, o + 1):
            held += i + o - later
            rest.append(held * IN_A_BATCH + wasted[i + o][later] - price * instance.capacity)
        life = cheapest_start(i, o, rest[::-1], kv, worth if instance.preemption else None)
        if life > 0:
            total, longest = total + life * count, max(longest, o)
    require(len(kv) <= longest, "cut: more batches than any request has tokens")
    return in_batches(served, total)


def least_waste(end: int, tokens: int, price: int, horizon: int | None, work: Work) -> list[int]:
    """What the last 0, 1, ... tokens of a request waste at least, in whatever runs, in parts.

    Parameters
    ----------
    end : int
        KV size after the last one.
    tokens : int
        Most that are wanted.
    price : int
        Of the last size of each run.
    horizon : int or None
        Tokens of a run after which each wastes no more than the one before.
    work : Work
        Counts the steps.
    """
    most = isqrt(4 * price * end // IN_A_BATCH) + 3  # a longer one is no cheaper than two, see there
    beyond = None
    if horizon is not None and horizon <= most:  # runs may go on, each token at the waste of the one before
        most, beyond = max(1, horizon), horizon
    work.spend(20 + 3 * most + tokens * (10 + 2 * most))
    runs = [g * (g - 1) // 2 * IN_A_BATCH + price * (g - 1) for g in range(1, most + 1)]
    least, going = [0], [price * (end - 1)]
    for j in range(1, tokens + 1):
        ways = [price * (end - j) + run + least[j - g] for g, run in enumerate(runs[:j], 1)]
        if beyond is not None and j >= most:
            ways.append(runs[-1] - price * (most - 1) + going[j - most])
        least.append(min(ways))
        if beyond is not None:
            going.append(min(price * (end - j - 1) + least[j], IN_A_BATCH * beyond + going[-1]))
    return least


def cheapest_start(inputs: int, outputs: int, rest: list[int], kv: list[int], worth: int | None) -> int:
    """What a request pays at least in the first batches, and counts after them.

    Parameters
    ----------
    inputs, outputs : int
    rest : list of int, (outputs + 1,)
        What it counts after them, by the tokens made.
    kv : list of int
        Price of a token of KV in each of them.
    worth : int or None
        Price of evicting a token of KV, if anybody may be evicted.
    """
    inside = outside = rest[: len(kv) + 1]
    for t in range(len(kv) - 1, -1, -1):
        price, before = kv[t], range(inputs - 1, inputs - 1 + min(t + 1, outputs))  # KV before the batch
        token = [price * (size + 1) + after for size, after in zip(before, inside[1:], strict=False)]
        out = list(map(min, token, outside))
        idle = [price * size + after for size, after in zip(before, inside, strict=False)]
        stays = list(map(min, token, idle))
        if worth is not None:
            stays = [min(s, worth * size + after) for s, size, after in zip(stays, before, out, strict=True)]
        inside, outside = [*stays, rest[-1]], [*out, rest[-1]]
    return outside[0]


# --- infermax_opt/infermax/checker/memory_batches.py ----------------------------------------------
# Proof: the least number of batches, by the KV that their tokens take.


def proofs_by_memory(served: Served) -> dict[str, Callable[[Served], int]]:
    """Arguments about KV, where they are for the instance."""
    proofs: dict[str, Callable[[Served], int]]
    proofs = {"KV age": kv_age, "KV area": kv_area, "KV slots": kv_slots}
    proofs |= {"KV releases": kv_releases, "KV beginning": kv_beginning}
    if len({(i, o) for i, o, _ in served.kinds}) == 1:
        proofs["KV spacing"] = kv_spacing
    return proofs


def kv_age(served: Served) -> int:
    """Tokens by KV size, in ever later batches of a window, waste the KV that those before them take."""
    instance, horizon = served.instance, served.horizon
    steps, room = Counter[int](), instance.capacity * sum(c for _, _, c in served.kinds)
    for i, o, c in served.kinds:
        steps.update({i: c, i + o: -c})
    instance.work.spend(10 * (max(steps) - min(steps)))
    many = volume = waste = 0
    for size in range(min(steps), max(steps)):
        many, position = many + steps[size], volume // room
        late = max(0, many - ((position + 1) * room - volume) // size)
        waste += many * min(position, horizon) + late * (position < horizon)
        volume += many * size
    rounding = 0 if instance.preemption else instance.capacity - 1
    return (volume + waste + rounding) // instance.capacity


def kv_spacing(served: Served) -> int:
    """Equal requests end so far from each other that memory holds those in it; or evictions cost as much.

    See `infermax_opt.infermax.bounds.spacing`; `cut` is its x in parts of 2**16.
    """
    (inputs, outputs, _), count = served.kinds[0], sum(c for _, _, c in served.kinds)
    apart, unit = served.evidence["cut"].whole(0, outputs << 16), 1 << 16
    most = min(count, 1 + (served.instance.capacity - (inputs + outputs - 1)) // inputs)
    served.instance.work.spend(8 * most)
    evictions, saved = served.instance.preemption, apart * served.worth * served.instance.capacity
    require(not evictions or saved <= served.spare * inputs * unit, "cut: evictions may cost less")
    room, last = inputs + outputs - 1 - served.instance.capacity, 1
    for m in range(2, most + 1):
        room += inputs + outputs - min(-(-(m - 1) * apart // unit), outputs)
        if room <= 0:
            require(m * apart <= outputs * unit, "cut: requests may be closer to each other")
            last = m
    alone = -(-inputs // served.instance.budget) + outputs - 1
    parts = max(0, count - last) * apart
    return alone + (parts // unit if evictions else -(-parts // unit))


def tokens_above(served: Served, level: int) -> tuple[int, int]:
    """Generated tokens whose KV takes more than `level` blocks: their number, and their blocks."""
    size, number, volume = served.instance.block, 0, 0
    for i, o, c in served.kinds:
        before, last = min(i + o, max(i, level * size + 1)) - 1, i + o - 1
        number += c * (last - before)
        volume += c * (blocks_up_to(last, size) - blocks_up_to(before, size))
    return number, volume


def kv_slots(served: Served) -> int:
    """A batch makes no more tokens of `cut` blocks or more than fit."""
    capacity = served.instance.capacity // served.instance.block
    cut = served.evidence["cut"].whole(1, capacity)
    return -(-tokens_above(served, cut - 1)[0] // (capacity // cut))


def kv_area(served: Served) -> int:
    """Tokens as items of a bin packing problem: the bound L2 of Martello and Toth, for k = `cut`."""
    capacity = served.instance.capacity // served.instance.block
    cut = served.evidence["cut"].whole(0, capacity // 2)
    huge, huge_volume = tokens_above(served, capacity - cut)
    big = tokens_above(served, capacity // 2)[0]
    others = tokens_above(served, max(0, cut - 1))[1] - huge_volume  # from the cut on: none beside a huge one
    return max(big, huge - (-others // capacity))


# --- infermax_opt/infermax/checker/closed_form.py -------------------------------------------------
# Proof: closed forms of the makespan, by work and a least number of batches.


def closed_form(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, attention constants and a least number of batches.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    since = evidence["since"].number()
    kinds = instance.since(since)
    require(since >= 0 and len(kinds) > 0, "since: no request arrives then or later")
    instance.work.spend(50 * len(kinds))
    served = Served(instance, kinds, evidence, piece)
    batches = max(served.prefill, count_batches(served))
    work = instance.token_work(kinds, piece.beta)
    work += 0 if instance.spread else instance.squares(kinds)
    if instance.spread and evidence["reference"].value is not None:
        work += spread_squares(served, batches)
    paid = piece.alpha * batches + instance.p0 * served.prefill + least_presence(served, batches)
    return since + Fraction(paid + work, instance.scale)


def least_presence(served: Served, batches: int, also: Iterable[tuple[int, int]] = ()) -> int:
    """Ticks of attention constants besides those of prefill batches.

    Parameters
    ----------
    served : Served
    batches : int
        At least so many.
    also : iterable of (int, int)
        What more arguments say, as `decode_presence`.
    """
    others, arguments = batches - served.prefill, chain(decode_presence(served), also)
    return max(paid + served.least * max(0, others - number) for paid, number in arguments)


def decode_presence(served: Served) -> Iterator[tuple[int, int]]:
    """Ticks of decode batches and how many pay them, at least, by each argument that holds."""
    instance = served.instance
    yield instance.d0 * served.decode, served.decode
    if not instance.preemption or served.slack >= 2 * instance.d0:
        area = sum(c * ((o - 1) * i + o * (o - 1) // 2) for i, o, c in served.kinds)
        yield instance.d0 * area // instance.capacity, -(-area // instance.capacity)


def spread_squares(served: Served, batches: int) -> int:
    """Least attention of prompts in chunks: linear in the batches, and no more of them saves alpha."""
    reference = served.evidence["reference"].whole(max(batches, served.longest))
    spread = [(served.instance.p1 * i * i * c, reference - o + 1) for i, o, c in served.kinds]
    saved = sum(-(-s // q**2) for s, q in spread)
    require(saved <= served.piece.alpha, "reference: saves more than alpha")
    return sum(s // q + (reference - batches) * (s // q**2) for s, q in spread)


def count_batches(served: Served) -> Any:
    """Least number of batches by the named argument (`infermax_opt.infermax.bounds.counts`, `age`)."""
    instance, kinds = served.instance, served.kinds
    argument = served.evidence["argument"].text()
    if argument in ("longest request", "prefill tail"):
        return longest_tail(served, alone=argument == "longest request")
    if argument == "token budget":
        return -(-sum((i - 1 + o) * c for i, o, c in kinds) // instance.batch_tokens)
    if argument == "running limit" and instance.running is not None:
        return -(-sum(o * c for _, o, c in kinds) // instance.running)
    if argument == "separate phases" and not (instance.preemption or instance.hybrid):
        return served.prefill + served.decode
    proofs = proofs_by_memory(served)
    if argument not in proofs:
        served.evidence["argument"].fail(f"{shown(argument)} is unknown, or not for this instance")
    return proofs[argument](served)


def longest_tail(served: Served, alone: bool) -> int:
    """Of the requests with so many outputs or more, the last to have its first token is still to decode.

    Each request's own prompt is before that, or, unless `alone`, the prompts of all of them.
    """
    ordered = sorted(served.kinds, key=lambda kind: -kind[1])
    prompts = (i for i, _, _ in ordered) if alone else accumulate(i * c for i, _, c in ordered)
    pairs = zip(prompts, ordered, strict=True)
    return max(-(-tokens // served.instance.budget) + o - 1 for tokens, (_, o, _) in pairs)


# --- infermax_opt/infermax/checker/token_payments.py ----------------------------------------------
# Least sums of what tokens pay that wait, share a chunk, or lie beyond a knee.
#
# See `infermax_opt.infermax.bounds.token_payments`.

#: Tokens of a group up to which what they pay is listed, where all of a chunk pay the same, and where not;
#: those beyond pay no less than the next one.
MAX_LISTED, MAX_SQUARE = 2**20, 2**17


def chunk_payments(instance: Instance, wait: Fraction, width: int, dear: Fraction | None = None) -> Fraction:
    """Ticks that prompts pay at least while they are in chunks, for attention and where they wait.

    Parameters
    ----------
    instance : Instance
    wait : Fraction
        Of a token for each chunk that comes behind it.
    width : int
        Tokens of a chunk beyond which each one is dear.
    dear : Fraction, optional
        None where a chunk cannot have more.
    """
    if not wait or not instance.prompts:
        return Fraction(0)
    more = Fraction(2 * instance.p1 if instance.spread else 0)
    return sum_of_payments(instance.work, instance.prompts, wait, more, width, dear)


def sum_of_payments(
    work: Work,
    groups: Iterable[tuple[int, int]],
    wait: Fraction,
    more: Fraction,
    width: int,
    dear: Fraction | None,
) -> Fraction:
    """Ticks that the tokens of some groups pay, at least.

    Parameters
    ----------
    work : Work
    groups : iterable of (int, int)
        Tokens, and how many groups have so many; at least one.
    wait, more : Fraction
        The c-th token of a chunk that waits for r batches pays wait r + more (c - 1); wait is above 0.
    width : int
        Tokens of a chunk that pay so, at most.
    dear : Fraction or None
        What each other one pays, if there may be any.
    """
    listed = list(groups)
    unit = math.lcm(wait.denominator, more.denominator, 1 if dear is None else dear.denominator)
    most = min(MAX_SQUARE if more else MAX_LISTED, max(size for size, _ in listed))
    pays = least_payments(work, most + 1, int(wait * unit), int(more * unit), width)
    if dear is not None:
        pays = [min(int(dear * unit), each) for each in pays]
    work.spend(most + 10 * len(listed))
    sums, total = [0, *accumulate(pays)], 0
    for size, count in listed:
        total += count * (sums[min(size, most)] + (size - min(size, most)) * pays[most])
    return Fraction(total, unit)


def least_payments(work: Work, most: int, wait: int, more: int, width: int) -> list[int]:
    """So many least ones of wait r + more c for r = 0, 1, ... and c = 0..width-1, rising, and some beyond.

    Parameters
    ----------
    work : Work
    most : int
        How many, at least 1.
    wait, more : int
        The first one is above 0.
    width : int
    """

    def enough(limit: int) -> bool:
        """Whether so many are up to a limit."""
        work.spend(4 * (limit // wait + 1))
        rests = range(limit, -1, -wait)
        return sum(min(width, rest // more + 1) if more else width for rest in rests) >= most

    high = 1
    while not enough(high * wait):
        high *= 2
    low, high = 0, high * wait
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    work.spend(10 * most)
    found: list[int] = []
    for start in range(0, low + 1, wait):
        number = min(width, (low - start) // more + 1 if more else width)
        found += (start + more * c for c in range(number))
    return sorted(found)


# --- infermax_opt/infermax/checker/ramp.py --------------------------------------------------------
# Proof: ramp, by what it costs to fill the memory no faster than tokens are processed.


def ramp(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, attention constants, batches by KV area, and what filling the memory costs besides.

    See `infermax_opt.infermax.bounds.ramp`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = instance.since()
    instance.work.spend(50 * len(kinds))
    served = Served(instance, kinds, evidence, piece)
    capacity, volume = instance.capacity // instance.block, tokens_above(served, 0)[1]
    require(capacity > 0, "there is no memory")
    least = -(-volume // capacity)
    chunks = "prompts" in evidence
    length = evidence["batches"].whole(0 if chunks else 1, least)
    percent = evidence["prompts"]["percent"].whole(0, 100) if chunks else 0
    batches = max(served.prefill, least)
    share = Fraction(evidence["share"].whole(0, 1000) if "share" in evidence else 1000, 1000)
    tokens = Fraction(sum((i - 1 + o) * c for i, o, c in kinds), instance.batch_tokens)
    alpha = share * piece.alpha  # of a batch that is counted by KV, not by tokens
    paid = (piece.alpha - alpha) * tokens + alpha * Fraction(volume, capacity) + instance.p0 * served.prefill
    paid += least_presence(served, batches) + instance.token_work(kinds, piece.beta)
    paid += instance.squares(kinds) + ramp_terms(instance, piece, alpha, length, 100 - percent)
    if chunks:
        paid += prompts_in_chunks(instance, piece, alpha, evidence["prompts"], percent)
    return paid / instance.scale


def prompts_in_chunks(
    instance: Instance, piece: Piece, waiting: Fraction, given: Field, percent: int
) -> Fraction:
    """What prompts pay for the KV that they hold before their last chunk, for attention, or beyond a knee.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    waiting : Fraction
        Ticks for a batch in which the memory is full of prompts that are not done.
    given : Field
        Names the piece beyond whose knee with the other one tokens cost more; or none, for no such tokens.
    percent : int
        How much of that prompts count.
    """
    full = instance.capacity // instance.block * instance.block
    width = instance.budget
    dear: Fraction | None = None
    if given["knee"].value is None:
        require(percent == 0, "prompts: a share of no knee")
    else:
        alpha, beta = instance.pieces[given["knee"].whole(0, len(instance.pieces) - 1)]
        require(alpha <= piece.alpha and beta > piece.beta, "prompts: the pieces have no knee")
        width = max(1, min(width, math.ceil(Fraction(piece.alpha - alpha, beta - piece.beta))))
        dear = Fraction(percent * (beta - piece.beta), 100)
    return chunk_payments(instance, waiting / full + instance.p2, width, dear)


def ramp_terms(instance: Instance, piece: Piece, waiting: Fraction, length: int, percent: int) -> Fraction:
    """Least cost of not yet full memory and of tokens beyond the piece, in so many batches.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    waiting : Fraction
        Ticks for a batch in which the memory is empty.
    length : int
        Batches, the last of which is the first term.
    percent : int
        How much of what tokens beyond the piece cost counts here.
    """
    most, free = instance.batch_tokens, instance.capacity // instance.block
    full, together = free * instance.block, 0
    for i, count in instance.prompts:
        size = -(-i // instance.block)
        fitting = min(count, free // size)
        together, free = together + fitting, free - fitting * size
    pairs = ((one, other) for one in instance.pieces for other in instance.pieces if one[1] < other[1])
    crossings = [Fraction(one[0] - other[0], other[1] - one[1]) for one, other in pairs]
    corners = [Fraction(0), Fraction(most), *(x for x in crossings if 0 < x < most)]
    above = [max(a + b * x for a, b in instance.pieces) - piece.alpha - piece.beta * x for x in corners]
    missing = waiting * (full - (instance.block - 1) * together) / full
    share = Fraction(percent, 100)
    lines = [(waiting * x / full, share * more) for x, more in zip(corners, above, strict=True)]
    return filling_terms(instance.work, missing, lines, length)


def filling_terms(
    work: Work, missing: Fraction, lines: list[tuple[Fraction, Fraction]], length: int
) -> Fraction:
    """So many terms, each of them what memory that is empty costs less the highest of some lines.

    Parameters
    ----------
    work : Work
    missing : Fraction
        Ticks for a batch in which the memory is empty.
    lines : list of (Fraction, Fraction)
        For some numbers of tokens of a batch, ticks for the memory that they fill, k times in the k-th term,
        and what they cost besides.
    length : int
    """
    work.spend(length * (5 + 20 * len(lines)))
    return sum((missing - max(k * a - b for a, b in lines) for k in range(1, length + 1)), Fraction(0))


# --- infermax_opt/infermax/checker/knee.py --------------------------------------------------------
# Proof: knee, by what batches below a knee of the batch time cost, and tokens beyond it.

#: Slope and constant, in ticks by the KV tokens that a decode leaves.
KvPrice = tuple[Fraction, Fraction]


def knee(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, batches by KV area, and what they cost below and beyond a knee.

    See `infermax_opt.infermax.bounds.knee`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        The steep piece of the batch time.
    """
    kinds = instance.since()
    instance.work.spend(50 * len(kinds))
    alpha, beta = instance.pieces[evidence["flat"].whole(0, len(instance.pieces) - 1)]
    require(alpha > piece.alpha and beta < piece.beta, "flat: the pieces have no knee")
    fixed, slope = alpha - piece.alpha, piece.beta - beta
    theta, omega = (Fraction(evidence[name].whole(0, 1000), 1000) for name in ("share", "kv"))
    below = (1 - theta) * fixed
    kappa = min(Fraction(instance.p0), (1 - omega) * below)
    full = instance.capacity // instance.block * instance.block
    area = sum(c * (o * i + o * (o - 1) // 2) for i, o, c in kinds)
    served = Served(instance, kinds, evidence, Piece(alpha, beta, piece.unit))
    paid = theta * instance.token_work(kinds, beta) + (1 - theta) * instance.token_work(kinds, piece.beta)
    paid += instance.squares(kinds)
    paid += max(ticks for ticks, _ in decode_presence(served)) + (instance.p0 - kappa) * served.prefill
    batch, corner = alpha - below + kappa, Fraction(fixed, slope)
    alone = omega * below / full, -(kappa + omega * below) / corner
    paid += batch * area / full + least_of_decodes(kinds, alone, beside_prompts(instance, beta, full))
    paid += waiting(instance, evidence, corner, batch / full, theta * slope, -(-area // full))
    return paid / instance.scale


def beside_prompts(instance: Instance, beta: int, full: int) -> KvPrice:
    """What a decode beside prompts pays for the KV that it leaves: 0 where evictions might save it.

    Parameters
    ----------
    instance : Instance
    beta : int
        Ticks of a token, at least.
    full : int
        Tokens of KV.
    """
    e0, e1 = instance.e0, instance.e1
    if instance.preemption and (beta - instance.d1 - e1) * full < 2 * (instance.d0 + e0):
        return Fraction(0), Fraction(0)
    return e1 + Fraction(e0, full), Fraction(-e1)


def least_of_decodes(kinds: Kinds, one: KvPrice, other: KvPrice) -> Fraction:
    """The sum over decodes of the least of two lines at the KV that they leave; may be below 0.

    Parameters
    ----------
    kinds : list of (int, int, int)
    one, other : (Fraction, Fraction)
        Slope and constant.
    """
    flat, steep = sorted((one, other))
    crossing: Fraction | None = None
    if flat[0] < steep[0]:
        crossing = (flat[1] - steep[1]) / (steep[0] - flat[0])
    few = tokens = all_few = all_tokens = 0
    for i, o, c in kinds:
        under = 0 if crossing is None else min(o - 1, max(0, math.ceil(crossing) - 1 - i))
        few, tokens = few + c * under, tokens + c * (under * i + under * (under + 1) // 2)
        all_few, all_tokens = all_few + c * (o - 1), all_tokens + c * ((o - 1) * i + (o - 1) * o // 2)
    paid = steep[0] * tokens + steep[1] * few
    return paid + flat[0] * (all_tokens - tokens) + flat[1] * (all_few - few)


def waiting(
    instance: Instance, evidence: Field, corner: Fraction, wait: Fraction, beyond: Fraction, terms: int
) -> Fraction:
    """What tokens pay that fill memory, or that are beyond the knee.

    Parameters
    ----------
    instance : Instance
    evidence : Field
    corner : Fraction
        Tokens at the knee.
    wait : Fraction
        Ticks for a token of KV that nobody uses in a batch who makes a token.
    beyond : Fraction
        Ticks for a token of a batch beyond the knee.
    terms : int
        Of the ramp, at most.
    """
    kinds = instance.since()
    full, most = instance.capacity // instance.block * instance.block, instance.batch_tokens
    refills = evidence["refills"].whole(0, 100)
    prompts = evidence["prompts"].whole(0, 100 - refills)
    length = evidence["batches"].whole(0, terms)
    corners = [min(corner, Fraction(most)), Fraction(most)]
    rest = beyond * (100 - refills - prompts) / 100
    lines = [(wait * x, rest * max(Fraction(0), x - corner)) for x in corners]
    paid = filling_terms(instance.work, wait * full, lines, length)
    if not wait:
        return paid
    width = max(1, math.ceil(corner))
    dear = beyond * refills / 100
    if dear:
        cached = Counter[int]()
        for i, o, c in kinds:
            cached[i + o - 1] += c
        never = full * min(dear, wait * ((max(cached) - 1) // width))
        sums = sum_of_payments(instance.work, cached.items(), wait, Fraction(0), width, dear)
        paid += max(Fraction(0), sums - never)
    dear = beyond * prompts / 100
    narrow = min(width, instance.budget) if dear else instance.budget
    return paid + chunk_payments(instance, wait + instance.p2, narrow, dear or None)


# --- infermax_opt/infermax/checker/apart.py -------------------------------------------------------
# Proof: apart, by what prompts and decodes cost that share no batches, or pay for it.


def batches_apart(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """What tokens of prompts, and decodes, pay at least.

    See `infermax_opt.infermax.bounds.apart`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        The piece of batches with prompts.
    """
    kinds = instance.since()
    instance.work.spend(50 * len(kinds))
    alpha, beta = instance.pieces[evidence["alone"].whole(0, len(instance.pieces) - 1)]
    sigma = Fraction(evidence["share"].whole(0, 1000), 1000)
    require(instance.hybrid or sigma == 1, "share: is not 1000, though no batch has both")
    full = instance.capacity // instance.block * instance.block
    bears_refills(instance, piece, (Fraction(alpha + instance.d0, full), beta))
    apart = together = Fraction(alpha, full), Fraction(beta)
    if instance.hybrid:
        slope = ((1 - sigma) * piece.alpha + instance.e0) / full + instance.e1
        together = slope, Fraction(piece.beta - instance.e1)
    later = sum(c * (o - 1) for _, o, c in kinds)
    read = sum(c * ((o - 1) * i + (o - 1) * (o - 2) // 2) for i, o, c in kinds)
    paid = least_of_decodes(kinds, apart, together) + instance.d1 * read
    paid += Fraction(instance.d0 * (read + later), full)
    prompts = sum(c * i for i, _, c in kinds)
    paid += (piece.beta + sigma * piece.alpha / min(instance.budget, full)) * prompts
    paid += instance.p0 * Served(instance, kinds, evidence, piece).prefill
    paid += instance.squares(kinds)
    paid += chunk_payments(instance, Fraction(instance.p2), instance.budget)
    return paid / instance.scale


def bears_refills(instance: Instance, piece: Piece, decode: tuple[Fraction, int]) -> None:
    """A refill costs no less than a decode pays apart, if there are any.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Of batches with refills.
    decode : (Fraction, int)
        Ticks of a decode by the KV that it leaves, and besides.
    """
    held, beta = decode
    many = [(i, o) for i, o, _ in instance.since() if o > 1]
    if not instance.preemption or not many:
        return
    for h in (min(i for i, _ in many) + 1, max(i + o for i, o in many) - 1):
        least = beta + held * h + instance.d1 * (h - 1)
        require(piece.beta * h >= least, "piece: a refill may cost less than a decode")


# --- infermax_opt/infermax/checker/guests.py ------------------------------------------------------
# What a request takes alone, and what its tokens pay for at least.

#: Bits after the point of roots.
ROOT_BITS = 12


class Tables(NamedTuple):
    """Sums over later tokens by s: least time alone, price without others, root and work of the rest."""

    alone: list[int]
    fixed: list[int]
    roots: list[int]
    works: list[int]


class Guest(NamedTuple):
    """A request that comes at some time: what it does at least, and in how much time alone."""

    times: int
    begin: int
    until: int
    later: int
    lone: int
    tokens: tuple[int, int, int]
    linear: int
    square: int
    chunks: int


def token_tables(instance: Instance, piece: Piece) -> Tables:
    """What later tokens take and pay, summed up to each number of tokens cached after them."""
    longest = max(i + o for i, o, _ in instance.kinds)
    instance.work.spend(SIZE_STEPS * longest)
    step, again = piece.alpha + instance.d0, piece.beta + instance.p1
    rows = [(0, 0, 0, 0)]
    for s in range(1, longest):
        work = piece.beta + instance.d1 * (s - 1)
        refill = piece.alpha + instance.p0 + again * s
        spare = refill - step
        if not instance.preemption:
            rows.append((step + work, step, math.isqrt(work << 2 * ROOT_BITS), work))
        elif spare >= 0 and work * step <= spare * (again * s - work):
            # A refill is dearer at every price of time.
            rows.append((min(step + work, refill), step, math.isqrt(work << 2 * ROOT_BITS), work))
        else:
            rows.append((min(step + work, refill), min(step, refill), 0, 0))
    return Tables(*(list(accumulate(column)) for column in zip(*rows, strict=True)))


def guest(
    instance: Instance, key: tuple[int, int, Fraction], count: int, piece: Piece, tables: Tables
) -> Guest:
    """What the requests of one kind take alone, and what they pay for.

    Parameters
    ----------
    instance : Instance
    key : tuple
        Input tokens, output tokens, arrival in seconds.
    count : int
        Such requests.
    piece : Piece
        Affine piece of the batch time.
    tables : Tables
    """
    i, o, arrival = key
    later, *tokens = (column[i + o - 1] - column[i] for column in tables)
    square, chunks = instance.p1 * i * i, -(-i // instance.budget)
    linear, shared = piece.beta * i, square
    if not instance.spread:
        linear, shared = linear + square, 0
    lone = linear + in_chunks(piece.alpha + instance.p0, chunks, shared, 1, 1) + later
    date = arrival * instance.scale
    paid = (tokens[0], tokens[1], tokens[2])
    return Guest(count, math.floor(date), math.ceil(date), later, lone, paid, linear, shared, chunks)


def in_chunks(fixed: int, chunks: int, square: int, work: int, unit: int) -> int:
    """Least of q * fixed + square * (work / unit) / q, for q = chunks or more.

    Parameters
    ----------
    fixed, square : int
        Ticks of each chunk, and of the attention of a prompt in one chunk.
    chunks : int
        The fewest.
    work, unit : int
        Price of attention, in parts of a unit.
    """
    if square * work <= fixed * chunks**2 * unit:
        return chunks * fixed + square * work // (chunks * unit)
    return math.isqrt(4 * fixed * square * work // unit)


def in_groups(i: int, o: int, groups: int) -> list[tuple[int, int]]:
    """Later tokens in groups as equal as can be: tokens cached before the first and after the last of each.

    Parameters
    ----------
    i, o : int
        Input and output tokens.
    groups : int
        At most.
    """
    many = min(groups, o - 1)
    return list(pairwise(i + (o - 1) * k // many for k in range(many + 1))) if many else []


# --- infermax_opt/infermax/checker/keepers.py -----------------------------------------------------
# Tool of the proof by attainment: what a request does that keeps its limits.

#: A line: its value at 0, and its slope.
Line = tuple[int, int]


class Keeper(NamedTuple):
    """A request that keeps its limits: what it does then, and between which ticks; no end is None.

    `works`: the smaller of the two is the work of a later token.  `fixed`, `least`: ticks of a batch that
    makes one, without and with it.
    """

    prompt: int
    later: int
    begin: int
    until: Any
    ready: int
    due: Any
    whole: int
    telescoped: int
    works: tuple[Line, Line]
    fixed: int
    least: int


def least_sum(lines: tuple[Line, Line], low: int, high: int) -> int:
    """Sum over s = low, ..., high of the smaller of two lines.

    Parameters
    ----------
    lines : pair of Line
    low, high : int
    """
    (start, slope), (other, steeper) = sorted(lines, key=lambda line: line[1])
    # From `turn` on the flatter line is not above the other one.
    turn = low if start <= other else high + 1
    if steeper > slope:
        turn = min(high + 1, max(low, -(-(start - other) // (steeper - slope))))

    def total(at: int, rise: int, first: int, end: int) -> int:
        """Sum of a line over a range."""
        return (end - first) * (2 * at + rise * (first + end - 1)) // 2

    return total(other, steeper, low, turn) + total(start, slope, turn, high + 1)


def keeper(instance: Instance, key: tuple[int, int, Fraction, Promise], piece: Piece) -> Keeper | None:
    """What a request does that keeps its limits; None if it never does.

    Parameters
    ----------
    instance : Instance
    key : tuple
        Input and output tokens, arrival in seconds, weight and limits.
    piece : Piece
        Affine piece of the batch time.
    """
    i, o, arrival, (_, *limits) = key
    first, whole, telescoped = prompt_work(instance, i, piece)
    batches, works, fixed = credit_work(instance, i, piece)
    later, least = least_sum(batches, i + 1, i + o - 1), least_sum(batches, i + 1, i + 1)
    ttft, tpot, e2e = (FAR if limit is None else limit * instance.scale for limit in limits)
    span = tpot * (o - 1) if o > 1 else FAR
    if first > ttft or later > span or first + later > e2e:
        return None
    due, date = min(e2e, ttft + span), arrival * instance.scale
    until, begin = min(ttft, due - later), math.floor(date)
    ends = [None if end == FAR else math.ceil(date + end) for end in (until, due)]
    return Keeper(
        i, o - 1, begin, ends[0], begin + first, ends[1], whole, telescoped, works, fixed, least
    )  # fmt: skip


def prompt_work(instance: Instance, i: int, piece: Piece) -> tuple[int, int, int]:
    """Ticks of a prompt alone, at least; its work by tokens, times the budget; attention work apart.

    Parameters
    ----------
    instance : Instance
    i : int
        Input tokens.
    piece : Piece
        Affine piece of the batch time.
    """
    square, linear = instance.p1 * i**2, piece.beta * i
    fewest = -(-i // instance.budget)
    if instance.spread:
        first = linear + in_chunks(piece.alpha + instance.p0, fewest, square, 1, 1)
        whole, apart = linear + instance.p1 * i, 0
    else:
        first = linear + square + fewest * (piece.alpha + instance.p0)
        whole, apart = (linear, square) if instance.chunked else (linear + square, 0)
    return first, whole * instance.budget + (0 if instance.preemption else instance.p0 * i), apart


def credit_work(instance: Instance, i: int, piece: Piece) -> tuple[tuple[Line, Line], tuple[Line, Line], int]:
    """Ticks of a batch that makes a later token, and its work, each the smaller of two lines; fixed costs.

    Parameters
    ----------
    instance : Instance
    i : int
        Input tokens.
    piece : Piece
        Affine piece of the batch time.
    """
    decode, fixed = (piece.beta - instance.d1, instance.d1), piece.alpha + instance.d0
    slow = (fixed + decode[0], decode[1])
    if not instance.preemption:
        return (slow, slow), (decode, decode), fixed
    again = piece.beta + instance.p1
    spared = min(max(0, instance.d0 - instance.p0), again * (i + 1))
    fixed = piece.alpha + min(instance.d0, instance.p0 + spared)
    return (slow, (piece.alpha + instance.p0, again)), (decode, (-spared, again)), fixed


# --- infermax_opt/infermax/checker/cheapest_way.py ------------------------------------------------
# Tool of the proof by attainment: the cheapest way to keep limits under prices of time.

#: Bits after the point of shares.
SHARE_BITS = 24
#: Steps of checking a cell in a group of tokens.
PRICED_STEPS = 80


class Priced(NamedTuple):
    """Cells of time: ends, prices of a tick, and shares of alpha for KV, tokens and requests in each."""

    ends: list[int]
    prices: list[int]
    scarce: list[tuple[int, int, int]]


def stretches(instance: Instance, cells: Priced, begin: int, end: Any) -> list[tuple[int, int]] | None:
    """Cells that overlap a stretch of time, with the ticks in it; None if it goes on after the last cell.

    Parameters
    ----------
    instance : Instance
    cells : Priced
    begin, end : int
        Ticks; no end is None.
    """
    last = cells.ends[-1] if cells.ends else 0
    if end is None or (begin < end and end > last):
        return None
    found, k = [], bisect_right(cells.ends, begin)
    while begin < end:
        instance.work.spend(PRICED_STEPS)
        until = min(end, cells.ends[k])
        found.append((k, until - begin))
        begin, k = until, k + 1
    return found


def cheapest_way(
    instance: Instance, kept: Keeper, cells: Priced, own: tuple[int, list[int]], groups: int, piece: Piece
) -> int | None:
    """Least that a request pays that keeps its limits, in small units; None if it has no time for that.

    Parameters
    ----------
    instance : Instance
    kept : Keeper
    cells : Priced
    own : tuple
        Its shares: the first cell, and shares from there on.
    groups : int
        Groups of later tokens, at most.
    piece : Piece
        Affine piece of the batch time.
    """
    total = prompt_paid(instance, kept, cells, piece)
    if kept.later == 0 or kept.due is None or kept.least == 0:
        return total
    width = -(-kept.later // groups)
    for before in range(0, kept.later, width):
        tokens = min(width, kept.later - before)
        begin = kept.ready + before * kept.least
        over = stretches(instance, cells, begin, kept.due - (kept.later - before - tokens) * kept.least)
        if over is not None:
            low = kept.prompt + 1 + before
            paid = group_paid(instance, kept, (low, tokens), over, cells, own, piece)
            if paid is None:
                return None
            total += paid
    return total


def prompt_paid(instance: Instance, kept: Keeper, cells: Priced, piece: Piece) -> int:
    """Least that the prompt pays, in small units.

    Parameters
    ----------
    instance : Instance
    kept : Keeper
    cells : Priced
    piece : Piece
        Affine piece of the batch time.
    """
    over = stretches(instance, cells, kept.begin, kept.until)
    if not over:
        return 0
    found = []
    for cell, _ in over:
        kv, tokens, requests = cells.scarce[cell]
        work = (kept.whole << SHARE_BITS) // instance.budget
        work += piece.alpha * kv * kept.prompt // instance.capacity
        work += piece.alpha * tokens * kept.prompt // instance.batch_tokens
        work += piece.alpha * requests // (instance.running or 1)
        found.append(cells.prices[cell] * work)
    return min(found) + (min(cells.prices[cell] for cell, _ in over) * kept.telescoped << SHARE_BITS)


def group_paid(
    instance: Instance,
    kept: Keeper,
    some: tuple[int, int],
    over: list[tuple[int, int]],
    cells: Priced,
    own: tuple[int, list[int]],
    piece: Piece,
) -> int | None:
    """Least that a group of later tokens pays, in small units; None if it has no time.

    Parameters
    ----------
    instance : Instance
    kept : Keeper
    some : tuple
        Tokens cached after the first of the group, and tokens of the group.
    over : list
        Cells and ticks in which they are made.
    cells : Priced
    own : tuple
        Shares of the request: the first cell, and shares from there on.
    piece : Piece
        Affine piece of the batch time.
    """
    (low, tokens), (first, shares) = some, own
    step, found = least_sum(kept.works, low, low), []
    for cell, ticks in over:
        kv, each, requests = cells.scarce[cell]
        share = shares[cell - first] if 0 <= cell - first < len(shares) else 0
        work = (step << SHARE_BITS) + kept.fixed * share
        work += piece.alpha * kv * low // instance.capacity
        work += piece.alpha * each // instance.batch_tokens
        work += piece.alpha * requests // (instance.running or 1)
        found.append((cells.prices[cell] * work, ticks))
    paid, left = 0, tokens * kept.least
    for price, ticks in sorted(found):
        paid += price * min(left, ticks)
        left -= min(left, ticks)
    if left or not over:
        return None
    beyond = least_sum(kept.works, low, low + tokens - 1) - tokens * step
    held = min(cells.prices[cell] * cells.scarce[cell][0] for cell, _ in over)
    more = piece.alpha * held * (tokens * (tokens - 1) // 2) // instance.capacity
    return paid // kept.least + (min(cells.prices[cell] for cell, _ in over) * beyond << SHARE_BITS) + more


# --- infermax_opt/infermax/checker/attainment.py --------------------------------------------------
# Proof: attainment, by what requests that keep their limits pay for machine time; and ranks by it.

#: Most groups of later tokens.
MAX_GROUPS = 64
#: Steps of checking a request.
PROMISE_STEPS = 300


def attainment(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Weight of missed service levels, and of what is unserved: who keeps all limits pays for machine time.

    See `infermax_opt.infermax.bounds.attainment`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    require(len(instance.promised) > 0, "no request has a limit that counts")
    unit, groups = piece.unit * (1 << SHARE_BITS), evidence["groups"].whole(1, MAX_GROUPS)
    require(unit.denominator == 1, "exponent: is below 0")
    cells = read_priced(instance, evidence["cells"])
    owned = [read_shares(some, len(cells.ends)) for some in evidence["shares"].items(len(instance.promised))]
    require_shares(instance, cells, owned)
    total = 0
    for (key, count), own in zip(instance.promised.items(), owned, strict=True):
        instance.work.spend(PROMISE_STEPS)
        weight = math.floor(key[3][0] * unit)
        kept = keeper(instance, key, piece)
        paid = None if kept is None else cheapest_way(instance, kept, cells, own, groups, piece)
        total += count * (weight if paid is None else min(weight, paid))
    spans = zip([0, *cells.ends], cells.ends, cells.prices, strict=False)
    spent = sum((end - start) * price for start, end, price in spans)
    return whole_weights(instance, (total - (spent << SHARE_BITS)) / unit)


def counted(name: str) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof for one metric that counts requests or their tokens."""

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """What the bound by attainment says of it."""
        return attainment(instance.promising({name: Fraction(1)}), evidence, piece)

    return prove


def ranked(percent: int, place: int) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof that a rank of a latency is above a limit: more requests miss it than may.

    Parameters
    ----------
    percent : int
        Of the rank; 100 is the largest.
    place : int
        Of the latency among the limits of a request: TTFT, TPOT, end-to-end latency.
    """

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """The limit, for it is below the rank."""
        limit = evidence["limit"].number()
        missed = attainment(promising_all(instance, place, limit), evidence, piece)
        require(missed > instance.above(percent), "no more requests miss the limit than may")
        return limit

    return prove


def promising_all(instance: Instance, place: int, limit: Fraction) -> Instance:
    """The same, where all are promised a limit and count 1.

    Parameters
    ----------
    instance : Instance
    place : int
        Of the latency among the limits of a request: TTFT, TPOT, end-to-end latency.
    limit : Fraction
        Seconds.
    """
    ttft, tpot, e2e = (limit if k == place else None for k in range(3))
    promised, promise = copy(instance), (Fraction(1), ttft, tpot, e2e)
    promised.promised = {(*key, promise): count for key, count in instance.kinds.items()}
    return promised


def whole_weights(instance: Instance, least: Fraction) -> Fraction:
    """The next sum of weights of requests: a multiple of their greatest common divisor."""
    weights = [promise[0] for *_, promise in instance.promised]
    scale = math.lcm(*(weight.denominator for weight in weights))
    grain = Fraction(math.gcd(*(int(weight * scale) for weight in weights)), scale)
    return max(0, math.ceil(least / grain)) * grain


def read_priced(instance: Instance, given: Field) -> Priced:
    """Cells of time whose ends rise, with prices and shares of 0 or more."""
    rows = [cell.integers(5) for cell in given.items()]
    instance.work.spend(PRICED_STEPS * len(rows))
    ends = [row[0] for row in rows]
    require(all(a < b for a, b in pairwise([0, *ends])), "cells: their ends do not rise")
    require(all(min(row[1:]) >= 0 for row in rows), "cells: a price or share is below 0")
    require(instance.running is not None or not any(row[4] for row in rows), "cells: requests are not scarce")
    return Priced(ends, [row[1] for row in rows], [(row[2], row[3], row[4]) for row in rows])


def read_shares(given: Field, cells: int) -> tuple[int, list[int]]:
    """First cell and shares of a request from there on, 0 or more."""
    first, *shares = given.integers()
    require(0 <= first <= first + len(shares) <= max(first, cells), "shares: of no cell")
    require(min(shares, default=0) >= 0, "shares: one is below 0")
    return first, shares


def require_shares(instance: Instance, cells: Priced, owned: list[tuple[int, list[int]]]) -> None:
    """All shares of a cell are at most 1 together.

    Parameters
    ----------
    instance : Instance
    cells : Priced
    owned : list
        Shares of the requests: the first cell, and shares from there on.
    """
    sums = [sum(some) for some in cells.scarce]
    for (first, shares), count in zip(owned, instance.promised.values(), strict=True):
        instance.work.spend(len(shares))
        for cell, share in enumerate(shares, first):
            sums[cell] += count * share
    require(max(sums, default=0) <= 1 << SHARE_BITS, "shares: more than 1 in a cell")


# --- infermax_opt/infermax/checker/memories.py ----------------------------------------------------
# Tool of the proof backwards: multisets of what requests hold, and where they lead.

#: Steps of listing a state, and of finding where one leads.
STATE_STEPS, FOUND_STEPS = 20, 5


class Part(NamedTuple):
    """With which requests end: what it holds, its class of holds to leave at (-1: it is not seen)."""

    hold: int
    group: int


class Memories:
    """Multisets of parts that fit: each is one of fewer parts and a last, which is no smaller than any other.

    Those that follow from one stand side by side.  Outside they have numbers by rising totals.

    Parameters
    ----------
    instance : Instance
    leave : list of int
        Holds at which requests leave.
    ends : list of Part
        With which requests end.
    """

    def __init__(self, instance: Instance, leave: list[int], ends: list[Part]):
        tops = [max([part.hold for part in ends if part.group == k], default=0) for k in range(len(leave))]
        instance.work.spend(sum(max(0, top - low) for low, top in zip(leave, tops, strict=True)))
        self.parts = sorted(Part(h, k) for k, top in enumerate(tops) for h in range(leave[k] + 1, top + 1))
        self.instance, self.leave = instance, leave
        holds = [part.hold for part in self.parts]
        self.totals, self.parents, self.lasts, self.starts = [0], [0], [0], list[int]()
        for state, total in enumerate(self.totals):
            self.starts.append(len(self.totals))
            first = self.lasts[state]
            room = max(first, bisect.bisect_right(holds, instance.capacity - total)) - first
            instance.work.spend(STATE_STEPS * (room + 1))
            self.totals += [total + hold for hold in holds[first : first + room]]
            self.parents += [state] * room
            self.lasts += range(first, first + room)
        self.order = sorted(range(len(self.totals)), key=self.totals.__getitem__)
        self.numbers = [0] * len(self.order)
        for number, state in enumerate(self.order):
            self.numbers[state] = number

    def more(self, state: int, k: int) -> int:
        """The state with part k more, which is no smaller than any other and fits."""
        return self.starts[state] + k - self.lasts[state]

    def grown(self, part: Part) -> list[int]:
        """Numbers of the states with one part more; the first states, as many as have room, have one."""
        room = self.instance.capacity - part.hold
        self.instance.work.spend(FOUND_STEPS * len(self.totals))
        if part.group < 0:
            return list(range(sum(total <= room for total in self.totals)))
        k, to = self.parts.index(part), list[int]()
        for state, (total, parent, last) in enumerate(
            zip(self.totals, self.parents, self.lasts, strict=True)
        ):
            fits = total <= room
            to.append(-1 if not fits else self.more(state, k) if last <= k else self.more(to[parent], last))
        return [self.numbers[to[state]] for state in self.order if to[state] >= 0]

    def left(self, part: Part) -> tuple[list[int], list[int]]:
        """Numbers of the states with a part, by falling totals, and of the same without it."""
        self.instance.work.spend(FOUND_STEPS * len(self.totals))
        if part not in self.parts:
            return [], []
        k, to = self.parts.index(part), [-1]
        for parent, last in zip(self.parents[1:], self.lasts[1:], strict=True):
            other = to[parent] if last > k else -1
            to.append(parent if last == k else self.more(other, last) if other >= 0 else -1)
        those = [state for state in reversed(self.order) if to[state] >= 0]
        return [self.numbers[state] for state in those], [self.numbers[to[state]] for state in those]

    def shrunk(self) -> list[int]:
        """Numbers of the states a round before: parts hold a token less, or have left."""
        self.instance.work.spend(FOUND_STEPS * len(self.totals))
        index, to = {part: k for k, part in enumerate(self.parts)}, [0]
        after = [index.get(Part(hold - 1, of), -1) for hold, of in self.parts]
        for parent, last in zip(self.parents[1:], self.lasts[1:], strict=True):
            k = after[last]
            to.append(self.more(to[parent], k) if k >= 0 else to[parent])
        return [self.numbers[to[state]] for state in self.order]


# --- infermax_opt/infermax/checker/relaxed_paths.py -----------------------------------------------
# Tool of the proof backwards: what paths among few states cost from each state on.

#: Costs that are kept at most: states times rounds.
MAX_CELLS = 2 * 10**7


class Ending(NamedTuple):
    """Equal requests that end: where to in each state that has room, how many, and what each round costs.

    A round that costs 0 is none in which they end; the list ends with the last one that costs less.
    """

    grown: list[int]
    times: int
    costs: list[int]


class Leaving(NamedTuple):
    """Parts that may leave: states with such a part, by falling totals, without it, and what rounds cost."""

    states: list[int]
    left: list[int]
    costs: list[int]

    def price(self, time: int) -> int:
        """What it costs that one leaves in a round."""
        return self.costs[time - 1] if time <= len(self.costs) else 0


class Relaxed(NamedTuple):
    """Paths among few states: who ends, in the order of the kinds; what leaves; each state a round before.

    `without`: the kinds that are no part of any state; `prices`, `groups`: of each kind its price and class;
    `leave`: the hold at which each class leaves a state.
    """

    endings: list[Ending]
    leaving: list[Leaving]
    shrunk: list[int]
    without: list[int]
    prices: list[int]
    groups: list[int]
    leave: list[int]


def ends(ending: Ending, time: int) -> bool:
    """Whether requests may end in a round."""
    return time < len(ending.costs) and ending.costs[time] < 0


def costs_ahead(relaxed: Relaxed) -> list[array[int]]:
    """What a path costs at least from each state on, before each round; row 0 is zero.

    Parameters
    ----------
    relaxed : Relaxed
    """
    endings, leaving, shrunk, without = relaxed[:4]
    rounds = max(len(ending.costs) for ending in endings) - 1
    require(max(1, rounds + 1) * len(shrunk) <= MAX_CELLS, "prices: too many states and rounds")
    # Backwards those without a part come last, so here they come first.
    order = sorted(range(len(endings)), key=lambda k: k not in without)
    rows = [array("q", bytes(8 * len(shrunk)))]
    for time in range(1, rounds + 1):
        before = rows[-1]
        values = [before[number] for number in shrunk]
        for some in leaving:
            price = some.price(time)
            for state, number in zip(reversed(some.states), reversed(some.left), strict=True):
                if values[number] + price < values[state]:
                    values[state] = values[number] + price
        for k in order:
            if ends(endings[k], time):
                cost = endings[k].costs[time]
                for _ in range(endings[k].times):
                    for state, number in enumerate(endings[k].grown):
                        if values[number] + cost < values[state]:
                            values[state] = values[number] + cost
        rows.append(array("q", values))
    return rows


# --- infermax_opt/infermax/checker/whole_prompts.py -----------------------------------------------
# Proof: backwards, by paths whose requests leave memory at their own prompts, below a limit.

#: Steps for a path that is looked at, and for each kind of request that it has room for.
WAY_STEPS, TRIED_STEPS = 25, 1
#: Units of a round at most, so that costs to go are below 2^63.
MAX_UNIT = 2**10


class Kind(NamedTuple):
    """A kind of requests: its part, the bits that count it, those that are kept when it ends; its ending."""

    part: int
    peak: int
    shift: int
    times: int
    keep: int
    ending: Ending


class Way(NamedTuple):
    """The cheapest one to some memory: parts, their total, who is remembered, state, cost, kinds tried."""

    parts: tuple[int, ...]
    total: int
    remembered: int
    state: int
    cost: int
    tried: int


def none_below(instance: Instance, relaxed: Relaxed, limit: int, near: int) -> None:
    """No path of whole prompts costs less than a limit.

    Parameters
    ----------
    instance : Instance
    relaxed : Relaxed
        By which costs to go are estimated.
    limit : int
        Of the cost of a path, in units.
    near : int
        How many kinds below and above it, by their prices, are remembered when one ends.
    """
    ahead, kinds = costs_ahead(relaxed), remembering(instance, relaxed, near)
    base, out = max(i for i, _, _ in instance.kinds), parts_out(instance, relaxed)
    gone = {i * base + i - 1 for i, _, _ in instance.kinds}
    paths = [Way((), 0, 0, 0, 0, 0)] if ahead[-1][0] < limit else []
    for time in range(len(ahead) - 1, 0, -1):
        some = [kind for kind in kinds if ends(kind.ending, time)]
        ended(instance, paths, some, time, (ahead[time], limit))
        cheapest = dict[tuple[tuple[int, ...], int], Way]()
        for way in paths:
            state, cost = left(way, out, time)
            state = relaxed.shrunk[state]
            if cost + ahead[time - 1][state] < limit:
                parts = tuple([part - base for part in way.parts if part not in gone])
                known = cheapest.get((parts, way.remembered))
                if known is None or cost < known.cost:
                    total = sum([part // base for part in parts])
                    cheapest[parts, way.remembered] = Way(parts, total, way.remembered, state, cost, 0)
        paths = list(cheapest.values())
    require(not paths, "limit: a path costs less")


def parts_out(instance: Instance, relaxed: Relaxed) -> dict[int, tuple[dict[int, int], Leaving]]:
    """Of each part that leaves states for a price, the states without it, by those with it.

    Parameters
    ----------
    instance : Instance
    relaxed : Relaxed
    """
    base = max(i for i, _, _ in instance.kinds)
    without = [dict(zip(some.states, some.left, strict=True)) for some in relaxed.leaving]
    return {
        (relaxed.leave[group] + 1) * base + i - 1: (without[group - 1], relaxed.leaving[group - 1])
        for (i, _, _), group in zip(instance.kinds, relaxed.groups, strict=True)
        if relaxed.leaving and group > 0
    }


def left(way: Way, out: dict[int, tuple[dict[int, int], Leaving]], time: int) -> tuple[int, int]:
    """State and cost of a path when parts have left in a round.

    Parameters
    ----------
    way : Way
    out : dict
        Of `parts_out`.
    time : int
        The round.
    """
    state, cost = way.state, way.cost
    for part in way.parts:
        if part in out:
            without, leaving = out[part]
            cost, state = cost + leaving.price(time), without[state]
    return state, cost


def remembering(instance: Instance, relaxed: Relaxed, near: int) -> list[Kind]:
    """The kinds, with what is remembered when one of them ends.

    Parameters
    ----------
    instance : Instance
    relaxed : Relaxed
    near : int
        As in `none_below`.
    """
    base, prices = max(i for i, _, _ in instance.kinds), relaxed.prices
    masks, shift = list[tuple[int, int]](), 0
    for times in instance.kinds.values():
        masks.append((shift, ((1 << times) - 1) << shift))
        shift += times
    by_price = sorted(range(len(prices)), key=lambda k: (prices[k], k))
    kinds: list[Kind | None] = [None] * len(prices)
    named = list(instance.kinds.items())
    for place, k in enumerate(by_price):
        (i, o, _), times = named[k]
        keep = sum(masks[j][1] for j in by_price[max(0, place - near) : place + near + 1])
        peak = i + o - 1
        kinds[k] = Kind(peak * base + i - 1, peak, masks[k][0], times, keep, relaxed.endings[k])
    return [kind for kind in kinds if kind is not None]


def ended(
    instance: Instance, paths: list[Way], kinds: list[Kind], time: int, bound: tuple[array[int], int]
) -> None:
    """Add the paths in which requests end in a round.

    Parameters
    ----------
    instance : Instance
    paths : list of Way
        Which grows.
    kinds : list of Kind
        Who may end.
    time : int
        The round.
    bound : tuple[array, int]
        Costs to go from the states, and the limit.
    """
    ahead, limit = bound
    capacity = instance.capacity
    some = [
        (j, 1 << kind.shift + kind.times - 1, kind.peak, kind.ending.grown, kind.ending.costs[time], kind)
        for j, kind in enumerate(kinds)
    ]
    # Memory is nearly full in most, so that few of the kinds have to be looked at.
    fitting = dict[int, list[tuple[int, int, int, list[int], int, Kind]]]()
    for parts, total, remembered, state, cost, tried in paths:
        room = capacity - total
        if room not in fitting:
            instance.work.spend(TRIED_STEPS * len(some))
            fitting[room] = [one for one in some if one[2] <= room]
        fits = fitting[room]
        fits = fits[bisect_left(fits, (tried,)) :] if tried else fits
        instance.work.spend(WAY_STEPS + TRIED_STEPS * len(fits))
        for j, full, peak, grown, price, kind in fits:
            if remembered & full:
                continue
            number, value = grown[state], cost + price
            if value + ahead[number] >= limit:
                continue
            one_more = ((remembered >> kind.shift & (1 << kind.times) - 1) << 1 | 1) << kind.shift
            more = tuple(sorted((*parts, kind.part)))
            paths.append(Way(more, total + peak, remembered & kind.keep | one_more, number, value, j))


# --- infermax_opt/infermax/checker/backwards.py ---------------------------------------------------
# Proof: backwards, by cheapest paths of memory from the end.

#: Steps for a state that a part leaves.
LEFT_STEPS = 1
#: Rounds that prices may have, at most.
MAX_ROUNDS = 10**6


def backwards(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Rounds that each request ends in, by the cheapest path of memory backwards in time.

    A path goes from one multiset of holds to the next (`infermax_opt.infermax.bounds.backwards`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    require_rounds(instance, piece)
    relaxed, unit = relaxed_by(instance, evidence, piece), evidence["unit"].whole(1)
    instance.work.spend(path_steps(relaxed))
    total = sum(map(operator.mul, relaxed.prices, instance.kinds.values()))
    if "limit" in evidence:
        require(unit <= MAX_UNIT, f"unit: is more than {MAX_UNIT}")
        limit, near = evidence["limit"].whole(0), evidence["near"].whole(0)
        none_below(instance, relaxed, limit - total, near)
        total = limit
    else:
        total += cheapest_path(relaxed)
    return instance.mean_latency(Fraction(total * piece.alpha, unit * instance.scale))


def relaxed_by(instance: Instance, evidence: Field, piece: Piece) -> Relaxed:
    """What paths are made of.

    Parameters
    ----------
    instance : Instance
    evidence : Field
    piece : Piece
    """
    unit, leave = evidence["unit"].whole(1), holds_to_leave_at(instance, evidence)
    linked = "exits" in evidence
    prices = priced(evidence["prices"], len(instance.kinds), unit)
    exits = [priced(row, None, unit) for row in evidence["exits"].items(len(leave) - 1)] if linked else []
    groups, parts = list[int](), list[Part]()
    for i, o, _ in instance.kinds:
        groups.append(of := class_of(i, leave))
        parts.append(Part(i + o - 1, -1 if i + o - 1 <= leave[of] else 0 if linked else of))
    memories = Memories(instance, leave[:1] if linked else leave, parts)
    to = {part: memories.grown(part) for part in dict.fromkeys(parts)}
    endings = list[Ending]()
    for part, of, price, kind in zip(parts, groups, prices, instance.kinds, strict=True):
        back = exits[of - 1] if linked and of > 0 and part.group >= 0 else []
        costs = costs_of(instance, kind, price, back, leave[of], piece, unit)
        endings.append(Ending(to[part], instance.kinds[kind], costs))
    without = [k for k, part in enumerate(parts) if part.group < 0]
    leaving = leavings(memories, leave, exits)
    return Relaxed(endings, leaving, memories.shrunk(), without, prices, groups, leave)


def holds_to_leave_at(instance: Instance, evidence: Field) -> list[int]:
    """Of each class, rising."""
    leave = evidence["leave"].integers()
    require(leave == sorted(set(leave)) and min(leave, default=-1) >= 0, "leave: does not rise from 0")
    require(max(i for i, _, _ in instance.kinds) - 1 <= leave[-1], "leave: a prompt is longer")
    return leave


def costs_of(
    instance: Instance, kind: tuple[int, int, Fraction], price: int, back: list[int], leave: int,
    piece: Piece, unit: int,
) -> list[int]:  # fmt: skip
    """What it costs that a request of some kind ends, by rounds (`ending_costs`).

    Parameters
    ----------
    instance : Instance
    kind : tuple[int, int, Fraction]
        I, O and arrival.
    price : int
        Of ending.
    back : list of int
        Prices of leaving that are paid back.
    leave : int
        Hold at which it leaves.
    piece : Piece
    unit : int
        Units of a round.
    """
    i, o, arrival = kind
    earliest = int(arrival * instance.scale / piece.alpha) + o
    return ending_costs(instance, price, back, i + o - 2 - leave, (max(earliest, 1), unit))


def priced(field: Field, length: int | None, unit: int) -> list[int]:
    """Prices, in units.

    Parameters
    ----------
    field : Field
    length : int, optional
        How many there must be.
    unit : int
        Units of a round.
    """
    prices = field.integers(length)
    worth = range(MAX_ROUNDS * unit + 1)
    require(all(price in worth for price in prices), f"{field.path}: out of range")
    return prices


def class_of(i: int, leave: list[int]) -> int:
    """The first hold to leave at that is enough for a prompt."""
    return next(k for k, hold in enumerate(leave) if hold >= i - 1)


def leavings(memories: Memories, leave: list[int], exits: list[list[int]]) -> list[Leaving]:
    """Which parts leave for which prices.

    Parameters
    ----------
    memories : Memories
    leave : list of int
        Holds at which requests leave.
    exits : list of list of int
        What that costs in round 1, 2, ..., for each hold but the first.
    """
    pairs = zip(leave[1:], exits, strict=False)
    return [Leaving(*memories.left(Part(d + 1, 0)), costs) for d, costs in pairs]


def ending_costs(
    instance: Instance, price: int, back: list[int], lag: int, rounds: tuple[int, int]
) -> list[int]:
    """What it costs to end in each round, from 0 on; 0 where that is no gain, or too soon.

    Parameters
    ----------
    instance : Instance
    price : int
        Of ending.
    back : list of int
        Prices of leaving, by rounds from 1 on, that are paid back.
    lag : int
        Rounds from leaving to the end.
    rounds : tuple[int, int]
        First round in which it may end, at least 1, and units of a round.
    """
    earliest, unit = rounds
    last = max((price - 1) // unit, (price + max(back) - 1) // unit if back else 0)
    instance.work.spend(4 * last)
    costs = [0] * (last + 1)
    for time in range(earliest, last + 1):
        at = time - lag - 1
        costs[time] = min(0, time * unit - price - (back[at] if 0 <= at < len(back) else 0))
    while costs and costs[-1] == 0:
        costs.pop()
    return costs


def require_rounds(instance: Instance, piece: Piece) -> None:
    """Batches take alpha, only KV limits them, and nobody is evicted."""
    count = sum(instance.kinds.values())
    costs = [piece.beta, instance.d0, instance.d1, instance.p0, instance.p1]
    require(piece.alpha > 0 and len(instance.pieces) == 1 and not any(costs), "cost: batches are no rounds")
    kept = instance.hybrid and not instance.chunked and not instance.preemption
    require(kept, "policy: requests may stop, or must wait")
    free = instance.budget >= instance.capacity and (instance.running or count) >= count
    require(free and instance.block == 1, "system: more than KV limits batches")
    whole = all((a * instance.scale / piece.alpha).denominator == 1 for *_, a in instance.kinds)
    require(whole, "requests: an arrival is within a round")


def path_steps(relaxed: Relaxed) -> int:
    """Steps of going through all rounds, so that too much of it is rejected before it begins."""
    endings, leaving, shrunk = relaxed[:3]
    rounds = max(0, max(len(ending.costs) for ending in endings) - 1)
    steps = rounds * (2 * len(endings) + 10 + 3 * len(shrunk) // 5)
    steps += sum(rounds * (10 + LEFT_STEPS * len(states)) for states, _, _ in leaving)
    for to, times, costs in endings:
        steps += sum(cost < 0 for cost in costs) * times * (10 + 3 * len(to) // 5)
    return steps


def cheapest_path(relaxed: Relaxed) -> int:
    """Units of the cheapest path; a request that ends in a round costs what it is late for its prices."""
    endings, leaving, shrunk, without = relaxed[:4]
    values: list[Any] = [0] + [FAR] * (len(shrunk) - 1)
    rounds = max(len(ending.costs) for ending in endings) - 1
    # Those without a part come last: they need the total of all others.
    endings = [endings[k] for k in sorted(range(len(endings)), key=lambda k: k in without)]
    for time in range(rounds, 0, -1):
        for to, times, costs in endings:
            if time < len(costs) and costs[time] < 0:
                end(values, to, times, costs[time])
        for some in leaving:
            go(values, some.states, some.left, some.price(time))
        after: list[Any] = [FAR] * len(shrunk)
        for number, value in zip(shrunk, values, strict=True):
            if value < after[number]:
                after[number] = value
        values = after
    return int(min(values))


def end(values: list[Any], to: list[int], times: int, cost: int) -> None:
    """Let up to so many equal requests end, each for a cost.

    Parameters
    ----------
    values : list
        Costs of the states, which are changed.
    to : list of int
        The states with one of them more; the first states have room.
    times, cost : int
        How many, and what each costs.
    """
    for _ in range(times):
        for number, value in zip(to, values[: len(to)], strict=True):
            if value + cost < values[number]:
                values[number] = value + cost


def go(values: list[Any], states: list[int], left: list[int], price: int) -> None:
    """Let parts leave for a price.

    Parameters
    ----------
    values : list
        Costs of the states, which are changed.
    states, left : list of int
        States with such a part, by falling totals, and the same without it.
    price : int
        Of one.
    """
    for state, number in zip(states, left, strict=True):
        if values[state] + price < values[number]:
            values[number] = values[state] + price


# --- infermax_opt/infermax/checker/moves.py -------------------------------------------------------
# Tool of the proof by branching: the cheapest moves of a request, and of batches, under prices.

#: Kinds of moves: first, decode, idle, return, late return; and with batches that prefill and that decode.
MOVES, KINDS = 5, 7
#: Steps of one number of tokens in a box.
BOX_STEPS = 2


class LeafPrices(NamedTuple):
    """Prices of a leaf by batch, of splits by kind, batch and tokens.

    `held`: of what a request holds, by its tokens; `prompts`: of all rows from a batch on.
    """

    held: list[list[int]]
    decoded: list[int]
    prefilled: list[int]
    prompts: list[int]
    moves: list[list[list[int]]]
    present: list[list[int]]


class Counts(NamedTuple):
    """Requests of one kind, and costs in units.

    `sizes`: blocks that a request holds, by its tokens; `room`: blocks in all; `divisors`: of these.
    """

    requests: int
    inputs: int
    outputs: int
    sizes: list[int]
    room: int
    divisors: list[int]
    alpha: int
    d0: int
    p0: int
    rho: int


def add_to_box(instance: Instance, paid: LeafPrices, box: list[int], price: int) -> None:
    """Add a price to all that a box counts.

    Parameters
    ----------
    instance : Instance
    paid : LeafPrices
    box : list[int]
    price : int
    """
    if not price:
        return
    kinds, first, last, fewest, most, _ = box
    instance.work.spend(KINDS * (last - first + 1) * (BOX_STEPS + most - fewest))
    for kind in range(KINDS):
        if not kinds >> kind & 1:
            continue
        for j in range(first - 1, last):
            if kind >= MOVES:
                paid.present[kind - MOVES][j] += price
            else:
                row = paid.moves[kind][j]
                row[fewest - 1 : most] = [value + price for value in row[fewest - 1 : most]]


def cheapest_presence(instance: Instance, counts: Counts, paid: LeafPrices) -> int:
    """Units of all batches, each of which prefills, or decodes, or both with hybrid batching.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    paid : LeafPrices
    """
    total = 0
    for j, begun in enumerate(paid.prompts):
        prefills = counts.p0 + paid.present[0][j] - counts.room * paid.prefilled[j] - instance.budget * begun
        decodes = counts.d0 + paid.present[1][j] - counts.room * paid.decoded[j]
        both = prefills + decodes if instance.hybrid else prefills
        total += min(prefills, decodes, both)
    return total


def cheapest_moves(instance: Instance, counts: Counts, paid: LeafPrices) -> int:
    """Units of the cheapest sequence of moves of one request.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    paid : LeafPrices
    """
    outputs, sizes = counts.outputs, counts.sizes
    active, out, done = [FAR] * outputs, [FAR] * outputs, FAR
    for j, held in enumerate(paid.held):
        first, decode, idle, again, late = (kind[j] for kind in paid.moves)
        decoded, prefilled = paid.decoded[j], paid.prefilled[j]
        if instance.preemption:  # before the batch
            out = list(map(min, out, active))
        begin = held[0] + prefilled * sizes[0] + counts.inputs * paid.prompts[j] + first[0]
        after = [begin, *[FAR] * (outputs - 1)]
        for n in range(outputs - 1):  # n + 1 tokens were made
            refill = counts.rho * (counts.inputs + n)
            stay, more = sizes[n], sizes[n + 1]
            after[n] = min(after[n], active[n] + held[n] + idle[n])
            made = active[n] + decoded * more + decode[n + 1]
            after[n + 1] = held[n + 1] + min(made, out[n] + refill + prefilled * more + again[n + 1])
            if instance.chunked:
                after[n] = min(after[n], out[n] + refill + held[n] + prefilled * stay + late[n])
        done = min(done, after[-1])
        active = after
    return int(done)


# --- infermax_opt/infermax/checker/branching.py ---------------------------------------------------
# Proof: trees of branchings on counts of moves, each leaf by prices.

#: Steps of a batch in a leaf, of one number of tokens in it, and of one or the other for a divisor.
LEAF_STEPS, MOVE_STEPS, DIVISOR_STEPS = 60, 25, 3

#: A side of a branching: kinds, first and last batch, fewest and most tokens, limit; whether at least that.
Side = tuple[list[int], int, bool]


def branching(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Schedules of every number of batches cost at least what the leaves of the trees prove.

    See `infermax_opt.infermax.bounds.branching`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    counts = read_counts(instance, evidence, piece)
    presence, least = min(counts.d0, counts.p0), counts.outputs
    proved: list[int] = []
    for tree in evidence["trees"].items():
        batches = tree["batches"].whole(least)
        value = tree_value(instance, counts, tree["nodes"].items(), batches)
        proved.append(least * counts.alpha + value - (batches - least) * presence)
        least = batches + 1
    units = min([*proved, least * (counts.alpha + presence)])
    kinds = [(counts.inputs, counts.outputs, counts.requests)]
    work = instance.token_work(kinds, piece.beta) + instance.squares(kinds)
    return (work + units / piece.unit) / instance.scale


def read_counts(instance: Instance, evidence: Field, piece: Piece) -> Counts:
    """The requests, which must be of one kind, what they cost, and the divisors.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = instance.since()
    inputs, outputs, _ = kinds[0]
    require({kind[:2] for kind in kinds} == {(inputs, outputs)}, "trees: requests are of several kinds")
    instance.work.spend(MOVE_STEPS * outputs)
    return Counts(
        sum(c for *_, c in kinds),
        inputs,
        outputs,
        [-(-(inputs + n) // instance.block) for n in range(outputs)],
        instance.capacity // instance.block,
        [divisor.whole(1) for divisor in evidence["divisors"].items()],
        piece.units(piece.alpha),
        piece.units(instance.d0),
        piece.units(instance.p0),
        piece.units(max(0, piece.beta - instance.d1)),
    )


def tree_value(instance: Instance, counts: Counts, nodes: list[Field], batches: int) -> int:
    """The least that a leaf proves; nodes stand before their sides, that with less in the box first.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    nodes : list[Field]
    batches : int
        Of the schedules of the tree.
    """
    values, open_sides = list[int](), [list[Side]()]
    for node in nodes:
        require(bool(open_sides), "trees: more nodes than branchings have sides")
        sides = open_sides.pop()
        if isinstance(node.value, list):
            box = read_box(node, batches, counts.outputs)
            open_sides += [[*sides, (box, box[5] + 1, True)], [*sides, (box, box[5], False)]]
            instance.work.spend(20 + 2 * len(sides))
        else:
            values.append(leaf_value(instance, counts, node, sides, batches))
    require(not open_sides, "trees: a side of a branching is missing")
    return min(values)


def read_box(node: Field, batches: int, outputs: int) -> list[int]:
    """Kinds, first and last batch, fewest and most tokens, and the limit of the lower side.

    Parameters
    ----------
    node : Field
    batches, outputs : int
        The last that there are.
    """
    box = node.integers(6)
    kinds, first, last, fewest, most, _ = box
    if not (0 < kinds < 1 << KINDS and 1 <= first <= last <= batches and 1 <= fewest <= most <= outputs):
        node.fail("is no box of these batches and tokens")
    return box


def leaf_value(instance: Instance, counts: Counts, leaf: Field, sides: list[Side], batches: int) -> int:
    """Units of presence and refills that a leaf proves by its prices.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    leaf : Field
        Its prices.
    sides : list[Side]
        The branchings above it.
    batches : int
        Of its schedules.
    """
    instance.work.spend(batches * (LEAF_STEPS + MOVE_STEPS * counts.outputs))
    decoded, prefilled, prompts = (
        leaf[name].integers(batches) for name in ("decoded", "prefilled", "prompts")
    )
    splits = leaf["splits"].integers(len(sides))
    if min([0, *decoded, *prefilled, *prompts, *splits]) < 0:
        leaf.fail("a price is below 0")
    begun = list(accumulate(reversed(prompts)))[::-1]
    held, value = held_prices(instance, counts, leaf, batches)
    moves = [[[0] * counts.outputs for _ in range(batches)] for _ in range(MOVES)]
    prices = LeafPrices(held, decoded, prefilled, begun, moves, [[0] * batches for _ in range(MOVES, KINDS)])
    for price, (box, limit, above) in zip(splits, sides, strict=True):
        paid = -price if above else price
        value -= paid * limit
        add_to_box(instance, prices, box, paid)
    value += cheapest_presence(instance, counts, prices)
    return value + counts.requests * cheapest_moves(instance, counts, prices)


def held_prices(instance: Instance, counts: Counts, leaf: Field, batches: int) -> tuple[list[list[int]], int]:
    """What a request pays in each batch for what it holds, by its tokens; and less what all may hold.

    Parameters
    ----------
    instance : Instance
    counts : Counts
    leaf : Field
        Its prices.
    batches : int
        Of its schedules.
    """
    instance.work.spend(DIVISOR_STEPS * len(counts.divisors) * (batches + counts.outputs))
    value, held = 0, [[0] * counts.outputs for _ in range(batches)]
    for divisor, given in zip(counts.divisors, leaf["held"].items(len(counts.divisors)), strict=True):
        prices = given.integers(batches)
        if min(prices) < 0:
            given.fail("a price is below 0")
        value -= counts.room // divisor * sum(prices)
        weights = [size // divisor for size in counts.sizes]
        for j, price in enumerate(prices):
            if price:
                instance.work.spend(BOX_STEPS * counts.outputs)
                held[j] = [own + price * weight for own, weight in zip(held[j], weights, strict=True)]
    return held, value


# --- infermax_opt/infermax/checker/crowds.py ------------------------------------------------------
# Proof: a rank of a latency, by disjoint crowds of requests, of each of which some miss a limit.


def crowds(percent: int, place: int) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof that a rank of a latency is above a limit: more requests miss it than may.

    See `infermax_opt.infermax.bounds.crowds`.

    Parameters
    ----------
    percent : int
        Of the rank; 100 is the largest.
    place : int
        Of the latency among the limits of a request: TTFT, TPOT, end-to-end latency.
    """

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """The limit, for it is below the rank."""
        limit = evidence["limit"].number()
        instance.work.spend(2 * PROMISE_STEPS * len(instance.kinds))
        promised = promising_all(instance, place, limit)
        kinds = sorted(promised.promised.items(), key=lambda kind: (kind[0][2], kind[0][0], kind[0][1]))
        late, end = Fraction(0), 0
        for crowd in evidence["crowds"].items():
            first = crowd["first"].whole(end, len(kinds))
            outside, end = kinds[end:first], first + len(crowd["shares"].items())
            late += surely_late(promised, outside, piece)
            part = copy(promised)
            part.promised = dict(kinds[first:end])
            unit = Fraction(2) ** crowd["exponent"].whole(0, 512)
            late += attainment(part, crowd, piece._replace(unit=unit))
        late += surely_late(promised, kinds[end:], piece)
        require(late > instance.above(percent), "no more requests miss the limit than may")
        return limit

    return prove


def surely_late(instance: Instance, kinds: list[tuple[Any, int]], piece: Piece) -> int:
    """Requests that miss the limit even alone.

    Parameters
    ----------
    instance : Instance
    kinds : list
        Lengths, arrival and promise, and how many of them.
    piece : Piece
        Affine piece of the batch time.
    """
    return sum(count for key, count in kinds if keeper(instance, key, piece) is None)


# --- infermax_opt/infermax/checker/deferral_waits.py ----------------------------------------------
# Tool of the proof by deferral: requests that watch the prompts of others, and what each wait is worth.

#: Parts of a window, and those of them that make up the stay.
WINDOW_PARTS, STAY_PARTS = 15, 10
#: Bits after the point: of shares of a wait, and of roots of levels; a share of all.
OWN_BITS, LEVEL_ROOT_BITS = 10, 4
ALL = 1 << OWN_BITS
#: Most groups of later tokens and ages, and largest weight and root of a level; the least root.
MOST_ROWS, MOST_AGES, MOST_WEIGHT, MOST_ROOT, LEAST_ROOT = 64, 16, 2**20, 2**10, 1 << LEVEL_ROOT_BITS
#: Steps of a cell of a window, once and for each weight, of one of a wait, and of one that is only filled in.
WINDOW_STEPS, WEIGHT_STEPS, WAIT_STEPS, ZERO_STEPS = 9, 3, 7, 1


class WatchedRow(NamedTuple):
    """A prompt, or later tokens in a row: least times before and after them, roots of work, and work."""

    before: int
    after: int
    roots: int
    works: int


class Life(NamedTuple):
    """A request that chooses when its first and its last token come.

    `prompt`: the least work of its prompt.  `share`: of its own wait.  `window`: cells in which it has a
    weight, and `weights` of these, one for each age of who waits.  `levels`: roots of levels with the number
    of cells of each.
    """

    some: Guest
    first: int
    prompt: int
    groups: list[WatchedRow]
    share: int
    window: range
    weights: list[list[int]]
    levels: list[list[int]]

    @property
    def earliest(self) -> int:
        """The first moment at which its first token may be there."""
        return self.some.begin + self.first


class Waits:
    """What each request that waits for its prompt is worth to those who watch it, cell by cell.

    `starts`, `roots`: of cells; `ages`: at which other weights count; `lives`: all requests by arrival;
    `bits`: after the point of a tick.
    """

    def __init__(
        self, instance: Instance, starts: list[int], roots: list[int], ages: list[int], lives: list[Life],
        bits: int,
    ):  # fmt: skip
        self.bits, self.instance, self.starts, self.roots, self.lives = bits, instance, starts, roots, lives
        self.ages, self.dearest = ages, max(roots)
        self.begins, self.untils = zip(*((life.some.begin, life.some.until) for life in lives), strict=True)
        #: In each cell the first of some requests in a row, and what a weight of 1 has of each, all
        #: equal ones together; who is new.
        self.columns: list[tuple[int, list[int]]] = [(0, [])] * len(roots)
        self.new: list[list[int]] = [[] for _ in roots]
        there: list[list[int]] = [[0] * len(roots) for _ in range(len(ages) + 1)]
        watchers, last = sorted(lives, key=lambda life: -life.earliest), 0
        for k, life in enumerate(lives):
            while watchers and watchers[-1].earliest <= life.some.begin:
                other = watchers.pop()
                for c, weights in zip(other.window, other.weights, strict=True):
                    for all_of_age, weight in zip(there, weights, strict=True):
                        all_of_age[c] += other.some.times * weight
                last = max(last, other.window.stop)
            since = life.some.until + life.first
            first = bisect_right(starts, since) - 1
            if first < last:
                self.new[first].append(k)
            instance.work.spend(WAIT_STEPS * max(1, last - first))
            for c in range(first, last):
                span = starts[c + 1] - max(starts[c], since)
                if not self.columns[c][1]:
                    self.columns[c] = k, []
                head, worths = self.columns[c]
                instance.work.spend(ZERO_STEPS * (k - head - len(worths)))
                worths += [0] * (k - head - len(worths))
                total = there[bisect_right(ages, starts[c] - life.some.until)][c]
                worth = ((ALL - life.share) * span << bits - OWN_BITS) // max(1, total)
                worths.append(life.some.times * worth)


def read_ages(evidence: Field) -> list[int]:
    """Ages in ticks, of which each begins new weights.

    Parameters
    ----------
    evidence : Field
    """
    ages = evidence["ages"].integers()
    require(len(ages) <= MOST_AGES, f"ages: there are more than {MOST_AGES}")
    require(all(a < b for a, b in pairwise([0, *ages])), "ages: they do not rise from above 0 on")
    return ages


def read_lives(
    instance: Instance, evidence: Field, piece: Piece, starts: list[int], ages: list[int]
) -> list[Life]:
    """All requests, in the order in which their kinds appear.

    Parameters
    ----------
    instance : Instance
    evidence : Field
    piece : Piece
    starts : list of int
        Of cells, and of the time after them.
    ages : list of int
    """
    many, tables = len(instance.kinds), token_tables(instance, piece)
    groups = evidence["groups"].whole(1, MOST_ROWS)
    stays, shares = evidence["stays"].integers(many), evidence["shares"].integers(many)
    require(min(stays) >= 1, "stays: one is below 1")
    require(all(0 <= share <= ALL for share in shares), f"shares: one is not from 0 to {ALL}")
    weights = [row.integers(WINDOW_PARTS * (len(ages) + 1)) for row in evidence["weights"].items()]
    levels = [[run.integers(2) for run in row.items()] for row in evidence["levels"].items()]
    require(len(weights) == len(levels) == many, "weights, levels: not as many as kinds of requests")
    instance.work.spend(many * (REQUEST_STEPS + SIZE_STEPS * groups))
    lives = []
    for n, (key, count) in enumerate(instance.kinds.items()):
        require(all(0 <= weight <= MOST_WEIGHT for weight in weights[n]), "weights: one is out of range")
        check_levels(levels[n], len(starts))
        some = guest(instance, key, count, piece, tables)
        i, o, _ = key
        prompt = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
        end = some.begin - (-WINDOW_PARTS * stays[n] // STAY_PARTS)
        window = range(bisect_right(starts, some.begin) - 1, min(len(starts) - 1, bisect_left(starts, end)))
        instance.work.spend((WINDOW_STEPS + WEIGHT_STEPS * (len(ages) + 1)) * len(window))
        each = [weights[n][part::WINDOW_PARTS] for part in range(WINDOW_PARTS)]
        parts = (max(0, starts[c] - some.begin) * STAY_PARTS // stays[n] for c in window)
        lives.append(
            Life(
                some, some.lone - some.later, prompt, groups_of(some, prompt, i, o, groups, tables),
                shares[n], window, [each[part] for part in parts], levels[n],
            )
        )  # fmt: skip
    return lives


def check_levels(runs: list[list[int]], cells: int) -> None:
    """Roots of levels g over that of the least g, each for so many cells.

    Parameters
    ----------
    runs : list of [int, int]
        Roots of levels, with cells.
    cells : int
    """
    require(bool(runs), "levels: a request has none")
    require(all(cells >= many >= 1 for _, many in runs), "levels: a number of cells is out of range")
    require(sum(many for _, many in runs) <= cells, "levels: there are more than cells")
    sound = all(LEAST_ROOT <= root <= MOST_ROOT for root, _ in runs)
    require(sound, f"levels: a root is not from {LEAST_ROOT} to {MOST_ROOT}")


def groups_of(some: Guest, prompt: int, i: int, o: int, groups: int, tables: Tables) -> list[WatchedRow]:
    """The prompt, and later tokens in groups as equal as can be.

    Parameters
    ----------
    some : Guest
    prompt : int
        Least work of the prompt.
    i, o : int
        Its input and output tokens.
    groups : int
        At most.
    tables : Tables
    """
    last, alone = i + o - 1, tables.alone
    found = [WatchedRow(0, some.later, 0, prompt)]
    for a, b in in_groups(i, o, groups):
        before, after = some.lone - some.later + alone[a] - alone[i], alone[last] - alone[b]
        found.append(
            WatchedRow(before, after, tables.roots[b] - tables.roots[a], tables.works[b] - tables.works[a])
        )
    return found


# --- infermax_opt/infermax/checker/deferral_prompts.py --------------------------------------------
# Tool of the proof by deferral: what a request counts of the prompts and the waits that it may see.

#: Bits after the point of the part of a prompt that counts though it may come before the first token.
KEPT_BITS = 16
#: Steps of checking: a prompt at both ends of a cell, at a level that is new, and in a cell; a cell.
LOOK_STEPS, TABLE_STEPS, PASS_STEPS, WATCH_STEPS = 6, 1, 2, 50


class Losses(NamedTuple):
    """What is lost if a first token comes after the first of some prompts, least over how many these are.

    `queue`: least of what is lost as a whole less the time before who comes then; `kept`: what of that is
    not lost at the begin of a cell.  `lost`, `lost_before`: all of them at its end and begin; `least`,
    `least_before`: what the wait counts then, less what is lost.
    """

    queue: int = 0
    kept: int = 0
    lost: int = 0
    lost_before: int = 0
    least: int = 0
    least_before: int = 0


def lose(losses: Losses, part: int, olds: list[int], news: list[int], gaps: list[int]) -> Losses:
    """The same after some more prompts.

    Parameters
    ----------
    losses : Losses
    part : int
        Of the time before the first token that counts of itself, beside that of prompts.
    olds, news : list of int
        What each counts at the begin and the end of a cell.
    gaps : list of int
        Work that there was time for until each came.
    """
    queue, kept, lost, lost_before, least, least_before = losses
    for old, new, gap in zip(olds, news, gaps, strict=False):
        # What came before this prompt is lost, and no more than there is time for of what comes after.
        if lost - gap <= queue:
            queue, kept = lost - gap, lost - lost_before
        lost += new
        lost_before += old
        value = part * (lost - queue >> KEPT_BITS) - lost
        if value < least:
            least = value
        if value + kept < least_before:
            least_before = value + kept
    return Losses(queue, kept, lost, lost_before, least, least_before)


def lesser(shares: list[int], caps: list[int]) -> list[int]:
    """The lesser of each two."""
    return [share if share < cap else cap for share, cap in zip(shares, caps, strict=False)]


class Prompts:
    """The prompts that a request may see, cell by cell, up to where they are known."""

    def __init__(self, waits: Waits, life: Life):
        self.waits, self.life, self.bits = waits, life, waits.bits
        self.low = bisect_left(waits.begins, life.earliest)
        high = bisect_left(waits.begins, waits.starts[life.window.stop])
        self.begins, self.untils = waits.begins[self.low : high], waits.untils[self.low : high]
        self.works = [other.some.times * other.prompt for other in waits.lives[self.low : high]]
        self.spans = [begin - life.earliest for begin in self.begins]
        # Of each prompt: what it has of that wait, and what of that counts at both ends of a cell.
        self.shares: list[int] = []
        self.before: list[int] = []
        self.now: list[int] = []
        self.tables: dict[int, tuple[list[int], list[int], Losses, int]] = {}

    def level_of(self, root: int) -> int:
        """The level of a root, in parts of a tick."""
        return (ALL - self.life.share) * root * root << self.bits - OWN_BITS - 2 * LEVEL_ROOT_BITS

    def pass_cell(self, cell: int) -> None:
        """Take what it has of all waits in a cell; those that begin in it count only after it."""
        self.before, window, starts = self.now, self.life.window, self.waits.starts
        self.waits.instance.work.spend(WATCH_STEPS)
        if cell not in window:
            self.now = self.shares
            return
        present = bisect_left(self.begins, starts[cell + 1])
        self.waits.instance.work.spend(PASS_STEPS * present + len(self.waits.new[cell]))
        self.shares += [0] * (present - len(self.shares))
        head, worths = self.waits.columns[cell]
        first = place = max(0, head - self.low)
        mine = worths[max(0, self.low - head) :][: max(0, present - first)]
        last = first + len(mine)
        aged = [bisect_right(self.untils, starts[cell] - age) for age in reversed(self.waits.ages)]
        # The oldest come first.
        for weight, to in zip(self.life.weights[cell - window.start][::-1], [*aged, last], strict=True):
            to = min(to, last)
            if place < to:
                given = mine[place - first : to - first]
                self.shares[place:to] = [
                    share + weight * worth for share, worth in zip(self.shares[place:to], given, strict=True)
                ]
                place = to
        self.now = self.shares.copy()
        for k in self.waits.new[cell]:
            if self.low <= k < self.low + present:
                self.now[k - self.low] = 0

    def at_ends(self, root: int, limit: int) -> tuple[int, int, int]:
        """What counts but for tokens and the end: at both ends of a cell, and later.

        Parameters
        ----------
        root : int
            Of the level, over that of the least one.
        limit : int
            The first token is no later.
        """
        life, square = self.life, root * root
        many = bisect_right(self.begins, limit, 0, len(self.now))
        if root not in self.tables:
            self.tables[root] = self.table(root)
        caps, gaps, state, done = self.tables[root]
        part = (square - LEAST_ROOT**2 << KEPT_BITS) // square
        # Who counts in full counts so at all later ends, too.
        known = min(many, len(self.before))
        full = next((k for k in range(done, known) if self.before[k] < caps[k]), known)
        self.waits.instance.work.spend(LOOK_STEPS * (len(self.now) + 1 - done))
        state = lose(state, part, caps[done:full], caps[done:full], gaps[done:full])
        self.tables[root] = caps, gaps, state, full
        olds = lesser(self.before[full:], caps[full:]) + [0] * (len(self.now) - max(full, len(self.before)))
        news = lesser(self.now[full:], caps[full:])
        last = lose(state, part, olds[: many - full], news, gaps[full:])
        slope = self.level_of(root) - (ALL - life.share << self.bits - OWN_BITS)
        own = (life.first << OWN_BITS) - life.share * (life.some.until + life.first)
        fixed = own << self.bits - OWN_BITS
        fixed += self.level_of(root) * life.some.tokens[0] + slope * life.earliest
        now = state.lost + sum(news) + last.least
        on = min(now, slope * (limit - life.earliest))
        return fixed + state.lost + sum(olds) + last.least_before, fixed + now, fixed + on

    def table(self, root: int) -> tuple[list[int], list[int], Losses, int]:
        """Most that each prompt counts at a level, work that there was time for before it; what is lost."""
        level = self.level_of(root)
        self.waits.instance.work.spend(TABLE_STEPS * len(self.works))
        return [level * work for work in self.works], [level * span for span in self.spans], Losses(), 0


# --- infermax_opt/infermax/checker/interaction.py -------------------------------------------------
# Proof: interaction, by prices of tokens and of prompt work over time.

#: Bits after the point of theta.
THETA_BITS = 10
#: Steps of checking a cell of a request.
CELL_STEPS = 25


class Cells(NamedTuple):
    """Ends of cells of time, r in each and 0 after them, the price of work likewise; units of a tick.

    `lower`: for each cell, the next one with a smaller r, and the next one where work costs less.
    """

    ends: list[int]
    root: list[int]
    work: list[int]
    unit: int
    lower: tuple[list[int], list[int]]


def interaction(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Batches are slow as others decode: prices of tokens and of prompt work over time.

    See `infermax_opt.infermax.bounds.interaction`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    step = piece.alpha + instance.d0
    require(step > 0, "piece: a batch that decodes takes no time")
    theta = evidence["theta"].whole(0, 1 << THETA_BITS)
    tables = token_tables(instance, piece)
    guests = [guest(instance, key, count, piece, tables) for key, count in instance.kinds.items()]
    cells = read_cells(instance, evidence["cells"], guests, step)
    total = sum(some.times * least_paid(instance, some, cells, theta, piece) for some in guests)
    spans = zip([0, *cells.ends], cells.ends, cells.root, strict=False)
    total -= theta * sum((end - start) * root * root for start, end, root in spans)
    return Fraction(total, (cells.unit << THETA_BITS) * instance.scale * sum(instance.kinds.values()))


def read_cells(instance: Instance, given: Field, guests: list[Guest], step: int) -> Cells:
    """Cells of time, with the price of prompt work: that of all that are there all of it, and of time.

    Parameters
    ----------
    instance : Instance
    given : Field
        Ends and roots.
    guests : list of Guest
        Each is there from its arrival for as long as it takes alone.
    step : int
        Constant of a batch that decodes, in ticks.
    """
    ends, roots = read_roots(instance, given, len(guests))
    starts, there = [0, *ends], [0] * (len(ends) + 1)
    for some in guests:
        first, last = bisect_left(starts, some.until), bisect_right(ends, some.begin + some.lone)
        if first < last:
            there[first] += some.times
            there[last] -= some.times
    unit = step << 2 * ROOT_BITS
    present = accumulate(there[:-1])
    work = [max(1, n) * unit + root**2 for n, root in zip(present, roots, strict=True)]
    roots, work = [*roots, 0], [*work, unit]
    return Cells(ends, roots, work, unit, (next_lower(roots), next_lower(work)))


def read_roots(instance: Instance, given: Field, guests: int) -> tuple[list[int], list[int]]:
    """Ends of cells of time, and roots.

    Parameters
    ----------
    instance : Instance
    given : Field
        What the certificate holds.
    guests : int
        How many are to be put into the cells.
    """
    pairs = [cell.integers(2) for cell in given.items()]
    ends, roots = [end for end, _ in pairs], [root for _, root in pairs]
    require(all(a < b for a, b in pairwise([0, *ends])), "cells: their ends do not rise")
    require(all(root >= 0 for root in roots), "cells: a root is below 0")
    instance.work.spend(REQUEST_STEPS * guests + CELL_STEPS * len(ends))
    return ends, roots


def next_lower(values: list[int]) -> list[int]:
    """For each value, the place of the next one that is smaller; where there is none, their number."""
    places, waiting = [len(values)] * len(values), list[int]()
    for place, value in enumerate(values):
        while waiting and value < values[waiting[-1]]:
            places[waiting.pop()] = place
        waiting.append(place)
    return places


def least_paid(instance: Instance, some: Guest, cells: Cells, theta: int, piece: Piece) -> int:
    """Least of theta times what it pays and the rest of its latency, over all delays; in small units.

    Parameters
    ----------
    instance : Instance
    some : Guest
    cells : Cells
    theta : int
    piece : Piece
        Affine piece of the batch time.
    """
    fixed, (plain, roots, works), ends = piece.alpha + instance.p0, some.tokens, cells.ends
    step, waiting = cells.unit >> 2 * ROOT_BITS, ((1 << THETA_BITS) - theta) * cells.unit

    def worth(delay: int, work: int, root: int) -> int:
        """What is paid after such a delay, at these prices."""
        tokens = plain * cells.unit + root * (2 * roots * step + root * works)
        chunks = in_chunks(fixed, some.chunks, some.square, work, cells.unit) * cells.unit
        return waiting * (some.lone + delay) + theta * (tokens + work * some.linear + chunks)

    end = some.until + some.lone
    early = end - some.later
    begin, prompt, token = (bisect_right(ends, moment) for moment in (some.begin, early, end))
    instance.work.spend(prompt + token - 2 * begin)
    prompt = min(range(begin, prompt + 1), key=cells.work.__getitem__)
    token = min(range(begin, token + 1), key=cells.root.__getitem__)
    best = worth(0, cells.work[prompt], cells.root[token])
    while True:
        # Delays change what is paid where prompt or tokens come to a cell that is cheaper than all before.
        instance.work.spend(CELL_STEPS)
        cheaper, fewer = cells.lower[1][prompt], cells.lower[0][token]
        delays = [ends[k - 1] - since for k, since in ((cheaper, early), (fewer, end)) if k <= len(ends)]
        if not delays or worth(min(delays), cells.unit, 0) >= best:
            return best  # longer delays pay more, whatever the prices
        delay = min(delays)
        if cheaper <= len(ends) and ends[cheaper - 1] - early == delay:
            prompt = cheaper
        if fewer <= len(ends) and ends[fewer - 1] - end == delay:
            token = fewer
        best = min(best, worth(delay, cells.work[prompt], cells.root[token]))


# --- infermax_opt/infermax/checker/deferral.py ----------------------------------------------------
# Proof: deferral, by prices of time and by shares of the time for which prompts wait.

#: Cells after a window that count as one.
WIDE = 8
#: Bits after the point of a tick in what prompts count: so many at least, and with those of a'.
TICK_BITS, STEP_BITS = 18, 40
#: Bits after the point of the root of the least level.
LIGHT_BITS = 14
#: Steps of checking: a row at the end of a cell, and cells of a row, of which so many are one.
ROW_STEPS, CELLS_A_STEP = 12, 4


def deferral(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Whom no prompt slows down, prompts wait for.

    See `infermax_opt.infermax.bounds.deferral`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    step = piece.alpha + instance.d0
    require(step > 0, "piece: a batch that decodes takes no time")
    ends, roots = read_roots(instance, evidence["cells"], len(instance.kinds))
    require(bool(ends), "cells: there are none")
    starts = [0, *ends]
    ages = read_ages(evidence)
    lives = sorted(read_lives(instance, evidence, piece, starts, ages), key=lambda life: life.some.begin)
    bits = max(TICK_BITS, STEP_BITS - step.bit_length())
    waits = Waits(instance, starts, roots, ages, lives, bits)
    spans = zip(pairwise(starts), roots, strict=True)
    total = -sum((end - start) * root * root for (start, end), root in spans) << bits
    total += sum(life.some.times * LastMoment(waits, life, step).least() for life in lives)
    whole = step << 2 * ROOT_BITS + bits
    return Fraction(total, whole * instance.scale * sum(instance.kinds.values()))


class LastMoment:
    """The least that a request counts; `step` is a' in ticks."""

    def __init__(self, waits: Waits, life: Life, step: int):
        self.waits, self.life, self.step, self.bits = waits, life, step, waits.bits
        self.prompts = Prompts(waits, life)
        self.cheapest = [waits.dearest] * len(life.groups)
        self.ahead = [bisect_right(waits.starts, life.some.begin + one.before) - 1 for one in life.groups]
        self.runs = list(accumulate(many for _, many in life.levels))
        self.light = math.isqrt(ALL - life.share << 2 * LIGHT_BITS - OWN_BITS)

    def least(self) -> int:
        """Over all cells in which its last token may be made, in small units."""
        starts, cells = self.waits.starts, len(self.waits.roots)
        possible = bisect_right(starts, self.life.earliest + self.life.some.later) - 1
        best, c = self.after(starts[-1]), self.life.window.start
        while c < cells:
            e = self.end_of(c)
            if e > possible and self.after(starts[c]) >= best:
                break  # who ends later counts no less
            self.prompts.pass_cell(c)
            if e > possible:
                value, later = self.in_cell(c, e, best)
                if later is not None and later >= best:
                    break  # nor does who ends after this cell
                best = min(best, value)
            c = e
        return best

    def in_cell(self, c: int, e: int, best: int) -> tuple[int, int | None]:
        """What it counts if it ends in some cells, and if later: None if that is not known.

        Parameters
        ----------
        c, e : int
            The first of the cells, and the one after them.
        best : int
            The least so far.
        """
        starts, root = self.waits.starts, self.root_of(c)
        left, right, on = self.prompts.at_ends(root, starts[e] - self.life.some.later)
        rest = (1 << self.bits) - self.prompts.level_of(root)
        self.follow(e)
        value = self.priced(min(left + rest * starts[c], right + rest * starts[e]), root, self.cheapest)
        if value < best or rest < 0:
            return value, None
        return value, self.priced(on + rest * starts[e], root, self.to_come(best))

    def end_of(self, cell: int) -> int:
        """The cell after those that count as one with it."""
        if cell < self.life.window.stop:
            return cell + 1
        return min(len(self.waits.starts) - 1, cell + WIDE)

    def root_of(self, cell: int) -> int:
        """The root of its level in a cell, over that of the least level; the last one goes on."""
        run = bisect_right(self.runs, cell - self.life.window.start)
        return self.life.levels[min(run, len(self.runs) - 1)][0]

    def after(self, end: int) -> int:
        """What it counts at least if its last token comes no sooner."""
        some, first, share = self.life.some, self.life.first, self.life.share
        ticks = (ALL - share) * (first + some.tokens[0]) + share * (end - some.until)
        return ticks * self.step << 2 * ROOT_BITS + self.bits - OWN_BITS

    def follow(self, end: int) -> None:
        """See which r are the least for its prompt and tokens, if it ends no later than a cell begins."""
        starts, prices = self.waits.starts, self.waits.roots
        self.waits.instance.work.spend(ROW_STEPS * len(self.life.groups))
        for n, one in enumerate(self.life.groups):
            last = min(end, bisect_right(starts, starts[end] - one.after))
            if last > self.ahead[n]:
                self.waits.instance.work.spend((last - self.ahead[n]) // CELLS_A_STEP)
                self.cheapest[n] = min(self.cheapest[n], *prices[self.ahead[n] : last])
                self.ahead[n] = last

    def to_come(self, best: int) -> list[int]:
        """The same if it ends at any time at which it may count less than the best so far."""
        starts, first = self.waits.starts, min(self.ahead)
        last = bisect_left(starts, best, 0, len(self.waits.roots), key=self.after)
        self.waits.instance.work.spend(
            ROW_STEPS * len(self.life.groups) + max(0, last - first) // CELLS_A_STEP
        )
        lowest = min(self.waits.roots[first:last], default=max(self.cheapest))
        return [min(lowest, each) for each in self.cheapest]

    def priced(self, ticks: int, root: int, lowest: list[int]) -> int:
        """That, and its prompt and tokens at some r, in small units.

        Parameters
        ----------
        ticks : int
            In parts of a tick.
        root : int
            Of the level, over that of the least one.
        lowest : list of int
            The r of each row.
        """
        linear = sum(low * one.roots for low, one in zip(lowest, self.life.groups, strict=True))
        squared = sum(low * low * one.works for low, one in zip(lowest, self.life.groups, strict=True))
        after = 1 + self.bits - LEVEL_ROOT_BITS - LIGHT_BITS
        tokens = linear * root * self.light * self.step << after
        return (ticks * self.step << 2 * ROOT_BITS) + tokens + (squared << self.bits)


# --- infermax_opt/infermax/checker/filling.py -----------------------------------------------------
# Proof: filling, by what the first requests leave empty of the memory.

#: Steps of looking at one request in one step of time.
FILL_STEPS = 40


class Fill(NamedTuple):
    """Equal requests: their lengths, when their first and second tokens may begin, in ticks, and how many."""

    i: int
    o: int
    first: int
    second: int
    times: int

    def last_before(self, end: int, step: int) -> int:
        """The last token that something may be done for before `end`, tokens being `step` apart."""
        if end <= self.second:
            return 1 if self.first < end else 0
        return min(self.o, 2 + (end - 1 - self.second) // step) if step else self.o


class Room(NamedTuple):
    """What fills: tokens in blocks of that size, or (block 0) requests; and how many there may be."""

    block: int
    most: int

    def sizes(self, before: int, last: int) -> int:
        """Sum of what a request takes with before + 1, ..., last tokens cached."""
        if self.block == 0:
            return last - before
        return self.block * (blocks_up_to(last, self.block) - blocks_up_to(before, self.block))


def filling(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """What requests that have just arrived leave of the memory, less the work done meanwhile.

    See `infermax_opt.infermax.bounds.filling`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    one = 1 << evidence["exponent"].whole(0, 256)
    room, step = room_of(instance, evidence["by_slots"].flag()), shortest_step(instance)
    kinds = [fill_of(instance, key) for key in instance.kinds.items()]
    cells = falling_levels(evidence["cells"], one)
    instance.work.spend(FILL_STEPS * len(kinds) * (2 * len(cells) + 1))
    whole = sum(k.times * fill_work(instance, piece, k, room, (1, k.o)) for k in kinds)
    area = sum(k.times * room.sizes(k.i - 1, k.i + k.o - 1) for k in kinds)
    whole += piece.alpha * instance.budget * area
    left = early = 0
    done = [0] * len(kinds)
    for start, end, level in cells:
        reached = [k.last_before(end, step) for k in kinds]
        pairs = zip(kinds, reached, strict=True)
        held = sum(k.times * room.sizes(k.i + n - 2, k.i + n - 1) for k, n in pairs if n)
        require(level * room.most <= (room.most - held) * one, "cells: requests may fill more than is left")
        left += level * (end - start)
        spans = zip(kinds, done, reached, strict=True)
        work = (k.times * fill_work(instance, piece, k, room, (a + 1, b)) for k, a, b in spans if b > a)
        early += level * sum(work)
        done = reached
    proved = (Fraction(whole * one - early, room.most * instance.budget) + left) / one
    require(not cells or cells[-1][1] < proved, "cells: a schedule may end before the last one")
    return proved / instance.scale


def room_of(instance: Instance, by_slots: bool) -> Room:
    """The KV cache in whole blocks, or the limit on running requests."""
    if by_slots:
        require(instance.running is not None, "by_slots: any number of requests may run")
        return Room(0, instance.running or 0)
    return Room(instance.block, instance.capacity // instance.block * instance.block)


def shortest_step(instance: Instance) -> int:
    """Least time of a batch that processes a token."""
    presence = min(instance.d0 + instance.d1, instance.p0 + instance.p1)
    return max(a + b for a, b in instance.pieces) + presence


def fill_of(instance: Instance, entry: tuple[tuple[int, int, Fraction], int]) -> Fill:
    """Dates of equal requests: the prompt takes so many batches at least, of any piece."""
    (i, o, arrival), times = entry
    chunks, first = -(-i // instance.budget), math.floor(arrival * instance.scale)
    prompt = max(chunks * a + b * i for a, b in instance.pieces) + chunks * instance.p0
    return Fill(i, o, first, first + prompt + instance.p1 * (i if instance.spread else i * i), times)


def fill_work(instance: Instance, piece: Piece, kind: Fill, room: Room, tokens: tuple[int, int]) -> int:
    """Least work of a span of the tokens of one request, in ticks / (room * min(P, C)).

    The prompt is that of the first one; presence of prefill is paid by the prompt, that of decode by sizes.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    kind : Fill
    room : Room
    tokens : (int, int)
        The first and the last.
    """
    slack, (first, last), total = (piece.beta - instance.d1) * room.most - 2 * instance.d0, tokens, 0
    d0 = instance.d0 if slack >= 0 or not instance.preemption else 0
    d1 = min(instance.d1, piece.beta) if instance.preemption else instance.d1
    if first == 1:
        square = kind.i if instance.spread else kind.i**2
        total = room.most * instance.budget * (piece.beta * kind.i + instance.p1 * square)
        total += room.most * instance.p0 * kind.i
        first = 2
    count = last - first + 1
    if count <= 0:
        return total
    read = sum((kind.i + first - 2, kind.i + last - 2)) * count // 2
    sizes = read + count if room.block else count
    return total + instance.budget * (room.most * (piece.beta * count + d1 * read) + d0 * sizes)


def falling_levels(given: Field, one: int) -> list[tuple[int, int, int]]:
    """Start, end and level of spans of time; ends rise, levels fall from `one` at most to 0 at least."""
    cells, start, above = [], 0, one
    for cell in given.items():
        end, level = cell.integers(2)
        require(end > start, "cells: their ends do not rise")
        require(0 <= level <= above, "cells: their levels do not fall")
        cells.append((start, end, level))
        start, above = end, level
    return cells


# --- infermax_opt/infermax/checker/request_paths.py -----------------------------------------------
# Tool of the Lagrangian proof: cheapest paths of a request under prices of KV and of tokens.

#: Prices in units, each for a number of batches.
Runs = list[list[int]]
#: Prices of a block of KV, and of a token that a batch processes.
Prices = tuple[Runs, Runs]


def each(runs: Runs) -> Iterator[int]:
    """The price of each batch."""
    return chain.from_iterable([price] * times for price, times in runs)


def with_entries(instance: Instance, prices: Prices) -> list[list[int]]:
    """Prices of KV, of prefill and of decodes, and in how many batches.

    That of prefill is what a token costs at least that is held in the batch: in chunks it may be prefilled
    in any batch before, and is held since.  Decodes count where C is the limit of prefill, too.
    """
    held, tokens = prices
    if not any(price for price, _ in tokens):
        return [[price, 0, 0, times] for price, times in held]
    decodes = int(instance.budget == instance.batch_tokens)
    runs: list[list[int]] = []
    entry = None
    for price, token in zip(each(held), each(tokens), strict=True):
        entry = token if entry is None else min(token, entry)
        if runs and runs[-1][:3] == [price, entry, decodes * token]:
            runs[-1][3] += 1
        else:
            runs.append([price, entry, decodes * token, 1])
        entry = entry + price // instance.block if instance.chunked else None
    return runs


class Lanes:
    """Lists of so many whole numbers from 0 to `most`, each list as one integer: number k at bit k * width.

    Python adds and compares a thousand of them so in a few steps.  The highest bit of each lane stays 0
    in between, so that no lane borrows from another.
    """

    def __init__(self, count: int, most: int):
        self.width = most.bit_length() + 1
        self.ones = self.pack([1] * count)
        self.guards = self.ones << (self.width - 1)

    def pack(self, values: list[int]) -> int:
        """The list as one integer."""
        return int("".join([format(value, f"0{self.width}b") for value in reversed(values)]), 2)

    def least(self, a: int, b: int) -> int:
        """The lesser number of each lane."""
        not_below = ((a | self.guards) - b) & self.guards  # the highest bit of the lanes where a >= b
        chosen = not_below - (not_below >> (self.width - 1))  # all other bits of these
        return a ^ ((a ^ b) & chosen)


class RequestPath:
    """Costs of the batches of a request, packed: lane n is for n + 1 tokens.

    `sizes`: blocks held; `enter`: units to enter with these tokens, the first or after a refill, beside
    those for the `loads` prefilled for it; `steps`: units to decode the last of them; `later`: 1 for all but
    the first; `unreached`: more than the path costs that makes a token in each batch, so that just what is
    reached is below.
    """

    def __init__(self, instance: Instance, kind: tuple[int, int], share: int, rho: int, dearest: list[int]):
        prompt, outputs = kind
        instance.work.spend(12 * outputs)
        sizes = [-(-(prompt + n) // instance.block) for n in range(outputs)]
        enter = [rho * (prompt + n - 1) if n else 0 for n in range(outputs)]
        loads = [prompt + n - 1 if n else prompt for n in range(outputs)]
        steps = [share * size for size in sizes]
        price, entry, token = dearest
        batch = steps[-1] + price * sizes[-1] + token
        self.unreached = outputs * batch + entry * prompt + 1
        most = self.unreached + enter[-1] + entry * loads[-1] + batch
        instance.work.spend(outputs * most.bit_length() // 8)
        self.lanes = Lanes(outputs, most)
        if instance.preemption:  # a refill instead of a decode
            steps = list(map(min, steps, enter))
        self.sizes, self.enter, self.loads, self.steps = map(self.lanes.pack, (sizes, enter, loads, steps))
        self.later = self.lanes.ones - 1


def cheapest_paths(
    instance: Instance, kind: tuple[int, int], runs: list[list[int]], share: int, rho: int
) -> list[Any]:
    """Units of the cheapest path of a request that ends by each batch; FAR where none does.

    In each batch a request that is held makes its next token or waits; one that is out enters; and one
    that was held before may be out again afterwards.

    Parameters
    ----------
    instance : Instance
    kind : tuple[int, int]
        Kind of requests.
    runs : list[list[int]]
        As `with_entries` gives them.
    share : int
    rho : int
    """
    path = RequestPath(instance, kind, share, rho, [max(run[k] for run in runs) for k in range(3)])
    width, unreached, least = path.lanes.width, path.unreached, path.lanes.least
    top = width * (kind[1] - 1)  # the lane of all tokens, with which nobody is held
    below, nobody = (1 << top) - 1, unreached << top
    held, out, done = (unreached * path.lanes.ones) & below, unreached * (path.lanes.ones - 1), unreached
    bits, ends = kind[1] * width, list[int]()
    step = 40 + bits // (
        80 if bits < 2**22 else 40
    )  # beyond the caches of a processor it takes twice as long
    for price, entry, token, times in runs:
        instance.work.spend(step)
        paid, before = price * path.sizes, None
        enter, steps = (part + token * path.later for part in (path.enter + entry * path.loads, path.steps))
        for left in range(times, 0, -1):
            instance.work.spend(step)
            decoded, waited = (held << width | unreached) + steps, held | nobody
            reached = least(least(decoded, waited), out + enter) + paid
            out = least(out, held << width) if instance.preemption else out
            done, held = min(done, reached >> top), reached & below
            settled = before == (before := (done, held, out))  # more batches at this price change nothing
            ends += [done] * (left if settled else 1)
            if settled:
                break
    return [end if end < unreached else FAR for end in ends]


# --- infermax_opt/infermax/checker/lagrangian.py --------------------------------------------------
# Proof: Lagrangian, by prices of KV and of tokens for each batch.

#: Most batches that a list of prices is for; the bound's own limit is 2**18.
MAX_BATCHES = 2**20


def lagrangian(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Cheapest paths of all kinds under lists of prices, for each number of batches.

    Each list bounds what so many batches cost; the least over their number, each by its best list, is
    the bound (`infermax_opt.infermax.bounds.lagrangian`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds, blocks = instance.since(), instance.capacity // instance.block
    theta = evidence["theta"].whole(0, min(instance.d0, instance.p0))
    lists = read_lists(evidence, instance.work)
    longest, horizon = max(o for _, o, _ in kinds), sum(times for _, times in lists[0][0])
    require(longest <= horizon <= MAX_BATCHES, "prices: too short or too long")
    batch, rho = piece.units(piece.alpha + theta), piece.units(max(0, piece.beta - instance.d1))
    share = piece.units(instance.d0 - theta) // blocks
    instance.work.spend((10 + 2 * len(kinds)) * horizon * len(lists))
    best: list[Any] = [-FAR] * horizon  # for 1, 2, ... batches
    for held, tokens in lists:
        both = zip(each(held), each(tokens), strict=True)
        cost: list[Any] = list(accumulate(batch - blocks * p - instance.budget * q for p, q in both))
        runs = with_entries(instance, (held, tokens))
        for i, o, c in kinds:
            ends = cheapest_paths(instance, (i, o), runs, share, rho)
            cost = [total + c * end for total, end in zip(cost, ends, strict=True)]
        best = list(map(max, best, cost))
    total = least_total(instance, kinds, best, batch, piece.unit)
    prefill = -(-sum(i * c for i, _, c in kinds) // instance.budget)
    fixed = instance.token_work(kinds, piece.beta) + (instance.p0 - theta) * prefill
    return (total + fixed) / instance.scale


def read_lists(evidence: Field, work: Work) -> list[Prices]:
    """Lists of prices of KV and of tokens, all for the same number of batches."""
    held = read_prices(evidence["prices"], work)
    batches = sum(times for _, times in held[0])
    if "tokens" not in evidence:
        return [(runs, [[0, batches]]) for runs in held]
    tokens = read_prices(evidence["tokens"], work)
    same = len(tokens) == len(held) and sum(times for _, times in tokens[0]) == batches
    require(same, "tokens: not as many lists or batches as prices")
    return list(zip(held, tokens, strict=True))


def read_prices(prices: Field, work: Work) -> list[Runs]:
    """Lists of prices of one sort, all for the same number of batches."""
    work.spend(15 * sum(len(some.value) for some in prices.items() if isinstance(some.value, list)))
    lists = [[run.integers(2) for run in some.items()] for some in prices.items()]
    if not lists:
        prices.fail("holds no list")
    for k, runs in enumerate(lists):
        require(all(price >= 0 and times >= 0 for price, times in runs), f"prices: list {k} goes below 0")
        require(sum(t for _, t in runs) == sum(t for _, t in lists[0]), "prices: lists of different lengths")
    return lists


def least_total(instance: Instance, kinds: Kinds, best: list[Any], batch: int, unit: Fraction) -> Fraction:
    """Least ticks of batches, paths and prompts, over the numbers of batches by area or more.

    Parameters
    ----------
    instance : Instance
    kinds : Kinds
        Kinds of requests.
    best : list[Any]
    batch : int
        Least units of a batch.
    unit : Fraction
        Units of a tick.
    """
    size = instance.block
    sizes = sum(c * (blocks_up_to(i + o - 1, size) - blocks_up_to(i - 1, size)) for i, o, c in kinds)
    least = max(-(-sizes // (instance.capacity // size)), max(o for _, o, _ in kinds))
    longer = Fraction(max(least, len(best) + 1) * batch) / unit + instance.squares(kinds)
    instance.work.spend((6 + 6 * len(kinds) * instance.spread) * len(best))
    up, down = unit.numerator, unit.denominator
    squares = 0 if instance.spread else instance.squares(kinds)
    total: Any = FAR  # of ticks, in parts
    for j in range(least, len(best) + 1):
        if best[j - 1] < FAR:
            total = min(
                total, best[j - 1] * down + (instance.squares(kinds, j) if instance.spread else squares) * up
            )
    return longer if total == FAR else min(longer, Fraction(total, up))


# --- infermax_opt/infermax/checker/levels_full.py -------------------------------------------------
# Proof by levels of one token, where each batch is charged in full, as in a state flow.


class BatchCosts(NamedTuple):
    """Units of the steps; of a request that appears or leaves by its level, FAR where that cannot be.

    `plain`, `mixed`, `pure`: of batches of decodes, with prefills besides, and of prefills alone.
    """

    plain: int
    mixed: int
    pure: int
    appear: list[Any]
    leave: list[Any]


def batch_costs(instance: Instance, inputs: int, worth: list[int], piece: Piece) -> BatchCosts:
    """Costs of the steps, at what levels are worth.

    Parameters
    ----------
    instance : Instance
    inputs : int
        Input tokens of each request.
    worth : list[int]
        Of each level, lowest first.
    piece : Piece
        Affine piece of the batch time.
    """
    plain, mixed, pure, _ = instance.presence(piece)
    rho, last, out = max(0, piece.beta - instance.d1), len(worth) - 1, [*worth, 0]
    for q in range(last, -1, -1):
        out[q] += out[q + 1]
    again = [piece.units(rho * (inputs + q - 1)) - out[q] for q in range(1, last + 1)]
    appear: list[Any] = [-out[0], *(again if instance.preemption else [FAR] * last)]
    if instance.preemption and instance.chunked:  # also late, a token short
        appear[:-1] = map(min, appear[:-1], again)
    leave = [out[q + 1] if instance.preemption or q == last else FAR for q in range(last + 1)]
    return BatchCosts(plain, mixed, pure, appear, leave)


def check_in_full(between: dict[tuple[int, ...], Any], costs: BatchCosts, work: Work) -> None:
    """No leaving, idling or batch earns, from any state.

    Parameters
    ----------
    between : dict[tuple[int, ...], Any]
        Potentials of the states, by the levels of their requests.
    costs : BatchCosts
    work : Work
        Counts the steps.
    """
    plain, mixed, pure, appear, leave = costs
    #: Potentials between batches, and while requests appear in one with decodes, and in one without.
    rows = {state: [value, FAR, FAR] for state, value in between.items()}
    for state, row in rows.items():
        distinct, here = set(state), row[0]
        work.spend(20 + 3 * len(state) + 16 * len(distinct))
        before = rows[tuple([q - 1 if q else 0 for q in state])][0]  # on level 0 are those that were idle
        beside, alone = before + mixed, FAR
        for q in distinct:
            at = state.index(q)
            rest = rows[(*state[:at], *state[at + 1 :])]
            beside = min(beside, rest[1] + appear[q])
            alone = min(alone, min(rest[0], rest[2]) + appear[q])
            require(rest[0] <= here + leave[q], "potential: leaving earns")
            if q:
                lower = rows[(*state[:at], q - 1, *state[at + 1 :])]
                require(lower[0] <= here, "potential: idling earns")
        row[1:] = beside, alone
        require(here <= min(before + plain, beside, alone + pure), "potential: a batch earns")


# --- infermax_opt/infermax/checker/levels.py ------------------------------------------------------
# Proof: state flow on levels of several tokens, looked at every so many batches.

#: Such a proof may take so many times as many steps as others: it may have 600,000 states.
LONGER = 3
#: Levels in all states together, at most: they are held in less than a GiB.
MOST_MEMBERS = 21 * 10**6

#: Levels of the requests in memory, in order.
Look = tuple[int, ...]


class Levels(NamedTuple):
    """Requests of one kind, on levels of `width` tokens; `most`: of them in memory."""

    inputs: int
    outputs: int
    requests: int
    width: int
    most: int

    @property
    def number(self) -> int:
        """How many levels there are."""
        return -(-self.outputs // self.width)

    @property
    def last(self) -> int:
        """Tokens of the last level."""
        return self.outputs - self.width * (self.number - 1)


class LookCosts(NamedTuple):
    """Units of the steps; of a request that appears or leaves by its level, FAR where that cannot be.

    `block`: of the batches from one look to the next; `more`: beside it where requests appear in one;
    `stay`: what one earns that stays on its level.
    """

    block: int
    more: int
    stay: int
    appear: list[Any]
    leave: list[Any]


def levels(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """No step among the states seen at looks earns more than it costs, by the potentials.

    So a schedule costs at least what the levels of all requests are worth
    (`infermax_opt.infermax.bounds.levels`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    instance.work = Work(LONGER * MAX_STEPS)
    space = on_levels(instance, evidence)
    worth = evidence["prices"]["worth"].integers(space.number)
    full = "full" in evidence and evidence["full"].flag()
    require(space.width == 1 or not full, "full: levels are of more than one token")
    costs = None if full else read_costs(instance, evidence["prices"], space, worth, piece)
    given = evidence["potential"].integers(nulls=True)
    require(0 < len(given) <= MOST_MEMBERS // space.most, "potential: too many states, or none")
    require(given[0] is not None, "potential: the empty state has none")
    states = list_levels(instance, space, len(given))
    require(len(states) == len(given), "potential: wrong number of states")
    between = {state: FAR if v is None else v for state, v in zip(states, given, strict=True)}
    if costs is None:
        check_in_full(between, batch_costs(instance, space.inputs, worth, piece), instance.work)
    else:
        check_looks(between, costs, instance.work)
    beyond = 0 if costs is None else (space.width - 1) * costs.block
    return (work_of_all(instance, space, piece) + phases(space, worth, beyond) / piece.unit) / instance.scale


def on_levels(instance: Instance, evidence: Field) -> Levels:
    """The requests, which must be of one kind, and how wide their levels are."""
    kinds = instance.since()
    inputs, outputs, _ = kinds[0]
    require({kind[:2] for kind in kinds} == {(inputs, outputs)}, "width: requests are of several kinds")
    count = sum(c for *_, c in kinds)
    most = min(count, instance.capacity // inputs, instance.running or 10**18)
    require(most >= 1, "potential: there is no state, as no request fits")
    return Levels(inputs, outputs, count, evidence["width"].whole(1, outputs), most)


def read_costs(instance: Instance, prices: Field, space: Levels, worth: list[int], piece: Piece) -> LookCosts:
    """LookCosts of the steps; no level may be worth less than staying on it earns.

    Parameters
    ----------
    instance : Instance
    prices : Field
        Of the certificate.
    space : Levels
    worth : list[int]
        Of each level, lowest first.
    piece : Piece
        Affine piece of the batch time.
    """
    width, shared = space.width, min(instance.d0, instance.p0)
    idle = prices["idle"].whole(0, piece.units(shared))
    more = piece.units(instance.p0 - shared) + idle
    require(width == 1 or min(worth) >= width * idle, "prices: idling earns more than a level is worth")
    require(worth[0] >= width * idle + more, "prices: idling on the lowest level would earn")
    out = [*worth, 0]
    for q in range(space.number - 1, -1, -1):
        out[q] += out[q + 1]
    rho = max(0, piece.beta - instance.d1)
    again = [piece.units(rho * (space.inputs + width * q - 1)) for q in range(space.number)]
    ends = space.outputs // width - 1
    returns = instance.preemption
    appear = [-out[0], *(again[q] - out[q] if returns else FAR for q in range(1, space.number))]
    if width == 1 and returns and instance.chunked:  # late ones, too
        appear[:-1] = [min(appear[q], again[q + 1] - out[q + 1] - idle) for q in range(space.number - 1)]
    return LookCosts(
        piece.units(width * (piece.alpha + shared)),
        more,
        width * idle,
        appear,
        [out[q + 1] if returns or q == 0 or q >= ends else FAR for q in range(space.number)],
    )


def list_levels(instance: Instance, space: Levels, expected: int) -> list[Look]:
    """All sets of levels that memory holds, smallest first, then in order.

    Parameters
    ----------
    instance : Instance
    space : Levels
    expected : int
        States that the certificate has.
    """
    states: list[Look] = [()]
    inputs, width = space.inputs, space.width
    for state in states:
        if len(state) == space.most:
            break
        instance.work.spend(8 + len(state))
        free = instance.capacity - len(state) * inputs - width * sum(state) - inputs
        highest = min(space.number - 1, free // width)
        states += [(*state, q) for q in range(state[-1] if state else 0, highest + 1)]
        require(len(states) <= expected, "potential: too few states")
    return states


def check_looks(between: dict[Look, Any], costs: LookCosts, work: Work) -> None:
    """No leaving, staying or block earns, from any state.

    Parameters
    ----------
    between : dict[Look, Any]
        Potentials of the states.
    costs : LookCosts
    work : Work
        Counts the steps.
    """
    block, more, stay, appear, leave = costs
    within, start = dict.fromkeys(between, FAR), between[()]
    for state, here in between.items():
        distinct = set(state)
        work.spend(10 + len(state) + 12 * len(distinct))
        grown = FAR
        if state and state[0] > 0:
            grown = between[tuple([q - 1 for q in state])] + block
        least = grown + more
        for q in distinct:
            at = state.index(q)
            rest = (*state[:at], *state[at + 1 :])
            least = min(least, within[rest] + appear[q])
            require(between[rest] <= here + leave[q], "potential: leaving earns")
            if q:
                lower = (*state[:at], q - 1, *state[at + 1 :])
                require(between[lower] <= here - stay, "potential: idling earns")
        within[state] = least
        fresh = start + block + sum([appear[q] for q in state])
        require(here <= min(grown, least, fresh), "potential: a block of batches earns")


def work_of_all(instance: Instance, space: Levels, piece: Piece) -> int:
    """Work of all requests, in ticks.

    Parameters
    ----------
    instance : Instance
    space : Levels
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = [(space.inputs, space.outputs, space.requests)]
    return instance.token_work(kinds, piece.beta) + instance.squares(kinds)


def phases(space: Levels, worth: list[int], beyond: int) -> Fraction:
    """What all levels are worth less the blocks that reach beyond the ends, in units of one phase.

    Parameters
    ----------
    space : Levels
    worth : list[int]
        Of each level, lowest first.
    beyond : int
        What the blocks beyond the ends cost in all phases.
    """
    tokens = space.width * sum(worth[:-1]) + space.last * worth[-1]
    return Fraction(space.requests * tokens - beyond, space.width)


# --- infermax_opt/infermax/checker/windows.py -----------------------------------------------------
# Windows of time in which requests are expected to be, and what time costs by those that are.


class Expected(NamedTuple):
    """A guest that is expected for some time, and the share of its latency that counts by uses.

    It has all of its weight for `whole` ticks after its arrival, and `part` / `span` of it until `until`.
    """

    some: Guest
    share: int
    whole: int
    until: int
    part: int
    span: int

    def missing(self, life: int, unit: int) -> int:
        """Its weight in the time after its life, rounded up; life and time in parts 1 / unit of a tick."""
        full, rest = max(0, self.whole * unit - life), max(0, self.until * unit - life)
        return full - (-self.part * min(rest, self.span * unit) // self.span)


def expected(
    instance: Instance,
    given: Field,
    guests: list[tuple[Guest, int, int]],
    theta: int,
    step: int,
    fading: bool,
) -> tuple[list[Expected], Cells]:
    """Guests with their windows, and cells of time with prices of prompt work, in small units times theta's.

    Parameters
    ----------
    instance : Instance
    given : Field
        Ends and roots of cells.
    guests : list of (Guest, int, int)
        With its stay in ticks and its share.
    theta : int
        The largest share, or more.
    step : int
        Constant of a batch that decodes, in ticks.
    fading : bool
        Whether windows have a weight in the cell in which they end.
    """
    ends, roots = read_roots(instance, given, len(guests))
    starts, unit = [0, *ends], step << 2 * ROOT_BITS
    there, more, found = [0] * (len(ends) + 1), [0] * (len(ends) + 1), []
    for some, stay, share in guests:
        end = some.begin + stay
        first, last = bisect_left(starts, some.until), bisect_right(ends, end)
        one = Expected(some, share, stay, stay, 0, 1)
        if fading and first > last:
            one = one._replace(whole=0, until=0)
        elif fading:
            whole, until = starts[last] - some.begin, starts[min(last + 1, len(ends))] - some.begin
            one = one._replace(whole=whole, until=until)
            if last < len(ends):
                one = one._replace(part=stay - whole, span=until - whole)
        if first <= last:
            there[first] += some.times * share
            there[last] -= some.times * share
            more[last] += some.times * share * one.part // one.span
        found.append(one)
    least = min(share for _, _, share in guests)
    present = [n + part for n, part in zip(accumulate(there[:-1]), more, strict=False)]
    work = [max(least, n) * unit + theta * root**2 for n, root in zip(present, roots, strict=True)]
    roots, work = [*roots, 0], [*work, least * unit]
    return found, Cells(ends, roots, work, unit, (next_lower(roots), next_lower(work)))


# --- infermax_opt/infermax/checker/lingering.py ---------------------------------------------------
# Proof: lingering, by prices over time, where requests count for as long as they are expected to stay.

#: Most groups of later tokens.
MOST_BUNCHES = 64
#: Steps of checking a delay, and a group of tokens.
DELAY_STEPS, BUNCH_STEPS = 30, 30
#: A delay that is never reached.
NEVER = 1 << 200


class Bunch(NamedTuple):
    """Later tokens in a row: least times alone before and after them; sums of a', y, g and w."""

    before: int
    after: int
    fixed: int
    roots: int
    gains: int
    works: int


def lingering(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Who leaves before it is expected to has had short batches.

    See `infermax_opt.infermax.bounds.lingering`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    step = piece.alpha + instance.d0
    require(step > 0, "piece: a batch that decodes takes no time")
    theta, unit = evidence["theta"].whole(0, 1 << THETA_BITS), evidence["unit"].whole(0)
    groups, stays = evidence["groups"].whole(1, MOST_BUNCHES), evidence["stays"].integers(len(instance.kinds))
    require(min(stays) >= 0, "stays: one is below 0")
    tables = token_tables(instance, piece)
    instance.work.spend(2 * SIZE_STEPS * len(tables.roots) + BUNCH_STEPS * groups * len(stays))
    gains = gains_of(tables, unit)
    guests = [guest(instance, key, count, piece, tables) for key, count in instance.kinds.items()]
    shares, fading = counted_shares(evidence, theta, len(stays)), "shares" in evidence
    asked = list(zip(guests, stays, shares, strict=True))
    windows, cells = expected(instance, evidence["cells"], asked, theta, step, fading)
    spans = zip([0, *cells.ends], cells.ends, cells.root, strict=False)
    total = -theta * sum((end - start) * root * root for start, end, root in spans)
    for (i, o, _), window in zip(instance.kinds, windows, strict=True):
        tokens = bunches(i, o, groups, tables, gains)
        choice = Choice(window, tokens, theta, step, piece.alpha + instance.p0)
        total += window.some.times * least_of_delays(instance, choice, cells)
    whole = step << 2 * ROOT_BITS + THETA_BITS
    return Fraction(total, whole * instance.scale * sum(instance.kinds.values()))


def counted_shares(evidence: Field, theta: int, kinds: int) -> list[int]:
    """The share of each kind of requests, theta unless it is said.

    Parameters
    ----------
    evidence : Field
    theta, kinds : int
    """
    if "shares" not in evidence:
        return [theta] * kinds
    shares = evidence["shares"].integers(kinds)
    require(all(0 < share <= theta for share in shares), "shares: one is not from 1 to theta")
    return shares


def gains_of(tables: Tables, unit: int) -> tuple[list[int], list[int]]:
    """Sums of y and of g over later tokens, by the tokens cached after them."""
    roots, gains = [0], [0]
    for (a, b), (low, high) in zip(pairwise(tables.works), pairwise(tables.roots), strict=True):
        y = min(high - low, (b - a << 2 * ROOT_BITS) // unit) if unit else high - low
        roots.append(y)
        gains.append(math.isqrt(y * (unit + y)) - y)
    return list(accumulate(roots)), list(accumulate(gains))


def bunches(i: int, o: int, groups: int, tables: Tables, gains: tuple[list[int], list[int]]) -> list[Bunch]:
    """The later tokens of a request, in groups as equal as can be.

    Parameters
    ----------
    i, o : int
        Its input and output tokens.
    groups : int
        At most.
    tables : Tables
    gains : tuple of lists of int
        Sums of y and g.
    """
    last, found = i + o - 1, []
    for a, b in in_groups(i, o, groups):
        sums = (column[b] - column[a] for column in (tables.fixed, *gains, tables.works))
        found.append(Bunch(tables.alone[a] - tables.alone[i], tables.alone[last] - tables.alone[b], *sums))
    return found


class Choice(NamedTuple):
    """A request that chooses its delay: its window, bunches of tokens, theta, a' and alpha + p0 in ticks."""

    window: Expected
    tokens: list[Bunch]
    theta: int
    step: int
    chunk: int

    def part(self, which: int, price: int) -> tuple[int, int]:
        """What the prompt, or a bunch of tokens, pays at a price, and its part of a stay."""
        some, unit = self.window.some, self.step << 2 * ROOT_BITS
        if which == 0:
            work = price // self.window.share
            chunks = in_chunks(self.chunk, some.chunks, some.square, work, unit)
            return work * some.linear + chunks * unit, (some.lone - some.later) * unit
        one, own = self.tokens[which - 1], math.isqrt(self.theta * price**2 // self.window.share)
        paid = one.fixed * unit + own * (2 * one.roots * self.step + own * one.works)
        return paid, one.fixed * unit + 2 * price * one.gains * self.step

    def whole(self, prices: list[int]) -> tuple[int, int]:
        """What it pays in all at these prices, and its stay."""
        parts = [self.part(which, price) for which, price in enumerate(prices)]
        return sum(paid for paid, _ in parts), sum(stays for _, stays in parts)

    def worth(self, life: int, paid: int, stays: int) -> int:
        """Its share of what it pays and of how much longer it stays, less what is missing, and the rest.

        Parameters
        ----------
        life, paid, stays : int
            In small units.
        """
        share, missing = self.window.share, self.window.missing(life, self.step << 2 * ROOT_BITS)
        return ((1 << THETA_BITS) - share) * life + share * (paid + max(0, stays - life) - missing)


def least_of_delays(instance: Instance, choice: Choice, cells: Cells) -> int:
    """What a request pays at least, over all delays, in small units.

    Parameters
    ----------
    instance : Instance
    choice : Choice
    cells : Cells
    """
    some, tokens, ends, unit = choice.window.some, choice.tokens, cells.ends, choice.step << 2 * ROOT_BITS
    if not choice.window.share:
        return some.lone * unit << THETA_BITS
    first = some.lone - some.later

    def reached(which: int) -> int:
        """By which delay its cells go on to the next one that is cheaper than all before."""
        cell = lower[which][at[which]]
        return ends[cell - 1] - since[which] if cell <= len(ends) else NEVER

    begins = [some.begin, *(some.begin + first + one.before for one in tokens)]
    since = [some.until + first, *(some.until + some.lone - one.after for one in tokens)]
    values = [cells.work, *([cells.root] * len(tokens))]
    lower = [cells.lower[1], *([cells.lower[0]] * len(tokens))]
    at = list(map(cheapest_cell, [instance] * len(since), [ends] * len(since), values, begins, since))
    cheapest, _ = choice.whole([cells.work[-1], *([0] * len(tokens))])
    prices = [table[cell] for table, cell in zip(values, at, strict=True)]
    paid, stays = choice.whole(prices)
    when, life = [reached(which) for which in range(len(at))], some.lone * unit
    best = choice.worth(life, paid, stays)
    while True:
        before, delay = life, min(when)
        life = (some.lone + delay) * unit
        if before < stays < life:
            best = min(best, choice.worth(stays, paid, stays))
        if delay == NEVER or choice.worth(life, cheapest, 0) >= best:
            return best  # longer delays count for more
        instance.work.spend(DELAY_STEPS)
        for which in [k for k, moment in enumerate(when) if moment == delay]:
            at[which] = lower[which][at[which]]
            old, new = choice.part(which, prices[which]), choice.part(which, values[which][at[which]])
            paid, stays = paid + new[0] - old[0], stays + new[1] - old[1]
            prices[which], when[which] = values[which][at[which]], reached(which)
        best = min(best, choice.worth(life, paid, stays))


def cheapest_cell(instance: Instance, ends: list[int], prices: list[int], begin: int, end: int) -> int:
    """The first cell with the least price between two moments.

    Parameters
    ----------
    instance : Instance
    ends, prices : list of int
        Of cells.
    begin, end : int
    """
    low, high = bisect_right(ends, begin), bisect_right(ends, end)
    instance.work.spend(high - low + DELAY_STEPS)
    return min(range(low, high + 1), key=prices.__getitem__)


# --- infermax_opt/infermax/checker/pairs.py -------------------------------------------------------
# Tool of the proof by pairs: what two requests that meet are paid at least.

#: Bits of the shares of a batch's fixed part.
PAIR_BITS = 16
#: Bits after the point of f.
FACTOR_BITS = 12
#: How many chunks more than the fewest, each up to the next: those between are not told apart.
CHUNKINGS = (0, 1, 2, 4, 8, 16)


class Visitor(NamedTuple):
    """A request that comes at some time: its guest, later tokens, work of the first, whether it is paired."""

    guest: Guest
    outputs: int
    work: int
    paired: bool


class Paid(NamedTuple):
    """What a pair is paid for tokens; what a chunk of the late and of the early one takes from that.

    Work and tokens left to the early one, what the late one pays for each; the prompt left to the early one,
    and what that pays for the tokens of the late one if this leaves before that prompt is done.
    """

    tokens: int
    term: int
    delay: int
    outlived: int
    left: int
    waits: int
    prompt: int
    overtaken: int


def pair_paid(early: Visitor, late: Visitor, shares: tuple[int, int], ticks: tuple[int, int, int]) -> Paid:
    """What a pair of requests is paid at least.

    Parameters
    ----------
    early, late : Visitor
    shares : (int, int)
        What the late one pays for a batch in which the early one decodes and it waits, and the reverse; in
        units of 2**-FACTOR_BITS ticks.
    ticks : (int, int, int)
        Fixed part of a batch that decodes, what a token works more than the one before, and fixed part of a
        batch that prefills.
    """
    step, growth, fixed = ticks
    time = late.guest.until - early.guest.begin
    pending = time < early.guest.lone - early.guest.later
    begun = most_begun(early, time, step, growth)
    left = early.outputs - begun if early.paired else 0
    if left <= 0 and not pending:
        return Paid(0, 0, 0, 0, 0, 0, 0, 0)

    def work(of: Visitor, since: int, count: int) -> int:
        """Work of so many tokens after the first `since`."""
        return count * of.work + growth * (count * (2 * since + count - 1) // 2)

    def share(first: int, last: int, waits: int) -> int:
        """The greatest f with f last <= waits + (1 - f) first."""
        free = last << FACTOR_BITS <= waits
        return 1 << FACTOR_BITS if free else (waits + (first << FACTOR_BITS)) // (last + first)

    lasts = early.work + growth * (early.outputs - 1), late.work + growth * (late.outputs - 1)
    factor = 0
    if left and late.paired and late.outputs:
        factor = min(share(early.work, lasts[1], shares[0]), share(late.work, lasts[0], shares[1]))
    few, most = min(left, late.outputs), min(early.outputs, late.outputs)
    least = min(work(early, begun, few) + work(late, 0, few), work(early, 0, most) + work(late, 0, most))
    tokens, term, outlived = factor * least, factor * sum(lasts), work(early, begun, left) << FACTOR_BITS
    if not pending:
        return Paid(tokens, term, term, outlived, left, shares[0], 0, tokens)
    linear, overtaken = early.guest.linear, 0
    prompt = (linear * max(0, fixed + linear - time) << FACTOR_BITS) // max(1, fixed + linear)
    if late.paired:
        overtaken = (work(late, 0, late.outputs) << FACTOR_BITS) + late.outputs * shares[1]
    return Paid(tokens, term, max(term, shares[1]), outlived, left, shares[0], prompt, overtaken)


def most_begun(early: Visitor, time: int, step: int, growth: int) -> int:
    """Most later tokens whose making has begun after so much time.

    Parameters
    ----------
    early : Visitor
    time, step, growth : int
        As for `pair_paid`.
    """
    rest = time - (early.guest.lone - early.guest.later)
    if rest <= 0:
        return 0
    # Those that take less than `rest` in all, and one more.
    linear, twice = 2 * (step + early.work) - growth, 2 * (rest - 1)
    x = twice // linear
    if growth:
        x = (math.isqrt(linear * linear + 4 * growth * twice) - linear) // (2 * growth)
    return min(early.outputs, x + 1)


def least_chunked(some: Guest, paid: list[Paid], chunk: tuple[int, int], fixed: int) -> int:
    """Least that a request pays for its prompt, and that is paid to its pairs with earlier ones.

    Parameters
    ----------
    some : Guest
    paid : list of Paid
    chunk : (int, int)
        What each chunk of it costs its pairs at most, and what it pays besides its shares when it waits.
    fixed : int
        Ticks of each chunk.
    """
    (term, spare), least = chunk, []
    paid = sorted(paid, key=lambda one: one.left)
    for more, beyond in zip(CHUNKINGS, (*CHUNKINGS[1:], 0), strict=True):
        work = some.linear + (some.square // (some.chunks + beyond - 1) if beyond else 0)
        values = []
        for own in {some.chunks, some.chunks + more}:
            pairs = least_waiting(paid, work << FACTOR_BITS, own, spare)
            values.append((own * fixed + work << FACTOR_BITS) - own * term + pairs)
        least.append(max(values))
        if not some.square:
            break
    return min(least)


def least_waiting(paid: list[Paid], prompt: int, chunks: int, spare: int) -> int:
    """What the pairs of a late one are paid at least, however long it waits before its prompt.

    Parameters
    ----------
    paid : list of Paid
        By tokens left to the early one.
    prompt, chunks : int
        Work of the prompt of the late one, and its chunks.
    spare : int
        What it pays besides its shares for each batch in which it waits.
    """
    total = dropped = most = 0
    for one in paid:
        stays = min(one.prompt + prompt + one.tokens, prompt + one.overtaken)
        waited, total = max(0, one.left - chunks + 1), total + stays
        dropped += max(0, stays - one.prompt - one.outlived - waited * one.waits)
        most = max(most, dropped - waited * spare)
    return total - most


# --- infermax_opt/infermax/checker/mutual.py ------------------------------------------------------
# Proof: mutual, by requests that delay each other, pair by pair.

#: Steps of checking a pair.
PAIR_STEPS = 350


def mutual(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Requests that are there together delay each other, pair by pair.

    See `infermax_opt.infermax.bounds.mutual`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    step, fixed = piece.alpha + instance.d0, piece.alpha + instance.p0
    require(step > 0, "piece: a batch that decodes takes no time")
    visitors = by_arrival(instance, piece)
    rows = [row.integers() for row in evidence["pairs"].items(len(visitors))]
    spare = spare_shares(rows)
    instance.work.spend(PAIR_STEPS * (len(visitors) + sum(map(len, rows)) // 3))
    paid: list[list[Paid]] = [[] for _ in visitors]
    lost, gained = [0] * len(visitors), 0
    for k, row in enumerate(rows):
        for back, mine, other in zip(row[::3], row[1::3], row[2::3], strict=True):
            shares = step * mine >> PAIR_BITS - FACTOR_BITS, step * other >> PAIR_BITS - FACTOR_BITS
            one = pair_paid(visitors[k - back], visitors[k], shares, (step, instance.d1, fixed))
            paid[k].append(one)
            lost[k - back], lost[k], gained = (
                lost[k - back] + one.delay,
                lost[k] + one.term,
                gained + one.delay,
            )
    total = gained + sum(
        (some.guest.later << FACTOR_BITS)
        + least_chunked(some.guest, paid[k], (lost[k], step * spare[k] >> PAIR_BITS - FACTOR_BITS), fixed)
        for k, some in enumerate(visitors)
    )
    return Fraction(total, (instance.scale << FACTOR_BITS) * len(visitors))


def by_arrival(instance: Instance, piece: Piece) -> list[Visitor]:
    """All requests by arrival, then by their lengths."""
    instance.work.spend(REQUEST_STEPS * sum(instance.kinds.values()))
    tables, more = token_tables(instance, piece), max(0, instance.d0 - instance.p0)
    visitors = []
    for key in sorted(instance.kinds, key=lambda key: (key[2], key[0], key[1])):
        i, outputs = key[0], key[1] - 1
        # A refill that ends with token s is dearer than a decode, at both ends of a line.
        spare = ((piece.beta + instance.p1 - instance.d1) * s + instance.d1 for s in (i + 1, i + outputs))
        dearer = not instance.preemption or all(value >= piece.beta + more for value in spare)
        some = guest(instance, key, 1, piece, tables)
        visitor = Visitor(some, outputs, piece.beta + instance.d1 * i, dearer)
        visitors += [visitor] * instance.kinds[key]
    return visitors


def spare_shares(rows: list[list[int]]) -> list[int]:
    """What each request keeps of a batch's fixed part, 0 or more; pairs are of two requests, each once."""
    shared = [0] * len(rows)
    for k, row in enumerate(rows):
        require(len(row) % 3 == 0, f"pairs[{k}]: holds {len(row)} values, which are no triples")
        backs = row[::3]
        require(len(set(backs)) == len(backs), f"pairs[{k}]: names a request twice")
        require(all(0 < back <= k for back in backs), f"pairs[{k}]: names no earlier request")
        require(min(row, default=0) >= 0, f"pairs[{k}]: holds a negative share")
        shared[k] += sum(row[1::3])
        for back, other in zip(backs, row[2::3], strict=True):
            shared[k - back] += other
    most = max(shared, default=0)
    require(most <= 1 << PAIR_BITS, f"pairs: a request shares out {most}, more than {1 << PAIR_BITS}")
    return [(1 << PAIR_BITS) - some for some in shared]


# --- infermax_opt/infermax/checker/steps.py -------------------------------------------------------
# Tool of the proof by occupancy: steps of so many tokens, and where they lead at least cost.

#: Fewest and most tokens that a step adds, and its cost: fixed, and for each of these tokens.
Step = tuple[int, int, int, int]


def push(queue: deque[tuple[Any, int]], key: Any, position: int) -> None:
    """Add a value to those of a window that no later one undercuts, so that the first is the least.

    Parameters
    ----------
    queue : deque[tuple[Any, int]]
        Candidates, best first.
    key : Any
        Value of the new candidate.
    position : int
        Where it stands.
    """
    while queue and queue[-1][0] >= key:
        queue.pop()
    queue.append((key, position))


def reach(
    source: list[Any], held: tuple[int, int], span: tuple[int, int], step: Step, work: Work
) -> list[Any]:
    """Least source[u - s] + cost of s over the tokens s of a step, for each u of the span, or FAR.

    Parameters
    ----------
    source : list[Any]
        Values to take the least of.
    held : tuple[int, int]
        Tokens of the first and the last value of the source.
    span : tuple[int, int]
        The first and the last u that are wanted.
    step : Step
        Fewest and most tokens of the step, its fixed cost, and that of each token.
    work : Work
        Counts the steps.
    """
    (start, end), (first, last), (low, high, fixed, slope) = held, span, step
    begin, stop = max(first, start + low), min(last, end + high)
    work.spend(20 + (len(source) + last - first) * (1 if low == high else 5))
    found: list[Any] = [FAR] * (last - first + 1)
    if begin > stop:
        return found
    if low == high:
        moved = source[max(0, begin - low - start) : max(0, stop - low - start + 1)]
        found[begin - first : begin - first + len(moved)] = [value + fixed + slope * low for value in moved]
        return found
    # Windows of `size` values: each is the end of a block of so many, and the beginning of the next one.
    size, before, after = high - low + 1, begin - high, stop - low
    values = zip(range(max(start, before), end + 1), source[max(0, before - start) :], strict=False)
    keys = [FAR] * (start - before) + [value - slope * u for u, value in values]
    keys = keys[: max(0, after - before + 1)] + [FAR] * (after - end)
    starts: list[Any] = []
    ends: list[Any] = []
    for block in range(0, len(keys), size):
        some = keys[block : block + size]
        starts += accumulate(some, min)
        ends += list(accumulate(reversed(some), min))[::-1]
    least = map(min, ends, starts[size - 1 :])
    found[begin - first : stop - first + 1] = [
        value + fixed + slope * u for u, value in zip(range(begin, stop + 1), least, strict=False)
    ]
    return found


def moved(costs: list[int], rest: int, spacing: int) -> list[int]:
    """Values at knots whose lines are no higher than those of some costs, moved by less than a spacing.

    Moved lines bend between knots.  Where they do so upwards, the line from knot to knot would be too high
    there: both are lower by as much.

    Parameters
    ----------
    costs : list[int]
        At knots in a row, at least one.
    rest : int
        By which they are moved.
    spacing : int
        From knot to knot.
    """
    if rest == 0:
        return costs
    before, after = (2 * costs[0] - costs[1], 2 * costs[-1] - costs[-2]) if costs[1:] else costs * 2
    line = [before, *costs, after]
    bends = [0, *(max(0, a + c - 2 * b) for a, b, c in zip(line, costs, line[2:], strict=False)), 0]
    share = rest * (spacing - rest)
    return [
        (a * rest + b * (spacing - rest)) // spacing - -(-share * max(some) // spacing**2)
        for a, b, *some in zip(line, line[1:], bends, bends[1:], strict=False)
    ]


def join_again(between: list[Any], layer: list[Any], first: int, joins: list[Step], work: Work) -> None:
    """Lower the potentials in a batch by joins within their list: once, as all lead to more tokens.

    Parameters
    ----------
    between : list[Any]
    layer : list[Any]
    first : int
    joins : list[Step]
        Requests that join.
    work : Work
        Counts the steps.
    """
    work.spend(8 * len(layer) * len(joins))
    windows = [(join, deque[tuple[Any, int]]()) for join in joins]
    for u in range(first, first + len(layer)):
        for (low, high, fixed, slope), queue in windows:
            new = u - low
            if new >= first:
                push(queue, min(between[new - first], layer[new - first]) - slope * new, new)
            if queue and queue[0][1] < u - high:
                queue.popleft()
            if queue:
                layer[u - first] = min(layer[u - first], queue[0][0] + fixed + slope * u)


# --- infermax_opt/infermax/checker/occupancy_pairs.py ---------------------------------------------
# Tool of the proof by occupancy: what it costs to leave memory where pairs of active requests have a price.
#
# See `infermax_opt.infermax.bounds.occupancy`, *Pairs*.


class Others(NamedTuple):
    """Who remains active where one request leaves.

    `pairs`: the price of a pair; `number`: of those that remain, at most; `floor`: their prompts, at least;
    `shortest`: the least prompt of all; `by_size`: evictions are paid back by their size alone.
    """

    pairs: int
    number: int
    floor: int
    shortest: int
    by_size: bool

    def paid_back(self, tokens: int, size: int) -> int:
        """Most that is paid back where one of some size leaves others that have so many tokens."""
        return self.pairs * min(tokens - self.floor, self.number * (size - self.shortest))


class Pairs(NamedTuple):
    """The price of pairs of active requests, for each token of the one with fewer tokens.

    `shortest`, `largest`: prompts; `outputs`: most tokens that a request makes.
    """

    price: int
    shortest: int
    largest: int
    outputs: int

    def all(self, k: int) -> int:
        """What all pairs of k requests cost for one token of each."""
        return self.price * (k * (k - 1) // 2)

    def least(self, k: int, tokens: int, batches: int, several: bool) -> int:
        """What all pairs of k requests cost at least, or of more of them, that have so many tokens.

        Parameters
        ----------
        k, tokens : int
        batches : int
            Since the first token that was looked at.
        several : bool
            Whether there may be more than k.
        """
        most, made = min(batches, self.outputs) - 1, max(0, tokens - k * self.largest - k)
        if several or most <= 0:
            return self.all(k)
        # Who has more tokens than one has all that there may be, as far as they go.
        full, rest = divmod(made, most)
        return self.all(k) + most * self.all(full) + self.price * rest * full

    def others(self, number: int, most: int, by_size: bool) -> Others:
        """Those who remain where one leaves.

        Parameters
        ----------
        number : int
            Of their list.
        most : int
            How many they may be.
        by_size : bool
            Whether evictions are paid back by their size alone.
        """
        return Others(self.price, most, number * self.shortest, self.shortest, by_size)


def leave(
    source: list[Any], held: tuple[int, int], span: tuple[int, int], step: Step, others: Others, work: Work
) -> list[Any]:
    """Least costs after one of the active requests left, by the tokens of those that remain.

    Parameters
    ----------
    source : list
        Costs before, by tokens.
    held : (int, int)
        Tokens of the first and the last of these.
    span : (int, int)
        Tokens of the first and the last cost that is wanted.
    step : Step
        Least and largest size of who leaves, and what that costs.
    others : Others
    work : Work
        Counts the steps.
    """
    low, high, fixed, slope = step
    pairs, number, floor, least, by_size = others
    each = pairs * number
    if low == high or each == 0 or by_size:
        if low < high:
            step = low, high, fixed + each * least, slope - each
        found = reach(source[::-1], (-held[1], -held[0]), (-span[1], -span[0]), step, work)[::-1]
        if low < high or pairs == 0:
            return found
        return [value - others.paid_back(u, low) for u, value in enumerate(found, span[0])]

    def turn(u: int) -> int:
        """The largest size up to which the product is the smaller one."""
        return least + (u - floor) // number

    small = lowest(source, held, span, (lambda u: (low, min(high, turn(u))), slope - each), work)
    large = lowest(source, held, span, (lambda u: (max(low, turn(u) + 1), high), slope), work)
    return [
        min(some + each * least, more - pairs * (u - floor)) + fixed
        for u, (some, more) in enumerate(zip(small, large, strict=True), span[0])
    ]


def lowest(
    source: list[Any],
    held: tuple[int, int],
    span: tuple[int, int],
    windows: tuple[Callable[[int], tuple[int, int]], int],
    work: Work,
) -> list[Any]:
    """Least source[u + s] + slope * s over a window of s for each u of the span, or FAR.

    Parameters
    ----------
    source : list
    held : (int, int)
        Tokens of its first and last value.
    span : (int, int)
        The first and the last u.
    windows : (callable, int)
        The least and the largest s for a u, neither of which falls by more than 1 from a u to the next; and
        the slope.
    work : Work
        Counts the steps.
    """
    (begin, end), (window, slope), queue = held, windows, deque[tuple[Any, int]]()
    work.spend(20 + 8 * (end - begin + span[1] - span[0] + 2))
    found, fed = [], end
    for u in range(span[1], span[0] - 1, -1):
        low, high = window(u)
        while fed >= max(begin, u + low):
            push(queue, source[fed - begin] + slope * fed, fed)
            fed -= 1
        while queue and queue[0][1] > u + high:
            queue.popleft()
        found.append(queue[0][0] - slope * u if queue else FAR)
    return found[::-1]


# --- infermax_opt/infermax/checker/payments.py ----------------------------------------------------
# What requests pay: of a makespan, and of finishing times in their order.

#: What each of some requests pays at least, in ticks, and how many they are.
Payments = list[tuple[Fraction, int]]


def payments(instance: Instance, kinds: Kinds, earned: list[int], piece: Piece) -> Payments:
    """Least work of each request and what it earns by the prices.

    Parameters
    ----------
    instance : Instance
    kinds : Kinds
        Kinds of requests.
    earned : list[int]
        Units that one request of each kind earns.
    piece : Piece
        Affine piece of the batch time.
    """
    work = [instance.token_work([(i, o, 1)], piece.beta) + instance.squares([(i, o, 1)]) for i, o, _ in kinds]
    return [(w + e / piece.unit, c) for w, e, (*_, c) in zip(work, earned, kinds, strict=True)]


def of_all(prove: Callable[..., Payments]) -> Proof:
    """The makespan is at least what all requests pay."""

    def makespan(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """Seconds that all requests pay."""
        return sum((pay * c for pay, c in prove(instance, evidence, piece)), Fraction(0)) / instance.scale

    return makespan


def in_order(prove: Callable[..., Payments]) -> Proof:
    """The k-th request to finish does so no sooner than the k that pay least could.

    See `infermax_opt.infermax.bounds.finishing_order`.
    """

    def mean(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """Mean of what the first k requests to finish pay, over all k."""
        before = total = Fraction(0)
        for pay, count in sorted(prove(instance, evidence, piece)):
            least = max(Fraction(0), pay)
            total += count * before + least * (count * (count + 1) // 2)
            before += count * least
        return instance.mean_latency(total / instance.scale)

    return mean


#: Proof of a bound, in seconds or weight: takes the instance, the evidence and the affine piece.
Proof = Callable[[Instance, Field, Piece], Fraction]


# --- infermax_opt/infermax/checker/occupancy.py ---------------------------------------------------
# Proof: occupancy, by prices and potentials on active requests and tokens.


class Occupancy:
    """Prices and potentials on the graph of active requests and tokens.

    See `infermax_opt.infermax.bounds.occupancy`.

    `young_tokens`: first tokens that are not looked at; `most`: active requests at most; `top`: the last list
    of potentials, which stands for `top` and more where `wide`; `ranges`: tokens that each list is for.
    """

    def __init__(self, instance: Instance, evidence: Field, piece: Piece):
        young, prices = evidence["young"].whole(0), evidence["prices"]
        kinds, self.young_tokens, self.young = instance.since(), young, young > 0
        self.old = [(i + min(young, o - 1), o - min(young, o - 1), c) for i, o, c in kinds]
        names = ("token", "size", "out_fixed", "out_size")
        self.token, self.size, *self.out = Field([prices[n].value for n in names], prices.path).integers()
        prompts, ends = sorted({i for i, _, _ in self.old}), sorted({i + o for i, o, _ in self.old})
        self.starts = dict(zip(prompts, prices["first"].integers(len(prompts)), strict=True))
        self.finishes = dict(zip(ends, prices["finish"].integers(len(ends)), strict=True))
        self.shortest, self.longest, self.capacity = prompts[0], ends[-1] - 1, instance.capacity
        price, outputs = prices["pairs"].whole(0) if "pairs" in prices else 0, max(o for _, o, _ in self.old)
        self.pairs = Pairs(price, self.shortest, prompts[-1], outputs)
        self.idle = self.token + self.size * self.shortest
        require(self.size >= 0 and self.idle >= 0, "prices: idling would earn")
        self.evictions = instance.preemption and self.longest > self.shortest
        self.late = self.evictions and instance.chunked
        self.plain, self.mixed, self.pure, self.rho = instance.presence(piece)
        self._read_potential(instance, evidence["potential"])
        #: Of each number of active requests, as they are checked.
        self.layers: list[Layers] = []

    def _read_potential(self, instance: Instance, given: Field) -> None:
        """A list for each number of active requests, from no tokens but the prompts up to a full memory."""
        lists, requests = given.items(), sum(c for *_, c in self.old)
        self.most = min(requests, self.capacity // self.shortest, instance.running or self.capacity)
        self.top, end = len(lists) - 1, self.longest + 1
        require(1 <= self.top <= self.most, "potential: wrong number of lists")
        self.wide = self.top < self.most
        lasts = [min(k * end, self.capacity + k) for k in range(self.top + 1)]
        if self.wide:
            lasts[-1] = self.capacity + self.most
        self.ranges = [(k * self.shortest, last) for k, last in enumerate(lasts)]
        rows = zip(self.ranges, lists, strict=True)
        found = [row.integers(last - first + 1, nulls=True) for (first, last), row in rows]
        self.potential = [[FAR if v is None else v for v in values] for values in found]
        require(self.potential[0][0] < FAR, "potential: the empty state has none")

    def last_of_several(self, k: int) -> bool:
        """Whether the list of k requests stands for more of them, too."""
        return self.wide and k == self.top

    def most_of(self, k: int) -> int:
        """Most requests that the list of k stands for."""
        return self.most if self.last_of_several(k) else k

    def waiting(self, k: int) -> int:
        """What it costs that one of k requests makes no token in a batch, at least."""
        return int(self.idle - self.pairs.price * (self.most_of(k) - 1))

    def earned_by(self, k: int) -> int:
        """What a batch of k requests earns, but for their tokens of KV, less what their pairs cost."""
        return int(max(self.token * k, self.token * self.most_of(k)) - self.pairs.all(k))


class Layers(NamedTuple):
    """Potentials of a number of active requests by tokens.

    `between`: between batches; `ready`: for a batch of decodes, those included who turn up by one, as they
    may where young tokens are left out; `mixed`: in a batch with decodes and prefills; `pure`: in one with
    prefills alone.
    """

    between: list[Any]
    ready: list[Any]
    mixed: list[Any]
    pure: list[Any]


def occupancy(instance: Instance, evidence: Field, piece: Piece) -> Payments:
    """No step of the graph earns more than it costs: a schedule costs what its requests earn, at least.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    return paid_in(Occupancy(instance, evidence, piece), instance, piece)


def paid_in(graph: Occupancy, instance: Instance, piece: Piece) -> Payments:
    """What each request pays, as no step of the graph earns more than it costs.

    Parameters
    ----------
    graph : Occupancy
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = instance.since()
    graph.layers = [Layers(graph.potential[0], graph.potential[0], [FAR], [FAR])]
    for k in range(1, graph.top + 1):
        graph.layers.append(joined(graph, k, graph.layers[-1], instance.work))
        instance.work.spend(6 * len(graph.potential[k]))
        check_batches(graph, k, graph.layers[k])
        check_leaves(graph, k, instance.work)
    earned = [
        graph.size * (i * o + o * (o - 1) // 2) + graph.token * o + graph.starts[i] + graph.finishes[i + o]
        for i, o, _ in graph.old
    ]
    return payments(instance, kinds, earned, piece)


def joined(graph: Occupancy, k: int, below: Layers, work: Work) -> Layers:
    """Least potentials of k requests in a batch that some turn up or return in.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    below : Layers
        Potentials of one request less.
    work : Work
        Counts the steps.
    """
    between, (mixed, pure) = graph.potential[k], returns(graph)
    starts: list[Step] = [(i, i, -pay, 0) for i, pay in graph.starts.items()]
    pure += [(i + 1, i + 1, pay - graph.token - graph.size * i, 0) for i, _, pay, _ in starts]
    ready = between
    if graph.young:
        ready = list(map(min, between, least_after(graph, k, below.ready, between, starts, work)))
    else:
        mixed += starts
    before = list(map(min, below.ready, below.mixed)), list(map(min, below.between, below.pure))
    return Layers(
        between,
        ready,
        least_after(graph, k, before[0], ready, mixed, work),
        least_after(graph, k, before[1], between, pure, work),
    )


def least_after(
    graph: Occupancy, k: int, below: list[Any], same: list[Any], joins: list[Step], work: Work
) -> list[Any]:
    """Least potentials of k requests after the last of them joined.

    A request joins fewer by one; in a last list for several numbers, those of that list, too.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    below : list[Any]
        Potentials of one request less, before that.
    same : list[Any]
        Those of k requests of which none joined by these steps.
    joins : list[Step]
        Requests that join.
    work : Work
        Counts the steps.
    """
    span, least = graph.ranges[k], [FAR] * len(same)
    for join in joins:
        least = list(map(min, least, reach(below, graph.ranges[k - 1], span, join, work)))
    if graph.last_of_several(k):
        join_again(same, least, span[0], joins, work)
    return least


def returns(graph: Occupancy) -> tuple[list[Step], list[Step]]:
    """Returns of evicted requests into a batch with decodes, and into one without.

    With chunked prefill, late ones, too, that make no token in it.
    """
    if not graph.evictions:
        return [], []
    token, size, (fixed, slope) = graph.token, graph.size, graph.out
    low, high, back, each = graph.shortest + 1, graph.longest, -graph.rho - fixed, graph.rho - slope
    mixed: list[Step] = [(low, high, back, each)]
    pure: list[Step] = [(low + 1, high + 1, back - each - token + size, each - size)]
    if graph.late:
        mixed.append((low - 1, high - 1, back + each + token, each + size))
        pure.append((low, high, back, each))
    return mixed, pure


def check_batches(graph: Occupancy, k: int, layers: Layers) -> None:
    """Neither idling nor a batch of k requests earns: one that makes a token of each, or prompts alone.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    layers : Layers
    """
    (first, last), row = graph.ranges[k], layers.between
    require(all(map(le, row, [v + graph.pure for v in layers.pure])), "potential: a prefill batch earns")
    require(all(map(le, row, [v + graph.waiting(k) for v in row[1:]])), "potential: idling earns")
    earned = graph.earned_by(k)
    fitting = zip(range(first, min(last, graph.capacity) + 1), layers.ready, layers.mixed, strict=False)
    after = [min(p + graph.plain, a + graph.mixed) - earned - graph.size * u for u, p, a in fitting]
    if graph.last_of_several(k):  # more than k requests grow by more
        after = list(accumulate(after, min))
        after += after[-1:] * (last - first + 1 - len(after))
    require(all(map(le, row[k:], after)), "potential: a batch earns")


def check_leaves(graph: Occupancy, k: int, work: Work) -> None:
    """Neither a finish nor an eviction earns.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    work : Work
        Counts the steps.
    """
    leaves: list[Step] = [(end, end, -pay, 0) for end, pay in graph.finishes.items()]
    if graph.evictions:
        leaves.append((graph.shortest + 1, graph.longest, *graph.out))
    for number in (k - 1, k) if graph.last_of_several(k) else (k - 1,):
        others = graph.pairs.others(number, graph.most_of(k) - 1, False)
        for step in leaves:
            reached = leave(graph.potential[k], graph.ranges[k], graph.ranges[number], step, others, work)
            require(
                all(map(le, graph.potential[number], reached)), "potential: finishing or an eviction earns"
            )


# --- infermax_opt/infermax/checker/occupancy_start.py ---------------------------------------------
# Proof: potentials in the graph of occupancy are costs of its first batches, or lower ones.
#
# Only states that cost less than their potentials are followed: whatever others lead to costs no less than the
# potential there, as no step earns more than it costs.


class Cheap(NamedTuple):
    """Costs of states of some number of active requests, from `begin` tokens on, all others being FAR."""

    begin: int
    costs: list[Any]

    @property
    def end(self) -> int:
        """The last tokens."""
        return self.begin + len(self.costs) - 1


NOTHING = Cheap(0, [])


def merged(one: Cheap, other: Cheap) -> Cheap:
    """The lower costs of two."""
    if not one.costs or not other.costs:
        return one if one.costs else other
    begin, end = min(one.begin, other.begin), max(one.end, other.end)
    padded = [[FAR] * (some.begin - begin) + some.costs + [FAR] * (end - some.end) for some in (one, other)]
    return Cheap(begin, list(map(min, *padded)))


def trimmed(costs: Cheap, first: int, potentials: list[Any]) -> Cheap:
    """Without what is no less than the potentials, given from `first` on, at both ends.

    Parameters
    ----------
    costs : Cheap
    first : int
    potentials : list
    """
    known = potentials[costs.begin - first :]
    less = [cost < some for cost, some in zip(costs.costs, known, strict=False)]
    if True not in less:
        return NOTHING
    start, end = less.index(True), len(less) - less[::-1].index(True)
    return Cheap(costs.begin + start, costs.costs[start:end])


def led(costs: Cheap, span: tuple[int, int], step: Step, work: Work) -> Cheap:
    """Least costs of the states that a step leads to, within a span of tokens.

    Parameters
    ----------
    costs : Cheap
    span : (int, int)
    step : Step
    work : Work
        Counts the steps.
    """
    low, high, *_ = step
    first, last = max(span[0], costs.begin + low), min(span[1], costs.end + high)
    if not costs.costs or first > last:
        return NOTHING
    return Cheap(first, reach(costs.costs, (costs.begin, costs.end), (first, last), step, work))


class FirstBatches:
    """The first batches, followed one by one.

    Parameters
    ----------
    graph : Occupancy
    layers : list of Layers
        Potentials by active requests.
    work : Work
        Counts the steps.
    """

    def __init__(self, graph: Occupancy, layers: list[Layers], work: Work):
        self.graph, self.layers, self.work = graph, layers, work
        self.rows = [NOTHING] * (graph.top + 1)

    def follow(self, batches: int, before: int) -> None:
        """Require that no potential is above the costs of so many batches.

        Parameters
        ----------
        batches : int
        before : int
            What those before them cost.
        """
        graph = self.graph
        self.rows[0] = self._trimmed(0, Cheap(0, [before]), "between")
        largest = max(graph.starts)
        for done in range(batches):
            if any(row.costs for row in self.rows):
                self._pass(largest + done)
        require(not any(row.costs for row in self.rows), "potential: the first batches cost less")

    def _trimmed(self, k: int, costs: Cheap, layer: str) -> Cheap:
        self.work.spend(2 * len(costs.costs))
        return trimmed(costs, self.graph.ranges[k][0] if k else 0, getattr(self.layers[k], layer))

    def _span(self, k: int, largest: int, more: int = 0) -> tuple[int, int]:
        """Tokens of k requests none of which is larger than that, in a batch as much larger as said."""
        first, last = self.graph.ranges[k]
        return first, min(last, k * (largest + more))

    def _pass(self, largest: int) -> None:
        """Follow one batch, before which no active request is larger than that."""
        graph, rows = self.graph, self.rows
        evicted = (graph.shortest + 1, min(largest, graph.longest), *graph.out)
        returns = graph.evictions and evicted[0] <= evicted[1]
        for k in range(len(rows) - 1, 0, -1) if returns else ():
            self._evict(k, evicted, largest)
        for k in range(1, len(rows)):
            rows[k] = self._trimmed(k, self._idle(k, rows[k]), "between")
        mixed, pure = self._coming(evicted if returns else None)
        alone = self._join(rows, pure, largest, 1, "pure")
        alone = list(map(merged, rows, alone))
        ready = rows
        if graph.young:
            starts: list[Step] = [(i, i, -pay, 0) for i, pay in graph.starts.items()]
            ready = list(map(merged, rows, self._join(rows, starts, largest, 0, "ready")))
        decoding = self._join(ready, mixed, largest, 0, "mixed")
        self.rows = [
            self._after(k, (ready[k], graph.plain), (decoding[k], graph.mixed), alone[k], largest + 1)
            for k in range(len(rows))
        ]

    def _evict(self, k: int, step: Step, largest: int) -> None:
        row, span = self.rows[k], self._span(k - 1, largest)
        first, last = max(span[0], row.begin - step[1]), min(span[1], row.end - step[0])
        if row.costs and first <= last:
            others = self.graph.pairs.others(k - 1, k - 1, True)
            costs = leave(row.costs, (row.begin, row.end), (first, last), step, others, self.work)
            found = self._trimmed(k - 1, Cheap(first, costs), "between")
            self.rows[k - 1] = merged(self.rows[k - 1], found)

    def _idle(self, k: int, row: Cheap) -> Cheap:
        """Costs if some make no token in the next batch."""
        if not row.costs:
            return row
        first, each = self.graph.ranges[k][0], self.graph.waiting(k)
        self.work.spend(3 * (row.end - first))
        falling = row.costs[::-1] + [FAR] * (row.begin - first)
        least = accumulate([value - x * each for x, value in enumerate(falling)], min)
        return Cheap(first, [value + x * each for x, value in enumerate(least)][::-1])

    def _coming(self, evicted: Any) -> tuple[list[Step], list[Step]]:
        """Requests that come into a batch with decodes, and into one without."""
        graph = self.graph
        token, size, (fixed, slope) = graph.token, graph.size, graph.out
        back, each = -graph.rho - fixed, graph.rho - slope
        mixed: list[Step] = [] if graph.young else [(i, i, -pay, 0) for i, pay in graph.starts.items()]
        pure: list[Step] = [(i + 1, i + 1, -pay - token - size * i, 0) for i, pay in graph.starts.items()]
        if evicted is not None:
            low, high, *_ = evicted
            mixed.append((low, high, back, each))
            pure.append((low + 1, high + 1, back - each - token + size, each - size))
            if graph.late:
                mixed.append((low - 1, high - 1, back + each + token, each + size))
                pure.append((low, high, back, each))
        return mixed, pure

    def _join(self, rows: list[Cheap], steps: list[Step], largest: int, more: int, layer: str) -> list[Cheap]:
        """Costs in a batch into which some requests came by these steps.

        Parameters
        ----------
        rows : list of Cheap
            Those without any of them.
        steps : list of Step
        largest, more : int
            The largest size of a request before the batch, and by how much it may be more in it.
        layer : str
            Potentials there.
        """
        found = [NOTHING]
        for k in range(1, len(rows)):
            source, here = merged(rows[k - 1], found[k - 1]), NOTHING
            for step in steps if source.costs else ():
                here = merged(here, led(source, self._span(k, largest, more), step, self.work))
            found.append(self._trimmed(k, here, layer))
        return found

    def _after(
        self, k: int, plain: tuple[Cheap, int], mixed: tuple[Cheap, int], alone: Cheap, largest: int
    ) -> Cheap:
        """Costs after a batch, by its kind.

        Parameters
        ----------
        k : int
            Active requests.
        plain, mixed : (Cheap, int)
            Costs before it where somebody decodes, and what it costs.
        alone : Cheap
            Costs before it where nobody does.
        largest : int
            The largest size of an active request after it.
        """
        graph, (first, last) = self.graph, self._span(k, largest)
        found = led(alone, (first, last), (0, 0, graph.pure, 0), self.work)
        for costs, fixed in (plain, mixed):
            self.work.spend(3 * len(costs.costs))
            fitting = range(costs.begin, min(costs.end, graph.capacity, last - k) + 1)
            made = [
                value + fixed - graph.earned_by(k) - graph.size * u
                for u, value in zip(fitting, costs.costs, strict=False)
            ]
            found = merged(found, Cheap(costs.begin + k, made))
        return self._trimmed(k, found, "between")


# --- infermax_opt/infermax/checker/occupancy_knots.py ---------------------------------------------
# Proof: potentials in the graph of occupancy are costs of its first batches, or lower ones, between knots.
#
# Costs are followed at some numbers of tokens only; lines between these are no higher than those of any state.
# See `infermax_opt.infermax.bounds.occupancy`, *Knots*.

#: Most steps of following knots, which takes about ten seconds.
MOST_STEPS = 10**8


class KnotBatches:
    """The first batches, followed at knots.

    Parameters
    ----------
    graph : Occupancy
    spacing : int
        Tokens from knot to knot, by which active requests are behind the largest that there may be.
    """

    def __init__(self, graph: Occupancy, spacing: int):
        self.graph, self.spacing, self.work = graph, spacing, Work(MOST_STEPS)
        self.rows = [NOTHING] * (graph.top + 1)
        inside: list[list[Any]] = [[]]
        for k in range(graph.top, -1, -1):
            inside.append(self._allowed(k, inside[-1]))
        #: By active requests and tokens: the largest potential of so many tokens, and of up to a spacing
        #: fewer; and the same of what states in a batch may cost.
        self.limits = [self._largest(k, values) for k, values in enumerate(graph.potential)]
        self.inside = [self._largest(k, values) for k, values in enumerate(reversed(inside[1:]))]

    def _allowed(self, k: int, more: list[Any]) -> list[Any]:
        """The most that k requests in a batch may cost without leading to less than a potential after it.

        Parameters
        ----------
        k : int
            Active requests.
        more : list
            The same of one request more, by tokens; none for the largest number.
        """
        graph, (first, last), after = self.graph, self.graph.ranges[k], self.graph.potential[k][k:]
        fixed = min(graph.plain, graph.pure) - graph.token * k
        fitting = zip(range(first, min(graph.capacity, last - k) + 1), after, strict=False)
        least = [fixed - graph.size * u - potential for u, potential in fitting]
        least += [FAR] * (last - first + 1 - len(least))
        begin, end = graph.ranges[k + 1] if more else (0, 0)
        comes = [(-i, -i, -pay, 0) for i, pay in graph.starts.items()]
        if graph.evictions:
            back, each = -graph.rho - graph.out[0], graph.rho - graph.out[1]
            comes.append((-graph.longest, -graph.shortest - 1, back, -each))
        for step in comes if more else ():
            source = [-value for value in more]
            least = list(map(min, least, reach(source, (begin, end), (first, last), step, self.work)))
        self.work.spend(6 * len(least))
        least = list(accumulate([value - x * graph.idle for x, value in enumerate(least)], min))
        return [-value - x * graph.idle for x, value in enumerate(least)]

    def _largest(self, k: int, values: list[Any]) -> list[Any]:
        """The largest of some values, of so many tokens and of up to a spacing fewer."""
        (first, last), window = self.graph.ranges[k], (0, self.spacing, 0, 0)
        source = [-value for value in values]
        least = reach(source, (first, last), (first, last + self.spacing), window, self.work)
        return [-value for value in least]

    def follow(self, batches: int, before: int) -> None:
        """Require that no potential is above what so many batches cost.

        Parameters
        ----------
        batches : int
        before : int
            What those before them cost.
        """
        self.rows[0] = Cheap(0, [before])
        largest = max(self.graph.starts)
        for done in range(batches):
            self._pass(largest + done)
        for k, row in enumerate(self.rows):
            self._require_lower(k, row, largest, batches)

    def _pass(self, largest: int) -> None:
        """Follow one batch, before which no active request is larger than that."""
        graph, rows, spacing = self.graph, self.rows, self.spacing
        (fixed, slope), returns = graph.out, graph.evictions and largest > graph.shortest
        apart = 1 - (graph.shortest + 1 - largest) // spacing
        evicted = (-apart, 0, fixed + slope * largest, slope * spacing)
        back, each = -graph.rho - fixed, graph.rho - slope
        returned = (0, apart, back + each * largest, -each * spacing)
        lasts = [k * (largest - graph.shortest) // spacing + 1 if k else 0 for k in range(len(rows))]
        for k in range(len(rows) - 1, 0, -1) if returns else ():
            rows[k - 1] = merged(rows[k - 1], led(rows[k], (0, lasts[k - 1]), evicted, self.work))
        for k in range(1, len(rows)):
            rows[k] = self._trimmed(k, self._idle(rows[k], rows[k].end), largest, self.limits)
        for k in range(1, len(rows)):
            row, below = rows[k], rows[k - 1]
            if returns:
                row = merged(row, led(below, (0, lasts[k]), returned, self.work))
            for prompt, pay in graph.starts.items():
                row = merged(row, self._lagging(below, largest - prompt, pay, lasts[k]))
            row = self._idle(row, min(lasts[k], row.end - (-k // spacing)))
            rows[k] = self._trimmed(k, row, largest, self.inside)
        rows = [self._after(k, row, largest) for k, row in enumerate(rows)]
        self.rows = [self._trimmed(k, row, largest + 1, self.limits) for k, row in enumerate(rows)]

    def _idle(self, row: Cheap, last: int) -> Cheap:
        """Costs up to a last knot if some make no token, which leaves them behind by one more."""
        if not row.costs:
            return row
        each = self.graph.idle * self.spacing
        self.work.spend(3 * (last - row.begin + 1))
        costs = row.costs + [FAR] * (last + 1 - row.begin - len(row.costs))
        least = accumulate([cost - x * each for x, cost in enumerate(costs)], min)
        return Cheap(row.begin, [cost + x * each for x, cost in enumerate(least)])

    def _lagging(self, row: Cheap, by: int, pay: int, last: int) -> Cheap:
        """Costs with one more request, which is so many tokens behind and earns `pay`."""
        (whole, rest), spacing, costs = divmod(by, self.spacing), self.spacing, row.costs
        if not costs:
            return row
        self.work.spend((1 if rest == 0 else 8) * len(costs))
        lagging = [cost - pay for cost in moved(costs, rest, spacing)]
        begin = row.begin + whole
        return Cheap(begin, lagging[: max(0, last + 1 - begin)])

    def _after(self, k: int, row: Cheap, largest: int) -> Cheap:
        """Costs after a batch, of those whose tokens fit."""
        graph, least = self.graph, max(0, k * largest - self.graph.capacity) // self.spacing
        begin = max(row.begin, least)
        costs = row.costs[begin - row.begin :]
        self.work.spend(2 * len(costs))
        paid = min(graph.plain, graph.pure) - graph.token * k - graph.size * (k * largest)
        each = graph.size * self.spacing
        return Cheap(begin, [cost + paid + each * x for x, cost in enumerate(costs, begin)])

    def _trimmed(self, k: int, row: Cheap, largest: int, all_limits: list[list[Any]]) -> Cheap:
        """Without lines that are nowhere below the limits, at both ends."""
        costs, limits, first = row.costs, all_limits[k], self.graph.ranges[k][0]
        if len(costs) < 2:
            return row
        self.work.spend(3 * len(costs))
        tokens = k * largest - self.spacing * row.begin - first
        places = range(tokens, tokens - self.spacing * (len(costs) - 1), -self.spacing)
        known = [limits[place] if 0 <= place < len(limits) else -FAR for place in places]
        less = [min(some) < limit for *some, limit in zip(costs, costs[1:], known, strict=False)]
        if True not in less:
            return NOTHING
        start, stop = less.index(True), len(less) - less[::-1].index(True)
        return Cheap(row.begin + start, costs[start : stop + 1])

    def _require_lower(self, k: int, row: Cheap, prompt: int, batches: int) -> None:
        """Require that the potentials of k requests are not above the lines, and what pairs cost besides.

        Parameters
        ----------
        k : int
        row : Cheap
            Costs at knots after so many batches.
        prompt : int
            The largest.
        batches : int
        """
        graph, spacing, costs, largest = self.graph, self.spacing, row.costs, prompt + batches
        if not costs:
            return
        first, last = graph.ranges[k]
        self.work.spend(6 * spacing * len(costs))
        line = [
            (a * (spacing - rest) + b * rest) // spacing
            for a, b in pairwise(costs)
            for rest in range(spacing)
        ] + costs[-1:]
        # Tokens of these states, ever fewer.
        tokens = range(k * largest - spacing * row.begin, k * largest - spacing * row.end - 1, -1)
        start, stop = max(0, tokens[0] - last), min(len(line), tokens[0] - first + 1)
        known = graph.potential[k][tokens[start] - first :: -1] if start < stop else []
        pairs = (graph.pairs.least(k, u, batches, False) for u in tokens[start:stop])
        costs = [value + more for value, more in zip(line[start:stop], pairs, strict=True)]
        require(all(map(le, known, costs)), "potential: the first batches cost less")


# --- infermax_opt/infermax/checker/occupancy_prices.py --------------------------------------------
# Proof: potentials in the graph of occupancy are costs of its first batches, or lower ones.
#
# These are bounded at prices of memory.  See `infermax_opt.infermax.bounds.occupancy`, *Prices of memory*.


def priced_start(graph: Occupancy, instance: Instance, given: Field) -> int:
    """Units that a walk costs at least, as its first batches cost what their prices say or more.

    Parameters
    ----------
    graph : Occupancy
    instance : Instance
    given : Field
        Prices of memory.
    """
    kv = given["kv"].integers()
    active, size = Field([given[name].value for name in ("active", "size")], given.path).integers()
    kinds = instance.since()
    area = sum(c * (i * o + o * (o - 1) // 2) for i, o, c in kinds)
    fewest = max(max(o for _, o, _ in kinds), -(-area // graph.capacity))
    require(1 <= len(kv) <= fewest, "memory: there may be fewer batches")
    require(min(kv) >= 0, "memory: a price of KV is below 0")
    require(not graph.wide or active >= 0, "memory: more active requests than lists would cost less")
    work = Work()  # as long as a proof of its own
    fixed = len(kv) * min(graph.plain, graph.pure) - graph.capacity * sum(kv)
    for inputs, outputs, count in graph.old:
        work.spend(12 * len(kv) * outputs)
        fixed += count * min(0, cheapest_life(graph, inputs, outputs, kv, (active, size)))
    for k, ((first, _), row) in enumerate(zip(graph.ranges, graph.potential, strict=True)):
        several = graph.last_of_several(k)
        costs = (
            v - size * u - graph.pairs.least(k, u, len(kv), several)
            for u, v in enumerate(row, first)
            if v != FAR
        )
        # No step leads to a state that has no potential.
        require(max(costs, default=fixed) <= fixed + active * k, "potential: the first batches cost less")
    return int(graph.potential[0][0])


def cheapest_life(graph: Occupancy, inputs: int, outputs: int, kv: list[int], after: tuple[int, int]) -> int:
    """Units that a request costs at least that makes a token in the first batches, less what it earns.

    Parameters
    ----------
    graph : Occupancy
    inputs, outputs : int
        Its tokens, those that are not looked at in the prompt.
    kv : list of int
        Price of a token of KV in each batch.
    after : (int, int)
        What an active request counts after them, and what each of its tokens does.
    """
    young, every = graph.young_tokens if outputs > 1 else 0, range(inputs, inputs + outputs)
    pays_first, pays_finish = graph.starts[inputs], graph.finishes[inputs + outputs]
    # Costs from here on, by tokens made, of an active request and of one that is away.
    inside: list[Any] = [-after[0] - after[1] * size for size in every] + [-pays_finish]
    outside: list[Any] = [0] * outputs
    least: Any = FAR
    for t in range(len(kv) - 1, young - 1, -1):
        price, most = kv[t], min(outputs, t + 1 - young)
        sizes, each = every[:most], price - graph.size
        token = [v - graph.token + each * s for v, s in zip(inside[1:], sizes, strict=False)]
        least = min(least, token[0] - pays_first)
        idle = [v + price * (s - 1) for v, s in zip(inside, sizes, strict=False)]
        makes = list(map(min, token, idle))
        if graph.evictions:
            back = returning(graph, sizes, makes if graph.late else token)
            outside[1:most] = map(min, outside[1:most], back[1:])
            fixed, slope = graph.out
            leaves = [v + fixed + slope * s for v, s in zip(outside, sizes, strict=False)]
            makes = list(map(min, makes, leaves))
        inside[1:most] = makes[1:]
    return int(least) if least < FAR else 0


def returning(graph: Occupancy, sizes: range, costs: list[Any]) -> list[Any]:
    """What it costs to return with such sizes and go on from there.

    Parameters
    ----------
    graph : Occupancy
    sizes : range
    costs : list
        Of what follows.
    """
    fixed, each = -graph.rho - graph.out[0], graph.rho - graph.out[1]
    return [v + fixed + each * s for v, s in zip(costs, sizes, strict=True)]


# --- infermax_opt/infermax/checker/occupancy_ends.py ----------------------------------------------
# Proof: what the first and the last batches cost in the graph of occupancy, one by one.

#: Fewest and most tokens of some number of active requests.
Span = tuple[int, int]


def occupancy_makespan(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Seconds that all requests pay, and what the walk costs beside that.

    See `infermax_opt.infermax.bounds.occupancy`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    graph = Occupancy(instance, evidence, piece)
    paid = sum((pay * c for pay, c in paid_in(graph, instance, piece)), Fraction(0))
    if "memory" in evidence:
        require("ends" not in evidence, "memory: the first batches are followed in two ways")
        paid += priced_start(graph, instance, evidence["memory"]) / piece.unit
    if "ends" in evidence:
        first, last = (number.whole(0) for number in evidence["ends"].items(2))
        spacing = evidence["knots"].whole(1) if "knots" in evidence else 0
        paid += walked_ends(graph, instance, (first, last), spacing) / piece.unit
    return paid / instance.scale


def walked_ends(graph: Occupancy, instance: Instance, batches: tuple[int, int], spacing: int) -> Fraction:
    """Units that a walk costs at least, batch by batch at its beginning and its end.

    Parameters
    ----------
    graph : Occupancy
    instance : Instance
    batches : (int, int)
        Those at the beginning, those before any token is looked at left out, and those at the end.
    spacing : int
        Tokens between knots at which the first batches are followed; 0 where all states are.
    """
    (first, last), kinds, work = batches, instance.since(), Work()  # each part as long as a proof of its own
    shortest, longest = (some(o for _, o, _ in kinds) for some in (min, max))
    young = min(graph.young_tokens, shortest - 1)
    area = sum(c * (i * o + o * (o - 1) // 2) for i, o, c in kinds)
    require(not graph.wide, "ends: the last list stands for several numbers of requests")
    require(first <= shortest - young, "ends: a request may finish in the first batches")
    require(last < min(o for _, o, _ in graph.old), "ends: a request may start in the last batches")
    fewest = max(longest, -(-area // graph.capacity))
    require(young + first + last <= fewest, "ends: there may be fewer batches")
    begin = KnotBatches(graph, spacing) if spacing else FirstBatches(graph, graph.layers, Work())
    begin.follow(first, young * min(graph.plain, graph.pure))
    smallest, largest = min(graph.finishes), max(graph.finishes)
    sizes = [(smallest - left, largest) for left in range(last, -1, -1)]
    rows = pass_batches(graph, cut_potentials(graph, sizes[0]), sizes, False, work)
    leave_memory(graph, rows, token_spans(graph, *sizes[-1]), leaving(graph, [], True), work)
    require(rows[0][0] < FAR, "ends: no walk is known")
    return Fraction(rows[0][0])


def cut_potentials(graph: Occupancy, sizes: Span) -> list[list[Any]]:
    """Potentials of those states in which active requests have some sizes.

    Parameters
    ----------
    graph : Occupancy
    sizes : (int, int)
        Least and largest.
    """
    lows = [low for low, _ in graph.ranges]
    spans = enumerate(token_spans(graph, *sizes))
    return [graph.potential[k][low - lows[k] : high - lows[k] + 1] for k, (low, high) in spans]


def token_spans(graph: Occupancy, least: int, most: int, more: int = 0) -> list[Span]:
    """Tokens of each number of requests of these sizes that are in memory between batches.

    Parameters
    ----------
    graph : Occupancy
    least, most : int
        Sizes.
    more : int
        Tokens that may be there beside them.
    """
    found = [(k * least, min(k * most, graph.capacity + k + more)) for k in range(graph.most + 1)]
    return [(low, high) for low, high in found if low <= high]


def pass_batches(
    graph: Occupancy, rows: list[list[Any]], sizes: list[Span], begins: bool, work: Work
) -> list[list[Any]]:
    """Least costs after some batches, by active requests and tokens.

    Parameters
    ----------
    graph : Occupancy
    rows : list of list
        Those before, changed.
    sizes : list of (int, int)
        Least and largest size of an active request before each batch, and after the last.
    begins : bool
        Whether requests may start, but none may finish; else none may start.
    work : Work
        Counts the steps.
    """
    for (least, most), (later, grown) in pairwise(sizes):
        held, wide = token_spans(graph, least, most), token_spans(graph, least, grown, 1)
        begin, end = max(least, graph.shortest + 1), min(most, graph.longest)
        evicted: list[Step] = [(begin, end, *graph.out)] if graph.evictions and begin <= end else []
        leave_memory(graph, rows, held, leaving(graph, evicted, not begins), work)
        rows = [idling(graph, k, row, work) for k, row in enumerate(rows)]
        starts = started(graph, begins)
        if graph.young:
            rows = list(map(lower, rows, join(graph, rows, held, (starts, 0), work)))
        mixed, alone = coming(graph, starts, evicted)
        returns = len(evicted) if graph.late else 0
        before = [row + [FAR] * (b - a + 1 - len(row)) for row, (a, b) in zip(rows, wide, strict=False)]
        decoding = join(graph, rows, held, (mixed, returns), work)
        pure = join(graph, before, wide, (alone, returns), work)
        spans = zip(held, token_spans(graph, later, grown), strict=False)
        layers = zip(rows, decoding, map(lower, before, pure), strict=True)
        rows = [pass_one(graph, k, *both, work) for k, both in enumerate(zip(layers, spans, strict=False))]
    return rows


def leaving(graph: Occupancy, evicted: list[Step], finish: bool) -> list[Step]:
    """Evictions, and finishes if there may be any.

    Parameters
    ----------
    graph : Occupancy
    evicted : list of Step
    finish : bool
    """
    return evicted + [(end, end, -pay, 0) for end, pay in graph.finishes.items() if finish]


def leave_memory(
    graph: Occupancy, rows: list[list[Any]], held: list[Span], leaves: list[Step], work: Work
) -> None:
    """Lower the costs by finishes and evictions, of the largest numbers of requests first.

    Parameters
    ----------
    graph : Occupancy
    rows : list of list
    held : list of (int, int)
        Tokens that the rows are for.
    leaves : list of Step
    work : Work
        Counts the steps.
    """
    for k in range(len(rows) - 1, 0, -1):
        for some in leaves:
            reached = leave(rows[k], held[k], held[k - 1], some, graph.pairs.others(k - 1, k - 1, True), work)
            rows[k - 1] = list(map(min, rows[k - 1], reached))


def idling(graph: Occupancy, k: int, row: list[Any], work: Work) -> list[Any]:
    """Least costs if some make no token in the next batch.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    row : list
        Costs by tokens.
    work : Work
        Counts the steps.
    """
    work.spend(2 * len(row))
    last, each = len(row) - 1, graph.waiting(k)
    least = accumulate([row[last - x] - x * each for x in range(last + 1)], min)
    return [value + x * each for x, value in enumerate(least)][::-1]


def join(
    graph: Occupancy, before: list[list[Any]], held: list[Span], joins: tuple[list[Step], int], work: Work
) -> list[list[Any]]:
    """Least costs in a batch into which some requests came.

    Who returns and makes no token counts as one that makes one and is idle, which costs no more.

    Parameters
    ----------
    graph : Occupancy
    before : list of list
        Costs without any of them, by active requests and tokens.
    held : list of (int, int)
        Tokens that the rows are for.
    joins : (list of Step, int)
        How many of them, the first ones, may make no token.
    work : Work
        Counts the steps.
    """
    steps, late = joins
    rows = [[FAR] * len(row) for row in before]
    for k in range(1, len(rows)):
        source = lower(before[k - 1], rows[k - 1])
        for number, some in enumerate(steps):
            rows[k] = lower(rows[k], reach(source, held[k - 1], held[k], some, work))
            if number < late:
                rows[k] = idling(graph, k, rows[k], work)
    return rows


def lower(one: list[Any], other: list[Any]) -> list[Any]:
    """The lower of two costs, state by state."""
    return list(map(min, one, other))


def started(graph: Occupancy, begins: bool) -> list[Step]:
    """First tokens, if there may be any.

    Parameters
    ----------
    graph : Occupancy
    begins : bool
    """
    return [(i, i, -pay, 0) for i, pay in graph.starts.items()] if begins else []


def coming(graph: Occupancy, starts: list[Step], evicted: list[Step]) -> tuple[list[Step], list[Step]]:
    """Requests that come into a batch with decodes, and into one without: returns before first tokens.

    Parameters
    ----------
    graph : Occupancy
    starts : list of Step
        First tokens.
    evicted : list of Step
        Evictions of those that return.
    """
    token, size = graph.token, graph.size
    mixed: list[Step] = []
    pure: list[Step] = []
    for low, high, fixed, slope in evicted:
        back, each = -graph.rho - fixed, graph.rho - slope
        mixed.append((low, high, back, each))
        pure.append((low + 1, high + 1, back - each - token + size, each - size))
    mixed += [] if graph.young else starts
    pure += [(i + 1, i + 1, pay - token - size * i, 0) for i, _, pay, _ in starts]
    return mixed, pure


def pass_one(
    graph: Occupancy, k: int, layers: tuple[list[Any], ...], spans: tuple[Span, Span], work: Work
) -> list[Any]:
    """Least costs of k requests after a batch.

    Parameters
    ----------
    graph : Occupancy
    k : int
        Active requests.
    layers : three lists
        Costs before it, if it decodes only, if it prefills besides, and if it does not decode.
    spans : two pairs
        Tokens that the first two are for, the third begins with the same; and those of the result.
    work : Work
        Counts the steps.
    """
    ((first, last), (begin, end)), (plain, mixed, pure) = spans, layers
    work.spend(6 * (last - first + 1))
    row = [value + graph.pure for value in pure[begin - first : end - first + 1]]
    fitting = zip(range(first, min(last, end - k, graph.capacity) + 1), plain, mixed, strict=False)
    earned = graph.earned_by(k)
    made = [min(p + graph.plain, m + graph.mixed) - earned - graph.size * u for u, p, m in fitting]
    at = first + k - begin
    row[at : at + len(made)] = map(min, row[at : at + len(made)], made)
    return row


# --- infermax_opt/checking/in_turn.py -------------------------------------------------------------
# Prompts in turn: what each pays at least, and how many are late if they are served as they arrive.
#
# The proof stands in `infermax_opt.infermax.bounds.on_time`.

#: Steps of checking an entry of the table, and those besides of a prompt in turn, and of what one pays.
ENTRY_STEPS, JOB_STEPS, PROMPT_STEPS = 12, 30, 250
#: Of a job that is never in time.
NO_END = math.inf


class PromptCosts(NamedTuple):
    """What a batch of one affine piece costs before its work, a token, and a pair of tokens in attention.

    In ticks.  `budget`: most prompt tokens of a batch; `spread`: chunks save attention work.
    """

    start: int
    token: int
    pair: int
    budget: int
    spread: bool


def least_paid_in_turn(costs: PromptCosts, prompt: int, window: int) -> int | None:
    """What a prompt on time pays at least, in ticks; None if it never is.

    Parameters
    ----------
    costs : PromptCosts
    prompt : int
        Tokens.
    window : int
        Ticks until its first token, at most.
    """
    linear, square, start = costs.token * prompt, costs.pair * prompt**2, costs.start
    if linear == square == 0:
        return 0
    few, found = -(-prompt // costs.budget), list[int]()
    best = _around(linear, square, start, window) if start else (prompt, prompt)
    for chunks in best if costs.spread else [few]:
        q = max(few, min(chunks, prompt)) if costs.spread else few
        room = window - q * start
        work = Fraction(linear) + Fraction(square, q if costs.spread else 1)
        if room < work:  # not in time even alone
            continue
        if not costs.spread:
            found.append(math.floor(work * (1 + Fraction(start, room))))
        elif square * room >= linear * start * q * q:
            found.append(math.floor(work * window / room))
        else:
            twice = math.isqrt(4 * linear * square * start * room)
            found.append(linear + (square * start + twice) // room)
    return min(found, default=None)


def _around(linear: int, square: int, start: int, window: int) -> tuple[int, int]:
    """Whole numbers of chunks on either side of the best one: where the payment in equal chunks is least.

    Parameters
    ----------
    linear, square, start, window : int
        Ticks of a prompt by tokens and by attention, of a batch before its work, and until the first token.
    """
    if linear == 0:
        low = window // (2 * start)
    else:
        half = start * square
        low = (math.isqrt(half * half + half * linear * window) - half) // (start * linear)
    return low, low + 1


def fewest_late(jobs: Iterable[tuple[int, int | None]], window: int, allowed: int, work: Work) -> int:
    """Jobs that are late at least, counted up to one more than may be.

    Parameters
    ----------
    jobs : iterable of (int, int or None)
        Arrival and length, by arrival; no length: always late.
    window : int
        From the arrival of each to the latest end in time.
    allowed : int
        Jobs that may be late.
    work : Work
    """
    fewest, ends = 0, list[Any]([0])  # least end of all in time if fewest, fewest + 1, ... are late
    for begin, length in jobs:
        work.spend(JOB_STEPS + ENTRY_STEPS * len(ends))
        ends = _with_one_more(ends, begin, NO_END if length is None else length, begin + window)
        late = ends.index(next(end for end in ends if end < NO_END))
        fewest += late
        if fewest > allowed:
            return fewest
        ends = ends[late : late + allowed - fewest + 1]
    return fewest


def _with_one_more(ends: list[Any], begin: int, length: Any, due: int) -> list[Any]:
    """Least ends by how many are late, from as many on; the new one is late, or served last and in time.

    Parameters
    ----------
    ends : list
        Before it.
    begin, length, due : int
        Of the new one.
    """
    while len(ends) > 1 and ends[-2] <= begin:  # no more need be late for the same end
        ends = ends[:-1]
    begun = [max(end, begin) for end in ends]
    served = [end + length if end + length <= due else NO_END for end in begun]
    return [min(pair) for pair in zip([NO_END, *begun], [*served, NO_END], strict=True)]


# --- infermax_opt/infermax/checker/on_time.py -----------------------------------------------------
# Proof: a rank of the TTFT, by how many prompts can be on time on one machine that serves as they arrive.

#: Steps of checking a kind of requests.
KIND_STEPS = 100


def on_time(percent: int) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof that a rank of the TTFT is above a limit: more requests are late than may be.

    See `infermax_opt.infermax.bounds.on_time`.

    Parameters
    ----------
    percent : int
        Of the rank; 100 is the largest.
    """

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """The limit, for it is below the rank."""
        limit, allowed = evidence["limit"].number(), instance.above(percent)
        require(limit >= 0, "limit: is below 0")
        require(late_ones(instance, limit, allowed, piece) > allowed, "no more requests are late than may be")
        return limit

    return prove


def late_ones(instance: Instance, limit: Fraction, allowed: int, piece: Piece) -> int:
    """Requests that are late at least, counted up to one more than may be.

    Parameters
    ----------
    instance : Instance
    limit : Fraction
        Of the TTFT, in seconds.
    allowed : int
        Requests that may be late.
    piece : Piece
        Affine piece of the batch time.
    """
    instance.work.spend(KIND_STEPS * len(instance.kinds))
    dates = {at: math.floor(at * instance.scale) for _, _, at in instance.kinds}
    window = max(math.ceil((at + limit) * instance.scale) - date for at, date in dates.items())
    prompts = {i for i, _, _ in instance.kinds}
    instance.work.spend(PROMPT_STEPS * len(prompts))
    costs = prompt_costs(instance, piece)
    lengths = {i: least_paid_in_turn(costs, i, window) for i in prompts}
    kinds = sorted(instance.kinds.items(), key=lambda kind: kind[0][2])
    jobs = ((dates[at], lengths[i]) for (i, _, at), count in kinds for _ in range(count))
    return fewest_late(jobs, window, allowed, instance.work)


def prompt_costs(instance: Instance, piece: Piece) -> PromptCosts:
    """What prompts cost by an affine piece."""
    start = piece.alpha + instance.p0
    return PromptCosts(start, piece.beta, instance.p1, instance.budget, instance.spread)


# --- infermax_opt/infermax/checker/moments.py -----------------------------------------------------
# Tool of the proof by overload: what a moment costs.

#: Bits after the point of prices.
PRICE_BITS = 12
#: Bits after the point of waiting by work.
WAIT_BITS = 96
#: Steps of checking a moment.
MOMENT_STEPS = 10
#: Leading bits of a price that prompts are told.
LEADING_BITS = 4


def leading(price: int) -> int:
    """A price without all but its leading bits."""
    shift = max(0, price.bit_length() - LEADING_BITS)
    return price >> shift << shift


def cheapest_moments(
    instance: Instance,
    begin: int,
    whole: int,
    cells: list[tuple[int, int, int]],
    ends: list[int],
    told: bool,
) -> dict[tuple[int, int], int]:
    """Least rate of a request: what waiting and the price cost a unit of mass, in small units.

    By the leading bits of the price, or 0 unless these are to be told, and by level.  After the first cell
    with price 0 none is cheaper.

    Parameters
    ----------
    instance : Instance
    begin : int
        Arrival in ticks.
    whole : int
        Mass of the request.
    cells : list
        Ends, prices and levels.
    ends : list of int
    told : bool
        Whether prices are.
    """
    rates: dict[tuple[int, int], int] = {}
    for k in range(bisect_right(ends, begin), len(cells) + 1):
        instance.work.spend(MOMENT_STEPS)
        _, price, level = cells[k] if k < len(cells) else (0, 0, 0)  # all time after the cells
        waiting = (max(0, ends[k - 1] - begin) << WAIT_BITS) // whole if k else 0
        rate = waiting + (price << WAIT_BITS - PRICE_BITS) // instance.capacity
        key = leading(price) if told else 0, level
        rates[key] = min(rate, rates.get(key, rate))
        if price == 0:
            break
    return rates


def least_rate(instance: Instance, token: list[int], rates: dict[int, int], exponent: int) -> int:
    """Least that a token pays at any level, in units of prices.

    Parameters
    ----------
    instance : Instance
    token : list of int
        Its mass, root and size.
    rates : dict
        By level.
    exponent : int
        Bits after the point of roots and levels.
    """
    (mass, root, size), one = token, 1 << 2 * exponent
    paid = [
        (mass * rate >> WAIT_BITS - PRICE_BITS)
        + (2 * level * root << PRICE_BITS) // one
        + (-level * level * size << PRICE_BITS) // (one * instance.capacity)
        for level, rate in rates.items()
    ]
    return min(paid)


# --- infermax_opt/infermax/checker/token_masses.py ------------------------------------------------
# Tool of the proof by overload: masses of tokens, and what waits for them.


class Later(NamedTuple):
    """Later tokens by s: work, size and mass of one; sums of the others up to s.

    `masses`; `early`: presence times the mass before; `own`: presence times mass; `presence`.
    """

    work: list[int]
    size: list[int]
    mass: list[int]
    masses: list[int]
    early: list[int]
    own: list[int]
    presence: list[int]


def later_tokens(instance: Instance, piece: Piece) -> Later:
    """Later tokens by the number of tokens cached after them."""
    longest = max(i + o for i, o, _ in instance.kinds)
    instance.work.spend(SIZE_STEPS * longest)
    rows, masses = [(0, 0, 0, 0, 0, 0)], 0
    for s in range(1, longest):
        presence, work = piece.alpha + instance.d0, piece.beta + instance.d1 * (s - 1)
        refill = (piece.beta + instance.p1 * (1 if instance.chunked else s)) * s
        cheap = refill - work < max(0, instance.d0 - instance.p0)
        cheap = cheap or (instance.chunked and piece.beta + instance.p1 < instance.d1)
        if instance.preemption and cheap:
            presence = piece.alpha + min(instance.d0, instance.p0)
            work = piece.beta + min(instance.d1, piece.beta) * (s - 1)
        size = s if instance.chunked else -(-s // instance.block) * instance.block
        mass = instance.capacity * work + presence * size
        rows.append((work, size, mass, presence * masses, presence * mass, presence))
        masses += mass
    work_by, size_by, mass_by, early, own, presence_by = (list(column) for column in zip(*rows, strict=True))
    sums = [list(accumulate(column)) for column in (mass_by, early, own, presence_by)]
    return Later(work_by, size_by, mass_by, *sums)


#: Mass of the first token and of all tokens of a request; presence, work and size of the first.
Masses = tuple[int, int, int, int, int]


def masses_of(instance: Instance, i: int, o: int, piece: Piece, later: Later) -> Masses:
    """Mass of the first token, of all, and presence, work and size of the first.

    Parameters
    ----------
    instance : Instance
    i, o : int
        Input and output tokens.
    piece : Piece
        Affine piece of the batch time.
    later : Later
    """
    presence = piece.alpha + instance.p0
    work = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
    size = i if instance.chunked else -(-i // instance.block) * instance.block
    first = instance.capacity * work + presence * size
    return first, first + later.masses[i + o - 1] - later.masses[i], presence, work, size


def presence_waited(i: int, o: int, masses: Masses, later: Later) -> Fraction:
    """Sum of presence times share done over the tokens of a request, in ticks, rounded down.

    Parameters
    ----------
    i, o : int
        Input and output tokens.
    masses : tuple
        As `masses_of` gives.
    later : Later
    """
    (first, whole, presence, _, _), last = masses, i + o - 1
    doubled = presence * first + 2 * (later.early[last] - later.early[i]) + later.own[last] - later.own[i]
    doubled += 2 * (first - later.masses[i]) * (later.presence[last] - later.presence[i])
    return Fraction((doubled << WAIT_BITS) // (2 * whole), 1 << WAIT_BITS)


def token_groups(
    instance: Instance,
    lengths: tuple[int, int],
    masses: Masses,
    later: Later,
    groups: int,
    exponent: int,
) -> Iterator[tuple[int, int, int, int]]:
    """Tokens, least mass and root of one, and largest size, of each group.

    Parameters
    ----------
    instance : Instance
    lengths : tuple
        Input and output tokens.
    masses : tuple
        As `masses_of` gives.
    later : Later
    groups : int
        Groups of later tokens.
    exponent : int
        Bits after the point of roots.
    """
    (i, o), (first, whole, _, work, size) = lengths, masses

    def root(work: int, before: int, own: int) -> int:
        """Root of the work of a token times the share done in its middle."""
        return math.isqrt((work * (2 * before + own) << 2 * exponent) // (2 * whole))

    yield 1, first, root(work, 0, first), size
    last = i + o - 1
    width = max(1, -(-(o - 1) // groups))
    for s in range(i + 1, last + 1, width):
        end, before = min(last, s + width - 1), first + later.masses[s - 1] - later.masses[i]
        yield end - s + 1, later.mass[s], root(later.work[s], before, later.mass[s]), later.size[end]


# --- infermax_opt/infermax/checker/prompt_parts.py ------------------------------------------------
# Tool of the proof by overload: prompts that are processed in parts.

#: Bits after the point of the root of 1 / c.
PART_BITS = 20
#: Steps of a sum.
PART_STEPS = 20
#: Steps of the least sum.
LEAST_STEPS = 600
#: Shares of a request are rounded down to one in so many.
SHARES = 128
#: Most tokens of a part for which the least is known.
LONGEST_PART = 2**20
#: Four times the root of c, for parts of up to so many tokens and more.
QUARTERS = [4]
while QUARTERS[-1] ** 2 < 16 * LONGEST_PART:
    QUARTERS.append(max(QUARTERS[-1] + 1, QUARTERS[-1] * 17 // 16))


def least_in_parts(
    instance: Instance,
    i: int,
    masses: Masses,
    moments: dict[tuple[int, int], int],
    parts: int,
    prices: PartPrices,
) -> int:
    """Least that the tokens of a prompt pay, in whatever parts, less what it pays whole for its presence.

    Parameters
    ----------
    instance : Instance
    i : int
        Its tokens.
    masses : tuple
        As `masses_of` gives.
    moments : dict
        As `cheapest_moments` gives.
    parts : int
        Groups of tokens.
    prices : PartPrices
    """
    first, whole, presence, _, _ = masses
    one, total = instance.capacity << 2 * prices.exponent, 0
    paid = [
        (first // i * rate >> WAIT_BITS - PRICE_BITS) + (-level * level << PRICE_BITS) // one
        for (_, level), rate in moments.items()
    ]
    cheapest = sorted((base, *key) for base, key in zip(paid, moments, strict=True))
    longest = min(i, instance.budget)
    instance.work.spend(PART_STEPS * parts)
    for k in range(parts):
        start, end = i * k // parts, i * (k + 1) // parts
        if start == end:
            continue
        share, least = SHARES * first * start // (i * whole), None
        for base, price, level in cheapest:
            if least is not None and base >= least:
                break
            value = base + prices.least(price, level, share, longest)
            least = value if least is None else min(least, value)
        total += (end - start) * (least or 0)
    return total + (-presence * first << PRICE_BITS) // (2 * whole)


class PartPrices:
    """The least over c of (l + s) p1 (c-1) + 2 x sqrt(w s / c) + a' s / c, which is convex in sqrt(c)."""

    def __init__(self, instance: Instance, piece: Piece, exponent: int):
        self.instance, self.exponent = instance, exponent
        self._work, self._presence = piece.beta + instance.p1, piece.alpha + instance.p0
        self._found: dict[tuple[int, int, int], tuple[int, int]] = {}

    def least(self, price: int, level: int, share: int, longest: int) -> int:
        """The least, rounded down, in units of prices.

        Parameters
        ----------
        price, level : int
            l and x.
        share : int
            s, as a number of 1 / SHARES.
        longest : int
            Most tokens of a part.
        """
        self.instance.work.spend(PART_STEPS)
        slope = self.instance.p1 * (price + (share << PRICE_BITS) // SHARES)
        root = math.isqrt((self._work * share << 2 * self.exponent) // SHARES)
        cross = (2 * level * root << PRICE_BITS) >> 2 * self.exponent
        own = (self._presence * share << PRICE_BITS) // SHARES
        key = price, level, share
        if key not in self._found:
            self.instance.work.spend(LEAST_STEPS)
            self._found[key] = least_of_parts(slope, cross, own)
        falls, least = self._found[key]
        if 16 * longest > falls * falls:
            return least
        inverse = math.isqrt((1 << 2 * PART_BITS) // longest)
        return slope * (longest - 1) + (cross * inverse >> PART_BITS) + own // longest


def least_of_parts(slope: int, cross: int, own: int) -> tuple[int, int]:
    """Where in QUARTERS the sum still falls, and a number that it is nowhere below.

    Between neighbours a convex function is above the line through the next two on either side.

    Parameters
    ----------
    slope, cross, own : int
        What c - 1, 1 / sqrt(c) and 1 / c are multiplied by.
    """

    def total(k: int) -> Fraction:
        """The sum at point k."""
        v = QUARTERS[k]
        return Fraction(slope * (v * v - 16) * v * v + 64 * cross * v + 256 * own, 16 * v * v)

    def beyond(k: int, other: int) -> Fraction:
        """The line through points `other` and k where the neighbour of k on its far side is."""
        across = Fraction(QUARTERS[k] - QUARTERS[2 * k - other], QUARTERS[other] - QUARTERS[k])
        return total(k) - (total(other) - total(k)) * across

    last = len(QUARTERS) - 2
    k = max(1, next((at for at in range(last) if total(at + 1) >= total(at)), last))
    if k == 1 and total(0) <= total(1):
        return QUARTERS[0], max(0, math.floor(beyond(1, 2)))
    return QUARTERS[k - 1], max(0, math.floor(min(beyond(k, k + 1), beyond(k, k - 1))))


# --- infermax_opt/infermax/checker/overload.py ----------------------------------------------------
# Proof: overload, by a price of machine time at every moment.

#: Steps of checking a group of tokens at one level.
GROUP_STEPS = 15
#: Most different levels.
MAX_LEVELS = 64


def overload(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """A price of machine time at every moment: each token picks the moment that is cheapest for it.

    See `infermax_opt.infermax.bounds.overload`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    exponent, groups = evidence["exponent"].whole(0, 256), evidence["groups"].whole(1, 10**6)
    parts = evidence["parts"].whole(0, 10**6) if "parts" in evidence else 0
    if parts and not instance.spread:
        evidence["parts"].fail("chunks save no attention work")
    later = later_tokens(instance, piece)
    soonest = [later.presence[i + 1] - later.presence[i] for i, o, _ in instance.kinds if o > 1]
    least = min([piece.alpha + instance.p0, *soonest])  # it rises with the tokens cached
    cells = priced_cells(evidence["cells"], least << 2 * exponent)
    ends, prices = [end for end, *_ in cells], PartPrices(instance, piece, exponent)
    total = Fraction(0)
    for (i, o, arrival), count in instance.kinds.items():
        instance.work.spend(REQUEST_STEPS)
        masses = masses_of(instance, i, o, piece, later)
        if masses[1] == 0:
            continue
        begin = math.floor(arrival * instance.scale)
        moments = cheapest_moments(instance, begin, masses[1], cells, ends, bool(parts))
        rates: dict[int, int] = {}
        for (_, level), rate in moments.items():
            rates[level] = min(rate, rates.get(level, rate))
        instance.work.spend(GROUP_STEPS * len(rates) * min(groups + 1, o))
        tokens = token_groups(instance, (i, o), masses, later, groups, exponent)
        whole, *others = (n * least_rate(instance, token, rates, exponent) for n, *token in tokens)
        if parts and min(i, instance.budget) <= LONGEST_PART:
            whole = max(whole, least_in_parts(instance, i, masses, moments, parts, prices))
        paid = whole + sum(others)
        total += count * (presence_waited(i, o, masses, later) + Fraction(paid, 1 << PRICE_BITS))
    spans = zip([0, *ends], cells, strict=False)
    total -= Fraction(sum((end - start) * price for start, (end, price, _) in spans), 1 << PRICE_BITS)
    return total / (instance.scale * sum(instance.kinds.values()))


def priced_cells(given: Field, least: int) -> list[tuple[int, int, int]]:
    """Cells of time: end, price, and a level of at most the root of `least` times the price."""
    cells, before, levels = [], 0, {0}
    for cell in given.items():
        end, price, level = cell.integers(3)
        require(end > before, "cells: their ends do not rise")
        require(price >= 0 and level >= 0, "cells: a price or level is below 0")
        require(level**2 << PRICE_BITS <= least * price, "cells: a level is above what its price allows")
        cells.append((end, price, level))
        levels.add(level)
        before = end
    require(len(levels) <= MAX_LEVELS, "cells: too many levels")
    return cells


# --- infermax_opt/infermax/checker/pace_legs.py ---------------------------------------------------
# Proof: what the parts of a request cost it, for pace.

#: Bits after the point of r, k, q and x.
PACE_BITS = 12


class Leg(NamedTuple):
    """A prompt, or later tokens: sums of e, sqrt(e w) and w; least and largest x; e of one, R and KV.

    R is the work of the least refill, KV that of the first token; both are 0 where KV does not count.
    """

    fixed: int
    roots: int
    works: int
    low: int
    high: int
    each: int
    again: int
    held: int


#: Sums of e, sqrt(e w), w over the tokens up to each number cached, where refills are cheap, and where not.
Sums = tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]


def token_of(instance: Instance, piece: Piece, s: int, dear: bool) -> tuple[int, int]:
    """Fixed part e and work w of a later token; where refills are cheap, the least of both ways.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    s : int
        Tokens cached after it.
    dear : bool
        Whether a refill is never the cheaper way to make it.
    """
    decode = piece.beta + instance.d1 * (s - 1)
    if dear:
        return piece.alpha + instance.d0, decode
    return piece.alpha + min(instance.d0, instance.p0), min(decode, (piece.beta + instance.p1) * s)


def leg_sums(instance: Instance, piece: Piece, longest: int, dear: bool) -> list[tuple[int, int, int]]:
    """Sums of e, sqrt(e w) and w over the tokens up to each number cached.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    longest : int
        Up to which, it excluded.
    dear : bool
        Whether a refill is never the cheaper way to make one.
    """
    rows = [(0, 0, 0)]
    for s in range(1, longest):
        fixed, work = token_of(instance, piece, s, dear)
        rows.append((fixed, math.isqrt(fixed * work), work))
    columns = [list(accumulate(column)) for column in zip(*rows, strict=True)]
    return list(zip(*columns, strict=True))


def pace_root(work: int, fixed: int) -> int:
    """The root x of work / fixed, rounded down."""
    return math.isqrt((work << 2 * PACE_BITS) // fixed)


def all_legs(instance: Instance, piece: Piece, lengths: tuple[int, int], sums: Sums, parts: int) -> list[Leg]:
    """The prompt of a request and parts of its later tokens, those of which a refill may be cheaper apart.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    lengths : (int, int)
        Input and output tokens.
    sums : pair of lists
    parts : int
    """
    i, o = lengths
    chunk = piece.alpha + instance.p0
    prompt = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
    root = pace_root(prompt, chunk)
    legs = [Leg(chunk, math.isqrt(chunk * prompt), prompt, root, root + 1, chunk, 0, 0)]
    first, last = i + 1, i + o - 1
    # What a refill works beyond a decode and its fixed part, at s cached tokens: a line.
    slope = piece.beta + instance.p1 - instance.d1
    base = instance.d1 - piece.beta - max(0, instance.d0 - instance.p0)
    dear = first  # from which s on a refill is dearer
    if instance.preemption and slope > 0:
        dear = min(max(first, -(base // slope)), last + 1)
    elif instance.preemption and slope * last + base < 0:
        dear = last + 1
    for a, b, dearer in ((first, dear - 1, False), (dear, last, True)):
        for part in range(parts):
            begin, end = (a + (b - a + 1) * k // parts for k in (part, part + 1))
            if begin < end:
                legs.append(one_leg(instance, piece, (begin, end - 1), sums, dearer))
    return legs


def one_leg(instance: Instance, piece: Piece, ends: tuple[int, int], sums: Sums, dear: bool) -> Leg:
    """Some later tokens.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    ends : (int, int)
        Tokens cached after the first and the last one.
    sums : pair of lists
    dear : bool
        Whether a refill is never the cheaper way to make one; else no KV counts.
    """
    a, b = ends
    low, high = (pace_root(w, e) for e, w in (token_of(instance, piece, s, dear) for s in ends))
    fixed, roots, works = (y - x for x, y in zip(sums[dear][a - 1], sums[dear][b], strict=True))
    each, again, held = token_of(instance, piece, a, dear)[0], 0, 0
    if dear:
        again = (piece.beta + instance.p1) * a if instance.preemption else 0
        # A chunk of a refill may hold less than its share of the blocks.
        held = (
            a if instance.preemption and instance.chunked else math.ceil(a / instance.block) * instance.block
        )
    return Leg(fixed, roots, works, low, high + 1, each, again, held)


# --- infermax_opt/infermax/checker/pace_ways.py ---------------------------------------------------
# Proof: what the ways of a request cost it at prices, for pace.


class Member(NamedTuple):
    """K of each leg of a request, q, and at the ends in how many cells it counts."""

    k: list[int]
    q: int
    until: int

    def numbers(self, legs: list[Leg]) -> Iterator[tuple[Leg, tuple[int, int]]]:
        """Each leg of the request with k and q."""
        return ((leg, (k, self.q)) for leg, k in zip(legs, self.k, strict=True))

    def may_be_late(self, legs: list[Leg]) -> bool:
        """Whether to end after the last cell is no cheaper."""
        return all(k + largest_offset(leg, q, 0) <= 1 << PACE_BITS for leg, (k, q) in self.numbers(legs))


#: A member, all rewards by it, and least costs of those in the prompt, and in one of the first legs after it.
PaceWay = tuple[Member, int, list[int]]


def largest_offset(leg: Leg, q: int, root: int) -> int:
    """The largest (q - r) x of a leg, rounded up.

    Parameters
    ----------
    leg : Leg
    q, root : int
    """
    return -((root - q) * (leg.high if q > root else leg.low) >> PACE_BITS)


def all_rewards(legs: list[Leg], member: Member) -> int:
    """Sum of e (k + q x)**2 over all that a request does.

    Parameters
    ----------
    legs : list of Leg
    member : Member
    """
    q = member.q
    return sum(
        k * k * leg.fixed + 2 * k * q * leg.roots + q * q * leg.works
        for leg, k in zip(legs, member.k, strict=True)
    )


def ended_ways(cost: list[int], toll: int) -> int:
    """Least cost of those that end now.

    Parameters
    ----------
    cost : list of int
        Least costs of those in the prompt, and of those in one of the first legs after it.
    toll : int
        What the prompt pays.
    """
    return min(cost[0] + toll, cost[-1]) if len(cost) > 1 else cost[0] + toll


def pass_time(cost: list[int], span: int, lost: list[int], toll: int) -> int:
    """Let so many ticks go by in each leg, or in a later one; the least cost of those that end meanwhile.

    Parameters
    ----------
    cost : list of int
        Least costs of those in the prompt, and of those in one of the first legs after it, which come with
        the first time that goes by; changed in place.
    span : int
    lost : list of int
        L of each leg.
    toll : int
        What the prompt pays.
    """
    before, done, one = ended_ways(cost, toll), cost[0] + toll, 1 << 2 * PACE_BITS
    later = [min(some, done) for some in cost[1:]] or [done] * (len(lost) - 1)
    cost[0] += span * (one - lost[0])
    spent = (so_far + span * (one - some) for so_far, some in zip(later, lost[1:], strict=True))
    cost[1:] = accumulate(spent, min)
    return min(before, ended_ways(cost, toll))


def late_ends(legs: list[Leg], ways: list[PaceWay], passed: int) -> Iterator[int]:
    """The same for those that end after the last cell.

    Parameters
    ----------
    legs : list of Leg
    ways : list of PaceWay
    passed : int
        How many cells they came through.
    """
    for some, reward, cost in ways:
        if some.until > passed and some.may_be_late(legs):
            yield reward + ended_ways(cost, 0)


# --- infermax_opt/infermax/checker/pace.py --------------------------------------------------------
# Proof: pace, by what the batches that a request wants cost it at prices of time.

#: Steps of checking a stage of a member in a cell.
STAGE_STEPS = 10
#: Most parts of later tokens.
MAX_PARTS = 1_000
#: A prompt without rewards, whose work pays the least price of its time.
UNPAID = Leg(0, 0, 0, 0, 0, 1, 0, 0)


def pace(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Who wants short batches pays for their start.

    See `infermax_opt.infermax.bounds.pace`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    require(piece.alpha + min(instance.d0, instance.p0) > 0, "piece: a batch takes no time")
    priced = "bases" in evidence
    cells, members = pace_cells(evidence["cells"], priced), pace_members(evidence["members"])
    own, parts = (
        evidence["own"].integers(len(instance.kinds)),
        evidence["parts"].whole(1, MAX_PARTS) if priced else 1,
    )
    require(min(own) >= 0, "own: a number is below 0")
    longest = max(i + o for i, o, _ in instance.kinds)
    instance.work.spend(2 * SIZE_STEPS * longest + (REQUEST_STEPS + SIZE_STEPS * parts) * len(own))
    sums = (leg_sums(instance, piece, longest, False), leg_sums(instance, piece, longest, True))
    spot = "spot" in evidence and evidence["spot"].flag()
    followed = followed_members(evidence, len(own), len(members), len(cells))
    spans = (b - a for a, b in pairwise([0, *(end for end, _, _ in cells)]))
    total = -sum(span * (root**2 + rent) for span, (_, root, rent) in zip(spans, cells, strict=True))
    bases = list(evidence["bases"].items(len(own))) if priced else [None] * len(own)
    for (key, count), q, given, chosen in zip(instance.kinds.items(), own, bases, followed, strict=True):
        legs = all_legs(instance, piece, (key[0], key[1]), sums, parts)
        base = [1 << PACE_BITS] * len(legs) if given is None else given.integers(len(legs))
        require(min(base) >= 0, "bases: a number is below 0")
        instance.work.spend(STAGE_STEPS * len(chosen) * len(legs))
        pairs = [
            Member([members[j][0] * k >> PACE_BITS for k in base], q * members[j][1] >> PACE_BITS, until)
            for j, until in chosen
        ]
        date = key[2] * instance.scale
        begin, until = math.floor(date), math.ceil(date)
        ways = at_moments(instance, piece, legs) if spot else (0, legs)
        least = cheapest_end(instance, ways, pairs, cells, begin)
        total += count * (least - (until - begin << 2 * PACE_BITS))
    return Fraction(total, (instance.scale << 2 * PACE_BITS) * sum(instance.kinds.values()))


def pace_cells(given: Field, priced: bool) -> list[tuple[int, int, int]]:
    """Ends of cells of time, and r and v in each.

    Parameters
    ----------
    given : Field
    priced : bool
        Whether v is there; else it is 0.
    """
    cells = [cell.integers(3) if priced else [*cell.integers(2), 0] for cell in given.items()]
    require(
        all(a < b for a, b in pairwise([0, *(cell[0] for cell in cells)])), "cells: their ends do not rise"
    )
    require(all(root >= 0 for _, root, _ in cells), "cells: a root is below 0")
    require(all(rent >= 0 for _, _, rent in cells), "cells: a price of KV is below 0")
    return [(end, root, rent) for end, root, rent in cells]


def pace_members(given: Field) -> list[tuple[int, int]]:
    """What each member multiplies a request's own numbers k and q with."""
    members = [(k, more) for k, more in (pair.integers(2) for pair in given.items())]
    require(all(min(pair) >= 0 for pair in members), "members: a number is below 0")
    return members


def followed_members(evidence: Field, kinds: int, members: int, cells: int) -> list[list[tuple[int, int]]]:
    """Of each kind of requests: members, and at the ends in how many of its cells each counts.

    Parameters
    ----------
    evidence : Field
    kinds, members, cells : int
        How many there are.
    """
    if "followed" not in evidence:
        return [[(j, cells + 1) for j in range(members)]] * kinds
    found = [
        [(j, until) for j, until in (pair.integers(2) for pair in own.items())]
        for own in evidence["followed"].items(kinds)
    ]
    require(all(0 <= j < members for own in found for j, _ in own), "followed: there is no such member")
    return found


def at_moments(instance: Instance, piece: Piece, legs: list[Leg]) -> tuple[int, list[Leg]]:
    """What a prompt pays in batches as long as may be, where time costs 1; and legs without its rewards.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    legs : list of Leg
    """
    work, others = legs[0].works, [UNPAID, *legs[1:]]
    longest = instance.d0 + piece.beta * instance.batch_tokens
    longest += instance.d1 * instance.capacity + instance.p1 * instance.budget
    if not instance.spread or longest == 0:
        return work, others
    return work * (longest + piece.alpha + instance.p0) // longest, others


def enough(instance: Instance, leg: Leg, numbers: tuple[int, int], root: int, rent: int) -> int:
    """L of a leg, rounded up: what a request may lose there of its rewards in a moment.

    Parameters
    ----------
    instance : Instance
    leg : Leg
    numbers : (int, int)
        k of the leg, and q.
    root, rent : int
    """
    k, q = numbers
    psi = max(0, k + largest_offset(leg, q, root)) ** 2
    room = instance.capacity // instance.block * instance.block
    less = max(0, psi - rent * leg.held // room)
    most = k - (-q * leg.high >> PACE_BITS)
    short = leg.again > 0 and (root**2 + less) * leg.again < leg.each * most**2
    return psi if short else less


def cheapest_end(
    instance: Instance,
    parts: tuple[int, list[Leg]],
    pairs: list[Member],
    cells: list[tuple[int, int, int]],
    begin: int,
) -> int:
    """Least latency and pay of a request over all ends, in units of 2**-24 ticks.

    Parameters
    ----------
    instance : Instance
    parts : (int, list of Leg)
        Work of the prompt that pays the least price of its time, and legs.
    pairs : list of Member
    cells : list of (int, int, int)
        End, r and v.
    begin : int
        Arrival in ticks, rounded down.
    """
    (prompt, legs), least, at, passed, cheap = parts, None, begin, 0, None
    ways: list[PaceWay] = [(some, all_rewards(legs, some), [0]) for some in pairs]
    for end, root, rent in cells[bisect_right(cells, begin, key=lambda cell: cell[0]) :]:
        value = at - begin << 2 * PACE_BITS
        if least is not None and value >= least:
            break
        ways = [way for way in ways if way[0].until > passed]
        instance.work.spend(STAGE_STEPS * (1 + len(ways) * len(legs)))
        cheap = root**2 if cheap is None else min(cheap, root**2)
        value = max([value, *ends_in_cell(instance, legs, ways, (end - at, root, rent), prompt * cheap)])
        least, at, passed = value if least is None else min(least, value), end, passed + 1
    value = max([at - begin << 2 * PACE_BITS, *late_ends(legs, ways, passed)])
    return value if least is None else min(least, value)


def ends_in_cell(
    instance: Instance, legs: list[Leg], ways: list[PaceWay], cell: tuple[int, int, int], toll: int
) -> Iterator[int]:
    """Least latency and pay by each member of those that end in a cell, which goes by.

    Parameters
    ----------
    instance : Instance
    legs : list of Leg
    ways : list of PaceWay
    cell : (int, int, int)
        Ticks, r and v.
    toll : int
        What the prompt pays.
    """
    span, root, rent = cell
    for some, reward, cost in ways:
        lost = [enough(instance, leg, k, root, rent) for leg, k in some.numbers(legs)]
        yield reward + pass_time(cost, span, lost, toll)


# --- infermax_opt/infermax/checker/progress.py ----------------------------------------------------
# Proof: progress, by what is unfinished on a clock of tokens.

#: Bits after the point of densities.
DENSITY_BITS = 64
#: Steps of checking a token.
TOKEN_STEPS = 60


class Shares(NamedTuple):
    """Equal requests: how many, (presence, work, size, mass) of each token, mass of all."""

    times: int
    tokens: list[tuple[int, int, int, int]]
    mass: int


def progress(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Unfinished requests count in full: busy dates, presence and work that they wait for.

    The number of unfinished requests is integrated over a clock of tokens
    (`infermax_opt.infermax.bounds.progress`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    exponent = evidence["exponent"].whole(0, 256)
    merged: Counter[tuple[int, int]] = Counter()
    for i, o, count in instance.since():
        merged[i, o] += count
    slots = evidence["by_slots"].flag()
    divisor = token_room(instance, slots, min(i for i, _ in merged), merged.total())
    instance.work.spend(TOKEN_STEPS * sum(o for _, o in merged))
    kinds = [
        shares(token_parts(instance, i, o, piece, slots), count, divisor) for (i, o), count in merged.items()
    ]
    kinds.sort(key=lambda kind: kind.mass)
    least = min(token[0] for kind in kinds for token in kind.tokens)
    levels = read_levels(instance, evidence["levels"], kinds, least << 2 * exponent)
    clock, busy, constant = 0, 0, Fraction(0)
    for kind in kinds:
        busy += kind.times * (2 * clock + kind.times * kind.mass)
        clock += kind.times * kind.mass
        before = doubled = 0
        for presence, _, _, mass in kind.tokens:
            doubled, before = doubled + presence * (2 * before + mass), before + mass
        # Rounded down, as sums of fractions with thousands of denominators would not end.
        constant += Fraction(
            (kind.times * doubled << DENSITY_BITS) // max(1, 2 * kind.mass), 1 << DENSITY_BITS
        )
    saved = least_transport(kinds, levels, exponent) - most_transport(kinds, levels, exponent) / divisor
    return instance.mean_latency((Fraction(busy, 2 * divisor) + constant + saved) / instance.scale)


def token_room(instance: Instance, slots: bool, shortest: int, requests: int) -> int:
    """What sizes of the tokens of a batch sum to, at most: KV, or slots.

    Parameters
    ----------
    instance : Instance
    slots : bool
        Whether a token takes one slot, whatever its KV.
    shortest : int
        Tokens of the shortest prompt.
    requests : int
        How many there are.
    """
    if not slots:
        return instance.capacity
    held = -(-shortest // instance.block) * instance.block
    divisor = min(requests, instance.capacity // held, instance.running or instance.capacity)
    require(divisor > 0, "by_slots: no request fits")
    return divisor


def token_parts(
    instance: Instance, i: int, o: int, piece: Piece, slots: bool
) -> Iterator[tuple[int, int, int]]:
    """Presence, work and size of each token of a request.

    Parameters
    ----------
    instance : Instance
    i, o : int
        Input and output tokens.
    piece : Piece
        Affine piece of the batch time.
    slots : bool
        Whether a token takes one slot, whatever its KV.
    """
    alpha, beta, block = piece.alpha, piece.beta, instance.block
    d0, d1, p0, p1 = instance.d0, instance.d1, instance.p0, instance.p1
    yield alpha + p0, beta * i + p1 * (i if instance.spread else i**2), 1 if slots else -(-i // block) * block
    for s in range(i + 1, i + o):
        decode, size = beta + d1 * (s - 1), 1 if slots else -(-s // block) * block
        more = beta * s + p1 * (s if instance.spread else s**2) - decode  # that a refill costs
        if instance.preemption and more < max(0, d0 - p0):
            yield alpha + min(d0, p0), beta + min(d1, beta) * (s - 1), size
        else:
            yield alpha + d0, decode, size


def shares(parts: Iterator[tuple[int, int, int]], count: int, divisor: int) -> Shares:
    """Tokens with their masses: work, and presence for their share of a batch.

    Parameters
    ----------
    parts : iterator of tuple
        Presence, work and size of each token.
    count : int
        Requests that have such tokens.
    divisor : int
        Size of all tokens of a batch, at most.
    """
    tokens = [(a, w, k, divisor * w + a * k) for a, w, k in parts]
    return Shares(count, tokens, sum(mass for *_, mass in tokens))


def read_levels(instance: Instance, given: Field, kinds: list[Shares], least: int) -> list[tuple[int, int]]:
    """Lengths of cells of the clock and levels in them, which fall and stay below what is unfinished.

    Parameters
    ----------
    instance : Instance
    given : Field
        Ends and levels.
    kinds : list of Shares
        By rising mass.
    least : int
        Least presence of a token, in squared units of the levels.
    """
    instance.work.spend(len(given.items()) * (20 + 5 * len(kinds)))
    before, above = 0, FAR
    cells = []
    for cell in given.items():
        end, level = cell.integers(2)
        require(end > before and 0 <= level <= above, "levels: they do not fall, or ends do not rise")
        unfinished, left = Fraction(0), end
        for kind in kinds:
            if kind.mass:
                here = min(left, kind.times * kind.mass)
                left -= here
                unfinished += kind.times - Fraction(here, kind.mass)
        require(level**2 <= least * unfinished, "levels: one is above what is unfinished")
        cells.append((end - before, level))
        before, above = end, level
    return cells


def least_transport(kinds: list[Shares], levels: list[tuple[int, int]], exponent: int) -> Fraction:
    """Twice the least sum of level times sqrt(work * share done), in ticks: the densest come last.

    Parameters
    ----------
    kinds : list of Shares
    levels : list of (int, int)
        Lengths of cells and levels in them.
    exponent : int
        Bits after the point of the levels.
    """
    dense = []
    for kind in kinds:
        before = 0
        for _, work, _, mass in kind.tokens:
            if mass:
                root = math.isqrt((work * (2 * before + mass) << 2 * exponent) // (2 * kind.mass))
                dense.append(((root << DENSITY_BITS) // mass, kind.times * mass))
            before += mass
    dense.sort()
    return Fraction(2 * laid(dense, levels), 1 << (2 * exponent + DENSITY_BITS))


def most_transport(kinds: list[Shares], levels: list[tuple[int, int]], exponent: int) -> Fraction:
    """The largest sum of squared level times size, in ticks times sizes: the densest come first.

    Parameters
    ----------
    kinds : list of Shares
    levels : list of (int, int)
        Lengths of cells and levels in them.
    exponent : int
        Bits after the point of the levels.
    """
    tokens = [(size, mass, kind.times) for kind in kinds for *_, size, mass in kind.tokens if mass]
    dense = [(-(-(size << DENSITY_BITS) // mass), count * mass) for size, mass, count in tokens]
    dense.sort(reverse=True)
    squared = [(length, level**2) for length, level in levels]
    return Fraction(laid(dense, squared), 1 << (2 * exponent + DENSITY_BITS))


def laid(dense: list[tuple[int, int]], cells: list[tuple[int, int]]) -> int:
    """Sum of density * mass * level, with (density, mass) laid one after the other into cells."""
    total, queue, density, left = 0, iter(dense), 0, 0
    for length, level in cells:
        while length:
            if not left:
                density, left = next(queue, (0, length))
            here = min(left, length)
            total += density * here * level
            left, length = left - here, length - here
    return total


# --- infermax_opt/infermax/checker/running.py -----------------------------------------------------
# Proof: running, by the places that prompts in chunks take among those who may hold KV.


def running(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, attention constants, and batches by the number of requests that hold KV.

    See `infermax_opt.infermax.bounds.running`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds, places = instance.since(), instance.running
    if places is None:
        evidence["kind"].fail("there is no limit of those who run")
    instance.work.spend(50 * len(kinds))
    served = Served(instance, kinds, evidence, piece)
    outputs, later = sum(o * c for _, o, c in kinds), sum((o - 1) * c for _, o, c in kinds)
    batches = max(served.prefill, -(-outputs // places))
    holds = not instance.preemption or (piece.beta - instance.d1) * places >= instance.d0
    decoded = [(instance.d0 * later // places, -(-later // places))] if holds else []
    paid = instance.token_work(kinds, piece.beta) + instance.p0 * served.prefill
    paid += least_presence(served, batches, decoded)
    paid += instance.squares(kinds)
    by_places = piece.alpha * outputs
    if instance.chunked:
        by_places += sum(
            count * chunks_in_places(instance, piece, i, places) for i, count in instance.prompts
        )
    return (paid + Fraction(by_places, places)) / instance.scale


def chunks_in_places(instance: Instance, piece: Piece, tokens: int, places: int) -> int:
    """Least that a prompt pays for its chunks but one, and for attention; parts of a tick by places.

    More chunks save ever less, so the first number from which one more does not pay is the best.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    tokens, places : int
    """
    square = instance.p1 * places if instance.spread else 0
    low, high = -(-tokens // instance.budget), tokens
    instance.work.spend(20 * tokens.bit_length())
    while low < high:
        middle = (low + high) // 2
        saved = least_squares(tokens, middle) - least_squares(tokens, middle + 1)
        low, high = (low, middle) if square * saved <= piece.alpha else (middle + 1, high)
    return piece.alpha * (low - 1) + square * (least_squares(tokens, low) - tokens)


def least_squares(tokens: int, chunks: int) -> int:
    """Least sum of squares of so many chunks."""
    each, more = divmod(tokens, chunks)
    return chunks * each**2 + more * (2 * each + 1)


# --- infermax_opt/infermax/checker/state_flow.py --------------------------------------------------
# Proof: state flow, by potentials on the sets of requests in memory.


class Element(NamedTuple):
    """A request in memory: its kind, with n tokens, `size` of KV with the next; `last`: with all."""

    kind: int
    n: int
    size: int
    last: bool


#: Numbers of the elements in memory, in order.
State = tuple[int, ...]


def state_flow(instance: Instance, evidence: Field, piece: Piece) -> Payments:
    """No step among the states of requests in memory earns more than it costs, by the potentials.

    So a schedule costs at least what first tokens earn by the prices
    (`infermax_opt.infermax.bounds.state_flow`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    groups = groupby(sorted(instance.since()), lambda kind: kind[:2])
    kinds = [(i, o, sum(c for *_, c in same)) for (i, o), same in groups]
    given, prices = evidence["potential"].integers(nulls=True), evidence["prices"]
    most = min(sum(c for *_, c in kinds), instance.capacity // kinds[0][0], instance.running or 10**18)
    require(most >= 1, "potential: there is no state, as no request fits")
    require(sum(o for _, o, _ in kinds) < len(given) <= 10**7 // most, "potential: too many states")
    require(given[0] is not None, "potential: the empty state has none")
    first = prices["first"].integers(len(kinds))
    rows = zip(kinds, prices["out"].items(len(kinds)), strict=True)
    out = [row.integers(o - 1) for (_, o, _), row in rows]
    elements = [Element(k, n, i + n, n == o) for k, (i, o, _) in enumerate(kinds) for n in range(o + 1)]
    states = list_states(instance, kinds, elements, most, len(given))
    require(len(states) == len(given), "potential: wrong number of states")
    between = {state: FAR if v is None else v for state, v in zip(states, given, strict=True)}
    costs = Costs(instance, piece, elements, first, out)
    check_states(elements, between, costs, instance.work)
    return payments(instance, kinds, first, piece)


def list_states(
    instance: Instance, kinds: Kinds, elements: list[Element], most: int, expected: int
) -> list[State]:
    """All sets of requests that memory holds until their next tokens, smallest first, then in order.

    Parameters
    ----------
    instance : Instance
    kinds : Kinds
        Kinds of requests.
    elements : list[Element]
        Of the states.
    most : int
        Requests in memory at most.
    expected : int
        States that the certificate has.
    """
    starts = [0, *accumulate(o + 1 for _, o, _ in kinds)]
    states: list[State] = [()]
    for state in states:
        largest = elements[state[-1]].kind if state else 0
        instance.work.spend(10 + 2 * len(state) + 5 * (len(kinds) - largest))
        free = instance.capacity - sum(elements[x].size - 1 for x in state)
        for k in range(largest, len(kinds) if len(state) < most else 0):
            i, o, count = kinds[k]
            if len(state) >= count and elements[state[-count]].kind == k:
                continue  # all of them are in memory
            begin = max(state[-1] if state else 0, starts[k])
            fitting = starts[k] + min(o, free + 1 - i)
            states += [(*state, x) for x in range(begin, fitting + 1)]
        require(len(states) <= expected, "potential: too few states")
    return states


class Costs:
    """Units of the steps, by element: to leave, to enter a batch with decodes, and to enter one without.

    FAR is what cannot be: only requests that have all their tokens leave, unless there are evictions.
    """

    def __init__(
        self,
        instance: Instance,
        piece: Piece,
        elements: list[Element],
        first: list[int],
        out: list[list[int]],
    ):
        self.plain, self.mixed, self.pure, rho = instance.presence(piece)
        self.leave: list[Any] = [0 if some.last else FAR for some in elements]
        self.admit: list[Any] = [FAR if some.n else -first[some.kind] for some in elements]
        self.enter: list[Any] = [-first[some.kind] if some.n == 1 else FAR for some in elements]
        for x, some in enumerate(elements):
            if instance.preemption and some.n > 0 and not some.last:
                self.leave[x] = out[some.kind][some.n - 1]
                self._come_back(x, rho * (some.size - 1) - self.leave[x], instance.chunked)

    def _come_back(self, x: int, pay: int, chunked: bool) -> None:
        """Let an element come into a batch in which it makes a token; with chunks also one token short."""
        self.admit[x], self.enter[x + 1] = min(self.admit[x], pay), min(self.enter[x + 1], pay)
        if chunked:
            self.admit[x - 1], self.enter[x] = min(self.admit[x - 1], pay), min(self.enter[x], pay)


def check_states(elements: list[Element], between: dict[State, Any], costs: Costs, work: Work) -> None:
    """No finish, eviction, idling or batch earns, from any state.

    Parameters
    ----------
    elements : list[Element]
        Of the states.
    between : dict[State, Any]
    costs : Costs
    work : Work
        Counts the steps.
    """
    admitted, alone = dict.fromkeys(between, FAR), dict.fromkeys(between, FAR)
    for state, here in between.items():
        distinct = set(state)
        work.spend(10 + len(state) + len(distinct) * (20 + len(state) // 4))
        for x in distinct:
            some, at = elements[x], state.index(x)
            rest = state[:at] + state[at + 1 :]
            for layer, enter in ((admitted, costs.admit), (alone, costs.enter)):
                layer[state] = min(layer[state], min(between[rest], layer[rest]) + enter[x])
            require(between[rest] <= here + costs.leave[x], "potential: finishing or an eviction earns")
            if some.n and not some.last:
                idle = (*state[:at], x - 1, *state[at + 1 :])
                require(between[idle] <= here, "potential: idling earns")
        require(here <= alone[state] + costs.pure, "potential: a prefill batch earns")
        after = tuple([x + 1 for x in state if not elements[x].last])  # no state if there is no room
        if len(after) == len(state):
            least = min(here + costs.plain, admitted[state] + costs.mixed)
            require(between.get(after, -FAR) <= least, "potential: a batch earns")


# --- infermax_opt/infermax/checker/waves.py -------------------------------------------------------
# Proof: waves, by what equal requests that are ahead wait for those behind.

#: Bits of a share of the base.
WAVE_BITS = 20
#: Steps of checking the price of a rank in one layer, and a token of one layer.
WAVE_STEPS = 40


def waves(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Those ahead wait, pair by pair, and a token pays a price by the rank of its request.

    See `infermax_opt.infermax.bounds.waves`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    lengths, n = {(i, o) for i, o, _ in instance.since()}, sum(count for *_, count in instance.since())
    require(len(lengths) == 1, "waves: requests are of different lengths")
    ((i, o),) = lengths
    knee, slots = evidence["knee"].whole(0, n), evidence["by_slots"].flag()
    unit = token_room(instance, slots, i, n) << evidence["exponent"].whole(0, 256)
    instance.work.spend(TOKEN_STEPS * o)
    tokens = list(token_parts(instance, i, o, piece, slots))
    base = tokens[0 if evidence["by_first"].flag() else -1][0]
    works, sizes = above_base(tokens, base, unit, evidence["exponent"].whole(0, 256))
    units = n * (n + 1) // 2 * sum(works) + (n - knee) * (n - knee + 1) // 2 * sum(sizes)
    found: list[list[WaveLayer]] = []
    for name, parts, first in (("work", works, 0), ("memory", sizes, knee)):
        heights, ranks = [0] * o, (n, first, knee)
        found.append(
            [priced_layer(instance, given, o, ranks, base * unit) for given in evidence[name].items()]
        )
        for layer in found[-1]:
            units += layer.tokens * layer.paid[n]
            for at in range(o - layer.tokens, o):
                heights[at] += layer.height
        require(
            all(high <= most for high, most in zip(accumulate(heights), accumulate(parts), strict=True)),
            f"{name}: layers are higher than what they are cut of",
        )
    layers = [layer for some in found for layer in some]
    require(sum(layer.share for layer in layers) <= 1 << WAVE_BITS, "waves: shares sum to more than 1")
    instance.work.spend(WAVE_STEPS * o * (n.bit_length() + len(layers)))
    whole = [layer for layer in found[0] if layer.tokens == o]
    units += young_batches(layers, whole, sizes, (n, knee), base * unit)
    return instance.mean_latency(Fraction(units, unit) / instance.scale)


def above_base(
    tokens: list[tuple[int, int, int]], base: int, unit: int, exponent: int
) -> tuple[list[int], list[int]]:
    """Units of work of each token beside the base of its batch, and of its size times the base.

    Parameters
    ----------
    tokens : list of (int, int, int)
        Presence, work and size of each.
    base : int
        Ticks of each batch.
    unit : int
        Units in a tick.
    exponent : int
        Of two, by which sizes are multiplied.
    """
    require(base > 0, "waves: the base is 0")
    works = [
        w * unit + ((a - base) * k << exponent) if a >= base else (w + a - base) * unit for a, w, k in tokens
    ]
    require(min(works) >= 0, "waves: a work is below 0")
    return works, [base * k << exponent for _, _, k in tokens]


class WaveLayer(NamedTuple):
    """A layer of work or of memory: its last tokens, height, share, and what the first ranks pay in all."""

    tokens: int
    height: int
    share: int
    paid: list[int]

    def left(self, base: int, number: int, knee: int) -> int:
        """What it has of the base while so many requests are unfinished.

        Parameters
        ----------
        base : int
            Units of the base of a batch.
        number, knee : int
        """
        return self.share * base * min(number, knee) >> WAVE_BITS


def young_batches(
    layers: list[WaveLayer], whole: list[WaveLayer], sizes: list[int], ranks: tuple[int, int], base: int
) -> int:
    """What the first O - 1 batches cost beyond what is paid: no token in the j-th is older than j.

    Parameters
    ----------
    layers, whole : lists of WaveLayer
        All, and those of work that belong to all tokens.
    sizes : list of int
        Of each token, in units.
    ranks : (int, int)
        How many there are, and the knee.
    base : int
        Units of the base of a batch.
    """
    (n, knee), o = ranks, len(sizes)

    def beyond(c: int, size: int) -> int:
        """What a batch of c tokens, none of a smaller size, costs beyond what is paid."""
        earned = sum(
            layer.left(base, n, knee) + layer.height * (c * (c - 1) // 2) - layer.paid[n] + layer.paid[n - c]
            for layer in whole
        )
        return (n - knee) * max(0, base - c * size) + earned

    units = 0
    for batch, size in enumerate(sizes[:-1], 1):
        # The differences rise, so the first that is not below 0 ends the search.
        low, high = 1, min(n, base // sizes[0])
        while low < high:
            c = (low + high) // 2
            low, high = (low, c) if beyond(c + 1, size) >= beyond(c, size) else (c + 1, high)
        units += beyond(low, size)
        units += sum(layer.left(base, n, knee) for layer in layers if o - layer.tokens >= batch)
    return units


def priced_layer(
    instance: Instance, given: Field, o: int, ranks: tuple[int, int, int], base: int
) -> WaveLayer:
    """A layer, whose prices are covered.

    Parameters
    ----------
    instance : Instance
    given : Field
        Tokens, height, share, and prices at some ranks.
    o : int
        Tokens of a request.
    ranks : (int, int, int)
        How many there are, those that pay nothing, and the knee.
    base : int
        Units of the base of a batch.
    """
    fields, (n, first, knee) = given.items(4), ranks
    tokens, height = fields[0].whole(0, o), fields[1].whole(0, 1 << 512)
    instance.work.spend(WAVE_STEPS * (n + tokens))
    prices = list(by_rank(fields[3], n))
    for rank in range(first):
        prices[rank] = 0
    paid, c = [0, *accumulate(prices)], 0
    layer = WaveLayer(tokens, height, fields[2].whole(0, 1 << WAVE_BITS), paid)
    for number in range(first + 1, n + 1):
        # One more request pays what is above its price, as long as it pays more than it makes others wait.
        while c < number - first and prices[number - c - 1] > height * c:
            c += 1
        require(
            paid[number] - paid[number - c] <= layer.left(base, number, knee) + height * (c * (c - 1) // 2),
            f"prices: those of {c} requests up to rank {number} are not covered",
        )
    return layer


def by_rank(knots: Field, n: int) -> Iterator[int]:
    """Prices of the ranks 1, ..., n, which rise: on lines between those given.

    Parameters
    ----------
    knots : Field
        Ranks and prices.
    n : int
        How many ranks there are.
    """
    given = [(0, 0)] + [
        (knot.whole(1, n), price.whole(0, 1 << 512)) for knot, price in ranks_and_prices(knots)
    ]
    require(
        all(a < b and low <= high for (a, low), (b, high) in pairwise(given)), "prices: ranks or prices fall"
    )
    yield from (0 for _ in range(min(given[1][0] - 1 if len(given) > 1 else n, n)))
    for (a, low), (b, high) in pairwise(given[1:]):
        yield from (low + (high - low) * (rank - a) // (b - a) for rank in range(a, b))
    if len(given) > 1:
        yield from (given[-1][1] for _ in range(given[-1][0], n + 1))


def ranks_and_prices(knots: Field) -> Iterator[tuple[Field, Field]]:
    """Rank and price of each."""
    for knot in knots.items():
        rank, price = knot.items(2)
        yield rank, price


# --- infermax_opt/infermax/checker/certificate.py -------------------------------------------------
# The certificate: which proof its evidence is, and whether that proves what is claimed.

#: What is counted of all requests; all other metrics are about those alone that must be served.
COUNTS = ("a sum of counts", "missed", "unserved", "unserved_tokens")
#: Metrics whose bounds count in that of a weighted sum.
PARTS = ("makespan", "missed", "mean_e2e")


def check(instance_data: Any, certificate: Any, profiles: Path | None = None) -> Fraction:
    """Return the bound that the certificate proves for the instance, in its unit, or raise Rejected.

    Parameters
    ----------
    instance_data : Any
        The instance, as parsed.
    certificate : Any
        As parsed.
    profiles : Path | None
        Folder of the cost profiles.
    """
    try:
        instance = Instance(instance_data, profiles)
    except Rejected as problem:
        raise Unusable(str(problem)) from None
    given = Field(certificate, "certificate")
    try:
        named = instance.objective in PROOFS or instance.limits or instance.weights
        require(bool(named), f"is for an objective without certificates; they are of {', '.join(PROOFS)}")
        check_envelope(given, instance_data, instance.sha256)
        require(read_cost(given["cost"]) == instance.cost, "is for another cost model")
        return compare(given, prove(instance, Field(given["evidence"].value, "evidence")))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """What the evidence proves, in the unit of the objective.

    Of limits, the ratio of one metric to its own; of a weighted sum, what its parts are worth together.
    """
    if instance.limits:
        metric = part_of(evidence, instance.limits)
        proved, limit = prove_metric(instance, metric, evidence), instance.limits[metric]
        # Of a limit of 0, nothing is within it, and anything is 1 beyond it and more.
        return proved / limit if limit else proved + (proved > 0)
    if not instance.weights:
        return prove_metric(instance, instance.objective, evidence)
    if "parts" not in evidence:  # of what counts, other metrics are not below 0
        return prove_metric(instance.promising(instance.weights), COUNTS[0], evidence)
    parts = {part_of(part, PARTS): part for part in evidence["parts"].items()}
    require(len(parts) == len(evidence["parts"].value), "parts: a metric is there twice")
    proved = Fraction(0)
    for metric, part in parts.items():
        instance.work = Work()  # there are few parts, and each may be as long to check as a bound of its own
        each = prove_metric(instance, metric, part)
        proved += instance.worth(metric) * each
    return proved


def part_of(evidence: Field, metrics: Container[str]) -> str:
    """The metric that evidence is about: one of these."""
    metric = evidence["metric"].text()
    if metric not in metrics or metric not in PROOFS:
        evidence["metric"].fail(f"{shown(metric)} does not count, or has no certificates")
    return metric


def prove_metric(instance: Instance, metric: str, evidence: Field) -> Fraction:
    """What the evidence proves of one metric, in its unit.

    Parameters
    ----------
    instance : Instance
    metric : str
    evidence : Field
    """
    require(metric in COUNTS or bool(instance.kinds), "is for requests that must be served; there are none")
    proofs = PROOFS[metric]
    kind = evidence["kind"].text()
    if kind not in proofs:
        evidence["kind"].fail(f"{shown(kind)} is none of {', '.join(proofs)}")
    alpha, beta = instance.pieces[evidence["piece"].whole(0, len(instance.pieces) - 1)]
    exponent = evidence["exponent"].whole(-512, 512) if "exponent" in evidence else 0
    return proofs[kind](instance, evidence, Piece(alpha, beta, Fraction(2) ** exponent))


#: Kinds of evidence of each objective.
PROOFS: dict[str, dict[str, Proof]] = {
    "makespan": {
        "closed-form": closed_form,
        "occupancy": occupancy_makespan,
        "state-flow": of_all(state_flow),
        "levels": levels,
        "count-branching": branching,
        "lagrangian": lagrangian,
        "filling": filling,
        "ramp": ramp,
        "running": running,
        "knee": knee,
        "apart": batches_apart,
    },
    "mean_e2e": {
        "occupancy": in_order(occupancy),
        "state-flow": in_order(state_flow),
        "progress": progress,
        "waves": waves,
        "interaction": interaction,
        "lingering": lingering,
        "deferral": deferral,
        "mutual": mutual,
        "pace": pace,
        "overload": overload,
        "backwards": backwards,
    },
    COUNTS[0]: {"attainment": attainment},
    **{name: {"attainment": counted(name)} for name in COUNTS[1:]},
    **{
        f"{name}_{latency}": {
            "rank": ranked(percent, place),
            "crowds": crowds(percent, place),
            **({"on-time": on_time(percent)} if latency == "ttft" else {}),
        }
        for name, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100))
        for latency, place in (("ttft", 0), ("e2e", 2))
    },
}


# --- infermax_opt/infermax/checker/command.py -----------------------------------------------------
# The command line.

#: Units of the metrics that are no seconds.
UNITS = {
    "mean_normalised_latency": "s/token",
    "max_normalised_latency": "s/token",
    "class_spread": "s/token",
    "missed": "weight",
    "unserved": "weight",
    "unserved_tokens": "tokens",
}


def metric_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds, and its unit; weighted sums may have several."""
    objective = instance.get("objective", "makespan")
    if isinstance(objective, str):
        metric = objective.replace("throughput", "makespan")
        return metric, UNITS.get(metric, "s")
    if "at_most" in objective:
        return "objective", "of the limits"
    weights = Field(objective, "instance.objective")
    units = {UNITS.get(metric, "s") for metric in objective if weights[metric].decimal()}
    return "objective", units.pop() if len(units) == 1 else "(weighted sum)"


#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check, profiles=True, bounded=metric_and_unit)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(default_profiles()).parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
