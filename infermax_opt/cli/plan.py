"""The command `plan`: wiring only."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from infermax_opt.cli.completion import files, folders
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    FAILED,
    MAX_SIZE,
    PROGRESS,
    check_output,
    output_option,
    progress_printer,
    tell_dropped,
)
from infermax_opt.cli.options import TRACE_FORMATS, seed_option
from infermax_opt.cli.plan_files import write_certificates, write_plan
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import to_fraction
from infermax_opt.core.options import also_read, decimal, window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infermax_opt.core.band import Band
    from infermax_opt.fleet.machine_types import MachineType, Variant
    from infermax_opt.fleet.plan_row import PlanOptions, Split

__all__ = ["plan"]

#: Largest spread of the relative error of predictions, and largest overhead of a batch, s.
MOST_NUMBER = 10


def _rates(context: click.Context, parameter: click.Parameter, value: str) -> tuple[Fraction, ...]:
    try:
        found = tuple(dict.fromkeys(to_fraction(part.strip()) for part in value.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if not all(rate > 0 for rate in found):
        raise click.BadParameter(f"{value!r} is not a list of numbers above 0.")
    if len({f"{float(rate):g}" for rate in found}) < len(found):
        raise click.BadParameter(f"{value!r} has rates that are alike in six digits.")
    return found


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[Fraction, ...]:
    """Numbers from 0 to 10; none where nothing is typed."""
    found = []
    for part in filter(None, value.split(",")):
        number = decimal(context, parameter, part.strip())
        if number is None or number > MOST_NUMBER:
            raise click.BadParameter(f"{part.strip()} is not from 0 to {MOST_NUMBER}.")
        found.append(number)
    return tuple(dict.fromkeys(found))


def _band(context: click.Context, parameter: click.Parameter, value: str | None) -> Band | None:
    from infermax_opt.core.band import Band

    return None if value is None else Band.parsed(value)


def _transfer(context: click.Context, parameter: click.Parameter, value: str | None) -> Fraction | None:
    """Seconds a token, or bytes a token over bytes a second."""
    if value is None:
        return None
    try:
        parts = [to_fraction(part.strip()) for part in value.split("/")]
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if len(parts) > 2 or parts[0] < 0 or (len(parts) == 2 and parts[1] <= 0):
        raise click.BadParameter(f"{value!r} is neither seconds from 0 on nor BYTES/BANDWIDTH.")
    return parts[0] if len(parts) == 1 else parts[0] / parts[1]


def _names(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in value.split(",")))


def _machines(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    found = _names(context, parameter, value)
    for name in found:
        also_read(context, parameter, name)
    return found


@click.command()
@click.argument("trace_file", metavar="TRACE", shell_complete=files)
@click.option(
    "--format", "form", required=True, type=click.Choice(TRACE_FORMATS), help="Layout of the trace."
)
@click.option("--time-unit", type=click.Choice(["s", "ms"]), help="Unit of arrivals; needed for mooncake.")
@click.option("--first", metavar="N", type=click.IntRange(1), help="Keep the first N requests.")
@click.option(
    "--window", metavar="A:B", callback=window, help="Keep arrivals from A up to, not including, B, s."
)
@click.option(
    "--skip-unfit",
    is_flag=True,
    help="Leave out requests that a machine can never hold, which else count as missed.",
)
@click.option(
    "--machines",
    metavar="A,B",
    required=True,
    callback=_machines,
    help="Cost profiles, by name or as .json files.",
)
@click.option(
    "--rates", metavar="R,R", default="1", show_default=True, callback=_rates, help="How many times as fast."
)
@click.option("--ttft", metavar="S", callback=decimal, help="Most from arrival to the first token, s.")
@click.option("--tpot", metavar="S", callback=decimal, help="Most for each later token in the mean, s.")
@click.option("--e2e", metavar="S", callback=decimal, help="Most from arrival to the last token, s.")
@click.option(
    "--share",
    metavar="Q",
    default="0.99",
    show_default=True,
    callback=decimal,
    help="Of requests, that keep all limits.",
)
@click.option(
    "--predict-error",
    "errors",
    metavar="E,E",
    default="",
    callback=_numbers,
    help="Schedulers know outputs times 1 + e, e normal with this spread; a row for each.",
)
@seed_option("Of predictions.")
@click.option("--schedulers", metavar="A,B", callback=lambda c, p, v: v and _names(c, p, v),
              help="Tried on machines. Default: sarathi,deadline,vllm_v1,planned (and srpt).")  # fmt: skip
@click.option(
    "--compare", metavar="SCHEDULER", help="Also find what each routing policy needs with this scheduler."
)
@click.option(
    "--max-batch-tokens", type=click.IntRange(1), default=4096, show_default=True, help="Tokens of a batch."
)
@click.option(
    "--max-prefill-tokens", type=click.IntRange(1), default=4096, show_default=True,
    help="Prompt tokens of a batch.",
)  # fmt: skip
@click.option("--max-running", type=click.IntRange(1), help="Requests that hold KV. Default: no limit.")
@click.option(
    "--fleet",
    "fleets",
    metavar="N",
    multiple=True,
    type=click.IntRange(1),
    help="Search for the highest rate that N machines sustain.",
)
@click.option(
    "--prices", metavar="FILE", callback=also_read, shell_complete=files, help="CSV: machine,price_per_hour."
)
@click.option("--mix", is_flag=True, help="Also find the cheapest mix of the types; needs --prices.")
@click.option(
    "--start-up",
    metavar="S",
    callback=decimal,
    help="Switch machines off; to switch one on takes so long, s.",
)
@click.option(
    "--min-stay", metavar="S", callback=decimal, help="Switch machines off, but not before so long, s."
)
@click.option(
    "--windows",
    metavar="S",
    callback=decimal,
    help="Also find the machines of each window of such a length, which keeps the share by itself, s.",
)
@click.option(
    "--band",
    metavar="LO:HI",
    callback=_band,
    help="Also for machines whose batches take LO and HI times as long; rows for each.",
)
@click.option(
    "--overhead",
    "overheads",
    metavar="S,S",
    default="0",
    show_default=True,
    callback=_numbers,
    help="Time of the host that each batch takes besides, s; rows for each.",
)
@click.option(
    "--split",
    metavar="S|BYTES/BANDWIDTH",
    callback=_transfer,
    help="Also find machines that prefill and machines that decode; the KV of a token is transferred in "
    "so many s, or so many bytes at so many bytes per s.",
)
@click.option(
    "--decode-machine",
    metavar="NAME",
    callback=also_read,
    help="Type of the machines that decode. Default: that of the row.",
)
@click.option(
    "--time-limit",
    metavar="S",
    type=click.FloatRange(0, 10**7, min_open=True),
    help="Stop after so long, s, with the plan so far, as Ctrl-C does. Default: no limit.",
)
@click.option(
    "--certificates", metavar="FOLDER", shell_complete=folders, help="Write the proof of each row there."
)
@MAX_SIZE
@output_option(
    "PLAN", "Write the plan to this file: .html with .json and .csv beside it, .csv, or else JSON."
)
@PROGRESS
@AS_JSON
def plan(
    trace_file: str,
    form: str,
    machines: tuple[str, ...],
    rates: tuple[Fraction, ...],
    share: Fraction,
    schedulers: tuple[str, ...] | None,
    compare: str | None,
    fleets: tuple[int, ...],
    certificates: str | None,
    skip_unfit: bool,
    output: str | None,
    progress: bool | None,
    as_json: bool,
    **options: Any,
) -> int:
    """How many machines of which type a trace needs, at each rate, with a proof.

    For each machine and rate: the fewest machines such that a share of all requests keeps its limits.  Each
    machine runs batch by batch by its cost profile, and TTFT counts from arrival.  The upper bound is found
    by routing policies with online schedulers, and by a plan that knows the future (planned, unless other
    schedulers are named); all is replayed exactly; a request that nobody serves misses.
    The lower bound holds for every routing and schedule, also for such that know everything in advance.  A
    request that a machine can never hold, or never serve in time, counts as missed; the first ones are named.
    If there are more of them than may miss, the exit code is 1.  Ctrl-C and the time limit stop the search:
    the plan so far is written, and says so.

    \b
    Examples:
      infermax-opt plan azure.csv --format azure --machines llama-3.1-8b_h100 --ttft 1 --tpot 0.05
      infermax-opt plan azure.csv --format azure --machines llama-2-7b_a100,llama-3.1-8b_h100 \\
        --rates 0.5,1,2,4 --ttft 1 --tpot 0.05 --fleet 4 --prices prices.csv -o plan.html
      infermax-opt plan azure.csv --format azure --machines llama-3.1-8b_h100 --ttft 1 --tpot 0.05 \\
        --split 131072/50e9
    """  # noqa: D301
    from infermax_opt.files.writing import all_written
    from infermax_opt.fleet.report import plan_to_json
    from infermax_opt.fleet.report_text import plan_text
    from infermax_opt.fleet.sweep import Sweep, sweep
    from infermax_opt.foreign.traces import read_trace

    if options["mix"] and options["prices"] is None:
        raise InputError("needs the prices of the types: --prices", field="mix")
    _check_outputs(output, certificates, trace_file)
    if options["decode_machine"] is not None and options["split"] is None:
        raise InputError("needs the time of a transfer: --split", field="decode-machine")
    asked = _asked(share, schedulers, compare, skip_unfit, options)
    trace = read_trace(
        trace_file, form, time_unit=options["time_unit"], first=options["first"], window=options["window"]
    )
    tell_dropped(trace_file, trace.dropped)
    kinds = _machine_types(machines, options)
    _check_names(machines, kinds, asked.split)
    everything = Sweep(
        kinds, rates, asked, tuple(dict.fromkeys(fleets)), options["mix"], options["time_limit"]
    )
    found = sweep(trace, everything, progress_printer(progress))
    with all_written():
        proofs = {} if certificates is None else write_certificates(found, certificates, trace_file, output)
        value = plan_to_json(found, asked, os.path.basename(trace_file), proofs, trace.dropped)
        write_plan(value, found.rows, output, None if as_json else plan_text(found, asked))
    return FAILED if any(row.never for row in found.rows) else DONE


def _check_outputs(output: str | None, certificates: str | None, trace_file: str) -> None:
    from infermax_opt.files.proofs import check_folder
    from infermax_opt.fleet.plan_files import outputs_of

    if output is not None and output.lower().endswith((".html.gz", ".csv.gz")):
        raise InputError("a page or a table is not compressed; name it .html or .csv", source=output)
    for name in (output, *outputs_of(output)):
        check_output(name, trace_file)
    if certificates is not None:
        check_folder(certificates)


def _asked(
    share: Fraction,
    schedulers: tuple[str, ...] | None,
    compare: str | None,
    skip_unfit: bool,
    options: dict[str, Any],
) -> PlanOptions:
    from infermax_opt.fleet.plan_row import PlanOptions
    from infermax_opt.fleet.planned import PLANNED
    from infermax_opt.fleet.scaling import Scaling
    from infermax_opt.fleet.upper import SCHEDULERS
    from infermax_opt.infermax.data.instance import ServiceLevel

    slo = ServiceLevel(options["ttft"], options["tpot"], options["e2e"])
    start, stay = options["start_up"], options["min_stay"]
    scaling = None if start is stay is None else Scaling(start or Fraction(0), stay or Fraction(0))
    errors: tuple[Fraction, ...] = options["errors"]
    return PlanOptions(
        slo,
        share,
        schedulers=schedulers or (*SCHEDULERS, *(["srpt"] if errors else []), PLANNED),
        compare=compare,
        skip_unfit=skip_unfit,
        scaling=scaling,
        window=options["windows"],
        errors=errors,
        seed=options["seed"],
        split=_split(options),
        variants=_variants(options),
    )


def _variants(options: dict[str, Any]) -> list[Variant]:
    """All factors of the band with all overheads, what is as given first."""
    from infermax_opt.fleet.machine_types import Variant

    band = options["band"]
    factors = [Fraction(1), *((band.low, band.high) if band is not None else ())]
    overheads = options["overheads"] or (Fraction(0),)
    return [Variant(factor, overhead) for overhead in overheads for factor in dict.fromkeys(factors)]


def _split(options: dict[str, Any]) -> Split | None:
    from infermax_opt.fleet.plan_row import Split

    if options["split"] is None:
        return None
    name = options["decode_machine"]
    return Split(options["split"], None if name is None else _machine_types((name,), options)[0])


def _machine_types(machines: tuple[str, ...], options: dict[str, Any]) -> list[MachineType]:
    from infermax_opt.fleet.machine_types import MachineType
    from infermax_opt.fleet.prices import read_prices
    from infermax_opt.infermax.data.instance import System
    from infermax_opt.infermax.data.profiles import load_profile, read_profile

    prices = None if options["prices"] is None else read_prices(options["prices"])
    found = list[MachineType]()
    for name in machines:
        profile = read_profile(name) if name.lower().endswith((".json", ".json.gz")) else load_profile(name)
        if prices is not None and profile.name not in prices:
            raise InputError(f"has no price of {profile.name!r}", source=options["prices"])
        limits = options["max_batch_tokens"], options["max_prefill_tokens"], options["max_running"]
        price = None if prices is None else prices[profile.name]
        found.append(MachineType(profile.name, System(profile.capacity, *limits), profile.cost, price))
    return found


def _check_names(machines: Sequence[str], kinds: Sequence[MachineType], split: Split | None) -> None:
    """Refuse two types of one name: reports could not tell them apart."""
    known = dict[str, str]()
    for name, kind in zip(machines, kinds, strict=True):
        if kind.name in known:
            raise InputError(f"is {kind.name!r}, as that of {known[kind.name]}", field="name", source=name)
        known[kind.name] = name
    decode = None if split is None else split.decode
    if decode is not None and decode not in kinds and decode.name in known:
        problem = f"has the name of another machine, {known[decode.name]}"
        raise InputError(problem, field="decode-machine")
