"""The command line: wiring only.  Every command loads what it needs when it runs."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from infermax_opt.cli import completion
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    FAILED,
    MAX_SIZE,
    PROGRESS,
    Program,
    check_inputs,
    check_output,
    not_drawn,
    output_option,
    progress_printer,
    save,
    wrote,
)
from infermax_opt.cli.import_ import import_
from infermax_opt.cli.latency import calibrate, configure
from infermax_opt.cli.simulate import simulate
from infermax_opt.cli.table import table
from infermax_opt.cli.workers import workers
from infermax_opt.core.errors import InputError
from infermax_opt.core.interrupts import heed_termination
from infermax_opt.files.json import STANDARD
from infermax_opt.files.schemas import SCHEMAS

if TYPE_CHECKING:
    from infermax_opt.core.result import Claim, LowerBound
    from infermax_opt.core.values import AnyInstance, AnySchedule

__all__ = ["cli", "main"]

INSTANCE = click.argument("instance_file", metavar="INSTANCE", shell_complete=completion.files)
SUBJECT = click.argument("subject_file", metavar="SCHEDULE|RESULT", shell_complete=completion.files)


class _Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in recent versions only
    """A positive number of seconds."""

    name = "s"
    MOST = 10**7

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        if not 0 < number <= self.MOST:
            self.fail(f"{value} is not between 0 and {self.MOST} seconds.", param, ctx)
        return number


@click.group(
    cls=Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="infermax-opt", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Tell how far from optimal an LLM-serving schedule is, and prove it.

    For a workload, a machine and a cost model: a schedule (upper bound), a lower bound with its
    proof, and the gap between the two.

    \b
    Examples:
      infermax-opt solve instances/toy.json
      infermax-opt import trace.csv --format azure --offline --first 100 -o trace.json
      infermax-opt schedule trace.json --scheduler sarathi -o sarathi.json
      infermax-opt verify trace.json sarathi.json
      infermax-opt plot trace.json sarathi.json -o sarathi.png

    Files are JSON, gzipped where the name ends in .gz.  The name - is standard input (gzipped or not)
    where a file is read, and standard output where one is written; the report then goes to standard
    error.

    \b
    Exit codes:
      0    done, also where Ctrl-C or SIGTERM stopped the search early and there is a result
      1    schedule or claim is wrong, or infeasible
      2    unusable input
      130  stopped by Ctrl-C before there was a result (`table` writes the rows that are finished)
      143  stopped by SIGTERM, likewise
    """  # noqa: D301
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@INSTANCE
@MAX_SIZE
@click.option(
    "--formulation",
    metavar="NAME",
    shell_complete=completion.formulations,
    help="For highs or cpsat: flow, csp; arcs, mip; aladdin.",
)
@click.option(
    "--solver",
    metavar="NAME",
    default="auto",
    show_default=True,
    shell_complete=completion.engines,
    help="Engine; `infermax-opt problems` lists those of each kind of instance.",
)
@click.option(
    "--warm-start",
    metavar="NAME|FILE|best|none",
    shell_complete=completion.starts,
    default="best",
    show_default=True,
    help="Scheduler, or schedule or result file (a name with '/' or '.json'), to start from.",
)
@click.option(
    "--time-limit",
    metavar="S",
    type=_Seconds(),
    default=60.0,
    show_default=True,
    help="Time for everything, s.",
)
@click.option(
    "--memory-limit",
    metavar="MIB",
    type=click.IntRange(1, 2**24),
    help="Memory that the engine may use, MiB.",
)
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the engine. Default: all cores.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@output_option("RESULT", "Write the result, schedule included, to this file.")
@PROGRESS
@AS_JSON
def solve(
    instance_file: str,
    formulation: str | None,
    solver: str,
    warm_start: str,
    time_limit: float,
    memory_limit: int | None,
    threads: int | None,
    seed: int,
    output: str | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Find a schedule and a lower bound, as close as the limits allow.

    Runs the schedulers, the closed-form bounds and one exact engine; where that has no chance,
    planners that know the output lengths, and a search for a better bound beside them.  Verifies
    what they found and reports both bounds and the gap.  Ctrl-C or SIGTERM stops early and still reports.
    With -o, the certificate of the bound is written beside the result, where there is one.
    Makespan instances: the paper's methods (with estimated and with true output lengths), then
    the exact engine where that has a chance, then annealing.
    Placements: heuristics, packing, then an engine that decides whether fewer workers are enough;
    says for every smaller number of workers why it is not enough.

    \b
    Examples:
      infermax-opt solve instances/toy.json
      infermax-opt solve instances/makespan-100x20.json --time-limit 20 -o result.json
      infermax-opt solve instances/placement-long-prompts-50.json -o result.json
      infermax-opt solve instances/paper-csp/i64.json --solver cpsat --time-limit 20 -o result.json
      infermax-opt solve trace.json --warm-start sarathi.json --json > result.json
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.result import Status
    from infermax_opt.files.instances import read_instance
    from infermax_opt.files.report import result_text
    from infermax_opt.files.results import result_to_json, write_with_certificate

    check_output(output, instance_file, warm_start)
    instance = read_instance(instance_file)
    _check_solver(solver, instance, instance_file)
    result = api.solve(
        instance,
        formulation=formulation,
        solver=solver,
        warm_start=_warm_start(warm_start, instance),
        time_limit=time_limit,
        memory_limit=memory_limit and memory_limit * 2**20,
        threads=threads,
        seed=seed,
        progress=progress_printer(progress),
    )
    failure = None
    if output is not None:
        _tell_left_out(result.lower, output)
        try:
            result = write_with_certificate(instance, result, output)
        except InputError as error:  # the result itself must not be lost for it
            failure = error
    save(result_to_json(result), output, None if as_json else result_text(instance, result))
    if failure is not None:
        raise failure
    return FAILED if result.status is Status.INFEASIBLE else DONE


def _check_solver(solver: str, instance: AnyInstance, path: str) -> None:
    from infermax_opt.core.problem import problem_of

    problem = problem_of(instance)
    if solver not in problem.engines:
        able = ", ".join(problem.engines)
        text = f"{solver!r} is none of {able}, which instances of the problem {problem.name} take"
        raise InputError(text, field="solver", source=path)


def _tell_left_out(lower: LowerBound | None, output: str) -> None:
    """Say that there is no file beside standard output to hold the certificate of a bound."""
    from infermax_opt.core.result import Proof

    if output == STANDARD and lower is not None and lower.proof is Proof.CERTIFICATE:
        text = "the certificate of the bound is left out; -o FILE writes it beside the result"
        click.echo(f"infermax-opt: {text}", err=True)


def _warm_start(value: str, instance: AnyInstance) -> str | AnySchedule:
    if os.sep not in value and ".json" not in value and value != STANDARD:
        return value
    from infermax_opt.files.results import read_subject

    schedule = _schedule_of(read_subject(value, instance))
    if schedule is None:
        raise InputError("holds no schedule", source=value, field="schedule")
    return schedule


def _schedule_of(subject: AnySchedule | Claim) -> AnySchedule | None:
    from infermax_opt.core.result import Claim

    return subject.schedule if isinstance(subject, Claim) else subject


@cli.command()
@INSTANCE
@MAX_SIZE
@click.option(
    "--time-limit",
    metavar="S",
    type=_Seconds(),
    default=60.0,
    show_default=True,
    help="Time to improve the bounds, s.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    shell_complete=completion.files,
    help="Write the best bound's certificate, for `check`, to this file.",
)
@output_option("RESULT", "Write the best bound to this file, as a result without a schedule.")
@PROGRESS
@AS_JSON
def bound(
    instance_file: str,
    time_limit: float,
    certificate: str | None,
    output: str | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Lower bounds alone; no schedule does better.

    \b
    Examples:
      infermax-opt bound instances/paper-csp/i64.json
      infermax-opt bound trace.json --certificate certificate.json.gz
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.result import Result
    from infermax_opt.files.instances import read_instance
    from infermax_opt.files.report import bounds_text, bounds_to_json
    from infermax_opt.files.results import write_result, write_with_certificate

    check_output(output, instance_file)
    check_output(certificate, instance_file)
    if output and certificate and os.path.realpath(output) == os.path.realpath(certificate):
        raise InputError("result and certificate cannot be the same file", source=output)
    instance = read_instance(instance_file)
    progress_printer(progress)
    bounds = api.bound(instance, time_limit=time_limit)
    if not bounds and (output or certificate):
        raise InputError("no lower bound is known, so there is none to write", source=instance_file)
    if certificate is not None:
        api.write_certificate(instance, bounds[0], certificate)
    save(bounds_to_json(instance, bounds), None, None if as_json else bounds_text(instance, bounds))
    if output is not None:
        _tell_left_out(bounds[0], output)
        result = Result[Any, Any](instance.name, instance.sha256, instance.objective_name, lower=bounds[0])
        write_result(write_with_certificate(instance, result, output), output)
    return DONE


@cli.command()
@INSTANCE
@MAX_SIZE
@click.option(
    "--scheduler",
    metavar="NAME",
    required=True,
    shell_complete=completion.schedulers,
    help="See `infermax-opt schedulers`.",
)
@output_option("SCHEDULE", "Write the schedule to this file.")
@AS_JSON
def schedule(instance_file: str, scheduler: str, output: str | None, as_json: bool) -> int:
    """Run one scheduler, method or placement heuristic and print the metrics of its schedule.

    With --json the schedule itself is printed, as it would be written to a file.

    \b
    Examples:
      infermax-opt schedule instances/toy.json --scheduler vllm
      infermax-opt schedule trace.json --scheduler sarathi@r64 -o sarathi.json
      infermax-opt schedule instances/placement-toy.json --scheduler best-fit
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.files.instances import any_schedule_to_json, read_instance
    from infermax_opt.files.report import verification_text

    check_output(output, instance_file)
    instance = read_instance(instance_file)
    made = api.run_heuristic(instance, scheduler)
    check = api.verify(instance, made.schedule)
    text = "\n".join([verification_text(instance, check), *(f"  {remark}" for remark in made.remarks)])
    save(any_schedule_to_json(made.schedule), output, None if as_json else text)
    return DONE if check.ok else FAILED


@cli.command()
@INSTANCE
@MAX_SIZE
@SUBJECT
@click.option("--strict", is_flag=True, help="Exit code 1 also where a claim could not be checked.")
@AS_JSON
def verify(instance_file: str, subject_file: str, strict: bool, as_json: bool) -> int:
    """Replay a schedule, check every limit, re-check every claim of a result.

    Exit code 1 where anything is wrong.  A lower bound proved by formula is recomputed, its
    certificate checked; one that a solver proved is decided by enumerating every schedule of a small
    instance, and refuted above what a plain schedule attains.  Claims that could not be checked are
    listed, with the reason.  The placement of a stream is replayed over all heartbeats, and its limits
    are checked at each.

    \b
    Examples:
      infermax-opt verify instances/toy.json result.json
      infermax-opt verify instances/toy.json result.json --strict
      infermax-opt verify instances/toy.json schedule.json --json
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.files.instances import read_instance
    from infermax_opt.files.report import verification_text, verification_to_json
    from infermax_opt.files.results import read_subject

    check_inputs(instance_file, subject_file)
    instance = read_instance(instance_file)
    check = api.verify(instance, read_subject(subject_file, instance))
    text = None if as_json else verification_text(instance, check)
    save(verification_to_json(instance, check), None, text)
    return FAILED if not check.ok or (strict and check.unchecked) else DONE


@cli.command()
@INSTANCE
@MAX_SIZE
@click.argument("certificate_file", metavar="CERTIFICATE", shell_complete=completion.files)
def check(instance_file: str, certificate_file: str) -> int:
    """Recompute a lower bound from its certificate, in exact arithmetic, trusting nothing else.

    Exit code 1 where the certificate is rejected.  `scripts/check_certificate.py` does the same
    without this package.

    \b
    Example:
      infermax-opt bound instances/toy.json --certificate certificate.json
      infermax-opt check instances/toy.json certificate.json
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.certification import CertificateRejected
    from infermax_opt.files.instances import read_instance
    from infermax_opt.files.text import seconds

    check_inputs(instance_file, certificate_file)
    instance = read_instance(instance_file)
    try:
        proved = api.check_certificate(instance, certificate_file)
    except CertificateRejected as rejected:
        click.echo(f"infermax-opt: {rejected}", err=True)
        return FAILED
    click.echo(f"certified: no schedule of {instance.name} takes less than {seconds(proved)}")
    return DONE


@cli.command()
@INSTANCE
@MAX_SIZE
@SUBJECT
@output_option("PICTURE", "Write the picture to this .png or .svg file.", required=True)
def plot(instance_file: str, subject_file: str, output: str) -> int:
    """Draw a schedule: what each request does over time, and the KV cache it takes.

    Of a placement, what each worker uses of its limits.

    \b
    Examples:
      infermax-opt plot instances/toy.json result.json -o toy.png
      infermax-opt plot trace.json sarathi.json -o sarathi.svg
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.problem import problem_of
    from infermax_opt.files.figure import picture_format
    from infermax_opt.files.instances import read_instance
    from infermax_opt.files.results import read_subject

    picture_format(output)
    check_output(output, instance_file, subject_file)
    instance = read_instance(instance_file)
    subject = read_subject(subject_file, instance)
    if _schedule_of(subject) is None:
        raise InputError("holds no schedule to draw", source=subject_file, field="schedule")
    check = api.verify(instance, subject)
    wrong = [*check.violations, *check.faults]
    if wrong:
        return not_drawn(subject_file, wrong)
    problem_of(instance).plot(instance, subject, output)
    wrote(output)
    return DONE


@cli.command()
@AS_JSON
def versions(as_json: bool) -> int:
    """Versions of this package and of what it computes with."""
    import platform

    from infermax_opt.api import package_versions

    found = {**package_versions(), "python": platform.python_version()}
    value = {"schema": SCHEMAS["versions"], **found}
    save(value, None, None if as_json else "\n".join(f"{name:13} {text}" for name, text in found.items()))
    return DONE


@cli.command()
@AS_JSON
def schedulers(as_json: bool) -> int:
    """Names for `schedule --scheduler` and `solve --warm-start`."""
    from infermax_opt.core.problem import problems

    found: dict[str, Any] = {"schema": SCHEMAS["schedulers"]}
    for problem in problems():
        found.setdefault(problem.heuristics_title, []).extend(problem.heuristics())
    text = "\n\n".join(
        f"{problem.heuristics_title} of {problem.name} instances\n{problem.heuristics_text()}"
        for problem in problems()
    )
    save(found, None, None if as_json else text)
    return DONE


@cli.command(name="problems")
@AS_JSON
def problems_(as_json: bool) -> int:
    """Kinds of instances, and the engines of each for `solve --solver`."""
    from infermax_opt.core.problem import problems
    from infermax_opt.files.text import aligned

    rows = [(problem.name, problem.about, f"--solver {'|'.join(problem.engines)}") for problem in problems()]
    found = [
        {"name": problem.name, "about": problem.about, "engines": list(problem.engines)}
        for problem in problems()
    ]
    save(
        {"schema": SCHEMAS["problems"], "problems": found},
        None,
        None if as_json else "\n".join(aligned(rows, indent="")),
    )
    return DONE


@cli.command()
@AS_JSON
def profiles(as_json: bool) -> int:
    """Shipped cost profiles, with the mean relative error of their fit."""
    from infermax_opt.infermax.data.profiles import load_profile, profile_names, profiles_text

    found = [load_profile(name) for name in profile_names()]
    value = [
        {"name": p.name, "model": p.model, "device": p.device, "kv_capacity": p.kv_capacity,
         "fit_error": p.fit_error, "source": p.source}
        for p in found
    ]  # fmt: skip
    save({"schema": SCHEMAS["profiles"], "profiles": value}, None, None if as_json else profiles_text(found))
    return DONE


cli.add_command(import_)
cli.add_command(table)
cli.add_command(calibrate)
cli.add_command(configure)
cli.add_command(workers)
cli.add_command(simulate)
cli.add_command(completion.completion)


def main() -> None:
    """Entry point of the console script."""
    heed_termination()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    cli.main(prog_name="infermax-opt")
