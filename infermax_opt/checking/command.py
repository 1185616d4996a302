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


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all of a checker's are."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, one_line(f"{self.prog}: {message}; --help tells more", 1000) + "\n")


def argument_parser(profiles: Path | None = None) -> argparse.ArgumentParser:
    """What a checker is told on its command line; where cost may be a profile, with the folder of these."""
    parser = OneLineParser(
        description="check a lower bound; exit code 0: it holds, 1: rejected, 2: cannot be read"
    )
    parser.add_argument("instance", type=Path)
    parser.add_argument("certificate", type=Path)
    mebibytes = "most MiB that a file may hold, decompressed (default: %(default)s)"
    parser.add_argument("--max-size", metavar="MIB", type=int, default=MAX_BYTES // 2**20, help=mebibytes)
    parser.add_argument("--json", action="store_true", help="say what came of it as a JSON object")
    if profiles is not None:
        parser.add_argument("--profiles", metavar="DIR", type=Path, default=profiles)
    return parser


def report(options: argparse.Namespace, checker_of: Callable[[Any], Checker]) -> int:
    """Check the files named on the command line, say what came of it, return the exit code.

    Parameters
    ----------
    options : argparse.Namespace
        As parsed.
    checker_of : Callable
        The checker of an instance, as parsed.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started this
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    most, found = options.max_size * 2**20, dict[str, Any]()
    try:
        instance = load(options.instance, most)
        checker = checker_of(instance)
        folder = [options.profiles] if checker.profiles else []
        bound = checker.check(instance, load(options.certificate, most), *folder)
    except Unusable as problem:
        code, outcome, text = 2, "unusable", f"cannot be used: {options.instance}: {problem}"
    except Rejected as problem:
        code, outcome, text = 1, "rejected", f"rejected: {problem}"
    except Unreadable as problem:
        code, outcome, text = 2, "unreadable", f"cannot be read: {problem}"
    except MemoryError:
        code, outcome, text = 2, "unreadable", "cannot be read: there is not enough memory"
    else:
        what, unit = checker.bounded(instance)
        code, outcome, text = (
            0,
            "certified",
            f"certified: {instance['name']}: {what} >= {seconds(bound)} {unit}",
        )
        found = {"instance": instance["name"], "bounded": what, "lower_bound": str(bound), "unit": unit}
    line = one_line(text, 1000)
    if options.json:
        whole = {"schema": REPORT_SCHEMA, "outcome": outcome, "message": line, **found}
        return code if said(sys.stdout, json.dumps(whole, indent=2)) else 2
    return code if said(sys.stderr if code else sys.stdout, line) else 2


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
