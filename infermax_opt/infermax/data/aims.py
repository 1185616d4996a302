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
from infermax_opt.infermax.data.readings import READINGS, reading_of

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
    if not slos:
        return instance
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
    instance: Instance, limits: Mapping[str, Fraction], least: Mapping[str, Fraction]
) -> tuple[Objective, Fraction]:
    """The objective whose optimum tells whether a schedule keeps all of this, and its most.

    Parameters
    ----------
    instance : Instance
    limits : mapping of metric to Fraction
        Most of what can be minimised.
    least : mapping of metric to Fraction
        Least of `READINGS`.

    Raises
    ------
    InputError
        If a metric cannot be minimised, is none of `READINGS`, or undefined for the instance.
    """
    found = dict(limits)
    for name, value in least.items():
        with under("at_least"):
            reading = reading_of(instance, name)
        if reading is None:
            raise InputError(f"{name!r} is none of {', '.join(READINGS)}", field="at_least")
        most = reading.limit(value, f"at_least.{name}")
        found[reading.metric] = min(most, found.get(reading.metric, most))
    askable = [metric.value for metric in Metric]
    for name in found:
        if name not in askable:
            raise InputError(f"{name!r} is none of {', '.join(askable)}", field="at_most")
    if len(found) == 1:
        ((name, limit),) = found.items()
        return Objective.of(name), limit
    return Objective.of({AT_MOST: found}), Fraction(1)
