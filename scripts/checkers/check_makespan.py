"""Stand-alone checker of lower-bound certificates of makespan instances: standard library only.

    python check_makespan.py INSTANCE CERTIFICATE [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.makespan.bounds`.

Assembled from the parts in `infermax_opt/checking` and `infermax_opt/makespan/checker`:
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
from itertools import accumulate, pairwise
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


# --- infermax_opt/makespan/checker/instance.py ----------------------------------------------------
# The instance: levels, rounds and requests in whole ticks, and its hash.

#: Most tokens of a prompt, an output or a level, and most clients.
MAX_TOKENS = 10**9


def read_levels(prefill: Field) -> list[tuple[int, Fraction]]:
    """Tokens and seconds of the levels as they are written, fewest tokens first."""
    levels = prefill["levels"].items()
    if not 1 <= len(levels) <= MAX_RATES:
        prefill["levels"].fail(f"holds {len(levels)} levels, not 1 to {MAX_RATES}")
    if "overhead" in prefill:
        fixed, each = prefill["overhead"].decimal(), prefill["token"].decimal()
        sizes = [level.whole(1, MAX_TOKENS) for level in levels]
        pairs = [(tokens, fixed + each * tokens) for tokens in sizes]
    else:
        rows = [level.items(2) for level in levels]
        pairs = [(tokens.whole(1, MAX_TOKENS), time.decimal()) for tokens, time in rows]
    return sorted(pairs, key=lambda pair: (pair[0], -pair[1]))


def read_decode(decode: Field) -> list[Fraction]:
    """Seconds of a round, and those that each client adds."""
    return [decode[key].decimal() for key in ("overhead", "token")]


class Instance:
    """What the bounds need of an instance file; times in whole ticks.

    Raises `Rejected` where the file is no instance.
    """

    def __init__(self, data: Any):
        top, self.work = Field(data, "instance"), Work()
        for key, value in (("schema", "infermax-opt/instance/1"), ("problem", "makespan")):
            if top[key].value != value:
                top[key].fail(f"{shown(top[key].value)} is not {value!r}")
        self.clients, pairs = top["clients"].whole(1, MAX_TOKENS), read_levels(top["prefill"])
        decode = read_decode(top["decode"])
        self.cost = pairs, decode
        lap = decode[0] + decode[1] * self.clients
        if lap <= 0:
            top["decode"].fail("a round takes no time")
        self.scale = math.lcm(lap.denominator, *(time.denominator for _, time in pairs))
        self.round = int(lap * self.scale)
        useful: list[tuple[int, int]] = []  # levels that no larger one beats
        for tokens, time in reversed(pairs):
            if not useful or time * self.scale < useful[-1][1]:
                useful.append((tokens, int(time * self.scale)))
        self.levels = useful[::-1]
        self._read_requests(top)

    def _read_requests(self, top: Field) -> None:
        """Outputs by length, all prompts together, and the hash of the instance."""
        meaning, (pairs, decode) = Meaning(), self.cost
        meaning.feed("infermax-opt/instance/1", "makespan", top["name"].text(), self.clients)
        meaning.feed(*decode)
        meaning.feed(*(value for pair in pairs for value in pair))
        self.outputs, self.prompts, self.requests = Counter[int](), 0, 0
        for entry in top["requests"].items():
            i = entry["input_tokens"].whole(1, self.levels[-1][0])  # no prompt exceeds every level
            o = entry["output_tokens"].whole(1, MAX_TOKENS)
            key = "estimated_output_tokens"
            times = meaning.feed_requests(entry, i, o, entry[key].whole(1, MAX_TOKENS) if key in entry else o)
            self.outputs[o] += times
            self.prompts += i * times
            self.requests += times
            if self.requests > MAX_REQUESTS:
                top["requests"].fail(f"more than {MAX_REQUESTS} requests in all")
        if self.requests == 0:
            top["requests"].fail("holds no request")
        self.sha256 = meaning.hexdigest()
        self.tokens = sum(o * number for o, number in self.outputs.items())


# --- infermax_opt/makespan/checker/stages.py ------------------------------------------------------
# Proofs: prefill and decode each for itself (stages), and equations 31 and 32 (paper eq 32).

#: Tokens times levels up to which the cover of all prompts is computed exactly.
MAX_COVER = 20_000_000


def rounds(instance: Instance) -> int:
    """Decode rounds: all tokens on all clients, and of k J + 1 requests, k + 1 on one client."""
    jobs, clients = sorted(instance.outputs.elements(), reverse=True), instance.clients
    sums = [0, *accumulate(jobs)]
    ends = range(1, len(jobs) + 1, clients)
    together = max(sums[end] - sums[end - k] for k, end in enumerate(ends, 1))
    return max(-(-instance.tokens // clients), together)


def cover(instance: Instance) -> int:
    """Least ticks of levels that hold all prompts together."""
    unit = math.gcd(*(tokens for tokens, _ in instance.levels))
    need, sizes = -(-instance.prompts // unit), [(tokens // unit, time) for tokens, time in instance.levels]
    if need * len(sizes) > MAX_COVER:
        return min(-(-need * time // size) for size, time in sizes)
    instance.work.spend(5 * need + 2 * need * len(sizes))
    least = [0]
    for held in range(1, need + 1):
        least.append(min([time + least[max(0, held - size)] for size, time in sizes]))
    return least[need]


def stages(instance: Instance) -> int:
    """Prefill and decode, each for itself."""
    return cover(instance) + rounds(instance) * instance.round


def paper(instance: Instance) -> int:
    """Equations 31 and 32: the floor of tokens over the largest level, where that is the best one."""
    tokens, time = instance.levels[-1]
    require(all(time * fewer <= less * tokens for fewer, less in instance.levels), "eq 31 does not hold")
    return instance.prompts // tokens * time + rounds(instance) * instance.round


# --- infermax_opt/makespan/checker/arc_lengths.py -------------------------------------------------
# Proof: arc lengths, by the number of bins and outputs rounded up to few lengths.


def arc_lengths(instance: Instance) -> int:
    """Least over the number of bins: prefill stages, and rounds with outputs rounded up to few lengths."""
    levels, clients, lap = instance.levels, instance.clients, instance.round
    prefill, lengths = Prefill(instance), Lengths(instance)
    least, fixed = rounds(instance), cover(instance)
    # Nodes fall into classes, for the rounds that are busy on average.
    busy = -(-instance.tokens // clients)
    classes = -(-busy // lengths.values[-1])
    bins = max(-(-instance.requests // clients), -(-instance.prompts // levels[-1][0]), classes)
    best, now = None, prefill.on_hull(bins)
    while True:
        spare = lengths.least_waste(useful_lengths(bins, classes))
        decode = max(least, -(-(instance.tokens + spare) // clients))
        here = max(fixed, prefill.rounded_up(bins, now)) + decode * lap
        best = here if best is None else min(best, here)
        following = prefill.on_hull(bins + 1)  # and no less later on, once it rises
        later = (max(fixed, math.ceil(following)) if following >= now else fixed) + least * lap
        if bins >= instance.requests or later >= best:
            return best
        if decode == least and following < now:
            return later  # what many more bins would save at most
        bins, now = bins + 1, following


def useful_lengths(bins: int, classes: int) -> int:
    """Most distinct lengths of arcs between the nodes of so many bins that are of use."""
    if classes < 2:
        return bins * (bins + 1) // 2
    full = bins + 1 - classes
    return full * (full - 1) // 2 + 2 * full + classes - 1


class Prefill:
    """Least ticks of exactly so many prefill stages for all prompts."""

    def __init__(self, instance: Instance):
        self.work, self.prompts, self.base = instance.work, instance.prompts, instance.levels[0][1]
        self.grain = math.gcd(*(time - self.base for _, time in instance.levels)) or 1
        hull: list[tuple[int, int]] = []  # of tokens and ticks of a stage, from below
        for x, y in [(0, self.base), *instance.levels]:
            while len(hull) > 1:
                (x0, y0), (x1, y1) = hull[-2:]
                if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                    break
                hull.pop()
            hull.append((x, y))
        self.edges = [(x, y, Fraction(b - y, a - x)) for (x, y), (a, b) in pairwise(hull)]

    def on_hull(self, bins: int) -> Fraction:
        """Ticks of so many stages, each with as many tokens on average; convex in their number."""
        self.work.spend(30 + 30 * len(self.edges))
        return max(bins * y + (self.prompts - bins * x) * slope for x, y, slope in self.edges)

    def rounded_up(self, bins: int, ticks: Fraction) -> int:
        """The next sum of so many levels."""
        return bins * self.base + math.ceil((ticks - bins * self.base) / self.grain) * self.grain


class Lengths:
    """Least total rounding up of all outputs to so many distinct lengths or fewer."""

    def __init__(self, instance: Instance):
        outputs = instance.outputs
        self.work, self.values = instance.work, sorted(outputs)
        self.count = [0, *accumulate(outputs[value] for value in self.values)]
        self.total = [0, *accumulate(value * outputs[value] for value in self.values)]
        self.row, self.lengths = [0, *(self.waste(0, j) for j in range(1, len(self.values) + 1))], 1

    def waste(self, i: int, j: int) -> int:
        """What the outputs from the i-th to before the j-th value lose if they all become the largest."""
        return self.values[j - 1] * (self.count[j] - self.count[i]) - (self.total[j] - self.total[i])

    def least_waste(self, lengths: int) -> int:
        """Least waste with so many lengths; they must not fall from call to call."""
        if lengths >= len(self.values):
            return 0
        while self.lengths < lengths:
            self.row, self.lengths = self.one_more(), self.lengths + 1
        return self.row[-1]

    def one_more(self) -> list[int]:
        """Least waste of the first j values, for each j, with one length more.

        The best last segment begins no earlier for a larger j, so that half of the j narrow down the others.
        """
        row, size = self.row, len(self.values)
        self.work.spend(20 * size + 6 * size * size.bit_length())
        found, todo = [0] * (size + 1), [(1, size, 0, size - 1)]
        while todo:
            low, high, first, last = todo.pop()
            j = (low + high) // 2
            found[j], at = min(
                (row[i] + self.waste(i, j), i) for i in {0, *range(first, min(last, j - 1) + 1)}
            )
            if low < j:
                todo.append((low, j - 1, first, max(first, at)))
            if j < high:
                todo.append((j + 1, high, max(first, at), last))
        return found


# --- infermax_opt/makespan/checker/certificate.py -------------------------------------------------
# The certificate: which argument its evidence names, and whether that proves what is claimed.


def check(instance_data: Any, certificate: Any) -> Fraction:
    """Return the bound in seconds that the certificate proves for the instance, or raise Rejected."""
    try:
        instance = Instance(instance_data)
    except Rejected as problem:
        raise Unusable(str(problem)) from None
    given = Field(certificate, "certificate")
    try:
        check_envelope(given, instance_data, instance.sha256)
        cost = given["cost"]
        same = read_levels(cost["prefill"]), read_decode(cost["decode"])
        require(same == instance.cost, "is for another cost model")
        return compare(given, prove(instance, Field(given["evidence"].value, "evidence")))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def prove(instance: Instance, evidence: Field) -> Fraction:
    """Seconds that the evidence proves."""
    if evidence["kind"].text() != "closed-form":
        evidence["kind"].fail(f"{shown(evidence['kind'].value)} is not 'closed-form'")
    proofs = {"arc lengths": arc_lengths, "stages": stages, "paper eq 32": paper}
    argument = evidence["argument"].text()
    if argument not in proofs:
        evidence["argument"].fail(f"{shown(argument)} is none of {', '.join(proofs)}")
    return Fraction(proofs[argument](instance), instance.scale)


# --- infermax_opt/makespan/checker/command.py -----------------------------------------------------
# The command line.

#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser().parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
