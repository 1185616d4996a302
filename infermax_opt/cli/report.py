"""The command `report`: wiring only."""

from __future__ import annotations

import os

import click

from infermax_opt.cli.completion import files
from infermax_opt.cli.console import DONE, MAX_SIZE, check_output, output_option, wrote
from infermax_opt.core.errors import InputError
from infermax_opt.files.json import STANDARD

__all__ = ["report"]


@click.command()
@click.argument("result", metavar="RESULT", shell_complete=files)
@MAX_SIZE
@output_option("PAGE", "Write the page to this file.", required=True)
def report(result: str, output: str) -> int:
    """A page for a browser of a result, of a folder of `table`, or of the JSON of `gap`.

    One file that loads nothing: the answer in a sentence, charts with tables behind them, and what was
    proved how.  It prints, fits a phone, and follows the light or dark mode of the reader.  It shows what
    the file says; `verify` checks it.  `plan` writes a page of its own.

    \b
    Examples:
      infermax-opt report result.json -o result.html
      infermax-opt report out/paper-csp -o paper-csp.html
      infermax-opt gap trace.json run.json -o gap.json && infermax-opt report gap.json -o gap.html
    """  # noqa: D301
    from infermax_opt.files.pages import source_of, write_page
    from infermax_opt.files.writing import all_written

    source = source_of(result)
    check_output(output, source)
    if output != STANDARD and not output.lower().endswith((".html", ".htm")):
        raise InputError(f"{output!r} does not end in .html", field="output")
    if source != STANDARD and not os.path.exists(source):
        raise InputError("is no file", source=source)
    with all_written():
        write_page(result, output)
        wrote(output)
    return DONE
