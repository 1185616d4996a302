"""The command `infermax-opt-check`: the checker that an instance needs, in the standard library alone."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from infermax_opt.checking.command import Checker, argument_parser, report
from infermax_opt.checking.errors import Unusable
from infermax_opt.checking.fields import shown
from infermax_opt.checking.profiles import default_profiles

__all__ = ["main"]

#: Entry points of checkers, by the names of their problems.
GROUP = "infermax_opt.checkers"


def main() -> int:
    """Check the certificate named on the command line; return the exit code."""
    return report(argument_parser(default_profiles()).parse_args(sys.argv[1:]), checker_of)


def checker_of(instance: Any) -> Checker:
    """The checker of an instance, as parsed."""
    problem = instance.get("problem")
    points = entry_points(group=GROUP)
    found = [point for point in points if point.name == problem]
    # No other package replaces a checker of this one.
    own = [point for point in found if point.value.startswith("infermax_opt.")]
    if len(own or found) > 1:
        raise Unusable(f"instance.problem: several packages have a checker of {shown(problem)}")
    if not found:
        names = ", ".join(sorted({point.name for point in points}))
        raise Unusable(f"instance.problem: {shown(problem)} has no checker; there are {names}")
    return loaded((own or found)[0])


def loaded(point: EntryPoint) -> Checker:
    """The checker that an entry point names."""
    try:
        checker = point.load()
    except Exception as error:
        raise Unusable(f"{point.value}: cannot be loaded: {type(error).__name__} {error}") from None
    if not isinstance(checker, Checker):
        raise Unusable(f"{point.value}: is no Checker")
    return checker
