"""Scores: each metric of a run against the bound, and what could still be gained at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.band import Band
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound, gap_of
from infermax_opt.core.shown import ShownRows
from infermax_opt.core.values import AnyInstance
from infermax_opt.gaps.bounds import MetricBound
from infermax_opt.gaps.subjects import Subject

__all__ = ["Compared", "Group", "Row", "compare"]

#: Share by which a metric may be below a bound for the rounding of clocks and decimals.
ROUNDING = Fraction(1, 10**6)


@dataclass(frozen=True)
class Row:
    """One metric of one run.

    Attributes
    ----------
    metric : str
    value : Fraction or None
        In the metric's unit; None where it is not known.
    lower : LowerBound or None
        What no schedule is below.
    """

    metric: str
    value: Fraction | None
    lower: LowerBound | None

    @property
    def gain(self) -> Fraction | None:
        """What a schedule could still gain at most, in the metric's unit.

        None where a side is unknown, or the value is below the bound.
        """
        if self.value is None or self.lower is None or self.faster is not None:
            return None
        return max(self.value - self.lower.value, Fraction(0))

    @property
    def gap(self) -> Fraction | None:
        """The same as a share of the value."""
        if self.gain is None or self.value is None:
            return None
        return gap_of(self.value, self.value - self.gain)

    @property
    def faster(self) -> Fraction | None:
        """Share by which the value is below the bound, as no schedule can be; None where it is not."""
        if self.value is None or self.lower is None or not self.lower.value:
            return None
        share = 1 - self.value / self.lower.value
        return share if share > ROUNDING else None


@dataclass(frozen=True)
class Compared:
    """One run: metrics with bounds, and others beside them.

    Attributes
    ----------
    subject : Subject
    rows : tuple of Row
    beside : mapping of metric to value
    own : tuple of Row
        Metrics with bounds by the clock of the system itself, where the rows are of a replay.
    """

    subject: Subject
    rows: tuple[Row, ...]
    beside: Mapping[str, Fraction | int | None]
    own: tuple[Row, ...] = ()

    @property
    def faster(self) -> tuple[str, ...]:
        """Metrics in which it is faster than any schedule, in replay or by its own clock."""
        found = [row.metric for row in (*self.rows, *self.own) if row.faster is not None]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Group(ShownRows):
    """Runs of one instance, with the bounds that they share.

    Attributes
    ----------
    instance : instance
    bounds : tuple of MetricBound
        With a band, of the fastest machine.
    runs : tuple of Compared
        Those that are faster than a bound first.
    band : Band or None
        Of machines for which all this holds; None for that of the instance alone.
    """

    instance: AnyInstance
    bounds: tuple[MetricBound, ...]
    runs: tuple[Compared, ...]
    band: Band | None = None

    def facts(self) -> Mapping[str, Any]:
        """The instance, and how many runs and metrics there are."""
        return {
            "instance": self.instance.name,
            "runs": ", ".join(run.subject.label for run in self.runs),
            "metrics": len(self.bounds),
            "largest_gap": max(
                (r.gap for run in self.runs for r in run.rows if r.gap is not None), default=None
            ),
            "band": None if self.band is None else str(self.band),
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each run and metric, in the metric's unit."""
        for run in self.runs:
            for row in run.rows:
                yield {
                    "run": run.subject.label,
                    "metric": row.metric,
                    "value": row.value,
                    "lower_bound": row.lower.value if row.lower else None,
                    "gap": row.gap,
                    "gain": row.gain,
                    "bound_by": row.lower.source if row.lower else None,
                    "proof": row.lower.proof if row.lower else None,
                    "faster_than_bound": row.metric in run.faster,
                }


def compare(
    instance: AnyInstance,
    bounds: Sequence[MetricBound],
    subjects: Sequence[Subject],
    band: Band | None = None,
) -> Group:
    """Set runs of one instance against bounds; those that are faster than a bound come first.

    Parameters
    ----------
    instance : instance
    bounds : sequence of MetricBound
    subjects : sequence of Subject
        With that instance.
    band : Band, optional
        Of machines that the bounds and the subjects are for.
    """
    beside = problem_of(instance).scoring.beside(instance)
    runs = [
        Compared(
            subject,
            tuple(Row(some.metric, _exact(subject, some.metric), some.lower) for some in bounds),
            {name: subject.measured.metrics.get(name) for name in beside},
            tuple(
                Row(some.metric, subject.own[some.metric], some.lower)
                for some in bounds
                if some.metric in subject.own
            ),
        )
        for subject in subjects
    ]
    runs.sort(key=lambda run: not run.faster)
    return Group(instance, tuple(bounds), tuple(runs), band)


def _exact(subject: Subject, metric: str) -> Fraction | None:
    value = subject.measured.metrics.get(metric)
    return None if value is None else Fraction(value)
