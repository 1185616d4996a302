"""Jobs on identical machines, so that the last one ends as early as possible: P||Cmax.

What is tried, in this order, until the makespan of an assignment meets a lower bound:

1. closed bounds, longest-first, and exact splits of two machines (`_split`); most instances with
   five or more jobs per machine end here, after milliseconds and without numpy;
2. bounds that take numpy: lifted and packing bounds (`_bounds`);
3. exact search, for few jobs, and repair of a few machines at a time (`_kernel`);
4. the covering relaxation (`_columns`), whose bound is proved in whole numbers and nearly always
   the optimum where machines have two or three jobs, and dives that round it;
5. more repairs and dives, exact search and an arc-flow model (`_arcflow`) in turn.

All bounds but ``arc-flow`` are exact arithmetic.  That one is HiGHS's word that a model whose objective
counts jobs left out cannot reach 0.  A bound of HiGHS is trusted with an integrality margin of 1e-6 or
more only; here it has to prove an objective above 0.5.

References: Graham (1969); Martello and Toth (1990); Valério de Carvalho (1999); Fekete and Schepers
(2001); Haouari, Gharbi and Jemmali (2006); Dell'Amico, Iori, Martello and Monaci (2008); Mrad
and Souayah (2018).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from infermax_opt.core.checks import checked_seconds
from infermax_opt.core.errors import InputError
from infermax_opt.makespan.machines._search import Search

__all__ = ["Assignment", "solve_parallel_machines"]


@dataclass(frozen=True)
class Assignment:
    """Jobs on machines.

    Parameters
    ----------
    machine : tuple of int
        Per job, 0..m-1.
    makespan : int
        Largest sum of lengths on a machine, in the unit of the lengths.
    lower_bound : int
        No assignment has a smaller makespan.
    proof : str
        What proved the lower bound: ``average``, ``longest``, ``pair`` (of the m + 1 longest jobs two share
        a machine), ``counting`` (the same for more), ``lifted``, ``packing`` (a dual-feasible
        function), ``fillings`` (prices of jobs by which no machine is filled well enough), ``search`` (every
        possibility was tried) or ``arc-flow`` (HiGHS).
    """

    machine: tuple[int, ...]
    makespan: int
    lower_bound: int
    proof: str

    @property
    def optimal(self) -> bool:
        """Whether the makespan is proved to be the least."""
        return self.makespan == self.lower_bound


def solve_parallel_machines(
    lengths: Sequence[int], machines: int, *, time_limit: float | None = None, seed: int = 0
) -> Assignment:
    """Assign jobs to identical machines so that the largest load is as small as possible.

    Parameters
    ----------
    lengths : sequence of int
        One or more, in any unit.
    machines : int
    time_limit : float, optional
        Seconds after which the best found is returned; looked at between steps, which take
        fractions of a second (and up to seconds more where kernels are compiled for the first time).
        Without one the effort is limited by counting: minutes at most for a thousand jobs, and the
        result may still be unproved.
    seed : int
        The same seed gives the same result, unless the time limit ended the search.

    Returns
    -------
    Assignment

    Raises
    ------
    InputError
        No machines, a length that is not a whole number of 1 or more, or a negative time limit.
    """
    _check(lengths, machines, time_limit, seed)
    if not lengths:
        return Assignment((), 0, 0, "average")
    deadline = None if time_limit is None else time.monotonic() + time_limit
    unit = math.gcd(*lengths)
    search = Search(
        sorted((p // unit for p in lengths), reverse=True), min(machines, len(lengths)), seed, deadline
    )
    search.run()
    homes: dict[int, list[int]] = {}
    for k, part in enumerate(search.parts):
        for length in part:
            homes.setdefault(length * unit, []).append(k)
    machine = tuple(homes[p].pop() for p in lengths)
    return Assignment(machine, search.high * unit, search.low * unit, search.proof)


def _check(lengths: Sequence[int], machines: int, time_limit: float | None, seed: int) -> None:
    if not _whole(machines) or machines < 1:
        raise InputError(f"{machines!r} machines: a whole number of 1 or more is needed", field="machines")
    for i, length in enumerate(lengths):
        if not _whole(length) or length < 1:
            raise InputError(f"{length!r} is not a whole number of 1 or more", field=f"lengths[{i}]")
    if not _whole(seed):
        raise InputError(f"{seed!r} is not a whole number", field="seed")
    checked_seconds(time_limit)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
