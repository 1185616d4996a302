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
from infermax_opt.cli.options import TRACE_FORMATS
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text, to_fraction
from infermax_opt.core.options import also_read, decimal, window

if TYPE_CHECKING:
    from infermax_opt.fleet.plan import MachineType, PlanOptions, PlanRow

__all__ = ["plan"]


def _rates(context: click.Context, parameter: click.Parameter, value: str) -> tuple[Fraction, ...]:
    try:
        found = tuple(dict.fromkeys(to_fraction(part.strip()) for part in value.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if not all(rate > 0 for rate in found):
        raise click.BadParameter(f"{value!r} is not a list of numbers above 0.")
    return found


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
@click.option("--skip-unfit", is_flag=True, help="Leave out requests that a machine can never hold.")
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
@click.option("--schedulers", metavar="A,B", callback=lambda c, p, v: v and _names(c, p, v),
              help="Tried on the machines. Default: sarathi,deadline,vllm_v1.")  # fmt: skip
@click.option(
    "--compare", metavar="SCHEDULER", help="Also find what each routing policy needs with this scheduler."
)
@click.option("--max-batch-tokens", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--max-prefill-tokens", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--max-running", type=click.IntRange(1), help="Requests that hold KV. Default: no limit.")
@click.option(
    "--fleet",
    "fleets",
    metavar="N",
    multiple=True,
    type=click.IntRange(1),
    help="Which rate N machines sustain.",
)
@click.option(
    "--prices", metavar="FILE", callback=also_read, shell_complete=files, help="CSV: machine,price_per_hour."
)
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
    "--certificates", metavar="FOLDER", shell_complete=folders, help="Write the proof of each row there."
)
@MAX_SIZE
@output_option("PLAN", "Write the plan to this file: .csv, or else JSON.")
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
    by routing policies with online schedulers, and replayed exactly; a request that nobody serves misses.
    The lower bound holds for every routing and schedule, also for such that know everything in advance.  If
    more requests than may miss their limits can never keep them, the exit code is 1, and the first of them
    are named.

    \b
    Examples:
      infermax-opt plan azure.csv --format azure --machines llama-3.1-8b_h100 --ttft 1 --tpot 0.05
      infermax-opt plan azure.csv --format azure --machines llama-2-7b_a100,llama-3.1-8b_h100 \
        --rates 0.5,1,2,4 --ttft 1 --tpot 0.05 --fleet 4 --prices prices.csv -o plan.csv
    """  # noqa: D301
    from infermax_opt.files.json import write_text
    from infermax_opt.fleet.plan import plan as rows_of
    from infermax_opt.fleet.plan import sustained
    from infermax_opt.fleet.report import plan_csv, plan_text, plan_to_json
    from infermax_opt.foreign.traces import read_trace

    check_output(output, trace_file)
    if certificates is not None:
        _made_folder(certificates)
    asked = _asked(share, schedulers, compare, skip_unfit, options)
    trace = read_trace(
        trace_file, form, time_unit=options["time_unit"], first=options["first"], window=options["window"]
    )
    kinds = _machine_types(machines, options)
    rows = rows_of(trace, kinds, rates, asked, progress_printer(progress))
    held = [one for count in fleets for one in sustained(rows, count)]
    if certificates is not None:
        _write_certificates(rows, certificates)
    value, text = plan_to_json(rows, asked, held), plan_text(rows, asked, held)
    made = None
    if output is not None and output.lower().endswith(".csv"):
        write_text(plan_csv(rows), output)
        made, output = output, None
    save(value, output, None if as_json else text)
    if not as_json:
        wrote(made)
    return FAILED if any(row.lower is None for row in rows) else DONE


def _asked(
    share: Fraction,
    schedulers: tuple[str, ...] | None,
    compare: str | None,
    skip_unfit: bool,
    options: dict[str, Any],
) -> PlanOptions:
    from infermax_opt.fleet.plan import PlanOptions
    from infermax_opt.fleet.scaling import Scaling
    from infermax_opt.fleet.upper import SCHEDULERS
    from infermax_opt.infermax.data.instance import ServiceLevel

    slo = ServiceLevel(options["ttft"], options["tpot"], options["e2e"])
    start, stay = options["start_up"], options["min_stay"]
    scaling = None if start is stay is None else Scaling(start or Fraction(0), stay or Fraction(0))
    return PlanOptions(slo, share, schedulers or SCHEDULERS, compare, skip_unfit, scaling)


def _machine_types(machines: tuple[str, ...], options: dict[str, Any]) -> list[MachineType]:
    from infermax_opt.fleet.plan import MachineType
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


def _made_folder(folder: str) -> None:
    """Make a folder before the work, so that the work is not lost."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", source=folder) from None


def _write_certificates(rows: list[PlanRow], folder: str) -> None:
    """Write the proof of each row into a folder, each to a file of its own."""
    from infermax_opt.files.json import dump_json

    taken: dict[str, int] = {}
    for row in rows:
        # A profile may have any name, and several rows may have one: a path is made of neither.
        name = re.sub(r"[^\w.-]", "_", f"{row.machine.name}-rate{decimal_text(row.rate)}").lstrip(".")
        taken[name] = taken.get(name, 0) + 1
        again = f"-{taken[name]}" if taken[name] > 1 else ""
        dump_json(row.bound.certificate, os.path.join(folder, f"{name}{again}.json"))
