"""What there is to choose from: versions, problems, schedulers, formats."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.extras import missing_extras
from infermax_opt.core.registry import importers, problem_named
from infermax_opt.core.registry import problems as installed
from infermax_opt.core.shown import Shown
from infermax_opt.core.versions import package_versions

__all__ = ["ProblemEntry", "formats", "problems", "schedulers", "versions"]


@dataclass(frozen=True)
class ProblemEntry(Shown):
    """One kind of instances.

    Attributes
    ----------
    name, about : str
    engines : tuple of str
        What `solver` of `infermax_opt.solve` may be.
    schedulers, formulations, suites : tuple of str
        Names of its heuristics, of what `formulation` may be, and of its suites.
    """

    name: str
    about: str
    engines: tuple[str, ...]
    schedulers: tuple[str, ...]
    formulations: tuple[str, ...]
    suites: tuple[str, ...]

    def facts(self) -> Mapping[str, Any]:
        """All of it."""
        return asdict(self)


def versions() -> dict[str, str]:
    """Versions of this package, of what it computes with, and of Python; extras that are not installed."""
    found = {**package_versions(), "python": platform.python_version()}
    missing = "; ".join(f"{extra} ({', '.join(lacks)})" for extra, lacks in missing_extras().items())
    return {**found, "not installed": missing} if missing else found


def problems() -> tuple[ProblemEntry, ...]:
    """All kinds of instances that can be used, those of this package first."""
    return tuple(
        ProblemEntry(
            name=problem.name,
            about=problem.about,
            engines=tuple(problem.engines),
            schedulers=tuple(problem.heuristics()),
            formulations=tuple(problem.formulations()),
            suites=tuple(problem.suites()),
        )
        for problem in installed()
    )


def schedulers(problem: str | None = None) -> tuple[str, ...]:
    """Names of the schedulers, methods, heuristics or policies of a problem.

    Parameters
    ----------
    problem : str, optional
        Its name; default: that of instances that name none.

    Raises
    ------
    InputError
        If there is no such problem.
    """
    if problem is None:
        return tuple(installed()[0].heuristics())
    found = problem_named(problem)
    if found is None:
        known = ", ".join(some.name for some in installed())
        raise InputError(f"{problem!r} is none of {known}", field="problem")
    return tuple(found.heuristics())


def formats() -> dict[str, tuple[str, ...]]:
    """Formats of files by what they are for.

    ``traces`` are those of `import_trace` and `read_trace`, ``runs`` those of `read_run`, ``requests`` those
    of `export_requests`, ``instances`` the problems that `import_trace` makes instances of.
    """
    from infermax_opt.files.traces import FORMATS as TRACES
    from infermax_opt.foreign.export.requests import REQUEST_FORMATS as REQUESTS
    from infermax_opt.foreign.reading import RUN_FORMATS as RUNS

    def ordered(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names))

    return {
        "traces": ordered({*TRACES, *RUNS}),
        "runs": ordered(RUNS),
        "requests": ordered(REQUESTS),
        "instances": tuple(importers()),
    }
