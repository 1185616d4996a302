"""SIGTERM, which batch systems and containers send, ends a command as Ctrl-C does: with what it has.

Either raises where the program is, but for code that an exception harms: compiled functions fetch Python
objects by `_numba_unpickle` and report an exception in there as a `SystemError`; one in what LLVM calls
when it has compiled is printed and lost; one in what HiGHS calls is lost; and a module of numba that is not
imported to its end stays broken.  There the signal comes again a moment later.  HiGHS calls nothing but
that, so a signal is never heard while it runs: what it calls asks `deferred`, and ends it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

__all__ = [
    "INTERRUPTED",
    "TERMINATED",
    "Patience",
    "Stopped",
    "Terminated",
    "deferred",
    "exit_code",
    "heed_signals",
    "patient",
]

#: Exit codes of a command that was stopped before it had a result: 128 and the number of the signal.
INTERRUPTED, TERMINATED = 130, 143
#: Functions that compiled code, the compiler, or HiGHS calls: an exception does not come out of them.
CALLED_BACK = frozenset(
    {"_numba_unpickle", "_raw_object_cache_notify", "_raw_object_cache_getbuffer", "__internal_callback"}
)
#: Seconds until a signal comes again that came where it would do harm.
AGAIN = 0.01

#: Set while a signal that came where it would do harm has not come again elsewhere.
_deferred = threading.Event()


class Terminated(KeyboardInterrupt):
    """SIGTERM came.  Whatever stops at Ctrl-C and reports what it has does the same here."""


class Stopped(KeyboardInterrupt):
    """A callback wants the run to end: whatever stops at Ctrl-C stops likewise, with what it has."""


def heed_signals() -> None:
    """Let SIGTERM raise `Terminated`, and Ctrl-C `KeyboardInterrupt`, where that does no harm.

    A signal that whoever started this process wants to be otherwise stays as it is.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _raise)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)


@dataclass
class Patience:
    """Whether a run was asked to stop, for work that only its search part can leave early.

    Attributes
    ----------
    stopped : bool
        Ctrl-C or SIGTERM came.
    searching : bool
        Set by whoever searches: then the signal also raises, at once.
    """

    stopped: bool = False
    searching: bool = False


@contextlib.contextmanager
def patient() -> Iterator[Patience]:
    """Let the first Ctrl-C or SIGTERM end the search only; a second one raises wherever it comes."""
    patience = Patience()
    before: dict[int, Any] = {}

    def heed(number: int, frame: FrameType | None) -> None:
        raises = patience.stopped or patience.searching
        patience.stopped = True
        if raises:
            before[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):
            if callable(signal.getsignal(signum)):
                before[signum] = signal.signal(signum, heed)
    try:
        yield patience
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(stop: BaseException) -> int:
    """Exit code of a command that such an exception ended."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def deferred() -> bool:
    """Whether Ctrl-C or SIGTERM came where it could not be heard, and waits for what runs there to end."""
    return _deferred.is_set()


def _raise(number: int, frame: FrameType | None) -> None:
    if _harmed(frame):
        _deferred.set()
        main = threading.main_thread().ident
        again = threading.Timer(AGAIN, signal.pthread_kill, (main, number))
        again.daemon = True
        again.start()
    else:
        _deferred.clear()
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _harmed(frame: FrameType | None) -> bool:
    """Whether an exception in this frame would be lost, or leave numba in disorder, by one of its callers."""
    importing = False
    while frame is not None:
        if frame.f_code.co_name in CALLED_BACK:
            return True
        importing = importing or frame.f_code.co_filename.startswith("<frozen importlib")
        if importing and frame.f_globals.get("__name__", "").partition(".")[0] == "numba":
            return True
        frame = frame.f_back
    return False
