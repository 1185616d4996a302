"""The command `infermax-opt-check`: the checker that an instance needs, in the standard library alone."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from infermax_opt.checking.command import AloneChecker, Checker, argument_parser, report
from infermax_opt.checking.errors import Unusable
from infermax_opt.checking.fields import shown
from infermax_opt.checking.profiles import default_profiles

__all__ = ["main"]

Kind = TypeVar("Kind", Checker, AloneChecker)

#: Entry points of checkers, by the names of their problems.
GROUP = "infermax_opt.checkers"
#: Entry points of checkers of certificates that hold their question, by the schemas of these.
GROUP_ALONE = "infermax_opt.alone_checkers"


def main() -> int:
    """Check the certificate named on the command line; return the exit code."""
    parser = argument_parser(default_profiles(), instance=None)
    options = parser.parse_args(sys.argv[1:])
    if None not in (options.instance, options.question):
        parser.error("argument --question: an instance is named, too")
    return report(options, alone_checker_of if options.instance is None else checker_of)


def checker_of(instance: Any) -> Checker:
    """The checker of an instance, as parsed."""
    point = entry_point(GROUP, "instance.problem", instance.get("problem"))
    return loaded(point, Checker)


def alone_checker_of(certificate: Any) -> AloneChecker:
    """The checker of a certificate that holds its question, as parsed."""
    point = entry_point(GROUP_ALONE, "schema of a file named alone", certificate.get("schema"))
    return loaded(point, AloneChecker)


def entry_point(group: str, field: str, name: Any) -> EntryPoint:
    """The entry point of a checker.

    Parameters
    ----------
    group : str
        Of entry points.
    field : str
        Where the name stands in a file.
    name : Any
        What stands there.
    """
    points = entry_points(group=group)
    found = [point for point in points if point.name == name]
    # No other package replaces a checker of this one.
    own = [point for point in found if point.value.startswith("infermax_opt.")]
    if len(own or found) > 1:
        raise Unusable(f"{field}: several packages have a checker of {shown(name)}")
    if not found:
        names = ", ".join(sorted({point.name for point in points}))
        raise Unusable(f"{field}: {shown(name)} has no checker; there are {names}")
    return (own or found)[0]


def loaded(point: EntryPoint, kind: type[Kind]) -> Kind:
    """The checker that an entry point names, of this kind."""
    try:
        checker = point.load()
    except Exception as error:
        raise Unusable(f"{point.value}: cannot be loaded: {type(error).__name__} {error}") from None
    if not isinstance(checker, kind):
        raise Unusable(f"{point.value}: is no {kind.__name__}")
    return checker
