"""Check a lower bound without the package: INSTANCE CERTIFICATE [--profiles DIR] [--max-size MIB] [--json].

Runs the file of `scripts/checkers` that is for the instance's problem, `check_infermax.py` where there is
none; `check_fleet.py` where one file is named, a certificate that holds its question.  All need the standard
library only and may be copied anywhere.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

CHECKERS = Path(__file__).resolve().parent / "checkers"
#: The checker of what names no problem that has one.
FIRST = CHECKERS / "check_infermax.py"
#: The checker of certificates that hold their question.
ALONE = CHECKERS / "check_fleet.py"


def checker(arguments: list[str]) -> Path:
    """The checker for the instance named; what cannot be read is the checker's own to say."""
    tools = runpy.run_path(str(FIRST))
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("instance", type=Path, nargs="?", default=Path())
    parser.add_argument("certificate", nargs="?")
    parser.add_argument("--question")
    parser.add_argument("--profiles")
    parser.add_argument("--max-size", type=int, default=tools["MAX_BYTES"] // 2**20)
    try:
        options, _ = parser.parse_known_args(arguments)
        if options.instance != Path() and options.certificate is None:
            return ALONE
        value = tools["load"](options.instance, options.max_size * 2**20)
    except (argparse.ArgumentError, SystemExit, MemoryError, tools["Unreadable"]):
        return FIRST
    known = {path.stem.removeprefix("check_"): path for path in CHECKERS.glob("check_*.py")}
    problem = value.get("problem")
    return known.get(problem, FIRST) if isinstance(problem, str) else FIRST


if __name__ == "__main__":
    runpy.run_path(str(checker(sys.argv[1:])), run_name="__main__")
