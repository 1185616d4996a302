"""Whether first tokens decide what an objective is worth: alone, or among others."""

from __future__ import annotations

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import Latency, Metric

__all__ = ["counts_first_tokens", "levels_of_first_tokens", "only_first_tokens"]


def counts_first_tokens(instance: Instance) -> bool:
    """Whether the objective counts first tokens, among others."""
    found = [metric.latency is Latency.TTFT for metric in instance.objective.metrics]
    return any(found) or levels_of_first_tokens(instance)


def only_first_tokens(instance: Instance) -> bool:
    """Whether the objective counts nothing but first tokens."""
    levels = levels_of_first_tokens(instance)
    metrics = instance.objective.metrics
    return all(m.latency is Latency.TTFT or (levels and m is Metric.MISSED) for m in metrics)


def levels_of_first_tokens(instance: Instance) -> bool:
    """Whether missed service levels count, and all of them are about first tokens alone."""
    if Metric.MISSED not in instance.objective.metrics or instance.horizon is not None:
        return False
    slos = {request.terms.slo for request in instance.requests}
    return all(slo.tpot is None and slo.e2e is None for slo in slos)
