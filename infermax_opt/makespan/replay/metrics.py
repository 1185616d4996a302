"""Metrics of a replayed makespan schedule, exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from infermax_opt.core.shown import ShownMetrics
from infermax_opt.core.values import SHARE
from infermax_opt.makespan.data.schedule import MakespanSchedule

if TYPE_CHECKING:
    from infermax_opt.makespan.replay.bins import BinReplay

__all__ = ["MAKESPAN_DEFINITIONS", "MakespanMetrics", "measure_bins"]

MAKESPAN_DEFINITIONS = {
    "makespan": "end of the last decode stage, s",
    "bins": "prefill stages, each with its decode stage",
    "rounds": "decode rounds of all bins",
    "utilisation": "share of the clients' time in which they prefill or decode a request of theirs",
    "tokens_per_second": "generated tokens / makespan",
    "mean_idle": "time in which a client does neither, mean over the clients, s",
    "most_idle": "the same, largest, s",
}
"""Definition of every metric, as printed beside it."""

UNITS = {
    "makespan": "s",
    "utilisation": SHARE,
    "tokens_per_second": "tokens/s",
    "mean_idle": "s",
    "most_idle": "s",
}
"""Units of the metrics that have one."""


@dataclass(frozen=True)
class MakespanMetrics(ShownMetrics):
    """Metrics of one schedule; `MAKESPAN_DEFINITIONS` says what each one means.  Times in seconds."""

    definitions: ClassVar[Mapping[str, str]] = MAKESPAN_DEFINITIONS
    units: ClassVar[Mapping[str, str]] = UNITS

    makespan: Fraction
    bins: int
    rounds: int
    utilisation: Fraction
    tokens_per_second: Fraction
    mean_idle: Fraction
    most_idle: Fraction

    def items(self) -> list[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


def measure_bins(schedule: MakespanSchedule, replay: BinReplay) -> MakespanMetrics:
    """Compute the metrics of a schedule from its replay.

    Raises
    ------
    ValueError
        If the replay has violations: it leaves out what breaks a rule.
    """
    if not replay.valid:
        raise ValueError("metrics need a valid schedule")
    idle = replay.idle_seconds
    return MakespanMetrics(
        makespan=replay.makespan,
        bins=len(schedule.bins),
        rounds=sum(some.rounds for some in schedule.bins),
        utilisation=replay.utilisation,
        tokens_per_second=replay.tokens_per_second,
        mean_idle=sum(idle, Fraction(0)) / len(idle),
        most_idle=max(idle),
    )
