"""Gantt chart of a makespan schedule: clients by time, as in Figures 6 to 9 of the paper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnySchedule
from infermax_opt.files.figure import COLOURS, Phase, bound_words, entitle, panels, styled
from infermax_opt.files.text import percent, printable, seconds
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.replay.bins import replay_bins
from infermax_opt.makespan.replay.rows import Served, served

__all__ = ["plot_bins"]

#: Bubbles: clients that neither prefill nor decode.
IDLE = "#E8E8E8"

PREFILL = COLOURS[Phase.PREFILL]
#: Of requests that follow each other on a client.
SHADES = (COLOURS[Phase.DECODE], "#56B4E9")
#: Most requests that are named in their bars.
NAMED = 60


def plot_bins(instance: MakespanInstance, subject: AnySchedule | Claim, ax: Any | None = None) -> Any:
    """Draw a valid schedule, or the schedule of a result with its bound and gap.

    Parameters
    ----------
    instance : MakespanInstance
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
    if not isinstance(schedule, MakespanSchedule):
        raise InputError("holds no schedule to draw", field="schedule")
    found = replay_bins(instance, schedule)
    words = [f"makespan {seconds(found.makespan)}"]
    if isinstance(subject, Claim):
        words += bound_words(instance, subject)
    words += [f"utilisation {percent(found.utilisation)}", f"{len(schedule.bins)} bins"]
    with styled():
        from matplotlib.ticker import MaxNLocator

        (axes,) = panels(ax, (11, min(3 + 0.2 * instance.clients, 9)))
        axes.set_facecolor(IDLE)
        _draw(axes, instance, served(instance, schedule, found))
        if isinstance(subject, Claim) and subject.lower_bound is not None:
            axes.axvline(float(subject.lower_bound), color="black", linewidth=1.4, linestyle=":", zorder=5)
        axes.set_xlim(0, float(found.makespan) or 1)
        axes.set_ylim(0.5, instance.clients + 0.5)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("client")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(axes, isinstance(subject, Claim))
        alt = (
            f"A row for each of {instance.clients} clients over time: prefill and decode of "
            f"{len(instance.requests)} requests, apart by shade, and idle time."
        )
        return entitle(ax, [axes], [printable(instance.name), ", ".join(words)], alt)


def _legend(axes: Any, bounded: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = {PREFILL: "prefill", SHADES[0]: "decode", SHADES[1]: "decode of the next request", IDLE: "idle"}
    handles: list[Any] = [Patch(facecolor=colour, label=label) for colour, label in names.items()]
    if bounded:
        handles.append(Line2D([], [], color="black", linestyle=":", label="lower bound"))
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(handles)}
    axes.legend(handles=handles, frameon=False, fontsize=9, **place)


def _draw(axes: Any, instance: MakespanInstance, everyone: Mapping[int, Served]) -> None:
    """The bars of every request; one that follows another on its client has another shade."""
    unit = instance.ticks_per_second
    bars: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    turn: dict[int, int] = defaultdict(int)
    for k, one in sorted(everyone.items(), key=lambda item: item[1].prefill):
        shade = SHADES[turn[one.client] % len(SHADES)]
        turn[one.client] += 1
        spans = [(PREFILL, one.prefill), *((shade, decode) for decode in one.decodes)]
        for colour, (start, length) in spans:
            bars[colour].append((one.client, start / unit, length / unit))
        if len(everyone) <= NAMED:
            last, length = one.decodes[-1] if one.decodes else one.prefill
            axes.annotate(
                printable(instance.requests[k].id), ((one.prefill[0] + last + length) / 2 / unit, one.client),
                ha="center", va="center", fontsize=7, color="white", clip_on=True, parse_math=False, zorder=4,
            )  # fmt: skip
    for colour, some in bars.items():
        clients, starts, lengths = zip(*some, strict=True)
        axes.barh(clients, lengths, left=starts, height=0.9, color=colour, linewidth=0, rasterized=True)
