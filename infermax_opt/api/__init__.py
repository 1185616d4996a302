"""The Python API: solve, bound, schedule, verify.

Each function finds the problem of its instance and leaves the rest to it; none names a problem.  Whatever
stops an engine (a limit, Ctrl-C, a crash), the best verified schedule and the best valid bound so far are
returned.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.band import Band, require_band
from infermax_opt.core.checks import checked_seconds, checked_text
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import lower_rounding
from infermax_opt.core.problem import AnyProblem, Heuristic
from infermax_opt.core.registry import problem_of_instance
from infermax_opt.core.result import AnyResult, Claim, LowerBound, Result
from infermax_opt.core.values import AnyInstance, AnySchedule, amount
from infermax_opt.files import certificates
from infermax_opt.files.bounds_from_elsewhere import require_all_true, require_certified

if TYPE_CHECKING:
    from infermax_opt.core.progress import Progress
    from infermax_opt.core.verification import AnyVerification
    from infermax_opt.foreign.export.formulation import ExportedFormulation
    from infermax_opt.foreign.export.requests import ExportedRequests

__all__ = [
    "as_claimed",
    "bound",
    "check_certificate",
    "export_formulation",
    "export_requests",
    "on_band",
    "run_heuristic",
    "schedule",
    "solve",
    "verify",
    "write_certificate",
]


def bound(
    instance: AnyInstance,
    *,
    time_limit: float | None = 60.0,
    progress: Progress | None = None,
    band: Band | None = None,
) -> tuple[LowerBound, ...]:
    """All lower bounds on the objective, best first, exact, in its unit (seconds, or workers).

    Ctrl-C ends the search for better ones; those found so far are returned, closed forms always.

    Parameters
    ----------
    instance : instance of any problem
    time_limit : float, optional
        Seconds after which a bound that takes a search is no longer improved; None is no limit.
    progress : callable, optional
        As in `solve`.
    band : Band, optional
        Of machines that they are to hold for.
    """
    from infermax_opt.core.compiling_apart import UNCOMPILED, in_time
    from infermax_opt.core.deadline import Deadline
    from infermax_opt.core.progress import Teller

    instance = on_band(instance, band)
    checked_seconds(time_limit)
    tell = Teller(progress)
    late, found = Deadline(time_limit), list[LowerBound]()
    try:
        with in_time(lambda: bool(found) and late()) as limit:
            for lower in problem_of_instance(instance).bounds(instance, stop=late):
                require_certified(instance, lower)
                found.append(lower)
                best = max(some.value for some in found)
                text = f"lower bound {amount(instance, lower.value, lower_rounding())} ({lower.source})"
                tell(text, "bound", bound=best, source=lower.source)
    except KeyboardInterrupt:
        if not found:
            raise
    if limit.ended:
        tell(": ".join(UNCOMPILED), "untried")
    return tuple(sorted(found, key=lambda lower: -lower.value))


def run_heuristic(instance: AnyInstance, name: str) -> Heuristic[Any]:
    """Run a scheduler, method or heuristic of the instance's problem; as `schedule`, with remarks."""
    checked_text(name, "scheduler")
    return problem_of_instance(instance).run_heuristic(instance, name)


def schedule(instance: AnyInstance, scheduler: str) -> Any:
    """Schedule that a scheduler, method or heuristic of the instance's problem makes.

    Raises
    ------
    InputError
        If there is none of that name, or it makes no schedule of this instance.
    """
    return run_heuristic(instance, scheduler).schedule


def solve(
    instance: AnyInstance,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    warm_start: str | AnySchedule = "best",
    bounds: Sequence[LowerBound] = (),
    time_limit: float | None = 60.0,
    memory_limit: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    target: Fraction | None = None,
    band: Band | None = None,
) -> AnyResult:
    """Find a schedule and a lower bound, as close to each other as the limits allow.

    Parameters
    ----------
    instance : instance of any problem
    formulation : str, optional
        Formulation for the solvers ``highs`` and ``cpsat``, such as ``flow`` or ``csp``.
    solver : str
        One of the `engines` of the instance's problem.  ``auto`` chooses and says why in the result.
    warm_start : str or schedule
        ``"best"`` runs every scheduler and takes the best schedule, a scheduler's name takes that
        one, ``"none"`` takes none; or a schedule.
    bounds : sequence of LowerBound
        Bounds that are known already, such as those of `bound`.  The verifier checks each before it counts.
    time_limit : float, optional
        Wall-clock seconds for everything; None is no limit.
    memory_limit : int, optional
        Bytes that an engine may use.
    threads : int, optional
        Threads of an engine; default: all cores.
    seed : int
    progress : callable, optional
        Receives a `ProgressEvent` whenever there is news: seconds, value, bound and gap, and a line of text.
        It is called in this process and thread only; if it returns True or raises StopIteration, the search
        ends with what it has.
    target : Fraction, optional
        Value of the objective that is asked about.  The search ends as soon as it is known whether a schedule
        reaches it, which `answer` of the result says.
    band : Band, optional
        Of machines: the bound then holds for all of them, and the schedule is valued by its worst case.

    Returns
    -------
    Result
        Verified: its upper bound is the replayed objective of its schedule.

    Raises
    ------
    InputError
        If an option is unusable, the warm start breaks a rule, a bound is wrong or cannot be checked, or
        the chosen engine cannot express the instance.
    """
    from infermax_opt.core.solve_options import SolveOptions

    problem, instance = problem_of_instance(instance), on_band(instance, band)
    require_all_true(instance, bounds)
    _require_start(problem, warm_start)
    options = SolveOptions(
        engines=problem.engines,
        solver=solver,
        formulation=formulation,
        warm_start=warm_start,
        bounds=tuple(bounds),
        time_limit=time_limit,
        memory_limit=memory_limit,
        threads=threads,
        seed=seed,
        progress=progress,
        target=target,
    )
    result = problem.solve(instance, options)
    for found in (result.lower, result.certified):
        require_certified(instance, found)
    return result if band is None else replace(result, band=str(band))


def on_band(instance: AnyInstance, band: Band | None) -> AnyInstance:
    """The instance on all machines of a band; as it is without one.

    Parameters
    ----------
    instance : instance of any problem
    band : Band, optional

    Raises
    ------
    InputError
        If the problem has no such machines.
    """
    require_band(band)
    return instance if band is None else problem_of_instance(instance).scoring.banded(instance, band)


def as_claimed(instance: AnyInstance, claim: object) -> AnyInstance:
    """The instance on the machines that a claim names, if it names some and is not of the instance as it is.

    Parameters
    ----------
    instance : instance of any problem
    claim : Claim or schedule
    """
    if not isinstance(claim, Claim) or claim.band is None or claim.instance_sha256 == instance.sha256:
        return instance
    return on_band(instance, Band.parsed(claim.band))


def _require_start(problem: AnyProblem, warm_start: object) -> None:
    """Check that a start is a name or a schedule of the problem."""
    if not isinstance(warm_start, str | problem.schedule):
        text = f"is a {type(warm_start).__name__}, not a {problem.schedule.__name__}"
        raise InputError(text, field="warm_start")


def export_formulation(
    instance: AnyInstance,
    formulation: str,
    path: str | os.PathLike[str],
    *,
    warm_start: str | AnySchedule = "best",
    time_limit: float | None = 60.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> ExportedFormulation:
    """Write the model that `solve` hands to an engine with this formulation, for other solvers.

    Beside it stand a JSON file that says what each column means, and start files with the values of the
    schedule that `solve` starts from.  All of the files are written, or none.

    Parameters
    ----------
    instance : instance of any problem
    formulation : str
        Any that is installed for its problem, such as ``flow`` or ``csp``.
    path : path
        Ends in ``.mps``, ``.lp`` or ``.nl``; the first two also with ``.gz``.
    warm_start : str or schedule
        As in `solve`.  What is known to be attainable limits how much the model has to hold.
    time_limit : float, optional
        Seconds, of which schedulers and other heuristics have the share that they have in `solve`.
    seed : int
    progress : callable, optional
        As in `solve`.

    Returns
    -------
    ExportedFormulation

    Raises
    ------
    InputError
        If there is no such formulation, it does not cover the instance, its model would be too large, the
        start breaks a rule, or a file cannot be written.
    """
    from infermax_opt.core.progress import Teller
    from infermax_opt.core.solve_options import SolveOptions
    from infermax_opt.foreign.export.formulation import companions, write_formulation

    problem = problem_of_instance(instance)
    companions(path)
    _require_start(problem, warm_start)
    options = SolveOptions(
        engines=problem.engines, warm_start=warm_start, time_limit=time_limit, seed=seed, progress=progress
    )
    built = problem.build_formulation(instance, formulation, options)
    Teller(progress)(f"formulation {formulation}: built")
    return write_formulation(built, instance, path)


def export_requests(
    instance: AnyInstance,
    subject: AnySchedule | AnyResult | Claim,
    path: str | os.PathLike[str],
    format: str,
) -> ExportedRequests:
    """Write the requests of an instance in the order in which a schedule takes them up, for other systems.

    Parameters
    ----------
    instance : instance of any problem
    subject : schedule or result of such an instance, or Claim
        Verified first.
    path : path
        Of JSON lines, written whole or not at all.
    format : {"vllm-requests", "llmservingsim"}
        See `infermax_opt.foreign.export.requests`.

    Returns
    -------
    ExportedRequests

    Raises
    ------
    InputError
        If the schedule is wrong or there is none, there is no such format, the problem has no order of
        requests, or the file cannot be written.
    """
    from infermax_opt.foreign.export.requests import write_requests

    check = verify(instance, subject)
    wrong = [*check.violations, *check.faults]
    if wrong:
        raise InputError(f"is not exported, it is wrong: {wrong[0]}", field="schedule")
    claim = subject.claim() if isinstance(subject, Result) else subject
    schedule = claim.schedule if isinstance(claim, Claim) else claim
    if schedule is None:
        raise InputError("holds no schedule to export", field="schedule")
    admissions = problem_of_instance(instance).admissions(instance, schedule)
    return write_requests(instance, admissions, path, format)


def verify(instance: AnyInstance, subject: AnySchedule | AnyResult | Claim) -> AnyVerification:
    """Verify a schedule, or all that a result claims.

    Parameters
    ----------
    instance : instance of any problem
    subject : schedule or result of such an instance, or Claim

    Returns
    -------
    verification
        Violations and faults as data; nothing is raised for a wrong schedule.  A result that names a band of
        machines is verified for these.

    Raises
    ------
    InputError
        If an argument is something else.
    """
    claim = subject.claim() if isinstance(subject, Result) else subject
    schedule = claim.schedule if isinstance(claim, Claim) else claim
    problem = _problem(instance)
    if problem is None or not isinstance(schedule, problem.schedule | None):
        raise InputError(
            "verify takes an instance and a schedule or result of its own problem, "
            f"not {type(instance).__name__} and {type(subject).__name__}"
        )
    return problem.verify(as_claimed(instance, claim), schedule, claim)


def _problem(instance: object) -> AnyProblem | None:
    try:
        return problem_of_instance(instance)
    except InputError:
        return None


def check_certificate(instance: AnyInstance, path: str | os.PathLike[str]) -> Fraction:
    """Bound that a certificate file proves for an instance, in the unit of its objective.

    Raises
    ------
    InputError
        If the file cannot be read, or bounds of the problem have no certificates.
    CertificateRejected
        If it does not prove what it claims; the text says why.
    """
    certification = problem_of_instance(instance).require_certification()
    return certificates.check_certificate(instance, path, certification)


def write_certificate(instance: AnyInstance, lower: LowerBound, path: str | os.PathLike[str]) -> None:
    """Write the certificate of a bound, whole or not at all.

    Parameters
    ----------
    instance : instance of any problem
    lower : LowerBound
        One with evidence.
    path : path
        ``.gz`` is compressed.

    Raises
    ------
    InputError
        If there are no certificates for such a bound, or the file cannot be written.
    """
    certification = problem_of_instance(instance).require_certification()
    certificates.write_certificate(instance, lower, path, certification)
