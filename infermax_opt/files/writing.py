"""Writing files, whole or not at all.

What a command cannot write is kept elsewhere: work that took hours must not be lost.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import STANDARD, json_pieces, to_json_text

__all__ = ["all_written", "dump_json", "is_unwritten", "replacing", "write_bytes", "write_text", "written"]

#: Of compression: the highest takes four times as long for a tenth less.
LEVEL = 6


#: Files that could not be written, in a block of `all_written`; None: there is no such block.
_FAILED: ContextVar[list[InputError] | None] = ContextVar("_FAILED", default=None)


class _Unwritten(InputError):
    """The place of a file does not take it."""


def dump_json(value: object, path: str | os.PathLike[str]) -> None:
    """Write `value` as JSON, whole or not at all; ``.gz`` is compressed.

    Raises
    ------
    InputError
        As `written`.
    """
    name = os.fspath(path)
    if name == STANDARD:
        _print(to_json_text(value).encode())
        return
    packed = name.endswith(".gz")

    def write(temporary: str) -> None:
        with ExitStack() as stack:
            stream: Any = stack.enter_context(open(temporary, "wb"))
            if packed:  # no name and no time in the header: equal content gives equal files
                stream = stack.enter_context(gzip.GzipFile("", "wb", LEVEL, stream, mtime=0))
            for piece in json_pieces(value):
                stream.write(piece.encode())

    written(name, write, ending=".json")


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(text.encode(), path)


def write_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """Write a file, whole or not at all; `STANDARD` output is printed.

    Raises
    ------
    InputError
        As `written`.
    """
    if os.fspath(path) == STANDARD:
        _print(data)
    else:
        written(path, lambda temporary: Path(temporary).write_bytes(data))


def written(path: str | os.PathLike[str], write: Callable[[str], object], *, ending: str = "") -> None:
    """Write a file, whole or not at all.

    Parameters
    ----------
    path : path
        Its name.
    write : callable
        Writes the file of the name that it is given, which has the ending of `path`.
    ending : str
        Of the file that `all_written` keeps, if `path` has none.

    Raises
    ------
    InputError
        If the file cannot be written; nothing is left behind then.  In a block of `all_written`, at its end.
    """
    try:
        with replacing(path) as temporary:
            write(temporary)
    except _Unwritten as error:
        failed = _FAILED.get()
        if failed is None:
            raise
        kept = _kept(write, _suffix(path) or ending)
        problem = error.problem if kept is None else f"{error.problem}; kept in {kept}"
        failed.append(InputError(problem, source=error.source))


@contextmanager
def all_written() -> Iterator[None]:
    """Write all files of a block, for commands: one that cannot be written does not stop what comes after.

    It is kept in the folder of temporary files, if there is room.

    Raises
    ------
    InputError
        At the end of the block, or of that around it: which files could not be written, and where they are.
    """
    if _FAILED.get() is not None:
        yield
        return
    failed: list[InputError] = []
    token = _FAILED.set(failed)
    try:
        yield
    except InputError as error:
        failed.append(error)
    finally:
        _FAILED.reset(token)
    if failed:
        first, *others = failed
        problem = "; ".join([first.problem, *map(str, others)])
        raise InputError(problem, field=first.field, source=first.source) from first.__cause__


def is_unwritten(path: str | os.PathLike[str]) -> bool:
    """Whether the file could not be written, in the block of `all_written` around the call."""
    return any(error.source == os.fspath(path) for error in _FAILED.get() or ())


def _kept(write: Callable[[str], object], suffix: str) -> str | None:
    """The name of a file among the temporary ones that holds what is written; None: it cannot be, either."""
    kept = None
    try:
        handle, kept = tempfile.mkstemp(prefix="infermax-opt-", suffix=suffix)
        os.close(handle)
        write(kept)
    except (OSError, ValueError):
        if kept is not None:
            with contextlib.suppress(OSError):
                os.unlink(kept)
        return None
    return kept


def _suffix(path: str | os.PathLike[str]) -> str:
    return "".join(Path(path).suffixes[-2:])


def _print(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def _copy(temporary: str, target: Path | None) -> None:
    """Copy a file to a device or a pipe, or to standard output."""
    if target is None:
        _print(Path(temporary).read_bytes())
        return
    with open(temporary, "rb") as source, open(target, "wb") as sink:
        shutil.copyfileobj(source, sink)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Give a temporary name (same ending) that replaces `path` when the block succeeds.

    What is meant for `STANDARD` output is printed then.

    Raises
    ------
    InputError
        If the temporary file cannot be written or renamed; it is removed then.
    """
    name = os.fspath(path)
    temporary = None
    try:
        # Through links, so that a link stays one and its target changes.
        target = Path(os.path.realpath(name))
        if target.is_dir() and name != STANDARD:
            raise _Unwritten("cannot be written: is a directory", source=name)
        # A device or a pipe must stay what it is: it gets the bytes, not a new name.
        special = name == STANDARD or (target.exists() and not target.is_file())
        handle, temporary = tempfile.mkstemp(
            prefix=".tmp-", suffix=_suffix(name), dir=None if special else target.parent
        )
        os.close(handle)
        yield temporary
        if special:
            _copy(temporary, None if name == STANDARD else target)
        else:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, target)
            temporary = None
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _Unwritten(f"cannot be written: {reason}", source=name) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
