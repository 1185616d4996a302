"""A lock between processes that ends with its holder, however that ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from infermax_opt.core.errors import InputError

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
    from filelock import FileLock, Timeout

    file = Path(path)
    lock = FileLock(file)
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        raise InputError(f"is in use by another run{_holder(file)}", source=str(file.parent)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(file)) from None
    try:
        # For those who are refused; where the system lets nobody write to a locked file, they are not told.
        with contextlib.suppress(OSError):
            file.write_text(f"{os.getpid()}\n")
        yield
    finally:
        # Removed while it is still held: whoever waits for the old file then finds that it has no name.
        with contextlib.suppress(OSError):
            file.unlink()
        lock.release()


def _holder(file: Path) -> str:
    """The process that holds a lock, if its file says so."""
    try:
        return f" (process {int(file.read_text())})"
    except (OSError, ValueError):
        return ""
