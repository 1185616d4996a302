"""Objectives and service levels as command-line options name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import parse_json, under
from infermax_opt.infermax.data.instance import Instance, Objective, RequestClass, RequestGroup, ServiceLevel

__all__ = ["parsed_objective", "with_slos"]


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
