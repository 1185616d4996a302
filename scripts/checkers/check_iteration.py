"""Stand-alone checker of lower-bound certificates of iteration instances: standard library only.

    python check_iteration.py INSTANCE CERTIFICATE [--profiles DIR] [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.iteration.bounds`.

Assembled from the parts in `infermax_opt/checking` and `infermax_opt/iteration/checker`:
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
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
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


# --- infermax_opt/iteration/checker/requests.py ---------------------------------------------------
# What an instance says of its cost model and of each request.

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


# --- infermax_opt/iteration/checker/instance.py ---------------------------------------------------
# The instance: times in whole ticks, values in whole units, and its hash.

#: Objectives, and whether requests count by what they are worth.
OBJECTIVES = {"seconds_per_be_token": False, "seconds_per_value": True}
#: What a batch adds up to: tokens, decodes, what these read, prefills, their work, their contexts, host
#: blocks.
Load = tuple[int, int, int, int, int, int, int]


def given(fields: Field, key: str) -> bool:
    """Whether a key is there with a value; null is none."""
    return key in fields and fields[key].value is not None


class Instance:
    """What the bound needs of an instance file; times in whole ticks, values in whole units.

    Raises `Rejected` where the file is no instance.
    """

    def __init__(self, data: Any, profiles: Path | None = None):
        top, self.work = Field(data, "instance"), Work()
        for key, value in (("schema", "infermax-opt/instance/1"), ("problem", "iteration")):
            if top[key].value != value:
                top[key].fail(f"{shown(top[key].value)} is not {value!r}")
        machine = top["machine"]
        self.cost = Cost(spelled_out(machine["cost"], profiles))
        self.product = self.cost.attention == "product"
        self.batch = machine["batch"].whole(1, MAX_REQUESTS)
        self.blocks = machine["blocks"].whole(0, MAX_TOKENS)
        average, ttft, tpot = (machine[key].decimal() for key in ("t_avg", "ttft", "tpot"))
        group = machine["group"].whole(1, MAX_TOKENS) if given(machine, "group") else None
        swap = read_pair(machine["swap"]) if given(machine, "swap") else None
        self.by_worth = choose(top["objective"], OBJECTIVES)
        self.names: dict[str, int] = {}
        self.requests: list[Request] = []
        for entry in top["requests"].items():
            self._read_request(entry, group)
        if not self.requests:
            top["requests"].fail("holds no request")
        self._hash(top, (average, ttft, tpot), group, swap)
        self._scale(average, ttft, tpot, swap)
        self._save(ttft, tpot * (group or 1))

    def _read_request(self, entry: Field, most: int | None) -> None:
        """Add the requests of an entry."""
        made = read_request(entry, most)
        name, times = entry["id"].text(), 1
        if "count" in entry:
            times = entry["count"].whole(1, MAX_REQUESTS)
        if len(self.requests) + times > MAX_REQUESTS:
            entry.fail(f"more than {MAX_REQUESTS} requests in all")
        self.work.spend(20 * times)
        for one in [f"{name}.{k}" for k in range(1, times + 1)] if "count" in entry else [name]:
            if one in self.names:
                entry["id"].fail(f"{shown(one)} is used twice")
            self.names[one] = len(self.requests)
            self.requests.append(made)

    def _hash(self, top: Field, limits: Any, group: int | None, swap: Any) -> None:
        """The hash of what the instance means."""
        meaning, cost = Meaning(), self.cost
        name, objective = top["name"].text(), top["objective"].text()
        meaning.feed("infermax-opt/instance/1", "iteration", name, objective, self.batch, self.blocks)
        meaning.feed(*limits, group or 0, int(self.product))
        meaning.feed(*(value for pair in cost.batch for value in pair))
        attention = "exact" if self.product else cost.attention
        meaning.feed(*cost.decode, *cost.prefill, *cost.mixed, attention)
        meaning.feed("none" if swap is None else "swap", *(swap or ()))
        for one, r in zip(self.names, self.requests, strict=True):
            flags = int(r.real_time), int(r.prefills)
            meaning.feed(one, *flags, r.tokens, r.context, r.waited, r.blocks, r.host, r.worth, r.group)
        self.sha256 = meaning.hexdigest()

    def _scale(self, average: Fraction, first: Fraction, later: Fraction, swap: Any) -> None:
        """Whole numbers: ticks, and units of value."""
        cost = self.cost
        pairs = [*cost.batch, cost.decode, cost.prefill, cost.mixed, *([swap] if swap else [])]
        times = [value for pair in pairs for value in pair]
        times += [average, first, later, *{r.waited for r in self.requests}]
        self.scale = math.lcm(*(value.denominator for value in times))
        ticks = [[int(value * self.scale) for value in pair] for pair in pairs]
        pieces = len(cost.batch)
        self.pieces, (self.decode, self.prefill, self.mixed) = ticks[:pieces], ticks[pieces : pieces + 3]
        self.swap = ticks[-1] if swap else None
        self.average = int(average * self.scale)
        self._weigh()

    def _weigh(self) -> None:
        """What requests are worth, in whole units."""
        self.units, worths = 1, [Fraction(int(not r.real_time)) for r in self.requests]
        if self.by_worth:
            worths = [r.worth for r in self.requests]
            self.units = math.lcm(*(worth.denominator for worth in worths))
        self.values = [int(worth * self.units) for worth in worths]

    def _save(self, first: Fraction, later: Fraction) -> None:
        """Slacks of the requests that can be saved, and what the worst batch takes."""
        limits = [first if r.prefills else later for r in self.requests]
        self.slack: list[int | None] = []
        for k, (r, limit) in enumerate(zip(self.requests, limits, strict=True)):
            slack = int((limit - r.waited) * self.scale) - (r.group - 1) * self.average
            self.slack.append(slack if r.real_time and self.time([k]) <= slack else None)
        self.all_time = self.time(range(len(self.requests)))
        least = min((value for value in self.values if value), default=self.units)
        #: Seconds per value of a batch that has none; no other batch has more.
        self.worst = Fraction(self.all_time * self.units, least * self.scale)

    def load(self, k: int) -> Load:
        """What a request adds to a batch."""
        r = self.requests[k]
        if not r.prefills:
            return r.tokens, 1, r.context if self.product else r.context - r.tokens, 0, 0, 0, r.host
        work = r.tokens**2
        if self.product:
            work = r.tokens
        elif self.cost.attention == "exact":
            work = r.tokens * (2 * r.context - r.tokens)
        return r.tokens, 0, 0, 1, work, r.context, r.host

    def time(self, batch: Iterable[int]) -> int:
        """Ticks of a batch."""
        loads = [self.load(k) for k in batch]
        if not loads:
            return 0
        tokens, decodes, read, prefills, work, contexts, host = map(sum, zip(*loads, strict=True))
        if self.product:
            read, work = decodes * read, work * contexts
        time = max(alpha + beta * tokens for alpha, beta in self.pieces)
        both = decodes and prefills
        parts = (decodes, self.decode, read), (prefills, self.prefill, work), (both, self.mixed, read)
        for some, pair, amount in parts:
            time += pair[0] + pair[1] * amount if some else 0
        return max(time, self.swap[0] + self.swap[1] * host) if self.swap else time

    def kept(self, batch: list[int]) -> int:
        """Savable requests for which (6) holds."""
        time, chosen = self.time(batch), set(batch)
        limits = [s - (0 if k in chosen else self.average) for k, s in enumerate(self.slack) if s is not None]
        return sum(time <= limit for limit in limits)


# --- infermax_opt/iteration/checker/cases.py ------------------------------------------------------
# Proof: the cases that hold every batch which keeps enough requests.


class Kinds:
    """Requests that nothing tells apart, by the number of their type."""

    def __init__(self, instance: Instance):
        self.instance = instance
        found: dict[Any, list[int]] = {}
        for k, r in enumerate(instance.requests):
            shape = r.prefills, r.tokens, r.context, r.blocks, r.host
            found.setdefault((*shape, instance.values[k], instance.slack[k]), []).append(k)
        firsts = [members[0] for members in found.values()]
        self.copies = [len(members) for members in found.values()]
        self.requests = [instance.requests[k] for k in firsts]
        self.values = [instance.values[k] for k in firsts]
        self.slack = [instance.slack[k] for k in firsts]
        self.loads = [instance.load(k) for k in firsts]


class Case(NamedTuple):
    """Batches of one or both phases of at most `tau` ticks with `need` requests of some types (`calls`)."""

    kinds: Kinds
    tau: int
    calls: frozenset[int]
    need: int
    decodes: bool
    prefills: bool
    exactly: int | None


def all_families(kinds: Kinds, kept: int) -> list[tuple[int, frozenset[int], int]]:
    """Most ticks, calls and how many of these: for every batch that keeps so many savable requests."""
    instance = kinds.instance
    known = [(t, s) for t, s in enumerate(kinds.slack) if s is not None]
    ends = {s - less for _, s in known for less in (0, instance.average)} | {instance.all_time}
    families: list[tuple[int, frozenset[int], int]] = []
    for tau in sorted(end for end in ends if 0 < end <= instance.all_time):
        instance.work.spend(3 * len(known))
        need = kept - sum(kinds.copies[t] for t, s in known if s - instance.average >= tau)
        if need <= 0:
            families = [(tau, frozenset(), 0)]  # it holds those of smaller tau
            continue
        calls = frozenset(t for t, s in known if s - instance.average < tau <= s)
        if need <= sum(kinds.copies[t] for t in calls):
            families.append((tau, calls, need))
    return families


def all_cases(kinds: Kinds, kept: int) -> Iterator[Case]:
    """The cases that hold every batch which keeps so many savable requests."""
    instance = kinds.instance
    most = min(instance.batch, sum(not r.prefills for r in instance.requests))
    for tau, calls, need in all_families(kinds, kept):
        for decodes, prefills in ((True, False), (False, True), (True, True)):
            for n in range(1, most + 1) if instance.product and decodes else (None,):
                yield Case(kinds, tau, calls, need, decodes, prefills, n)


# --- infermax_opt/iteration/checker/trees.py ------------------------------------------------------
# Proof: the tree of a case, each leaf closed by prices.

#: How an entry of a tree says that it is a leaf.
LEAF = -2
#: How it says that it cuts a sum over the batch: requests, value, blocks from the host.
SUMS = (-1, -3, -4)


class Node(NamedTuple):
    """Fewest and most of each type, and least and most of each sum."""

    low: list[int]
    high: list[int]
    least: list[int]
    most: list[int]


class Tree:
    """The tree of a case: each entry is [cut, at, prices ...], before those of the two parts."""

    def __init__(self, case: Case, value: int, ticks: int, one: int, entries: Field):
        self.case, self.p, self.q, self.one, self.entries = case, value, ticks, one, entries.items()
        self.kinds, self.instance = case.kinds, case.kinds.instance
        #: What each type adds to the sums.
        self.adds = [1] * len(self.kinds.loads), self.kinds.values, [load[6] for load in self.kinds.loads]
        self.instance.work.spend(20 * len(self.kinds.loads))
        self.alike = [] if self.instance.product else self.separable()

    def check(self, idle_out: bool) -> None:
        """Reject unless no batch of the case is better than p / q.

        Parameters
        ----------
        idle_out : bool
            Whether the tree is of batches without requests that have no value and are no calls.
        """
        root, at = self.root(idle_out), 0
        todo = [] if root is None else [root]
        while todo:
            require(at < len(self.entries), "a tree ends too early")
            entry = self.entries[at]
            at += 1
            node = todo.pop()
            kind, cut, *prices = entry.integers()
            self.instance.work.spend(40 + 14 * len(node.low))
            left = self._left(node, prices, entry)
            if kind == LEAF:
                require(left is None, f"{entry.path}: the prices do not close the node")
            elif left is None:
                entry.fail("is cut, and closed already")
            else:
                todo += self.parts(left, kind, cut, entry)
        if root is None:
            require(all(entry.value == [LEAF, 0] for entry in self.entries), "a tree has no root")
            at = len(self.entries)
        require(at == len(self.entries), "a tree has entries beyond its end")

    def root(self, idle_out: bool) -> Node | None:
        """The batches of the case that decide; None if there is none.

        Requests without a value that are no calls may stay out: without them a batch takes no more time, and
        its value and its calls are the same ones.

        Parameters
        ----------
        idle_out : bool
            Whether they do.
        """
        case, copies = self.case, self.kinds.copies
        high = [n if self._may(t, idle_out) else 0 for t, n in enumerate(copies)]
        low = [0] * len(high)
        if case.need and sum(copies[t] for t in case.calls) == case.need:
            for t in case.calls:
                low[t] = copies[t]
        bad = any(a > b for a, b in zip(low, high, strict=True))
        value, host = (_dot(each, high) for each in self.adds[1:])
        return None if bad else Node(low, high, [1, 0, 0], [self.instance.batch, value, host])

    def _may(self, t: int, idle_out: bool) -> bool:
        """Whether requests of a type may be in a batch of the tree."""
        case = self.case
        able = case.prefills if self.kinds.requests[t].prefills else case.decodes
        return able and (not idle_out or self.kinds.values[t] > 0 or t in case.calls)

    def parts(self, node: Node, kind: int, at: int, entry: Field) -> list[Node]:
        """The part with fewer than `at` of a type, and the one with as many or more.

        Parameters
        ----------
        node : Node
        kind : int
            The type, or one of `SUMS`.
        at : int
        entry : Field
            That says so.
        """
        low, high, least, most = node
        if kind in SUMS:
            i, less, more = SUMS.index(kind), list(most), list(least)
            less[i], more[i] = min(most[i], at - 1), max(least[i], at)
            return [Node(low, high, least, less), Node(low, high, more, most)]
        if not 0 <= kind < len(low) or not low[kind] < at <= high[kind]:
            entry.fail("cuts nothing")
        fewer, more = list(high), list(low)
        fewer[kind], more[kind] = at - 1, at
        return [Node(low, fewer, least, most), Node(more, high, least, most)]

    def lines(self, low: list[int]) -> list[tuple[int, list[int]]]:
        """Ticks of `low` of each type and of one more of each, no more than the true ones for any batch."""
        instance, loads = self.instance, self.kinds.loads
        if not instance.product:
            return [
                (base + sum(each[t] * n for t, n in enumerate(low) if n), each) for base, each in self.alike
            ]
        p1, d, fixed = instance.prefill[1], self.case.exactly or 0, self.fixed()
        each_read = instance.decode[1] + (instance.mixed[1] if self.case.prefills else 0)
        sums = [sum(load[c] * n for load, n in zip(loads, low, strict=True) if n) for c in range(7)]
        n0, a0 = sums[4], sums[5]
        self.instance.work.spend(10 * len(loads))
        more = [each_read * d * x[2] + p1 * (n0 * x[5] + a0 * x[4] + x[4] * x[5]) for x in loads]
        base = fixed + each_read * d * sums[2] + p1 * n0 * a0
        found = [
            (
                alpha + beta * sums[0] + base,
                [beta * x[0] + extra for x, extra in zip(loads, more, strict=True)],
            )
            for alpha, beta in instance.pieces
        ]
        if instance.swap:
            found.append(
                (instance.swap[0] + instance.swap[1] * sums[6], [instance.swap[1] * x[6] for x in loads])
            )
        return found

    def fixed(self) -> int:
        """Ticks that the phases of the case take in any batch."""
        case, instance = self.case, self.instance
        both = instance.mixed[0] if case.decodes and case.prefills else 0
        return (
            both + (instance.decode[0] if case.decodes else 0) + (instance.prefill[0] if case.prefills else 0)
        )

    def separable(self) -> list[tuple[int, list[int]]]:
        """Lines of work that adds up."""
        case, instance, loads = self.case, self.instance, self.kinds.loads
        mixed = instance.mixed[1] if case.decodes and case.prefills else 0
        read, work, fixed = instance.decode[1] + mixed, instance.prefill[1], self.fixed()
        found = [
            (alpha + fixed, [beta * x[0] + read * x[2] + work * x[4] for x in loads])
            for alpha, beta in instance.pieces
        ]
        if instance.swap:
            found.append((instance.swap[0], [instance.swap[1] * x[6] for x in loads]))
        return found

    def empty(self, node: Node, lines: list[tuple[int, list[int]]]) -> bool:
        """Whether limits leave no batch."""
        case, (low, high, least, most) = self.case, node
        if any(a > b for a, b in zip(low, high, strict=True)):
            return True
        for each, fewest, largest in zip(self.adds, least, most, strict=True):
            if fewest > largest or _dot(each, low) > largest or _dot(each, high) < fewest:
                return True
        if max(base for base, _ in lines) > case.tau:
            return True
        blocks = sum(self.kinds.requests[t].blocks * n for t, n in enumerate(low) if n)
        if blocks > self.instance.blocks or sum(high[t] for t in case.calls) < case.need:
            return True
        return case.exactly is not None and not self.counted(node, case.exactly)

    def counted(self, node: Node, decodes: int) -> bool:
        """Whether there can be so many decodes."""
        own = [t for t, r in enumerate(self.kinds.requests) if not r.prefills]
        return sum(node.low[t] for t in own) <= decodes <= sum(node.high[t] for t in own)

    def _left(self, node: Node, prices: list[int], entry: Field) -> Node | None:
        """What the prices leave of a node; None if there is no better batch in it."""
        lines = self.lines(node.low)
        if self.empty(node, lines):
            return None
        if len(prices) == len(lines) + 4:
            prices = [*prices, 0, 0, 0, 0]  # without those of value and host
        if len(prices) != len(lines) + 8 or min(prices) < 0:
            entry.fail("holds no prices")
        over = self.q * sum(prices[: len(lines)]) - self.p * self.one
        if over < 0:
            entry.fail("holds prices of lines that are too small")
        reduced = self._reduced(node, lines, prices)
        total = self.q * self._of_low(node, lines, prices) + over * self.case.tau
        total += self.q * sum(r * (node.high[t] - node.low[t]) for t, r in reduced.items() if r > 0)
        return None if total < self.one else self._narrowed(node, reduced, (total - self.one) // self.q)

    def _of_low(self, node: Node, lines: list[tuple[int, list[int]]], prices: list[int]) -> int:
        """What the prices say of the batch with the fewest of each type, over q."""
        case, kinds, low = self.case, self.kinds, node.low
        a, b, m, k, *others = prices[len(lines) :]
        some = [(t, n) for t, n in enumerate(low) if n]
        found, pairs = self.one * _dot(kinds.values, low), ((a, b), others[:2], others[2:])
        for each, least, most, (above, below) in zip(self.adds, node.least, node.most, pairs, strict=True):
            total = _dot(each, low)
            found += above * (most - total) + below * (total - least)
        found += m * (self.instance.blocks - sum(kinds.requests[t].blocks * n for t, n in some))
        found += k * (sum(n for t, n in some if t in case.calls) - case.need)
        return found - sum(w * fixed for w, (fixed, _) in zip(prices, lines, strict=False))

    def _reduced(self, node: Node, lines: list[tuple[int, list[int]]], prices: list[int]) -> dict[int, int]:
        """Reduced prices, over q, of the types of which the number is open."""
        case, kinds, (a, b, m, k, *others) = self.case, self.kinds, prices[len(lines) :]
        value, host = self.one + others[1] - others[0], others[3] - others[2]
        open_ = [t for t, (low, high) in enumerate(zip(node.low, node.high, strict=True)) if low < high]
        self.instance.work.spend(10 + (8 + 3 * len(lines)) * len(open_))
        found = {}
        for t in open_:
            price = value * kinds.values[t] + host * kinds.loads[t][6]
            price += b - a - m * kinds.requests[t].blocks
            price += k if t in case.calls else 0
            for w, (_, each) in zip(prices, lines, strict=False):
                price -= w * each[t]
            found[t] = price
        return found

    def _narrowed(self, node: Node, reduced: dict[int, int], spare: int) -> Node | None:
        """The node without the copies whose reduced prices exceed what is to spare."""
        low, high = list(node.low), list(node.high)
        for t, r in reduced.items():
            if (high[t] - low[t]) * abs(r) > spare:
                if r > 0:
                    low[t] = high[t] - spare // r
                else:
                    high[t] = low[t] + spare // -r
        left = node._replace(low=low, high=high)
        if low != high:
            return left
        lines = self.lines(low)
        if self.empty(left, lines):
            return None
        value = sum(v * n for v, n in zip(self.kinds.values, low, strict=True))
        return left if self.q * value > self.p * max(base for base, _ in lines) else None


def _dot(left: list[int], right: list[int]) -> int:
    return sum(a * n for a, n in zip(left, right, strict=True) if n)


# --- infermax_opt/iteration/checker/certificate.py ------------------------------------------------
# The certificate: whether its trees prove what is claimed.


def check(instance_data: Any, certificate: Any, profiles: Path | None = None) -> Fraction:
    """Return the bound that the certificate proves for the instance, or raise Rejected.

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
    claim = Field(certificate, "certificate")
    try:
        check_envelope(claim, instance_data, instance.sha256)
        require(Cost(claim["cost"]).parts() == instance.cost.parts(), "is for another cost model")
        return compare(claim, prove(instance, Field(claim["evidence"].value, "evidence")))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """Seconds per value that the evidence proves."""
    if evidence["kind"].text() != "branching":
        evidence["kind"].fail(f"{shown(evidence['kind'].value)} is not 'branching'")
    value, ticks = evidence["value"].whole(0, MAX_INTEGER), evidence["ticks"].whole(1, MAX_INTEGER)
    exponent = evidence["exponent"].whole(0, 1000)
    batch = []
    for name in evidence["kept"].items():
        if name.text() not in instance.names:
            name.fail("is not in the instance")
        batch.append(instance.names[name.text()])
    require(len(set(batch)) == len(batch) <= instance.batch, "kept: is no batch of the instance")
    require(sum(instance.requests[k].blocks for k in batch) <= instance.blocks, "kept: takes too many blocks")
    kinds, trees = Kinds(instance), evidence["trees"].items()
    kept, at = instance.kept(batch), 0
    # Certificates of earlier versions do not say it: their trees hold requests without a value, too.
    out = "idle_out" in evidence and evidence["idle_out"].flag()
    for case in all_cases(kinds, kept):
        require(at < len(trees), f"there are {len(trees)} trees, fewer than cases")
        Tree(case, value, ticks, 1 << exponent, trees[at]).check(out)
        at += 1
    require(at == len(trees), f"there are {len(trees)} trees for {at} cases")
    bound = Fraction(ticks * instance.units, value * instance.scale) if value else instance.worst
    return min(bound, instance.worst)


# --- infermax_opt/iteration/checker/command.py ----------------------------------------------------
# The command line.

#: Units of the objectives.
UNITS = {"seconds_per_be_token": "s per BE token", "seconds_per_value": "s per unit of value"}


def ratio_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds, and its unit."""
    return instance["objective"], UNITS[instance["objective"]]


#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check, profiles=True, bounded=ratio_and_unit)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(default_profiles()).parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
