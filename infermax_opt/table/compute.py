"""Computing one row of a table: a pure function of an instance and options.

A job and its answer are plain JSON values (`run_job`), so that any executor that calls a function
somewhere can run rows; `infermax_opt.table.pool` does it in local processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.problem import (
    INFERMAX,
    MAKESPAN,
    PLACEMENT,
    AnyInstance,
    AnySchedule,
    Problem,
    problem_of,
)
from infermax_opt.core.result import AnyResult, MakespanResult, PlacementResult, Result, UpperBound
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.verify import AnyVerification, Trust, verify
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.table.row import AnyRow, MakespanRow, PlacementRow, Row, RowOptions

__all__ = ["Job", "compute_row", "run_job"]

R = TypeVar("R", bound=AnyResult)

#: What every scheduler or method made of an instance; None where it failed.
_Runs = dict[str, tuple[AnySchedule, AnyVerification] | None]


@dataclass(frozen=True)
class Job:
    """A row to compute, and where its files go.

    Parameters
    ----------
    suite, name : str
    folder : str
        The table's; ``instances/NAME.json`` is there already.
    version : str
        Of this package, as part of the row's identity.
    options : RowOptions
    threads : int
        Threads that `infermax_opt.solve` may use; no part of the row's identity.
    archive : str, optional
        Folder of the best-known archive.
    """

    suite: str
    name: str
    folder: str
    version: str
    options: RowOptions
    threads: int
    archive: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the value that `run_job` takes."""
        return {**self.__dict__, "options": dict(self.options.__dict__)}


def run_job(value: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the row of a job.

    Returns
    -------
    dict
        The row.

    Raises
    ------
    InputError
        If the row must not be published: something in it did not pass verification.
    """
    from infermax_opt.files.instances import read_instance

    job = Job(**{**value, "options": RowOptions(**value["options"])})
    instance = read_instance(Path(job.folder, "instances", f"{job.name}.json"))
    return compute_row(instance, job).to_json()


def compute_row(instance: AnyInstance, job: Job) -> AnyRow:
    """Solve, run every scheduler, verify, write the result file and fill in the row."""
    from infermax_opt.files.results import write_result
    from infermax_opt.table.archive import Archive, schedule_sha256

    archived = None
    if job.archive is not None:
        archived = Archive(job.archive, job.suite).schedule(instance)
    runs = _run_schedulers(instance)
    result = _solve(instance, job, archived, runs)
    kind = problem_of(instance).heuristic
    for name, run in runs.items():
        if run is not None:
            result = _better(result, f"{kind}:{name}", *run)
    check = verify(instance, result)
    if check.bound is Trust.SOLVER and result.certified is not None:
        # A table states what can be checked, even where a solver claims more.  Optima of other
        # problems have nothing but a solver's word: their rows say so, and name the closed form.
        result = replace(result, lower=result.certified)
        check = verify(instance, result)
    if not check.ok:
        raise InputError(f"did not pass verification: {[*check.violations, *check.faults][0]}")

    protocol = job.options.protocol(job.version)
    folder = Path(job.folder)
    made = [folder / kind / protocol for kind in ("results", "certificates")]
    for place in made:
        place.mkdir(parents=True, exist_ok=True)
    results, certificates = made
    certificate = _certificate(instance, result, certificates)
    if certificate is not None and result.lower is not None:
        named = f"../../certificates/{protocol}/{certificate}"
        result = replace(result, lower=replace(result.lower, certificate=named))
    path = results / f"{instance.name}.json.gz"
    write_result(result, path)

    upper, lower, report = result.upper, result.lower, result.solver
    shared: dict[str, Any] = {
        "suite": job.suite,
        "instance": instance.name,
        "instance_sha256": result.instance_sha256,
        "protocol": protocol,
        "requests": len(instance.requests),
        "status": result.status.value,
        "upper_bound": _rounded(upper.value, "ceiling") if upper else None,
        "lower_bound": _rounded(lower.value, "floor") if lower else None,
        "bound": lower.source if lower else None,
        "proof": lower.proof.value if lower else None,
        "bound_check": check.bound.value if check.bound else None,
        "certificate": f"certificates/{protocol}/{certificate}" if certificate else None,
        "schedule_source": upper.source if upper else None,
        "schedule_sha256": schedule_sha256(result.schedule) if result.schedule else None,
        "result": path.relative_to(folder).as_posix(),
        "schedulers": {name: run and run[1].objective for name, run in runs.items()},
        "seconds": round(report.seconds, 3) if report and report.seconds is not None else None,
        "time_limit": job.options.time_limit,
        "seed": job.options.seed,
        "best_known": job.options.best_known,
        "threads": job.threads,
        "versions": dict(report.versions) if report else {},
    }
    own = _OWN[problem_of(instance)]
    return own(instance, result, shared)


def _batches(instance: Instance, result: Result, shared: Mapping[str, Any]) -> Row:
    metrics = result.metrics
    return Row(
        **shared,
        input_tokens=_only({t.input_tokens for t in instance.types}),
        output_tokens=_only({t.output_tokens for t in instance.types}),
        kv_capacity=instance.system.kv_capacity,
        max_batch_tokens=instance.system.max_batch_tokens,
        max_prefill_tokens=instance.system.max_prefill_tokens,
        batches=metrics.batches if metrics else None,
        evictions=metrics.evictions if metrics else None,
    )


def _clients(instance: MakespanInstance, result: MakespanResult, shared: Mapping[str, Any]) -> MakespanRow:
    metrics, certified = result.metrics, result.certified
    return MakespanRow(
        **shared,
        clients=instance.clients,
        input_tokens=sum(r.input_tokens for r in instance.requests),
        output_tokens=sum(r.output_tokens for r in instance.requests),
        closed_form=_rounded(certified.value, "floor") if certified else None,
        bins=metrics.bins if metrics else None,
        rounds=metrics.rounds if metrics else None,
        utilisation=_nearest(metrics.utilisation if metrics else None),
        tokens_per_second=_nearest(metrics.tokens_per_second if metrics else None),
    )


def _workers(instance: PlacementInstance, result: PlacementResult, shared: Mapping[str, Any]) -> PlacementRow:
    metrics, certified = result.metrics, result.certified
    return PlacementRow(
        **shared,
        ongoing_requests=sum(r.ongoing for r in instance.requests),
        input_tokens=sum(r.input_tokens for r in instance.requests),
        output_tokens=sum(r.predicted_output_tokens for r in instance.requests),
        closed_form=certified.value if certified else None,
        gpus=metrics.gpus if metrics else None,
        mean_iteration_use=_nearest(metrics.mean_iteration_use if metrics else None),
        mean_prefill_use=_nearest(metrics.mean_prefill_use if metrics else None),
        mean_kv_use=_nearest(metrics.mean_kv_use if metrics else None),
    )


#: What fills in the columns that only rows of that problem have.
_OWN: dict[Problem, Callable[..., AnyRow]] = {INFERMAX: _batches, MAKESPAN: _clients, PLACEMENT: _workers}


def _rounded(value: Fraction, rounding: Literal["floor", "ceiling", "nearest"]) -> Fraction:
    """The value, as a decimal that ends."""
    return Fraction(decimal_text(value, rounding=rounding))


def _nearest(value: Fraction | None) -> Fraction | None:
    return None if value is None else _rounded(value, "nearest")


def _run_schedulers(instance: AnyInstance) -> _Runs:
    """What every scheduler, method or heuristic makes of the instance; None where it fails."""
    from infermax_opt.api import schedule as run_scheduler

    runs: _Runs = {}
    for name in _names(instance):
        try:
            schedule = run_scheduler(instance, name)
        except InputError:  # it needs too many batches, or workers
            runs[name] = None
            continue
        check = verify(instance, schedule)
        runs[name] = (schedule, check) if check.ok else None
    return runs


def _names(instance: AnyInstance) -> Sequence[str]:
    problem = problem_of(instance)
    if problem is MAKESPAN:
        from infermax_opt.makespan.methods.by_name import METHODS

        return list(METHODS)
    if problem is PLACEMENT:
        from infermax_opt.placement.heuristics.place import HEURISTICS

        return list(HEURISTICS)
    from infermax_opt.infermax.schedulers import scheduler_names

    return scheduler_names()


def _solve(instance: AnyInstance, job: Job, archived: AnySchedule | None, runs: _Runs) -> AnyResult:
    """Solve, from the archived schedule where that beats every scheduler."""
    from infermax_opt.api import solve

    if archived is not None:
        known = verify(instance, archived).objective
        values = [run[1].objective for run in runs.values() if run is not None]
        if known is None or any(value is not None and value <= known for value in values):
            archived = None
    result = solve(
        instance,
        warm_start="best" if archived is None else archived,
        time_limit=job.options.time_limit,
        threads=job.threads,
        seed=job.options.seed,
    )
    upper = result.upper
    if archived is not None and upper is not None and result.schedule == archived:
        return replace(result, upper=UpperBound(upper.value, "archive"))
    return result


def _better(result: R, source: str, schedule: AnySchedule, check: AnyVerification) -> R:
    """The result, with this schedule where it is better: no number of a row beats its schedule."""
    value = check.objective
    if value is None or (result.upper is not None and result.upper.value <= value):
        return result
    found: dict[str, Any] = {"schedule": schedule, "metrics": check.metrics}
    return replace(result, upper=UpperBound(value, source), **found)


def _certificate(instance: AnyInstance, result: AnyResult, directory: Path) -> str | None:
    """Write the certificate of the result's bound into `directory` and run the checker on it.

    Returns
    -------
    str or None
        Name of the file; None where the bound has no certificate that the checker accepts.
    """
    from infermax_opt.files.certificates import CertificateRejected, check_certificate, write_certificate

    if result.lower is None or result.lower.evidence is None:
        return None
    path = directory / f"{instance.name}.json.gz"
    write_certificate(instance, result.lower, path)
    try:
        check_certificate(instance, path)
    except CertificateRejected:
        return None
    return path.name


def _only(values: set[int]) -> int | None:
    return values.pop() if len(values) == 1 else None
