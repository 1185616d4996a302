"""The paper's constrained study (InferMax, section 4.5), with proofs.

Four requests of four output tokens each and room for about two of them, M = max(2 I, I + 3), for
I = 1, 2, 4, ..., 1024: the optimum, the optimum without evictions, and every scheduler of the
paper's Table 1 with its gap to the optimum.

Usage: ``python scripts/paper_study.py [--chunked] [--time-limit 60] [--into out/paper-study]``

Protocol: one process, instances one after the other, nothing warm-started from another row; the
seconds are wall-clock and include the schedulers and all verification.  Every figure comes from a
verified result; a gap is (schedule - lower bound) / schedule.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import infermax_opt as imx
from infermax_opt.files.csv_rows import rows_text

INSTANCES = Path(__file__).resolve().parent.parent / "instances" / "paper-csp"
SIZES = tuple(2**power for power in range(11))
TABLE_1 = ("vllm", "sarathi", "sarathi_pc", "sarathi_nocp", "vllm_hy", "sarathi_nohy")
SCHEDULERS = tuple(name + suffix for name in TABLE_1 for suffix in ("", "_ef"))


@dataclass(frozen=True)
class Row:
    """One instance: its result, the one without evictions, and what the schedulers do."""

    size: int
    instance: imx.Instance
    result: imx.Result[imx.Schedule, imx.Metrics]
    eviction_free: imx.Result[imx.Schedule, imx.Metrics]
    schedulers: dict[str, imx.Metrics]

    @property
    def upper(self) -> Fraction:
        """Best makespan, s."""
        assert self.result.upper is not None
        return self.result.upper.value

    @property
    def saving(self) -> Fraction:
        """Share of the best eviction-free makespan that evicting saves."""
        assert self.eviction_free.upper is not None
        return 1 - self.upper / self.eviction_free.upper.value

    def gap(self, makespan: Fraction) -> Fraction:
        """Gap of a schedule to the lower bound."""
        assert self.result.lower is not None
        return (makespan - self.result.lower.value) / makespan


def checked(
    instance: imx.Instance, subject: imx.Schedule | imx.Result[imx.Schedule, imx.Metrics]
) -> imx.Metrics:
    """Replayed metrics of a schedule or result that passes the verifier."""
    check = imx.verify(instance, subject)
    if not check.ok or check.metrics is None:
        sys.exit(f"{instance.name}: {[*check.violations, *check.faults][0]}")
    metrics: imx.Metrics = check.metrics
    return metrics


def study(size: int, chunked: bool, time_limit: float) -> Row:
    """Solve one instance with and without evictions and run every scheduler."""
    path = INSTANCES / f"i{size}{'-chunked' if chunked else ''}.json"
    instance = imx.read_instance(path)
    if not isinstance(instance, imx.Instance):
        sys.exit(f"{path}: is no InferMax instance")
    result = imx.solve(instance, time_limit=time_limit)
    keeping = replace(
        instance, name=f"{instance.name}-keep", policy=replace(instance.policy, preemption=False)
    )
    eviction_free = imx.solve(keeping, time_limit=time_limit)
    checked(instance, result)
    checked(keeping, eviction_free)
    schedulers = {name: checked(instance, imx.schedule(instance, name)) for name in SCHEDULERS}
    return Row(size, instance, result, eviction_free, schedulers)


def cells(row: Row) -> dict[str, str]:
    """All that the CSV holds of a row."""
    result, keep = row.result, row.eviction_free
    if not (result.lower and result.metrics and result.solver and result.gap is not None):
        sys.exit(f"{result.instance}: incomplete result")
    if not (keep.upper and keep.solver and keep.gap is not None):
        sys.exit(f"{keep.instance}: incomplete result")
    values = {
        "I": str(row.size),
        "M": str(row.instance.system.kv_capacity),
        "chunked": str(row.instance.policy.chunked_prefill).lower(),
        "makespan_s": f"{float(row.upper):.10g}",
        "lower_bound_s": f"{float(result.lower.value):.10g}",
        "status": result.status.value,
        "gap_percent": f"{float(100 * result.gap):.5f}",
        "evictions": str(result.metrics.evictions),
        "source": result.upper.source if result.upper else "",
        "bound": result.lower.source,
        "proof": result.lower.proof.value,
        "seconds": f"{result.solver.seconds:.2f}",
        "eviction_free_s": f"{float(keep.upper.value):.10g}",
        "eviction_free_status": keep.status.value,
        "eviction_free_gap_percent": f"{float(100 * keep.gap):.5f}",
        "eviction_free_seconds": f"{keep.solver.seconds:.2f}",
        "saving_percent": f"{float(100 * row.saving):.2f}",
    }
    for name, metrics in row.schedulers.items():
        values[f"{name}_s"] = f"{float(metrics.makespan):.10g}"
        values[f"{name}_gap_percent"] = f"{float(100 * row.gap(metrics.makespan)):.2f}"
        values[f"{name}_evictions"] = str(metrics.evictions)
    return values


def markdown(rows: list[Row]) -> str:
    """The table for people: one line per I."""
    head = ["I", "M", "makespan, s", "gap, %", "evictions", "engine", "proof", "seconds"]
    head += ["without evictions, s", "saved, %", *(f"{name} (ef), %" for name in TABLE_1)]
    lines = ["| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
    for row in rows:
        c = cells(row)
        shown = "0 (proved)" if row.result.gap == 0 else c["gap_percent"]
        keep = c["eviction_free_s"] + ("" if row.eviction_free.gap == 0 else " (not proved)")
        line = [c["I"], c["M"], c["makespan_s"], shown, c["evictions"], c["bound"], c["proof"]]
        line += [c["seconds"], keep, c["saving_percent"]]
        for name in TABLE_1:
            line.append(f"{c[f'{name}_gap_percent']} ({c[f'{name}_ef_gap_percent']})")
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def figure(rows: list[Row], path: Path) -> None:
    """Makespan relative to the lower bound, against I."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
    sizes = [row.size for row in rows]
    # Schedulers that agree to a hundredth of a percent everywhere share a line.
    curves: dict[tuple[float, ...], list[str]] = {}
    for name in SCHEDULERS:
        curve = tuple(round(100 * float(row.gap(row.schedulers[name].makespan)), 2) for row in rows)
        curves.setdefault(curve, []).append(name)
    fig, ax = plt.subplots(figsize=(9, 5.6), layout="constrained")
    for k, (curve, names) in enumerate(curves.items()):
        style = ":" if all(name.endswith("_ef") for name in names) else "-"
        marker = "osD^vP"[k % 6]
        ax.plot(sizes, curve, style, color=colours[k % len(colours)], marker=marker, markersize=5,
                label=", ".join(names))  # fmt: skip
    keep = [100 * float(row.gap(row.eviction_free.upper.value)) for row in rows if row.eviction_free.upper]
    ax.plot(sizes, keep, "k--", linewidth=2, label="best without evictions")
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("input tokens I (O = 4, four requests, M = max(2I, I + 3))")
    ax.set_ylabel("distance from the optimum, % of the makespan")
    chunked = rows[0].instance.policy.chunked_prefill
    ax.set_title(f"Makespan above the proved lower bound, chunked prefill {'on' if chunked else 'off'}")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, title="_ef: eviction-free", title_fontsize=8)
    fig.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chunked", action="store_true", help="allow chunked prefill")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per optimum")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="values of I")
    parser.add_argument("--into", type=Path, default=Path("out/paper-study"))
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        rows.append(study(size, options.chunked, options.time_limit))
        print(f"I={size}: {rows[-1].result.status.value}", file=sys.stderr)
    options.into.mkdir(parents=True, exist_ok=True)
    stem = "chunked" if options.chunked else "whole-prompts"
    table = [cells(row) for row in rows]
    text = rows_text(list(table[0]), [list(row.values()) for row in table])
    (options.into / f"{stem}.csv").write_text(text)
    figure(rows, options.into / f"{stem}.png")
    print(markdown(rows))


if __name__ == "__main__":
    main()
