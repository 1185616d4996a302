"""Draw the tables: the axes of the paper's Figures 3 and 10 to 14, and the frontier, with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infermax_opt.files.figure import STYLE, save_figure
from scripts.bros_study.rates import Row
from scripts.bros_study.settings import FRONTIER, HORIZON, LARGER, OPT_13B, OPT_30B
from scripts.bros_study.tables import Tables, choose, numbers

__all__ = ["FIGURES", "draw_all", "frontier_at"]

#: Okabe and Ito's palette.
COLOURS = {
    "slack": "#009E73", "bros": "#0072B2", "rr": "#E69F00", "fcfs": "#D55E00", "longest-wait": "#0072B2",
}  # fmt: skip
LABELS = {"fcfs": "fcfs (vLLM's order)", "longest-wait": "longest wait first"}
BOUND = "#444444"
MACHINES = {OPT_13B: "OPT-13B", OPT_30B: "OPT-30B"}
#: Workload and machine of each column of Figures 10 and 11, and all with seed 1.
COLUMNS = (("sharegpt", OPT_13B), ("sharegpt", OPT_30B), ("lmsys", OPT_30B))
RATE = "real-time requests a second"
#: What a line of a panel is: the column of the bound, the label of the axis.
Panel = tuple[str, str, str]
FIG_3 = (
    ("normalised_s", "normalised_bound_s", "normalised latency, s/token"),
    ("queueing", "", "queueing, %"),
)
FIG_10 = (
    ("normalised_s", "normalised_bound_s", "normalised latency, s/token"),
    ("be_per_s", "", "BE requests/s"),
)
FIG_11 = (
    ("ttft", "", "TTFT attained, %"),
    ("tpot", "", "TPOT attained, %"),
    ("attainment", "attainment_at_most", "both attained, %"),
)
FIG_LARGER = (FIG_10[0], FIG_11[2], FIG_10[1])
FIG_12 = (
    ("normalised_s", "normalised_bound_s", "normalised latency, s/token"),
    ("rt_per_s", "", "RT done/s"),
)

#: Columns of a share of the real-time requests, in percent.
SHARES = ("ttft", "tpot", "attainment")
#: A normalised latency above which an axis is logarithmic, s/token.
SPREAD = 0.5


def _figure(rows: int, columns: int, share: bool = False) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.8 + 2.9 * columns, 0.7 + 1.9 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey="row" if share else "none")


def _panel(ax: Any, rows: Sequence[Row], panel: Panel) -> None:
    """A line for each policy, and the loosest of their bounds, which holds for all of them."""
    column, bound, label = panel
    for policy in dict.fromkeys(row["policy"] for row in rows):
        chosen = choose(rows, policy=policy)
        ax.plot(
            numbers(chosen, "rate"), numbers(chosen, column), "o-", color=COLOURS[policy], markersize=3,
            linewidth=1.2, label=LABELS.get(policy, policy),
        )  # fmt: skip
    if bound:
        pick = max if bound.endswith("at_most") else min
        rates = list(dict.fromkeys(row["rate"] for row in rows))
        limits = [pick(numbers(choose(rows, rate=rate), bound)) for rate in rates]
        ax.plot([float(r) for r in rates], limits, ":", color=BOUND, linewidth=1.4, label="bound for all")
    if column == "normalised_s" and max(numbers(rows, column)) > SPREAD:
        ax.set_yscale("log")
    elif column in SHARES:
        ax.set_ylim(0, 105)
    ax.set_xlabel(RATE)
    ax.set_ylabel(label)


def _finish(figure: Any, axes: Any) -> Any:
    """Grid, and one legend for all panels."""
    entries: dict[str, Any] = {}
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        if ax.get_yscale() == "linear":
            # Only now, as axes that share a scale stop growing once it is set.
            ax.set_ylim(bottom=0)
            ax.locator_params(axis="y", nbins=5)
        entries |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(entries.values(), entries, loc="outside upper center", ncols=len(entries), frameon=False)
    return figure


def _grid(columns: Sequence[tuple[str, Sequence[Row]]], panels: Sequence[Panel]) -> Any:
    figure, axes = _figure(len(panels), len(columns), share=True)
    for c, (title, rows) in enumerate(columns):
        axes[0][c].set_title(title)
        for r, panel in enumerate(panels):
            _panel(axes[r][c], rows, panel)
            axes[r][c].label_outer(remove_inner_ticks=True)
    return _finish(figure, axes)


def _hybrid(tables: Tables, panels: Sequence[Panel]) -> Any:
    columns = [
        (f"{MACHINES[profile]}, {workload}",
         choose(tables["hybrid"], workload=workload, profile=profile, seed="1"))
        for workload, profile in COLUMNS
    ]  # fmt: skip
    return _grid(columns, panels)


def _larger(tables: Tables) -> Any:
    workloads = dict.fromkeys(workload for workload, *_ in LARGER)
    columns = [(f"Llama-3-70B, {name}", choose(tables["larger"], workload=name)) for name in workloads]
    return _grid(columns, FIG_LARGER)


def _queue(tables: Tables) -> Any:
    figure, axes = _figure(1, len(FIG_3))
    for ax, panel in zip(axes[0], FIG_3, strict=True):
        _panel(ax, tables["queue"], panel)
    return _finish(figure, axes)


def _real_time(tables: Tables) -> Any:
    columns = [(name, choose(tables["real_time"], profile=profile)) for profile, name in MACHINES.items()]
    return _grid(columns, FIG_12)


def _sharing(tables: Tables) -> Any:
    rates = list(dict.fromkeys(row["rate"] for row in tables["sharing"]))
    figure, axes = _figure(1, len(rates))
    styles = {"1": ("KV of the machine", "#0072B2"),
              "shared": ("more, by all that sharing can save", "#E69F00"),
              "10": ("ten times the KV", "#BBBBBB")}  # fmt: skip
    for ax, rate in zip(axes[0], rates, strict=True):
        for k, (kv, (label, colour)) in enumerate(styles.items()):
            (row,) = choose(tables["sharing"], rate=rate, kv=kv)
            places = [x + 0.27 * (k - 1) for x in range(2)]
            ax.bar(places, [float(row["ttft"]), float(row["tpot"])], 0.25, color=colour, label=label)
        ax.set_xticks(range(2), ["TTFT", "TPOT"])
        ax.set_ylabel("attained, %")
        ax.set_title(f"{rate} requests/s")
    return _finish(figure, axes)


def _overhead(tables: Tables) -> Any:
    figure, axes = _figure(1, 2)
    for ax, (profile, name) in zip(axes[0], MACHINES.items(), strict=True):
        rows = choose(tables["hybrid"], workload="sharegpt", profile=profile, seed="1")
        for policy in dict.fromkeys(row["policy"] for row in rows):
            chosen = choose(rows, policy=policy)
            shares = [100 * float(row["choosing_ms"]) / float(row["batch_ms"]) for row in chosen]
            ax.plot(
                numbers(chosen, "rate"), shares, "o-", color=COLOURS[policy], markersize=3, linewidth=1.2,
                label=LABELS.get(policy, policy),
            )  # fmt: skip
        ax.set_ylim(bottom=0)
        ax.set_title(name)
        ax.set_xlabel(RATE)
        ax.set_ylabel("choosing / batch, %")
    return _finish(figure, axes)


def frontier_at(rows: Sequence[Row], be_per_s: float) -> float:
    """Most attainment, in percent, beside a best-effort rate: the lowest of the lines."""
    found = list[float]()
    for row in rows:
        unserved = float(row["be_requests"]) - be_per_s * HORIZON
        missed = float(row["bound"]) - float(row["weight"]) * max(0.0, unserved)
        found.append(100 * (1 - max(0.0, missed) / float(row["rt_requests"])))
    return min(found)


def _frontier(tables: Tables) -> Any:
    figure, axes = _figure(1, 1)
    figure.set_size_inches(5.5, 3.6)
    (ax,) = axes[0]
    lines = tables["frontier"]
    most = float(lines[0]["be_requests"]) / HORIZON
    rates = [most * k / 200 for k in range(201)]
    limits = [frontier_at(lines, rate) for rate in rates]
    ax.plot(rates, limits, ":", color=BOUND, label="bound for all")
    ax.fill_between(rates, limits, 105, color="#DDDDDD", linewidth=0)
    workload, profile, rate, seed = FRONTIER
    for row in choose(tables["hybrid"], workload=workload, profile=profile, rate=rate, seed=str(seed)):
        policy = row["policy"]
        ax.plot(
            [float(row["be_per_s"])], [float(row["attainment"])], "o", color=COLOURS[policy],
            label=LABELS.get(policy, policy),
        )  # fmt: skip
    ax.set_xlim(0, most)
    ax.set_ylim(0, 105)
    ax.set_xlabel("best-effort requests a second")
    ax.set_ylabel("both attained, %")
    return _finish(figure, axes)


FIGURES: Mapping[str, str] = {
    "fig03": "Figure 3: queueing, 512 ShareGPT requests on OPT-13B",
    "fig10": "Figure 10: normalised latency and best-effort throughput",
    "fig11": "Figure 11: attainment",
    "larger": "Figures 10 and 11 for Llama-3-70B on eight A100s",
    "fig12": "Figure 12: real-time requests alone",
    "fig13": "Figure 13: what more KV blocks can do (OPT-30B, ShareGPT, `bros`)",
    "fig14": "Figure 14: time of choosing a batch as a share of the batch",
    "frontier": "Attainment against best-effort rate, with what no schedule exceeds (grey)",
}
"""Names and titles."""


def draw_all(tables: Tables, out: Path) -> None:
    """All figures, as SVG."""
    from matplotlib import rc_context

    pictures = {
        "fig03": _queue, "fig10": lambda t: _hybrid(t, FIG_10), "fig11": lambda t: _hybrid(t, FIG_11),
        "larger": _larger, "fig12": _real_time, "fig13": _sharing, "fig14": _overhead, "frontier": _frontier,
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with rc_context(
        STYLE
        | {"font.size": 8, "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"], "grid.linewidth": 0.5}
    ):
        for name, title in FIGURES.items():
            figure = pictures[name](tables)
            figure.alt = title
            save_figure(figure, out / f"{name}.svg")
