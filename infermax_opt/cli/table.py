"""The command `table`: wiring only."""

from __future__ import annotations

from typing import Any

import click

from infermax_opt.cli.completion import folders, suites
from infermax_opt.cli.console import AS_JSON, DONE, FAILED, MAX_SIZE, PROGRESS, progress_printer
from infermax_opt.cli.options import seed_option
from infermax_opt.core.errors import InputError
from infermax_opt.files.json import STANDARD

__all__ = ["table"]


@click.command()
@MAX_SIZE
@click.argument("suite", metavar="SUITE", shell_complete=suites)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    shell_complete=folders,
    help="Folder of the journal and the tables. Default: out/SUITE.",
)
@click.option(
    "--time-limit",
    metavar="S",
    type=float,
    default=60.0,
    show_default=True,
    help="Time to solve each row, s.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 1024), help="Rows at a time. Default: all cores, here or of --on."
)
@click.option("--only", metavar="GLOB", multiple=True, help="Only rows whose name matches; repeatable.")
@click.option("--limit-rows", metavar="N", type=click.IntRange(1), help="Only the first N of these rows.")
@click.option(
    "--data",
    metavar="DIR",
    shell_complete=folders,
    help="Folder of the Azure traces. Default: $INFERMAX_OPT_DATA.",
)
@seed_option("Of every row; the same seed gives the same, as far as time allows.")
@click.option(
    "--best-known",
    metavar="DIR",
    shell_complete=folders,
    help="Archive to start from and to improve. Default: no archive.",
)
@click.option(
    "--on",
    metavar="ADDRESS",
    help="Dask scheduler whose workers compute the rows, such as tcp://HOST:8786. Default: this machine.",
)
@PROGRESS
@AS_JSON
def table(suite: str, output: str | None, progress: bool | None, as_json: bool, **options: Any) -> int:
    """Solve a suite of instances into one table: schedule, lower bound and gap of every row.

    \b
    Suites:
      paper-csp    22 rows: four requests on a KV cache for two, whole and chunked prompts
      paper-b32    210 rows: 32 equal requests; I, O = 1 to 1024, M = 100 to 100000, P = 4096, 512
      paper-b1024  210 rows: the same with 1024 requests
      mixes        70 rows: short and long prompts and outputs, 16 to 1024 requests
      azure        4 rows: the Azure 2023 traces (--data), offline and ten minutes of arrivals
      latency      105 rows: cells of paper-b1024 with P = 4096, mean end-to-end latency
      online       8 rows: ten minutes of the Azure traces at 1 to 8 times their rate, likewise (--data)
      tails        4 rows: 99th percentiles of TTFT and end-to-end latency on one of these (--data)
      attainment   5 rows: missed service levels on ten minutes of one, 4 and 8 times as fast (--data)
      vllm-runs    6 rows: three real runs of vLLM, makespan and mean end-to-end latency (--data)
      mcsf         400 rows: the two synthetic models of MC-SF's study, mean latency in rounds
      ecoserve     12 rows: EcoServe's workloads at 0.5 to 1.2 of what can be sustained, missed deadlines
      bros         6 rows: BROS's workloads, real-time requests beside best-effort ones, missed limits
      iteration    21 rows: one iteration of BROS, real-time and best-effort requests, which to serve
      makespan     24 rows: requests on clients, lengths like GSM8K's, 10 on 3 to 1319 on 200
      pipelining   12 rows: queues of 100 to 1200 requests for one reservation of KV
      placement    60 rows: heartbeats of five families on the fewest workers, 50 to 400 requests

    DIR then holds table.csv, table.md and table.json, the results and the journal rows.jsonl.
    The same command continues a run that was stopped or killed, and tries failed rows again.
    A row is in the tables only if it passed the verifier.  Exit code 1: some rows failed.

    \b
    Examples:
      infermax-opt table paper-csp --time-limit 5
      infermax-opt table paper-b32 --only '*-m100-*' --only '*-m1000-*' -o out/small --jobs 2
      infermax-opt table azure --data traces --best-known best-known
      infermax-opt table latency --on tcp://10.0.0.1:8786 -o out/latency
      infermax-opt table makespan --only '*-100x20-*' --time-limit 10
      infermax-opt table placement --only 'long-prompts-*' --time-limit 10
    """  # noqa: D301
    from infermax_opt.files.json import to_json_text
    from infermax_opt.table.output import summary_text, table_to_json
    from infermax_opt.table.run import run_table

    if output == STANDARD:
        raise InputError("is standard output; a table is a folder of files", field="output")
    folder = output or f"out/{suite}"
    made = run_table(suite, folder, progress=progress_printer(progress), **options)
    text = (
        f"{summary_text(made)}\nwrote table.csv, table.md and table.json in {click.format_filename(folder)}"
    )
    click.echo(to_json_text(table_to_json(made)).rstrip() if as_json else text)
    return FAILED if made.failures else DONE
