"""Gantt chart of a makespan schedule: clients by time, as in Figures 6 to 9 of the paper."""

from __future__ import annotations

import os
from collections import defaultdict

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnySchedule
from infermax_opt.files.figure import COLOURS, STYLE, Phase, bound_words, picture_format, save_figure
from infermax_opt.files.text import percent, printable, seconds
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.replay.bins import BinReplay, replay_bins

__all__ = ["plot_bins"]

#: Bubbles: clients that neither prefill nor decode.
IDLE = "#E8E8E8"

#: Per client, from 1: start and length of each bar, in ticks.
Bars = dict[int, list[tuple[int, int]]]


def plot_bins(instance: MakespanInstance, subject: AnySchedule | Claim, path: str | os.PathLike[str]) -> None:
    """Draw a valid schedule, or the schedule of a result with its bound and gap.

    Parameters
    ----------
    instance : MakespanInstance
    subject : schedule or Claim
    path : path
        PNG or SVG by its ending; written whole or not at all.

    Raises
    ------
    InputError
        If there is no schedule of such an instance, or the file cannot be written.
    """
    picture_format(path)
    schedule = subject.schedule if isinstance(subject, Claim) else subject
    if not isinstance(schedule, MakespanSchedule):
        raise InputError("holds no schedule to draw", field="schedule")
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    found = replay_bins(instance, schedule)
    prefill, decode = _bars(instance, schedule, found)
    unit = instance.ticks_per_second
    with rc_context(STYLE):
        figure = Figure(figsize=(11, min(3 + 0.2 * instance.clients, 9)), layout="constrained")
        axes = figure.subplots()
        axes.set_facecolor(IDLE)
        for bars, phase in ((decode, Phase.DECODE), (prefill, Phase.PREFILL)):
            for client, spans in bars.items():
                scaled = [(start / unit, length / unit) for start, length in spans]
                axes.broken_barh(
                    scaled, (client - 0.5, 1), facecolors=COLOURS[phase], linewidth=0, rasterized=True
                )
        axes.set_xlim(0, float(found.makespan) or 1)
        axes.set_ylim(0.5, instance.clients + 0.5)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("client")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        handles = [
            Patch(facecolor=colour, label=label)
            for colour, label in (
                (COLOURS[Phase.PREFILL], "prefill"), (COLOURS[Phase.DECODE], "decode"), (IDLE, "idle")
            )
        ]  # fmt: skip
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
        words = [f"makespan {seconds(found.makespan)}"]
        if isinstance(subject, Claim):
            words += bound_words(instance, subject)
        words += [f"utilisation {percent(found.utilisation)}", f"{len(schedule.bins)} bins"]
        title = f"{printable(instance.name)}\n{', '.join(words)}"
        figure.suptitle(title, fontsize=11, parse_math=False)
        save_figure(figure, path)


def _bars(instance: MakespanInstance, schedule: MakespanSchedule, found: BinReplay) -> tuple[Bars, Bars]:
    """Prefill and decode of every client; a decode begins with its stage."""
    prefill: Bars = defaultdict(list)
    decode: Bars = defaultdict(list)
    left = {k: request.output_tokens for k, request in enumerate(instance.requests)}
    serving: dict[int, int] = {}
    now = 0
    stages = zip(schedule.bins, found.prefill_ticks, found.decode_ticks, strict=True)
    for some, stage, rounds in stages:
        for name, client in some.prefill.items():
            serving[client] = instance.index[name]
            prefill[client].append((now, stage))
        now += stage
        for client, k in list(serving.items()):
            made = some.tokens(instance.requests[k].id, left[k])
            if made > 0:
                decode[client].append((now, made * instance.round_ticks))
            left[k] -= made
            if left[k] == 0:
                del serving[client]
        now += rounds
    return prefill, decode
