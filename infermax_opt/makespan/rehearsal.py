"""Small work for every kernel of this wing, by which `infermax_opt.warm` has them compiled.

Each kernel is compiled for one set of types, whatever the instance; a test sees that none is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from infermax_opt.makespan.data.instance import ClientRequestGroup, MakespanInstance, linear_levels

__all__ = ["rehearsals"]

#: Lengths that two machines cannot share evenly.
LENGTHS = (9, 7, 7, 5, 4)


def rehearsals() -> Iterator[Callable[[], object]]:
    """Functions that run kernels, each for a moment."""
    yield _bounds
    yield _machines
    yield _annealing
    yield _exact


def _instance(requests: int = 5, clients: int = 2) -> MakespanInstance:
    groups = tuple(ClientRequestGroup(f"r{k}", 30 + k, 4 + k) for k in range(requests))
    levels = linear_levels("0.01", "0.0002", (64, 2048))
    return MakespanInstance("rehearsal", groups, clients, levels, Fraction(1, 50), Fraction(1, 1000))


def _bounds() -> None:
    from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds

    # Few bins: there are more lengths than arcs may have.
    closed_form_makespan_bounds(_instance(24, 12))


def _machines() -> None:
    import numpy as np

    from infermax_opt.makespan.machines import _compiled as kernels
    from infermax_opt.makespan.machines._columns import Columns

    items, where = np.array(LENGTHS, np.int64), np.zeros(len(LENGTHS), np.int64)
    kernels.pack()(items, 2, sum(LENGTHS) // 2, 1, where)
    load, state = np.array([sum(LENGTHS), 0], np.int64), np.zeros(1, np.int64)
    kernels.repair()(items, where, load, 0, 2, 1, 1, state)
    relaxation = Columns(sorted(set(LENGTHS), reverse=True), [1, 2, 1, 1], 2, None)
    relaxation.start(max(LENGTHS))
    relaxation.regroup(None)
    # A load that is too small: it takes another filling.
    relaxation.raise_bound(max(LENGTHS), sum(LENGTHS), 2)


def _annealing() -> None:
    from infermax_opt.makespan.anneal.plans import anneal_plans

    next(anneal_plans(_instance()), None)


def _exact() -> None:
    from infermax_opt.makespan.exact.solve import solve_makespan_exactly

    solve_makespan_exactly(_instance())
