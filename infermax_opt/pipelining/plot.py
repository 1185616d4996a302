"""Picture of a schedule: which request uses each token of the reservation, at each iteration."""

from __future__ import annotations

from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnySchedule
from infermax_opt.files.figure import COLOURS, Phase, bound_words, entitle, panels, styled
from infermax_opt.files.text import printable
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.replay.metrics import measure

__all__ = ["plot_reservation"]

#: Most requests that have an edge of their own, and most that are named.
INDIVIDUAL, NAMED = 400, 12
#: Hosts of nobody above them, and their guests at every depth.
SHADES = (COLOURS[Phase.DECODE], COLOURS[Phase.PREFILL], "#56B4E9", "#009E73", "#CC79A7", "#F0E442")


def plot_reservation(
    instance: PipeliningInstance, subject: AnySchedule | Claim, ax: Any | None = None
) -> Any:
    """Draw a valid schedule, or the schedule of a result with its bound and gap.

    A request of g tokens is a triangle: it reaches the k-th of its tokens at iteration k, and holds it until
    iteration g.

    Parameters
    ----------
    instance : PipeliningInstance
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
        If there is no schedule.
    """
    schedule = subject.schedule if isinstance(subject, Claim) else subject
    if not isinstance(schedule, Pipelining):
        raise InputError("holds no schedule to draw", field="schedule")
    placed = sorted(
        (offset, instance.sizes[instance.index[name]], name) for name, offset in schedule.offsets.items()
    )
    depths = _depths([(offset, size) for offset, size, _ in placed])
    metrics = measure(instance, schedule)
    with styled():
        from matplotlib.collections import PolyCollection

        (axes,) = panels(ax, (11, 6))
        corners = [[(s, 0), (s, g), (s + g, g)] for s, g, _ in placed]
        shades = [SHADES[min(depth, len(SHADES) - 1)] for depth in depths]
        edge = 0.4 if len(placed) <= INDIVIDUAL else 0
        axes.add_collection(PolyCollection(corners, facecolors=shades, edgecolors="white", linewidths=edge))
        if len(placed) <= NAMED:
            for offset, size, name in placed:
                where = (offset + size / 3, 2 * size / 3)
                axes.annotate(printable(name), where, ha="center", va="center", fontsize=8, parse_math=False)
        axes.set_xlim(0, instance.capacity)
        axes.set_ylim(0, 1.03 * max((size for _, size, _ in placed), default=1))
        axes.set_xlabel("tokens of the reservation")
        axes.set_ylabel("iteration")
        words = [
            f"{metrics.count} of {len(instance.requests)} requests",
            f"tokens {float(metrics.tokens_per_capacity):.4g} times the capacity",
        ]
        if isinstance(subject, Claim):
            words += bound_words(instance, subject)
        alt = "A triangle for each request: the tokens of the reservation that it uses, over iterations."
        return entitle(ax, [axes], [printable(instance.name), ", ".join(words)], alt)


def _depths(placed: list[tuple[int, int]]) -> list[int]:
    """For each request, in order of offsets, in how many longer ones it begins."""
    open_, found = list[tuple[int, int]](), list[int]()
    for offset, size in placed:
        open_ = [(s, g) for s, g in open_ if s + g > offset]
        found.append(sum(g > size for _, g in open_))
        open_.append((offset, size))
    return found
