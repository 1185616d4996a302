"""How far each exact engine proves optimality within a time limit.

The paper's constrained case (section 4.5: M = max(2 I, I + O - 1), chunked prefill off) grown along
one axis at a time: more requests at O = 4, or more output tokens at B = 4.  The engines are the
search, the state-flow formulation and the paper's Big-M CSP, the latter two in HiGHS and CP-SAT.

Usage: ``python scripts/scale_study.py [--time-limit 60] [--input-tokens 16] [--into out/scale-study]``

Protocol: one process, one engine thread, the engines side by side on every size before the next
one; each gets the best Table 1 schedule as warm start.  An engine leaves an axis at its first size
not proved.  Proved: the verified bound meets the schedule, for HiGHS to 1e-6 (its floating-point
bounds are lowered by that much).
"""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import infermax_opt as imx
from infermax_opt.files.csv_rows import rows_text

COST = imx.load_profile("paper-example").cost
ENGINES = {
    "search": ("search", None),
    "flow, HiGHS": ("highs", "flow"),
    "flow, CP-SAT": ("cpsat", "flow"),
    "csp, HiGHS": ("highs", "csp"),
    "csp, CP-SAT": ("cpsat", "csp"),
}
SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: What a float bound is lowered by, relative.
HIGHS_MARGIN = Fraction(2, 10**6)


@dataclass
class Reach:
    """How far an engine came along an axis."""

    proved: int = 0
    seconds: float = 0.0
    failed: int = 0
    gap: Fraction | None = None
    rows: list[dict[str, str]] = field(default_factory=list)


def case(requests: int, outputs: int, inputs: int) -> imx.Instance:
    """The constrained case with B requests of O output tokens."""
    capacity = max(2 * inputs, inputs + outputs - 1)
    return imx.Instance(
        name=f"csp-i{inputs}-o{outputs}-b{requests}",
        groups=(imx.RequestGroup("r", inputs, outputs, count=requests),),
        system=imx.System(capacity, 4096, 4096),
        policy=imx.Policy(chunked_prefill=False),
        cost=COST,
    )


def attempt(
    instance: imx.Instance, engine: str, time_limit: float
) -> tuple[imx.Result[imx.Schedule, imx.Metrics], bool]:
    """Solve with one engine; the verified result, and whether it is a proof."""
    solver, formulation = ENGINES[engine]
    result = imx.solve(instance, solver=solver, formulation=formulation, time_limit=time_limit, threads=1)
    check = imx.verify(instance, result)
    if not check.ok:
        sys.exit(f"{instance.name}: {[*check.violations, *check.faults][0]}")
    proved = result.gap is not None and result.gap <= (HIGHS_MARGIN if solver == "highs" else 0)
    return result, proved


def run_axis(axis: str, inputs: int, time_limit: float) -> dict[str, Reach]:
    """Let every engine climb one axis."""
    reaches = {engine: Reach() for engine in ENGINES}
    for size in SIZES:
        instance = case(size, 4, inputs) if axis == "B" else case(4, size, inputs)
        for engine, reach in reaches.items():
            if reach.failed:
                continue
            result, proved = attempt(instance, engine, time_limit)
            seconds = result.solver.seconds if result.solver and result.solver.seconds else 0.0
            if proved:
                reach.proved, reach.seconds = size, seconds
            else:
                reach.failed, reach.gap = size, result.gap
            reach.rows.append(
                {
                    "axis": axis, "size": str(size), "engine": engine, "proved": str(proved).lower(),
                    "makespan_s": f"{float(result.upper.value):.10g}" if result.upper else "",
                    "lower_bound_s": f"{float(result.lower.value):.10g}" if result.lower else "",
                    "gap_percent": f"{100 * float(result.gap):.5f}" if result.gap is not None else "",
                    "seconds": f"{seconds:.2f}",
                    "termination": (result.solver.termination or "") if result.solver else "",
                }
            )  # fmt: skip
            print(
                f"{axis}={size} {engine}: {'proved' if proved else 'open'} in {seconds:.1f} s",
                file=sys.stderr,
            )
    return reaches


def cell(reach: Reach) -> str:
    """One engine on one axis, for people."""
    text = f"{reach.proved} ({reach.seconds:.1f} s)" if reach.proved else "none"
    if reach.failed:
        gap = "no schedule" if reach.gap is None else f"{100 * float(reach.gap):.2g} % left"
        return f"{text}; {reach.failed}: {gap}"
    return f"{text}, the largest tried"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per attempt")
    parser.add_argument("--input-tokens", type=int, default=16, help="I of every request")
    parser.add_argument("--into", type=Path, default=Path("out/scale-study"))
    options = parser.parse_args()
    axes = {axis: run_axis(axis, options.input_tokens, options.time_limit) for axis in ("B", "O")}
    options.into.mkdir(parents=True, exist_ok=True)
    rows = [row for reaches in axes.values() for reach in reaches.values() for row in reach.rows]
    text = rows_text(list(rows[0]), [list(row.values()) for row in rows])
    (options.into / f"i{options.input_tokens}.csv").write_text(text)
    print(
        f"I = {options.input_tokens}, {options.time_limit:g} s an attempt, one thread, {platform.machine()}"
    )
    print("| engine | largest B proved at O = 4 | largest O proved at B = 4 |\n| --- | --- | --- |")
    for engine in ENGINES:
        print(f"| {engine} | {cell(axes['B'][engine])} | {cell(axes['O'][engine])} |")


if __name__ == "__main__":
    main()
