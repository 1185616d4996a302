"""What a user names in a Python file, as ``FILE.py:NAME``; whatever fails in it is one line that names it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType, TracebackType
from typing import Any

from infermax_opt.core.errors import InputError, PackageError, told

__all__ = ["file_and_name", "from_file"]


def file_and_name(text: str) -> tuple[str, str] | None:
    """The two parts of ``FILE.py:NAME``; None for any other text."""
    path, colon, name = text.rpartition(":")
    return (path, name) if colon and path.endswith(".py") else None


@contextmanager
def from_file(path: str, name: str) -> Iterator[Any]:
    """What a Python file calls by that name, to be used in this block.

    The file is run as a module, and modules beside it can be imported.  Each block runs all of them anew, and
    nothing is written beside them.  What is printed in the block goes to standard error.

    Raises
    ------
    PackageError
        One line that names the file, the name and the line, if anything fails in the file or in the block,
        but for memory, a closed output or who stops it.
    """
    try:
        # What it prints is no part of what a command writes.
        with redirect_stdout(sys.stderr), _importing(os.path.dirname(os.path.abspath(path))):
            yield _named(_module(path), name)
    except (MemoryError, BrokenPipeError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PackageError(_in_words(error, path), field=name, source=path) from error


@contextmanager
def _importing(folder: str) -> Iterator[None]:
    """Import modules of a folder in this block, and forget them behind it."""
    known, writes = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        with suppress(ValueError):  # where the file took it away
            sys.path.remove(folder)
        for name in set(sys.modules) - known:
            if _beside(getattr(sys.modules[name], "__file__", None) or "", folder):
                del sys.modules[name]


class _Loader(SourceFileLoader):
    """Compiles the file as it is now: no compiled file beside it is read or written."""

    def path_stats(self, path: Any) -> Any:
        raise OSError


def _module(path: str) -> ModuleType:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    loader = _Loader(f"{__name__}.{os.path.basename(path)[:-3]}", os.path.abspath(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    # Where dataclasses look for it.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def _named(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        own = [
            key for key, some in vars(module).items() if getattr(some, "__module__", "") == module.__name__
        ]
        raise InputError(f"there is none of that name; there are {', '.join(own) or 'none'}")
    return getattr(module, name)


def _in_words(error: BaseException, path: str) -> str:
    """An error, and the line of the user's files that it came from, if there is one."""
    text = str(error) if isinstance(error, InputError) else told(error)
    line = _line(error, os.path.abspath(path))
    return f"{line}: {text}" if line else text


def _line(error: BaseException, path: str) -> str:
    """The innermost line of the file, or of one beside it, in which an error was raised."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        found = (error.filename, error.lineno)
    else:
        folder = os.path.dirname(path)
        frames = [some for some in _frames(error.__traceback__) if _beside(some[0], folder)]
        if not frames:
            return ""
        found = frames[-1]
    name = "" if found[0] == path else f"{os.path.basename(found[0])}, "
    return f"{name}line {found[1]}"


def _beside(file: str, folder: str) -> bool:
    """Whether a file lies in a folder itself, not deeper; code that no file holds is called <string>."""
    return bool(file) and not file.startswith("<") and os.path.dirname(os.path.abspath(file)) == folder


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
