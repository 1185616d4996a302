"""A problem of another package, watched: whatever fails in it is one line that names the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from infermax_opt.core.columns import Columns, RowKind
from infermax_opt.core.importing import Importer
from infermax_opt.core.plugins import blamed_steps, blaming, sound
from infermax_opt.core.problem import AnyProblem, Heuristic
from infermax_opt.core.result import LowerBound, Result
from infermax_opt.core.suite import Case
from infermax_opt.core.values import AnyInstance
from infermax_opt.core.verification import BaseVerification

if TYPE_CHECKING:
    from infermax_opt.core.solve_options import SolveOptions

__all__ = ["Watched"]

#: What a problem hands over to be called later.
_HANDED = (Case, Columns, Importer, RowKind)


class Watched:
    """Stands for a problem of another package, and has all that it has.

    What fails in a method, in what a method gives to be called later, or because a method gives something
    else than it must, is a `PackageError`.

    Parameters
    ----------
    problem : AnyProblem
    point : EntryPoint
        That names it.
    """

    def __init__(self, problem: AnyProblem, point: EntryPoint):
        self._problem = problem
        self._point = point
        self._kinds: dict[str, type] = {
            "schedule_from_json": problem.schedule,
            "run_heuristic": Heuristic,
            "verify": BaseVerification,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        with blaming(self._point, f".{name}"):
            value = getattr(self._problem, name)
        return self._watch(value, f".{name}", self._kinds.get(name, object))

    def instance_from_json(self, value: object) -> AnyInstance:
        """The instance that a file holds, with all that an instance has."""
        with blaming(self._point, ".instance_from_json"):
            made: AnyInstance = _checked(self._problem.instance_from_json(value), self._problem.instance)
            missing = {"name", "sha256", "objective_name", "requests"} - {*dir(made)}
            if missing:
                raise TypeError(f"{type(made).__name__} has no {', '.join(sorted(missing))}")
        return made

    def bounds(
        self, instance: AnyInstance, *, stop: Callable[[], bool] | None = None
    ) -> Iterator[LowerBound]:
        """The bounds of the problem, each of which is one."""
        with blaming(self._point, ".bounds"):
            found = map(self._sound, self._problem.bounds(instance, stop=stop))
        return blamed_steps(found, self._point, ".bounds")

    def solve(self, instance: AnyInstance, options: SolveOptions) -> Result[Any, Any]:
        """What the problem makes of an instance, with bounds that are some."""
        with blaming(self._point, ".solve"):
            found: Result[Any, Any] = _checked(self._problem.solve(instance, options), Result)
            for lower in (found.lower, found.certified):
                if lower is not None:
                    self._sound(lower)
        return found

    def blamed(self, part: str) -> AbstractContextManager[None]:
        """A block in which whatever fails, or is refused, is the package's doing."""
        return blaming(self._point, part, refusals=True)

    def _sound(self, bound: object) -> LowerBound:
        return sound(bound, checked=self._problem.certification is not None)

    @property
    def row_kind(self) -> RowKind:
        """The rows of its tables, whose cells are their fields."""
        with blaming(self._point, ".row_kind"):
            kind: RowKind = _checked(self._problem.row_kind, RowKind)

        def cells(instance: AnyInstance, result: Result[Any, Any]) -> Mapping[str, Any]:
            found = kind.cells(instance, result)
            for name in found:
                if name not in kind.fields:
                    raise ValueError(f"the cell {name!r} is none of its fields {kind.fields}")
            for name in kind.fields:
                if name not in found:
                    raise ValueError(f"the field {name!r} has no cell")
            return found

        kept: RowKind = self._watch(replace(kind, cells=cells), ".row_kind")
        return kept

    def _watch(self, value: Any, part: str, kind: type = object) -> Any:
        """The same value; what is called in it is watched, and gives values of that kind."""
        if isinstance(value, Iterator):
            return blamed_steps(value, self._point, part)
        if isinstance(value, _HANDED):
            mine = {some.name: self._watch(getattr(value, some.name), part) for some in fields(value)}
            return replace(value, **mine)
        if isinstance(value, Mapping) and all(map(_is_handed, value.values())):
            return {name: self._watch(some, part) for name, some in value.items()}
        if isinstance(value, list | tuple) and value and all(map(_is_handed, value)):
            return [self._watch(some, part) for some in value]
        return self._watched_call(value, part, kind) if _is_handed(value) else value

    def _watched_call(self, call: Callable[..., Any], part: str, kind: type) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            with blaming(self._point, part):
                found = _checked(call(*args, **options), kind)
            return self._watch(found, part)

        return watched


def _is_handed(value: object) -> bool:
    """Whether a value is there to be called later."""
    return isinstance(value, _HANDED) or (callable(value) and not isinstance(value, type))


def _checked(value: Any, kind: type) -> Any:
    """The value, if it is of that kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
