"""The command line: wiring only.  Every command loads what it needs when it runs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, MutableMapping
from pkgutil import resolve_name

import click

from infermax_opt.cli.console import Program
from infermax_opt.core.interrupts import heed_signals

__all__ = ["cli", "main"]

#: Modules of this room, and the commands that each holds, name:object where these differ.
COMMANDS = {
    "solve": "solve",
    "bound": "bound schedule",
    "check": "verify check plot",
    "front": "front",
    "gap": "gap",
    "instance": "instance",
    "import_": "import:import_",
    "export": "export",
    "table": "table",
    "latency": "calibrate configure",
    "workers": "workers",
    "simulate": "simulate",
    "plan": "plan",
    "report": "report",
    "warm": "warm",
    "listings": "versions schedulers problems:problem_kinds profiles formats:file_formats",
    "completion": "completion",
}


class _Commands(MutableMapping[str, click.Command]):
    """Commands by name, each loaded when it is asked for: all of them take a tenth of a small `solve`."""

    def __init__(self) -> None:
        #: Where the commands are that are not loaded.
        self.homes = {
            name: f"infermax_opt.cli.{module}:{inside or name}"
            for module, names in COMMANDS.items()
            for name, _, inside in (text.partition(":") for text in names.split())
        }
        self.loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.loaded:
            self.loaded[name] = resolve_name(self.homes[name])
        return self.loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self.homes[name], self.loaded[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self.homes[name]
        self.loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)


@click.group(
    cls=Program,
    commands=_Commands(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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
