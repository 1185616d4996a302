"""What all pictures share: colours, style, the file, the words of a title.  Matplotlib loads on use."""

from __future__ import annotations

import contextlib
import enum
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import lower_rounding
from infermax_opt.core.extras import require
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.json import STANDARD
from infermax_opt.files.report import value_text
from infermax_opt.files.text import percent, printable
from infermax_opt.files.writing import written

__all__ = [
    "CATEGORIES",
    "COLOURS",
    "STYLE",
    "Phase",
    "alt_text",
    "bound_words",
    "credit",
    "entitle",
    "forget_unseen",
    "legend_label",
    "panels",
    "picture_format",
    "save_figure",
    "save_picture",
    "short_name",
    "styled",
]

#: Characters of a request's name beside its bar.
NAME = 16
#: Characters of a title that an inch of a figure has room for.
PER_INCH = 10.5
#: Points between axes and their title where a legend is in between.
LEGEND = 26.0
#: A number and what parts it from its unit: they stay on one line of a title.
NUMBER = re.compile(r"(\d) (?=%|s\b|ms\b)")
#: Room between panels that take the place of one, as a share of its height.
BETWEEN = 0.08


#: Marks figures that were made here, not by the caller.
OWN = "_made_by_infermax_opt"


class Phase(enum.Enum):
    """What a request does during a batch."""

    PREFILL = "prefill"
    DECODE = "decode"
    REFILL = "refill after eviction"
    HOLDING = "idle, holds KV"
    EVICTED = "evicted, waiting"
    WAITING = "waiting"


#: A fixed salt (and no date): equal schedules give equal files.  A dollar in a name is a dollar, no formula.
STYLE = {"svg.hashsalt": "infermax-opt", "font.size": 10, "hatch.linewidth": 0.6, "text.parse_math": False}
#: Okabe and Ito's palette, which colour-blind readers can tell apart; what waits is pale or hatched.
COLOURS = {
    Phase.PREFILL: "#E69F00",
    Phase.DECODE: "#0072B2",
    Phase.REFILL: "#D55E00",
    Phase.HOLDING: "#B7DDF2",
    Phase.EVICTED: "#F3D3E4",
    Phase.WAITING: "#E8E8E8",
}
#: The same palette for schedulers and runs, one a run, again from the start after the last.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")


def picture_format(path: str | os.PathLike[str]) -> str:
    """Format of a picture by the ending of its name; png on standard output.

    Raises
    ------
    InputError
        If it is neither png nor svg, or nothing is installed that draws.
    """
    require("matplotlib", "pictures")
    if os.fspath(path) == STANDARD:
        return "png"
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".png", ".svg"):
        raise InputError("the name of a picture ends in .png or .svg", source=os.fspath(path))
    return suffix[1:]


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw under `STYLE`.

    Raises
    ------
    InputError
        If nothing is installed that draws.
    """
    require("matplotlib", "pictures")
    from matplotlib import interactive, is_interactive, rc_context

    with rc_context(STYLE):
        yield
        # A notebook's backend sets this when it loads, which may be now; it must outlive the style.
        shows = is_interactive()
    interactive(shows)


def short_name(text: object) -> str:
    """A name beside a bar: on one line, its end cut where it is long."""
    name = printable(text)
    return name if len(name) <= NAME else f"{name[: NAME - 1]}~"


def legend_label(text: object) -> str:
    """A name for a legend, which leaves out what begins with an underscore."""
    name = printable(text)
    return f"\u200b{name}" if name.startswith("_") else name


def panels(
    ax: Any | None, size: tuple[float, float], heights: Sequence[float] = (1.0,), *, shared: bool = True
) -> list[Any]:
    """Axes to draw into, one above the other.

    Parameters
    ----------
    ax : matplotlib.axes.Axes, optional
        What they take the place of; default: a new figure.
    size : pair of float
        Width and height of a new figure, inches.
    heights : sequence of float
        Of the panels, as shares of their sum.
    shared : bool
        Whether they have one x axis.
    """
    count = len(heights)
    if ax is None:
        ratios = {"height_ratios": list(heights)}
        grid = _new_figure(size).subplots(count, 1, sharex=shared, squeeze=False, gridspec_kw=ratios)
        return list(grid[:, 0])
    if count == 1:
        return [ax]
    ax.set_axis_off()
    found: list[Any] = []
    top, share = 1.0, (1 - BETWEEN * (count - 1)) / sum(heights)
    for height in heights:
        below = found[0] if found and shared else None
        found.append(ax.inset_axes([0, top - share * height, 1, share * height], sharex=below))
        top -= share * height + BETWEEN
    for panel in found[:-1] if shared else []:
        panel.tick_params(labelbottom=False)
    return found


def _new_figure(size: tuple[float, float]) -> Any:
    """A figure; where pyplot or a notebook is at work, one that they show."""
    if "matplotlib.pyplot" in sys.modules or "ipykernel" in sys.modules:
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=size, layout="constrained")
        setattr(figure, OWN, True)
        return figure
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def entitle(ax: Any | None, drawn: Sequence[Any], lines: Sequence[str], alt: str) -> Any:
    """Give a picture its title and its alternative text; returns the axes that the caller returns.

    Parameters
    ----------
    ax : matplotlib.axes.Axes, optional
        What the caller was given.
    drawn : sequence of matplotlib.axes.Axes
        What `panels` gave for it.
    lines : sequence of str
        Of the title.
    alt : str
        What the picture shows, for those who do not see it; the title stands before it.
    """
    figure = drawn[0].figure
    text = _wrapped(figure, lines)
    if ax is None:
        figure.suptitle(text, fontsize=11, parse_math=False)
    else:
        ax.set_title(text, fontsize=10, parse_math=False, pad=LEGEND if _legend_above(drawn[0]) else None)
    told = f"{' '.join(lines)}. {alt}"
    before = "" if ax is None else f"{getattr(figure, 'alt', '')} "
    figure.alt = f"{before}{told}".strip()
    return drawn[0] if ax is None else ax


def _wrapped(figure: Any, lines: Iterable[str]) -> str:
    """Lines of a title, each in as many as the figure has room for; numbers stay with their units."""
    most = int(PER_INCH * figure.get_figwidth())
    joined = (NUMBER.sub("\\1\u00a0", line) for line in lines)
    wrapped = (textwrap.wrap(line, most, break_on_hyphens=False) for line in joined)
    return "\n".join(part for parts in wrapped for part in parts).replace("\u00a0", " ")


def _legend_above(axes: Any) -> bool:
    """Whether the legend of a panel stands where the title would."""
    legend = axes.get_legend()
    return legend is not None and legend.get_bbox_to_anchor().y0 > axes.bbox.y1 - 1


def alt_text(ax: Any) -> str:
    """What a picture shows, in words: of the figure that these axes are in."""
    figure = ax.figure
    return str(getattr(figure, "alt", "") or figure.get_suptitle())


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure, made under `STYLE`, whole or not at all, with title and alternative text.

    Raises
    ------
    InputError
        If the file cannot be written, or its name is no picture's.
    """
    kind = picture_format(path)
    from matplotlib import rc_context

    title = figure.get_suptitle()
    words = {"Title": title.partition("\n")[0], "Description": getattr(figure, "alt", "") or title}
    metadata: dict[str, Any] = {name: text for name, text in words.items() if text}
    if kind == "svg":
        metadata["Date"] = None

    def draw(temporary: str) -> None:
        # A character that no font has is drawn as a box; the alternative text has it.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(temporary, format=kind, dpi=130, metadata=metadata)
        if kind == "svg" and words["Description"]:
            _describe(temporary, words["Description"])

    # Ticks are made while it is drawn: those of a logarithmic axis are powers of ten, and no name is a tick.
    formulas = rc_context({"text.parse_math": True})
    with styled(), formulas, warnings.catch_warnings():
        written(path, draw)


def _describe(path: str | os.PathLike[str], words: str) -> None:
    """Put the alternative text where browsers and screen readers look for it in an SVG file."""
    place = Path(path)
    text = place.read_text(encoding="utf-8")
    start = text.index(">", text.index("<svg"))
    head, rest = text[:start], text[start + 1 :]
    place.write_text(f'{head} role="img">\n <desc>{escape(words)}</desc>{rest}', encoding="utf-8")


def save_picture(ax: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure that these axes are in, and forget it; for commands.

    Raises
    ------
    InputError
        As `save_figure`.
    """
    save_figure(ax.figure, path)
    if "matplotlib.pyplot" in sys.modules:
        from matplotlib import pyplot

        pyplot.close(ax.figure)


def forget_unseen(figure: Any) -> None:
    """Let pyplot forget a figure that was made here and is written, where it could not be shown any more.

    A notebook shows it at the end of its cell, a window with `pyplot.show`; a script that only writes files
    would keep every one of them in memory.
    """
    pyplot = sys.modules.get("matplotlib.pyplot")
    window = getattr(figure.canvas, "required_interactive_framework", None)
    if pyplot is not None and getattr(figure, OWN, False) and not window and "ipykernel" not in sys.modules:
        pyplot.close(figure)


def credit(ax: Any | None, drawn: Any, label: str) -> None:
    """Say in the title of a picture what made the schedule that it shows.

    Parameters
    ----------
    ax : matplotlib.axes.Axes or None
        What the picture was drawn into, if somebody gave it.
    drawn : matplotlib.axes.Axes
        What was drawn.
    label : str
    """
    figure = drawn.figure
    label = printable(label)
    figure.alt = f"{figure.alt} The schedule is by {label}."
    title = figure.get_suptitle() if ax is None else ax.get_title()
    text = _wrapped(figure, f"{title}, by {label}".split("\n"))
    if ax is None:
        figure.suptitle(text, fontsize=11, parse_math=False)
    else:
        # The place above a legend stays.
        ax.title.set_text(text)


def bound_words(instance: AnyInstance, claim: Claim) -> list[str]:
    """What found the schedule of a result, bound and gap, for a title."""
    how = ", ".join(filter(None, [claim.lower_source, claim.proof.value if claim.proof else None]))
    least = value_text(instance, claim.lower_bound, lower_rounding(claim.gap))
    return [
        *([f"found by {printable(claim.upper_source)}"] if claim.upper_source else []),
        f"lower bound {least}{f' ({printable(how)})' if how else ''}",
        f"gap {percent(claim.gap, 'ceiling')}",
    ]
