"""What a search has to know of a schedule so far: when first and last tokens were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import NEVER, Latencies, counts_span
from infermax_opt.infermax.data.objective import BY_COUNT, UNSERVED, Latency, Metric
from infermax_opt.infermax.data.requests import Request

__all__ = ["Record", "Times", "dropped"]

#: Recorded times of the first and of the last token of each request; -1 if it is not made yet.
Times = tuple[tuple[int, int], ...]
#: Values of objectives that are kept.
KEPT = 100_000


class Record:
    """What an objective that gains nothing by waiting needs of a schedule so far.

    That is the times of first and last tokens, in ticks.  A time that the objective does not ask for is
    recorded as 0.  Where it asks only whether the time is within a limit, that is recorded as the arrival, or
    as the first tick that is too late.  Where it asks for the time between the two, both are recorded as they
    are.

    Parameters
    ----------
    instance : Instance
    unit : int
        Ticks per second; arrivals are whole ticks.
    """

    def __init__(self, instance: Instance, unit: int):
        self.instance, self.unit = instance, unit
        self.arrivals = [int(request.arrival * unit) for request in instance.requests]
        asked = {self._asked(metric) for metric in instance.objective.metrics}
        self._exact = {latency: latency in asked for latency in (Latency.TTFT, Latency.E2E)}
        metrics = instance.objective.metrics
        self._spans = [any(counts_span(some, request) for some in metrics) for request in instance.requests]
        #: Of each request the ticks from arrival after which it matters that the token is late.
        self._limits = {
            latency: [self._limits_of(latency, request) for request in instance.requests]
            for latency in self._exact
        }
        #: Of each request the ticks between its tokens up to which they make no difference, None if all do.
        self._most = [None if Latency.TPOT in asked else self._promised(r) for r in instance.requests]
        self._values: dict[tuple[int, ...], Fraction] = {}

    @staticmethod
    def _asked(metric: Metric) -> Latency | None:
        """The latency whose values a metric asks for."""
        return None if metric in BY_COUNT else metric.latency or Latency.E2E

    def _promised(self, request: Request) -> int | None:
        """Ticks from first to last token that keep the limit of its TPOT; None without one."""
        limit = request.terms.slo.tpot
        return None if limit is None else floor(limit * (request.output_tokens - 1) * self.unit)

    def _limits_of(self, latency: Latency, request: Request) -> tuple[int, ...]:
        """The ticks from arrival after which it matters that a token is late, none of them twice."""
        terms, counted, limits = request.terms, self.instance.objective.metrics, set()
        missed = Metric.MISSED in counted and bool(terms.slo)
        limit = terms.slo.ttft if latency is Latency.TTFT else terms.slo.e2e
        if missed and limit is not None:
            limits.add(limit)
        ends = missed or (terms.optional and not UNSERVED.isdisjoint(counted))
        if ends and latency is Latency.E2E and self.instance.horizon is not None:
            limits.add(Fraction(self.instance.horizon) - request.arrival)
        return tuple(floor(some * self.unit) for some in limits)

    def of(self, latency: Latency, request: int, time: int) -> int:
        """What is recorded of a token that is made at some time.

        Parameters
        ----------
        latency : Latency
            That of the first token (TTFT), or of the last one (E2E).
        request : int
        time : int
            Ticks.
        """
        return time if self._spans[request] else self._counted(latency, request, time)

    def _counted(self, latency: Latency, request: int, time: int) -> int:
        """What counts of the time of a token by itself; -1 of one that is not made."""
        limits = self._limits[latency][request]
        if self._exact[latency] or len(limits) > 1 or time < 0:
            return time
        if not limits:
            return 0
        arrival, most = self.arrivals[request], limits[0]
        return min(arrival, arrival + most) if time - arrival <= most else arrival + most + 1

    def after(
        self, times: Times, before: Iterable[tuple[int, int]], left: Mapping[int, int], end: int
    ) -> Times:
        """Recorded times with those of the tokens that a batch makes.

        Parameters
        ----------
        times : Times
            Before the batch.
        before : iterable of (int, int)
            Unfinished requests, and the tokens that they had.
        left : mapping of int to int
            Those that are unfinished after it, and the tokens that they have then.
        end : int
            Of the batch, in ticks.
        """
        found = list(times)
        for request, tokens in before:
            first, last = found[request]
            if tokens == 0 and left.get(request, 1) > 0:
                first = self.of(Latency.TTFT, request, end)
            if request not in left:
                last = self.of(Latency.E2E, request, end)
            found[request] = first, last
        return tuple(found)

    def no_worse(self, one: Times, then: int, other: Times, now: int) -> bool:
        """Whether recorded times of one state are as good as others, whatever follows both.

        No token that counts by itself may be later.  Where the time from first to last token counts, it may
        be no longer; nor, where there is no last one yet, the time since the first.

        Parameters
        ----------
        one : Times
        then : int
            When they lead to the state, in ticks.
        other : Times
        now : int
            The same of the others: no sooner.
        """
        for k, ((a, b), (c, d), spans) in enumerate(zip(one, other, self._spans, strict=True)):
            if not spans:
                if a > c or b > d:
                    return False
            elif a >= 0 and (
                self._counted(Latency.TTFT, k, a) > self._counted(Latency.TTFT, k, c)
                or self._counted(Latency.E2E, k, b) > self._counted(Latency.E2E, k, d)
                or self._span(k, a, b, then) > self._span(k, c, d, now)
            ):
                return False
        return True

    def _span(self, request: int, first: int, last: int, now: int) -> int:
        """What counts of the time from first to last token; until there is a last one, of that until now.

        Where there is only a limit of it: whether it is above, or what says when it will be.
        """
        span, most = (now if last < 0 else last) - first, self._most[request]
        if most is None:
            return span
        return min(span, most + 1) if last < 0 else int(span > most)

    def value(self, firsts: Sequence[int], lasts: Sequence[int]) -> Fraction:
        """Objective of recorded times; an undefined metric counts as 0."""
        key = *firsts, *lasts  # many schedules share them
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= KEPT:
                self._values.clear()
            found = Latencies(self.instance, self.unit, firsts, lasts)
            value = self._values[key] = self.instance.objective.value(found.metric)
        return value


def dropped(times: Times, left: Iterable[int]) -> Times:
    """Recorded times of a schedule that leaves these requests unfinished."""
    found = list(times)
    for request in left:
        first, _ = found[request]
        found[request] = (first if first >= 0 else NEVER), NEVER
    return tuple(found)
