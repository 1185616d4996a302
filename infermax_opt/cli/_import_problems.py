"""What the command `import` makes of a trace, for each problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.problem import AnyInstance
from infermax_opt.files.report import seconds
from infermax_opt.files.traces import Trace

if TYPE_CHECKING:
    from infermax_opt.infermax.data.cost import CostModel
    from infermax_opt.infermax.data.instance import Policy, System
    from infermax_opt.placement.data.instance import PlacementInstance, Slo, Worker

__all__ = ["MAKERS", "Made"]


@dataclass(frozen=True)
class Made:
    """What was made of a trace.

    Attributes
    ----------
    instance : AnyInstance
    left_out : mapping of reason to int
        Requests of the trace that are not in it.
    facts : mapping
        For the summary.
    text : str
        The facts in words.
    """

    instance: AnyInstance
    left_out: Mapping[str, int]
    facts: Mapping[str, Any]
    text: str


def _batches(trace: Trace, name: str, skip_unfit: bool, *, objective: str, **machine: Any) -> Made:
    """An InferMax instance."""
    from infermax_opt.files.traces import trace_instance, without_unfit

    system, policy, cost = _machine(**machine)
    if skip_unfit:
        trace = without_unfit(trace, system, policy)
    instance = trace_instance(trace, name, system, cost, policy, objective)
    last = max(request.arrival for request in instance.requests)
    text = f"last arrival at {seconds(last)}, KV capacity {system.kv_capacity} tokens"
    return Made(instance, trace.dropped, {"last_arrival": last, "kv_capacity": system.kv_capacity}, text)


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
) -> Made:
    """A makespan instance."""
    from infermax_opt.makespan.data.traces import client_instance, default_levels, without_long_prompts

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


def _heartbeat(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    *,
    heartbeat: Fraction,
    at: Fraction | None,
    ongoing: bool,
    worker: str,
    ttft: Fraction | None,
    atgt: Fraction | None,
    theta: Fraction,
    gamma: Fraction,
    predict_error: float,
    seed: int,
) -> Made:
    """A placement instance."""
    from infermax_opt.cli.options import chosen_worker
    from infermax_opt.placement.data.traces import (
        busiest_heartbeat,
        heartbeat_instance,
        heartbeat_of,
        without_unplaceable,
    )

    machine, slo = chosen_worker(worker, ttft, atgt)
    end = busiest_heartbeat(trace, heartbeat) if at is None else at
    rest: dict[str, Any] = {"theta": theta, "gamma": gamma, "error": predict_error, "seed": seed}
    if ongoing:
        trace, instance = _under_way(trace, name, skip_unfit, machine, slo, end, heartbeat, **rest)
    else:
        if skip_unfit:
            trace = without_unplaceable(heartbeat_of(trace, end, heartbeat), machine, slo, **rest)
        instance = heartbeat_instance(trace, name, machine, slo, at=end, heartbeat=heartbeat, **rest)
    under_way = sum(request.ongoing for request in instance.requests)
    facts = {"at": end, "heartbeat": heartbeat, "worker": worker, "ttft": slo.ttft, "atgt": slo.atgt}
    facts["ongoing"] = under_way
    arrived = f"{under_way} under way; the others arrived" if under_way else "arrived"
    text = (
        f"{arrived} in the {seconds(heartbeat)} before {seconds(end)}, to be placed on workers of {worker} "
        f"within {seconds(slo.ttft)} TTFT and {seconds(slo.atgt)} ATGT"
    )
    return Made(instance, trace.dropped, facts, text)


def _under_way(
    trace: Trace,
    name: str,
    skip_unfit: bool,
    machine: Worker,
    slo: Slo,
    end: Fraction,
    heartbeat: Fraction,
    **rest: Any,
) -> tuple[Trace, PlacementInstance]:
    """A heartbeat with the requests that are on workers by then, where best-fit put them."""
    from dataclasses import replace

    from infermax_opt.cluster.data.formats import stream_of_trace
    from infermax_opt.cluster.replay.heartbeat import stream_heartbeat
    from infermax_opt.core.errors import InputError

    if heartbeat <= 0 or end % heartbeat:
        problem = f"{float(end):g} s is no multiple of the heartbeat of {float(heartbeat):g} s"
        raise InputError(f"{problem}, as --ongoing needs", field="at")
    trace = replace(trace, requests=tuple(r for r in trace.requests if r.arrival <= end))
    trace, stream = stream_of_trace(
        trace, name, machine, slo, skip_unfit=skip_unfit, heartbeat=heartbeat, **rest
    )  # fmt: skip
    return trace, replace(stream_heartbeat(stream, int(end / heartbeat)), name=name)


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
    from infermax_opt.infermax.data.instance import Policy, System
    from infermax_opt.infermax.data.profiles import load_profile

    loaded = load_profile(profile)
    capacity = loaded.kv_capacity if kv_capacity is None else kv_capacity
    system = System(capacity, max_batch_tokens, max_prefill_tokens, max_running, block_size)
    return system, Policy(**flags), loaded.cost


#: By the problem's name.
MAKERS: dict[str, Callable[..., Made]] = {
    "infermax": _batches,
    "makespan": _clients,
    "placement": _heartbeat,
}
