"""Pictures of schedules: what requests do over time, and the KV cache they take.

Few requests are drawn one by one, many as counts per phase.  Matplotlib loads on use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnySchedule
from infermax_opt.files.figure import COLOURS, Phase, bound_words, entitle, panels, short_name, styled
from infermax_opt.files.text import printable, seconds
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.timeline import Timeline, timeline

__all__ = [
    "plot_schedule",
]


#: Most requests that are drawn one by one.
INDIVIDUAL = 60
#: Most batches of which each gets its own cell; beyond, equal neighbours merge.
CELLS = 400
#: Most batches whose borders and numbers are drawn, and that name their tokens.
LABELLED = 40
#: Points in time at which many batches are summed up.
BINS = 1200

#: What running requests do, as it is stacked.  Those that wait are often a hundred times as many.
RUNNING = [Phase.DECODE, Phase.PREFILL, Phase.REFILL, Phase.HOLDING]
HATCHES = {Phase.EVICTED: "////", Phase.REFILL: "xxx"}
EVICTION = "#A0306F"
LIMIT = "#000000"
KV = "#009E73"

Floats = NDArray[np.float64]


def plot_schedule(instance: Instance, subject: AnySchedule | Claim, ax: Any | None = None) -> Any:
    """Draw a valid schedule, or the schedule of a result with its bound and gap.

    Parameters
    ----------
    instance : Instance
    subject : schedule or Claim
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or the first of the new figure.

    Raises
    ------
    InputError
        If there is no schedule of such an instance.
    """
    schedule = subject.schedule if isinstance(subject, Claim) else subject
    if not isinstance(schedule, Schedule):
        raise InputError("holds no schedule to draw", field="schedule")

    count = len(instance.requests)
    lines = timeline(instance, schedule, rows=count <= INDIVIDUAL)
    scale, unit = (1e3, "ms") if lines.ends[-1] < 2 else (1.0, "s")
    with styled():
        if lines.rows is not None:
            height = min(3.6 + 0.28 * max(count, 4), 16.0)
            drawn = panels(ax, (11, height), [max(0.28 * count, 1.1), 1.5])
            _requests(drawn[0], instance, lines, scale)
        else:
            drawn = panels(ax, (11, 9), [1.5, 1.0, 1.2, 1.2])
            _phases(drawn[0], lines, scale, RUNNING, "running requests\n(mean over time)")
            _phases(drawn[1], lines, scale, [Phase.EVICTED, Phase.WAITING], "waiting\n(mean over time)")
            _tokens(drawn[2], instance, lines, scale)
        _kv(drawn[-1], instance, lines, scale)
        _bound(drawn, instance, subject, scale)
        drawn[-1].set_xlabel(f"time ({unit})")
        drawn[-1].set_xlim(0, lines.ends[-1] * scale or 1)
        return entitle(ax, drawn, _title(instance, subject, lines), _alt(lines, count))


def _alt(lines: Timeline, count: int) -> str:
    """What the panels show, in words."""
    many = "running requests by what they do, waiting and evicted ones, tokens a batch"
    shown = "what each request does" if lines.rows is not None else many
    waiting, evicted = (max(lines.counts[phase], default=0) for phase in (Phase.WAITING, Phase.EVICTED))
    words = f"at most {waiting} waiting, at most {evicted} waiting after an eviction"
    return (
        f"Over time: {shown}, and KV tokens held. {count} requests in {len(lines.ends)} batches, {words}, "
        f"{lines.replay.evictions} evictions, at most {max(lines.replay.kv_used)} KV tokens."
    )


def _bound(drawn: Sequence[Any], instance: Instance, subject: AnySchedule | Claim, scale: float) -> None:
    """A line where no schedule ends before, of results whose objective is the makespan."""
    if not isinstance(subject, Claim) or subject.lower_bound is None or not instance.objective.is_makespan:
        return
    at = float(subject.lower_bound) * scale
    for axes in drawn:
        axes.axvline(at, color=LIMIT, linewidth=1.2, linestyle=":", zorder=6)
    drawn[-1].annotate(
        "lower bound", (at, 0), xycoords=("data", "axes fraction"), xytext=(-3, 4),
        textcoords="offset points", ha="right", va="bottom", fontsize=8, rotation=90,
    )  # fmt: skip


def _title(instance: Instance, subject: AnySchedule | Claim, lines: Timeline) -> list[str]:
    makespan = lines.replay.seconds(lines.replay.ends[-1])
    parts = [f"makespan {seconds(makespan)}"]
    if isinstance(subject, Claim):
        if not instance.objective.is_makespan:
            parts.append(f"{instance.objective} {seconds(subject.upper_bound)}")
        parts += bound_words(instance, subject)
    return [printable(instance.name), ", ".join(parts)]


def _legend(axes: Any, phases: Sequence[Phase], eviction: bool = False) -> None:
    """Legend above the panel; only what occurs in it."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=COLOURS[p], hatch=HATCHES.get(p), edgecolor="#666666", linewidth=0.4, label=p.value)
        for p in phases
    ]
    if eviction:
        handles.append(
            Line2D([], [], marker="X", color=EVICTION, linestyle="none", markersize=7, label="eviction")
        )
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(handles), frameon=False,
        handlelength=1.6, columnspacing=1.4, fontsize=9, borderaxespad=0.3,
    )  # fmt: skip


# --- one row per request ------------------------------------------------------------------------


def _requests(axes: Any, instance: Instance, lines: Timeline, scale: float) -> None:
    rows = lines.rows or []
    count, batches = len(instance.requests), len(rows)
    spans = _spans(lines, merge=batches > CELLS)
    _bars(axes, spans, scale, "white" if batches <= CELLS else "none")
    if batches <= LABELLED:
        _labels(axes, lines, scale)
        axes.set_title("number in a cell: tokens processed", loc="right", fontsize=8, color="#555555")
    evictions = _evictions(lines)
    if evictions:
        times, who = zip(*evictions, strict=True)
        axes.plot(
            [t * scale for t in times], who, "X", color=EVICTION, markersize=7, markeredgecolor="white",
            markeredgewidth=0.6, clip_on=False, zorder=5,
        )  # fmt: skip
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_yticks(range(count), [short_name(r.id) for r in instance.requests], fontsize=8)
    axes.set_ylabel("request")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    _legend(axes, [phase for phase in Phase if spans[phase]], bool(evictions))


def _bars(
    axes: Any, spans: dict[Phase, dict[int, list[tuple[float, float]]]], scale: float, edge: str
) -> None:
    """A bar for every stretch of time, in the row of its request."""
    for phase in Phase:
        for i, pieces in spans[phase].items():
            boxes = [(a * scale, (b - a) * scale) for a, b in pieces]
            axes.broken_barh(
                boxes, (i - 0.4, 0.8), facecolor=COLOURS[phase], edgecolor=edge, linewidth=0.5,
                hatch=HATCHES.get(phase),
            )  # fmt: skip


def _spans(lines: Timeline, merge: bool) -> dict[Phase, dict[int, list[tuple[float, float]]]]:
    """Per phase and request, the stretches of time; equal neighbours merge where asked for.

    What waits always merges: it does nothing per batch.
    """
    spans: dict[Phase, dict[int, list[tuple[float, float]]]] = {phase: {} for phase in Phase}
    idle = (Phase.WAITING, Phase.EVICTED, Phase.HOLDING)
    previous = 0.0
    for row, start, end in zip(lines.rows or [], lines.starts, lines.ends, strict=True):
        for i, (phase, _) in row.items():
            pieces = spans[phase].setdefault(i, [])
            # A request waits through the pause before a batch as well.
            begin = previous if phase in idle else start
            if pieces and pieces[-1][1] == begin and (merge or phase in idle):
                pieces[-1] = (pieces[-1][0], end)
            else:
                pieces.append((begin, end))
        previous = end
    return spans


def _labels(axes: Any, lines: Timeline, scale: float) -> None:
    """Tokens inside the cells and batch numbers above, where they fit."""
    total = lines.ends[-1] or 1.0
    for j, (row, start, end) in enumerate(zip(lines.rows or [], lines.starts, lines.ends, strict=True)):
        middle, width = (start + end) / 2 * scale, (end - start) / total
        for i, (phase, tokens) in row.items():
            if tokens and width > 0.009 * len(str(tokens)):
                colour = "white" if phase is Phase.DECODE else "black"
                box = {"facecolor": COLOURS[phase], "edgecolor": "none", "pad": 0.8}
                axes.text(
                    middle, i, str(tokens), ha="center", va="center", fontsize=8, color=colour,
                    bbox=box if phase in HATCHES else None, clip_on=True,
                )  # fmt: skip
        if j:
            axes.axvline(start * scale, color="#999999", linewidth=0.4, zorder=0)
    if all((end - start) / total > 0.018 for start, end in zip(lines.starts, lines.ends, strict=True)):
        for j, (start, end) in enumerate(zip(lines.starts, lines.ends, strict=True), 1):
            axes.annotate(
                f"{j}", ((start + end) / 2 * scale, 0), xycoords=("data", "axes fraction"), xytext=(0, -4),
                textcoords="offset points", ha="center", va="top", fontsize=7, color="#555555",
            )  # fmt: skip
        axes.annotate(
            "batch", (0, 0), xycoords="axes fraction", xytext=(-6, -4), textcoords="offset points",
            ha="right", va="top", fontsize=7, color="#555555",
        )  # fmt: skip
        axes.tick_params(axis="x", length=0)


def _evictions(lines: Timeline) -> list[tuple[float, int]]:
    """Time and request of every eviction."""
    found = []
    before: dict[int, tuple[Phase, int]] = {}
    for row, start in zip(lines.rows or [], lines.starts, strict=True):
        for i, (phase, _) in row.items():
            if phase is Phase.EVICTED and before.get(i, (None, 0))[0] is not Phase.EVICTED:
                found.append((start, i))
        before = row
    return found


# --- many requests ------------------------------------------------------------------------------


def _averaged(lines: Timeline, series: Sequence[Sequence[float]]) -> tuple[Floats, list[Floats], Floats]:
    """Bin edges, the mean over time of every series in each bin, and the share of time in batches.

    Few batches keep their own borders.
    """
    starts, ends = np.array(lines.starts), np.array(lines.ends)
    durations = ends - starts
    edges = np.unique(np.concatenate([starts, ends]))
    if len(edges) > BINS:
        edges = np.linspace(starts[0], ends[-1], BINS + 1)
    widths = np.diff(edges)
    knots = np.empty(2 * len(starts))
    knots[0::2], knots[1::2] = starts, ends

    def integral(values: Floats) -> Floats:
        # Integral up to every border of a batch; in between it grows linearly, or rests.
        gains = np.zeros(len(knots))
        gains[1::2] = values * durations
        return np.asarray(np.diff(np.interp(edges, knots, np.cumsum(gains))))

    busy = integral(np.ones(len(starts))) / widths
    return edges, [integral(np.array(s, float)) / widths for s in series], busy


def _phases(axes: Any, lines: Timeline, scale: float, order: Sequence[Phase], label: str) -> None:
    present = [phase for phase in order if any(lines.counts[phase])]
    edges, means, _ = _averaged(lines, [lines.counts[phase] for phase in present])
    base = np.zeros(len(edges) - 1)
    for phase, mean in zip(present, means, strict=True):
        axes.stairs(
            base + mean, edges * scale, baseline=base, fill=True, facecolor=COLOURS[phase],
            hatch=HATCHES.get(phase) if phase is Phase.EVICTED else None, edgecolor="#666666", linewidth=0,
        )  # fmt: skip
        base = base + mean
    axes.set_ylabel(label)
    axes.set_ylim(0, max(base.max() * 1.03, 1))
    _tidy(axes)
    _legend(axes, present)


def _tokens(axes: Any, instance: Instance, lines: Timeline, scale: float) -> None:
    features = lines.replay.features
    decode = [f.decodes for f in features]
    prefill = [f.tokens - f.decodes for f in features]
    edges, (decodes, prefills), busy = _averaged(lines, [decode, prefill])
    with np.errstate(invalid="ignore", divide="ignore"):
        decodes, prefills = (np.nan_to_num(v / busy) for v in (decodes, prefills))
    axes.stairs(decodes, edges * scale, fill=True, color=COLOURS[Phase.DECODE])
    axes.stairs(decodes + prefills, edges * scale, baseline=decodes, fill=True, color=COLOURS[Phase.PREFILL])
    limit = instance.system.max_batch_tokens
    top = max(float((decodes + prefills).max()), 1.0)
    if limit <= 4 * top:
        axes.axhline(limit, color=LIMIT, linewidth=1, linestyle="--")
        axes.annotate(
            f"C = {limit}", (0.995, limit), xycoords=("axes fraction", "data"), xytext=(0, 2),
            textcoords="offset points", ha="right", fontsize=8,
        )  # fmt: skip
        top = max(top, limit)
    axes.set_ylim(0, top * 1.15)
    axes.set_ylabel("tokens per batch\n(mean)")
    _tidy(axes)


def _kv(axes: Any, instance: Instance, lines: Timeline, scale: float) -> None:
    capacity = instance.system.kv_capacity
    used = lines.replay.kv_used
    edges, (mean,), busy = _averaged(lines, [used])
    if len(used) <= BINS // 2:
        # Every batch has its own step, and the pauses between batches hold what the last one left.
        axes.stairs(mean, edges * scale, fill=True, color=KV, alpha=0.85)
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.nan_to_num(mean / busy)
        axes.stairs(mean, edges * scale, fill=True, color=KV, alpha=0.85)
    peak = max(used)
    axes.axhline(capacity, color=LIMIT, linewidth=1.2, linestyle="--")
    axes.annotate(
        f"M = {capacity} tokens; peak {peak}", (0.995, capacity), xycoords=("axes fraction", "data"),
        xytext=(0, 3), textcoords="offset points", ha="right", fontsize=8, zorder=7,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip
    axes.set_ylim(0, capacity * 1.22)
    axes.set_ylabel("KV tokens held")
    _tidy(axes)


def _tidy(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
