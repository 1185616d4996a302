"""Picture of a fit: measured over fitted time of each sample, against the tokens of its batch."""

from __future__ import annotations

from typing import Any

from infermax_opt.core.checks import checked_kind
from infermax_opt.files.figure import COLOURS, Phase, entitle, panels, styled
from infermax_opt.latency.batches.errors import predicted
from infermax_opt.latency.batches.fit import BatchFit
from infermax_opt.latency.batches.samples import REGIONS, region

__all__ = ["plot_residuals"]

SHADES = dict(zip(REGIONS, (COLOURS[Phase.DECODE], COLOURS[Phase.PREFILL], "#009E73"), strict=True))
#: Samples drawn of each kind; of more, evenly chosen ones by size.
MOST_POINTS = 5000


def plot_residuals(made: BatchFit, ax: Any | None = None) -> Any:
    """Draw the residuals by kind of batch, with the band.

    Parameters
    ----------
    made : BatchFit
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.
    """
    checked_kind(made, BatchFit, "made")
    from matplotlib.ticker import AutoLocator, NullFormatter

    with styled():
        (axes,) = panels(ax, (9, 5))
        for name, tokens, ratios in _series(made):
            axes.plot(tokens, ratios, ".", ms=3, alpha=0.5, color=SHADES.get(name, "#555555"), label=name)
        lo, hi = float(made.band.lo), float(made.band.hi)
        share = f"{float(100 * made.band.share):g} % of the samples"
        axes.axhspan(lo, hi, color="#DDDDDD", alpha=0.6, zorder=0, label=f"{share}: {lo:g} to {hi:g}")
        axes.axhline(1, color="black", lw=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        # Ratios lie within a decade: its powers would leave all but 1 without a number.
        axes.yaxis.set_major_locator(AutoLocator())
        # Powers of ten would be formulas.
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("tokens of the batch")
        axes.set_ylabel("measured / fit")
        axes.legend(loc="best", fontsize=9, markerscale=3)
        title = f"measured over fitted time: {share} between {lo:g} and {hi:g}"
        alt = "A point for each sample: its measured over its fitted time, against the tokens of its batch."
        return entitle(ax, [axes], [title], alt)


def _series(made: BatchFit) -> list[tuple[str, list[int], list[float]]]:
    """Name, tokens and ratios of each kind of batch, or of samples without attention."""
    samples = made.samples
    if samples.batches:
        kinds: dict[str, Any] = {name: [s for s in samples.batches if region(s) == name] for name in REGIONS}
        part = "batch"
    else:
        kinds, part = {"without attention": samples.parts["dense"]}, "dense"
    found = []
    for name, some in kinds.items():
        step = -(-len(some) // MOST_POINTS) or 1
        shown = sorted(some, key=lambda s: (s.tokens, s.seconds))[::step]
        if shown:
            fits = predicted(made.cost, part, shown)
            ratios = [float(s.seconds) / fit for s, fit in zip(shown, fits, strict=True)]
            found.append((name, [s.tokens for s in shown], ratios))
    return found
