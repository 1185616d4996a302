"""Compiling ahead: every kernel that a command may use, so that none is compiled while somebody waits."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infermax_opt.core.checks import checked_texts, checked_whole
from infermax_opt.core.compiled import rehearsing
from infermax_opt.core.errors import InputError
from infermax_opt.core.extras import require
from infermax_opt.core.progress import Progress, Teller
from infermax_opt.core.registry import problems
from infermax_opt.core.shown import ShownRows

__all__ = ["Warmed", "warm", "warm_parts"]

#: Variable of numba that names the folder of compiled code.
FOLDER = "NUMBA_CACHE_DIR"
#: The part of what `plan` uses beside the kernels of its problem.
PLAN = "plan"
#: Processes at a time, at most.
MOST_JOBS = 1024


@dataclass(frozen=True)
class Warmed(ShownRows):
    """What there is compiled.

    Attributes
    ----------
    kernels : tuple of str
        All that were run.
    compiled : mapping of name to float
        Those that had to be compiled, and the seconds that it took.
    seconds : float
        Of the whole run.
    folder : Path
        Below it compiled code is kept.
    """

    kernels: tuple[str, ...]
    compiled: Mapping[str, float]
    seconds: float
    folder: Path

    def facts(self) -> Mapping[str, Any]:
        """How many, how long, and where."""
        return {
            "kernels": len(self.kernels),
            "compiled": len(self.compiled),
            "seconds": self.seconds,
            "folder": str(self.folder),
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """The kernels, each with the seconds that it took to compile; 0 where it was there."""
        return ({"kernel": name, "seconds": self.compiled.get(name, 0.0)} for name in self.kernels)

    def __str__(self) -> str:
        if not self.compiled:
            return f"{len(self.kernels)} kernels, all compiled before, in {self.folder}"
        took = f"{len(self.compiled)} compiled in {sum(self.compiled.values()):.1f} s"
        return f"{len(self.kernels)} kernels, {took}; kept in {self.folder}"


@dataclass(frozen=True)
class Rehearsed:
    """What a piece of work has used and compiled: names, folders, and seconds of what was compiled."""

    kernels: tuple[str, ...]
    folders: tuple[Path, ...]
    seconds: Mapping[str, float]


def warm(parts: Sequence[str] = (), *, jobs: int = 1, progress: Progress | None = None) -> Warmed:
    """Compile the kernels ahead, so that no command has to; what is compiled already is left.

    Compiled code is kept in numba's folder: that of the variable NUMBA_CACHE_DIR, or beside the package.

    Parameters
    ----------
    parts : sequence of str
        Some of `warm_parts`; default: all.
    jobs : int
        Processes at a time, up to 1024.  More than one are started as `multiprocessing` does by "spawn", so
        a script that asks for them needs its ``if __name__ == "__main__"``.
    progress : callable, optional
        Hears of each kernel that was compiled.

    Raises
    ------
    InputError
        If there is no such part, `jobs` is no such number, numba is not installed, or the folder cannot be
        written.
    """
    checked_whole(jobs, "jobs", 1, MOST_JOBS)
    works = _works()
    for name in checked_texts(parts, "parts"):
        if name not in works:
            raise InputError(f"{name!r} is none of {', '.join(works)}", field="part")
    require("numba", "compiled kernels")
    _refuse_unwritable(os.environ.get(FOLDER))
    began, say = time.monotonic(), Teller(progress)
    pieces = [(name, place) for name in parts or works for place, _ in enumerate(works[name]())]
    kernels: set[str] = set()
    folders: set[Path] = set()
    seconds: dict[str, float] = {}
    for done in _rehearsed(
        pieces, jobs, lambda name, took: say(f"{name} compiled in {took:.1f} s", "kernel")
    ):
        kernels.update(done.kernels)
        folders.update(done.folders)
        seconds.update(done.seconds)
    folder = Path(os.path.commonpath(folders))
    return Warmed(tuple(sorted(kernels)), seconds, time.monotonic() - began, folder)


def _rehearsed(
    pieces: Sequence[tuple[str, int]], jobs: int, tell: Callable[[str, float], object]
) -> Iterator[Rehearsed]:
    """What each piece of work compiled, as it is done; a kernel is told of once it, or its piece, is done."""
    if jobs == 1:
        yield from (_rehearse(*piece, tell) for piece in pieces)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, fresh, initializer=_end_at_ctrl_c) as pool:
        try:
            for future in as_completed([pool.submit(_rehearse, *piece) for piece in pieces]):
                done = future.result()
                for name, took in done.seconds.items():
                    tell(name, took)
                yield done
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_at_ctrl_c() -> None:
    """In a process that compiles: end without a word, as who started it does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _rehearse(part: str, place: int, tell: Callable[[str, float], object] = lambda *_: None) -> Rehearsed:
    """Run one piece of the work of a part."""
    with rehearsing(tell) as done:
        list(_works()[part]())[place]()
    return Rehearsed(done.kernels, done.folders, dict(done.seconds))


def warm_parts() -> tuple[str, ...]:
    """What `warm` takes: the problems that have kernels, and ``plan``."""
    return tuple(_works())


def _works() -> dict[str, Callable[[], Iterable[Callable[[], object]]]]:
    """Small work for the kernels of each part."""
    from infermax_opt.fleet.rehearsal import rehearsals

    found = {problem.name: problem.rehearsals for problem in problems() if any(problem.rehearsals())}
    return {**found, PLAN: rehearsals}


def _refuse_unwritable(folder: str | None) -> None:
    """Refuse a folder that numba would pass over."""
    if folder:
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {error.strerror}", field=FOLDER) from None
