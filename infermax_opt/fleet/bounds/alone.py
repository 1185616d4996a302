"""Which requests no machine serves in time, however many there are, and which limit each breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from infermax_opt.core.exact import decimal_text, figures_text
from infermax_opt.fleet.question import FleetQuestion

__all__ = ["NAMED", "reasons"]

#: Requests that are named, at most.
NAMED = 3
#: Significant digits of what they take, as few as tell it from the limit.
FIGURES = range(4, 16)


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
    unit = question.workload.cost.ticks_per_second
    found = [f"request {one.request.id!r} ({one.line}): {one.reason}" for one in question.unfit[:NAMED]]
    for i in lost[: NAMED - len(found)]:
        request, slo = question.workload.requests[i], question.levels[i]
        first, later = (Fraction(ticks, unit) for ticks in question.least_ticks[i])
        steps = request.output_tokens - 1
        tokens = f"{request.input_tokens} input, {request.output_tokens} output tokens"
        told = f"request {request.id!r} (line {lines[request.id]}; {tokens})"
        if slo.ttft is not None and first > slo.ttft:
            limit = _broken("first token after {} s at least", first, "ttft", slo.ttft)
        elif slo.tpot is not None and steps and later > slo.tpot * steps:
            limit = _broken("{} s a token at least", later / steps, "tpot", slo.tpot)
        else:
            limit = _broken("last token after {} s at least", first + later, "e2e", slo.e2e or Fraction(0))
        found.append(f"{told}: {limit}")
    return found


def _broken(words: str, least: Fraction, name: str, limit: Fraction) -> str:
    """What is taken at least, rounded down but still above the limit, and the limit."""
    texts = (figures_text(least, digits, "floor") for digits in FIGURES)
    shown = next((text for text in texts if Fraction(text) > limit), f"more than {decimal_text(limit)}")
    return f"{words.format(shown)}; the limit {name} is {decimal_text(limit)} s"
