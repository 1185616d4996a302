"""Instances of any problem, made of a trace file."""

from __future__ import annotations

import os
from typing import Any

import click

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number
from infermax_opt.core.importing import Importer, Made
from infermax_opt.core.registry import importers
from infermax_opt.files.names import stem
from infermax_opt.foreign.traces import read_trace

__all__ = ["import_trace", "made_of"]


def import_trace(
    path: str | os.PathLike[str],
    format: str,
    *,
    problem: str | None = None,
    name: str | None = None,
    time_unit: str | None = None,
    first: int | None = None,
    window: tuple[Number, Number] | None = None,
    offline: bool = False,
    benchmark: int | None = None,
    replica: int | None = None,
    skip_unfit: bool = False,
    **options: Any,
) -> Made:
    """Make an instance of a request trace, or of the requests of a run.

    Parameters
    ----------
    path : path
        Of the trace.
    format : str
        Its layout; `formats` lists them.
    problem : str, optional
        What to make of it; default: batches on one machine.
    name : str, optional
        Of the instance; default: the file's.
    time_unit : {"s", "ms"}, optional
        Unit of arrivals; needed for mooncake.
    first : int, optional
        Keep the first so many requests.
    window : pair of numbers, optional
        Keep arrivals from the first up to, not including, the second, s after the first request.
    offline : bool
        Let all requests be there from the start.
    benchmark, replica : int, optional
        Which run of the file, from 1, and which machine of it, where there are several.
    skip_unfit : bool
        Leave out requests that can never fit, instead of failing.
    **options
        Of the problem, as ``infermax-opt import --help`` lists them, with ``_`` for ``-``:
        ``profile="llama-3.1-8b_h100"``, ``kv_capacity=4000``, ``worker="13b"``, ``ttft=2.2``, ``clients=20``.

    Returns
    -------
    Made
        Its `instance`, and how many requests were `left_out`, by reason.

    Raises
    ------
    InputError
        If the file or an option is unusable, or a request can never fit.
    """
    found = importers()
    chosen = next(iter(found)) if problem is None else problem
    if chosen not in found:
        raise InputError(f"{chosen!r} is none of {', '.join(found)}", field="problem")
    trace = read_trace(
        path, format, time_unit=time_unit, first=first, window=window, offline=offline,
        benchmark=benchmark, replica=replica,
    )  # fmt: skip
    own = _given(found[chosen], chosen, options)
    return made_of(found[chosen], trace, name, os.fspath(path), skip_unfit, own)


def made_of(
    importer: Importer, trace: Any, name: str | None, path: str, skip_unfit: bool, own: dict[str, Any]
) -> Made:
    """What an importer makes of a trace.

    Parameters
    ----------
    importer : Importer
    trace : Trace
    name : str, optional
        Of the instance.
    path : str
        Of the file, whose name it has otherwise.
    skip_unfit : bool
    own : dict
        Options of the importer, all of them.
    """
    return importer.make(trace, name or importer.named(stem(path), own), skip_unfit, **own)


def _given(importer: Importer, problem: str, given: dict[str, Any]) -> dict[str, Any]:
    """All options of an importer: given ones are checked as the command line checks them."""
    options = importer.options()
    known = [str(option.name) for option in options]
    for name in given:
        if name not in known:
            raise InputError(f"is no option of {problem}; there are {', '.join(known)}", field=name)
    plain = (bool, list, tuple)
    told = {
        name: value if isinstance(value, plain) else str(value)
        for name, value in given.items()
        if value is not None
    }
    command = click.Command("import", params=options, add_help_option=False)
    try:
        return dict(command.make_context("import", [], default_map=told).params)
    except click.BadParameter as error:
        field = None if error.param is None else error.param.name
        raise InputError(error.message, field=field) from None
