"""Runs of InferMax instances set against bounds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.core.band import Band
from infermax_opt.core.errors import InputError
from infermax_opt.core.scoring import Scoring
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.intervals import refuse_intervals
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.infermax.data.release import refuse_release
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.metrics import Metrics

if TYPE_CHECKING:
    from infermax_opt.core.explanation import Explanation
    from infermax_opt.core.measured import Measured
    from infermax_opt.foreign.run import Run
    from infermax_opt.infermax.data.runs import Machine

__all__ = ["InferMaxScoring"]

#: What a run is compared with a bound in.
COMPARED = (
    Metric.MAKESPAN, Metric.MEAN_TTFT, Metric.P50_TTFT, Metric.P99_TTFT, Metric.MEAN_TPOT,
    Metric.P50_TPOT, Metric.P99_TPOT, Metric.MEAN_E2E, Metric.P50_E2E, Metric.P99_E2E,
)  # fmt: skip


class InferMaxScoring(Scoring[Instance, Schedule, Metrics]):
    """See `infermax_opt.core.scoring.Scoring`; what it calls is imported when it is called."""

    def compared(self, instance: Instance) -> Sequence[str]:
        """Makespan, means and percentiles of latencies; what breaks service levels where there are any."""
        missed = (Metric.MISSED,) if any(kind.terms.slo for kind in instance.types) else ()
        return [metric.value for metric in (*COMPARED, *missed)]

    def beside(self, instance: Instance) -> Sequence[str]:
        """Rates, and evictions."""
        return ("tokens_per_second", "attainment", "goodput", "evictions")

    def latencies(self, metrics: Metrics) -> Mapping[str, Sequence[Fraction]]:
        """TTFT and E2E of the requests that are finished."""
        from infermax_opt.infermax.replay.measured import latencies_by_name

        return latencies_by_name(metrics.latencies)

    def explain(self, instance: Instance, schedule: Schedule) -> Sequence[Explanation]:
        """Makespan and mean end-to-end latency in parts."""
        refuse_release(instance, "the account of a schedule")
        refuse_intervals(instance, "the account of a schedule")
        from infermax_opt.infermax.attribution import explain

        return explain(instance, schedule)

    def band(self, text: str) -> Band:
        """Read a band: ``LO:HI``, or that of a cost profile, a file or a shipped one by name."""
        from infermax_opt.infermax.data.profiles import load_profile, profile_names, read_profile

        if text in profile_names():
            found = load_profile(text).band
        elif ":" not in text or os.path.exists(text):
            found = read_profile(text).band
        else:
            return super().band(text)
        if found is None:
            raise InputError("the profile has none; say LO:HI", field="band", source=text)
        return Band(found.lo, found.hi)

    def scaled(self, instance: Instance, factor: Fraction) -> Instance:
        """The instance on a machine whose batches all take `factor` times as long.

        Parameters
        ----------
        instance : Instance
        factor : Fraction
        """
        from infermax_opt.infermax.band import scaled

        return scaled(instance, factor)

    def banded(self, instance: Instance, band: Band) -> Instance:
        """The instance with intervals of coefficients, for the machines of a band.

        Parameters
        ----------
        instance : Instance
        band : Band
        """
        from infermax_opt.infermax.band import banded

        return banded(instance, band)

    def machines(self, instance: Instance) -> str | None:
        """Of an instance with intervals of coefficients: all between their ends."""
        return None if instance.slowest is None else "any machine between the ends of the cost's intervals"

    def worst_case(self, instance: Instance, schedule: Schedule, band: Band) -> Measured:
        """What metrics of a valid schedule are at most on a machine of the band.

        Parameters
        ----------
        instance : Instance
        schedule : Schedule
        band : Band
        """
        from infermax_opt.infermax.band import worst_case

        return worst_case(instance, schedule, band)

    def measured(self, instance: Instance, run: Run) -> Measured:
        """Metrics of a run on another system.

        Parameters
        ----------
        instance : Instance
        run : Run
        """
        refuse_release(instance, "a run with latencies alone")
        from infermax_opt.infermax.replay.measured import measure_run

        return measure_run(instance, run)

    def rebuilt(self, instance: Instance, run: Run) -> tuple[Schedule, tuple[str, ...]]:
        """The schedule of a run whose batches are known, and what must be said beside it.

        Parameters
        ----------
        instance : Instance
        run : Run
        """
        refuse_release(instance, "a schedule rebuilt from a run")
        from infermax_opt.infermax.data.foreign_schedule import schedule_of_run

        return schedule_of_run(run, instance)

    def own_times(self, instance: Instance, run: Run) -> Mapping[str, Fraction]:
        """Makespan and mean end-to-end latency, as the run itself took them.

        Parameters
        ----------
        instance : Instance
        run : Run
        """
        from infermax_opt.infermax.data.foreign_schedule import own_times

        return {metric.value: value for metric, value in own_times(run, instance).items()}

    def machine(self, path: str, limits: Mapping[str, str]) -> Machine:
        """A machine from an instance or a cost profile.

        Parameters
        ----------
        path : str
        limits : mapping of limit to value
            Such as ``kv_capacity``, whole numbers.
        """
        from infermax_opt.infermax.data.runs import read_machine

        return read_machine(path, limits)

    def run_instance(self, machine: Machine, run: Run, name: str) -> Instance:
        """The requests of a run on another system, on a machine.

        Parameters
        ----------
        machine : Machine
        run : Run
        name : str
        """
        from infermax_opt.infermax.data.runs import run_instance

        return run_instance(machine, run, name)
