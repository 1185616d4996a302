"""Small work for every kernel of this wing, by which `infermax_opt.warm` has them compiled.

Each kernel is compiled for one set of types, whatever the instance; a test sees that none is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest

__all__ = ["rehearsals"]


def rehearsals() -> Iterator[Callable[[], object]]:
    """Functions that run kernels, each for a moment."""
    yield _annealing
    yield _prices


def _instance() -> PipeliningInstance:
    requests = tuple(PipeliningRequest(f"r{k}", 3 + 2 * k) for k in range(4))
    return PipeliningInstance("rehearsal", requests, capacity=16)


def _annealing() -> None:
    from infermax_opt.pipelining.heuristics.annealing import Annealing

    Annealing(_instance()).run(None, 10, 0)


def _prices() -> None:
    from infermax_opt.pipelining.bounds.prices import price_kinds, priced

    _, kinds = price_kinds(_instance())
    priced(_instance(), kinds, [1] * len(kinds.sizes), Fraction(1))
