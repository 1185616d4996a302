"""What ``import`` makes of a trace for this problem, and its options."""

from __future__ import annotations

from fractions import Fraction

import click

from infermax_opt.core.errors import InputError
from infermax_opt.core.importing import Made
from infermax_opt.core.lengths import MOST_ERROR
from infermax_opt.core.options import LARGEST_SEED, decimal_option, token_counts
from infermax_opt.files.traces import Trace
from infermax_opt.makespan.data.generate import DECODE, PREFILL
from infermax_opt.makespan.data.traces import client_instance, default_levels, without_long_prompts

__all__ = ["import_trace", "options"]


def options() -> list[click.Option]:
    """Options of the clients and the stages."""
    return [
        click.Option(
            ["--clients"], metavar="N", type=click.IntRange(1),
            help="Makespan: requests served at a time.",
        ),
        click.Option(
            ["--prefill-levels"], metavar="N,N,...", callback=token_counts,
            help="Makespan: input tokens that a prefill stage may take. Default: multiples of 128, up to 128 "
            "for each client and the longest prompt.",
        ),
        decimal_option(
            "--prefill-overhead", PREFILL[0],
            "Makespan: a prefill stage takes overhead + token * its level, s.",
        ),
        decimal_option("--prefill-token", PREFILL[1], "See --prefill-overhead, s."),
        decimal_option(
            "--decode-overhead", DECODE[0],
            "Makespan: a decode round takes overhead + token * clients, s.",
        ),
        decimal_option("--decode-token", DECODE[1], "See --decode-overhead, s."),
        click.Option(
            ["--estimate-error"], metavar="E", type=click.FloatRange(0, MOST_ERROR), default=0.0,
            show_default=True,
            help="Makespan: methods know output lengths up to a lognormal factor of this deviation.",
        ),
        click.Option(
            ["--seed"], type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True,
            help="Of Poisson arrivals, estimates and predictions.",
        ),
    ]  # fmt: skip


def import_trace(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    *,
    clients: int | None,
    prefill_levels: tuple[int, ...] | None,
    prefill_overhead: Fraction,
    prefill_token: Fraction,
    decode_overhead: Fraction,
    decode_token: Fraction,
    estimate_error: float,
    seed: int,
) -> Made:
    """Make a makespan instance of a trace.

    Parameters
    ----------
    trace : Trace
    name : str
        Of the instance.
    skip_unfit : bool
        Whether to leave out prompts beyond the largest level.
    clients : int
        Requests served at a time.
    prefill_levels : tuple of int, optional
        Tokens that a prefill stage may take.
    prefill_overhead, prefill_token, decode_overhead, decode_token : Fraction
        Seconds of the stages.
    estimate_error : float
        Deviation of the estimated output lengths.
    seed : int

    Raises
    ------
    InputError
        Without `clients`, if an option is unusable, or a prompt fits no level.
    """
    if clients is None:
        raise InputError("--problem makespan needs --clients.", field="clients")
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
    return Made(instance, trace.dropped, {**facts, "arrivals": "dropped"}, text)
