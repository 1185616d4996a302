"""Options of one call of `solve`, the same for every problem."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.checks import checked_seconds
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole
from infermax_opt.core.extras import require
from infermax_opt.core.progress import Progress
from infermax_opt.core.result import LowerBound

__all__ = ["SolveOptions"]


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """Options of `infermax_opt.solve`, as it describes them.

    Parameters
    ----------
    engines : sequence of str
        Names that `solver` may have.
    target : Fraction, optional
        Value of the objective that is asked about: it ends once it is known whether a schedule reaches it.
    solver, formulation, warm_start, bounds, time_limit, memory_limit, threads, seed, progress
        As given.

    Raises
    ------
    InputError
        If one is unusable.
    """

    engines: tuple[str, ...]
    solver: str = "auto"
    formulation: str | None = None
    warm_start: Any = "best"
    bounds: tuple[LowerBound, ...] = ()
    time_limit: float | None = 60.0
    memory_limit: int | None = None
    threads: int | None = None
    seed: int = 0
    progress: Progress | None = None
    target: Fraction | None = None

    def __post_init__(self) -> None:
        if self.solver not in self.engines:
            raise InputError(f"{self.solver!r} is none of {', '.join(self.engines)}", field="solver")
        if self.solver == "cpsat":
            require("ortools", "the solver 'cpsat'")
        checked_seconds(self.time_limit, positive=True)
        for name, least in (("memory_limit", 1), ("threads", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and read_whole(value, name) < least:
                raise InputError(f"{value} is less than {least}", field=name)
        if self.target is not None and not isinstance(self.target, int | Fraction):
            raise InputError(f"a {type(self.target).__name__} is no Fraction", field="target")

    def refuse(self, who: str, *names: str) -> None:
        """Refuse options that mean nothing here.

        Parameters
        ----------
        who : str
            Instances that take none of them, in words.
        *names : str
            Options.

        Raises
        ------
        InputError
            If one is given.
        """
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"{who} are solved without one", field=name)
