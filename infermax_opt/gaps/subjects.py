"""What is scored: a schedule, a result, or a run that another system measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from infermax_opt import api
from infermax_opt.core.band import Band
from infermax_opt.core.errors import InputError
from infermax_opt.core.measured import Measured
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import AnyResult, Claim, LowerBound, Result
from infermax_opt.core.values import AnyInstance, AnySchedule
from infermax_opt.files.results import claimed_bound, read_subject, schedule_of
from infermax_opt.files.text import seconds
from infermax_opt.foreign.run import Run

__all__ = ["Subject", "WrongSchedule", "of_given", "of_run", "of_schedule"]


class WrongSchedule(InputError):
    """A schedule that breaks a rule.

    Parameters
    ----------
    path : str
    wrong : sequence
        Rules that it breaks, and claims that are wrong.
    """

    def __init__(self, path: str, wrong: Sequence[object]):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        super().__init__(f"its schedule is wrong: {wrong[0]}{more}", source=path)
        self.path, self.wrong = path, wrong


@dataclass(frozen=True)
class Subject:
    """One run, with the numbers to be compared.

    Attributes
    ----------
    label : str
        Its file.
    kind : str
        ``schedule``, or the format of a run on another system.
    instance : instance
        Its requests on its machine.
    measured : Measured
    left_out : mapping of reason to int
        Requests of the file that are not in the instance.
    schedule : schedule or None
        None where only metrics are known.
    lower : LowerBound or None
        What the file says no schedule is below, in the objective of its instance.
    own : mapping of metric to Fraction
        By the clock of the system itself, where `measured` is a replay of its batches.
    """

    label: str
    kind: str
    instance: AnyInstance
    measured: Measured
    left_out: Mapping[str, int] = field(default_factory=dict)
    schedule: AnySchedule | None = None
    lower: LowerBound | None = None
    own: Mapping[str, Fraction] = field(default_factory=dict)


def of_schedule(instance: AnyInstance, path: str, band: Band | None = None) -> Subject:
    """The schedule of a schedule or result file, replayed.

    Parameters
    ----------
    instance : instance
    path : str
    band : Band, optional
        Of machines; the metrics are then the largest on any of them.

    Raises
    ------
    InputError
        If the file cannot be read or holds no schedule; `WrongSchedule` if that breaks a rule.
    """
    found = read_subject(path, instance)
    schedule = schedule_of(found)
    if schedule is None:
        raise InputError("holds no schedule", source=path, field="schedule")
    measured = _replayed(instance, schedule, path, band)
    lower = claimed_bound(found) if isinstance(found, Claim) else None
    return Subject(path, "schedule", instance, measured, schedule=schedule, lower=lower)


def of_given(
    instance: AnyInstance, given: AnySchedule | AnyResult | Run, label: str, band: Band | None = None
) -> Subject:
    """A schedule, a result or a run on another system.

    Parameters
    ----------
    instance : instance
    given : schedule, Result or Run
    label : str
        What a schedule or result is called.
    band : Band, optional
        Of machines; the metrics of a schedule are then the largest on any of them.

    Raises
    ------
    InputError
        If it is something else, a schedule breaks a rule, or a run is of other requests.
    """
    if isinstance(given, Run):
        return of_run(instance, given, band)
    lower = given.lower if isinstance(given, Result) else None
    schedule = given.schedule if isinstance(given, Result) else given
    if not isinstance(schedule, problem_of(instance).schedule):
        raise InputError(f"a {type(given).__name__} is no schedule, result or run", source=label)
    measured = _replayed(instance, schedule, label, band)
    return Subject(label, "schedule", instance, measured, schedule=schedule, lower=lower)


def _replayed(instance: AnyInstance, schedule: AnySchedule, path: str, band: Band | None) -> Measured:
    """Metrics of a schedule that keeps all rules."""
    check = api.verify(instance, schedule)
    wrong = [*check.violations, *check.faults]
    if wrong or check.metrics is None:
        raise WrongSchedule(path, wrong)
    scoring = problem_of(instance).scoring
    if band is not None or scoring.machines(instance) is not None:
        return scoring.worst_case(instance, schedule, band or Band.one())
    return Measured(dict(check.metrics.items()), scoring.latencies(check.metrics))


def of_run(instance: AnyInstance, run: Run, band: Band | None = None) -> Subject:
    """A run on another system: as it was measured or, where its batches are known, as they are replayed.

    Parameters
    ----------
    instance : instance
    run : Run
    band : Band, optional
        Of machines that replay it.

    Raises
    ------
    InputError
        If its requests are not those of the instance.
    """
    if run.batches is None:
        return _measured(instance, run)
    scoring, own = problem_of(instance).scoring, dict[str, Fraction]()
    remarks: tuple[str, ...] = ()
    try:
        schedule, remarks = scoring.rebuilt(instance, run)
        own.update(scoring.own_times(instance, run))
        again = _replayed(instance, schedule, run.path, band)
    except InputError as error:
        remark = f"its batches cannot be replayed: {error.problem}"
        try:
            found = _measured(instance, run)
        except InputError as other:
            raise InputError(
                f"{remark}; read without the instance it {other.problem}", source=run.path
            ) from None
        remarks = (*found.measured.remarks, remark, *remarks)
        return replace(found, measured=replace(found.measured, remarks=remarks), own=own)
    span = seconds(max(batch.end for batch in run.batches) - min(batch.start for batch in run.batches))
    remark = f"the system itself took {span} from the first batch to the last"
    kind = f"{run.format}, its batches replayed"
    measured = replace(again, remarks=(remark, *remarks))
    return Subject(run.path, kind, instance, measured, schedule=schedule, own=own)


def _measured(instance: AnyInstance, run: Run) -> Subject:
    measured = problem_of(instance).scoring.measured(instance, run)
    return Subject(run.path, run.format, instance, measured, run.left_out)
