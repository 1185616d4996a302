"""The command `import`: wiring only."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from infermax_opt.cli.console import AS_JSON, DONE, check_output, output_option, save
from infermax_opt.cli.options import TRACE_FORMATS, decimal_option, window, worker_options
from infermax_opt.makespan.data.generate import DECODE, PREFILL

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["import_"]

F = TypeVar("F", bound=Callable[..., Any])

#: Options that only other problems have; all others of `options` are those of InferMax instances.
OWN = {
    "makespan": frozenset(
        {
            "clients", "prefill_levels", "prefill_overhead", "prefill_token", "decode_overhead",
            "decode_token", "estimate_error", "seed",
        }
    ),
    "placement": frozenset(
        {"heartbeat", "at", "ongoing", "worker", "ttft", "atgt", "theta", "gamma", "predict_error", "seed"}
    ),
}  # fmt: skip


def _levels(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of token counts N,N,... of 1 or more.")
    return tuple(map(int, parts))


@click.command(name="import")
@click.argument("trace_file", metavar="TRACE")
@click.option(
    "--format",
    "form",
    required=True,
    type=click.Choice(TRACE_FORMATS),
    help="Layout of the trace file.",
)
@click.option("--time-unit", type=click.Choice(["s", "ms"]), help="Unit of arrivals; needed for mooncake.")
@click.option("--first", metavar="N", type=click.IntRange(1), help="Keep the first N requests.")
@click.option(
    "--window",
    metavar="A:B",
    callback=window,
    help="Keep arrivals from A up to, not including, B seconds after the first; A becomes time 0.",
)
@click.option("--offline", is_flag=True, help="Let all requests be there from the start.")
@click.option(
    "--problem",
    type=click.Choice(["infermax", "makespan", "placement"]),
    default="infermax",
    show_default=True,
    help="Batches on a KV cache, requests on clients (always offline), or a heartbeat on the fewest workers.",
)
@click.option("--skip-unfit", is_flag=True, help="Leave out requests that can never fit, instead of failing.")
@click.option("--profile", default="llama-3.1-8b_h100", show_default=True, help="Cost profile.")
@click.option("--kv-capacity", type=click.IntRange(1), help="KV tokens. Default: the profile's.")
@click.option("--max-batch-tokens", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--max-prefill-tokens", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--max-running", type=click.IntRange(1), help="Requests that hold KV. Default: no limit.")
@click.option(
    "--block-size", type=click.IntRange(1), default=1, show_default=True, help="Tokens of a KV block."
)
@click.option("--hybrid-batching/--no-hybrid-batching", default=True, show_default=True)
@click.option("--chunked-prefill/--no-chunked-prefill", default=True, show_default=True)
@click.option("--preemption/--no-preemption", default=True, show_default=True)
@click.option("--objective", default="makespan", show_default=True)
@click.option("--clients", metavar="N", type=click.IntRange(1), help="Makespan: requests served at a time.")
@click.option(
    "--prefill-levels",
    metavar="N,N,...",
    callback=_levels,
    help="Makespan: input tokens that a prefill stage may take. Default: multiples of 128, up to 128 for "
    "each client and the longest prompt.",
)
@decimal_option(
    "--prefill-overhead", PREFILL[0], "Makespan: a prefill stage takes overhead + token * its level. Seconds."
)
@decimal_option("--prefill-token", PREFILL[1], "See --prefill-overhead. Seconds.")
@decimal_option(
    "--decode-overhead", DECODE[0], "Makespan: a decode round takes overhead + token * clients. Seconds."
)
@decimal_option("--decode-token", DECODE[1], "See --decode-overhead. Seconds.")
@click.option(
    "--estimate-error",
    metavar="E",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="Makespan: methods know output lengths up to a lognormal factor of this deviation.",
)
@decimal_option("--heartbeat", "1", "Placement: length of the heartbeat. Seconds.")
@decimal_option(
    "--at",
    None,
    "Placement: end of the heartbeat, after the first request. Default: that with the most input tokens. "
    "Seconds.",
)
@click.option(
    "--ongoing",
    is_flag=True,
    help="Placement: with the requests that are on workers by then, where best-fit put them.",
)
@worker_options("Placement: ")
@decimal_option(
    "--theta", "1", "Placement: share of the iteration time and of saved time that may be used.", "X"
)
@decimal_option("--gamma", "0.5", "Placement: share of the output that counts as context.", "X")
@click.option(
    "--predict-error",
    metavar="E",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="Placement: predicted output lengths are off by a lognormal factor of this deviation.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Of estimates and predictions.",
)
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

    Requests are named r1, r2, ... by arrival; arrivals count from the first request.
    With --problem makespan, requests are served by --clients, and arrivals are dropped; the seconds
    of a prefill stage and of a decode round default to those of LLaMA-65B in the paper.
    With --problem placement, the requests of one heartbeat are to be placed; all of them are new,
    unless --ongoing adds those under way.

    \b
    Examples:
      infermax-opt import azure.csv --format azure --offline --first 1000 -o azure.json
      infermax-opt import trace.jsonl --format mooncake --time-unit ms --window 60:120 -o minute.json.gz
      infermax-opt import azure.csv --format azure --first 500 --problem makespan --clients 64 -o m.json
      infermax-opt import azure.csv --format azure --problem placement --worker 70b -o heartbeat.json
    """  # noqa: D301
    from infermax_opt.cli._import_problems import MAKERS
    from infermax_opt.files.instances import write_instance
    from infermax_opt.files.traces import read_trace

    check_output(output, trace_file)
    own = _own_options(context, problem, options)
    trace = read_trace(trace_file, form, time_unit=time_unit, first=first, window=window, offline=offline)
    made = MAKERS[problem](trace, name or _stem(trace_file), skip_unfit, **own)
    instance = made.instance
    write_instance(instance, output)
    for reason, count in made.left_out.items():
        click.echo(f"infermax-opt: {trace_file}: left out {count} requests: {reason}", err=True)
    inputs = sum(request.input_tokens for request in instance.requests)
    outputs = sum(request.output_tokens for request in instance.requests)
    summary = {
        "instance": instance.name,
        "requests": len(instance.requests),
        "left_out": dict(made.left_out),
        "input_tokens": inputs,
        "output_tokens": outputs,
        **made.facts,
    }
    from infermax_opt.files.report import printable

    text = (
        f"{printable(instance.name)}: {len(instance.requests)} requests, {inputs} input tokens, "
        f"{outputs} output tokens, {made.text}\nwrote {click.format_filename(output)}"
    )
    save(summary, None, None if as_json else text)
    return DONE


def _own_options(context: click.Context, problem: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of this problem; those of the others must not be given."""
    owners = {name: [other for other, own in OWN.items() if name in own] or ["infermax"] for name in options}
    for parameter in context.command.params:
        name = parameter.name
        given = context.get_parameter_source(str(name)) is not ParameterSource.DEFAULT
        if name in owners and given and problem not in owners[name]:
            which = " or ".join(owners[name])
            raise click.UsageError(f"{parameter.opts[0]} goes with --problem {which} only, not {problem}.")
    if problem == "makespan" and options["clients"] is None:
        raise click.UsageError("--problem makespan needs --clients.")
    return {name: value for name, value in options.items() if problem in owners[name]}


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".gz").rpartition(".")[0] or os.path.basename(path)
