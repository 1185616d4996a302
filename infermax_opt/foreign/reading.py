"""The formats of runs, and how a file of any of them is read."""

from __future__ import annotations

import os
from collections.abc import Mapping

from infermax_opt.core.errors import InputError
from infermax_opt.core.garbage import uncollected
from infermax_opt.files.traces import FORMATS, read_trace
from infermax_opt.foreign.aiperf import AIPERF
from infermax_opt.foreign.aisimulate import AISIMULATE
from infermax_opt.foreign.blis import BLIS
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.guidellm import GUIDELLM
from infermax_opt.foreign.head import Head, head_of
from infermax_opt.foreign.inference_perf import INFERENCE_PERF
from infermax_opt.foreign.infermax_fork import INFERMAX
from infermax_opt.foreign.llmservingsim import LLMSERVINGSIM
from infermax_opt.foreign.llmservingsim_sim import LLMSERVINGSIM_SIM
from infermax_opt.foreign.no_results import ours, what_else
from infermax_opt.foreign.run import Run
from infermax_opt.foreign.sglang import SGLANG
from infermax_opt.foreign.vidur import VIDUR
from infermax_opt.foreign.vidur_chrome_trace import VIDUR_CHROME_TRACE
from infermax_opt.foreign.vllm import VLLM
from infermax_opt.foreign.vllm_otlp import VLLM_OTLP

__all__ = ["RUN_FORMATS", "guess_format", "read_run"]

RUN_FORMATS: Mapping[str, RunFormat] = {
    form.name: form
    for form in (
        AIPERF,
        AISIMULATE,
        BLIS,
        GUIDELLM,
        INFERENCE_PERF,
        INFERMAX,
        LLMSERVINGSIM,
        LLMSERVINGSIM_SIM,
        SGLANG,
        VIDUR,
        VIDUR_CHROME_TRACE,
        VLLM,
        VLLM_OTLP,
    )
}
"""Formats of runs by name."""


def _guess(head: Head) -> str | None:
    found = [name for name, form in RUN_FORMATS.items() if form.known(head)]
    return found[0] if len(found) == 1 else None


def guess_format(path: str | os.PathLike[str]) -> str | None:
    """Name of the format of a file, where its contents show it; None where they do not.

    Raises
    ------
    InputError
        If the file cannot be read, is empty, or is a pickle; or is known to hold no results.
    """
    head = head_of(path)
    guessed = _guess(head)
    other = what_else(head) if guessed is None else None
    if other is not None:
        raise InputError(other, source=os.fspath(path))
    return guessed


def read_run(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    benchmark: int | None = None,
    replica: int | None = None,
    trace: str | os.PathLike[str] | None = None,
    trace_format: str | None = None,
    time_unit: str | None = None,
) -> Run:
    """Read a run of another system (``.gz`` accepted).

    Parameters
    ----------
    path : path
    format : str, optional
        A key of `RUN_FORMATS`.  Default: what its contents show.
    benchmark : int, optional
        Which of several runs in the file, from 1; needed where there are several.
    replica : int, optional
        Which of several machines whose batches or requests are in the file.
    trace : path, optional
        The trace that was replayed, where the file has no arrivals.
    trace_format : str, optional
        Of the trace: a key of `infermax_opt.files.traces.FORMATS`.
    time_unit : {"s", "ms"}, optional
        Of the trace, where its format needs one; formats of runs have units of their own.

    Raises
    ------
    InputError
        Naming file, place and value; also if no contents show the format, or the file holds no requests.
    """
    name = os.fspath(path)
    head = head_of(name)
    form = RUN_FORMATS[_format(name, head, format)]
    chosen = {"benchmark": benchmark, "replica": replica, "trace": trace}
    for key, value in chosen.items():
        if value is not None and key not in form.takes:
            raise InputError(f"{form.name} files take none", field=key)
    if trace is None:
        for key, value in (("trace format", trace_format), ("time unit", time_unit)):
            if value is not None:
                raise InputError("goes with a trace beside the file only; units of runs are known", field=key)
        beside = None
    else:
        if trace_format is None:
            raise InputError(f"is needed beside a trace; one of {', '.join(FORMATS)}", field="trace format")
        beside = read_trace(trace, trace_format, time_unit=time_unit)
    with uncollected():
        return form.read(name, Choices(benchmark, replica, beside))


def _format(path: str, head: Head, format: str | None) -> str:
    """Name of the format of a file, which is `format` if it is given."""
    known = ", ".join(RUN_FORMATS)
    if format in RUN_FORMATS:
        return str(format)
    if format is not None and format not in FORMATS:
        raise InputError(f"{format!r} is none of {known}", field="format")
    other = what_else(head)
    if format is not None:
        raise InputError(
            other or f"{format!r} is a format of traces, which hold no results; those of runs are {known}",
            source=path,
        )
    guessed = _guess(head)
    if guessed is None:
        raise InputError(
            other or ours(head) or f"its contents do not show its format; say which: {known}", source=path
        )
    return guessed
