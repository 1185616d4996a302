"""Stand-alone checker of certificates of fleets: standard library only.

    python check_fleet.py CERTIFICATE [--question HASH] [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  A certificate holds its question: machines,
requests with their limits, and the share that keeps these; the hash of it is recomputed and told.  With
``--question`` a certificate of another question is rejected.  Exit code 0: it holds; 1: rejected; 2: the file
(``.gz`` or not) cannot be read.  Checking has a limit, `MAX_STEPS`: what would take more is rejected.
Formats: `docs/checkers.md`; proofs: `infermax_opt.fleet.bounds`.

Assembled from the parts in `infermax_opt/checking` and `infermax_opt/fleet/checker`:
change these, then run `make checkers`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import heapq
import json
import math
import os
import re
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import ceil, floor, isqrt, lcm
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO, TypeVar

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


# --- infermax_opt/fleet/checker/machine.py --------------------------------------------------------
# The machine of a certificate, and the least time that a request takes alone on it.


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


# --- infermax_opt/fleet/checker/beside.py ---------------------------------------------------------
# What prompts and later tokens cost beside each other, see `infermax_opt.fleet.bounds.beside`.
#
# A horizon, in ticks, says how long prompts of requests that decode together may have taken.

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


# --- infermax_opt/fleet/checker/needs.py ----------------------------------------------------------
# What a request needs to keep its limits, when, and what that costs a machine.

#: What alpha is shared by, each token by itself: KV tokens held, tokens processed, requests that hold KV.
SHARED = ("kv", "tokens", "running")
#: The same, and by the pace at which requests have to go on, where a stretch pays more than its parts.
PACE = "pace"
KINDS = (*SHARED, PACE)
#: One of these, or the horizon within which prompts and later tokens are beside each other.
Kind = str | int


class Need(NamedTuple):
    """A stretch of a request's life and what it does there: ticks between which all of it lies.

    `first` to `last`: its tokens made there, by number; token 1 is made by the prompt.  `spare`: ticks by
    which its batches may take longer together than they do at least for the request alone; of all later
    tokens if of some of them.  `wait`: ticks from arrival to the latest first token, if that was made by the
    same machine; `outputs`: tokens of the request, where that is there.
    """

    begin: int
    end: int
    first: int
    last: int
    spare: int
    wait: int | None = None
    outputs: int = 0


def needs_of(
    machine: Machine, arrival: Fraction, lengths: tuple[int, int], limits: Any, groups: int
) -> list[Need] | None:
    """What a request needs to keep its limits, and when; None if it never does, or fits no machine.

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
    if ends is None or prompt + outputs - 1 > machine.kv:
        return None
    (until, due, slack), date = ends, arrival * machine.ticks_per_second
    begin, found, first = floor(date), list[Need](), prompt_ticks(machine, prompt)
    if until is not None:
        found.append(Need(begin, ceil(date + until), 1, 1, ceil(until) - first))
    if due is not None and outputs > 1:
        later = later_needs(machine, lengths, (begin + first, ceil(date + due)), slack, groups)
        wait = None if until is None else ceil(until)
        found += [need._replace(wait=wait, outputs=outputs) for need in later]
    return found


def later_needs(
    machine: Machine, lengths: tuple[int, int], between: tuple[int, int], spare: int, groups: int
) -> list[Need]:
    """Stretches of the later tokens of a request, of which there are some.

    Parameters
    ----------
    machine : Machine
    lengths : (int, int)
        Prompt and output tokens.
    between : (int, int)
        Ticks at which the first token is there at the soonest, and the last one has to be.
    spare : int
        Of all of them, see `Need`.
    groups : int
        As in `needs_of`.
    """
    (prompt, outputs), (ready, due) = lengths, between
    size, found = -(-(outputs - 1) // groups), list[Need]()
    for low in range(2, outputs + 1, size):
        high = min(outputs, low + size - 1)
        begin = ready + later_ticks(machine, prompt, 2, low - 1)
        found.append(Need(begin, due - later_ticks(machine, prompt, high + 1, outputs), low, high, spare))
    return found


def whole_of(later: list[Need]) -> Need:
    """All later tokens of a request as one stretch."""
    return later[0]._replace(end=later[-1].end, last=later[-1].last)


def _ends(machine: Machine, prompt: int, outputs: int, limits: Any) -> tuple[Any, Any, Any] | None:
    """Ticks from arrival to the latest first and last token, and the spare ones of later tokens.

    None for no end; None for all if never in time.
    """
    ttft, tpot, e2e = (None if limit is None else limit * machine.ticks_per_second for limit in limits)
    first, later = prompt_ticks(machine, prompt), later_ticks(machine, prompt, 2, outputs)
    span = span_of(tpot, outputs)
    if span is not None and later > span:
        return None
    due = least_of(e2e, None if ttft is None or span is None else ttft + span)
    until = least_of(ttft, None if due is None else due - later)
    if until is not None and first > until:
        return None
    slack = least_of(span, None if due is None else due - first)
    return until, due, None if slack is None else ceil(slack) - later


def span_of(tpot: Any, outputs: int) -> Any:
    """The longest time from first to last token; None for no limit."""
    if outputs == 1:
        return 0
    return None if tpot is None else tpot * (outputs - 1)


def least_of(one: Any, other: Any) -> Any:
    """The smaller of two numbers, where None is infinite."""
    return min((some for some in (one, other) if some is not None), default=None)


def unit_of(machine: Machine) -> int:
    """Units of cost in a tick."""
    return machine.kv * machine.tokens * machine.prefill * max(1, machine.running)


def cost_of(machine: Machine, prompt: int, need: Need, piece: int, kind: Kind) -> int:
    """What a stretch costs at least, in units.

    Parameters
    ----------
    machine, prompt, need
    piece : int
        Affine piece of the batch time.
    kind : str or int
        One of `KINDS`, or a horizon.
    """
    if isinstance(kind, int):
        return _beside(machine, prompt, need, piece, kind)
    unit, alpha, beta = unit_of(machine), machine.alpha[piece], machine.beta[piece]
    count = need.last - need.first + 1
    if need.first == 1:
        work = unit * (beta * prompt + machine.p1 * prompt_pairs(machine, prompt))
        if kind == PACE:
            batches = -(-prompt // machine.prefill)
            time = need.spare + prompt_ticks(machine, prompt)
            return work + _paced(work, time, batches, alpha + machine.p0)
        work += unit // machine.prefill * machine.p0 * prompt
        shares = {"kv": (machine.kv, prompt), "tokens": (machine.tokens, prompt)}
    else:
        after = _read(prompt, need) + count
        decode, work = _decode(machine, beta), unit * later_work(machine, prompt, need, beta)
        if kind == PACE:
            one, other = (beta + decode * (prompt + token - 2) for token in (need.first, need.last))
            root = count * count * (one + other + isqrt(4 * one * other))
            fixed = alpha + (min(machine.d0, machine.p0) if machine.preemption else machine.d0)
            time = need.spare + later_ticks(machine, prompt, need.first, need.last)
            return work + _paced(unit * root, 4 * time, 4 * count, fixed)
        if not machine.preemption or (beta - machine.d1) * machine.kv >= 2 * machine.d0:
            work += unit // machine.kv * machine.d0 * after
        shares = {"kv": (machine.kv, after), "tokens": (machine.tokens, count)}
    limit, used = shares.get(kind, (max(1, machine.running), count if machine.running else 0))
    return work + unit // limit * alpha * used


def _decode(machine: Machine, beta: int) -> int:
    """Ticks of a token that a later one reads, at least."""
    return min(machine.d1, beta) if machine.preemption else machine.d1


def _read(prompt: int, need: Need) -> int:
    """Tokens that those of a later stretch read."""
    count = need.last - need.first + 1
    return count * prompt + (need.first - 2 + need.last - 2) * count // 2


def later_work(machine: Machine, prompt: int, need: Need, beta: int) -> int:
    """Ticks of work of a later stretch, at least.

    Parameters
    ----------
    machine, prompt, need, beta
    """
    return beta * (need.last - need.first + 1) + _decode(machine, beta) * _read(prompt, need)


def _beside(machine: Machine, prompt: int, need: Need, piece: int, horizon: int) -> int:
    """What a stretch costs by a horizon.

    Parameters
    ----------
    machine, prompt, need, piece, horizon
    """
    unit = unit_of(machine)
    if need.first == 1:
        time = need.spare + prompt_ticks(machine, prompt)
        return prompt_beside(machine, prompt, piece, time, unit)
    work = unit * later_work(machine, prompt, need, machine.beta[piece])
    if need.wait is None:
        return work
    lengths, span = (prompt, need.outputs), need.spare + later_ticks(machine, prompt, 2, need.outputs)
    share, whole = shared_by(machine, lengths, piece, (need.wait, span), horizon)
    if not share:
        return work
    batches = batches_beside(machine, lengths, piece, need.last - need.first + 1, span)
    return work + unit * share * batches // whole


def _paced(root: int, time: int, batches: int, fixed: int) -> int:
    """What batches of a request cost beyond its work, as they take no longer than `time` together.

    Parameters
    ----------
    root : int
        Square of the sum of the roots of the work in each, at least.
    time, batches : int
        The number of batches that there are at least; both times the same number, if any.
    fixed : int
        Ticks of a batch beside all work.
    """
    left = time - batches * fixed
    return fixed * root // left if root and left > 0 else 0


# --- infermax_opt/fleet/checker/question.py -------------------------------------------------------
# The question that a certificate of a fleet holds: requests with their limits, the share that keeps them.

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


# --- infermax_opt/fleet/checker/windows.py --------------------------------------------------------
# Windows of time with weights, and what each request pays in them: the argument of all proofs.

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


# --- infermax_opt/fleet/checker/attainment.py -----------------------------------------------------
# Proof: fewest machines, by what requests pay for time and for the batches of cells of time.
#
# The proof stands in `infermax_opt.fleet.bounds.attainment`.

#: A whole batch, of which requests and what is scarce have shares.
WHOLE = 1 << 24
#: Steps: to read a cell or a share; to cost a cell for a stretch; for a stretch besides.
READING_CELL, PER_COST, PER_GROUP = 40, 16, 60


class Timed(NamedTuple):
    """Cells of time from 0 on: ends in ticks, prices, and shares of alpha for KV, tokens and requests."""

    ends: list[int]
    prices: list[int]
    scarce: list[tuple[int, int, int]]


class Share(NamedTuple):
    """Shares of a request in batches: the first cell, and those from there on."""

    first: int
    shares: list[int]


def read_timed(given: Field, machine: Machine, work: Work) -> Timed:
    """The cells of a certificate.

    Parameters
    ----------
    given, machine, work
    """
    work.spend(READING_CELL * len(given.values()))
    rows = [row.integers(5) for row in given.items()]
    ends = [row[0] for row in rows]
    require(all(a < b for a, b in pairwise([0, *ends])), "attainment.cells: their ends do not rise")
    require(all(min(row[1:]) >= 0 for row in rows), "attainment.cells: a price or share is below 0")
    require(
        machine.running > 0 or not any(row[4] for row in rows), "attainment.cells: requests are not scarce"
    )
    return Timed(ends, [row[1] for row in rows], [(row[2], row[3], row[4]) for row in rows])


def read_share(given: Field, cells: int, work: Work) -> Share:
    """Shares of a request in cells that are there, 0 or more.

    Parameters
    ----------
    given, cells, work
    """
    first, *shares = given.integers()
    work.spend(READING_CELL + len(shares))
    require(0 <= first <= first + len(shares) <= max(first, cells), "attainment.shares: of no cell")
    require(min(shares, default=0) >= 0, "attainment.shares: one is below 0")
    return Share(first, shares)


def require_whole(cells: Timed, owned: list[Share]) -> None:
    """All shares of a cell are at most a whole batch together."""
    sums = [sum(some) for some in cells.scarce]
    for own in owned:
        for cell, share in enumerate(own.shares, own.first):
            sums[cell] += share
    require(max(sums, default=0) <= WHOLE, "attainment.shares: more than a batch in a cell")


def overlaps(cells: Timed, begin: int, end: int) -> list[tuple[int, int]] | None:
    """Cells that overlap a stretch of time, each with the ticks in it; None if it goes on after the last.

    Parameters
    ----------
    cells, begin, end
    """
    if not cells.ends or end > cells.ends[-1]:
        return None
    k, found = bisect_right(cells.ends, begin), list[tuple[int, int]]()
    while begin < end:
        until = min(end, cells.ends[k])
        found.append((k, until - begin))
        begin, k = until, k + 1
    return found


def charge(machine: Machine, piece: int, scarce: tuple[int, int, int], held: int, tokens: int) -> int:
    """What alpha is charged for KV, tokens and one request, in parts of a batch.

    Parameters
    ----------
    machine, piece, scarce, held, tokens
    """
    kv, each, running = scarce
    shared = kv * held // machine.kv + each * tokens // machine.tokens
    return machine.alpha[piece] * (shared + running // max(1, machine.running))


def prompt_paid(machine: Machine, piece: int, cells: Timed, need: Need, prompt: int) -> int:
    """Least that a prompt pays.

    Parameters
    ----------
    machine, piece, cells, need, prompt
    """
    here = overlaps(cells, need.begin, need.end)
    if not here:
        return 0
    work = machine.beta[piece] * prompt * WHOLE
    if not machine.preemption:
        work += machine.p0 * prompt * WHOLE // machine.prefill
    by_tokens = min(
        cells.prices[k] * (work + charge(machine, piece, cells.scarce[k], prompt, prompt)) for k, _ in here
    )
    attention = machine.p1 * prompt_pairs(machine, prompt) * WHOLE
    return by_tokens + min(cells.prices[k] for k, _ in here) * attention


def fixed_ticks(machine: Machine, piece: int, prompt: int) -> int:
    """Ticks that a batch that makes a later token takes besides work, as far as its token is charged.

    Parameters
    ----------
    machine, piece, prompt
    """
    paid = not machine.preemption or (machine.beta[piece] - machine.d1) * prompt >= machine.d0
    return machine.alpha[piece] + (machine.d0 if paid else min(machine.d0, machine.p0))


def later_paid(machine: Machine, piece: int, cells: Timed, need: Need, prompt: int, own: Share) -> int:
    """Least that some later tokens pay.

    Parameters
    ----------
    machine, piece, cells, need, prompt, own
    """
    here = overlaps(cells, need.begin, need.end)
    if not here:
        return 0
    tokens, beta = need.last - need.first + 1, machine.beta[piece]
    least = later_ticks(machine, prompt, need.first, need.first)
    step = later_work(machine, prompt, need._replace(last=need.first), beta)
    fixed, tried = fixed_ticks(machine, piece, prompt), list[tuple[int, int]]()
    for k, ticks in here:
        share = own.shares[k - own.first] if 0 <= k - own.first < len(own.shares) else 0
        each = charge(machine, piece, cells.scarce[k], prompt + need.first - 1, 1)
        tried.append((cells.prices[k] * (step * WHOLE + fixed * share + each), ticks))
    paid, left = 0, tokens * least
    for price, ticks in sorted(tried):
        paid += price * min(left, ticks)
        left -= min(left, ticks)
    beyond = later_work(machine, prompt, need, beta) - tokens * step
    lowest = min(cells.prices[k] for k, _ in here)
    return paid // max(1, least) + lowest * beyond * WHOLE


def all_paid(
    machine: Machine, piece: int, cells: Timed, needs: list[Need], prompt: int, own: Share, work: Work
) -> int:
    """Least that a request pays.

    Parameters
    ----------
    machine, piece, cells, needs, prompt, own, work
    """
    total = 0
    for need in needs:
        looked = bisect_left(cells.ends, need.end) - bisect_right(cells.ends, need.begin) + 1
        work.spend(PER_GROUP + PIECE * len(machine.alpha) + PER_COST * max(1, looked))
        if need.first == 1:
            total += prompt_paid(machine, piece, cells, need, prompt)
        else:
            total += later_paid(machine, piece, cells, need, prompt, own)
    return total


def attained(
    given: Field, machine: Machine, question: Question, needs_in: Callable[[Asked, int], list[Need] | None]
) -> tuple[list[int | None], int] | None:
    """What each request pays, and what machine time costs of each machine; None if not told.

    Parameters
    ----------
    given : Field
        The certificate.
    machine : Machine
    question : Question
    needs_in : callable
        What a request needs of a machine, its later tokens in so many groups; None if it never is good.
    """
    if "attainment" not in given:
        return None
    evidence, work, requests = given["attainment"], question.work, question.requests
    piece = evidence["piece"].whole(0, len(machine.alpha) - 1)
    groups = evidence["groups"].whole(1, MOST_GROUPS)
    cells, told = read_timed(evidence["cells"], machine, work), evidence["shares"].items(len(requests))
    owned = [read_share(some, len(cells.ends), work) for some in told]
    require_whole(cells, owned)
    work.spend(finding(machine, question._replace(groups=groups)))
    paid = list[int | None]()
    for asked, own in zip(requests, owned, strict=True):
        needs = needs_in(asked, groups)
        paid.append(None if needs is None else all_paid(machine, piece, cells, needs, asked[1], own, work))
    spans = zip([0, *cells.ends], cells.ends, cells.prices, strict=False)
    return paid, WHOLE * sum((end - begin) * price for begin, end, price in spans)


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


# --- infermax_opt/fleet/checker/in_turn.py --------------------------------------------------------
# Proof: fewest machines, by how many prompts are late if all machines serve in turn, as one of their speed.
#
# The proof stands in `infermax_opt.fleet.bounds.in_turn`.

#: What a request needs of a machine; None if it never keeps its limits.
Needs = Callable[[Asked], list[Need] | None]


class Prompts(NamedTuple):
    """Prompts with a limit, by arrival, and how many may be late of these.

    `arrivals`, `lengths`: in ticks, what each pays; None: it never is in time.  `window`: from the arrival of
    each to its latest first token.
    """

    arrivals: list[int]
    lengths: list[int | None]
    window: int
    allowed: int


def prompts_of(machine: Machine, question: Question, piece: int, needs_of: Needs) -> Prompts:
    """The prompts of a question, and what each pays at least.

    Parameters
    ----------
    machine : Machine
    question : Question
        Not more of its requests are never in time than may be late.
    piece : int
        Affine piece of the batch time.
    needs_of : callable
    """
    work, known = question.work, dict[tuple[int, int], int | None]()
    work.spend(finding(machine, question) + JOB_STEPS * len(question.requests))
    costs = PromptCosts(
        machine.alpha[piece] + machine.p0, machine.beta[piece], machine.p1, machine.prefill, machine.spreads
    )
    found, window, allowed = list[tuple[int, int | None]](), 0, len(question.requests) - question.must
    for asked in question.requests:
        needs, prompt = needs_of(asked), asked[1]
        if needs is None:
            allowed -= 1
        elif needs and needs[0].first == 1:
            begin, time = needs[0].begin, needs[0].end - needs[0].begin
            if (prompt, time) not in known:
                work.spend(PROMPT_STEPS)
                known[prompt, time] = least_paid_in_turn(costs, prompt, time)
            found.append((begin, known[prompt, time]))
            window = max(window, time)
    found.sort(key=lambda job: job[0])
    return Prompts([begin for begin, _ in found], [length for _, length in found], window, allowed)


def too_few(machines: int, prompts: Prompts, work: Work) -> bool:
    """Whether more prompts are late on so many machines than may be.

    Parameters
    ----------
    machines : int
    prompts : Prompts
    work : Work
    """
    jobs = zip((machines * begin for begin in prompts.arrivals), prompts.lengths, strict=True)
    return fewest_late(jobs, machines * prompts.window, prompts.allowed, work) > prompts.allowed


def machines_in_turn(given: Field, machine: Machine, question: Question, needs_of: Needs) -> int:
    """One machine more than are too few by a certificate; 0 if it says nothing of them.

    Parameters
    ----------
    given : Field
        The certificate.
    machine : Machine
    question : Question
    needs_of : callable
    """
    if "in_turn" not in given:
        return 0
    evidence = given["in_turn"]
    machines = evidence["too_few"].whole(0, MAX_INTEGER)
    piece = evidence["piece"].whole(0, len(machine.alpha) - 1)
    shown = too_few(machines, prompts_of(machine, question, piece, needs_of), question.work)
    require(shown, f"in_turn: no more requests are late on {machines} machines than may be")
    return machines + 1


# --- infermax_opt/fleet/checker/priced.py ---------------------------------------------------------
# Proof: fewest machines, by prices of their time and shares of what batches of later tokens cost.
#
# The proof stands in `infermax_opt.fleet.bounds.priced`.

#: Most parts of a batch, of which one is shared by work.
MOST_PARTS = 1000
#: Steps: to read a cell or a share; to look at a cell for a stretch; for a stretch besides.
READING_PRICE, PER_CELL, PER_STRETCH = 40, 2, 30


class Costs(NamedTuple):
    """What a request costs: stretches of its prompt and of all later tokens, or None, and units of time.

    `prompt` and `work` at the prices of time, `batches` at its own share.
    """

    first: Need | None
    later: Need | None
    prompt: int
    work: int
    batches: int


class Cells(NamedTuple):
    """Cells of time with a price, one after the other: begins and ends in ticks; between them it is 0."""

    begins: list[int]
    ends: list[int]
    prices: list[int]


def costs_of(machine: Machine, asked: Asked, needs: list[Need], piece: int, parts: int) -> Costs:
    """What a request costs by an affine piece.

    Parameters
    ----------
    machine : Machine
    asked : Asked
    needs : list of Need
        With all later tokens as one stretch.
    piece : int
    parts : int
        One part of so many of a batch is shared by work: q.
    """
    _, prompt, outputs, _ = asked
    unit = unit_of(machine)
    first = next((need for need in needs if need.first == 1), None)
    later = next((need for need in needs if need.first > 1), None)
    whole = work = batches = 0
    if first is not None:
        time = first.spare + prompt_ticks(machine, prompt)
        whole = prompt_beside(machine, prompt, piece, time, unit, parts)
    if later is not None:
        work = unit * later_work(machine, prompt, later, machine.beta[piece])
        if machine.beta[piece]:
            span = later.spare + later_ticks(machine, prompt, 2, outputs)
            batches = unit * batches_beside(machine, (prompt, outputs), piece, outputs - 1, span, parts)
    return Costs(first, later, whole, work, batches)


def read_cells(given: Field, work: Work) -> Cells:
    """The cells of a certificate."""
    work.spend(READING_PRICE * len(given.values()))
    found, last = Cells([], [], []), 0
    for entry in given.items():
        begin, end, price = entry.items(3)
        found.begins.append(begin.whole(last, MAX_INTEGER))
        last = end.whole(found.begins[-1] + 1, 2 * MAX_INTEGER)
        found.ends.append(last)
        found.prices.append(price.whole(1, MAX_INTEGER))
    return found


def lowest(cells: Cells, need: Need | None, work: Work) -> int:
    """The lowest price within a stretch.

    Parameters
    ----------
    cells, need, work
    """
    if need is None:
        return 0
    first, last = bisect_right(cells.ends, need.begin), bisect_left(cells.begins, need.end)
    work.spend(PER_STRETCH + PER_CELL * max(0, last - first))
    covered = need.begin < need.end and first < last and cells.begins[first] <= need.begin
    covered = covered and cells.ends[last - 1] >= need.end
    gaps = any(cells.ends[k] < cells.begins[k + 1] for k in range(first, last - 1))
    return min(cells.prices[first:last]) if covered and not gaps else 0


def most_shared(cells: Cells, stretches: list[tuple[Need, int]], work: Work) -> list[int]:
    """The sum of the shares of all stretches that reach into each cell.

    Parameters
    ----------
    cells : Cells
    stretches : list of (Need, int)
        Each with its share.
    work : Work
    """
    changes = [0] * (len(cells.begins) + 1)
    work.spend(PER_STRETCH * len(stretches) + PER_CELL * len(changes))
    for need, share in stretches:
        changes[bisect_right(cells.ends, need.begin)] += share
        changes[bisect_left(cells.begins, need.end)] -= share
    total, found = 0, list[int]()
    for change in changes[:-1]:
        total += change
        found.append(total)
    return found


def priced(
    given: Field, machine: Machine, question: Question, needs_of: Callable[[Asked], list[Need] | None]
) -> tuple[list[int | None], int] | None:
    """What each request pays, in units, and what machine time costs of each machine; None if not told.

    Parameters
    ----------
    given : Field
        The certificate.
    machine : Machine
    question : Question
    needs_of : callable
        What a request needs of a machine, its later tokens as one stretch; None if it never is good.
    """
    if "prices" not in given:
        return None
    evidence, work, requests = given["prices"], question.work, question.requests
    piece, parts = evidence["piece"].whole(0, len(machine.alpha) - 1), evidence["parts"].whole(2, MOST_PARTS)
    cells, told = read_cells(evidence["cells"], work), evidence["shares"]
    require(len(told.values()) == len(requests), "prices.shares: not one for each request")
    each = READING_PRICE + COSTING + LOOKING + PIECE * len(machine.alpha)
    work.spend(finding(machine, question) + each * len(requests))
    paid, sharing = list[int | None](), list[tuple[Need, int]]()
    for asked, given_share in zip(requests, told.items(), strict=True):
        share, needs = given_share.whole(0, MAX_INTEGER), needs_of(asked)
        if needs is None:
            paid.append(None)
            continue
        costs = costs_of(machine, asked, needs, piece, parts)
        require(not share or costs.batches > 0, "prices.shares: of a request that has no batches to share")
        price = lowest(cells, costs.later, work)
        require(share <= price, "prices.shares: more than the price of time")
        if share and costs.later is not None:
            sharing.append((costs.later, share))
        paid.append(
            lowest(cells, costs.first, work) * costs.prompt + price * costs.work + share * costs.batches
        )
    for shared, price in zip(most_shared(cells, sharing, work), cells.prices, strict=True):
        require(shared <= price, "prices.shares: those who may share a batch have more than its price")
    room = unit_of(machine) * sum((end - begin) * price for begin, end, price in zip(*cells, strict=True))
    return paid, room


# --- infermax_opt/fleet/checker/pooled.py ---------------------------------------------------------
# Proof: fewest machines.
#
# What the good requests pay in windows, or at prices of time, is at most what all machines have room for there,
# and no more prompts are late than may be.  The proofs stand in `infermax_opt.fleet.bounds`: `pooled`,
# `attainment`, `priced` and `in_turn`.

POOLED_SCHEMA = "infermax-opt/fleet-bound/1"


class Charged(NamedTuple):
    """What a certificate comes to.

    `least`: what the good requests pay together; None if there are too few.  `known`: machines that prompts
    need in turn, or all at prices of time.
    """

    machine: Machine
    windows: list[Window]
    question: Question
    least: int | None
    known: int = 0


def charged(given: Field, work: Work) -> Charged:
    """What a certificate comes to."""
    require_schema(given, POOLED_SCHEMA)
    question = read_question(given, work)
    machine, windows, paid = paid_by(given, question)
    least = least_paid(paid, question.must)
    known = 0
    if least is not None:
        needs_on = partial(prompt_needs, machine)
        known = max(
            machines_in_turn(given, machine, question, needs_on),
            machines_paid(priced(given, machine, question, needs_on), question),
            machines_paid(attained(given, machine, question, partial(grouped_needs, machine)), question),
        )
    return Charged(machine, windows, question, least, known)


def machines_paid(found: tuple[list[int | None], int] | None, question: Question) -> int:
    """Machines whose time costs what good requests pay; 0 if a certificate says nothing of that.

    Parameters
    ----------
    found : (list of int or None, int) or None
        What each request pays, and the time of each machine.
    question : Question
        So many requests can be good as have to.
    """
    if found is None:
        return 0
    paid, room = found
    return -(-(least_paid(paid, question.must) or 0) // max(1, room))


def grouped_needs(machine: Machine, asked: Asked, groups: int) -> list[Need] | None:
    """What a request needs of a machine that serves it to its end, its later tokens in so many groups.

    Parameters
    ----------
    machine, asked, groups
    """
    arrival, prompt, outputs, limits = asked
    return needs_of(machine, arrival, (prompt, outputs), limits, groups)


def prompt_needs(machine: Machine, asked: Asked) -> list[Need] | None:
    """The same with all later tokens as one stretch."""
    return grouped_needs(machine, asked, 1)


def least_paid(paid: list[int | None], must: int) -> int | None:
    """What so many requests pay together at least; None if fewer can be good."""
    known = sorted(some for some in paid if some is not None)
    return sum(known[:must]) if len(known) >= must else None


def fewest_of(found: Charged, least: int | None = None) -> int | str:
    """The number of machines that is proved, or `NEVER`.

    `least` are needed in any case; one without it, if a request has to be good.
    """
    if found.least is None:
        return NEVER
    room = unit_of(found.machine) * sum((end - begin) * weight for begin, end, weight, *_ in found.windows)
    known = min(1, found.question.must) if least is None else least
    return max(known, found.known, -(-found.least // max(1, room)))


# --- infermax_opt/fleet/checker/hours.py ----------------------------------------------------------
# Proof: least time for which machines are on together.
#
# Parts of the trace keep the share each by itself, in one window of time, the same in all; a certificate of
# `pooled` proves how many machines there are; each is switched on once.  The proof stands in
# `infermax_opt.fleet.scaling`.

HOURS_SCHEMA = "infermax-opt/fleet-hours-bound/1"


def seconds_of(given: Field, work: Work) -> Fraction | str:
    """Seconds for which machines are on together, at least; or `NEVER`."""
    require_schema(given, HOURS_SCHEMA)
    parts, least = given["parts"].items(), given["machines"]
    require(len(parts) > 0, "parts: there are none")
    work.spend(OPENING * len(parts))
    start, stay = (quantity(given[key]) for key in ("start_up", "min_stay"))
    machine, windows = parts[0]["machine"].value, parts[0]["windows"].value
    for part in (*parts, least):
        require(part["machine"].value == machine, f"{part.path}.machine: is another one")
    for part in parts:
        require(part["windows"].value == windows, f"{part.path}.windows: are others")
    asked = [part["question"].text() for part in (*parts, least)]
    known = joint_hash([*asked, str(start), str(stay)])
    require(given["question"].value == known, f"question: that of the parts is {known}")
    machines, busy = fewest_of(charged(least, work)), Fraction(0)
    for part in parts:
        found = charged(part, work)
        require(len(found.windows) == 1 and found.windows[0][2] == 1, "windows: not one of weight 1")
        if found.least is None:
            return NEVER
        busy += Fraction(found.least, unit_of(found.machine) * found.machine.ticks_per_second)
    if isinstance(machines, str):
        return NEVER
    return max(busy + machines * start, machines * (start + stay))


# --- infermax_opt/fleet/checker/mix.py ------------------------------------------------------------
# Proof: least price of a mix of machines.
#
# Of each type its windows, and cuts, a weight of each type; then the cheapest whole numbers of machines that
# keep all cuts.  The proof stands in `infermax_opt.fleet.bounds.mix`.

MIX_SCHEMA = "infermax-opt/fleet-mix-bound/1"
#: Most types of machines.
MOST_TYPES = 100
#: Weights of cuts that are multiplied by machines of a mix before the bound is taken from the mixes left.
MOST_WEIGHED = 5 * 10**6
#: Steps of a cut for each request, and of reading and trying it: once, and for each type.
SORTING, WEIGHING, READING_CUT, READING_WEIGHT = 10, 5, 200, 60


class Cut(NamedTuple):
    """Sum of `weights` times the machines of each type is at least `least`."""

    weights: tuple[int, ...]
    least: int


class Cuts(NamedTuple):
    """What a certificate holds, charged: see `charges`."""

    prices: tuple[Fraction, ...]
    cuts: list[Cut]


def charges(given: Field, question: Question) -> tuple[int, list[int | None]]:
    """What a machine of a type has room for, and what each request pays there; None if never in time.

    Parameters
    ----------
    given : Field
        A type of a certificate.
    question : Question
    """
    machine, windows, paid = paid_by(given, question)
    return unit_of(machine) * sum((end - begin) * weight for begin, end, weight, *_ in windows), paid


def cut_of(
    weights: Sequence[int], rooms: Sequence[int], paid: Sequence[Sequence[int | None]], must: int
) -> Cut | None:
    """The cut of these weights; None if fewer requests than must can ever be in time.

    Parameters
    ----------
    weights, rooms : sequence of int
        Of each type.
    paid : sequence of sequence of int or None
        Of each type and request.
    must : int
        Requests that have to be good.
    """
    least = []
    for of_types in zip(*paid, strict=True):
        known = [w * p for w, p in zip(weights, of_types, strict=True) if p is not None]
        if known:
            least.append(min(known))
    if len(least) < must:
        return None
    return Cut(tuple(w * room for w, room in zip(weights, rooms, strict=True)), sum(sorted(least)[:must]))


def cheapest(known: Cuts) -> tuple[Fraction, tuple[int, ...] | None]:
    """Least price of whole numbers of machines that keep all cuts, and one such mix.

    Mixes are taken in the order of what they cost with what cuts ask for beyond them, so the first that
    keeps all cuts is the cheapest.  Where that takes too long, the bound is that of the next mix.  Prices
    are whole numbers of a common part, so what is asked for is rounded up to one.
    """
    part = lcm(*(price.denominator for price in known.prices))
    prices = [int(price * part) for price in known.prices]
    # What each cut asks for, and of the type that pays it at the least price: price and weight.
    some = []
    for cut in known.cuts:
        rates = [(Fraction(p, w), p, w) for p, w in zip(prices, cut.weights, strict=True) if w]
        require(bool(rates) or not cut.least, "cuts: one has no weights")
        if rates:
            some.append((cut, *min(rates)[1:]))

    def beyond(mix: tuple[int, ...]) -> int:
        most = 0
        for (weights, least), price, weight in some:
            lacking = least - sum(w * n for w, n in zip(weights, mix, strict=True))
            if lacking > 0:
                most = max(most, -(-lacking * price // weight))
        return most

    empty = (0,) * len(prices)
    waiting = [(beyond(empty), 0, empty)]
    weighed = (len(prices) + 1) * (len(some) + 1) * (len(prices) + 4)
    for _ in range(1 + MOST_WEIGHED // weighed):
        value, last, mix = heapq.heappop(waiting)
        if not beyond(mix):
            return Fraction(value, part), mix
        for kind in range(last, len(prices)):
            more = (*mix[:kind], mix[kind] + 1, *mix[kind + 1 :])
            cost = sum(price * n for price, n in zip(prices, more, strict=True))
            heapq.heappush(waiting, (cost + beyond(more), kind, more))
    return Fraction(waiting[0][0], part), None


def read_price(given: Field) -> Fraction:
    """The price of an hour of a machine."""
    price = quantity(given)
    if not 0 < price < MAX_INTEGER or price.denominator > MAX_INTEGER:
        given.fail(f"{shown(given.value)} is not above 0, or has too many digits")
    return price


def price_of(given: Field, work: Work) -> Fraction | str:
    """The price of an hour that a certificate proves, or `NEVER`."""
    require_schema(given, MIX_SCHEMA)
    kinds = given["types"].items()
    require(0 < len(kinds) <= MOST_TYPES, f"types: not 1 to {MOST_TYPES}")
    asked = read_question(given, work)
    prices = tuple(read_price(kind["price"]) for kind in kinds)
    known = joint_hash([*(kind["question"].text() for kind in kinds), *map(str, prices)])
    require(given["question"].value == known, f"question: that of types and prices is {known}")
    charged_kinds = [charges(kind, asked) for kind in kinds]
    rooms, paid = [room for room, _ in charged_kinds], [some for _, some in charged_kinds]
    found = [Cut((1,) * len(kinds), min(1, asked.must))]
    work.spend((READING_CUT + READING_WEIGHT * len(kinds)) * len(given["cuts"].values()))
    given_cuts = given["cuts"].items()
    work.spend(len(asked.requests) * (SORTING + WEIGHING * len(kinds)) * (len(given_cuts) + 1))
    for weights in [[0] * len(kinds), *map(_cut_weights, given_cuts)]:
        require(len(weights) == len(kinds), "cuts: not a weight for each type")
        cut = cut_of(weights, rooms, paid, asked.must)
        if cut is None:
            return NEVER
        found.append(cut)
    return cheapest(Cuts(prices, found))[0]


def _cut_weights(given: Field) -> list[int]:
    return [weight.whole(0, MAX_INTEGER) for weight in given.items()]


# --- infermax_opt/fleet/checker/rate.py -----------------------------------------------------------
# Proof: fewest machines at the rate of a certificate and at every higher one.
#
# The same as of `pooled`, in windows long enough for every higher rate.  The proof stands in
# `infermax_opt.fleet.sustains`.

#: Picoseconds by which two arrivals may lie further apart than the rate says, as both are rounded.
ROUNDING = 2


def fewest_from(found: Charged) -> int | str:
    """Machines that are needed at the rate of a certificate and at every higher one, or `NEVER`."""
    if found.least is None:
        return NEVER
    lengths = _lengths(found)
    room = sum(length * window[2] for length, window in zip(lengths, found.windows, strict=True))
    some = min(1, found.question.must)
    return max(some, -(-found.least // (room * unit_of(found.machine)))) if room else some


def _lengths(found: Charged) -> list[int]:
    """Ticks within which the needs of each window lie at this rate and at every higher one."""
    machine, windows, asked = found.machine, found.windows, found.question
    soonest: list[int | None] = [None] * len(windows)
    latest = [0] * len(windows)
    asked.work.spend(finding(machine, asked))
    for date, prompt, outputs, limits in asked.requests:
        needs = needs_of(machine, date, (prompt, outputs), limits, asked.groups) or ()
        start = floor(date * machine.ticks_per_second)
        # Twice, as both ends are kept.
        asked.work.spend(2 * COMPARING * len(windows) * len(needs))
        for k, (begin, end, *_) in enumerate(windows):
            for need in needs:
                if begin <= need[0] and need[1] <= end:
                    offset, known = need[0] - start, soonest[k]
                    soonest[k] = offset if known is None else min(known, offset)
                    latest[k] = max(latest[k], need[1] - start)
    rounding = ceil(machine.ticks_per_second * ROUNDING / 10**12)
    return [
        max(end - begin, late - (early or 0)) + rounding
        for (begin, end, *_), early, late in zip(windows, soonest, latest, strict=True)
    ]


# --- infermax_opt/fleet/checker/split.py ----------------------------------------------------------
# Proof: fewest prefill machines, or fewest decode machines, where each does its part alone.
#
# The same as of `pooled`, with what a request needs of one side.  The proof stands in
# `infermax_opt.fleet.bounds.split`.

SPLIT_SCHEMA = "infermax-opt/fleet-split-bound/1"
SIDES = ("prefill", "decode")


class Apart(NamedTuple):
    """A machine of either side, and the seconds that a token of KV takes from one to the other."""

    prefill: Machine
    decode: Machine
    transfer: Fraction


def split_needs(apart: Apart, side: str, asked: Asked, groups: int) -> list[Need] | None:
    """What a request needs of a side to keep its limits; None if it never does, or fits no machine.

    Parameters
    ----------
    apart : Apart
    side : str
        One of `SIDES`.
    asked : Asked
    groups : int
        Stretches into which later tokens are divided.
    """
    arrival, prompt, outputs, limits = asked
    ends = _dates(apart, prompt, outputs, limits)
    if ends is None or not holds(apart.prefill.kv, apart.decode.kv, prompt, outputs):
        return None
    first, until, due, slack = ends
    if side == "prefill":
        second = apart.prefill.ticks_per_second
        if until is None:
            return []
        spare = ceil((until - first) * second)
        return [Need(floor(arrival * second), ceil((arrival + until) * second), 1, 1, spare)]
    if due is None or outputs == 1:
        return []
    second = apart.decode.ticks_per_second
    ready = floor((arrival + first + apart.transfer * prompt) * second)
    between = ready, ceil((arrival + due) * second)
    return later_needs(apart.decode, (prompt, outputs), between, ceil(slack * second), groups)


def holds(prefill: int, decode: int, prompt: int, outputs: int) -> bool:
    """Whether a prefill and a decode machine of so many tokens of KV can hold a request.

    Parameters
    ----------
    prefill, decode, prompt, outputs
    """
    return prompt <= prefill and (outputs == 1 or prompt + outputs - 1 <= decode)


def _dates(apart: Apart, prompt: int, outputs: int, limits: Any) -> tuple[Fraction, Any, Any, Any] | None:
    """Seconds from arrival to the soonest first token, to the latest first and last one, and spare ones.

    Those are of transfer and later tokens.  None for no end; None for all if never in time.
    """
    ttft, tpot, e2e = limits
    first, rest = Fraction(prompt_ticks(apart.prefill, prompt), apart.prefill.ticks_per_second), Fraction(0)
    if outputs > 1:
        later = later_ticks(apart.decode, prompt, 2, outputs)
        rest = apart.transfer * prompt + Fraction(later, apart.decode.ticks_per_second)
    span = span_of(tpot, outputs)
    if span is not None and rest > span:
        return None
    due = least_of(e2e, None if ttft is None or span is None else ttft + span)
    until = least_of(ttft, None if due is None else due - rest)
    if until is not None and first > until:
        return None
    slack = least_of(span, None if due is None else due - first)
    return first, until, due, None if slack is None else slack - rest


def ends_apart(apart: Apart, asked: Asked) -> Fraction | None:
    """Seconds from arrival to the latest first token of a request that is in time at all; None for no end."""
    _, prompt, outputs, limits = asked
    ends = _dates(apart, prompt, outputs, limits)
    return None if ends is None else ends[1]


def split_hash(apart: Apart, share: Fraction, requests: list[Asked]) -> str:
    """Hash of what is asked: how many of these machines of either side keep the limits of this share.

    Parameters
    ----------
    apart, share, requests
    """
    machines = (question_hash(machine, share, requests) for machine in (apart.prefill, apart.decode))
    return joint_hash([*machines, str(apart.transfer)])


def fewest_apart(given: Field, work: Work) -> tuple[str, int | str]:
    """The side that a certificate speaks of, and the number of its machines that is proved, or `NEVER`."""
    require_schema(given, SPLIT_SCHEMA)
    question, side = read_question(given, work), given["side"].value
    if side not in SIDES:
        given["side"].fail(f"{shown(side)} is none of {', '.join(SIDES)}")
    prefill, decode = (read_machine(given[name]) for name in SIDES)
    if decode.preemption:
        given["decode"].fail("drops what was cached, and computes it again")
    apart = Apart(prefill, decode, quantity(given["transfer"]))
    machine: Machine = getattr(apart, side)
    windows = read_windows(given["windows"], machine, work)
    for one in (prefill, decode):
        work.spend(OPENING + OPENING_PIECE * len(one.alpha))
        work.spend(len(question.requests) * HASHING + finding(one, question))
    asked_hash = split_hash(apart, question.share, question.requests)
    if given["question"].value != asked_hash:
        given["question"].fail(f"machines, transfer, share and requests are of {asked_hash}")
    paid, done = list[int | None](), 0
    for asked in question.requests:
        needs = split_needs(apart, side, asked, question.groups)
        paid.append(None if needs is None else paid_in(machine, windows, asked[1], needs, work))
        # Whoever has a single token is done before the decode pool.
        done += needs is not None and side == "decode" and asked[2] == 1
    least, known = least_paid(paid, question.must), 0
    if least is not None and side == "prefill":
        known = machines_in_turn(given, machine, question, lambda asked: split_needs(apart, side, asked, 1))
    found = Charged(machine, windows, question, least, known)
    return side, fewest_of(found, int(question.must > done))


# --- infermax_opt/fleet/checker/certificate.py ----------------------------------------------------
# The certificate: which proof its schema names, and whether that proves what is claimed.

Proved = TypeVar("Proved")


def least_machines(certificate: Any, most: int | None = None) -> int | str:
    """The number of machines that a certificate proves, or `NEVER`.

    Parameters
    ----------
    certificate : Any
        As parsed.
    most : int, optional
        Steps of checking; as many as for all certificates unless told otherwise.

    Raises
    ------
    Rejected
        If it is malformed, or takes too long to check.
    """
    return guarded(lambda given: fewest_of(charged(given, Work(most))), certificate)


def machines_from(certificate: Any, most: int | None = None) -> int | str:
    """The same at the rate of the certificate and at every higher one."""
    return guarded(lambda given: fewest_from(charged(given, Work(most))), certificate)


def least_price(certificate: Any, most: int | None = None) -> Fraction | str:
    """The price of an hour of a mix that a certificate proves, or `NEVER`; as `least_machines`."""
    return guarded(lambda given: price_of(given, Work(most)), certificate)


def machine_seconds(certificate: Any, most: int | None = None) -> Fraction | str:
    """Seconds for which machines are on together, at least, or `NEVER`; as `least_machines`."""
    return guarded(lambda given: seconds_of(given, Work(most)), certificate)


def least_apart(certificate: Any, most: int | None = None) -> int | str:
    """The number of machines of a pool that a certificate proves, or `NEVER`; as `least_machines`."""
    return guarded(lambda given: fewest_apart(given, Work(most))[1], certificate)


def guarded(proof: Callable[[Field], Proved], certificate: Any) -> Proved:
    """What a certificate, as parsed, proves; whatever is wrong with it is a rejection."""
    try:
        return proof(Field(certificate, "certificate"))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def check(certificate: Any, asked: str | None = None) -> Held:
    """What a certificate holds, if it proves all that it claims.

    Parameters
    ----------
    certificate : Any
        As parsed.
    asked : str or None
        Hash of the question that it has to be of, if any.
    """
    return guarded(lambda given: _held(given, asked), certificate)


def _held(given: Field, asked: str | None) -> Held:
    schema = given["schema"].value
    if schema == POOLED_SCHEMA:
        found = charged(given, Work())
        claims = [("machines", "fleet", "machines", fewest_of(found))]
        if "machines_from" in given:
            what = "fleet at this and every higher rate"
            claims.append(("machines_from", what, "machines", fewest_from(found)))
        held = [_claimed(given, *claim) for claim in claims][-1]
    elif schema == MIX_SCHEMA:
        held = _claimed(given, "price", "price of a mix", "per hour", price_of(given, Work()))
    elif schema == HOURS_SCHEMA:
        held = _claimed(given, "seconds", "machine time", "s", seconds_of(given, Work()))
    elif schema == SPLIT_SCHEMA:
        side, proved = fewest_apart(given, Work())
        held = _claimed(given, "machines", f"{side} pool", "machines", proved)
    else:
        known = ", ".join((POOLED_SCHEMA, MIX_SCHEMA, HOURS_SCHEMA, SPLIT_SCHEMA))
        given["schema"].fail(f"{shown(schema)} is none of {known}")
    require(asked in (None, held.question), f"is for another question, {held.question}")
    return held


def _claimed(given: Field, key: str, what: str, unit: str, proved: Fraction | int | str) -> Held:
    """The claim of a certificate, if no more than what is proved.

    Parameters
    ----------
    given, key, what, unit, proved
    """
    claim, question = given[key], given["question"].text()
    if isinstance(proved, str) or claim.value == NEVER:
        require(claim.value == proved, f"claims {shown(claim.value)}; what is proved is {_told(proved)}")
        return Held(question, what, None, unit)
    claimed = quantity(claim)
    require(claimed <= proved, f"claims {_told(claimed)} {unit}, only {_told(proved)} is proved")
    return Held(question, what, claimed, unit)


def _told(value: Fraction | int | str) -> str:
    """A bound as a message shows it."""
    return value if isinstance(value, str) else seconds(Fraction(value))


# --- infermax_opt/fleet/checker/command.py --------------------------------------------------------
# The command line.

#: What the command `infermax-opt-check` calls.
CHECKER = AloneChecker(check)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(instance=False).parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
