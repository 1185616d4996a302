"""Stand-alone checker of certificates of fleets: standard library only.

    python check_fleet.py CERTIFICATE [--question HASH] [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  A certificate holds its question: machines,
requests with their limits, and the share that keeps these; the hash of it is recomputed and told.  With
``--question`` a certificate of another question is rejected.  Exit code 0: it holds; 1: rejected; 2: the file
(``.gz`` or not) cannot be read.  Checking has a limit, `MAX_STEPS`: what would take more is rejected.
Formats: `docs/checkers.md`; proofs: `infermax_opt.fleet.bounds`.
"""

from __future__ import annotations

import sys

from infermax_opt.checking.command import AloneChecker, argument_parser, report
from infermax_opt.fleet.checker.certificate import check

#: What the command `infermax-opt-check` calls.
CHECKER = AloneChecker(check)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(instance=False).parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
