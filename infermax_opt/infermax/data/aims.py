"""Objectives and service levels as command-line options name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import parse_json, under
from infermax_opt.infermax.data.instance import (
    Instance,
    Metric,
    Objective,
    RequestClass,
    RequestGroup,
    ServiceLevel,
)
from infermax_opt.infermax.data.objective import AT_MOST

__all__ = ["keeping", "parsed_objective", "with_slos"]


def parsed_objective(text: str) -> Objective:
    """Read the name of a metric, or a JSON object of weights by metric."""
    if not text.lstrip().startswith("{"):
        return Objective.of(text)
    with under("objective"):
        weights = parse_json(text)
    return Objective.of(weights)


def with_slos(instance: Instance, slos: Sequence[str]) -> Instance:
    """The instance with service levels by default: each limit of an option where a request has none itself.

    Parameters
    ----------
    instance : Instance
    slos : sequence of str
        ``CLASS:ttft=S,tpot=S,e2e=S``, which come before those of the class in the file, or the same without a
        class, which come after those of any class.  Of two for the same limit the last one counts.

    Raises
    ------
    InputError
        If one cannot be read, or no request is of its class.
    """
    general = ServiceLevel()
    classes = {known.name: known for known in instance.classes}
    named = {group.class_name for group in instance.groups}
    for text in slos:
        name, colon, limits = text.rpartition(":")
        level = _level(limits)
        if not colon:
            general = level.over(general)
            continue
        if name not in named:
            raise InputError(f"no request is of the class {name!r}", field="slo")
        known = classes.get(name, RequestClass(name))
        classes[name] = replace(known, slo=level.over(ServiceLevel.of(known.slo, "slo")))

    def promised(group: RequestGroup) -> RequestGroup:
        own = ServiceLevel.of(group.slo, "slo")
        known = classes.get(group.class_name or "")
        if known is not None:
            own = own.over(ServiceLevel.of(known.slo, "slo"))
        return replace(group, slo=own.over(general))

    groups = tuple(map(promised, instance.groups)) if general else instance.groups
    return replace(instance, groups=groups, classes=tuple(classes.values()))


def _level(text: str) -> ServiceLevel:
    """Read ``ttft=0.5,tpot=0.05``."""
    limits: dict[str, str] = {}
    for part in text.split(","):
        name, equals, seconds = part.partition("=")
        if not equals or name in limits:
            problem = "is there twice" if equals else "is not NAME=SECONDS, with ttft, tpot or e2e"
            raise InputError(f"{part!r} {problem}", field="slo")
        limits[name] = seconds
    return ServiceLevel.of(limits, "slo")


def keeping(
    instance: Instance, limits: Mapping[str, Fraction], attainment: Fraction | None
) -> tuple[Objective, Fraction]:
    """The objective whose optimum tells whether a schedule keeps limits and this attainment, and its most.

    Parameters
    ----------
    instance : Instance
    limits : mapping of metric to Fraction
    attainment : Fraction or None
        The least share that keeps its service levels, by weight.

    Raises
    ------
    InputError
        If a metric cannot be minimised, or no request has a service level.
    """
    found = dict(limits)
    if attainment is not None:
        promised = [request.terms.weight for request in instance.requests if request.terms.slo]
        if not promised:
            raise InputError("no request has a service level; --slo gives one", field="at_least.attainment")
        if attainment > 1:
            raise InputError(f"{float(attainment):g} is above 1", field="at_least.attainment")
        most = (1 - attainment) * sum(promised)
        missed = Metric.MISSED.value
        found[missed] = min(most, found.get(missed, most))
    askable = [metric.value for metric in Metric]
    for name in found:
        if name not in askable:
            raise InputError(f"{name!r} is none of {', '.join(askable)}", field="at_most")
    if len(found) == 1:
        ((name, limit),) = found.items()
        return Objective.of(name), limit
    return Objective.of({AT_MOST: found}), Fraction(1)
