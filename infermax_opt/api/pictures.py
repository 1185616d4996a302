"""Pictures of schedules, requests, latencies and solves, as functions that take and return matplotlib's axes.

Without axes they make a figure: in a notebook it shows itself.  Colours are Okabe and Ito's, which
colour-blind readers can tell apart, and `alt_text` says what a picture shows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.core.frames import plain
from infermax_opt.core.progress import ProgressEvent
from infermax_opt.core.registry import problem_of_instance
from infermax_opt.core.result import AnyResult, Claim, Result
from infermax_opt.core.shown import rows_of
from infermax_opt.core.values import AnyInstance, AnySchedule, amount
from infermax_opt.files.figure import (
    CATEGORIES,
    COLOURS,
    Phase,
    credit,
    entitle,
    forget_unseen,
    legend_label,
    panels,
    save_figure,
    short_name,
    styled,
)
from infermax_opt.files.text import percent, printable

__all__ = ["plot_convergence", "plot_latencies", "plot_requests", "plot_schedule", "save_plot"]

#: Moments of a request, in their order.
MARKS = ("arrival", "start", "first_token", "decode_start", "finish")
#: Latencies of a request, in the order in which one is looked for.
LATENCIES = ("ttft", "tpot", "atgt", "e2e")
#: Most requests whose names stand beside their bars.
NAMED = 40


def plot_schedule(
    instance: AnyInstance,
    subject: AnySchedule | AnyResult | Claim,
    ax: Any | None = None,
    *,
    label: str | None = None,
) -> Any:
    """Draw a schedule: what each request does over time, and the KV cache; of many requests, their numbers.

    Parameters
    ----------
    instance : instance of any problem
    subject : schedule, Result or Claim
        Of a result the picture says what found the schedule, the bound and the gap.
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.
    label : str, optional
        What made the schedule, for the title; results say it themselves.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or the first of the new figure.

    Raises
    ------
    InputError
        If the schedule is wrong or there is none, or the problem has no picture of it.
    """
    claim = _claim(instance, subject)
    drawn = problem_of_instance(instance).draw(instance, claim, ax)
    if label is not None:
        credit(ax, drawn, label)
    return drawn


def plot_requests(
    instance: AnyInstance, subject: AnySchedule | AnyResult | Claim, ax: Any | None = None
) -> Any:
    """Draw when each request waits, prefills and decodes: a line each, by arrival.

    Parameters
    ----------
    instance : instance
        Of a problem whose schedules have times.
    subject : schedule, Result or Claim
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.

    Raises
    ------
    InputError
        If the schedule is wrong or there is none, or it has no times of requests.
    """
    claim = _claim(instance, subject)
    rows = plain(rows_of(instance, _schedule(claim)))
    if not rows or "finish" not in rows[0]:
        raise InputError(
            f"schedules of {problem_of_instance(instance).name} instances have no such times", field="problem"
        )
    marks = [name for name in MARKS if name in rows[0]]
    kinds = list(zip(marks, marks[1:], _phases(marks), strict=False))
    rows = sorted(
        (row for row in rows if row["finish"] is not None), key=lambda row: (row[marks[0]], row["finish"])
    )
    with styled():
        from matplotlib.collections import LineCollection
        from matplotlib.lines import Line2D

        (axes,) = panels(ax, (11, min(2.5 + 0.2 * len(rows), 7)))
        width = max(0.4, min(9.0, 300 / max(1, len(rows))))
        for begin, end, (_, colour) in kinds:
            lines = [[(row[begin], k), (row[end], k)] for k, row in enumerate(rows)]
            axes.add_collection(
                LineCollection(lines, colors=colour, linewidths=width, rasterized=len(rows) > 500)
            )
        last = max((row["finish"] for row in rows), default=1)
        axes.set_xlim(0, last)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        if len(rows) <= NAMED:
            axes.set_yticks(range(len(rows)), [short_name(row["id"]) for row in rows], fontsize=8)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("request" if len(rows) <= NAMED else "requests, by arrival")
        handles = [Line2D([], [], color=colour, linewidth=6, label=word) for _, _, (word, colour) in kinds]
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(handles)}
        axes.legend(handles=handles, frameon=False, fontsize=9, **place)
        words = [printable(instance.name), _told(instance, claim)]
        steps = ", ".join(word for _, _, (word, _) in kinds)
        alt = f"A line for each of {len(rows)} requests over time, by arrival: {steps}."
        return entitle(ax, [axes], words, alt)


def _phases(marks: Sequence[str]) -> list[tuple[str, str]]:
    """What lies between two marks, and its colour."""
    waiting, decode = ("waiting", COLOURS[Phase.WAITING]), ("from the first token on", COLOURS[Phase.DECODE])
    if "start" in marks:
        return [("prefill", COLOURS[Phase.PREFILL]), ("decode", COLOURS[Phase.DECODE])]
    return [("until the first token", COLOURS[Phase.PREFILL]) if "first_token" in marks else waiting, decode]


def plot_latencies(
    instance: AnyInstance,
    runs: AnySchedule | AnyResult | Mapping[str, AnySchedule | AnyResult],
    latency: str | None = None,
    ax: Any | None = None,
) -> Any:
    """Draw how a latency is distributed over the requests: the share of them that has at most x.

    Parameters
    ----------
    instance : instance of any problem
    runs : schedule, Result, or mapping of label to these
    latency : {"ttft", "tpot", "e2e", "atgt"}, optional
        Default: the first that the problem's requests have.
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.

    Raises
    ------
    InputError
        If a schedule is wrong, or requests have no such latency.
    """
    named: Mapping[str, Any] = runs if isinstance(runs, Mapping) else {"": runs}
    found = {
        label: plain(rows_of(instance, _schedule(_claim(instance, run)))) for label, run in named.items()
    }
    first = next(iter(found.values()))[0]
    known = [name for name in LATENCIES if name in first]
    chosen = latency or next(iter(known), "latency")
    if chosen not in known:
        raise InputError(f"{chosen!r} is none of {', '.join(known) or 'none'}", field="latency")

    with styled():
        (axes,) = panels(ax, (7.5, 4.5))
        _draw_shares(axes, found, chosen)
        axes.set_xlabel(f"{chosen.upper()} (s)")
        labels = ", ".join(filter(None, found))
        words = [printable(instance.name), f"{chosen.upper()} of {len(instance.requests)} requests"]
        alt = f"Rising steps: the share of requests that have at most x seconds. {labels}".rstrip()
        return entitle(ax, [axes], words, alt)


def _draw_shares(axes: Any, found: Mapping[str, Sequence[Mapping[str, Any]]], latency: str) -> None:
    """Steps of each run, and lines at one half and at 99 %."""
    for k, (label, rows) in enumerate(found.items()):
        values = sorted(row[latency] for row in rows if row[latency] is not None)
        xs, ys = [0.0, *values], [i / max(1, len(values)) for i in range(len(values) + 1)]
        look = {
            "color": CATEGORIES[k % len(CATEGORIES)],
            "linestyle": LINES[k // len(CATEGORIES) % len(LINES)],
        }
        axes.step(xs, ys, where="post", label=legend_label(label) or None, linewidth=1.6, **look)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    for share in (0.5, 0.99):
        axes.axhline(share, color="#999999", linewidth=0.6, linestyle=":")
    axes.set_ylabel("share of requests")
    if any(found):
        axes.legend(loc="lower right", fontsize=9, frameon=False)


def plot_convergence(
    run: AnyResult | Sequence[ProgressEvent], ax: Any | None = None, *, title: str | None = None
) -> Any:
    """Draw how schedule and lower bound came together: both over the seconds of a solve, and the gap.

    Parameters
    ----------
    run : Result or sequence of ProgressEvent
        A result of `solve` knows its events; one of a file does not.
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.
    title : str, optional
        Default: the instance of the result.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.

    Raises
    ------
    InputError
        If there are no events.
    """
    result = run if isinstance(run, Result) else None
    events = run.events if isinstance(run, Result) else run
    if not isinstance(events, Sequence):
        raise InputError(f"a {type(run).__name__} is no result and no sequence of events", field="run")
    steps = [event for event in events if event.step in ("bound", "schedule")]
    if not steps:
        raise InputError("there are none; only a result of solve has them", field="events")

    spent = result.solver.seconds if result is not None and result.solver is not None else None
    end = max(steps[-1].seconds, spent or 0.0)
    with styled():
        (axes,) = panels(ax, (8, 4.5))
        _shade(axes, _draw_sides(axes, steps, end))
        axes.set_xlim(0, end or 1)
        axes.set_xlabel("time of the solve (s)")
        axes.set_ylabel("objective" if result is None else _objective_and_unit(result))
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(loc="best", fontsize=9)
        name = title or ("a solve" if result is None else printable(result.instance))
        alt = f"Steps over time: the best schedule falls, the lower bound rises, {len(steps)} times in all."
        return entitle(ax, [axes], [name, _ended(result, steps[-1], end)], alt)


def _objective_and_unit(result: AnyResult) -> str:
    """The objective, with its unit where the instance is known."""
    return result.objective if result.given is None else f"{result.objective} ({result.given.unit[1]})"


def _ended(result: AnyResult | None, last: ProgressEvent, end: float) -> str:
    """What a solve came to, in a line."""
    gap = last.gap if result is None or result.gap is None else float(result.gap)
    words = (
        f"after {end:.3g} s" if gap is None else f"gap {percent(Fraction(gap), 'ceiling')} after {end:.3g} s"
    )
    if result is None or result.upper is None or result.lower is None:
        return words
    return f"{words}; schedule: {result.upper.source}; lower bound: {result.lower.source}"


def _draw_sides(
    axes: Any, steps: Sequence[ProgressEvent], end: float
) -> dict[str, list[tuple[float, float]]]:
    """Both sides as steps, with a dot at each change; their corners."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, word, colour, line in SIDES:
        corners: list[tuple[float, float]] = []
        for event in steps:
            y = getattr(event, name)
            if y is not None and (not corners or y != corners[-1][1]):
                corners.append((event.seconds, y))
        if corners:
            lines[name] = [*corners, (end, corners[-1][1])]
            xs, ys = zip(*lines[name], strict=True)
            axes.step(xs, ys, where="post", color=colour, linestyle=line, linewidth=2, label=word)
            axes.plot(xs[:-1], ys[:-1], "o", color=colour, markersize=4)
    return lines


#: Attribute, word, colour and line of both sides of a solve.
SIDES = (
    ("value", "best schedule", CATEGORIES[0], "-"),
    ("bound", "lower bound", CATEGORIES[5], "--"),
)
#: Lines of runs beyond the colours that there are.
LINES = ("-", "--", ":")


def _shade(axes: Any, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Fill what lies between both sides."""
    if len(lines) < 2:
        return
    times = sorted({t for line in lines.values() for t, _ in line})
    sides = []
    for name in ("bound", "value"):
        line = lines[name]
        sides.append([next((y for t, y in reversed(line) if t <= at), float("nan")) for at in times])
    axes.fill_between(times, *sides, step="post", color="#E8E8E8", linewidth=0, label="gap")


def save_plot(ax: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure that axes are in, with its title and alternative text.

    Outside notebooks and windows, pyplot keeps no figure that was made here once it is written.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    path : path
        PNG or SVG by its ending; written whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written, or its name is no picture's.
    """
    save_figure(ax.figure, path)
    forget_unseen(ax.figure)


def _claim(instance: AnyInstance, subject: AnySchedule | AnyResult | Claim) -> Any:
    """A valid schedule, or what a result with one claims."""
    claim = subject.claim() if isinstance(subject, Result) else subject
    _schedule(claim)
    check = api.verify(instance, claim)
    wrong = [*check.violations, *check.faults]
    if wrong:
        raise InputError(f"is not drawn, it is wrong: {wrong[0]}", field="schedule")
    return claim


def _schedule(claim: Any) -> Any:
    schedule = claim.schedule if isinstance(claim, Claim) else claim
    if schedule is None:
        raise InputError("there is none to draw", field="schedule")
    return schedule


def _told(instance: AnyInstance, claim: Any) -> str:
    """What a result claims, in a few words."""
    if not isinstance(claim, Claim) or claim.upper_bound is None:
        return f"{len(instance.requests)} requests"
    return f"{instance.objective_name} {amount(instance, claim.upper_bound)}, found by {claim.upper_source}"
