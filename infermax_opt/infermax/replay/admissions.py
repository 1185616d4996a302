"""The order in which a schedule first processes requests."""

from __future__ import annotations

from infermax_opt.core.admissions import Admission
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule

__all__ = ["admissions"]


def admissions(instance: Instance, schedule: Schedule) -> list[Admission]:
    """Requests by the batch that first processes them; within it in the order of its entry.

    Only a prefill can be the first, and each is named: ``decode: all`` adds nobody.  An optional request that
    is never processed is left out.
    """
    names = dict.fromkeys(name for batch in schedule.batches for name in batch.tokens)
    served = (instance.requests[instance.index[name]] for name in names)
    return [Admission(r.id, r.arrival, r.input_tokens, r.output_tokens) for r in served]
