"""Requests of a trace or of a run, as instances are made of them."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import starmap

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number
from infermax_opt.files import traces
from infermax_opt.files.traces import FORMATS, Trace, TraceRequest, cut_trace
from infermax_opt.foreign.head import head_of
from infermax_opt.foreign.reading import RUN_FORMATS, read_run

__all__ = ["read_trace"]


def _is_run(path: str, format: str) -> bool:
    """Whether a file is of a run, where traces and runs have a format of the same name: by its header."""
    if format not in RUN_FORMATS:
        return False
    return format not in FORMATS or RUN_FORMATS[format].known(head_of(path))


def read_trace(
    path: str | os.PathLike[str],
    format: str,
    *,
    time_unit: str | None = None,
    first: int | None = None,
    window: tuple[Number, Number] | None = None,
    offline: bool = False,
    benchmark: int | None = None,
    replica: int | None = None,
) -> Trace:
    """Read the requests of a trace or of a run of another system (``.gz`` accepted).

    Parameters
    ----------
    path : path
    format : str
        A key of `infermax_opt.files.traces.FORMATS` or of `RUN_FORMATS`.  ``vidur`` is both; the header
        tells.
    time_unit : {"s", "ms"}, optional
        Unit of numeric arrivals; needed for "mooncake", whose files differ.  Runs have units of their own.
    first : int, optional
        Keep the first so many requests (of the window).
    window : pair of numbers, optional
        Keep arrivals from the first up to, not including, the second number of seconds after the first
        request; arrivals then count from the window's start.
    offline : bool
        Set all arrivals to 0.
    benchmark, replica : int, optional
        Which run of the file, from 1, and which machine of it; see `read_run`.

    Raises
    ------
    InputError
        Naming file, place and value; also if the file is a summary without requests.
    """
    name = os.fspath(path)
    if format not in FORMATS and format not in RUN_FORMATS:
        raise InputError(
            f"{format!r} is none of {', '.join(sorted({*FORMATS, *RUN_FORMATS}))}", field="format"
        )
    if not _is_run(name, format):
        for key, value in (("benchmark", benchmark), ("replica", replica)):
            if value is not None:
                raise InputError(f"{format} traces take none", field=key)
        return traces.read_trace(
            name, format, time_unit=time_unit, first=first, window=window, offline=offline
        )
    run = read_run(name, format, time_unit=time_unit, benchmark=benchmark, replica=replica)
    run.require_requests()
    # Those by arrival: the first ones are the same before they are made.
    kept = run if window is not None else replace(run, requests=run.requests[:first])
    whole = Trace(name, tuple(starmap(TraceRequest, kept.arrived())), run.left_out, remarks=run.remarks)
    return cut_trace(whole, first=first, window=window, offline=offline)
