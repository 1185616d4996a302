"""Series of workers as text, CSV and JSON."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.cluster.forecast import SPAN, WorkerForecast, forecast_of
from infermax_opt.cluster.series import WorkerSeries
from infermax_opt.core.exact import figures_text, lower_rounding
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.report import metrics_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import aligned, counted, percent, printable, seconds

__all__ = [
    "BOUNDS",
    "rows_csv",
    "series_csv",
    "series_text",
    "series_to_json",
]

#: What binds is listed up to so many kinds.
MOST_KINDS = 8
#: The class of policies that each series holds for, by its key in JSON and CSV.
BOUNDS = {
    "any_policy": "lower bound, any policy within limits a to e",
    "lower": "lower bound, limits a to e, ongoing requests where this run put them",
    "upper": "upper bound, limits a to e kept",
}
#: The class of the policy beside them.
LOOK_AHEAD = "look-ahead keeps TTFT and ATGT themselves, not limits a to e; no bound above holds for it"
#: What JSON says of the forecast.
FORECAST = ("slope", "intercept", "points", "mean_error", "max_error", "short", "r_squared")


def series_text(series: WorkerSeries) -> str:
    """The series in short: peak, mean, gaps, what binds, what the requests saw."""
    stream = series.stream
    ttft = "" if stream.split_phase else f"TTFT {seconds(stream.slo.ttft)} from the heartbeat, "
    beats = counted(len(series.beats), "heartbeats")
    slo, phase = stream.slo, "decode workers of split phase" if stream.split_phase else "workers"
    lines = [
        printable(stream.name),
        f"  {counted(len(stream.requests), 'requests')}, {beats} of {seconds(stream.heartbeat)}",
        f"  {phase} of {stream.worker.gpus} GPU{'s' if stream.worker.gpus > 1 else ''}; {ttft}"
        f"ATGT {seconds(slo.atgt)}, theta {float(stream.theta):g}, gamma "
        f"{float(stream.gamma):g}",
        "fewest workers at a heartbeat, for policies that keep limits a to e",
    ]
    head = ("", "peak", "mean", "mean is below that used by")
    lines += aligned([head, *(_bound_row(series, name) for name in BOUNDS)])
    placed = sum(beat.new > 0 for beat in series.beats)
    proven = len(series.beats) - series.open_beats
    lines.append(f"  proven fewest, ongoing requests where they are, at {proven} of {beats}")
    verdict = "verified: it keeps all limits at every heartbeat" if series.verified else "NOT verified"
    lines.append(f"  the placement is {verdict}")
    if series.cut_short is not None:
        lines.append(f"  the search ended at heartbeat {series.cut_short}; best-fit placed the rest")
    lines += _look_ahead_lines(series)
    lines.append(f"what binds, at {counted(placed, 'heartbeats')} with new requests")
    kinds = list(series.binding.items())
    causes = [(_kind(kind), str(count)) for kind, count in kinds[:MOST_KINDS]]
    if len(kinds) > MOST_KINDS:
        others = sum(count for _, count in kinds[MOST_KINDS:])
        causes.append((f"{len(kinds) - MOST_KINDS} other kinds", str(others)))
    lines += aligned(causes)
    forecast = _forecast(series)
    if forecast is not None:
        lines += ["workers by arrival rate r (eq 7)", *_forecast_lines(forecast)]
    return "\n".join([*lines, "", metrics_text(series.metrics)])


def _bound_row(series: WorkerSeries, name: str) -> tuple[str, str, str, str]:
    """Peak and mean of a bound; a lower one is rounded down unless they meet, and the gap up."""
    upper = name == "upper"
    gap = _gap(series, name)
    mean = figures_text(series.mean(name), 4, lower_rounding(gap))
    below = "" if upper else percent(gap, "ceiling")
    return BOUNDS[name], str(series.peak(name)), mean, below


def _look_ahead_lines(series: WorkerSeries) -> list[str]:
    """The policy of another class, and why it may use fewer workers than a bound says."""
    ahead = series.look_ahead
    if ahead is None:
        return []
    kept = f"look-ahead: {percent(ahead.attainment, 'floor')} of the requests within TTFT and ATGT"
    rows = [("", "peak", "mean"), (kept, str(ahead.peak_workers), f"{float(ahead.mean_workers):.4g}")]
    lines = ["workers of a policy of another class", *aligned(rows), f"  {LOOK_AHEAD}"]
    under = [
        f"'{text}'"
        for name, text in BOUNDS.items()
        if name != "upper"
        and (ahead.peak_workers < series.peak(name) or ahead.mean_workers < series.mean(name))
    ]
    if under:
        lines.append(f"  so both are true: look-ahead uses fewer workers than {' and '.join(under)}")
    return lines


def _forecast(series: WorkerSeries) -> WorkerForecast | None:
    """Eq 7 fitted to the spans of a series; None if they are too few or too much alike."""
    beats = [(beat.beat * series.stream.heartbeat, beat.new, beat.upper) for beat in series.beats]
    return forecast_of(beats, series.stream.heartbeat)


def _forecast_lines(forecast: WorkerForecast) -> list[str]:
    fit = "-" if forecast.r_squared is None else f"{float(forecast.r_squared):.3g}"
    rows = [
        ("mean", f"ceil({float(forecast.slope):.4g} r + {float(forecast.intercept):.4g}) workers"),
        ("from", f"{forecast.points} spans of {SPAN} s; R^2 {fit}"),
        (
            "error",
            f"{float(forecast.mean_error):.3g} workers on average, {float(forecast.max_error):.3g} at most",
        ),
    ]
    return aligned(rows)


def _kind(kind: str) -> str:
    return "nothing: the workers in use are enough" if kind == "ongoing" else kind


def _gap(series: WorkerSeries, name: str) -> Fraction:
    upper = series.mean("upper")
    return (upper - series.mean(name)) / upper


def series_to_json(series: WorkerSeries) -> dict[str, Any]:
    """The series as a JSON value; times in seconds.

    ``classes`` says for which policies each of the series ``any_policy``, ``lower`` and ``upper`` holds,
    and that ``look_ahead`` is of another class: it may use fewer workers than a lower bound.
    """
    stream, forecast = series.stream, _forecast(series)
    return {
        "schema": SCHEMAS["workers"],
        "instance": stream.name,
        "instance_sha256": stream.sha256,
        "heartbeat": stream.heartbeat,
        "gpus_per_worker": stream.worker.gpus,
        "classes": {**BOUNDS, "look_ahead": LOOK_AHEAD},
        "peak": {name: series.peak(name) for name in BOUNDS},
        "mean": {name: series.mean(name) for name in BOUNDS},
        "gap": {name: _gap(series, name) for name in BOUNDS if name != "upper"},
        "open_heartbeats": series.open_beats,
        "verified": series.verified,
        "cut_short": series.cut_short,
        "binding": series.binding,
        "metrics": dict(series.metrics.items()),
        "look_ahead": dict(series.look_ahead.items()) if series.look_ahead else None,
        "forecast": None if forecast is None else {k: getattr(forecast, k) for k in FORECAST},
        "heartbeats": [_row(series, index) for index in range(len(series.beats))],
    }


def _row(series: WorkerSeries, index: int) -> dict[str, Any]:
    beat = series.beats[index]
    return {
        "seconds": beat.beat * series.stream.heartbeat,
        "new": beat.new,
        "used_before": beat.used,
        "any_policy": beat.any_policy,
        "lower": beat.lower,
        "upper": beat.upper,
        "any_policy_limit": beat.any_limit,
        "binds": beat.binds,
        "reason": beat.reason,
    }


def series_csv(series: WorkerSeries) -> str:
    """The heartbeats as CSV."""
    return rows_csv([_row(series, index) for index in range(len(series.beats))])


def rows_csv(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV; numbers to nine digits."""
    return rows_text(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{float(value):.9g}" if isinstance(value, Fraction) else value
