"""What `calibrate --for batches` does, and the options that only it takes: wiring only."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click

from infermax_opt.cli import completion
from infermax_opt.cli.console import DONE, check_output, check_outputs_differ, save, wrote
from infermax_opt.files.json import STANDARD

__all__ = ["OPTIONS", "batch_options", "calibrate_batches"]

F = TypeVar("F", bound=Callable[..., Any])
#: Share of the samples that the band holds.
SHARE = "0.9"


class _Decimal(click.ParamType):  # type: ignore[type-arg]  # generic in recent versions only
    """A decimal between limits."""

    name = "decimal"

    def __init__(self, least: int, most: int, *, open_below: bool = False):
        self.least, self.most, self.open_below = least, most, open_below

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        from infermax_opt.core.exact import to_fraction

        try:
            number = to_fraction(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if not self.least <= number <= self.most or (self.open_below and number == self.least):
            above = f"above {self.least} and at most" if self.open_below else f"between {self.least} and"
            self.fail(f"{value} is not {above} {self.most}.", param, ctx)
        return number


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--layers", metavar="N", type=click.IntRange(1, 10**4),
                 help="Batches: layers of the model; kernel tables and Vidur's profiles need it."),
    click.option("--max-sequences", metavar="N", type=click.IntRange(1, 10**6),
                 help="Batches, kernel tables: most sequences sampled in one. Default: the table's most."),
    click.option("--pieces", metavar="N", type=click.IntRange(1, 3),
                 help="Batches: lines of the non-attention time. Default: by cross-validation."),
    click.option("--attention", type=click.Choice(["square", "exact"]),
                 help="Batches: how the work of a prefill chunk counts. Default: by cross-validation."),
    click.option("--mixed", is_flag=True,
                 help="Batches: fit what those of both kinds take longer; no formulation takes it."),
    click.option("--prefix", is_flag=True,
                 help="Batches: fit what chunks take longer behind cached tokens; no formulation takes it."),
    click.option("--composed", is_flag=True,
                 help="Batches, kernel tables: fit whole batches, composed of kernels, not each kernel."),
    click.option("--share", metavar="X", type=_Decimal(0, 1, open_below=True), default=SHARE,
                 show_default=True, help="Batches: share of the samples that the band holds."),
    click.option("--host-overhead", metavar="S", type=_Decimal(0, 10), default="0", show_default=True,
                 help="Batches: what the host adds to every batch, s, which no sample has."),
    click.option("--plot", "picture", metavar="PICTURE", shell_complete=completion.files,
                 help="Batches: draw the residuals into this .png or .svg file."),
    click.option("--name", metavar="NAME", help="Batches: name of the profile. Default: the samples'."),
    click.option("--model", metavar="TEXT", help="Batches: the model, for the profile."),
    click.option("--device", metavar="TEXT", help="Batches: the GPUs, for the profile, as in 'h100 x2'."),
)  # fmt: skip
#: Names of these options.
OPTIONS = (
    "layers", "max_sequences", "pieces", "attention", "mixed", "prefix", "composed", "share", "host_overhead",
    "picture", "name", "model", "device",
)  # fmt: skip


def batch_options(command: F) -> F:
    """Give a command the options of `calibrate_batches`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def calibrate_batches(
    path: str,
    *,
    weights: str,
    cover: str,
    gpus: int | None,
    kv_capacity: Fraction | None,
    output: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Fit the cost model of batches and write a profile.

    Parameters
    ----------
    path : str
        Samples.
    weights, cover : str
    gpus : int, optional
    kv_capacity : Fraction, optional
        KV tokens.
    output : str, optional
        Profile file.
    as_json : bool
    **options
        Those of `batch_options`.
    """
    from infermax_opt.files.writing import all_written, dump_json
    from infermax_opt.latency.batches import report
    from infermax_opt.latency.batches.fit import fit_batches
    from infermax_opt.latency.batches.read import read_batches

    if kv_capacity is not None and kv_capacity.denominator != 1:
        raise click.UsageError("--kv-capacity of a cost profile is a whole number of tokens.")
    picture, overhead = options["picture"], options["host_overhead"]
    if picture is not None:
        from infermax_opt.files.figure import picture_format

        picture_format(picture)
        check_output(picture, path)
    check_output(output, path)
    check_outputs_differ(picture, output)
    samples = read_batches(path, layers=options["layers"], max_sequences=options["max_sequences"], gpus=gpus)
    made = fit_batches(
        samples, pieces=options["pieces"], attention=options["attention"], weights=weights, cover=cover,
        mixed=options["mixed"], prefix=options["prefix"],
        composed=options["composed"], share=options["share"],
    )  # fmt: skip
    value = report.profile_to_json(
        made, name=options["name"] or _named(path), model=options["model"], device=options["device"],
        kv_capacity=None if kv_capacity is None else int(kv_capacity), overhead=overhead,
    )  # fmt: skip
    with all_written():
        save(value, None, None if as_json else report.batch_fit_text(made, overhead))
        if output is not None:
            dump_json(value, output)
        if picture is not None:
            from infermax_opt.files.figure import save_picture
            from infermax_opt.latency.batches.plot import plot_residuals

            save_picture(plot_residuals(made), picture)
        if not as_json:
            wrote(output, picture)
    return DONE


def _named(path: str) -> str:
    """What a profile is called for which the user has no name."""
    from infermax_opt.latency.batches.aiconfigurator import is_aiconfigurator, name_of

    if is_aiconfigurator(path):
        return name_of(path)
    stem = os.path.basename(os.path.abspath(path)).removesuffix(".gz").removesuffix(".csv")
    return "stdin" if path == STANDARD else stem
