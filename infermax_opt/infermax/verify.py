"""The verifier of the InferMax problem: replays a schedule, checks every rule and every claim of a result.

It imports no scheduler, formulation or solver, so that none of them can vouch for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.result import Claim, LowerBound
from infermax_opt.core.truth import ROUNDING, Finding, Truth, best_of, found_by_enumerating
from infermax_opt.core.verification import BaseVerification
from infermax_opt.files.certificates import certified_bound
from infermax_opt.infermax.bounds import all_own, closed_form_bounds, exhaustive, own_bounds
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.data.instance import Instance, Metric, Objective, RequestGroup
from infermax_opt.infermax.data.intervals import slowest
from infermax_opt.infermax.data.objective import BY_COUNT
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.metrics import (
    LATER,
    LATER_TOGETHER,
    RATES_LATER,
    Metrics,
    measure,
    objective_value,
)
from infermax_opt.infermax.replay.plain import Violation
from infermax_opt.infermax.replay.waits import after_arrivals

__all__ = ["Verification", "longest_each", "one_after_another", "verify_schedule"]

#: Most batches of a schedule that the verifier makes itself; replaying them takes a second or two.
MAX_OWN_BATCHES = 200_000


@dataclass(frozen=True)
class Verification(BaseVerification[Violation, Metrics]):
    """Outcome of the verification of a schedule or result of an InferMax instance."""


def verify_schedule(instance: Instance, schedule: Schedule | None, subject: Schedule | Claim) -> Verification:
    """Verify a schedule, and what a result claims.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule or None
        Of the subject; None where that is a bound alone.
    subject : schedule or Claim
        The schedule itself, or all that is claimed with it.

    Returns
    -------
    Verification
        Violations and faults as data; nothing is raised for a wrong schedule.  ``unchecked`` names the claims
        that could not be checked, with the reason, and ``notes`` the fields that claim nothing.  Of machines
        between two limits, metrics are those on the slowest, and the objective is the worst case.
    """
    violations: tuple[Violation, ...] = ()
    metrics = None
    objective = None
    if schedule is not None:
        # On the fastest machine; what is valid there is so on all, as no batch starts earlier.
        given = schedule if instance.slowest is None else after_arrivals(instance, schedule)
        replayed = replay(instance, given)
        violations = replayed.violations
        if replayed.valid and instance.slowest is not None:
            from infermax_opt.infermax.band import worst_objective

            metrics = measure(slowest(instance), replay(slowest(instance), given))
            objective = worst_objective(instance, given)
        elif replayed.valid:
            metrics = measure(instance, replayed)
            objective = objective_value(instance.objective, metrics)

    @cache
    def closed_form(source: str | None) -> Fraction | None:
        return _closed_form(instance, source, own_bounds if source is None else closed_form_bounds)

    def confirm(lower: Fraction) -> Finding:
        # A rounding below, so that a bound written as a double is not refuted for that.
        return found_by_enumerating(
            exhaustive.holds(instance, lower * (1 - ROUNDING)), _why_not_enumerated(instance)
        )

    def trivial() -> Fraction | None:
        if _batches_alone(instance) > MAX_OWN_BATCHES:
            return longest_each(instance)
        own = one_after_another(instance)
        return objective_value(instance.objective, measure(instance, replay(instance, own)))

    counted = {metric.value for metric in instance.objective.metrics}
    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=objective,
        closed_form=closed_form,
        confirm=confirm,
        certified=lambda claim: certified_bound(instance, claim, CERTIFICATION),
        trivial=trivial,
        proved_here=lambda source: (
            all_own() or _closed_form(instance, source, own_bounds) == closed_form(source)
        ),
        later=LATER,
        # A result whose objective is one of these knows them.
        later_together=tuple(some for some in (LATER_TOGETHER, RATES_LATER) if not some & counted),
    )
    return Verification.of(subject, truth)


def _closed_form(
    instance: Instance, source: str | None, forms: Callable[[Instance], Iterable[LowerBound]]
) -> Fraction | None:
    """Best closed-form bound of that source; of all without one.

    The source of a bound on several metrics names one for each: ``mean_ttft: work; makespan: KV area``.
    """
    value = best_of(forms(instance), source)
    if value is not None or source is None:
        return value
    weights = {metric.value: weight for metric, weight in instance.objective.weights}
    named = dict(part.partition(": ")[::2] for part in source.split("; "))
    if len(weights) < 2 or named.keys() != weights.keys():
        return None
    total = Fraction(0)
    for metric, name in named.items():
        value = _closed_form(replace(instance, objective=Objective.of(metric)), name, forms)
        if value is None:
            return None
        total += weights[metric] * value
    return total


def _why_not_enumerated(instance: Instance) -> str:
    """Why `exhaustive.holds` does not decide an instance, where it does not."""
    return exhaustive.why_not(instance) or f"enumerating takes more than {exhaustive.MAX_STEPS} steps"


def _batches_alone(instance: Instance) -> int:
    """Batches of `one_after_another`, without making it: of a million requests that takes long."""
    budget = instance.system.prefill_budget
    return sum(-(-some.input_tokens // budget) + some.output_tokens - 1 for some in instance.requests)


def one_after_another(instance: Instance) -> Schedule:
    """Each request alone, in the order of arrival: a schedule of every instance.

    Prompts are in chunks as large as a batch takes.
    """
    batches: list[Batch] = []
    budget = instance.system.prefill_budget
    for request in sorted(instance.requests, key=lambda some: some.arrival):
        # The chunks before the last one, which makes the first token.
        full = (request.input_tokens - 1) // budget
        if full:
            batches.append(Batch({request.id: budget}, start=request.arrival, repeat=full))
        rest = request.input_tokens - full * budget
        batches.append(Batch({request.id: rest}, start=None if full else request.arrival))
        if request.output_tokens > 1:
            batches.append(Batch({request.id: 1}, repeat=request.output_tokens - 1))
    return Schedule(instance.name, tuple(batches))


def longest_each(instance: Instance) -> Fraction | None:
    """Objective of `one_after_another` at most; None where even one request takes too many batches.

    No request takes longer alone than one with the longest prompt and the longest output of all: that has no
    fewer chunks and decodes, and no batch of it has fewer tokens, less in the cache or less attention work.
    So all requests, from the last arrival on, are served within that time for each, and no metric of
    a schedule is more than the time at which it ends, but for what is missed: the weight of all, at most.
    """
    prompt = max(request.input_tokens for request in instance.requests)
    output = max(request.output_tokens for request in instance.requests)
    capacity = instance.system.held(prompt + output - 1)
    if capacity > MAX_TOKENS:
        return None
    longest = replace(
        instance,
        groups=(RequestGroup("longest", prompt, output),),
        system=replace(instance.system, kv_capacity=capacity),
        release=None,  # sets come in this order, each after the one before
    )
    if _batches_alone(longest) > MAX_OWN_BATCHES:
        return None
    own = one_after_another(longest)
    end = max(request.arrival for request in instance.requests)
    end += len(instance.requests) * measure(longest, replay(longest, own)).makespan
    most: dict[Metric, Fraction | int] = {}
    if not set(instance.objective.metrics).isdisjoint(BY_COUNT):
        weight = sum((request.terms.weight for request in instance.requests), Fraction(0))
        most = dict.fromkeys(BY_COUNT, weight) | {Metric.UNSERVED_TOKENS: instance.output_tokens}
    return instance.objective.value(lambda metric: most.get(metric, end))
