"""A lock between processes that ends with its holder, however that ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from infermax_opt.core.errors import InputError

try:
    import fcntl
except ImportError:  # no such locks on this system: runs must be kept apart by hand
    fcntl = None  # type: ignore[assignment]

__all__ = ["locked"]


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], *, wait: bool) -> Iterator[None]:
    """Hold the lock file `path` for the duration of the block.

    The system drops the lock of a process that dies, so a file left behind by one stops nobody.

    Parameters
    ----------
    path : path
    wait : bool
        Wait for another holder to finish; else refuse.

    Raises
    ------
    InputError
        If another process holds the lock, or the file cannot be written.
    """
    name = os.fspath(path)
    try:
        handle = _acquire(name, wait)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=name) from None
    try:
        yield
    finally:
        # Removed while it is still held; see `_acquire` for whoever waits for the old file.
        with contextlib.suppress(OSError):
            os.unlink(name)
        os.close(handle)


def _acquire(name: str, wait: bool) -> int:
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_current(handle, name):
                os.ftruncate(handle, 0)
                os.write(handle, b"%d\n" % os.getpid())
                return handle
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
            os.close(handle)
            who = f" (process {holder})" if holder else ""
            raise InputError(f"is in use by another run{who}", source=os.path.dirname(name)) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_current(handle: int, name: str) -> bool:
    """Whether the locked file is still the one of that name: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(name))
    except FileNotFoundError:
        return False
