"""Which requests no machine serves in time, however many there are, and which limit each breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infermax_opt.fleet.checker.machine import later_ticks, prompt_ticks
from infermax_opt.fleet.machine import machine_of
from infermax_opt.fleet.question import FleetQuestion

__all__ = ["NAMED", "reasons"]

#: Requests that are named, at most.
NAMED = 3


def reasons(question: FleetQuestion, lost: Sequence[int], lines: Mapping[str, int]) -> list[str]:
    """A line for each of the first ones: those that do not fit, then by what each takes at least alone.

    Parameters
    ----------
    question : FleetQuestion
    lost : sequence of int
        Places of requests that never keep their limits, as the pooled bound finds them.
    lines : mapping of str to int
        Line of each request in the trace, by its id.
    """
    machine, unit = machine_of(question.workload), question.workload.cost.ticks_per_second
    found = [f"request {one.request.id!r} ({one.line}): {one.reason}" for one in question.unfit[:NAMED]]
    for i in lost[: NAMED - len(found)]:
        request, slo = question.workload.requests[i], question.levels[i]
        first = prompt_ticks(machine, request.input_tokens) / unit
        steps = request.output_tokens - 1
        later = later_ticks(machine, request.input_tokens, 2, request.output_tokens) / unit
        tokens = f"{request.input_tokens} input, {request.output_tokens} output tokens"
        told = f"request {request.id!r} (line {lines[request.id]}; {tokens})"
        if slo.ttft is not None and first > slo.ttft:
            limit = f"first token after {first:.4g} s at least; the limit ttft is {float(slo.ttft):g} s"
        elif slo.tpot is not None and steps and later > slo.tpot * steps:
            limit = f"{later / steps:.4g} s a token at least; the limit tpot is {float(slo.tpot):g} s"
        else:
            limit = (
                f"last token after {first + later:.4g} s at least; the limit e2e is {float(slo.e2e or 0):g} s"
            )
        found.append(f"{told}: {limit}")
    return found
