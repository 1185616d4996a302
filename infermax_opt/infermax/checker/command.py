"""Stand-alone checker of lower-bound certificates of InferMax instances: standard library only.

    python check_infermax.py INSTANCE CERTIFICATE [--profiles DIR] [--max-size MIB] [--json]

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read, or the instance is none.  Checking has a limit, `MAX_STEPS`: what would take
more is rejected.  Formats: `docs/checkers.md`; proofs: `infermax_opt.infermax.bounds`.
"""

from __future__ import annotations

import sys
from typing import Any

from infermax_opt.checking.command import Checker, argument_parser, report
from infermax_opt.checking.fields import Field
from infermax_opt.checking.profiles import default_profiles
from infermax_opt.infermax.checker.certificate import check

#: Units of the metrics that are no seconds.
UNITS = {
    "mean_normalised_latency": "s/token",
    "max_normalised_latency": "s/token",
    "class_spread": "s/token",
    "missed": "weight",
    "unserved": "weight",
    "unserved_tokens": "tokens",
}


def metric_and_unit(instance: Any) -> tuple[str, str]:
    """What a certificate of an instance, as parsed, bounds, and its unit; weighted sums may have several."""
    objective = instance.get("objective", "makespan")
    if isinstance(objective, str):
        metric = objective.replace("throughput", "makespan")
        return metric, UNITS.get(metric, "s")
    if "at_most" in objective:
        return "objective", "of the limits"
    weights = Field(objective, "instance.objective")
    units = {UNITS.get(metric, "s") for metric in objective if weights[metric].decimal()}
    return "objective", units.pop() if len(units) == 1 else "(weighted sum)"


#: What the command `infermax-opt-check` calls.
CHECKER = Checker(check, profiles=True, bounded=metric_and_unit)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(default_profiles()).parse_args(arguments), lambda _: CHECKER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
