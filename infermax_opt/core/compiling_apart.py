"""Compiling under a time limit: in a process of its own, which is killed when time is up.

LLVM cannot be interrupted for seconds, and numba is left half-way by an exception.  So a kernel that has to
be compiled while a limit holds (`in_time`) is compiled by a forked child, which keeps the code on disk, from
where this process loads it.  Where there is code already, nothing of this is called.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

from infermax_opt.core.interrupts import Stopped

__all__ = ["UNCOMPILED", "InTime", "OutOfTime", "heed_limit", "in_time", "under_limit"]

P = ParamSpec("P")
R = TypeVar("R")

#: Seconds between two looks at a child that compiles.
POLL = 0.02
#: Files that a process has open at most; where the limit is in the millions, closing all takes long.
FILES = 65_536
#: What a result says that was left out, and why.
UNCOMPILED = "compiled kernels", "not compiled within the time limit; infermax-opt warm does it ahead"


class OutOfTime(Stopped):
    """Time is up before a kernel is compiled: whatever stops at Ctrl-C stops likewise, with what it has."""


@dataclass
class InTime:
    """A limit on compiling.

    Attributes
    ----------
    over : callable
        Whether time is up.
    ended : bool
        Whether a kernel was not compiled for that reason.
    """

    over: Callable[[], bool]
    ended: bool = False


class _Limit(threading.local):
    """The limit that holds in this thread."""

    now: InTime | None = None


_limit = _Limit()


@contextlib.contextmanager
def in_time(over: Callable[[], bool]) -> Iterator[InTime]:
    """Compile in here, in this thread, only until time is up; then the call of a kernel raises `OutOfTime`.

    Parameters
    ----------
    over : callable
        Says whether it is.
    """
    before, _limit.now = _limit.now, InTime(over)
    try:
        yield _limit.now
    finally:
        _limit.now = before


def under_limit(function: Callable[P, R]) -> Callable[P, R]:
    """The function, for another thread, under the limit that holds in this one.

    Parameters
    ----------
    function : callable
    """
    limit = _limit.now

    def run(*arguments: P.args, **named: P.kwargs) -> R:
        before, _limit.now = _limit.now, limit
        try:
            return function(*arguments, **named)
        finally:
            _limit.now = before

    return run


def heed_limit(kernel: Any, tell: Callable[[], None]) -> None:
    """Have a kernel compiled by a child wherever a limit holds.

    Parameters
    ----------
    kernel : numba dispatcher
        One whose code is kept on disk.
    tell : callable
        Hears that it is being compiled.
    """
    cache = kernel._cache
    load = cache.load_overload

    def loaded(types: Any, context: Any) -> Any:
        found = load(types, context)
        if found is None and _limit.now is not None:
            _require_time(_limit.now)
            tell()
            _compile_apart(kernel, types, _limit.now)
            found = load(types, context)  # None after all where the child failed: then it is compiled here
        return found

    # numba asks it under the lock of its compiler, so no other thread is compiling when the child begins.
    cache.load_overload = loaded


def _compile_apart(kernel: Any, types: Any, limit: InTime) -> None:
    """Wait for a child that compiles, until time is up."""
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _compile_and_end(kernel, types, parent)
    try:
        while not _has_ended(child):
            _require_time(limit)
            time.sleep(POLL)
    except BaseException:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        raise


def _require_time(limit: InTime) -> None:
    if limit.over():
        limit.ended = True
        raise OutOfTime


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:  # this process ignores SIGCHLD, and the child is gone
        return True


def _compile_and_end(kernel: Any, types: Any, parent: int) -> NoReturn:
    """In the child: compile, keep the code on disk, and end without anything else."""
    code = 1
    try:
        _let_go()
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        kernel._cache.save_overload(types, kernel._compiler.compile(types, None))
        code = 0
    finally:  # an exception must not go up the parent's stack
        os._exit(code)


def _let_go() -> None:
    """Close what the parent has open, or whoever reads its pipes would wait for this process, too."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.closerange(3, FILES)


def _end_with(parent: int) -> None:
    """End as soon as the parent has, however it did."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)
