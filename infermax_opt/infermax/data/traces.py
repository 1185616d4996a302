"""Traces as InferMax instances."""

from __future__ import annotations

from functools import partial

from infermax_opt.core.checks import checked_number
from infermax_opt.files.traces import Trace, TraceRequest, check_fit, keep_fit
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System

__all__ = ["misfit", "trace_instance", "without_unfit"]


def misfit(request: TraceRequest, system: System, policy: Policy) -> str | None:
    """Why no schedule can serve the request, if so.

    Parameters
    ----------
    request : TraceRequest
    system : System
    policy : Policy
    """
    peak = system.held(request.input_tokens + request.output_tokens - 1)
    if peak > system.kv_capacity:
        return f"its peak KV of {peak} tokens exceeds the KV capacity of {system.kv_capacity}"
    if not policy.chunked_prefill and request.input_tokens > system.prefill_budget:
        return (
            f"its {request.input_tokens} input tokens exceed a batch's {system.prefill_budget} "
            "and chunked prefill is off"
        )
    return None


def without_unfit(trace: Trace, system: System, policy: Policy) -> Trace:
    """Leave out, and count, the requests that no schedule can serve.

    Parameters
    ----------
    trace : Trace
    system : System
    policy : Policy
    """
    return keep_fit(trace, partial(misfit, system=system, policy=policy))


def trace_instance(
    trace: Trace,
    name: str,
    system: System,
    cost: CostModel,
    policy: Policy | None = None,
    objective: Objective | str = "makespan",
) -> Instance:
    """Make an instance of a trace; its requests are named ``r1``, ``r2``, ... by arrival.

    Parameters
    ----------
    trace : Trace
    name : str
        Of the instance.
    system : System
    cost : CostModel
    policy : Policy, optional
    objective : Objective or str

    Raises
    ------
    InputError
        If a request can never be served, naming its line.
    """
    policy = policy or Policy()
    checked_number(len(trace.requests))
    check_fit(trace, partial(misfit, system=system, policy=policy))
    groups = tuple(
        RequestGroup(f"r{k}", r.input_tokens, r.output_tokens, r.arrival)
        for k, r in enumerate(trace.requests, 1)
    )
    return Instance(name, groups, system, cost, policy, objective)  # type: ignore[arg-type]
