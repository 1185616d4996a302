"""Suites: the named instances that tables are made of; each problem has its own.

A case is cheap to name and builds its instance on demand, equal every time: nothing here depends
on the clock, the machine or the order of calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import first_of_each, left_out, problems
from infermax_opt.core.shown import ShownRows, request_count
from infermax_opt.core.suite import Case, check_name

__all__ = ["Case", "Suite", "get_suite", "suite_names"]


@dataclass(frozen=True)
class Suite(ShownRows):
    """Named instances in the order of a table's rows.

    Raises
    ------
    InputError
        If a name cannot be a file name, or two cases share one.
    """

    name: str
    cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        check_name(self.name, "suite")
        if len({case.name for case in self.cases}) < len(self.cases):
            raise InputError("two cases share a name", field=f"suite {self.name}")

    def facts(self) -> Mapping[str, Any]:
        """Name, number of rows, and what the first is called."""
        return {
            "suite": self.name,
            "cases": len(self.cases),
            "first": self.cases[0].name if self.cases else None,
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each case, whose instance is built for it."""
        for case in self.cases:
            instance: Any = case.build()
            yield {
                "name": case.name,
                "requests": request_count(instance),
                "objective": instance.objective_name,
            }

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, name: str) -> Case:
        """The case of that name.

        Raises
        ------
        InputError
            If there is none.
        """
        for case in self.cases:
            if case.name == name:
                return case
        some = f"; cases are named like {self.cases[0].name!r}" if self.cases else ""
        raise InputError(f"no case {name!r} in {self.name!r}{some}", field="case")

    def select(self, only: Sequence[str] = (), first: int | None = None) -> tuple[Case, ...]:
        """Return the cases whose name matches one of the globs `only` (all, if none), the first so many.

        Raises
        ------
        InputError
            If a glob matches nothing.
        """
        for glob in only:
            if not any(fnmatchcase(case.name, glob) for case in self.cases):
                raise InputError(
                    f"{glob!r} matches no row of {self.name!r}; rows are named like {self.cases[0].name!r}",
                    field="only",
                )
        return tuple(c for c in self.cases if not only or any(fnmatchcase(c.name, g) for g in only))[:first]


def suite_names() -> tuple[str, ...]:
    """Names of the shipped suites."""
    return tuple(_suites())


def get_suite(name: str, data: str | os.PathLike[str] | None = None) -> Suite:
    """Return a shipped suite.

    Parameters
    ----------
    name : str
    data : path, optional
        Folder of the trace files, for ``azure``; default: what
        `infermax_opt.infermax.data.suites.DATA` names in the environment.

    Raises
    ------
    InputError
        If there is no such suite.  A missing trace is noticed when its case is built.
    """
    suites = _suites()
    if name not in suites:
        missing = "".join(f"; left out: {some.reason}" for some in left_out())
        raise InputError(f"no suite {name!r}; there are {', '.join(suites)}{missing}", field="suite")
    return Suite(name, tuple(suites[name](None if data is None else Path(data))))


def _suites() -> dict[str, Callable[[Path | None], Sequence[Case]]]:
    """The suites of all problems by name."""
    return first_of_each(problem.suites() for problem in problems())
