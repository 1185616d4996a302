"""Worker processes that compute rows, one at a time each.

A worker that crashes or is killed costs the row that it was at; another one takes its place.  A worker ends
with the process that started it, also in the middle of a row, and needs nothing of that process's script.

Pools of libraries were tried with a worker killed and with the parent killed.  `ProcessPoolExecutor` (Python
3.11) and loky 3.7 give up every row that is not finished, and their workers outlive the parent.  Pebble 5.2
loses the one row, too, but its workers go on with a row when the parent is gone, and scripts without a
``__main__`` guard cannot use it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from infermax_opt.core.compiled import tell_plain
from infermax_opt.table.compute import Job
from infermax_opt.table.row import Row, row_from_json

__all__ = ["Answer", "Crew", "LocalCrew", "run_jobs"]

COMMAND = (sys.executable, "-m", "infermax_opt.table.worker")


@dataclass(frozen=True)
class Answer:
    """What became of a job: its row, or why there is none."""

    job: Job
    row: Row | None
    error: str | None = None


class _Worker:
    """One process and the job it is at."""

    def __init__(self, command: Sequence[str], lines: queue.SimpleQueue[tuple[_Worker, bytes | None]]):
        environment = dict(os.environ)
        package = str(Path(__file__).resolve().parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
        # Rows run side by side; the algebra libraries' own threads would only get in their way.
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        self.job: Job | None = None
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            # Ctrl-C in the terminal is for the parent, which ends the workers.
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: queue.SimpleQueue[tuple[_Worker, bytes | None]]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self.process.stdout or ():
                # A killed worker may leave half a line.
                if line.endswith(b"\n"):
                    lines.put((self, line))
        lines.put((self, None))

    def give(self, job: Job) -> None:
        """Start a job.  Where the worker is dead already, its end is reported like any other."""
        self.job = job
        pipe: Any = self.process.stdin
        with contextlib.suppress(OSError):
            pipe.write(json.dumps(job.to_json()).encode() + b"\n")
            pipe.flush()

    def end(self) -> str:
        """End the process; return how it ended and its last words."""
        if self.process.poll() is None:
            # Its output is closed or no longer wanted.
            self.process.kill()
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self.errors.seek(0)
        words = self.errors.read().decode(errors="replace").strip().splitlines()
        self.errors.close()
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return f"the worker ended with {how}" + (f": {words[-1][:300]}" if words else "")


class Crew(Protocol):
    """Who computes rows: processes of this machine, or workers elsewhere."""

    @property
    def cores(self) -> int:
        """That they have together."""
        ...

    def run(self, jobs: Iterable[Job], count: int, /) -> Generator[Answer]:
        """Run jobs, so many at a time, and yield answers as they come; closing it ends what runs."""
        ...


@dataclass(frozen=True)
class LocalCrew:
    """Processes of this machine."""

    cores: int

    def run(self, jobs: Iterable[Job], count: int) -> Generator[Answer]:
        """Run jobs as `run_jobs` does."""
        tell_plain()
        return run_jobs(jobs, count)


def run_jobs(jobs: Iterable[Job], workers: int, command: Sequence[str] = COMMAND) -> Generator[Answer]:
    """Run jobs in worker processes and yield answers as they come.

    Jobs are taken from the iterable when a worker is free for them.  Closing the iterator (and
    any exception in it, Ctrl-C too) ends the workers.

    Parameters
    ----------
    jobs : iterable of Job
    workers : int
    command : sequence of str
        Program that behaves like `infermax_opt.table.worker`.
    """
    todo = iter(jobs)
    lines: queue.SimpleQueue[tuple[_Worker, bytes | None]] = queue.SimpleQueue()
    crew: set[_Worker] = set()

    def employ() -> None:
        job = next(todo, None)
        if job is not None:
            worker = _Worker(command, lines)
            crew.add(worker)
            worker.give(job)

    try:
        for _ in range(workers):
            employ()
        while crew:
            worker, line = lines.get()
            if worker not in crew:
                continue  # dismissed
            job = worker.job
            assert job is not None
            if line is None:
                crew.remove(worker)
                answer = Answer(job, None, worker.end())
                employ()
            else:
                said = json.loads(line)
                row = row_from_json(said["row"]) if "row" in said else None
                answer = Answer(job, row, said.get("error"))
                following = next(todo, None)
                if following is None:
                    crew.remove(worker)
                    worker.end()
                else:
                    worker.give(following)
            yield answer
    finally:
        for worker in crew:
            worker.end()
