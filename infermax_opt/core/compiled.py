"""Compilation on first use: numba loads only when compiled code is called for.

What was compiled is kept on disk beside the source (or in numba's folder of the user), so a kernel is
compiled once after the package is installed or its source changes.  That takes seconds, of which
`tell_compiling` tells.

Without numba kernels run as plain Python.  The outcome is the same; it takes many times longer, which is
told once.
"""

from __future__ import annotations

import functools
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

from infermax_opt.core.extras import absent, remedy

__all__ = ["compiled", "in_plain_python", "tell_compiling", "tell_plain"]

#: So many times longer does plain Python take for a step of a kernel, a few tenths of a microsecond compiled.
SLOWDOWN = 300
#: Seconds of plain Python after which it is told that numba is missing, and the words.
PATIENCE = 2.0
PLAIN = "kernels run as plain Python, many times slower"
#: Receives a line when a kernel has to be compiled.
_tell: Callable[[str], None] | None = None
#: Qualified names of the kernels, each with its name for people.
_kernels: dict[str, str] = {}


def tell_compiling(tell: Callable[[str], None] | None) -> None:
    """Say from now on what is being compiled, and why one has to wait."""
    global _tell
    _tell = tell


def compiled(
    function: Any,
    helpers: Sequence[Callable[..., Any]],
    *,
    allocates: bool = True,
    helpers_allocate: bool | None = None,
    small: bool = False,
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
    small : bool
        Whether the work is less than that of compiling.  `function` itself is returned then, unless its
        compiled code is on disk.  Only for whole numbers that cannot overflow: the outcome is the same.

    Notes
    -----
    Compiled code lets other threads run.

    numba drops a cached function when the file of that function changes, but not when a helper
    in another file does.  A stale batch time would break the law that there is only one, so the
    name under which the function is cached holds a checksum of all files in its folder and its helpers'.
    There are the named tuples, too, that they take: a cache that names a class which has moved cannot be
    loaded.
    """
    if absent("numba"):
        return function if small else _plain(function)
    import numba
    from numba.extending import register_jitable

    _listen()
    options = {} if allocates else {"_nrt": False}
    counts = allocates if helpers_allocate is None else helpers_allocate
    register = register_jitable if counts else register_jitable(_nrt=False)
    for helper in helpers:
        register(helper)
    sources = _sources(function, helpers)
    keyed = FunctionType(function.__code__, function.__globals__, function.__name__)
    keyed.__qualname__ = f"{function.__qualname__}_{zlib.crc32(sources.encode()):08x}"
    keyed.__module__ = function.__module__
    _kernels[keyed.__qualname__] = f"{function.__module__.removeprefix('infermax_opt.')}.{function.__name__}"
    dispatcher = numba.njit(cache=True, nogil=True, **options)(keyed)
    if small and not any(Path(dispatcher._cache.cache_path).glob(f"*{keyed.__qualname__}*.nbi")):
        return function  # type: ignore[no-any-return]
    return dispatcher  # type: ignore[no-any-return]


def _sources(function: Any, helpers: Sequence[Callable[..., Any]]) -> str:
    """Text of every module in the folders of the function and its helpers."""
    homes = {sys.modules[some.__module__].__file__ or "" for some in (function, *helpers)}
    folders = sorted({Path(home).parent for home in homes})
    files = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    return "".join(path.read_text(encoding="utf-8") for path in files)


def _plain(function: Any) -> Callable[..., Any]:
    """The kernel as plain Python; who still waits for it after a while is told why."""
    seeds = "seed" in function.__code__.co_names

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        _tell_later()
        return (_with_own_random(function) if seeds else function)(*arguments)

    return run


def _with_own_random(function: Any) -> Any:
    """A kernel that draws from random numbers of its own, as a thread does in compiled code.

    The stream of a seed is the same, and that of numpy itself is left alone.
    """
    import numpy as np

    used = {name: getattr(np, name) for name in function.__code__.co_names if hasattr(np, name)}
    own = SimpleNamespace(**{**used, "random": np.random.RandomState()})  # what compiled code has
    return FunctionType(function.__code__, {**function.__globals__, "np": own})


def in_plain_python(steps: int) -> int:
    """Steps of a kernel that take about as long as this many would if it were compiled."""
    return max(1, steps // SLOWDOWN) if absent("numba") else steps


@functools.cache
def _tell_later() -> None:
    """Tell `PATIENCE` seconds from now, once a process; not where all is done by then."""
    timer = threading.Timer(PATIENCE, tell_plain)
    timer.daemon = True
    timer.start()


@functools.cache
def tell_plain() -> None:
    """Say on standard error, once a process, why everything takes so long; nothing where numba is there."""
    if absent("numba"):
        package, _, cure = remedy("numba").partition("; ")
        sys.stderr.write(f"infermax-opt: {package}: {PLAIN}; {cure}\n")


@functools.cache
def _listen() -> None:
    """Hear of every compilation; what comes from the cache on disk is none."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]  # numba has no types
        def on_start(self, heard: Any) -> None:
            kernel = _kernels.get(heard.data["dispatcher"].py_func.__qualname__)
            if _tell is not None and kernel is not None:
                _tell(f"compiling {kernel}, once after install: this takes some seconds")

        def on_end(self, heard: Any) -> None:
            """Nothing to say."""

    event.register("numba:compile", Listener())
