"""Draw the tables: the axes of the paper's figures, with bounds and gaps added."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.findings.measure import Row

__all__ = ["DRAWN", "draw"]

#: Colour of a scheduler; its eviction-free variant is dashed in the same colour.
COLOURS = {
    "vllm": "#0072B2", "vllm_hy": "#56B4E9", "sarathi": "#D55E00", "sarathi_pc": "#E69F00",
    "sarathi_nocp": "#CC79A7", "sarathi_nohy": "#999999", "rank_org": "#999999", "rank_input": "#0072B2",
    "rank_output": "#D55E00", "solve": "#000000", "solve_keep": "#009E73",
}  # fmt: skip
LABELS = {"solve": "best found", "solve_keep": "best without evictions, own bound"}
BOUND = "#777777"
#: Where a running limit of none is drawn: with 1024 requests it means the same.
UNLIMITED = 1024


@dataclass(frozen=True)
class Metric:
    """A column as a panel shows it: label, scale, and the bound drawn beside it (if any)."""

    column: str
    label: str
    log: bool = False
    bound: Callable[[Row], float | None] | None = None


def _best_tps(row: Row) -> float | None:
    """TPS that the lower bound on the makespan leaves possible."""
    if row["scheduler"] == "solve_keep":  # its bound holds for schedules without evictions only
        return None
    return float(row["tps"]) * float(row["makespan_s"]) / float(row["lower_bound_s"])


def _bound(column: str) -> Callable[[Row], float | None]:
    def read(row: Row) -> float | None:
        return float(row[column]) if row[column] and row["scheduler"] != "solve_keep" else None

    return read


LATENCY = Metric("makespan_s", "latency, s", log=True, bound=_bound("lower_bound_s"))
TPS = Metric("tps", "TPS", bound=_best_tps)
TTFT = Metric("ttft_s", "mean TTFT, s", log=True, bound=_bound("ttft_bound_s"))
TPOT = Metric("tpot_s", "mean TPOT, s", log=True, bound=_bound("tpot_bound_s"))
EVICTIONS = Metric("evictions", "evictions")
BATCH = Metric("batch_size", "batch size")
RUNNING = Metric("running", "running size")
KEPT = Metric("kv_kept_percent", "KV kept, % of M")
GAP = Metric("gap_percent", "gap, %")


@dataclass(frozen=True)
class Picture:
    """Panels: one row per (metric, filter), one column per value of `across`."""

    title: str
    x: str
    across: str
    rows: Sequence[tuple[Metric, Mapping[str, str]]]
    where: Mapping[str, str]
    schedulers: Sequence[str]
    mark: Callable[[Row], float] | None = None


_FREE = ("vllm", "vllm_ef", "sarathi", "sarathi_ef", "sarathi_pc", "sarathi_pc_ef", "solve", "solve_keep")
_TABLE_1 = ("vllm", "sarathi", "sarathi_pc", "sarathi_nohy", "solve")


def _plain(*metrics: Metric) -> list[tuple[Metric, Mapping[str, str]]]:
    return [(metric, {}) for metric in metrics]


#: File name and the table it is drawn from, with the picture.
DRAWN: Mapping[str, tuple[str, Picture]] = {
    "fig05": ("fig05", Picture(
        "Figures 5 and 6: B = 1024, M = 100000", "I", "O",
        _plain(TPS, TTFT, TPOT, EVICTIONS, BATCH, KEPT, GAP), {"cost": "paper"}, _TABLE_1,
    )),
    "fig08": ("fig08", Picture(
        "Figure 8: O = B = 1024, M = 100000", "I", "cost",
        _plain(TPS, TTFT, TPOT, EVICTIONS, RUNNING, GAP), {}, _FREE,
    )),
    "fig09": ("fig09", Picture(
        "Figure 9: O = 32, B = 1024", "I", "M",
        _plain(TPS, TTFT, TPOT, EVICTIONS, KEPT, GAP), {"cost": "paper"}, _FREE,
    )),
    "fig10": ("fig10", Picture(
        "Section 4.5: O = B = 4, M = max(2 I, I + 3)", "I", "cost",
        _plain(EVICTIONS, GAP), {}, ("vllm", "vllm_ef", "sarathi", "sarathi_ef", "solve", "solve_keep"),
    )),
    "fig11": ("fig11", Picture(
        "Figure 11: B = 1024, M = 100000; upright: M / (I + O); bounds and gaps for that R_max", "rmax", "I",
        [(TPS, {"O": "32"}), (GAP, {"O": "32"}), (TPS, {"O": "1024"}), (GAP, {"O": "1024"})],
        {"cost": "paper"}, ("vllm", "sarathi", "sarathi_pc"),
        mark=lambda row: float(row["M"]) / (float(row["I"]) + float(row["O"])),
    )),
    "fig12": ("fig12", Picture(
        "Figure 12: B = 32, M = 100000", "I", "O",
        _plain(LATENCY, TTFT, TPOT, BATCH, GAP), {"cost": "paper"}, _TABLE_1,
    )),
    "fig15": ("fig15", Picture(
        "Figures 15 to 17: M = 100000, means of three seeds", "B", "mix",
        _plain(LATENCY, TTFT, TPOT, EVICTIONS, GAP), {"cost": "paper", "M": "100000"},
        ("rank_org", "rank_input", "rank_output", "solve"),
    )),
}  # fmt: skip


def draw(picture: Picture, rows: Sequence[Row]) -> bytes:
    """Draw a picture of some rows; PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    chosen = [row for row in rows if _matches(row, picture.where) and row["scheduler"] in picture.schedulers]
    columns = list(dict.fromkeys(row[picture.across] for row in chosen))
    height, width = len(picture.rows), len(columns)
    size = (1.2 + 2.5 * width, 0.9 + 1.6 * height)
    fig, axes = plt.subplots(height, width, figsize=size, layout="constrained", squeeze=False)
    for r, (metric, where) in enumerate(picture.rows):
        for c, value in enumerate(columns):
            wanted = {**where, picture.across: value}
            panel = [row for row in chosen if _matches(row, wanted)]
            _panel(axes[r][c], panel, picture, metric)
            if c == 0:
                axes[r][c].set_ylabel(metric.label + "".join(f"\n{k} = {v}" for k, v in where.items()))
            if r == 0:
                axes[r][c].set_title(f"{picture.across} = {value}", fontsize=9)
            if r == height - 1:
                axes[r][c].set_xlabel(picture.x)
    handles = {
        label: handle
        for ax in axes.flat
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    fig.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=max(2, min(6, width + 1)),
        fontsize=8,
    )
    fig.suptitle(picture.title, fontsize=10)
    buffer = io.BytesIO()
    fig.savefig(buffer, dpi=76, format="png")
    plt.close(fig)
    return _small(buffer)


def _small(picture: io.BytesIO) -> bytes:
    """The same picture in few colours: a quarter of the size, and lines do not need more."""
    from PIL import Image

    few = Image.open(picture).convert("RGB").quantize(48, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _matches(row: Row, where: Mapping[str, str]) -> bool:
    return all(row[name] == value for name, value in where.items())


def _panel(ax: Any, rows: Sequence[Row], picture: Picture, metric: Metric) -> None:
    """Lines of all schedulers, and the bound, in one panel."""
    for name in picture.schedulers:
        points = _points((row for row in rows if row["scheduler"] == name), picture.x, _value(metric.column))
        if not points:
            continue
        base = name.removesuffix("_ef")
        solver = name.startswith("solve")
        label = LABELS.get(name, f"{base}, eviction-free" if base != name else base)
        # Schedules were searched for at few points only: a line would suggest more.
        style = "none" if solver else ("--" if base != name else "-")
        ax.plot(
            list(points), list(points.values()), linestyle=style, color=COLOURS[base], linewidth=1.2,
            marker="*" if solver else "o", markersize=6 if solver else 2.5, label=label,
        )  # fmt: skip
    if metric.bound is not None:
        limits = _points(iter(rows), picture.x, metric.bound)
        if limits:
            ax.plot(
                list(limits), list(limits.values()), ":", color=BOUND, linewidth=1.0,
                label="no schedule beats this",
            )  # fmt: skip
    if picture.mark is not None and rows:
        ax.axvline(picture.mark(rows[0]), color="k", linewidth=0.8, linestyle=":")
    if not ax.lines:
        ax.text(0.5, 0.5, "undefined", transform=ax.transAxes, ha="center", va="center", color=BOUND)
    ax.set_xscale("log", base=2)
    if metric.log:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.tick_params(labelsize=7)
    ax.grid(alpha=0.3)


def _value(column: str) -> Callable[[Row], float | None]:
    return lambda row: float(row[column]) if row[column] else None


def _points(rows: Any, x: str, read: Callable[[Row], float | None]) -> dict[float, float]:
    """Mean value per x, sorted by x; rows without a value are left out, no limit is UNLIMITED."""
    found: dict[float, list[float]] = {}
    for row in rows:
        value = read(row)
        if value is not None:
            found.setdefault(float(row[x] or UNLIMITED), []).append(value)
    return {key: sum(values) / len(values) for key, values in sorted(found.items())}
