"""The command `import`: wiring only."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from infermax_opt.cli.completion import files
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    MAX_SIZE,
    check_output,
    output_option,
    save,
    tell_dropped,
    wrote,
)
from infermax_opt.cli.options import TRACE_FORMATS
from infermax_opt.core.garbage import uncollected
from infermax_opt.core.options import window
from infermax_opt.core.registry import importers
from infermax_opt.files.schemas import SCHEMAS

if TYPE_CHECKING:
    from fractions import Fraction

    from infermax_opt.core.importing import Made

__all__ = ["import_"]


class _Import(click.Command):
    """The command with the options of all installed problems, which are asked for when it is used."""

    @cached_property
    def _choice(self) -> click.Option:
        found = importers()
        about = "; ".join(f"{name}: {importer.about}" for name, importer in found.items())
        return click.Option(
            ["--problem"],
            type=click.Choice(list(found)),
            default=next(iter(found)),
            show_default=True,
            help=f"{about}.",
        )

    @cached_property
    def _owned(self) -> tuple[click.Option, ...]:
        options: dict[str | None, click.Option] = {}
        for importer in importers().values():
            for option in importer.options():
                options.setdefault(option.name, option)
        return tuple(options.values())

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options of the command, then those of the problems."""
        own = super().get_params(ctx)
        return [*own[:-1], self._choice, *self._owned, own[-1]]


@click.command(name="import", cls=_Import)
@MAX_SIZE
@click.argument("trace_file", metavar="TRACE", shell_complete=files)
@click.option(
    "--format",
    "form",
    required=True,
    type=click.Choice(TRACE_FORMATS),
    help="Layout of the file.",
)
@click.option("--time-unit", type=click.Choice(["s", "ms"]), help="Unit of arrivals; needed for mooncake.")
@click.option(
    "--benchmark",
    metavar="N",
    type=click.IntRange(1),
    help="Which run of the file, from 1; where it holds several.",
)
@click.option(
    "--replica", metavar="N", type=click.IntRange(0), help="Which machine of the file; where it has several."
)
@click.option("--first", metavar="N", type=click.IntRange(1), help="Keep the first N requests.")
@click.option(
    "--window",
    metavar="A:B",
    callback=window,
    help="Keep arrivals from A up to, not including, B, s after the first; A becomes time 0.",
)
@click.option("--offline", is_flag=True, help="Let all requests be there from the start.")
@click.option("--skip-unfit", is_flag=True, help="Leave out requests that can never fit, instead of failing.")
@click.option("--name", help="Name of the instance. Default: the file's name.")
@output_option("INSTANCE", "Write the instance to this file.", required=True)
@AS_JSON
@click.pass_context
def import_(
    context: click.Context,
    /,
    trace_file: str,
    form: str,
    time_unit: str | None,
    benchmark: int | None,
    replica: int | None,
    first: int | None,
    window: tuple[Fraction, Fraction] | None,
    offline: bool,
    skip_unfit: bool,
    problem: str,
    name: str | None,
    output: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Make an instance of a request trace.

    \b
    Columns that are read:
      azure      TIMESTAMP, ContextTokens, GeneratedTokens (CSV)
      burstgpt   Timestamp, Request tokens, Response tokens (CSV; failures are left out)
      mooncake   timestamp, input_length, output_length (JSON lines; say --time-unit)
      splitwise  arrival_timestamp, prompt_size, token_size, batch_size (CSV)
      vidur      arrived_at, num_prefill_tokens, num_decode_tokens (CSV)
    The other formats are results of other tools: their requests are read with arrivals and lengths.

    Requests are named r1, r2, ... by arrival; arrivals count from the first request. --window and
    --first choose requests of the trace as it is; then --rate and --poisson change when they arrive.
    With --problem makespan, requests are served by --clients, and arrivals are dropped; the seconds
    of a prefill stage and of a decode round default to those of LLaMA-65B in the paper.
    With --problem placement, the requests of one heartbeat are to be placed; all of them are new,
    unless --ongoing adds those under way.

    \b
    Examples:
      infermax-opt import azure.csv --format azure --offline --first 1000 -o azure.json
      infermax-opt import trace.jsonl --format mooncake --time-unit ms --window 60:120 -o minute.json.gz
      infermax-opt import azure.csv --format azure --window 600:1200 --rate 4 -o rush.json
      infermax-opt import azure.csv --format azure --first 1000 --poisson 5 --seed 1 -o poisson.json
      infermax-opt import azure.csv --format azure --first 500 --problem makespan --clients 64 -o m.json
      infermax-opt import azure.csv --format azure --problem placement --worker 70b -o heartbeat.json
    """  # noqa: D301
    from infermax_opt.api.imports import made_of
    from infermax_opt.files.instances import write_instance
    from infermax_opt.foreign.traces import read_trace

    check_output(output, trace_file)
    own = _own_options(context, problem, options)
    with uncollected():
        trace = read_trace(
            trace_file, form, time_unit=time_unit, first=first, window=window, offline=offline,
            benchmark=benchmark, replica=replica,
        )  # fmt: skip
        made = made_of(importers()[problem], trace, name, trace_file, skip_unfit, own)
        remarks = trace.remarks
        del trace  # a million requests take 100 MB
        write_instance(made.instance, output)
    for remark in remarks:
        click.echo(f"infermax-opt: {trace_file}: {remark}", err=True)
    tell_dropped(trace_file, made.left_out)
    summary, text = _summary(made)
    save(summary, None, None if as_json else text)
    if not as_json:
        wrote(output)
    return DONE


def _summary(made: Made) -> tuple[dict[str, Any], str]:
    """What was made, as JSON and in words."""
    from infermax_opt.files.text import counted, printable

    instance = made.instance
    inputs = sum(request.input_tokens for request in instance.requests)
    outputs = sum(request.output_tokens for request in instance.requests)
    summary = {
        "schema": SCHEMAS["import"],
        "instance": instance.name,
        "requests": len(instance.requests),
        "left_out": dict(made.left_out),
        "input_tokens": inputs,
        "output_tokens": outputs,
        **made.figures,
    }
    count = counted(len(instance.requests), "requests")
    # Requests of a pipelining queue have padded lengths, and no prompts.
    tokens = f"{inputs} input tokens, {outputs} output tokens" if inputs else f"lengths of {outputs} tokens"
    text = f"{printable(instance.name)}: {count}, {tokens}, {made.text}"
    return summary, text


def _own_options(context: click.Context, problem: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of this problem; those of the others must not be given."""
    owners: dict[str, list[str]] = {}
    for name, importer in importers().items():
        for option in importer.options():
            owners.setdefault(str(option.name), []).append(name)
    for parameter in context.command.get_params(context):
        name = str(parameter.name)
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if name in owners and given and problem not in owners[name]:
            which = " or ".join(owners[name])
            raise click.UsageError(f"{parameter.opts[0]} goes with --problem {which} only, not {problem}.")
    return {name: value for name, value in options.items() if problem in owners[name]}
