"""The objective as a cost rate per state."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.exact.moves import Node

__all__ = ["Rates"]


class Rates:
    """The objective as a cost per second spent in a state, scaled to integers.

    Every metric is an integral over time: the makespan of 1, the mean TTFT of the share of
    requests without a first token, the mean end-to-end latency of the share of unfinished ones,
    the mean TPOT of the sum of 1/(O-1) over requests between first and last token, divided by the
    number of requests with O > 1.  (Arrivals shift TTFT and latency by a constant.)

    Attributes
    ----------
    scale : int
        All rates are multiplied by it.
    makespan : int
    """

    def __init__(self, instance: Instance):
        objective = instance.objective
        requests = len(instance.requests)
        several = sum(1 for r in instance.requests if r.output_tokens > 1)
        ttft = objective.weight(Metric.MEAN_TTFT) / requests
        e2e = objective.weight(Metric.MEAN_E2E) / requests
        # Where no request has two output tokens the mean TPOT is undefined and counts as 0.
        tpot = objective.weight(Metric.MEAN_TPOT) / max(1, several)
        before, after = [], []
        for kind in instance.types:
            steps = kind.output_tokens - 1
            before.append(ttft + e2e)
            after.append(e2e + (tpot / steps if steps else 0))
        makespan = objective.weight(Metric.MAKESPAN)
        self.scale = scale = lcm(*(Fraction(value).denominator for value in (makespan, *before, *after)))
        self.makespan = int(makespan * scale)
        self.before = [int(value * scale) for value in before]
        self.after = [int(value * scale) for value in after]
        self.shift = sum(
            (kind.arrival * len(kind.members) * (ttft + e2e) for kind in instance.types),
            start=Fraction(0),
        )
        self.per_request = any(self.before) or any(self.after)

    def of(self, node: Node) -> int:
        """Rate of one request in `node`."""
        return self.after[node.kind] if node.generated else self.before[node.kind]
