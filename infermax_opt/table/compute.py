"""Computing one row of a table: a pure function of an instance and options.

A job and its answer are plain JSON values (`run_job`), so that any executor that calls a function
somewhere can run rows; `infermax_opt.table.pool` does it in local processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

from infermax_opt import api
from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import AnyResult, UpperBound
from infermax_opt.core.truth import Trust
from infermax_opt.core.values import AnyInstance, AnySchedule
from infermax_opt.core.verification import AnyVerification
from infermax_opt.files.certificates import check_certificate, write_certificate
from infermax_opt.files.results import write_result
from infermax_opt.table.archive import Archive, schedule_sha256
from infermax_opt.table.row import Row, RowOptions

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


def compute_row(instance: AnyInstance, job: Job) -> Row:
    """Solve, run every scheduler, verify, write the result file and fill in the row."""
    archived = None
    if job.archive is not None:
        archived = Archive(job.archive, job.suite).schedule(instance)
    runs = _run_schedulers(instance)
    result = _solve(instance, job, archived, runs)
    kind = problem_of(instance).heuristic
    for name, run in runs.items():
        if run is not None:
            result = _better(result, f"{kind}:{name}", *run)
    result, check = _verified(instance, result)
    result, path, certificate = _written(instance, result, job)
    row_kind = problem_of(instance).row_kind
    return Row(
        kind=row_kind,
        own=row_kind.cells(instance, result),
        suite=job.suite,
        instance=instance.name,
        instance_sha256=result.instance_sha256,
        protocol=job.options.protocol(job.version),
        requests=len(instance.requests),
        bound_check=check.bound_words,
        certificate=certificate,
        result=path,
        schedulers={name: run and run[1].objective for name, run in runs.items()},
        time_limit=job.options.time_limit,
        seed=job.options.seed,
        best_known=job.options.best_known,
        threads=job.threads,
        **_found(result),
    )


def _verified(instance: AnyInstance, result: AnyResult) -> tuple[AnyResult, AnyVerification]:
    """The result as the table states it, and what the verifier says of that.

    Raises
    ------
    InputError
        If something in it is wrong.
    """
    check = api.verify(instance, result)
    takes_word = problem_of(instance).row_kind.solver_bounds
    if check.bound is Trust.UNCHECKED and result.certified is not None and not takes_word:
        # A table states what can be checked, even where a solver claims more.
        result = replace(result, lower=result.certified)
        check = api.verify(instance, result)
    if not check.ok:
        raise InputError(f"did not pass verification: {[*check.violations, *check.faults][0]}")
    return result, check


def _written(instance: AnyInstance, result: AnyResult, job: Job) -> tuple[AnyResult, str, str | None]:
    """Write result and certificate; the result that names it, and both files below the table's folder."""
    protocol, folder = job.options.protocol(job.version), Path(job.folder)
    results, certificates = (folder / kind / protocol for kind in ("results", "certificates"))
    for place in (results, certificates):
        place.mkdir(parents=True, exist_ok=True)
    name = _certificate(instance, result, certificates)
    if name is not None and result.lower is not None:
        named = f"../../certificates/{protocol}/{name}"
        result = replace(result, lower=replace(result.lower, certificate=named))
    path = results / f"{instance.name}.json.gz"
    write_result(result, path)
    certificate = f"certificates/{protocol}/{name}" if name else None
    return result, path.relative_to(folder).as_posix(), certificate


def _found(result: AnyResult) -> dict[str, Any]:
    """The fields of a row that come from the result alone."""
    upper, lower, report = result.upper, result.lower, result.solver
    return {
        "status": result.status.value,
        "upper_bound": _rounded(upper.value, "ceiling") if upper else None,
        "lower_bound": _rounded(lower.value, "floor") if lower else None,
        "bound": lower.source if lower else None,
        "proof": lower.proof.value if lower else None,
        "schedule_source": upper.source if upper else None,
        "schedule_sha256": schedule_sha256(result.schedule) if result.schedule else None,
        "seconds": round(report.seconds, 3) if report and report.seconds is not None else None,
        "versions": dict(report.versions) if report else {},
    }


def _rounded(value: Fraction, rounding: Literal["floor", "ceiling", "nearest"]) -> Fraction:
    """The value, as a decimal that ends."""
    return Fraction(decimal_text(value, rounding=rounding))


def _run_schedulers(instance: AnyInstance) -> _Runs:
    """What every scheduler, method or heuristic makes of the instance; None where it fails."""
    runs: _Runs = {}
    for name in problem_of(instance).heuristics_for(instance):
        try:
            schedule = api.schedule(instance, name)
        except InputError:  # it needs too many batches, or workers
            runs[name] = None
            continue
        check = api.verify(instance, schedule)
        runs[name] = (schedule, check) if check.ok else None
    return runs


def _solve(instance: AnyInstance, job: Job, archived: AnySchedule | None, runs: _Runs) -> AnyResult:
    """Solve, from the archived schedule where that beats every scheduler."""
    if archived is not None:
        known = api.verify(instance, archived).objective
        values = [run[1].objective for run in runs.values() if run is not None]
        if known is None or any(value is not None and value <= known for value in values):
            archived = None
    result = api.solve(
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
    certification = problem_of(instance).certification
    if certification is None or result.lower is None or result.lower.evidence is None:
        return None
    path = directory / f"{instance.name}.json.gz"
    write_certificate(instance, result.lower, path, certification)
    try:
        check_certificate(instance, path, certification)
    except CertificateRejected:
        return None
    return path.name
