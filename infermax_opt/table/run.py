"""Batch solving: a suite becomes a table of verified rows.

The table's folder holds ``rows.jsonl`` (the journal: every finished row), ``table.csv``,
``table.md`` and ``table.json`` (written from it), ``instances/``, ``results/`` and
``certificates/`` (what the rows rest on; `infermax-opt verify` checks them again).  A run can be
killed at any point and continued by the same call: finished rows are neither lost nor repeated.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from infermax_opt.core.checks import checked_seconds, checked_texts
from infermax_opt.core.columns import gap_text
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole
from infermax_opt.core.interrupts import Stopped
from infermax_opt.core.progress import Progress, Teller
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.files.json import to_json_text
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.table.archive import Archive
from infermax_opt.table.compute import Job
from infermax_opt.table.journal import Journal, open_journal
from infermax_opt.table.output import Table, csv_text, markdown_text, table_to_json
from infermax_opt.table.pool import Answer, Crew, LocalCrew
from infermax_opt.table.remote import dask_crew
from infermax_opt.table.row import Row, RowOptions
from infermax_opt.table.suites import Suite, get_suite

__all__ = ["Table", "run_table"]

#: Least seconds between two writings of the tables while rows come in.
PAUSE = 2.0
#: Most of the time that writing them takes: those of 10,000 rows take seconds.
SHARE = 0.05
WRITERS: dict[str, Callable[[Table], str]] = {
    "table.csv": csv_text,
    "table.md": markdown_text,
    "table.json": lambda table: to_json_text(table_to_json(table)),
}


def run_table(
    suite: str | Suite,
    directory: str | os.PathLike[str],
    *,
    time_limit: float = 60.0,
    jobs: int | None = None,
    only: Sequence[str] = (),
    limit_rows: int | None = None,
    data: str | os.PathLike[str] | None = None,
    seed: int = 0,
    best_known: str | os.PathLike[str] | None = None,
    on: str | None = None,
    progress: Progress | None = None,
) -> Table:
    """Compute the rows of a suite that the directory's journal lacks, and write the tables.

    Rows run in worker processes.  One that fails (its worker crashed, or something did not pass
    verification) costs only itself: it is reported in `Table.failures` and tried again by the
    next run.

    Parameters
    ----------
    suite : str or Suite
        A shipped suite's name, or cases of your own.
    directory : path
        Created where it does not exist.  Rows computed with other options or another version of
        this package stay in its journal, but not in the tables.
    time_limit : float
        Wall-clock seconds of `infermax_opt.solve` per row.
    jobs : int, optional
        Rows at a time; default: the cores at hand.  They share the cores.
    only : sequence of str
        Globs: compute the rows whose name matches one of them.
    limit_rows : int, optional
        Compute the first so many of these rows.
    data : path, optional
        Folder of the traces that the suite ``azure`` reads.
    seed : int
    best_known : path, optional
        Archive (`infermax_opt.table.archive`) whose schedules rows start from, and which is given
        whatever improves it.
    on : str, optional
        Address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``, whose workers compute the rows; they
        need no folder in common with this machine.  Default: processes of this machine.
    progress : callable, optional
        Receives a `ProgressEvent` per finished row; as in `infermax_opt.solve`, it may end the run.

    Returns
    -------
    Table
        All rows of the suite with these options, also those of earlier runs.

    Raises
    ------
    InputError
        If an option is unusable, or the directory is not, or another run uses it; if the scheduler or one of
        its workers is.
    KeyboardInterrupt
        On Ctrl-C, after the workers were ended and the tables written.
    """
    chosen = suite if isinstance(suite, Suite) else get_suite(suite, data)
    _check(time_limit, jobs, seed, limit_rows)
    options = RowOptions(float(time_limit), seed, best_known is not None)
    instances = [case.build() for case in chosen.select(checked_texts(only, "only"), limit_rows)]
    folder = Path(directory).absolute()
    archive = None if best_known is None else Archive(best_known, chosen.name)
    if archive is not None:
        archive.prepare()
    with contextlib.ExitStack() as held:
        crew: Crew = LocalCrew(_cores()) if on is None else held.enter_context(dask_crew(on))
        workers = crew.cores if jobs is None else jobs
        run = _Run(chosen, options, folder, archive, crew, threads=max(1, crew.cores // workers))
        journal = held.enter_context(open_journal(folder))
        _sweep(folder)
        return run.run(journal, instances, workers, progress)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _check(time_limit: float | None, jobs: int | None, seed: int, limit_rows: int | None) -> None:
    checked_seconds(time_limit, positive=True)
    if time_limit is None or time_limit == math.inf:
        raise InputError("a row without an end would keep its worker", field="time_limit")
    for name, value, least in (("jobs", jobs, 1), ("seed", seed, 0), ("limit_rows", limit_rows, 1)):
        if value is not None and read_whole(value, name) < least:
            raise InputError(f"{value} is less than {least}", field=name)


def _sweep(folder: Path) -> None:
    """Remove what killed workers left behind: half-written files never carry a real name."""
    for kind in ("instances", "results", "certificates"):
        for path in (folder / kind).rglob(".tmp-*"):
            with contextlib.suppress(OSError):
                path.unlink()


class _Run:
    """One call of `run_table`."""

    def __init__(
        self,
        suite: Suite,
        options: RowOptions,
        folder: Path,
        archive: Archive | None,
        crew: Crew,
        threads: int,
    ):
        self.suite = suite
        self.options = options
        self.folder = folder
        self.archive = archive
        self.crew = crew
        self.threads = threads
        self.version = metadata.version("infermax-opt")
        self.protocol = options.protocol(self.version)
        self.failures: dict[str, str] = {}
        self.computed = 0
        self.due = -math.inf

    def run(
        self,
        journal: Journal,
        instances: Sequence[AnyInstance],
        workers: int,
        progress: Progress | None,
    ) -> Table:
        """Compute what is missing; whatever ends that, the tables hold what there is."""
        keys = {instance.name: (instance.sha256, self.protocol) for instance in instances}
        missing = [instance for instance in instances if keys[instance.name] not in journal.rows]
        try:
            for key in keys.values():
                if key in journal.rows:
                    # The run that computed it may have been killed before it told the archive.
                    self._archive(journal.rows[key])
            with contextlib.suppress(Stopped):
                self._compute(journal, missing, workers, len(instances), progress)
        except BaseException:
            with contextlib.suppress(InputError, OSError):
                # Whatever came in between, the file tells which rows are finished.
                journal.reload()
                self._write(journal)
            raise
        return self._write(journal)

    def _compute(
        self,
        journal: Journal,
        missing: Sequence[AnyInstance],
        workers: int,
        wanted: int,
        progress: Progress | None,
    ) -> None:
        began, tell = time.monotonic(), Teller(progress)
        with contextlib.closing(self.crew.run(self._jobs(missing), min(workers, len(missing)))) as answers:
            for count, answer in enumerate(answers, 1):
                self._take(journal, answer)
                left = (time.monotonic() - began) / count * (len(missing) - count)
                tell(
                    _news(answer, wanted - len(missing) + count, wanted, left),
                    "row",
                    value=answer.row.upper_bound if answer.row else None,
                    bound=answer.row.lower_bound if answer.row else None,
                    source=answer.job.name,
                )
                if time.monotonic() > self.due:
                    self._write(journal)

    def _jobs(self, instances: Sequence[AnyInstance]) -> Iterator[Job]:
        (self.folder / "instances").mkdir(exist_ok=True)
        archive = str(self.archive.directory.absolute()) if self.archive else None
        for instance in instances:
            write_instance(instance, self.folder / "instances" / f"{instance.name}.json")
            yield Job(
                suite=self.suite.name,
                name=instance.name,
                folder=str(self.folder),
                version=self.version,
                options=self.options,
                threads=self.threads,
                archive=archive,
            )

    def _take(self, journal: Journal, answer: Answer) -> None:
        if answer.row is None:
            self.failures[answer.job.name] = f"no row: {answer.error}"
            return
        journal.append(answer.row)
        self.computed += 1
        self._archive(answer.row)

    def _archive(self, row: Row) -> None:
        """Give the archive what improves it; a contradiction with it is reported, the row kept."""
        if self.archive is None:
            return
        try:
            if self.archive.beaten_by(row.instance, row.upper_bound, row.lower_bound):
                instance = read_instance(self.folder / "instances" / f"{row.instance}.json")
                claim = read_schedule_or_claim(self.folder / row.result)
                if not isinstance(claim, Claim):
                    raise InputError("is not a result", source=row.result)
                self.archive.improve(
                    instance,
                    claim,
                    source=row.schedule_source or "unknown",
                    versions=row.versions,
                    certificate=self.folder / row.certificate if row.certificate else None,
                )
        except (InputError, OSError) as error:
            self.failures[row.instance] = f"not archived: {error}"

    def _write(self, journal: Journal) -> Table:
        """Write the tables, each whole or not at all."""
        began = time.monotonic()
        order = {case.name: k for k, case in enumerate(self.suite.cases)}
        rows = {
            row.instance: row  # the last of its name, in case the suite changed under the version
            for row in journal.rows.values()
            if row.protocol == self.protocol and row.suite == self.suite.name and row.instance in order
        }
        table = Table(
            suite=self.suite.name,
            options=self.options,
            version=self.version,
            rows=tuple(sorted(rows.values(), key=lambda row: order[row.instance])),
            total=len(order),
            failures=dict(self.failures),
            computed=self.computed,
        )
        for name, text in WRITERS.items():
            target = self.folder / name
            # A name of its own, which the next run overwrites: a kill leaves no litter.
            temporary = self.folder / f".{name}.new"
            try:
                temporary.write_text(text(table), encoding="utf-8")
                os.replace(temporary, target)
            except OSError as error:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                reason = error.strerror or str(error)
                raise InputError(f"cannot be written: {reason}", source=str(target)) from None
        now = time.monotonic()
        self.due = now + max(PAUSE, (now - began) / SHARE)
        return table


def _news(answer: Answer, count: int, wanted: int, left: float) -> str:
    row = answer.row
    if row is None:
        found = f"failed: {answer.error}"
    else:
        found = "gap " + (f"{gap_text(row.gap)} %" if row.gap is not None else "-")
    rest = f"; about {_duration(left)} left" if count < wanted else ""
    return f"{count}/{wanted} {answer.job.name}: {found}{rest}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
