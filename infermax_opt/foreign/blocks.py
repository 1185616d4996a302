"""Rows of a file, thousands at a time: by column where all of them are plain, else one by one.

A block is plain if each of its requests is finished, all its values are there and in order, and its latencies
fit together.  What is wrong with a request, or left out, is found where its row is read by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from infermax_opt.files.rows import in_blocks
from infermax_opt.foreign.columns import Times
from infermax_opt.foreign.names import names_of
from infermax_opt.foreign.requests import Collected
from infermax_opt.foreign.run_columns import RequestColumns

__all__ = ["plain_columns", "plain_names", "read_rows"]

T = TypeVar("T")


def read_rows(
    found: Collected,
    rows: Iterable[T],
    plain: Callable[[Sequence[T]], RequestColumns | None],
    single: Callable[[T], None],
) -> None:
    """Read the requests of a file.

    Parameters
    ----------
    found : Collected
        Where they go.
    rows : iterable
    plain : callable
        Requests of some rows; None where these are not plain.
    single : callable
        Reads one row and adds what it finds itself.
    """
    for block in in_blocks(iter(rows)):
        columns = plain(block)
        if columns is not None:
            found.add_columns(columns)
            continue
        for row in block:
            single(row)


def plain_names(given: Sequence[object], lines: Sequence[int]) -> NDArray[Any] | None:
    """Names of requests, texts or whole numbers; an empty one is its line.  None where one is neither."""
    if not {*map(type, given)} <= {str, int}:
        return None
    names: list[Any] = [str(line) if name == "" else name for name, line in zip(given, lines, strict=True)]
    return names_of(names)


def plain_columns(
    lines: Sequence[int],
    names: NDArray[Any] | None,
    arrivals: Times | None,
    tokens: tuple[NDArray[np.int64] | None, NDArray[np.int64] | None],
    latencies: tuple[Times | None, Times | None],
    *,
    evictions: NDArray[np.int64] | None = None,
    cached: NDArray[np.int64] | None = None,
) -> RequestColumns | None:
    """Requests whose values are all plain; None where some are not, or do not fit together.

    Parameters
    ----------
    lines : sequence of int
    names : array or None
    arrivals : Times or None
    tokens : pair of array or None
        Input and output.
    latencies : pair of Times or None
        To the first and to the last token.
    evictions, cached : array, optional
        Default: not known.
    """
    (inputs, outputs), (ttft, e2e) = tokens, latencies
    if names is None or arrivals is None or inputs is None or outputs is None or ttft is None or e2e is None:
        return None
    ahead = (e2e - ttft).ticks
    if not (inputs.all() and outputs.all()) or min(ttft.ticks.min(), ahead.min()) < 0:
        return None
    known, unknown = np.ones(len(lines), dtype=bool), np.full(len(lines), -1)
    return RequestColumns(
        names=names,
        lines=np.array(lines),
        arrivals=arrivals,
        inputs=inputs,
        outputs=outputs,
        ttft=ttft,
        streamed=known,
        e2e=e2e,
        ended=known,
        evictions=unknown if evictions is None else evictions,
        cached=unknown if cached is None else cached,
    )
