"""Compilation on first use: numba loads only when compiled code is called for."""

from __future__ import annotations

import inspect
import sys
import zlib
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

__all__ = ["compiled"]


def compiled(
    function: Any,
    helpers: Sequence[Callable[..., Any]],
    *,
    allocates: bool = True,
    helpers_allocate: bool | None = None,
) -> Callable[..., Any]:
    """Compile `function`, or load it from numba's cache on disk.

    Parameters
    ----------
    function : plain Python function in numba's subset
    helpers : sequence of plain Python functions
        What it calls, callees first.  They stay callable as plain Python.
    allocates : bool
        Whether `function` makes arrays or lists.  Where nothing does, references to the columns that
        are passed around are not counted, which can take most of the time.
    helpers_allocate : bool, optional
        Whether any helper does; None is what `allocates` says.

    Notes
    -----
    Compiled code lets other threads run.

    numba drops a cached function when the file of that function changes, but not when a helper
    in another file does.  A stale batch time would break the law that there is only one, so the
    name under which the function is cached holds a checksum of its helpers' files.
    """
    import numba
    from numba.extending import register_jitable

    options = {} if allocates else {"_nrt": False}
    counts = allocates if helpers_allocate is None else helpers_allocate
    register = register_jitable if counts else register_jitable(_nrt=False)
    for helper in helpers:
        register(helper)
    modules = sorted({helper.__module__ for helper in helpers})
    sources = "".join(inspect.getsource(sys.modules[name]) for name in modules)
    keyed = FunctionType(function.__code__, function.__globals__, function.__name__)
    keyed.__qualname__ = f"{function.__qualname__}_{zlib.crc32(sources.encode()):08x}"
    keyed.__module__ = function.__module__
    return numba.njit(cache=True, nogil=True, **options)(keyed)  # type: ignore[no-any-return]
