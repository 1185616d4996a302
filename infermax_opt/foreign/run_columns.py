"""Requests of a run by column: a few bytes each, where a file holds millions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from operator import attrgetter
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from infermax_opt.foreign.columns import Mask, Times
from infermax_opt.foreign.names import joined_names, names_of
from infermax_opt.foreign.run import ByColumn, ForeignRequest

__all__ = ["RequestColumns", "columns_of"]


@dataclass(frozen=True, eq=False)
class RequestColumns(ByColumn):
    """Requests of which each is made when it is asked for.

    Attributes
    ----------
    names : array of int or of str
        See `infermax_opt.foreign.names`.
    lines, inputs, outputs : array of int
        See `ForeignRequest`.
    arrivals, ttft, e2e : Times
    streamed, ended : array of bool
        Where TTFT and end-to-end latency are known.
    evictions, cached : array of int
        See `ForeignRequest`; -1 where they are not known.
    """

    names: NDArray[Any]
    lines: NDArray[np.int64]
    arrivals: Times
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    ttft: Times
    streamed: Mask
    e2e: Times
    ended: Mask
    evictions: NDArray[np.int64]
    cached: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[RequestColumns]) -> RequestColumns:
        """All of several, of which there is at least one, in their order."""
        columns: dict[str, Any] = {}
        for name in (column.name for column in fields(cls)):
            some: list[Any] = [getattr(part, name) for part in parts]
            if name == "names":
                columns[name] = joined_names(some)
            else:
                columns[name] = Times.joined(some) if isinstance(some[0], Times) else np.concatenate(some)
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, k: int) -> ForeignRequest: ...

    @overload
    def __getitem__(self, k: slice) -> RequestColumns: ...

    def __getitem__(self, k: int | slice) -> ForeignRequest | RequestColumns:
        if isinstance(k, slice):
            return self.take(k)
        number = range(len(self))[k]
        return next(iter(self.take(slice(number, number + 1))))

    def __iter__(self) -> Iterator[ForeignRequest]:
        known = (
            [time if there else None for time, there in zip(times.list(), mask.tolist(), strict=True)]
            for times, mask in ((self.ttft, self.streamed), (self.e2e, self.ended))
        )
        counts = (
            (count if count >= 0 else None for count in some.tolist())
            for some in (self.evictions, self.cached)
        )
        rest = (*known, map(str, self.names.tolist()), *counts)
        for (line, at, inputs, outputs), ttft, e2e, name, *more in zip(self.arrived(), *rest, strict=True):
            yield ForeignRequest(name, line, at, inputs, outputs, ttft, e2e, *more)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def arrived(self) -> Iterator[tuple[int, Fraction, int, int]]:
        """Line, arrival, input and output tokens of each."""
        lengths = self.inputs.tolist(), self.outputs.tolist()
        return zip(self.lines.tolist(), self.arrivals.list(), *lengths, strict=True)

    def take(self, where: NDArray[Any] | slice) -> RequestColumns:
        """Some of them."""
        columns: dict[str, Any] = {column.name: getattr(self, column.name) for column in fields(self)}
        for name, column in columns.items():
            columns[name] = column.take(where) if isinstance(column, Times) else column[where]
        return RequestColumns(**columns)

    def of(self, mask: Mask) -> RequestColumns:
        """Those that it chooses."""
        return self if mask.all() else self.take(mask)

    def by_arrival(self) -> RequestColumns:
        """By arrival, which counts from the first; those with equal arrivals in the order of the file."""
        ticks, found = self.arrivals.ticks, self
        if (ticks[1:] < ticks[:-1]).any():
            found = self.take(np.argsort(ticks, kind="stable"))
        first = found.arrivals.take(slice(1))
        return replace(found, arrivals=found.arrivals - first) if first.ticks[0] else found

    def within(self, rounding: Fraction) -> tuple[RequestColumns, int | None]:
        """With no TTFT above the whole latency, and the place of the first that is by more than rounding.

        Parameters
        ----------
        rounding : Fraction
            Seconds.
        """
        over = self.ttft - self.e2e
        both = self.streamed & self.ended
        late = both & (over.ticks > 0)
        wrong = np.flatnonzero(late & ((over - Times.of([rounding])).ticks > 0))
        found = replace(self, ttft=self.e2e.where(late, self.ttft)) if late.any() else self
        return found, int(wrong[0]) if len(wrong) else None

    @property
    def last_end(self) -> Fraction | None:
        """Seconds at which the last of those ends of which that is known."""
        ends = (self.arrivals + self.e2e).take(self.ended)
        return ends[int(np.argmax(ends.ticks))] if len(ends) else None


def columns_of(requests: Sequence[ForeignRequest]) -> RequestColumns:
    """Requests by column."""
    if isinstance(requests, RequestColumns):
        return requests
    names, lines, arrivals, inputs, outputs, evictions, cached = (
        list(map(attrgetter(name), requests))
        for name in (
            "name", "line", "arrival", "input_tokens", "output_tokens", "evictions", "cached_tokens",
        )
    )  # fmt: skip
    ttft, streamed = _known([request.ttft for request in requests])
    e2e, ended = _known([request.e2e for request in requests])
    return RequestColumns(
        names=names_of(names),
        lines=np.array(lines, dtype=np.int64),
        arrivals=Times.of(arrivals),
        inputs=np.array(inputs, dtype=np.int64),
        outputs=np.array(outputs, dtype=np.int64),
        ttft=ttft,
        streamed=streamed,
        e2e=e2e,
        ended=ended,
        evictions=_counts(evictions),
        cached=_counts(cached),
    )


def _counts(given: Sequence[int | None]) -> NDArray[np.int64]:
    """Numbers, -1 where there is none."""
    return np.array([-1 if count is None else count for count in given], dtype=np.int64)


def _known(times: Sequence[Fraction | None]) -> tuple[Times, Mask]:
    """Times, 0 where there is none, and where there are some."""
    found = Times.of([Fraction(0) if time is None else time for time in times])
    return found, np.array([time is not None for time in times], dtype=bool)
