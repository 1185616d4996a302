"""From files to scores: what is read, which instance it belongs to, the bounds that it is set against."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infermax_opt import api
from infermax_opt.core.band import Band, require_band
from infermax_opt.core.checks import checked_path, checked_seconds, checked_texts
from infermax_opt.core.errors import InputError
from infermax_opt.core.progress import Progress
from infermax_opt.core.registry import first_problem, problem_of, problem_of_instance
from infermax_opt.core.result import AnyResult, LowerBound
from infermax_opt.core.values import AnyInstance, AnySchedule
from infermax_opt.files.bounds_from_elsewhere import require_made_for, require_true_of_one
from infermax_opt.files.names import stem
from infermax_opt.foreign.reading import guess_format, read_run
from infermax_opt.foreign.run import Run
from infermax_opt.gaps.bounds import aimed_at, best_bounds
from infermax_opt.gaps.score import Group, compare
from infermax_opt.gaps.subjects import Subject, of_given, of_run, of_schedule

__all__ = [
    "Source",
    "compare_schedulers",
    "gap",
    "gaps_on_machine",
    "score",
    "subjects_of_instance",
    "subjects_on_machine",
]

#: Schedules and results, among the formats.
OWN = "schedule"


@dataclass(frozen=True)
class Source:
    """Files to be scored.

    Attributes
    ----------
    paths : tuple of str
    form : str or None
        Format of all of them; None guesses it for each.
    choices : mapping
        What runs do not say themselves: see `infermax_opt.foreign.reading.read_run`.
    """

    paths: tuple[str, ...]
    form: str | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)

    def run(self, path: str, form: str | None) -> Run:
        """The run of one file."""
        return read_run(path, form, **self.choices)


def subjects_of_instance(instance: AnyInstance, source: Source, band: Band | None = None) -> list[Subject]:
    """Schedules and results of an instance, and runs of its requests on other systems.

    Parameters
    ----------
    instance : instance
    source : Source
    band : Band, optional
        Of machines; metrics of schedules are then the largest on any of them.

    Raises
    ------
    InputError
        If a file cannot be read, or is about other requests.
    """
    found = []
    for path in source.paths:
        kind = source.form or guess_format(path) or OWN
        if kind == OWN:
            found.append(of_schedule(instance, path, band))
        else:
            found.append(of_run(instance, source.run(path, kind), band))
    return found


def subjects_on_machine(
    path: str,
    source: Source,
    *,
    limits: Mapping[str, str],
    slos: Sequence[str] = (),
    band: Band | None = None,
) -> list[Subject]:
    """Runs on other systems, each with an instance of its own: its requests on a machine.

    Parameters
    ----------
    path : str
        File that says the machine: an instance, whose requests do not matter, or what else the problem takes.
    source : Source
    limits : mapping of limit to value
        Of the machine, instead of its own.
    slos : sequence of str
        Service levels of the requests, as command-line options name them.
    band : Band, optional
        Of machines that replay runs whose batches are known.

    Raises
    ------
    InputError
        If a file cannot be read, or a request can never fit.
    """
    if source.form == OWN:
        raise InputError("a schedule has no requests; name its instance", field="format")
    problem, found = first_problem(), []
    machine = problem.scoring.machine(path, limits)
    for file in source.paths:
        run = source.run(file, source.form)
        instance = problem.scoring.run_instance(machine, run, stem(file))
        found.append(of_run(problem.aimed(instance, None, slos) if slos else instance, run, band))
    return found


def gap(
    instance: AnyInstance,
    *runs: AnySchedule | AnyResult | Run,
    labels: Sequence[str] = (),
    metrics: Sequence[str] = (),
    time_limit: float = 60.0,
    band: Band | None = None,
    progress: Progress | None = None,
) -> Group:
    """How far runs are from optimal, metric by metric.

    Parameters
    ----------
    instance : instance of any problem
    *runs : schedule, Result or Run
        Of the requests of the instance; in the result they are called 1, 2, ..., runs by their path.
    labels : sequence of str
        What they are called instead, one each.
    metrics : sequence of str
        To be compared; none are those that the problem compares.
    time_limit : float
        Seconds for the search for bounds, all metrics together.
    band : Band, optional
        Of machines that the bounds are to hold for.
    progress : callable, optional
        As in `infermax_opt.solve`.

    Returns
    -------
    Group
        Its `runs` have `rows` with ``value``, ``lower``, ``gap`` and ``gain``; those that are faster than a
        bound come first.

    Raises
    ------
    InputError
        If there is no run, a metric cannot be minimised, a schedule breaks a rule, or a run is of other
        requests.
    """
    require_band(band)
    if not runs:
        raise InputError("at least one is needed", field="runs")
    labels = checked_texts(labels, "labels")
    if labels and len(labels) != len(runs):
        raise InputError(f"{len(labels)} for {len(runs)} runs", field="labels")
    names = labels or [str(k) for k in range(1, len(runs) + 1)]
    subjects = [of_given(instance, given, label, band) for given, label in zip(runs, names, strict=True)]
    if labels:
        subjects = [replace(some, label=label) for some, label in zip(subjects, labels, strict=True)]
    (group,) = score(subjects, metrics=metrics, time_limit=time_limit, band=band, progress=progress)
    return group


def compare_schedulers(
    instance: AnyInstance,
    schedulers: Sequence[str] = (),
    *,
    metrics: Sequence[str] = (),
    time_limit: float = 60.0,
    progress: Progress | None = None,
) -> Group:
    """How far schedulers are from optimal on an instance, side by side.

    Parameters
    ----------
    instance : instance of any problem
    schedulers : sequence of str
        Names, or ``FILE.py:NAME``; none are all that `solve` would try.
    metrics : sequence of str
        As in `gap`.
    time_limit : float
        Seconds for the search for bounds, all metrics together; schedulers come on top.
    progress : callable, optional
        As in `gap`.

    Raises
    ------
    InputError
        If one makes no valid schedule of the instance; of all that are tried, such are left out.
    """
    made = {}
    names = checked_texts(schedulers, "schedulers")
    for name in names or problem_of_instance(instance).heuristics_for(instance):
        try:
            made[name] = api.schedule(instance, name)
        except InputError:
            if names:
                raise
    return gap(
        instance,
        *made.values(),
        labels=tuple(made),
        metrics=metrics,
        time_limit=time_limit,
        progress=progress,
    )


def gaps_on_machine(
    machine: str | os.PathLike[str],
    *paths: str | os.PathLike[str],
    format: str | None = None,
    limits: Mapping[str, Any] | None = None,
    slos: Sequence[str] = (),
    metrics: Sequence[str] = (),
    time_limit: float = 60.0,
    band: Band | None = None,
    **choices: Any,
) -> list[Group]:
    """How far runs of other systems are from optimal, where there is no instance but a machine.

    Parameters
    ----------
    machine : path
        Instance, whose requests do not matter, or cost profile.
    *paths : path
        Of runs.
    format : str, optional
        Of them; default: guessed where it is safe.
    limits : mapping of limit to value, optional
        Of the machine, such as ``kv_capacity``.
    slos : sequence of str
        Service levels, as `with_aim` takes them.
    metrics, time_limit, band
        As in `gap`.
    **choices
        What runs do not say themselves, as `read_run` takes it.

    Returns
    -------
    list of Group
        Of one instance each.

    Raises
    ------
    InputError
        If a file cannot be read, or a request can never fit.
    """
    source = Source(tuple(checked_path(path, "paths") for path in paths), format, choices)
    require_band(band)
    told = {name: str(value) for name, value in (limits or {}).items()}
    subjects = subjects_on_machine(
        checked_path(machine, "machine"), source, limits=told, slos=slos, band=band
    )
    return score(subjects, metrics=metrics, time_limit=time_limit, band=band)


def score(
    subjects: Sequence[Subject],
    *,
    metrics: Sequence[str] = (),
    time_limit: float = 60.0,
    known: Sequence[LowerBound] = (),
    band: Band | None = None,
    progress: Progress | None = None,
) -> list[Group]:
    """Set runs against the best checked bounds, instance by instance.

    Parameters
    ----------
    subjects : sequence of Subject
    metrics : sequence of str
        To be compared; none are those that the problem compares.
    time_limit : float
        Seconds for the search for bounds.
    known : sequence of LowerBound
        Bounds from elsewhere.
    band : Band, optional
        Of machines that the bounds are to hold for.
    progress : callable, optional
        As in `infermax_opt.solve`.

    Raises
    ------
    InputError
        If a metric cannot be minimised, or a bound was read from a file of another instance or is proved for
        none of the metrics.
    """
    checked_seconds(time_limit)
    metrics = tuple(dict.fromkeys(checked_texts(metrics, "metrics")))
    by_instance: dict[str, list[Subject]] = {}
    for subject in subjects:
        _check_metrics(subject.instance, metrics)
        by_instance.setdefault(subject.instance.sha256, []).append(subject)
    if known:
        of_each = [_scored(some[0].instance, metrics, band) for some in by_instance.values()]
        scored = [instance for some in of_each for instance in some]
        for k, lower in enumerate(known):
            require_made_for(lower, scored, f"bounds[{k}]")
            require_true_of_one(lower, scored, f"bounds[{k}]")
    groups = []
    for some in by_instance.values():
        instance = some[0].instance
        bounds = best_bounds(
            instance if band is None else problem_of(instance).scoring.scaled(instance, band.low),
            metrics or problem_of(instance).scoring.compared(instance),
            time_limit=time_limit / len(by_instance),
            known=[*known, *(subject.lower for subject in some if subject.lower is not None)],
            progress=progress,
        )
        groups.append(compare(instance, bounds, some, band))
    return groups


def _check_metrics(instance: AnyInstance, metrics: Sequence[str]) -> None:
    """Refuse what is no metric of an instance."""
    known = problem_of(instance).metrics.definitions
    for metric in metrics:
        if metric not in known:
            raise InputError(f"{metric!r} is none of {', '.join(known)}", field="metric")


def _scored(instance: AnyInstance, metrics: Sequence[str], band: Band | None) -> list[AnyInstance]:
    """The instances whose bounds count: aimed at each metric, on the machine and on those of a band."""
    scoring = problem_of(instance).scoring
    machines = [instance]
    if band is not None:
        machines += [scoring.scaled(instance, band.low), scoring.banded(instance, band)]
    wanted = metrics or scoring.compared(instance)
    return [instance, *(aimed for some in machines for aimed in aimed_at(some, wanted))]
