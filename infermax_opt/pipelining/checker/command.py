"""Stand-alone checker of certificates of bounds of pipelining instances: standard library only.

    python check_pipelining.py INSTANCE CERTIFICATE [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.pipelining.bounds`.
"""

from __future__ import annotations

import sys
from typing import Any

from infermax_opt.checking.command import Checker, argument_parser, report
from infermax_opt.pipelining.checker.certificate import check


def share_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds, and its unit."""
    objective = instance.get("objective", "tokens")
    return f"capacity / {objective}", f"tokens/{'token' if objective == 'tokens' else objective}"


#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check, bounded=share_and_unit)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser().parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
