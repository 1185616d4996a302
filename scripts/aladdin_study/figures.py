"""Draw the tables: the axes of the paper's Figures 11 to 13, with bounds, and the effects of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infermax_opt.files.figure import STYLE, save_figure
from scripts.aladdin_study.readings import SERIES, column, models, one_second, select, values
from scripts.aladdin_study.tables import Row
from scripts.aladdin_study.workload import MODES

__all__ = ["draw_all"]

COLOURS = {
    "jsq": "#D55E00", "power-of-two": "#E69F00", "aladdin": "#0072B2", "aladdin-rebalanced": "#CC79A7",
    "fewest": "#56B4E9", "look-ahead": "#009E73", "lower, limits": "#777777", "lower, this run": "#000000",
    "lower, TTFT": "#BBBBBB",
}  # fmt: skip
#: Lines of a panel for each target.
PANELS = {
    target: [key for key in SERIES if key[1] in ("", target)] for target in ("P100", "P99")
}  # fmt: skip
#: The paper says: under so many milliseconds at so many requests per second (section 6.5).
PAPER_MS, PAPER_RATE = 50, 25


def draw_all(tables: Mapping[str, Sequence[Row]], out: Path) -> None:
    """All figures, as SVG."""
    from matplotlib import rc_context

    with rc_context(STYLE | {"font.size": 8}):
        for mode, name in zip(MODES, ("fig11", "fig12"), strict=True):
            save_figure(_fleets(select(one_second(tables["fleets"]), mode=mode)), out / f"{name}.svg")
        save_figure(_scheduling(tables["scheduling"]), out / "fig13.svg")
        save_figure(_effects(tables["effects"]), out / "effects.svg")


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _fleets(rows: list[Row]) -> Any:
    columns = models(rows)
    figure = _figure(1 + 4 * len(columns), 6.5)
    axes = figure.subplots(len(PANELS), len(columns), squeeze=False)
    for r, (target, keys) in enumerate(PANELS.items()):
        for c, model in enumerate(columns):
            ax = axes[r][c]
            for key in keys:
                points = values(select(rows, model=model), key)
                bound = key[0].startswith("lower")
                style = ":" if bound else "--" if key == ("aladdin", "") else "-"
                ax.plot(
                    list(points), list(points.values()), style, marker=None if bound else "o", markersize=3,
                    color=COLOURS[key[0]], linewidth=1.2, label=_label(key),
                )  # fmt: skip
            ax.set_yscale("log", base=2)
            ax.set_xlabel("requests per second")
            ax.set_ylabel(f"GPUs for {target}")
            ax.set_title(f"LLaMA2-{model}")
    _finish(figure, axes)
    return figure


def _label(key: tuple[str, str]) -> str:
    """The same for both targets: the axis says which it is."""
    return (
        SERIES[key].replace("`", "").removesuffix(f", {key[1]}").replace(f" for {key[1]}", " for the target")
    )


def _scheduling(rows: Sequence[Row]) -> Any:
    figure = _figure(7, 4.5)
    axes = figure.subplots(1, 1, squeeze=False)
    ax = axes[0][0]
    lines = {
        ("aladdin", "place_median_ms"): "best-fit, a heartbeat",
        ("aladdin", "build_median_ms"): "building its instance",
        ("aladdin", "lone_median_ms"): "best-fit of one new request among all ongoing ones",
        ("aladdin", "per_request_ms"): "best-fit, per new request of a heartbeat",
        ("look-ahead", "place_median_ms"): "look-ahead, a heartbeat",
    }
    for number, ((policy, name), label) in enumerate(lines.items()):
        chosen = select(rows, policy=policy)
        ax.plot(
            column(chosen, "rate"), column(chosen, name), "o-", markersize=3, label=label,
            color=list(COLOURS.values())[number],
        )  # fmt: skip
    ax.plot([PAPER_RATE], [PAPER_MS], "k*", label=f"the paper: under {PAPER_MS} ms")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("requests per second")
    ax.set_ylabel("ms, median over heartbeats")
    _finish(figure, axes)
    return figure


def _effects(rows: Sequence[Row]) -> Any:
    names = {"attainment_percent": "attainment, %", "p99_atgt_s": "P99 ATGT, s", "mean_workers": "workers"}
    effects = {"theta": "theta", "gamma": "gamma", "error": "error"}
    figure = _figure(9, 6.5)
    axes = figure.subplots(len(names), len(effects), squeeze=False, sharey="row")
    for c, effect in enumerate(effects):
        chosen = select(rows, effect=effect)
        for r, (name, label) in enumerate(names.items()):
            for policy in dict.fromkeys(row["policy"] for row in chosen):
                points = _means(select(chosen, policy=policy), effect, name)
                axes[r][c].plot(
                    list(points), list(points.values()), "o-", markersize=3, color=COLOURS[policy],
                    label=policy,
                )  # fmt: skip
            axes[r][c].set_xlabel("deviation of predictions" if effect == "error" else effect)
            if c == 0:
                axes[r][c].set_ylabel(label)
    _finish(figure, axes)
    return figure


def _means(rows: Sequence[Row], x: str, name: str) -> dict[float, float]:
    """Mean over the seeds."""
    places = sorted({float(row[x]) for row in rows})
    found = {place: column((row for row in rows if float(row[x]) == place), name) for place in places}
    return {place: sum(some) / len(some) for place, some in found.items() if some}


def _finish(figure: Any, axes: Any) -> None:
    handles = dict[str, Any]()
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        handles |= {label: line for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
