"""What ``import`` makes of a trace for this problem, and its options."""

from __future__ import annotations

from fractions import Fraction

import click

from infermax_opt.core.completing import names
from infermax_opt.core.importing import Made
from infermax_opt.core.options import also_read
from infermax_opt.files.arrivals import Arrivals, arrival_options
from infermax_opt.files.text import seconds
from infermax_opt.files.traces import Trace
from infermax_opt.infermax.data.aims import parsed_objective, with_slos
from infermax_opt.infermax.data.instance import Policy, System
from infermax_opt.infermax.data.profiles import load_profile, profile_names, read_profile
from infermax_opt.infermax.data.traces import trace_instance, without_unfit

__all__ = ["import_trace", "options"]


def options() -> list[click.Option]:
    """Options of the machine, the policy and the objective."""
    return [
        click.Option(
            ["--profile"], default="llama-3.1-8b_h100", show_default=True,
            shell_complete=names(profile_names), help="Cost profile.",
        ),
        click.Option(
            ["--cost"], metavar="PROFILE", callback=also_read, shell_complete=names(tuple, or_files=True),
            help="Cost profile from this file (see `calibrate --for batches`), instead.",
        ),
        click.Option(["--kv-capacity"], type=click.IntRange(1), help="KV tokens. Default: the profile's."),
        click.Option(
            ["--max-batch-tokens"], type=click.IntRange(1), default=4096, show_default=True,
            help="Tokens that a batch may process.",
        ),
        click.Option(
            ["--max-prefill-tokens"], type=click.IntRange(1), default=4096, show_default=True,
            help="Tokens of prompts among these.",
        ),
        click.Option(
            ["--max-running"], type=click.IntRange(1), help="Requests that hold KV. Default: no limit."
        ),
        click.Option(
            ["--block-size"], type=click.IntRange(1), default=1, show_default=True,
            help="Tokens of a KV block.",
        ),
        click.Option(
            ["--hybrid-batching/--no-hybrid-batching"], default=True, show_default=True,
            help="Whether a batch may have both prompts and decodes.",
        ),
        click.Option(
            ["--chunked-prefill/--no-chunked-prefill"], default=True, show_default=True,
            help="Whether a prompt may be spread over several batches.",
        ),
        click.Option(
            ["--preemption/--no-preemption"], default=True, show_default=True,
            help="Whether requests may be evicted; what they held is computed again.",
        ),
        click.Option(
            ["--objective"], metavar="NAME|JSON", default="makespan", show_default=True,
            help="Metric to minimise, or weights by metric.",
        ),
        click.Option(
            ["--slo", "slos"], metavar="LIMITS", multiple=True,
            help="Service level of the requests, s: ttft=0.5,tpot=0.05,e2e=9.",
        ),
        *arrival_options(),
    ]  # fmt: skip


def import_trace(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    *,
    objective: str,
    slos: tuple[str, ...],
    profile: str,
    cost: str | None,
    kv_capacity: int | None,
    max_batch_tokens: int,
    max_prefill_tokens: int,
    max_running: int | None,
    block_size: int,
    rate: Fraction | None,
    poisson: Fraction | None,
    seed: int,
    **flags: bool,
) -> Made:
    """Make an InferMax instance of a trace.

    Parameters
    ----------
    trace : Trace
    name : str
        Of the instance.
    skip_unfit : bool
        Whether to leave out requests that can never fit.
    objective : str
        Name of a metric, or a JSON object of weights.
    slos : tuple of str
        ``ttft=S,tpot=S,e2e=S``, each limit as wanted.
    profile : str
        Of those that are shipped.
    cost : str or None
        Profile file, instead.
    kv_capacity, max_batch_tokens, max_prefill_tokens, max_running, block_size : int
        Of the machine; tokens and requests.
    rate, poisson, seed
        See `infermax_opt.files.arrivals.Arrivals`.
    **flags : bool
        Fields of `Policy`.

    Raises
    ------
    InputError
        If an option is unusable, or a request can never fit.
    """
    arrivals = Arrivals(rate, poisson, seed)
    trace = arrivals.of(trace)
    loaded = load_profile(profile) if cost is None else read_profile(cost)
    capacity = loaded.capacity if kv_capacity is None else kv_capacity
    system = System(capacity, max_batch_tokens, max_prefill_tokens, max_running, block_size)
    policy = Policy(**flags)
    if skip_unfit:
        trace = without_unfit(trace, system, policy)
    instance = trace_instance(trace, name, system, loaded.cost, policy, parsed_objective(objective))
    instance = with_slos(instance, slos)
    last = trace.requests[-1].arrival
    text = f"last arrival at {seconds(last)}, KV capacity {system.kv_capacity} tokens{arrivals.text}"
    facts = {"last_arrival": last, "kv_capacity": system.kv_capacity, **arrivals.facts}
    return Made(instance, trace.dropped, facts, text)
