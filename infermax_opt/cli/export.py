"""The command `export`."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from infermax_opt.cli import completion
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    INSTANCE,
    MAX_SIZE,
    PROGRESS,
    check_inputs,
    check_output,
    not_done,
    output_option,
    progress_printer,
    save,
    say,
    wrote,
)
from infermax_opt.cli.options import aimed, read_aimed, seed_option, time_limit_option
from infermax_opt.cli.solve import naming, read_start
from infermax_opt.core.errors import InputError

if TYPE_CHECKING:
    from infermax_opt.core.values import AnyInstance

__all__ = ["export"]

#: Formats of requests, as `infermax_opt.foreign.export.requests` writes them.
REQUEST_FORMATS = ("vllm-requests", "llmservingsim")


@click.command()
@INSTANCE
@click.argument("subject_file", metavar="[SCHEDULE|RESULT]", required=False, shell_complete=completion.files)
@aimed
@MAX_SIZE
@click.option(
    "--formulation",
    metavar="NAME",
    shell_complete=completion.formulations,
    help="Write this model: flow, csp; arcs, mip; aladdin.",
)
@click.option(
    "--as",
    "format",
    type=click.Choice(REQUEST_FORMATS),
    help="Write the requests in the order in which the schedule takes them up.",
)
@click.option(
    "--warm-start",
    metavar="NAME|FILE|best|none",
    shell_complete=completion.starts,
    default="best",
    show_default=True,
    help="Schedule of the start files, which also limits how much the model holds; as for `solve`.",
)
@time_limit_option("As for `solve`: a quarter of it is for schedules to start from, s.")
@seed_option("Of the schedules to start from; the same seed gives the same.")
@output_option("FILE", "Write to this file: .mps, .lp or .nl for a model.", required=True)
@PROGRESS
@AS_JSON
def export(
    instance_file: str,
    subject_file: str | None,
    objective: str | None,
    slos: tuple[str, ...],
    formulation: str | None,
    format: str | None,
    warm_start: str,
    time_limit: float,
    seed: int,
    output: str,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Write a formulation for other solvers, or a plan for other serving systems.

    With --formulation: the model that `solve --solver highs` hands to HiGHS, as MPS, LP or NL by the ending
    of FILE (MPS and LP also .gz).  Beside it a file .columns.json says what each column means, and
    start files hold the schedule that `solve` starts from: .sol for HiGHS, .mst for Gurobi; an NL file
    holds it itself, and names stand in .col and .row.

    With --as and a schedule or result, which is verified first: its requests as JSON lines.  vllm-requests: a
    timed trace (timestamps in ms) for `vllm bench serve --dataset-name timed_trace --self-timed
    --timed-trace-sec-multiplier 0.001 --timed-trace-chunk-hash-size 512 --num-prompts LINES --ignore-eos`
    (vLLM 0.23), with the place in the plan as `priority` for clients that send it.  llmservingsim: a workload
    of LLMServingSim 2 (arrivals in ns), no request before the one that the plan takes up first.

    \b
    Examples:
      infermax-opt export instances/paper-csp/i16.json --formulation flow -o model.mps
      infermax-opt export instances/placement-toy.json --formulation aladdin -o model.nl
      infermax-opt export instances/toy.json --objective mean_e2e --formulation csp -o model.lp
      infermax-opt export trace.json sarathi.json --as vllm-requests -o requests.jsonl
      infermax-opt export trace.json result.json --as llmservingsim -o workload.jsonl
    """  # noqa: D301
    if (formulation is None) == (format is None):
        raise InputError("name either a formulation or, with --as, a format of requests", field="formulation")
    if format is not None:
        if subject_file is None:
            raise InputError("a schedule or result is needed, whose requests are to be written", field="as")
        _only_of_models("warm_start", "time_limit", "seed")
        check_output(output, instance_file, subject_file)
        instance = read_aimed(instance_file, objective, slos)
        return _requests(instance, subject_file, output, format, as_json)
    if subject_file is not None:
        raise InputError("starts no model by itself; say --warm-start", source=subject_file)
    from infermax_opt import api
    from infermax_opt.foreign.export.formulation import companions

    for path in companions(output).values():
        check_output(path, instance_file, warm_start)
    instance = read_aimed(instance_file, objective, slos)
    with naming("warm_start", warm_start):
        found = api.export_formulation(
            instance,
            str(formulation),
            output,
            warm_start=read_start(warm_start, instance),
            time_limit=time_limit,
            seed=seed,
            progress=progress_printer(progress),
        )
    window = ", ".join(f"{count} {what}" for what, count in found.window.items())
    lines = [
        f"{found.instance}: formulation {found.formulation}, {found.scope.value}, {window}",
        f"  {found.columns} columns, {found.rows} rows, {found.nonzeros} nonzeros",
    ]
    if not found.started:
        lines.append("  no start: there is no schedule that the model holds")
    _report(asdict(found), lines, list(found.files.values()), as_json)
    return DONE


def _only_of_models(*names: str) -> None:
    """Options that mean nothing for requests must not be given."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --formulation only.")


def _requests(instance: AnyInstance, subject_file: str, output: str, format: str, as_json: bool) -> int:
    from infermax_opt import api
    from infermax_opt.core.registry import problem_of
    from infermax_opt.files.results import read_subject, schedule_of
    from infermax_opt.foreign.export.requests import write_requests

    check_inputs(subject_file)
    subject = read_subject(subject_file, instance)
    schedule = schedule_of(subject)
    if schedule is None:
        raise InputError("holds no schedule to export", source=subject_file, field="schedule")
    check = api.verify(instance, subject)
    wrong = [*check.violations, *check.faults]
    if wrong:
        return not_done(subject_file, wrong, "exported")
    found = write_requests(instance, problem_of(instance).admissions(instance, schedule), output, format)
    lines = [f"{found.instance}: {found.requests} requests in the order of the plan"]
    if found.delayed:
        lines.append(f"  {found.delayed} arrive later than in the instance, so that the order is kept")
    if found.left_out:
        lines.append(f"  {found.left_out} that the plan does not serve are left out")
    _report(asdict(found), lines, [output], as_json)
    return DONE


def _report(found: dict[str, Any], lines: list[str], files: list[str], as_json: bool) -> None:
    from infermax_opt.files.schemas import SCHEMAS

    plain = {key: some.value if isinstance(some, Enum) else some for key, some in found.items()}
    if as_json:
        save({"schema": SCHEMAS["export"], **plain}, None, None)
    else:
        say("\n".join(lines))
        wrote(*files)
