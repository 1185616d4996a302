"""The command line: wiring only.  Every command loads what it needs when it runs."""

from __future__ import annotations

import io
import os
import sys

import click

from infermax_opt.cli import completion
from infermax_opt.cli.bound import bound, schedule
from infermax_opt.cli.check import check, plot, verify
from infermax_opt.cli.console import Program
from infermax_opt.cli.export import export
from infermax_opt.cli.front import front
from infermax_opt.cli.gap import gap
from infermax_opt.cli.import_ import import_
from infermax_opt.cli.instance import instance
from infermax_opt.cli.latency import calibrate, configure
from infermax_opt.cli.listings import file_formats, problem_kinds, profiles, schedulers, versions
from infermax_opt.cli.plan import plan
from infermax_opt.cli.report import report
from infermax_opt.cli.simulate import simulate
from infermax_opt.cli.solve import solve
from infermax_opt.cli.table import table
from infermax_opt.cli.warm import warm
from infermax_opt.cli.workers import workers
from infermax_opt.core.interrupts import heed_signals

__all__ = ["cli", "main"]


@click.group(
    cls=Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="infermax-opt", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Tell how far from optimal an LLM-serving schedule is, and prove it.

    For a workload, a machine and a cost model: a schedule (upper bound), a lower bound with its
    proof, and the gap between the two.

    \b
    Examples:
      infermax-opt instance toy -o toy.json
      infermax-opt solve toy.json
      infermax-opt import trace.csv --format azure --offline --first 100 -o trace.json
      infermax-opt schedule trace.json --scheduler sarathi -o sarathi.json
      infermax-opt verify trace.json sarathi.json
      infermax-opt plot trace.json sarathi.json -o sarathi.png

    Files are JSON, gzipped where the name ends in .gz.  The name - is standard input (gzipped or not)
    where a file is read, and standard output where one is written; the report then goes to standard
    error.

    \b
    Exit codes:
      0    done, also where Ctrl-C or SIGTERM stopped the search early and there is a result
      1    schedule or claim is wrong, or infeasible
      2    unusable input
      130  stopped by Ctrl-C before there was a result (`table` writes the rows that are finished)
      143  stopped by SIGTERM, likewise
    """  # noqa: D301
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    solve, bound, schedule, verify, check, plot, front, gap, instance, import_, export, table, calibrate,
    configure, workers, simulate, plan, report, warm, versions, schedulers, problem_kinds, profiles,
    file_formats,
):  # fmt: skip
    cli.add_command(command)
cli.add_command(completion.completion)


def _replace_closed_streams() -> None:
    """Let streams be empty, or lose what is written, that whoever started this has closed (``>&-``)."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Takes the number of the stream, which otherwise the next file would have.
            handle = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(handle, "r" if name == "stdin" else "w", encoding="utf-8"))


def main() -> None:
    """Entry point of the console script."""
    _replace_closed_streams()
    heed_signals()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    cli.main(prog_name="infermax-opt")
