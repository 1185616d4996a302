"""The command `workers`: wiring only."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from infermax_opt.console import AS_JSON, DONE, FAILED, check_output, output_option, progress_printer, save
from infermax_opt.errors import InputError
from infermax_opt.option_types import chosen_worker, decimal, window, worker_options

if TYPE_CHECKING:
    from infermax_opt.cluster.stream import Stream
    from infermax_opt.io.traces import Trace

__all__ = ["verify_stream_file", "workers"]

#: Options that say how to make a stream of a trace.
TRACE_OPTIONS = frozenset(
    {
        "time_unit", "first", "window", "skip_unfit", "worker", "ttft", "atgt", "theta", "gamma", "heartbeat",
        "split_phase", "predict_error",
    }
)  # fmt: skip
#: Lines about requests that fit nowhere before the rest is only counted.
MOST_LINES = 10


@click.command()
@click.argument("input_file", metavar="TRACE|STREAM")
@click.option(
    "--format",
    "form",
    type=click.Choice(["azure", "burstgpt", "mooncake", "splitwise", "vidur"]),
    help="Layout of the trace file; without it, the file is a stream.",
)
@click.option("--time-unit", type=click.Choice(["s", "ms"]), help="Unit of arrivals; needed for mooncake.")
@click.option("--first", metavar="N", type=click.IntRange(1), help="Keep the first N requests.")
@click.option("--window", metavar="A:B", callback=window, help="Keep arrivals from A up to B seconds.")
@click.option("--skip-unfit", is_flag=True, help="Leave out requests that fit on no worker.")
@worker_options()
@click.option("--theta", metavar="X", callback=decimal, help="Share of limits b and d to use. Default: 1.")
@click.option(
    "--gamma", metavar="X", callback=decimal, help="Share of the output that counts as context. Default: 0.5."
)
@click.option("--heartbeat", metavar="S", callback=decimal, help="Seconds between heartbeats. Default: 1.")
@click.option("--split-phase", is_flag=True, help="Decode workers alone: others do the prefill.")
@click.option(
    "--predict-error",
    metavar="E",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="Predicted output lengths are off by a lognormal factor of this deviation.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option(
    "--time-limit",
    metavar="S",
    type=click.FloatRange(0, 10**7, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds of search; after that, best-fit places the rest.",
)
@click.option("--placement", metavar="FILE", help="Write the worker of every request to this file.")
@click.option("--stream", "stream_file", metavar="FILE", help="Write the stream to this file, for `verify`.")
@click.option("--plot", metavar="PICTURE", help="Draw the series into this .png or .svg file.")
@output_option("SERIES", "Write the series to this file: .csv, or else JSON.")
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
    as_json: bool,
    time_limit: float,
    seed: int,
    **options: Any,
) -> int:
    """Fewest workers over time for a trace and latency limits: lower and upper bound.

    Requests are placed at heartbeats, each on one worker, so that prefill (limits c and d of
    Aladdin), iteration time (b) and KV cache (e) keep their limits; workers run as their latency
    model says.  At each heartbeat: what any policy needs whatever it did before, what is needed
    with the ongoing requests where they are, and what is used.  Ctrl-C stops the search early.

    Exit code 1 where a request fits on no worker: the latency limits cannot be kept.

    \b
    Examples:
      infermax-opt workers azure.csv --format azure --ttft 2.2 --atgt 0.03 -o series.csv --plot series.png
      infermax-opt workers azure.csv --format azure --worker llama-3.1-8b_h100 --ttft 1 --atgt 0.02
      infermax-opt workers stream.json --placement placement.json
    """  # noqa: D301
    from infermax_opt.cluster.report import series_csv, series_text, series_to_json
    from infermax_opt.cluster.series import stream_unplaceable, worker_series
    from infermax_opt.io.files import write_text
    from infermax_opt.io.placement import write_placement
    from infermax_opt.io.stream import read_stream, write_stream

    outputs = [path for path in (output, placement, stream_file, plot) if path is not None]
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise InputError("is to be written twice", source=outputs[-1])
    for path in outputs:
        check_output(path, input_file)
    if plot is not None:
        from infermax_opt.plot import picture_format

        picture_format(plot)
    if form is None:
        _refuse_trace_options(context)
        stream = read_stream(input_file)
    else:
        stream = _of_trace(input_file, form, seed=seed, **options)
    unfit = stream_unplaceable(stream)
    if unfit:
        for line in unfit[:MOST_LINES]:
            click.echo(f"infermax-opt: {input_file}: {line}", err=True)
        if len(unfit) > MOST_LINES:
            click.echo(f"infermax-opt: {input_file}: ... and {len(unfit) - MOST_LINES} more", err=True)
        return FAILED
    if stream_file is not None:
        write_stream(stream, stream_file)
    series = worker_series(stream, time_limit=time_limit, seed=seed, progress=progress_printer())
    if placement is not None:
        write_placement(series.placement, placement)
    if plot is not None:
        from infermax_opt.plot_series import plot_series

        plot_series(series, plot)
    text = None if as_json else series_text(series)
    if output is not None and output.lower().endswith(".csv"):
        write_text(series_csv(series), output)
        output = None
    save(series_to_json(series), output, text)
    return DONE


def _refuse_trace_options(context: click.Context) -> None:
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT
        if given and parameter.name in TRACE_OPTIONS:
            raise click.UsageError(f"{parameter.opts[0]} goes with --format only; a stream says it.")


def _of_trace(
    path: str,
    form: str,
    *,
    time_unit: str | None,
    first: int | None,
    window: tuple[Fraction, Fraction] | None,
    skip_unfit: bool,
    worker: str,
    ttft: Fraction | None,
    atgt: Fraction | None,
    predict_error: float,
    seed: int,
    **options: Any,
) -> Stream:
    from infermax_opt.io.stream import stream_of_trace
    from infermax_opt.io.traces import read_trace

    machine, slo = chosen_worker(worker, ttft, atgt)
    trace = read_trace(path, form, time_unit=time_unit, first=first, window=window, offline=False)
    name = os.path.basename(path).removesuffix(".gz").rpartition(".")[0] or os.path.basename(path)
    left, stream = stream_of_trace(
        trace, name, machine, slo, error=predict_error, seed=seed, skip_unfit=skip_unfit,
        **{key: value for key, value in options.items() if value is not None},
    )  # fmt: skip
    _tell_left_out(path, left)
    return stream


def _tell_left_out(path: str, trace: Trace) -> None:
    for reason, count in trace.dropped.items():
        click.echo(f"infermax-opt: {path}: left out {count} requests: {reason}", err=True)


def verify_stream_file(stream_file: str, placement_file: str, as_json: bool) -> int:
    """Replay the placement of a stream and check the limits at every heartbeat."""
    from infermax_opt.cluster.report import stream_verification_text, stream_verification_to_json
    from infermax_opt.cluster.verification import verify_stream
    from infermax_opt.io.placement import read_placement
    from infermax_opt.io.stream import read_stream

    stream, placement = read_stream(stream_file), read_placement(placement_file)
    if placement.instance != stream.name:
        problem = f"is {placement.instance!r}, the stream is {stream.name!r}"
        raise InputError(problem, field="instance", source=placement_file)
    check = verify_stream(stream, placement)
    text = None if as_json else stream_verification_text(stream.name, check)
    save(stream_verification_to_json(stream.name, check), None, text)
    return DONE if check.ok else FAILED
