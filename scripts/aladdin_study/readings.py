"""What page and figures read off the tables: workers by policy, and savings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from scripts.aladdin_study.tables import Row

__all__ = ["SERIES", "Saving", "column", "models", "one_second", "savings", "select", "values"]

#: Lines of Figures 11 and 12: policy and target, and how they are called.
SERIES: dict[tuple[str, str], str] = {
    ("jsq", "P100"): "JSQ, P100",
    ("power-of-two", "P100"): "power-of-two, P100",
    ("jsq", "P99"): "JSQ, P99",
    ("power-of-two", "P99"): "power-of-two, P99",
    ("aladdin", ""): "Aladdin, limits a to e as they are",
    ("aladdin", "P100"): "Aladdin, theta for P100",
    ("aladdin", "P99"): "Aladdin, theta for P99",
    ("fewest", ""): "fewest, same limits",
    ("look-ahead", ""): "look-ahead (P100 by construction)",
    ("lower, this run", ""): "lower bound, ongoing requests where `fewest` put them",
    ("lower, limits", ""): "lower bound, any policy within limits a to e",
    ("lower, TTFT", ""): "lower bound, any policy with TTFT kept",
}


def select(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """Rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def one_second(rows: Iterable[Row]) -> list[Row]:
    """Rows of Figures 11 and 12 proper, with a heartbeat each second."""
    return select(rows, heartbeat_s="1")


def models(rows: Iterable[Row]) -> list[str]:
    """Models of some rows, as they come."""
    return list(dict.fromkeys(row["model"] for row in rows))


def column(rows: Iterable[Row], name: str) -> list[float]:
    """Numbers of a column, where there are any."""
    return [float(row[name]) for row in rows if row[name]]


def values(rows: Sequence[Row], key: tuple[str, str], name: str = "gpus") -> dict[float, float]:
    """Mean over the seeds for each rate; rates at which a seed has no value are left out."""
    chosen = select(rows, policy=key[0], target=key[1])
    every = select(rows, policy="fewest", target="")
    found: dict[float, list[float]] = {}
    for row in chosen:
        if row[name]:
            found.setdefault(float(row["rate"]), []).append(float(row[name]))
    seeds = {rate: sum(float(row["rate"]) == rate for row in every) for rate in found}
    return {rate: fmean(some) for rate, some in sorted(found.items()) if len(some) == seeds[rate]}


class Saving:
    """GPUs that one policy saves against another, workload by workload, in percent."""

    def __init__(self, rows: Iterable[Row], ours: tuple[str, str], theirs: tuple[str, str]):
        rows = list(rows)
        self.ours, self.theirs = ours, theirs
        other = {_workload(row): row["gpus"] for row in select(rows, policy=theirs[0], target=theirs[1])}
        mine = {_workload(row): row["gpus"] for row in select(rows, policy=ours[0], target=ours[1])}
        self.workloads = len(other)
        self.percent = [
            100 * (1 - float(mine[key]) / float(gpus))
            for key, gpus in other.items()
            if gpus and mine.get(key)
        ]

    def cells(self) -> list[str]:
        """Least, median and most, and of how many workloads."""
        if not self.percent:
            return ["-", "-", "-", f"0 of {self.workloads}"]
        some = (min(self.percent), median(self.percent), max(self.percent))
        return [*(f"{value:.0f} %" for value in some), f"{len(self.percent)} of {self.workloads}"]


def savings(rows: Iterable[Row]) -> list[Saving]:
    """Every saving that the page lists, of one mode."""
    rows = list(rows)
    found = []
    for target in ("P100", "P99"):
        for ours in (("aladdin", ""), ("aladdin", target), ("look-ahead", "")):
            found += [Saving(rows, ours, (theirs, target)) for theirs in ("jsq", "power-of-two")]
    return found


def _workload(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("mode", "model", "rate", "seed", "heartbeat_s"))
