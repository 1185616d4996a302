"""Picture of a selection: what (6) allows for each real-time request, and what the batch uses."""

from __future__ import annotations

from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnySchedule
from infermax_opt.files.figure import COLOURS, Phase, bound_words, entitle, panels, styled
from infermax_opt.files.text import printable
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.replay.check import check_selection
from infermax_opt.iteration.replay.metrics import measure_batch

__all__ = ["plot_selection"]

SELECTED, WAITS, LATE = COLOURS[Phase.DECODE], COLOURS[Phase.HOLDING], COLOURS[Phase.REFILL]


def plot_selection(instance: IterationInstance, subject: AnySchedule | Claim, ax: Any | None = None) -> Any:
    """Draw a valid selection, or the selection of a result with its bound and gap.

    Parameters
    ----------
    instance : IterationInstance
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
        If there is no selection.
    """
    selection = subject.schedule if isinstance(subject, Claim) else subject
    if not isinstance(selection, Selection):
        raise InputError("holds no schedule to draw", field="schedule")

    batch = check_selection(instance, selection).batch
    metrics = measure_batch(instance, batch)
    with styled():
        slacks, uses = drawn = panels(ax, (11, 6.5), [3, 1], shared=False)
        _draw_slacks(slacks, instance, set(batch), float(metrics.iteration_time))
        _draw_uses(uses, instance, batch)
        tokens = metrics.be_tokens_per_second or 0
        words = [f"{metrics.rt_served} RT, {metrics.be_served} BE, {float(tokens):.5g} BE tokens/s"]
        if isinstance(subject, Claim):
            words += bound_words(instance, subject)
        alt = (
            "Bars: the time that each real-time request allows the batch, least slack first; "
            f"{len(batch)} are selected. Below: shares of the batch size and of the empty blocks in use."
        )
        return entitle(ax, drawn, [printable(instance.name), ", ".join(words)], alt)


def _draw_slacks(axes: Any, instance: IterationInstance, batch: set[int], time: float) -> None:
    """Most time of the batch for each real-time request, least slack first."""
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    ticks = Ticks.of(instance)
    real_time = [k for k, r in enumerate(instance.requests) if r.real_time]
    real_time.sort(key=lambda k: (ticks.slack[k], k))
    limits = [1000 * ticks.limit(k, k in batch) / ticks.scale for k in real_time]
    kept = set(ticks.kept(batch))
    colours = [SELECTED if k in batch else WAITS for k in real_time]
    edges = [LATE if k not in kept else "white" for k in real_time]
    axes.bar(range(1, len(limits) + 1), limits, color=colours, edgecolor=edges, linewidth=0.8)
    axes.axhline(1000 * time, color="black", linewidth=1.2, linestyle="--")
    axes.axhline(0, color="black", linewidth=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("real-time request, by slack")
    axes.set_ylabel("time that (6) allows, ms\n(dashed: the batch)")
    handles = [Patch(facecolor=SELECTED, label="selected"), Patch(facecolor=WAITS, label="waits")]
    handles.append(Patch(facecolor="white", edgecolor=LATE, label="late"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)


def _draw_uses(axes: Any, instance: IterationInstance, batch: tuple[int, ...]) -> None:
    """Shares of the batch size and of the empty blocks."""
    machine, requests = instance.machine, instance.requests
    for row, real_time in enumerate((True, False)):
        some = [requests[k] for k in batch if requests[k].real_time is real_time]
        shares = [
            100 * len(some) / machine.batch,
            100 * sum(r.new_blocks for r in some) / max(1, machine.blocks),
        ]
        before = [
            100 * sum(requests[k].real_time for k in batch) / machine.batch,
            100
            * sum(requests[k].new_blocks for k in batch if requests[k].real_time)
            / max(1, machine.blocks),
        ]
        colour = COLOURS[Phase.DECODE if real_time else Phase.PREFILL]
        left = [0.0, 0.0] if row == 0 else before
        axes.barh([0, 1], shares, left=left, color=colour, label="RT" if real_time else "BE")
    axes.set_yticks([0, 1], ["(7) requests", "(8) blocks"])
    axes.set_xlim(0, 105)
    axes.axvline(100, color="black", linewidth=1.2, linestyle="--")
    axes.set_xlabel("used of the limit, %")
    axes.legend(loc="lower right", frameon=False, ncols=2)
