"""Metrics that are to be high, and what is minimised for each of them."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.readings import Quotient, Reading, Rest
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import Metric

__all__ = ["RATES", "READINGS", "best_effort", "check_asked", "reading_of"]

RATES = {
    "be_requests_per_second": Metric.UNSERVED,
    "be_tokens_per_second": Metric.UNSERVED_TOKENS,
}
"""Best-effort rates, and what they leave."""
READINGS = ("tokens_per_second", "attainment", *RATES)
"""Names of these metrics."""


def best_effort(instance: Instance) -> list[int]:
    """Numbers of the best-effort requests: those that are optional and have no service level."""
    terms = (request.terms for request in instance.requests)
    return [i for i, some in enumerate(terms) if some.optional and not some.slo]


def reading_of(instance: Instance, name: str) -> Reading | None:
    """How such a metric follows from what is minimised; None for another name.

    Parameters
    ----------
    instance : Instance
    name : str

    Raises
    ------
    InputError
        If the metric is undefined for the instance, or follows from nothing that is minimised.
    """
    if name == "tokens_per_second":
        if instance.required is not instance:
            raise InputError("there are optional requests, so tokens differ between schedules", field=name)
        return Quotient(Metric.MAKESPAN.value, instance.output_tokens)
    if name == "attainment":
        return _attainment(instance)
    return _rate(instance, name) if name in RATES else None


def check_asked(instance: Instance, name: str) -> None:
    """Refuse a question about a metric that every schedule keeps, as nothing counts in it.

    Parameters
    ----------
    instance : Instance
    name : str
        Of the metric.

    Raises
    ------
    InputError
    """
    if name == Metric.MISSED.value:
        _promised(instance, name)
    classes = {kind.terms.class_name for kind in instance.types}
    if name == Metric.CLASS_SPREAD.value and len(classes) == 1:
        raise InputError("all requests are of one class", field=name)


def _promised(instance: Instance, name: str) -> Fraction:
    """Weight of the requests with a service level."""
    weights = [request.terms.weight for request in instance.requests if request.terms.slo]
    if not weights:
        raise InputError("no request has a service level; --slo gives one", field=name)
    return sum(weights, Fraction(0))


def _attainment(instance: Instance) -> Rest:
    whole = _promised(instance, "attainment")
    return Rest(Metric.MISSED.value, whole, whole)


def _rate(instance: Instance, name: str) -> Rest:
    """What `unserved` counts are all optional requests, so those with a service level are in the way."""
    if not instance.horizon:
        raise InputError("the instance has no horizon above 0 by which requests count", field=name)
    optional = [request for request in instance.requests if request.terms.optional]
    if not optional:
        raise InputError("no request is optional", field=name)
    promised = next((request.id for request in optional if request.terms.slo), None)
    if promised is not None:
        raise InputError(f"request {promised!r} is optional and has a service level", field=name)
    tokens = RATES[name] is Metric.UNSERVED_TOKENS
    whole = sum((Fraction(r.output_tokens if tokens else r.terms.weight) for r in optional), Fraction(0))
    return Rest(RATES[name].value, whole, Fraction(instance.horizon))
