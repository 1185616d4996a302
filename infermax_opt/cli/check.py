"""The commands `verify`, `check` and `plot`."""

from __future__ import annotations

import click

from infermax_opt.cli import completion
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    FAILED,
    INSTANCE,
    MAX_SIZE,
    SUBJECT,
    check_inputs,
    check_output,
    not_done,
    output_option,
    save,
    wrote,
)
from infermax_opt.cli.options import aimed, band_option, read_aimed, read_band
from infermax_opt.core.errors import InputError

__all__ = ["check", "plot", "verify"]


@click.command()
@INSTANCE
@aimed
@MAX_SIZE
@band_option
@SUBJECT
@click.option("--strict", is_flag=True, help="Exit code 1 also where a claim could not be checked.")
@AS_JSON
def verify(
    instance_file: str,
    objective: str | None,
    slos: tuple[str, ...],
    band: str | None,
    subject_file: str,
    strict: bool,
    as_json: bool,
) -> int:
    """Replay a schedule, check every limit, re-check every claim of a result.

    Exit code 1 where anything is wrong.  A lower bound proved by formula is recomputed, its
    certificate checked; one that a solver proved is decided by enumerating every schedule of a small
    instance, and refuted above what a plain schedule attains.  Claims that could not be checked are
    listed, with the reason.  The placement of a stream is replayed over all heartbeats, and its limits
    are checked at each.  A result that was found with --objective or --slo is verified with the same ones; it
    names the band that it was found for.  A schedule is replayed for the worst case with --band.

    \b
    Examples:
      infermax-opt verify instances/toy.json result.json
      infermax-opt verify instances/toy.json result.json --strict
      infermax-opt verify instances/toy.json schedule.json --json
      infermax-opt verify instances/toy.json result.json --objective p99_ttft
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.result import Claim
    from infermax_opt.files.report import verification_text, verification_to_json
    from infermax_opt.files.results import read_subject

    check_inputs(instance_file, subject_file)
    instance = read_aimed(instance_file, objective, slos)
    subject, machines = read_subject(subject_file, instance), read_band(instance, band)
    named = subject.band if isinstance(subject, Claim) else None
    if machines is not None and named is not None and named != str(machines):
        raise InputError(f"is {machines}, but the result is for {named}", field="band", source=subject_file)
    instance = api.as_claimed(api.on_band(instance, machines), subject)
    check = api.verify(instance, subject)
    text = None if as_json else verification_text(instance, check)
    save(verification_to_json(instance, check), None, text)
    return FAILED if not check.ok or (strict and check.unchecked) else DONE


@click.command()
@INSTANCE
@aimed
@MAX_SIZE
@band_option
@click.argument("certificate_file", metavar="CERTIFICATE", shell_complete=completion.files)
def check(
    instance_file: str,
    objective: str | None,
    slos: tuple[str, ...],
    band: str | None,
    certificate_file: str,
) -> int:
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
    from infermax_opt.core.exact import lower_rounding
    from infermax_opt.files.report import value_text

    check_inputs(instance_file, certificate_file)
    instance = read_aimed(instance_file, objective, slos)
    instance = api.on_band(instance, read_band(instance, band))
    try:
        proved = api.check_certificate(instance, certificate_file)
    except CertificateRejected as rejected:
        click.echo(f"infermax-opt: {rejected}", err=True)
        return FAILED
    least = value_text(instance, proved, lower_rounding())
    click.echo(f"certified: no schedule of {instance.name} is better than {least}")
    return DONE


@click.command()
@INSTANCE
@aimed
@MAX_SIZE
@SUBJECT
@click.option(
    "--label", metavar="TEXT", help="What made the schedule, for the title; a result says it itself."
)
@output_option("PICTURE", "Write the picture to this .png or .svg file.", required=True)
def plot(
    instance_file: str,
    objective: str | None,
    slos: tuple[str, ...],
    subject_file: str,
    label: str | None,
    output: str,
) -> int:
    """Draw a schedule: what each request does over time, and the KV cache it takes.

    Of a placement, what each worker uses of its limits.

    \b
    Examples:
      infermax-opt plot instances/toy.json result.json -o toy.png
      infermax-opt plot trace.json sarathi.json --label sarathi -o sarathi.svg
    """  # noqa: D301
    from infermax_opt import api
    from infermax_opt.core.registry import problem_of
    from infermax_opt.files.figure import credit, picture_format, save_picture
    from infermax_opt.files.results import read_subject, schedule_of

    picture_format(output)
    check_output(output, instance_file, subject_file)
    instance = read_aimed(instance_file, objective, slos)
    subject = read_subject(subject_file, instance)
    if schedule_of(subject) is None:
        raise InputError("holds no schedule to draw", source=subject_file, field="schedule")
    check = api.verify(instance, subject)
    wrong = [*check.violations, *check.faults]
    if wrong:
        return not_done(subject_file, wrong, "drawn")
    drawn = problem_of(instance).draw(api.as_claimed(instance, subject), subject)
    if label is not None:
        credit(None, drawn, label)
    save_picture(drawn, output)
    wrote(output)
    return DONE
