"""The loops of the admission planner, compiled, and their knobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.planners.admission import _kernel, _spread_kernel

if TYPE_CHECKING:
    from infermax_opt.infermax.planners.admission.choice import Choice

__all__ = ["loop_of"]


def loop_of(choice: Choice) -> tuple[Callable[..., Any], tuple[int, ...]]:
    """The loop that a choice runs, and its knobs."""
    if choice.is_spread:
        knobs = _spread_kernel.SpreadKnobs(choice.cap, choice.budget, choice.share, choice.look)
        return _spread_loop(), knobs
    return _loop(), _kernel.Knobs(choice.cap, choice.budget, choice.most, choice.pause, choice.look)


@functools.cache
def _loop() -> Callable[..., Any]:
    return compiled(_kernel.admission_loop, _kernel.HELPERS)


@functools.cache
def _spread_loop() -> Callable[..., Any]:
    return compiled(_spread_kernel.spread_loop, _spread_kernel.HELPERS)
