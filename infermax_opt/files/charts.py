"""Charts of lower and upper bounds as SVG for a page: bands, ranges, lines.

Lower bounds are circles on a solid line, upper ones squares on a dashed line, so colour is never all that
tells them apart.  A chart is 360 units wide: on a phone its text has the size of the page's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from infermax_opt.core.exact import figures_text, lower_rounding
from infermax_opt.files.page import escaped
from infermax_opt.files.text import UNKNOWN

__all__ = ["band_chart", "line_chart", "range_chart"]

WIDTH, HEIGHT = 360, 240
#: Room around the plot for axes and the legend.
LEFT, RIGHT, TOP, BOTTOM = 48, 20, 30, 44
#: Height of a row of ranges: its name above its line.
ROW = 40
#: Height of a line of text, and letters of one that is as wide as a chart.
LINE, LETTERS = 16, 48
#: Steps of an axis, as multiples of a power of ten.
NICE = (1, 2, 5, 10)
#: Numbers along an axis, about.
TICKS = 5

Points = Sequence[tuple[float, float]]


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    raw = max((high - low) / TICKS, 1e-12)
    power = 10.0 ** floor(log10(raw))
    step = next(power * nice for nice in NICE if power * nice >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first = floor(low / step + 1e-9)
    found = [first * step]
    while found[-1] < high - step * 1e-9:
        found.append((first + len(found)) * step)
    return found if len(found) > 1 else [*found, found[0] + step]


class _Plot:
    """A plot with its axes; `shapes` is what has been drawn."""

    def __init__(self, across: Sequence[float], up: Sequence[float], height: int, left: int = LEFT) -> None:
        self.across, self.up, self.height, self.left = across, up, height, left
        self.shapes: list[str] = []

    def x(self, value: float) -> float:
        share = (value - self.across[0]) / (self.across[-1] - self.across[0])
        return round(self.left + share * (WIDTH - self.left - RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.up[0]) / (self.up[-1] - self.up[0])
        return round(self.height - BOTTOM - share * (self.height - BOTTOM - TOP), 1)

    def text(self, x: float, y: float, words: object, anchor: str = "middle", kind: str = "soft") -> None:
        self.shapes.append(
            f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escaped(words)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.shapes.append(f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')

    def circle(self, x: float, y: float) -> None:
        self.shapes.append(f'<circle cx="{x}" cy="{y}" r="4"/>')

    def square(self, x: float, y: float) -> None:
        self.shapes.append(f'<rect class="mark" x="{x - 4:g}" y="{y - 4:g}" width="8" height="8"/>')

    def range(self, low: float | None, high: float | None, y: float) -> None:
        """From a lower to an upper bound, as far as they are known."""
        if low is not None and high is not None:
            self.line(self.x(low), y, self.x(high), y, "span")
        if high is not None:
            self.square(self.x(high), y)
        if low is not None:
            self.circle(self.x(low), y)

    def path(self, points: Points, kind: str) -> None:
        places = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)
        self.shapes.append(f'<polyline class="{kind}" points="{places}"/>')

    def axis_across(self, label: str, marks: Sequence[float]) -> None:
        base = self.height - BOTTOM
        self.line(self.left, base, WIDTH - RIGHT, base, "axis")
        for mark in marks:
            self.line(self.x(mark), TOP, self.x(mark), base, "grid")
            self.text(self.x(mark), base + 16, f"{mark:g}")
        self.text((self.left + WIDTH - RIGHT) / 2, self.height - 8, label)

    def axis_up(self, label: str) -> None:
        for mark in self.up:
            self.line(self.left, self.y(mark), WIDTH - RIGHT, self.y(mark), "grid")
            self.text(self.left - 6, self.y(mark) + 4, f"{mark:g}", "end")
        self.text(4, 14, label, "start")

    def legend(self, ends: tuple[str, str] = ("lower", "upper")) -> None:
        """What circles and squares are, at the top right; nothing of one without a name."""
        circle, square = ends
        if circle:
            self.circle(WIDTH - 132, 10)
            self.text(WIDTH - 124, 14, circle, "start")
        if square:
            self.square(WIDTH - 66, 10)
            self.text(WIDTH - 58, 14, square, "start")

    def svg(self, title: str) -> str:
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escaped(title)}">'
            f"<title>{escaped(title)}</title>{''.join(self.shapes)}</svg>"
        )


def band_chart(title: str, lower: Points, upper: Points, across: str, up: str, *, whole: bool = False) -> str:
    """The band between lower and upper bounds.

    Parameters
    ----------
    title : str
        What it shows in words, for those who do not see it.
    lower, upper : sequence of (float, float)
        In the order of their first numbers; either may lack some.
    across, up : str
        Names of the axes, with units.
    whole : bool
        What goes up are whole numbers.
    """
    everything = [*lower, *upper]
    xs = sorted({x for x, _ in everything})
    plot = _Plot(_ticks(0, xs[-1] or 1), _ticks(0, max(y for _, y in everything), whole), HEIGHT)
    plot.axis_across(across, plot.across)
    plot.axis_up(up)
    below, above = dict(lower), dict(upper)
    both = [x for x in xs if x in below and x in above]
    if len(both) > 1:
        ring = [(x, below[x]) for x in both] + [(x, above[x]) for x in reversed(both)]
        places = " ".join(f"{plot.x(x)},{plot.y(y)}" for x, y in ring)
        plot.shapes.append(f'<polygon class="band" points="{places}"/>')
    plot.path(upper, "upper")
    plot.path(lower, "lower")
    for x, y in upper:
        plot.square(plot.x(x), plot.y(y))
    for x, y in lower:
        plot.circle(plot.x(x), plot.y(y))
    plot.legend()
    return plot.svg(title)


def range_chart(
    title: str,
    rows: Sequence[tuple[str, float | None, float | None]],
    across: str,
    *,
    whole: bool = False,
    ends: tuple[str, str] = ("lower", "upper"),
) -> str:
    """From a lower to an upper bound, a row for each name.

    Parameters
    ----------
    title : str
        What it shows in words, for those who do not see it.
    rows : sequence of (str, float or None, float or None)
        Name, lower and upper; None is unknown.
    across : str
        Name of the axis, with its unit.
    whole : bool
        They are whole numbers.
    ends : (str, str)
        What lower and upper numbers are, in a word each; empty where there are none.
    """
    words = [
        _ends(*(end for end, name in ((low, ends[0]), (high, ends[1])) if name)) for _, low, high in rows
    ]
    # Where a name and its numbers are longer than a line, all rows have two.
    long = any(len(name) + len(said) > LETTERS for (name, *_), said in zip(rows, words, strict=True))
    step = ROW + LINE * long
    height = TOP + BOTTOM + step * len(rows)
    known = [value for _, *ends in rows for value in ends if value is not None]
    plot = _Plot(_ticks(0, max(known, default=1) or 1, whole), (0, 1), height, left=14)
    plot.axis_across(across, plot.across)
    for k, (name, low, high) in enumerate(rows):
        base = TOP + step * k + 14
        plot.text(14, base, _short(name) if long else f"{name}: {words[k]}", "start", "name")
        if long:
            base += LINE
            plot.text(14, base, words[k], "start", "name")
        plot.range(low, high, base + 13)
    plot.legend(ends)
    return plot.svg(title)


def _short(name: str) -> str:
    """A name that fits a line."""
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\u2026"


def _ends(*ends: float | None) -> str:
    """The ends of a range in words, the first, maybe a bound, rounded down; one if they are the same."""
    first = lower_rounding(0 if len(set(ends)) == 1 else None)
    texts = (
        UNKNOWN if value is None else figures_text(value, 4, "nearest" if k else first)
        for k, value in enumerate(ends)
    )
    return " to ".join(dict.fromkeys(texts))


def line_chart(title: str, points: Points, target: float | None, across: str, up: str) -> str:
    """Values over whole numbers, and the one that is asked for, if any.

    Parameters
    ----------
    title : str
        What it shows in words, for those who do not see it.
    points : sequence of (float, float)
        In the order of their first numbers.
    target : float or None
    across, up : str
        Names of the axes, with units.
    """
    values = [y for _, y in points] + ([] if target is None else [target])
    marks = _ticks(points[0][0], points[-1][0], whole=True)
    plot = _Plot(marks, _ticks(min(values), max(values)), HEIGHT)
    plot.axis_across(across, marks)
    plot.axis_up(up)
    if target is not None:
        plot.path([(marks[0], target), (marks[-1], target)], "upper")
        plot.text(LEFT + 6, plot.y(target) - 6, f"asked: {target:g}", "start")
    plot.path(points, "lower")
    for x, y in points:
        plot.circle(plot.x(x), plot.y(y))
    return plot.svg(title)
