"""The order in which a schedule prefills requests."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.admissions import Admission
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule

__all__ = ["admissions"]


def admissions(instance: MakespanInstance, schedule: MakespanSchedule) -> list[Admission]:
    """Requests by the bin that prefills them; within it in the order of its entry.  All are there at 0 s."""
    served = (instance.requests[instance.index[name]] for some in schedule.bins for name in some.prefill)
    return [Admission(r.id, Fraction(0), r.input_tokens, r.output_tokens) for r in served]
