"""The command `plan`: wiring only."""

from __future__ import annotations

import os
import re
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
    save,
    wrote,
)
from infermax_opt.cli.options import TRACE_FORMATS, seed_option
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text, to_fraction
from infermax_opt.core.options import also_read, decimal, window

if TYPE_CHECKING:
    from infermax_opt.core.band import Band
    from infermax_opt.fleet.machine_types import MachineType, Variant
    from infermax_opt.fleet.plan_row import PlanOptions, PlanRow, Split
    from infermax_opt.fleet.report import Proofs
    from infermax_opt.fleet.sweep import Plan

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
    callback=_names,
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
    "--decode-machine", metavar="NAME", help="Type of the machines that decode. Default: that of the row."
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
    from infermax_opt.files.proofs import check_folder
    from infermax_opt.files.writing import all_written
    from infermax_opt.fleet.report import plan_to_json
    from infermax_opt.fleet.report_text import plan_text
    from infermax_opt.fleet.sweep import Sweep, sweep
    from infermax_opt.foreign.traces import read_trace

    if options["mix"] and options["prices"] is None:
        raise InputError("needs the prices of the types: --prices", field="mix")
    for name in (output, *_outputs(output)):
        check_output(name, trace_file)
    if certificates is not None:
        check_folder(certificates)
    if options["decode_machine"] is not None and options["split"] is None:
        raise InputError("needs the time of a transfer: --split", field="decode-machine")
    asked = _asked(share, schedulers, compare, skip_unfit, options)
    trace = read_trace(
        trace_file, form, time_unit=options["time_unit"], first=options["first"], window=options["window"]
    )
    kinds = _machine_types(machines, options)
    everything = Sweep(kinds, rates, asked, fleets, options["mix"], options["time_limit"])
    found = sweep(trace, everything, progress_printer(progress))
    with all_written():
        proofs = {} if certificates is None else _write_certificates(found, certificates)
        value = plan_to_json(found, asked, os.path.basename(trace_file), proofs)
        _write(value, found.rows, output, None if as_json else plan_text(found, asked))
    return FAILED if any(row.never for row in found.rows) else DONE


def _outputs(output: str | None) -> list[str]:
    """The files of a page: itself, and the same numbers as JSON and CSV; of other outputs none."""
    if output is None or not output.lower().endswith(".html"):
        return []
    stem = output[: -len(".html")]
    return [output, f"{stem}.json", f"{stem}.csv"]


def _write(value: dict[str, Any], rows: list[PlanRow], output: str | None, text: str | None) -> None:
    """Write the files that are asked for, and print the text, or else the value."""
    from infermax_opt.files.writing import dump_json, write_text
    from infermax_opt.fleet.page import plan_page
    from infermax_opt.fleet.report import plan_csv

    made = _outputs(output)
    if made:
        page, as_json, as_csv = made
        dump_json(value, as_json)
        write_text(plan_csv(rows), as_csv)
        write_text(plan_page(value, made[1:], os.path.dirname(page) or "."), page)
    save(value, None if made else output, text, lambda: plan_csv(rows))
    if text is not None:
        wrote(*made)


def _asked(
    share: Fraction,
    schedulers: tuple[str, ...] | None,
    compare: str | None,
    skip_unfit: bool,
    options: dict[str, Any],
) -> PlanOptions:
    from infermax_opt.fleet.plan_row import PlanOptions
    from infermax_opt.fleet.planned import PLANNED, check_schedulers
    from infermax_opt.fleet.scaling import Scaling
    from infermax_opt.fleet.upper import SCHEDULERS
    from infermax_opt.infermax.data.instance import ServiceLevel

    slo = ServiceLevel(options["ttft"], options["tpot"], options["e2e"])
    start, stay = options["start_up"], options["min_stay"]
    scaling = None if start is stay is None else Scaling(start or Fraction(0), stay or Fraction(0))
    if options["windows"] == 0:
        raise InputError("0 s is no length of windows; it has to be above 0", field="windows")
    errors: tuple[Fraction, ...] = options["errors"]
    names = schedulers or (*SCHEDULERS, *(["srpt"] if errors else []), PLANNED)
    check_schedulers(names, compare, errors)
    rest = options["windows"], errors, options["seed"], _split(options), _variants(options)
    return PlanOptions(slo, share, names, compare, skip_unfit, scaling, *rest)


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
    found = []
    for name in machines:
        profile = read_profile(name) if name.lower().endswith((".json", ".json.gz")) else load_profile(name)
        if prices is not None and profile.name not in prices:
            raise InputError(f"has no price of {profile.name!r}", source=options["prices"])
        limits = options["max_batch_tokens"], options["max_prefill_tokens"], options["max_running"]
        price = None if prices is None else prices[profile.name]
        found.append(MachineType(profile.name, System(profile.capacity, *limits), profile.cost, price))
    return found


def _write_certificates(plan: Plan, folder: str) -> dict[int, Proofs]:
    """Write all proofs of a plan into a folder, each to a file of its own; those of rows by their places."""
    from infermax_opt.files.proofs import made_folder
    from infermax_opt.files.writing import dump_json
    from infermax_opt.fleet.report import Proofs

    made_folder(folder)
    taken: dict[str, int] = {}

    def written(certificate: dict[str, Any], wanted: str) -> str:
        # A profile may have any name, and several rows may have one: a path is made of neither.
        name = re.sub(r"[^\w.-]", "_", wanted).lstrip(".")
        taken[name] = taken.get(name, 0) + 1
        again = f"-{taken[name]}" if taken[name] > 1 else ""
        path = os.path.join(folder, f"{name}{again}.json")
        dump_json(certificate, path)
        return path

    found, known, apart, pools = {}, dict[str, str](), None, tuple[str, ...]()
    for k, row in enumerate(plan.rows):
        kind = f"{row.machine.name} {row.machine.variant.words.replace(' ', '')}".strip()
        stem, question = f"{kind}-rate{decimal_text(row.rate)}", row.question.sha256
        # Rows that differ in their predictions have the same proof.
        if question not in known:
            known[question] = written(row.bound.certificate, stem)
        if row.windows is not None and row.windows.certificate is not None:
            written(row.windows.certificate, f"{stem}-hours")
        if row.split is not None and row.split is not apart:
            apart = row.split
            sides = {"prefill": apart.prefill, "decode": apart.decode}
            pools = tuple(written(bound.certificate, f"{stem}-{side}") for side, bound in sides.items())
        found[k] = Proofs(known[question], *(pools if row.split is not None else ()))
    for rate, mix in plan.mixes:
        written(mix.bound.certificate, f"mix-rate{decimal_text(rate)}")
    for name, one in plan.sustained:
        if one.certificate is not None:
            written(one.certificate, f"{name}-fleet{one.machines}")
    return found
