"""The command `solve`, and what others share with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from infermax_opt.cli import completion
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    FAILED,
    INSTANCE,
    MAX_SIZE,
    PROGRESS,
    check_output,
    check_outputs_differ,
    output_option,
    progress_printer,
    save,
    wrote,
)
from infermax_opt.cli.options import (
    aimed,
    asked,
    asking,
    band_option,
    read_aimed,
    read_band,
    seed_option,
    time_limit_option,
)
from infermax_opt.core.errors import InputError
from infermax_opt.core.script import file_and_name
from infermax_opt.files.json import STANDARD

if TYPE_CHECKING:
    from infermax_opt.core.result import AnyResult, LowerBound
    from infermax_opt.core.values import AnyInstance, AnySchedule

__all__ = ["naming", "naming_each", "read_start", "solve", "tell_left_out"]


#: Option for a picture of the solve itself.
PLOT = click.option(
    "--plot",
    metavar="PICTURE",
    shell_complete=completion.files,
    help="Draw how schedule and bound came together over the time of the solve (.png, .svg).",
)


@click.command()
@INSTANCE
@aimed
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
    help="Scheduler (its name, or FILE.py:NAME), or schedule or result file (a name with '/' or '.json'), "
    "to start from.",
)
@click.option(
    "--bound",
    "bounds",
    metavar="FILE",
    multiple=True,
    shell_complete=completion.files,
    help="Lower bound found before: a certificate, or a result that `bound` or `solve` wrote; checked.",
)
@time_limit_option("Time for everything, s.")
@click.option(
    "--memory-limit",
    metavar="MIB",
    type=click.IntRange(1, 2**24),
    help="Memory that the engine may use, MiB.",
)
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the engine. Default: all cores.")
@seed_option("The same seed gives the same, as far as time allows.")
@asking
@band_option
@PLOT
@output_option("RESULT", "Write the result, schedule included, to this file.")
@PROGRESS
@AS_JSON
def solve(
    instance_file: str,
    objective: str | None,
    slos: tuple[str, ...],
    formulation: str | None,
    solver: str,
    warm_start: str,
    bounds: tuple[str, ...],
    time_limit: float,
    memory_limit: int | None,
    threads: int | None,
    seed: int,
    at_most: tuple[str, ...],
    at_least: tuple[str, ...],
    band: str | None,
    plot: str | None,
    output: str | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Find a schedule and a lower bound, as close as the limits allow.

    Runs the schedulers, the closed-form bounds and one exact engine; where that has no chance,
    planners that know the output lengths, and a search for a better bound beside them.  Verifies
    what they found and reports both bounds and the gap.  Ctrl-C or SIGTERM stops early and still reports.
    A question (--at-most, --at-least) is answered yes with a schedule, no with a bound (exit code 1) or not.
    With --band or intervals in the cost, the bound is for all these machines, the schedule's value its worst.
    With -o, the certificate of the bound is written beside the result, where there is one.
    Makespan instances: the paper's methods (with estimated and with true output lengths), then
    the exact engine where that has a chance, then annealing.  --plot shows how both came together.
    Placements: heuristics, packing, then an engine that decides whether fewer workers are enough;
    says for every smaller number of workers why it is not enough.

    \b
    Examples:
      infermax-opt solve instances/toy.json
      infermax-opt solve instances/makespan-100x20.json --time-limit 20 --plot solve.svg -o result.json
      infermax-opt solve instances/paper-csp/i64.json --solver cpsat --time-limit 20 -o result.json
      infermax-opt solve trace.json --warm-start sarathi.json --json > result.json
      infermax-opt solve trace.json --objective missed --slo ttft=0.5,tpot=0.05 --slo batch:e2e=600
      infermax-opt solve instances/toy.json --objective '{"mean_e2e": 1, "p99_ttft": 2}'
      infermax-opt solve instances/toy.json --at-most mean_e2e=0.041 --at-most max_ttft=0.02
      infermax-opt solve instances/toy.json --at-most makespan=0.9*vllm
      infermax-opt solve instances/toy.json --band 0.96:1.04 -o result.json
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.result import Answer, Status
    from infermax_opt.files.results import read_bound

    _check_outputs(output, plot, instance_file, warm_start, *bounds)
    instance = read_aimed(instance_file, objective, slos)
    instance, target = asked(instance, objective, at_most, at_least)
    _check_solver(solver, instance, instance_file)
    machines = read_band(instance, band)
    with naming("warm_start", warm_start), naming_each("bounds", bounds):
        result = api.solve(
            instance,
            formulation=formulation,
            solver=solver,
            warm_start=read_start(warm_start, instance),
            bounds=[read_bound(path) for path in bounds],
            time_limit=time_limit,
            memory_limit=memory_limit and memory_limit * 2**20,
            threads=threads,
            seed=seed,
            progress=progress_printer(progress),
            target=target,
            band=machines,
        )
    _write(api.on_band(instance, machines), result, output, plot, as_json)
    return FAILED if result.status is Status.INFEASIBLE or result.answer is Answer.NO else DONE


def _check_outputs(output: str | None, picture: str | None, *inputs: str) -> None:
    """Find out before the work that result and picture can be written."""
    check_output(output, *inputs)
    if picture is not None:
        from infermax_opt.files.figure import picture_format

        picture_format(picture)
        check_output(picture, *inputs)
        check_outputs_differ(output, picture)


def _write(
    instance: AnyInstance, result: AnyResult, output: str | None, picture: str | None, as_json: bool
) -> None:
    """Write result, certificate, report and picture.

    Parameters
    ----------
    instance : instance
    result : Result
    output, picture : str, optional
        Files to write.
    as_json : bool
        Whether the result itself goes to standard output, not a report.
    """
    from infermax_opt.files.report import result_text
    from infermax_opt.files.results import result_to_json, write_with_certificate
    from infermax_opt.files.writing import all_written

    with all_written():
        if output is not None:
            tell_left_out(result.lower, output)
            result = write_with_certificate(instance, result, output)
        save(result_to_json(result), output, None if as_json else result_text(instance, result))
        _draw(result, picture, as_json)


def _draw(result: AnyResult, picture: str | None, as_json: bool) -> None:
    """Draw how schedule and bound came together, if that is asked for and there was anything."""
    if picture is None or not result.events:
        return
    from infermax_opt.api.pictures import plot_convergence
    from infermax_opt.files.figure import save_picture

    save_picture(plot_convergence(result), picture)
    if not as_json:
        wrote(picture)


def _check_solver(solver: str, instance: AnyInstance, path: str) -> None:
    from infermax_opt.core.registry import problem_of

    problem = problem_of(instance)
    if solver not in problem.engines:
        able = ", ".join(problem.engines)
        text = f"{solver!r} is none of {able}, which instances of the problem {problem.name} take"
        raise InputError(text, field="solver", source=path)


@contextmanager
def naming(field: str, path: str) -> Iterator[None]:
    """Name the file that the value of an option was read from, where the error is about that option."""
    try:
        yield
    except InputError as error:
        raise (error.within(path) if error.field == field else error) from error.__cause__


@contextmanager
def naming_each(field: str, paths: Sequence[str]) -> Iterator[None]:
    """The same for an option that may be given several times: the k-th value is the field ``FIELD[k]``."""
    with ExitStack() as stack:
        for k, path in enumerate(paths):
            stack.enter_context(naming(f"{field}[{k}]", path))
        yield


def read_start(value: str, instance: AnyInstance) -> str | AnySchedule:
    """What `--warm-start` names: the schedule of a file, or the name as it is."""
    named = os.sep not in value and ".json" not in value and value != STANDARD
    if named or file_and_name(value) is not None:
        return value
    from infermax_opt.files.results import read_subject, schedule_of

    schedule = schedule_of(read_subject(value, instance))
    if schedule is None:
        raise InputError("holds no schedule", source=value, field="schedule")
    return schedule


def tell_left_out(lower: LowerBound | None, output: str) -> None:
    """Say that there is no file beside standard output to hold the certificate of a bound."""
    from infermax_opt.core.result import Proof

    if output == STANDARD and lower is not None and lower.proof is Proof.CERTIFICATE:
        text = "the certificate of the bound is left out; -o FILE writes it beside the result"
        click.echo(f"infermax-opt: {text}", err=True)
