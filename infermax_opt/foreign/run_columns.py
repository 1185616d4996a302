"""Requests of a run by column: a few bytes each, where a file holds millions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
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
    evictions : array of int
        -1 where they are not known.
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
        evictions = (count if count >= 0 else None for count in self.evictions.tolist())
        rest = (*known, map(str, self.names.tolist()), evictions)
        for (line, at, inputs, outputs), ttft, e2e, name, evicted in zip(self.arrived(), *rest, strict=True):
            yield ForeignRequest(name, line, at, inputs, outputs, ttft, e2e, evicted)

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
    """Requests by column; what prefix caches held is left out."""
    if isinstance(requests, RequestColumns):
        return requests
    nothing = Fraction(0)
    return RequestColumns(
        names=names_of([request.name for request in requests]),
        lines=np.array([request.line for request in requests], dtype=np.int64),
        arrivals=Times.of([request.arrival for request in requests]),
        inputs=np.array([request.input_tokens for request in requests], dtype=np.int64),
        outputs=np.array([request.output_tokens for request in requests], dtype=np.int64),
        ttft=Times.of([nothing if request.ttft is None else request.ttft for request in requests]),
        streamed=np.array([request.ttft is not None for request in requests], dtype=bool),
        e2e=Times.of([nothing if request.e2e is None else request.e2e for request in requests]),
        ended=np.array([request.e2e is not None for request in requests], dtype=bool),
        evictions=np.array([-1 if r.evictions is None else r.evictions for r in requests], dtype=np.int64),
    )
