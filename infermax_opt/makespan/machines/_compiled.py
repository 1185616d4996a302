"""The kernels for identical machines, compiled on first use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from infermax_opt.core.compiled import compiled

__all__ = ["fillings", "most_worth", "pack", "repair"]


@functools.cache
def pack() -> Callable[..., tuple[int, int]]:
    """`infermax_opt.makespan.machines._kernel.pack`."""
    from infermax_opt.makespan.machines import _kernel as plain

    found: Callable[..., Any] = compiled(plain.pack, ())
    return found


@functools.cache
def repair() -> Callable[..., int]:
    """`infermax_opt.makespan.machines._kernel.repair_loop`."""
    from infermax_opt.makespan.machines import _kernel as plain

    found: Callable[..., Any] = compiled(plain.repair_loop, plain.HELPERS)
    return found


@functools.cache
def most_worth() -> Callable[..., tuple[Any, Any]]:
    """`infermax_opt.makespan.machines._knapsack.most_worth`."""
    from infermax_opt.makespan.machines import _knapsack as plain

    found: Callable[..., Any] = compiled(plain.most_worth, ())
    return found


@functools.cache
def fillings() -> Callable[..., Any]:
    """`infermax_opt.makespan.machines._knapsack.fillings`."""
    from infermax_opt.makespan.machines import _knapsack as plain

    found: Callable[..., Any] = compiled(plain.fillings, ())
    return found
