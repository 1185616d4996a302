"""The command `workers`, and `verify` for streams: wiring only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from infermax_opt.cli.completion import files
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    FAILED,
    MAX_SIZE,
    PROGRESS,
    check_output,
    check_outputs_differ,
    output_option,
    progress_printer,
    save,
    wrote,
)
from infermax_opt.cli.stream_options import given_stream, stream_parameters, tell_unplaceable
from infermax_opt.core.interrupts import patient

if TYPE_CHECKING:
    from infermax_opt.cluster.series import WorkerSeries

__all__ = ["workers"]


@click.command(params=stream_parameters())
@MAX_SIZE
@click.option(
    "--time-limit",
    metavar="S",
    type=click.FloatRange(0, 10**7, min_open=True),
    default=60.0,
    show_default=True,
    help="Time to search, s; after that, best-fit places the rest.",
)
@click.option(
    "--placement",
    metavar="FILE",
    shell_complete=files,
    help="Write the worker of every request to this file.",
)
@click.option(
    "--stream",
    "stream_file",
    metavar="FILE",
    shell_complete=files,
    help="Write the stream to this file, for `verify`.",
)
@click.option(
    "--plot",
    metavar="PICTURE",
    shell_complete=files,
    help="Draw the series into this .png or .svg file.",
)
@output_option("SERIES", "Write the series to this file: .csv, or else JSON.")
@PROGRESS
@AS_JSON
@click.pass_context
def workers(
    context: click.Context,
    /,
    input_file: str,
    form: str | None,
    placement: str | None,
    stream_file: str | None,
    plot: str | None,
    output: str | None,
    progress: bool | None,
    as_json: bool,
    time_limit: float,
    seed: int,
    **options: Any,
) -> int:
    """Fewest workers over time for a trace and latency limits: lower and upper bound.

    Requests are placed at heartbeats, each on one worker, so that prefill (limits c and d of
    Aladdin), iteration time (b) and KV cache (e) keep their limits; workers run as their latency
    model says.  At each heartbeat: what any policy that keeps these limits needs whatever it did
    before, what is needed with the ongoing requests where this run put them, and what is used.
    Beside them, look-ahead, which keeps TTFT and ATGT themselves and not these limits: it may use
    fewer workers than the bounds, which are not for it.  Ctrl-C or SIGTERM stops the search early.
    With --split-phase, the workers that do the prefill follow, as a series of their own.

    TTFT counts from the heartbeat at which a request is placed.  The time limit is for the search;
    the bounds for all policies, look-ahead and the verifier come after it.  Where a request of a stream
    fits on no worker, the exit code is 1; of a trace, its line is named, and the exit code is 2.

    \b
    Examples:
      infermax-opt workers azure.csv --format azure --ttft 2.2 --atgt 0.03 -o series.csv --plot series.png
      infermax-opt workers azure.csv --format azure --worker llama-3.1-8b_h100 --ttft 1 --atgt 0.02
      infermax-opt workers stream.json --placement placement.json
    """  # noqa: D301
    from infermax_opt.cluster.data.formats import write_stream
    from infermax_opt.cluster.prefill import prefill_stream
    from infermax_opt.cluster.series import worker_series
    from infermax_opt.files.writing import all_written
    from infermax_opt.placement.data.formats import write_placement

    check_outputs_differ(output, placement, stream_file, plot)
    for path in (output, placement, stream_file, plot):
        check_output(path, input_file)
    if plot is not None:
        from infermax_opt.cluster.plot import plot_workers
        from infermax_opt.files.figure import picture_format, save_picture

        picture_format(plot)
    stream = given_stream(context, input_file, form, seed=seed, **options)
    side = prefill_stream(stream) if stream.split_phase else None
    if tell_unplaceable(input_file, stream) or (side is not None and tell_unplaceable(input_file, side)):
        return FAILED
    if stream_file is not None:
        write_stream(stream, stream_file)
    show = progress_printer(progress)
    with patient() as patience:
        series, *sides = (
            worker_series(some, time_limit=time_limit, seed=seed, progress=show, patience=patience)
            for some in (stream, side)
            if some is not None
        )
    with all_written():
        _report(series, sides, output, as_json)
        if placement is not None:
            write_placement(series.placement, placement)
        if plot is not None:
            save_picture(plot_workers(series), plot)
    if not as_json:
        wrote(stream_file, placement, plot)
    return DONE


def _report(series: WorkerSeries, sides: list[WorkerSeries], output: str | None, as_json: bool) -> None:
    """Print the series, and that of the workers that do the prefill; write the former to a file."""
    from infermax_opt.cluster.report import series_csv, series_text, series_to_json

    value, text = series_to_json(series), series_text(series)
    for before in sides:
        value["prefill"] = series_to_json(before)
        text = f"{text}\n\n{series_text(before)}"
    save(value, output, None if as_json else text, lambda: series_csv(series))
