"""The problems that are installed: those that an entry point of the group ``infermax_opt.problems`` names.

One that cannot be used is left out, with the reason (`LeftOut`); the others work as if it were not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, TypeVar, cast

from infermax_opt.core.errors import InputError, PackageError
from infermax_opt.core.plugins import blaming, is_own, of_one_name, ordered_points, origin, package_of
from infermax_opt.core.problem import AnyProblem, Problem
from infermax_opt.core.suite import check_name
from infermax_opt.core.values import AnySchedule

if TYPE_CHECKING:
    from infermax_opt.core.importing import Importer

__all__ = [
    "GROUP",
    "LeftOut",
    "first_of_each",
    "first_problem",
    "importers",
    "left_out",
    "left_out_so_far",
    "problem_measured",
    "problem_named",
    "problem_names",
    "problem_of",
    "problem_of_instance",
    "problems",
]

T = TypeVar("T")

#: Entry points of problems.
GROUP = "infermax_opt.problems"
#: Problems of this package that are loaded.
_LOADED: list[AnyProblem] = []


@dataclass(frozen=True)
class LeftOut:
    """A problem that is installed and cannot be used.

    Attributes
    ----------
    name, package : str
        Of the entry point.
    reason : str
        In one line, which names the package.
    cause : BaseException or None
        What its package raised.
    """

    name: str
    package: str
    reason: str
    cause: BaseException | None = None

    def refusal(self) -> InputError:
        """The error of whoever asks for it."""
        error = PackageError(self.reason, field=self.name, source=GROUP)
        error.__cause__ = self.cause
        return error


# --- what is asked of them ----------------------------------------------------------------------


def problems() -> tuple[AnyProblem, ...]:
    """All problems that can be used; this package's own first, then by name."""
    return _installed()[0]


def left_out() -> tuple[LeftOut, ...]:
    """All that cannot be used."""
    return _installed()[1]


def left_out_so_far() -> tuple[LeftOut, ...]:
    """Those that this process has noticed: none where it asked for no problem yet."""
    return left_out() if _installed.cache_info().currsize else ()


def problem_names() -> tuple[str, ...]:
    """Names of all problems that can be used, in their order."""
    return tuple(problem.name for problem in problems())


def problem_named(name: str) -> AnyProblem | None:
    """The problem of that name, or None.

    Raises
    ------
    InputError
        If it is left out.
    """
    if all(map(is_own, _points())):
        return next((_load(point) for point in _points() if point.name == name), None)
    for problem in problems():
        if problem.name == name:
            return problem
    for some in left_out():
        if some.name == name:
            raise some.refusal()
    return None


def first_problem() -> AnyProblem:
    """The problem of instances that name none."""
    return next(iter(_one_by_one()))


def problem_of(value: object) -> AnyProblem:
    """The problem that an instance or schedule is of.

    Raises
    ------
    InputError
        If it is of none.
    """
    # Of the problems that share a class of schedules each will do, and others need not be loaded.
    for problem in _LOADED:
        if type(value) in (problem.instance, problem.schedule):
            return problem
    for problem in _one_by_one():
        if isinstance(value, (problem.instance, problem.schedule)):
            return problem
    raise InputError(f"a {type(value).__name__} is no instance or schedule of any problem")


def problem_of_instance(value: object) -> AnyProblem:
    """The problem that an instance is of.

    Raises
    ------
    InputError
        If it is none.
    """
    problem = problem_of(value)
    if not isinstance(value, problem.instance):
        raise InputError(f"a {type(value).__name__} is no instance", field="instance")
    return problem


def problem_measured(schedule: AnySchedule, metrics: Collection[str]) -> AnyProblem:
    """The problem whose schedule has these metrics: some problems share one class of schedules.

    Parameters
    ----------
    schedule : schedule of any problem
    metrics : collection of str
        Their names; the problem that has most of them is taken, the first of several.
    """
    sharing = (problem for problem in problems() if isinstance(schedule, problem.schedule))
    return max(sharing, key=lambda problem: len(problem.metrics.definitions.keys() & set(metrics)))


def importers() -> dict[str, Importer]:
    """What ``import`` can make of a trace, by the name that ``--problem`` takes."""
    return first_of_each(problem.importers() for problem in problems())


def first_of_each(named: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """All of these by name; of those with one name, the first: no other package replaces the house's own."""
    found: dict[str, T] = {}
    for some in named:
        found = {**found, **{name: value for name, value in some.items() if name not in found}}
    return found


# --- how they are found -------------------------------------------------------------------------


@cache
def _points() -> tuple[EntryPoint, ...]:
    """Entry points of problems; this package's own first."""
    return ordered_points(GROUP)


def _one_by_one() -> Iterable[AnyProblem]:
    """As `problems`; the house's own are loaded as they are asked for, where there are no others."""
    return map(_load, _points()) if all(map(is_own, _points())) else problems()


@cache
def _installed() -> tuple[tuple[AnyProblem, ...], tuple[LeftOut, ...]]:
    """The problems that can be used, and those that cannot."""
    points = _points()
    wrong = {
        point: LeftOut(point.name, package_of(point), reason) for point, reason in of_one_name(points).items()
    }
    found: dict[EntryPoint, AnyProblem] = {}
    for point in points:
        if point not in wrong:
            try:
                found[point] = _load(point)
            except InputError as error:
                if is_own(point):
                    raise
                wrong[point] = _left_out(point, error)
    wrong.update(_of_one_key(found))
    return tuple(problem for point, problem in found.items() if point not in wrong), tuple(wrong.values())


def _left_out(point: EntryPoint, error: InputError) -> LeftOut:
    """The problem of an entry point that raised this when it was loaded."""
    named = isinstance(error, PackageError)
    reason = error.problem if named else f"{origin(point)}: {error}"
    return LeftOut(point.name, package_of(point), reason, error.__cause__ if named else error)


def _of_one_key(found: Mapping[EntryPoint, AnyProblem]) -> dict[EntryPoint, LeftOut]:
    """Those whose schedules have the key of another class of schedules; the house's own keeps it."""
    wrong: dict[EntryPoint, LeftOut] = {}
    for rivals in ([point for point in found if is_own(point)], list(found)):
        standing = [point for point in found if point not in wrong]
        for point in standing:
            mine = found[point]
            for rival in rivals:
                other = found[rival]
                clash = other.decisions == mine.decisions and other.schedule is not mine.schedule
                if clash and rival in standing and not is_own(point):
                    text = f"{origin(rival)} has schedules of the key {mine.decisions!r}, too"
                    wrong[point] = LeftOut(point.name, package_of(point), f"{origin(point)}: {text}")
    return wrong


@cache
def _load(point: EntryPoint) -> AnyProblem:
    """The problem that an entry point names.

    Raises
    ------
    InputError
        If it cannot be loaded, or lacks what all others have.
    """
    with blaming(point):
        problem: AnyProblem = point.load()()
        _require_names(problem, point.name)
    if is_own(point):
        _LOADED.append(problem)
        return problem
    from infermax_opt.core.watched import Watched  # loads much that no problem of this package needs

    watched = cast(AnyProblem, Watched(problem, point))
    with blaming(point):
        _require_lists(watched)
    return watched


def _require_names(problem: AnyProblem, name: str) -> None:
    """Refuse a problem without its names, or that goes by another name than its entry point."""
    _require(problem, "the class", ["name", "about", "instance", "schedule", "metrics", "decisions"])
    if problem.name != name:
        raise ValueError(f"its name is {problem.name!r}; the entry point must be called so, too")
    for kind in (problem.instance, problem.schedule, problem.metrics):
        if not isinstance(kind, type):
            raise TypeError(f"{kind!r} is no class")
    _require(problem.instance, problem.instance.__name__, ["unit"])
    _require_metrics(problem.metrics)
    if not isinstance(problem, Problem):
        raise TypeError(f"the class is not derived from {Problem.__module__}.{Problem.__name__}")


def _require_metrics(kind: type[Any]) -> None:
    """Refuse a class of metrics that cannot be shown."""
    _require(kind, kind.__name__, ["definitions", "units", "items"])
    told = kind.definitions
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no dataclass")
    # A field that is not compared is no metric, but what metrics are formed of.
    untold = [metric.name for metric in fields(kind) if metric.compare and metric.name not in told]
    if untold:
        raise TypeError(f"{kind.__name__}.definitions has no {', '.join(untold)}")


def _require(owner: object, called: str, names: Iterable[str]) -> None:
    """Refuse what lacks one of these names."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise TypeError(f"{called} has no {', '.join(missing)}")


def _require_lists(problem: AnyProblem) -> None:
    """Ask once what every command asks of all problems: one that fails here would stop them all."""
    for names in (problem.engines, problem.heuristics(), problem.formulations(), problem.row_kind.fields):
        ", ".join(names)
    problem.heuristics_text()
    for importer in problem.importers().values():
        importer.options()
    for name in problem.suites():
        check_name(name, "suite")
