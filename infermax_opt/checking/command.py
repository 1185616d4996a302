"""The command line of every checker."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from infermax_opt.checking.envelope import seconds
from infermax_opt.checking.errors import Rejected, Unreadable, Unusable
from infermax_opt.checking.fields import one_line
from infermax_opt.checking.limits import MAX_BYTES
from infermax_opt.checking.reading import load

#: What `--json` writes.
REPORT_SCHEMA = "infermax-opt/checked/1"


def objective_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds; its unit with a space before it."""
    objective = instance.get("objective", "makespan")
    single = isinstance(objective, str)
    what = objective.replace("throughput", "makespan") if single else "objective"
    return what, " of weight" if objective == "missed" else " s" if single else ""


class Checker(NamedTuple):
    """The checker of a problem.

    `check`: takes instance and certificate, as parsed, and where the cost may be a profile (`profiles`) the
    folder of these; returns the bound, or raises Rejected.  `bounded`: see `objective_and_unit`.
    """

    check: Callable[..., Fraction]
    profiles: bool = False
    bounded: Callable[[Any], tuple[str, str]] = objective_and_unit


def argument_parser(profiles: Path | None = None) -> argparse.ArgumentParser:
    """What a checker is told on its command line; where cost may be a profile, with the folder of these."""
    parser = argparse.ArgumentParser(
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
            f"certified: {instance['name']}: {what} >= {seconds(bound)}{unit}",
        )
        found = {"instance": instance["name"], "bounded": what, "lower_bound": str(bound)}
    line = one_line(text, 1000)
    if options.json:
        whole = {"schema": REPORT_SCHEMA, "outcome": outcome, "message": line, **found}
        sys.stdout.write(json.dumps(whole, indent=2) + "\n")
    else:
        (sys.stderr if code else sys.stdout).write(line + "\n")
    return code
