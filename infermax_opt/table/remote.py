"""Rows on the workers of a Dask scheduler.

A worker needs this package and no folder in common with the caller: the instance and the archived schedule
go to it with the job, and the files that the row names come back with the row.  Journal, tables and archive
stay with the caller.  Dask gives the row of a worker that was lost to another one; whichever answers first
is in the journal, once.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import tempfile
import uuid
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.extras import require
from infermax_opt.core.versions import package_versions
from infermax_opt.files.writing import write_bytes
from infermax_opt.table.archive import Archive
from infermax_opt.table.compute import Job, run_job
from infermax_opt.table.pool import Answer
from infermax_opt.table.row import row_from_json

__all__ = ["DaskCrew", "dask_crew", "remote_row"]

#: Seconds to wait for the scheduler, also where it is lost on the way, and then for its first worker.
PATIENCE = 30
#: Times that a row is given to the scheduler again when it gave it up, having lost one worker after another.
AGAIN = 2
#: Folders that a row's files may lie in.
KINDS = ("results", "certificates")
#: Files by their names below a folder.
Files = dict[str, bytes]


def remote_row(value: Mapping[str, Any], given: Files, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Compute a row on a worker, in a folder of its own.

    Parameters
    ----------
    value : mapping
        As `infermax_opt.table.compute.run_job` takes it; its folders are the caller's.
    given : dict of name to bytes
        What the job reads: its instance, and its part of the archive.
    wanted : mapping of package to version
        The caller's: rows of other versions are no rows of its table.

    Returns
    -------
    dict
        Its ``row`` and the ``files`` that this names, or the ``error``.
    """
    with tempfile.TemporaryDirectory(prefix="infermax-opt-", dir=_scratch()) as name:
        folder = Path(name)
        try:
            _same_versions(package_versions(), wanted, "the worker")
            for path, data in given.items():
                write_bytes(data, _below(folder, path))
            archive = None if value["archive"] is None else str(folder / "archive")
            row = run_job({**value, "folder": name, "archive": archive})
        except InputError as error:
            return {"error": str(error).replace(f"{name}/", "")}
        except MemoryError:
            return {"error": "out of memory"}
        except Exception as error:  # it costs this row only, and the caller reports it
            return {"error": f"{type(error).__name__}: {error}"}
        made = [path for kind in KINDS for path in sorted((folder / kind).rglob("*")) if path.is_file()]
        return {
            "row": row,
            "files": {path.relative_to(folder).as_posix(): path.read_bytes() for path in made},
        }


def _scratch() -> str | None:
    """Where Dask tidies up after a worker that was killed; the usual folder outside of workers."""
    from distributed import get_worker

    try:
        return str(get_worker().local_directory)
    except ValueError:
        return None


def _below(folder: Path, name: str) -> Path:
    """Where a file goes, its folder made."""
    path = folder.joinpath(*PurePosixPath(name).parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _same_versions(found: Mapping[str, str], wanted: Mapping[str, str], who: str) -> None:
    """Refuse a worker with other versions: its rows would not be those of this machine."""
    for package in sorted({*found, *wanted}):
        there, here = found.get(package, "none"), wanted.get(package, "none")
        if there != here:
            raise InputError(f"{who} has {package} {there}, this machine {here}", field="on")


def _failure(future: Any) -> BaseException | None:
    """Why the work of a future failed, if it did."""
    return future.exception() if future.status == "error" else None


def _given(job: Job) -> Files:
    """What a job reads, by the names that it has on the worker."""
    name = f"instances/{job.name}.json"
    given = {name: Path(job.folder, name).read_bytes()}
    if job.archive is not None:
        given |= {f"archive/{path}": data for path, data in Archive(job.archive, job.suite).part(job.name)}
    return given


@dataclass
class DaskCrew:
    """The workers of a Dask scheduler.

    Parameters
    ----------
    client : distributed.Client
    address : str
        Of the scheduler, for errors.
    """

    client: Any
    address: str

    @property
    def cores(self) -> int:
        """Threads of all workers there are now."""
        threads: Mapping[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))

    def check(self) -> None:
        """Find out before the work that there are workers, and that they are as this machine is.

        Raises
        ------
        InputError
        """
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise self._error(f"has no worker after {PATIENCE} s") from None
        here = package_versions()
        for worker, found in self.client.run(package_versions, on_error="return").items():
            if isinstance(found, BaseException):
                raise self._error(f"worker {worker} cannot be used: {type(found).__name__}: {_line(found)}")
            try:
                _same_versions(found, here, f"worker {worker}")
            except InputError as error:
                raise error.within(self.address) from None

    def run(self, jobs: Iterable[Job], count: int) -> Generator[Answer]:
        """Run jobs, so many at a time, and yield answers as they come.

        Closing it takes back what has not begun; what a worker is at goes on there until its time limit, and
        nobody takes its answer.
        """
        from distributed import KilledWorker, as_completed

        todo, here = iter(jobs), package_versions()
        at: dict[str, Job] = {}
        lost: Counter[str] = Counter()

        def submit(job: Job) -> Any:
            key = f"{job.suite}-{job.name}-{uuid.uuid4().hex}"
            at[key] = job
            return self.client.submit(remote_row, job.to_json(), _given(job), here, key=key, pure=False)

        first = [submit(job) for job in itertools.islice(todo, count)]
        answers = as_completed(first, loop=self.client.loop)
        try:
            for future in answers:
                job = at.pop(future.key)
                if lost[job.name] < AGAIN and isinstance(_failure(future), KilledWorker):
                    lost[job.name] += 1
                    answers.add(submit(job))
                    continue
                yield self._answer(job, future)
                following = next(todo, None)
                if following is not None:
                    answers.add(submit(following))
        finally:
            # A scheduler that is gone would be waited for.
            if self.client.status == "running":
                with contextlib.suppress(Exception):  # it may go just now, which is no news
                    self.client.cancel(list(at))

    def _answer(self, job: Job, future: Any) -> Answer:
        """What became of a job; the files of its row are in the table's folder then."""
        from distributed import CancelledError, KilledWorker

        try:
            said = future.result()
        except KilledWorker:
            return Answer(job, None, "the workers that were at it were lost, one after another")
        except CancelledError:
            raise self._error("has gone, with the rows that were not finished") from None
        except Exception as error:
            return Answer(job, None, f"{type(error).__name__}: {error}")
        if "row" not in said:
            return Answer(job, None, said["error"])
        for name, data in said["files"].items():
            parts = PurePosixPath(name).parts
            if parts[0] not in KINDS or ".." in parts:
                return Answer(job, None, f"the worker sent a file {name!r}")
            write_bytes(data, _below(Path(job.folder), name))
        return Answer(job, row_from_json(said["row"]))

    def _error(self, problem: str) -> InputError:
        return InputError(problem, field="on", source=self.address)


@contextlib.contextmanager
def dask_crew(address: str) -> Iterator[DaskCrew]:
    """Connect to a Dask scheduler for the duration of the block.

    Parameters
    ----------
    address : str
        Such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    InputError
        If Dask is not installed, nobody answers there, or its workers are of other versions.
    """
    require("distributed", "tables on a cluster")
    from distributed import Client

    with _quiet():
        try:
            client = Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be reached: {_line(error)}", field="on", source=address) from None
        with client:
            crew = DaskCrew(client, address)
            crew.check()
            yield crew


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from telling what is told in a line of our own."""
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _line(error: BaseException) -> str:
    """What went wrong, in a line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
