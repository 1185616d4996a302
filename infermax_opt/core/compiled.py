"""Compilation on first use: numba loads only when compiled code is called for.

What was compiled is kept on disk beside the source (or in numba's folder of the user), so a kernel is
compiled once after the package is installed or its source changes.  That takes seconds, of which
`tell_compiling` tells.  `infermax_opt.warm` compiles all of them ahead (`rehearsing`); until then a first
schedule is made in plain Python where that takes less time (`hurrying`).

Without numba kernels run as plain Python.  The outcome is the same; it takes many times longer, which is
told once.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

from infermax_opt.core.compiling_apart import heed_limit
from infermax_opt.core.errors import InputError
from infermax_opt.core.extras import absent, remedy

__all__ = [
    "Rehearsal", "compiled", "hurrying", "in_plain_python", "in_rehearsal", "rehearsing", "tell_compiling",
    "tell_plain", "worthwhile",
]  # fmt: skip

#: So many times longer does plain Python take for a step of a kernel, a few tenths of a microsecond compiled.
SLOWDOWN = 300
#: Seconds of plain Python after which it is told that numba is missing, and the words.
PATIENCE = 2.0
PLAIN = "kernels run as plain Python, many times slower"
#: Steps of a kernel that plain Python makes in less time than compiling takes: 4 million of a scheduler take
#: 6 s, the replay of their schedule 1 s; to compile these two takes 6 to 12 s.
COMPILING_STEPS = 5_000_000
#: What plain Python did for want of compiled code, by the kernel that was not compiled.
_plain_steps: dict[Callable[[], Callable[..., Any]], int] = {}
#: Steps of work too small to load compiled code for, by the kernel that was not loaded.
_small_steps: dict[Callable[[], Callable[..., Any]], int] = {}
#: Where compiled code cannot be kept, in words.
UNKEPT = "compiled kernels cannot be kept: no folder for them can be written; set NUMBA_CACHE_DIR"
#: What spares one the wait.
AHEAD = "; infermax-opt warm does it ahead for all commands"
#: Receives a line when a kernel has to be compiled.
_tell: Callable[[str], None] | None = None
#: The kernels that were asked for, by their names for people.
_kernels: dict[str, Any] = {}


class Rehearsal:
    """What is compiled while `rehearsing`.

    Parameters
    ----------
    tell : callable
        Hears the name of each kernel that was compiled, and its seconds.

    Attributes
    ----------
    seconds : dict of name to float
        The kernels that had to be compiled.
    """

    def __init__(self, tell: Callable[[str, float], object]):
        self.seconds: dict[str, float] = {}
        self._tell = tell

    def note(self, name: str, seconds: float) -> None:
        """Keep, and tell, how long it took to compile a kernel."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._tell(name, seconds)

    @property
    def kernels(self) -> tuple[str, ...]:
        """All that were asked for, compiled now or before."""
        return tuple(sorted(_kernels))

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where compiled code is kept."""
        return tuple(sorted({Path(kernel.stats.cache_path) for kernel in _kernels.values()}))


_rehearsal: Rehearsal | None = None


class _Hurry(threading.local):
    """Whether this thread wants something soon."""

    on = False


_hurry = _Hurry()


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
    Compiled code lets other threads run.  Where a time limit holds, a child compiles (`compiling_apart`).

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
    # Nobody calls a helper from C: without wrappers for that a kernel compiles in four fifths of the time.
    register = register_jitable(no_cfunc_wrapper=True, **({} if counts else {"_nrt": False}))
    for helper in helpers:
        register(helper)
    keyed = FunctionType(function.__code__, function.__globals__, function.__name__)
    keyed.__qualname__ = f"{function.__qualname__}_{_checksum(function, helpers):08x}"
    keyed.__module__ = function.__module__
    try:
        dispatcher = numba.njit(cache=True, nogil=True, **options)(keyed)
        heed_limit(dispatcher, lambda: _tell_of(_named(dispatcher)))
    except RuntimeError as error:  # numba's word for that it finds no folder to write to
        if _rehearsal is not None:
            raise InputError(UNKEPT) from error
        _tell_unkept()
        dispatcher = numba.njit(nogil=True, **options)(keyed)
    if small and not _at_hand(dispatcher):
        return function  # type: ignore[no-any-return]
    _kernels[_named(dispatcher)] = dispatcher
    return dispatcher  # type: ignore[no-any-return]


def _named(kernel: Any) -> str:
    """A kernel's name for people."""
    return f"{kernel.py_func.__module__.removeprefix('infermax_opt.')}.{kernel.py_func.__name__}"


def _at_hand(kernel: Any) -> bool:
    """Whether compiled code of a kernel is loaded or on disk."""
    folder = kernel.stats.cache_path
    kept = folder is not None and any(Path(folder).glob(f"*{kernel.py_func.__qualname__}*.nbi"))
    return kept or bool(kernel.overloads)


def worthwhile(
    kernel: Callable[[], Callable[..., Any]], steps: int, first: int, later: int, uncompiled: int = 0
) -> bool:
    """Whether work is enough for compiled code.

    Parameters
    ----------
    kernel : cached function
        Returns the kernel, as `compiled` does.
    steps : int
        Of the work.
    first : int
        Below so many plain Python takes less time than loading compiled code.  Where numba is loaded, which
        is most of that time, all small work of a process counts together.
    later : int
        The same of one piece of work, once it is loaded.
    uncompiled : int
        Of the work of a process as long as there is no compiled code: so many take plain Python less time
        than compiling would.
    """
    if in_rehearsal():
        return True
    loaded = kernel.cache_info().currsize > 0  # type: ignore[attr-defined]
    if steps < (later if loaded else first) and (loaded or not _adds_up(kernel, steps, first)):
        return False
    enough = COMPILING_STEPS if _hurry.on else uncompiled
    before = 0 if _hurry.on else _plain_steps.get(kernel, 0)
    if steps + before >= enough or absent("numba") or _at_hand(kernel()):
        return True
    _plain_steps[kernel] = before + steps
    return False


def _adds_up(kernel: Callable[[], Callable[..., Any]], steps: int, first: int) -> bool:
    """Whether small work has come to `first` steps, where numba is loaded already."""
    if "numba" not in sys.modules:
        return False
    _small_steps[kernel] = _small_steps.get(kernel, 0) + steps
    return _small_steps[kernel] >= first


@contextlib.contextmanager
def hurrying() -> Iterator[None]:
    """Run kernels in plain Python in here, where that takes less time than compiling them would.

    For the first schedule of a search, so that there is one whenever the search is stopped.
    """
    before, _hurry.on = _hurry.on, True
    try:
        yield
    finally:
        _hurry.on = before


def in_rehearsal() -> bool:
    """Whether small work, too, is to run compiled."""
    return _rehearsal is not None


@contextlib.contextmanager
def rehearsing(tell: Callable[[str, float], object]) -> Iterator[Rehearsal]:
    """Run every kernel in here compiled, however small the work is, so that its code is kept.

    Parameters
    ----------
    tell : callable
        Hears the name of each kernel that was compiled, and its seconds.

    Raises
    ------
    InputError
        If compiled code cannot be kept.
    """
    global _rehearsal
    before, _rehearsal = _rehearsal, Rehearsal(tell)
    try:
        yield _rehearsal
    finally:
        _rehearsal = before


def _checksum(function: Any, helpers: Sequence[Callable[..., Any]]) -> int:
    """Of every module in the folders of the function and its helpers."""
    homes = {sys.modules[some.__module__].__file__ or "" for some in (function, *helpers)}
    return _checksum_of(tuple(sorted({Path(home).parent for home in homes})))


@functools.cache
def _checksum_of(folders: tuple[Path, ...]) -> int:
    """Of the modules in some folders, read once although they hold several kernels."""
    value = 0
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            value = zlib.crc32(path.read_bytes(), value)
    return value


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
    return max(1, steps // SLOWDOWN) if absent("numba") or in_rehearsal() else steps


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
def _tell_unkept() -> None:
    """Say on standard error, once a process, that every process compiles anew."""
    sys.stderr.write(f"infermax-opt: {UNKEPT}\n")


def _tell_of(name: str) -> None:
    """Say that a kernel is being compiled."""
    if _tell is not None and _rehearsal is None:
        _tell(f"compiling {name}, once after install: this takes some seconds{AHEAD}")


@functools.cache
def _listen() -> None:
    """Hear of every compilation; what comes from the cache on disk is none."""
    from numba.core import event

    began: dict[str, float] = {}

    class Listener(event.Listener):  # type: ignore[misc]  # numba has no types
        def on_start(self, heard: Any) -> None:
            name = _named(heard.data["dispatcher"])
            if name in _kernels:
                began[name] = time.monotonic()
                _tell_of(name)

        def on_end(self, heard: Any) -> None:
            name = _named(heard.data["dispatcher"])
            start = began.pop(name, None)
            if start is not None and _rehearsal is not None:
                _rehearsal.note(name, time.monotonic() - start)

    event.register("numba:compile", Listener())
