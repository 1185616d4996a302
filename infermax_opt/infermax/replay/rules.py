"""The rules of DESIGN section 1.1, and what tells of a broken one."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.infermax.data.instance import Request

__all__ = ["Rule", "Violation", "before_arrival"]


class Rule(enum.Enum):
    """The rules of DESIGN section 1.1 that a schedule can break."""

    UNKNOWN_REQUEST = "unknown_request"
    FINISHED = "finished"
    TOKENS = "tokens"
    CHUNKED_PREFILL = "chunked_prefill"
    HYBRID_BATCHING = "hybrid_batching"
    PREEMPTION = "preemption"
    EVICTION = "eviction"
    MAX_BATCH_TOKENS = "max_batch_tokens"
    MAX_PREFILL_TOKENS = "max_prefill_tokens"
    KV_CAPACITY = "kv_capacity"
    MAX_RUNNING = "max_running"
    ARRIVAL = "arrival"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes
    ----------
    rule : Rule
    batch : int or None
        Position of the batch, from 1, repetitions counted; None for the whole schedule.
    request : str or None
    value, limit : int or Fraction or None
        What was found and what the rule allows.
    message : str
    """

    rule: Rule
    batch: int | None
    request: str | None
    value: int | Fraction | None
    limit: int | Fraction | None
    message: str

    def __str__(self) -> str:
        place = "schedule" if self.batch is None else f"batch {self.batch}"
        who = "" if self.request is None else f", request {self.request!r}"
        return f"{place}{who}: {self.rule.value}: {self.message}"


def before_arrival(
    request: Request, began: Fraction, batch: int, arrival: Fraction | None
) -> Violation | None:
    """What is wrong with processing a request in a batch that began then, in seconds; None if nothing is.

    Parameters
    ----------
    request : Request
    began : Fraction
        Seconds.
    batch : int
        Position, from 1.
    arrival : Fraction or None
        Seconds; None where it is never released.
    """
    if arrival is None:
        message = f"processed at {float(began):g} s, but the set of its class before is not complete"
        return Violation(Rule.ARRIVAL, batch, request.id, began, None, message)
    if began >= arrival:
        return None
    message = f"processed at {float(began):g} s, before its arrival at {float(arrival):g} s"
    return Violation(Rule.ARRIVAL, batch, request.id, began, arrival, message)
