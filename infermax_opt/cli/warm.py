"""The command `warm`: wiring only."""

from __future__ import annotations

import click

from infermax_opt.cli.console import DONE, PROGRESS, progress_printer, say

__all__ = ["warm"]


@click.command()
@click.argument("parts", metavar="[PART]...", nargs=-1)
@click.option("--jobs", type=click.IntRange(1, 1024), default=1, help="Processes at a time. Default: 1.")
@PROGRESS
def warm(parts: tuple[str, ...], jobs: int, progress: bool | None) -> int:
    """Compile all kernels ahead, so that no command has to.

    Once after install, or while an image is built; what is compiled already is left.  A PART is a problem
    that has kernels (infermax, makespan, ...), or plan; default: all.  Compiled code is kept in the folder
    that the variable NUMBA_CACHE_DIR names, or beside the package.

    \b
    Examples:
      infermax-opt warm --jobs 2
      NUMBA_CACHE_DIR=/var/cache/infermax-opt infermax-opt warm infermax plan --progress
    """  # noqa: D301
    from infermax_opt.api.warming import warm as compile_ahead

    say(str(compile_ahead(parts, jobs=jobs, progress=progress_printer(progress))))
    return DONE
