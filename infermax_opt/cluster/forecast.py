"""Workers by arrival rate: eq 7, N_w = ceil(k5 r_a + c5) for r_a > R (section 5.2).

k5 and c5 are the least squares of (rate, workers) pairs, in exact arithmetic.  R comes from the standard
error of the mean: n requests of a heartbeat have a mean length that is off by SEM = sigma / sqrt(n), and as a
share of the mean mu this is below a tolerated error if n > (sigma / (mu error))^2.  With n = r_a * heartbeat
requests, that is a lower limit of the rate.  Input and output lengths each have theirs; R is the larger one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError

__all__ = ["SPAN", "WorkerForecast", "fit_forecast", "forecast_of", "least_rate"]

#: Seconds of a span of time that gives one pair of rate and workers, and the fewest spans.
SPAN, FEWEST = 60, 3


@dataclass(frozen=True)
class WorkerForecast:
    """Eq 7 with its coefficients, and how well it fits.

    Attributes
    ----------
    slope, intercept : Fraction
        k5, workers per request a second, and c5, workers.
    least_rate : Fraction
        R, requests a second: for higher rates only.
    points, left_out : int
        Pairs that were fitted, and those with a rate of R or less.
    mean_error, max_error : Fraction
        Distance of eq 7, rounded up as it is, from the workers of a pair; in workers.
    max_relative : Fraction
        Largest distance as a share of the workers of the pair.
    short : int
        Pairs for which eq 7 gives too few workers.
    r_squared : Fraction or None
        Share of the variance that the line explains; None where all pairs have equally many workers.
    """

    slope: Fraction
    intercept: Fraction
    least_rate: Fraction
    points: int
    left_out: int
    mean_error: Fraction
    max_error: Fraction
    max_relative: Fraction
    short: int
    r_squared: Fraction | None

    def workers(self, rate: Fraction) -> int:
        """Workers for an arrival rate.

        Raises
        ------
        InputError
            If it is R or less, for which eq 7 does not speak.
        """
        if rate <= self.least_rate:
            problem = f"{float(rate):.6g} requests/s is not above {float(self.least_rate):.6g}, the R of eq 7"
            raise InputError(problem, field="rate")
        return math.ceil(self.slope * rate + self.intercept)


def fit_forecast(
    pairs: Sequence[tuple[Fraction, Fraction]], *, least_rate: Fraction = Fraction(0)
) -> WorkerForecast:
    """Fit eq 7 by least squares.

    Parameters
    ----------
    pairs : sequence of (Fraction, Fraction)
        Arrival rate in requests a second, and workers, above 0.
    least_rate : Fraction
        R: pairs with a rate of R or less are left out.

    Raises
    ------
    InputError
        If fewer than two different rates are left, or a number of workers is not above 0.
    """
    used = _used(pairs, least_rate)
    count = len(used)
    mean_rate, mean_workers = (_sum(pair[k] for pair in used) / count for k in (0, 1))
    spread = _sum((rate - mean_rate) ** 2 for rate, _ in used)
    slope = _sum((rate - mean_rate) * (workers - mean_workers) for rate, workers in used) / spread
    intercept = mean_workers - slope * mean_rate
    variance = _sum((workers - mean_workers) ** 2 for _, workers in used)
    residual = _sum((workers - slope * rate - intercept) ** 2 for rate, workers in used)
    misses = [math.ceil(slope * rate + intercept) - workers for rate, workers in used]
    errors = [abs(miss) for miss in misses]
    return WorkerForecast(
        slope=slope,
        intercept=intercept,
        least_rate=least_rate,
        points=count,
        left_out=len(pairs) - count,
        mean_error=_sum(errors) / count,
        max_error=max(errors),
        max_relative=max(error / workers for error, (_, workers) in zip(errors, used, strict=True)),
        short=sum(miss < 0 for miss in misses),
        r_squared=1 - residual / variance if variance else None,
    )


def _used(
    pairs: Sequence[tuple[Fraction, Fraction]], least_rate: Fraction
) -> list[tuple[Fraction, Fraction]]:
    """Pairs with a rate above R, checked."""
    used = [(rate, workers) for rate, workers in pairs if rate > least_rate]
    for index, (_, workers) in enumerate(pairs):
        if workers <= 0:
            raise InputError(f"{workers} is not above 0", field=f"pairs[{index}].workers")
    if len({rate for rate, _ in used}) < 2:
        raise InputError(
            f"{len(used)} of {len(pairs)} pairs have a rate above R = {float(least_rate):.6g} requests/s; "
            "eq 7 needs two different ones",
            field="pairs",
        )
    return used


def forecast_of(beats: Sequence[tuple[Fraction, int, int]], heartbeat: Fraction) -> WorkerForecast | None:
    """Fit eq 7 to a series of heartbeats, in spans of `SPAN` seconds.

    Parameters
    ----------
    beats : sequence of (Fraction, int, int)
        Seconds, requests placed then, and workers in use with them.
    heartbeat : Fraction
        Seconds between two of them.

    Returns
    -------
    WorkerForecast or None
        Of the mean number of workers in use; None if there are fewer than `FEWEST` whole spans, or all with
        the same rate.
    """
    first, end = beats[0][0], beats[-1][0] + heartbeat
    spans: list[list[tuple[int, int]]] = [[] for _ in range(int((end - first) // SPAN))]
    for moment, new, used in beats:
        number = int((moment - first) // SPAN)
        if number < len(spans):
            spans[number].append((new, used))
    pairs = []
    for inside in spans:
        total = sum(used for _, used in inside)
        if total:
            pairs.append((Fraction(sum(new for new, _ in inside), SPAN), Fraction(total, len(inside))))
    if len(pairs) < FEWEST or len({rate for rate, _ in pairs}) < 2:
        return None
    return fit_forecast(pairs)


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def least_rate(lengths: Sequence[Sequence[int]], heartbeat: Fraction, error: Fraction) -> Fraction:
    """R of eq 7: above it, mean lengths of the requests of a heartbeat are likely close to those of all.

    Parameters
    ----------
    lengths : sequence of sequences of int
        Input tokens of all requests, and output tokens: each kind of length on its own.
    heartbeat : Fraction
        Seconds.
    error : Fraction
        Tolerated standard error of the mean (SEM), as a share of the mean.

    Returns
    -------
    Fraction
        Requests a second.

    Raises
    ------
    InputError
        If the error or the heartbeat is not above 0, or there is no length.
    """
    for name, value in (("error", error), ("heartbeat", heartbeat)):
        if value <= 0:
            raise InputError(f"{value} is not above 0", field=name)
    if not lengths or not all(lengths):
        raise InputError("holds no request; at least 1 is needed", field="lengths")
    needed = []
    for tokens in lengths:
        count, total = len(tokens), sum(tokens)
        # sigma^2 / mu^2, with sigma of all requests, not of a sample.
        needed.append(Fraction(count * sum(some * some for some in tokens), total * total) - 1)
    return max(needed) / error**2 / heartbeat
