"""What a table costs beside its rows: seconds a row and size of the journal, of rows that take no time.

Usage: ``python scripts/bench_rows.py --rows 10000 [--on tcp://...] [--workers 2]``

One row of the toy is computed.  Then a suite of as many instances as asked for is run, whose rows are that
one with their own names, made by who would have computed it: ``none`` is this process, so that what is left
is the table itself (instances, journal, CSV, Markdown and JSON); ``pool`` are the processes of this machine,
``dask`` the workers of a scheduler, which send the result of the row, too.  The first
64 rows of each are another run, which starts the workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import infermax_opt
from infermax_opt.core.suite import Case
from infermax_opt.table import remote, run
from infermax_opt.table.compute import Job
from infermax_opt.table.pool import Answer, LocalCrew, run_jobs
from infermax_opt.table.row import row_from_json
from infermax_opt.table.suites import Suite

#: Rows of the run that starts the workers.
FIRST = 64
#: What a worker of the pool runs: a row for each job, but for what differs.
ANSWERING = """
import json, sys
from infermax_opt.files.instances import read_instance
row = json.loads(sys.argv[1])
for line in sys.stdin:
    job = json.loads(line)
    instance = read_instance(f"{job['folder']}/instances/{job['name']}.json")
    row |= {"instance": job["name"], "instance_sha256": instance.sha256}
    print(json.dumps({"row": row}), flush=True)
"""


def suite_of(count: int) -> Suite:
    """Toys that differ in their KV cache."""
    toy: Any = infermax_opt.load_instance("toy")

    def case(k: int) -> Case:
        system = replace(toy.system, kv_capacity=9 + k)
        return Case(f"toy-{k}", lambda: replace(toy, name=f"toy-{k}", system=system))

    return Suite("rows", tuple(case(k) for k in range(count)))


def template(folder: Path) -> dict[str, Any]:
    """The row of a toy."""
    made = infermax_opt.run_table(suite_of(1), folder, time_limit=5, jobs=1)
    return made.rows[0].to_json()


class Nobody(LocalCrew):
    """Rows that are there at once."""

    row: dict[str, Any]

    def run(self, jobs: Iterable[Job], count: int) -> Generator[Answer]:
        """A row for each job."""
        for job in jobs:
            instance = infermax_opt.read_instance(Path(job.folder, "instances", f"{job.name}.json"))
            found = {**self.row, "instance": job.name, "instance_sha256": instance.sha256}
            yield Answer(job, row_from_json(found))


class Pool(LocalCrew):
    """Processes that answer at once."""

    row: dict[str, Any]

    def run(self, jobs: Iterable[Job], count: int) -> Generator[Answer]:
        """A row for each job, through the pipes."""
        return run_jobs(jobs, count, [sys.executable, "-c", ANSWERING, json.dumps(self.row)])


def answering(row: Mapping[str, Any], result: bytes) -> Callable[..., dict[str, Any]]:
    """Stand-in for `infermax_opt.table.remote.remote_row`."""

    def answer(value: Mapping[str, Any], given: Mapping[str, bytes], wanted: object) -> dict[str, Any]:
        from infermax_opt.files.instances import read_instance

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "instance.json")
            path.write_bytes(given[f"instances/{value['name']}.json"])
            found = read_instance(path)
        sent = {f"results/{row['protocol']}/{value['name']}.json.gz": result}
        return {"row": {**row, "instance": value["name"], "instance_sha256": found.sha256}, "files": sent}

    return answer


def measured(what: str, count: int, folder: Path, options: dict[str, Any]) -> None:
    """Run so many rows, and print what they took."""
    run.run_table(suite_of(FIRST), folder / "first", time_limit=5, **options)
    began, used = time.monotonic(), time.process_time()
    made = run.run_table(suite_of(count), folder / "all", time_limit=5, **options)
    seconds, used = time.monotonic() - began, time.process_time() - used
    if made.failures or made.computed != count:
        sys.exit(f"{what}: {made.computed} rows, {dict(list(made.failures.items())[:3])}")
    journal = folder / "all" / "rows.jsonl"
    lines = journal.read_text(encoding="utf-8").splitlines()
    names = {json.loads(line)["instance"] for line in lines}
    if len(lines) != count or len(names) != count:
        sys.exit(f"{what}: {len(lines)} lines, {len(names)} rows in the journal")
    size = journal.stat().st_size
    began = time.monotonic()
    run.run_table(suite_of(count), folder / "all", time_limit=5, **options)
    again = time.monotonic() - began
    print(
        f"{what:5} {count} rows in {seconds:.1f} s: {1000 * seconds / count:.2f} ms a row, of which this "
        f"process computes {1000 * used / count:.2f} ms; journal {size / 2**20:.1f} MiB, "
        f"{size / count:.0f} bytes a row; "
        f"the same command again: {again:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--by", action="append", choices=("none", "pool", "dask"), help="repeatable; all")
    parser.add_argument(
        "--on", help="Dask scheduler; default: one of this process, with workers of their own"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row = template(folder / "template")
        asked = options.by or ("none", "pool", "dask")
        for what, crew in (("none", Nobody), ("pool", Pool)):
            if what not in asked:
                continue
            crew.row = row
            with patch.object(run, "LocalCrew", crew):
                measured(what, options.rows, folder / what, {"jobs": options.workers})
        if "dask" in asked:
            result = (folder / "template" / row["result"]).read_bytes()
            with contextlib.ExitStack() as held:
                on = options.on or held.enter_context(local_scheduler(options.workers))
                held.enter_context(patch.object(remote, "remote_row", answering(row, result)))
                measured("dask", options.rows, folder / "dask", {"jobs": options.workers, "on": on})


@contextlib.contextmanager
def local_scheduler(workers: int) -> Generator[str]:
    """A scheduler of this process and workers as processes."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
        yield str(cluster.scheduler_address)


if __name__ == "__main__":
    main()
