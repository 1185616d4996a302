"""The page: what the paper says, what the tables say, and how far from the lower bounds it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from infermax_opt.core.exact import fixed_text
from scripts.aladdin_study.page_text import EFFECTS, FLEETS, INTRO, LIMITS, SAVINGS, SCHEDULING
from scripts.aladdin_study.readings import (
    SERIES,
    column,
    models,
    one_second,
    savings,
    select,
    values,
)
from scripts.aladdin_study.tables import Row
from scripts.aladdin_study.workload import MODES

__all__ = ["page"]

#: The paper's savings by mode and baseline, percent (section 6.4).
PAPER = {
    ("mixed", "jsq"): "up to 40 %",
    ("split", "jsq"): "up to 60 %",
    ("split", "power-of-two"): "up to 49 %",
}
#: Figures by mode.
FIGURES = {"mixed": "fig11", "split": "fig12"}
#: Bounds that hold for a policy, by its name.
WITHIN = ("aladdin", "fewest")
#: Targets of section 6.5 and ours: milliseconds for a heartbeat at 25 requests/s; for a request.
HEARTBEAT_MS, REQUEST_MS, RATE, WORKERS = 50.0, 1.0, 25.0, 100.0


def page(tables: Mapping[str, Sequence[Row]], settings: Sequence[Row]) -> str:
    """The page as Markdown."""
    fleets = one_second(tables["fleets"])
    parts = [INTRO, _savings(fleets)]
    for mode in MODES:
        parts.append(_fleets(select(fleets, mode=mode), mode))
    parts += [_distances(fleets), _heartbeats(tables["fleets"])]
    parts += [_scheduling(tables["scheduling"]), _effects(tables["effects"])]
    parts += [LIMITS, _settings(settings)]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; so many columns are text."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows]) + "\n"


def _named(key: tuple[str, str]) -> str:
    return SERIES[key]


def _down(share: float) -> str:
    """An attainment in percent, rounded down: 100 means all."""
    return fixed_text(share, 1, "floor")


def _savings(fleets: Sequence[Row]) -> str:
    rows = []
    for mode in MODES:
        for some in savings(select(fleets, mode=mode)):
            said = PAPER.get((mode, some.theirs[0]), "-") if some.theirs[1] == "P100" else "-"
            rows.append([mode, _named(some.ours), _named(some.theirs), said, *some.cells()])
    head = ["mode", "GPUs of", "saved against", "the paper", "least", "median", "most", "workloads"]
    attained = []
    for mode in MODES:
        shares = column(select(fleets, mode=mode, policy="aladdin", target=""), "attainment_percent")
        full = sum(share == 100 for share in shares)
        attained.append(
            f"{mode}: {_down(min(shares))} to {_down(max(shares))} %, mean {_down(fmean(shares))} %, "
            f"100 % in {full} of {len(shares)} workloads"
        )
    against = "; ".join(f"{mode} {_against(select(fleets, mode=mode)):+.1f} %" for mode in MODES)
    text = SAVINGS.format(attained="; ".join(attained), against=against)
    return f"{text}\n{_table(head, rows, 4)}"


def _against(rows: Sequence[Row]) -> float:
    """Mean workers of look-ahead over those of `aladdin` as it is, percent more, mean over the workloads."""
    ours = column(select(rows, policy="look-ahead"), "mean_workers")
    theirs = column(select(rows, policy="aladdin", target=""), "mean_workers")
    return 100 * (fmean(mine / other for mine, other in zip(ours, theirs, strict=True)) - 1)


def _fleets(rows: Sequence[Row], mode: str) -> str:
    name = FIGURES[mode]
    parts = [FLEETS.format(number=name.removeprefix("fig"), mode=MODES[mode], file=f"{name}.svg")]
    for model in models(rows):
        some = select(rows, model=model)
        rates = sorted({float(row["rate"]) for row in some})
        lines = []
        for key, label in SERIES.items():
            found = values(some, key)
            if found:
                cells = [f"{found[rate]:.1f}" if rate in found else "-" for rate in rates]
                lines.append([label, *cells])
        attained = values(some, ("aladdin", ""), "attainment_percent")
        shares = [f"{_down(attained[rate])} %" for rate in rates]
        lines.append([f"attainment of: {SERIES['aladdin', '']}", *shares])
        for target in ("P100", "P99"):
            chosen = [select(some, policy="aladdin", target=target, rate=f"{rate:g}") for rate in rates]
            thetas = [column(rows, "theta") for rows in chosen]
            cells = [f"{min(values):g} to {max(values):g}" if values else "-" for values in thetas]
            lines.append([f"theta for {target}, least to most", *cells])
        head = [f"LLaMA2-{model}, GPUs at requests/s", *(f"{rate:g}" for rate in rates)]
        parts.append(_table(head, lines))
    return "\n".join(parts)


def _distances(fleets: Sequence[Row]) -> str:
    lines = []
    for mode in MODES:
        for policy in ("aladdin", "fewest", "look-ahead"):
            rows = select(select(fleets, mode=mode), policy=policy, target="")
            cells = [mode, SERIES[policy, ""]]
            for bound in ("lower, this run", "lower, limits", "lower, TTFT"):
                for name in ("gpus", "mean_workers"):
                    holds = bound == "lower, TTFT" or policy in WITHIN
                    # The bound of a run is that of `fewest`.
                    holds = holds and (bound != "lower, this run" or policy == "fewest")
                    cells.append(_above(fleets, rows, bound, name) if holds else "-")
            lines.append(cells)
    head = ["mode", "policy", *(f"{what}, {of}" for what in ("same run", "within limits a to e", "TTFT")
                                for of in ("peak", "mean"))]  # fmt: skip
    text = (
        "## Distance from the lower bounds\n\nShare of the workers that might be saved at most, mean over "
        "the workloads: at the peak, and of the mean over the heartbeats. `-`: the bound does not hold for "
        "the policy, or there is none.\n"
    )
    return f"{text}\n{_table(head, lines, 2)}"


def _above(fleets: Sequence[Row], rows: Sequence[Row], bound: str, name: str) -> str:
    gaps = []
    for row in rows:
        same = {key: row[key] for key in ("mode", "model", "rate", "seed")}
        found = column(select(fleets, policy=bound, **same), name)
        if found:
            gaps.append(100 * (1 - found[0] / float(row[name])))
    return f"{fmean(gaps):.1f} %" if gaps else "-"


def _heartbeats(rows: Sequence[Row]) -> str:
    quick = [row for row in rows if row["heartbeat_s"] != "1"]
    lines = []
    for key, label in SERIES.items():
        for row in select(quick, policy=key[0], target=key[1]):
            same = {name: row[name] for name in ("mode", "model", "rate", "seed")}
            slow = select(one_second(rows), policy=key[0], target=key[1], **same)
            lines.append([label, row["mode"], row["rate"], row["gpus"], slow[0]["gpus"] if slow else "-"])
    text = (
        "## Four heartbeats a second\n\nSome of the workloads again with a heartbeat of 0.25 s, as the paper "
        "does not say what it used.\n"
    )
    head = ["policy", "mode", "requests/s", "GPUs at 0.25 s", "GPUs at 1 s"]
    return f"{text}\n{_table(head, lines, 2)}"


def _scheduling(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["policy"], row["rate"], row["new"], row["ongoing"], row["workers"],
            *(f"{float(row[name]):.3g}" if row.get(name) else "-" for name in (
                "place_median_ms", "place_max_ms", "per_request_ms", "build_median_ms", "lone_median_ms",
            )),
        ]
        for row in rows
    ]  # fmt: skip
    head = [
        "policy", "requests/s", "new", "ongoing", "workers", "place, ms", "slowest, ms", "per request, ms",
        "build, ms", "one new request, ms",
    ]  # fmt: skip
    parts = [SCHEDULING, _table(head, lines), "\n".join(_verdicts(select(rows, policy="aladdin"))), ""]
    return "\n".join(parts)


def _verdicts(rows: Sequence[Row]) -> list[str]:
    """Whether best-fit keeps the times that are wanted."""
    found = []
    for row in select(rows, rate=f"{RATE:g}"):
        both = float(row["place_median_ms"]) + float(row["build_median_ms"])
        met = "met" if both < HEARTBEAT_MS else "missed"
        found.append(
            f"- Under {HEARTBEAT_MS:g} ms a heartbeat at {RATE:g} requests/s (section 6.5): {met}, "
            f"{both:.3g} ms with building the instance."
        )
    for row in [row for row in rows if float(row["workers"]) >= WORKERS][:1]:
        both = (float(row["place_median_ms"]) + float(row["build_median_ms"])) / float(row["new"])
        lone = float(row["lone_median_ms"])
        found.append(
            f"- Under {REQUEST_MS:g} ms a request with {WORKERS:g} workers or more in use: "
            f"{'met' if both < REQUEST_MS else 'missed'} where the requests of a heartbeat are placed "
            f"together, {both:.3g} ms with building the instance; "
            f"{'met' if lone < REQUEST_MS else 'missed'} for a request that comes alone, {lone:.3g} ms, as "
            "every instance is read from its first request to its last one."
        )
    return found


def _effects(rows: Sequence[Row]) -> str:
    names = ("workers", "mean_workers", "attainment_percent", "p99_atgt_s", "preemptions")
    lines = []
    for effect in dict.fromkeys(row["effect"] for row in rows):
        chosen = select(rows, effect=effect)
        keys = [(row["policy"], row["theta"], row["gamma"], row["error"]) for row in chosen]
        for key in dict.fromkeys(keys):
            policy, theta, gamma, error = key
            alike = select(chosen, policy=policy, theta=theta, gamma=gamma, error=error)
            means = [fmean(column(alike, name)) for name in names]
            cells = [
                f"{means[0]:.1f}",
                f"{means[1]:.2f}",
                fixed_text(means[2], 2, "floor"),
                f"{means[3]:.5f}",
                f"{means[4]:.1f}",
            ]
            lines.append([effect, policy, theta, gamma, error, *cells])
    head = [
        "varied", "policy", "theta", "gamma", "error", "peak workers", "mean workers", "attainment, %",
        "P99 ATGT, s", "preemptions",
    ]  # fmt: skip
    base = rows[0]
    text = EFFECTS.format(model=base["model"], rate=base["rate"])
    return f"{text}\n{_table(head, lines, 2)}"


def _settings(settings: Sequence[Row]) -> str:
    names = list(settings[0])
    lines = [[row[name] for name in names] for row in settings]
    head = [name.replace("_", " ") for name in names]
    return f"## Setting\n\n{_table(head, lines, len(names))}"
