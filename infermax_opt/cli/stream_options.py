"""Options of the commands that take a stream, or a trace to make one of; and the stream itself."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from infermax_opt.cli.completion import files
from infermax_opt.cli.console import tell_dropped
from infermax_opt.cli.options import TRACE_FORMATS
from infermax_opt.core.errors import InputError
from infermax_opt.core.lengths import MOST_ERROR
from infermax_opt.core.options import LARGEST_SEED, decimal_option, window
from infermax_opt.files.json import OtherLayout
from infermax_opt.latency.workers import chosen_worker, worker_options

if TYPE_CHECKING:
    from infermax_opt.cluster.data.stream import Stream

__all__ = ["given_stream", "stream_parameters", "tell_unplaceable"]

#: Options that say how to make a stream of a trace.
TRACE_OPTIONS = frozenset(
    {
        "time_unit", "first", "window", "skip_unfit", "worker", "ttft", "atgt", "theta", "gamma", "heartbeat",
        "split_phase", "predict_error",
    }
)  # fmt: skip
#: Lines about requests that fit nowhere before the rest is only counted.
MOST_LINES = 10


def stream_parameters() -> list[click.Parameter]:
    """The file, and the options that say how to make a stream of it if it is a trace."""
    return [
        click.Argument(["input_file"], metavar="TRACE|STREAM", shell_complete=files),
        click.Option(
            ["--format", "form"],
            type=click.Choice(TRACE_FORMATS),
            help="Layout of the trace file; without it, the file is a stream.",
        ),
        click.Option(
            ["--time-unit"], type=click.Choice(["s", "ms"]), help="Unit of arrivals; needed for mooncake."
        ),
        click.Option(["--first"], metavar="N", type=click.IntRange(1), help="Keep the first N requests."),
        click.Option(
            ["--window"],
            metavar="A:B",
            callback=window,
            help="Keep arrivals from A up to, not including, B, s.",
        ),
        click.Option(["--skip-unfit"], is_flag=True, help="Leave out requests that fit on no worker."),
        *worker_options(),
        decimal_option("--theta", None, "Share of limits b and d to use. Default: 1.", "X"),
        decimal_option("--gamma", None, "Share of the output that counts as context. Default: 0.5.", "X"),
        decimal_option("--heartbeat", None, "Time between heartbeats, s. Default: 1."),
        click.Option(["--split-phase"], is_flag=True, help="Decode workers alone: others do the prefill."),
        click.Option(
            ["--predict-error"],
            metavar="E",
            type=click.FloatRange(0, MOST_ERROR),
            default=0.0,
            show_default=True,
            help="Predicted output lengths are off by a lognormal factor of this deviation.",
        ),
        click.Option(
            ["--seed"],
            type=click.IntRange(0, LARGEST_SEED),
            default=0,
            show_default=True,
            help="Of what policies draw at random.",
        ),
    ]


def given_stream(context: click.Context, input_file: str, form: str | None, **options: Any) -> Stream:
    """The stream that the options name.

    Parameters
    ----------
    context : click.Context
        Tells which options were given.
    input_file : str
        A stream, or a trace.
    form : str, optional
        Layout of the trace; None: it is a stream.
    **options
        As the commands have them.

    Raises
    ------
    InputError
        If a file or an option is unusable.
    click.UsageError
        If an option for traces is given with a stream.
    """
    from infermax_opt.cluster.data.formats import read_stream

    if form is not None:
        return _of_trace(input_file, form, **options)
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT
        if given and parameter.name in TRACE_OPTIONS:
            raise click.UsageError(f"{parameter.opts[0]} goes with --format only; a stream says it.")
    try:
        return read_stream(input_file)
    except OtherLayout as error:
        words = f"{error.problem}; --format says how a trace is laid out"
        raise InputError(words, source=error.source) from None


def tell_unplaceable(path: str, stream: Stream) -> bool:
    """Say on stderr which requests exceed which limit by themselves; whether there are any."""
    from infermax_opt.cluster.data.stream import stream_unplaceable

    unfit = stream_unplaceable(stream)
    for line in unfit[:MOST_LINES]:
        click.echo(f"infermax-opt: {path}: {line}", err=True)
    if len(unfit) > MOST_LINES:
        click.echo(f"infermax-opt: {path}: ... and {len(unfit) - MOST_LINES} more", err=True)
    return bool(unfit)


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
    from infermax_opt.cluster.data.formats import stream_of_trace
    from infermax_opt.files.names import stem
    from infermax_opt.foreign.traces import read_trace

    machine, slo = chosen_worker(worker, ttft, atgt)
    trace = read_trace(path, form, time_unit=time_unit, first=first, window=window, offline=False)
    left, stream = stream_of_trace(
        trace, stem(path), machine, slo, error=predict_error, seed=seed, skip_unfit=skip_unfit,
        **{key: value for key, value in options.items() if value is not None},
    )  # fmt: skip
    tell_dropped(path, left.dropped)
    return stream
