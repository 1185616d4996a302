"""The command `gap`: wiring only."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import click

from infermax_opt.cli.completion import files
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    MAX_SIZE,
    PROGRESS,
    check_output,
    check_outputs_differ,
    not_done,
    output_option,
    progress_printer,
    save,
    say,
    telling_untried,
    wrote,
)
from infermax_opt.cli.options import COST, band_option, read_aimed, slos_option
from infermax_opt.cli.solve import naming_each
from infermax_opt.core.errors import InputError
from infermax_opt.core.garbage import uncollected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infermax_opt.core.band import Band
    from infermax_opt.gaps.collect import Source
    from infermax_opt.gaps.explain import Explained
    from infermax_opt.gaps.score import Group
    from infermax_opt.gaps.subjects import Subject

__all__ = ["gap"]


@click.command()
@MAX_SIZE
@click.argument("paths", metavar="[INSTANCE] FILE...", nargs=-1, required=True, shell_complete=files)
@click.option(
    "--format", "form", metavar="NAME", help="Format of the files. Default: guessed where it is safe."
)
@click.option(
    "--machine",
    metavar="FILE",
    shell_complete=files,
    help="Without INSTANCE: the machine of this instance or cost profile serves the requests of each run.",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=N",
    multiple=True,
    help="With --machine: another limit, such as kv_capacity=41408.",
)
@click.option(
    "--benchmark", metavar="N", type=click.IntRange(1), help="Which run of a file that holds several."
)
@click.option(
    "--replica", metavar="N", type=click.IntRange(0), help="Which machine of a file that has several."
)
@click.option(
    "--trace",
    metavar="FILE",
    shell_complete=files,
    help="The trace that was replayed, where a run has no arrivals; needs --trace-format.",
)
@click.option("--trace-format", metavar="NAME", help="Of the trace, as `import` names it.")
@click.option("--time-unit", type=click.Choice(["s", "ms"]), help="Of the trace, where its format needs one.")
@slos_option
@click.option(
    "--metric", "metrics", metavar="METRIC", multiple=True, help="Compare these. Default: the usual ones."
)
@click.option(
    "--time-limit",
    metavar="S",
    type=click.FloatRange(0, 10**7, min_open=True),
    default=60.0,
    show_default=True,
    help="Time to search for lower bounds, all metrics together, s.",
)
@click.option(
    "--bound",
    "bounds",
    metavar="FILE",
    multiple=True,
    shell_complete=files,
    help="Lower bound found before: a certificate, or a result that `bound` or `solve` wrote; checked.",
)
@click.option(
    "--certificate",
    "proofs",
    metavar="FOLDER",
    shell_complete=files,
    help="Write the certificate of each bound that has one, and its instance, into this folder.",
)
@band_option
@click.option("--explain", is_flag=True, help="Say where the time of schedules goes, in parts that add up.")
@click.option("--plot", metavar="PICTURE", shell_complete=files, help="Draw runs and bounds (.png, .svg).")
@click.option("--csv", "table", metavar="FILE", shell_complete=files, help="Write a line for each run.")
@output_option("SCORES", "Write the scores to this file, as JSON.")
@PROGRESS
@AS_JSON
def gap(
    paths: tuple[str, ...],
    form: str | None,
    machine: str | None,
    limits: tuple[str, ...],
    slos: tuple[str, ...],
    metrics: tuple[str, ...],
    time_limit: float,
    bounds: tuple[str, ...],
    proofs: str | None,
    band: str | None,
    explain: bool,
    plot: str | None,
    table: str | None,
    output: str | None,
    progress: bool | None,
    as_json: bool,
    **choices: Any,
) -> int:
    """Tell how far runs are from optimal, metric by metric.

    A run is a schedule or result of INSTANCE, or what another system measured of its requests.  Each metric
    is set against the best lower bound that the verifier accepts: what a schedule could gain at most, in its
    unit and in percent.  A run that is faster than a bound comes first: then the cost model, the lengths or
    hits in a prefix cache must be wrong.  Ctrl-C or SIGTERM ends the search for bounds and reports.

    Without an instance, --machine says on which machine the requests of a run were served.

    \b
    Formats:
      schedule            schedule or result of INSTANCE
      aiperf              profile_export.jsonl
      aisimulate          requests.jsonl of predict --capture-per-request
      blis                file of --metrics-path
      guidellm            benchmarks.json
      inference-perf      per_request_lifecycle_metrics.json
      infermax            request_metrics.csv of the InferMax fork
      llmservingsim       requests.jsonl of its runs of vLLM
      llmservingsim-sim   sim.csv
      sglang              bench_serving --output-details (JSON lines)
      vidur               request_metrics.csv
      vidur-chrome-trace  chrome_trace.json: a whole schedule, which is replayed
      vllm                bench serve --save-result --save-detailed
      vllm-otlp           spans "llm_request" in OTLP JSON

    \b
    Examples:
      infermax-opt gap trace.json sarathi.json result.json
      infermax-opt gap trace.json request_metrics.csv --plot gap.png --csv gap.csv
      infermax-opt gap trace.json sarathi.json vllm.json --explain --plot gap.svg
      infermax-opt gap run.json --format vllm --machine machine.json --limit kv_capacity=41408
    """  # noqa: D301
    from infermax_opt.files.results import read_bound
    from infermax_opt.gaps.collect import Source, score
    from infermax_opt.gaps.subjects import WrongSchedule

    _check_outputs(output, plot, table, proofs, *paths, *([machine] if machine else []))
    given = {name: value for name, value in choices.items() if value is not None}
    source = Source(paths if machine else paths[1:], form, given)
    try:
        with uncollected():
            subjects, allowed = _subjects(source, paths[0], machine, limits, slos, band)
        gc.freeze()  # they stay to the end: no search for cycles needs to go through them
    except WrongSchedule as error:
        return not_done(error.path, error.wrong, "scored")
    if plot is not None and len({subject.instance.sha256 for subject in subjects}) > 1:
        raise InputError("one picture shows the runs of one instance; these have several", field="plot")
    with naming_each("bounds", bounds):
        groups = score(
            subjects, metrics=metrics, time_limit=time_limit, known=[read_bound(path) for path in bounds],
            band=allowed, progress=telling_untried(progress_printer(progress)),
        )  # fmt: skip
    explanations = _explanations(groups) if explain else []
    _write(groups, explanations, output, as_json, proofs, plot, table)
    return DONE


def _check_outputs(
    output: str | None, plot: str | None, table: str | None, proofs: str | None, *inputs: str
) -> None:
    from infermax_opt.files.figure import picture_format
    from infermax_opt.files.proofs import check_folder

    if plot is not None:
        picture_format(plot)
    for path in (output, plot, table):
        check_output(path, *inputs)
    check_outputs_differ(output, plot, table)
    if proofs is not None:
        check_folder(proofs)


def _subjects(
    source: Source,
    instance: str,
    machine: str | None,
    limits: Sequence[str],
    slos: Sequence[str],
    band: str | None,
) -> tuple[list[Subject], Band | None]:
    """What is to be scored, and the band that it is scored for."""
    from infermax_opt.core.registry import first_problem, problem_of
    from infermax_opt.gaps.collect import subjects_of_instance, subjects_on_machine

    if machine is not None:
        if COST in click.get_current_context().meta:
            raise click.UsageError("--cost goes with INSTANCE; --machine says the cost.")
        scoring = first_problem().scoring
        allowed = None if band is None else scoring.band(band)
        found = subjects_on_machine(machine, source, limits=_by_name(limits), slos=slos, band=allowed)
        return found, allowed
    if limits:
        raise click.UsageError("--limit goes with --machine only.")
    if not source.paths:
        raise click.UsageError("give INSTANCE and what is to be scored, or --machine.")
    read = read_aimed(instance, None, slos)
    allowed = None if band is None else problem_of(read).scoring.band(band)
    return subjects_of_instance(read, source, allowed), allowed


def _by_name(limits: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in limits:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} is not NAME=N", field="limit")
        found[name.strip()] = value.strip()
    return found


def _explanations(groups: Sequence[Group]) -> list[list[Explained]]:
    """Where the time of all schedules goes, found once, as each is replayed for it."""
    from infermax_opt.gaps.explain import explained

    return [explained(group) for group in groups]


def _write(
    groups: Sequence[Group],
    explanations: Sequence[Sequence[Explained]],
    output: str | None,
    as_json: bool,
    proofs: str | None,
    plot: str | None,
    table: str | None,
) -> None:
    """Print and write the scores, and all that is asked for besides."""
    from infermax_opt.files.figure import save_picture
    from infermax_opt.files.writing import all_written, write_text
    from infermax_opt.gaps.plot import plot_gaps
    from infermax_opt.gaps.report import gaps_csv, gaps_text, gaps_to_json

    text = None if as_json else gaps_text(groups, explanations)
    with all_written():
        save(gaps_to_json(groups, explanations), output, text)
        certified = proofs is not None and _write_proofs(groups, proofs)
        if plot is not None:
            save_picture(plot_gaps(groups[0], explanations[0] if explanations else ()), plot)
        if table is not None:
            write_text(gaps_csv(groups), table)
        if not as_json:
            wrote(table, plot, proofs if certified else None)
            if proofs is not None and not certified:
                say(f"nothing to write into {click.format_filename(proofs)}: no bound has a certificate")


def _write_proofs(groups: Sequence[Group], folder: str) -> bool:
    """The certificates of each instance, in folders of their own where there are several; whether any is."""
    from infermax_opt.files.proofs import write_proof

    found = False
    for number, group in enumerate(groups, 1):
        place = folder if len(groups) == 1 else f"{folder}/{number}"
        for some in group.bounds:
            if some.lower is not None:
                found |= write_proof(some.instance, some.lower, place, some.metric)
    return found
