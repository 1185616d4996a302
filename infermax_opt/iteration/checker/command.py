"""Stand-alone checker of lower-bound certificates of iteration instances: standard library only.

    python check_iteration.py INSTANCE CERTIFICATE [--profiles DIR] [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.iteration.bounds`.
"""

from __future__ import annotations

import sys
from typing import Any

from infermax_opt.checking.command import Checker, argument_parser, report
from infermax_opt.checking.profiles import default_profiles
from infermax_opt.iteration.checker.certificate import check

#: Units of the objectives.
UNITS = {"seconds_per_be_token": "s per BE token", "seconds_per_value": "s per unit of value"}


def ratio_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds, and its unit."""
    return instance["objective"], UNITS[instance["objective"]]


#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check, profiles=True, bounded=ratio_and_unit)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(default_profiles()).parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
