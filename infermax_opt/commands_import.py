"""The command `import`: wiring only."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from infermax_opt.console import AS_JSON, DONE, check_output, output_option, save
from infermax_opt.makespan.generate import DECODE, PREFILL

if TYPE_CHECKING:
    from infermax_opt.cost import CostModel
    from infermax_opt.instance import Policy, System
    from infermax_opt.io.traces import Trace
    from infermax_opt.problems import AnyInstance

    #: What was made: requests that are left, the instance, more facts, and these in words.
    _Made = tuple[Trace, AnyInstance, dict[str, Any], str]

__all__ = ["import_"]

F = TypeVar("F", bound=Callable[..., Any])

#: Options that only makespan instances have; all others of `options` are those of InferMax instances.
CLIENT_OPTIONS = frozenset(
    {
        "clients", "prefill_levels", "prefill_overhead", "prefill_token", "decode_overhead", "decode_token",
        "estimate_error", "seed",
    }
)  # fmt: skip


def _window(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    from infermax_opt.exact import to_fraction

    if value is None:
        return None
    try:
        start, end = (to_fraction(part) for part in value.split(":"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not two numbers of seconds A:B.") from None
    if not 0 <= start < end:
        raise click.BadParameter(f"{value!r} is not A:B with 0 <= A < B.")
    return start, end


def _seconds(context: click.Context, parameter: click.Parameter, value: str) -> Fraction:
    from infermax_opt.exact import to_fraction

    try:
        number = to_fraction(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if number < 0:
        raise click.BadParameter(f"{value} is negative; the least is 0.")
    return number


def _seconds_option(name: str, default: str, text: str) -> Callable[[F], F]:
    return click.option(
        name, metavar="S", default=default, callback=_seconds, show_default=True, help=f"{text} Seconds."
    )


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
    type=click.Choice(["azure", "burstgpt", "mooncake", "splitwise", "vidur"]),
    help="Layout of the trace file.",
)
@click.option("--time-unit", type=click.Choice(["s", "ms"]), help="Unit of arrivals; needed for mooncake.")
@click.option("--first", metavar="N", type=click.IntRange(1), help="Keep the first N requests.")
@click.option(
    "--window",
    metavar="A:B",
    callback=_window,
    help="Keep arrivals from A up to, not including, B seconds after the first; A becomes time 0.",
)
@click.option("--offline", is_flag=True, help="Let all requests be there from the start.")
@click.option(
    "--problem",
    type=click.Choice(["infermax", "makespan"]),
    default="infermax",
    show_default=True,
    help="Batches on a KV cache, or requests on clients (always offline).",
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
@_seconds_option(
    "--prefill-overhead", PREFILL[0], "Makespan: a prefill stage takes overhead + token * its level."
)
@_seconds_option("--prefill-token", PREFILL[1], "See --prefill-overhead.")
@_seconds_option("--decode-overhead", DECODE[0], "Makespan: a decode round takes overhead + token * clients.")
@_seconds_option("--decode-token", DECODE[1], "See --decode-overhead.")
@click.option(
    "--estimate-error",
    metavar="E",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="Makespan: methods know output lengths up to a lognormal factor of this deviation.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Of the estimates."
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

    \b
    Examples:
      infermax-opt import azure.csv --format azure --offline --first 1000 -o azure.json
      infermax-opt import trace.jsonl --format mooncake --time-unit ms --window 60:120 -o minute.json.gz
      infermax-opt import azure.csv --format azure --first 500 --problem makespan --clients 64 -o m.json
    """  # noqa: D301
    from infermax_opt.io.problems import write_instance
    from infermax_opt.io.traces import read_trace

    check_output(output, trace_file)
    own = _own_options(context, problem, options)
    trace = read_trace(trace_file, form, time_unit=time_unit, first=first, window=window, offline=offline)
    make = _clients if problem == "makespan" else _batches
    trace, instance, rest, text = make(trace, name or _stem(trace_file), skip_unfit, **own)
    write_instance(instance, output)
    for reason, count in trace.dropped.items():
        click.echo(f"infermax-opt: {trace_file}: left out {count} requests: {reason}", err=True)
    inputs = sum(request.input_tokens for request in instance.requests)
    outputs = sum(request.output_tokens for request in instance.requests)
    summary = {
        "instance": instance.name,
        "requests": len(instance.requests),
        "left_out": dict(trace.dropped),
        "input_tokens": inputs,
        "output_tokens": outputs,
        **rest,
    }
    from infermax_opt.report import printable

    text = (
        f"{printable(instance.name)}: {len(instance.requests)} requests, {inputs} input tokens, "
        f"{outputs} output tokens, {text}\nwrote {click.format_filename(output)}"
    )
    save(summary, None, None if as_json else text)
    return DONE


def _own_options(context: click.Context, problem: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of this problem; those of the other one must not be given."""
    theirs = {name for name in options if (name in CLIENT_OPTIONS) != (problem == "makespan")}
    for parameter in context.command.params:
        name = parameter.name
        if name in theirs and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            other = "infermax" if problem == "makespan" else "makespan"
            raise click.UsageError(f"{parameter.opts[0]} goes with --problem {other} only, not {problem}.")
    if problem == "makespan" and options["clients"] is None:
        raise click.UsageError("--problem makespan needs --clients.")
    return {name: value for name, value in options.items() if name not in theirs}


def _batches(trace: Trace, name: str, skip_unfit: bool, *, objective: str, **machine: Any) -> _Made:
    """An InferMax instance."""
    from infermax_opt.io.traces import trace_instance, without_unfit
    from infermax_opt.report import seconds

    system, policy, cost = _machine(**machine)
    if skip_unfit:
        trace = without_unfit(trace, system, policy)
    instance = trace_instance(trace, name, system, cost, policy, objective)
    last = max(request.arrival for request in instance.requests)
    text = f"last arrival at {seconds(last)}, KV capacity {system.kv_capacity} tokens"
    return trace, instance, {"last_arrival": last, "kv_capacity": system.kv_capacity}, text


def _clients(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    *,
    clients: int,
    prefill_levels: tuple[int, ...] | None,
    prefill_overhead: Fraction,
    prefill_token: Fraction,
    decode_overhead: Fraction,
    decode_token: Fraction,
    estimate_error: float,
    seed: int,
) -> _Made:
    """A makespan instance."""
    from infermax_opt.io.trace_clients import client_instance, default_levels, without_long_prompts

    levels = default_levels(trace, clients) if prefill_levels is None else prefill_levels
    if skip_unfit:
        trace = without_long_prompts(trace, levels)
    instance = client_instance(
        trace, name, clients, levels, (prefill_overhead, prefill_token), (decode_overhead, decode_token),
        error=estimate_error, seed=seed,
    )  # fmt: skip
    largest = instance.levels[-1].tokens
    text = (
        f"{clients} clients, {len(instance.levels)} prefill levels up to {largest} tokens\n"
        "arrivals are dropped: in this problem all requests are there from the start"
    )
    facts = {"clients": clients, "prefill_levels": len(instance.levels), "largest_level": largest}
    return trace, instance, {**facts, "arrivals": "dropped"}, text


def _machine(
    *,
    profile: str,
    kv_capacity: int | None,
    max_batch_tokens: int,
    max_prefill_tokens: int,
    max_running: int | None,
    block_size: int,
    **flags: bool,
) -> tuple[System, Policy, CostModel]:
    from infermax_opt.instance import Policy, System
    from infermax_opt.profiles import load_profile

    loaded = load_profile(profile)
    capacity = loaded.kv_capacity if kv_capacity is None else kv_capacity
    system = System(capacity, max_batch_tokens, max_prefill_tokens, max_running, block_size)
    return system, Policy(**flags), loaded.cost


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".gz").rpartition(".")[0] or os.path.basename(path)
