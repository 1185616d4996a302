"""The objective as a cost rate per state."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.exact.moves import Node

__all__ = ["Rates"]


class Rates:
    """The objective as a cost per second spent in a state, scaled to integers.

    The makespan and every sum of latencies is an integral over time: the makespan of 1, a TTFT of the
    weights of the requests without a first token, an end-to-end latency of those of the unfinished
    ones, a TPOT of weight / (O-1) of the requests between first and last token.  (Arrivals shift TTFT
    and latency by a constant.)

    Attributes
    ----------
    scale : int
        All rates are multiplied by it.
    makespan : int
    """

    def __init__(self, instance: Instance):
        objective, kinds = instance.objective, instance.types
        if objective.beyond_sums:
            raise ValueError(f"{objective.beyond_sums[0].value} is no integral over time")
        before, after = objective.rates(kinds)
        makespan = objective.weight(Metric.MAKESPAN)
        self.scale = scale = lcm(*(value.denominator for value in (makespan, *before, *after)))
        self.makespan = int(makespan * scale)
        self.before = [int(value * scale) for value in before]
        self.after = [int(value * scale) for value in after]
        self.shift = sum(
            (kind.arrival * len(kind.members) * rate for kind, rate in zip(kinds, before, strict=True)),
            start=Fraction(0),
        )
        self.per_request = any(self.before) or any(self.after)

    def of(self, node: Node) -> int:
        """Rate of one request in `node`."""
        return self.after[node.kind] if node.generated else self.before[node.kind]
