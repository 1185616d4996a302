"""What ``import`` makes of a trace here: a stream, or one heartbeat of it as a placement instance."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import click

from infermax_opt.core.errors import InputError
from infermax_opt.core.importing import Made
from infermax_opt.core.lengths import MOST_ERROR
from infermax_opt.core.options import decimal_option
from infermax_opt.files.arrivals import Arrivals, arrival_options
from infermax_opt.files.text import seconds
from infermax_opt.files.traces import Trace
from infermax_opt.latency.workers import chosen_worker, worker_options
from infermax_opt.placement.data.instance import PlacementInstance, Slo, Worker
from infermax_opt.placement.data.traces import (
    busiest_heartbeat,
    heartbeat_instance,
    heartbeat_of,
    without_unplaceable,
)

__all__ = ["heartbeat_options", "import_heartbeat", "import_stream", "stream_options"]


def _shared_options() -> list[click.Option]:
    """Options of the workers, the limits and the predictions."""
    return [
        decimal_option("--heartbeat", "1", "Placement, stream: length of the heartbeat, s."),
        *worker_options("Placement, stream: "),
        decimal_option(
            "--theta",
            "1",
            "Placement, stream: share of the iteration time and of saved time that may be used.",
            "X",
        ),
        decimal_option(
            "--gamma", "0.5", "Placement, stream: share of the output that counts as context.", "X"
        ),
        click.Option(
            ["--predict-error"],
            metavar="E",
            type=click.FloatRange(0, MOST_ERROR),
            default=0.0,
            show_default=True,
            help="Placement, stream: predicted output lengths are off by a lognormal factor of this "
            "deviation.",
        ),
        *arrival_options(),
    ]


def heartbeat_options() -> list[click.Option]:
    """Options of one heartbeat."""
    at = (
        "Placement: end of the heartbeat, s after the first request. Default: the one with most input tokens."
    )
    ongoing = "Placement: with the requests that are on workers by then, where best-fit put them."
    return [
        *_shared_options(),
        decimal_option("--at", None, at),
        click.Option(["--ongoing"], is_flag=True, help=ongoing),
    ]


def stream_options() -> list[click.Option]:
    """Options of a stream."""
    split = "Stream: decode workers alone; others do the prefill."
    return [*_shared_options(), click.Option(["--split-phase"], is_flag=True, help=split)]


def import_stream(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    *,
    worker: str,
    ttft: Fraction | None,
    atgt: Fraction | None,
    predict_error: float,
    rate: Fraction | None,
    poisson: Fraction | None,
    seed: int,
    **rest: Any,
) -> Made:
    """Make a stream of a trace.

    Parameters
    ----------
    trace : Trace
    name : str
        Of the stream.
    skip_unfit : bool
        Whether to leave out requests that fit on no worker.
    worker : str
        See `infermax_opt.latency.workers.chosen_worker`.
    ttft, atgt : Fraction, optional
        Latency limits, seconds.
    predict_error : float
        Deviation of predicted output lengths.
    rate, poisson, seed
        See `infermax_opt.files.arrivals.Arrivals`; predictions are drawn from the same seed.
    **rest
        ``heartbeat``, ``theta``, ``gamma`` and ``split_phase``.

    Raises
    ------
    InputError
        If an option is unusable, or a request fits on no worker.
    """
    from infermax_opt.cluster.data.formats import stream_of_trace

    machine, slo = chosen_worker(worker, ttft, atgt)
    arrivals = Arrivals(rate, poisson, seed)
    left, stream = stream_of_trace(
        arrivals.of(trace), name, machine, slo, error=predict_error, seed=seed, skip_unfit=skip_unfit, **rest
    )
    facts = {"heartbeat": stream.heartbeat, "worker": worker, "ttft": slo.ttft, "atgt": slo.atgt}
    facts |= arrivals.facts
    text = (
        f"placed every {seconds(stream.heartbeat)} on workers of {worker} within {seconds(slo.ttft)} TTFT "
        f"and {seconds(slo.atgt)} ATGT{arrivals.text}"
    )
    return Made(stream, left.dropped, facts, text)


def import_heartbeat(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    *,
    heartbeat: Fraction,
    at: Fraction | None,
    ongoing: bool,
    worker: str,
    ttft: Fraction | None,
    atgt: Fraction | None,
    predict_error: float,
    rate: Fraction | None,
    poisson: Fraction | None,
    seed: int,
    **rest: Any,
) -> Made:
    """Make a placement instance of one heartbeat of a trace.

    Parameters
    ----------
    trace : Trace
    name : str
        Of the instance.
    skip_unfit : bool
        Whether to leave out requests that fit on no worker.
    heartbeat : Fraction
        Its length, seconds.
    at : Fraction, optional
        Its end, seconds after the first request; default: the one with the most input tokens.
    ongoing : bool
        Whether requests that are on workers by then are part of it.
    worker : str
        See `infermax_opt.latency.workers.chosen_worker`.
    ttft, atgt : Fraction, optional
        Latency limits, seconds.
    predict_error : float
        Deviation of predicted output lengths.
    rate, poisson, seed
        See `infermax_opt.files.arrivals.Arrivals`; predictions are drawn from the same seed.
    **rest
        ``theta`` and ``gamma``.

    Raises
    ------
    InputError
        If an option is unusable, or a request fits on no worker.
    """
    machine, slo = chosen_worker(worker, ttft, atgt)
    arrivals = Arrivals(rate, poisson, seed)
    trace = arrivals.of(trace)
    end = busiest_heartbeat(trace, heartbeat) if at is None else at
    rest |= {"error": predict_error, "seed": seed}
    if ongoing:
        trace, instance = _under_way(trace, name, skip_unfit, machine, slo, end, heartbeat, **rest)
    else:
        if skip_unfit:
            trace = without_unplaceable(heartbeat_of(trace, end, heartbeat), machine, slo, **rest)
        instance = heartbeat_instance(trace, name, machine, slo, at=end, heartbeat=heartbeat, **rest)
    under_way = sum(request.ongoing for request in instance.requests)
    facts = {"at": end, "heartbeat": heartbeat, "worker": worker, "ttft": slo.ttft, "atgt": slo.atgt}
    facts |= {"ongoing": under_way, **arrivals.facts}
    arrived = f"{under_way} under way; the others arrived" if under_way else "arrived"
    text = (
        f"{arrived} in the {seconds(heartbeat)} before {seconds(end)}, to be placed on workers of {worker} "
        f"within {seconds(slo.ttft)} TTFT and {seconds(slo.atgt)} ATGT{arrivals.text}"
    )
    return Made(instance, trace.dropped, facts, text)


def _under_way(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    machine: Worker,
    slo: Slo,
    end: Fraction,
    heartbeat: Fraction,
    **rest: Any,
) -> tuple[Trace, PlacementInstance]:
    """A heartbeat with the requests that are on workers by then, where best-fit put them."""
    from infermax_opt.cluster.data.formats import stream_of_trace
    from infermax_opt.cluster.heartbeat import stream_heartbeat

    if heartbeat <= 0 or end % heartbeat:
        problem = f"{float(end):g} s is no multiple of the heartbeat of {float(heartbeat):g} s"
        raise InputError(f"{problem}, as --ongoing needs", field="at")
    trace = replace(trace, requests=tuple(r for r in trace.requests if r.arrival <= end))
    trace, stream = stream_of_trace(
        trace, name, machine, slo, skip_unfit=skip_unfit, heartbeat=heartbeat, **rest
    )
    return trace, replace(stream_heartbeat(stream, int(end / heartbeat)), name=name)
