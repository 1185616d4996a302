"""Lower bounds on the objective, each with its proof.

All arithmetic is exact: integers in ticks of the cost model.  A bound holds for every schedule
that the instance's policy allows.

A closed form of another package is found through the group of entry points ``infermax_opt.bounds``, whose
values are functions that take an instance and give its bounds.  The verifier recomputes it like those of
this package, so whoever installs the package vouches for its proof.  One that cannot be loaded is left out
(`infermax_opt.core.plugins.left_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint

from infermax_opt.core.plugins import blaming, loaded, points_of, signed, sound
from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds.closed_form import closed_form_bounds as own_bounds
from infermax_opt.infermax.data.instance import Instance

__all__ = ["GROUP", "all_own", "closed_form_bounds", "own_bounds"]

#: Entry points of closed forms.
GROUP = "infermax_opt.bounds"

Bound = Callable[[Instance], Iterable[LowerBound]]


@cache
def _installed() -> tuple[EntryPoint, ...]:
    return tuple(sorted(points_of(GROUP), key=lambda point: point.name))


@cache
def _usable() -> tuple[tuple[EntryPoint, Bound], ...]:
    """Those that can be loaded."""
    found = ((point, loaded(point)) for point in _installed())
    return tuple((point, make) for point, make in found if make is not None)


def all_own() -> bool:
    """Whether no other package adds a closed form."""
    return not _installed()


def closed_form_bounds(instance: Instance) -> list[LowerBound]:
    """All closed-form lower bounds in seconds, best first; see `infermax_opt.infermax.bounds.closed_form`."""
    found = own_bounds(instance)
    for point, make in _usable():
        with blaming(point, refusals=True):
            found = [*found, *(signed(sound(bound), point) for bound in make(instance))]
    return sorted(found, key=lambda bound: -bound.value)
