"""What is known of a run on another system: when each request came, what it was, how long it took."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownRows

__all__ = ["ByColumn", "ForeignBatch", "ForeignRequest", "Run", "Summary"]


@dataclass(frozen=True, slots=True)
class ForeignRequest:
    """One request as another system saw it; times are exact seconds.

    Attributes
    ----------
    name : str
        As the file calls it, or its place in the file.
    line : int
        Of the file, or the place in its list of requests; from 1.
    arrival : Fraction
        After the first request of the run.
    input_tokens, output_tokens : int
        The first output token is counted.
    ttft : Fraction or None
        From arrival to the first token; None where the file does not say.
    e2e : Fraction or None
        From arrival to the last token; None where the file does not say.
    evictions : int or None
        How often its KV was dropped before it was finished; None where the file does not say.
    cached_tokens : int or None
        Prompt tokens that were found in a prefix cache; None where the file does not say.
    """

    name: str
    line: int
    arrival: Fraction
    input_tokens: int
    output_tokens: int
    ttft: Fraction | None = None
    e2e: Fraction | None = None
    evictions: int | None = None
    cached_tokens: int | None = None


class ByColumn(Sequence[ForeignRequest]):
    """Requests that are made when they are asked for: see `infermax_opt.foreign.run_columns`."""

    @abstractmethod
    def arrived(self) -> Iterator[tuple[int, Fraction, int, int]]:
        """Line, arrival, input and output tokens of each."""


@dataclass(frozen=True, slots=True)
class ForeignBatch:
    """One batch as another system ran it.

    Attributes
    ----------
    start, end : Fraction
        Seconds after the first request of the run, or after the first batch where no arrival is known.
    tokens : mapping of name to int
        Tokens that each request processed.
    """

    start: Fraction
    end: Fraction
    tokens: Mapping[str, int]


@dataclass(frozen=True)
class Summary:
    """What is known of a run without its requests.

    Attributes
    ----------
    requests : int
        Finished ones.
    input_tokens, output_tokens : int
        Of all of them.
    metrics : mapping of metric to Fraction
        Seconds, by the names of the metrics of a schedule; percentiles may lie between two latencies.
    e2e : tuple of Fraction
        Latencies of single requests, seconds; empty where they are not known.
    at_once : bool
        Whether all requests came at the start.
    missing : str
        What the file lacks, and how it is had.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    metrics: Mapping[str, Fraction]
    e2e: tuple[Fraction, ...]
    at_once: bool
    missing: str


@dataclass(frozen=True)
class Run(ShownRows):
    """A run on another system.

    Attributes
    ----------
    path, format : str
    requests : sequence of ForeignRequest
        Finished ones, by arrival; those with equal arrivals in the order of the file.
    left_out : mapping of reason to int
        Requests of the file that are not among them, such as failed ones.
    remarks : tuple of str
        What must be said beside its numbers, a sentence each.
    batches : tuple of ForeignBatch or None
        All batches by start, where the file is a whole schedule.
    summary : Summary or None
        Where the file knows its requests only all together: then there are no `requests`.
    """

    path: str
    format: str
    requests: Sequence[ForeignRequest]
    left_out: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    batches: tuple[ForeignBatch, ...] | None = None
    summary: Summary | None = None

    def arrived(self) -> Iterator[tuple[int, Fraction, int, int]]:
        """Line, arrival, input and output tokens of each request."""
        if isinstance(self.requests, ByColumn):
            return self.requests.arrived()
        return ((r.line, r.arrival, r.input_tokens, r.output_tokens) for r in self.requests)

    def facts(self) -> Mapping[str, Any]:
        """File, format, and how many requests it has."""
        count = len(self.requests) if self.summary is None else self.summary.requests
        return {
            "file": self.path,
            "format": self.format,
            "requests": count,
            "left_out": sum(self.left_out.values()),
            "batches": None if self.batches is None else len(self.batches),
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """The requests; of a summary its metrics, one row."""
        if self.summary is not None:
            return [self.summary.metrics]
        names = [one.name for one in fields(ForeignRequest)]
        return ({name: getattr(request, name) for name in names} for request in self.requests)

    def require_requests(self) -> None:
        """Check that it is no summary.

        Raises
        ------
        InputError
        """
        if self.summary is not None:
            raise InputError(self.summary.missing, source=self.path)
