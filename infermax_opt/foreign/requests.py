"""What all readers share: values of a request, read strictly, and the run that is made of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.rows import BLOCK, MAX_ROWS, number, token_count
from infermax_opt.foreign.run import ForeignBatch, ForeignRequest, Run

if TYPE_CHECKING:
    from infermax_opt.foreign.run_columns import RequestColumns

__all__ = ["MS", "NS", "ROUNDING", "US", "Collected", "S", "Values"]

S, MS, US, NS = Fraction(1), Fraction(1, 10**3), Fraction(1, 10**6), Fraction(1, 10**9)
#: Why requests are left out that every format can hold.
NO_INPUT, NO_OUTPUT = "no input tokens", "no output tokens"
#: Digits of a number that is surely none too long.
SHORT = 18
#: Seconds by which a first token may come after the last: tools round both, and floats since 1970 are coarse.
ROUNDING = US


class Values:
    """Values of one request.

    Parameters
    ----------
    path : str
    where : str
        ``line 3`` or ``requests[2]``.
    values : mapping
        By column, or objects in objects: a dotted key goes into them.
    """

    def __init__(self, path: str, where: str, values: Mapping[str, object]):
        self.path = path
        self.where = where
        self.values = values

    def get(self, key: str) -> object:
        """The value, or None where it or what should hold it is absent."""
        value: object = self.values
        if "." not in key and type(self.values) is dict:
            return self.values.get(key)
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def fault(self, key: str | None, problem: str) -> NoReturn:
        """Raise an `InputError` that names the place."""
        if self.where.startswith("line "):
            field = self.where + (f", column {key!r}" if key else "")
        else:
            field = f"{self.where}.{key}" if key else self.where
        raise InputError(problem, field=field, source=self.path)

    def time(self, key: str, unit: Fraction = S) -> Fraction:
        """A time of at least 0 that must be there, in seconds."""
        found = self.maybe_time(key, unit)
        if found is None:
            self.fault(key, "is missing")
        return found

    def maybe_time(self, key: str, unit: Fraction = S) -> Fraction | None:
        """A time of at least 0 in seconds; None where it is absent, null or empty."""
        value = self.get(key)
        if value is None or value == "":
            return None
        if type(value) is str and len(value) <= SHORT and value.isascii() and value.isdigit():
            # Most of millions are, and a product of fractions takes thrice as long.
            return Fraction(int(value) * unit.numerator, unit.denominator)
        try:
            return number(value) if unit is S else number(value) * unit
        except ValueError as error:
            self.fault(key, str(error))

    def span(self, begin: str, end: str, unit: Fraction = S) -> Fraction:
        """From one moment to another that is not before it, in seconds.

        Parameters
        ----------
        begin, end : str
            Their keys.
        unit : Fraction
            Seconds in their unit.
        """
        return self.between(begin, self.time(begin, unit), end, self.time(end, unit))

    def between(self, begin: str, first: Fraction, end: str, last: Fraction) -> Fraction:
        """From one moment to another that is not before it.

        Parameters
        ----------
        begin, end : str
            Their keys.
        first, last : Fraction
            Seconds.
        """
        span = last - first
        if span.numerator < 0:
            self.fault(end, f"is {-float(span):g} s before {begin!r}")
        return span

    def tokens(self, key: str) -> int:
        """A number of tokens that must be there."""
        found = self.maybe_tokens(key)
        if found is None:
            self.fault(key, "is missing")
        return found

    def maybe_tokens(self, key: str) -> int | None:
        """A number of tokens; None where it is absent, null or empty."""
        value = self.get(key)
        if value is None or value == "":
            return None
        try:
            return token_count(value)
        except ValueError as error:
            self.fault(key, str(error))

    def text(self, key: str, default: str) -> str:
        """A text or a number as a text; `default` where it is absent."""
        value = self.get(key)
        if value is None or value == "":
            return default
        if isinstance(value, dict | list | bool):
            self.fault(key, f"{shown(value)} is not a text")
        return str(value)

    def flag(self, key: str) -> bool:
        """Whether it is true; false where it is absent."""
        value = self.get(key)
        if value not in (None, True, False) or (isinstance(value, int) and not isinstance(value, bool)):
            self.fault(key, f"{shown(value)} is neither true nor false")
        return bool(value)


class Collected:
    """Requests of a run, as they are read.

    Parameters
    ----------
    path, form : str
        The file and the name of its format.
    """

    def __init__(self, path: str, form: str):
        self.path = path
        self.form = form
        #: Requests by column, thousands at a time, and those that came since.
        self._parts: list[RequestColumns] = []
        self._last: list[ForeignRequest] = []
        self.count = 0
        self.left_out: dict[str, int] = {}
        self.remarks: list[str] = []

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count requests that are not among those of the run."""
        if count > 0:
            self.left_out[reason] = self.left_out.get(reason, 0) + count

    def say(self, *sentences: str) -> None:
        """Say something beside the numbers."""
        self.remarks.extend(sentences)

    def add(self, values: Values, request: ForeignRequest) -> None:
        """Add a finished request, whose arrival is of any clock; one without tokens is left out.

        Raises
        ------
        InputError
            If its latencies contradict each other.
        """
        if not request.input_tokens or not request.output_tokens:
            self.leave_out(NO_INPUT if not request.input_tokens else NO_OUTPUT)
            return
        ttft, e2e = request.ttft, request.e2e
        if ttft is not None and e2e is not None and ttft > e2e:
            if ttft > e2e + ROUNDING:
                values.fault(None, _too_late(ttft, e2e))
            request = replace(request, ttft=e2e)
        self._last.append(request)
        self.count += 1
        self.check_rows(self.count)
        if len(self._last) == BLOCK:
            self._pack()

    def add_columns(self, columns: RequestColumns) -> None:
        """Add finished requests of which each has tokens, and latencies that fit together."""
        self._pack()
        self._parts.append(columns)
        self.count += len(columns)
        self.check_rows(self.count)

    def _pack(self) -> None:
        """Hold the last requests by column: one by one each takes ten times as much memory."""
        if self._last:
            from infermax_opt.foreign.run_columns import columns_of

            self._parts.append(columns_of(self._last))
            self._last = []

    def check_rows(self, count: int) -> None:
        """Check that there are not too many requests.

        Raises
        ------
        InputError
        """
        if count > MAX_ROWS:
            raise InputError(f"more than {MAX_ROWS} requests", source=self.path)

    def run(self) -> Run:
        """The run: requests by arrival, which counts from the first of them.

        Raises
        ------
        InputError
            If no request is left.
        """
        from infermax_opt.foreign.run_columns import RequestColumns

        self._pack()
        self._check_some(self._parts)
        found, self._parts = RequestColumns.joined(self._parts), []
        return self.made(found.by_arrival())

    def ordered(self, columns: RequestColumns, place: str = "request") -> RequestColumns:
        """The same, of finished requests in columns: `add` and `run` for all of them at once.

        Parameters
        ----------
        columns : RequestColumns
        place : str
            What their `lines` number.

        Raises
        ------
        InputError
            If no request is left, or the latencies of one contradict each other.
        """
        empty, unanswered = columns.inputs == 0, columns.outputs == 0
        self.leave_out(NO_INPUT, int(empty.sum()))
        self.leave_out(NO_OUTPUT, int((unanswered & ~empty).sum()))
        columns = columns.of(~(empty | unanswered))
        self._check_some(columns)
        self.check_rows(len(columns))
        found, wrong = columns.within(ROUNDING)
        if wrong is not None:
            problem = _too_late(columns.ttft[wrong], columns.e2e[wrong])
            raise InputError(problem, field=f"{place} {columns.lines[wrong]}", source=self.path)
        return found.by_arrival()

    def _check_some(self, requests: Sequence[object]) -> None:
        if not requests:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
            said = f" (left out: {reasons})" if reasons else ""
            raise InputError(f"holds no finished request{said}", source=self.path)

    def made(
        self, requests: Sequence[ForeignRequest], batches: tuple[ForeignBatch, ...] | None = None
    ) -> Run:
        """The run of requests by arrival."""
        return Run(
            path=self.path,
            format=self.form,
            requests=requests,
            left_out=self.left_out,
            remarks=tuple(dict.fromkeys(self.remarks)),
            batches=batches,
        )


def _too_late(ttft: Fraction, e2e: Fraction) -> str:
    return (
        f"the first token took {float(ttft):g} s, which is more than the {float(e2e):g} s "
        "that the whole request took"
    )
