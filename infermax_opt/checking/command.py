"""The command line of every checker."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

from infermax_opt.checking.envelope import seconds
from infermax_opt.checking.errors import Rejected, Unreadable, Unusable
from infermax_opt.checking.fields import one_line
from infermax_opt.checking.limits import MAX_BYTES
from infermax_opt.checking.reading import load

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
