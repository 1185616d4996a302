"""Check a lower bound without the package: INSTANCE CERTIFICATE [--profiles DIR] [--max-size MIB].

Runs the one file ``infermax_opt/infermax/checker.py``, or that of another problem of `OTHERS` where the
instance names it.  All need the standard library only and may be copied anywhere.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "infermax_opt"
CHECKER = PACKAGE / "infermax" / "checker.py"
#: Problems whose checker is their own.
OTHERS = ("iteration", "makespan", "pipelining")


def checker(arguments: list[str]) -> Path:
    """The checker for the instance named; what cannot be read is the checker's own to say."""
    tools = runpy.run_path(str(CHECKER))
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("instance", type=Path, nargs="?", default=Path())
    parser.add_argument("--profiles")
    parser.add_argument("--max-size", type=int, default=tools["MAX_BYTES"] // 2**20)
    try:
        options, _ = parser.parse_known_args(arguments)
        value = tools["load"](options.instance, options.max_size * 2**20)
    except (argparse.ArgumentError, SystemExit, MemoryError, tools["Unreadable"]):
        return CHECKER
    problem = value.get("problem")
    return PACKAGE / problem / "checker.py" if problem in OTHERS else CHECKER


if __name__ == "__main__":
    runpy.run_path(str(checker(sys.argv[1:])), run_name="__main__")
