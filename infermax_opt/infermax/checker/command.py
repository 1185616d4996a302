"""Stand-alone checker of lower-bound certificates of InferMax instances: standard library only.

    python check_infermax.py INSTANCE CERTIFICATE [--profiles DIR] [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.infermax.bounds`.
"""

from __future__ import annotations

import sys

from infermax_opt.checking.command import Checker, argument_parser, report
from infermax_opt.checking.profiles import default_profiles
from infermax_opt.infermax.checker.certificate import check

#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check, profiles=True)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(default_profiles()).parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
