"""What ``import`` makes of a trace for this problem, and its options."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import click

from infermax_opt.core.errors import InputError
from infermax_opt.core.importing import Made
from infermax_opt.core.options import decimal_option
from infermax_opt.files.traces import Trace
from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest
from infermax_opt.pipelining.data.queues import BLOCK, padded

__all__ = ["import_trace", "options"]


def options() -> list[click.Option]:
    """Options of the reservation and of the lengths."""
    return [
        click.Option(["--reservation"], metavar="N", type=click.IntRange(1), help="Pipelining: its tokens."),
        click.Option(
            ["--reservation-block"], metavar="N", type=click.IntRange(1), default=BLOCK, show_default=True,
            help="Pipelining: tokens of a KV block.",
        ),
        decimal_option("--padding", "0.15", "Pipelining: share added to each output length.", "X"),
        decimal_option("--buffer", "0.15", "Pipelining: share of a length by which it may run late.", "X"),
    ]  # fmt: skip


def import_trace(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    *,
    reservation: int | None,
    reservation_block: int,
    padding: Fraction,
    buffer: Fraction,
) -> Made:
    """Make a pipelining instance of the output lengths of a trace.

    Parameters
    ----------
    trace : Trace
    name : str
        Of the instance.
    skip_unfit : bool
        Whether to leave out requests that are longer than the reservation.
    reservation, reservation_block : int
        Tokens of the reservation and of a block.
    padding, buffer : Fraction
        Shares of a length.

    Raises
    ------
    InputError
        Without `reservation`, or if an option is unusable.
    """
    if reservation is None:
        raise InputError("--problem pipelining needs --reservation.", field="reservation")
    requests = tuple(
        PipeliningRequest(f"r{k}", padded(r.output_tokens, padding)) for k, r in enumerate(trace.requests, 1)
    )
    instance = PipeliningInstance(name, requests, reservation, block_size=reservation_block, buffer=buffer)
    unfit = len(requests) - len(instance.useful)
    left_out = dict(trace.dropped)
    if skip_unfit and unfit and instance.useful:
        instance = replace(instance, requests=tuple(requests[k] for k in instance.useful))
        left_out["longer than the reservation"] = unfit
    text = f"{reservation} tokens for reserved lengths of {sum(instance.sizes)} in all; arrivals are dropped"
    facts = {"capacity": reservation, "reserved_tokens": sum(instance.sizes), "arrivals": "dropped"}
    return Made(instance, left_out, facts, text)
