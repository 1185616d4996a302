"""Draw the tables: the axes of the paper's figures, with bounds added."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infermax_opt.files.figure import STYLE, save_figure
from infermax_opt.files.json import read_text
from infermax_opt.files.writing import write_text
from scripts.ecoserve_study.models import COMPARED, MODELS
from scripts.findings.tables import Tables

__all__ = ["CAPTIONS", "DRAWN", "draw"]

#: Okabe and Ito's palette; each line has a marker of its own as well.
LOOKS = {
    "vllm": ("#0072B2", "o"), "orca": ("#999999", "v"), "fastgen": ("#E69F00", "s"),
    "ecoserve-d": ("#56B4E9", "<"), "ecoserve-sd": ("#F0E442", ">"), "ecoserve-sdo": ("#009E73", "^"),
    "ecoserve": ("#D55E00", "D"), "ecoserve-oracle": ("#CC79A7", "P"), "spt": ("#000000", "*"),
    "sharegpt": ("#0072B2", "o"), "alpaca": ("#E69F00", "s"), "bookcorpus": ("#009E73", "^"),
    "apart": ("#999999", "v"), "dyadic": ("#E69F00", "s"), "splitting": ("#0072B2", "o"),
    "best": ("#D55E00", "D"), "llama-33b": ("#0072B2", "o"), "opt-175b": ("#E69F00", "s"),
}  # fmt: skip
BOUND = "#555555"
STATES = {
    "waiting": "#E8E8E8", "prefill": "#E69F00", "queued": "#F0E442", "preempted": "#D55E00",
    "execution": "#0072B2",
}  # fmt: skip
TITLES = {"sharegpt": "ShareGPT", "alpaca": "Alpaca", "bookcorpus": "BookCorpus"}
#: Columns of Figure 1 with their labels and a factor.
METRICS = {
    "kv_used": ("KV used, %", 100), "kv_reserved": ("KV reserved, %", 100),
    "forward_size": ("forward size, tokens", 1), "failures": ("allocation failures, %", 100),
    "completions": ("completions per batch", 1), "barren": ("batches that finish nobody, %", 100),
    "completed": ("requests/s", 1), "mean_jct": ("mean JCT, s", 1), "normalised": ("s per output token", 1),
    "ssr": ("SSR, %", 100), "mean_tbt": ("mean TBT, s", 1),
}  # fmt: skip

#: What methods of pipelining are called, where not by their names.
METHODS = {"apart": "no pipelining", "dyadic": "the paper's rule"}

Draw = Callable[[Any, Tables], None]


def draw(picture: tuple[Draw, tuple[float, float]], tables: Tables, path: Path) -> None:
    """Draw a picture.

    Parameters
    ----------
    picture : tuple
        What draws on a figure, and the figure's size in inches.
    tables : Tables
    path : Path
        SVG or PNG by its ending; written whole or not at all.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn, size = picture
    with rc_context({**STYLE, "font.size": 8, "font.sans-serif": ["DejaVu Sans"], "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        drawn(figure, tables)
        save_figure(figure, path)
    if path.suffix == ".svg":
        write_text(_small(read_text(path)), path)


def _small(svg: str) -> str:
    """The same picture in half the bytes: tenths of points, no comments, ids of groups or indentation."""
    svg = re.sub(r'(?<=<g) id="[^"]*"', "", svg)
    svg = re.sub(r"<!--.*?-->|; stroke-linejoin: miter", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(?<=\d\.\d)\d{2,}", "", svg)
    return re.sub(r"\n\s*", "\n", svg)


def _fig01(figure: Any, tables: Tables) -> None:
    """Metrics by scheduler, a marker for each trace; at last where the JCT goes."""
    rows = tables.rows("rates", load="1")
    names = [row["scheduler"] for row in rows if row["trace"] == "sharegpt"]
    grid = figure.subplots(3, 4, sharey=True).flat
    for axes, (column, (label, factor)) in zip(grid, METRICS.items(), strict=False):
        for trace, title in TITLES.items():
            own = [row for row in rows if row["trace"] == trace and row[column]]
            colour, marker = LOOKS[trace]
            axes.plot(
                [factor * float(row[column]) for row in own], [names.index(row["scheduler"]) for row in own],
                marker, color=colour, markersize=4, label=title,
            )  # fmt: skip
        if column in ("mean_jct", "normalised", "mean_tbt", "completed", "forward_size", "completions"):
            _log(axes, "x")
        _finish(axes, label, "", "x")
        axes.set_yticks(range(len(names)), names)
    axes = grid[len(METRICS)]
    left = [0.0] * len(names)
    for state, colour in STATES.items():
        shares = []
        for name in names:
            (row,) = [row for row in rows if row["trace"] == "sharegpt" and row["scheduler"] == name]
            shares.append(100 * float(row[state]) / float(row["mean_jct"]))
        axes.barh(range(len(names)), shares, left=left, color=colour, label=state, height=0.7)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    _finish(axes, "share of JCT, %, ShareGPT", "", "x")
    axes.invert_yaxis()
    _legend(figure, [grid[0], axes], 8)
    figure.suptitle("Figures 1 and 13 at the sustainable rate")


def _fig02(figure: Any, tables: Tables) -> None:
    """Group sizes, and KV of those that wait."""
    sizes, held = figure.subplots(1, 2, width_ratios=(3, 2))
    for trace, title in TITLES.items():
        for load, style in (("1", "-"), ("published", "--")):
            rows = tables.rows("groups", trace=trace, load=load, scheduler="sync-coupled")
            total, sofar, steps = sum(int(row["groups"]) for row in rows), 0, []
            for row in rows:
                sofar += int(row["groups"])
                steps.append((int(row["size"]), 100 * sofar / total))
            label = f"{title}, {'sustainable' if load == '1' else 'published'} rate"
            sizes.plot(*zip(*steps, strict=True), style, color=LOOKS[trace][0], marker=LOOKS[trace][1],
                       markersize=3, drawstyle="steps-post", label=label)  # fmt: skip
    _finish(sizes, "requests in a group, sync-coupled", "groups up to that size, %")
    sizes.legend(frameon=False, fontsize=7)
    kinds = {"prompt": "chunked prompt", "new": "new generation", "preempted": "stopped generation"}
    for k, (trace, title) in enumerate(TITLES.items()):
        for j, kind in enumerate(kinds):
            value = tables.value("held", "tokens", trace=trace, scheduler="ecoserve-sd", kind=kind)
            held.bar(j + 0.27 * (k - 1), value, 0.25, color=LOOKS[trace][0], label=title if j == 0 else None)
            held.text(j + 0.27 * (k - 1), value, f"{value:.0f}", ha="center", va="bottom", fontsize=6)
    held.set_xticks(range(len(kinds)), list(kinds.values()))
    _finish(held, "", "KV tokens of one that waits, ecoserve-sd")
    held.legend(frameon=False, fontsize=7)
    figure.suptitle("Figures 2 and 6")


def _fig04(figure: Any, tables: Tables) -> None:
    """Padding, and the reserve as a remedy."""
    panels = figure.subplots(1, 5)
    columns = {"mean_jct": ("mean JCT, s", 1), "kv_used": ("KV used, %", 100)}
    for axes, (column, (label, factor)) in zip(panels, columns.items(), strict=False):
        _by_trace(axes, tables, "padding", column, "ecoserve-sd", factor)
        _finish(axes, "padding, %", label)
        if column == "mean_jct":
            _log(axes, "y")
    for trace in TITLES:
        colour, marker = LOOKS[trace]
        rows = sorted(tables.rows("predictions", trace=trace), key=lambda row: float(row["padding"]))
        x = [100 * float(row["padding"]) for row in rows]
        panels[2].plot(x, [100 * float(r["short_share"]) for r in rows], color=colour, marker=marker, ms=3)
        panels[3].plot(
            x, [100 * float(r["over_share"]) for r in rows], "-", color=colour, marker=marker, ms=3
        )
        panels[3].plot(
            x, [100 * float(r["under_share"]) for r in rows], ":", color=colour, marker=marker, ms=3
        )
    _finish(panels[2], "padding, %", "predictions too short, %")
    _finish(panels[3], "padding, %", "KV over- (solid) and under-provided, %")
    for trace, title in TITLES.items():
        rows = tables.rows("sweeps", trace=trace, setting="reserve", scheduler="ecoserve-sd")
        colour, marker = LOOKS[trace]
        shares = [100 * float(row["preempted"]) / float(row["mean_jct"]) for row in rows]
        panels[4].plot(
            [100 * float(row["value"]) for row in rows],
            shares,
            color=colour,
            marker=marker,
            ms=3,
            label=title,
        )
    _finish(panels[4], "reserve, %", "stopped time, % of JCT")
    _legend(figure, [panels[4]], 3)
    figure.suptitle("Figures 4 and 5: ecoserve-sd at the sustainable rate; right: what a reserve helps")


def _fig10(figure: Any, tables: Tables) -> None:
    """Latency and SSR by rate, with bounds."""
    grid = figure.subplots(3, 3)
    names = ("orca", "vllm", "fastgen", "ecoserve", "ecoserve-oracle", "spt")
    for column, trace in enumerate(TITLES):
        _by_rate(grid[0][column], tables, trace, "normalised", names, 1)
        _by_rate(grid[1][column], tables, trace, "mean_jct", names, 1, "jct_bound")
        _by_rate(grid[2][column], tables, trace, "ssr", names, 100, "ssr_bound")
        grid[0][column].set_title(TITLES[trace])
        for row, label in enumerate(("s per output token", "mean JCT, s", "SSR, %")):
            _finish(grid[row][column], "requests/s" if row == 2 else "", label if column == 0 else "")
            _log(grid[row][column], "x")
            if row < 2:
                _log(grid[row][column], "y")
    _legend(figure, [grid[1][0]], 7)
    figure.suptitle(
        "Figure 10: 0.5, 0.8, 1 and 1.2 of the sustainable rate (upright), and the published rate"
    )


def _fig11(figure: Any, tables: Tables) -> None:
    """Variants of EcoServe, as multiples of vLLM."""
    names = ("ecoserve-d", "ecoserve-sd", "ecoserve-sdo", "ecoserve")
    grid = figure.subplots(1, 4)
    columns = {"mean_jct": "mean JCT", "mean_tbt": "mean TBT", "ssr": "SSR", "completed": "requests/s"}
    for axes, (column, label) in zip(grid, columns.items(), strict=True):
        for trace, title in TITLES.items():
            base = tables.value("rates", column, trace=trace, load="1", scheduler="vllm")
            values = [
                tables.value("rates", column, trace=trace, load="1", scheduler=name) / base for name in names
            ]
            colour, marker = LOOKS[trace]
            axes.plot(range(len(names)), values, marker, color=colour, label=title)
            if column == "mean_jct":
                (bound,) = {row["jct_bound"] for row in tables.rows("rates", trace=trace, load="1")}
                axes.axhline(float(bound) / base, color=colour, linestyle=":", linewidth=1)
        axes.axhline(1, color=BOUND, linewidth=0.8)
        axes.set_ylim(bottom=0)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_xticks(range(len(names)), ["D", "SD", "SDO", "all"])
        _finish(axes, "", f"{label} / vLLM's")
    _legend(figure, [grid[0]], 3)
    figure.suptitle("Figure 11 at the sustainable rate; dotted: no schedule has a lower mean JCT")


def _fig12(figure: Any, tables: Tables) -> None:
    """Settings of EcoServe."""
    settings = {
        "slo_scale": "SLO scale", "padding": "padding, %", "reserve": "reserve, %", "buffer": "buffer, %"
    }  # fmt: skip
    grid = figure.subplots(2, 4, sharey="row")
    for column, (setting, label) in enumerate(settings.items()):
        for row, (name, factor) in enumerate({"mean_jct": 1, "ssr": 100}.items()):
            _by_trace(grid[row][column], tables, setting, name, "ecoserve", factor)
            _finish(grid[row][column], label if row == 1 else "", "")
        _log(grid[0][column], "y")
    rows = tables.rows("sweeps", trace="sharegpt", setting="slo_scale", scheduler="ecoserve")
    grid[1][0].plot(
        [float(row["value"]) for row in rows], [100 * float(row["ssr_bound"]) for row in rows], ":",
        color=LOOKS["sharegpt"][0], label="SSR at most, ShareGPT",
    )  # fmt: skip
    for trace in TITLES:
        for axes in grid[0]:
            (bound,) = {row["jct_bound"] for row in tables.rows("sweeps", trace=trace, setting="buffer")}
            axes.axhline(float(bound), color=LOOKS[trace][0], linestyle=":", linewidth=1)
    grid[0][0].set_ylabel("mean JCT, s")
    grid[1][0].set_ylabel("SSR, %")
    _legend(figure, [grid[0][1]], 3)
    figure.suptitle("Figure 12: ecoserve at the sustainable rate; dotted: no schedule beats this")


def _models(figure: Any, tables: Tables) -> None:
    """Mean JCT and SSR of the larger models, a marker for each."""
    grid = figure.subplots(2, 3, sharex=True)
    for column, (trace, title) in enumerate(TITLES.items()):
        for model, machine in MODELS.items():
            rows = tables.rows("models", model=model, trace=trace, load="0.8")
            colour, marker = LOOKS[model]
            for axes, name, factor in ((grid[0][column], "mean_jct", 1), (grid[1][column], "ssr", 100)):
                values = [factor * float(row[name]) for row in rows]
                axes.plot(range(len(rows)), values, marker, color=colour, label=machine.title)
            (bound,) = {float(row["jct_bound"]) for row in rows}
            grid[0][column].axhline(bound, color=colour, linestyle=":", linewidth=1)
        grid[0][column].set_title(title)
        _finish(grid[0][column], "", "mean JCT, s" if column == 0 else "")
        _finish(grid[1][column], "", "SSR, %" if column == 0 else "")
        _log(grid[0][column], "y")
        grid[1][column].set_xticks(range(len(COMPARED)), COMPARED, rotation=60, ha="right")
    _legend(figure, [grid[0][0]], 2)
    figure.suptitle("Figures 10 and 11 for larger models at 0.8 of the sustainable rate; dotted: bounds")


def _sharing(figure: Any, tables: Tables) -> None:
    """Use of a reservation by pipelining."""
    panels = figure.subplots(1, 2)
    for axes, objective, label in (
        (panels[0], "tokens", "reserved tokens / M"),
        (panels[1], "area", "share of growth space in use, %"),
    ):
        rows = tables.rows("sharing", objective=objective)
        factor = 100 if objective == "area" else 1
        queues = list(dict.fromkeys(row["queue"] for row in rows))
        for method in ("apart", "dyadic", "splitting", "best"):
            colour, marker = LOOKS[method]
            own = [row for row in rows if row["method"] == method]
            axes.plot(
                [queues.index(row["queue"]) for row in own], [factor * float(row["use"]) for row in own],
                marker, color=colour, label=METHODS.get(method, method),
            )  # fmt: skip
        for place, name in enumerate(queues):
            (bound,) = {float(row["bound"]) for row in rows if row["queue"] == name}
            axes.hlines(factor * bound, place - 0.35, place + 0.35, colors=BOUND, linestyles=":",
                        label="no schedule beats this" if place == 0 else None)  # fmt: skip
        if objective == "area":
            axes.axhline(75, color=BOUND, linewidth=0.8, label="3/4 law")
        axes.set_xticks(range(len(queues)), [TITLES.get(name, name) for name in queues])
        axes.set_xlim(-0.6, len(queues) - 0.4)
        _finish(axes, "", label)
    _legend(figure, [panels[1]], 6)
    figure.suptitle("Pipelining: queues of OPT-13B in one reservation of all KV")


def _by_trace(axes: Any, tables: Tables, setting: str, column: str, scheduler: str, factor: float) -> None:
    scale = 1 if setting == "slo_scale" else 100
    for trace, title in TITLES.items():
        rows = tables.rows("sweeps", trace=trace, setting=setting, scheduler=scheduler)
        colour, marker = LOOKS[trace]
        axes.plot(
            [scale * float(row["value"]) for row in rows], [factor * float(row[column]) for row in rows],
            color=colour, marker=marker, markersize=3, label=title,
        )  # fmt: skip


def _by_rate(
    axes: Any, tables: Tables, trace: str, column: str, names: Sequence[str], factor: float, bound: str = ""
) -> None:
    for name in names:
        rows = tables.rows("rates", trace=trace, scheduler=name)
        rows.sort(key=lambda row: float(row["arrivals"]))
        colour, marker = LOOKS[name]
        axes.plot(
            [float(row["arrivals"]) for row in rows], [factor * float(row[column]) for row in rows],
            color=colour, marker=marker, markersize=3.5, linewidth=1, label=name,
        )  # fmt: skip
    if bound:
        axes.plot(
            [float(row["arrivals"]) for row in rows], [factor * float(row[bound]) for row in rows], ":",
            color=BOUND, label="no schedule beats this",
        )  # fmt: skip
    axes.axvline(float(rows[0]["rate_bound"]), color=BOUND, linewidth=0.8)


def _finish(axes: Any, x: str, y: str, grid: str = "both") -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25, axis=grid)
    axes.tick_params(left=False, bottom=False)  # the grid is enough, and files stay small
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _log(axes: Any, name: str) -> None:
    """A logarithmic axis with plain numbers, few of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = {"x": axes.xaxis, "y": axes.yaxis}[name]
    (axes.set_xscale if name == "x" else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _legend(figure: Any, panels: Sequence[Any], columns: int) -> None:
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns, frameon=False)


#: By file name: what draws it, and its size.
DRAWN: Mapping[str, tuple[Draw, tuple[float, float]]] = {
    "fig01": (_fig01, (11, 8)),
    "fig02": (_fig02, (9, 3.4)),
    "fig04": (_fig04, (12, 3)),
    "fig10": (_fig10, (9, 7)),
    "fig11": (_fig11, (9, 2.8)),
    "fig12": (_fig12, (10, 4.4)),
    "models": (_models, (9, 4.8)),
    "pipelining": (_sharing, (9, 3.4)),
}
CAPTIONS = {
    "fig01": ("Figures 1 and 13: metrics by scheduler", "rates"),
    "fig02": ("Figures 2 and 6: group sizes, and KV of those that wait", "groups"),
    "fig04": ("Figures 4 and 5: padding and remedies", "sweeps"),
    "fig10": ("Figure 10: latency and SSR by rate", "rates"),
    "fig11": ("Figure 11: ablation against vLLM", "rates"),
    "fig12": ("Figure 12: settings", "sweeps"),
    "models": ("Figures 10 and 11 for Llama-33B and OPT-175B", "models"),
    "pipelining": ("Pipelining against the 3/4 law and the certified bound", "sharing"),
}
"""What each shows, and the table it is drawn from."""
