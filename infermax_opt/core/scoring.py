"""How runs of a problem's instances are set against bounds: schedules, and runs of other systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from infermax_opt.core.band import Band
from infermax_opt.core.errors import InputError
from infermax_opt.core.values import AnyInstance, AnyMetrics, AnySchedule

if TYPE_CHECKING:
    from infermax_opt.core.explanation import Explanation
    from infermax_opt.core.measured import Measured
    from infermax_opt.foreign.run import Run

__all__ = ["Scoring"]

I = TypeVar("I", bound=AnyInstance)  # noqa: E741
S = TypeVar("S", bound=AnySchedule)
M = TypeVar("M", bound=AnyMetrics)


class Scoring(Generic[I, S, M]):
    """What ``gap`` asks a problem; as it stands, for problems whose runs are schedules of one metric.

    Parameters
    ----------
    name : str
        Of the problem.
    """

    def __init__(self, name: str):
        self.name = name

    def compared(self, instance: I) -> Sequence[str]:
        """Metrics that are set against bounds unless told otherwise; each can be minimised."""
        return (instance.objective_name,)

    def beside(self, instance: I) -> Sequence[str]:
        """Metrics that are shown without a bound."""
        return ()

    def latencies(self, metrics: M) -> Mapping[str, Sequence[Fraction]]:
        """Latencies of single requests by name, seconds, of which pictures show the distribution."""
        return {}

    def explain(self, instance: I, schedule: S) -> Sequence[Explanation]:
        """Where the time of a valid schedule goes: metrics in parts that add up; none, unless overridden."""
        return ()

    # --- machines that are not quite as the model says ------------------------------------------

    def band(self, text: str) -> Band:
        """Read a band: ``LO:HI``, or what else the problem has with one.

        Raises
        ------
        InputError
            If it is none.
        """
        return Band.parsed(text)

    def scaled(self, instance: I, factor: Fraction) -> I:
        """The instance on a machine that takes `factor` times as long for everything.

        Parameters
        ----------
        instance : instance
        factor : Fraction

        Raises
        ------
        InputError
            If the problem has no such machines.
        """
        raise InputError(f"machines of {self.name} instances have no band", field="band")

    def banded(self, instance: I, band: Band) -> I:
        """An instance that stands for all machines of a band; see `scaled`.

        Parameters
        ----------
        instance : instance
        band : Band
        """
        raise InputError(f"machines of {self.name} instances have no band", field="band")

    def machines(self, instance: I) -> str | None:
        """The machines that an instance stands for, in words; None for one."""
        return None

    def worst_case(self, instance: I, schedule: S, band: Band) -> Measured:
        """What metrics of a valid schedule are at most on a machine of the band; see `scaled`.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        band : Band
        """
        raise InputError(f"machines of {self.name} instances have no band", field="band")

    # --- runs of other systems ------------------------------------------------------------------

    def measured(self, instance: I, run: Run) -> Measured:
        """Metrics of a run on another system, from what it measured of each request.

        Parameters
        ----------
        instance : instance
            With the requests of the run.
        run : Run

        Raises
        ------
        InputError
            If these are not the requests of the instance, or the problem has no such runs.
        """
        raise InputError(f"runs of other systems are not instances of {self.name}", source=run.path)

    def rebuilt(self, instance: I, run: Run) -> tuple[S, tuple[str, ...]]:
        """The schedule of a run whose batches are known, and what must be said beside it, a sentence each.

        Parameters
        ----------
        instance : instance
            With the requests of the run.
        run : Run

        Raises
        ------
        InputError
            If it cannot be rebuilt.
        """
        raise InputError(f"runs of other systems are not schedules of {self.name}", source=run.path)

    def own_times(self, instance: I, run: Run) -> Mapping[str, Fraction]:
        """Metrics of a run whose batches are known, by its own clock; those that the clock can tell.

        Parameters
        ----------
        instance : instance
            With the requests of the run.
        run : Run
            That can be rebuilt.
        """
        return {}

    def machine(self, path: str, limits: Mapping[str, str]) -> Any:
        """A machine from a file, as `run_instance` takes it.

        Parameters
        ----------
        path : str
            An instance, whose requests do not matter, or what else the problem has for machines.
        limits : mapping of limit to value
            Of the machine, instead of its own.

        Raises
        ------
        InputError
            If the file or a limit cannot be read, or the problem has no such runs.
        """
        raise InputError(f"runs of other systems are not instances of {self.name}", source=path)

    def run_instance(self, machine: Any, run: Run, name: str) -> I:
        """The requests of a run on another system, on a machine.

        Parameters
        ----------
        machine : object
            See `machine`.
        run : Run
        name : str

        Raises
        ------
        InputError
            If a request can never fit, or the problem has no such runs.
        """
        raise InputError(f"runs of other systems are not instances of {self.name}", source=run.path)
