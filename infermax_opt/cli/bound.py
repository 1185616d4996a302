"""The commands `bound` and `schedule`: one side of what `solve` gives; wiring only."""

from __future__ import annotations

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
    telling_untried,
)
from infermax_opt.cli.options import aimed, band_option, read_aimed, read_band, time_limit_option
from infermax_opt.cli.solve import tell_left_out
from infermax_opt.core.errors import InputError
from infermax_opt.core.script import file_and_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infermax_opt.core.result import LowerBound
    from infermax_opt.core.values import AnyInstance

__all__ = ["bound", "schedule"]


@click.command()
@INSTANCE
@aimed
@MAX_SIZE
@time_limit_option("Time to improve the bounds, s.")
@click.option(
    "--certificate",
    metavar="FILE",
    shell_complete=completion.files,
    help="Write the certificate of the best bound that has one, for `check`, to this file.",
)
@band_option
@output_option("RESULT", "Write the best bound to this file, as a result without a schedule.")
@PROGRESS
@AS_JSON
def bound(
    instance_file: str,
    objective: str | None,
    slos: tuple[str, ...],
    time_limit: float,
    certificate: str | None,
    band: str | None,
    output: str | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Lower bounds alone; no schedule does better.

    With --band they are those of the fastest machine of the band, which hold for each; so they are where the
    instance has intervals of coefficients.  `check` takes the same option.

    \b
    Examples:
      infermax-opt bound instances/paper-csp/i64.json
      infermax-opt bound trace.json --certificate certificate.json.gz
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.result import AnyResult
    from infermax_opt.files.report import bounds_text, bounds_to_json
    from infermax_opt.files.results import write_result, write_with_certificate
    from infermax_opt.files.writing import all_written

    check_output(output, instance_file)
    check_output(certificate, instance_file)
    check_outputs_differ(output, certificate)
    instance = read_aimed(instance_file, objective, slos)
    machines = read_band(instance, band)
    instance = api.on_band(instance, machines)
    bounds = api.bound(instance, time_limit=time_limit, progress=telling_untried(progress_printer(progress)))
    if not bounds and (output or certificate):
        raise InputError("no lower bound is known, so there is none to write", source=instance_file)
    with all_written():
        if certificate is not None:
            _write_certificate(instance, bounds, certificate)
        save(bounds_to_json(instance, bounds), None, None if as_json else bounds_text(instance, bounds))
        if output is not None:
            tell_left_out(bounds[0], output)
            result = AnyResult(
                instance.name, instance.sha256, instance.objective_name, lower=bounds[0],
                band=None if machines is None else str(machines),
            )  # fmt: skip
            write_result(write_with_certificate(instance, result, output), output)
    return DONE


def _write_certificate(instance: AnyInstance, bounds: Sequence[LowerBound], path: str) -> None:
    """Write the certificate of the first of the bounds that has one, and say so if that is not the best."""
    from infermax_opt import api

    certified = next((bound for bound in bounds if bound.evidence is not None), bounds[0])
    api.write_certificate(instance, certified, path)
    if certified is not bounds[0]:
        text = f"the best bound, {bounds[0].source!r}, has no certificate; this is of {certified.source!r}"
        click.echo(f"infermax-opt: {path}: {text}", err=True)


@click.command()
@INSTANCE
@aimed
@MAX_SIZE
@click.option(
    "--scheduler",
    metavar="NAME|FILE.py:NAME",
    required=True,
    shell_complete=completion.schedulers,
    help="See `infermax-opt schedulers`; or one of your own in a Python file, see docs/schedulers.md.",
)
@output_option("SCHEDULE", "Write the schedule to this file.")
@AS_JSON
def schedule(
    instance_file: str,
    objective: str | None,
    slos: tuple[str, ...],
    scheduler: str,
    output: str | None,
    as_json: bool,
) -> int:
    """Run one scheduler, method or placement heuristic and print the metrics of its schedule.

    With --json the schedule itself is printed, as it would be written to a file.

    \b
    Examples:
      infermax-opt schedule instances/toy.json --scheduler vllm
      infermax-opt schedule trace.json --scheduler sarathi@r64 -o sarathi.json
      infermax-opt schedule trace.json --scheduler my.py:fcfs -o fcfs.json
      infermax-opt schedule instances/placement-toy.json --scheduler best-fit
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.files.instances import any_schedule_to_json
    from infermax_opt.files.report import verification_text

    check_output(output, instance_file, *(file_and_name(scheduler) or ())[:1])
    instance = read_aimed(instance_file, objective, slos)
    made = api.run_heuristic(instance, scheduler)
    check = api.verify(instance, made.schedule)
    text = "\n".join([verification_text(instance, check), *(f"  {remark}" for remark in made.remarks)])
    save(any_schedule_to_json(made.schedule), output, None if as_json else text)
    return DONE if check.ok else FAILED
