"""Measure schedulers on an instance: verified schedules, metrics of batches, and bounds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.bounds.interaction import interaction_bound
from infermax_opt.infermax.bounds.latency import latency_bounds
from infermax_opt.infermax.bounds.overload import overload_bound
from infermax_opt.infermax.bounds.pace import pace_bound
from infermax_opt.infermax.bounds.priced_work import sustainable_rate
from infermax_opt.infermax.bounds.service import service_bounds
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.iterations import PERCENTS, STATES, iterations
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.schedulers.reservation.presets import is_reservation, reservation_options
from infermax_opt.infermax.schedulers.reservation.run import ReservationRun, reservation_run

__all__ = ["Cell", "bounds", "missed_bound", "runs", "swept", "text"]

Cell = str | int | float | None

#: Requests that a bound on the SSR looks at together, at most.
TOGETHER = 8_000


def runs(of: Instance, names: Iterable[tuple[str, str]]) -> Iterator[dict[str, Cell]]:
    """Metrics of each scheduler on an instance; names come with what a table calls them.

    Raises
    ------
    InputError
        If a schedule breaks a rule.
    """
    for label, name in names:
        began = time.perf_counter()
        made: ReservationRun | None = None
        if is_reservation(name):
            made = reservation_run(of, reservation_options(name))
        schedule = made.schedule if made is not None else run_scheduler(of, name)
        took = time.perf_counter() - began
        found = replay(of, schedule)
        if not found.valid:
            raise InputError(f"{name}: {found.violations[0]}")
        metrics, batches = measure(of, found), iterations(of, schedule, found)
        first = min(request.arrival for request in of.requests)
        row: dict[str, Cell] = {
            "scheduler": label,
            "settings": name.partition("@")[2],
            "mean_jct": _float(metrics.mean_e2e),
            "ssr": _float(metrics.attainment),
            "rate": _float(len(of.requests) / (metrics.makespan - first)),
            "normalised": _float(metrics.mean_normalised_latency),
            "mean_tbt": _float(batches.mean_tbt),
            **{f"tbt_p{p}": _float(batches.tbt.get(p)) for p in PERCENTS},
            "forward_size": _float(batches.forward_size),
            "forward_share": _float(batches.forward_share),
            "kv_used": _float(metrics.mean_kv_use),
            # Without reservations what is used is all that is reserved.
            "kv_reserved": _float(metrics.mean_kv_use if made is None else made.reserved_share),
            "failures": None if made is None else _float(made.failed_share),
            "completions": _float(batches.mean_completions),
            "barren": _float(batches.barren_share),
            **{state: _float(batches.states[state]) for state in STATES},
            "evictions": metrics.evictions,
            "recompute_tax": _float(metrics.recompute_tax),
            "guests": None if made is None else made.counts.guests,
            "seconds": took,
        }
        yield row


def bounds(of: Instance, seconds: float) -> dict[str, float | None]:
    """What no schedule beats: rate at most, mean JCT at least, SSR at most; and the seconds each took.

    After so many seconds no finer bound on the SSR is begun; 0 asks for none at all.
    """
    began = time.perf_counter()
    rate = float(sustainable_rate(of))
    rated = time.perf_counter()
    jct = max(value for _, value in latency_bounds(of, Metric.MEAN_E2E))
    # The first two see that requests in one batch lengthen each other's time, the last one that they queue.
    for search in (interaction_bound, pace_bound, overload_bound):
        searched = search(of)
        if searched is not None:
            jct = max(jct, searched.value)
    late = time.perf_counter()
    kept = float(1 - missed_bound(of, seconds) / len(of.requests)) if seconds > 0 else None
    done = time.perf_counter()
    return {
        "rate_bound": rate,
        "jct_bound": float(jct),
        "ssr_bound": kept,
        "rate_seconds": rated - began,
        "jct_seconds": late - rated,
        "ssr_seconds": done - late,
    }


def missed_bound(of: Instance, seconds: float) -> Fraction:
    """Requests that miss their deadlines in every schedule, at least.

    Those that arrive one after the other are looked at some at a time: a schedule without all others is none
    that is later for these, so what they have to miss adds up.
    """
    groups = sorted(of.groups, key=lambda group: Fraction(group.arrival))
    parts = [groups[k : k + TOGETHER] for k in range(0, len(groups), TOGETHER)]
    total = Fraction(0)
    for part in parts:
        some = replace(of, groups=tuple(part))
        alone = max(value for _, value in service_bounds(some, Metric.MISSED))
        found: list[Fraction] = []
        stop = partial(_passed, found, time.perf_counter() + seconds / len(parts))
        for bound in attainment_bounds(some, stop=stop):
            found.append(bound.value)
        total += max([alone, *found])
    return total


def _passed(found: list[Fraction], end: float) -> bool:
    """Whether the time is over and there is a bound: one that is stopped early says nothing."""
    return bool(found) and time.perf_counter() > end


def swept(names: Sequence[str], sweeps: Sequence[str], settings: str) -> list[tuple[str, str]]:
    """Names of schedulers with the values of each sweep, and the same with the settings of a trace as well.

    Parameters
    ----------
    names : sequence of str
    sweeps : sequence of str
        ``SETTING=VALUE,VALUE,...``
    settings : str
        ``padding=0.15,reserve=0.03,buffer=0.15``, where a name does not say.
    """
    found = []
    for name in names:
        if not is_reservation(name):
            found.append((name, name))
            continue
        base, _, own = name.partition("@")
        choices: list[dict[str, str]] = [{}]
        for sweep in sweeps:
            key, equals, values = sweep.partition("=")
            if not equals:
                raise InputError(f"{sweep!r} is not SETTING=VALUE,VALUE,...", field="sweep")
            choices = [{**choice, key: value} for choice in choices for value in values.split(",")]
        for choice in choices:
            said = {**_parts(own), **choice}
            found.append((_joined(base, said), _joined(base, {**_parts(settings), **said})))
    return found


def _parts(settings: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in settings.split(",") if part)


def _joined(base: str, settings: dict[str, str]) -> str:
    parts = (f"{key}={value}" if value else key for key, value in settings.items())
    return f"{base}@{','.join(parts)}" if settings else base


def _float(value: Fraction | int | None) -> float | None:
    return None if value is None else float(value)


def text(value: Cell) -> str:
    """A cell as the tables show it."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
