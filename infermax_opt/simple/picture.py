"""A schedule as bars over time, one row for each machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.files.figure import COLOURS, Phase, entitle, panels, styled

__all__ = ["Bar", "draw_bars"]


@dataclass(frozen=True)
class Bar:
    """What a machine does for a while: its row, start and length in seconds, and the phase for the colour."""

    row: str
    start: Fraction
    length: Fraction
    phase: Phase


def draw_bars(bars: Iterable[Bar], words: Sequence[str], ax: Any | None = None) -> Any:
    """Draw bars.

    Parameters
    ----------
    bars : iterable of Bar
    words : sequence of str
        Of the title.
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or the first of the new figure.

    """
    bars = list(bars)
    rows = list(dict.fromkeys(bar.row for bar in bars))
    with styled():
        (axes,) = panels(ax, (11, 1.5 + 0.6 * len(rows)))
        for phase in dict.fromkeys(bar.phase for bar in bars):
            own = [bar for bar in bars if bar.phase is phase]
            axes.barh(
                [bar.row for bar in own],
                [float(bar.length) for bar in own],
                left=[float(bar.start) for bar in own],
                color=COLOURS[phase],
                edgecolor="white",
                label=phase.value,
            )
        axes.set_xlabel("time (s)")
        axes.invert_yaxis()
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        alt = f"Bars over time, a row for each of {', '.join(rows)}."
        return entitle(ax, [axes], [", ".join(words)], alt)
