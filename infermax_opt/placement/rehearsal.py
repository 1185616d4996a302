"""Small work for every kernel of this wing, by which `infermax_opt.warm` has them compiled.

Each kernel is compiled for one set of types, whatever the instance; a test sees that none is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from infermax_opt.placement.data.generate import generate, paper_like

__all__ = ["rehearsals"]

REQUESTS = 8


def rehearsals() -> Iterator[Callable[[], object]]:
    """Functions that run kernels, each for a moment."""
    yield _heuristics
    yield _packing
    yield _configurations


def _heuristics() -> None:
    from infermax_opt.placement.heuristics.place import place

    place(paper_like(requests=REQUESTS), "best-fit")


def _packing() -> None:
    from infermax_opt.placement.heuristics.pack import pack

    pack(paper_like(requests=REQUESTS), 2)


def _configurations() -> None:
    from infermax_opt.placement.bounds.configurations import configurations_bound
    from infermax_opt.placement.heuristics.place import place

    # Of its requests a worker takes few.
    instance = generate("long-prompts", requests=REQUESTS)
    configurations_bound(instance, place(instance, "best-fit"), known=0, enough=REQUESTS)
